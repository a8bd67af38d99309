"""Distance helpers of the searches by matrix products: a shift, the rounding bound, and exact differences.

A product gives |x|^2 + |y|^2 - 2 x.y, which loses the distance of near points that are far from the origin. So
coordinates are shifted by a typical point, the products only select candidate pairs, and distances are computed from
differences of the original coordinates.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.integer]

SAMPLED = 256  # rows from which the typical point is computed
DIFFERENCES = 2**18  # elements in memory at one time; does not affect results


def typical_point(points: Floats) -> F64:
    """The median (d,) of each coordinate over a few evenly spaced points of (n, d); zeros if there are none.

    Unlike the mean it stays among the points if a few rows are far away, such as rows of fill values.
    """
    if not len(points):
        return np.zeros(points.shape[1])
    sampled = points[:: -(-len(points) // SAMPLED)]
    half = len(sampled) // 2
    return np.asarray(np.partition(sampled, half, axis=0)[half], np.float64)


def square_rounding(n_features: int) -> float:
    """c such that |x|^2 + |y|^2 - 2 x.y, of points with the same shift, has an error of at most c (|x|^2 + |y|^2).

    For float64 and any order of the sums of d + 2 terms, including the rounding of the shift (Higham 2002, section
    3.1). Squared distances from float64 differences have a relative error of at most c.
    """
    return float((2 * n_features + 16) * np.finfo(np.float64).eps)


def pair_distances(left: Floats, rows: Ids, right: Floats, columns: Ids) -> F64:
    """Distances (h,) of the pairs left[rows], right[columns], from differences in float64, some pairs at a time."""
    out = np.empty(len(rows))
    step = max(1, DIFFERENCES // max(1, left.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        difference = np.subtract(right[columns[part]], left[rows[part]], dtype=np.float64)
        out[part] = np.sqrt(np.einsum("hd,hd->h", difference, difference))
    return out

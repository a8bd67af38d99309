"""What searches by matrix products share: where to take squares about, how far they are rounded, and differences.

A product gives |x|^2 + |y|^2 - 2 x.y, from which the distance of near points is lost where they lie far from the origin
of the coordinates. So squares are taken about a typical point, they only tell which pairs to look at, and distances
come from the differences of the coordinates as they were given.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.integer]

SAMPLED = 256  # rows that tell where the points lie
DIFFERENCES = 2**18  # held at one time; changes no result


def typical_point(points: Floats) -> F64:
    """The median (d,) of each coordinate over some of the points (n, d), evenly spaced; zeros where there are none.

    Unlike the mean it stays among the points where a few rows lie far off, such as those of fill values.
    """
    if not len(points):
        return np.zeros(points.shape[1])
    some = points[:: -(-len(points) // SAMPLED)]
    half = len(some) // 2
    return np.asarray(np.partition(some, half, axis=0)[half], np.float64)


def square_rounding(n_features: int) -> float:
    """c such that |x|^2 + |y|^2 - 2 x.y, of points shifted alike, is right to within c (|x|^2 + |y|^2).

    For float64 and any order of the sums, d + 2 terms each, with the rounding of the shift (Higham 2002, section 3.1);
    the squared distances of float64 differences are right to within c of themselves.
    """
    return float((2 * n_features + 16) * np.finfo(np.float64).eps)


def pair_distances(left: Floats, rows: Ids, right: Floats, columns: Ids) -> F64:
    """Distances (h,) of the pairs left[rows], right[columns], by differences in float64, some at a time."""
    out = np.empty(len(rows))
    step = max(1, DIFFERENCES // max(1, left.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        difference = np.subtract(right[columns[part]], left[rows[part]], dtype=np.float64)
        out[part] = np.sqrt(np.einsum("hd,hd->h", difference, difference))
    return out

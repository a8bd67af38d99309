"""Quality measures on a sample of points, each against all points.

All distances are squared Euclidean distances, in squared units of the space.
"""

from typing import TYPE_CHECKING

import numpy as np

from ...core.arrays import Bools, Float64, Floats, Int64, Ints
from ...core.errors import InputError
from ..batches import batches
from ..eigensolver.rows import ALL_ROWS, Rows

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

NEAREST_LISTED = 3
"""Nearest points that are listed for each threshold; does not affect results."""

TREE_FEATURES = 3
"""Up to this number of features a k-d tree counts balls faster than a matrix product; in ten it is 20 times slower."""

SORTED_SHARE, SORTED_ELEMENTS = 16, 2**29
"""All distances are computed and sorted if there is a threshold for each SORTED_SHARE points of a block. This is also
done for up to SORTED_ELEMENTS elements, because it takes less time than loading numba, a quarter of a second. A
distance counts as an element for each feature, and 64 more for sorting it. Up to TREE_FEATURES features the limit is a
quarter: a thousand points against two thousand take as long as by the tree."""

TREE_POINTS = 2**24
"""Points of an embedding in one k-d tree; of points at the same distance it may decide which one counts as nearest."""

ROUNDING = 1e-12
"""Relative difference below which squared distances are equal; a sum of d squares is exact to about d 1e-16."""

AS_NEAR = 1e-9
"""Relative difference, far above rounding errors, within which a squared distance to a block counts as near enough."""

GAP = 0.1
"""See ``separated``. Tables with long tails have 0.16 to 0.6 there, groups far from the others 0.07 and less."""


def participation(vectors: Float64, rows: Rows = ALL_ROWS) -> Float64:
    """Participation ratio (sum v^2)^2 / sum v^4 of each column of (n, m): the effective number of its points.

    n for a vector of equal absolute values, 1 for a unit vector, 0 for a column of zeros.

    >>> participation(np.array([[1.0, 0.0], [-1.0, 2.0], [1.0, 0.0]]))
    array([3., 1.])
    """
    largest = np.abs(rows.largest(vectors))
    squares = np.square(vectors / np.where(largest > 0, largest, 1.0))
    total, fourth = (rows.per_cut(lambda cut: each[cut].sum(axis=0), each) for each in (squares, np.square(squares)))  # noqa: B023
    return np.asarray(total**2 / np.where(largest > 0, fourth, 1.0))


def separated(vector: Float64) -> int:
    """About how many points a vector (n,) separates from the others by a gap, at most a tenth of them; else 0.

    The number is N, the participation. There is a gap if the absolute value of rank 2 N is below GAP times that of rank
    N / 2. In distributions with long tails it is above.
    """
    n, size = len(vector), max(round(float(participation(vector[:, None])[0])), 1)
    inside, outside = max(n - (size + 1) // 2, 0), max(n - 2 * size - 1, 0)
    ordered = np.partition(np.abs(vector), [inside, outside])
    return size if 10 * size <= n and ordered[outside] < GAP * ordered[inside] else 0


def nearest_others(embedding: Float64, chosen: Int64, k: int) -> Int64:
    """The k nearest other points of an embedding (n, m) for some of its points (s,), nearest first: (s, k).

    Of a point with equal points, which may displace it in its own list, the farthest is left out instead of itself.
    """
    from scipy.spatial import cKDTree  # a fifth of a second

    nearest, ids = np.full((len(chosen), 0), np.inf), np.full((len(chosen), 0), -1)
    for start in range(0, len(embedding), TREE_POINTS):
        distances, near = cKDTree(embedding[start : start + TREE_POINTS]).query(embedding[chosen], k + 1)
        nearest, ids = np.hstack([nearest, distances]), np.hstack([ids, near + start])
        order = np.argsort(nearest, axis=1, kind="stable")[:, : k + 1]  # slots without a point are at distance inf
        nearest, ids = np.take_along_axis(nearest, order, axis=1), np.take_along_axis(ids, order, axis=1)
    keep = ids != chosen[:, None]
    keep[keep.all(axis=1), -1] = False
    return np.asarray(ids[keep].reshape(len(ids), -1), np.int64)


def neighbor_thresholds(sample: Floats, points: Floats, neighbors: Ints) -> Float64:
    """Squared distances (s, q) of a sample (s, d) to its neighbours among points (n, d), ascending in each row."""
    squares = np.empty(neighbors.shape)
    for part in batches(len(sample), 16 * neighbors.shape[1] * sample.shape[1]):
        differences = np.subtract(points[neighbors[part]], sample[part, None, :], dtype=np.float64)
        np.einsum("sqd,sqd->sq", differences, differences, out=squares[part])
    return np.sort(squares, axis=1)


def count_closer(sample: Floats, sample_ids: Ints, block: Floats, first_row: int, thresholds: Float64) -> Int64:
    """For each sample point and threshold, the number of closer points in a block: (s, q).

    Closer means a squared distance below threshold (1 - ``ROUNDING``): the neighbour that gave the threshold and
    neighbours at the same distance do not count. The point itself is excluded by its id. Distances come from a matrix
    product; those that are undecided within its rounding error are recomputed from differences, so the counts equal
    those of direct differences. The counts of blocks add up for any division into blocks.

    Args:
        sample: (s, d).
        sample_ids: (s,) ids of the sample points among all points.
        block: (b, d) points with the ids first_row, ..., first_row + b - 1.
        first_row: id of the first point of the block.
        thresholds: (s, q) squared distances, ascending in each row.
    """
    limits = thresholds * (1 - ROUNDING)
    is_low = block.shape[1] <= TREE_FEATURES
    elements = len(sample) * len(block) * (64 + block.shape[1])
    if elements <= SORTED_ELEMENTS / (4 if is_low else 1) or thresholds.shape[1] * SORTED_SHARE >= len(block):
        return _count_by_sorting(sample, sample_ids, block, first_row, limits)
    if is_low:
        counts, near = np.zeros(thresholds.shape, np.int64), _near_block(sample, block, limits[:, -1])
        if len(near):
            counts[near] = _count_by_tree(sample[near], sample_ids[near], block, first_row, limits[near])
        return counts
    from .count_pairs import count_by_products  # numba, a quarter of a second

    return count_by_products(sample, np.asarray(sample_ids, np.int64) - first_row, block, limits)


def _count_by_sorting(sample: Floats, sample_ids: Ints, block: Floats, first_row: int, limits: Float64) -> Int64:
    """The same counts for many thresholds: all distances to the block are computed and sorted."""
    from scipy.spatial.distance import cdist  # a fifth of a second

    counts = np.zeros(limits.shape, np.int64)
    for part in batches(len(sample), 16 * len(block)):
        squares = cdist(sample[part].astype(np.float64), block.astype(np.float64), "sqeuclidean")
        own = np.asarray(sample_ids[part]) - first_row
        inside = np.flatnonzero((own >= 0) & (own < len(block)))
        squares[inside, own[inside]] = np.inf
        squares.sort(axis=1)
        for row, ordered in zip(range(len(sample))[part], squares, strict=True):
            counts[row] = np.searchsorted(ordered, limits[row])
    return counts


def _near_block(sample: Floats, block: Floats, squared_reach: Float64) -> Int64:
    """Sample points (s, d) whose squared distance to the box around a block (b, d) is at most squared_reach (s,)."""
    if not len(block):
        return np.empty(0, np.intp)
    points = sample.astype(np.float64)
    gap = np.maximum(0.0, np.maximum(block.min(axis=0) - points, points - block.max(axis=0)))
    return np.flatnonzero(np.einsum("sd,sd->s", gap, gap) <= (1 + AS_NEAR) * squared_reach)


def _count_by_tree(sample: Floats, sample_ids: Ints, block: Floats, first_row: int, limits: Float64) -> Int64:
    """The same counts for few coordinates: whole branches of a k-d tree are inside or outside a ball."""
    from scipy.spatial import cKDTree  # a fifth of a second

    # large leaves, because the leaves inside a ball are counted one by one
    tree = cKDTree(block.astype(np.float64), leafsize=64, balanced_tree=False)
    # a ball includes its surface, so the radius is reduced to the next smaller number
    radii = np.nextafter(np.sqrt(limits), -1.0)
    counts, unknown = _count_among_nearest(tree, sample, radii)
    for column in range(limits.shape[1]):
        rows = np.flatnonzero(unknown[:, column])
        counts[rows, column] = tree.query_ball_point(sample[rows], radii[rows, column], return_length=True)
    rows = np.flatnonzero((sample_ids >= first_row) & (sample_ids < first_row + len(block)))
    own_squares = np.square(block[sample_ids[rows] - first_row].astype(np.float64) - sample[rows]).sum(axis=1)
    counts[rows] -= own_squares[:, None] < limits[rows]
    return counts


def _count_among_nearest(tree: "cKDTree", sample: Floats, radii: Float64) -> tuple[Int64, Bools]:
    """Points of a tree within radii (s, q) of the sample (s, d), and where the count (s, q) is unknown.

    Most radii are small if the embedding is good. A list of nearest points then gives all counts of a point at once.
    """
    listed = min(NEAREST_LISTED * radii.shape[1], tree.n)
    nearest = np.atleast_2d(tree.query(sample, np.arange(1, listed + 1))[0])
    counts = np.stack([(nearest <= column[:, None]).sum(axis=1) for column in radii.T], axis=1)
    return counts, (counts == listed) & (listed < tree.n)


def trustworthiness(ranks: Ints | Float64, n_points: int, counts: Ints | None = None) -> Float64:
    """Trustworthiness of each sample point, in [0, 1]; the mean over all points is that of the embedding.

    1 - 2 / (k (2 n - 3 k - 1)) sum_j max(0, r_j - k) over the k nearest neighbours j in the embedding, where r_j is the
    rank of j by distance in the input (Venna & Kaski 2001, ICANN, eq. 1; the mean contains the factor n). With the two
    spaces exchanged it is their continuity (eq. 2).

    Args:
        ranks: (s, k) ranks, from 1: ``count_closer`` + 1, or means of several ranks.
        n_points: number n of all points.
        counts: (s,) numbers k of neighbours if they differ between points, each at least 1; other slots have rank 1.

    Raises:
        InputError: k is not below n / 2, where the measure is not defined.

    >>> trustworthiness(np.array([[1, 2], [1, 9]]), 10)
    array([1.        , 0.46153846])
    """
    k = ranks.shape[1]
    if 2 * k >= n_points:
        raise InputError(f"expected fewer neighbours than half of the {n_points} points, found {k}; lower n_neighbors")
    k_per_point = np.full(len(ranks), k) if counts is None else counts
    penalty = np.maximum(ranks - k_per_point[:, None], 0).sum(axis=1)
    values: Float64 = 1 - penalty * (2 / (k_per_point * (2 * n_points - 3 * k_per_point - 1)))
    return values

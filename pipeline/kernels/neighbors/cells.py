"""Cells: a hierarchical clustering of a sample, the nearest cells of every point, and groups of cells to search.

Points are ordered by cell, so that neighbours are close in memory and on disk. Cells also bound the neighbour search.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ...core.arrays import Bools, Float64, Floats, Int32, Int64, Ints
from .distances import pair_distances, typical_point

CHUNK_ROWS, CHUNK_SCORES = 4096, 2**20
LARGEST, ROUNDS_OF_CUTS = 5, 8
MEANS_ROUNDS, MEANS_TOLERANCE = 20, 1e-3
"""Iterations of a split, which ends early if at most this share of the points changes sides."""
SIEVES = 64
TREE_FEATURES = 10
"""Up to this number of features a k-d tree of the centres is faster than a matrix product with all of them."""


class Boxes(NamedTuple):
    """Bounding boxes of row ranges: rows [start, stop) are in [low, high]. Shapes (b,), (b,), (b, d), (b, d)."""

    start: Int64
    stop: Int64
    low: Float64
    high: Float64


def fit_cells(sample: Floats, n_cells: int, seed: int) -> Float64:
    """Centres (about n_cells, d) of bisecting k-means on a sample (s, d), in the order of the tree's leaves.

    The largest cell is split each time, so cells have similar sizes. Adjacent leaves of the tree are close in space.
    Source: Steinbach, Karypis & Kumar 2000. On heavy-tailed data k-means separates outliers and leaves nearly all
    points in one cell. Cells with more than LARGEST times the mean are therefore split at medians, which gives up to
    twice n_cells. A sample with fewer than n_cells distinct rows gets a cell for each of them.
    """
    n_cells = min(n_cells, len(sample))
    if n_cells < 2:
        return np.asarray(sample.mean(axis=0, dtype=np.float64)[None, :])
    middle = typical_point(sample)  # a shift, so that points far from the origin lose no digits
    with threadpool_limits(1):  # sums depend on the number of threads
        parts = _bisected(sample - middle.astype(sample.dtype), n_cells, np.random.default_rng(seed))
        centers = np.stack([part.mean(axis=0, dtype=np.float64) for part in parts]) + middle
    mean = len(sample) / n_cells
    for _ in range(ROUNDS_OF_CUTS):
        owners = nearest_cells(sample, centers, 1)[:, 0]
        sizes = np.bincount(owners, minlength=len(centers))
        if sizes.max() <= LARGEST * mean:
            break
        parts = [
            split_at_medians(sample[owners == cell], round(size / mean))
            if size > LARGEST * mean
            else centers[cell : cell + 1]
            for cell, size in enumerate(sizes.tolist())
        ]
        centers = np.concatenate(parts)
    return centers


def _bisected(points: Floats, n_cells: int, rng: np.random.Generator) -> list[Floats]:
    """The points (s, d) of each cell, in the order of the leaves of the tree."""
    parts = {"": points}  # key: the path from the root, so that sorted keys are the leaves in their order
    largest = [(-len(points), "")]
    while largest and len(parts) < n_cells:
        path = heapq.heappop(largest)[1]
        above = _two_means(parts[path], rng)
        if above is None:
            continue
        part = parts.pop(path)
        for digit, side in (("0", ~above), ("1", above)):
            parts[path + digit] = part[side]
            heapq.heappush(largest, (-len(parts[path + digit]), path + digit))
    return [parts[path] for path in sorted(parts)]


# OpenBLAS on AVX-512 sets the flag `invalid` for float32 (s, 5) @ (5,), with the right product. Infinite products make
# all points lie on one side, and these are split at the middle.
@np.errstate(invalid="ignore", over="ignore")
def _two_means(points: Floats, rng: np.random.Generator) -> Bools | None:
    """Which points (s, d) belong to the second of two clusters (Lloyd's algorithm); None if all points are equal.

    With two centres an iteration needs two products of the points with a vector: one compares the distances to the
    centres, the other adds the points of one side. scikit-learn's BisectingKMeans takes four times as long.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    if (low == high).all():
        return None
    first, second = points[rng.choice(len(points), 2, replace=False)]
    total, above = points.sum(axis=0), np.zeros(len(points), bool)
    for _ in range(MEANS_ROUNDS):
        normal = second - first
        before, above = above, points @ normal > normal @ (first + second) / 2
        n_above = int(np.count_nonzero(above))
        if n_above in {0, len(points)}:  # for example because both starting points are equal
            widest = int(np.argmax(high - low))
            middle = min(low[widest] / 2 + high[widest] / 2, np.nextafter(high[widest], low[widest]))
            return np.asarray(points[:, widest] > middle)
        if np.count_nonzero(above != before) <= MEANS_TOLERANCE * len(points):
            break
        sums = above.astype(points.dtype) @ points
        first, second = (total - sums) / (len(points) - n_above), sums / n_above
    return above


def split_at_medians(points: Floats, n_parts: int) -> Float64:
    """Medians (n_parts, d) of parts of equal size, each split at the feature with the largest interquartile range."""
    if n_parts < 2:
        return np.asarray(np.median(points, axis=0)[None, :], np.float64)
    low, high = np.percentile(points, [25, 75], axis=0)
    order = np.argsort(points[:, int(np.argmax(high - low))], kind="stable")
    n_below = n_parts // 2
    below, above = np.split(points[order], [len(points) * n_below // n_parts])
    return np.concatenate([split_at_medians(below, n_below), split_at_medians(above, n_parts - n_below)])


def nearest_cells(points: Floats, centers: Float64, n_nearest: int) -> Int32:
    """(b, n_nearest) cells of each point (b, d), nearest first; n_nearest is at most the number of centres."""
    from scipy.spatial import cKDTree  # a fifth of a second

    if centers.shape[1] <= TREE_FEATURES:
        cells = cKDTree(centers).query(points, np.arange(1, n_nearest + 1))[1]
        return np.asarray(cells, np.int32)
    return _lowest_scores(points, centers, n_nearest, lambda scores: scores)


def nearest_groups(points: Floats, centers: Float64, groups: Int32, n_nearest: int) -> Int32:
    """(b, n_nearest or all) groups of each point (b, d), nearest first, by the nearest cell of each group.

    groups (n_cells,): the group of each cell, 0 to the last in ascending order.
    """
    firsts = np.flatnonzero(np.diff(groups, prepend=-1))
    n_nearest = min(n_nearest, len(firsts))
    return _lowest_scores(points, centers, n_nearest, lambda scores: np.minimum.reduceat(scores, firsts, axis=1))


def _lowest_scores(points: Floats, centers: Float64, n_nearest: int, gather: Callable[[Floats], Floats]) -> Int32:
    """(b, n_nearest) columns with the lowest scores, ascending, computed some rows at a time.

    A score is the squared distance to a centre minus the point's own square; `gather` maps scores to the columns.
    """
    out = np.empty((len(points), n_nearest), np.int32)
    middle = typical_point(centers)  # shift by a typical point: a far centre must not cost near ones precision
    shifted = centers - middle
    columns = np.vstack([-2.0 * shifted.T, np.einsum("cd,cd->c", shifted, shifted)])
    step = max(1, min(CHUNK_ROWS, CHUNK_SCORES // len(centers)))
    rows = np.ones((step, len(columns)))
    for start in range(0, len(points), step):
        part = points[start : start + step]
        np.subtract(part, middle, out=rows[: len(part), :-1])
        out[start : start + step] = _lowest(gather(rows[: len(part)] @ columns), n_nearest)
    return out


def _lowest(scores: Floats, n: int) -> Int64:
    """(b, n) columns of the n lowest scores (b, c) of each row, ascending.

    The columns are divided into SIEVES disjoint sets. The n-th lowest of the sets' minima bounds the n lowest scores,
    so only scores up to that bound are sorted; a partition would move every column.
    """
    if n == 1:
        return np.asarray(scores.argmin(axis=1)[:, None])
    n_each = scores.shape[1] // SIEVES
    if n > SIEVES or n_each < 2:
        chosen = np.argpartition(scores, n - 1, axis=1)[:, :n]
        order = np.argsort(np.take_along_axis(scores, chosen, axis=1), axis=1, kind="stable")
        return np.take_along_axis(chosen, order, axis=1)
    minima = scores[:, :SIEVES].copy()
    for first in range(SIEVES, n_each * SIEVES, SIEVES):
        np.minimum(minima, scores[:, first : first + SIEVES], out=minima)
    bound = np.partition(minima, n - 1, axis=1)[:, n - 1 : n]
    rows, columns = np.divmod(np.flatnonzero(scores <= bound), scores.shape[1])
    order = np.lexsort((scores[rows, columns], rows))
    starts = np.searchsorted(rows, np.arange(len(scores)))
    return np.asarray(columns[order][starts[:, None] + np.arange(n)])


def group_cells(cell_sizes: Ints, target: int) -> Int32:
    """Group (n_cells,) of each cell: runs of consecutive cells with about `target` points each.

    >>> group_cells(np.array([3, 3, 3, 3, 3, 3]), 6).tolist()
    [0, 0, 1, 1, 2, 2]
    """
    total = int(cell_sizes.sum())
    n_groups = max(1, round(total / target))
    middle = np.cumsum(cell_sizes) - cell_sizes / 2
    groups = np.minimum((middle * n_groups / max(total, 1)).astype(np.int64), n_groups - 1)
    return np.unique(groups, return_inverse=True)[1].astype(np.int32)


def first_distinct(groups: Int32, n_distinct: int) -> Int32:
    """The first n_distinct distinct values of each row (b, q), -1 if a row has fewer.

    >>> first_distinct(np.array([[4, 4, 2, 4, 1], [3, 3, 3, 3, 3]], np.int32), 2).tolist()
    [[4, 2], [3, -1]]
    """
    out = np.full((len(groups), n_distinct), -1, np.int32)
    out[:, 0] = groups[:, 0]
    n_found = np.ones(len(groups), np.int64)
    for column in range(1, groups.shape[1]):
        value = groups[:, column]
        new = (n_found < n_distinct) & ~(out == value[:, None]).any(axis=1)
        out[new, n_found[new]] = value[new]
        n_found += new
    return out


def reach_of_next(points: Floats, centers: Float64, nearest: Int32, groups: Int32, n_first: int) -> Float64:
    """(b,) distance to the group after the n_first nearest ones, divided by the distance to the nearest cell.

    nearest (b, q): the nearest cells of each point (b, d), groups (n_cells,): the group of each cell. The distance to a
    group is that to its nearest cell; inf if the cells belong to n_first groups or fewer.
    """
    reach, near_groups = np.full(len(points), np.inf), groups[nearest]
    following = first_distinct(near_groups, n_first + 1)[:, n_first]
    rows = np.flatnonzero(following >= 0)
    column = (near_groups[rows] == following[rows, None]).argmax(axis=1)
    farther, nearer = (pair_distances(points, rows, centers, nearest[rows, at]) for at in (column, 0))
    reach[rows] = np.divide(farther, nearer, out=np.full(len(rows), np.inf), where=nearer > 0)
    return reach


def bounding_boxes(points: Floats, bounds: Int64, first_row: int) -> Boxes:
    """Boxes of the row ranges [bounds[i], bounds[i+1]) of a block (b, d) that begins at row `first_row`."""
    starts = bounds[:-1][np.diff(bounds) > 0]
    stops = bounds[1:][np.diff(bounds) > 0]
    low = np.minimum.reduceat(points, starts, axis=0).astype(np.float64)
    high = np.maximum.reduceat(points, starts, axis=0).astype(np.float64)
    return Boxes(starts + first_row, stops + first_row, low, high)

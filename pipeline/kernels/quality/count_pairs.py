"""Counts the points of a block that are near to sample points, from matrix products. Loads numba."""

import numba
import numpy as np

from ...core.arrays import Float64, Floats, Int64
from ..neighbors.distances import Tile, each_tile


def count_by_products(sample: Floats, own: Int64, block: Floats, limits: Float64) -> Int64:
    """For each sample point and each of its limits, the number of points of a block below the limit: (s, q).

    Matrix products give bounds of the distances. Where these do not decide, distances are computed from differences in
    float64.

    Args:
        sample: (s, d).
        own: (s,) the row of the block that is the sample point itself, which does not count; a negative number, or one
            of b or more, if the point is not in the block.
        block: (b, d).
        limits: (s, q) squared distances, ascending in each row.
    """
    counts = np.zeros((len(limits), limits.shape[1] + 1), np.int64)  # points between two limits

    def count(tile: Tile, allowed: int) -> tuple[slice, Int64] | None:
        between = np.zeros((len(tile.base), counts.shape[1]), np.int64)
        points, of_rows = block[tile.columns], (sample[tile.rows], limits[tile.rows], own[tile.rows])
        enough = _count_between(*tile[2:6], tile.scale**2, points, *of_rows, tile.columns.start, allowed, between)
        return (tile.rows, between) if enough else None

    for rows, between in each_tile(sample, block, limits[:, -1], count):
        counts[rows] += between
    return np.asarray(np.cumsum(counts[:, :-1], axis=1))


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _count_between(
    scores: Floats,
    base: Float64,
    row_slack: Float64,
    column_slack: Float64,
    scale: float,
    points: Floats,
    queries: Floats,
    limits: Float64,
    own: Int64,
    first: int,
    allowed: int,
    between: Int64,
) -> bool:
    """Add each pair of a tile to the column of ``between`` (r, q + 1) that is the number of limits it reaches.

    Pairs that reach all limits are left out. False if the bounds leave more than ``allowed`` pairs undecided.
    """
    n_limits = limits.shape[1]
    for i in range(scores.shape[0]):
        scaled = limits[i] * scale
        for j in range(scores.shape[1]):
            lower = scores[i, j] + base[i]
            if lower >= scaled[-1] or first + j == own[i]:
                continue
            reached = 0
            for limit in scaled:  # without a branch, several at one time
                reached += lower >= limit
            if not lower + row_slack[i] + column_slack[j] < scaled[reached]:
                if allowed == 0:
                    return False
                allowed -= 1
                square = 0.0
                for axis in range(points.shape[1]):
                    square += (np.float64(points[j, axis]) - np.float64(queries[i, axis])) ** 2
                while reached < n_limits and square >= limits[i, reached]:
                    reached += 1
            between[i, reached] += 1
    return True

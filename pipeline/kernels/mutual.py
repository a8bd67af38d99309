"""Two sets of points compared once for both: whom each finds among the other, within a reach of its own."""

import numpy as np
import numpy.typing as npt

from pipeline.kernels.knn import Hits, NeighborLists, nearest_hits, select_nearest

Floats = npt.NDArray[np.floating]
F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

TILE_POINTS, TILE_QUERIES = 1024, 128  # pairs whose distances stay in the cache
QUERIES_AT_A_TIME = 8192  # so that memory is bounded where a great many come to one place
ROUNDING = 1e-9
DIFFERENCES = 2**20


def mutual_neighbors(
    queries: Floats, query_ids: Ids, query_reach: F64, points: Floats, ids: Ids, reach: F64, k: int
) -> tuple[NeighborLists, NeighborLists]:
    """(k nearest points of each query (b, d), k nearest queries of each point (c, d)), exact within their reach.

    A query finds points within its query_reach (b,), a point queries within its reach (c,), both in input units; lists
    of fewer than k are padded. Pairs of equal ids are one point and are left out. One matrix product a pair of tiles
    tells which pairs to look at, and their distances are computed from the coordinates.
    """
    forward, backward = [_no_lists(0, k)], _no_lists(len(points), k)
    for start in range(0, len(queries), QUERIES_AT_A_TIME):
        part = slice(start, start + QUERIES_AT_A_TIME)
        found, reached = _of_some(queries[part], query_ids[part], query_reach[part], points, ids, reach, k)
        forward.append(found)
        listed, distances = (np.concatenate(pair, axis=1) for pair in zip(backward, reached, strict=True))
        backward = select_nearest(listed, distances, np.full(len(points), -1), k)
    return NeighborLists(*(np.concatenate(columns) for columns in zip(*forward, strict=True))), backward


def _no_lists(n: int, k: int) -> NeighborLists:
    return NeighborLists(np.full((n, k), -1, np.int64), np.full((n, k), np.inf))


def _of_some(
    queries: Floats, query_ids: Ids, query_reach: F64, points: Floats, ids: Ids, reach: F64, k: int
) -> tuple[NeighborLists, NeighborLists]:
    if not len(points):  # of cells that hold nothing
        return _no_lists(len(queries), k), _no_lists(0, k)
    middle = points.mean(axis=0, dtype=np.float64)
    left = queries.astype(np.float64) - middle
    squares = np.einsum("bd,bd->b", left, left)
    extended = np.column_stack([-2.0 * left, squares, np.ones(len(left))])
    forward, backward = [], [_no_lists(0, k)]
    for start in range(0, len(points), TILE_POINTS):
        rows = slice(start, start + TILE_POINTS)
        right = points[rows].astype(np.float64) - middle
        hits = _near(left, extended, query_reach, squares, right, reach[rows])
        other = query_ids[hits.sample] != ids[rows][hits.ids]
        sample, columns, distances = (part[other] for part in hits)
        mine, theirs = (distances <= (1 + ROUNDING) * far for far in (query_reach[sample], reach[rows][columns]))
        forward.append(nearest_hits(Hits(sample[mine], ids[rows][columns[mine]], distances[mine]), len(left), k))
        found = Hits(columns[theirs], query_ids[sample[theirs]], distances[theirs])
        backward.append(nearest_hits(found, len(right), k))
    parts = [np.concatenate(columns, axis=1) for columns in zip(*forward, strict=True)]
    lists = select_nearest(parts[0], parts[1], np.full(len(left), -1), k)
    return lists, NeighborLists(*(np.concatenate(columns) for columns in zip(*backward, strict=True)))


def _near(left: F64, extended: F64, left_reach: F64, squares: F64, right: F64, right_reach: F64) -> Hits:
    """Pairs (query, position among the points, distance) of which one at least reaches the other."""
    right_squares = np.einsum("cd,cd->c", right, right)
    columns = np.vstack([right.T, np.ones(len(right)), right_squares])
    largest = right_squares.max()
    limits, others = left_reach**2 + ROUNDING * (squares + largest), right_reach * np.abs(right_reach)
    found = []
    for top in range(0, len(left), TILE_QUERIES):
        rows = slice(top, top + TILE_QUERIES)
        slack = ROUNDING * (squares[rows].max() + largest)
        near = np.flatnonzero(extended[rows] @ columns <= np.maximum(limits[rows, None], others + slack))
        sample, ids = near // len(right) + top, near % len(right)
        found.append(Hits(sample, ids, _distances(left, sample, right, ids)))
    return Hits(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _distances(left: F64, rows: Ids, right: F64, columns: Ids) -> F64:
    """Distances (h,) of pairs of rows, some at a time: where all of a tile is near, differences take much memory."""
    out = np.empty(len(rows))
    step = max(1, DIFFERENCES // left.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        difference = right[columns[part]] - left[rows[part]]
        out[part] = np.sqrt(np.einsum("hd,hd->h", difference, difference))
    return out

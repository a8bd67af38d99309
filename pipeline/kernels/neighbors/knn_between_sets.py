"""Two sets of points compared once for both: whom each finds among the other, within a reach of its own."""

import numpy as np
import numpy.typing as npt

from pipeline.kernels.neighbors.distances import pair_distances, square_rounding, typical_point
from pipeline.kernels.neighbors.knn import Hits, NeighborLists, nearest_hits, select_nearest

Floats = npt.NDArray[np.floating]
F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

TILE_POINTS, TILE_QUERIES = 1024, 128  # pairs whose distances stay in the cache
QUERIES_AT_A_TIME = 8192  # so that memory is bounded where a great many come to one place
ROUNDING = 1e-9


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
    rounding, middle = square_rounding(points.shape[1]), typical_point(points)
    left = queries.astype(np.float64) - middle
    squares = (1 - rounding) * np.einsum("bd,bd->b", left, left)
    extended = np.column_stack([-2.0 * left, squares, np.ones(len(left))])
    forward, backward = [], [_no_lists(0, k)]
    for start in range(0, len(points), TILE_POINTS):
        rows = slice(start, start + TILE_POINTS)
        right = points[rows].astype(np.float64) - middle
        columns = np.vstack([right.T, np.ones(len(right)), (1 - rounding) * np.einsum("cd,cd->c", right, right)])
        hits = _near(queries, extended, query_reach, points[rows], columns, reach[rows])
        other = query_ids[hits.sample] != ids[rows][hits.ids]
        sample, places, distances = (part[other] for part in hits)
        mine, theirs = (distances <= (1 + ROUNDING) * far for far in (query_reach[sample], reach[rows][places]))
        forward.append(nearest_hits(Hits(sample[mine], ids[rows][places[mine]], distances[mine]), len(left), k))
        found = Hits(places[theirs], query_ids[sample[theirs]], distances[theirs])
        backward.append(nearest_hits(found, len(right), k))
    parts = [np.concatenate(columns, axis=1) for columns in zip(*forward, strict=True)]
    lists = select_nearest(parts[0], parts[1], np.full(len(left), -1), k)
    return lists, NeighborLists(*(np.concatenate(columns) for columns in zip(*backward, strict=True)))


def _near(queries: Floats, extended: F64, query_reach: F64, points: Floats, columns: F64, reach: F64) -> Hits:
    """Pairs (query, position among the points, distance), with all of which one at least reaches the other.

    extended (b, d + 2) @ columns (d + 2, c) are lower bounds of the squared distances, their rounding taken off.
    """
    limits, others = ((1 + ROUNDING) ** 2 * far * np.abs(far) for far in (query_reach, reach))
    found = []
    for top in range(0, len(queries), TILE_QUERIES):
        rows = slice(top, top + TILE_QUERIES)
        near = np.flatnonzero(~(extended[rows] @ columns > np.maximum(limits[rows, None], others)))
        sample, places = near // len(points) + top, near % len(points)
        found.append(Hits(sample, places, pair_distances(queries, sample, points, places)))
    return Hits(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

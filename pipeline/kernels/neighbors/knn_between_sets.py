"""Nearest neighbours between two sets in both directions, each point within its own reach, in one comparison."""

import numpy as np
import numpy.typing as npt

from .distances import pair_distances, square_rounding, typical_point
from .knn import Hits, NeighborLists, nearest_hits, select_nearest

Floats = npt.NDArray[np.floating]
F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

TILE_POINTS, TILE_QUERIES = 1024, 128  # pairs whose distances fit the cache
QUERIES_AT_A_TIME = 8192  # bounds the memory if many queries are near the same points
ROUNDING = 1e-9


def mutual_neighbors(
    queries: Floats, query_ids: Ids, query_reach: F64, points: Floats, ids: Ids, reach: F64, k: int
) -> tuple[NeighborLists, NeighborLists]:
    """(k nearest points of each query (b, d), k nearest queries of each point (c, d)), exact within their reach.

    A query lists points within its query_reach (b,), a point lists queries within its reach (c,), both in input units;
    lists of fewer than k are padded. Pairs with equal ids are one point and are excluded. One matrix product per pair
    of tiles selects candidate pairs; their distances are computed from the coordinates.
    """
    forward, backward = [_no_lists(0, k)], _no_lists(len(points), k)
    for start in range(0, len(queries), QUERIES_AT_A_TIME):
        part = slice(start, start + QUERIES_AT_A_TIME)
        of_queries, of_points = _mutual_of_some(
            queries[part], query_ids[part], query_reach[part], points, ids, reach, k
        )
        forward.append(of_queries)
        ids_so_far, distances = (np.concatenate(pair, axis=1) for pair in zip(backward, of_points, strict=True))
        backward = select_nearest(ids_so_far, distances, np.full(len(points), -1), k)
    return NeighborLists(*(np.concatenate(columns) for columns in zip(*forward, strict=True))), backward


def _no_lists(n: int, k: int) -> NeighborLists:
    return NeighborLists(np.full((n, k), -1, np.int64), np.full((n, k), np.inf))


def _mutual_of_some(
    queries: Floats, query_ids: Ids, query_reach: F64, points: Floats, ids: Ids, reach: F64, k: int
) -> tuple[NeighborLists, NeighborLists]:
    if not len(points):  # empty cells
        return _no_lists(len(queries), k), _no_lists(0, k)
    rounding, middle = square_rounding(points.shape[1]), typical_point(points)
    shifted_queries = queries.astype(np.float64) - middle
    squares = (1 - rounding) * np.einsum("bd,bd->b", shifted_queries, shifted_queries)
    extended = np.column_stack([-2.0 * shifted_queries, squares, np.ones(len(shifted_queries))])
    forward, backward = [], [_no_lists(0, k)]
    for start in range(0, len(points), TILE_POINTS):
        rows = slice(start, start + TILE_POINTS)
        shifted_points = points[rows].astype(np.float64) - middle
        columns = np.vstack(
            [
                shifted_points.T,
                np.ones(len(shifted_points)),
                (1 - rounding) * np.einsum("cd,cd->c", shifted_points, shifted_points),
            ]
        )
        hits = _near(queries, extended, query_reach, points[rows], columns, reach[rows])
        is_other = query_ids[hits.sample] != ids[rows][hits.ids]
        sample, positions, distances = (part[is_other] for part in hits)
        in_query_reach, in_point_reach = (
            distances <= (1 + ROUNDING) * far for far in (query_reach[sample], reach[rows][positions])
        )
        forward.append(
            nearest_hits(
                Hits(sample[in_query_reach], ids[rows][positions[in_query_reach]], distances[in_query_reach]),
                len(shifted_queries),
                k,
            )
        )
        point_hits = Hits(positions[in_point_reach], query_ids[sample[in_point_reach]], distances[in_point_reach])
        backward.append(nearest_hits(point_hits, len(shifted_points), k))
    parts = [np.concatenate(columns, axis=1) for columns in zip(*forward, strict=True)]
    lists = select_nearest(parts[0], parts[1], np.full(len(shifted_queries), -1), k)
    return lists, NeighborLists(*(np.concatenate(columns) for columns in zip(*backward, strict=True)))


def _near(queries: Floats, extended: F64, query_reach: F64, points: Floats, columns: F64, reach: F64) -> Hits:
    """Pairs (query, position among the points, distance) with a distance within the reach of at least one of the two.

    extended (b, d + 2) @ columns (d + 2, c) gives lower bounds of the squared distances, minus the rounding error.
    """
    limits, point_limits = ((1 + ROUNDING) ** 2 * far * np.abs(far) for far in (query_reach, reach))
    hits = []
    for top in range(0, len(queries), TILE_QUERIES):
        rows = slice(top, top + TILE_QUERIES)
        near = np.flatnonzero(~(extended[rows] @ columns > np.maximum(limits[rows, None], point_limits)))
        sample, positions = near // len(points) + top, near % len(points)
        hits.append(Hits(sample, positions, pair_distances(queries, sample, points, positions)))
    return Hits(*(np.concatenate(parts) for parts in zip(*hits, strict=True)))

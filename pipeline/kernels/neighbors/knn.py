"""Nearest neighbours: exact (k-d tree, brute force), approximate (pynndescent), merging of lists, recall.

All functions return global ids, nearest first with ties by id. The point itself is excluded by its id. Distances are
Euclidean, computed in float64 from the coordinates of the returned ids.
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from ...core.arrays import Float32, Float64, Floats, Int32, Int64, Ints
from ..batches import batches
from ..graph.connectivity import rank_in_row
from .cells import TREE_FEATURES
from .distances import TILE_POINTS, near_pairs, pair_distances, square_rounding, typical_point

CHUNK_ELEMENTS = 2**18  # of work arrays; larger ones do not stay in the cache
BRUTE_QUERIES = 1024
SPARE = 4
TIE = 1e-12
"""Relative difference below which rounding in a search can reverse the order of two distances."""
AS_NEAR = 1e-9  # relative difference below which recall treats distances as equal


NO_POINT = -2
"""The id of a query that is no point."""


class NeighborLists(NamedTuple):
    """ids (b, k) int64 padded with -1, distances (b, k) float64 padded with inf; sorted by distance."""

    ids: Int64
    distances: Float64


def empty_lists(n: int, k: int) -> NeighborLists:
    return NeighborLists(np.full((n, k), -1, np.int64), np.full((n, k), np.inf))


def merge_into(lists: NeighborLists, rows: Ints, found: NeighborLists, self_ids: Ints) -> None:
    """Merge the lists (r, any) found for some rows (r,) into the lists (b, k) of points with ids (b,), in place."""
    ids, distances = (np.hstack([old[rows], new]) for old, new in zip(lists, found, strict=True))
    lists.ids[rows], lists.distances[rows] = select_nearest(ids, distances, self_ids[rows], lists.ids.shape[1])


def exact_distances(queries: Floats, candidates: Floats, positions: Ints) -> Float64:
    """Distances (b, k) from each query (b, d) to candidates[positions], from differences in float64; inf for -1."""
    out = np.empty(positions.shape, np.float64)
    for rows in batches(len(queries), 8 * positions.shape[1] * queries.shape[1]):
        difference = candidates[positions[rows]].astype(np.float64) - queries[rows, None, :]
        out[rows] = np.sqrt(np.einsum("bkd,bkd->bk", difference, difference))
    out[positions < 0] = np.inf
    return out


def exact_neighbors(queries: Floats, query_ids: Ints, points: Floats, point_ids: Ints, k: int) -> NeighborLists:
    """The k nearest points (c, d) of each query (b, d), by the k-d tree up to TREE_FEATURES features, else brute force.

    A query whose id is no point's (such as NO_POINT) may equal a point.
    """
    search = kdtree_neighbors if points.shape[1] <= TREE_FEATURES else brute_neighbors
    return search(queries, query_ids, points, point_ids, k)


def kdtree_neighbors(queries: Floats, query_ids: Ints, points: Floats, point_ids: Ints, k: int) -> NeighborLists:
    """Exact neighbours by SciPy's k-d tree. points (c, d) contain the queries (b, d); both have ids.

    If several points tie at the k-th distance, a tree returns any of them. So a row whose last candidate is as near as
    its k-th neighbour is searched again with twice as many candidates, until no further point can tie.
    """
    from scipy.spatial import cKDTree  # a fifth of a second

    query_ids, tree = np.asarray(query_ids), cKDTree(points.astype(np.float64), balanced_tree=False, compact_nodes=True)
    lists = empty_lists(len(queries), k)
    rows, width = np.arange(len(queries)), min(k + 2, len(points))
    while len(rows) and width:
        tied = [np.empty(0, np.int64)]
        n_rows = max(1, CHUNK_ELEMENTS // width)
        for part in np.split(rows, range(n_rows, len(rows), n_rows)):
            result = tree.query(queries[part].astype(np.float64), k=np.arange(1, width + 1))
            reached, positions = (np.asarray(values) for values in result)
            distances = exact_distances(queries[part], points, positions)
            nearest = select_nearest(point_ids[positions].astype(np.int64), distances, query_ids[part], k)
            lists.ids[part], lists.distances[part] = nearest
            if width < len(points) and k > 0:
                tied.append(part[reached[:, -1] <= (1 + TIE) * nearest.distances[:, -1]])
        rows, width = np.concatenate(tied), min(2 * width, len(points))
    return lists


def brute_neighbors(queries: Floats, query_ids: Ints, points: Floats, point_ids: Ints, k: int) -> NeighborLists:
    """Exact neighbours by matrix products over chunks of points, with a few spare candidates for rounding errors.

    The lists (b, k) do not depend on far rows or on which queries are searched together.
    """
    slices = [slice(start, start + BRUTE_QUERIES) for start in range(0, max(1, len(queries)), BRUTE_QUERIES)]
    parts = [_brute_batch(queries[rows], np.asarray(query_ids)[rows], points, point_ids, k) for rows in slices]
    return NeighborLists(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _brute_batch(queries: Floats, query_ids: Ints, points: Floats, point_ids: Ints, k: int) -> NeighborLists:
    """The products give a lower bound of each squared distance, with the rounding error subtracted. If a discarded
    point can be as near as the k-th nearest neighbour, the query is searched again by differences."""
    rounding, middle = square_rounding(points.shape[1]), typical_point(points)
    shifted_queries = queries.astype(np.float64) - middle
    bound_squares = (1 - rounding) * np.einsum("bd,bd->b", shifted_queries, shifted_queries)
    shifted_queries *= -2.0
    n_candidates = min(k + 1 + SPARE, len(points))
    candidates = np.full((len(queries), 0), 0, np.int64)
    scores = np.empty((len(queries), 0))
    step = max(n_candidates, min(TILE_POINTS, CHUNK_ELEMENTS // max(1, len(queries))))
    for start in range(0, len(points), step):
        shifted_points = points[start : start + step].astype(np.float64) - middle
        new_scores = shifted_queries @ shifted_points.T
        new_scores += (1 - rounding) * np.einsum("cd,cd->c", shifted_points, shifted_points)
        scores = np.concatenate([scores, new_scores], axis=1)
        candidates = np.concatenate(
            [candidates, np.broadcast_to(np.arange(start, start + len(shifted_points)), new_scores.shape)], axis=1
        )
        if scores.shape[1] > n_candidates:
            lowest = np.argpartition(scores, n_candidates - 1, axis=1)[:, :n_candidates]
            scores = np.take_along_axis(scores, lowest, axis=1)
            candidates = np.take_along_axis(candidates, lowest, axis=1)
    lists = select_nearest(
        point_ids[candidates].astype(np.int64), exact_distances(queries, points, candidates), query_ids, k
    )
    if k > 0 and n_candidates < len(points):
        farthest = (1 + 2 * rounding) * lists.distances[:, -1] ** 2
        doubtful = np.flatnonzero(~(farthest < scores.max(axis=1) + bound_squares))  # ~ includes NaN
        corrected = _search_again(
            queries[doubtful], query_ids[doubtful], lists.distances[doubtful, -1], points, point_ids, k
        )
        lists.ids[doubtful], lists.distances[doubtful] = corrected
    return lists


def _search_again(
    queries: Floats, query_ids: Ints, reach: Float64, points: Floats, point_ids: Ints, k: int
) -> NeighborLists:
    """The k nearest points (c, d) of each query (b, d) within its reach (b,), by differences."""
    lists = empty_lists(len(queries), k)
    for sample, positions, distances in _pairs_within(queries, reach, points):
        if len(sample):
            first, stop = int(sample[0]), int(sample[-1]) + 1
            hits = Hits(sample - first, point_ids[positions].astype(np.int64), distances)
            found = nearest_hits(hits, stop - first, k + 1)  # one of them can be the query itself
            merge_into(lists, np.arange(first, stop), found, query_ids)
    return lists


def cell_neighbors(points: Floats, ids: Ints, k: int, exact_below: int, seed: int) -> NeighborLists:
    """Neighbours among the points (c, d) of one cell: exact up to `exact_below` points, else by NN-descent.

    Runs in one thread, so a seed gives one graph. Source: Dong, Charikar & Li 2011, as implemented by pynndescent.
    """
    if len(points) <= max(exact_below, k + 1):
        return brute_neighbors(points, ids, points, ids, k)
    middle = typical_point(points)
    sampled = np.abs(points[:: -(-len(points) // BRUTE_QUERIES)] - middle)
    exponent = np.frexp(np.quantile(sampled.max(axis=1), 0.95))[1]
    near_zero = points if points.dtype == np.float32 else points - middle  # float32 has seven digits
    # A power of two changes no digit. In other units squares leave the range of float32; those of few far points may.
    with np.errstate(over="ignore"):
        scaled = np.ldexp(near_zero, -exponent, out=np.empty(points.shape, np.float32), casting="same_kind")
    positions = _nn_descent(scaled, k + 1, seed)
    neighbor_ids = np.where(positions >= 0, ids[positions], -1).astype(np.int64)
    return select_nearest(neighbor_ids, exact_distances(points, points, positions), ids, k)


def _nn_descent(points: Float32, k: int, seed: int) -> Int32:
    from pynndescent import NNDescent  # the import takes seconds; exact searches do not need it

    from .nn_descent_cache import search_lock, use_cached_search

    use_cached_search()
    with search_lock():
        index = NNDescent(points, n_neighbors=k, metric="euclidean", random_state=seed, n_jobs=1)
        return np.asarray(index.neighbor_graph[0])


def select_nearest(ids: Int64, distances: Floats, self_ids: Ints, k: int) -> NeighborLists:
    """The k nearest distinct ids of each row (b, q), without the row's own id and -1; padded to k columns.

    Equal ids of a row have equal distances.
    """
    order = np.argsort(ids, axis=1, kind="stable")
    ids = np.take_along_axis(ids, order, axis=1)
    distances = np.take_along_axis(np.asarray(distances, np.float64), order, axis=1)
    unwanted = (ids < 0) | (ids == np.asarray(self_ids)[:, None])
    unwanted[:, 1:] |= ids[:, 1:] == ids[:, :-1]
    distances[unwanted] = np.inf
    ids[unwanted] = -1
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    ids, distances = np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)
    missing = k - ids.shape[1]
    if missing > 0:
        ids = np.pad(ids, ((0, 0), (0, missing)), constant_values=-1)
        distances = np.pad(distances, ((0, 0), (0, missing)), constant_values=np.inf)
    return NeighborLists(ids, np.asarray(distances, np.float64))


class Hits(NamedTuple):
    """Pairs (sample position, point id, distance), each (h,)."""

    sample: Int64
    ids: Int64
    distances: Float64


def points_within(sample: Floats, sample_ids: Ints, radii: Float64, block: Floats, first_row: int) -> Hits:
    """All points of a block (b, d) within `radii` (s,) of the sample points (s, d), without the point itself.

    Distances are float64 differences of the original coordinates; a distance equal to the radius counts. If the radius
    is the distance of the k-th neighbour found, the true k nearest are among the hits: exact search for the cost of one
    matrix product, or of a k-d tree for few features.
    """
    own_positions, by_tree = np.asarray(sample_ids) - first_row, block.shape[1] <= TREE_FEATURES
    all_hits = [Hits(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for hits in _pairs_within(sample, radii * (1 + AS_NEAR), block, by_tree):
        is_other = hits.ids != own_positions[hits.sample]
        all_hits.append(Hits(hits.sample[is_other], hits.ids[is_other] + first_row, hits.distances[is_other]))
    return Hits(*(np.concatenate(parts) for parts in zip(*all_hits, strict=True)))


def _pairs_within(queries: Floats, reach: Float64, points: Floats, by_tree: bool = False) -> Iterator[Hits]:
    """Pairs (position of a query (b, d), position of a point (c, d), distance) within reach (b,), tile by tile.

    A tile has a range of queries, and its pairs are sorted by query; a tree gives all pairs at once. Only queries far
    from most others have many candidate pairs that are not within reach.
    """
    limits = (1 + 2 * square_rounding(points.shape[1])) * reach**2
    for rows, columns in _tree_pairs(queries, reach, points) if by_tree else near_pairs(queries, points, limits):
        distances = pair_distances(queries, rows, points, columns)
        within = distances <= reach[rows]
        yield Hits(rows[within], columns[within], distances[within])


def _tree_pairs(queries: Floats, reach: Float64, points: Floats) -> Iterator[tuple[Int64, Int64]]:
    """As `near_pairs`, for few features."""
    from scipy.spatial import cKDTree  # a fifth of a second

    centers = queries.astype(np.float64)
    rounding = 1e-12 * np.abs(centers).max(axis=1)  # of the tree
    listed = cKDTree(points.astype(np.float64)).query_ball_point(centers, reach + rounding)
    rows = np.repeat(np.arange(len(queries)), [len(ids) for ids in listed])
    yield rows, np.fromiter(chain.from_iterable(listed), np.int64, len(rows))


def nearest_of_each(hits: Hits, k: int) -> Hits:
    """The k nearest hits of each sample point, or all if there are fewer; sorted by distance, then by id."""
    order = np.lexsort((hits.ids, hits.distances, hits.sample))
    selected = order[rank_in_row(hits.sample[order]) < k]
    return Hits(hits.sample[selected], hits.ids[selected], hits.distances[selected])


def nearest_hits(hits: Hits, n_sample: int, k: int) -> NeighborLists:
    """As nearest_of_each, as lists padded to k."""
    sample, ids, distances = nearest_of_each(hits, k)
    rank = rank_in_row(sample)
    lists = empty_lists(n_sample, k)
    lists.ids[sample, rank], lists.distances[sample, rank] = ids, distances
    return lists


def recall_per_point(hits: Hits, found_distances: Float64, n_sample: int, k: int | Ints) -> Float64:
    """Share (n_sample,) of each sample point's k nearest neighbours that the search found, in [0, 1].

    hits: all points within the distance of the k-th neighbour found, from all blocks. found_distances (n_sample, any):
    distances of the neighbours found. k: the required number, one for all or (n_sample,), at least 1. A neighbour as
    near as the k-th nearest counts as correct, so ties do not lower the recall.
    """
    nearest = nearest_hits(hits, n_sample, int(np.max(k))).distances
    kth = np.take_along_axis(nearest, np.broadcast_to(k, n_sample)[:, None] - 1, axis=1)
    is_correct = (found_distances <= kth * (1 + AS_NEAR)) & np.isfinite(found_distances)
    return np.asarray(np.minimum(is_correct.sum(axis=1) / k, 1.0))

"""Nearest neighbours: exact (k-d tree, brute force), approximate (pynndescent), merging of lists, recall.

All functions return global ids, never the point itself (dropped by id), nearest first, ties by id, and Euclidean
distances computed in float64 from the coordinates of the ids returned.
"""

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from pipeline.kernels.neighbors.cells import TREE_FEATURES
from pipeline.kernels.neighbors.distances import pair_distances, square_rounding, typical_point

Floats = npt.NDArray[np.floating]
Ids = npt.NDArray[np.integer]

CHUNK_ELEMENTS = 2**20
TILE_POINTS, TILE_PAIRS = 4096, 2**17  # pairs whose distances stay in the cache
SPARE = 4
TIE = 1e-12
"""Relative difference of two distances that the rounding of a search can reverse."""
AS_NEAR = 1e-9  # relative difference below which distances count as equal when recall is measured


class NeighborLists(NamedTuple):
    """ids (b, k) int64 with -1 pads, distances (b, k) float64 with inf pads, by distance."""

    ids: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float64]


def exact_distances(queries: Floats, candidates: Floats, positions: Ids) -> npt.NDArray[np.float64]:
    """Distances (b, k) from each query (b, d) to candidates[positions], by differences in float64; inf where -1."""
    out = np.empty(positions.shape, np.float64)
    step = max(1, CHUNK_ELEMENTS // max(1, positions.shape[1] * queries.shape[1]))
    for start in range(0, len(queries), step):
        rows = slice(start, start + step)
        difference = candidates[positions[rows]].astype(np.float64) - queries[rows, None, :]
        out[rows] = np.sqrt(np.einsum("bkd,bkd->bk", difference, difference))
    out[positions < 0] = np.inf
    return out


def kdtree_neighbors(queries: Floats, query_ids: Ids, points: Floats, point_ids: Ids, k: int) -> NeighborLists:
    """Exact neighbours by SciPy's k-d tree. points (c, d) contain the queries (b, d); ids name the rows of both.

    Of points that tie at the k-th distance a tree returns any. So rows whose last candidate is as near as the k-th
    neighbour are searched again, with twice as many candidates, until no other point can tie.
    """
    query_ids, tree = np.asarray(query_ids), cKDTree(points.astype(np.float64), balanced_tree=False, compact_nodes=True)
    lists = NeighborLists(np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), np.inf))
    rows, width = np.arange(len(queries)), min(k + 2, len(points))
    while len(rows) and width:
        tied = [np.empty(0, np.int64)]
        n_rows = max(1, CHUNK_ELEMENTS // width)
        for part in np.split(rows, range(n_rows, len(rows), n_rows)):
            answer = tree.query(queries[part].astype(np.float64), k=np.arange(1, width + 1))
            reached, positions = (np.asarray(values) for values in answer)
            distances = exact_distances(queries[part], points, positions)
            nearest = select_nearest(point_ids[positions].astype(np.int64), distances, query_ids[part], k)
            lists.ids[part], lists.distances[part] = nearest
            if width < len(points) and k > 0:
                tied.append(part[reached[:, -1] <= (1 + TIE) * nearest.distances[:, -1]])
        rows, width = np.concatenate(tied), min(2 * width, len(points))
    return lists


def nearest_distances(queries: Floats, points: Floats) -> npt.NDArray[np.float64]:
    """Distance (b,) from each query (b, d) to the nearest of some points (c, d), by SciPy's k-d tree."""
    return np.asarray(cKDTree(points.astype(np.float64)).query(queries.astype(np.float64))[0])


def brute_neighbors(queries: Floats, query_ids: Ids, points: Floats, point_ids: Ids, k: int) -> NeighborLists:
    """Exact neighbours by matrix products over chunks of points, with a few spare candidates for their rounding.

    What the products keep is the lower bound of each squared distance that their rounding leaves. Queries to which a
    point that was not kept can be as near as the k-th nearest found are searched again, so that the lists (b, k) do not
    depend on how far off some rows lie, nor on which queries are asked for together.
    """
    rounding, middle = square_rounding(points.shape[1]), typical_point(points)
    left = queries.astype(np.float64) - middle
    bound_squares = (1 - rounding) * np.einsum("bd,bd->b", left, left)
    left *= -2.0
    keep = min(k + 1 + SPARE, len(points))
    best = np.full((len(queries), 0), 0, np.int64)
    scores = np.empty((len(queries), 0))
    step = max(keep, min(TILE_POINTS, CHUNK_ELEMENTS // max(1, len(queries))))
    for start in range(0, len(points), step):
        right = points[start : start + step].astype(np.float64) - middle
        new = left @ right.T
        new += (1 - rounding) * np.einsum("cd,cd->c", right, right)
        scores = np.concatenate([scores, new], axis=1)
        best = np.concatenate([best, np.broadcast_to(np.arange(start, start + len(right)), new.shape)], axis=1)
        if scores.shape[1] > keep:
            chosen = np.argpartition(scores, keep - 1, axis=1)[:, :keep]
            scores, best = np.take_along_axis(scores, chosen, axis=1), np.take_along_axis(best, chosen, axis=1)
    lists = select_nearest(point_ids[best].astype(np.int64), exact_distances(queries, points, best), query_ids, k)
    if k > 0 and keep < len(points):
        farthest = (1 + 2 * rounding) * lists.distances[:, -1] ** 2
        doubtful = np.flatnonzero(~(farthest < scores.max(axis=1) + bound_squares))  # of what is not a number too
        again = _search_again(
            queries[doubtful], np.asarray(query_ids)[doubtful], lists.distances[doubtful, -1], points, point_ids, k
        )
        lists.ids[doubtful], lists.distances[doubtful] = again
    return lists


def _search_again(
    queries: Floats, query_ids: Ids, reach: npt.NDArray[np.float64], points: Floats, point_ids: Ids, k: int
) -> NeighborLists:
    """The k nearest points (c, d) to each query (b, d), all of them within its reach (b,), by differences."""
    lists = NeighborLists(np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), np.inf))
    for sample, positions, distances in _pairs_within(queries, reach, points):
        ids = point_ids[positions].astype(np.int64)
        other = ids != query_ids[sample]
        if not other.any():
            continue
        first, past = int(sample[0]), int(sample[-1]) + 1
        more = nearest_hits(Hits(sample[other] - first, ids[other], distances[other]), past - first, k)
        both = [np.hstack([had[first:past], new]) for had, new in zip(lists, more, strict=True)]
        lists.ids[first:past], lists.distances[first:past] = select_nearest(
            both[0], both[1], query_ids[first:past], k
        )  # fmt: skip
    return lists


def cell_neighbors(points: Floats, ids: Ids, k: int, exact_below: int, seed: int) -> NeighborLists:
    """Neighbours among the members (c, d) of one cell: exact below `exact_below` points, else by NN-descent.

    One thread, so that a seed gives one graph. Source: Dong, Charikar & Li 2011, as implemented by pynndescent.
    """
    if len(points) <= max(exact_below, k + 1):
        lists = [
            brute_neighbors(points[start : start + 2048], ids[start : start + 2048], points, ids, k)
            for start in range(0, len(points), 2048)
        ]
        return NeighborLists(np.concatenate([p.ids for p in lists]), np.concatenate([p.distances for p in lists]))
    near_zero = points if points.dtype == np.float32 else points - typical_point(points)  # float32 keeps seven digits
    positions = _nn_descent(np.ascontiguousarray(near_zero, np.float32), k + 1, seed)
    found = np.where(positions >= 0, ids[positions], -1).astype(np.int64)
    return select_nearest(found, exact_distances(points, points, positions), ids, k)


def _nn_descent(points: npt.NDArray[np.float32], k: int, seed: int) -> npt.NDArray[np.int32]:
    from pynndescent import NNDescent  # noqa: PLC0415 (seconds of imports; the exact routes never need it)

    from pipeline.kernels.neighbors.nn_descent_cache import keep_compiled  # noqa: PLC0415

    keep_compiled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where it returns -1; those are handled by id
        index = NNDescent(points, n_neighbors=k, metric="euclidean", random_state=seed, n_jobs=1)
        return np.asarray(index.neighbor_graph[0])


def select_nearest(ids: npt.NDArray[np.int64], distances: Floats, self_ids: Ids, k: int) -> NeighborLists:
    """The k nearest distinct ids of each row (b, q), without the row's own id and without -1; padded to k columns."""
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

    sample: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float64]


def points_within(
    sample: Floats, sample_ids: Ids, radii: npt.NDArray[np.float64], block: Floats, first_row: int
) -> Hits:
    """All points of a block (b, d) that lie within `radii` (s,) of the sample points (s, d), self left out by id.

    Distances are differences of the coordinates as given, in float64; what is as near as the radius counts. With the
    distance of the k-th neighbour found as radius, the true k nearest are among them: exact search at the price of one
    matrix product, or of a k-d tree where there are few features.
    """
    if block.shape[1] <= TREE_FEATURES:
        return _points_within_by_tree(sample, sample_ids, radii, block, first_row)
    own = np.asarray(sample_ids) - first_row
    found = [Hits(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for hits in _pairs_within(sample, radii * (1 + AS_NEAR), block):
        other = hits.ids != own[hits.sample]
        found.append(Hits(hits.sample[other], hits.ids[other] + first_row, hits.distances[other]))
    return Hits(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _pairs_within(queries: Floats, reach: npt.NDArray[np.float64], points: Floats) -> Iterator[Hits]:
    """Pairs (position of a query (b, d), position of a point (c, d), distance), tile by tile: all within reach (b,).

    A tile has a run of queries, each of its pairs in the order of these. One matrix product leaves those whose squared
    distance can be within the reach, its rounding taken off; the rest is differences of the coordinates as given. Many
    pairs are left only to queries far from most of the others.
    """
    rounding, middle = square_rounding(points.shape[1]), typical_point(queries)
    left = queries.astype(np.float64) - middle
    limits = (1 + 2 * rounding) * reach**2 - (1 - rounding) * np.einsum("bd,bd->b", left, left)
    left *= -2.0
    step = max(1, min(TILE_POINTS, CHUNK_ELEMENTS // max(1, points.shape[1])))
    for start in range(0, len(points), step):
        part = points[start : start + step]
        right = part.astype(np.float64) - middle
        squares = (1 - rounding) * np.einsum("cd,cd->c", right, right)
        n_rows = max(1, TILE_PAIRS // len(right))
        for top in range(0, len(left), n_rows):
            scores = left[top : top + n_rows] @ right.T
            scores += squares
            near = np.flatnonzero(~(scores > limits[top : top + n_rows, None]))  # what is not a number is in doubt
            rows, columns = near // len(right) + top, near % len(right)
            distances = pair_distances(queries, rows, part, columns)
            within = distances <= reach[rows]
            yield Hits(rows[within], columns[within] + start, distances[within])


def nearest_of_each(hits: Hits, k: int) -> Hits:
    """The k nearest of the points found for each sample point, all where there are fewer; by distance, then by id."""
    order = np.lexsort((hits.ids, hits.distances, hits.sample))
    kept = order[_ranks(hits.sample[order]) < k]
    return Hits(hits.sample[kept], hits.ids[kept], hits.distances[kept])


def nearest_hits(hits: Hits, n_sample: int, k: int) -> NeighborLists:
    """The same as lists, short ones padded."""
    sample, ids, distances = nearest_of_each(hits, k)
    rank = _ranks(sample)
    lists = NeighborLists(np.full((n_sample, k), -1, np.int64), np.full((n_sample, k), np.inf))
    lists.ids[sample, rank], lists.distances[sample, rank] = ids, distances
    return lists


def _ranks(sample: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Position of each entry of a sorted array among those that equal it."""
    return np.arange(len(sample)) - np.searchsorted(sample, sample)


def _points_within_by_tree(
    sample: Floats, sample_ids: Ids, radii: npt.NDArray[np.float64], block: Floats, first_row: int
) -> Hits:
    left, right = sample.astype(np.float64), block.astype(np.float64)
    reach = radii * (1 + AS_NEAR) + 1e-12 * np.abs(left).max(axis=1)  # the tree's own rounding
    listed = cKDTree(right).query_ball_point(left, reach)
    rows = np.repeat(np.arange(len(left)), [len(ids) for ids in listed])
    columns = np.concatenate([np.sort(np.asarray(ids, np.int64)) for ids in listed])
    keep = columns + first_row != np.asarray(sample_ids)[rows]
    rows, columns = rows[keep], columns[keep]
    distances = pair_distances(sample, rows, block, columns)
    within = distances <= radii[rows] * (1 + AS_NEAR)
    return Hits(rows[within], columns[within] + first_row, distances[within])


def recall_per_point(
    hits: Hits, found: npt.NDArray[np.float64], n_sample: int, k: int | npt.NDArray[np.integer]
) -> npt.NDArray[np.float64]:
    """Share (n_sample,) of each sample point's k nearest neighbours that were found, in [0, 1].

    hits: all points within the k-th found distance, of all blocks. found (n_sample, any): distances of the neighbours
    found. k: how many there should be, the same for all or (n_sample,) at least 1. Points as near as the k-th nearest
    count as right, whichever of the tied ones was listed.
    """
    order = np.lexsort((hits.distances, hits.sample))
    sample, distances = hits.sample[order], hits.distances[order]
    first = np.searchsorted(sample, np.arange(n_sample))
    count = np.searchsorted(sample, np.arange(n_sample), side="right") - first
    kth = np.full(n_sample, np.inf)
    enough = count >= k
    kth[enough] = distances[(first + k - 1)[enough]]
    right = found <= (kth * (1 + AS_NEAR))[:, None]
    right &= np.isfinite(found)
    return np.asarray(np.minimum(right.sum(axis=1) / k, 1.0))

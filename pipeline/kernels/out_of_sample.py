"""Coordinates of new points from those of their neighbours among the training points, and their relative distance.

Saul & Roweis 2003 (Think Globally, Fit Locally, JMLR 4), the nonparametric mapping of new inputs: the weights (with
sum 1) that best reconstruct a new point from its neighbours are applied to the neighbours' coordinates.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..core.arrays import Bools, Float64, Floats, Int64, Ints
from .batches import batches
from .factors.lle_weights import barycenter_weights
from .neighbors.cells import Boxes, nearest_cells
from .neighbors.knn import NO_POINT, NeighborLists, empty_lists, exact_neighbors, merge_into

RECALL, RECALL_POINTS = 0.99, 200
"""Share of the true neighbours of RECALL_POINTS training points that a search of the nearest cells finds."""
PAIRS = 2**20
"""Pairs of a row and a cell to search at one time."""
Read = Callable[[Int64], Iterable[tuple[Int64, Floats]]]
COINCIDENT = 1e-12
"""Relative to the size of the coordinates: closer points are equal up to rounding."""


class Neighborhood(NamedTuple):
    """Training points (w, d) that are neighbours of new points, in memory."""

    points: Floats
    """(w, d)"""
    embedding: Floats
    """(w, m)"""
    component: Ints
    """(w,) component of each, components have unrelated coordinates"""
    positions: Int64
    """(b, k) rows of these arrays that are the neighbours of each new point, nearest first; any row in empty slots"""


class Placed(NamedTuple):
    """New points (b,) in the embedding."""

    coordinates: Float64
    """(b, m)"""
    coincident: Bools
    """(b,) whether the point equals a training point, and has its coordinates."""
    used: Bools
    """(b, k) whether a neighbour has a weight: those in the component of the nearest one."""


class Cells(NamedTuple):
    """The cells of the training points, in internal order."""

    centers: Float64
    """(c, d)"""
    start: Int64
    stop: Int64
    """(c,) rows [start, stop) are the points of a cell."""

    def to_search(self, points: Floats, nearest: Int64) -> int:
        """The number of nearest cells of some points (s, d) that hold the share RECALL of their nearest points (s, k).

        At least two: by rounding, a training point between two cells can be nearer to the other one. -1 is no point.
        """
        ranks = np.argsort(nearest_cells(points, self.centers, len(self.start)), axis=1)
        ranks = np.take_along_axis(ranks, np.searchsorted(self.start, nearest, side="right") - 1, axis=1)
        return max(2, int(np.quantile(ranks[nearest >= 0], RECALL, method="higher")) + 1)

    def members(self, chosen: Int64, points: Floats) -> Iterator[tuple[Int64, Floats]]:
        """The ids and the points of each of some cells, from all points (n, d)."""
        for first, past in zip(self.start[chosen].tolist(), self.stop[chosen].tolist(), strict=True):
            yield np.arange(first, past), points[first:past]

    def nearest(self, points: Float64, k: int, n_searched: int, read: Read) -> NeighborLists:
        """The k nearest training points of new points (b, d) among those of the n_searched nearest cells.

        read: the ids and the points of each of some cells, ascending.
        """
        lists, n_searched = empty_lists(len(points), k), min(n_searched, len(self.start))
        step = max(1, PAIRS // n_searched)
        for rows in (slice(first, first + step) for first in range(0, len(points), step)):
            part, found = points[rows], NeighborLists(lists.ids[rows], lists.distances[rows])  # views
            near = nearest_cells(part, self.centers, n_searched)
            order = np.argsort(near, axis=None, kind="stable")
            visited, first = np.unique(near.ravel()[order].astype(np.int64), return_index=True)
            unknown = np.full(len(part), NO_POINT)
            for queries, (ids, members) in zip(np.split(order // n_searched, first[1:]), read(visited), strict=True):
                nearest = exact_neighbors(part[queries], unknown[queries], members, ids, k)
                merge_into(found, queries, nearest, unknown)
        return lists


def some_of(rows: Int64) -> Int64:
    """At most RECALL_POINTS of at least one row, evenly spaced."""
    return rows[:: -(-len(rows) // RECALL_POINTS)]


def reach_of(points: Float64, boxes: Boxes, counts: Int64, k: int) -> Float64:
    """An upper bound (b,) on the distance of each point (b, d) to its k-th nearest among the rows of the boxes.

    All rows of a box are at most as far as its farthest corner, so a box with at least k rows gives a bound. counts
    (boxes,) are the numbers of rows to use. Infinite if no box has k rows.
    """
    best = np.full(len(points), np.inf)
    # Buffers are reused: workers of Dask return freed memory at once, so new ones for each box cost page faults.
    away_from_low, away_from_high, squared = np.empty_like(points), np.empty_like(points), np.empty(len(points))
    for box in np.flatnonzero(counts >= k):
        np.abs(np.subtract(points, boxes.low[box], out=away_from_low), out=away_from_low)
        np.abs(np.subtract(boxes.high[box], points, out=away_from_high), out=away_from_high)
        np.maximum(away_from_low, away_from_high, out=away_from_low)
        np.minimum(best, np.einsum("bd,bd->b", away_from_low, away_from_low, out=squared), out=best)
    return np.asarray(np.sqrt(best) * (1 + 1e-12))


def of_one_component(ids: Int64, component: Ints) -> Bools:
    """(b, k) mask of the neighbours in the component of the nearest one: components have unrelated coordinates.

    ids (b, k), nearest first, -1 pads; component (b, k) of each.

    >>> of_one_component(np.array([[4, 7, 2, -1]]), np.array([[1, 0, 1, 1]])).tolist()
    [[True, False, True, False]]
    """
    return np.asarray((ids >= 0) & (component == component[:, :1]))


def place(points: Floats, lists: NeighborLists, training: Neighborhood, reg: float, rule: str) -> Placed:
    """Weighted sums of the neighbours' coordinates, with the barycentric weights of the new points, a batch at a time.

    A new point that equals a training point gets its coordinates; with reg > 0 the weights would only approximate them.

    Args:
        points: (b, d) new points.
        lists: their neighbours (b, k); the first slot of each row is filled.
        training: the points that are neighbours.
        reg, rule: as in `barycenter_weights`.
    """
    k, width = lists.ids.shape[1], max(points.shape[1], training.embedding.shape[1])
    used = of_one_component(lists.ids, training.component[training.positions])
    coordinates, coincident = np.empty((len(points), training.embedding.shape[1])), np.empty(len(points), bool)
    for rows in batches(len(points), 8 * k * (width + k)):
        valid, at = used[rows], training.positions[rows]
        neighbors = training.points[at]
        weights = barycenter_weights(points[rows], neighbors, valid, reg, rule).weights
        equal = lists.distances[rows, 0] <= COINCIDENT * np.abs(neighbors[:, 0]).max(axis=1)
        weights[equal] = 0.0
        weights[equal, 0] = 1.0
        embedded = np.where(valid[:, :, None], training.embedding[at], 0.0)
        coordinates[rows], coincident[rows] = np.einsum("bk,bkm->bm", weights, embedded), equal
    return Placed(coordinates, coincident, used)


def distance_ratio(distances: Floats, listed_distances: Floats, positions: Int64, valid: Bools) -> Float64:
    """(b,) distance to the k-th neighbour divided by the mean of the neighbours' distances to their k-th neighbours.

    About 1 for a point of the same sample, for any density and dimension; r for a point r times as far away as nearby
    training points are from each other. De Ridder, Tax & Duin 1998 (An experimental comparison of one-class
    classification methods, ASCI) accept a point by this quotient with k = 1. The k-th distances vary less, and are
    averaged as in the local outlier factor (Breunig et al. 2000, SIGMOD). A list that ends at a radius is shorter than
    that of a new point. So k is the length, at least 1, of the shortest list involved: that of the new point or of one
    of its neighbours.

    Args:
        distances: (b, K) to the neighbours, ascending; inf in empty slots, at least one slot is filled.
        listed_distances: (w, K) the same for the points that ``positions`` (b, K) refers to, the neighbours.
        valid: (b, K) mask of the slots with a neighbour.

    >>> listed = np.array([[2.0, np.inf], [4.0, 9.0]])
    >>> distance_ratio(np.array([[6.0, 8.0]]), listed, np.array([[0, 1]]), np.array([[True, True]])).tolist()
    [2.0]
    """
    lengths, k = np.isfinite(listed_distances).sum(axis=1), distances.shape[1]
    shortest = np.where(valid, lengths[positions], k).min(axis=1)
    last = np.maximum(np.minimum(shortest, np.isfinite(distances).sum(axis=1)), 1)[:, None] - 1
    farthest = np.take_along_axis(distances, last, axis=1)[:, 0].astype(np.float64)
    radii = np.where(valid, np.asarray(listed_distances[positions, last], np.float64), 0.0)
    mean = radii.sum(axis=1) / np.maximum(valid.sum(axis=1), 1)
    return np.asarray(farthest / np.maximum(mean, np.finfo(np.float64).tiny))

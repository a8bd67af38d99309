"""Coordinates of new points from those of their neighbours among the training points, and their relative distance.

Saul & Roweis 2003 (Think Globally, Fit Locally, JMLR 4), the nonparametric mapping of new inputs: the weights (with
sum 1) that best reconstruct a new point from its neighbours are applied to the neighbours' coordinates.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .factors.lle_weights import barycenter_weights
from .neighbors.cells import Boxes
from .neighbors.knn import TIE

F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

COINCIDENT = 1e-12
"""Relative to the size of the coordinates: closer points are equal up to rounding."""
PAIRS_AT_ONCE = 2**20


class Placed(NamedTuple):
    """New points (b,) in the embedding."""

    coordinates: F64
    """(b, m)"""
    coincident: Bools
    """(b,) whether the point equals a training point, and has its coordinates."""


def reach_of(points: F64, boxes: Boxes, counts: Ids, k: int) -> F64:
    """An upper bound (b,) on the distance of each point (b, d) to its k-th nearest among the rows of the boxes.

    All rows of a box are at most as far as its farthest corner, so a box with at least k rows gives a bound. counts
    (boxes,) are the numbers of rows to use. Infinite if no box has k rows.
    """
    best = np.full(len(points), np.inf)
    for box in np.flatnonzero(counts >= k):
        away = np.maximum(np.abs(points - boxes.low[box]), np.abs(boxes.high[box] - points))
        np.minimum(best, np.einsum("bd,bd->b", away, away), out=best)
    return np.asarray(np.sqrt(best) * (1 + 1e-12))


def reached(points: F64, reach: F64, boxes: Boxes, chosen: Ids) -> Bools:
    """(b, chosen) whether each chosen box is within the reach (b,) of each point (b, d), or equally near."""
    out = np.empty((len(points), len(chosen)), bool)
    limit = np.square((1 + TIE) * reach)
    for column, box in enumerate(chosen):
        gap = np.maximum(0.0, np.maximum(boxes.low[box] - points, points - boxes.high[box]))
        out[:, column] = np.einsum("bd,bd->b", gap, gap) <= limit
    return out


def of_one_component(ids: Ids, component: npt.NDArray[np.integer]) -> Bools:
    """(b, k) mask of the neighbours in the component of the nearest one: components have unrelated coordinates.

    ids (b, k), nearest first, -1 pads; component (b, k) of each.

    >>> of_one_component(np.array([[4, 7, 2, -1]]), np.array([[1, 0, 1, 1]])).tolist()
    [[True, False, True, False]]
    """
    return np.asarray((ids >= 0) & (component == component[:, :1]))


def place(
    points: npt.NDArray[np.floating], neighbors: npt.NDArray[np.floating], embedded: F64, distances: F64, valid: Bools,
    reg: float, rule: str,
) -> Placed:  # fmt: skip
    """Weighted sums of the neighbours' coordinates, with the barycentric weights of the new points.

    A new point that equals a training point gets its coordinates; with reg > 0 the weights would only approximate them.

    Args:
        points: (b, d) new points.
        neighbors: (b, k, d) their neighbours, nearest first.
        embedded: (b, k, m) their coordinates; invalid slots are ignored.
        distances: (b, k) their distances.
        valid: (b, k) mask of the slots with a neighbour; the first slot of each row is valid.
        reg: as in `barycenter_weights`.
        rule: as in `barycenter_weights`.
    """
    weights = barycenter_weights(points, neighbors, valid, reg, rule).weights
    coincident = distances[:, 0] <= COINCIDENT * np.abs(neighbors[:, 0]).max(axis=1)
    weights[coincident] = 0.0
    weights[coincident, 0] = 1.0
    return Placed(np.einsum("bk,bkm->bm", weights, np.where(valid[:, :, None], embedded, 0.0)), coincident)


def of_equal_rank(
    distances: npt.NDArray[np.floating], own: npt.NDArray[np.floating], positions: Ids, valid: Bools
) -> tuple[F64, F64]:
    """The distances for ``distance_ratio``, all of one rank although lists vary in length: (farthest (b,), own (b, k)).

    A list that ends at a radius is shorter than that of a new point. So the rank is the length, at least 1, of the
    shortest list involved: that of the new point or of one of its neighbours.

    Args:
        distances: (b, k) to the neighbours, ascending; inf in empty slots, at least one slot is filled.
        own: (w, k) the same for the points that ``positions`` (b, k) refers to, the neighbours.
        valid: (b, k) mask of the slots with a neighbour.

    >>> farthest, own = of_equal_rank(np.array([[1.0, 2.0]]), np.array([[3.0, np.inf]]), np.array([[0, 0]]),
    ...                               np.array([[True, True]]))
    >>> farthest.tolist(), own.tolist()
    ([1.0], [[3.0, 3.0]])
    """
    listed, k = np.isfinite(own).sum(axis=1), distances.shape[1]
    shortest = np.where(valid, listed[positions], k).min(axis=1)
    last = np.maximum(np.minimum(shortest, np.isfinite(distances).sum(axis=1)), 1)[:, None] - 1
    farthest = np.take_along_axis(distances, last, axis=1)[:, 0]
    return farthest.astype(np.float64), np.asarray(own[positions, last], np.float64)


def distance_ratio(farthest: F64, own: F64, valid: Bools) -> F64:
    """(b,) distance to the k-th neighbour divided by the mean of the neighbours' distances to their k-th neighbours.

    farthest (b,), own (b, k), valid (b, k). About 1 for a point of the same sample, for any density and dimension; r
    for a point r times as far away as nearby training points are from each other. De Ridder, Tax & Duin 1998 (An
    experimental comparison of one-class classification methods, ASCI) accept a point by this quotient with k = 1. The
    k-th distances vary less, and are averaged as in the local outlier factor (Breunig et al. 2000, SIGMOD).
    """
    mean = np.where(valid, own, 0.0).sum(axis=1) / np.maximum(valid.sum(axis=1), 1)
    return np.asarray(farthest / np.maximum(mean, np.finfo(np.float64).tiny))

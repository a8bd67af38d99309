"""Coordinates of new points from those of their neighbours among the training points, and how far out they lie.

Saul & Roweis 2003 (Think Globally, Fit Locally, JMLR 4), the nonparametric mapping of new inputs: the weights that best
rebuild a new point from its neighbours, summing to 1, applied to the neighbours' coordinates.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.kernels.factors.lle_weights import barycenter_weights
from pipeline.kernels.neighbors.cells import Boxes
from pipeline.kernels.neighbors.knn import TIE

F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

COINCIDENT = 1e-12
"""Of the size of the coordinates: a new point within it of a training point is that point, rounding apart."""
PAIRS_AT_ONCE = 2**20


class Placed(NamedTuple):
    """New points (b,) in the embedding."""

    coordinates: F64
    """(b, m)"""
    coincident: Bools
    """(b,) the point is a training point and has its coordinates."""


def reach_of(points: F64, boxes: Boxes, counts: Ids, k: int) -> F64:
    """An upper bound (b,) on the distance of each point (b, d) to its k-th nearest among the rows of the boxes.

    A box with at least k rows has them all no farther than its farthest corner; counts (boxes,) are the rows that
    count. Infinite where no box has as many.
    """
    best = np.full(len(points), np.inf)
    for box in np.flatnonzero(counts >= k):
        away = np.maximum(np.abs(points - boxes.low[box]), np.abs(boxes.high[box] - points))
        np.minimum(best, np.einsum("bd,bd->b", away, away), out=best)
    return np.asarray(np.sqrt(best) * (1 + 1e-12))


def reached(points: F64, reach: F64, boxes: Boxes, chosen: Ids) -> Bools:
    """(b, chosen) whether each point (b, d) comes within its reach (b,) of each chosen box, or as near as that."""
    out = np.empty((len(points), len(chosen)), bool)
    limit = np.square((1 + TIE) * reach)
    for column, box in enumerate(chosen):
        gap = np.maximum(0.0, np.maximum(boxes.low[box] - points, points - boxes.high[box]))
        out[:, column] = np.einsum("bd,bd->b", gap, gap) <= limit
    return out


def of_one_component(ids: Ids, component: npt.NDArray[np.integer]) -> Bools:
    """(b, k) which neighbours lie in the component of the nearest, since coordinates of two have nothing in common.

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

    A new point that is a training point gets its coordinates, to which the weights come only as near as reg lets them.

    Args:
        points: (b, d) new points.
        neighbors: (b, k, d) their neighbours, nearest first.
        embedded: (b, k, m) coordinates of these; the content of invalid slots is ignored.
        distances: (b, k) to these.
        valid: (b, k) which slots hold a neighbour; the first of each row does.
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
    """What ``distance_ratio`` compares: (farthest (b,), own (b, k)), all at one rank, whatever the lists' lengths.

    A list that ends at a radius ends nearer than the k-th neighbour of a new point. So the rank is that of the shortest
    list involved, at least 1: the point's own or one of its neighbours'.

    Args:
        distances: (b, k) to the neighbours, ascending; inf in empty slots, at least one is none.
        own: (w, k) the same of points of which ``positions`` (b, k) are the neighbours.
        valid: (b, k) which slots hold a neighbour.

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
    """(b,) distance to the k-th neighbour over the mean of these neighbours' distances to their own k-th ones.

    farthest (b,), own (b, k), valid (b, k). About 1 for a point of the same sample, whatever the density and the
    dimension; r for a point r times as far away as the training points lie from each other there. De Ridder, Tax & Duin
    1998 (An experimental comparison of one-class classification methods, ASCI) accept a point by this quotient with
    k = 1; the k-th distances vary less, and are averaged as in the local outlier factor (Breunig et al. 2000, SIGMOD).
    """
    mean = np.where(valid, own, 0.0).sum(axis=1) / np.maximum(valid.sum(axis=1), 1)
    return np.asarray(farthest / np.maximum(mean, np.finfo(np.float64).tiny))

"""Quality of many embeddings of the same sample, each against all points of the sample.

Distances and ranks among the points are computed once. An embedding then costs one table of distances.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .locality import neighborhood_hit
from .trustworthiness import trustworthiness

SMALLEST_STRETCH = 0.05
"""Smallest stretch of a direction in ``unstretched``, as a share of the largest."""

Float64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


class Scores(NamedTuple):
    """Measures of each measured point, (s,) in [0, 1]."""

    trustworthiness: Float64
    continuity: Float64
    kept: Float64
    """Share of the nearest neighbours that are nearest in the embedding too, or in its ``unstretched`` image if the
    mean share is larger there."""
    hit: Float64 | None
    """Share of the nearest neighbours in the embedding with the point's label; None without labels."""

    def mean(self) -> Float64:
        """Mean of the measures at each point, (s,); the hit counts where it is defined."""
        return np.asarray(np.nanmean([values for values in self if values is not None], axis=0))


def unstretched(embedding: Float64, near: Ids, rows: Ids, distances: Float64) -> Float64:
    """The image (n, m) of an embedding under the linear map that fits distances of neighbours best.

    Spectral methods find coordinates up to a linear map: their eigenvectors have equal length, which turns a long sheet
    into a square. The map A minimises sum ((|A (y_i - y_j)| / d_ij)^2 - 1)^2, a linear problem for A'A (Goldberg &
    Ritov 2009, Machine Learning 77, section 4, correct LLE by a conformal map for the same reason). Directions
    that the fit shrinks to zero keep SMALLEST_STRETCH of the largest.

    Args:
        embedding: (n, m); NaN for points without coordinates.
        near: (s, k) neighbours of the points ``rows`` (s,), -1 in slots that are not used.
        rows: (s,) points.
        distances: (s, k) distances of the neighbours among the points.

    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> near, rows = np.array([[1, 2, 3], [0, 2, 3]]), np.array([0, 1])
    >>> distances = np.array([[5.0, 1.0, 26**0.5], [5.0, 26**0.5, 1.0]])
    >>> np.ptp(unstretched(square, near, rows, distances), axis=0).round(6).tolist()
    [1.0, 5.0]
    """
    offsets = embedding[near] - embedding[rows][:, None]
    used = (near >= 0) & np.isfinite(offsets).all(axis=2) & (distances > 0)
    directions = offsets[used] / distances[used][:, None]
    if len(directions) <= embedding.shape[1] ** 2:
        return embedding
    a, b = np.triu_indices(embedding.shape[1])
    products = directions[:, a] * directions[:, b] * np.where(a == b, 1.0, 2.0)
    squares = np.zeros((embedding.shape[1],) * 2)
    squares[a, b] = squares[b, a] = np.linalg.lstsq(products, np.ones(len(products)), rcond=None)[0]
    values, vectors = np.linalg.eigh(squares)
    if values[-1] <= 0:
        return embedding
    return np.asarray(embedding @ (vectors * np.sqrt(np.maximum(values, SMALLEST_STRETCH**2 * values[-1]))))


class SampleQuality:
    """Measures embeddings of n points (n, d) at n_measured or more evenly spaced ones, with k neighbours."""

    def __init__(self, points: Float64, labels: Float64 | None, k: int, n_measured: int) -> None:
        """k is lowered to what n points allow; labels (n,) are categories, NaN for none."""
        self.n_points = len(points)
        self.measured: Ids = np.arange(0, self.n_points, max(1, self.n_points // n_measured))
        self.k = max(1, min(k, (self.n_points - 1) // 2))
        self.labels = labels
        largest = np.abs(points).max(initial=0.0)  # squares of very small coordinates would underflow
        squared = self._squared_distances(points / largest if largest > 0 else points)
        order = np.argsort(squared, axis=1, kind="stable")
        self._near: Ids = order[:, : self.k]
        self._distances = np.sqrt(np.maximum(np.take_along_axis(squared, self._near, axis=1), 0.0))
        self._ranks = np.empty(order.shape, np.int32)
        np.put_along_axis(self._ranks, order, np.arange(1, self.n_points + 1, dtype=np.int32)[None], axis=1)

    def measure(self, embedding: Float64) -> Scores:
        """Scores of an embedding (n, m). Points with NaN are infinitely far, and their own scores are 0."""
        inside: npt.NDArray[np.bool_] = np.asarray(np.isfinite(embedding).all(axis=1))
        squared = self._squared_distances(np.where(inside[:, None], embedding, 0.0))
        squared[:, ~inside] = np.inf
        near = np.argpartition(squared, self.k - 1, axis=1)[:, : self.k]
        ranks = self._ranks_of_neighbors(squared)
        embedded = inside[self.measured]
        trust, continuity = (
            np.where(embedded, np.clip(trustworthiness(table, self.n_points), 0.0, 1.0), 0.0)
            for table in (np.take_along_axis(self._ranks, near, axis=1), ranks)
        )
        scaled = unstretched(embedding, np.where(embedded[:, None], self._near, -1), self.measured, self._distances)
        squared = self._squared_distances(np.where(inside[:, None], scaled, 0.0))
        squared[:, ~inside] = np.inf
        kept = max(((table <= self.k).mean(axis=1) for table in (ranks, self._ranks_of_neighbors(squared))), key=np.sum)
        kept = np.where(embedded, kept, 0.0)
        if self.labels is None:
            return Scores(trust, continuity, kept, None)
        hit = neighborhood_hit(self.labels[self.measured], self.labels[near])
        return Scores(trust, continuity, kept, np.where(embedded | np.isnan(hit), hit, 0.0))

    def _ranks_of_neighbors(self, squared: Float64) -> Ids:
        """Ranks (s, k), from 1, of the nearest neighbours in a table of squared distances (s, n)."""
        limits = np.take_along_axis(squared, self._near, axis=1)
        ranks = np.stack([(squared < limits[:, [j]]).sum(axis=1) for j in range(self.k)], axis=1) + 1
        return np.where(np.isfinite(limits), ranks, self.n_points)

    def _squared_distances(self, table: Float64) -> Float64:
        """Squared distances (s, n) of the measured points to all points; a point is infinitely far from itself."""
        table = table - table.mean(axis=0)
        squares = np.einsum("nd,nd->n", table, table)
        squared: Float64 = squares[self.measured][:, None] - 2 * table[self.measured] @ table.T + squares
        squared[np.arange(len(self.measured)), self.measured] = np.inf
        return squared

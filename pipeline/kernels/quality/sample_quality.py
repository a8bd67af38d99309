"""Quality of many embeddings of the same sample, each against all points of the sample."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..neighbors.distances import square_rounding, typical_point
from ..neighbors.knn import exact_neighbors
from .locality import neighborhood_hit
from .trustworthiness import ROUNDING, trustworthiness

SMALLEST_STRETCH = 0.05
"""Smallest stretch of a direction in ``unstretched``, as a share of the largest."""

Float64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


class Scores(NamedTuple):
    """Measures of each measured point, (s,) in [0, 1]; NaN for points without coordinates."""

    trustworthiness: Float64
    continuity: Float64
    kept: Float64
    """Share of the nearest neighbours that are nearest in the embedding too, or in its ``unstretched`` image if the
    mean share is larger there."""
    hit: Float64 | None
    """Share of the nearest neighbours in the embedding with the point's label; None without labels."""

    def mean(self) -> Float64:
        """Mean of the measures at each point, (s,); the hit counts where it is defined, NaN without coordinates."""
        others = self.trustworthiness + self.continuity + self.kept
        if self.hit is None:
            return others / 3
        return np.where(np.isfinite(self.hit), (others + self.hit) / 4, others / 3)


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


class _Distances:
    """Squared distances from s measured points to all n points of a space, for ranks. Points with NaN have inf."""

    def __init__(self, table: Float64, measured: Ids) -> None:
        is_known = np.asarray(np.isfinite(table).all(axis=1))
        shifted = np.where(is_known[:, None], table, 0.0) - typical_point(table[is_known])
        squares = np.einsum("nd,nd->n", shifted, shifted)
        self._squared: Float64 = squares[measured][:, None] - 2 * shifted[measured] @ shifted.T + squares
        self._squared[np.arange(len(measured)), measured] = np.inf
        self._squared[:, ~is_known] = np.inf
        self._ascending = np.sort(self._squared, axis=1)
        self._errors = 2 * square_rounding(table.shape[1]) * squares
        self._measured = measured

    def ranks(self, near: Ids) -> Ids:
        """Ranks (s, k), from 1, of the points ``near`` (s, k) by distance; n for points with NaN.

        Points at the same distance have the same rank.
        """
        rounding = self._errors[self._measured, None] + self._errors[near]
        limits = np.take_along_axis(self._squared, near, axis=1) * (1 - ROUNDING) - rounding
        return np.stack([np.searchsorted(row, limit) for row, limit in zip(self._ascending, limits, strict=True)]) + 1


class SampleQuality:
    """Measures embeddings of n points (n, d) at n_measured or more evenly spaced ones, with k neighbours.

    The distances of the measured points are sorted once. An embedding then costs a binary search for each neighbour.
    """

    def __init__(self, points: Float64, k: int, n_measured: int, labels: Float64 | None = None) -> None:
        """k is lowered to what n points allow; labels (n,) are categories, NaN for none."""
        self.n_points = len(points)
        self.measured: Ids = np.arange(0, self.n_points, max(1, self.n_points // n_measured))
        self.k = max(1, min(k, (self.n_points - 1) // 2))
        self.labels = labels
        # Squares of very small or large coordinates would not be in the range of float64.
        scaled = np.ldexp(points, -np.frexp(np.abs(points).max(initial=0.0))[1])
        self._input = _Distances(scaled, self.measured)
        every = np.arange(self.n_points)
        self._neighbors = exact_neighbors(scaled[self.measured], self.measured, scaled, every, self.k)

    def trustworthiness(self, embedding: Float64) -> Float64:
        """Trustworthiness (s,) of an embedding (n, m) at the measured points; NaN for points with NaN."""
        return self._trustworthiness(self._nearest(embedding))

    def near_and_kept(self, embedding: Float64) -> tuple[Float64, Float64]:
        """Trustworthiness and the share of kept neighbours (s,) of an embedding (n, m); NaN for points with NaN."""
        near = self._nearest(embedding)
        embedded = near[:, 0] >= 0
        scaled = unstretched(
            embedding, np.where(embedded[:, None], self._neighbors.ids, -1), self.measured, self._neighbors.distances
        )
        shares = [
            (ids[:, :, None] == self._neighbors.ids[:, None, :]).any(axis=1).mean(axis=1)
            for ids in (near, self._nearest(scaled))
        ]
        kept = max(shares, key=lambda share: float(share[embedded].sum()))
        return self._trustworthiness(near), np.where(embedded, kept, np.nan)

    def measure(self, embedding: Float64) -> Scores:
        """Scores of an embedding (n, m). Points with NaN have no scores, and are nobody's neighbours."""
        values, kept = self.near_and_kept(embedding)
        ranks = _Distances(embedding, self.measured).ranks(self._neighbors.ids)
        continuity = np.clip(trustworthiness(ranks, self.n_points), 0.0, 1.0)
        hit = None
        if self.labels is not None:
            near = self._nearest(embedding)
            labels = np.where(near >= 0, self.labels[near], np.nan)
            hit = neighborhood_hit(self.labels[self.measured], labels)
        return Scores(values, np.where(np.isnan(values), np.nan, continuity), kept, hit)

    def _trustworthiness(self, near: Ids) -> Float64:
        values = np.clip(trustworthiness(self._input.ranks(near), self.n_points), 0.0, 1.0)
        return np.asarray(np.where(near[:, 0] >= 0, values, np.nan))

    def _nearest(self, embedding: Float64) -> Ids:
        """The nearest embedded points (s, k) of the measured points in an embedding; -1 for points with NaN."""
        inside = np.flatnonzero(np.isfinite(embedding).all(axis=1))
        rows = np.flatnonzero(np.isin(self.measured, inside))
        near, queries = np.full((len(self.measured), self.k), -1), self.measured[rows]
        near[rows] = exact_neighbors(embedding[queries], queries, embedding[inside], inside, self.k).ids
        return near

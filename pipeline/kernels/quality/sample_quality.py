"""Quality of many embeddings of the same sample, each against all points of the sample."""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...core.arrays import Bools, Float64, Floats, Int64
from ..neighbors.distances import square_rounding, typical_point
from ..neighbors.knn import NeighborLists, exact_neighbors
from .locality import neighborhood_hit
from .trustworthiness import ROUNDING, trustworthiness

AXES_POINTS, AXES_WORK = 1000, 1e10
"""Most points and squared features that principal axes are computed from; more features than AXES_POINTS are too many
for their covariance. About half a second."""
SMALLEST_STRETCH = 0.05
"""Smallest stretch of a direction in ``unstretched``, as a share of the largest."""


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

    def mean_hit(self) -> float:
        """Mean of the hit where it is defined; 0 without labels."""
        return 0.0 if self.hit is None or np.isnan(self.hit).all() else float(np.nanmean(self.hit))


def unstretched(embedding: Float64, near: Int64, rows: Int64, distances: Float64) -> Float64:
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


def in_range(table: Float64) -> Float64:
    """A table times the power of two that makes its largest entry about 1, so that float64 holds squares of entries.

    Correlations stay equal bit for bit.
    """
    return np.asarray(np.ldexp(table, -np.frexp(np.abs(table).max(initial=0.0))[1]))


class SampleQuality:
    """Measures embeddings of n points (n, d) at n_measured or more evenly spaced ones, with k neighbours.

    The distances of the measured points are sorted once. An embedding then costs a binary search for each neighbour.
    """

    def __init__(self, points: Float64, k: int, n_measured: int, labels: Float64 | None = None) -> None:
        """k is lowered to what n points allow; labels (n,) are categories, NaN for none."""
        self.n_points = len(points)
        self.measured: Int64 = np.arange(0, self.n_points, max(1, self.n_points // n_measured))
        self.k = max(1, min(k, (self.n_points - 1) // 2))
        self.labels = labels
        self._points = in_range(points)

    def trustworthiness(self, embedding: Float64) -> Float64:
        """Trustworthiness (s,) of an embedding (n, m) at the measured points; 0 for those with NaN.

        Points at the same distance have the same rank.
        """
        near = self._nearest(embedding, self.k)
        return self._trust_of_ranks(near, self._ranks(near))

    def trustworthiness_and_kept(self, embedding: Float64) -> tuple[float, float]:
        """Mean trustworthiness, and the share of the k nearest points in an embedding (n, m) that are it in the data.

        Without the linear map of ``unstretched``, so the share can be lower than in `measure`.
        """
        near = self._nearest(embedding, self.k)
        ranks = self._ranks(near)
        return float(self._trust_of_ranks(near, ranks).mean()), float((ranks <= self.k).mean())

    def measure(self, embedding: Float64) -> Scores:
        """Scores of an embedding (n, m). Points with NaN are infinitely far, and their own scores are 0."""
        near, embedded = self._nearest(embedding, self.k), _has_coordinates(embedding[self.measured])
        ranks = self._ranks_in(embedding)
        continuity = np.where(embedded, np.clip(trustworthiness(ranks, self.n_points), 0.0, 1.0), 0.0)
        near_points, distances = self._neighbors
        scaled = unstretched(embedding, np.where(embedded[:, None], near_points, -1), self.measured, distances)
        kept = max(((table <= self.k).mean(axis=1) for table in (ranks, self._ranks_in(scaled))), key=np.sum)
        kept = np.where(embedded, kept, 0.0)
        return Scores(self._trust_of_ranks(near, self._ranks(near)), continuity, kept, self.hit(self.k, embedding))

    def hit(self, k: int, embedding: Float64 | None = None) -> Float64 | None:
        """Share (s,) of the k nearest neighbours with the point's label, in an embedding (n, m) or in the data.

        None without labels; k is lowered to what n points allow. Points with NaN have the share 0.
        """
        if self.labels is None:
            return None
        k = max(1, min(k, (self.n_points - 1) // 2))
        near = self._nearest(self._points if embedding is None else embedding, k)
        own, labels = self.labels[self.measured], np.where(near >= 0, self.labels[near], np.nan)
        return np.where((near[:, 0] >= 0) | np.isnan(own), neighborhood_hit(own, labels), 0.0)

    @cached_property
    def _neighbors(self) -> NeighborLists:
        """The neighbours (s, k) of the measured points among all points."""
        every = np.arange(self.n_points)
        return exact_neighbors(self._points[self.measured], self.measured, self._points, every, self.k)

    @cached_property
    def _squared(self) -> tuple[Float64, Float64, Float64]:
        """Squared distances (s, n) of the measured points to all points, the same sorted, and a bound on their errors
        divided by squared distances from a typical point (n,)."""
        shifted = self._points - typical_point(self._points)
        squared, squares = self._squared_distances(shifted)
        return squared, np.sort(squared, axis=1), 2 * square_rounding(shifted.shape[1]) * squares

    def _nearest(self, embedding: Float64, k: int) -> Int64:
        """The k nearest embedded points (s, k) of the measured points in an embedding; -1 for points with NaN."""
        inside = np.flatnonzero(_has_coordinates(embedding))
        rows = np.flatnonzero(np.isin(self.measured, inside))
        near, queries = np.full((len(self.measured), k), -1), self.measured[rows]
        near[rows] = exact_neighbors(embedding[queries], queries, embedding[inside], inside, k).ids
        return near

    def _trust_of_ranks(self, near: Int64, ranks: Int64) -> Float64:
        return np.where(near[:, 0] < 0, 0.0, np.clip(trustworthiness(ranks, self.n_points), 0.0, 1.0))

    def _ranks(self, near: Int64) -> Int64:
        """Ranks (s, k), from 1, in the data of points (s, k) seen from the measured ones; n for -1."""
        squared, ascending, errors = self._squared
        rounding = errors[self.measured, None] + errors[near]
        limits = np.take_along_axis(squared, near, axis=1) * (1 - ROUNDING) - rounding
        closer = np.stack([row.searchsorted(limit) for row, limit in zip(ascending, limits, strict=True)])
        return np.where(near < 0, self.n_points, closer + 1)

    def _ranks_in(self, embedding: Float64) -> Float64:
        """Ranks (s, k), from 1, in an embedding of the neighbours of the measured points.

        Of the points at the same embedded distance as a neighbour, those farther away than it in the data count half:
        the mean rank over all orders of them. So an embedding that maps many points to one place keeps no neighbours.
        """
        inside = _has_coordinates(embedding)
        table = np.where(inside[:, None], embedding - typical_point(embedding[inside]), 0.0)
        squared, _ = self._squared_distances(table)
        squared[:, ~inside] = np.inf
        limits = np.take_along_axis(squared, self._neighbors.ids, axis=1)
        ranks = np.full(limits.shape, float(self.n_points))
        for j, limit in enumerate(limits.T):
            closer, equal = ((compare(squared, limit[:, None])).sum(axis=1) for compare in (np.less, np.equal))
            ranks[:, j] = np.where(np.isfinite(limit), closer + 1, self.n_points)
            rows = np.flatnonzero((equal > 1) & np.isfinite(limit))
            is_equal = squared[rows] == limit[rows, None]
            ranks[rows, j] += (is_equal & self._farther(rows, self._neighbors.ids[rows, j])).sum(axis=1) / 2
        return ranks

    def _farther(self, rows: Int64, ids: Int64) -> Bools:
        """Which points (r, n) are farther in the data than the points `ids` (r,), seen from the measured rows (r,)."""
        squared, _, errors = self._squared
        rounding = errors[self.measured[rows]] + errors[ids]
        return np.asarray(squared[rows] > (squared[rows, ids] * (1 + ROUNDING) + rounding)[:, None])

    def _squared_distances(self, table: Float64) -> tuple[Float64, Float64]:
        """Squared distances (s, n) of the measured rows to all rows, inf to themselves, and squared lengths (n,)."""
        squares = np.einsum("nd,nd->n", table, table)
        squared: Float64 = table[self.measured] @ table.T
        squared *= -2  # in place: new arrays take longer than the products
        squared += squares[self.measured][:, None]
        squared += squares
        squared[np.arange(len(self.measured)), self.measured] = np.inf
        return squared, squares


def principal_axes(sample: Float64, parts: Iterable[Floats], m: int) -> tuple[Float64, Float64]:
    """The mean of points, and their first m principal axes (d, m).

    They are those of the points in all `parts`, (b, d) each; with more than AXES_POINTS features those of as many
    points of the `sample` (s, d). All axes have the length with which the largest coordinates of the sample are about
    1: float64 then holds squares of components. If it does not hold those of other points, which are far larger, the
    axes are those of the sample.
    """
    origin = sample.mean(axis=0)
    scale = np.ldexp(1.0, -np.frexp(np.abs(sample - origin).max(initial=0.0))[1])
    n_features = len(origin)
    if n_features > AXES_POINTS:
        chosen = np.linspace(0, len(sample) - 1, min(len(sample), AXES_POINTS)).astype(np.int64)
        centered = (sample[chosen] - origin) * scale
        axes = centered.T @ np.linalg.eigh(centered @ centered.T)[1][:, -m:]
        return origin, axes * (scale / np.maximum(np.linalg.norm(axes, axis=0), np.finfo(np.float64).tiny))
    n_points, total, products = 0, np.zeros(n_features), np.zeros((n_features, n_features))
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts:
            rows = (part - origin) * scale
            n_points, total, products = n_points + len(rows), total + rows.sum(axis=0), products + rows.T @ rows
    if not np.isfinite(products).all():
        return principal_axes(sample, [sample], m)
    mean = total / n_points
    axes = np.linalg.eigh(products / n_points - np.outer(mean, mean))[1][:, -m:]
    return origin + mean / scale, axes * scale


def _has_coordinates(embedding: Float64) -> Bools:
    return np.asarray(np.isfinite(embedding).all(axis=1))

"""Test whether a coordinate is a function of the earlier ones, by local linear regression with leave-one-out errors.

Source: Dsilva, Talmon, Coifman & Kevrekidis 2018 (Parsimonious representation of nonlinear dynamical systems through
manifold learning, Applied and Computational Harmonic Analysis 44), section 3. They use Gaussian weights with one
bandwidth, a third of the median distance. Here the weights are tricube over the nearest points (Cleveland & Devlin
1988, JASA 83), and the number of points is the one of `SPANS` with the smallest error, so that functions with many
oscillations are found too.
"""

import numpy as np

from ...core.arrays import Float64, Ints
from ..batches import batches
from .trustworthiness import nearest_others

SPANS = (3, 6, 12)
"""Neighbours per regression, as multiples of its number of unknowns."""

MIN_POINTS = 3
RIDGE = 1e-6
"""Added to the equations of the slopes, relative to their trace: earlier coordinates can depend on each other."""


def regression_errors(embedding: Float64) -> Float64:
    """Part of each coordinate that the earlier ones do not explain, at s >= MIN_POINTS sampled points (s, m): (s, m).

    In units of the coordinate's standard deviation. The root of a column's mean square is Dsilva's residual r_j: near
    1 if the coordinate is new, near 0 if it is a function of the earlier ones, as on elongated manifolds (Goldberg,
    Zakai, Kushnir & Ritov 2008, JMLR 9). The first column is the coordinate itself, so r_1 = 1. A constant coordinate
    has error 0.
    """
    scaled = standardized(embedding)
    errors: Float64 = scaled.copy()
    for j in range(1, embedding.shape[1]):
        errors[:, j] = prediction_errors(scaled[:, :j], scaled[:, j])
    return errors


def standardized(embedding: Float64) -> Float64:
    """The coordinates (s, m) with mean 0 and standard deviation 1; a constant coordinate is 0."""
    spread = embedding.std(axis=0)
    return np.asarray((embedding - embedding.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def prediction_errors(others: Float64, values: Float64) -> Float64:
    """Errors (s,) of values (s,) that are predicted from other coordinates (s, p), by the best of SPANS."""
    spans = sorted({min(span * (others.shape[1] + 1), len(values) - 1) for span in SPANS})
    ids = nearest_others(others, np.arange(len(others)), spans[-1])
    candidates = [values - local_linear(others, values, ids[:, :span]) for span in spans]
    return min(candidates, key=lambda error: float(error @ error))


def local_linear(earlier: Float64, values: Float64, ids: Ints) -> Float64:
    """Value (s,) at each point (s, p) of a linear fit to the values (s,) at other points ``ids`` (s, q), nearest first.

    Tricube weights reach zero just beyond the farthest point. If all points coincide, the value is their mean.
    """
    n_sample, n_earlier = earlier.shape
    out = np.empty(n_sample)
    for rows in batches(n_sample, 8 * ids.shape[1] * (n_earlier + 1)):
        offsets = earlier[ids[rows]] - earlier[rows, None, :]
        distances = np.sqrt(np.square(offsets).sum(axis=2))
        reach = 1.1 * distances.max(axis=1, keepdims=True)
        weights = (1 - (distances / np.where(reach > 0, reach, 1.0)) ** 3) ** 3
        design = np.concatenate([np.ones((*distances.shape, 1)), offsets], axis=2)
        weighted = (design * weights[:, :, None]).transpose(0, 2, 1)
        gram, rhs = weighted @ design, weighted @ values[ids[rows], None]
        diagonal = np.einsum("bpp->bp", gram)
        diagonal[:, 1:] += RIDGE * diagonal[:, 1:].sum(axis=1, keepdims=True) + np.finfo(np.float64).tiny
        out[rows] = np.linalg.solve(gram, rhs)[:, 0, 0]
    return out

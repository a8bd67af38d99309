"""Intrinsic dimension from the distances of points to their nearest neighbours, with intervals.

Both estimators model the points near a point as a Poisson process of constant density on a flat piece of the
manifold. Violations make the estimate depend on the scale: noise raises it at small distances, curvature at large
ones, and boundaries lower it (a point near a boundary has neighbours on one side only), most in high dimensions.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv  # scipy.stats takes a second to load

from ...core.arrays import Float64
from ...core.errors import InputError
from .intervals import NORMAL_QUANTILE_975

USED_SHARE = 0.9
"""Share of the distance ratios that ``two_nearest`` uses; Facco et al. also omit the largest tenth."""


class Dimension(NamedTuple):
    """An estimate of the intrinsic dimension and its 95 % interval."""

    value: float
    low: float
    high: float


def two_nearest(distances: Float64) -> Dimension:
    """TwoNN (Facco, d'Errico, Rodriguez & Laio 2017, Scientific Reports 7): from each point's two nearest neighbours.

    The ratio mu of the two distances follows a Pareto law, so log mu is exponential with rate d. The paper fits a line
    to the empirical distribution without the largest tenth. Here d is the maximum-likelihood rate of the same ratios,
    with the omitted ones as censored. Its interval is exact for independent points: 2 d sum log mu is chi-squared with
    twice as many degrees of freedom as there are ratios (Epstein & Sobel 1953, JASA 48).

    Args:
        distances: (s, >= 2) positive distances to the nearest neighbours, ascending.

    Raises:
        InputError: fewer than two columns, or all ratios are 1.
    """
    _require_distances(distances)
    logs = np.sort(np.log(distances[:, 1] / distances[:, 0]))
    n_used = max(1, int(USED_SHARE * len(logs)))
    total = float(logs[:n_used].sum() + (len(logs) - n_used) * logs[n_used - 1])
    if total <= 0:
        raise InputError(
            "intrinsic dimension: the two nearest neighbours of nearly all sampled points are equally far, so their "
            "distances give no estimate (coordinates on a grid?)"
        )
    low, high = (float(gammaincinv(n_used, tail)) / total for tail in (0.025, 0.975))
    return Dimension(max(n_used - 1, 1) / total, low, high)


def maximum_likelihood(distances: Float64) -> Dimension:
    """Levina & Bickel 2004 (NIPS 17), eq. 8, from k neighbours, averaged as in MacKay & Ghahramani 2005 (a note on it).

    Each point's inverse estimate is the mean over j < k of log(T_k / T_j). The inverses are averaged, not the
    estimates, as the joint likelihood requires. The interval is the normal one of this mean over the points, so it
    allows for density and dimension that vary between points. It treats neighbourhoods as independent, which holds for
    sampled points if their neighbourhoods have few points in common.

    Args:
        distances: (s, k) positive distances to the k nearest neighbours, ascending; k >= 2.

    Raises:
        InputError: fewer than two columns, or all neighbours are equally far.
    """
    _require_distances(distances)
    k = distances.shape[1]
    inverses = np.log(distances[:, -1:] / distances[:, :-1]).mean(axis=1)
    mean = float(inverses.mean())
    if mean <= 0:
        raise InputError(
            f"intrinsic dimension: the {k} nearest neighbours of the sampled points are equally far, so their "
            f"distances give no estimate (coordinates on a grid?); choose eigensolver.n_components by hand"
        )
    half = NORMAL_QUANTILE_975 * float(inverses.std(ddof=1)) / len(inverses) ** 0.5 if len(inverses) > 1 else np.inf
    terms = len(inverses) * (k - 1)
    unbiased = (terms - 1) / terms if terms > 1 else 1.0  # the mean of an inverse of a gamma variable
    high = unbiased / (mean - half) if half < mean else np.inf
    return Dimension(unbiased / mean, unbiased / (mean + half), float(high))


def _require_distances(distances: Float64) -> None:
    if distances.ndim != 2 or distances.shape[1] < 2 or not len(distances):
        raise InputError(f"intrinsic dimension: expected points with 2 neighbours, found {distances.shape}")
    if not (distances > 0).all() or not np.isfinite(distances).all():
        raise InputError("intrinsic dimension: expected positive distances, found others; merge equal points first")

"""95 % intervals of measures on a sample of points, by the normal approximation.

Those of ratios and correlations use the first-order effect of each point on the value (delta method; Davison & Hinkley
1997, section 2.7). Pairs with a common point depend on each other, so the effects of all pairs of a point are added.
"""

import numpy as np

from ...core.arrays import Float64, Ints
from .sample_quality import in_range

NORMAL_QUANTILE_975 = 1.959963984540054
ROUNDING = 1e-14
"""A table of distances that vary less than this is constant."""

Estimate = tuple[float, float, float]
"""(value, low, high): an estimate and the ends of its 95 % interval."""


def mean_interval(values: Float64) -> Estimate:
    """Mean of a sample of at least one value in [0, 1], with its interval clipped to [0, 1].

    If all s values are equal, their spread is unknown and the half width is 3 / s, the "rule of three" (Hanley &
    Lippman-Hand 1983, JAMA 249), exact for a proportion of 0 or 1.

    >>> mean_interval(np.ones(100))
    (1.0, 0.97, 1.0)
    """
    n_values = len(values)
    if values.min() == values.max():
        return _within(float(values.mean()), 3 / n_values)
    return _within(float(values.mean()), NORMAL_QUANTILE_975 * float(values.std(ddof=1)) / n_values**0.5)


def difference_interval(values: Float64, others: Float64) -> Estimate:
    """Mean difference of values in [0, 1] at the same points, as ``mean_interval``."""
    value, low, high = mean_interval((1 + values - others) / 2)
    return 2 * value - 1, 2 * low - 1, 2 * high - 1


def pair_interval(shares: Float64) -> Estimate:
    """Share of the pairs of points that fulfil a condition, from the share (s,) of each point's pairs.

    Each point is in two of s pairs, so a deviation counts twice (Hoeffding 1948, section 7).

    >>> [round(value, 3) for value in pair_interval(np.array([0.0, 0.5, 0.5, 1.0] * 25))]
    [0.5, 0.361, 0.639]
    """
    return mean_interval(2 * shares - shares.mean())


def ratio_interval(numerators: Float64, denominators: Float64) -> Estimate:
    """Sum of numerators over sum of denominators (s,), both >= 0 and the ratio at most 1; 0 if both sums are 0.

    >>> ratio_interval(np.array([1.0, 1.0]), np.array([4.0, 4.0]))
    (0.25, 0.25, 0.25)
    """
    total = float(denominators.sum())
    if total <= 0:
        return 0.0, 0.0, 0.0
    value = float(numerators.sum()) / total
    return _within(value, _half_width((numerators - value * denominators) / total))


def correlation_interval(first: Float64, second: Float64, rows: Ints) -> Estimate:
    """1 - r^2 of two tables of distances (p, s) from the points ``rows`` of a sample to all s; r is their correlation.

    Distances of a point to itself and pairs that are not finite are excluded. Sources (rows) and sample count as
    independent samples, unless all points of the sample are sources. The result is 1 if a table is constant.
    """
    is_used = np.isfinite(first) & np.isfinite(second)
    is_used[np.arange(len(rows)), rows] = False
    n_pairs = max(int(is_used.sum()), 1)
    centered = []
    for table in (in_range(np.where(is_used, table, 0.0)) for table in (first, second)):
        table -= table.sum() / n_pairs
        table *= is_used
        length = np.linalg.norm(table)
        if length <= ROUNDING * n_pairs**0.5:  # the largest distance is about 1
            return 1.0, 1.0, 1.0
        centered.append(table / length)
    x, y = centered
    r = float(np.vdot(x, y))
    effects = -2 * r * (x * y - r / 2 * (x * x + y * y))  # of each pair on 1 - r^2
    of_sources, of_sample = effects.sum(axis=1), effects.sum(axis=0)
    if len(rows) == first.shape[1]:
        return _within(1 - r * r, _half_width(of_sources + of_sample))
    return _within(1 - r * r, float(np.hypot(_half_width(of_sources), _half_width(of_sample))))


def _half_width(effects: Float64) -> float:
    """Half the width of the interval of a value, from the effect (s,) of each point; their sum is about 0."""
    n = len(effects)
    return float(NORMAL_QUANTILE_975 * np.linalg.norm(effects - effects.mean()) * np.sqrt(n / max(n - 1, 1)))


def _within(value: float, half: float) -> Estimate:
    value = min(max(value, 0.0), 1.0)
    return value, max(0.0, value - half), min(1.0, value + half)

"""Intervals by resampling the points of a sample (percentile bootstrap; Efron & Tibshirani 1993, chapter 13).

Points are resampled, never pairs of points. Pairs with a common point depend on each other; treating them as
independent would make intervals many times too narrow.
"""

from collections.abc import Iterator

import numpy as np

from ...core.arrays import Float64, Ints
from .sample_quality import in_range

RESAMPLES = 500
"""Each 2.5 % tail then has a dozen resamples."""
TOGETHER = 50
DRAWN = 2**16
"""Points that are drawn at a time; does not affect results."""

Estimate = tuple[float, float, float]
"""(value, low, high): an estimate and the ends of its 95 % interval."""


def ratio_intervals(numerators: Float64, denominators: Float64, seed: int) -> list[Estimate]:
    """Sum of numerators over sum of denominators, for each column of two tables (s, r) >= 0; 0 if both sums are 0.

    The columns are resampled together.

    >>> ratio_intervals(np.array([[1.0], [1.0]]), np.array([[4.0], [4.0]]), seed=0)
    [(0.25, 0.25, 0.25)]
    """
    columns = np.array([np.column_stack(pair) for pair in zip(numerators.T, denominators.T, strict=True)])
    counts = _counts(len(numerators), seed)
    resampled = [[_ratio(*sums) for sums in next(counts) @ columns] for _ in range(RESAMPLES)]
    values = [_ratio(*column.sum(axis=0)) for column in columns]
    return [(value, *_tails(ratios)) for value, ratios in zip(values, np.array(resampled).T, strict=True)]


def correlation_interval(first: Float64, second: Float64, rows: Ints, seed: int) -> Estimate:
    """1 - r^2 of two tables of distances (p, s) from the points ``rows`` of a sample to all s; r is their correlation.

    Distances of a point to itself and pairs that are not finite are excluded. Sources (rows) and sample are resampled
    independently (the pigeonhole bootstrap of Owen 2007, Annals of Applied Statistics 1). If all points of the sample
    are sources, one resample serves both sides. The result is 1 if a table is constant.
    """
    is_self = np.zeros(first.shape, bool)
    is_self[np.arange(len(rows)), rows] = True
    is_used = np.isfinite(first) & np.isfinite(second) & ~is_self
    x, y = (in_range(np.where(is_used, table, 0.0)) for table in (first, second))
    x, y = (np.where(is_used, table - table[is_used].mean(), 0.0) if is_used.any() else table for table in (x, y))
    tables = (is_used.astype(np.float64), x, y, x * x, y * y, x * y)

    def uncorrelated(left: Float64, right: Float64) -> Float64:
        """1 - r^2 of every resample, from columns of counts (p, r) and (s, r)."""
        n, sx, sy, sxx, syy, sxy = (((table @ right) * left).sum(axis=0) for table in tables)
        spread = (n * sxx - sx * sx) * (n * syy - sy * sy)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(spread <= 0, 1.0, np.clip(1 - (n * sxy - sx * sy) ** 2 / spread, 0.0, 1.0))

    same_points = len(rows) == first.shape[1]
    columns, sources = _counts(first.shape[1], seed), _counts(len(rows), seed + 1)
    resampled = []
    for _ in range(0, RESAMPLES, TOGETHER):  # one pass over the tables serves many resamples
        right = np.column_stack([next(columns) for _ in range(TOGETHER)])
        left = right[rows] if same_points else np.column_stack([next(sources) for _ in range(TOGETHER)])
        resampled.append(uncorrelated(left, right))
    [value] = uncorrelated(np.ones((len(rows), 1)), np.ones((first.shape[1], 1)))
    return float(value), *_tails(np.concatenate(resampled))


def _counts(n: int, seed: int) -> Iterator[Float64]:
    """Yield how often each of n points is drawn, for one resample after another."""
    rng, n_together = np.random.default_rng([seed, 1979]), max(1, DRAWN // n)
    first = n * np.arange(n_together)[:, None]  # each resample has counters of its own
    while True:
        drawn = rng.integers(0, n, (n_together, n)) + first
        yield from np.bincount(drawn.reshape(-1), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator > 0 else 0.0


def _tails(values: Float64) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)

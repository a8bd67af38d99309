"""Intervals by resampling the points of a sample (percentile bootstrap; Efron & Tibshirani 1993, chapter 13).

What is resampled are always points, never pairs of points: pairs that share a point depend on each other, and treating
them as independent would make intervals many times too narrow.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

RESAMPLES = 500
"""2.5 % tails then hold a dozen resamples each."""
TOGETHER = 50

Float64 = npt.NDArray[np.float64]
Estimate = tuple[float, float, float]
"""(value, low, high): an estimate and the ends of its 95 % interval."""


def ratio_interval(numerators: Float64, denominators: Float64, seed: int) -> Estimate:
    """Sum of numerators (s,) over sum of denominators (s,), both >= 0; 0 where both sums are 0.

    >>> ratio_interval(np.array([1.0, 1.0]), np.array([4.0, 4.0]), seed=0)
    (0.25, 0.25, 0.25)
    """
    both = np.column_stack([numerators, denominators])
    counts = _counts(len(both), seed)
    found = np.array([_ratio(*(next(counts) @ both)) for _ in range(RESAMPLES)])
    return _ratio(*both.sum(axis=0)), *_tails(found)


def correlation_interval(first: Float64, second: Float64, rows: npt.NDArray[np.integer], seed: int) -> Estimate:
    """1 - r^2 of two tables of distances (p, s), r their correlation: from points ``rows`` of a sample to all s of it.

    A point's distance to itself and pairs that are not finite are left out. Both the sources (rows) and the sample are
    resampled, each by itself (the pigeonhole bootstrap of Owen 2007, Annals of Applied Statistics 1), unless the
    sources are all of the sample, where a resample draws the same points on both sides. 1 where a table is constant.
    """
    own = np.zeros(first.shape, bool)
    own[np.arange(len(rows)), rows] = True
    used = np.isfinite(first) & np.isfinite(second) & ~own
    x, y = (np.where(used, table, 0.0) for table in (first, second))
    x, y = (np.where(used, table - table[used].mean(), 0.0) if used.any() else table for table in (x, y))
    tables = (used.astype(np.float64), x, y, x * x, y * y, x * y)

    def uncorrelated(left: Float64, right: Float64) -> Float64:
        """Of every resample: columns of counts (p, r) and (s, r)."""
        n, sx, sy, sxx, syy, sxy = (((table @ right) * left).sum(axis=0) for table in tables)
        spread = (n * sxx - sx * sx) * (n * syy - sy * sy)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(spread <= 0, 1.0, np.clip(1 - (n * sxy - sx * sy) ** 2 / spread, 0.0, 1.0))

    together = len(rows) == first.shape[1]
    columns, sources = _counts(first.shape[1], seed), _counts(len(rows), seed + 1)
    found = []
    for _ in range(0, RESAMPLES, TOGETHER):  # a table is read once for many resamples
        right = np.column_stack([next(columns) for _ in range(TOGETHER)])
        left = right[rows] if together else np.column_stack([next(sources) for _ in range(TOGETHER)])
        found.append(uncorrelated(left, right))
    [value] = uncorrelated(np.ones((len(rows), 1)), np.ones((first.shape[1], 1)))
    return float(value), *_tails(np.concatenate(found))


def _counts(n: int, seed: int) -> Iterator[Float64]:
    """How often each of n points is drawn, for one resample after another."""
    rng = np.random.default_rng([seed, 1979])
    while True:
        yield np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64)


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator > 0 else 0.0


def _tails(found: Float64) -> tuple[float, float]:
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)

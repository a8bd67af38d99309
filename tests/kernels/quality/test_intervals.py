"""Intervals: their coverage, and values equal to formulas of NumPy."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from lle.kernels.quality.intervals import correlation_interval, mean_interval, ratio_interval
from tests.support.seeds import seeds


def test_mean_interval__covers_the_mean_in_about_95_of_100_samples() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(400):
        _, low, high = mean_interval(rng.beta(4, 2, size=200))
        covered += low <= 4 / 6 <= high
    assert 0.92 < covered / 400 < 0.98


def test_mean_interval__clipped_and_constant() -> None:
    assert mean_interval(np.ones(2000)) == (1.0, pytest.approx(1 - 3 / 2000), 1.0)
    assert mean_interval(np.zeros(60)) == (0.0, 0.0, pytest.approx(0.05))
    assert mean_interval(np.array([0.5])) == (0.5, 0.0, 1.0)
    value, low, high = mean_interval(np.array([0.0, 1.0, 1.0]))
    assert (value, low, high) == (pytest.approx(2 / 3), pytest.approx(0.0133, abs=1e-4), 1.0)


def test_ratio__covers_in_about_95_of_100_samples() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(200):
        below = rng.gamma(3.0, size=150)
        above = below * rng.beta(2, 6, size=150)
        value, low, high = ratio_interval(above, below)
        assert value == pytest.approx(above.sum() / below.sum())
        assert low < value < high
        covered += low <= 0.25 <= high
    assert 0.89 < covered / 200 < 0.99


def test_ratio__zero_over_zero_and_equal_at_all_points() -> None:
    below = np.arange(1.0, 6.0)
    assert ratio_interval(below / 4, below) == pytest.approx((0.25, 0.25, 0.25))
    assert ratio_interval(np.zeros(5), np.zeros(5)) == (0.0, 0.0, 0.0)


def tables(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.random((n, 2))
    return X, X + 0.15 * rng.normal(size=X.shape)


@pytest.mark.parametrize("seed", seeds(11, 23, 37))
@pytest.mark.parametrize("n_rows", [9, 80])
def test_correlation__value_equals_that_of_all_pairs(seed: int, n_rows: int) -> None:
    X, Y = tables(np.random.default_rng(seed), 80)
    rows = np.unique(np.linspace(0, 79, n_rows).astype(int))
    first, second = cdist(X[rows], X), cdist(Y[rows], Y)
    off_diagonal = rows[:, None] != np.arange(80)
    expected = 1 - np.corrcoef(first[off_diagonal], second[off_diagonal])[0, 1] ** 2
    value, low, high = correlation_interval(first, second, rows)
    assert value == pytest.approx(expected, abs=1e-12)
    assert low < value < high
    first[2, 5] = np.inf  # a pair without a path is left out
    assert correlation_interval(first, second, rows)[0] == pytest.approx(expected, abs=0.05)
    assert correlation_interval(np.full_like(first, np.inf), second, rows) == (1.0, 1.0, 1.0)
    assert correlation_interval(second, 7 * second, rows) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)


@pytest.mark.parametrize("sources", ["all", "twenty"])
def test_correlation__covers_the_value_of_the_population(sources: str) -> None:
    """Pairs that count as independent give intervals that hold it in fewer than half of the samples."""
    rng = np.random.default_rng(17)
    population = tables(rng, 3000)
    every_third = np.arange(0, 3000, 3)
    first, second = (cdist(table[every_third], table) for table in population)
    truth = 1 - np.corrcoef(first.ravel(), second.ravel())[0, 1] ** 2
    covered = 0
    for _ in range(60):
        drawn = rng.choice(3000, 100, replace=False)
        rows = np.arange(100) if sources == "all" else np.arange(0, 100, 5)
        X, Y = (table[drawn] for table in population)
        _, low, high = correlation_interval(cdist(X[rows], X), cdist(Y[rows], Y), rows)
        covered += low <= truth <= high
    assert covered / 60 > 0.83

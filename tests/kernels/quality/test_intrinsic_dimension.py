"""Intrinsic dimension: known manifolds, noise, intervals that cover, and the bias of the estimators."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from lle.core.errors import InputError
from lle.kernels.manifolds import sample
from lle.kernels.quality.intrinsic_dimension import maximum_likelihood, two_nearest
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37)


def distances(X: np.ndarray, n_queries: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Of sampled points to their nearest among all."""
    chosen = rng.choice(len(X), n_queries, replace=False)
    return cKDTree(X).query(X[chosen], k + 1)[0][:, 1:]


def torus_distances(n: int, d: int, n_queries: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """The same on a flat torus: no boundary, no curvature, constant density."""
    X = rng.random((n, d))
    return cKDTree(X, boxsize=1.0).query(X[:n_queries], k + 1)[0][:, 1:]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "dimension"), [("sheet", 2), ("swiss_roll", 2), ("s_curve", 2), ("spiral_2d", 1)])
def test_built_in_manifolds(seed: int, name: str, dimension: int) -> None:
    X = sample(name, 0, 10_000, seed, 0.0, 0.0).points
    actual = distances(X, 1000, 20, np.random.default_rng(seed))
    assert two_nearest(actual).value == pytest.approx(dimension, rel=0.1)
    assert maximum_likelihood(actual).value == pytest.approx(dimension, rel=0.06)


@pytest.mark.parametrize("seed", SEEDS)
def test_estimates_are_too_low_in_high_dimensions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    five = distances(rng.normal(size=(20_000, 5)), 1000, 12, rng)
    assert 4.5 < two_nearest(five).value < 5.4
    assert 4.4 < maximum_likelihood(five).value < 5.1
    ten = distances(rng.random((20_000, 10)), 1000, 12, rng)
    assert 8.0 < two_nearest(ten).value < 10.2
    assert 7.5 < maximum_likelihood(ten).value < 9.8


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_raises_the_dimension_at_its_own_scale_only(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.random((40_000, 2)) @ np.eye(2, 3) + 0.005 * rng.normal(size=(40_000, 3))  # spacing of the sheet: 0.005
    actual = distances(X, 1000, 400, rng)
    assert two_nearest(actual).value > 2.5
    near, far = maximum_likelihood(actual[:, :5]), maximum_likelihood(actual)
    assert near.low > far.high
    assert far.value < 2.25


@pytest.mark.parametrize("d", [1, 2, 5])
def test_intervals_cover(d: int) -> None:
    """On a flat torus, where the assumptions hold, in about 95 of 100 samples."""
    rng = np.random.default_rng(29)
    covered = np.zeros(3)
    n_trials = 60
    for _ in range(n_trials):
        actual = torus_distances(4000, d, 150, 10, rng)
        estimates = (two_nearest(actual), maximum_likelihood(actual[:, :5]), maximum_likelihood(actual))
        covered += [estimate.low <= d <= estimate.high for estimate in estimates]
        assert all(estimate.low < estimate.value < estimate.high for estimate in estimates)
    assert (covered / n_trials > 0.85).all(), covered
    assert (covered < n_trials).any()  # and the intervals are not far too wide


def test_known_dimension_of_equal_ratios() -> None:
    """Ratios of 2 each: the rate of their logarithms."""
    actual = np.tile([1.0, 2.0], (100, 1))
    assert two_nearest(actual).value == pytest.approx(89 / (100 * np.log(2)))
    assert maximum_likelihood(actual).value == pytest.approx(99 / (100 * np.log(2)))


@pytest.mark.parametrize(
    ("distances", "message"),
    [
        (np.ones((9, 3)), "equally far"),
        (np.array([[0.0, 1.0]]), "positive"),
        (np.ones((9, 1)), "2 neighbours"),
        (np.ones((0, 5)), "2 neighbours"),
        (np.array([[1.0, np.inf]]), "positive"),
    ],
)
def test_invalid_distances_are_refused(distances: np.ndarray, message: str) -> None:
    for estimator in (two_nearest, maximum_likelihood):
        with pytest.raises(InputError, match=message):
            estimator(distances)

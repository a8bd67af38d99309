"""Is a coordinate a function of those before it: known functions, noise of known size, degenerate samples."""

import numpy as np
import pytest

from lle.kernels.quality.redundancy import local_linear, regression_errors
from lle.kernels.quality.trustworthiness import nearest_others
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37)


def residuals(embedding: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(regression_errors(embedding)).mean(axis=0))


@pytest.mark.parametrize("seed", SEEDS)
def test_functions_of_earlier_coordinates_are_redundant(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.random((2, 2000))
    columns = [x, np.cos(3 * np.pi * x), 1e-3 * y, np.sin(4 * x) * np.cos(4 * y), rng.random(2000), np.zeros(2000)]
    actual = residuals(np.column_stack(columns))
    assert actual[0] == pytest.approx(1, abs=1e-12)
    assert actual[1] < 1e-3
    assert actual[2] > 0.95
    assert actual[3] < 0.05
    assert actual[4] > 0.95
    assert actual[5] == 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_error_equals_noise_of_known_size(seed: int, noise: float) -> None:
    """The leave-one-out error of a local fit is the noise plus the error of fitting to few points."""
    rng = np.random.default_rng(seed)
    x = rng.random(2000)
    values = np.sqrt(2) * np.sin(2 * np.pi * x) + noise * rng.normal(size=2000)
    [_, actual] = residuals(np.column_stack([x, values]))
    expected = noise / np.sqrt(1 + noise**2)
    assert expected * 0.95 < actual < expected * 1.15


@pytest.mark.parametrize("seed", SEEDS)
def test_redundancy_of_oscillating_functions_at_any_scale(seed: int) -> None:
    """A Gaussian kernel with a third of the median distance could not resolve twenty waves."""
    rng = np.random.default_rng(seed)
    x = rng.random(2000)
    embedding = np.column_stack([x, np.sin(40 * np.pi * x)])
    assert residuals(embedding)[1] < 0.15
    np.testing.assert_allclose(residuals(embedding * [1e-9, 1e9] + 3), residuals(embedding), rtol=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_local_linear__exact_for_linear_functions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    earlier = rng.normal(size=(300, 3))
    values = earlier @ [1.0, -2.0, 0.5] + 4
    ids = rng.integers(0, 300, size=(300, 25))
    np.testing.assert_allclose(local_linear(earlier, values, ids), values, atol=1e-3)
    assert np.abs(local_linear(earlier, values**2, ids) - values**2).max() > 1


@pytest.mark.parametrize("n_places", [1, 4, 300])
def test_a_point_does_not_predict_itself(n_places: int) -> None:
    """Also if many points coincide, so that the search lists the point later or not at all."""
    rng = np.random.default_rng(11)
    earlier = rng.normal(size=(n_places, 2))[rng.integers(0, n_places, 300)]
    ids = nearest_others(earlier, np.arange(300), 12)
    assert ids.shape == (300, 12)
    assert not (ids == np.arange(300)[:, None]).any()
    assert all(len(set(row)) == 12 for row in ids.tolist())
    values = rng.normal(size=300)
    predicted = local_linear(earlier, values, ids)
    for row in range(0, 300, 29):
        changed = values.copy()
        changed[row] += 1e3
        assert local_linear(earlier, changed, ids)[row] == predicted[row]


def test_small_samples_of_many_coordinates() -> None:
    actual = residuals(np.random.default_rng(5).normal(size=(12, 9)))
    assert np.isfinite(actual).all()
    assert (actual[1:] > 0.3).all()

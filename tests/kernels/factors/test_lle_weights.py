from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.manifold._locally_linear import barycenter_weights as sklearn_weights

from lle.core.errors import InputError
from lle.kernels.factors.lle_weights import barycenter_weights
from tests.support.oracle import exact_neighbors, point_weights
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37)
REG = 1e-3


def cloud(seed: int, n_points: int = 60, n_features: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n_points, n_features))


def weights_of(X: np.ndarray, neighbors: np.ndarray, reg: float = REG, rule: str = "trace") -> np.ndarray:
    return barycenter_weights(X, X[neighbors], neighbors >= 0, reg, rule).weights


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n_features", "k"), [(2, 12), (5, 4), (40, 8)])
@pytest.mark.parametrize("reg", [1e-3, 1e-1])
def test_weights__same_as_scikit_learn(seed: int, n_features: int, k: int, reg: float) -> None:
    X = cloud(seed, n_features=n_features)
    neighbors, _ = exact_neighbors(X, k)
    expected = sklearn_weights(X, X, neighbors, reg=reg)
    weights = weights_of(X, neighbors, reg)
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-9)
    assert not np.allclose(weights, weights_of(X, neighbors, 1.01 * reg), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n_features", "rank"), [(2, 2), (4, 4), (4, 2), (5, 5), (7, 5)])
@pytest.mark.parametrize("power", [-10, -30])
def test_weights__exact_for_any_reg(seed: int, n_features: int, rank: int, power: int) -> None:
    """Six neighbours with integer offsets; the Gram matrix is singular. A small reg costs no digits."""
    rng = np.random.default_rng(seed)
    offsets = rng.integers(-9, 10, (6, rank)) @ rng.integers(-3, 4, (rank, n_features))
    weights = barycenter_weights(
        np.zeros((1, n_features)), offsets[None].astype(float), np.ones((1, 6), bool), 2.0**power, "absolute"
    ).weights
    tolerance = 1e-13 if n_features < 6 else 1e-13 * 2.0**-power  # as many features as neighbours
    np.testing.assert_allclose(weights[0], exact_weights(offsets.tolist(), Fraction(2) ** power), atol=tolerance)


def exact_weights(offsets: list[list[int]], ridge: Fraction) -> list[float]:
    """(c c' + R I)^-1 1, normalised, by Gauss elimination in fractions."""
    size = len(offsets)
    rows = [[Fraction(sum(a * b for a, b in zip(x, y, strict=True))) for y in offsets] + [Fraction(1)] for x in offsets]
    for i in range(size):
        rows[i][i] += ridge
    for i in range(size):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in set(range(size)) - {i}:
            rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [float(row[-1] / sum(row[-1] for row in rows)) for row in rows]


@pytest.mark.parametrize("seed", SEEDS)
def test_weights__invariant_to_rotation_shift_and_scale(seed: int) -> None:
    X = cloud(seed)
    neighbors, _ = exact_neighbors(X, 8)
    weights = weights_of(X, neighbors)
    rotation = ortho_group.rvs(5, random_state=np.random.default_rng(seed))
    np.testing.assert_allclose(weights_of(X @ rotation, neighbors), weights, atol=1e-10)
    np.testing.assert_allclose(weights_of(X + 100.0, neighbors), weights, atol=1e-8)
    np.testing.assert_allclose(weights_of(X * 1e-9, neighbors), weights, atol=1e-10)
    stretched = X * np.array([1.01, 1, 1, 1, 1])  # no similarity: the weights must change
    assert np.abs(weights_of(stretched, neighbors) - weights).max() > 1e-4


@pytest.mark.parametrize("seed", SEEDS)
def test_weights__batch_equals_single_points(seed: int) -> None:
    X = cloud(seed)
    neighbors, _ = exact_neighbors(X, 8)
    batch = barycenter_weights(X, X[neighbors], neighbors >= 0, REG, "trace")
    for i in (0, 17, 59):
        single = barycenter_weights(X[i : i + 1], X[neighbors[i : i + 1]], np.ones((1, 8), bool), REG, "trace")
        np.testing.assert_array_equal(single.weights[0], batch.weights[i])
        assert single.squared_error[0] == pytest.approx(batch.squared_error[i], rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_weights__ragged_rows_equal_shorter_lists(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = cloud(seed)
    neighbors, _ = exact_neighbors(X, 9)
    valid = rng.random(neighbors.shape) < 0.6
    valid[:, 4] = True
    coordinates = X[neighbors]
    coordinates[~valid] = np.nan  # the content of invalid slots must not matter
    result = barycenter_weights(X, coordinates, valid, REG, "trace")
    assert (result.weights[~valid] == 0).all()
    assert not np.signbit(result.weights[~valid]).any()
    for i in range(len(X)):
        expected = point_weights(X[i], X[neighbors[i, valid[i]]], REG)
        np.testing.assert_allclose(result.weights[i, valid[i]], expected, rtol=1e-9, atol=1e-10)
        error = np.square(X[i] - expected @ X[neighbors[i, valid[i]]]).sum()
        assert result.squared_error[i] == pytest.approx(error, rel=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_weights__float32_points_are_solved_in_float64(seed: int) -> None:
    X = (cloud(seed, n_features=3) + 50).astype(np.float32)
    neighbors, _ = exact_neighbors(X.astype(np.float64), 8)
    from_single = weights_of(X, neighbors)
    assert from_single.dtype == np.float64
    np.testing.assert_array_equal(from_single, weights_of(X.astype(np.float64), neighbors))
    single_gram = np.stack([point_weights(X[i], X[neighbors[i]], REG) for i in range(len(X))])  # float32 throughout
    assert np.abs(from_single - single_gram).max() > 1e-6


def test_zero_trace__equal_weights_as_scikit_learn() -> None:
    X = np.ones((6, 3))
    neighbors = np.array([[1, 2], [0, 2], [0, 1], [0, 1], [0, 1], [0, 1]])
    X[5] = 2.0
    result = barycenter_weights(X, X[neighbors], np.ones((6, 2), bool), REG, "trace")
    np.testing.assert_array_equal(result.weights[:5], np.full((5, 2), 0.5))
    np.testing.assert_array_equal(result.zero_trace, [True] * 5 + [False])
    np.testing.assert_allclose(result.squared_error, [0, 0, 0, 0, 0, 3], rtol=1e-12)


def test_errors__singular_without_regularisation() -> None:
    Y = np.array([[[1.0, 0.0], [2.0, 0.0], [4.0, 0.0]]])
    with pytest.raises(InputError, match=r"reg = 0 .* raise weights\.reg"):
        barycenter_weights(np.zeros((1, 2)), Y, np.ones((1, 3), bool), 0.0, "trace")


def gram_weights(X: np.ndarray, neighbors: np.ndarray, ridge: float) -> np.ndarray:
    """w ~ (G + ridge I)^-1 1, a point at a time."""
    rows = []
    for x, row in zip(X, neighbors, strict=True):
        Z = X[row] - x
        w = np.linalg.solve(Z @ Z.T + ridge * np.eye(len(row)), np.ones(len(row)))
        rows.append(w / w.sum())
    return np.stack(rows)


@pytest.mark.parametrize("seed", SEEDS)
class TestRules:
    def test_absolute_adds_reg_itself(self, seed: int) -> None:
        X = 3.0 * cloud(seed)
        neighbors, _ = exact_neighbors(X, 8)
        weights = weights_of(X, neighbors, 0.05, "absolute")
        np.testing.assert_allclose(weights, gram_weights(X, neighbors, 0.05), rtol=1e-9, atol=1e-11)
        assert np.abs(weights_of(2 * X, neighbors, 0.05, "absolute") - weights).max() > 1e-3  # it has the points' unit
        np.testing.assert_allclose(weights_of(2 * X, neighbors, 0.2, "absolute"), weights, atol=1e-11)

    def test_when_needed_adds_nothing_to_regular_matrices(self, seed: int) -> None:
        X = cloud(seed)
        lists_of_4, lists_of_6 = exact_neighbors(X, 4)[0], exact_neighbors(X, 6)[0]
        np.testing.assert_allclose(
            weights_of(X, lists_of_4, REG, "when_needed"), gram_weights(X, lists_of_4, 0.0), atol=1e-7
        )
        np.testing.assert_array_equal(weights_of(X, lists_of_6, REG, "when_needed"), weights_of(X, lists_of_6))

    def test_when_needed_is_decided_point_by_point(self, seed: int) -> None:
        """Empty slots do not count as neighbours, and neighbours in a plane of fewer dimensions are singular."""
        X = cloud(seed)
        X[::7, 3:] = 0.0
        neighbors, _ = exact_neighbors(X, 6)
        valid = np.ones(neighbors.shape, bool)
        valid[::2, -2:] = False
        flat = neighbors[0] = np.arange(7, 49, 7)
        actual = barycenter_weights(X, X[neighbors], valid, REG, "when_needed").weights
        assert (actual[~valid] == 0).all()
        np.testing.assert_allclose(actual[0, :4], point_weights(X[0], X[flat[:4]], REG), rtol=1e-9)
        np.testing.assert_allclose(actual[2::2, :4], gram_weights(X, neighbors[:, :4], 0.0)[2::2], atol=1e-7)
        np.testing.assert_array_equal(actual[1::2], weights_of(X, neighbors)[1::2])

    def test_when_needed_where_all_neighbors_coincide(self, seed: int) -> None:
        X = np.zeros((4, 9))
        X[3] = cloud(seed, 1, 9)
        result = barycenter_weights(X[:1], X[None, 1:3], np.ones((1, 2), bool), REG, "when_needed")
        np.testing.assert_array_equal(result.weights, [[0.5, 0.5]])

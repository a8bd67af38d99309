import numpy as np
import pytest
from sklearn.manifold import trustworthiness as sklearn_trustworthiness

from lle.core.errors import InputError
from lle.kernels.neighbors import distances
from lle.kernels.quality import trustworthiness as kernel
from lle.kernels.quality.trustworthiness import (
    count_closer,
    nearest_others,
    neighbor_thresholds,
    participation,
    separated,
    trustworthiness,
)
from tests.support.oracle import exact_neighbors
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37)


def test_participation__closed_forms() -> None:
    vectors = np.zeros((50, 4))
    vectors[:, 0] = -3.0
    vectors[7, 1] = 1e-200  # its fourth power is 0 in float64
    vectors[:10, 2] = 0.1 * (-1.0) ** np.arange(10)
    np.testing.assert_allclose(participation(vectors), [50, 1, 10, 0], rtol=1e-12)


@pytest.mark.parametrize("seed", seeds(3, 5, 7))
def test_groups_are_separated_by_a_gap_and_tails_are_not(seed) -> None:
    rng = np.random.default_rng(seed)
    group, tail, half = rng.normal(size=(3, 2000))
    group[:60] += 60.0
    half[:1000] += 60.0
    one = np.zeros(2000)
    one[7] = 1.0
    third = np.zeros(2000)
    third[:600] = rng.choice([-1.0, 1.0], 600)  # more than a tenth is no group
    vectors = np.column_stack([group, np.exp(tail), half, one, third])
    assert max(participation(vectors)[:2]) < 200
    assert [separated(v) for v in (vectors - vectors.mean(axis=0)).T] == [pytest.approx(60, abs=20), 0, 0, 1, 0]


def counts_by_hand(X: np.ndarray, ids: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    counts = np.zeros(thresholds.shape, dtype=np.int64)
    for row, i in enumerate(ids):
        squares = np.square(np.delete(X, i, axis=0).astype(np.float64) - X[i]).sum(axis=1)
        counts[row] = (squares[:, None] < thresholds[row] * (1 - 1e-12)).sum(axis=0)
    return counts


@pytest.fixture(params=[0, 10**6], ids=["pairs or tree", "sorted"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count without and with sorting, whatever the number of thresholds."""
    monkeypatch.setattr(kernel, "SORTED_SHARE", request.param)
    monkeypatch.setattr(kernel, "SORTED_ELEMENTS", request.param)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n_features", "shift", "dtype"), [(2, 0, "f8"), (3, 1e6, "f8"), (50, 5, "f4")])
def test_count_closer__equals_ranks_for_any_blocks(seed: int, n_features: int, shift: float, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(300, n_features)) + shift).astype(dtype)
    ids = rng.choice(300, 40, replace=False)
    order = np.argsort(np.square(X[ids][:, None].astype("f8") - X).sum(axis=2), axis=1)[:, 1:]
    thresholds = neighbor_thresholds(X[ids], X, order)
    expected = np.tile(np.arange(299), (40, 1))  # the neighbour itself is never closer than itself
    for block_points in (300, 77, 13):  # the last block of 13 has one row
        counts = sum(
            count_closer(X[ids], ids, X[start : start + block_points], start, thresholds)
            for start in range(0, 300, block_points)
        )
        np.testing.assert_array_equal(counts, expected)
    off_by_one = count_closer(
        X[ids], (ids + 1) % 300, X, 0, thresholds
    )  # another id is excluded, so the point itself is counted
    assert (off_by_one != expected).any()


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n_features", [2, 3])
def test_count_closer__same_for_blocks_far_from_most_sample_points(seed: int, n_features: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.random((400, n_features))
    X = X[np.argsort(X[:, 0])]  # blocks are slices of the cube
    ids = rng.choice(400, 50, replace=False)
    squares = np.square(X[ids][:, None] - X).sum(axis=2)
    thresholds = np.sort(squares, axis=1)[:, [1, 5, 9]]
    expected = np.tile([0, 4, 8], (50, 1))
    counts = sum(count_closer(X[ids], ids, X[i : i + 40], i, thresholds) for i in range(0, 400, 40))
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n_features", [3, 4])
def test_count_closer__ties_and_near_duplicates_far_from_the_origin(seed: int, n_features: int) -> None:
    rng = np.random.default_rng(seed)
    grains = 1000 * rng.normal(size=(20, n_features))  # a product loses the distances inside a grain
    X = np.repeat(grains, 20, axis=0) + 2.0**-20 * rng.integers(0, 4, size=(400, n_features))
    X[:20] = 1e-9 * rng.normal(size=(20, n_features))  # at the origin, so that centring would round these
    ids = np.append(np.arange(20), 20 + rng.choice(380, 30, replace=False))
    inside = ids[:, None] // 20 * 20 + rng.integers(0, 20, size=(50, 6))
    thresholds = neighbor_thresholds(X[ids], X, inside)
    counts = count_closer(X[ids], ids, X, 0, thresholds)
    np.testing.assert_array_equal(counts, counts_by_hand(X, ids, thresholds))
    assert (counts != counts_by_hand(X, ids, thresholds * (1 + 1e-6))).any()


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spread", [1.0, 1e-4, 1e-9])
def test_count_closer__in_clusters_that_single_precision_cannot_resolve(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(4, 6)), 50, axis=0) + spread * rng.normal(size=(200, 6))
    ids = rng.choice(200, 30, replace=False)
    thresholds = neighbor_thresholds(X[ids], X, rng.integers(0, 200, size=(30, 5)))
    np.testing.assert_array_equal(count_closer(X[ids], ids, X, 0, thresholds), counts_by_hand(X, ids, thresholds))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("n_features", [2, 30])
def test_count_closer__block_without_points_counts_none(n_features: int) -> None:
    sample = np.random.default_rng(11).normal(size=(4, n_features))
    counts = count_closer(sample, np.arange(4), sample[:0], 100, np.ones((4, 3)))
    np.testing.assert_array_equal(counts, np.zeros((4, 3)))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("seed", SEEDS)
def test_count_closer__same_for_any_tile(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 5))
    ids = rng.choice(200, 30, replace=False)
    thresholds = neighbor_thresholds(X[ids], X, rng.integers(0, 200, size=(30, 5)))
    expected = counts_by_hand(X, ids, thresholds)
    monkeypatch.setattr(distances, "TILE_POINTS", 13)
    monkeypatch.setattr(distances, "TILE_PAIRS", 60)
    np.testing.assert_array_equal(count_closer(X[ids], ids, X, 0, thresholds), expected)


def sampled(X: np.ndarray, Y: np.ndarray, ids: np.ndarray, k: int) -> np.ndarray:
    """Trustworthiness of the embedding Y of X at the sample, as the stage makes it."""
    neighbors = exact_neighbors(Y, k)[0][ids]
    return trustworthiness(count_closer(X[ids], ids, X, 0, neighbor_thresholds(X[ids], X, neighbors)) + 1, len(X))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 5, 12])
def test_trustworthiness_and_continuity__same_as_scikit_learn(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(150, 5))
    Y = X[:, :2] + 0.3 * rng.normal(size=(150, 2))
    everybody = np.arange(150)
    assert sampled(X, Y, everybody, k).mean() == pytest.approx(sklearn_trustworthiness(X, Y, n_neighbors=k), abs=1e-12)
    assert sampled(Y, X, everybody, k).mean() == pytest.approx(sklearn_trustworthiness(Y, X, n_neighbors=k), abs=1e-12)
    assert sampled(X, Y, everybody, k).mean() != pytest.approx(sampled(Y, X, everybody, k).mean(), abs=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_trustworthiness__bounds(seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(60, 3))
    np.testing.assert_array_equal(sampled(X, X, np.arange(60), 6), 1)
    farthest = np.tile(np.arange(59, 53, -1), (4, 1))
    np.testing.assert_allclose(trustworthiness(farthest, 60), 0, atol=1e-15)
    with pytest.raises(InputError, match=r"half of the 60 points, found 30"):
        trustworthiness(np.ones((4, 30), dtype=np.int64), 60)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tree_points", [700, 300, 3])
def test_nearest_others__those_of_all_trees(seed: int, tree_points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "TREE_POINTS", tree_points)
    rng = np.random.default_rng(seed)
    points, k = rng.normal(size=(700, 2)), 9
    chosen = np.sort(rng.choice(700, 50, replace=False))
    np.testing.assert_array_equal(nearest_others(points, chosen, k), exact_neighbors(points, k)[0][chosen])
    points[:] = 1.0  # the own point is not among the nearest
    ids = nearest_others(points, chosen, k)
    assert ids.shape == (50, k)
    assert (ids != chosen[:, None]).all()

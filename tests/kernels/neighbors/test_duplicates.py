import numpy as np
import pytest

from lle.kernels.neighbors import duplicates
from lle.kernels.neighbors.duplicates import merge_duplicates, row_hashes
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37)
DTYPES = [np.float32, np.float64]
STORED = [[594669152066880053, 13686553864348715683], [8630436969817704842, 6649132126703251804]]


def first_equal_row(X: np.ndarray, valid: np.ndarray) -> np.ndarray:
    first: dict[tuple[float, ...], int] = {}
    return np.array(
        [first.setdefault(tuple(x), i) if ok else -1 for i, (x, ok) in enumerate(zip(X, valid, strict=True))]
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_features", [1, 3, 40])
def test_merge__lowest_equal_valid_row(seed: int, dtype: type, n_features: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, size=(3000, n_features)).astype(dtype)
    X[rng.random(X.shape) < 0.1] *= -1.0  # some -0.0
    X = X[rng.integers(0, 1500, size=3000)]
    valid = rng.random(3000) < 0.8
    representative = merge_duplicates(row_hashes(X), valid)
    np.testing.assert_array_equal(representative, first_equal_row(X, valid))
    assert representative.dtype == np.int64
    assert len(np.unique(representative)) < valid.sum()


@pytest.mark.parametrize("dtype", DTYPES)
def test_hashes__exact_values_only(dtype: type) -> None:
    X = np.ones((6, 4), dtype=dtype)
    X[1, 2] = np.nextafter(dtype(1), dtype(2))
    X[2, 3] = np.nextafter(dtype(1), dtype(0))
    X[3:, 0], X[4, 0] = 0.0, -0.0
    X[5, :2] = X[5, 1::-1]  # the order of the values counts
    hashes = row_hashes(X)
    assert len(np.unique(hashes, axis=0)) == 5
    np.testing.assert_array_equal(hashes[3], hashes[4])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_hashes__do_not_depend_on_memory_layout(seed: int, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(seed).normal(size=(700, 5)).astype(dtype)
    original = X.copy()
    hashes = row_hashes(X)
    np.testing.assert_array_equal(
        np.concatenate([row_hashes(X[:1]), row_hashes(X[1:333]), row_hashes(X[333:])]), hashes
    )
    np.testing.assert_array_equal(row_hashes(np.asfortranarray(X)), hashes)
    np.testing.assert_array_equal(row_hashes(X[::-1])[::-1], hashes)
    monkeypatch.setattr(duplicates, "ROWS_AT_ONCE", 9)
    np.testing.assert_array_equal(row_hashes(X), hashes)
    np.testing.assert_array_equal(X, original)


def test_hashes__equal_recorded_values() -> None:
    """Stored hashes are compared with hashes of later runs, so they must not depend on the version of numpy."""
    hashes = row_hashes(np.array([[1.0, -2.5], [0.0, 3.0]]))
    assert hashes.tolist() == STORED


@pytest.mark.parametrize("dtype", DTYPES)
def test_hashes__bits_are_balanced_on_regular_data(dtype: type) -> None:
    """All rows of a grid differ; each of the 128 bits is set about half of the time, and no 32-bit part is constant."""
    grid = np.stack(np.meshgrid(*[np.arange(16.0)] * 3), axis=-1).reshape(-1, 3).astype(dtype)
    hashes = row_hashes(grid)
    assert len(np.unique(hashes, axis=0)) == len(grid)
    bits = (hashes[:, :, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    shares = bits.mean(axis=0)
    assert np.abs(shares - 0.5).max() < 0.2
    for shift in (0, 32):
        parts = (hashes >> np.uint64(shift)) & np.uint64(2**32 - 1)
        assert all(len(np.unique(parts[:, column])) > 0.9 * len(grid) for column in (0, 1))


def test_merge__all_invalid_and_empty() -> None:
    hashes = np.zeros((3, 2), dtype=np.uint64)
    np.testing.assert_array_equal(merge_duplicates(hashes, np.zeros(3, dtype=bool)), [-1, -1, -1])
    assert merge_duplicates(hashes[:0], np.zeros(0, dtype=bool)).shape == (0,)
    assert row_hashes(np.zeros((0, 3))).shape == (0, 2)


def test_merge__compares_both_halves_of_the_hash() -> None:
    hashes = np.array([[5, 1], [5, 2], [4, 1], [5, 1]], dtype=np.uint64)
    np.testing.assert_array_equal(merge_duplicates(hashes, np.ones(4, dtype=bool)), [0, 1, 2, 0])

"""Scaling and principal components equal scikit-learn's, however the input is cut into blocks."""

import dask
import dask.array as da
import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from lle.core.errors import InputError
from lle.linalg.preprocess import Transform, fit_transform, valid_array, valid_rows
from lle.storage import array_specs
from lle.storage.array_specs import PlannedArray
from lle.storage.blocks import Blocks
from lle.storage.store import Store


@pytest.fixture(autouse=True)
def _in_this_process():
    with dask.config.set(scheduler="synchronous"):
        yield


def columns_of_all_scales(n_rows: int, rng: np.random.Generator) -> np.ndarray:
    mixed = rng.normal(size=(n_rows, 6)) @ rng.normal(size=(6, 6))
    return mixed * [1, 50, 0.01, 3, 9, 1000] + [0, 10, 3, 1e4, 5, -1e5]


def reference(X: np.ndarray, scale: str, pca: int | None) -> np.ndarray:
    scaled = StandardScaler().fit_transform(X) if scale == "standard" else X
    return scaled if pca is None else PCA(pca, svd_solver="full").fit_transform(scaled)


def assert_same_up_to_signs(actual: np.ndarray, expected: np.ndarray) -> None:
    """Columns agree to 1e-9 of the largest entry, each with one sign."""
    assert actual.shape == expected.shape
    signs = np.sign((actual * expected).sum(axis=0))
    np.testing.assert_allclose(actual * signs, expected, atol=1e-9 * np.abs(expected).max())


# The second has blocks with fewer rows than there are features; the last block of the third is a single row.
CHUNKS = [(60,), (7, 7, 7, 2, 3, 30, 4), (20, 20, 19, 1), (1, 59)]


class TestFit:
    @pytest.mark.parametrize("chunks", CHUNKS, ids=str)
    @pytest.mark.parametrize(("scale", "pca"), [("standard", None), ("none", 4), ("standard", 4), ("standard", 6)])
    def test_equals_scikit_learn(self, rng, chunks, scale, pca):
        X = columns_of_all_scales(60, rng)
        transform = fit_transform(da.from_array(X, chunks=(chunks, 6)), scale, pca)
        expected = reference(X, scale, pca)
        if pca is None:
            np.testing.assert_allclose(transform(X), expected, atol=1e-9)
        else:
            assert_same_up_to_signs(transform(X), expected)

    @pytest.mark.parametrize(("scale", "pca"), [("standard", None), ("none", 4)])
    def test_fit_has_the_same_bytes_for_any_chunks(self, rng, scale, pca):
        X = columns_of_all_scales(60, rng)
        fits = [fit_transform(da.from_array(X, chunks=(chunks, 6)), scale, pca) for chunks in CHUNKS]
        for fit in fits[1:]:
            for name in ("mean", "scale", "center", "components"):
                np.testing.assert_array_equal(getattr(fit, name), getattr(fits[0], name))

    def test_float32_input_is_fitted_and_transformed_in_float64(self, rng):
        X = (rng.normal(size=(50, 3)) + 1000).astype(np.float32)
        transform = fit_transform(da.from_array(X.astype(np.float64), chunks=(20, 3)), "standard", None)
        actual = transform(X)
        assert actual.dtype == np.float64
        np.testing.assert_allclose(actual, StandardScaler().fit_transform(X.astype(np.float64)), atol=1e-9)

    @pytest.mark.parametrize("value", [0.0, 0.1, -1e8, 1e-300])
    def test_constant_columns_are_named(self, rng, value):
        X = rng.normal(size=(40, 5))
        X[:, [1, 3]] = value
        with pytest.raises(InputError, match=r"2 of 5 columns hold one value only \(numbered from 0: 1, 3\)") as caught:
            fit_transform(da.from_array(X, chunks=(13, 5)), "standard", None)
        for cure in ("input.columns", "scale: none"):
            assert cure in str(caught.value)
        with pytest.raises(InputError, match=r"2 of 5 columns hold one value only \('b', 'd'\)"):
            fit_transform(da.from_array(X, chunks=(13, 5)), "standard", None, list("abcde"))

    @pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")
    def test_columns_whose_variance_is_infinite_are_named(self, rng):
        X = rng.normal(size=(40, 3)) * [1e160, 1.0, 1e160]
        with pytest.raises(InputError, match=r"2 of 3 columns \('a', 'c'\); divide"):
            fit_transform(X, "standard", None, list("abc"))

    def test_constant_columns_of_a_sample_are_zero_for_every_row(self, rng):
        X = rng.normal(size=(40, 5))
        X[:, 3] = 7.0
        transform = fit_transform(X, "standard", None, list("abcde"), is_sample=True)
        new = rng.normal(size=(9, 5)) * [1, 1, 1, 1e9, 1]
        others = [0, 1, 2, 4]
        np.testing.assert_allclose(transform(new)[:, others], StandardScaler().fit(X).transform(new)[:, others])
        assert (transform(new)[:, 3] == 0).all()
        assert "1 of 5 columns left out ('d')" in transform.left_out(list("abcde"))
        components = fit_transform(X, "standard", 4, is_sample=True)
        assert_same_up_to_signs(components(X), reference(X[:, others], "standard", 4))
        with pytest.raises(InputError, match="2 of 2 columns"):
            fit_transform(np.ones((40, 2)), "standard", None, is_sample=True)

    def test_constant_columns_are_accepted_without_scaling(self, rng):
        X = rng.normal(size=(40, 5))
        X[:, 1] = 7.0
        actual = fit_transform(da.from_array(X, chunks=(13, 5)), "none", 3)(X)
        assert_same_up_to_signs(actual, reference(X, "none", 3))

    def test_column_that_varies_in_the_thirteenth_digit_is_scaled(self, rng):
        X = 1.7e12 + rng.integers(0, 4096, (400, 2)) / 4096  # seconds as milliseconds since 1970, say
        actual = fit_transform(da.from_array(X, chunks=(130, 2)), "standard", None)(X)
        np.testing.assert_allclose(actual, StandardScaler().fit_transform(X - 1.7e12), atol=2e-3)

    @pytest.mark.parametrize("shape", [(40, 3), (3, 9)])
    def test_too_many_principal_components_are_refused(self, rng, shape):
        with pytest.raises(InputError, match="at most 3 components") as caught:
            fit_transform(da.from_array(rng.normal(size=shape), chunks=shape), "none", 4)
        assert "found 4" in str(caught.value)


class TestTransform:
    def test_scales_then_projects(self):
        transform = Transform(np.array([1.0, 2.0]), np.array([2.0, 4.0]), np.array([0.5, 0.0]), np.array([[0.6, 0.8]]))
        np.testing.assert_allclose(transform(np.array([[4.0, 6.0]])), [[0.6 * 1.0 + 0.8 * 1.0]])
        np.testing.assert_allclose(Transform(transform.mean, transform.scale)(np.array([[4.0, 6.0]])), [[1.5, 1.0]])


class TestValidRows:
    @pytest.fixture
    def store(self, tmp_path):
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({})
        raw = np.arange(22, dtype=np.float32).reshape(11, 2)
        raw[[1, 4, 5, 6, 7]] = np.nan  # all of the second block of four
        valid = np.isfinite(raw).all(axis=1)
        for spec, values in ((array_specs.RAW, raw), (array_specs.VALID, valid.astype(np.uint8))):
            store.create(PlannedArray(spec, values.shape, str(values.dtype), 4))
            store.write(spec.name, 0, values)
        return store

    def test_valid_rows_of_a_block(self, store):
        actual = valid_rows(store.url, 0, Blocks(11, 4))
        np.testing.assert_array_equal(actual, [[0, 1], [4, 5], [6, 7]])
        assert actual.dtype == np.float64

    def test_valid_rows_of_all_blocks_as_one_array(self, store):
        X = valid_array(store, [3, 0, 3], Blocks(11, 4), 2)
        assert X.chunks == ((3, 3), (2,))
        np.testing.assert_array_equal(X.compute(), [[0, 1], [4, 5], [6, 7], [16, 17], [18, 19], [20, 21]])

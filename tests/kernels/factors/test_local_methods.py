"""Local factors of ltsa, hessian and modified: against the papers' matrices, by closed forms, and by their limits."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from lle.core.methods import METHODS
from lle.kernels.factors.factor_rows import LocalRows, stack_rows
from lle.kernels.factors.ltsa_hessian import alignment_rows, hessian_rows
from lle.kernels.factors.modified_lle import modified_rows, spread, variances
from tests.support.method_oracle import hessian_matrix, ltsa_matrix, modified_matrix, modified_spread
from tests.support.oracle import exact_neighbors

SHAPES = [(9, 3, 2), (9, 20, 2), (14, 3, 3), (14, 14, 3), (6, 2, 1)]
ROWS = {"ltsa": alignment_rows, "hessian": hessian_rows}
MATRIX = {"ltsa": ltsa_matrix, "hessian": hessian_matrix}


def clouds(rng: np.random.Generator, K: int, d: int, n: int = 30) -> np.ndarray:
    """Neighbourhoods with distinct singular values, off the origin."""
    return rng.normal(size=(n, K, d)) * np.linspace(1.0, 0.3, d) + 5.0


def grams(rows: np.ndarray) -> np.ndarray:
    return rows.transpose(0, 2, 1) @ rows


@pytest.mark.parametrize("method", ["ltsa", "hessian"])
@pytest.mark.parametrize(("K", "d", "m"), SHAPES)
class TestTangentRows:
    def test_equal_the_papers_matrices(self, rng, method, K, d, m):
        points = clouds(rng, K, d)
        expected = np.stack([MATRIX[method](cloud, m) for cloud in points])
        np.testing.assert_allclose(grams(ROWS[method](points, m)), expected, atol=1e-10)
        assert np.abs(grams(ROWS[method](points + 0.05 * rng.normal(size=points.shape), m)) - expected).max() > 1e-3

    def test_rows_are_orthogonal_and_of_mean_zero(self, rng, method, K, d, m):
        rows = ROWS[method](clouds(rng, K, d), m)
        assert rows.shape == (30, K - m - 1, K)
        lengths = np.square(rows).sum(axis=2)
        np.testing.assert_allclose(rows @ rows.transpose(0, 2, 1), lengths[:, :, None] * np.eye(K - m - 1), atol=1e-13)
        n_unit = m * (m + 1) // 2 if method == "hessian" else K - m - 1
        np.testing.assert_allclose(lengths[:, :n_unit], 1.0, atol=1e-13)
        np.testing.assert_allclose(lengths[:, n_unit:], lengths[:, -1:].repeat(K - m - 1 - n_unit, axis=1), atol=1e-13)
        np.testing.assert_allclose(rows.sum(axis=2), 0, atol=1e-14 * K)

    def test_tangent_rows_are_invariant_to_rotation_shift_and_scale(self, rng, method, K, d, m):
        """Rotation, shift and scale of a neighbourhood change nothing."""
        points = clouds(rng, K, d)
        turned = points @ ortho_group.rvs(d, random_state=rng) if d > 1 else -points
        expected = grams(ROWS[method](points, m))
        np.testing.assert_allclose(grams(ROWS[method](1e-3 * turned + 7.0, m)), expected, atol=1e-8)

    def test_float32_points_are_converted_to_float64(self, rng, method, K, d, m):
        points = clouds(rng, K, d).astype(np.float32)
        rows = ROWS[method](points, m)
        assert rows.dtype == np.float64
        np.testing.assert_array_equal(rows, ROWS[method](points.astype(np.float64), m))


@pytest.mark.parametrize("method", ["ltsa", "hessian"])
def test_affine_functions_of_flat_neighborhoods_are_null(rng, method):
    coordinates = rng.normal(size=(20, 10, 2))
    rows = ROWS[method](coordinates @ rng.normal(size=(2, 6)) + rng.normal(size=6), 2)
    np.testing.assert_allclose(rows @ coordinates, 0, atol=1e-12)
    assert np.abs(rows @ coordinates**2).max() > 0.1


def test_hessian_rows_measure_quadratic_functions_only_unlike_ltsa(rng):
    """A cubic remainder orthogonal to all quadratics is invisible to the Hessian."""
    u = rng.normal(size=(12, 2))
    quadratics = np.column_stack([np.ones(12), u, u[:, 0] ** 2, u[:, 0] * u[:, 1], u[:, 1] ** 2])
    f = u[:, 0] ** 3
    f = f - quadratics @ np.linalg.lstsq(quadratics, f, rcond=None)[0]
    assert np.abs(hessian_rows(u[None], 2)[0] @ f).max() < 1e-12
    assert np.linalg.norm(alignment_rows(u[None], 2)[0] @ f) == pytest.approx(np.linalg.norm(f))


def test_hessian_is_the_papers_without_noise_and_ltsa_where_noise_is_as_large_as_the_tangent(rng):
    u = rng.normal(size=(12, 2))
    clean = np.column_stack([u, 0.1 * u[:, 0] * u[:, 1]])[None]
    assert hessian_rows(clean, 2)[0].any(axis=1).sum() == 3
    noisy = rng.normal(size=(1, 12, 40))
    np.testing.assert_allclose(grams(hessian_rows(noisy, 2)), grams(alignment_rows(noisy, 2)), atol=1e-12)


def test_a_neighborhood_of_fewer_dimensions_still_gives_rows_of_mean_zero(rng):
    line = np.linspace(0, 1, 8)[None, :, None] * rng.normal(size=3)
    for points in (line, np.zeros((1, 8, 3))):
        for method, rows_of in ROWS.items():
            rows = rows_of(points, 2)
            rows = rows[:, : 3 if method == "hessian" else None]
            np.testing.assert_allclose(rows @ rows.transpose(0, 2, 1), np.eye(rows.shape[1])[None], atol=1e-12)
            np.testing.assert_allclose(rows.sum(axis=2), 0, atol=1e-13, err_msg=method)


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_min_neighbors_is_the_first_number_with_rows(rng, m):
    for method, rows_of in ROWS.items():
        least = METHODS[method].min_neighbors(m)
        assert rows_of(rng.normal(size=(2, least, m + 2)), m).shape[1] >= 1
        assert np.linalg.norm(rows_of(rng.normal(size=(2, least - 1, m + 2)), m)) < np.linalg.norm(
            rows_of(rng.normal(size=(2, least, m + 2)), m)
        )


class TestModified:
    @pytest.mark.parametrize(("k", "d", "m"), [(9, 3, 2), (7, 20, 2), (6, 6, 1), (8, 2, 2)])
    @pytest.mark.parametrize("reg", [1e-3, 1e-1])
    def test_equal_the_papers_matrices(self, rng, k, d, m, reg):
        X = rng.normal(size=(80, d)) * np.linspace(1.0, 0.2, d)
        near = exact_neighbors(X, k)[0]
        offsets = X[near] - X[:, None]
        rho = spread(variances(offsets), m)
        expected = [modified_spread(x, X[row], m) for x, row in zip(X, near, strict=True)]
        np.testing.assert_allclose(rho, expected, atol=1e-12)
        threshold = float(np.median(rho))
        values, used = modified_rows(offsets, threshold, reg, "trace")
        rows = np.where(used[:, :, None], values, 0.0)
        papers = [modified_matrix(x, X[row], threshold, reg) for x, row in zip(X, near, strict=True)]
        np.testing.assert_allclose(grams(rows), papers, atol=1e-7)
        np.testing.assert_allclose(rows.sum(axis=2), 0, atol=1e-12)
        assert len(set(used.sum(axis=1))) > 1 or d <= m

    def test_reconstruct_flat_data_exactly_but_for_the_regularisation(self, rng):
        """Each weight vector rebuilds the point from neighbours in a plane, up to reg."""
        offsets = rng.normal(size=(20, 8, 2)) @ rng.normal(size=(2, 5))
        errors = []
        for reg in (1e-3, 1e-6):
            values, used = modified_rows(offsets, 1e-9, reg, "trace")
            np.testing.assert_array_equal(used.sum(axis=1), 6)
            errors.append(np.abs(values[used][:, :-1].reshape(20, 6, 8) @ offsets).max())
        assert errors[1] < 2e-3 * errors[0] < 1.0

    def test_at_least_one_weight_vector_is_used(self, rng):
        offsets = rng.normal(size=(10, 4, 9))
        assert (modified_rows(offsets, 0.0, 1e-3, "trace")[1].sum(axis=1) == 1).all()

    def test_rules_of_reg_act_as_documented(self, rng):
        regular, singular = rng.normal(size=(10, 4, 9)), rng.normal(size=(10, 9, 4))
        for offsets, changes in ((regular, True), (singular, False)):
            trace = modified_rows(offsets, 0.05, 1e-2, "trace")[0]
            needed = modified_rows(offsets, 0.05, 1e-2, "when_needed")[0]
            assert (np.abs(trace - needed).max() > 1e-4) == changes
        scaled = [modified_rows(c * singular, 0.05, 1e-2 * c**2, "absolute")[0] for c in (1.0, 3.0)]
        np.testing.assert_allclose(grams(scaled[0]), grams(scaled[1]), atol=1e-9)
        assert np.abs(grams(modified_rows(3 * singular, 0.05, 1e-2, "absolute")[0]) - grams(scaled[0])).max() > 1e-5

    def test_coinciding_neighbors_give_finite_rows_and_no_spread(self):
        offsets = np.zeros((2, 5, 3))
        offsets[1, 0] = 1.0
        rows, used = modified_rows(offsets, 0.1, 1e-3, "trace")
        assert np.isfinite(rows).all()
        np.testing.assert_allclose(np.where(used[:, :, None], rows, 0).sum(axis=2), 0, atol=1e-12)
        assert np.isnan(spread(variances(offsets), 2)).tolist() == [True, False]


class TestStacking:
    def test_rows_are_ordered_by_point_for_any_parts(self, rng):
        n, sizes = 12, rng.integers(2, 5, 6)
        dense, parts = [], []
        columns = [rng.permutation(n)[:size] for size in sizes]
        values = [rng.normal(size=(3, size)) for size in sizes]
        used = rng.random((6, 3)) < 0.6
        for i, size in enumerate(sizes):
            block = np.zeros((3, n))
            block[:, columns[i]] = values[i]
            dense.append(block[used[i]])
            assert size == len(columns[i])
        for size in rng.permutation(np.unique(sizes)):
            at = rng.permutation(np.flatnonzero(sizes == size))
            parts.append(LocalRows(at, np.stack([columns[i] for i in at]), np.stack([values[i] for i in at]), used[at]))
        stacked = stack_rows(parts, 6, n)
        np.testing.assert_array_equal(stacked.toarray(), np.concatenate(dense))
        assert stacked.has_canonical_format

    def test_points_without_rows_add_no_rows(self):
        part = LocalRows(np.array([2]), np.array([[0, 3]]), np.ones((1, 1, 2)), np.ones((1, 1), bool))
        assert stack_rows([part], 4, 5).shape == (1, 5)
        assert stack_rows([], 4, 5).shape == (0, 5)

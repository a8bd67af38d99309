"""Block GMRES against dense least squares."""

import numpy as np
import pytest

from lle.kernels.eigensolver.block_gmres import BlockGmres
from lle.kernels.eigensolver.pardiso import FactorizationError
from lle.kernels.eigensolver.threads import Threads
from tests.support.seeds import seeds

N = 400


def nearly_identity(seed, outliers=6):
    """B (n, n), the identity on all but ``outliers`` directions, which it maps to a hundredth."""
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((N, outliers)))[0]
    return np.eye(N) - 0.99 * basis @ basis.T


def solved(matrix, rhs, n_images, n_threads=1):
    with Threads(n_threads) as threads:
        gmres = BlockGmres(rhs.copy(), threads, n_images)
        for _ in range(n_images):
            gmres.add((matrix @ gmres.last).astype(rhs.dtype))
        return gmres.solution(), gmres.reduction


@pytest.mark.parametrize("seed", seeds(3, 5, 7))
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_columns_find_the_slow_directions_together(seed, dtype):
    """Six slow directions need six images of one column, but two of a block of eight."""
    matrix, rhs = nearly_identity(seed), np.random.default_rng(seed + 1).standard_normal((N, 8)).astype(dtype)
    expected, tol = np.linalg.solve(matrix, rhs), 2e-4 if dtype == "f4" else 1e-10
    solution, reduction = solved(matrix, rhs, 2)
    assert np.abs(solution - expected).max() < tol * np.abs(expected).max()
    assert reduction < tol
    assert solved(matrix, rhs[:, :1], 1)[1] > 0.05


@pytest.mark.parametrize("seed", seeds(3, 5, 7))
def test_reduction_is_that_of_the_least_residual_in_the_space(seed):
    rng = np.random.default_rng(seed)
    matrix, rhs = np.eye(N) + rng.standard_normal((N, N)) / 30, rng.standard_normal((N, 3))
    space = np.hstack([rhs, matrix @ rhs])
    residual = rhs - matrix @ space @ np.linalg.lstsq(matrix @ space, rhs)[0]
    ratios = np.linalg.norm(residual, axis=0) / np.linalg.norm(rhs, axis=0)
    solution, reduction = solved(matrix, rhs, 2)
    assert reduction == pytest.approx(ratios.max(), rel=1e-8)
    least = space @ np.linalg.lstsq(matrix @ space, rhs)[0]
    np.testing.assert_allclose(solution, least + residual, atol=1e-9)


@pytest.mark.parametrize("seed", seeds(3, 5, 7))
def test_error_is_a_bound_where_the_space_has_the_slow_directions(seed):
    """Relative to the columns of x, or to longer columns of which x is a correction."""
    rng = np.random.default_rng(seed)
    matrix, rhs = nearly_identity(seed) + rng.standard_normal((N, N)) / 1e5, rng.standard_normal((N, 8))
    with Threads(1) as threads:
        gmres = BlockGmres(rhs.copy(), threads, 2)
        for _ in range(2):
            gmres.add(matrix @ gmres.last)
        error = gmres.error(np.zeros(8))
        space = np.hstack([rhs, matrix @ rhs])
        least = space @ np.linalg.lstsq(matrix @ space, rhs)[0]
        lengths = np.linalg.norm(least, axis=0)
        true = (np.linalg.norm(least - np.linalg.solve(matrix, rhs), axis=0) / lengths).max()
        assert true < 1.1 * error
        assert error < 10 * true
        assert gmres.error(lengths.min() / 2 * np.ones(8)) == error
        assert gmres.error(10 * lengths) == pytest.approx(error / 10)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_dependent_columns_and_columns_of_zeros_are_solved(dtype):
    matrix, column = nearly_identity(3), np.random.default_rng(0).standard_normal(N)
    rhs = np.column_stack([column, column, np.zeros(N), 1e-9 * column]).astype(dtype)
    solution, _ = solved(matrix, rhs, 6)
    expected = np.linalg.solve(matrix, rhs)
    scale = np.maximum(np.linalg.norm(expected, axis=0), 1e-30)
    assert (np.linalg.norm(solution - expected, axis=0) < 1e-3 * scale).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_block_of_zeros_and_an_image_of_zeros(dtype):
    zeros, ones = np.zeros((N, 3), dtype), np.ones((N, 3), dtype)
    solution, reduction = solved(np.eye(N), zeros, 3)
    assert (not solution.any(), reduction) == (True, 0.0)
    assert solved(np.zeros((N, N)), ones, 3)[1] == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_image_that_is_not_finite_is_an_error(bad):
    # some processors report the product with infinity as invalid
    with np.errstate(invalid="ignore"), pytest.raises(FactorizationError, match="NaN or infinity"):
        solved(np.full((N, N), bad), np.ones((N, 3)), 1)

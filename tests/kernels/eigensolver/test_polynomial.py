import numpy as np
import pytest

from lle.kernels.eigensolver import polynomial
from lle.kernels.eigensolver.normal_operator import NormalOperator
from tests.support.sampled_factors import edge_factor, lle_factor, points, roll_factor
from tests.support.seeds import seeds


def polynomials_by_definition(B, X, roots):
    """p(B) X and r(B) X with r = prod (I - B / theta) over all roots, conjugates included, and B p(B) = I - r(B)."""
    all_roots = np.concatenate([roots, np.conj(roots[roots.imag > 1e-10])])
    residual, total = X.astype(complex), np.zeros(X.shape, complex)
    for root in all_roots:
        total, residual = total + residual / root, residual - B @ residual / root
    return total.real, residual.real


@pytest.mark.parametrize("matrix", ["factor", "transposed", "normal"])
def test_operator_applies_the_polynomial_with_the_given_roots(matrix):
    A = roll_factor(200, 3)
    B = {"factor": A, "transposed": A.T, "normal": A.T @ A}[matrix].toarray()
    X = np.random.default_rng(3).standard_normal((200, 5))
    roots = np.array([1.3, 0.9 + 0.4j, 2.0, 0.7 + 0.1j])
    results = []
    for n_threads in (1, 2, 3):
        with NormalOperator(A, n_threads) as operator:
            results.append(operator.approximate_inverse(X, roots, matrix))
    total, residual = polynomials_by_definition(B, X, roots)
    np.testing.assert_allclose(results[0][0], total, rtol=1e-10, atol=1e-10 * np.abs(total).max())
    np.testing.assert_allclose(results[0][1], residual, rtol=1e-10, atol=1e-10 * np.abs(residual).max())
    np.testing.assert_allclose(B @ total, X - residual, atol=1e-10 * np.abs(residual).max())
    assert len({total.tobytes() + residual.tobytes() for total, residual in results}) == 1


def test_factor_that_is_not_square_uses_its_normal_matrix():
    A = edge_factor(points("sheet", 100, 3), 5)
    X, roots = np.random.default_rng(3).standard_normal((100, 2)), np.array([3.0 + 0j, 9.0])
    with NormalOperator(A, 2) as operator:
        total, _ = operator.approximate_inverse(X, roots, "normal")
    expected = polynomials_by_definition((A.T @ A).toarray(), X, roots)[0]
    np.testing.assert_allclose(total, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("degree", [1, 5, 30])
def test_chebyshev_roots_give_the_smallest_residual_polynomial(degree):
    low, high = 0.2, 3.0
    roots = polynomial.chebyshev_roots(degree, low, high)
    z = np.linspace(low, high, 500)
    bound = 1 / np.cosh(degree * np.arccosh((high + low) / (high - low)))
    assert np.abs(polynomial.residual_at(roots, z)).max() == pytest.approx(bound, rel=1e-9)
    assert polynomial.residual_at(roots, np.zeros(1))[0] == 1
    slope = (1 - polynomial.residual_at(roots, np.array([1e-9]))[0]) / 1e-9
    assert polynomial.slope_of(roots) == pytest.approx(slope, rel=1e-5)
    assert polynomial.degree_of(roots) == degree


@pytest.mark.parametrize("seed", seeds(19, 83))
def test_arnoldi_roots_give_the_residual_of_gmres(seed):
    A = lle_factor(points("cube", 400, seed), 12, 1e-1)
    b = A @ np.random.default_rng(seed).standard_normal(400)
    b /= np.linalg.norm(b)
    hessenberg = polynomial.arnoldi(lambda x: A @ x, b, 12)
    krylov = [b]
    for _ in range(12):
        krylov.append(A @ krylov[-1])
    image = np.linalg.qr(np.column_stack(krylov[1:]))[0]
    smallest = np.linalg.norm(b - image @ (image.T @ b))
    assert polynomial.gmres_residual(hessenberg) == pytest.approx(smallest, rel=1e-3)
    roots = polynomial.stable_roots(polynomial.harmonic_ritz_values(hessenberg))
    with NormalOperator(A, 1) as operator:
        residual = operator.approximate_inverse(b[:, None], roots, "factor")[1]
    assert np.linalg.norm(residual) == pytest.approx(smallest, rel=1e-2)


def test_arnoldi_ends_when_gmres_converges():
    B = np.diag(np.repeat([1.0, 2.0, 3.0], 10))
    hessenberg = polynomial.arnoldi(lambda x: B @ x, np.ones(30), 20)
    assert hessenberg.shape[1] <= 4
    values = polynomial.harmonic_ritz_values(hessenberg)
    for value in (1.0, 2.0, 3.0):
        assert np.abs(values - value).min() < 1e-5


def test_steep_roots_are_repeated():
    bulk = np.linspace(0.01, 1.0, 40).astype(complex)
    roots = polynomial.stable_roots(np.concatenate([bulk, [40.0]]))
    assert len(roots) > 41
    assert np.count_nonzero(np.abs(roots - 40) < 1e-6) > 1


def test_leja_order_takes_the_largest_first_and_the_farthest_next():
    roots = polynomial.leja_order(np.array([0.1, 0.2, 0.5, 0.9, 1.0]).astype(complex))
    np.testing.assert_array_equal(roots[:3].real, [1.0, 0.1, 0.5])
    shuffled = polynomial.leja_order(np.random.default_rng(3).permutation(np.arange(1.0, 30.0)).astype(complex))
    np.testing.assert_array_equal(shuffled, polynomial.leja_order(np.arange(1.0, 30.0).astype(complex)))

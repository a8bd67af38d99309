import numpy as np
import pytest

from pipeline.kernels.eigensolver.chebyshev import (
    block_width,
    chebyshev_filter,
    filtered_subspace,
    first_state,
    largest_eigenvalue,
    turned_by_filter,
)
from pipeline.kernels.eigensolver.normal_operator import NormalOperator
from pipeline.kernels.eigensolver.rayleigh_ritz import RitzPairs, Tolerances
from tests.support.oracle import largest_angle
from tests.support.sampled_factors import lle_factor, points, roll_factor
from tests.support.seeds import seeds

SEEDS = seeds(19, 83)


def bottom(A, m):
    """Eigenpairs by the dense SVD, the null one left out."""
    _, singular, Vt = np.linalg.svd(A.toarray())
    return singular[::-1][1 : m + 1] ** 2, Vt[::-1][1 : m + 1].T


def filtered(A, m, start, tolerances, columns, degrees, n_threads, state=None, each_step=lambda state, at_limit: None):
    with NormalOperator(A, n_threads) as operator:
        state = state or first_state(A, start)
        return filtered_subspace(A, operator, m, state, tolerances, columns, degrees, each_step)


@pytest.mark.parametrize("name", ["swiss_roll", "cube", "sheet"])
@pytest.mark.parametrize("seed", SEEDS)
def test_largest_eigenvalue_is_a_close_upper_bound(name, seed):
    A = lle_factor(points(name, 500, seed), 12, 1e-3)
    largest = np.linalg.norm(A.toarray(), 2) ** 2
    assert largest <= largest_eigenvalue(A, seed) <= 1.6 * largest


def test_largest_eigenvalue_of_a_multiple_of_the_identity_is_exact():
    A = 3.0 * roll_factor(100, 1)
    A.data[:] = 0
    A.setdiag(3.0)
    assert largest_eigenvalue(A, 5) == pytest.approx(9.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_operator_is_a_transpose_a_with_any_number_of_threads(seed):
    A = roll_factor(700, seed)
    block = np.random.default_rng(seed).standard_normal((700, 5))
    images = []
    for n_threads in (1, 2, 3):
        with NormalOperator(A, n_threads) as operator:
            images.append(operator.apply(block))
    np.testing.assert_allclose(images[0], A.T @ (A @ block), rtol=1e-12, atol=1e-13)
    assert images[0].tobytes() == images[1].tobytes() == images[2].tobytes()


@pytest.mark.parametrize("degree", [1, 2, 3, 8, 31])
def test_filter_is_the_chebyshev_polynomial_of_m(degree):
    A = roll_factor(90, 4)
    M = (A.T @ A).toarray()
    values, V = np.linalg.eigh(M)
    cut, largest = 0.05, values[-1] * 1.1
    mapped = (2 * values - cut - largest) / (largest - cut)
    polynomial = np.polynomial.chebyshev.chebval(mapped, np.eye(degree + 1)[degree])
    block = np.random.default_rng(7).standard_normal((90, 3))
    with NormalOperator(A, 2) as operator:
        filtered = chebyshev_filter(operator, block, degree, cut, largest)
    expected = V @ (polynomial[:, None] * (V.T @ block))
    np.testing.assert_allclose(filtered, expected, atol=1e-10 * np.abs(polynomial).max())


@pytest.mark.parametrize("error", [1e-2, 1e-5, 1e-8])
def test_what_the_filter_turns_a_vector_by_is_its_error(error):
    A = roll_factor(300, 4)
    largest = largest_eigenvalue(A, 1)
    values, V = bottom(A, 20)
    other = V[:, 12:13]
    v = V[:, :1] + error * other
    v /= np.linalg.norm(v)
    pairs = RitzPairs(values[:1], v)
    cut = values[11]
    degree = int(2 * np.sqrt(largest / cut))
    with NormalOperator(A, 1) as operator:
        filtered = chebyshev_filter(operator, v, degree, cut, largest)
    estimated = turned_by_filter(pairs, filtered, degree, cut, largest)[0]
    assert error / 2 < estimated < 2 * error


@pytest.mark.parametrize("name", ["swiss_roll", "cube", "circle"])
@pytest.mark.parametrize("seed", SEEDS)
def test_converges_to_the_dense_vectors(name, seed):
    A, m = lle_factor(points(name, 450, seed), 12, 1e-3), 4
    values, V = bottom(A, m)
    start = np.random.default_rng(seed).standard_normal((450, block_width(m)))
    tolerances = Tolerances(1e-8, largest_eigenvalue(A, 1))
    found = filtered(A, m, start, tolerances, 40, 20_000, 2)
    assert found.n_degrees < 20_000
    assert (found.errors <= 1e-8).all()
    assert largest_angle(found.pairs.vectors, V) < 1e-5
    np.testing.assert_allclose(found.pairs.values, values, rtol=1e-9)
    np.testing.assert_allclose(found.pairs.vectors.T @ found.pairs.vectors, np.eye(m), atol=1e-12)
    np.testing.assert_allclose(found.pairs.vectors.mean(axis=0), 0, atol=1e-14)


def test_a_basis_of_two_blocks_is_enough():
    A, m = roll_factor(450, 3), 2
    start = np.random.default_rng(1).standard_normal((450, 8))
    tolerances = Tolerances(1e-6, largest_eigenvalue(A, 1))
    found = filtered(A, m, start, tolerances, 16, 20_000, 1)
    assert found.n_degrees < 20_000
    assert largest_angle(found.pairs.vectors, bottom(A, m)[1]) < 1e-3


@pytest.mark.parametrize(
    "number", [pytest.param(0, marks=pytest.mark.slow), 2, pytest.param(5, marks=pytest.mark.slow)]
)
def test_going_on_from_a_kept_state_ends_with_the_same_bytes(number):
    A, m, kept = roll_factor(450, 3), 2, []
    start = np.random.default_rng(1).standard_normal((450, 8))
    tolerances = Tolerances(1e-8, largest_eigenvalue(A, 1))
    whole = filtered(A, m, start, tolerances, 24, 20_000, 1, each_step=lambda state, at_limit: kept.append(state))
    assert len(kept) == whole.n_steps - 1
    state = kept[number]._replace(values=kept[number].values.copy(), vectors=kept[number].vectors.copy(order="K"))
    again = filtered(A, m, start, tolerances, 24, 20_000, 2, state=state)
    assert (again.n_degrees, again.n_steps) == (whole.n_degrees, whole.n_steps)
    assert again.pairs.vectors.tobytes() == whole.pairs.vectors.tobytes()


def test_stops_at_the_limit_with_errors_that_say_so():
    A = roll_factor(1500, 3)
    start = np.random.default_rng(1).standard_normal((1500, 8))
    found = filtered(A, 2, start, Tolerances(1e-8, largest_eigenvalue(A, 1)), 40, 100, 1)
    assert found.at_limit
    assert 50 < found.n_degrees <= 100
    assert found.errors.max() > 1e-3


@pytest.mark.parametrize("limits", [(100,), pytest.param((1, 60, 61, 200), marks=pytest.mark.slow)])
def test_more_products_go_on_from_the_limit_with_the_same_bytes(limits):
    A, m = roll_factor(450, 3), 2
    start = np.random.default_rng(1).standard_normal((450, 8))
    tolerances = Tolerances(1e-8, largest_eigenvalue(A, 1))
    whole, state = filtered(A, m, start, tolerances, 24, 20_000, 1), None
    assert not whole.at_limit
    for limit in limits:
        kept = []
        found = filtered(
            A, m, start, tolerances, 24, limit, 1, state, lambda state, last, kept=kept: kept.append((state, last))
        )
        assert found.at_limit
        assert found.n_degrees <= limit
        assert [last for _, last in kept] == [False] * (len(kept) - 1) + [True]
        state = kept[-1][0]
        assert state.vectors[:, :m].tobytes() == found.pairs.vectors.tobytes()
        assert state.errors.tobytes() == found.errors.tobytes()
    again = filtered(A, m, start, tolerances, 24, 20_000, 1, state)
    assert (again.n_degrees, again.n_steps) == (whole.n_degrees, whole.n_steps)
    assert again.pairs.vectors.tobytes() == whole.pairs.vectors.tobytes()
    assert again.errors.tobytes() == whole.errors.tobytes()


def test_a_second_null_vector_ends_the_iteration():
    A = roll_factor(500, 3)
    keep = np.ones(500, bool)
    keep[[7, 8]] = False  # two rows less: two null vectors more
    B = A.copy()
    B.data[np.repeat(~keep, np.diff(A.indptr))] = 0.0
    tolerances = Tolerances(1e-8, largest_eigenvalue(B, 1))
    start = np.random.default_rng(1).standard_normal((500, 8))
    found = filtered(B, 2, start, tolerances, 40, 20_000, 2)
    assert tolerances.has_null_vector(found.pairs.values)
    assert found.n_degrees < 20_000


@pytest.mark.parametrize(("n_wanted", "width"), [(1, 8), (2, 8), (6, 8), (7, 12), (10, 12), (11, 16)])
def test_block_width_leaves_guards(n_wanted, width):
    assert block_width(n_wanted) == width

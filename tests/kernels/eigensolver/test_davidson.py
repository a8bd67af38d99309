import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

from lle.kernels.eigensolver.approximate_inverse import ApproximateInverse
from lle.kernels.eigensolver.davidson import block_width, first_state, lowest_pairs
from lle.kernels.eigensolver.normal_operator import NormalOperator
from lle.kernels.eigensolver.rayleigh_ritz import Tolerances, largest_eigenvalue
from tests.support.oracle import exact_pairs, largest_angle
from tests.support.sampled_factors import edge_factor, lle_factor, points, roll_factor
from tests.support.seeds import seeds

SEEDS = seeds(19, 83)


def inverse_of(A, hessenberg=None, n_threads=1, max_steps=640):
    return ApproximateInverse(A, lambda matrix: NormalOperator(matrix, n_threads), None, 3, max_steps, hessenberg)


def solve(A, m, columns=40, degrees=20_000, state=None, keep=lambda state, may_be_last: None, tol=1e-8, n_threads=1):
    inverse = inverse_of(A, None if state is None else state.hessenberg, n_threads)
    if state is None:
        start = np.random.default_rng(1).standard_normal((A.shape[1], block_width(m)))
        state = first_state(A, start, 0, m, inverse, degrees, None)
    tolerances = Tolerances(tol, largest_eigenvalue(A, 1))
    return lowest_pairs(A, inverse, m, state, tolerances, columns, degrees, keep)


def copied(state):
    return state._replace(values=state.values.copy(), vectors=state.vectors.copy())


def crossing_factor(n, seed):
    """I - W of a cube in ten dimensions with little regularisation: A has eigenvalues on both sides of zero."""
    return lle_factor(np.random.default_rng(seed).random((n, 10)), 12, 1e-3)


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
def test_form_depends_on_the_spectrum_of_the_factor(seed):
    one_sided = lle_factor(points("cube", 500, seed), 12, 1e-1)
    assert np.linalg.eigvals(one_sided.toarray()).real.min() > -1e-12
    assert inverse_of(one_sided).form == "factor"
    crossing = crossing_factor(500, seed)
    assert np.linalg.eigvals(crossing.toarray()).real.min() < -1e-2
    assert inverse_of(crossing).form == "normal"
    assert inverse_of(edge_factor(points("sheet", 300, seed), 5)).form == "normal"
    assert inverse_of(one_sided, max_steps=10).form == "normal"


@pytest.mark.parametrize(
    "make", [lambda: lle_factor(points("cube", 450, 19), 12, 1e-1), lambda: crossing_factor(450, 19)]
)
def test_approximate_inverse_is_symmetric_and_close_to_the_inverse_of_m(make):
    A = make()
    inverse = inverse_of(A)
    inverse.begin()
    T = inverse.apply(np.eye(450))
    np.testing.assert_allclose(T, T.T, atol=1e-6 * np.abs(T).max())
    np.testing.assert_allclose(T.sum(axis=0), 0, atol=1e-9 * np.abs(T).max())
    values, V = np.linalg.eigh((A.T @ A).toarray())
    middle = V[:, 200:]  # far above the cut
    np.testing.assert_allclose(np.einsum("ij,ij->j", middle, T @ middle) * values[200:], 1, atol=0.5)


@pytest.mark.parametrize("name", ["swiss_roll", "cube", "circle"])
@pytest.mark.parametrize("seed", SEEDS)
def test_converges_to_the_dense_vectors(name, seed):
    A, m = lle_factor(points(name, 450, seed), 12, 1e-3), 4
    values, V = exact_pairs(A, m)
    solution = solve(A, m)
    assert not solution.at_limit
    assert (solution.errors <= 1e-8).all()
    assert largest_angle(solution.pairs.vectors, V) < 1e-5
    np.testing.assert_allclose(solution.pairs.values, values, rtol=1e-9)
    np.testing.assert_allclose(solution.pairs.vectors.T @ solution.pairs.vectors, np.eye(m), atol=1e-12)
    np.testing.assert_allclose(solution.pairs.vectors.mean(axis=0), 0, atol=1e-14)


@pytest.mark.parametrize("make", [lambda: crossing_factor(420, 19), lambda: edge_factor(points("cube", 450, 83), 8)])
def test_converges_if_the_spectrum_crosses_zero(make):
    A, m = make(), 3
    values, V = exact_pairs(A, m)
    solution = solve(A, m)
    assert not solution.at_limit
    assert largest_angle(solution.pairs.vectors, V) < 1e-4
    np.testing.assert_allclose(solution.pairs.values, values, rtol=1e-8)


def test_a_basis_of_three_blocks_is_enough():
    A = roll_factor(450, 3)
    solution = solve(A, 2, columns=24, tol=1e-6)
    assert not solution.at_limit
    assert largest_angle(solution.pairs.vectors, exact_pairs(A, 2)[1]) < 1e-3


def test_degree_grows_as_the_ritz_values_fall():
    A = roll_factor(1500, 3)
    inverse = inverse_of(A, max_steps=160)
    inverse.begin()
    degrees = [inverse.degree]
    for value in (1e-2, 1e-3, 1e-4, 1e-7):
        inverse.adapt(np.full(8, value), lambda number: np.ones(A.shape[0]), 2, 8, 10_000)
        degrees.append(inverse.degree)
    assert degrees == sorted(degrees)
    assert degrees[0] == 20
    assert degrees[-1] > 80


@pytest.mark.parametrize("make", [lambda: roll_factor(450, 3), lambda: edge_factor(points("swiss_roll", 450, 3), 8)])
def test_continuing_from_a_saved_state_gives_the_same_bytes(make):
    A, m, states = make(), 2, []
    uninterrupted = solve(A, m, 24, keep=lambda state, may_be_last: states.append(copied(state)))
    assert len(states) > 3
    for state in (states[1], states[-1]):
        resumed = solve(A, m, 24, state=copied(state), n_threads=2)
        assert (resumed.n_degrees, resumed.n_steps) == (uninterrupted.n_degrees, uninterrupted.n_steps)
        assert resumed.pairs.vectors.tobytes() == uninterrupted.pairs.vectors.tobytes()
        assert resumed.errors.tobytes() == uninterrupted.errors.tobytes()


def test_continuing_after_the_limit_gives_the_same_bytes():
    A, m = roll_factor(450, 3), 2
    uninterrupted, state = solve(A, m, 24), None
    for limit in (30, 150, 151, 300):
        states = []
        solution = solve(
            A, m, 24, limit, state, lambda state, last, states=states: states.append((copied(state), last))
        )
        assert solution.at_limit
        assert solution.n_degrees <= limit
        assert states[-1][1]
        state = states[-1][0]
    resumed = solve(A, m, 24, state=state)
    assert (resumed.n_degrees, resumed.n_steps) == (uninterrupted.n_degrees, uninterrupted.n_steps)
    assert resumed.pairs.vectors.tobytes() == uninterrupted.pairs.vectors.tobytes()


def test_errors_at_the_limit_are_large():
    solution = solve(roll_factor(1500, 3), 2, degrees=60)
    assert solution.at_limit
    assert 20 < solution.n_degrees <= 60
    assert solution.errors.max() > 1e-3


def test_iteration_with_stop_early_ends_before_its_limit_on_a_surface():
    A = roll_factor(1500, 3)
    inverse = inverse_of(A)
    start = np.random.default_rng(1).standard_normal((1500, 8))
    state = first_state(A, start, 0, 2, inverse, 300, None)
    tolerances = Tolerances(1e-8, largest_eigenvalue(A, 1))
    solution = lowest_pairs(A, inverse, 2, state, tolerances, 40, 300, lambda *_: None, stop_early=True)
    assert solution.at_limit
    assert solution.n_degrees < 250


def test_a_second_null_vector_ends_the_iteration():
    A = csr_array(block_diag([roll_factor(250, 3), roll_factor(250, 4)], format="csr"))
    tolerances = Tolerances(1e-8, largest_eigenvalue(A, 1))
    solution = solve(A, 2)
    assert tolerances.has_null_vector(solution.pairs.values)
    assert solution.n_degrees < 20_000


@pytest.mark.parametrize(("n_wanted", "width"), [(1, 8), (2, 8), (6, 8), (7, 12), (10, 12), (11, 16)])
def test_block_width_includes_guard_vectors(n_wanted, width):
    assert block_width(n_wanted) == width

import weakref

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

from lle.kernels.eigensolver import davidson
from lle.kernels.eigensolver.davidson import block_width, expected_errors, first_state, lowest_pairs, smoothed_pairs
from lle.kernels.eigensolver.rayleigh_ritz import Growth, RitzPairs, Tolerances, largest_eigenvalue, residual_norms
from tests.support.oracle import exact_pairs, largest_angle
from tests.support.sampled_factors import lle_factor, points, roll_factor
from tests.support.seeds import seeds

SEEDS = seeds(19, 83)


def inverse_of(A, noise=0.2):
    """M^+ with errors of some ten per cent."""
    values, V = np.linalg.eigh((A.T @ A).toarray())
    factors = (1 + noise * np.random.default_rng(2).standard_normal(len(values) - 1)) / np.maximum(values[1:], 1e-14)
    return lambda block: V[:, 1:] @ (factors[:, None] * (V[:, 1:].T @ block))


def solve(A, m, columns=40, steps=60, state=None, keep=lambda state, may_be_last: None, tol=1e-8, noise=0.2, **options):
    inverse = inverse_of(A, noise)
    if state is None:
        width = block_width(m, options.get("max_width", np.inf))
        start = np.random.default_rng(1).standard_normal((A.shape[1], width))
        state = first_state(A, start, 0, m, inverse, None)
    tolerances = Tolerances(tol, largest_eigenvalue(A))
    return lowest_pairs(A, inverse, state, tolerances, columns, steps, keep, **options)


def copied(state):
    return state._replace(values=state.values.copy(), vectors=state.vectors.copy())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swiss_roll", "cube", "sheet"])
@pytest.mark.parametrize("seed", SEEDS)
def test_largest_eigenvalue_is_a_close_upper_bound(name, seed):
    A = lle_factor(points(name, 500, seed), 12, 1e-3)
    largest = np.linalg.norm(A.toarray(), 2) ** 2
    assert largest <= largest_eigenvalue(A) <= 1.6 * largest


def test_largest_eigenvalue_of_a_multiple_of_the_identity_is_exact():
    A = 3.0 * roll_factor(100, 1)
    A.data[:] = 0
    A.setdiag(3.0)
    assert largest_eigenvalue(A) == pytest.approx(9.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swiss_roll", "cube", "circle"])
@pytest.mark.parametrize("seed", SEEDS)
def test_converges_to_the_dense_vectors(name, seed):
    A, m = lle_factor(points(name, 450, seed), 12, 1e-3), 4
    values, V = exact_pairs(A, m)
    solution = solve(A, m)
    assert not solution.stopped
    assert (solution.errors <= 1e-8).all()
    assert largest_angle(solution.pairs.vectors, V) < 1e-5
    np.testing.assert_allclose(solution.pairs.values, values, rtol=1e-9)
    np.testing.assert_allclose(solution.pairs.vectors.T @ solution.pairs.vectors, np.eye(m), atol=1e-12)
    np.testing.assert_allclose(solution.pairs.vectors.mean(axis=0), 0, atol=1e-14)


def test_the_basis_is_freed_before_the_last_steps(monkeypatch):
    """They take as much memory as a solve."""
    bases, smoothed, begin = [], [], davidson._Basis.__init__

    def begun(basis, *arguments):
        begin(basis, *arguments)
        bases.append(weakref.ref(basis._vectors))

    monkeypatch.setattr(davidson._Basis, "__init__", begun)
    monkeypatch.setattr(
        davidson, "smoothed_pairs", lambda *pairs: smoothed.append(bases[0]()) or smoothed_pairs(*pairs)
    )
    solve(roll_factor(450, 3), 2)
    assert smoothed == [None]


def test_a_basis_of_three_blocks_is_enough():
    A = roll_factor(450, 3)
    solution = solve(A, 2, columns=24, tol=1e-6)
    assert not solution.stopped
    assert largest_angle(solution.pairs.vectors, exact_pairs(A, 2)[1]) < 1e-3


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_do_not_count_rotations_among_the_wanted_vectors(seed):
    """T amplifies rounding errors along the first vectors, which Rayleigh-Ritz removes."""
    A, m = lle_factor(points("swiss_roll", 450, seed), 12, 1e-3), 3
    V, inverse = exact_pairs(A, m)[1], inverse_of(A)

    def noisy(block):
        return inverse(block) + 1e-5 * V[:, :1]

    start = np.random.default_rng(1).standard_normal((450, block_width(m)))
    state, tolerances = first_state(A, start, 0, m, inverse, None), Tolerances(1e-8, largest_eigenvalue(A))
    found = lowest_pairs(A, noisy, state, tolerances, 40, 60, lambda state, may_be_last: None, max_residual_steps=0)
    assert not found.stopped
    assert largest_angle(found.pairs.vectors, V) < 1e-5


@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("name", ["swiss_roll", "cube"])
@pytest.mark.parametrize("seed", SEEDS)
def test_errors_of_the_result_are_about_those_expected(name, seed, tol):
    A, m = lle_factor(points(name, 450, seed), 12, 1e-3), 3
    _, V = exact_pairs(A, m)
    solution = solve(A, m, tol=tol, max_residual_steps=0)
    vectors = solution.pairs.vectors
    found = np.linalg.norm(vectors - V @ (V.T @ vectors), axis=0)
    assert (found <= 3 * solution.errors + 1e-12).all()


@pytest.mark.parametrize(
    ("errors", "previous", "expected"),
    [
        ([1e-9, 5e-9], [1e-9, 1e-3], [1e-9, 5e-9]),  # all within their bounds
        ([1e-9, 4e-8], [1e-9, 1e-6], [1e-9, 8e-9]),  # only those above their bounds fall
        ([4e-8, 4e-8], [4e-6, 1e-6], [8e-9, 8e-9]),  # as the slowest
        ([4e-8, 4e-8], [1e-6, 1e-7], [4e-8, 4e-8]),  # which must fall tenfold
        ([4e-8, 4e-8], [1.0, 1.0], [4e-8, 4e-8]),  # before a second step
        ([4e-8, 4e-8], [1e-2, 1e-2], [4e-9, 4e-9]),  # at most tenfold
        ([np.nan, 4e-8], [1e-6, 1e-6], [np.nan, 8e-9]),
    ],
)
def test_errors_above_their_bounds_fall_by_half_the_digits(errors, previous, expected):
    found = expected_errors(np.array(errors), np.array(previous), np.full(2, 1e-8))
    np.testing.assert_allclose(found, expected, rtol=1e-2)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_corrections_of_the_last_step_are_used(monkeypatch, seed):
    """With its errors measured before these corrections, an iteration takes more steps."""
    A, n_steps = lle_factor(points("cube", 450, seed), 12, 1e-3), []
    for expected in (expected_errors, lambda errors, previous_errors, bounds: errors):
        monkeypatch.setattr(davidson, "expected_errors", expected)
        n_steps.append(solve(A, 3, noise=0.02, max_residual_steps=0).n_steps)
    assert n_steps[0] < n_steps[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_smoothing_makes_residuals_smaller_and_keeps_the_vectors(seed):
    A, m = lle_factor(points("swiss_roll", 450, seed), 12, 1e-3), 3
    values, V = exact_pairs(A, m)
    rough = RitzPairs(values, V + 1e-9 * np.random.default_rng(seed).standard_normal(V.shape))
    smooth = smoothed_pairs(A, rough, largest_eigenvalue(A))
    assert (residual_norms(A, smooth) < 0.2 * residual_norms(A, rough)).all()
    assert np.abs(smooth.vectors - V).max() < 1e-8


def test_continuing_after_the_limit_gives_the_same_bytes():
    A, m = roll_factor(450, 3), 2
    uninterrupted, state = solve(A, m, 24), None
    for limit in (1, 3, 4):
        states = []
        solution = solve(
            A, m, 24, limit, state, lambda state, last, states=states: states.append((copied(state), last))
        )
        assert solution.stopped
        assert solution.n_steps <= limit
        assert states[-1][1]
        state = states[-1][0]
    resumed = solve(A, m, 24, state=state)
    assert resumed.n_steps == uninterrupted.n_steps
    assert resumed.pairs.vectors.tobytes() == uninterrupted.pairs.vectors.tobytes()


def test_a_second_null_vector_ends_the_iteration():
    A = csr_array(block_diag([roll_factor(250, 3), roll_factor(250, 4)], format="csr"))
    tolerances = Tolerances(1e-8, largest_eigenvalue(A))
    solution = solve(A, 2, flat=False)
    assert tolerances.has_null_vector(solution.pairs.values)
    assert (solution.n_steps < 10, solution.stopped) == (True, False)


@pytest.mark.parametrize(("n_wanted", "width"), [(1, 4), (3, 4), (4, 8), (7, 8), (8, 12), (10, 12)])
def test_block_width_includes_guard_vectors(n_wanted, width):
    assert block_width(n_wanted) == width


@pytest.mark.parametrize("max_width", [np.inf, 11])
def test_a_state_after_growth_gives_the_same_bytes_and_growth_ends_where_the_basis_is_full(max_width):
    A, states = lle_factor(points("cube", 450, 3), 12, 1e-3), []
    growth = Growth((10, 14), lambda vectors: False)
    whole = solve(
        A, 2, 36, keep=lambda state, may_be_last: states.append(copied(state)), growth=growth, max_width=max_width
    )
    assert whole.pairs.vectors.shape == (450, 10)  # blocks of 16 columns for 14 pairs do not fit three times
    np.testing.assert_allclose(whole.pairs.values, exact_pairs(A, 10)[0], rtol=1e-9)
    grown = [state for state in states if len(state.errors) == 10]
    assert grown
    again = solve(A, 10, 36, state=grown[0], growth=growth, max_width=max_width)
    assert again.pairs.vectors.tobytes() == whole.pairs.vectors.tobytes()

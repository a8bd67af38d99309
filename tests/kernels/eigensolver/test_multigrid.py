"""Multigrid on A: cycles against dense solves, equal bytes, and what happens where it does not work."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

from lle.kernels.eigensolver import costs, multigrid_inverse, threads
from lle.kernels.eigensolver.aggregation import find_aggregates, find_bases
from lle.kernels.eigensolver.block_gmres import BlockGmres
from lle.kernels.eigensolver.multigrid import Hierarchy, MultigridError
from lle.kernels.eigensolver.multigrid_inverse import FactorMultigrid, NormalMultigrid
from lle.kernels.eigensolver.problem import Hooks
from lle.kernels.eigensolver.rayleigh_ritz import NO_GROWTH, Growth
from lle.kernels.eigensolver.threads import Threads
from tests.support import eigenproblems
from tests.support.oracle import largest_angle
from tests.support.sampled_factors import edge_factor, gram, lle_factor, order, points
from tests.support.seeds import seeds


@pytest.fixture(autouse=True)
def _several_levels(monkeypatch):
    """Levels also for matrices that a dense test can solve."""
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.COARSEST_ROWS", 60)


def problem(shape, n, seed, reg=1e-3):
    X = points(shape, n, seed)
    return lle_factor(X, 12, reg), X[order(X)] / X.std(axis=0)


def with_nearly_closed_groups(A, leak=1e-3):
    """A whose groups of 20 points, one in each hundred, have ``leak`` times their weights on points outside."""
    n = A.shape[0]
    W = csr_array(eye_array(n) - A).tocoo()
    (row, column), weights = W.coords, W.data.copy()
    group = np.where(np.arange(n) % 100 < 20, np.arange(n) // 100, -1)
    inside = group[row] >= 0
    weights[inside] = np.abs(weights[inside])
    weights[inside & (group[row] != group[column])] *= leak
    weights /= np.bincount(row, weights, n)[row]
    return csr_array(eye_array(n) - csr_array((weights, (row, column)), shape=(n, n)))


def solve(A, X, m=3, method="multigrid", max_steps=20_000, **changed):
    return eigenproblems.solve(A, m, method, n_threads=2, max_steps=max_steps, candidates=lambda: X, **changed)


@pytest.mark.parametrize("seed", seeds(19, 83, 211))
@pytest.mark.parametrize("shape", ["swiss_roll", "cube"])
def test_equals_the_singular_values_of_the_dense_matrix(shape, seed):
    A, X = problem(shape, 900, seed)
    solution = solve(A, X)
    _, singular, right = np.linalg.svd(A.toarray())
    assert solution.converged
    assert solution.stats.method == "multigrid"
    np.testing.assert_allclose(solution.eigenvalues, singular[::-1][1:4] ** 2, rtol=1e-6)
    assert largest_angle(solution.vectors, right[::-1][1:4].T) < 1e-5


@pytest.mark.parametrize("seed", seeds(19, 83, 211))
def test_converges_with_nearly_closed_groups(seed):
    """A cycle hardly changes one error in each group, so four cycles for each column did not converge in 40 steps."""
    A, X = problem("cube", 4000, seed, reg=0.1)
    A = with_nearly_closed_groups(A)
    solution, expected = solve(A, X, m=2, max_steps=15), solve(A, X, m=2, method="factored")
    assert (solution.converged, solution.stats.method) == (True, "multigrid")
    np.testing.assert_allclose(solution.eigenvalues, expected.eigenvalues, rtol=1e-8)
    assert largest_angle(solution.vectors, expected.vectors) < 1e-5


@pytest.mark.parametrize("seed", seeds(19, 83, 211))
def test_converges_in_five_dimensions_with_a_small_reg(seed):
    """With 16 cycles the solves for the left null vector did not converge."""
    X = np.random.default_rng(seed).random((1500, 5))
    A = lle_factor(X, 12, 1e-3)
    known = X[order(X)] / X.std(axis=0)
    solution, expected = solve(A, known, max_steps=30), solve(A, known, method="factored")
    assert (solution.converged, solution.stats.method) == (True, "multigrid")
    np.testing.assert_allclose(solution.eigenvalues, expected.eigenvalues, rtol=1e-6)
    assert largest_angle(solution.vectors, expected.vectors) < 1e-5


@pytest.mark.slow
def test_coordinates_save_cycles(monkeypatch):
    A, X = problem("swiss_roll", 6000, 19)
    n_cycles, cycle = [0, 0], Hierarchy.cycle

    def counted(self, rhs, *, transposed, depth=0):
        n_cycles[-1] += depth == 0
        return cycle(self, rhs, transposed=transposed, depth=depth)

    monkeypatch.setattr(Hierarchy, "cycle", counted)
    assert solve(A, X, max_steps=20).converged
    n_cycles.reverse()
    assert solve(A, np.empty((0, 0)), max_steps=20).converged
    assert n_cycles[0] < 0.8 * n_cycles[1]


def test_threads_do_not_change_the_bytes():
    A, X = problem("swiss_roll", 40_000, 19)
    block = np.random.default_rng(0).standard_normal((A.shape[0], 4))
    images = []
    for n_threads in (1, 3):
        with FactorMultigrid(A, X, n_threads) as inverse:
            inverse.prepare()
            images.append(inverse.apply(block.copy()))
    assert np.array_equal(images[0], images[1])


@pytest.mark.slow
def test_inverse_is_exact_enough_for_low_vectors():
    """T M v is near v for the lowest eigenvectors, also with a left null vector that is far from the constant."""
    A, X = problem("swiss_roll", 900, 19)
    right = np.linalg.svd(A.toarray())[2][::-1][1:5].T
    with FactorMultigrid(A, X, 1) as inverse:
        n_cycles = []
        inverse.prepare()
        for _ in range(2):
            images = inverse.apply(A.T @ (A @ right))
            n_cycles.append(inverse.n_cycles)
    assert 8 <= n_cycles[0] == n_cycles[1] <= 2 * costs.MOST_CYCLES
    assert np.abs(images - right).max() < 0.2 * np.abs(right).max()


@pytest.mark.parametrize("seed", seeds(19, 83))
def test_repeated_solves_correct_rounding_errors(monkeypatch, seed):
    """Singular values of the A of a long strip are below the rounding errors of float32."""
    rng, n = np.random.default_rng(seed), 20_000
    angle = 1.5 * np.pi * (1 + 2 * (np.arange(n) + rng.random(n)) / n)
    X = np.column_stack([angle * np.cos(angle), 0.005 * rng.random(n), angle * np.sin(angle)])
    A, X = lle_factor(X, 12, 1e-3), X[order(X)] / X.std(axis=0)
    repeated = solve(A, X, 7, max_steps=8)
    assert repeated.converged
    monkeypatch.setattr(multigrid_inverse, "REPEATED_CYCLES", 0)
    assert solve(A, X, 7, max_steps=8).stats.n_steps > repeated.stats.n_steps


def counted_solves(monkeypatch):
    """A list with an entry for each Krylov space."""
    begun = []

    class Counted(BlockGmres):
        def __init__(self, *arguments):
            begun.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr(multigrid_inverse, "BlockGmres", Counted)
    return begun


@pytest.mark.parametrize(
    ("rough", "reduced", "cycles", "n_solves"),
    [(np.inf, 1.0, 64, 1), (-1.0, 0.0, 64, 1), (-1.0, 1.0, 0, 1), (-1.0, 1.0, 13, 2), (-1.0, 1.0, 24, 3)],
)
def test_solves_are_repeated_while_they_are_rough_and_reduce(monkeypatch, rough, reduced, cycles, n_solves):
    """A solve has all its cycles: 12, 11 if it is a repeat, which uses the cycle for the last residual."""
    begun = counted_solves(monkeypatch)
    monkeypatch.setattr(multigrid_inverse, "SOLVED", 0.0)
    monkeypatch.setattr(multigrid_inverse, "ROUGH", rough)
    monkeypatch.setattr(multigrid_inverse, "REDUCED", reduced)
    monkeypatch.setattr(multigrid_inverse, "REPEATED_CYCLES", cycles)
    A, X = problem("swiss_roll", 5000, 19)
    with FactorMultigrid(A, X, 1) as inverse:
        inverse.prepare(12)
        begun.clear()
        inverse.apply(np.random.default_rng(0).standard_normal((5000, 4)))
    assert len(begun) == 2 * n_solves
    assert inverse.n_cycles == 2 * (1 + 11 * n_solves)


def test_the_error_of_a_repeat_is_relative_to_the_whole_solution(monkeypatch):
    error, given = BlockGmres.error, []
    monkeypatch.setattr(BlockGmres, "error", lambda self, lengths: given.append(lengths.min()) or error(self, lengths))
    monkeypatch.setattr(multigrid_inverse, "ROUGH", -1.0)
    monkeypatch.setattr(multigrid_inverse, "REPEATED_CYCLES", 9)
    A, X = problem("swiss_roll", 5000, 19)
    with FactorMultigrid(A, X, 1) as inverse:
        inverse.prepare()
        given.clear()
        inverse.apply(np.random.default_rng(0).standard_normal((5000, 4)))
    assert given[0] == 0
    assert max(given) > 10, "the correction is much shorter than the solution"


def test_solves_go_on_until_their_estimated_errors_are_small(monkeypatch):
    A, X = problem("cube", 5000, 19)
    monkeypatch.setattr(multigrid_inverse, "SOLVED", 0.5)
    monkeypatch.setattr(multigrid_inverse, "LOCALISED", np.inf)
    n_steps = []
    for inside, outside in ((np.inf, np.inf), (np.inf, 0.0), (0.0, np.inf)):
        monkeypatch.setattr(multigrid_inverse, "ACCURATE", inside)
        monkeypatch.setattr(multigrid_inverse, "ROUGH", outside)
        n_steps.append(solve(A, X, max_steps=60).stats.n_steps)
    assert max(n_steps[1:]) < n_steps[0]


@pytest.mark.slow
@pytest.mark.parametrize("fill", [1.0, 0.01])
def test_cycles_are_transposes_of_each_other(fill, monkeypatch):
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.MOST_FILL", fill)
    A, X = problem("swiss_roll", 900, 19)
    known = np.column_stack([np.ones(900), X]) if fill == 1.0 else np.ones((900, 1))
    with Threads(2) as threads:
        hierarchy = Hierarchy(csr_array(A.astype(np.float32)), known, threads, symmetric=False)
        assert (hierarchy.levels[0].smoother.omega_p > 0) == (fill == 1.0)
        unit = np.eye(900, dtype=np.float32)
        whole, transposed = hierarchy.cycle(unit, transposed=False), hierarchy.cycle(unit, transposed=True)
    np.testing.assert_allclose(transposed, whole.T, atol=1e-5 * np.abs(whole).max())


def test_aggregates_cover_all_rows_and_bases_are_orthonormal():
    A, X = problem("swiss_roll", 5000, 19)
    known = np.column_stack([np.ones(len(X)), X])
    with Threads(2) as threads:
        found = find_bases(*find_aggregates(A, 1, 20, 3), known, 3, threads)
    sizes = np.diff(found.aggregates.starts)
    assert sizes.sum() == 5000
    assert sizes.min() >= 3
    P0 = found.aggregates.matrix()
    np.testing.assert_allclose((P0.T @ P0).toarray(), np.eye(P0.shape[1]), atol=1e-5)
    np.testing.assert_allclose(P0 @ found.candidates[:, 0], 1.0, atol=1e-5)


def test_hierarchy_has_few_more_entries_than_the_matrix():
    A, X = problem("swiss_roll", 20_000, 19)
    with FactorMultigrid(A, X, 2) as inverse:
        hierarchy = inverse.hierarchy
    rows = [level.matrix.shape[0] for level in hierarchy.levels]
    assert rows[0] == 20_000
    assert all(after < 0.3 * before for before, after in pairwise(rows))
    assert 1.0 < hierarchy.complexity < 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symmetric", "fill", "n_candidates"), [(False, 2, 3), (True, 2, 3), (False, 0.01, 0), (True, 0.01, 0)]
)
def test_each_level_is_the_galerkin_product_of_the_one_before(symmetric, fill, n_candidates, monkeypatch):
    """Computed for some rows at a time, which changes no byte."""
    A, X = problem("swiss_roll", 2000, 19)
    X = X[:, :n_candidates]
    levels = []
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.MOST_FILL", fill)
    for rows in (8192, 7):
        monkeypatch.setattr(threads, "PRODUCT_ROWS", rows)
        monkeypatch.setattr(threads, "PRODUCT_PARTS", 10**6)
        with NormalMultigrid(gram(A), X, None, 2) if symmetric else FactorMultigrid(A, X, 2) as inverse:
            levels.append(inverse.hierarchy.levels)
    for level, other in zip(*levels, strict=True):
        np.testing.assert_array_equal(level.matrix.data, other.matrix.data)
        np.testing.assert_array_equal(level.matrix.indices, other.matrix.indices)
    smooths = [(level.smoother.omega_r > 0, level.smoother.omega_p > 0) for level in levels[0]]
    assert smooths == ([(True, True)] * 2 if fill > 1 else [(True, symmetric), (False, False)])
    for level, following in pairwise(levels[0]):
        B, P0 = level.matrix.toarray().astype(float), level.aggregates.matrix().toarray().astype(float)
        R = P0.T @ (np.eye(len(B)) - level.smoother.omega_r * B)
        expected = R @ B @ (np.eye(len(B)) - level.smoother.omega_p * B) @ P0
        np.testing.assert_allclose(following.matrix.toarray(), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("n_candidates", [3, 0])
@pytest.mark.parametrize("seed", seeds(19, 83, 211))
def test_converges_where_full_levels_are_not_smoothed(seed, n_candidates, monkeypatch):
    A, X = problem("cube", 2500, seed)
    expected = solve(A, X)
    X = X[:, :n_candidates]
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.MOST_FILL", 0.01)
    with FactorMultigrid(A, X, 1) as inverse:
        smoothers = [level.smoother for level in inverse.hierarchy.levels]
    assert [each.omega_p > 0 for each in smoothers] == [n_candidates > 0, False][: len(smoothers)]
    assert [each.omega_r > 0 for each in smoothers] == [True, False][: len(smoothers)]
    solution = solve(A, X)
    assert solution.converged
    np.testing.assert_allclose(solution.eigenvalues, expected.eigenvalues, rtol=1e-8)


def test_solves_for_the_left_null_vector_end_when_the_next_would_change_little(monkeypatch):
    """A solve is not repeated for its residual here, because the next solve is for that."""
    begun = counted_solves(monkeypatch)
    monkeypatch.setattr(multigrid_inverse, "ROUGH", -1.0)
    A, X = problem("swiss_roll", 5000, 19)
    for error, n_solves in ((2.0, 1), (1e-5, 2), (1e-8, 3)):
        begun.clear()
        monkeypatch.setattr(multigrid_inverse, "LEFT_ERROR", error)
        FactorMultigrid(A, X, 1).prepare()
        assert len(begun) == n_solves


def test_slow_solves_are_not_blamed_on_the_spectrum(monkeypatch):
    A, X = problem("swiss_roll", 900, 19)
    monkeypatch.setattr(multigrid_inverse, "LEFT_ERROR", 0.0)
    with pytest.raises(MultigridError, match=r"leave an error of \de-\d\d$"):
        FactorMultigrid(A, X, 1).prepare()


def test_a_spectrum_on_both_sides_of_zero_is_noticed():
    A, X = problem("cube", 900, 19)
    shifted = csr_array(A - 0.4 * csr_array(np.eye(900) - np.ones((900, 900)) / 900))
    with pytest.raises(MultigridError, match="both sides of zero"):
        FactorMultigrid(shifted, X, 1).prepare()


def test_groups_that_hardly_leave_themselves_are_noticed():
    rng, X = np.random.default_rng(19), points("cube", 900, 19)
    group = np.minimum(np.arange(900) // 30, 15)  # 15 groups of 30 points, and 450 others
    leaving = np.append(np.geomspace(1e-1, 1e-7, 15), 0.05)[group]
    W = np.zeros((900, 900))
    for i in range(900):
        inside = np.setdiff1d(np.flatnonzero(group == group[i]), i)
        outside = np.flatnonzero((group == 15) != (group[i] == 15))
        W[i, rng.choice(inside, 12, replace=False)] = (1 - leaving[i]) / 12
        W[i, rng.choice(outside)] = leaving[i]
    A = np.eye(900) - W
    assert np.linalg.eigvals(A).real.min() > -1e-12
    with pytest.raises(MultigridError, match="groups of points have nearly all their weights among themselves"):
        FactorMultigrid(csr_array(A), X, 1).prepare()


def test_another_method_is_used_where_multigrid_fails(monkeypatch):
    def fail(*arguments):
        raise MultigridError("multigrid does not converge")

    monkeypatch.setattr(FactorMultigrid, "_left_null_vector", fail)
    A, X = problem("swiss_roll", 900, 19)
    solution = solve(A, X)
    assert solution.converged
    assert solution.stats.method == "multigrid on M"
    assert "multigrid does not converge" in solution.stats.requested_failed


def test_a_ring_has_the_constant_as_left_null_vector():
    """A' 1 is exactly zero, so the first solve for the left null vector has a right-hand side of zeros."""
    n = 1200
    index = np.arange(n)
    W = csr_array((np.full(2 * n, 0.5), (np.tile(index, 2), np.r_[(index + 1) % n, (index - 1) % n])), shape=(n, n))
    angle = 2 * np.pi * index / n
    solution = solve(csr_array(eye_array(n) - W), np.column_stack([np.cos(angle), np.sin(angle)]), m=2, max_steps=40)
    assert solution.converged
    np.testing.assert_allclose(solution.eigenvalues, (1 - np.cos(angle[1])) ** 2, rtol=1e-6)


@pytest.mark.parametrize(("square", "max_memory", "m"), [(True, 1_100_000, 3), (True, 1_900_000, 7), (False, 2**24, 3)])
def test_continued_from_a_saved_state_gives_the_same_bytes(square, max_memory, m):
    A, X = problem("cube", 1200, 19) if square else (edge_factor(points("cube", 1200, 19), 8), np.empty((0, 0)))
    states, kept, memory = [], [], {"max_memory": max_memory, "m": m}
    whole = solve(A, X, hooks=Hooks(keep_state=lambda name, state, last: states.append(copied(state))), **memory)
    assert len(states) > 1
    assert whole.stats.n_solves == (m + 1) * whole.stats.n_steps
    hooks = Hooks(load_state=lambda name: states[-1], keep_state=lambda name, state, last: kept.append(state.n_steps))
    continued = solve(A, X, hooks=hooks, **memory)
    assert kept[0] == states[-1].n_steps > 1
    assert continued.vectors.tobytes() == whole.vectors.tobytes()


def test_no_solve_has_a_wider_block_than_planned(monkeypatch):
    solved, widths = FactorMultigrid._solve, []
    monkeypatch.setattr(
        FactorMultigrid, "_solve", lambda self, rhs, **kind: widths.append(rhs.shape[1]) or solved(self, rhs, **kind)
    )
    A, X = problem("cube", 1200, 19)
    assert solve(A, X, max_memory=1_800_000).converged
    assert max(widths) == 4


@pytest.mark.parametrize(
    ("square", "n_dimensions"),
    [(True, 8), pytest.param(True, 2, marks=pytest.mark.slow), pytest.param(False, 2, marks=pytest.mark.slow)],
)
def test_the_planned_bytes_are_enough_and_mostly_used(monkeypatch, square, n_dimensions):
    """One more block of vectors would exceed them."""
    monkeypatch.setattr(multigrid_inverse, "SOLVED", 0.0)  # solves have all their cycles, and are repeated
    monkeypatch.setattr(multigrid_inverse, "ROUGH", -1.0)
    for n in (900, 8000):  # the first solve may compile, which takes memory too
        X = points("swiss_roll", n, 19) if n_dimensions == 2 else np.random.default_rng(1).random((n, n_dimensions))
        A, known = (lle_factor(X, 12, 0.1), X[order(X)]) if square else (edge_factor(X, 8), X)
        least = costs.multigrid_size(A, 2, 1, 0 if square else gram(A).nnz)[2]
        solution, peak = solve_with_peak(A, known / known.std(axis=0), int(1.3 * least))
    assert solution.converged
    assert 0.85 * solution.stats.predicted_bytes < peak <= 0.97 * solution.stats.predicted_bytes


@pytest.mark.parametrize(
    ("m", "growth", "memory"),
    [(7, NO_GROWTH, (2_800_000, 1_600_000)), (3, Growth((10, 16), lambda vectors: False), (4_000_000, 2_800_000))],
)
def test_a_state_from_a_run_with_more_memory_is_not_used(m, growth, memory):
    A, X = problem("cube", 1200, 19)
    states, kept = [], []
    whole = Hooks(keep_state=lambda name, state, last: states.append(copied(state)))
    solve(A, X, m, max_memory=memory[0], hooks=whole, growth=growth)
    hooks = Hooks(load_state=lambda name: states[-1], keep_state=lambda name, state, last: kept.append(state.n_steps))
    assert solve(A, X, m, max_memory=memory[1], hooks=hooks, growth=growth).converged
    assert kept[0] == 1 < states[-1].n_steps


def test_solves_for_the_left_null_vector_have_more_cycles_than_prepared(monkeypatch):
    monkeypatch.setattr(multigrid_inverse, "SOLVED", 0.0)
    monkeypatch.setattr(multigrid_inverse, "REPEATED_CYCLES", 0)
    A, X = problem("swiss_roll", 900, 19)
    with FactorMultigrid(A, X, 1) as inverse:
        inverse.prepare(most_cycles=5)
        assert inverse.n_cycles > 0
        assert inverse.n_cycles % multigrid_inverse.LEFT_CYCLES == 0
        inverse.apply(np.random.default_rng(3).standard_normal((900, 4)))
        assert inverse.n_cycles == 2 * 5


def solve_with_peak(A, known, max_memory):
    """The solution, and the largest bytes of A and all arrays."""
    tracemalloc.start()
    try:
        solution = solve(A, known, m=2, max_memory=max_memory)
        return solution, tracemalloc.get_traced_memory()[1] + A.data.nbytes + A.indices.nbytes + A.indptr.nbytes
    finally:
        tracemalloc.stop()


def test_cycles_on_m_are_symmetric_and_positive_definite():
    A, X = problem("swiss_roll", 900, 19)
    M = gram(A)
    with NormalMultigrid(M, X, None, 1) as inverse:
        block = np.random.default_rng(3).standard_normal((900, 40))
        block -= block.mean(axis=0)
        cycles = inverse.hierarchy.cycle(block, transposed=False)
        product = block.T @ cycles
    np.testing.assert_allclose(product, product.T, atol=1e-8 * np.abs(product).max())
    assert np.linalg.eigvalsh(product).min() > 0


def test_at_its_limit_it_returns_its_best_vectors():
    A, X = problem("swiss_roll", 900, 19)
    solution = solve(A, X, max_steps=2)
    assert not solution.converged
    assert "stopped at the limit of 2 steps" in solution.stats.reason
    whole = solve(A, X)
    assert solve(A, X, start=whole.vectors).stats.n_steps < whole.stats.n_steps


def copied(state):
    return state._replace(**{name: np.array(getattr(state, name)) for name in ("values", "vectors", "errors")})

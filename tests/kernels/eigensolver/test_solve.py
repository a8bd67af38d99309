import re
import weakref
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.manifold import locally_linear_embedding

from lle.core.errors import BoundsNotMet, ConfigError, InputError, NotEnoughMemory
from lle.core.machine import library_environment
from lle.kernels.eigensolver import costs, methods, pardiso, rayleigh_ritz
from lle.kernels.eigensolver import problem as problem_module
from lle.kernels.eigensolver import solve as solve_module
from lle.kernels.eigensolver.pardiso import FactorizationError
from lle.kernels.eigensolver.problem import Hooks, Outcome
from lle.kernels.eigensolver.pseudo_inverse import PinnedLU
from lle.kernels.eigensolver.rayleigh_ritz import Growth, RitzPairs, Tolerances
from lle.kernels.eigensolver.solvers import SOLVERS
from tests.support import sampled_factors
from tests.support.eigenproblems import solve
from tests.support.oracle import exact_pairs, largest_angle
from tests.support.sampled_factors import (
    edge_factor,
    gram,
    lle_factor,
    points,
    roll_coordinates,
    roll_factor,
    roll_with_outliers,
    separate_rolls,
)
from tests.support.seeds import seeds

SEEDS = seeds(19, 83)
METHODS = ("factored", "shift_invert", "multigrid")


def check(pairs, A, m):
    """Properties of every result, for any method."""
    n = A.shape[1]
    V, values = pairs.vectors, pairs.eigenvalues
    assert V.shape == (n, m)
    assert values.shape == pairs.residuals.shape == pairs.vector_errors.shape == (m,)
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(V.T @ V, np.eye(m), atol=1e-12)
    np.testing.assert_allclose(V.sum(axis=0), 0, atol=1e-12)
    rounding = np.finfo(float).eps * (10 / values[0]) ** 0.5  # of A v, relative to its length; 10: near lambda_max
    np.testing.assert_allclose(np.square(A @ V).sum(axis=0), values, rtol=max(1e-6, rounding))
    residuals = np.linalg.norm(A.T @ (A @ V) - V * values, axis=0) / values
    np.testing.assert_allclose(pairs.residuals, residuals, rtol=0.5, atol=1e-9)
    at = np.abs(V).argmax(axis=0)
    assert (V[at, np.arange(m)] > 0).all()


def solve_as_dense(A, m, method, rtol=1e-8):
    """Solve, and compare with the dense SVD."""
    values, V = exact_pairs(A, m)
    solution = solve(A, m, method)
    check(solution, A, m)
    assert solution.converged
    np.testing.assert_allclose(solution.eigenvalues, values, rtol=rtol)
    assert largest_angle(solution.vectors, V) < 1e-4
    return solution


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("swiss_roll", 19),
        pytest.param("s_curve", 83, marks=pytest.mark.slow),
        pytest.param("sheet", 19, marks=pytest.mark.slow),
        ("cube", 83),
    ],
)
def test_every_method_finds_the_dense_vectors(method, name, seed):
    solution = solve_as_dense(lle_factor(points(name, 480, seed), 12, 1e-3), 3, method)
    assert solution.stats.method.startswith(method)  # multigrid works on M without coordinates
    assert solution.stats.reason.startswith(method)


def test_comparison_detects_another_matrix():
    A = roll_factor(480, 19)
    B = A.copy()
    B.data *= 1 + 1e-4 * np.random.default_rng(1).standard_normal(B.nnz)
    B.setdiag(B.diagonal() - B.sum(axis=1))  # rows sum to 0 again
    of_A, of_B = solve(A, 3, "factored"), solve(B, 3, "factored")
    assert largest_angle(of_A.vectors, of_B.vectors) > 1e-2


@pytest.mark.parametrize("method", METHODS)
def test_double_eigenvalues_are_both_found(method):
    solution = solve_as_dense(lle_factor(points("circle", 500, 0), 12, 1e-3), 4, method)
    np.testing.assert_allclose(solution.eigenvalues[[1, 3]], solution.eigenvalues[[0, 2]], rtol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_agrees_with_scikit_learn(seed):
    X = points("s_curve", 600, seed)
    A, order = lle_factor(X, 12, 1e-3), sampled_factors.order(X)
    reference, _ = locally_linear_embedding(
        X, n_neighbors=12, n_components=2, reg=1e-3, eigen_solver="dense", random_state=seed
    )
    assert largest_angle(solve(A, 2, "auto").vectors, reference[order]) < 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_small_eigenvalues_are_exact_although_m_has_lost_digits(seed):
    A = roll_factor(20_000, seed)
    exact, through_m = solve(A, 2, "factored"), solve(A, 2, "shift_invert")
    check(exact, A, 2)
    assert exact.converged
    assert through_m.converged
    assert exact.stats.n_refinements >= 1
    assert through_m.stats.n_refinements >= 1
    np.testing.assert_allclose(through_m.eigenvalues, exact.eigenvalues, rtol=1e-9)
    assert largest_angle(through_m.vectors, exact.vectors) < 1e-5
    # the entries of M in float64 have errors of 1e-16, and so have its eigenvalues
    M = gram(A)
    of_m = np.einsum("ij,ij->j", exact.vectors, M @ exact.vectors)
    assert abs(of_m[0] / exact.eigenvalues[0] - 1) > 2e-9


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(10, 1), (10, 9), (11, 3), (30, 2), (150, 5), (400, 2)])
def test_small_problems_are_solved_dense(n, m):
    A = lle_factor(points("swiss_roll", n, n), min(8, n - 1), 1e-3)
    assert solve_as_dense(A, m, "multigrid", rtol=1e-7).stats.method == "dense"


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_fifty_vectors(method):
    solve_as_dense(roll_factor(500, 5), 50, method)


def test_fifty_vectors_of_two_thousand_points():
    A = roll_factor(2000, 5)
    actual, more = solve(A, 50, "auto"), solve(A, 56, "auto")
    check(actual, A, 50)
    assert actual.converged
    np.testing.assert_allclose(actual.eigenvalues, more.eigenvalues[:50], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["shift_invert", "multigrid", pytest.param("auto", marks=pytest.mark.slow)])
def test_factors_with_more_rows_than_columns(method):
    solve_as_dense(edge_factor(points("swiss_roll", 450, 5), 8), 3, method, rtol=1e-9)


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_equal_input_gives_equal_bytes(method):
    A = roll_factor(600, 5)
    data = A.data.copy()
    np.random.seed(4)  # noqa: NPY002 (the answer must not depend on the global state)
    first = solve(A, 3, method)
    np.random.seed(5)  # noqa: NPY002
    unaligned = np.empty(8 * A.nnz + 8, np.uint8)[8:].view(np.float64)
    unaligned[:] = A.data
    second = solve(csr_array((unaligned, A.indices, A.indptr), shape=A.shape), 3, method)
    assert first.vectors.tobytes() == second.vectors.tobytes()
    assert first.eigenvalues.tobytes() == second.eigenvalues.tobytes()
    np.testing.assert_array_equal(A.data, data)


@pytest.mark.skipif(not pardiso.is_available(), reason="only PARDISO analyses before it factors")
@pytest.mark.parametrize("method", ["factored", "shift_invert"])
def test_symbolic_analysis_is_done_once_and_gives_the_same_bytes(monkeypatch, method):
    A, analyses, searched, analyse = roll_factor(600, 5), {}, [], pardiso.Pardiso._analyse

    def count(self, matrix, dtype, permutation=None):
        searched.append(permutation is None)
        return analyse(self, matrix, dtype, permutation)

    monkeypatch.setattr(pardiso.Pardiso, "_analyse", count)
    first, second = (solve(A, 3, method, analyses=analyses) for _ in range(2))
    assert searched == [True, False]
    assert first.vectors.tobytes() == second.vectors.tobytes()
    assert first.stats == second.stats


def test_default_pin_is_in_the_closed_class():
    A, _ = roll_with_outliers(800, 4, 5)
    solution = solve(A[::-1][:, ::-1], 2, "factored")  # the transient points come first
    assert solution.converged
    assert largest_angle(solution.vectors[::-1], solve(A, 2, "multigrid").vectors) < 1e-4


@pytest.fixture
def failing_lu(monkeypatch):
    """Every LU of A fails until the end of the context."""

    def fail(inverse):
        raise FactorizationError("I - W is singular to rounding")

    with monkeypatch.context() as context:
        context.setattr(PinnedLU, "factor", fail)
        yield context


def test_method_that_cannot_factor_is_replaced_by_the_next_one_with_the_same_result(failing_lu):
    A = roll_factor(800, 5)
    replaced = solve(A, 2, "factored")
    assert replaced.stats.method == "shift_invert"
    assert "singular" in replaced.stats.requested_failed
    failing_lu.undo()
    expected = solve(A, 2, "factored")
    assert expected.stats.requested_failed == ""
    np.testing.assert_allclose(replaced.eigenvalues, expected.eigenvalues, rtol=1e-8)
    assert largest_angle(replaced.vectors, expected.vectors) < 1e-6


def test_weights_that_reproduce_all_points_are_refused_with_the_key():
    """With six neighbours in three dimensions and a tiny reg the coordinates of the input are null vectors of M."""
    with pytest.raises(InputError, match=r"weights\.reg is too small.*raise weights\.reg"):
        solve(lle_factor(points("s_curve", 810, 3), 6, 1e-12), 2, "auto")


def test_m_below_rounding_errors_is_factored_as_a():
    """With a tiny reg the lowest eigenvalues of M are below its rounding errors, but those of A are not."""
    A = lle_factor(points("circle", 810, 3), 6, 1e-12)
    solution = solve(A, 2, "shift_invert")
    assert solution.stats.method == "factored"
    assert "not positive definite" in solution.stats.requested_failed
    assert "not positive definite" in solution.stats.reason
    check(solution, A, 2)
    np.testing.assert_allclose(solution.eigenvalues, exact_pairs(A, 2)[0], rtol=1e-3)


def test_auto_uses_shift_invert_where_the_lu_fails(failing_lu):
    A = roll_factor(800, 5)
    solution = solve(A, 2, "auto")
    assert solution.converged
    assert solution.stats.method == "shift_invert"
    assert "singular" in solution.stats.reason
    failing_lu.undo()
    assert largest_angle(solution.vectors, solve(A, 2, "factored").vectors) < 1e-4


@pytest.mark.parametrize(
    ("n", "n_rolls"),
    [(150, 2), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((500, 2), (300, 4))), (50, 12)],
)
@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("pin", [pytest.param(None, marks=pytest.mark.slow), 3])
def test_more_null_vectors_than_the_constant_are_never_returned(n, n_rolls, method, pin):
    A = separate_rolls(n, n_rolls, 5)
    with pytest.raises((BoundsNotMet, InputError, FactorizationError), match="closed class"):
        solve(A, 2, method, pin=pin, max_steps=20)


@pytest.mark.parametrize("method", METHODS)
def test_ritz_pairs_do_not_depend_on_the_rows_of_each_qr(monkeypatch, method):
    A = roll_factor(700, 5)
    at_once = solve(A, 3, method)
    monkeypatch.setattr(rayleigh_ritz, "ROWS_AT_ONCE", 97)
    check(in_parts := solve(A, 3, method), A, 3)
    np.testing.assert_allclose(in_parts.eigenvalues, at_once.eigenvalues, rtol=1e-9)
    assert largest_angle(in_parts.vectors, at_once.vectors) < 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_too_little_memory_is_refused_with_both_numbers(method):
    with pytest.raises(NotEnoughMemory, match=rf"{method} needs .*0\.001 GiB \(1,048,576 bytes\).*max_memory"):
        solve(roll_factor(3000, 5), 2, method, max_memory=2**20)


def least_memory(A, m, method):
    """The bytes that the error for too little memory names."""
    with pytest.raises(NotEnoughMemory) as error:
        solve(A, m, method, max_memory=2**21)
    return int(re.search(r"needs .*?\(([\d,]+) bytes\)", str(error.value))[1].replace(",", ""))


@pytest.mark.parametrize("m", [2, 60])
@pytest.mark.parametrize("method", ["factored", "shift_invert"])
def test_the_memory_that_an_error_asks_for_is_enough_and_no_more(method, m):
    A = roll_factor(3000, 5)
    n_bytes = least_memory(A, m, method)
    assert solve(A, m, method, max_memory=n_bytes).converged
    with pytest.raises(NotEnoughMemory):
        solve(A, m, method, max_memory=n_bytes - 1)


def test_auto_uses_multigrid_if_the_factor_does_not_fit(monkeypatch):
    A, coordinates = roll_factor(3000, 5), roll_coordinates(3000, 5)
    monkeypatch.setattr(costs, "MULTIGRID_POINTS", 1000)
    monkeypatch.setattr(costs, "HIERARCHY_BYTES", 0)  # of so few points a factor is the smallest
    unlimited = solve(A, 2, "auto")
    assert unlimited.stats.method == "factored"
    assert unlimited.stats.factor_nnz > A.nnz
    allowed = least_memory(A, 2, "factored") - 1
    limited = solve(A, 2, "auto", max_memory=allowed, candidates=lambda: coordinates)
    assert (limited.stats.method, limited.converged) == ("multigrid", True)
    assert limited.stats.predicted_bytes <= allowed
    assert "factored needs" in limited.stats.reason
    assert "eigensolver.method" not in limited.stats.reason  # advice that the run has followed by itself
    assert largest_angle(limited.vectors, unlimited.vectors) < 1e-4
    with pytest.raises(NotEnoughMemory, match=r"factored needs.*multigrid on M needs.*; raise eigensolver.max_memory$"):
        solve(A, 2, "auto", max_memory=2**17)


@pytest.mark.skipif(not pardiso.is_available(), reason="SuperLU has double precision only")
@pytest.mark.parametrize("seed", SEEDS)
def test_factor_that_fits_only_in_single_precision_is_used(seed):
    A = roll_factor(6000, seed)
    double = solve(A, 3, "auto")
    limit = double.stats.predicted_bytes - 4 * A.nnz
    single = solve(A, 3, "auto", max_memory=limit)
    assert (double.stats.method, single.stats.method) == ("factored", "factored")
    assert "single precision" in single.stats.reason
    assert "single precision" not in double.stats.reason
    assert single.stats.predicted_bytes <= limit
    check(single, A, 3)
    np.testing.assert_allclose(single.eigenvalues, double.eigenvalues, rtol=1e-9)
    assert largest_angle(single.vectors, double.vectors) < 1e-5


@pytest.mark.skipif(not pardiso.is_available(), reason="SuperLU has double precision only")
def test_another_method_replaces_an_lu_in_single_precision_that_is_too_rough():
    A = lle_factor(points("swiss_roll", 4000, 5), 12, 1e-7)
    limit = solve(A, 2, "auto").stats.predicted_bytes - 4 * A.nnz
    with pytest.raises(NotEnoughMemory, match="single precision is not accurate enough"):
        solve(A, 2, "auto", max_memory=limit)


def test_auto_starts_the_next_method_from_unconverged_vectors(monkeypatch):
    A = roll_factor(600, 5)

    def spoiled(problem):
        solution = methods.factored(problem)
        V = solution.pairs.vectors + 1e-4 * np.random.default_rng(3).standard_normal(solution.pairs.vectors.shape)
        V = np.linalg.qr(V - V.mean(axis=0))[0]
        return solution._replace(pairs=RitzPairs(np.square(A @ V).sum(axis=0), V), errors=np.full(2, 1e-4))

    monkeypatch.setitem(SOLVERS, "factored", spoiled)
    alone = solve(A, 2, "factored")
    assert not alone.converged
    solution = solve(A, 2, "auto")
    assert solution.converged
    assert solution.stats.method == "shift_invert"
    assert "factored did not converge (vector errors 1e-04)" in solution.stats.reason


def predict(monkeypatch, patience=0.0, **constants):
    """Predict 4 s for each factorization."""
    predictions = {"patience_seconds": lambda *_, **__: patience, "factor_seconds": lambda *_: 4.0}
    for name, value in (predictions | constants).items():
        monkeypatch.setattr(costs, name, value)


def singular_at_last(problem):
    if problem.time_limit.seconds == 0:
        return methods.shift_invert(problem)
    raise FactorizationError("zero pivot")


def test_auto_tries_multigrid_before_a_long_factorization(monkeypatch):
    A, begun = edge_factor(points("swiss_roll", 600, 5), 8), []
    hooks = Hooks(begin=begun.append)
    predict(monkeypatch)
    solution = solve(A, 2, "auto", hooks=hooks, max_steps=2)  # too few to converge
    assert begun == ["shift_invert", "multigrid on M", "shift_invert"]
    assert (solution.stats.method, solution.converged) == ("shift_invert", True)
    assert "multigrid on M did not converge (vector errors" in solution.stats.reason
    begun.clear()
    solution = solve(A, 2, "auto", hooks=hooks)
    assert begun == ["shift_invert", "multigrid on M"]
    assert solution.converged
    assert "shift_invert would take about 4 s, so multigrid on M was tried first" in solution.stats.reason


def test_auto_ends_multigrid_if_its_other_steps_take_longer_than_the_factorization(monkeypatch):
    A, begun = edge_factor(points("swiss_roll", 600, 5), 8), []
    hooks = Hooks(begin=begun.append)
    predict(monkeypatch, LEAST_STEPS=2)
    unlimited = solve(A, 2, "auto", hooks=hooks)
    monkeypatch.setattr(costs, "cycle_seconds", lambda *_, **__: 1.1)  # 4.4 s or more a step
    monkeypatch.setattr(costs, "SOLVE_CYCLES", 1)  # so that its hierarchy is not too large for all steps
    begun.clear()
    ended = solve(A, 2, "auto", hooks=hooks)
    assert begun == ["shift_invert", "multigrid on M", "shift_invert"]
    assert (unlimited.stats.method, ended.stats.method, ended.converged) == ("multigrid on M", "shift_invert", True)
    assert "multigrid on M did not converge (vector errors" in ended.stats.reason
    begun.clear()
    alone = solve(A, 2, "multigrid", hooks=hooks)  # as requested, however long it takes
    assert (begun, alone.converged) == (["multigrid on M"], True)
    monkeypatch.setitem(SOLVERS, "shift_invert", singular_at_last)
    begun.clear()
    continued = solve(A, 2, "auto", hooks=hooks)
    assert begun == ["shift_invert", "multigrid on M", "shift_invert", "multigrid on M"]
    assert (continued.stats.method, continued.converged) == ("multigrid on M", True)
    assert "zero pivot" in continued.stats.reason


@pytest.mark.skipif(not pardiso.is_available(), reason="without PARDISO no matrix is judged by pieces")
@pytest.mark.parametrize(
    ("exact", "overestimate", "method"),
    [(1e9, 20, "multigrid"), (4.0, 20, "factored"), pytest.param(4.0, 1e-3, "multigrid", id="hopeless by pieces")],
)
def test_pieces_put_off_a_factorization_and_only_its_analysis_ends_multigrid(monkeypatch, exact, overestimate, method):
    A, begun, analysed = roll_factor(600, 5), [], []
    given = {"candidates": lambda: roll_coordinates(600, 5)}
    predict(monkeypatch, patience=3.0, MIN_ROWS=600, MIN_PIECE=200, MULTIGRID_POINTS=500)
    monkeypatch.setattr(solve_module, "exact_seconds", lambda problem, name: analysed.append(name) or exact)
    assert solve(A, 2, "auto", hooks=Hooks(begin=begun.append), **given).stats.method == "multigrid"
    assert (begun, analysed) == (["factored", "multigrid"], []), "multigrid was fast enough"
    monkeypatch.setattr(costs, "LEAST_STEPS", 2)
    monkeypatch.setattr(costs, "SOLVE_CYCLES", 1)  # so that its hierarchy is not too large for all steps
    monkeypatch.setattr(costs, "cycle_seconds", lambda *_, **__: 0.012)  # longer than a twentieth of the estimate
    assert solve(A, 2, "auto", **given).stats.method == "multigrid"
    assert analysed == [], "an analysis would take as long"
    monkeypatch.setattr(costs, "cycle_seconds", lambda *_, **__: 1.1)  # 4.4 s or more a step
    monkeypatch.setattr(problem_module, "OVERESTIMATE", overestimate)
    solution = solve(A, 2, "auto", **given)
    assert (solution.stats.method, solution.converged) == (method, True)
    assert analysed == (["factored"] if overestimate > 1 else [])
    assert "factored would take about 4 s, judged by pieces of I - W" in solution.stats.reason


def test_a_long_cholesky_factor_is_judged_by_its_analysis(monkeypatch):
    """Its analysis would not fit beside multigrid on M."""
    predict(monkeypatch, patience=3.0, MIN_ROWS=600, MIN_PIECE=200)
    reason = solve(edge_factor(points("swiss_roll", 600, 5), 8), 2, "auto").stats.reason
    assert "shift_invert would take about 4 s, so multigrid on M was tried first" in reason


def test_multigrid_with_a_large_hierarchy_gives_way_to_a_factorization(monkeypatch):
    A, begun = edge_factor(points("swiss_roll", 600, 5), 8), []
    predict(monkeypatch, TYPICAL_COMPLEXITY=1e-6)
    solution = solve(A, 2, "auto")
    assert (solution.stats.method, solution.converged) == ("shift_invert", True)
    assert re.search(
        r"multigrid on M with a hierarchy .* would take longer than a factorization of 4 s", solution.stats.reason
    )
    assert solve(A, 2, "multigrid").stats.method == "multigrid on M", "as requested, however long it takes"
    monkeypatch.setitem(SOLVERS, "shift_invert", singular_at_last)
    solution = solve(A, 2, "auto", hooks=Hooks(begin=begun.append))
    assert begun == ["shift_invert", "multigrid on M", "shift_invert", "multigrid on M"]
    assert (solution.stats.method, solution.converged) == ("multigrid on M", True)


@pytest.mark.parametrize(
    ("skipped", "expected"),
    [(["factored"], "shift_invert"), (["factored", "shift_invert"], "multigrid on M"), (["multigrid"], "factored")],
)
def test_auto_skips_methods_that_failed_before(skipped, expected):
    solution = solve(roll_factor(600, 5), 2, "auto", skip={name: f"{name} was killed" for name in skipped})
    assert solution.stats.method == expected
    assert all(f"{name} was killed" in solution.stats.reason for name in skipped)
    with pytest.raises(NotEnoughMemory, match="factored died"):
        solve(roll_factor(600, 5), 2, "auto", skip={name: f"{name} died" for name in SOLVERS})


def test_a_small_residual_alone_does_not_count_as_converged(monkeypatch):
    monkeypatch.setattr(solve_module, "DENSE_POINTS", 10)
    monkeypatch.setitem(SOLVERS, "factored", lambda problem: methods.dense(problem)._replace(errors=np.ones(2)))
    solution = solve(roll_factor(450, 5), 2, "factored")
    assert (solution.residuals < 1e-4).all()
    assert not solution.converged


def test_the_dense_method_is_exact_up_to_rounding():
    """Residuals of 15 eps lambda_max / lambda, as of times of events: no other method could make them smaller."""
    rng = np.random.default_rng(80)
    n = int(rng.integers(15, 300))
    times = np.sort(np.exp(rng.uniform(0, rng.uniform(1, 25), n)))
    solution = solve(lle_factor(np.c_[times / times.std(), np.zeros(n)], 12, 1e-3), 2, "auto")
    assert solution.stats.method == "dense"
    assert solution.converged


@pytest.mark.parametrize("n_solves", [0, 5])
def test_vector_errors_decide_convergence_with_a_factor(monkeypatch, n_solves):
    A = roll_factor(450, 5)

    def with_large_residuals(problem):
        solution = methods.dense(problem)
        V = solution.pairs.vectors + 1e-7 * np.random.default_rng(3).standard_normal(solution.pairs.vectors.shape)
        stats = replace(solution.stats, n_solves=n_solves)
        return Outcome(solution.pairs._replace(vectors=V), np.full(2, 1e-13), stats)

    monkeypatch.setitem(SOLVERS, "factored", with_large_residuals)
    solution = solve(A, 2, "factored")
    assert (solution.residuals > 1e-3).all()
    assert solution.converged == (n_solves > 0)


@pytest.mark.parametrize(
    ("method", "m", "message"), [("auto", 0, "n_components is 0"), ("auto", 500, r"has 499 eigenvectors")]
)
def test_impossible_requests_name_the_key(method, m, message):
    with pytest.raises(ConfigError, match=message):
        solve(roll_factor(500, 5), m, method)


@pytest.mark.parametrize("method", METHODS)
def test_64_bit_indices_and_unsorted_rows_are_accepted(method):
    A = roll_factor(450, 5)
    rows, columns = A.nonzero()
    order = np.random.default_rng(3).permutation(A.nnz)
    order = order[np.argsort(rows[order], kind="stable")]
    B = csr_array((A.data[order], columns[order].astype(np.int64), A.indptr.astype(np.int64)), shape=A.shape)
    indices = B.indices.copy()
    actual, expected = solve(B, 2, method), solve(A, 2, method)
    np.testing.assert_allclose(actual.eigenvalues, expected.eigenvalues, rtol=1e-9)
    np.testing.assert_array_equal(B.indices, indices)


def test_tolerances_follow_rounding_where_it_is_above_tol():
    eps = np.finfo(np.float64).eps
    tolerances = Tolerances(1e-8, 4.0)
    values = np.array([1e-14, 1.0])
    assert [tolerances.met_by_residuals(n * eps * 4e14 * np.array([1, 1e-9]), values) for n in (7.99, 8.01)] == [1, 0]
    np.testing.assert_allclose(tolerances.vector_bounds(values), [100 * eps * 2e7, 1e-8])


def test_auto_uses_multigrid_after_a_factorization_ran_out_of_memory(monkeypatch):
    def fail(problem):
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("lle.kernels.eigensolver.costs.MULTIGRID_POINTS", 500)
    monkeypatch.setitem(SOLVERS, "factored", fail)
    A = lle_factor(points("swiss_roll", 900, 3), 12, 1e-3)
    solution = solve(A, 2, "auto")
    check(solution, A, 2)
    assert solution.stats.method == "multigrid"
    assert "factored was out of memory (Unable to allocate 9 GiB)" in solution.stats.reason
    with pytest.raises(NotEnoughMemory, match="factored was out of memory"):
        solve(A, 2, "factored")


def test_mkl_and_openblas_have_their_variables():
    assert library_environment() == {"MKL_CBWR": "AUTO,STRICT", "OPENBLAS_THREAD_TIMEOUT": "4"}


def nearly_closed(n, seed, links):
    """A of two rolls; the first points of the second one have some weight on the first roll."""
    A = separate_rolls(n, 2, seed).tolil()
    for row in range(n, n + 20):
        A[row, row - n] = -links
        A[row, row + 1] += links
    return csr_array(A.tocsr())


@pytest.mark.parametrize("links", [1e-4, 1e-9])
def test_a_group_that_is_nearly_closed_does_not_count_as_an_error_of_the_other_vectors(links):
    A = nearly_closed(700, 2, links)
    solution = solve(A, 3, "factored")
    assert solution.stats.method == "factored"
    assert solution.converged
    side = np.sign(np.arange(A.shape[0]) - 699.5)
    assert abs(np.corrcoef(side, solution.vectors[:, 0])[0, 1]) > 0.999
    assert solution.eigenvalues[0] < 1e-2 * solution.eigenvalues[1]


def test_the_krylov_basis_is_freed_before_the_vectors_are_corrected(monkeypatch):
    """Corrections of sixteen pairs take as much memory as it."""
    bases, left, iterate, correct = [], [], methods.block_lanczos, methods._corrected

    def iterated(*arguments):
        space = iterate(*arguments)
        bases.append(weakref.ref(space.basis.base))
        return space

    monkeypatch.setattr(methods, "block_lanczos", iterated)
    monkeypatch.setattr(methods, "_corrected", lambda *arguments: left.append(bases[0]()) or correct(*arguments))
    solve(roll_factor(450, 5), 2, "factored")
    assert left == [None]


def test_more_pairs_that_do_not_converge_are_left_out(monkeypatch):
    A = roll_factor(600, 5)
    corrected = methods._corrected

    def rough(inverse, problem, pairs):
        pairs, errors, n_done = corrected(inverse, problem, pairs)
        return pairs, np.where(np.arange(len(errors)) < 4, errors, 1e-2), n_done

    monkeypatch.setattr(methods, "_corrected", rough)
    grown = solve(A, 2, "factored", growth=Growth((6,), lambda vectors: False))
    check(grown, A, 4)
    assert grown.converged
    requested = solve(A, 6, "factored")
    assert requested.vectors.shape[1] == 6
    assert not requested.converged


@pytest.mark.slow
@pytest.mark.parametrize(("method", "n"), [("factored", 300), *((method, 600) for method in METHODS)])
def test_more_pairs_are_computed_only_if_the_first_do_not_suffice(method, n):
    A, asked = lle_factor(points("cube", n, 3), 12, 1e-3), []
    growth = Growth((6, 9), lambda vectors: asked.append(vectors) or vectors.shape[1] == 6)
    grown = solve(A, 2, method, growth=growth)
    check(grown, A, 6)
    values, V = exact_pairs(A, 6)
    np.testing.assert_allclose(grown.eigenvalues, values, rtol=1e-8)
    assert [vectors.shape for vectors in asked] == [(n, 2), (n, 6)]
    assert largest_angle(asked[0], V[:, :2]) < 1e-5
    first = solve(A, 2, method, growth=Growth((6, 9), lambda vectors: True))
    check(first, A, 2)
    assert first.stats.n_solves == solve(A, 2, method).stats.n_solves <= grown.stats.n_solves

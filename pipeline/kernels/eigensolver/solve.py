"""The lowest eigenpairs of M = A' A without the zero eigenvalue: choose a method, run it, and check the result.

| method | algorithm | use |
|---|---|---|
| dense | singular values of the dense A | a few hundred points |
| factored | Krylov space of M^+, by the LU of A | square A (LLE) whose factor fits in memory |
| factored | block Davidson, with the LU of A as inverse | if the factor only fits in single precision |
| multigrid | block Davidson, with V-cycles on A and A' as inverse | square A of any dimension; no factor |
| shift_invert | Krylov space of M^+, by the Cholesky factor of M | every method of the family whose factor fits |
| multigrid on M | block Davidson, with V-cycles on M as inverse | every method of the family; no factor |

Every method ends with singular values of A on a small subspace, so the eigenvalues are ||A v||^2. The methods with a
factor correct their vectors by v <- v - M^+ (A' (A v) - lambda v). M in float64 has lost digits, but its Cholesky
factor only serves as preconditioner here, so the result is as exact as with the LU of A.

A vector stored in float64 has a residual ||M v - lambda v|| / lambda of about 0.1 to 0.6 eps lambda_max / lambda, even
if it is exact before rounding: 3 % at a million points on a surface, where lambda is 1e-14. So a pair has converged if
both of these hold:

- The residual is at most max(tol, 8 eps lambda_max / lambda).
- The error of the vector is at most max(tol, 100 eps sqrt(lambda_max / lambda)). Rounding affects it by the square root
  only. The error is ||M^+ (M v - lambda v)||, or the angle by which the approximate inverse T rotates v.

With a factor, M^+ is available and the error of the vector alone decides. The dense method is exact up to rounding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from ...core.arrays import Float64
from ...core.errors import ConfigError, InputError, LleError, NotEnoughMemory
from ...core.threads import limited_threads
from . import costs, methods
from .factorization import canonical
from .pardiso import FactorizationError
from .problem import LongFactorization, LongIteration, Outcome, Problem, SolverStats, TimeLimit
from .rayleigh_ritz import EPS, fix_signs, largest_eigenvalue, residual_norms
from .shared_matrix import SharedMatrix, rows_of
from .solvers import SOLVERS, auto_methods, exact_seconds

DENSE_POINTS = 400
"""Up to this number of points the dense method takes less time than the analysis of a sparse factorization."""
ONE_THREAD_POINTS = 150_000
"""Below this number of points, dense algebra with the vectors is too short to be divided between threads: ten pairs of
a Swiss roll of 100,000 points took 2.0 s with one thread, and 2.6 s (3.2 processor seconds) with two."""


@dataclass(frozen=True)
class Spectrum:
    """The m lowest eigenpairs of M, without the zero eigenvalue."""

    eigenvalues: Float64
    """(m,) ascending, ||A v||^2."""
    vectors: Float64
    """(n, m) orthonormal, orthogonal to the constant; the largest absolute entry of each is positive."""
    residuals: Float64
    """(m,) ||M v - lambda v|| / lambda, computed as A' (A v)."""
    vector_errors: Float64
    """(m,) estimated sine of the angle between each vector and the eigenvector; with block Davidson, between the
    eigenvector and the space of all vectors."""
    converged: bool
    """Whether residuals and vector errors are within tol, or as small as float64 allows."""
    stats: SolverStats


def bottom_eigenpairs(problem: Problem, method: str, skip: Mapping[str, str] = MappingProxyType({})) -> Spectrum:
    """The lowest eigenpairs of M = A' A on the vectors orthogonal to its null vector.

    Args:
        problem: the matrices, and what is wanted.
        method: auto, factored (square A only), multigrid or shift_invert. A few hundred points are always solved with
            the dense method. auto uses the first method that fits ``max_memory``, works for A, and converges. Before
            a factorization longer than ``costs.patience_seconds`` it tries multigrid, until this fails or its other
            steps are predicted to take longer. A requested method that fails is replaced by auto's choice from the
            other methods, multigrid on A first by multigrid on M; ``stats.requested_failed`` is the reason.
        skip: methods that auto does not try, each with the reason.

    Equal arguments give equal bytes if the process calls ``machine.library_environment()`` before MKL is loaded, and
    unless ``on_gpu``.

    Raises:
        ConfigError: n_vectors is not in 1 .. n - 1; a GPU is requested, and CuPy or a GPU is missing.
        InputError: the null space of A has more than one dimension (several closed classes).
        NotEnoughMemory: the requested method does not fit, or, with auto, no method does.
    """
    factor = problem.factor if isinstance(problem.factor, SharedMatrix) else canonical(problem.factor)
    n = problem.n
    if not 1 <= problem.n_vectors < n:
        raise ConfigError(
            f"eigensolver.n_components is {problem.n_vectors}, but a component of {n} points has {n - 1} eigenvectors "
            "besides the constant; lower n_components or raise graph.min_component"
        )
    # the bytes of a dense product depend on its threads, and processes on one machine share its cores
    one_thread = n < ONE_THREAD_POINTS or isinstance(factor, SharedMatrix)
    with limited_threads(1 if one_thread else problem.n_threads):
        tolerances = problem.tolerances._replace(largest=largest_eigenvalue(factor))
        analyses = {} if problem.analyses is None else problem.analyses
        problem = problem._replace(factor=factor, tolerances=tolerances, analyses=analyses)
        if isinstance(factor, SharedMatrix):
            return _solve("multigrid", methods.multigrid, problem)
        if n <= DENSE_POINTS or 5 * problem.planned_vectors > n:
            return _solve("dense", methods.dense, problem)
        if method == "auto":
            return _first_that_converges(problem, skip)
        return _requested(problem, methods.ON_M if method == "multigrid" and not problem.is_square else method, skip)


def _requested(problem: Problem, method: str, skip: Mapping[str, str]) -> Spectrum:
    """Try one method; if it fails, auto's choice from the others."""
    try:
        return _solve(method, SOLVERS[method], problem)
    except FactorizationError as error:  # every method has the same result; only its cost differs
        failure = str(error)
    first = methods.ON_M if method == "multigrid" else ""
    spectrum = _first_that_converges(problem, {**skip, method: failure}, first)
    return replace(spectrum, stats=replace(spectrum.stats, requested_failed=failure))


def _first_that_converges(problem: Problem, skip: Mapping[str, str], first: str = "") -> Spectrum:
    """Try the methods in turn. Failures are added to the reason; unconverged vectors are the start of the next one."""
    square, unlimited = problem.is_square, TimeLimit()
    patience = TimeLimit(costs.patience_seconds(problem.factor.nnz, problem.n_threads, square=square))
    names = sorted(auto_methods(problem, skip), key=lambda name: name != first)
    attempts = [(name, unlimited if name.startswith("multigrid") else patience) for name in names]
    failures, best = list(skip.values()), None
    while attempts:
        name, limit = attempts.pop(0)
        try:
            spectrum = _solve(name, SOLVERS[name], problem._replace(time_limit=limit))
        except NotEnoughMemory as error:
            failures.append(error.args[0])  # its advice is followed here
            if not name.startswith("multigrid"):
                # the Cholesky factor of M was larger than the LU of A on all data measured so far
                attempts = [following for following in attempts if following[0].startswith("multigrid")]
        except LongFactorization as error:
            other = "multigrid" if square else methods.ON_M
            attempts.insert(0, (name, unlimited))
            if (other, unlimited) in attempts:
                failures.append(f"{error}, so {other} was tried first, as long as it was expected to be faster")
                exact = partial(exact_seconds, problem, name) if error.is_estimate else None
                attempts.insert(0, (other, TimeLimit(max(patience.seconds, error.least_seconds), exact)))
        except FactorizationError as error:
            failures.append(str(error))
            attempts = [at for at in attempts if at[0] != name or isinstance(error, LongIteration)]
        else:
            reason = "; before that, ".join([spectrum.stats.reason, *failures])
            explained = replace(spectrum, stats=replace(spectrum.stats, reason=reason))
            if spectrum.converged:
                return explained
            failures.append(f"{name} did not converge (vector errors {min(spectrum.vector_errors.max(), 1.0):.0e})")
            problem = problem._replace(start=spectrum.vectors)
            if best is None or spectrum.vector_errors.max() < best.vector_errors.max():
                best = explained
    if best is None:
        raise NotEnoughMemory(
            "no eigensolver can be used: " + "; ".join(failures), advice="raise eigensolver.max_memory"
        )
    return best


def _solve(name: str, route: Callable[[Problem], Outcome], problem: Problem) -> Spectrum:
    """Run one method and check its result.

    Raises InputError if M has a second null vector, NotEnoughMemory if the method is out of memory.
    """
    problem.hooks.begin(name)
    try:
        outcome = route(problem)
    except MemoryError as error:  # a method can need a few percent more than planned
        advice = "give the process more memory, or lower eigensolver.max_memory"
        if problem.on_gpu:  # CuPy's error for a full GPU is a MemoryError
            advice += ", or set eigensolver.device to cpu"
        details = f" ({error})" if str(error) else ""
        raise NotEnoughMemory(f"{name} was out of memory{details}", advice=advice) from None
    except RuntimeError as error:
        if not problem.on_gpu:
            raise
        raise LleError(f"{name} failed on the GPU ({error})", advice="set eigensolver.device to cpu") from error
    values, tolerances = outcome.pairs.values, problem.tolerances
    if tolerances.has_null_vector(values) and not problem.flat:
        cause = (
            "weights.reg is too small for float64, or its neighbour graph has several closed classes; raise "
            "weights.reg, set neighbors.reverse to auto (lle) or 4, or "
        )
        if problem.null is not None:
            cause = "edges whose weights are zero in float64 cut this component apart; raise weights.t, or "
        raise InputError(
            f"M has a null vector besides the one it must have (eigenvalue {values[0]:.1e}, the largest being "
            f"{tolerances.largest:.1e}): {cause}raise neighbors.n_neighbors"
        )
    pairs = outcome.pairs._replace(vectors=fix_signs(outcome.pairs.vectors, rows_of(problem.factor)))
    residuals = residual_norms(problem.factor, pairs)
    stats = replace(outcome.stats, rounding_floor=EPS * tolerances.largest)
    # Mostly the errors of vectors alone decide: with a factor they are ||M^+ r||, so residuals add no information. Hubs
    # raise the rounding error of residuals above the bound from lambda_max; a solve that is exact to 12 digits must not
    # be repeated for that. The dense method is exact up to rounding, so it always counts as converged. Multigrid on M
    # has no exact errors.
    good = name == "dense" or (name != methods.ON_M and stats.n_solves > 0)
    good = good or tolerances.met_by_residuals(residuals, values)
    converged = good and tolerances.met_by_vectors(outcome.errors, values)
    return Spectrum(values, pairs.vectors, residuals, outcome.errors, converged, stats)

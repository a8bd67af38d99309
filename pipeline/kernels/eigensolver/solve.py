"""The bottom eigenpairs of M = A' A, the eigenvector of the constant left out: the routes to them, and the choice.

| method | how | where it belongs |
|---|---|---|
| dense | singular values of the dense A | some hundred points |
| factored | Krylov space of M^+ through the LU of A | square A (LLE) whose factor fits the memory |
| shift_invert | the same through the Cholesky factor of M | every method of the family, if that fits |
| polynomial | block Davidson, polynomials of A as inverse | most data of more than three dimensions; no factor |

Every route ends with singular values of A on a small subspace, so the eigenvalues are ||A v||^2, and the factor routes
correct their vectors by v <- v - M^+ (A' (A v) - lambda v). That makes the Cholesky route as exact as the LU one,
although M in float64 has lost digits: its factor is then only the preconditioner.

A vector stored in float64 has ||M v - lambda v|| / lambda near 0.1 to 0.6 eps lambda_max / lambda, however good it is:
3 % at a million points on a surface, where lambda is 1e-14. A pair therefore counts as converged when that residual is
at most max(tol, 8 eps lambda_max / lambda) and the error of the vector itself (||M^+ (M v - lambda v)||, or the angle
that T, the approximate inverse, turns v by), which rounding enters by the square root only, is at most
max(tol, 100 eps sqrt(lambda_max / lambda)). With a factor M^+ is at hand, and the error of the vector alone decides.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from ...core.errors import ConfigError, InputError, NotEnoughMemory
from ..graph.connectivity import closed_classes
from . import methods
from .davidson import block_width
from .factor_cost import patience_seconds, product_seconds
from .factorization import canonical
from .methods import NO_HOOKS, Hooks, LongFactorization, Outcome, Problem
from .null_vector import NullVector
from .pardiso import FactorizationError
from .rayleigh_ritz import EPS, Tolerances, fix_signs, largest_eigenvalue, residual_norms

F64 = npt.NDArray[np.float64]

DENSE_POINTS = 400
"""Up to here the dense singular values take less time than a factorization's analysis."""
ROUTES: dict[str, Callable[[Problem], Outcome]] = {
    "factored": methods.factored,
    "shift_invert": methods.shift_invert,
    "polynomial": methods.polynomial,
}


@dataclass(frozen=True)
class SolverStats:
    """How the eigenpairs were found."""

    method: str
    """dense, factored, shift_invert or polynomial."""
    reason: str
    """One line: what was chosen and why, and what was tried before."""
    factor_nnz: int
    """Entries of the factor, 0 without one."""
    predicted_bytes: int
    """Memory predicted before the work, A included."""
    n_solves: int
    """Vectors that M^+ was applied to."""
    n_degrees: int
    """Products of M with a block of vectors."""
    n_refinements: int
    """Corrections of the vectors after the Krylov space."""
    rounding_floor: float
    """eps lambda_max, in the unit of an eigenvalue: this over an eigenvalue is the least residual float64 allows."""


@dataclass(frozen=True)
class Spectrum:
    """The m lowest eigenpairs of M, the constant left out."""

    eigenvalues: F64
    """(m,) ascending, ||A v||^2."""
    vectors: F64
    """(n, m) orthonormal, orthogonal to the constant; the largest absolute entry of each is positive."""
    residuals: F64
    """(m,) ||M v - lambda v|| / lambda, computed as A' (A v)."""
    vector_errors: F64
    """(m,) estimated sine of the angle between each vector and the eigenvector."""
    converged: bool
    """Whether residuals and vector errors are as small as asked for, or as float64 allows."""
    stats: SolverStats


def bottom_eigenpairs(
    factor: csr_array,
    n_vectors: int,
    *,
    method: str,
    pin: int | None,
    cost_matrix: Callable[[], csr_array],
    tol: float,
    max_memory: int,
    sigma: float,
    n_threads: int,
    initial: F64 | None,
    max_degrees: int,
    skip: Mapping[str, str] = MappingProxyType({}),
    hooks: Hooks = NO_HOOKS,
    null: NullVector = None,
    flat: bool = False,
) -> Spectrum:
    """The ``n_vectors`` lowest eigenpairs of M = A' A on the vectors orthogonal to the constant.

    Args:
        factor: A (rows, n), float64, the stacked local factors of one weak component; its null space is the constant.
        n_vectors: number of pairs m, 1 .. n - 1.
        method: auto, factored (square A only), shift_invert or polynomial; a few hundred points are always solved
            dense. auto takes the first of these that fits ``max_memory``, can be factored, and converges; a
            factorization longer than ``factor_cost.patience`` only after polynomials have had half of its time.
        pin: a point in the closed class of A's graph; None looks for one.
        cost_matrix: loads M (n, n); called by shift_invert only.
        tol: bound on residuals and vector errors; see the head of this file for what float64 allows.
        max_memory: bytes that A and all the solver adds may take.
        sigma: shift of shift_invert; 0 pins a point instead, which is more exact.
        n_threads: threads for everything here, whatever the environment says.
        initial: (n, any) approximations to the vectors, or None.
        max_degrees: products of M with a block of vectors after which polynomial gives up.
        skip: routes that auto leaves out, each with what went wrong there before.
        hooks: what the caller watches, keeps, or does elsewhere.
        null: the null vector of M instead of the constant, a unit vector (n,) without zeros.
        flat: whether M may have further null vectors: functions that are affine on flat neighbourhoods (ltsa, hessian).

    Equal arguments give equal bytes if the process has set ``machine.reproducible_environment()`` before MKL loads.

    Raises:
        ConfigError: m or the method do not fit A; sigma lies above wanted eigenvalues.
        InputError: the null space of A holds more than the constant (several closed classes).
        NotEnoughMemory: the method asked for, or with auto the last one, does not fit.
        FactorizationError: the method asked for could not factor its matrix.
    """
    factor = canonical(factor)
    _check(factor, n_vectors, method)
    with threadpool_limits(n_threads):
        tolerances = Tolerances(tol, largest_eigenvalue(factor, methods.SEED))
        pin = _closed_point(factor) if pin is None else pin
        problem = Problem(
            factor, n_vectors, pin, cost_matrix, tolerances, max_memory, sigma, n_threads, initial, hooks,
            max_degrees, null=null, flat=flat,
        )  # fmt: skip
        if factor.shape[1] <= DENSE_POINTS or 5 * n_vectors > factor.shape[1]:
            return _solve("dense", methods.dense, problem)
        if method != "auto":
            try:
                return _solve(method, ROUTES[method], problem)
            except FactorizationError as error:
                raise FactorizationError(
                    f"eigensolver.method {method}: {error}. The other methods work on other matrices: use auto, "
                    f"which takes the next method where one fails, or a larger weights.reg"
                ) from error
        return _first_that_converges(problem, skip)


def _first_that_converges(problem: Problem, skip: Mapping[str, str]) -> Spectrum:
    """The routes in turn: what failed is told in the reason, and unconverged vectors start the next route."""
    falls, best = list(skip.values()), None
    factors = ["factored", "shift_invert"] if _is_square(problem.factor) else ["shift_invert"]
    width = block_width(problem.n_vectors)
    patience = patience_seconds(problem.factor.nnz, width, problem.n_threads, square=_is_square(problem.factor))
    left = [(name, problem._replace(max_factor_seconds=patience)) for name in factors] + [("polynomial", problem)]
    left = [(name, attempt) for name, attempt in left if name not in skip]
    start = problem.start
    while left:
        name, attempt = left.pop(0)
        try:
            found = _solve(name, ROUTES[name], attempt._replace(start=start))
        except NotEnoughMemory as error:
            falls.append(str(error))
            # the Cholesky factor of M takes more than the LU of A on all data seen so far
            left = [following for following in left if following[0] == "polynomial"]
            continue
        except LongFactorization as error:
            falls.append(str(error))
            left = [("polynomial", _for_half_of(error.seconds, problem)), (name, problem), *left]
            left = [following for following in left if following[0] not in skip]
            continue
        except FactorizationError as error:
            falls.append(str(error))
            continue
        told = replace(found, stats=replace(found.stats, reason="; before that, ".join([found.stats.reason, *falls])))
        if found.converged:
            return told
        falls.append(f"{name} reached vector errors of {found.vector_errors.max():.0e} only")
        start = found.vectors
        if best is None or found.vector_errors.max() < best.vector_errors.max():
            best = told
    if best is None:
        raise NotEnoughMemory("no eigensolver can be used: " + "; ".join(falls))
    return best


def _for_half_of(seconds: float, problem: Problem) -> Problem:
    """The problem with a limit on products that makes polynomials take half of the time given."""
    width = block_width(problem.n_vectors)
    degrees = seconds / 2 / product_seconds(problem.factor.nnz, width, problem.n_threads)
    return problem._replace(max_degrees=min(max(int(degrees), 1), problem.max_degrees), impatient=True)


def _solve(name: str, route: Callable[[Problem], Outcome], problem: Problem) -> Spectrum:
    """One route, judged. Raises InputError where M has another null vector than the constant."""
    problem.hooks.begin(name)
    found = route(problem)
    values, tolerances = found.pairs.values, problem.tolerances
    if tolerances.has_null_vector(values) and not problem.flat:
        cause = "its neighbour graph has several closed classes; set neighbors.reverse to auto (lle) or 4, or "
        if problem.null is not None:
            cause = "edges whose weights are zero in float64 cut this component apart; raise weights.t, or "
        raise InputError(
            f"M has a null vector besides the one it must have (eigenvalue {values[0]:.1e}, the largest being "
            f"{tolerances.largest:.1e}): {cause}raise neighbors.n_neighbors"
        )
    pairs = found.pairs._replace(vectors=fix_signs(found.pairs.vectors))
    residuals = residual_norms(problem.factor, pairs)
    stats = SolverStats(
        method=found.method, reason=found.reason, factor_nnz=found.factor_nnz, predicted_bytes=found.predicted_bytes,
        n_solves=found.n_solves, n_degrees=found.n_degrees, n_refinements=found.n_refinements,
        rounding_floor=EPS * tolerances.largest,
    )  # fmt: skip
    # with a factor the error of a vector is ||M^+ r||, and no residual says more about it; hubs raise the residual's
    # rounding error above what lambda_max tells, and a solve that is exact to 12 digits is not done again for that
    good = found.n_solves > 0 or tolerances.met_by_residuals(residuals, values)
    converged = good and tolerances.met_by_vectors(found.errors, values)
    return Spectrum(values, pairs.vectors, residuals, found.errors, converged, stats)


def _closed_point(factor: csr_array) -> int:
    """A point of the one closed class; any point where A is not square, as M is regular without any row and column."""
    if not _is_square(factor):
        return 0
    classes = closed_classes(factor)
    if len(classes.sizes) != 1:
        raise InputError(
            f"the neighbour graph of this component has {len(classes.sizes)} closed classes, expected one; set "
            "neighbors.reverse to auto, or raise neighbors.n_neighbors"
        )
    return int(np.flatnonzero(classes.class_of_point == 0)[0])


def _is_square(factor: csr_array) -> bool:
    return bool(factor.shape[0] == factor.shape[1])


def _check(factor: csr_array, n_vectors: int, method: str) -> None:
    rows, n = factor.shape
    if not 1 <= n_vectors < n:
        raise ConfigError(
            f"eigensolver.n_components is {n_vectors}, but a component of {n} points has {n - 1} eigenvectors besides "
            "the constant; lower n_components or raise graph.min_component"
        )
    if method != "auto" and method not in ROUTES:
        raise ConfigError(f"eigensolver.method must be auto, {', '.join(ROUTES)}; found {method!r}")
    if method == "factored" and rows != n:
        raise ConfigError(
            f"eigensolver.method factored needs one row of A for each point, found {rows} rows for {n} points; use "
            "shift_invert, polynomial or auto"
        )

"""The methods for the lowest eigenpairs of M = A' A; ``solve`` chooses between them."""

from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ...core.errors import InputError, gib
from . import davidson, factor_cost, pardiso
from .approximate_inverse import ApproximateInverse
from .block_lanczos import block_lanczos, orthonormalise
from .factorization import canonical
from .memory import krylov_size, multigrid_size, polynomial_size, preconditioned_size, refuse_hopeless, require_memory
from .normal_operator import Operator
from .null_vector import complement
from .pardiso import FactorizationError, FactorSize
from .problem import LongFactorization, Outcome, Problem, SolverStats
from .pseudo_inverse import FactorPreconditioner, PinnedCholesky, PinnedLU, PseudoInverse
from .rayleigh_ritz import TINY, RitzPairs, rayleigh_ritz, residual_vectors
from .watch import Watch

F64 = npt.NDArray[np.float64]

SEED = 20_000
"""Seed of the start block, so that every run starts from the same vectors."""
MAX_CYCLES = 40
"""Blocks for each eight requested vectors after which the Krylov space counts as not converging."""
MAX_REFINEMENTS = 4
TYPICAL_BLOCKS, SINGLE_BLOCKS = 10, 15
"""Blocks of vectors that a method with a factor typically solves for. In single precision each solve is refined: these
blocks in double precision take as long."""


def dense(problem: Problem) -> Outcome:
    """Singular values of the dense A on the space of all vectors orthogonal to the null vector."""
    predicted = 8 * problem.n * (2 * problem.n + 2 * problem.factor.shape[0])
    require_memory("dense", predicted, problem.max_memory)
    pairs = rayleigh_ritz(problem.factor, complement(problem.n, problem.null), problem.n_vectors)
    reason = f"dense: singular values of A, {problem.n:,} points"
    return Outcome(pairs, np.zeros(problem.n_vectors), SolverStats("dense", reason, predicted_bytes=predicted))


def factored(problem: Problem) -> Outcome:
    """Krylov space of M^+, by the LU of a square A; block Davidson with an LU in single precision if only that fits."""
    expected = refuse_hopeless("factored", problem.factor, pardiso.GENERAL, problem)
    if expected is None or fits_in_double(problem, expected):
        with PinnedLU(problem.factor, problem.pin, problem.n_threads, problem.hooks.analyses) as inverse:
            if fits_in_double(problem, inverse.size):
                return _by_inverse("factored", "LU of A", inverse, problem)
            m, single = problem.n_vectors, inverse.size.in_single(problem.factor.nnz)
            sizes = krylov_size(problem.factor, m, inverse.size), preconditioned_size(problem.factor, m, single)
            require_memory("factored", min(size[2] for size in sizes), problem.max_memory)
    with PinnedLU(problem.factor, problem.pin, problem.n_threads, problem.hooks.analyses, single=True) as inverse:
        return _by_preconditioner("factored", "LU of A in single precision", inverse, problem)


def shift_invert(problem: Problem) -> Outcome:
    """Krylov space of M^+, by the Cholesky factor of M."""
    with _cost_matrix_inverse(problem) as inverse:
        return _by_inverse("shift_invert", "Cholesky of M", inverse, problem)


def polynomial(problem: Problem) -> Outcome:
    """Block Davidson with a polynomial as approximate inverse; uses only products with A and A'."""
    width = davidson.block_width(problem.n_vectors)
    columns, steps, predicted = polynomial_size(problem.factor, width, problem.max_memory)
    require_memory("polynomial", predicted, problem.max_memory)
    state = problem.hooks.load_state()
    if state is not None and len(state.values) + width > columns:  # saved by a run with more memory
        state = None
    watch = Watch("polynomial", problem.hooks.progress)
    watch.begin(f"products of M with {width} vectors", problem.max_degrees)

    def each_step(n_degrees: int, values: F64, residuals: F64, errors: F64) -> None:
        bounds = problem.tolerances.residual_bounds(values), problem.tolerances.vector_bounds(values)
        watch.step(n_degrees, residuals, bounds[0], float((errors / bounds[1]).max()))

    with ExitStack() as stack:

        def open_operator(matrix: csr_array) -> Operator:
            return stack.enter_context(problem.hooks.operator(matrix, problem.n_threads))

        inverse = ApproximateInverse(
            problem.factor, open_operator, problem.null, SEED, steps, state.hessenberg if state else None
        )
        if state is None:
            start, n_given = _start_block(problem, width), 0 if problem.start is None else problem.start.shape[1]
            state = davidson.first_state(
                problem.factor, start, n_given, problem.n_vectors, inverse, problem.max_degrees, problem.null
            )  # fmt: skip
        result = davidson.lowest_pairs(
            problem.factor, inverse, problem.n_vectors, state, problem.tolerances, columns, problem.max_degrees,
            problem.hooks.keep_state, problem.null, each_step, stop_early=problem.stop_early, flat=problem.flat,
        )  # fmt: skip
    form = "in A" if inverse.form == "factor" else "in M"
    reason = (
        f"polynomial: {result.n_degrees:,} products of M with {width} vectors in {result.n_steps} steps, the last "
        f"polynomial {form} of degree {inverse.degree:,}, {gib(predicted)} of {gib(problem.max_memory)} allowed"
    )
    if result.at_limit:
        reason += f"; stopped at the limit of {problem.max_degrees:,}"
    stats = SolverStats("polynomial", reason, predicted_bytes=predicted, n_degrees=result.n_degrees)
    return Outcome(result.pairs, result.errors, stats)


def multigrid(problem: Problem) -> Outcome:
    """Block Davidson with multigrid on a square A as approximate inverse; needs no factor."""
    m = problem.n_vectors
    width, columns, predicted = multigrid_size(problem.factor, m, problem.max_memory)
    require_memory("multigrid", predicted, problem.max_memory)
    watch = Watch("multigrid", problem.hooks.progress)
    watch.begin(f"hierarchy of {problem.n:,} points", seconds=factor_cost.setup_seconds(problem.factor.nnz))
    from .multigrid_inverse import MultigridInverse  # noqa: PLC0415 (numba, a quarter of a second)

    with MultigridInverse(problem.factor, problem.candidates, problem.n_threads, SEED) as inverse:
        complexity = inverse.hierarchy.complexity
        result = _davidson(FactorPreconditioner(_finite(inverse.apply)), problem, width, columns, watch)
    if result.at_limit:
        raise FactorizationError(
            f"multigrid did not converge in {result.n_degrees} steps of block Davidson "
            f"(errors {result.errors.max():.0e})"
        )
    reason = (
        f"multigrid: {result.n_steps} steps of block Davidson with {width} vectors, hierarchy of {complexity:.2f} "
        f"times the entries of A, {gib(predicted)} of {gib(problem.max_memory)} allowed"
    )
    stats = SolverStats("multigrid", reason, predicted_bytes=predicted, n_solves=result.n_degrees * width)
    return Outcome(result.pairs, result.errors, stats)


def fits_in_double(problem: Problem, size: FactorSize) -> bool:
    """Whether the allowed memory is enough for an LU of this size in double precision."""
    return krylov_size(problem.factor, problem.n_vectors, size)[2] <= problem.max_memory


def _by_inverse(name: str, factor_name: str, inverse: PseudoInverse, problem: Problem) -> Outcome:
    """Build the Krylov space of the inverse, take the singular values of A on it, and correct the vectors."""
    m = problem.n_vectors
    width, columns, predicted = krylov_size(problem.factor, m, inverse.size)
    watch = Watch(name, problem.hooks.progress)
    cost = _factor(factor_name, inverse, predicted, TYPICAL_BLOCKS, watch, problem)
    apply = _finite(inverse.apply)
    limit, tol = MAX_CYCLES * width * (1 + m // 8), problem.tolerances.tol
    watch.begin(f"solves with the {factor_name} for {width} vectors", limit // width)
    space = block_lanczos(
        apply, _start_block(problem, width), m, columns, tol, limit, problem.null,
        lambda n_applied, errors: watch.step(n_applied // width, errors, np.full(len(errors), tol)),
    )  # fmt: skip
    pairs, errors, n_refinements = _corrected(
        inverse, problem, rayleigh_ritz(problem.factor, space.basis, min(m, space.basis.shape[1]))
    )
    krylov_values = 1 / np.maximum(np.abs(space.values), TINY)
    relative_error = float(np.abs(krylov_values / np.maximum(pairs.values, TINY) - 1).max())
    reason = f"{name}: {cost}; the eigenvalues of the Krylov space differ from ||A v||^2 by {relative_error:.0e}"
    n_solves = space.n_applied + m * (n_refinements + 1)
    stats = SolverStats(name, reason, inverse.size.nnz, predicted, n_solves, n_refinements=n_refinements)
    return Outcome(pairs, errors, stats)


def _by_preconditioner(name: str, factor_name: str, inverse: PseudoInverse, problem: Problem) -> Outcome:
    """Block Davidson with an inverse that is too rough for a Krylov space."""
    m = problem.n_vectors
    width, columns, predicted = preconditioned_size(problem.factor, m, inverse.size)
    watch = Watch(name, problem.hooks.progress)
    cost = _factor(factor_name, inverse, predicted, SINGLE_BLOCKS, watch, problem)
    result = _davidson(FactorPreconditioner(_finite(inverse.apply)), problem, width, columns, watch)
    if result.at_limit:
        raise FactorizationError(
            f"block Davidson with an {factor_name} did not converge in {result.n_degrees} steps "
            f"(errors {result.errors.max():.0e}); with more eigensolver.max_memory double precision may fit"
        )
    reason = f"{name}: {cost}; {result.n_steps} steps of block Davidson"
    stats = SolverStats(name, reason, inverse.size.nnz, predicted, result.n_degrees * width)
    return Outcome(result.pairs, result.errors, stats)


def _davidson(
    preconditioner: FactorPreconditioner, problem: Problem, width: int, columns: int, watch: Watch
) -> davidson.Davidson:
    """Block Davidson with a rough inverse, from a saved state if there is one."""
    m, tolerances = problem.n_vectors, problem.tolerances
    limit = MAX_CYCLES * (1 + m // 8)
    watch.begin(f"solves by {watch.method} for {width} vectors", limit)
    state = problem.hooks.load_state()
    if state is None or len(state.values) + width > columns:
        start, n_given = _start_block(problem, width), 0 if problem.start is None else problem.start.shape[1]
        state = davidson.first_state(problem.factor, start, n_given, m, preconditioner, limit, problem.null)
    return davidson.lowest_pairs(
        problem.factor, preconditioner, m, state, tolerances, columns, limit, problem.hooks.keep_state, problem.null,
        lambda n_applied, values, residuals, errors: watch.step(n_applied, errors, tolerances.vector_bounds(values)),
        flat=problem.flat, max_residual_steps=MAX_REFINEMENTS,
    )  # fmt: skip


def _factor(
    factor_name: str, inverse: PseudoInverse, predicted: int, n_blocks: int, watch: Watch, problem: Problem
) -> str:
    """Factor if the memory and the time are allowed: one line with the size and the predicted cost."""
    require_memory(watch.method, predicted, problem.max_memory)
    seconds = factor_cost.factor_seconds(inverse.size, problem.factor.nnz, n_blocks, problem.n_threads)
    if seconds > problem.max_factor_seconds:
        raise LongFactorization(watch.method, seconds)
    size = f"{factor_name}, {inverse.size.nnz:,} entries, {inverse.size.gflop:.3g} GFlop"
    watch.begin(f"{size}, {gib(predicted)}", seconds=seconds)
    inverse.factor()
    return f"{size}, about {seconds:.0f} s, {gib(predicted)} of {gib(problem.max_memory)} allowed"


def _corrected(inverse: PseudoInverse, problem: Problem, pairs: RitzPairs) -> tuple[RitzPairs, F64, int]:
    """Correct v <- v - M^+ (A' (A v) - lambda v) until the pairs are accurate: (pairs, errors, number of corrections).

    Each correction is a step of inverse iteration, in a form where rounding errors are relative to the correction.
    """
    tolerances, previous_values = problem.tolerances, np.full_like(pairs.values, np.inf)
    for n_done in range(MAX_REFINEMENTS + 1):
        residuals = residual_vectors(problem.factor, pairs)
        correction = inverse.apply(residuals)
        values = np.maximum(pairs.values, TINY)
        errors = np.linalg.norm(correction, axis=0)
        small = tolerances.met_by_residuals(np.linalg.norm(residuals, axis=0) / values, values)
        good = small and tolerances.met_by_vectors(errors, values) and tolerances.settled(previous_values, values)
        if good or n_done == MAX_REFINEMENTS:
            break
        previous_values = values
        basis = orthonormalise(pairs.vectors - correction, correction[:, :0], problem.null)
        pairs = rayleigh_ritz(problem.factor, basis, problem.n_vectors)
    return pairs, errors, n_done


def _cost_matrix_inverse(problem: Problem) -> PseudoInverse:
    """The analysed inverse by a factor of M; M is loaded here and released at the end."""
    cost_matrix = canonical(problem.cost_matrix())
    if cost_matrix.shape != (problem.n, problem.n):
        raise InputError(f"M must be {problem.n} x {problem.n} like A' A, found {cost_matrix.shape}")
    refuse_hopeless("shift_invert", cost_matrix, pardiso.POSITIVE_DEFINITE, problem)
    return PinnedCholesky(cost_matrix, problem.pin, problem.n_threads, problem.null, problem.hooks.analyses)


def _finite(apply: Callable[[F64], F64]) -> Callable[[F64], F64]:
    """The same operator; it raises FactorizationError instead of returning NaN or infinity."""

    def checked(block: F64) -> F64:
        image = apply(block)
        if not np.isfinite(image).all():
            raise FactorizationError(
                "solving with the factor gave NaN or infinity, so the factor is singular; the neighbour graph may have "
                "several closed classes"
            )
        return image

    return checked


def _start_block(problem: Problem, width: int) -> F64:
    """The given approximations, filled up with random columns that are the same in every run: (n, width)."""
    block = np.random.default_rng(SEED).standard_normal((problem.n, width))
    if problem.start is not None:
        start_columns = problem.start[:, :width]
        block[:, : start_columns.shape[1]] = start_columns
    return block

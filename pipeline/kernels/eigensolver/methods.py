"""The methods for the lowest eigenpairs of M = A' A; ``solvers`` lists them, and ``solve`` chooses."""

from collections.abc import Callable
from functools import partial

import numpy as np

from ...core.arrays import Float64
from ...core.errors import NotEnoughMemory, gib
from . import costs, davidson, pardiso
from .block_lanczos import block_lanczos, orthonormalise
from .costs import krylov_size, multigrid_size, preconditioned_size, refuse_large, require_memory, shared_size
from .factorization import canonical
from .pardiso import FactorizationError, FactorSize
from .problem import LongFactorization, LongIteration, Outcome, Problem, SolverStats, Watch
from .pseudo_inverse import PinnedCholesky, PinnedLU, PseudoInverse
from .rayleigh_ritz import TINY, RitzPairs, complement, rayleigh_ritz, residual_vectors
from .rows import ALL_ROWS
from .shared_matrix import SharedMatrix, rows_of

MAX_CYCLES = 40
"""Blocks for each eight requested vectors after which the Krylov space counts as not converging."""
MAX_REFINEMENTS = 4
ON_M = "multigrid on M"


def dense(problem: Problem) -> Outcome:
    """Singular values of the dense A on the space of all vectors orthogonal to the null vector."""
    predicted = 8 * problem.n * (2 * problem.n + 2 * problem.factor.shape[0])
    require_memory("dense", predicted, problem.max_memory)
    most = max(problem.n_vectors, *problem.growth.counts, 0)
    pairs, m, larger = rayleigh_ritz(problem.factor, complement(problem.n, problem.null), most), 0, problem.n_vectors
    while m < larger:
        m = larger
        larger = problem.growth.wanted(m, most, lambda: pairs.lowest(m).vectors)  # noqa: B023
    reason = f"dense: singular values of A, {problem.n:,} points"
    return Outcome(pairs.lowest(m), np.zeros(m), SolverStats("dense", reason, predicted_bytes=predicted))


def factored(problem: Problem) -> Outcome:
    """Krylov space of M^+, by the LU of a square A; block Davidson with an LU in single precision if only that fits."""
    refuse_large("factored", problem.whole_factor, pardiso.GENERAL, problem)
    with PinnedLU(problem.whole_factor, problem.pin, problem.n_threads, problem.analyses) as inverse:
        (sizes, is_single), factor_nnz = lu_size(problem, inverse.size), inverse.size.nnz
        require_memory("factored", sizes[2], problem.max_memory)
        if not is_single:
            return _by_inverse("factored", "LU of A", inverse, problem)
    with PinnedLU(problem.whole_factor, problem.pin, problem.n_threads, problem.analyses, single=True) as inverse:
        watch = Watch("factored", problem.hooks.progress)
        text = _factor("LU of A in single precision", inverse, sizes[2], watch, problem)
        return _by_davidson(inverse.apply, text, problem, sizes, watch, MAX_REFINEMENTS, factor_nnz)


def lu_size(problem: Problem, size: FactorSize) -> tuple[tuple[int, int, int], bool]:
    """((columns of a block, columns of the basis, bytes of everything) with an LU of A, whether in single precision).

    Single precision is used if only that fits, or if nothing fits and it needs less. ``size`` is that of the LU in
    double precision.
    """
    double = krylov_size(problem.whole_factor, problem.planned_vectors, size)
    if double[2] <= problem.max_memory or not pardiso.is_available():
        return double, False
    in_single = size.in_single(problem.whole_factor.nnz)
    single = preconditioned_size(problem.whole_factor, problem.planned_vectors, in_single, problem.max_memory)
    return (single, True) if single[2] < double[2] else (double, False)


def shift_invert(problem: Problem) -> Outcome:
    """Krylov space of M^+, by the Cholesky factor of M."""
    cost_matrix = canonical(problem.cost_matrix())
    refuse_large("shift_invert", cost_matrix, pardiso.POSITIVE_DEFINITE, problem)
    with PinnedCholesky(cost_matrix, problem.pin, problem.n_threads, problem.null, problem.analyses) as inverse:
        del cost_matrix
        return _by_inverse("shift_invert", "Cholesky of M", inverse, problem)


def multigrid(problem: Problem, on_m: bool = False) -> Outcome:
    """Block Davidson with multigrid on a square A as approximate inverse; needs no factor.

    On M for an A that is not square, or whose spectrum lies on both sides of zero.
    """
    factor, n_threads, cost_matrix = problem.factor, problem.n_threads, None
    if on_m:
        cost_matrix = canonical(problem.cost_matrix())
    name, normal_entries = ("multigrid", 0) if cost_matrix is None else (ON_M, cost_matrix.nnz)
    if isinstance(factor, SharedMatrix):
        n_threads *= factor.rows.group.size
    sizes, least, fits = _multigrid_sizes(problem, normal_entries)
    _require_memory(name, least, problem)
    watch = Watch(name, problem.hooks.progress)
    seconds = costs.multigrid_seconds(factor.nnz, n_threads, on_m=on_m)
    watch.begin(f"hierarchy of {problem.n:,} points", seconds=seconds)
    from .multigrid_inverse import FactorMultigrid, NormalMultigrid  # numba, a quarter of a second

    device, place = None, ""
    if problem.on_gpu:
        from .device import gpu  # CuPy

        device, place = gpu(), " on the GPU"
    inverse: FactorMultigrid | NormalMultigrid = (
        FactorMultigrid(factor, problem.candidates(), problem.n_threads, device, fits)
        if cost_matrix is None
        else NormalMultigrid(cost_matrix, problem.candidates(), problem.null, n_threads, device)
    )
    del cost_matrix
    width, columns, predicted, cycles = sizes(inverse.n_bytes)
    with inverse:
        _require_memory(name, predicted, problem)
        text = f"hierarchy of {inverse.hierarchy.complexity:.2f} times the entries of {'M' if on_m else 'A'}{place}"
        entries = int(factor.nnz * max(inverse.hierarchy.complexity / costs.TYPICAL_COMPLEXITY, 1.0))
        if problem.time_limit.is_exceeded_by(
            costs.SOLVE_CYCLES * costs.cycle_seconds(entries, costs.MAX_BLOCK, n_threads)
        ):
            limit = problem.time_limit.seconds
            raise LongIteration(f"{name} with a {text} would take longer than a factorization of {limit:,.0f} s")
        inverse.prepare(cycles)
        cycle_seconds = costs.cycle_seconds(entries, width, n_threads)
        return _by_davidson(
            inverse.apply,
            f"{text}, {gib(predicted)} of {gib(problem.max_memory)} allowed",
            problem,
            (width, columns, predicted),
            watch,
            max_residual_steps=float("inf") if on_m else 0,
            step_seconds=lambda: inverse.n_cycles * cycle_seconds,
        )


def _multigrid_sizes(
    problem: Problem, normal_entries: int
) -> tuple[Callable[[int], tuple[int, int, int, int]], int, Callable[[float], bool]]:
    """(``multigrid_size`` by the bytes of the hierarchy, least bytes of everything, ``fits`` of ``Hierarchy``)."""
    factor, m, allowed = problem.factor, problem.planned_vectors, problem.max_memory
    if not isinstance(factor, SharedMatrix):
        sizes = partial(multigrid_size, factor, m, allowed, normal_entries)
        return sizes, sizes()[2], lambda fill: True
    own_size = partial(shared_size, factor.rows.n_own, len(factor.halo.numbering.others), factor.local.nnz, m)
    return own_size, own_size(fill=costs.LEAST_FILL)[2], lambda fill: own_size(fill=fill)[2] <= allowed


def _require_memory(name: str, predicted: int, problem: Problem) -> None:
    """Raise NotEnoughMemory if multigrid needs more than it may use."""
    if predicted > problem.max_memory and isinstance(problem.factor, SharedMatrix):
        raise NotEnoughMemory(
            f"{name} on {problem.factor.rows.group.size} workers needs {gib(predicted)} for the "
            f"{problem.factor.rows.n_own:,} points of one of them, which may use {gib(problem.max_memory)}",
            advice="use more workers, or workers with more memory (execution.cluster)",
        )
    require_memory(name, predicted, problem.max_memory)


def _by_davidson(
    inverse: Callable[[Float64], Float64],
    text: str,
    problem: Problem,
    sizes: tuple[int, int, int],
    watch: Watch,
    max_residual_steps: float,
    factor_nnz: int = 0,
    step_seconds: Callable[[], float] = lambda: 0.0,
) -> Outcome:
    """Block Davidson with an approximate inverse of M, from a saved state of the same method if there is one.

    text: the size of the inverse, for the reason of the result. max_residual_steps: see ``davidson.lowest_pairs``.
    step_seconds: predicted seconds of the last step; 0 if slow iterations do not end. Times come from operation counts
    and steps from errors, so the end of a slow iteration does not depend on the load of the machine, and a resumed
    run ends it at the same step.
    """
    (_, columns, predicted), tolerances = sizes, problem.tolerances
    width, is_long = davidson.block_width(problem.n_vectors, sizes[0]), False
    watch.begin(f"solves for {width} vectors", problem.max_steps)
    apply = _finite(inverse)

    def goes_on(n_steps: int, values: Float64, errors: Float64) -> bool:
        nonlocal is_long
        bounds = tolerances.vector_bounds(values)
        watch.step(n_steps, errors, bounds)
        if len(errors) > problem.n_vectors:
            return True  # pairs of ``growth`` are new in the basis, so their errors do not show the rate
        is_long = problem.time_limit.is_exceeded_by(step_seconds() * costs.steps_left(n_steps, errors, bounds))
        return not is_long

    result = davidson.lowest_pairs(
        problem.factor,
        apply,
        _first_state(problem, watch.method, sizes[0], columns, apply),
        tolerances,
        columns,
        problem.max_steps,
        lambda state, may_be_last: problem.hooks.keep_state(watch.method, state, may_be_last),
        problem.null,
        goes_on,
        flat=problem.flat,
        max_residual_steps=max_residual_steps,
        growth=problem.growth,
        max_width=sizes[0],
    )
    reason = f"{watch.method}: {result.n_steps} steps of block Davidson with {width} vectors, {text}"
    if is_long and result.stopped:
        reason += f"; the other steps would take longer than a factorization of {problem.time_limit.seconds:,.0f} s"
    elif result.stopped:
        reason += f"; stopped at the limit of {problem.max_steps} steps"
    stats = SolverStats(
        watch.method, reason, factor_nnz, predicted, n_solves=result.n_steps * width, n_steps=result.n_steps
    )
    return Outcome(result.pairs, result.errors, stats)


def _first_state(
    problem: Problem, method: str, max_width: int, columns: int, inverse: Callable[[Float64], Float64]
) -> davidson.SubspaceState:
    """The saved state of the method, unless it is of another number of pairs, or from a run with more memory."""
    m, state = problem.n_vectors, problem.hooks.load_state(method)
    if state is not None and len(state.errors) in {m, *problem.growth.counts}:
        width = davidson.block_width(len(state.errors), max_width)
        if max(len(state.values), 2 * width) + width <= columns:
            return state
    width, n_given = davidson.block_width(m, max_width), 0 if problem.start is None else problem.start.shape[1]
    return davidson.first_state(problem.factor, _start_block(problem, width), n_given, m, inverse, problem.null)


def _by_inverse(name: str, factor_name: str, inverse: PseudoInverse, problem: Problem) -> Outcome:
    """Build the Krylov space of the inverse, take the singular values of A on it, and correct the vectors."""
    m = problem.n_vectors
    width = krylov_size(problem.whole_factor, m, inverse.size)[0]
    columns, predicted = krylov_size(problem.whole_factor, problem.planned_vectors, inverse.size)[1:]
    watch = Watch(name, problem.hooks.progress)
    cost = _factor(factor_name, inverse, predicted, watch, problem)
    apply = _finite(inverse.apply)
    limit, tol = MAX_CYCLES * width * (1 + problem.planned_vectors // 8), problem.tolerances.tol
    watch.begin(f"solves with the {factor_name} for {width} vectors", limit // width)
    basis, values, _, n_applied = block_lanczos(
        apply,
        _start_block(problem, width),
        m,
        columns,
        tol,
        limit,
        problem.null,
        lambda n_applied, errors: watch.step(n_applied // width, errors, np.full(len(errors), tol)),
        problem.growth,
    )
    m = len(values)
    pairs = rayleigh_ritz(problem.factor, basis, m)
    del basis  # it needs most of the memory of the vectors
    pairs, errors, n_refinements = _corrected(inverse, problem, pairs)
    n_solves = n_applied + m * (n_refinements + 1)
    # pairs of ``growth`` are not needed, so those that did not converge are left out
    n_good = int(np.argmin(np.append(errors <= problem.tolerances.vector_bounds(pairs.values), False)))
    m = max(n_good, min(m, problem.n_vectors))
    pairs, errors = pairs.lowest(m), errors[:m]
    krylov_values = 1 / np.maximum(np.abs(values[:m]), TINY)
    relative_error = float(np.abs(krylov_values / np.maximum(pairs.values, TINY) - 1).max())
    reason = f"{name}: {cost}; the eigenvalues of the Krylov space differ from ||A v||^2 by {relative_error:.0e}"
    stats = SolverStats(name, reason, inverse.size.nnz, predicted, n_solves, n_refinements=n_refinements)
    return Outcome(pairs, errors, stats)


def _factor(factor_name: str, inverse: PseudoInverse, predicted: int, watch: Watch, problem: Problem) -> str:
    """Factor if the memory and the time are allowed: one line with the size and the predicted cost."""
    require_memory(watch.method, predicted, problem.max_memory)
    seconds = costs.factor_seconds(inverse.size, problem.factor.nnz, problem.n_threads)
    if problem.time_limit.is_exceeded_by(seconds):
        raise LongFactorization(watch.method, seconds)
    work = f", {inverse.size.gflop:.3g} GFlop" if inverse.size.gflop else ""
    size = f"{factor_name}, {inverse.size.nnz:,} entries{work}"
    watch.begin(f"{size}, {gib(predicted)}", seconds=seconds)
    inverse.factor()
    return f"{size}, about {seconds:.0f} s, {gib(predicted)} of {gib(problem.max_memory)} allowed"


def _corrected(inverse: PseudoInverse, problem: Problem, pairs: RitzPairs) -> tuple[RitzPairs, Float64, int]:
    """Correct v <- v - M^+ (A' (A v) - lambda v) until the pairs are accurate: (pairs, errors, number of corrections).

    Each correction is a step of inverse iteration, in a form where rounding errors are relative to the correction.
    """
    tolerances, previous_values = problem.tolerances, np.full_like(pairs.values, np.inf)
    for n_done in range(MAX_REFINEMENTS + 1):
        residuals = residual_vectors(problem.factor, pairs)
        correction = inverse.apply(residuals)
        values = np.maximum(pairs.values, TINY)
        errors = davidson.outside(correction, pairs.vectors, ALL_ROWS)
        small = tolerances.met_by_residuals(np.linalg.norm(residuals, axis=0) / values, values)
        good = small and tolerances.met_by_vectors(errors, values) and tolerances.settled(previous_values, values)
        if good or n_done == MAX_REFINEMENTS:
            break
        previous_values = values
        basis, _ = orthonormalise(pairs.vectors - correction, correction[:, :0], problem.null)
        pairs = rayleigh_ritz(problem.factor, basis, basis.shape[1])
    return pairs, errors, n_done


def _finite(apply: Callable[[Float64], Float64]) -> Callable[[Float64], Float64]:
    """The same operator; it raises FactorizationError instead of returning NaN or infinity."""

    def checked(block: Float64) -> Float64:
        image = apply(block)
        if not np.isfinite(image).all():
            raise FactorizationError(
                "solving with the factor gave NaN or infinity, so the factor is singular; the neighbour graph may have "
                "several closed classes"
            )
        return image

    return checked


def _start_block(problem: Problem, width: int) -> Float64:
    """The given approximations, filled up with random columns that are the same in every run: (n, width)."""
    block = rows_of(problem.factor).random((problem.factor.shape[1], width))
    if problem.start is not None:
        start_columns = problem.start[:, :width]
        block[:, : start_columns.shape[1]] = start_columns
    return block

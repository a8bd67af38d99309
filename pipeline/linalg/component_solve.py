"""The eigenpairs of one component of the graph, from the matrices in the store, and their predicted cost."""

import contextlib
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Float64, Int64
from ..core.errors import LleError, NotEnoughMemory, StoreError, gib
from ..core.machine import available_cores
from ..core.methods import METHODS as FAMILY
from ..engine import subprocess_call
from ..engine.step import Json, Report
from ..kernels.eigensolver import methods
from ..kernels.eigensolver.costs import least_bytes, patience_seconds
from ..kernels.eigensolver.problem import Hooks, Problem
from ..kernels.eigensolver.rayleigh_ritz import Growth, NullVector, Tolerances, fix_signs
from ..kernels.eigensolver.solve import Spectrum, bottom_eigenpairs
from ..kernels.eigensolver.solvers import SQUARE, auto_methods, chosen, prediction_of
from ..kernels.graph.connectivity import closed_point
from ..kernels.quality.trustworthiness import participation, separated
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store
from . import component_matrices as matrices
from .coordinates import Coordinates
from .solver_checkpoint import delete_state, read_state, state_saver
from .solver_progress import recorded

ISOLATED_POINTS = 200_000
"""From this size on a separate process solves: a factor could need all memory. It starts in three seconds."""
LIMIT_OVER_PLAN = 1.3
"""Limit of the memory of that process, relative to the memory that the solver may plan with. Reserved memory counts:
PARDISO reserves memory that it never uses, 2 to 4 bytes for each entry of a factor, up to a fifth of the plan. With
``max_memory: auto`` the limit can be above the free memory. Then the system ends a process that uses too much."""
TRIES = 3
"""How often a method is started whose process another program ends."""


@dataclass(frozen=True)
class SolveJob:
    """The eigenpairs of one component, as a process of its own gets them."""

    url: str
    """Of the store."""
    component: int
    family: str
    """`method` of the config."""
    n_components: int
    method: str
    """`eigensolver.method`."""
    tol: float
    blocks: Blocks
    max_bytes: int
    max_steps: int
    stores_m: bool
    """Whether the store holds M."""
    more_pairs: tuple[int, ...] = ()
    """`Config.more_pairs`."""
    n_neighbors: int = 0
    """Neighbours of the trustworthiness by which coordinates are chosen."""
    on_gpu: bool = False
    on_workers: bool = False
    """Whether the Dask workers solve together, if the memory of this process, the driver, is not enough."""
    skip: dict[str, str] = field(default_factory=dict)
    """Methods that auto does not try, each with the reason."""


@dataclass(frozen=True)
class Solution:
    """The computed eigenpairs of a component, and the record of its coordinates among them, None for the lowest.

    `vector_errors` are estimates, None for pca; `stats` describe the solver; `subprocess_bytes` as for ``Report``.
    """

    n_points: int
    eigenvalues: list[float]
    residuals: list[float]
    participation: list[float]
    separated: list[int]
    converged: bool
    stats: Json
    vector_errors: list[float] | None = None
    coordinates: Json | None = None
    subprocess_bytes: int = 0


@dataclass(frozen=True)
class Solutions(Report):
    """What a task computed, for one component after another."""

    components: list[Solution]


def solve(store: Store, job: SolveJob, rows: Int64, factor: csr_array | None = None) -> Solution:
    """Compute the eigenpairs of the component with the points `rows`; for a large one in a separate process.

    ``store`` is that of the task: it refuses to write after the run was interrupted, and lists what was written.
    ``factor`` is A, None if it has to be read.
    """
    if job.on_workers and _needs_workers(store, job, len(rows)):
        from .shared_solve import solve_on_workers  # distributed

        return solve_on_workers(store, job, rows)
    if len(rows) < ISOLATED_POINTS or multiprocessing.current_process().daemon:  # it may not start processes
        return solve_here(lambda message: None, job, store, rows, factor)
    solution = _solve_isolated(job, store)
    store.bundles_written.add(eigenvectors_name(job.component))
    return solution


def _needs_workers(store: Store, job: SolveJob, n_points: int) -> bool:
    """Whether the least memory of a solve in one process is more than it may use."""
    row_entries = int(store.array(array_specs.NEIGHBOR_INDICES.name).shape[1]) + 1
    n_pairs = max([job.n_components, *job.more_pairs[:1]])
    return least_bytes(n_points, row_entries, n_pairs, square=True) > job.max_bytes


def _solve_isolated(job: SolveJob, store: Store) -> Solution:
    """Solve in a separate process, which is killed if the store refuses to write: a newer run has taken it over.

    If another program ends the process, the same method is started again. If the process dies for another reason, or
    TRIES times, in a method that was not requested, another method solves, and the report says so.
    """

    def check() -> None:
        with contextlib.suppress(StoreError):  # it cannot be reached at the moment
            store.before_write()

    deaths = Counter[str]()
    while True:
        try:
            # CUDA reserves memory that it never uses
            limit = None if job.on_gpu else int(LIMIT_OVER_PLAN * job.max_bytes)
            report, peak = subprocess_call.call(solve_here, (job,), limit, check)
        except subprocess_call.ProcessDied as death:
            name = death.last_message
            deaths[name] += 1
            if death.cause == "stopped":
                raise
            if death.cause == "killed" and deaths[name] < TRIES:
                print(f"lle: warning: {death}, not for lack of memory; it is started again", file=sys.stderr)
                continue
            if name in {"", job.method, methods.ON_M, *job.skip}:
                raise _given_up(death, deaths[name]) from None
            failure = f"{name} was tried and its process ended {death.ending}"
            job = replace(job, skip={**job.skip, name: failure})
            continue
        if job.skip:
            report.stats["killed"] = "; ".join(job.skip.values())
        return replace(report, subprocess_bytes=peak)


def _given_up(death: subprocess_call.ProcessDied, n_deaths: int) -> LleError:
    """The error for a process that died in a method that nothing can replace."""
    if death.cause == "killed":
        return LleError(
            f"{death} {n_deaths} times, and Linux counted no process that it killed for lack of memory: another "
            f"program ends it. Run the same command again"
        )
    smaller = "" if death.last_message.startswith("multigrid") else ", or set eigensolver.method to multigrid"
    advice = f"raise eigensolver.max_memory{smaller}"
    return NotEnoughMemory(f"{death}, most likely because memory ran out", advice=advice)


def solve_here(
    send_progress: subprocess_call.SendProgress,
    job: SolveJob,
    store: Store | None = None,
    rows: Int64 | None = None,
    factor: csr_array | None = None,
) -> Solution:
    """Solve in this process, and write the vectors to the store. None: the store is opened, the others are read."""
    store, state = store or Store(job.url), state_name(job)
    rows = matrices.component_rows(store, job.component) if rows is None else rows
    problem = _problem(store, job, rows, factor)
    null = matrices.null_vector(store, rows) if job.family == "laplacian" else None
    choice = Coordinates(store, rows, job.n_components, job.n_neighbors)
    with recorded(store, job.component) as progress:
        problem = problem._replace(
            cost_matrix=lambda: matrices.cost_matrix(store, rows, job.blocks, problem.whole_factor, job.stores_m),
            hooks=Hooks(
                begin=send_progress,
                keep_state=state_saver(store, state),
                progress=progress,
                load_state=lambda method: read_state(store, state, method, len(rows)),
            ),
            candidates=lambda: matrices.leading_components(store, rows, job.blocks.n),
            null=null,
            growth=Growth(job.more_pairs, lambda vectors: _suffice(choice, _functions(vectors, null))),
            on_gpu=job.on_gpu,
        )
        spectrum = bottom_eigenpairs(problem, job.method, job.skip)
    vectors = spectrum.vectors if null is None else fix_signs(_functions(spectrum.vectors, null))
    return write_solution(choice, job, spectrum, lambda j: vectors[:, j])


def write_solution(
    choice: Coordinates, job: SolveJob, spectrum: Spectrum, vector: Callable[[int], Float64]
) -> Solution:
    """Choose the coordinates, write their vectors, and delete the solver's state if it converged.

    ``vector`` gives an eigenvector (n,). It is asked for one after another, because all may not fit in memory.
    """
    store, each = choice.store, (vector(j) for j in range(len(spectrum.eigenvalues)))
    found = [(float(participation(v[:, None])[0]), separated(v), v[choice.sampled]) for v in each]
    sizes, gaps, sample = zip(*found, strict=True)
    taken, chosen = list(range(len(sizes))), None
    if job.more_pairs:
        taken, chosen = choice.choose(np.array(sizes), np.column_stack(sample), vector)
    vectors = np.empty((len(choice.rows), len(taken)))
    for column, number in enumerate(taken):
        vectors[:, column] = vector(number)
    store.write_bundle(
        eigenvectors_name(job.component),
        rows=choice.rows,
        vectors=vectors,
        eigenvalues=spectrum.eigenvalues,
        converged=np.array(spectrum.converged),
    )
    if spectrum.converged:
        delete_state(store, state_name(job))
    return Solution(
        len(choice.rows),
        spectrum.eigenvalues.tolist(),
        spectrum.residuals.tolist(),
        list(sizes),
        list(gaps),
        bool(spectrum.converged),
        asdict(spectrum.stats),
        spectrum.vector_errors.tolist(),
        chosen,
    )


def eigenvectors_name(component: int) -> str:
    return f"_work/eigen/{component:05d}"


def state_name(job: SolveJob) -> str:
    return f"_work/eigen/state-{job.component:05d}"


def _suffice(choice: Coordinates, vectors: Float64) -> bool:
    return choice.suffice(participation(vectors), vectors[choice.sampled])


def _functions(vectors: Float64, null: NullVector) -> Float64:
    """Eigenvectors of M as functions on the points: for Laplacian eigenmaps divided by the null vector."""
    return vectors if null is None else vectors / (null[:, None] * np.sqrt(len(null)))


def predict(job: SolveJob) -> Json | None:
    """Predict the method for a component, from the matrices in the store; None if another program ended the process."""
    store = Store(job.url)
    if job.on_workers and _needs_workers(store, job, store.array(array_specs.POINT_COMPONENT.name).shape[0]):
        reason = f"one process would need more than {gib(job.max_bytes)}, so the workers solve together"
        return {"method": "multigrid", "reason": reason}
    try:
        prediction: Json = subprocess_call.call(predict_here, (job,), int(LIMIT_OVER_PLAN * job.max_bytes))[0]
    except (subprocess_call.ProcessDied, NotEnoughMemory) as error:
        if isinstance(error, subprocess_call.ProcessDied) and error.cause != "crashed":
            return None
        reason = f"the analysis of a factor does not fit {gib(job.max_bytes)} ({error.args[0]})"
        return {"method": "multigrid", "reason": reason}
    return prediction


def predict_here(send_progress: subprocess_call.SendProgress, job: SolveJob) -> Json:
    store = Store(job.url)
    problem = _problem(store, job, matrices.component_rows(store, job.component))._replace(
        growth=Growth(job.more_pairs, lambda vectors: True)
    )
    square, names = job.family == "lle", [job.method]
    if job.method == "auto":  # the LU of A is smaller than the Cholesky factor of M, so only one of them is predicted
        names = [name for name in auto_methods(problem, {}) if not square or name in SQUARE]
    elif job.method == "multigrid" and not square:
        names = [methods.ON_M]
    predicted = [prediction_of(problem, name) for name in names]
    best = chosen(predicted, patience_seconds(problem.factor.nnz, problem.n_threads, square=square))
    return {
        **best._asdict(),
        "allowed_bytes": job.max_bytes,
        "routes": [prediction._asdict() for prediction in predicted],
    }


def _problem(store: Store, job: SolveJob, rows: Int64, factor: csr_array | None = None) -> Problem:
    """The eigenproblem of a component with the points `rows`; its factor A or F is read if it is None."""
    if job.family == "lle":
        factor = matrices.load_factor(store, rows, job.blocks) if factor is None else factor
        pin = closed_point(factor, f"component {job.component}")
    else:
        factor, pin = matrices.load_local_factors(store, rows, job.blocks), 0
    return Problem(
        factor,
        job.n_components,
        pin,
        lambda: matrices.product_matrix(factor),
        Tolerances(job.tol),
        job.max_bytes,
        available_cores(),
        job.max_steps,
        job.family == "lle",
        flat=FAMILY[job.family].flat,
    )

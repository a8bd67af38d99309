"""The eigenpairs of one component whose rows lie on the Dask workers: A, the hierarchy and all vectors.

Each worker reads its rows from the store, and all run the same program (`core.group`). The rows are cut at fixed
positions, so the bytes of the result do not depend on the number of workers, unless their memory is scarce. Vectors go
to the store by cuts.
"""

import gc
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
from distributed import get_client

from ..clusters.limits import MEMORY_SHARE, workers_of
from ..core.arrays import Array, Float64, Int64
from ..core.errors import NotEnoughMemory
from ..core.group import Group
from ..core.machine import available_cores, process_location, return_freed_memory
from ..engine.tasks import PeakMemory
from ..engine.worker_group import run_in_group
from ..kernels.eigensolver.costs import SOLVER_BYTES
from ..kernels.eigensolver.pardiso import FactorizationError
from ..kernels.eigensolver.problem import Hooks, Problem, SolverProgress
from ..kernels.eigensolver.rayleigh_ritz import Growth, Tolerances
from ..kernels.eigensolver.rows import Rows, cut_bounds, in_group
from ..kernels.eigensolver.shared_matrix import SharedMatrix
from ..kernels.eigensolver.solve import Spectrum, bottom_eigenpairs
from ..kernels.quality.trustworthiness import participation
from ..storage.store import Store
from . import component_matrices as matrices
from .component_solve import Solution, SolveJob, state_name, write_solution
from .coordinates import Coordinates
from .solver_checkpoint import read_state, state_saver
from .solver_progress import StateHead, recorded


def solve_on_workers(store: Store, job: SolveJob, points: Int64) -> Solution:
    """Compute the eigenpairs of the component with these points on the workers, and choose its coordinates."""
    client = get_client()
    limits = [worker["memory_limit"] for worker in workers_of(client).values()]
    least = min((limit for limit in limits if limit), default=0)
    n_bytes = max(int(MEMORY_SHARE * least) - SOLVER_BYTES, 0) if least else job.max_bytes
    n_cuts = len(cut_bounds(len(points))) - 1
    spectrum, peak = run_in_group(client, solve_rows, (job, n_bytes), n_cuts, lambda: _saved_steps(store, job))
    choice = Coordinates(store, points, job.n_components, job.n_neighbors)
    solution = write_solution(choice, job, spectrum, lambda number: stored_vector(store, job.component, n_cuts, number))
    delete_vectors(store, job.component)
    return replace(solution, subprocess_bytes=peak)


def _saved_steps(store: Store, job: SolveJob) -> int:
    """Steps of the saved state: if a worker is lost, the next try continues there."""
    head = store.read_record(f"{state_name(job)}/head.json", StateHead)
    return head.n_steps if head else 0


def solve_rows(group: Group, job: SolveJob, max_bytes: int) -> tuple[Spectrum, int]:
    """Solve together with the other processes of the group, and write the vectors of this process to the store.

    Returns the spectrum without vectors, and the largest memory of a process in bytes.
    """
    store = Store(job.url)
    gc.collect()  # the traceback of a failed attempt holds its matrices
    return_freed_memory()
    with PeakMemory() as peak:
        points = matrices.component_rows(store, job.component)
        rows = in_group(group, len(points))
        with recorded(store, job.component) if group.rank == 0 else nullcontext(lambda _: None) as progress:
            spectrum = _solved(_problem(store, job, points, rows, max_bytes, progress))
        for cut, (first, past) in enumerate(rows.own_cuts, int(rows.first_cuts[group.rank])):
            for number, vector in enumerate(spectrum.vectors[first:past].T):
                store.write_bundle(_name(job.component, cut, number), vector=vector)
    peaks = group.gather(np.array([peak.bytes]))  # all have written their vectors
    return replace(spectrum, vectors=spectrum.vectors[:0]), int(max(part[0] for part in peaks))


def _solved(problem: Problem) -> Spectrum:
    """The eigenpairs by multigrid. Raises NotEnoughMemory if it does not work for A: others need all rows at once."""
    try:
        return bottom_eigenpairs(problem, "multigrid")
    except FactorizationError as error:
        raise NotEnoughMemory(
            f"{error}, and the memory of one process is not enough for another eigensolver",
            advice="raise weights.reg, or eigensolver.max_memory in a driver with more memory",
        ) from None


def _problem(
    store: Store, job: SolveJob, points: Int64, rows: Rows, max_bytes: int, progress: Callable[[SolverProgress], None]
) -> Problem:
    """The eigenproblem of the points (n,) of a component, with the rows of this process."""
    wanted, state = slice(rows.start, rows.stop), state_name(job)
    factor = SharedMatrix.from_rows(rows, matrices.load_factor(store, points, job.blocks, wanted))
    host = zlib.crc32(process_location()[0].encode())
    n_here = sum(int(each[0]) == host for each in rows.group.gather(np.array([host])))
    return Problem(
        factor,
        job.n_components,
        0,
        factor.gathered,
        Tolerances(job.tol),
        max_bytes,
        max(1, available_cores() // n_here),
        job.max_steps,
        is_square=True,
        hooks=Hooks(
            keep_state=state_saver(store, state, rows),
            progress=progress,
            load_state=lambda method: read_state(store, state, method, len(points), rows),
        ),
        candidates=lambda: matrices.leading_components(store, points, job.blocks.n, wanted, rows.agreed),
        growth=Growth(job.more_pairs, lambda vectors: _suffice(store, job, points, vectors, rows)),
    )


def _suffice(store: Store, job: SolveJob, points: Int64, vectors: Float64, rows: Rows) -> bool:
    choice = Coordinates(store, points, job.n_components, job.n_neighbors)
    sizes, sample = participation(vectors, rows), _sampled(choice.sampled, vectors, rows)
    answer: Array = np.array([rows.group.rank == 0 and choice.suffice(sizes, sample)])
    return bool(rows.group.gather(answer)[0][0])


def _sampled(positions: Int64, vectors: Float64, rows: Rows) -> Float64:
    """The entries (s, c) at some rows, ascending, of vectors of which this process holds its own rows (own, c)."""
    own = positions[(positions >= rows.start) & (positions < rows.stop)] - rows.start
    return np.concatenate(rows.group.gather(vectors[own]))


def _name(component: int, cut: int, number: int) -> str:
    return f"_work/eigen/part-{component:05d}-{cut:03d}-{number}"


def stored_vector(store: Store, component: int, n_cuts: int, number: int) -> Float64:
    """(n,) the vector of this number, as ``solve_rows`` stores it by cuts."""
    names = [_name(component, cut, number) for cut in range(n_cuts)]
    return np.concatenate([store.read_bundle(name)["vector"] for name in names])


def delete_vectors(store: Store, component: int) -> None:
    """Delete all stored vectors of the component, also those of an earlier attempt with more of them."""
    prefix = _name(component, 0, 0).rsplit("-", 2)[0]
    for name in store.objects.names("_work/eigen"):
        if name.startswith(f"{prefix}-"):
            store.delete_bundle(name.removesuffix(".npz"))

"""The lowest eigenvectors of M for each component of the graph, and the embedding in input order.

Method pca has no M and no components: all points are projected onto their principal components.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from ..clusters.limits import expected_workers, is_on_this_machine, memory_of_high_memory, memory_resource
from ..config.models import Config
from ..core.errors import BoundsNotMet, NotEnoughMemory
from ..core.machine import memory_limit, solver_share
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import SURFACE_FEATURES, factor_entries
from ..engine.step import DRIVER, WHOLE_DATA, Compilation, Json, Report, Resource, Step, Task, Work, task
from ..kernels.eigensolver.costs import SOLVER_BYTES, least_bytes, multigrid_seconds, patience_seconds, shared_bytes
from ..kernels.eigensolver.davidson import block_width
from ..kernels.eigensolver.problem import SolverStats
from ..kernels.eigensolver.rows import ALL_ROWS, MOST_CUTS
from ..kernels.quality.trustworthiness import participation, separated
from ..linalg import component_solve
from ..linalg.alignment import EMBEDDED, PRINCIPAL, ROTATION, align_step, coordinate_scale
from ..linalg.component_matrices import in_components
from ..linalg.component_solve import Solution, Solutions, SolveJob
from ..linalg.coordinates import choice_bytes
from ..linalg.preprocess import chunk_rows, fit_bytes, principal_components
from ..linalg.solver_progress import solver_state
from ..search.among_stored import PLACED_COMPONENT, place_rows, place_step
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

POINTS_TOGETHER = 10_000
"""Components with fewer points are solved together, in tasks of less than twice as many points. A task of one small
component spends most of its time on reading."""

PIECE_SECONDS = 0.008
"""Of a small component, beside its share of the solve."""

COMPILATION = Compilation("aggregation.restrict_rows", 10.0)
"""Functions of multigrid; processor seconds of the reference core."""


def steps(config: Config, layout: Layout) -> Steps:
    """choose -> solve (-> place) (-> align) -> write."""
    n, m = layout.n_points, config.eigensolver.n_components
    more_pairs = config.more_pairs
    n_pairs = max([m, *more_pairs[:1]])
    if config.method == "pca":
        yield from project_step(config, layout)
        yield from _write_steps(config, layout, 1, "scores", n_pairs)
        return layout
    choose = task(choose_components, components=config.graph.components, n_large=layout.n_large, least=m + 2)
    n_tasks = min(layout.n_large, (n - 1) // POINTS_TOGETHER + 1)
    expected = ChosenComponents(layout.n_large, layout.n_components, list(range(n_tasks)))
    [chosen] = yield from Step(
        "solve_embedding.choose", choose, 1, 12 * n, version=2, expected=lambda b: expected, runs_on=WHOLE_DATA
    )
    n_graph, firsts, places = chosen.n_components, chosen.firsts, 0
    n_bytes, on_workers = _solve_bytes(config, layout)
    solved = yield from Step(
        "solve_embedding.solve",
        solve_task(config, layout, (*firsts, n_graph), on_workers=on_workers),
        len(firsts),
        SOLVER_BYTES + n_bytes,
        bundles={"_work/eigen": disk_costs.eigenvectors(n=n, width=block_width(n_pairs), components=n_graph)},
        version=34,
        runs_on=DRIVER if on_workers else WHOLE_DATA,
        remark="the workers solve together, because one process has too little memory" if on_workers else "",
        all_cores=True,
        progress=solver_state,
        work=_solve_work(config, layout),
    )
    n_pairs = max((len(part.eigenvalues) for report in solved for part in report.components), default=n_pairs)
    if config.graph.components == "separate" and n_graph < chosen.n_weak:
        places = sum(placed.count for placed in (yield from place_step(config, layout, n_graph)))
    yield from _write_steps(config, layout, n_graph, config.embedding.scale, n_pairs, placed=places > 0)
    return layout


def _solve_bytes(config: Config, layout: Layout) -> tuple[int, bool]:
    """(memory of the largest process that solves, whether the Dask workers solve together).

    They do if no process is known to have the memory. Workers of this machine share its memory, so they do not help.
    """
    n, solver, cluster = layout.n_points, config.eigensolver, config.execution.cluster
    row_entries, is_lle = factor_entries(config.method, layout.k_max, solver.n_components), config.method == "lle"
    if layout.factor_entries:
        row_entries = min(row_entries, math.ceil(layout.factor_entries / min(n, layout.blocks.size)))
    n_pairs = max([solver.n_components, *config.more_pairs[:1]])
    n_bytes = least_bytes(n, row_entries, n_pairs, square=is_lle)
    if is_lle and solver.method in ("auto", "multigrid") and solver.device == "cpu" and not is_on_this_machine(cluster):
        high_memory = memory_of_high_memory(cluster)
        allowed = n_bytes if high_memory is None else solver_share(high_memory - task_costs.PROCESS_BYTES)
        if solver.max_memory != "auto" or memory_resource(cluster) is None:
            allowed = memory_limit(solver.max_memory)
        if n_bytes > allowed:
            n_workers = expected_workers(cluster) or MOST_CUTS
            return shared_bytes(n, row_entries, n_pairs, solver.n_components, n_workers), True
    if config.more_pairs:
        n_bytes += choice_bytes(n, layout.n_features, n_pairs, solver.n_components)
    return n_bytes, False


def solve_task(config: Config, layout: Layout, ends: Sequence[int], *, on_workers: bool) -> Task[Solutions]:
    """`ends`: the first component of each task, and the number of all."""
    solver, more_pairs = config.eigensolver, config.more_pairs
    return task(
        solve_components,
        ends=tuple(ends),
        family=config.method,
        n_components=solver.n_components,
        method=solver.method,
        tol=solver.tol,
        max_memory=solver.max_memory,
        blocks=layout.blocks,
        max_steps=solver.max_steps,
        stores_m=config.output.cost_matrix,
        more_pairs=more_pairs,
        n_neighbors=config.neighbors.n_neighbors if more_pairs else 0,
        on_gpu=solver.device == "gpu",
        on_workers=on_workers,
    )


def project_step(config: Config, layout: Layout) -> Step[Solutions]:
    """The step of method pca in place of the solve: one block of the QR, and the scores of all points."""
    n, d, m, block_size = layout.n_points, layout.n_features, config.eigensolver.n_components, layout.block_points
    n_bytes = fit_bytes(block_size=block_size, d=d, n=n) + 24 * n * m
    project = task(
        project_points, n_components=m, n_features=d, tol=config.eigensolver.tol, blocks=Blocks(n, block_size)
    )
    bundles = {
        "_work/eigen": disk_costs.eigenvectors(n=n, width=m, components=1),
        f"{PRINCIPAL}.npz": disk_costs.files(1, 8 * d * (m + 1)),
    }
    work = Work(0.4 + 1e-9 * n * d * min(n, d))
    return Step("solve_embedding.solve", project, 1, n_bytes, bundles=bundles, version=5, runs_on=WHOLE_DATA, work=work)


def _solve_work(config: Config, layout: Layout) -> Work:
    """The time of the factorization of I - W, or of multigrid if that is requested or tried first.

    The fill-in was measured on Swiss rolls of 1,000 to 1,000,000 points and on ten-dimensional data.
    """
    n, k, is_lle = layout.n_points, config.k_bounds[1], config.method == "lle"
    entries, is_surface = n * (k + 1), layout.n_features <= SURFACE_FEATURES
    if is_surface:
        fill, gflop = n * 3.8 * k * (n / 1000) ** 0.17, 1.3 * (n / 1e5) ** 1.53 * (k / 12) ** 2
    else:
        fill, gflop = 2.2e6 * (n / 3000) ** 1.9, 1.5 * (n / 3000) ** 2.85
    seconds, compilation = entries / 2.8e6 + gflop / 17 + (2e-7 if is_surface else 3e-8) * fill, None
    is_long = not is_surface and seconds > patience_seconds(entries, 1, square=is_lle)
    if is_long or config.eigensolver.method == "multigrid":
        seconds, compilation = multigrid_seconds(entries, 1, on_m=not is_lle), COMPILATION
    seconds *= (1 + config.eigensolver.n_components / 20) * (1 if is_lle else 1.6)
    return Work(0.01 + seconds + PIECE_SECONDS * layout.n_large, compilation=compilation)


def _write_steps(
    config: Config, layout: Layout, n_graph: int, scale: str, n_pairs: int, placed: bool = False
) -> Generator[Step[Report], list[Report], None]:
    n, m, blocks = layout.n_points, config.eigensolver.n_components, layout.input_blocks
    aligned = config.embedding.align is not None
    if aligned:
        yield from align_step(config, layout, n_graph, scale)
    write = task(
        write_embedding,
        n_components=m,
        n_pairs=n_pairs,
        n_graph=n_graph,
        scale=scale,
        blocks=blocks,
        aligned=aligned,
        placed=placed,
    )
    arrays = (
        array_specs.EMBEDDING.sized(blocks, m),
        array_specs.COMPONENT.sized(blocks),
        array_specs.EIGENVALUES.sized(Blocks(n_graph, n_graph), n_pairs),
        array_specs.EMBEDDED_HASH.sized(blocks, 2),
    )
    n_bytes = task_costs.TASK_BYTES + 24 * n * (m + 1) + 8 * blocks.n + blocks.size * (16 * m + 40)
    bundles = {f"{EMBEDDED}.npz": disk_costs.per_point(n=n, blocks=1, numbers=m)}
    yield from Step("solve_embedding.write", write, 1, n_bytes, arrays, bundles, runs_on=WHOLE_DATA)


@dataclass(frozen=True)
class ChosenComponents(Report):
    """Weak components that are embedded, all of them, and the first one of each task that solves."""

    n_components: int
    n_weak: int
    firsts: list[int]


@dataclass(frozen=True)
class WrittenRows(Report):
    rows_in_small_components: int
    rows_placed: int


def choose_components(store: Store, block_index: int, components: str, n_large: int, least: int) -> ChosenComponents:
    """Count the weak components that get an embedding: those among the first `n_large` with at least `least` points.

    Raises BoundsNotMet if graph.components is error and there are several components.
    """
    sizes = np.bincount(store.read_all(array_specs.POINT_COMPONENT.name))
    if components == "error" and len(sizes) > 1:
        raise BoundsNotMet(
            f"graph.components is error, and the neighbour graph has {len(sizes)} components (largest "
            f"{', '.join(map(str, sizes[:5]))} points). Raise neighbors.n_neighbors, or set graph.components to "
            f"separate, connect or largest"
        )
    n_embedded = 1 if components == "largest" else max(1, int((sizes[:n_large] >= least).sum()))
    starts = np.cumsum(sizes[:n_embedded]) - sizes[:n_embedded]
    firsts = np.flatnonzero(np.diff(starts // POINTS_TOGETHER, prepend=-1))
    return ChosenComponents(n_embedded, len(sizes), firsts.tolist())


def solve_components(
    store: Store,
    block_index: int,
    ends: tuple[int, ...],
    family: str,
    n_components: int,
    method: str,
    tol: float,
    blocks: Blocks,
    max_memory: int | str,
    max_steps: Resource[int],
    stores_m: Resource[bool],
    more_pairs: tuple[int, ...] = (),
    n_neighbors: int = 0,
    on_gpu: bool = False,
    on_workers: Resource[bool] = False,
) -> Solutions:
    """Compute the eigenpairs of the components of a task, and choose their coordinates if there are `more_pairs`."""
    numbers, solutions = range(*ends[block_index : block_index + 2]), list[Solution]()
    settings = family, n_components, method, tol, blocks, memory_limit(max_memory), max_steps, stores_m
    try:
        parts = in_components(store, numbers, blocks, is_square=family == "lle")
        for number, (rows, factor) in zip(numbers, parts, strict=True):
            counts = tuple(max(n_components, min(count, len(rows) - 2)) for count in more_pairs)
            job = SolveJob(store.url, number, *settings, counts, n_neighbors, on_gpu, on_workers)
            solutions.append(component_solve.solve(store, job, rows, factor))
    except NotEnoughMemory as error:
        if max_memory != "auto":
            error.exit_code = 2  # the limit is in the config, so a retry would fail again
        raise
    message = f"eigensolver: {solutions[0].stats['reason']}" if numbers.start == 0 else ""
    return Solutions(solutions, message=message, subprocess_bytes=max(part.subprocess_bytes for part in solutions))


def project_points(
    store: Store, block_index: int, n_components: int, n_features: int, tol: float, blocks: Blocks
) -> Solutions:
    """Project all points onto their principal components: scores in input units; eigenvalues are the variances."""
    mean, components = principal_components(store, blocks.n, n_features, n_components)
    scores, covered = np.empty((blocks.n, n_components)), np.zeros((n_features, n_components))
    size = chunk_rows(n_features, blocks.n)
    for start in range(0, blocks.n, size):
        points = store.read(array_specs.POINTS.name, start, min(start + size, blocks.n)) - mean
        scores[start : start + size] = points @ components.T
        covered += points.T @ scores[start : start + size]
    variances = np.square(scores).sum(axis=0) / (blocks.n - 1)
    floor = float(np.finfo(np.float64).eps * variances[0])
    positive = np.maximum(variances, np.finfo(np.float64).tiny)
    # divided first, because squares of variances may overflow
    residuals = np.linalg.norm(covered / (blocks.n - 1) / positive - components.T * (variances > 0), axis=0)
    signs = np.where(ALL_ROWS.largest(scores) < 0.0, -1.0, 1.0)
    scores *= signs
    store.write_bundle(PRINCIPAL, mean=mean, components=components * signs[:, None])
    name = component_solve.eigenvectors_name(0)
    store.write_bundle(name, rows=np.arange(blocks.n), vectors=scores, eigenvalues=variances)
    predicted = fit_bytes(block_size=blocks.size, d=n_features, n=blocks.n) + 24 * blocks.n * n_components
    reason = f"pca: singular values of all {blocks.n:,} points by QR in blocks"
    stats = asdict(SolverStats("pca", reason, predicted_bytes=predicted, rounding_floor=floor))
    converged = bool((residuals <= np.maximum(tol, 100 * n_features * floor / positive)).all())
    values, shares, gaps = variances.tolist(), participation(scores).tolist(), [separated(v) for v in scores.T]
    return Solutions([Solution(blocks.n, values, residuals.tolist(), shares, gaps, converged, stats)])


def predict_solver(config: Config, store: Store, layout: Layout) -> Json | None:
    """Predict the method of the eigensolver for the largest component, from the matrices in the store."""
    layout = replace(layout, n_points=store.array(array_specs.POINT_COMPONENT.name).shape[0])
    parameters: Json = dict(solve_task(config, layout, (), on_workers=_solve_bytes(config, layout)[1]).parameters)
    n_bytes = memory_limit(parameters.pop("max_memory"))
    del parameters["ends"]
    return component_solve.predict(SolveJob(store.url, 0, max_bytes=n_bytes, **parameters))


def write_embedding(
    store: Store,
    block_index: int,
    n_components: int,
    n_pairs: int,
    n_graph: int,
    scale: str,
    blocks: Blocks,
    aligned: bool,
    placed: bool,
) -> WrittenRows:
    """Write embedding and component of every input row; a duplicate row gets those of its representative."""
    original = store.read_all(array_specs.ORIGINAL_INDEX.name)
    embedding = np.full((len(original), n_components), np.nan)
    component = np.full(len(original), -1, np.int32)
    eigenvalues, converged = np.full((n_graph, n_pairs), np.nan), True
    rotations = store.read_bundle(ROTATION)["rotations"] if aligned else np.empty(0)
    for number in range(n_graph):
        part = store.read_bundle(component_solve.eigenvectors_name(number))
        vectors = part["vectors"] @ rotations[number] if aligned else part["vectors"]
        vectors *= coordinate_scale(scale, len(vectors))
        embedding[part["rows"]], component[part["rows"]] = vectors, number
        eigenvalues[number, : len(part["eigenvalues"])] = part["eigenvalues"]
        converged &= bool(part.get("converged", True))
        del part, vectors  # those of the largest component take as much memory as the embedding
    if placed:
        place_rows(store, embedding, component)
    internal = np.full(blocks.n, -1, np.int64)
    internal[original] = np.arange(len(original))
    n_placed = n_dropped = 0
    for start in range(0, blocks.n, blocks.size):
        stop = min(start + blocks.size, blocks.n)
        store.write(array_specs.EMBEDDED_HASH.name, start, store.read(array_specs.ROW_HASH.name, start, stop))
        representative = store.read(array_specs.REPRESENTATIVE.name, start, stop)
        rows = np.where(representative >= 0, internal[representative], -1)
        store.write(array_specs.EMBEDDING.name, start, np.where(rows[:, None] >= 0, embedding[rows], np.nan))
        store.write(array_specs.COMPONENT.name, start, np.where(rows >= 0, component[rows], -1).astype(np.int32))
        labels = component[rows[rows >= 0]]
        n_placed += int((labels == PLACED_COMPONENT).sum())
        n_dropped += int((labels == -1).sum())
    store.write(array_specs.EIGENVALUES.name, 0, eigenvalues)
    store.write_bundle(EMBEDDED, embedding=embedding, component=component, converged=np.array(converged))
    return WrittenRows(n_dropped, n_placed)

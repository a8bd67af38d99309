"""The lowest eigenvectors of M for each component of the graph, and the embedding in input order.

Method pca has no M and no components: all points are projected onto their principal components.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from ..config.models import Config
from ..core.errors import BoundsNotMet, LleError, NotEnoughMemory, gib
from ..core.machine import available_cores, memory_limit
from ..engine import disk_costs, subprocess_call
from ..engine.plan import DRIVER, WHOLE_DATA, Decides, Layout, Report, Runs, Step, Steps, Writes
from ..kernels.eigensolver.davidson import block_width
from ..kernels.eigensolver.factor_cost import patience_seconds
from ..kernels.eigensolver.method_choice import chosen, predict, predicted_methods
from ..kernels.eigensolver.normal_operator import NormalOperator
from ..kernels.eigensolver.problem import NO_CANDIDATES, Hooks
from ..kernels.eigensolver.rayleigh_ritz import fix_signs
from ..kernels.eigensolver.solve import bottom_eigenpairs
from ..kernels.graph.connectivity import closed_point
from ..kernels.quality.trustworthiness import CLUMP_SHARE, participation
from ..linalg.alignment import EMBEDDED, align_step, coordinate_scale, rotations
from ..linalg.component_matrices import (
    cost_matrix,
    leading_components,
    load_factor,
    load_local_factors,
    null_vector,
    product_matrix,
)
from ..linalg.coordinates import MOST_PAIRS, select_step, taken_vectors
from ..linalg.solver_checkpoint import StoredAnalyses, delete_state, read_state, state_saver
from ..linalg.solver_progress import describe_progress, recorded
from ..search.among_stored import PLACED_COMPONENT, place_rows, place_step
from ..storage import array_specs
from ..storage.array_specs import PlannedArray
from ..storage.blocks import Blocks
from ..storage.store import Store
from .principal_projection import project_step

FLAT = {"ltsa", "hessian"}
"""Methods for which the coordinates of exactly flat data are also null vectors of M."""
ENTRY_BYTES = 12
LIBRARY_BYTES = 2**28
"""Memory of MKL and numba, for any problem size."""
ISOLATED_POINTS = 200_000
"""From this size on a separate process solves: a factor could need all memory. It starts in three seconds."""
LIMIT_OVER_PLAN = 1.15
"""Memory at which that process is stopped, relative to the memory that the solver may plan with."""
TRIES = 3
"""How often a method is started whose process another program ends."""


def steps(config: Config, layout: Layout) -> Steps:
    """choose -> solve (-> select) (-> place) (-> align) -> write."""
    n, m, block_size = layout.n_points, config.eigensolver.n_components, layout.block_points
    n_pairs = config.n_eigenpairs
    blocks = Blocks(n, block_size)
    if config.method == "pca":
        yield project_step(config, layout)
        yield from _write_steps(config, layout, 1, "scores", n_pairs)
        return layout
    [chosen] = yield Step(
        "solve_embedding",
        "choose",
        choose_components,
        1,
        Decides({"components": config.graph.components, "n_large": layout.n_large, "least": m + 2}),
        Runs(12 * n, place=WHOLE_DATA),
        expected=lambda b: {"n_components": layout.n_large, "n_weak": layout.n_components},
    )
    solver = config.eigensolver
    decides = {"family": config.method, "n_components": n_pairs, "n_wanted": m, "blocks": blocks}
    solved = yield Step(
        "solve_embedding",
        "solve",
        solve_component,
        chosen["n_components"],
        Decides(decides | solver.model_dump(include={"method", "tol", "max_memory"}), version=7),
        Runs(
            min_bytes(n, (layout.k_max + 1) * (1 if config.method == "lle" else layout.k_max), n_pairs),
            place=DRIVER if solver.distributed else WHOLE_DATA,
            all_cores=True,
            resources=solver.model_dump(include={"max_degrees", "distributed"})
            | {"stores_m": config.output.cost_matrix},
            state=describe_progress,
        ),
        Writes(
            bundles=("_work/eigen",),
            bundle_bytes=disk_costs.eigenvectors(n=n, width=block_width(n_pairs), components=chosen["n_components"]),
        ),
    )
    n_graph, places = chosen["n_components"], 0
    n_pairs = max(len(report.get("eigenvalues", [])) or n_pairs for report in solved)
    if n_pairs > m:
        yield select_step(config, layout, n_graph)
    if config.graph.components == "separate" and n_graph < chosen["n_weak"]:
        places = sum(report["placed"] for report in (yield place_step(config, layout, n_graph)))
    yield from _write_steps(config, layout, n_graph, config.embedding.scale, n_pairs, placed=places > 0)
    return layout


def min_bytes(n_points: int, row_entries: int, n_components: int) -> int:
    """Least bytes of the eigensolve: polynomial with the smallest basis. A factor is only known after its analysis."""
    width = block_width(n_components)
    return LIBRARY_BYTES + n_points * (4 * ENTRY_BYTES * row_entries + 8 * (10 * width + 2 * 3 * width) + 4 * 40)


def _write_steps(
    config: Config, layout: Layout, n_graph: int, scale: str, n_pairs: int, placed: bool = False
) -> Iterator[Step]:
    n, m, rows, block_size = layout.n_points, config.eigensolver.n_components, layout.n_input, layout.block_points
    aligned, selected = config.embedding.align is not None, n_pairs > m
    if aligned:
        yield align_step(config, layout, n_graph, scale, selected)
    sizes = {"n_components": m, "n_pairs": n_pairs, "n_graph": n_graph, "blocks": Blocks(rows, block_size)}
    yield Step(
        "solve_embedding",
        "write",
        write_embedding,
        1,
        Decides({**sizes, "scale": scale, "aligned": aligned, "placed": placed, "selected": selected}),
        Runs(8 * n * (n_pairs + selected * m + 2) + 8 * rows * (m + 2), place=WHOLE_DATA),
        Writes(
            arrays=(
                PlannedArray(array_specs.EMBEDDING, (rows, m), "float64", block_size),
                PlannedArray(array_specs.COMPONENT, (rows,), "int32", block_size),
                PlannedArray(array_specs.EIGENVALUES, (n_graph, n_pairs), "float64", n_graph),
                *([PlannedArray(array_specs.EMBEDDED_HASH, (rows, 2), "uint64", block_size)] if aligned else []),
            ),
            bundles=(f"{EMBEDDED}.npz",),
            bundle_bytes=disk_costs.per_point(n=n, blocks=1, numbers=m),
        ),
    )


def choose_components(store: Store, block_index: int, components: str, n_large: int, least: int) -> Report:
    """Count the weak components that get an embedding: those among the first `n_large` with at least `least` points.

    Raises BoundsNotMet if graph.components is error and there are several components.
    """
    sizes = np.bincount(store.read_all(array_specs.POINT_COMPONENT.name))
    if components == "error" and len(sizes) > 1:
        raise BoundsNotMet(
            f"graph.components is error, and the neighbour graph has {len(sizes)} components (largest "
            f"{', '.join(map(str, sizes[:5]))} points). Raise neighbors.n_neighbors, or set graph.components: separate "
            f"or largest"
        )
    n_embedded = max(1, int((sizes[:n_large] >= least).sum()))
    return {"n_components": 1 if components == "largest" else n_embedded, "n_weak": len(sizes)}


def solve_component(
    store: Store, block_index: int, family: str, n_components: int, method: str, tol: float,
    blocks: Blocks, max_memory: int | str, max_degrees: int, distributed: bool, stores_m: bool, n_wanted: int = 1,
) -> Report:  # fmt: skip
    """Compute n_components eigenpairs of component `block_index`, fewer if it is small; MOST_PAIRS if fewer than
    n_wanted of them are no clumps. For large components in a separate process."""
    allowed = memory_limit(max_memory)
    n_rows = int((store.read_all(array_specs.POINT_COMPONENT.name) == block_index).sum())

    def solve(n_pairs: int) -> Report:
        arguments = (
            store.url, block_index, family, n_pairs, method, tol, blocks, allowed, max_degrees, distributed, stores_m,
        )  # fmt: skip
        if n_rows < ISOLATED_POINTS or distributed:  # the cluster's client exists in this process only
            return _solve(lambda message: None, *arguments, {})
        return _solve_isolated(arguments, method, int(LIMIT_OVER_PLAN * allowed))

    n_pairs, most = (max(n_wanted, min(count, n_rows - 2)) for count in (n_components, MOST_PAIRS))
    try:
        report = solve(n_pairs)
        spread = sum(size >= CLUMP_SHARE * n_rows for size in report["participation"])
        return solve(most) if spread < n_wanted < n_pairs < most else report
    except NotEnoughMemory as error:
        if max_memory != "auto":
            error.exit_code = 2  # the limit is in the config, so a retry would fail again
        raise


def _solve_isolated(arguments: tuple[Any, ...], method: str, max_bytes: int) -> Report:
    """Solve in a separate process.

    If another program ends the process, the same method is started again. If the process dies for another reason, or
    TRIES times, in a method that was not requested, another method solves, and the report says so.
    """
    failures: dict[str, str] = {}
    deaths = Counter[str]()
    while True:
        try:
            report, peak = subprocess_call.call(_solve, (*arguments, failures), max_bytes)
        except subprocess_call.ProcessDied as death:
            name = death.last_message
            deaths[name] += 1
            if death.cause == "stopped":
                raise
            if death.cause == "killed" and deaths[name] < TRIES:
                print(f"lle: warning: {death}, not for lack of memory; it is started again", file=sys.stderr)
                continue
            if name in {"", method, "polynomial", *failures}:
                raise _given_up(death, deaths[name]) from None
            failures[name] = f"{name} was tried and its process ended {death.ending}"
            continue
        if failures:
            report["stats"]["killed"] = "; ".join(failures.values())
        with_peak: Report = {**report, "peak_bytes": peak}
        return with_peak


def _given_up(death: subprocess_call.ProcessDied, n_deaths: int) -> LleError:
    """The error for a process that died in a method that nothing can replace."""
    if death.cause == "killed":
        return LleError(
            f"{death} {n_deaths} times, and Linux counted no process that it killed for lack of memory: another "
            f"program ends it. Run the same command again"
        )
    smaller = "" if death.last_message == "polynomial" else ", or set eigensolver.method to polynomial"
    advice = f"raise eigensolver.max_memory{smaller}"
    return NotEnoughMemory(f"{death}, most likely because memory ran out", advice=advice)


def _solve(
    send_progress: subprocess_call.SendProgress, url: str, block_index: int, family: str, n_components: int,
    method: str, tol: float, blocks: Blocks, max_bytes: int, max_degrees: int, distributed: bool,
    stores_m: bool, skip: dict[str, str],
) -> Report:  # fmt: skip
    store, state = Store(url), f"_work/eigen/state-{block_index:05d}"
    rows = np.flatnonzero(store.read_all(array_specs.POINT_COMPONENT.name) == block_index)
    factor = (load_factor if family == "lle" else load_local_factors)(store, rows, blocks)
    null = null_vector(store, rows) if family == "laplacian" else None
    pin = closed_point(factor, f"component {block_index}") if family == "lle" else None
    candidates = leading_components(store, rows, blocks) if family == "lle" else NO_CANDIDATES
    with recorded(store, block_index) as progress:
        hooks = Hooks(
            begin=send_progress, keep_state=state_saver(store, state),
            load_state=lambda: read_state(store, state, len(rows)), progress=progress,
            analyses=StoredAnalyses(store, block_index),
            operator=_operator_on_workers() if distributed else NormalOperator,
        )  # fmt: skip
        spectrum = bottom_eigenpairs(
            factor, n_components, method=method, pin=pin,
            cost_matrix=lambda: cost_matrix(store, rows, blocks, factor, stores_m), tol=tol, max_memory=max_bytes,
            n_threads=available_cores(), initial=None, max_degrees=max_degrees, skip=skip, hooks=hooks,
            null=null, flat=family in FLAT, candidates=candidates,
        )  # fmt: skip
    vectors = spectrum.vectors if null is None else fix_signs(spectrum.vectors / (null[:, None] * np.sqrt(len(rows))))
    store.write_bundle(
        f"_work/eigen/{block_index:05d}", rows=rows, vectors=vectors, eigenvalues=spectrum.eigenvalues,
        converged=np.array(spectrum.converged),
    )  # fmt: skip
    if spectrum.converged:
        delete_state(store, state)
    return {
        "n_points": len(rows),
        "eigenvalues": spectrum.eigenvalues.tolist(),
        "residuals": spectrum.residuals.tolist(),
        "vector_errors": spectrum.vector_errors.tolist(),
        "participation": participation(vectors).tolist(),
        "converged": bool(spectrum.converged),
        "stats": asdict(spectrum.stats),
        "says": f"eigensolver: {spectrum.stats.reason}" if block_index == 0 else "",
    }


def predict_solver(config: Config, store: Store, layout: Layout) -> Report | None:
    """Predict the method of the eigensolver for the largest component, from the matrices in the store."""
    blocks = Blocks(store.array(array_specs.POINT_COMPONENT.name).shape[0], layout.block_points)
    solver = config.eigensolver
    allowed = memory_limit(solver.max_memory)
    arguments = (store.url, config.method, solver.method, config.n_eigenpairs, blocks, allowed)
    try:
        prediction: Report = subprocess_call.call(_predict, arguments, int(LIMIT_OVER_PLAN * allowed))[0]
    except (subprocess_call.ProcessDied, NotEnoughMemory) as error:
        if isinstance(error, subprocess_call.ProcessDied) and error.cause != "crashed":
            return None
        reason = f"the analysis of a factor does not fit {gib(allowed)} ({error.args[0]})"
        return {"method": "polynomial", "reason": reason}
    return prediction


def _predict(
    send_progress: subprocess_call.SendProgress, url: str, family: str, method: str, n_components: int, blocks: Blocks,
    allowed: int,
) -> Report:  # fmt: skip
    store = Store(url)
    rows = np.flatnonzero(store.read_all(array_specs.POINT_COMPONENT.name) == 0)
    factor = (load_factor if family == "lle" else load_local_factors)(store, rows, blocks)
    square = family == "lle"
    methods = predicted_methods(factor) if method == "auto" else [method]
    product = product_matrix(factor) if "shift_invert" in methods else None
    pin = closed_point(factor, "component 0") if square else 0
    analyses = StoredAnalyses(store, 0, read_only=True)
    predictions = predict(factor, product, methods, n_components, pin, allowed, available_cores(), analyses)
    patience = patience_seconds(factor.nnz, available_cores(), square=square)
    routes = [prediction._asdict() for prediction in predictions]
    return {**chosen(predictions, patience)._asdict(), "allowed_bytes": allowed, "routes": routes}


def write_embedding(
    store: Store, block_index: int, n_components: int, n_pairs: int, n_graph: int, scale: str, blocks: Blocks,
    aligned: bool = False, placed: bool = False, selected: bool = False,
) -> Report:  # fmt: skip
    """Write embedding and component of every input row; a duplicate row gets those of its representative."""
    if not aligned:
        store.objects.delete(array_specs.EMBEDDED_HASH.name)  # it belongs to an earlier embedding
    original = store.read_all(array_specs.ORIGINAL_INDEX.name)
    embedding = np.full((len(original), n_components), np.nan)
    component = np.full(len(original), -1, np.int32)
    eigenvalues, converged = np.full((n_graph, n_pairs), np.nan), True
    for number in range(n_graph):
        part = store.read_bundle(f"_work/eigen/{number:05d}")
        vectors = taken_vectors(store, number, part, selected)
        if aligned:
            vectors = vectors @ rotations(store)[number]
        embedding[part["rows"]] = coordinate_scale(scale, len(part["rows"])) * vectors
        component[part["rows"]] = number
        eigenvalues[number, : len(part["eigenvalues"])] = part["eigenvalues"]
        converged &= bool(part.get("converged", True))
    if placed:
        place_rows(store, embedding, component)
    internal = np.full(blocks.n, -1, np.int64)
    internal[original] = np.arange(len(original))
    n_placed = n_dropped = 0
    for start in range(0, blocks.n, blocks.size):
        stop = min(start + blocks.size, blocks.n)
        if aligned:
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
    return {"rows_in_small_components": n_dropped, "rows_placed": n_placed}


def _operator_on_workers() -> Any:
    from ..linalg.distributed_operator import operator_on_workers  # noqa: PLC0415 (loads distributed)

    return operator_on_workers

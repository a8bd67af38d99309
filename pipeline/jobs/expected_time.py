"""Expected seconds of each stage of a run, from the sizes of the run and a quick measurement of the machine.

A formula gives the processor seconds of a stage from the sizes of the run: n points, d features, k neighbours. They are
those of the reference core, on which the coefficients were measured. `python -m tests.benchmarks.expected_time` prints
the ratio of expected to measured seconds. For stages that take longer than a second it must be between 0.5 and 2. Two
things depend on the data and not only on their sizes: the fill-in of a factorization, and how many values of `reg` are
tried.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..clusters.limits import Section, expected_workers
from ..config.models import Cluster, Config
from ..core.compiler_cache import is_compiled
from ..core.threads import limited_threads
from ..engine.plan import Layout, walk
from ..engine.plan_sizes import n_cells, neighbor_method
from ..kernels.eigensolver.davidson import block_width
from ..kernels.eigensolver.factor_cost import product_seconds
from ..kernels.neighbors.cells import TREE_FEATURES
from ..kernels.neighbors.knn import kdtree_neighbors
from ..kernels.trial_embedding import trial_points
from ..search.cell_groups import N_GROUPS_EACH, first_target
from ..stages.measure_quality import geodesic_sources
from ..stages.registry import stages_of_run

REFERENCE_SECONDS = 0.024
"""Processor seconds of `_probe` on the reference core."""

PARALLEL_EFFICIENCY = 0.75
"""Share of the workers' time that their tasks take; in the rest they read and write blocks and wait for tasks."""

START_SECONDS = 1.5
"""Processor seconds in which a process loads the program, beside those of the stages."""

WORKERS_START_SECONDS = 2.5
"""Seconds in which local workers start. They share the cores: two workers take 5.5 processor seconds."""

WORKER_STEP_SECONDS = 0.1
"""Seconds that a step with workers takes in addition to its tasks."""

LONG_SECONDS = 5.0
"""A run that is expected to end sooner neither measures the machine nor logs its expected seconds."""

SHARED_SECONDS = 4.0
"""Processor seconds of tasks below which `workers: auto` starts no workers. Two workers would save half of them, which
is what it takes to start two processes."""

COMPILE_SECONDS = 25.0
"""Processor seconds that the search of pynndescent takes to compile, once on a machine."""

SCALER_SECONDS = 1.5
"""Processor seconds of the import of dask-ml, which only `preprocess.scale: standard` needs."""

TYPICAL_PRODUCTS = 600
"""Products of M that the method polynomial takes to converge on data of many dimensions."""

SURFACE_FEATURES = 3
"""Data of up to this number of features count as surfaces: the factorization has little fill-in, and M few entries."""


HERE = ("serial", "local")
"""Kinds of clusters whose workers use this machine's cache of compiled functions."""


class Work(NamedTuple):
    """Processor seconds on the reference core: of tasks that run one after the other, and of blocks in parallel."""

    serial: float
    parallel: float = 0.0


class Sizes(NamedTuple):
    """The sizes of a run that the formulas of its stages use."""

    n: int
    d: int
    k: int
    m: int
    n_blocks: int
    sample: int
    layout: Layout
    config: Config


def expected_seconds(
    config: Config,
    layout: Layout,
    n_steps: Mapping[str, int],
    speed: float | None = None,
    placing: Layout | None = None,
) -> dict[str, Any]:
    """Expected wall-clock seconds of a run on this machine without other load.

    Args:
        config: the config of a run.
        layout: the layout after the last step of its plan; with `input.fit_sample` that of the fit.
        n_steps: number of steps of each stage that have blocks to compute; finished stages are left out.
        speed: of a core relative to the reference core; None measures it.
        placing: with `input.fit_sample`, the layout of the steps that place the rows.

    Returns:
        `seconds`: the total; `start`: until the first stage begins; `stages`: the seconds of each stage; `workers`:
        their number (1: this process); `says`: a line of text about these.
    """
    sizes = all_rows = Sizes(
        layout.n_points, layout.n_features, config.k_bounds[1], config.eigensolver.n_components, layout.point_blocks(),
        min(config.quality.sample, layout.n_points), layout, config,
    )  # fmt: skip
    names, of_stage = [*stages_of_run(config)], dict[str, Sizes]()
    if placing is not None:
        names.insert(names.index("write_report"), "transform")
        all_rows = sizes._replace(n=placing.n_input, n_blocks=placing.input_blocks(), layout=placing)
        of_stage = dict.fromkeys(("transform", "write_report"), all_rows)
    works = {name: FORMULAS[name](of_stage.get(name, sizes)) for name in names if name in n_steps}
    shared = sum(work.parallel for work in works.values())
    n_processes = _n_processes(config.execution.cluster, all_rows.n_blocks, shared)
    speed, stages = machine_speed() if speed is None else speed, {}
    for stage, work in works.items():
        width = min(n_processes, of_stage.get(stage, sizes).n_blocks)
        parallel = work.parallel / (PARALLEL_EFFICIENCY * width if width > 1 else 1)
        overhead = WORKER_STEP_SECONDS * n_steps[stage] if width > 1 else 0.0
        stages[stage] = round((work.serial + parallel) / speed + overhead, 3)
    start = round((START_SECONDS + WORKERS_START_SECONDS * _starts_workers(config, n_processes)) / speed, 3)
    total = round(start + sum(stages.values()), 3)
    line = _described(total, stages, n_processes)
    if "find_neighbors" in stages and _compiles_search(sizes):
        line += f"; {shown(COMPILE_SECONDS / speed)} s of it compile the search, once on this machine"
    return {"seconds": total, "start": start, "stages": stages, "workers": n_processes, "says": line}


def _n_processes(cluster: Section, n_blocks: int, shared_seconds: float) -> int:
    """Processes that compute blocks: workers, or 1 where this process computes them itself."""
    if cluster.kind == "serial":
        return 1
    is_auto = cluster.kind == "local" and cluster.workers == "auto"
    return 1 if is_auto and shared_seconds < SHARED_SECONDS else min(expected_workers(cluster) or 1, n_blocks)


def _starts_workers(config: Config, n_processes: int) -> bool:
    """Whether the run starts workers on this machine; a given number of them starts also for a single block."""
    cluster = config.execution.cluster
    return cluster.kind == "local" and (n_processes > 1 or cluster.workers != "auto")


def worthwhile(config: Config, first_layout: Layout) -> Section:
    """The cluster of a config; serial execution where `workers: auto` would take longer to start than it saves."""
    cluster = config.execution.cluster
    if cluster.kind != "local" or cluster.workers != "auto":
        return cluster
    n_steps, layout = _planned(config, first_layout)
    alone = expected_seconds(config, layout, n_steps, speed=1.0)["workers"] == 1
    return Cluster(kind="serial") if alone else cluster


def _planned(config: Config, first_layout: Layout) -> tuple[Counter[str], Layout]:
    """The number of steps of each stage of a run, and the layout after its last step."""
    steps, layout = walk(stages_of_run(config), config, first_layout)
    return Counter(step.stage for step in steps), layout


def announced_seconds(config: Config, first_layout: Layout) -> str:
    """A line for the log of a new run that would take LONG_SECONDS on the reference core, else an empty text."""
    n_steps, layout = _planned(config, first_layout)
    return announcement(config, layout, n_steps)


def announcement(config: Config, layout: Layout, n_steps: Mapping[str, int], placing: Layout | None = None) -> str:
    """As `announced_seconds`, with the arguments of `expected_seconds`."""
    if expected_seconds(config, layout, n_steps, 1.0, placing)["seconds"] < LONG_SECONDS:
        return ""
    return f"expected: {expected_seconds(config, layout, n_steps, placing=placing)['says']}"


@cache
def machine_speed() -> float:
    """Speed of a core of this machine relative to the reference core. Takes an eighth of a second of one core.

    It takes the smallest processor time of three probes, which other programs change least.
    """
    with limited_threads(1):
        return REFERENCE_SECONDS / min(_probe() for _ in range(3))


def _probe() -> float:
    """Processor seconds of a small search in a k-d tree, of small linear systems and of a product of matrices."""
    rng = np.random.default_rng(0)
    points, ids = rng.random((6000, 3)), np.arange(6000)
    systems, right = rng.random((3000, 12, 12)) + 12 * np.eye(12), rng.random((3000, 12, 1))
    square = rng.random((400, 400))
    started = time.process_time()
    kdtree_neighbors(points, ids, points, ids, 12)
    np.linalg.solve(systems, right)
    _ = square @ square
    return max(time.process_time() - started, 1e-9)


# --- processor seconds of each stage on the reference core


def ingest(s: Sizes) -> Work:
    scaler = SCALER_SECONDS if s.config.preprocess.scale == "standard" else 0.0
    return Work(scaler + 2e-7 * s.n, s.n * (3e-7 + 1.2e-8 * s.d))


def order_points(s: Sizes) -> Work:
    cells = n_cells(s.n)
    return Work(0.1 + 1.5e-4 * cells, s.n * (1.4e-6 + 2.8e-8 * s.d + 2.5e-10 * cells * s.d))


def find_neighbors(s: Sizes) -> Work:
    method = neighbor_method(s.config.neighbors.method, s.n, s.d)
    if s.config.neighbors.precomputed is not None:
        return Work(0.0, 1e-6 * s.n * s.k)
    all_pairs = _among_all(s.n, s.n, s.d)
    if method == "kdtree":  # in many dimensions a tree is searched whole
        return Work(0.0, min(_in_tree(s.n, s.n, s.d, s.k), 20 * all_pairs))
    if method == "brute":
        return Work(0.0, all_pairs)
    groups_each = N_GROUPS_EACH if s.n > 1.5 * first_target(s.layout, s.k) else 1
    return Work(COMPILE_SECONDS if _compiles_search(s) else 0.0, s.n * (2e-5 + 5e-8 * s.d) * groups_each)


def _in_tree(n_queries: int, n: int, d: int, k: int) -> float:
    """Seconds of a search for k neighbours in a tree of n points of d features."""
    return n_queries * 2.8e-7 * (k + 1) * math.pow(1.6, min(d, 40) - 3) * math.pow(n / 40_000, 0.08)


def _among_all(n_queries: int, n: int, d: int) -> float:
    """Seconds of a search by the distances to all n points."""
    return 1e-5 * n_queries + n_queries * n * (4e-9 + 5e-11 * d)


def _compiles_search(s: Sizes) -> bool:
    """Whether the run is the first on this machine that searches with pynndescent."""
    method = neighbor_method(s.config.neighbors.method, s.n, s.d)
    needed = s.config.neighbors.precomputed is None and method == "pynndescent"
    return needed and s.config.execution.cluster.kind in HERE and not _search_is_compiled()


@cache
def _search_is_compiled() -> bool:
    return is_compiled("nn_descent_cache.cached_search")


def mend_graph(s: Sizes) -> Work:
    return Work(0.03 + 1.05e-7 * s.n * s.k, s.n * (9e-7 + 1.1e-7 * s.d))


def solve_weights(s: Sizes) -> Work:
    trial = 0.0
    if s.config.weights.reg == "auto":
        t = min(s.n, trial_points(s.d))
        trial = 3e-7 * s.n + t * (3e-5 if s.d <= SURFACE_FEATURES else 2.8e-4 + 7e-7 * s.d)
    exchange = s.n * (3e-7 + 1.5e-8 * s.d) if s.n_blocks > 1 else 0.0
    measured = s.n * (1.5e-6 + 2.3e-9 * s.k * s.d)
    return Work(trial, s.n * s.k**2 * (1.6e-8 + 2.6e-10 * s.d) + measured + exchange)


def local_factors(s: Sizes) -> Work:
    return Work(0.0, s.n * s.k**2 * (8e-8 + 3e-10 * s.d))


def assemble_cost(s: Sizes) -> Work:
    fill = 1 + 0.45 * min(max(s.d - SURFACE_FEATURES, 0), 4)  # neighbours of neighbours are few on a surface
    rows = 1 if s.config.method in ("lle", "laplacian") else 2
    return Work(0.0, s.n * (s.k + 1) ** 1.7 * 6.9e-8 * fill * rows)


def solve_embedding(s: Sizes) -> Work:
    """The time of factorizing I - W, or of the products of the method polynomial if that is less; more if not lle.

    The fill-in was measured on Swiss rolls of 1,000 to 1,000,000 points and on ten-dimensional data.
    """
    if s.config.method == "pca":
        return Work(0.4 + 1e-9 * s.n * s.d**2)
    entries = s.n * (s.k + 1)
    products = TYPICAL_PRODUCTS * product_seconds(entries, block_width(s.m), 1)
    if s.d <= SURFACE_FEATURES:
        fill, gflop = s.n * 3.8 * s.k * (s.n / 1000) ** 0.17, 1.3 * (s.n / 1e5) ** 1.53 * (s.k / 12) ** 2
        seconds = entries / 2.8e6 + gflop / 17 + 2e-7 * fill
    else:
        fill, gflop = 2.2e6 * (s.n / 3000) ** 1.9, 1.5 * (s.n / 3000) ** 2.85
        seconds = min(entries / 2.8e6 + gflop / 17 + 3e-8 * fill, products)
    return Work(0.01 + seconds * (1 + s.m / 20) * (1 if s.config.method == "lle" else 1.6))


def measure_quality(s: Sizes) -> Work:
    of_sample = s.sample * (1e-5 + 7.6e-7 * s.d)
    geodesics = 1.6e-8 * geodesic_sources(s.config, s.n) * s.n * s.k
    if s.d <= SURFACE_FEATURES:
        return Work(0.05 + of_sample + geodesics, 6e-7 * s.n)
    return Work(0.02 + of_sample + geodesics, s.sample * s.n * (9e-9 + 7.5e-11 * s.d))


def transform(s: Sizes) -> Work:
    """Placing the rows of a run with `input.fit_sample`; `s.layout.n_points` rows are fitted."""
    fitted = s.layout.n_points
    search = _in_tree(s.n, fitted, s.d, s.k) if s.d <= TREE_FEATURES else _among_all(s.n, fitted, s.d)
    boxes = s.n * n_cells(fitted) * (8e-8 + 1.5e-8 * s.d)
    read = s.n_blocks * fitted * (1.5e-6 + 1e-9 * s.d)
    weights = s.n * (5e-7 + 4e-9 * s.k * s.d + s.k**2 * (1.6e-8 + 2.6e-10 * s.d))
    return Work(0.0, search + boxes + read + weights)


def write_report(s: Sizes) -> Work:
    return Work(0.8 + 4e-6 * min(s.n, 1_000_000) if s.config.output.report else 0.01)


FORMULAS = {
    formula.__name__: formula
    for formula in (
        ingest, order_points, find_neighbors, mend_graph, solve_weights, local_factors, assemble_cost, solve_embedding,
        measure_quality, transform, write_report,
    )
}  # fmt: skip


def _described(total: float, stages: Mapping[str, float], n_workers: int) -> str:
    """The total, and the stages that take a tenth of it or more.

    >>> _described(12.4, {"ingest": 0.2, "solve_weights": 12.2}, 2)
    'about 12 s with 2 workers (solve_weights 12)'
    """
    long = [f"{name} {shown(seconds)}" for name, seconds in stages.items() if seconds >= total / 10]
    where = f"{n_workers} workers" if n_workers > 1 else "one process"
    return f"about {shown(total)} s with {where}" + (f" ({', '.join(long)})" if long else "")


def shown(seconds: float) -> str:
    """Seconds with two digits.

    >>> shown(0.034), shown(2.345), shown(98.7), shown(1234.5)
    ('0.034', '2.3', '99', '1,200')
    """
    digits = 1 - math.floor(math.log10(max(seconds, 1e-3)))
    return f"{round(seconds, digits):,.{max(digits, 0)}f}"

"""Expected seconds of a run, from the formulas of its stages and a quick measurement of the machine.

`python -m tests.benchmarks.expected_time` prints the ratio of expected to measured seconds of each stage. For stages
that take longer than a second it must be between 0.5 and 2.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..clusters.limits import Section, expected_workers
from ..config.models import Cluster, Config
from ..core.threads import limited_threads
from ..engine.plan import Layout, Stage, planned
from ..engine.step import Report, Step
from ..kernels.neighbors.knn import kdtree_neighbors
from ..stages.registry import stages_of_run
from .stage_seconds import COMPILE_SECONDS, FORMULAS, MAIN_STEPS, Sizes, compiles_search

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
    if "find_neighbors" in stages and compiles_search(sizes):
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


def cluster_to_start(config: Config, first_layout: Layout) -> Section:
    """The cluster of a config; serial execution if `workers: auto` would take longer to start than it saves."""
    cluster = config.execution.cluster
    if cluster.kind != "local" or cluster.workers != "auto":
        return cluster
    n_steps, layout = _planned(config, first_layout)
    alone = expected_seconds(config, layout, n_steps, speed=1.0)["workers"] == 1
    return Cluster(kind="serial") if alone else cluster


def _planned(config: Config, first_layout: Layout) -> tuple[Counter[str], Layout]:
    """The number of steps of each stage of a run, and the layout after its last step."""
    steps, layout = planned(stages_of_run(config), first_layout)
    return Counter(step.stage for step in steps), layout


def announced_seconds(config: Config, first_layout: Layout) -> str:
    """A line for the log of a new run that would take LONG_SECONDS on the reference core, else an empty text."""
    n_steps, layout = _planned(config, first_layout)
    return announcement(config, layout, n_steps)


def after_ingest(stages: Mapping[str, Stage]) -> dict[str, Stage]:
    """The stages after ingest, which read distinct rows."""
    return {name: stage for name, stage in stages.items() if name != "ingest"}


def announced_rest(config: Config, layout: Layout) -> str:
    """A line for the log on the stages after ingest, when the number of distinct rows is known."""
    steps, last = planned(after_ingest(stages_of_run(config)), layout)
    expected = expected_seconds(config, last, Counter(step.stage for step in steps))
    rest = _described(expected["seconds"] - expected["start"], expected["stages"], expected["workers"])
    return f"expected now: {rest}, because only {layout.n_points:,} of {layout.n_input:,} rows are distinct and valid"


def announcement(config: Config, layout: Layout, n_steps: Mapping[str, int], placing: Layout | None = None) -> str:
    """As `announced_seconds`, with the arguments of `expected_seconds`."""
    if expected_seconds(config, layout, n_steps, 1.0, placing)["seconds"] < LONG_SECONDS:
        return ""
    return f"expected: {expected_seconds(config, layout, n_steps, placing=placing)['says']}"


def expected_steps(config: Config, stages: Mapping[str, Stage], first_layout: Layout) -> dict[str, float]:
    """Expected seconds of each step of these stages."""
    steps, layout = planned(stages, first_layout)
    return seconds_of_steps(config, steps, layout)


def seconds_of_steps(
    config: Config, steps: Sequence[Step[Report]], layout: Layout, placing: Layout | None = None
) -> dict[str, float]:
    """As `expected_steps`, with the steps of a plan and the arguments of `expected_seconds`.

    The seconds of a stage are divided among those of its steps that take most of them, or else among all.
    """
    n_steps = Counter(step.stage for step in steps)
    expected = expected_seconds(config, layout, n_steps, 1.0, placing)
    if expected["seconds"] >= LONG_SECONDS:
        expected = expected_seconds(config, layout, n_steps, placing=placing)
    stages = expected["stages"]
    keys, seconds = [step.key for step in steps], dict[str, float]()
    for stage in stages:
        of_stage = [key for key in keys if key.startswith(f"{stage}.")]
        main = [key for key in of_stage if key in MAIN_STEPS] or of_stage
        seconds |= dict.fromkeys(main, stages[stage] / len(main))
    return seconds


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

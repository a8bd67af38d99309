"""Expected seconds of a run, from the work of its steps and a quick measurement of the machine.

`python -m tests.benchmarks.expected_time` prints the ratio of expected to measured seconds of each stage. For stages
that take longer than a second it must be between 0.5 and 2.
"""

import math
import time
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from ..clusters.limits import Section, expected_workers, may_have_threads, memory_of_workers, without_workers
from ..config.models import Config
from ..core.machine import is_compiled
from ..core.threads import limited_threads
from ..engine.step import Json, Report, Step
from ..engine.task_costs import fit_workers
from ..kernels.neighbors.knn import kdtree_neighbors

REFERENCE_SECONDS = 0.024
"""Processor seconds of `_probe` on the reference core."""

PARALLEL_EFFICIENCY = 0.75
"""Share of the workers' time that their tasks take; in the rest they read and write blocks and wait for tasks."""

LOCKED_SHARE = 0.15
"""Share of a task's time in which its thread holds the lock of Python's interpreter, so that other threads wait."""

START_SECONDS = 1.5
"""Processor seconds in which a process loads the program, beside those of the stages."""

WORKERS_START_SECONDS = 4.0
"""Seconds in which local workers start, and load what their first tasks use. Two workers on two cores add 8 processor
seconds (a roll of 300,000 points) to 14 (MNIST, where each worker loads pynndescent)."""

WORKER_STEP_SECONDS = 0.1
"""Seconds that a step with workers takes in addition to its tasks."""

HERE = ("serial", "local")
"""Kinds of clusters whose workers use this machine's cache of compiled functions."""

LONG_SECONDS = 5.0
"""A run that is expected to end sooner neither measures the machine nor logs its expected seconds."""


class Expected(NamedTuple):
    """Expected wall-clock seconds of steps on this machine without other load."""

    start: float
    """Until the first step begins."""
    steps: dict[str, float]
    workers: int
    """1: this process."""
    threads: int
    """Blocks that this process computes at one time; 1 with workers."""
    compiling: float
    """Those of the steps' seconds in which functions are compiled."""

    @property
    def stages(self) -> dict[str, float]:
        seconds = dict[str, float]()
        for key, value in self.steps.items():
            stage = key.partition(".")[0]
            seconds[stage] = seconds.get(stage, 0.0) + value
        return seconds

    @property
    def seconds(self) -> float:
        return self.start + sum(self.steps.values())

    def text(self) -> str:
        """The total, the stages that take a tenth of it or more, and the compilation."""
        long = [f"{name} {shown(value)}" for name, value in self.stages.items() if value >= self.seconds / 10]
        threads = f"{self.threads} threads" if self.threads > 1 else "one process"
        line = f"about {shown(self.seconds)} s with {f'{self.workers} workers' if self.workers > 1 else threads}"
        line += f" ({', '.join(long)})" if long else ""
        if self.compiling:
            line += f"; {shown(self.compiling)} s of it compile functions, once on this machine"
        return line

    def to_json(self) -> Json:
        stages = {name: round(value, 3) for name, value in self.stages.items()}
        return {
            "seconds": round(self.seconds, 3),
            "start": round(self.start, 3),
            "stages": stages,
            "workers": self.workers,
            "threads": self.threads,
            "says": self.text(),
        }


def expected(cluster: Section, steps: Sequence[Step[Report]], speed: float | None = None) -> Expected:
    """Expected seconds of steps that have blocks to compute, as they were planned.

    speed: of a core relative to the reference core; None measures it.
    """
    return _expected(cluster, steps, machine_speed() if speed is None else speed, *_chosen(cluster, steps))


def _chosen(cluster: Section, steps: Sequence[Step[Report]]) -> tuple[int, int]:
    """The number of workers and of threads.

    With `workers: auto` threads of this process compute, unless all tasks fit workers and these are expected to be
    faster on the reference core: the choice does not depend on the present speed of this one.
    """
    n_together = min(expected_workers(cluster) or 1, max((step.n_blocks for step in steps), default=1))
    if not may_have_threads(cluster):
        return n_together, 1
    choices = [(1, n_together), (n_together, 1)]
    if not fit_workers(steps, memory_of_workers(cluster)):
        choices = choices[:1]
    return min(choices, key=lambda choice: _expected(cluster, steps, 1.0, *choice).seconds)


def _expected(
    cluster: Section, steps: Sequence[Step[Report]], speed: float, n_workers: int, n_threads: int
) -> Expected:
    seconds, compiling = dict[str, float](), _compile_seconds(steps) if cluster.kind in HERE else {}
    for step in steps:
        width, threads = min(n_workers, step.n_blocks), min(n_threads, step.n_blocks)
        shared = step.work.parallel / (PARALLEL_EFFICIENCY * width if width > 1 else 1)
        shared *= LOCKED_SHARE + (1 - LOCKED_SHARE) / threads
        overhead = WORKER_STEP_SECONDS if width > 1 else 0.0
        seconds[step.key] = (step.work.serial + shared + compiling.get(step.key, 0.0)) / speed + overhead
    # A given number of local workers starts also for a single block.
    starts_workers = cluster.kind == "local" and (n_workers > 1 or not may_have_threads(cluster))
    start = (START_SECONDS + WORKERS_START_SECONDS * starts_workers) / speed
    return Expected(start, seconds, n_workers, n_threads, sum(compiling.values()) / speed)


def _compile_seconds(steps: Sequence[Step[Report]]) -> dict[str, float]:
    """Seconds, by step, for functions that the cache does not hold; the first step with a function compiles it."""
    first = {step.work.compilation: step.key for step in reversed(steps)}
    return {key: needed.seconds for needed, key in first.items() if needed and not is_compiled(needed.function)}


def placement(cluster: Section, steps: Sequence[Step[Report]], needs_workers: bool = False) -> tuple[Section, int]:
    """The cluster to start, and the number of blocks that this process computes at one time if it starts none.

    `needs_workers`: `workers: auto` starts them in any case.
    """
    if needs_workers or not may_have_threads(cluster):
        return cluster, 1
    n_workers, n_threads = _chosen(cluster, steps)
    return (cluster, 1) if n_workers > 1 else (without_workers(cluster), n_threads)


def foreseen(config: Config, steps: Sequence[Step[Report]]) -> tuple[str, dict[str, float]]:
    """A line for the log of a new run, and the expected seconds of each step.

    If the run would take less than LONG_SECONDS on the reference core, the line is empty, and the speed of this machine
    is not measured.
    """
    now = expected(config.execution.cluster, steps, speed=1.0)
    if now.seconds < LONG_SECONDS:
        return "", now.steps
    now = expected(config.execution.cluster, steps)
    return f"expected: {now.text()}", now.steps


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


def shown(seconds: float) -> str:
    """Seconds with two digits.

    >>> shown(0.034), shown(2.345), shown(98.7), shown(1234.5)
    ('0.034', '2.3', '99', '1,200')
    """
    digits = 1 - math.floor(math.log10(max(seconds, 1e-3)))
    return f"{round(seconds, digits):,.{max(digits, 0)}f}"

"""Expected seconds of the stages beside the processor seconds of their tasks, in runs of one process.

    python -m tests.benchmarks.expected_time [NAME ...]

Prints a line for each data set and stage: expected and measured seconds and their ratio. Processor seconds are compared
because other programs hardly change them; the time of several workers is not measured here. A small search runs first:
the formulas do not count imports and the compilation of pynndescent.
"""

import argparse
import contextlib
import importlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lle.config.load import check_config
from lle.core.machine import library_environment
from lle.engine import execute
from lle.engine.progress import SilentProgress
from lle.engine.step import BlockReport, Step
from lle.jobs.plan_preview import plan_summary
from lle.jobs.run import run
from lle.kernels.neighbors.knn import cell_neighbors
from tests.support.points import swiss_roll

Array = npt.NDArray[Any]


def roll(n: int) -> Array:
    return swiss_roll(n, np.random.default_rng(3))


def wide(n: int, n_features: int, dimensions: int) -> Array:
    """A curved manifold of some dimensions in many features, float32."""
    rng = np.random.default_rng(4)
    return np.tanh(rng.normal(size=(n, dimensions)) @ rng.normal(size=(dimensions, n_features))).astype(np.float32)


class Job(NamedTuple):
    """Points, and sections of a config that differ from the defaults."""

    points: Callable[[], Array]
    sections: dict[str, Any] = {}  # noqa: RUF012 (never changed)


JOBS = {
    "roll 10,000": Job(lambda: roll(10_000)),
    "roll 40,000": Job(lambda: roll(40_000)),
    "roll 150,000": Job(lambda: roll(150_000)),
    "roll 40,000, k = 30": Job(lambda: roll(40_000), {"neighbors": {"n_neighbors": 30}}),
    "roll 40,000, ltsa": Job(lambda: roll(40_000), {"method": "ltsa"}),
    "normal 5,000 x 5": Job(lambda: np.random.default_rng(5).normal(size=(5_000, 5))),
    "wide 12,000 x 50": Job(lambda: wide(12_000, 50, 10)),
    "wide 60,000 x 50": Job(lambda: wide(60_000, 50, 10)),
    "wide 6,000 x 784": Job(lambda: wide(6_000, 784, 12)),
    "wide 40,000 x 784": Job(lambda: wide(40_000, 784, 12)),
    "roll 400,000, 40,000 fitted": Job(lambda: roll(400_000), {"input": {"fit_sample": 40_000}}),
    "wide 60,000 x 50, 10,000 fitted": Job(lambda: wide(60_000, 50, 10), {"input": {"fit_sample": 10_000}}),
    "wide 200,000 x 50, 60,000 fitted": Job(lambda: wide(200_000, 50, 10), {"input": {"fit_sample": 60_000}}),
    "wide 20,000 x 784, 5,000 fitted": Job(lambda: wide(20_000, 784, 12), {"input": {"fit_sample": 5_000}}),
}


class Times(NamedTuple):
    """Expected and measured processor seconds of a stage."""

    expected: float
    measured: float


def compare(job: Job) -> dict[str, Times]:
    """Run a job in this process: stage -> its seconds."""
    for name, value in library_environment().items():
        os.environ.setdefault(name, value)
    with tempfile.TemporaryDirectory() as folder, _timed() as measured:
        np.save(Path(folder, "x.npy"), job.points())
        settings: dict[str, Any] = {
            "input": {"kind": "npy", "path": f"{folder}/x.npy"},
            "output": {"store": f"{folder}/run.zarr"},
            "neighbors": {"min_recall": 0.0},
            "execution": {"cluster": {"kind": "serial"}},
        }
        for name, section in job.sections.items():
            settings[name] = {**settings.get(name, {}), **section} if isinstance(section, dict) else section
        config = check_config(settings, "benchmark")
        expected = plan_summary(config)["expected"]["stages"]
        run(config, fresh=False, progress=SilentProgress())
        return {stage: Times(seconds, measured[stage]) for stage, seconds in expected.items()}


@cache
def warm_up() -> None:
    """Load the library of the cells, and compile pynndescent if this machine has not done so."""
    importlib.import_module("sklearn.cluster")
    points = np.random.default_rng(6).random((300, 12)).astype(np.float32)
    cell_neighbors(points, np.arange(300), 5, exact_below=0, seed=0)


def total(times: dict[str, Times]) -> Times:
    return Times(sum(each.expected for each in times.values()), sum(each.measured for each in times.values()))


@contextlib.contextmanager
def _timed() -> Iterator[Counter[str]]:
    """Processor seconds of all tasks within the block, by stage."""
    seconds, run_task = Counter[str](), execute.run_task

    def timed(url: str, step: Step, fingerprint: str, block: int) -> BlockReport:
        started = time.process_time()
        try:
            return run_task(url, step, fingerprint, block)
        finally:
            seconds[step.stage] += time.process_time() - started  # type: ignore[assignment]

    execute.run_task = timed
    try:
        yield seconds
    finally:
        execute.run_task = run_task


def main() -> None:
    """Print a table with a line for each stage of each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*JOBS])
    warm_up()
    print("| data | stage | expected | measured | ratio |\n|---|---|---|---|---|")
    for name in parser.parse_args().names:
        times = compare(JOBS[name])
        for stage, (expected, measured) in {**times, "all": total(times)}.items():
            print(f"| {name} | {stage} | {expected:.2f} | {measured:.2f} | {expected / measured:.2f} |", flush=True)


if __name__ == "__main__":
    main()

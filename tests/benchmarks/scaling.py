"""Growth of every stage up to M with n and with workers: seconds, memory, bytes moved, fitted powers.

    python -m tests.benchmarks.scaling [n ...] [--data swiss_roll wide] [--workers 1 2] [--memory 3GiB]
                                       [--model 16 64] [--block-points N] [--min-recall 0.95] [--folder DIR]
                                       [--place azurite --delay 0.02]

Data: the Swiss roll (3 features, k-d tree) and `wide`, a 10-dimensional manifold in 50 features (pynndescent),
generated block by block into a Zarr array. Each job runs in a process of its own, on fresh local workers of
``--memory`` each, and stops before the eigensolve. Bytes are what went through read and write calls of the driver and
all workers (/proc/PID/io, rchar and wchar), from a disk or from the page cache, imports included; a worker's peak is
the largest memory of its process while it ran a task. `model` is the time of a stage on more workers: the measured
seconds of its tasks, assigned in order to the next free worker; tasks of the driver run one after another. The model
assumes that storage is as fast for all workers as for the measured ones. --place puts the store on an object store of
this machine; its bytes are not counted. --delay adds seconds to each request.
"""

import argparse
import contextlib
import heapq
import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import psutil
import yaml
import zarr

from lle.config.load import load_config
from lle.engine import checkpoint
from lle.engine.progress import RunProgress
from lle.engine.step import WORKER, BlockReport, Step
from lle.jobs import run as runs
from lle.stages import registry
from lle.storage.store import Store
from tests.benchmarks.growth import fit
from tests.support.object_servers import SERVERS
from tests.support.traffic import counted

SIZES = (100_000, 300_000, 1_000_000, 3_000_000)
DATA = ("swiss_roll", "wide")
LAST = "assemble_cost"
WIDE_DIMENSION, WIDE_FEATURES, WIDE_BLOCK = 10, 50, 65_536
MODEL_WORKERS = (16, 64)


class Job(NamedTuple):
    """Settings of a job: `memory` is the limit of a worker, `block_points` as in the config."""

    data: str
    n_points: int
    n_workers: int
    memory: str
    block_points: int | str = "auto"
    min_recall: float = 0.0
    models: tuple[int, ...] = MODEL_WORKERS
    """Numbers of workers of the model."""


class Cost(NamedTuple):
    """Cost of a stage in bytes and seconds; a peak is 0 if no task ran in that place."""

    seconds: float
    worker_peak: int
    driver_peak: int
    read: int
    written: int
    modelled: tuple[float, ...]
    """Seconds with each of `n_workers` workers by the model: the job's own number first, then `models`."""


class Meter(RunProgress):
    """Sums the cost of the steps of each stage."""

    def __init__(self, worker_counts: Sequence[int], *, is_local: bool) -> None:
        super().__init__()
        self._is_local = is_local  # requests to an object store are not read and write calls
        self.stages: dict[str, Cost] = {}
        self._counts = worker_counts
        self._forget()

    def _forget(self) -> None:
        self._peaks, self._moved = {True: 0, False: 0}, np.zeros(2, np.int64)
        self._modelled = np.zeros(len(self._counts))

    def print_line(self, text: str) -> None: ...

    def begin(self, step: Step, n_done: int, state: Callable[[], object] | None = None) -> None:
        super().begin(step, n_done, state)
        self._tasks: list[float] = []
        self._before = bytes_moved()

    def advance(self, step: Step, report: BlockReport) -> None:
        self._tasks.append(report.seconds)
        self._peaks[(step.runs_on != WORKER)] = max(self._peaks[(step.runs_on != WORKER)], report.peak_bytes)

    def end(self, step: Step, seconds: float, computed: int) -> None:
        self._moved += self._is_local * (bytes_moved() - self._before)
        self._modelled += [makespan(self._tasks, 1 if (step.runs_on != WORKER) else count) for count in self._counts]

    def end_stage(self, stage: str, seconds: float, peak_bytes: int) -> None:
        peaks = (self._peaks[False], self._peaks[True])
        self.stages[stage] = Cost(seconds, *peaks, *self._moved.tolist(), tuple(self._modelled.tolist()))
        self._forget()


def bytes_moved() -> np.ndarray:
    """(read, written) by this process and its children, since they began."""
    this_process = psutil.Process()
    counts = [process.io_counters() for process in (this_process, *this_process.children(recursive=True))]
    return np.array([sum(c.read_chars for c in counts), sum(c.write_chars for c in counts)])


def makespan(tasks: Iterable[float], n_workers: int) -> float:
    """Seconds until the last of the tasks is done, when each goes to the worker that is free first.

    >>> makespan([3.0, 1.0, 1.0, 2.0], 2)
    4.0
    """
    free = [0.0] * n_workers
    for seconds in tasks:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def wide_rows(start: int, n_rows: int, seed: int = 11) -> np.ndarray:
    """(n_rows, 50) float32: ten angles in [0, pi] drawn for `start`, five functions of each, turned by a rotation."""
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(WIDE_FEATURES, WIDE_FEATURES)))[0]
    u = np.pi * np.random.default_rng([seed, start]).random((n_rows, WIDE_DIMENSION))
    functions = np.hstack([u, np.cos(u), np.sin(u), np.cos(2 * u) / 2, np.sin(2 * u) / 2])
    return (functions @ turn).astype(np.float32)


def write_wide(folder: Path, n_points: int) -> Path:
    """(n_points, 50) points as a Zarr array."""
    array = zarr.create_array(
        folder / "wide.zarr",
        name="points",
        shape=(n_points, WIDE_FEATURES),
        dtype="float32",
        chunks=(min(WIDE_BLOCK, n_points), WIDE_FEATURES),
    )
    for start in range(0, n_points, WIDE_BLOCK):
        array[start : start + WIDE_BLOCK] = wide_rows(start, min(WIDE_BLOCK, n_points - start))
    return folder / "wide.zarr"


@contextlib.contextmanager
def place_of_stores(place: str, delay: float, folder: Path) -> Iterator[str]:
    """URL under which stores are written: `folder`, or an object store that runs during the block."""
    if place == "disk":
        yield str(folder)
        return
    with (
        tempfile.TemporaryDirectory(dir=folder) as files,
        SERVERS[place](Path(files)) as bare,
        counted(bare, delay) as (server, _),
        mock.patch.dict(os.environ, server.environment),
    ):
        yield server.url("stores")


def measure(job: Job, folder: Path, stores: str | None = None) -> tuple[dict[str, Cost], float]:
    """(cost of each stage up to M, measured recall) of a new job in `folder`, its store under the URL `stores`."""
    url = f"{stores or folder}/run.zarr"
    source: dict[str, Any] = {"kind": "synthetic", "name": "swiss_roll", "n_points": job.n_points}
    if job.data == "wide":
        source = {"kind": "zarr", "url": str(folder / "wide.zarr"), "array": "points"}
    cluster = {"kind": "local", "workers": job.n_workers, "memory": job.memory}
    config = folder / "job.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "input": source,
                "neighbors": {"min_recall": job.min_recall},
                "execution": {"block_points": job.block_points, "cluster": cluster},
                "output": {"store": url, "report": False},
            }
        )
    )
    meter, names = Meter((job.n_workers, *job.models), is_local="://" not in url), list(registry.STAGES)
    stages = {name: registry.STAGES[name] for name in names[: names.index(LAST) + 1]}
    with mock.patch.object(registry, "STAGES", stages):
        runs.run(load_config(config), True, meter)
    reports = checkpoint.read_reports(Store(url))
    measured = [
        block_reports[0].report["value"]
        for key, block_reports in reports.items()
        if key.startswith("mend_graph.measure_recall")
    ]
    return meter.stages, measured[-1]  # that of the last round


def measure_apart(job: Job, folder: Path, stores: str) -> tuple[dict[str, Cost], float]:
    """Run `measure` in a separate process, so that jobs share no memory and no compiled code."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, job, folder, stores).result()


def rows(job: Job, stages: dict[str, Cost], recall: float) -> list[str]:
    """Table rows of a job."""
    named = f"| {job.data} | {job.n_points:,} | {job.n_workers}"
    lines = []
    for name, cost in {**stages, "all": total(stages)}.items():
        mib = [f"{size / 2**20:,.0f}" if size else "" for size in cost[1:5]]
        modelled = " / ".join(f"{seconds:.1f}" for seconds in cost.modelled)
        recall_cell = f"{recall:.4f}" if name == "find_neighbors" else ""
        lines.append(f"{named} | {name} | {cost.seconds:.1f} | {' | '.join(mib)} | {modelled} | {recall_cell} |")
    return lines


def total(stages: dict[str, Cost]) -> Cost:
    """All stages together: sums, and the largest of the peaks."""
    seconds, worker, driver, read, written, modelled = zip(*stages.values(), strict=True)
    summed = tuple(np.sum(modelled, axis=0).tolist())
    return Cost(sum(seconds), max(worker), max(driver), sum(read), sum(written), summed)


def powers(costs_of_jobs: dict[Job, dict[str, Cost]], data: str, n_workers: int) -> list[str]:
    """Fitted powers of n of each stage's cost, over the sizes measured."""
    jobs = [job for job in costs_of_jobs if (job.data, job.n_workers) == (data, n_workers)]
    lines = []
    for name in (*costs_of_jobs[jobs[0]], "all"):
        costs = [total(costs_of_jobs[job]) if name == "all" else costs_of_jobs[job][name] for job in jobs]
        columns = [[cost[i] for cost in costs] for i in range(5)]
        fitted = [f"{fit([j.n_points for j in jobs], c)[0]:.2f}" if min(c) > 0 else "" for c in columns]
        lines.append(f"| {data} | {n_workers} | {name} | {' | '.join(fitted)} |")
    return lines


def speedups(costs_of_jobs: dict[Job, dict[str, Cost]], data: str, n_points: int) -> list[str]:
    """Seconds of each stage by the number of workers, and how many times faster the last is than the first."""
    jobs = sorted(
        (job for job in costs_of_jobs if (job.data, job.n_points) == (data, n_points)), key=lambda j: j.n_workers
    )
    lines = []
    for name in (*costs_of_jobs[jobs[0]], "all"):
        seconds = [(total(costs_of_jobs[job]) if name == "all" else costs_of_jobs[job][name]).seconds for job in jobs]
        values = " / ".join(f"{value:.1f}" for value in seconds)
        lines.append(f"| {data} | {n_points:,} | {name} | {values} | {seconds[0] / seconds[-1]:.2f} |")
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--data", nargs="*", choices=DATA, default=list(DATA))
    parser.add_argument("--workers", type=int, nargs="*", default=[2])
    parser.add_argument("--model", type=int, nargs="*", default=list(MODEL_WORKERS), help="workers of the model")
    parser.add_argument("--memory", default="3GiB")
    parser.add_argument("--block-points", type=int)
    parser.add_argument("--place", choices=["disk", *SERVERS], default="disk")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds added to each request to an object store")
    parser.add_argument("--min-recall", type=float, default=0.0)
    parser.add_argument("--folder", type=Path, help="where stores go while they are needed; default: the temporary one")
    parser.add_argument("--json", type=Path, help="also write what was measured here")
    arguments = parser.parse_args()
    if arguments.delay and arguments.place == "disk":
        parser.error("--delay needs an object store: set --place")
    print(
        "| data | n | workers | stage | seconds | MiB: a worker's peak | driver's peak | read | written "
        f"| model: these workers / {' / '.join(map(str, arguments.model))} | recall |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    costs_of_jobs: dict[Job, dict[str, Cost]] = {}
    for data in arguments.data:
        for n_points in arguments.sizes:
            with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
                if data == "wide":
                    write_wide(Path(name), n_points)
                for n_workers in arguments.workers:
                    job = Job(
                        data,
                        n_points,
                        n_workers,
                        arguments.memory,
                        arguments.block_points or "auto",
                        arguments.min_recall,
                        tuple(arguments.model),
                    )
                    with place_of_stores(arguments.place, arguments.delay, Path(name)) as stores:
                        costs_of_jobs[job], recall = measure_apart(job, Path(name), stores)
                    print("\n".join(rows(job, costs_of_jobs[job], recall)), flush=True)
    if len(arguments.sizes) > 1:
        print("\n| data | workers | stage | power of n: seconds | worker's peak | driver's peak | read | written |")
        print("|---|---|---|---|---|---|---|---|")
        for data in arguments.data:
            for n_workers in arguments.workers:
                print("\n".join(powers(costs_of_jobs, data, n_workers)))
    if len(arguments.workers) > 1:
        print(f"\n| data | n | stage | seconds on {arguments.workers} workers | times faster |\n|---|---|---|---|---|")
        for data in arguments.data:
            print("\n".join(speedups(costs_of_jobs, data, max(arguments.sizes))))
    if arguments.json:
        costs = [
            {**job._asdict(), "stages": {name: cost._asdict() for name, cost in stages.items()}}
            for job, stages in costs_of_jobs.items()
        ]
        arguments.json.write_text(json.dumps(costs, indent=1))


if __name__ == "__main__":
    main()

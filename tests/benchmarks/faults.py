"""Cost of every fault: the job is disturbed, resumed, and compared with an undisturbed run.

    python -m tests.benchmarks.faults [part of a fault's name]

Prints a table: fault, stage, blocks redone (starts of a block beyond its first), whether the result has equal bytes.
"""

import argparse
import contextlib
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import yaml
from distributed import Client, WorkerPlugin

from lle.cli.commands import main as lle
from lle.config.load import load_config
from lle.core.errors import Interrupted, LleError
from lle.engine import checkpoint, execute, plan_sizes
from lle.engine.progress import RunProgress
from lle.engine.step import WORKER, BlockReport, Step
from lle.jobs import run as runs
from lle.jobs import status
from lle.jobs.verify import find_damage, unmark_damaged_blocks
from lle.search import cell_groups
from lle.stages import solve_weights
from lle.storage.store import Store
from tests.support.commands import wait_for_block
from tests.support.dask_processes import one_worker, two_workers
from tests.support.stored import flip, result_bytes

N_POINTS, BLOCK = 900, 150
SMALL: dict[str, Any] = {"n_points": 2 * BLOCK, "quality": {"sample": 50, "geodesic_sources": 20}}
ON_WORKERS = (
    "ingest",
    "order_points",
    "find_neighbors",
    "mend_graph",
    "solve_weights",
    "assemble_cost",
    "measure_quality",
)
PATIENCE = 120.0


class Row(NamedTuple):
    """A line of the table; `message` is the error of the disturbed run, empty if it continued."""

    fault: str
    stage: str
    redone: int
    equal: bool
    message: str = ""


class Job:
    """One config and store; `starts` counts how often each block was started, on workers and in this process."""

    def __init__(self, folder: Path, address: str | None = None, n_points: int = N_POINTS, **sections: Any) -> None:
        self.folder, self.log = folder, folder / "starts.log"
        folder.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        cluster = {"kind": "serial"} if address is None else {"kind": "address", "address": address}
        config = {
            "input": {"kind": "synthetic", "name": "swiss_roll", "n_points": n_points, "seed": 2},
            "neighbors": {"method": "pynndescent", "min_recall": 0.0, "n_neighbors": 8},
            "execution": {"block_points": BLOCK, "cluster": cluster},
            "output": {"store": str(folder / "run.zarr"), "report": False},
        }
        self.config = folder / f"{cluster['kind']}.yaml"
        self.config.write_text(yaml.safe_dump(config | sections))

    @property
    def store(self) -> Store:
        return Store(str(self.folder / "run.zarr"))

    def run(self, progress: RunProgress | None = None) -> str:
        """Run in this process; returns the error message, empty after success. Raises permanent errors."""
        with logged_starts(self.log):
            try:
                runs.run(load_config(self.config), False, progress or Quiet())
            except (LleError, Interrupted) as error:
                if error.exit_code not in (1, 130, 143):
                    raise
                return str(error)
        return ""

    def start(self, *faults: str) -> subprocess.Popen:
        """Run in a separate process with its own faults."""
        command = [sys.executable, "-m", "tests.benchmarks.faults", "--drive", str(self.config), str(self.log), *faults]
        return subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def redone(self, stage: str | None = None) -> int:
        """Starts of blocks beyond the first of each (the report is always made again)."""
        ours = {key: n for key, n in self.starts().items() if not key.startswith("write_report")}
        return sum(n - 1 for key, n in ours.items() if stage is None or key.startswith(f"{stage}."))

    def starts(self) -> Counter[str]:
        """How often each block was started."""
        return Counter(line.split()[0] for line in self.log.read_text().splitlines())

    def last_worker(self, stage: str) -> int:
        """The process that started a block of the stage last."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return int([pid for key, pid in lines if key.startswith(f"{stage}.")][-1])

    def results(self) -> dict[str, bytes]:
        return result_bytes(self.store.url)

    def row(self, fault: str, stage: str, message: str = "") -> Row:
        blocks = sum(entry["blocks"] for entry in status.status(self.store)["stages"].values())
        assert len(self.starts()) == blocks, "the log does not see every block"
        return Row(fault, stage, self.redone(), self.results() == undisturbed(), message)


class Quiet(RunProgress):
    """Prints nothing, and calls a function at the first block or at the begin of a step of a stage."""

    def __init__(self, stage: str = "", act: Callable[[], None] = lambda: None, step: str = "") -> None:
        super().__init__()
        self.stage, self.step, self.act = stage, step, act
        self.left = True

    def print_line(self, text: str) -> None: ...

    def advance(self, step: Step, report: BlockReport) -> None:
        super().advance(step, report)
        is_chosen = step.stage == self.stage and self.step in ("", step.name) and step.n_blocks > 1
        if is_chosen and self.left and step.runs_on == WORKER:
            self.left = False
            self.act()


class KillInEach(Quiet):
    """Kill a worker in every stage that has tasks on workers."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job, self.killed = job, list[str]()

    def advance(self, step: Step, report: BlockReport) -> None:
        RunProgress.advance(self, step, report)
        is_chosen = step.stage in ON_WORKERS and step.stage not in self.killed
        if is_chosen and step.n_blocks > 1 and step.runs_on == WORKER:
            self.killed.append(step.stage)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.job.last_worker(step.stage), signal.SIGKILL)


class LogStarts(WorkerPlugin):
    """Write a line for every task that a worker starts."""

    name = "log-starts"

    def __init__(self, log: str) -> None:
        self.log = log

    def transition(self, key: Any, start: str, finish: str, **more: Any) -> None:
        block = re.fullmatch(r"(\w+\.\w+-\d+)-\d+", str(key))
        if finish == "executing" and block is not None:
            with open(self.log, "a") as log:
                log.write(f"{block[1]} {os.getpid()}\n")


class Poison(WorkerPlugin):
    """Make block 2 of the weights kill its worker."""

    name = "poison"

    def setup(self, worker: Any) -> None:
        self.solve = solve_weights.solve_block

        def solve_block(store: Store, block: int, **parameters: Any) -> Any:
            if block == 2:
                os._exit(3)
            return self.solve(store, block, **parameters)

        solve_weights.solve_block = solve_block

    def teardown(self, worker: Any) -> None:
        solve_weights.solve_block = self.solve


@contextlib.contextmanager
def logged_starts(log: Path) -> Iterator[None]:
    """Log the blocks that run in this process. Cells and groups are small, so that there are several.

    The driver chooses the sizes; workers receive them with their tasks.
    """
    run_task = execute.run_task

    def logged(url: str, step: Step, fingerprint: str, block: int) -> BlockReport:
        with log.open("a") as file:
            file.write(f"{step.stage}.{step.name}-{block} {os.getpid()}\n")
        return run_task(url, step, fingerprint, block)

    with (
        mock.patch.object(execute, "run_task", logged),
        mock.patch.object(plan_sizes, "CELL_POINTS", 60),
        mock.patch.object(cell_groups, "GROUP_POINTS", 250),
    ):
        yield


def kill_workers(client: Client) -> None:
    """Kill all workers. Their nannies are in this process and start new ones."""
    for pid in [nanny.pid for nanny in client.cluster.workers.values() if nanny.pid]:
        os.kill(pid, signal.SIGKILL)


@cache
def undisturbed() -> dict[str, bytes]:
    """The results of an undisturbed run."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        assert job.run() == ""
        return job.results()


# --- the faults


def worker_killed(folder: Path, client: Client) -> list[Row]:
    """One run, a worker killed in each of the stages ON_WORKERS."""
    job = Job(folder, client.scheduler.address)
    client.register_plugin(LogStarts(str(job.log)))
    kills = KillInEach(job)
    message = job.run(kills)
    assert kills.killed == list(ON_WORKERS), message
    equal = job.results() == undisturbed()
    return [Row("worker SIGKILLed", stage, job.redone(stage), equal, message) for stage in kills.killed]


def all_workers_restarted(folder: Path, client: Client) -> list[Row]:
    job = Job(folder, client.scheduler.address)
    client.register_plugin(LogStarts(str(job.log)))
    message = job.run(Quiet("solve_weights", lambda: kill_workers(client), "solve"))
    return [job.row("all workers killed at once", "solve_weights", message)]


def poisoned_block(folder: Path, client: Client) -> list[Row]:
    """The block is named and the others finish. Without the fault the next run computes only that block."""
    job = Job(folder, client.scheduler.address)
    client.register_plugin(LogStarts(str(job.log)))
    client.register_plugin(Poison())
    message = job.run()
    client.unregister_worker_plugin("poison")
    solved = sorted(report.block for report in checkpoint.read_reports(job.store)["solve_weights.solve"])
    assert solved == [0, 1, 3, 4, 5], solved
    second_message = job.run()
    assert second_message == "", second_message
    return [job.row("a block that kills its worker", "solve_weights", message)]


def scheduler_lost(folder: Path) -> list[Row]:
    """The driver ends with a temporary error; the next run has no cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    with one_worker(folder) as address:
        job = Job(folder / "job", address)
        with Client(address) as client:
            client.register_plugin(LogStarts(str(job.log)))
            pid = client.run_on_scheduler(os.getpid)
        with contextlib.suppress(OSError):
            message = job.run(Quiet("solve_weights", lambda: os.kill(pid, signal.SIGKILL), "solve"))
    assert Job(folder / "job").run() == ""
    return [job.row("scheduler lost", "solve_weights", message)]


def driver_killed(folder: Path, stage: str = "assemble_cost") -> list[Row]:
    job = Job(folder)
    process = job.start()
    wait_for_block(process, job.store.url, stage)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert job.run() == ""
    return [job.row("driver SIGKILLed", stage, "killed")]


def two_drivers(folder: Path) -> list[Row]:
    """Of two drivers that start together, one does the work and the other is refused."""
    job = Job(folder)
    both = [job.start(), job.start()]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 1], errors
    return [job.row("two drivers at once", "all", errors[codes.index(1)].strip())]


def disk_full(folder: Path) -> list[Row]:
    """A tmpfs too small for the run; then there is more room."""
    job = Job(folder)
    place = folder / "disk"
    place.mkdir()
    job.config.write_text(job.config.read_text().replace(str(folder / "run.zarr"), str(place / "run.zarr")))
    drive = f'"{sys.executable}" -m tests.benchmarks.faults --drive "{job.config}" "{job.log}"'
    script = f"""
        mount -t tmpfs -o size=700k tmpfs "{place}" || exit 99
        {drive}; first=$?
        mount -o remount,size=64m "{place}" || exit 98
        {drive} || exit 97
        cp -r "{place}/run.zarr" "{folder}/run.zarr"; exit $first
    """
    command = ["unshare", "-Urm", "sh", "-c", script]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if completed.returncode == 99 or "unshare" in completed.stderr:
        raise OSError(errno.EPERM, f"no tmpfs can be mounted here: {completed.stderr}")
    assert completed.returncode == 1, completed.stderr
    message = next(line for line in completed.stderr.splitlines() if "disk is full" in line)
    repeated = [key.split(".")[0] for key, n in job.starts().items() if n > 1]
    return [job.row("disk full", repeated[0], message)]


def one_write_in_twenty_fails(folder: Path) -> list[Row]:
    job = Job(folder)
    with failing_writes(seed=7) as failed:
        message = job.run()
    assert len(failed) > 10, failed
    return [job.row(f"one write in twenty fails ({len(failed)} did)", "all", message)]


@contextlib.contextmanager
def failing_writes(seed: int) -> Iterator[list[str]]:
    """Renaming the temporary file of a write fails once in twenty times."""
    replace, chance, failed = os.replace, random.Random(seed), list[str]()

    def flaky(source: Any, target: Any, **more: Any) -> None:
        if chance.random() < 0.05:
            failed.append(str(target))
            raise OSError(errno.EIO, "Input/output error", str(target))
        replace(source, target, **more)

    with mock.patch("os.replace", flaky):
        yield failed


def clock_skew(folder: Path) -> list[Row]:
    """Stopped with the clock a day ahead, resumed with it a day behind."""
    job = Job(folder)

    def stop() -> None:
        raise Interrupted(signal.SIGTERM)

    with shifted_clock(86_400.0):
        message = job.run(Quiet("find_neighbors", stop))
    assert message
    with shifted_clock(-86_400.0):
        assert job.run() == ""
    return [job.row("clock a day ahead, then a day behind", "find_neighbors", message)]


@contextlib.contextmanager
def shifted_clock(seconds: float) -> Iterator[None]:
    now = time.time
    with mock.patch.object(checkpoint, "time", mock.Mock(wraps=time, time=lambda: now() + seconds)):
        yield


def damaged(folder: Path) -> Iterator[Row]:
    """Every array and bundle, truncated or with a flipped bit, is never used and is computed again on request."""
    finished_job = Job(folder / "whole", **SMALL)
    assert finished_job.run() == ""
    names = list(objects_by_array(finished_job.store).values())
    for number, name in enumerate(names):
        yield _damage_one(folder / str(number), finished_job, name, ("bit flipped", "truncated")[number % 2])


def objects_by_array(store: Store) -> dict[str, str]:
    """One stored object of each array and of each kind of bundle: the last."""
    names = {}
    for name in store.objects.names(""):
        array = name.split("/c/")[0]
        is_chunk = "/c/" in name
        if name.startswith(("_run", "_done", "report")) or not (is_chunk or name.endswith((".npz", ".parts"))):
            continue
        parts = [part for part in array.removesuffix(".npz").removesuffix(".parts").split("/") if not part.isdigit()]
        names["/".join(parts)] = name
    return names


def _damage_one(folder: Path, finished_job: Job, name: str, damage_kind: str) -> Row:
    job = Job(folder, **SMALL)
    shutil.copytree(finished_job.store.url, job.store.url)
    path = Path(job.store.url, name)
    if damage_kind == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    else:
        flip(path)
    forget_what_follows(job.store, name)
    message = job.run()  # the damage is detected when it is read, or no later step reads it
    damage = find_damage(job.store)
    assert damage or message, name
    if damage:
        unmark_damaged_blocks(job.store, damage)
    second_message = job.run()
    assert second_message == "", f"{name}: {second_message}"
    assert find_damage(job.store) == []
    writing_step = writer(job.store, name)
    redone = sum(n for key, n in job.starts().items() if key.startswith(f"{writing_step}-"))
    return Row(
        f"{damage_kind}: {name}",
        writing_step.partition(".")[0],
        redone,
        job.results() == finished_job.results(),
        message,
    )


def writer(store: Store, name: str) -> str:
    """The step that wrote an object."""
    for key, record in checkpoint.recorded_steps(store).items():
        if any(name == part or name.startswith(f"{part}/") for part in record.written):
            return key
    raise KeyError(name)


def forget_what_follows(store: Store, name: str) -> None:
    """Forget the markers of the steps after the one that wrote an object."""
    steps = list(checkpoint.recorded_steps(store))
    for key in steps[steps.index(writer(store, name)) + 1 :]:
        checkpoint.delete_markers(store, key)


ALONE: dict[str, Callable[[Path], Iterable[Row]]] = {
    "scheduler_lost": scheduler_lost,
    "driver_killed": driver_killed,
    "two_drivers": two_drivers,
    "disk_full": disk_full,
    "one_write_in_twenty_fails": one_write_in_twenty_fails,
    "clock_skew": clock_skew,
    "damaged": damaged,
}
WITH_WORKERS: dict[str, Callable[[Path, Client], list[Row]]] = {
    "worker_killed": worker_killed,
    "all_workers_restarted": all_workers_restarted,
    "poisoned_block": poisoned_block,
}


def drive(config: str, log: str) -> None:
    """`lle run`, its starts logged."""
    sys.argv = ["lle", "run", config]
    with logged_starts(Path(log)):
        lle()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--drive", nargs=2, metavar=("CONFIG", "LOG"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drive:
        drive(*arguments.drive)
        return
    print("| fault | stage | blocks redone | result equal |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        chosen = {name: fault for name, fault in WITH_WORKERS.items() if arguments.part in name}
        if chosen:
            with two_workers() as client:
                for name, fault in chosen.items():
                    show(fault(Path(folder, name), client))
        for name, fault in ALONE.items():
            if arguments.part in name:
                show(fault(Path(folder, name)))


def show(rows: Iterable[Row]) -> None:
    """Print lines of the table as they come."""
    for row in rows:
        print(f"| {row.fault} | {row.stage} | {row.redone} | {'yes' if row.equal else 'NO'} |", flush=True)


if __name__ == "__main__":
    main()

"""Schedulers and workers of Dask as separate processes, which end with the test."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dask
from distributed import Client

from lle.clusters.connect import connect
from lle.config.models import Cluster


@contextmanager
def dask_processes(
    folder: Path,
    commands: dict[str, list[str]],
    environments: dict[str, dict[str, str]],
    ready: Callable[[], bool],
    is_restarted: bool = False,
) -> Iterator[str]:
    """Yield the scheduler's address, once it has written ``folder``/scheduler.json and ``ready()`` is true.

    ``commands`` are the arguments of `dask` by the name of each process, which is the name of its log too. With
    ``is_restarted``, a process that ends is started again.
    """
    file, running = folder / "scheduler.json", []
    logs = [folder / f"{name}.log" for name in commands]
    try:
        for log, (name, command) in zip(logs, commands.items(), strict=True):
            program = [sys.executable, "-m", "dask", *command]
            if is_restarted:
                program = ["sh", "-c", f"while :; do {shlex.join(program)}; done"]
            options = {"env": environments.get(name), "start_new_session": True}
            with log.open("wb") as out:
                running.append(subprocess.Popen(program, stdout=out, stderr=out, **options))
        deadline = time.monotonic() + 60
        while not file.exists() or not file.read_text() or not ready():
            output = "".join(log.read_text() for log in logs)
            assert running[0].poll() is None, output
            assert time.monotonic() < deadline, output
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"]
    finally:
        for process in reversed(running):
            with suppress(ProcessLookupError):  # a test has ended it
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def scheduler_command(folder: Path, *options: str) -> list[str]:
    common = "--host 127.0.0.1 --port 0 --dashboard-address 127.0.0.1:0"
    return ["scheduler", "--scheduler-file", str(folder / "scheduler.json"), *common.split(), *options]


def worker_command(folder: Path, *options: str) -> list[str]:
    """A worker of one thread for the scheduler of this folder, or of an address among the options."""
    common = "--host 127.0.0.1 --nthreads 1 --no-nanny --no-dashboard --memory-limit 0"
    file = [] if any("://" in option for option in options) else ["--scheduler-file", str(folder / "scheduler.json")]
    return ["worker", *file, *common.split(), *options]


def one_worker(folder: Path, *options: str, worker: tuple[str, ...] = (), environment: dict[str, str] | None = None):
    """Address of a scheduler with one worker."""
    commands = {"scheduler": scheduler_command(folder, *options), "worker": worker_command(folder, *options, *worker)}
    environments = {"worker": {**os.environ, **(environment or {})}}
    return dask_processes(folder, commands, environments, lambda: is_registered(folder / "worker.log"))


def is_registered(log: Path) -> bool:
    """Whether the worker with this log is known to its scheduler."""
    return "Registered to" in log.read_text()


@contextmanager
def two_workers() -> Iterator[Client]:
    """A client of two local worker processes. Dask gives up a task when it has killed two workers."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        connect(Cluster(kind="local", workers=2, memory="2GiB")) as client,
    ):
        yield client

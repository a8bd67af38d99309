"""Schedulers and workers of Dask as separate processes, which end with the test."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
from distributed import Client

from lle.clusters.connect import connect
from lle.config.models import Cluster


@contextmanager
def dask_processes(
    folder: Path, commands: dict[str, list[str]], environments: dict[str, dict[str, str]], ready: Callable[[], bool]
) -> Iterator[str]:
    """Yield the scheduler's address, once it has written ``folder``/scheduler.json and ``ready()`` is true.

    ``commands`` are the arguments of `dask` by the name of each process, which is the name of its log too.
    """
    file, running = folder / "scheduler.json", []
    logs = [folder / f"{name}.log" for name in commands]
    try:
        for log, (name, command) in zip(logs, commands.items(), strict=True):
            program = [sys.executable, "-m", "dask", *command]
            with log.open("wb") as out:
                running.append(subprocess.Popen(program, stdout=out, stderr=out, env=environments.get(name)))
        deadline = time.monotonic() + 60
        while not file.exists() or not file.read_text() or not ready():
            output = "".join(log.read_text() for log in logs)
            assert running[0].poll() is None, output
            assert time.monotonic() < deadline, output
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"]
    finally:
        for process in reversed(running):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def two_workers() -> Iterator[Client]:
    """A client of two local worker processes. Dask gives up a task when it has killed two workers."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        connect(Cluster(kind="local", workers=2, memory="2GiB")) as client,
    ):
        yield client

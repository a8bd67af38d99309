"""Seconds and peak memory of a whole command, all its processes together."""

import contextlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

POLL_SECONDS = 0.1


class Cost(NamedTuple):
    """Wall-clock seconds, the largest sum of proportional set sizes of the process tree in bytes, processor seconds."""

    seconds: float
    peak_bytes: int
    processor_seconds: float = 0.0


def run_measured(command: list[str], cwd: Path | None = None) -> Cost:
    """Run a command to its end. Raises CalledProcessError if it fails.

    Python may write bytecode: without it, a source tree would be compiled at every start, an installed package not.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started, processor_before = time.perf_counter(), _processor_seconds()
    with subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        peak = 0
        root = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, tree_bytes(root))
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - started
        errors = process.stderr.read() if process.stderr else ""
        if process.returncode:
            sys.stderr.write(errors)
            raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(seconds, peak, _processor_seconds() - processor_before)


def _processor_seconds() -> float:
    """Of all child processes that have ended, with their own children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tree_bytes(root: psutil.Process) -> int:
    """Memory of a process and its descendants; pages they share are counted once (Linux), else resident sets."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                total += proportional_bytes(process)
    return total


def proportional_bytes(process: psutil.Process) -> int:
    """The process's proportional set size, else its resident set."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)

"""One task: a block of a step is computed and written, then its marker. It runs in this process or on a worker."""

import contextlib
import threading
import time
from pathlib import Path
from typing import ClassVar, TypeAlias
from weakref import WeakSet

import psutil

from ..core import stage_caches
from ..core.errors import LleError, StageIncomplete, StoreError
from ..core.machine import peak_bytes
from ..core.threads import find_late_pools, limited_threads
from ..storage.store import Store
from . import checkpoint
from .step import BlockReport, Report, Step

CURRENT_SECONDS = 1.0

Ending: TypeAlias = BlockReport[Report] | BaseException
Outcome: TypeAlias = tuple[int, Ending]

abandoned = WeakSet[threading.Thread]()
"""Threads of an interrupted run. Their tasks write nothing more: the run has left its store, and another may use it."""


def run_task(url: str, step: Step[Report], fingerprint: str, block: int) -> BlockReport[Report]:
    """Compute one block, write its data, then its marker. Uses one thread unless the step has `all_cores`."""
    store = Store(url)
    if (finished := checkpoint.read_marker(store, step, fingerprint, block)) is not None:
        return finished  # another worker finished the block and died before it reported
    store.before_write = _Current(store, step, fingerprint, block)
    stage_caches.begin_stage(step.stage)
    started = time.perf_counter()
    limits: contextlib.AbstractContextManager[object] = (
        contextlib.nullcontext() if step.all_cores else limited_threads(1)
    )
    with limits, PeakMemory() as peak:
        report = step.task(store, block)
    if step.all_cores:
        find_late_pools()
    seconds = time.perf_counter() - started
    n_bytes = max(peak.bytes, report.subprocess_bytes)  # the step may have used a subprocess
    result = BlockReport(block, round(seconds, 4), n_bytes, report, peak.base, tuple(sorted(store.bundles_written)))
    _require_run()
    checkpoint.mark_done(store, step, fingerprint, result)
    return result


def _require_run() -> None:
    if threading.current_thread() in abandoned:
        raise StageIncomplete("the run was interrupted")


class _Current:
    """Prevents a task from writing after its run was interrupted, and from overwriting data of a newer run.

    Workers of a cluster outlive a killed driver and finish their tasks, while a run with another config may have begun
    the same step. This check is repeated only after CURRENT_SECONDS, so short tasks send no request.
    """

    def __init__(self, store: Store, step: Step[Report], fingerprint: str, block: int) -> None:
        self._arguments, self._checked = (store, step, fingerprint, block), time.monotonic()

    def __call__(self) -> None:
        _require_run()
        if time.monotonic() - self._checked >= CURRENT_SECONDS:
            checkpoint.require_current(*self._arguments)
            self._checked = time.monotonic()


def is_final(error: BaseException) -> bool:
    """Whether a retry cannot cure an error of a task."""
    if isinstance(error, LleError):
        return isinstance(error, StoreError) or error.exit_code != 1
    return not isinstance(error, Exception)


class PeakMemory:
    """Context of a task: `bytes`, the peak memory of its process meanwhile, and `base`, the memory at its start.

    Linux counts one peak for each process. It is read before it is reset, because tasks of several threads overlap.
    Other systems have no reset; there the peak is that of the whole process.
    """

    _running: ClassVar[set["PeakMemory"]] = set()
    _lock: ClassVar = threading.Lock()

    def __enter__(self) -> "PeakMemory":
        with self._lock:
            self._read()
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")
            self.base = self.bytes = int(psutil.Process().memory_info().rss)
            self._running.add(self)
        return self

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._read()
            self._running.remove(self)

    def _read(self) -> None:
        for task in self._running:
            task.bytes = max(task.bytes, peak_bytes())

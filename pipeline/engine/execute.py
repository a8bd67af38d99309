"""Run a step's blocks, in this process or on a Dask cluster. A task carries the store's URL, a block and parameters.

The task itself writes the block's marker after its data, so a block that finished counts even when the driver dies.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from ..clusters.limits import MEMORY_SHARE, workers_of
from ..core.address_space import explained
from ..core.errors import CorruptChunk, Interrupted, StageIncomplete
from ..core.machine import available_memory
from ..core.signals import raise_if_stopped
from ..storage.store import Store
from . import checkpoint, subprocess_call, task_costs
from .step import DRIVER, WHOLE_DATA, WORKER, BlockReport, Json, Report, Step
from .tasks import Ending, Outcome, abandoned, is_final, run_task

if TYPE_CHECKING:
    from distributed import Client

    from .progress import RunProgress

WAKE_SECONDS = 0.2
WRITE_SECONDS = 1.0
"""Time in which a write ends that a task has begun."""


@dataclass
class Executor:
    """Runs blocks on a client's workers; without a client in this process, up to `n_threads` at one time.

    Whole-data steps run on the workers that offer the Dask resource `memory_resource`; without one, in this process.
    `memory` is the limit of a task and its process in bytes, for workers that do not report theirs, and `high_memory`
    the limit of the workers with the resource. None means unknown. `connect` opens the client before the first block
    that is not finished, so that a run with nothing left to do starts no workers.
    """

    client: "Client | None"
    memory_resource: str | None = None
    memory: int | None = None
    high_memory: int | None = None
    n_threads: int = 1
    connect: "Callable[[], Client | None] | None" = None

    def start(self) -> None:
        """Open the client, if it is not open."""
        if self.connect is not None:
            self.client, self.connect = self.connect(), None

    def runs_here(self, step: Step[Report]) -> bool:
        return (
            self.client is None
            or step.runs_on == DRIVER
            or (step.runs_on == WHOLE_DATA and self.memory_resource is None)
        )

    def require_memory(self, step: Step[Report]) -> None:
        """Raises NotEnoughMemory if a task of the step does not fit where it would run."""
        if step.all_cores:
            return  # the eigensolver has a memory limit of its own
        if step.runs_on != WHOLE_DATA:
            task_costs.check_worker(step, self.worker_limit())
        elif not self.runs_here(step):
            offering = [w for w in self._workers() if w["resources"].get(self.memory_resource, 0) >= 1]
            limits = (w["memory_limit"] for w in offering if w["memory_limit"])
            task_costs.check_worker(step, min(limits, default=self.high_memory))
        if step.runs_on != WORKER and self.runs_here(step):
            task_costs.check_driver(step, available_memory())

    def worker_limit(self) -> int | None:
        """Memory limit of one task on the smallest worker in bytes, including the process of the worker."""
        limits = [w["memory_limit"] // max(1, w["nthreads"]) for w in self._workers() if w["memory_limit"]]
        return min(limits, default=self.memory)

    def _workers(self) -> list[Json]:
        return [] if self.client is None else list(workers_of(self.client).values())

    def outcomes(self, step: Step[Report], url: str, fingerprint: str, blocks: Iterable[int]) -> Iterator[Outcome]:
        """(block, report or error) of each block, in the order in which they end."""
        if self.client is not None:
            from ..clusters.version_check import check_versions, required_versions
            from .worker_tasks import outcomes_on_workers, task_or_error

            programs = required_versions(self.client)
            if not self.runs_here(step):
                compute = partial(task_or_error, url, step, fingerprint, programs)
                yield from outcomes_on_workers(self.client, step, compute, list(blocks), self.memory_resource)
                return
            if step.runs_on == DRIVER and programs is not None:
                check_versions(self.client, step.key)  # the step submits tasks of its own
        yield from outcomes_in_threads(partial(run_task, url, step, fingerprint), blocks, self.threads_of(step))

    def threads_of(self, step: Step[Report]) -> int:
        """Number of blocks of a step that this process computes at one time, as far as its memory allows."""
        if self.client is not None or step.runs_on != WORKER or step.all_cores:
            return 1
        fitting = int(MEMORY_SHARE * available_memory()) // max(step.task_bytes, 1)
        return max(1, min(self.n_threads, fitting))


def run_step(
    step: Step[Report],
    upstream: str,
    store: Store,
    executor: Executor,
    progress: "RunProgress",
    finished_steps: checkpoint.FinishedSteps = None,
    source_stores: Sequence[Store] = (),
    restore: Callable[[], None] = lambda: None,
) -> list[BlockReport[Report]]:
    """Compute the unfinished blocks of a step; returns the reports of all its blocks in block order.

    `restore` is called before, if there are any: they may need freed data of earlier steps.

    Raises:
        LleError: the error of a block that a retry cannot cure.
        StageIncomplete: after all other blocks have finished, with a list of the failed ones; or for a damaged chunk,
            whose block the next run computes again, without beginning others.
    """
    fingerprint = step.fingerprint(upstream)
    # Before anything is deleted: a cluster that does not start leaves an earlier result as it is. With source stores
    # nothing is replaced, and only `begin_step` finds out what they have.
    if executor.connect is not None and not source_stores:
        finished = checkpoint.finished_blocks(store, step.key, fingerprint)
        if len(finished) < step.n_blocks:
            executor.start()
    reports = checkpoint.begin_step(store, step, fingerprint, finished_steps, source_stores)
    missing = [block for block in range(step.n_blocks) if block not in reports]
    if missing:
        executor.start()
        restore()
        executor.require_memory(step)
    progress.begin(step, len(reports), partial(step.progress, store) if step.progress else None)
    started = time.perf_counter()
    failures: dict[int, BaseException] = {}
    for block, outcome in executor.outcomes(step, store.url, fingerprint, missing):
        raise_if_stopped()
        if isinstance(outcome, BlockReport):
            reports[block] = outcome
            progress.advance(step, outcome)
        else:
            _raise_if_final(outcome, store)
            failures[block] = outcome
    if failures:
        raise StageIncomplete(_list_failures(step, failures))
    seconds = time.perf_counter() - started
    checkpoint.add_seconds(store, step, seconds if missing else 0.0)
    progress.end(step, seconds, len(missing))
    return [reports[block] for block in range(step.n_blocks)]


Ended: TypeAlias = tuple["_TaskThread", int, Ending]
Compute: TypeAlias = Callable[[int], BlockReport[Report]]


class _TaskThread(threading.Thread):
    """Makes calls one after the other. For each new thread numerical libraries would start threads of their own."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.calls = SimpleQueue[tuple[Compute, int, "SimpleQueue[Ended]"] | None]()
        self.start()

    def run(self) -> None:
        while (call := self.calls.get()) is not None:
            compute, block, ended = call
            try:
                ended.put((self, block, Context().run(compute, block)))
            except BaseException as error:
                ended.put((self, block, error))

    def close(self) -> None:
        """End the thread, after its present call."""
        self.calls.put(None)


_idle_threads: list[_TaskThread] = []


def outcomes_in_threads(compute: Compute, blocks: Iterable[int], n_threads: int) -> Iterator[Outcome]:
    """What `compute(block)` gives for all blocks, up to `n_threads` at one time.

    This thread only waits, so it handles signals while compiled code runs for minutes. If the caller takes no further
    outcomes, the blocks that are being computed end first: they must not write into the store of a later run. After
    Interrupted only a write is waited for.
    """
    waiting, running, ended = iter(blocks), set[_TaskThread](), SimpleQueue[Ended]()
    try:
        while True:
            for block in islice(waiting, n_threads - len(running)):
                thread = _idle_thread()
                running.add(thread)
                thread.calls.put((compute, block, ended))
            if not running:
                return
            yield _next_outcome(ended, running)
    finally:
        with contextlib.suppress(Interrupted):  # it was raised before, in the caller
            while running:
                _next_outcome(ended, running)


def _idle_thread() -> _TaskThread:
    with contextlib.suppress(IndexError):
        while not (thread := _idle_threads.pop()).is_alive():  # threads do not survive a fork
            pass
        return thread
    return _TaskThread()


def _next_outcome(ended: "SimpleQueue[Ended]", running: set[_TaskThread]) -> Outcome:
    """Wait for the next block that ends. After an exception here, such as Interrupted, no thread counts as running."""
    try:
        while True:
            raise_if_stopped()
            with contextlib.suppress(Empty):
                thread, block, outcome = ended.get(timeout=WAKE_SECONDS)
                break
    except BaseException:
        _abandon(running)
        raise
    running.remove(thread)
    if isinstance(outcome, BaseException):  # the call may have left settings of its thread
        thread.close()
    else:
        _idle_threads.append(thread)
    return block, outcome


def _abandon(running: set[_TaskThread]) -> None:
    """End the threads at the next write of their tasks. Computing goes on until then, so only a write is waited for."""
    threads, until = list(running), time.monotonic() + WRITE_SECONDS
    running.clear()
    abandoned.update(threads)
    for thread in threads:
        thread.close()
    subprocess_call.stop_all()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _raise_if_final(error: BaseException, store: Store) -> None:
    """Raise an error that a retry cannot cure at once: no other block is begun."""
    if isinstance(error, CorruptChunk):
        block = checkpoint.invalidate(store, error.array, error.chunk)
        raise StageIncomplete(
            f"{store.url}: {error}. Nothing was computed from it. Its block ({block}) is computed again when you "
            f"run the same command again"
        ) from None
    if is_final(error):
        raise error


def _list_failures(step: Step[Report], failures: dict[int, BaseException]) -> str:
    lines = [f"  block {block}: {explained(error)}" for block, error in sorted(failures.items())[:5]]
    more = [f"  and {len(failures) - 5} more"] if len(failures) > 5 else []
    head = f"{step.key}: {len(failures)} of {step.n_blocks} blocks failed; finished blocks are kept:"
    return "\n".join([head, *lines, *more, "Run the same command again to retry the failed blocks"])

"""Run a step's blocks, serially or on a Dask cluster. A task carries the store's URL, a block and plain parameters.

The task itself writes the block's marker after its data, so a block that finished counts even when the driver dies.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import psutil
from distributed import Client, as_completed
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from ..clusters.version_check import check_versions, require_versions, required_versions
from ..core import stage_caches
from ..core.address_space import explained
from ..core.errors import CorruptChunk, LleError, StageIncomplete, StoreError, gib
from ..core.machine import available_memory, peak_bytes
from ..core.signals import raise_if_stopped
from ..core.threads import forget_pools, limited_threads
from ..storage.store import Store
from . import checkpoint, subprocess_call, task_costs
from .plan import DRIVER, WHOLE_DATA, WORKER, BlockReport, Step

RETRIES = 2
GATHER_SECONDS = 300  # to fetch the report of a finished task; the scheduler may be lost meanwhile
WINDOW_PER_WORKER = 3
WAKE_SECONDS = 0.2
WORKER_COUNT_SECONDS = 5.0
CURRENT_SECONDS = 1.0


Outcome = tuple[int, BlockReport | BaseException]


class Progress(Protocol):
    """Receives the progress of a step."""

    def begin(self, step: Step, n_done: int, state: Callable[[], str] | None = None) -> None: ...

    def advance(self, step: Step, report: BlockReport) -> None: ...

    def end(self, step: Step, seconds: float, computed: int) -> None: ...


class Executor:
    """Runs blocks on a client's workers; without a client, one after the other in this process.

    Whole-data steps run on the workers that offer the Dask resource `memory_resource`; without one, in this process.
    `memory` is the limit of a worker in bytes, for workers that do not report theirs, and `high_memory` the limit of
    the workers with the resource. None means unknown.
    """

    def __init__(
        self,
        client: Client | None,
        memory_resource: str | None = None,
        memory: int | None = None,
        high_memory: int | None = None,
    ) -> None:
        self.client, self.memory_resource = client, memory_resource
        self.memory, self.high_memory = memory, high_memory
        self._programs = None if client is None else required_versions(client)
        self._available, self._available_read = 0, -math.inf

    def runs_here(self, step: Step) -> bool:
        """Whether the tasks of a step run in this process."""
        return (
            self.client is None
            or step.runs.place == DRIVER
            or (step.runs.place == WHOLE_DATA and self.memory_resource is None)
        )

    def require_memory(self, step: Step) -> None:
        """Raises NotEnoughMemory if a task of the step does not fit where it would run."""
        if step.runs.all_cores:
            return  # the eigensolver has a memory limit of its own
        if step.runs.place != WHOLE_DATA:
            task_costs.check_worker(step, self.worker_limit())
        if step.runs.place == WORKER:
            return
        if self.runs_here(step):
            task_costs.check_driver(step, self._available_memory())
        else:
            task_costs.check_high_memory(step, self.high_memory_limit())

    def _available_memory(self) -> int:
        """Free memory of this process, read again after CURRENT_SECONDS: many short steps read it once."""
        if time.monotonic() - self._available_read > CURRENT_SECONDS:
            self._available, self._available_read = available_memory(), time.monotonic()
        return self._available

    def worker_limit(self) -> int | None:
        """Memory limit of one task on the smallest worker in bytes, including the process of the worker."""
        limits = [w["memory_limit"] // max(1, w["nthreads"]) for w in self._workers() if w["memory_limit"]]
        return min(limits, default=self.memory)

    def high_memory_limit(self) -> int | None:
        """Memory limit of the smallest worker that runs whole-data steps, one at a time."""
        offering = [w for w in self._workers() if w["resources"].get(self.memory_resource, 0) >= 1]
        return min((w["memory_limit"] for w in offering if w["memory_limit"]), default=self.high_memory)

    def _workers(self) -> list[dict[str, Any]]:
        return [] if self.client is None else list(self.client.scheduler_info(n_workers=-1)["workers"].values())

    def outcomes(self, step: Step, url: str, fingerprint: str, blocks: Iterable[int]) -> Iterator[Outcome]:
        """(block, report or error) of each block, in the order in which they end."""
        if self.client is None or self.runs_here(step):
            if self.client is not None and step.runs.place == DRIVER and self._programs is not None:
                check_versions(self.client, f"{step.stage}.{step.name}")  # the step submits tasks of its own
            for block in blocks:
                yield block, _attempt(run_task, url, step, fingerprint, block)
        else:
            yield from self._distributed(self.client, step, url, fingerprint, list(blocks))

    def _distributed(
        self, client: Client, step: Step, url: str, fingerprint: str, blocks: list[int]
    ) -> Iterator[Outcome]:
        """All blocks. Dask blames all queued tasks for the death of a worker, so these are retried one by one."""
        suspects = []
        for block, outcome in self._windowed(client, step, url, fingerprint, blocks, WINDOW_PER_WORKER):
            if isinstance(outcome, KilledWorker):
                suspects.append(block)
            else:
                yield block, outcome
        for suspect in suspects:
            for block, outcome in self._windowed(client, step, url, fingerprint, [suspect], 1):
                if isinstance(outcome, KilledWorker):
                    planned = gib(step.runs.bytes_per_task)
                    outcome = StageIncomplete(f"its worker was killed at each try (planned memory: {planned})")
                yield block, outcome

    def _windowed(
        self, client: Client, step: Step, url: str, fingerprint: str, blocks: list[int], per_worker: int
    ) -> Iterator[Outcome]:
        """Submit a few blocks per worker, and another one whenever a block ends: the task graph stays small."""
        waiting = iter(blocks)
        needs = {self.memory_resource: 1} if step.runs.place == WHOLE_DATA else None
        n_workers = _WorkerCount(client)
        submitted = {}

        def submit(block: int) -> Any:
            key = f"{step.stage}.{step.name}-{block}-{fingerprint[:8]}-{time.monotonic_ns()}"
            future = client.submit(
                _task_or_error, url, step, fingerprint, block, self._programs, key=key, pure=False, retries=RETRIES,
                resources=needs,
            )  # fmt: skip
            submitted[future.key] = block
            return future

        futures = {submit(block) for block in islice(waiting, per_worker * n_workers.size())}
        pool = as_completed(futures)
        try:
            for future in pool:
                futures.discard(future)
                yield submitted[future.key], _outcome(future, step)
                for following in islice(waiting, max(0, per_worker * n_workers.size() - len(futures))):
                    added = submit(following)
                    futures.add(added)
                    pool.add(added)
        finally:
            for future in futures:
                future.release()  # Client.cancel can wait for ever if the client has just lost its scheduler


class _WorkerCount:
    """Number of workers, read again every few seconds, because workers join and leave a shared cluster."""

    def __init__(self, client: Client) -> None:
        self._client, self._size, self._checked = client, 1, -math.inf

    def size(self) -> int:
        if time.monotonic() - self._checked > WORKER_COUNT_SECONDS:
            self._size = max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))
            self._checked = time.monotonic()
        return self._size


def _outcome(future: Any, step: Step) -> BlockReport | BaseException:
    """The report or the error of a finished task. Raises LleError if the scheduler was lost."""
    try:
        if future.status == "error":
            error: BaseException = future.exception(timeout=GATHER_SECONDS)
            return error
        report: BlockReport | BaseException = future.result(timeout=GATHER_SECONDS)
    except KilledWorker as error:  # the task had finished, but its worker died before the report was fetched
        killed: BaseException = error
        return killed
    except (FutureCancelledError, OSError, TimeoutError) as error:
        raise LleError(f"the Dask scheduler was lost in {step.stage} ({error}); run again to resume") from None
    return report


def run_step(
    step: Step,
    upstream: str,
    store: Store,
    executor: Executor,
    progress: Progress,
    finished_steps: checkpoint.FinishedSteps = None,
    source_stores: Sequence[Store] = (),
) -> list[BlockReport]:
    """Compute the unfinished blocks of a step; returns the reports of all its blocks in block order.

    Raises:
        LleError: the error of a block that a retry cannot cure.
        StageIncomplete: after all other blocks have finished, with a list of the failed ones; or at once for a damaged
            chunk, whose block the next run computes again.
    """
    fingerprint = checkpoint.fingerprint_of(upstream, step)
    reports = checkpoint.begin_step(store, step, fingerprint, finished_steps, source_stores)
    missing = [block for block in range(step.n_blocks) if block not in reports]
    if missing:
        executor.require_memory(step)
    progress.begin(step, len(reports), partial(step.runs.state, store) if step.runs.state else None)
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


def run_task(url: str, step: Step, fingerprint: str, block: int) -> BlockReport:
    """Compute one block, write its data, then its marker. Uses one thread unless the step has `all_cores`."""
    store = Store(url)
    if (finished := checkpoint.read_marker(store, step, fingerprint, block)) is not None:
        return finished  # another worker finished the block and died before it reported
    store.before_write = _Current(store, step, fingerprint, block)
    stage_caches.begin_stage(step.stage)
    base_bytes = _reset_peak()
    started = time.perf_counter()
    limits: Any = contextlib.nullcontext() if step.runs.all_cores else limited_threads(1)
    with limits:
        report = step.function(store, block, **step.decides.parameters, **step.runs.resources)
    if step.runs.all_cores:
        forget_pools()  # the step has loaded MKL, which does not change the number of Python modules
    seconds = time.perf_counter() - started
    peak = max(peak_bytes(), report.pop("peak_bytes", 0))  # the step may have used a subprocess
    result = BlockReport(block, round(seconds, 4), peak, report, base_bytes, tuple(sorted(store.bundles_written)))
    checkpoint.mark_done(store, step, fingerprint, result)
    return result


class _Current:
    """Prevents a task from overwriting data of a newer run.

    Workers of a cluster outlive a killed driver and finish their tasks, while a run with another config may have begun
    the same step. The check is repeated only after CURRENT_SECONDS, so short tasks send no request.
    """

    def __init__(self, store: Store, step: Step, fingerprint: str, block: int) -> None:
        self._arguments, self._checked = (store, step, fingerprint, block), time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._checked >= CURRENT_SECONDS:
            checkpoint.require_current(*self._arguments)
            self._checked = time.monotonic()


def _task_or_error(
    url: str, step: Step, fingerprint: str, block: int, programs: dict[str, str] | None
) -> BlockReport | LleError:
    """Run a task on a worker. Errors that a retry cannot cure are returned, because Dask retries every raised error."""
    try:
        require_versions(programs)
        return run_task(url, step, fingerprint, block)
    except LleError as error:
        if not _is_final(error):
            raise
        return error


def _attempt(function: Callable[..., BlockReport], *arguments: Any) -> BlockReport | BaseException:
    """Call in another thread and wait, so that this thread handles signals while compiled code runs for minutes."""
    outcomes: list[BlockReport | BaseException] = []

    def call() -> None:
        try:
            outcomes.append(function(*arguments))
        except BaseException as error:
            outcomes.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(WAKE_SECONDS)
            raise_if_stopped()
    except BaseException:
        subprocess_call.stop_all()
        raise
    return outcomes[0]


def _raise_if_final(error: BaseException, store: Store) -> None:
    """Raise an error that a retry cannot cure at once, without waiting for the other blocks."""
    if isinstance(error, CorruptChunk):
        forgotten = checkpoint.invalidate(store, error.array, error.chunk)
        raise StageIncomplete(
            f"{store.url}: {error}. Nothing was computed from it. Its block ({forgotten}) is computed again when you "
            f"run the same command again"
        ) from None
    if _is_final(error):
        raise error


def _is_final(error: BaseException) -> bool:
    if isinstance(error, LleError):
        return isinstance(error, StoreError) or error.exit_code != 1
    return not isinstance(error, Exception)


def _list_failures(step: Step, failures: dict[int, BaseException]) -> str:
    lines = [f"  block {block}: {explained(error)}" for block, error in sorted(failures.items())[:5]]
    more = [f"  and {len(failures) - 5} more"] if len(failures) > 5 else []
    head = f"{step.stage}.{step.name}: {len(failures)} of {step.n_blocks} blocks failed; finished blocks are kept:"
    return "\n".join([head, *lines, *more, "Run the same command again to retry the failed blocks."])


def _reset_peak() -> int:
    """Reset the peak memory that Linux counts for this process; returns the bytes it holds now.

    Other systems have no such reset; there the peak is that of the whole process.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return int(psutil.Process().memory_info().rss)

"""Run a step's blocks, serially or on a Dask cluster. A task carries the store's URL, a block and plain parameters.

The task itself writes the block's marker after its data, so a block that finished counts even when the driver dies.
"""

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import psutil
from distributed import Client, as_completed
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker
from threadpoolctl import ThreadpoolController

from pipeline.clusters.version_check import check_versions, require_versions, required_versions
from pipeline.core import stage_caches
from pipeline.core.errors import CorruptChunk, LleError, StageIncomplete, StoreError
from pipeline.core.machine import available_memory, peak_bytes
from pipeline.engine import checkpoint, subprocess_call, task_costs
from pipeline.engine.plan import DRIVER, WHOLE_DATA, WORKER, BlockReport, Step
from pipeline.storage.store import Store

RETRIES = 2
WINDOW_PER_WORKER = 3
WAKE_SECONDS = 0.2
CROWD_SECONDS = 5.0
CURRENT_SECONDS = 1.0
BLOCK_THREAD = "block of a step"

Outcome = tuple[int, BlockReport | BaseException]


class Progress(Protocol):
    """Hears how a step goes."""

    def begin(self, step: Step, done: int) -> None: ...

    def advance(self, step: Step, report: BlockReport) -> None: ...

    def end(self, step: Step, seconds: float, computed: int) -> None: ...


class Executor:
    """Runs blocks on a client's workers, or one after the other in this process when there is no client.

    Whole-data steps (WHOLE_DATA) run in this process too, unless `memory_resource` names the Dask resource of workers
    that have the memory; then they run there and nowhere else.

    `memory` is the limit of a worker in bytes, for workers that do not know their own, and `high_memory` that of those
    with the resource; None: not known.
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

    def runs_here(self, step: Step) -> bool:
        """Whether the tasks of a step run in this process."""
        return (
            self.client is None
            or step.runs.place == DRIVER
            or (step.runs.place == WHOLE_DATA and self.memory_resource is None)
        )

    def require_memory(self, step: Step) -> None:
        """Raises NotEnoughMemory when a task of the step does not fit where it would run."""
        if step.runs.all_cores:
            return  # the eigensolve keeps to a limit of its own
        if step.runs.place != WHOLE_DATA:
            task_costs.check_worker(step, self.worker_limit())
        if step.runs.place == WORKER:
            return
        if self.runs_here(step):
            task_costs.check_driver(step, available_memory())
        else:
            task_costs.check_high_memory(step, self.high_memory_limit())

    def worker_limit(self) -> int | None:
        """Bytes for one task on the smallest worker, the worker's own process included."""
        limits = [w["memory_limit"] // max(1, w["nthreads"]) for w in self._workers() if w["memory_limit"]]
        return min(limits, default=self.memory)

    def high_memory_limit(self) -> int | None:
        """The same of the workers that take whole-data steps, of which a worker runs one at a time."""
        offering = [w for w in self._workers() if w["resources"].get(self.memory_resource, 0) >= 1]
        return min((w["memory_limit"] for w in offering if w["memory_limit"]), default=self.high_memory)

    def _workers(self) -> list[dict[str, Any]]:
        return [] if self.client is None else list(self.client.scheduler_info(n_workers=-1)["workers"].values())

    def outcomes(self, step: Step, url: str, mark: str, blocks: Iterable[int]) -> Iterator[Outcome]:
        """Each block with its report or its error, as they come."""
        if self.client is None or self.runs_here(step):
            if self.client is not None and step.runs.place == DRIVER and self._programs is not None:
                check_versions(self.client, f"{step.stage}.{step.name}")  # its tasks are not those of this module
            for block in blocks:
                yield block, _attempt(run_task, url, step, mark, block)
        else:
            yield from self._distributed(self.client, step, url, mark, list(blocks))

    def _distributed(self, client: Client, step: Step, url: str, mark: str, blocks: list[int]) -> Iterator[Outcome]:
        """All blocks; those whose worker died are tried again one at a time, since Dask blames all it had queued."""
        suspects = []
        for block, outcome in self._windowed(client, step, url, mark, blocks, WINDOW_PER_WORKER):
            if isinstance(outcome, KilledWorker):
                suspects.append(block)
            else:
                yield block, outcome
        for suspect in suspects:
            for block, outcome in self._windowed(client, step, url, mark, [suspect], 1):
                if isinstance(outcome, KilledWorker):
                    planned = task_costs.gib(step.runs.bytes_per_task)
                    outcome = StageIncomplete(f"it killed its worker each time it was tried (planned: {planned})")
                yield block, outcome

    def _windowed(
        self, client: Client, step: Step, url: str, mark: str, blocks: list[int], per_worker: int
    ) -> Iterator[Outcome]:
        """Submit a few blocks a worker at a time, more whenever one ends, so that the graph stays small."""
        waiting = iter(blocks)
        needs = {self.memory_resource: 1} if step.runs.place == WHOLE_DATA else None
        crowd = _Crowd(client)
        submitted = {}

        def submit(block: int) -> Any:
            key = f"{step.stage}.{step.name}-{block}-{mark[:8]}-{time.monotonic_ns()}"
            future = client.submit(
                _task_or_error, url, step, mark, block, self._programs, key=key, pure=False, retries=RETRIES,
                resources=needs,
            )  # fmt: skip
            submitted[future.key] = block
            return future

        futures = {submit(block) for block in islice(waiting, per_worker * crowd.size())}
        pool = as_completed(futures)
        try:
            for future in pool:
                futures.discard(future)
                yield submitted[future.key], _outcome(future, step)
                for following in islice(waiting, max(0, per_worker * crowd.size() - len(futures))):
                    added = submit(following)
                    futures.add(added)
                    pool.add(added)
        finally:
            client.cancel(list(futures))


class _Crowd:
    """How many workers there are, asked for now and then: they come late and go early on clusters that are shared."""

    def __init__(self, client: Client) -> None:
        self._client, self._size, self._asked = client, 1, -math.inf

    def size(self) -> int:
        if time.monotonic() - self._asked > CROWD_SECONDS:
            self._size = max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))
            self._asked = time.monotonic()
        return self._size


def _outcome(future: Any, step: Step) -> BlockReport | BaseException:
    """A finished task's report or its own error. Raises LleError when it is the scheduler that was lost."""
    try:
        if future.status == "error":
            error: BaseException = future.exception()
            return error
        report: BlockReport | BaseException = future.result()
    except KilledWorker as error:  # it had ended well, but its worker died before it was asked for the report
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
    before: checkpoint.Before = None,
    donors: Sequence[Store] = (),
) -> list[BlockReport]:
    """Compute the blocks of a step that are not done; return the reports of all of them in block order.

    Raises the block's own error if it is one a retry cannot cure, CorruptChunk for damaged input (its block is
    forgotten first), else StageIncomplete that lists the failed blocks after the others have finished.
    """
    mark = checkpoint.fingerprint(upstream, step)
    done = checkpoint.begin_step(store, step, mark, before, donors)
    missing = [block for block in range(step.n_blocks) if block not in done]
    if missing:
        executor.require_memory(step)
    progress.begin(step, len(done))
    started = time.perf_counter()
    failures: dict[int, BaseException] = {}
    for block, outcome in executor.outcomes(step, store.url, mark, missing):
        if isinstance(outcome, BlockReport):
            done[block] = outcome
            progress.advance(step, outcome)
        else:
            _raise_if_final(outcome, store)
            failures[block] = outcome
    if failures:
        raise StageIncomplete(_list_failures(step, failures))
    seconds = time.perf_counter() - started
    checkpoint.add_seconds(store, step, seconds if missing else 0.0)
    progress.end(step, seconds, len(missing))
    return [done[block] for block in range(step.n_blocks)]


def run_task(url: str, step: Step, mark: str, block: int) -> BlockReport:
    """One block: compute, write, mark. Runs in a worker (or here), with one thread unless the step asks for more."""
    store = Store(url)
    if (finished := checkpoint.read_marker(store, step, mark, block)) is not None:
        return finished  # done by another worker that died before it could say so
    store.before_write = _Current(store, step, mark, block)
    stage_caches.begin_stage(step.stage)
    base_bytes = _reset_peak()
    started = time.perf_counter()
    limits: Any = contextlib.nullcontext() if step.runs.all_cores else _pools(len(sys.modules)).limit(limits=1)
    with limits:
        report = step.function(store, block, **step.decides.parameters, **step.runs.resources)
    if step.runs.all_cores:
        _pools.cache_clear()  # MKL is loaded there, which is no module
    seconds = time.perf_counter() - started
    peak = max(peak_bytes(), report.pop("peak_bytes", 0))  # the step may have worked in another process
    result = BlockReport(block, round(seconds, 4), peak, report, base_bytes, tuple(sorted(store.bundles_written)))
    checkpoint.mark_done(store, step, mark, result)
    return result


class _Current:
    """Keeps a task from writing over what a newer run of another config has begun.

    The workers of a cluster outlive a driver that was killed, and finish what they are at. Asked for again when some
    time has passed, so that short tasks cost no request.
    """

    def __init__(self, store: Store, step: Step, mark: str, block: int) -> None:
        self._whose, self._asked = (store, step, mark, block), time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._asked >= CURRENT_SECONDS:
            checkpoint.require_current(*self._whose)
            self._asked = time.monotonic()


def _task_or_error(
    url: str, step: Step, mark: str, block: int, programs: dict[str, str] | None
) -> BlockReport | LleError:
    """What a worker runs: errors that no retry changes are results, since Dask would only try them again."""
    try:
        require_versions(programs)
        return run_task(url, step, mark, block)
    except LleError as error:
        if not _is_final(error):
            raise
        return error


def _attempt(function: Callable[..., BlockReport], *arguments: Any) -> BlockReport | BaseException:
    """Call in a thread of its own and wait: a signal reaches this thread even while compiled code runs for minutes."""
    found: list[BlockReport | BaseException] = []

    def call() -> None:
        try:
            found.append(function(*arguments))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=call, name=BLOCK_THREAD, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(WAKE_SECONDS)
    except BaseException:
        subprocess_call.stop_all()
        raise
    return found[0]


def wait_for_blocks(seconds: float) -> None:
    """Wait for blocks of this process that a signal has left at work, so that nothing writes after them."""
    for thread in threading.enumerate():
        if thread.name == BLOCK_THREAD:
            thread.join(seconds)


def _raise_if_final(error: BaseException, store: Store) -> None:
    """Errors that no other block and no retry changes end the step at once."""
    if isinstance(error, CorruptChunk):
        forgotten = checkpoint.invalidate(store, error.array, error.chunk)
        raise StageIncomplete(
            f"{store.url}: {error}. Nothing was computed from it. Forgotten: {forgotten}; run the same command again "
            f"to compute it anew"
        ) from None
    if _is_final(error):
        raise error


def _is_final(error: BaseException) -> bool:
    return isinstance(error, StoreError) or (isinstance(error, LleError) and error.exit_code != 1)


def _list_failures(step: Step, failures: dict[int, BaseException]) -> str:
    shown = [f"  block {block}: {type(error).__name__}: {error}" for block, error in sorted(failures.items())[:5]]
    more = [f"  and {len(failures) - 5} more"] if len(failures) > 5 else []
    head = f"{step.stage}.{step.name}: {len(failures)} of {step.n_blocks} blocks failed; the others are kept:"
    return "\n".join([head, *shown, *more, "Run the same command again to try the failed blocks once more."])


@lru_cache(maxsize=1)
def _pools(n_modules: int) -> ThreadpoolController:
    """The libraries here that keep threads, looked for again once more modules are loaded: it takes milliseconds."""
    return ThreadpoolController()


def _reset_peak() -> int:
    """Start Linux's count of this process's peak memory anew (elsewhere it is that of the whole process).

    Returns what the process holds now.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return int(psutil.Process().memory_info().rss)

"""Tasks on the workers of a Dask cluster: submitted a few at a time, and submitted again if their worker dies.

Only runs with a cluster import this module: loading distributed takes a fifth of a second.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

from distributed import Client, Future, as_completed
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from ..clusters.limits import workers_of
from ..clusters.version_check import require_versions
from ..core.errors import LleError, StageIncomplete, gib
from .step import WHOLE_DATA, Report, Step
from .tasks import Ending, Outcome, is_final, run_task

K = TypeVar("K")
RETRIES = 2
GATHER_ATTEMPTS, GATHER_SECONDS = 150, 2.0
"""Attempts to fetch the report of a finished task, and seconds of each. A worker may be busy, or the scheduler lost."""
WINDOW_PER_WORKER = 3
WORKER_COUNT_SECONDS = 5.0


def outcomes_on_workers(
    client: Client, step: Step[Report], compute: Callable[[int], Ending], blocks: list[int], resource: str | None
) -> Iterator[Outcome]:
    """What `compute(block)` gives for all blocks, on the workers with the `resource` if the step is a whole-data step.

    Dask blames all queued tasks for the death of a worker, so these are retried one by one.
    """
    needs = {resource: 1} if step.runs_on == WHOLE_DATA else None
    submit = partial(client.submit, compute, pure=False, retries=RETRIES, resources=needs)
    suspects = []
    for block, outcome in _windowed(client, step, submit, blocks, WINDOW_PER_WORKER):
        if isinstance(outcome, KilledWorker):
            suspects.append(block)
        else:
            yield block, outcome
    for suspect in suspects:
        for block, outcome in _windowed(client, step, submit, [suspect], 1):
            if isinstance(outcome, KilledWorker):
                planned = gib(step.task_bytes)
                outcome = StageIncomplete(f"its worker was killed at each try (planned memory: {planned})")
            yield block, outcome


def _windowed(
    client: Client, step: Step[Report], submit: Callable[..., Future], blocks: list[int], per_worker: int
) -> Iterator[Outcome]:
    """Submit a few blocks per worker, and another one whenever a block ends: the task graph stays small."""
    waiting, n_workers, submitted = iter(blocks), _WorkerCount(client), Submitted[int](client)

    def fill() -> None:
        for block in islice(waiting, max(0, per_worker * n_workers.size() - len(submitted.running))):
            submitted.add(block, submit(block, key=f"{step.key}-{block}-{time.monotonic_ns()}"))

    fill()
    for ended in submitted.ended(f" in {step.stage}"):
        yield ended
        fill()


class Submitted(Generic[K]):
    """Tasks on the workers, each with a key; others can be added while `ended` waits for them."""

    def __init__(self, client: Client) -> None:
        self._pool, self.running = as_completed(loop=client.loop), dict[Future, K]()

    def add(self, key: K, future: Future) -> None:
        self.running[future] = key
        self._pool.add(future)

    def ended(self, where: str = "") -> Iterator[tuple[K, Any]]:
        """(key, result or error) of each task as it ends. Raises LleError if the scheduler was lost."""
        try:
            for future in self._pool:
                yield self.running.pop(future), result_or_error(future, where)
        finally:
            for future in self.running:
                future.release()  # Client.cancel can wait forever if the client has just lost its scheduler


class _WorkerCount:
    """Number of workers, read again every few seconds, because workers join and leave a shared cluster."""

    def __init__(self, client: Client) -> None:
        self._client, self._size, self._checked = client, 1, -math.inf

    def size(self) -> int:
        if time.monotonic() - self._checked > WORKER_COUNT_SECONDS:
            self._size = max(1, len(workers_of(self._client)))
            self._checked = time.monotonic()
        return self._size


def result_or_error(future: Future, where: str) -> Any:
    """The result or the error of a finished task. Raises LleError if the scheduler was lost."""
    lost: Exception | None = None
    for _ in range(GATHER_ATTEMPTS):
        try:
            error = future.exception(timeout=GATHER_SECONDS)
            return future.result(timeout=GATHER_SECONDS) if error is None else error
        except KilledWorker as killed:  # the task had finished, but its worker died before the result was fetched
            return killed
        except TimeoutError as late:
            lost = late
            if future.client.status in ("closing", "closed"):  # a closed client never answers
                break
        except (FutureCancelledError, OSError) as failed:
            lost = failed
            break
    raise LleError(f"the Dask scheduler was lost{where} ({lost}); run again to resume")


def task_or_error(
    url: str, step: Step[Report], fingerprint: str, programs: dict[str, str] | None, block: int
) -> Ending:
    """Run a task on a worker, which must have the versions `programs`.

    Errors that a retry cannot cure are returned, because Dask retries every raised error.
    """
    try:
        require_versions(programs)
        return run_task(url, step, fingerprint, block)
    except LleError as error:
        if not is_final(error):
            raise
        return error

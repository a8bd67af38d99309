"""Tasks on the workers of a Dask cluster: submitted a few at a time, and submitted again if their worker dies.

Only runs with a cluster import this module: loading distributed takes a fifth of a second.
"""

import math
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from distributed import Client, Future, as_completed
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from ..clusters.version_check import require_versions
from ..core.errors import LleError, StageIncomplete, gib
from .step import WHOLE_DATA, BlockReport, Report, Step
from .tasks import Outcome, is_final, run_task

RETRIES = 2
GATHER_SECONDS = 300  # to fetch the report of a finished task; the scheduler may be lost meanwhile
WINDOW_PER_WORKER = 3
WORKER_COUNT_SECONDS = 5.0


class Submission(NamedTuple):
    """What the tasks of a step have in common. `programs` are the versions that a worker must have."""

    client: Client
    step: Step[Report]
    url: str
    fingerprint: str
    programs: dict[str, str] | None
    memory_resource: str | None


def outcomes_on_workers(submission: Submission, blocks: list[int]) -> Iterator[Outcome]:
    """All blocks. Dask blames all queued tasks for the death of a worker, so these are retried one by one."""
    step = submission.step
    suspects = []
    for block, outcome in _windowed(submission, blocks, WINDOW_PER_WORKER):
        if isinstance(outcome, KilledWorker):
            suspects.append(block)
        else:
            yield block, outcome
    for suspect in suspects:
        for block, outcome in _windowed(submission, [suspect], 1):
            if isinstance(outcome, KilledWorker):
                planned = gib(step.task_bytes)
                outcome = StageIncomplete(f"its worker was killed at each try (planned memory: {planned})")
            yield block, outcome


def _windowed(submission: Submission, blocks: list[int], per_worker: int) -> Iterator[Outcome]:
    """Submit a few blocks per worker, and another one whenever a block ends: the task graph stays small."""
    client, step, url, fingerprint, programs, memory_resource = submission
    task, waiting = partial(_task_or_error, url, step, fingerprint, programs), iter(blocks)
    needs = {memory_resource: 1} if step.runs_on == WHOLE_DATA else None
    n_workers = _WorkerCount(client)
    submitted = {}

    def submit(block: int) -> Future:
        key = f"{step.key}-{block}-{fingerprint[:8]}-{time.monotonic_ns()}"
        future = client.submit(task, block, key=key, pure=False, retries=RETRIES, resources=needs)
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
            future.release()  # Client.cancel can wait forever if the client has just lost its scheduler


class _WorkerCount:
    """Number of workers, read again every few seconds, because workers join and leave a shared cluster."""

    def __init__(self, client: Client) -> None:
        self._client, self._size, self._checked = client, 1, -math.inf

    def size(self) -> int:
        if time.monotonic() - self._checked > WORKER_COUNT_SECONDS:
            self._size = max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))
            self._checked = time.monotonic()
        return self._size


def _outcome(future: Future, step: Step[Report]) -> BlockReport[Report] | BaseException:
    """The report or the error of a finished task. Raises LleError if the scheduler was lost."""
    try:
        if future.status == "error":
            error: BaseException = future.exception(timeout=GATHER_SECONDS)
            return error
        report: BlockReport[Report] | BaseException = future.result(timeout=GATHER_SECONDS)
    except KilledWorker as error:  # the task had finished, but its worker died before the report was fetched
        killed: BaseException = error
        return killed
    except (FutureCancelledError, OSError, TimeoutError) as error:
        raise LleError(f"the Dask scheduler was lost in {step.stage} ({error}); run again to resume") from None
    return report


def _task_or_error(
    url: str, step: Step[Report], fingerprint: str, programs: dict[str, str] | None, block: int
) -> BlockReport[Report] | LleError:
    """Run a task on a worker. Errors that a retry cannot cure are returned, because Dask retries every raised error."""
    try:
        require_versions(programs)
        return run_task(url, step, fingerprint, block)
    except LleError as error:
        if not is_final(error):
            raise
        return error

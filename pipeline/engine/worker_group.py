"""One program at the same time on several Dask workers, which send arrays to each other (SPMD, as with MPI).

Dask only places the ranks, one task on each worker. An array goes from worker to worker as a message of Dask's
connections, without the scheduler. The sender waits until the receiver has come to the same call, so a worker holds at
most one message of each other rank that it does not need yet.

A rank ends at its next call of the group if
- the driver says so (`_close`): another rank has raised an error, its worker has died, or the driver was interrupted
- the scheduler has released its task, because the driver has died.
"""

import asyncio
import contextlib
import math
import sys
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from distributed import Client, Future, Status, Worker, get_worker, wait
from distributed.client import FuturesCancelledError
from distributed.protocol import to_serialize
from distributed.scheduler import KilledWorker

from ..clusters.limits import workers_of
from ..clusters.version_check import require_versions, required_versions
from ..core.arrays import Array
from ..core.errors import GroupLost
from ..core.group import Group
from ..core.signals import raise_if_stopped
from .worker_tasks import result_or_error

T = TypeVar("T")
TRIES = 3
"""How often a group may lose a worker without progress in between."""
POLL_SECONDS = 0.2
LOOK_SECONDS = 1.0
"""Time between two looks at the list of workers."""
END_SECONDS = 20.0
"""Time for the other ranks to come to their next call after an error of one; then it is raised without them."""
RESTART_SECONDS, FIRST_WORKER_SECONDS = 15.0, 600.0
"""Time for a lost worker to come back, and for the first worker if none is left."""
CLOSE_SECONDS = 5.0


def run_in_group(
    client: Client,
    function: Callable[..., T],
    arguments: tuple[Any, ...] = (),
    n_ranks: int | None = None,
    progress: Callable[[], object] = lambda: None,
) -> T:
    """Run `function(group, *arguments)` on `n_ranks` workers (None: all), at most one on each; the result of rank 0.

    `function` and `arguments` are sent through the scheduler, so they must be small. If a worker dies, the group begins
    again on the workers that are left or came back, so `function` must continue from its own checkpoints. `progress`
    returns something that differs after progress; tries count from there again.

    Raises:
        GroupLost: workers were lost TRIES times without progress, or no worker is left.
        LleError: the scheduler was lost.
        Exception: the error of the lowest rank that raised one.
    """
    tries, reached = 0, progress()
    addresses = _workers(client)[:n_ranks] or _wait_for_workers(client, 1)
    wanted = len(addresses)
    while True:
        try:
            return _run_once(client, function, arguments, addresses)
        except GroupLost as lost:
            before, reached = reached, progress()
            tries = 1 if reached != before else tries + 1
            if tries == TRIES:
                raise GroupLost(
                    f"{lost}. It is try {TRIES} without progress",
                    advice="if its log names memory, use more workers or workers with more memory (execution.cluster); "
                    "then run the same command again",
                ) from lost
            print(f"lle: warning: {lost}; the group of workers begins again", file=sys.stderr)
            addresses = _wait_for_workers(client, wanted)


def _workers(client: Client) -> list[str]:
    return sorted(workers_of(client))


def _wait_for_workers(client: Client, wanted: int) -> list[str]:
    """Up to `wanted` workers; fewer after RESTART_SECONDS. Raises GroupLost if there is none for a long time."""
    started = time.monotonic()
    while len(found := _workers(client)) < wanted:
        raise_if_stopped()
        waited = time.monotonic() - started
        if waited > (RESTART_SECONDS if found else FIRST_WORKER_SECONDS):
            break
        time.sleep(POLL_SECONDS)
    if not found:
        raise GroupLost("all workers have ended", advice="look into their logs, and run the same command again")
    return found[:wanted]


class _GroupEnded(GroupLost):
    """A consequence of the failure of another rank, so it is reported only if no rank knows more."""


def _run_once(client: Client, function: Callable[..., T], arguments: tuple[Any, ...], addresses: list[str]) -> T:
    name, futures = f"lle-group-{uuid4().hex}", list[Future]()
    try:
        # All mailboxes are there before the first rank begins.
        opened = client.run(_open, name, addresses, workers=addresses, on_error="ignore")
        if missing := sorted(set(addresses) - set(opened)):
            raise GroupLost(f"worker {missing[0]} ended before the group began")
        run = partial(_run_rank, name, required_versions(client), function, arguments)
        for address in addresses:
            key, where = f"{name}-{len(futures)}", {"workers": [address], "allow_other_workers": False}
            futures.append(client.submit(run, key=key, pure=False, retries=0, **where))
        outcomes = _outcomes(client, name, addresses, futures)
    except BaseException:
        _close_all(client, name, addresses)
        raise
    finally:
        for future in futures:
            future.release()
    if errors := [outcome for outcome in outcomes if isinstance(outcome, Exception)]:
        raise min(errors, key=lambda error: (isinstance(error, GroupLost), isinstance(error, _GroupEnded)))
    result: T = outcomes[0]
    return result


def _outcomes(client: Client, name: str, addresses: list[str], futures: list[Future]) -> list[Any]:
    """The result or the error of each rank, GroupLost if its worker has died. After a failure all others must end."""
    looked, closed, dead = time.monotonic(), math.inf, set[int]()
    while True:
        raise_if_stopped()
        running = [rank for rank, future in enumerate(futures) if not future.done() and rank not in dead]
        failed = bool(dead) or any(future.status not in ("pending", "finished") for future in futures)
        if not running or (time.monotonic() - closed > END_SECONDS and _has_final_error(futures)):
            break
        if time.monotonic() - looked > LOOK_SECONDS or (failed and closed == math.inf):
            there, looked = set(_workers(client)), time.monotonic()
            dead.update(rank for rank in running if addresses[rank] not in there)
        if failed and closed == math.inf:
            closed = time.monotonic()
            _close_all(client, name, [addresses[rank] for rank in running if rank not in dead])
        with contextlib.suppress(TimeoutError, FuturesCancelledError):
            wait([futures[rank] for rank in running], timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")

    def outcome(rank: int) -> Any:
        ended = result_or_error(futures[rank], " while a group computed") if futures[rank].done() else None
        if rank in dead or isinstance(ended, KilledWorker):
            return GroupLost(f"worker {addresses[rank]} ended while it computed in a group of {len(addresses)} workers")
        return ended

    return [outcome(rank) for rank in range(len(futures))]


def _has_final_error(futures: list[Future]) -> bool:
    """Whether a rank raised an error of its own. Without one the group begins again, so all ranks must end before."""
    errors = [future.exception() for future in futures if future.status == "error"]
    return any(not isinstance(error, GroupLost | KilledWorker) for error in errors)


def _close_all(client: Client, name: str, addresses: list[str]) -> None:
    """Tell ranks to end. A worker that does not answer sees that its task was released, or is dead."""
    with contextlib.suppress(Exception):
        client.sync(client.run, _close, name, workers=addresses, on_error="ignore", callback_timeout=CLOSE_SECONDS)


# --- on the workers


def _open(name: str, addresses: list[str], dask_worker: Worker) -> None:
    dask_worker.extensions[name] = member = _Member(dask_worker, name, addresses)
    dask_worker.handlers[name] = member.receive


async def _close(name: str, dask_worker: Worker) -> None:
    dask_worker.handlers.pop(name, None)
    if (member := dask_worker.extensions.pop(name, None)) is not None:
        await member.end()


def _run_rank(
    name: str, programs: dict[str, str] | None, function: Callable[..., T], arguments: tuple[Any, ...]
) -> T | None:
    """The task of one rank. Only rank 0 returns a result."""
    worker = get_worker()
    member = worker.extensions.get(name)
    if member is None:  # the worker has restarted at the same address, or the driver has ended the group
        raise GroupLost(f"worker {worker.address} has no such group")
    try:
        require_versions(programs)
        member.task = worker.get_current_task()
        group: Group = member
        result = function(group, *arguments)
        return result if member.rank == 0 else None
    finally:
        asyncio.run_coroutine_threadsafe(_close(name, worker), worker.loop.asyncio_loop).result()


class _Member:
    """A rank in its worker. Its task waits for coroutines, so all its state is used in the worker's event loop only."""

    def __init__(self, worker: Worker, name: str, addresses: list[str]) -> None:
        self._worker, self._name, self._addresses = worker, name, addresses
        self.rank, self.size = addresses.index(worker.contact_address), len(addresses)
        self.task: str | None = None
        self._ended = False
        self._number = 0  # of the present call
        self._arrived = dict[int, asyncio.Future[list[Array]]]()  # what this call expects, by sender
        self._turn = asyncio.Condition()

    def exchange(self, parts: Mapping[int, Array], sources: Collection[int]) -> dict[int, Array]:
        """As Group.exchange."""
        received = self._exchange_in_loop({rank: [part] for rank, part in parts.items()}, sources)
        return {rank: part for rank, [part] in received.items()}

    def gather(self, part: Array) -> list[Array]:
        """As Group.gather, in log2(size) exchanges with one rank each (Bruck et al. 1997)."""
        known = [part.copy()]  # of the ranks from this one on, cyclically; others pass them on after this call
        while (n := len(known)) < self.size:
            before, after = (self.rank - n) % self.size, (self.rank + n) % self.size
            known += self._exchange_in_loop({before: known[: self.size - n]}, [after])[after]
        known[0] = part
        return [known[(rank - self.rank) % self.size] for rank in range(self.size)]

    def _exchange_in_loop(self, parts: Mapping[int, list[Array]], sources: Collection[int]) -> dict[int, list[Array]]:
        exchanged = self._exchange(parts, sources)
        return asyncio.run_coroutine_threadsafe(exchanged, self._worker.loop.asyncio_loop).result()

    async def _exchange(self, parts: Mapping[int, list[Array]], sources: Collection[int]) -> dict[int, list[Array]]:
        self._number += 1
        arrived = {source: asyncio.get_running_loop().create_future() for source in sources}
        async with self._turn:
            self._arrived = arrived
            self._turn.notify_all()
        sends = [asyncio.ensure_future(self._send(rank, part)) for rank, part in parts.items()]
        pending: set[asyncio.Future[Any]] = {*sends, *arrived.values()}
        try:
            self._require_running()
            while pending:
                done, pending = await asyncio.wait(pending, timeout=POLL_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
                for each in done:
                    each.result()
                self._require_running()
            return {source: future.result() for source, future in arrived.items()}
        except BaseException:
            self._ended = True  # no message of a later call may take the place of a lost one
            raise
        finally:
            self._arrived = {}
            for each in pending:
                each.cancel()

    async def _send(self, rank: int, parts: list[Array]) -> None:
        """Send arrays, and wait until the receiver has taken them."""
        data = [part if part.flags.c_contiguous else part.copy(order="C") for part in parts]
        call = getattr(self._worker.rpc(self._addresses[rank]), self._name)
        try:
            answer = await call(sender=self.rank, number=self._number, parts=to_serialize(data))
        except OSError as error:
            raise GroupLost(f"worker {self._addresses[rank]} does not answer") from error
        if answer == "unexpected":
            raise RuntimeError(f"rank {rank} expects no array from rank {self.rank} in call {self._number}")
        if answer != "taken":
            raise _GroupEnded(f"rank {rank} on worker {self._addresses[rank]} has ended")

    async def receive(self, sender: int, number: int, parts: list[Array]) -> str:
        """The handler of messages. The sender gets the answer, and may then send the next one."""
        async with self._turn:
            await self._turn.wait_for(lambda: self._ended or self._number >= number)
        if self._ended:
            return "ended"
        expected = self._arrived.get(sender)
        if number != self._number or expected is None or expected.done():
            return "unexpected"
        expected.set_result(parts)
        return "taken"

    async def end(self) -> None:
        """Let the task raise GroupLost in its next call, and answer the messages that wait."""
        async with self._turn:
            self._ended = True
            self._turn.notify_all()

    def _require_running(self) -> None:
        task = self._worker.state.tasks.get(self.task)
        if self._ended or task is None or task.state == "cancelled":
            raise _GroupEnded(f"the group of rank {self.rank} has ended: another rank failed, or the driver stopped it")
        if self._worker.status in (Status.closing, Status.closed, Status.failed):
            raise GroupLost(f"worker {self._worker.address} is closing")

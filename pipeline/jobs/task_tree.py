"""Calls on a Dask cluster that depend on other calls: each is submitted when the call it depends on has ended."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import dask
from distributed import Client, Future, as_completed
from distributed.client import FutureCancelledError

from ..core.errors import LleError
from ..engine.worker_tasks import GATHER_SECONDS

RETRIES = 2

T = TypeVar("T")


def run_tree(
    client: Client,
    children: Mapping[str, Sequence[str]],
    call: Callable[..., T],
    arguments: Mapping[str, tuple[object, ...]],
) -> Iterator[tuple[str, T | BaseException]]:
    """Yield (name, result or error) of each `call(*arguments[name])` as it ends.

    `children[name]` are submitted after `name`; `children[""]` are submitted first. Calls with many children have
    priority. Dask computations inside a call run in the thread of the call.

    Raises:
        LleError: the scheduler was lost.
    """
    running: dict[Future, str] = {}

    def submit(parent: str) -> list[Future]:
        futures = []
        for name in children.get(parent, ()):
            waiting = len(children.get(name, ()))
            future = client.submit(_serially, call, arguments[name], pure=False, retries=RETRIES, priority=waiting)
            running[future] = name
            futures.append(future)
        return futures

    pool = as_completed(submit(""))
    try:
        for future in pool:
            name = running.pop(future)
            try:
                outcome = future.exception(timeout=GATHER_SECONDS) or future.result(timeout=GATHER_SECONDS)
            except (FutureCancelledError, OSError, TimeoutError) as error:
                raise LleError(f"the Dask scheduler was lost ({error}); run again to resume") from None
            yield name, outcome
            for following in submit(name):
                pool.add(following)
    finally:
        for future in running:
            future.release()  # as in Executor


def _serially(call: Callable[..., object], arguments: tuple[object, ...]) -> object:
    with dask.config.set(scheduler="synchronous"):
        return call(*arguments)

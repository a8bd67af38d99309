"""A group of processes for tests: each is a thread of this process."""

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from lle.core.arrays import Array

T = TypeVar("T")


class ThreadGroup:
    """One of ``size`` threads that exchange arrays through queues. A failed thread ends the waits of the others."""

    def __init__(self, rank: int, queues: list[list[SimpleQueue[Array]]], failed: threading.Event) -> None:
        self.rank, self.size, self._queues, self._failed = rank, len(queues), queues, failed

    def exchange(self, parts: Mapping[int, Array], sources: Collection[int]) -> dict[int, Array]:
        for target, part in parts.items():
            self._queues[self.rank][target].put(part.copy())
        return {source: self._receive(source) for source in sources}

    def gather(self, part: Array) -> list[Array]:
        others = [rank for rank in range(self.size) if rank != self.rank]
        received = self.exchange(dict.fromkeys(others, part), others)
        return [part if rank == self.rank else received[rank] for rank in range(self.size)]

    def _receive(self, source: int) -> Array:
        while not self._failed.is_set():
            try:
                return self._queues[source][self.rank].get(timeout=0.1)
            except Exception:  # empty
                continue
        raise RuntimeError("another thread failed")


def in_threads(size: int, function: Callable[[ThreadGroup], T]) -> list[T]:
    """What function(group) returns in each of ``size`` threads."""
    queues = [[SimpleQueue[Array]() for _ in range(size)] for _ in range(size)]
    failed = threading.Event()

    def run(rank: int) -> T:
        try:
            return function(ThreadGroup(rank, queues, failed))
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in errors:
        if "another thread failed" not in str(error):
            raise error
    return [future.result() for future in futures]

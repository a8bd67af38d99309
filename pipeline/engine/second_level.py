"""The second level of an exchange between many tasks: objects of several writers are joined to one.

If n tasks write parts for n others, reading them takes n^2 requests. With more than DIRECT_WRITERS writers, a step
joins the objects of about the root of their number. So each reader has that many fewer objects to read, and all bytes
are read and written once more.
"""

from collections.abc import Generator, Iterator
from math import isqrt
from typing import NamedTuple

from ..storage.bundles import JOINED_AT_ONCE, Array
from ..storage.store import Store
from . import disk_costs, task_costs
from .step import Report, Step, task

DIRECT_WRITERS = 128
"""Most writers whose objects are read directly."""


class Parts(NamedTuple):
    """The objects in parts that `writers` tasks wrote below a folder, or joined ones."""

    folder: str
    writers: int
    is_joined: bool = False

    def of(self, store: Store, reader: int) -> Iterator[dict[str, Array]]:
        """What the writers wrote for a reader, in their order, without those that wrote nothing."""
        names = self.names(store)
        return filter(None, store.read_joined(names, reader) if self.is_joined else store.read_parts(names, reader))

    def names(self, store: Store) -> list[str]:
        """The objects in the order of their writers. Raises CorruptChunk if a writer has none."""
        return sorted(store.parts_below(self.folder, self.writers), key=lambda name: name.rsplit("/", 1)[1])


def parts_of(folder: str, writers: int) -> Parts:
    """The objects to read after `join_step`."""
    if writers <= DIRECT_WRITERS:
        return Parts(folder, writers)
    return Parts(f"{folder}_joined", -(-writers // isqrt(writers)), is_joined=True)


def join_step(
    key: str, folder: str, writers: int, readers: int, most: int, n_bytes: int
) -> Generator[Step[Report], list[Report], None]:
    """Join the objects of `writers` tasks with a part for each of `readers` tasks, if there are many.

    `most` are the bytes of one reader from a group of writers, at most; `n_bytes` are those of all parts.
    """
    parts = parts_of(folder, writers)
    if parts.is_joined:
        join = task(join_parts, folder=folder, writers=writers, readers=readers, into=parts.folder)
        written = disk_costs.parts(writers=parts.writers, readers=readers, arrays=2, n_bytes=n_bytes)
        at_once, n_entries = max(most, JOINED_AT_ONCE), isqrt(writers) * readers
        task_bytes = task_costs.TASK_BYTES + 2 * at_once + 3 * most + task_costs.written_at_once(at_once)
        task_bytes += 40 * n_entries  # of all objects that a task joins
        bundles = {parts.folder: written}
        yield from Step(key, join, parts.writers, task_bytes, bundles=bundles, deletes=(folder,))


def join_parts(store: Store, block_index: int, folder: str, writers: int, readers: int, into: str) -> Report:
    size = isqrt(writers)
    names = [name for name in Parts(folder, writers).names(store) if int(name.rsplit("/", 1)[1]) // size == block_index]
    store.write_parts(f"{into}/{block_index:05d}", readers, store.joined_parts(names, readers))
    return Report()

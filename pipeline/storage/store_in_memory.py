"""A store in the memory of this process. Blocks are NumPy arrays, so nothing is encoded, and zarr is not used."""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import CorruptChunk, MissingArray
from .array_specs import PlannedArray
from .bundles import Array
from .objects import SCHEME, MemoryObjects, roots
from .store import STORE_CLASSES, Store


@dataclass(frozen=True)
class ArrayInMemory:
    """The attributes of a zarr array that the program reads."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    chunks: tuple[int, ...]
    shards: None = None


class StoreInMemory(Store):
    """Arrays by block. As in a store on disk, reading a block that was never written raises CorruptChunk."""

    objects: MemoryObjects

    def create(self, planned: PlannedArray) -> None:
        name, tail = planned.spec.name, planned.shape[1:]
        self.objects.delete(name)
        array = ArrayInMemory(tuple(planned.shape), np.dtype(planned.dtype), (planned.block, *tail))
        self.objects.put(f"{name}/zarr.json", array)

    def array(self, name: str) -> Any:
        array = self.objects.get(f"{name}/zarr.json")
        if array is None:
            raise MissingArray(f"{self.url}: has no array '{name}' yet")
        return array

    def write(self, name: str, start: int, values: Array) -> None:
        array = self.require_whole_blocks(name, start, len(values))
        self.before_write()
        size = array.chunks[0]
        for first in range(0, len(values), size):
            block = np.empty((min(size, len(values) - first), *array.shape[1:]), array.dtype)
            block[:] = values[first : first + size]
            self.objects.put(f"{name}/c/{(start + first) // size}", block)

    def read(self, name: str, start: int, stop: int) -> Array:
        array = self.array(name)
        size, stop = array.chunks[0], min(stop, array.shape[0])
        out = np.empty((max(0, stop - start), *array.shape[1:]), array.dtype)
        for block_index in range(start // size, -(-stop // size)):
            block = self.objects.get(f"{name}/c/{block_index}")
            if block is None:
                raise CorruptChunk(name, str(block_index), "the chunk is missing or empty")
            low, high = max(start, block_index * size), min(stop, (block_index + 1) * size)
            out[low - start : high - start] = block[low - block_index * size : high - block_index * size]
        return out

    def write_bundle(self, name: str, **arrays: Array) -> None:
        self.before_write()
        self.objects.put(f"{name}.npz", _copied(arrays))
        self.bundles_written.add(name)

    def read_bundle(self, name: str) -> dict[str, Array]:
        if (arrays := self.objects.get(f"{name}.npz")) is None:
            raise CorruptChunk(name, "bundle", "it is missing")
        return _copied(arrays)

    def _put_part(self, name: str, start: int, values: Array, chunk: int) -> None:
        self.objects.put(f"{name}/zarr.json", ArrayInMemory((start + len(values),), values.dtype, (chunk,)))
        self.write(name, start, values)


def _copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Copies in the same memory order, as from an .npz."""
    return {key: np.array(values, order="A") for key, values in arrays.items()}


STORE_CLASSES[SCHEME] = StoreInMemory


@contextlib.contextmanager
def memory_root() -> Iterator[str]:
    """The URL of an empty store in memory, which lives until the end of the `with` block."""
    url = f"{SCHEME}://{uuid.uuid4().hex}"
    roots[url] = {}
    try:
        yield url
    finally:
        del roots[url]

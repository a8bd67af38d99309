"""zarr's stores with two changes: failed requests are repeated, and a missing chunk is an error.

Zarr would return the fill value; for this program a missing chunk is damage. The check needs no extra request: the
request that reads the chunk shows whether it exists.
"""

from collections.abc import Iterable
from typing import Any

import zarr
from zarr.abc.store import ByteRequest
from zarr.abc.store import Store as ZarrStore
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore, StorePath, WrapperStore

from ..core.errors import CorruptChunk
from .retries import retried_async


class RetryingObjectStore(ObjectStore[Any]):
    """Repeats single requests: an operation on many chunks would hardly ever succeed as a whole."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return await retried_async(super().get, key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return await retried_async(super().get_partial_values, prototype, list(key_ranges))

    async def exists(self, key: str) -> bool:
        return await retried_async(super().exists, key)

    async def getsize(self, key: str) -> int:
        return await retried_async(super().getsize, key)

    async def set(self, key: str, value: Buffer) -> None:
        await retried_async(super().set, key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await retried_async(super().set_if_not_exists, key, value)

    async def delete(self, key: str) -> None:
        await retried_async(super().delete, key)

    async def delete_dir(self, prefix: str) -> None:
        await retried_async(super().delete_dir, prefix)


def with_all_chunks(array: "zarr.Array[Any]") -> "zarr.Array[Any]":
    """The same array for reading. A read raises CorruptChunk if a chunk is missing or empty."""
    path = StorePath(StrictChunks(array.store_path.store), array.store_path.path)
    return zarr.Array(zarr.AsyncArray(array.metadata, path))


class StrictChunks(WrapperStore[ZarrStore]):
    """A store for reading chunks only; missing and empty chunks are errors."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        try:
            chunk_data = await self._store.get(key, prototype, byte_range)
        except Exception:
            # Some services refuse a request for the last bytes of an empty object.
            if byte_range is None or await self._store.getsize(key):
                raise
            chunk_data = None
        if chunk_data is None or not len(chunk_data):
            name, _, chunk = key.rpartition("/c/")
            raise CorruptChunk(name, chunk.split("/")[0], "the chunk is missing or empty")
        return chunk_data

"""Reads that fail if a chunk is missing. Zarr would return the fill value; for this program a missing chunk is damage.

The check needs no extra request: the request that reads the chunk shows whether it exists.
"""

from typing import Any

import zarr
from zarr.abc.store import ByteRequest
from zarr.abc.store import Store as ZarrStore
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath, WrapperStore

from ..core.errors import CorruptChunk


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

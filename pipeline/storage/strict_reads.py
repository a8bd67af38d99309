"""Reading arrays that must have all their chunks: zarr takes a missing one for the fill value, here it is damage.

So whether a chunk is there shows in the one request that reads it.
"""

from typing import Any

import zarr
from zarr.abc.store import ByteRequest
from zarr.abc.store import Store as ZarrStore
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath, WrapperStore

from pipeline.core.errors import CorruptChunk


def only_whole(array: "zarr.Array[Any]") -> "zarr.Array[Any]":
    """The same array, for reading. What it reads raises CorruptChunk where a chunk is missing or empty."""
    path = StorePath(WholeChunks(array.store_path.store), array.store_path.path)
    return zarr.Array(zarr.AsyncArray(array.metadata, path))


class WholeChunks(WrapperStore[ZarrStore]):
    """A store of which nothing but chunks is asked."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        try:
            found = await self._store.get(key, prototype, byte_range)
        except Exception:
            # Services refuse to give the last bytes of an object that has none.
            if byte_range is None or await self._store.getsize(key):
                raise
            found = None
        if found is None or not len(found):
            name, _, chunk = key.rpartition("/c/")
            raise CorruptChunk(name, chunk.split("/")[0], "the chunk is missing or empty")
        return found

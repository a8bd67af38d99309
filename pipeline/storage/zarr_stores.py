"""Arrays of zarr in stores with three changes: failed requests are repeated, missing and swapped shards are errors.

Zarr would return the fill value for a missing shard. The checks need no extra request.
"""

import json
import math
import threading
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import zarr
import zarr.codecs
from numcodecs import blosc
from zarr.abc.store import ByteRequest, SuffixByteRequest
from zarr.abc.store import Store as ZarrStore
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore, ObjectStore, StorePath, WrapperStore

from ..core.errors import CorruptChunk
from .array_specs import ArraySpec
from .retries import retried

if TYPE_CHECKING:
    from obstore.store import ObjectStore as RemoteStore
    from zarr.core.array_spec import ArrayConfigParams
    from zarr.core.common import JSON
    from zarr.types import AnyArray as ZarrArray

# By default blosc's lock is a named semaphore. A killed process does not remove its name, and Python then warns of a
# leak. Blosc's state belongs to one process, so a lock between threads is enough.
blosc._MUTEX, blosc._MUTEX_IS_INIT = threading.Lock(), True

CRC_BYTES = 4
WRITE_ALL: "ArrayConfigParams" = {"write_empty_chunks": True}  # also store chunks that equal the fill value
INDEX_ENTRY = 16
"""Bytes of a chunk in the index of a shard: offset and length."""


class RetryingObjectStore(ObjectStore["RemoteStore"]):
    """Repeats single requests: an operation on many chunks would hardly ever succeed as a whole.

    Nothing is deleted through it.
    """

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return await retried(super().get, key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        return await retried(super().exists, key)

    async def getsize(self, key: str) -> int:
        return await retried(super().getsize, key)

    async def set(self, key: str, value: Buffer) -> None:
        await retried(super().set, key, value)


def array_metadata(
    shape: tuple[int, ...], dtype: npt.DTypeLike, chunk: int, block: int, spec: ArraySpec | None = None
) -> dict[str, object]:
    """Zarr's metadata of an array: each block of rows is a shard of chunks of `chunk` rows.

    Ids and counts are compressed; floating-point numbers hardly shrink. Each chunk has a CRC-32C of its stored bytes.
    A `spec` names the dimensions and the meaning.
    """
    is_float = np.dtype(dtype).kind == "f"
    packed = [] if is_float else [zarr.codecs.BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle")]
    array = zarr.create_array(
        {},
        shape=shape,
        dtype=np.dtype(dtype),
        chunks=(chunk, *shape[1:]),
        shards=(block, *shape[1:]),
        filters=None,
        compressors=[*packed, zarr.codecs.Crc32cCodec()],
        fill_value=np.nan if is_float else 0,
        dimension_names=spec.dims if spec else None,
        attributes={"meaning": spec.meaning, "unit": spec.unit} if spec else None,
    )
    document = array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"]
    metadata: dict[str, object] = json.loads(document.to_bytes())
    return metadata


def open_array(place: "str | RemoteStore | None", name: str, metadata: Mapping[str, object]) -> "ZarrArray":
    """The array of a name in a folder (str) or a store of obstore. A read raises CorruptChunk for a missing chunk."""
    assert place is not None
    store = LocalStore(place) if isinstance(place, str) else RetryingObjectStore(place)
    array = zarr.Array.from_dict(StorePath(store, name), cast("dict[str, JSON]", metadata))
    n_chunks = math.prod(shard // chunk for shard, chunk in zip(array.shards or (), array.chunks, strict=True))
    return _of_store(array, PlacedShards(store, INDEX_ENTRY * n_chunks + CRC_BYTES))


def write_blocks(array: "ZarrArray", start: int, values: npt.NDArray[np.generic]) -> None:
    """Write whole blocks of an array of `open_array` from row `start` on."""
    shards = array.store_path.store
    assert isinstance(shards, PlacedShards)
    _of_store(array, NewShards(shards.plain, shards.index_bytes))[start : start + len(values)] = values


def _of_store(array: "ZarrArray", store: ZarrStore) -> "ZarrArray":
    path = StorePath(store, array.store_path.path)
    return zarr.Array(zarr.AsyncArray(array.async_array.metadata, path, WRITE_ALL))


class PlacedShards(WrapperStore[ZarrStore]):
    """Shards, each with a checksum of its name, so that swapped ones are detected.

    A shard holds its chunks, then the checksum, then the index with their offsets. The bytes of the checksum belong
    to no chunk, so other readers of zarr ignore them.
    """

    def __init__(self, store: ZarrStore, index_bytes: int) -> None:
        super().__init__(store)
        self.plain, self.index_bytes = store, index_bytes

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """A shard, its index, or a chunk, which zarr reads after the index. Raises CorruptChunk."""
        n_end = self.index_bytes + CRC_BYTES
        if is_index := isinstance(byte_range, SuffixByteRequest):
            byte_range = SuffixByteRequest(n_end)
        try:
            stored = await self._store.get(key, prototype, byte_range)
        except Exception:
            # Some services refuse a request for the last bytes of an empty object.
            if byte_range is None or await self._store.getsize(key):
                raise
            stored = None
        name, _, chunk = key.rpartition("/c/")
        if stored is None or not len(stored):
            raise CorruptChunk(name, chunk.split("/")[0], "the chunk is missing or empty")
        has_tag = byte_range is None or is_index
        if has_tag and stored[-n_end : len(stored) - self.index_bytes].to_bytes() != _crc_of(key):
            raise CorruptChunk(name, chunk.split("/")[0], "it was not written under this name")
        return stored[CRC_BYTES:] if is_index else stored  # zarr asked for the index only, without the checksum before

    async def set(self, key: str, value: Buffer) -> None:
        """Write a shard with the checksum of its name."""
        tag = value.from_bytes(_crc_of(key))
        await self._store.set(key, value[: -self.index_bytes].combine([tag, value[-self.index_bytes :]]))


class NewShards(PlacedShards):
    """Shards that are written as a whole: zarr does not read the old ones, which may be damaged."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return None


def _crc_of(key: str) -> bytes:
    return zlib.crc32(key.encode()).to_bytes(CRC_BYTES, "little")

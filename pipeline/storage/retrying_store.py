"""zarr's store over obstore, whose requests are repeated after temporary failures."""

from collections.abc import Iterable
from typing import Any

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore

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

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
        request = super().get
        return await retried_async(lambda: request(key, prototype, byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        request, ranges = super().get_partial_values, list(key_ranges)
        return await retried_async(lambda: request(prototype, ranges))

    async def exists(self, key: str) -> bool:
        request = super().exists
        return await retried_async(lambda: request(key))

    async def getsize(self, key: str) -> int:
        request = super().getsize
        return await retried_async(lambda: request(key))

    async def set(self, key: str, value: Buffer) -> None:
        request = super().set
        await retried_async(lambda: request(key, value))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        request = super().set_if_not_exists
        await retried_async(lambda: request(key, value))

    async def delete(self, key: str) -> None:
        request = super().delete
        await retried_async(lambda: request(key))

    async def delete_dir(self, prefix: str) -> None:
        request = super().delete_dir
        await retried_async(lambda: request(prefix))

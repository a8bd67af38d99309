"""JSON objects and bundles of small arrays under one URL, each with its checksum."""

import io
import json
import sys
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..core.errors import CorruptChunk
from .objects import open_objects
from .records import has_shape

Array = npt.NDArray[Any]
T = TypeVar("T")
CRC_BYTES = 4
CHANGED_IN_TRANSIT = (
    "the first read had a wrong checksum or could not be decoded, the second read was correct: the bytes were damaged "
    "in transfer, not in the store. Use https, and check the network and the memory of this machine"
)


class Bundles:
    """JSON objects and bundles of arrays under one URL. Bytes that were damaged in transfer are read a second time."""

    def __init__(self, url: str) -> None:
        self.objects = open_objects(url)
        self.url = self.objects.url
        self.before_write: Callable[[], None] = _nothing
        """Called before every write of data; an exception raised here prevents the write."""
        self.bundles_written: set[str] = set()
        """Names of the bundles that were written here and not deleted again."""

    def _read_twice(self, name: str, read: Callable[[], T]) -> T:
        """The result of a read; a failed checksum is an error only if a second read fails too."""
        try:
            return read()
        except (CorruptChunk, ValueError, RuntimeError) as error:
            if isinstance(error, CorruptChunk) and "missing" in error.detail:
                raise
            value = read()
            reason = str(error).split(". ")[0]
            print(f"lle: warning: {self.url}/{name}: {CHANGED_IN_TRANSIT} ({reason})", file=sys.stderr)
            return value

    def write_bundle(self, name: str, **arrays: Array) -> None:
        """Several small arrays as one object: an .npz followed by its CRC-32 (four bytes)."""
        self.before_write()
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        buffer.write(zlib.crc32(buffer.getbuffer()).to_bytes(CRC_BYTES, "little"))
        self.objects.put(f"{name}.npz", buffer.getvalue())
        self.bundles_written.add(name)

    def delete_bundle(self, name: str) -> None:
        self.objects.delete(f"{name}.npz")
        self.bundles_written.discard(name)

    def read_bundle(self, name: str) -> dict[str, Array]:
        """The arrays of a bundle. Raises CorruptChunk if it is missing or damaged."""
        data = self._read_twice(name, lambda: self._checked_bundle(name))
        with np.load(io.BytesIO(data), allow_pickle=False) as loaded:
            return {key: loaded[key] for key in loaded.files}

    def _checked_bundle(self, name: str) -> bytes:
        stored = self.objects.get(f"{name}.npz")
        if stored is None:
            raise CorruptChunk(name, "bundle", "the object is missing")
        data, checksum = stored[:-CRC_BYTES], int.from_bytes(stored[-CRC_BYTES:], "little")
        if zlib.crc32(data) != checksum or not data:
            raise CorruptChunk(name, "bundle", "its CRC-32 differs")
        return data

    def has_bundle(self, name: str) -> bool:
        return self.objects.exists(f"{name}.npz")

    def put_json(self, name: str, value: Any) -> None:
        self.objects.put(name, json.dumps(value, indent=1).encode())

    def get_json(self, name: str) -> Any:
        """A JSON object; None if it is missing or incomplete."""

        def read() -> Any:
            data = self.objects.get(name)
            return None if data is None else json.loads(data)

        try:
            return self._read_twice(name, read)
        except (ValueError, RecursionError):
            return None

    def get_record(self, name: str, shape: Any) -> dict[str, Any] | None:
        """A JSON object of a shape (storage/records.py); None if it is missing, incomplete or of another shape."""
        record = self.get_json(name)
        return record if isinstance(record, dict) and has_shape(record, shape) else None


def _nothing() -> None:
    """The default of before_write."""

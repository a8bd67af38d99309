"""Rows of arrays in files: by memory mapping, by byte ranges behind a URL, or decompressed once by each process."""

import importlib
import math
import shutil
import tempfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..core.arrays import UInt8
from ..storage.bundles import Array
from .base import Stamp
from .damage import reading
from .files import FileRows, Layout, open_file
from .remote_files import read_range

COLUMNS_AT_ONCE = 16
COPIED_BYTES = 1 << 20
STREAM_BYTES = 1 << 22  # bytes per request of a compressed file behind a URL
COMPRESSED = "a complete compressed file"
UNPACKING = threading.Lock()


def _open_packed(packed: IO[bytes], path: str) -> Any:
    """The decompressed bytes of an open file, which is compressed by gzip if its name does not end in one of PACKED.

    A module is loaded where it is needed: Arrow takes 0.1 s, and some Pythons are built without lzma.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".zst":
        import pyarrow as pa

        return pa.CompressedInputStream(packed, "zstd")
    return importlib.import_module({".bz2": "bz2", ".xz": "lzma"}.get(suffix, "gzip")).open(packed)


def unpacked(stamp: Stamp, member: str, where: str) -> UInt8:
    """The decompressed bytes of a file (gzip by default), or of a `member` of an archive. Raises InputError."""
    with UNPACKING:
        return _unpacked(stamp, member, where)


# The file has no name: it is mapped, and disappears with the cache or the process.
@lru_cache(maxsize=64)
def _unpacked(stamp: Stamp, member: str, where: str) -> UInt8:
    with reading(where, COMPRESSED), tempfile.TemporaryFile() as target, open_file(stamp, STREAM_BYTES) as packed:
        if member:
            with zipfile.ZipFile(packed) as archive, archive.open(member) as stream:
                shutil.copyfileobj(stream, target, COPIED_BYTES)
        else:
            with _open_packed(packed, stamp.path) as stream:
                shutil.copyfileobj(stream, target, COPIED_BYTES)
        target.flush()
        return np.memmap(target, np.uint8, "r") if target.tell() else np.empty(0, np.uint8)


class ArrayRows(FileRows):
    """An array in a file. If `is_packed`, the layout counts from the start of the decompressed bytes."""

    def __init__(self, stamp: Stamp, member: str, where: str, layout: Layout, is_packed: bool = False) -> None:
        super().__init__(stamp, member, where)
        self.shape, self.dtype, self._layout, self._is_packed = layout.shape, layout.dtype, layout, is_packed
        if not is_packed:
            layout.require(where, stamp.size >= layout.end, stamp.size)

    def read(self, start: int, stop: int) -> Array:
        """Rows [start, stop), as a view of the mapped file if it is local or packed."""
        layout = self._layout
        if layout.n_bytes == 0 or start == stop:
            return np.empty((stop - start, *self.shape[1:]), self.dtype)
        with reading(self.where):
            if self._is_packed:
                content = unpacked(self._stamp, self._member, self.where)
                layout.require(self.where, len(content) == layout.end, len(content))
            elif self._stamp.is_remote:
                return self._read_ranges(start, stop)
            else:
                content = np.memmap(self._stamp.path, np.uint8, "r")
                layout.require(self.where, len(content) >= layout.end, len(content))
            return np.ndarray(self.shape, self.dtype, content, layout.offset, order=layout.order)[start:stop]

    def _read_ranges(self, start: int, stop: int) -> Array:
        """A block is one byte range in C order, and one per column in Fortran order."""
        tail, offset = self.shape[1:], self._layout.offset
        if self._layout.order == "C" or not tail:
            rows = np.empty((stop - start, *tail), self.dtype)
            read_range(self._stamp, offset + start * rows[0].nbytes, _bytes_of(rows))
            return rows
        columns = np.empty((math.prod(tail), stop - start), self.dtype)
        firsts = [offset + (column * self.shape[0] + start) * self.dtype.itemsize for column in range(len(columns))]
        with ThreadPoolExecutor(COLUMNS_AT_ONCE) as pool:
            list(pool.map(lambda first, column: read_range(self._stamp, first, _bytes_of(column)), firsts, columns))
        return columns.T.reshape((stop - start, *tail), order="F")


def _bytes_of(values: Array) -> memoryview:
    return values.reshape(-1).view(np.uint8).data

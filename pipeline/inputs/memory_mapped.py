"""Rows of uncompressed arrays in files, by memory mapping, or by byte ranges behind a URL."""

import math
import shutil
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from ..core.errors import InputError
from .base import AnyArray
from .compressed import COMPRESSED, SKIP_BYTES, STREAM_BYTES
from .damage import decoding
from .files import FileRows, Stamp, path_or_file, reading
from .remote_files import read_range

COLUMNS_AT_ONCE = 16


class Layout(NamedTuple):
    """The content of an array header: shape, dtype, "C" or "F", and the first byte of the data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: str
    offset: int

    @property
    def n_bytes(self) -> int:
        """Bytes of the data, without the header."""
        return math.prod(self.shape) * self.dtype.itemsize


def stored_rows(stamp: Stamp, member: str, where: str, layout: Layout) -> "MappedRows":
    """The rows of an uncompressed array in a local or remote file."""
    return (RangedRows if stamp.is_remote else MappedRows)(stamp, member, where, layout)


class MappedRows(FileRows):
    """An uncompressed array in a file; only the pages of the requested rows are read."""

    def __init__(self, stamp: Stamp, member: str, where: str, layout: Layout) -> None:
        self.where, self.shape, self.dtype = where, layout.shape, layout.dtype
        self._stamp, self._member, self._layout = stamp, member, layout
        expected = layout.offset + layout.n_bytes
        if stamp.size < expected:
            raise InputError(
                f"{where}: expected {expected} bytes for shape {layout.shape} of {layout.dtype}, found "
                f"{stamp.size}; the file is cut off, copy or create it again"
            )

    def read(self, start: int, stop: int) -> AnyArray:
        """A read-only view of rows [start, stop)."""
        if self._layout.n_bytes == 0 or start == stop:
            return np.empty((stop - start, *self.shape[1:]), self.dtype)
        order = cast(Any, self._layout.order)
        try:
            with reading(self.where):
                mapped = np.memmap(self._stamp.path, self.dtype, "r", self._layout.offset, self.shape, order)
        except ValueError as error:
            raise InputError(
                f"{self.where}: the file became shorter while it was used ({error}); restore it and start again"
            ) from error
        return mapped[start:stop]


class RangedRows(MappedRows):
    """As MappedRows, behind a URL. A block is one byte range in C order, and one per column in Fortran order."""

    def read(self, start: int, stop: int) -> AnyArray:
        tail = self.shape[1:]
        if self._layout.n_bytes == 0 or start == stop:
            return np.empty((stop - start, *tail), self.dtype)
        if self._layout.order == "C" or not tail:
            rows = np.empty((stop - start, *tail), self.dtype)
            read_range(self._stamp, self._layout.offset + start * rows[0].nbytes, _bytes_of(rows))
            return rows
        columns = np.empty((math.prod(tail), stop - start), self.dtype)
        firsts = [self._layout.offset + (column * self.shape[0] + start) * self.dtype.itemsize
                  for column in range(len(columns))]  # fmt: skip
        with ThreadPoolExecutor(COLUMNS_AT_ONCE) as pool:
            list(pool.map(lambda first, column: read_range(self._stamp, first, _bytes_of(column)), firsts, columns))
        return columns.T.reshape((stop - start, *tail), order="F")


def _bytes_of(values: AnyArray) -> memoryview:
    return values.reshape(-1).view(np.uint8).data


class UnpackedRows(FileRows):
    """An array in Fortran order inside a compressed .npz: each row is scattered over the whole stream.

    The first read of a process decompresses it into a temporary file without a name, which is mapped and disappears
    when the process ends.
    """

    def __init__(self, stamp: Stamp, member: str, where: str, layout: Layout) -> None:
        self.where, self.shape, self.dtype = where, layout.shape, layout.dtype
        self._stamp, self._member, self._layout = stamp, member, layout

    def read(self, start: int, stop: int) -> AnyArray:
        if self._layout.n_bytes == 0:
            return np.empty((stop - start, *self.shape[1:]), self.dtype)
        return _unpack(self._stamp, self._member, self.where, self._layout)[start:stop]


@lru_cache(maxsize=8)
def _unpack(stamp: Stamp, filename: str, where: str, layout: Layout) -> AnyArray:
    with decoding(where, COMPRESSED), tempfile.TemporaryFile() as target:
        with zipfile.ZipFile(path_or_file(stamp, STREAM_BYTES)) as archive, archive.open(filename) as member:
            shutil.copyfileobj(member, target, SKIP_BYTES)
        target.flush()
        return np.memmap(target, layout.dtype, "r", layout.offset, layout.shape, cast(Any, layout.order))

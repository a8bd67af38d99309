"""Rows of uncompressed arrays in files, by memory mapping, or by byte ranges behind a URL."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..core.errors import InputError
from ..storage.bundles import Array
from .files import FileRows, Layout, Stamp, reading
from .remote_files import read_range

COLUMNS_AT_ONCE = 16


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

    def read(self, start: int, stop: int) -> Array:
        """A read-only view of rows [start, stop)."""
        if self._layout.n_bytes == 0 or start == stop:
            return np.empty((stop - start, *self.shape[1:]), self.dtype)
        try:
            with reading(self.where):
                mapped = np.memmap(
                    self._stamp.path, self.dtype, "r", self._layout.offset, self.shape, self._layout.order
                )
        except ValueError as error:
            raise InputError(
                f"{self.where}: the file became shorter while it was used ({error}); restore it and start again"
            ) from error
        return mapped[start:stop]


class RangedRows(MappedRows):
    """As MappedRows, behind a URL. A block is one byte range in C order, and one per column in Fortran order."""

    def read(self, start: int, stop: int) -> Array:
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


def _bytes_of(values: Array) -> memoryview:
    return values.reshape(-1).view(np.uint8).data

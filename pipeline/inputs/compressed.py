"""Compressed files, which can only be read forwards: a process decompresses each once, into a temporary file."""

import gzip
import io
import shutil
import tempfile
import zipfile
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from ..core.errors import InputError
from ..storage.bundles import Array
from .damage import decoding
from .files import FileRows, Layout, Stamp, open_file

COPIED_BYTES = 1 << 20
STREAM_BYTES = 1 << 22  # bytes per request of a compressed file behind a URL
COMPRESSED = "a complete compressed file"


# The file has no name: it is mapped, and disappears with the cache or the process.
@lru_cache(maxsize=64)
def unpacked(stamp: Stamp, member: str, where: str) -> npt.NDArray[np.uint8]:
    """The decompressed bytes of a gzip file, or of a `member` of an archive. Raises InputError."""
    with decoding(where, COMPRESSED), tempfile.TemporaryFile() as target, open_file(stamp, STREAM_BYTES) as packed:
        if member:
            with zipfile.ZipFile(packed) as archive, archive.open(member) as stream:
                shutil.copyfileobj(stream, target, COPIED_BYTES)
        else:
            with gzip.GzipFile(fileobj=packed) as unzipped:
                shutil.copyfileobj(cast(io.BufferedIOBase, unzipped), target, COPIED_BYTES)
        target.flush()
        return np.memmap(target, np.uint8, "r") if target.tell() else np.empty(0, np.uint8)


class UnpackedRows(FileRows):
    """An array whose layout counts from the start of the decompressed bytes."""

    def __init__(self, stamp: Stamp, member: str, where: str, layout: Layout) -> None:
        self.where, self.shape, self.dtype = where, layout.shape, layout.dtype
        self._stamp, self._member, self._layout = stamp, member, layout

    def read(self, start: int, stop: int) -> Array:
        """A read-only view of rows [start, stop)."""
        content = unpacked(self._stamp, self._member, self.where)
        extra = len(content) - self._layout.offset - self._layout.n_bytes
        if extra:
            problem = "more data" if extra > 0 else f"the end of the data in rows {start} to {stop - 1}"
            raise InputError(
                f"{self.where}: its header gives shape {self.shape} of {self.dtype}, found {problem}; the file is cut "
                f"off or damaged, create it again"
            )
        return np.ndarray(self.shape, self.dtype, content, self._layout.offset, order=self._layout.order)[start:stop]

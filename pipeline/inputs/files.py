"""Find the files of a path, a pattern or a URL, with sizes and times, and explain file-system errors."""

import glob
import math
import os
import stat
from typing import IO, Literal, NamedTuple, cast

import numpy as np

from ..core.errors import InputError
from ..core.patterns import is_url, local_path, matches
from .base import Fingerprint, Rows, Stamp
from .damage import reading
from .remote_files import RangeFile, find_objects

PathText = str | os.PathLike[str]

KERNEL_FILES = ("/proc/", "/sys/")
HEADER_BYTES = 1 << 14  # bytes per request of a remote header, which is parsed in small steps


class Layout(NamedTuple):
    """The content of an array header: shape, dtype, "C" or "F", and the first byte of the data."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    order: Literal["C", "F"]
    offset: int

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """The first byte after the data."""
        return self.offset + self.n_bytes

    def require(self, where: str, is_complete: bool, n_found: int) -> None:
        """Raises InputError unless the data are complete, and no Python objects.

        `n_found`: bytes up to the end of the array or file.
        """
        if self.dtype.hasobject:
            cure = "save numbers as x.astype('float64'), and text, as of labels or ids, as x.astype(str)"
            raise InputError(f"{where}: expected numbers or text, found dtype object; {cure}")
        if not is_complete:
            raise InputError(
                f"{where}: expected {self.end} bytes for shape {self.shape} of {self.dtype}, found {n_found}; the file "
                f"is cut off or damaged, copy or create it again"
            )


class FileRows(Rows):
    """Rows of one file. `member` is the array's name in a file of several arrays, or the column of labels."""

    def __init__(self, stamp: Stamp, member: str, where: str) -> None:
        self._stamp, self._member, self.where = stamp, member, where
        self.detects_changes = stamp.detects_changes

    def fingerprint(self) -> Fingerprint:
        """The file's name, size and time (remote: tag), and the name of the array or column."""
        return self._stamp.describe() | ({"member": self._member} if self._member else {})


class ColumnRows(FileRows):
    """The number columns of one file of a table, or its label column if a `label` is given."""

    def __init__(self, stamp: Stamp, columns: tuple[str, ...], label: str | None = None) -> None:
        super().__init__(stamp, label or "", stamp.path if label is None else f"{stamp.path}, column '{label}'")
        self._columns, self._label = columns, label


def find_paths(pattern: PathText, key: str) -> list[str]:
    """The path itself, or the matches of a pattern, sorted. key: the config key, for messages. Raises InputError."""
    text = local_path(os.fspath(pattern))
    if os.path.realpath(text).startswith(KERNEL_FILES):
        raise InputError(
            f"input.{key}: expected a file on a disk, found '{text}', which the kernel generates; name another file"
        )
    if os.path.exists(text):
        return [text]
    paths = matches(text)
    if not paths:
        problem = "no file matches the pattern" if glob.has_magic(text) else "there is no file"
        raise InputError(
            f"input.{key}: {problem} '{text}' (working directory: {os.getcwd()}); relative paths start at the "
            "working directory: correct the path or change to the right directory"
        )
    return paths


def find_files(pattern: PathText, key: str) -> list[Stamp]:
    """As `find_paths`, for plain files, each with its size and time; a URL may be a pattern too."""
    text = os.fspath(pattern)
    return find_objects(text, key) if is_url(text) else [_stamp(path, key) for path in find_paths(text, key)]


def open_file(stamp: Stamp, buffer_bytes: int = 0) -> IO[bytes]:
    """The file, open for reading. Each read of a remote file is a request for at least `buffer_bytes`."""
    return cast(IO[bytes], RangeFile(stamp, buffer_bytes)) if stamp.is_remote else open(stamp.path, "rb")


def path_or_file(stamp: Stamp, buffer_bytes: int = 0) -> str | IO[bytes]:
    """The path of a local file, else an open file, for libraries that take both and close what they open."""
    return open_file(stamp, buffer_bytes) if stamp.is_remote else stamp.path


def _stamp(path: str, key: str) -> Stamp:
    with reading(path):
        status = os.stat(path)
    if os.path.isdir(path):
        raise InputError(
            f"input.{key}: expected a file, found the directory '{path}'; name the files in it, for instance '{path}/*'"
        )
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"input.{key}: expected a file, found a device, pipe or socket '{path}'; name a file")
    return Stamp(path, status.st_size, status.st_mtime_ns)

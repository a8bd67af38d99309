"""From a path or glob to files: names, sizes and times, and plain words for what the file system refuses."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.errors import InputError, LleError


class Stamp(NamedTuple):
    """A file and the state it is in; the key of everything cached about it."""

    path: str
    size: int
    mtime_ns: int

    def describe(self) -> dict[str, Any]:
        """The part of an input's fingerprint that belongs to this file."""
        return {"name": Path(self.path).name, "size": self.size, "mtime_ns": self.mtime_ns}


def find_paths(pattern: str | os.PathLike[str], key: str) -> list[str]:
    """The path itself, or what the glob matches, sorted. key: the config key, for messages.

    Raises InputError.
    """
    text = os.path.expanduser(os.fspath(pattern))
    if "://" in text:
        raise InputError(
            f"input.{key}: expected a path, found the URL {text}; only input.kind: zarr reads URLs: store the points "
            "as a Zarr array there, or copy the files to a disk first"
        )
    if os.path.exists(text):
        return [text]
    found = sorted(glob.glob(text, recursive=True))
    if not found:
        what = "no file matches the pattern" if glob.has_magic(text) else "there is no file"
        raise InputError(
            f"input.{key}: {what} '{text}' (working directory: {os.getcwd()}); relative paths start at the "
            "working directory: correct the path or change to the right directory"
        )
    return found


def find_files(pattern: str | os.PathLike[str], key: str) -> list[Stamp]:
    """As `find_paths`, for plain files only, each with its size and time."""
    return [_stamp(path, key) for path in find_paths(pattern, key)]


def _stamp(path: str, key: str) -> Stamp:
    with reading(path):
        status = os.stat(path)
    if os.path.isdir(path):
        raise InputError(
            f"input.{key}: expected a file, found the directory '{path}'; name the files in it, for instance "
            f"'{path}/*'"
        )
    return Stamp(path, status.st_size, status.st_mtime_ns)


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turns the file system's refusals into InputError, and other troubles into an error worth a retry."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise InputError(
            f"{where}: cannot be read ({error.strerror or error}); check that it exists and may be read"
        ) from error
    except OSError as error:
        raise LleError(
            f"{where}: reading failed ({error}); try again, and check the disk or the network if it happens "
            "again"
        ) from error

"""The containers of AnnData, an HDF5 file or a Zarr group, and rows of one element of them."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import InputError
from ..storage.bundles import Array
from .base import Fingerprint, Rows
from .files import HEADER_BYTES, Stamp, find_files, find_paths, path_or_file, reading
from .zarr_input import Location, ZarrRows, locate, open_node

if TYPE_CHECKING:
    from zarr.types import AnyArray as ZarrArray

Reader = Callable[[Any, int, int], Array]


class H5adFile:
    """An .h5ad file, opened again for each read: processes do not share its handle."""

    def __init__(self, stamp: Stamp) -> None:
        self.where, self._stamp = stamp.path, stamp

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The root group."""
        import h5py  # the extra anndata

        with reading(self.where):
            try:
                file = h5py.File(path_or_file(self._stamp, HEADER_BYTES), "r", locking="best-effort")
            except OSError as error:
                if isinstance(error, FileNotFoundError | PermissionError):
                    raise
                raise InputError(
                    f"{self.where}: expected an .h5ad file (HDF5), found something else or a cut-off file ({error}); "
                    f"write it again with adata.write_h5ad"
                ) from error
            with file:
                yield file

    def state(self, member: str) -> Fingerprint:
        """Name, size and time of the file."""
        return {**self._stamp.describe(), "member": member}

    @property
    def detects_changes(self) -> bool:
        """Whether the file has a time or a tag."""
        return self._stamp.detects_changes


class ZarrFile:
    """An AnnData group in Zarr."""

    def __init__(self, location: Location) -> None:
        self.where, self.location = location.url, location

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The root group."""
        yield open_node(self.location)

    def rows(self, array: "ZarrArray") -> ZarrRows:
        """The rows of an array, with stamps of its chunks."""
        return ZarrRows(self.location, array, None)

    def state(self, member: str) -> Fingerprint:
        """A digest over the files of the array."""
        with self.open() as group:
            return self.rows(group[member]).fingerprint()

    @property
    def detects_changes(self) -> bool:
        """Whether files have times or tags: listings do."""
        return self.location.can_list


class Element(Rows):
    """Rows of one element of a file; `member` is the array whose state identifies the rows."""

    def __init__(self, file: H5adFile | ZarrFile, name: str, member: str, read: Reader, shape: tuple[int, ...],
                 dtype: "np.dtype[np.generic]") -> None:  # fmt: skip
        self.where, self.shape, self.dtype = f"{file.where}, {name}", shape, dtype
        self._file, self._member, self._read = file, member, read

    def read(self, start: int, stop: int) -> Array:
        with self._file.open() as group:
            return self._read(group, start, stop)

    def bytes_beside(self, n_rows: int) -> int:
        """A chunk of HDF5 that is decoded for its rows: as much as the rows themselves."""
        return n_rows * int(np.prod(self.shape[1:])) * self.dtype.itemsize

    def fingerprint(self) -> Fingerprint:
        return self._file.state(self._member)

    @property
    def detects_changes(self) -> bool:
        return self._file.detects_changes


def anndata_containers(path: str) -> Sequence[H5adFile | ZarrFile]:
    """The files or groups of a path or pattern. Raises InputError."""
    if "://" not in path and all(os.path.isdir(folder) for folder in find_paths(path, "path")):
        return [ZarrFile(location) for location in locate(path)]
    if path.rstrip("/").endswith(".zarr"):
        return [ZarrFile(location) for location in locate(path)]
    return [H5adFile(stamp) for stamp in find_files(path, "path")]

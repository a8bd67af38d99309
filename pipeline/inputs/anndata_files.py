"""Reader of AnnData files, .h5ad or .zarr: a matrix of obsm, a column of obs, neighbours of obsp. By blocks of rows.

The elements are read as the format describes them (anndata.readthedocs.io, "On-disk format"), so anndata itself is not
needed; .h5ad files need h5py.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import zarr

from ..core.errors import InputError
from ..storage.bundles import Array
from .base import Fingerprint, Rows, Source, Stamp
from .damage import reading
from .files import HEADER_BYTES, PathText, find_files, find_paths, path_or_file
from .stacked_files import FileSource, StackedRows
from .zarr_input import Location, ZarrRows, locate, open_node

OBS_NAMES = "obs_names"
"""Names the index of obs, as in Python."""

Reader = Callable[[Any, int, int], Array]


class H5adFile:
    """An .h5ad file, opened again for each read: processes do not share its handle."""

    def __init__(self, stamp: Stamp) -> None:
        self.where, self._stamp, self.detects_changes = stamp.path, stamp, stamp.detects_changes

    @contextmanager
    def open(self) -> Iterator[Any]:
        import h5py  # the extra anndata

        with (
            reading(self.where, "an .h5ad file (HDF5)"),
            h5py.File(path_or_file(self._stamp, HEADER_BYTES), "r", locking="best-effort") as file,
        ):
            yield file

    def state(self, member: str) -> Fingerprint:
        """Name, size and time of the file."""
        return {**self._stamp.describe(), "member": member}


class ZarrFile:
    def __init__(self, location: Location) -> None:
        self.where, self.location, self.detects_changes = location.url, location, location.can_list

    @contextmanager
    def open(self) -> Iterator[Any]:
        yield open_node(self.location)

    def state(self, member: str) -> Fingerprint:
        """A digest over the files of the array."""
        with self.open() as group:
            return ZarrRows(self.location, group[member], None).fingerprint()


Container = H5adFile | ZarrFile


class Element(Rows):
    """Rows of one element of a file; `member` is the array whose state identifies the rows."""

    def __init__(
        self, file: Container, name: str, member: str, read: Reader, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> None:
        self.where, self.shape, self.dtype = f"{file.where}, {name}", shape, dtype
        self._file, self._member, self._read, self.detects_changes = file, member, read, file.detects_changes

    def read(self, start: int, stop: int) -> Array:
        with self._file.open() as group:
            return self._read(group, start, stop)

    def bytes_beside(self, n_rows: int) -> int:
        """A chunk of HDF5 that is decoded for its rows: as much as the rows themselves."""
        return n_rows * int(np.prod(self.shape[1:])) * self.dtype.itemsize

    def fingerprint(self) -> Fingerprint:
        return self._file.state(self._member)


def _containers(path: str) -> Sequence[Container]:
    """The files or groups of a path or pattern. Raises InputError."""
    is_folder = "://" not in path and all(os.path.isdir(folder) for folder in find_paths(path, "path"))
    if is_folder or path.rstrip("/").endswith(".zarr"):
        return [ZarrFile(location) for location in locate(path)]
    return [H5adFile(stamp) for stamp in find_files(path, "path")]


def open_anndata(
    path: PathText,
    obsm: str | None = "X_pca",
    label: str | None = None,
    obsp: str | None = None,
    id_column: str | None = None,
) -> Source:
    """Points in obsm/<obsm> (None: X), labels in obs/<label>; with obsp, neighbours from obsp/<obsp> instead.

    id_column: obs_names, or a column of obs; `read_columns` then reads the columns of obs.

    A path may be a pattern. Raises InputError, which names what the file holds instead.
    """
    files = _containers(os.fspath(path))
    if obsp is not None:
        return FileSource([_neighbors(file, f"obsp/{obsp}") for file in files], None)
    points = [_matrix(file, "X" if obsm is None else f"obsm/{obsm}") for file in files]
    if id_column is not None:
        ids = StackedRows([_column(file, id_column) for file in files])
        if ids.n_rows != sum(part.shape[0] for part in points):
            raise InputError(f"{files[0].where}: obs has {ids.n_rows} rows, not as many as the points; write it again")
    labels = None if label is None else [_column(file, label) for file in files]
    return AnnDataSource(files, points, labels)


class AnnDataSource(FileSource):
    """Its columns are those of obs, and obs_names, the names of its rows."""

    def __init__(self, files: Sequence[Container], points: Sequence[Rows], labels: Sequence[Rows] | None) -> None:
        super().__init__(points, labels)
        self._files = files

    def column_types(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """int64, uint64 or float64 for numbers, else text."""
        of_kind = {"i": pa.int64(), "u": pa.uint64(), "b": pa.float64(), "f": pa.float64()}
        kinds = {name: _column(self._files[0], name).dtype.kind for name in names}
        return {name: of_kind.get(kind, pa.string()) for name, kind in kinds.items()}

    def _columns_of_file(self, names: Sequence[str], number: int, low: int, high: int) -> pa.Table:
        """Text is null where it is missing."""
        types, file = self.column_types(names), self._files[number]
        return pa.table({name: _arrow(_column(file, name).read(low, high), kind) for name, kind in types.items()})


def _arrow(values: Array, kind: pa.DataType) -> pa.Array:
    """An Arrow array; "" is a missing text."""
    if not pa.types.is_string(kind):
        return pa.array(values).cast(kind)
    return pa.array([str(value) or None for value in values.tolist()], pa.string())


def anndata_shapes(path: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the dense matrices in obsm and of the columns of obs of the first file. Raises InputError."""
    file = _containers(path)[0]
    with file.open() as group:
        obs, obsm = group.get("obs"), group.get("obsm", {})
        index = None if obs is None else obs.attrs.get("_index", "_index")
        if not hasattr(obs, "keys") or index not in obs or not hasattr(obsm, "keys"):
            raise InputError(f"{file.where}: expected AnnData with the tables obs and obsm, found HDF5 of another kind")
        names = obs[index]
        n_rows = (names["values"] if hasattr(names, "keys") else names).shape[0]
        matrices = {f"obsm/{name}": tuple(obsm[name].shape) for name in obsm if hasattr(obsm[name], "shape")}
        return matrices | {f"obs/{name}": (n_rows,) for name in obs if name != index}


def _matrix(file: Container, name: str) -> Rows:
    with file.open() as group:
        element = _member(file, group, name)
        if not hasattr(element, "shape"):
            encoding = element.attrs.get("encoding-type", "a group")
            raise InputError(
                f"{file.where}: expected a dense matrix in {name}, found {encoding}; reduce it first, for instance "
                f"scanpy.pp.pca(adata), which writes obsm/X_pca"
            )
        if isinstance(file, ZarrFile):
            return ZarrRows(file.location, element, None)  # with stamps of its chunks
        return Element(file, name, name, partial(_values, name), tuple(element.shape), element.dtype)


def _column(file: Container, label: str) -> Element:
    """A column of obs, or obs_names: numbers, text or categories, which are decoded."""
    with file.open() as group:
        index = label == OBS_NAMES and "obs" in group and OBS_NAMES not in group["obs"]
        name = f"obs/{group['obs'].attrs.get('_index', '_index') if index else label}"
        element = _member(file, group, name)
        kind = str(element.attrs.get("encoding-type", "array"))
        if kind == "categorical":
            categories = _values("categories", element, 0, None)
            read, member, shape = partial(_decode, name, categories), f"{name}/codes", element["codes"].shape
            dtype = np.dtype(object) if categories.dtype.kind in "OUST" else np.dtype(np.float64)
        elif kind.startswith("nullable"):
            read, member, shape = partial(_nullable, name), f"{name}/values", element["values"].shape
            dtype = np.dtype(object) if kind == "nullable-string-array" else np.dtype(np.float64)
        elif hasattr(element, "shape") and "categories" not in element.attrs:
            read, member, shape = partial(_values, name), name, element.shape
            dtype = element.dtype if element.dtype.kind in "biuf" else np.dtype(object)
        else:
            raise InputError(
                f"{file.where}: {name} has the encoding {kind} of an old anndata; read the file with anndata and write "
                f"it again"
            )
    return Element(file, name, member, read, tuple(shape), dtype)


def _decode(name: str, categories: Array, group: Any, start: int, stop: int) -> Array:
    """Codes as their categories; -1, a missing value, is empty text or NaN."""
    codes = np.asarray(group[f"{name}/codes"][start:stop], np.int64)
    is_text = categories.dtype.kind in "OUST"
    missing = np.array([""], object) if is_text else np.array([np.nan])
    return np.asarray(np.concatenate([categories.astype(object if is_text else np.float64), missing])[codes])


def _nullable(name: str, group: Any, start: int, stop: int) -> Array:
    values, missing = _values(f"{name}/values", group, start, stop), group[f"{name}/mask"][start:stop]
    return np.where(missing, "", values) if values.dtype.kind in "OUST" else np.where(missing, np.nan, values)


def _values(name: str, group: Any, start: int, stop: int | None) -> Array:
    """Rows [start, stop) of an array of a group. Text is Python's; h5py gives bytes."""
    array = group[name]
    text = array.asstr() if hasattr(array, "asstr") and array.dtype.kind == "O" else array
    values = np.asarray(text[start:stop])
    return values if values.dtype.kind in "biuf" else values.astype(object)


def _neighbors(file: Container, name: str) -> Element:
    """The stored entries of each row of a CSR matrix as row numbers (n, widest row); -1 pads."""
    with file.open() as group:
        element = _member(file, group, name)
        kind = str(element.attrs.get("encoding-type", "a dense array"))
        if kind != "csr_matrix":
            raise InputError(
                f"{file.where}: expected a sparse matrix by rows (csr_matrix) in {name}, found {kind}; store it as "
                f"csr_matrix(...) in adata.obsp"
            )
        starts = np.asarray(element["indptr"][:], np.int64)
    shape = (len(starts) - 1, max(1, int(np.diff(starts).max(initial=1))))
    return Element(file, name, f"{name}/indices", partial(_padded, name, starts), shape, np.dtype(np.int64))


def _padded(name: str, starts: Array, group: Any, start: int, stop: int) -> Array:
    entries = np.asarray(group[f"{name}/indices"][starts[start] : starts[stop]], np.int64)
    counts = np.diff(starts)
    filled = np.arange(max(1, counts.max(initial=1))) < counts[start:stop, None]
    ids = np.full(filled.shape, -1, np.int64)
    ids[filled] = entries
    return ids


def _member(file: Container, group: Any, name: str) -> Any:
    """An element by its path. Raises InputError that lists what is there."""
    parent = name.rpartition("/")[0]
    elements = {} if isinstance(group, zarr.Array) else group
    folder = elements.get(parent, {}) if parent else elements
    if not hasattr(folder, "keys"):
        raise InputError(
            f"{file.where}: expected a group {parent}, found one array, as an old anndata (before 0.7) wrote it; read "
            f"the file with anndata and write it again"
        )
    if name in elements:
        return elements[name]
    listed = ", ".join(sorted(key for key in folder if key != "_index")) or "nothing"
    key = {"obsm": "input.obsm", "obs": "input.label", "obsp": "neighbors.precomputed.obsp"}.get(parent, "input.obsm")
    content = f"{parent or 'the file'} holds {listed}"
    raise InputError(f"{file.where}: there is no {name}; {content}; set {key} to one of them")

"""Reader of AnnData files, .h5ad or .zarr: a matrix of obsm, a column of obs, neighbours of obsp. By blocks of rows.

The elements are read as the format describes them (anndata.readthedocs.io, "On-disk format"), so anndata itself is not
needed; .h5ad files need h5py.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


class H5adFile:
    """An .h5ad file, opened again for each read: processes do not share its handle."""

    def __init__(self, stamp: Stamp) -> None:
        self.where, self._stamp, self.detects_changes = stamp.path, stamp, stamp.detects_changes

    @contextmanager
    def open(self) -> Iterator[Any]:
        import h5py  # the extra anndata

        with (
            reading(self.where, "an .h5ad file, as adata.write_h5ad writes it"),
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
    """Rows of one element of a file; `member` is the array that has them."""

    def __init__(
        self, file: Container, name: str, member: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> None:
        self.where, self.shape, self.dtype = f"{file.where}, {name}", shape, dtype
        self._file, self._name, self._member, self.detects_changes = file, name, member, file.detects_changes

    def read(self, start: int, stop: int) -> Array:
        with self._file.open() as group:
            return _entries(group[self._name], start, stop)

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
        self._files, self._types = files, dict[str, pa.DataType]()

    def column_types(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """int64, uint64 or float64 for numbers, else text: the common type of all files."""
        of_kind = {"i": pa.int64(), "u": pa.uint64(), "b": pa.float64(), "f": pa.float64()}
        for name in set(names) - self._types.keys():
            dtypes = [_column(file, name).read(0, 0).dtype for file in self._files]
            self._types[name] = of_kind.get(np.result_type(*dtypes).kind, pa.string())
        return {name: self._types[name] for name in names}

    def _columns_of_file(self, names: Sequence[str], number: int, low: int, high: int) -> pa.Table:
        """Null where an entry is missing."""
        types, file = self.column_types(names), self._files[number]
        return pa.table({name: _arrow(_column(file, name).read(low, high), kind) for name, kind in types.items()})


def _arrow(values: Array, kind: pa.DataType) -> pa.Array:
    """An Arrow array; "" is a missing text, NaN a missing number."""
    if not pa.types.is_string(kind):
        return pa.array(values, from_pandas=True).cast(kind)
    return pa.array([str(value) or None for value in values.tolist()], pa.string())


def anndata_shapes(path: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the dense matrices in obsm and of the columns of obs of the first file. Raises InputError."""
    file = _containers(path)[0]
    with file.open() as group:
        obs, obsm = group.get("obs"), group.get("obsm", {})
        index = None if obs is None else obs.attrs.get("_index", "_index")
        if not hasattr(obs, "keys") or index not in obs or not hasattr(obsm, "keys"):
            raise InputError(
                f"{file.where}: expected AnnData with the tables obs and obsm, found HDF5 of another kind; if an old "
                "version of anndata wrote it, anndata.read_h5ad(path).write_h5ad(new) converts it"
            )
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
        return Element(file, name, name, tuple(element.shape), element.dtype)


def _column(file: Container, label: str) -> Element:
    """A column of obs, or obs_names: numbers, text or categories, which are decoded."""
    with file.open() as group:
        index = label == OBS_NAMES and "obs" in group and OBS_NAMES not in group["obs"]
        name = f"obs/{group['obs'].attrs.get('_index', '_index') if index else label}"
        element = _member(file, group, name)
        kind = _encoding(element)
        part = "/codes" if kind == "categorical" else "/values" if kind.startswith("nullable") else ""
        if not part and ("categories" in element.attrs or not hasattr(element, "shape")):
            raise InputError(
                f"{file.where}: {name} has the encoding {kind} of an old anndata; read the file with anndata and write "
                f"it again"
            )
        stored = group[name + ("/categories" if kind == "categorical" else part)]
        # The entries of a column of integers are floats if one may be missing; it is of integers all the same.
        return Element(file, name, name + part, group[name + part].shape, _values(stored, 0, 0).dtype)


def _encoding(element: Any) -> str:
    return str(element.attrs.get("encoding-type", "array"))


def _entries(element: Any, start: int, stop: int) -> Array:
    """Rows [start, stop) of an element: text, "" for a missing one, or numbers, NaN for a missing one."""
    kind = _encoding(element)
    if kind == "categorical":
        categories, codes = _values(element["categories"], 0, None), element["codes"][start:stop]
        is_text = categories.dtype.kind == "O"
        values = np.append(categories if is_text else categories.astype(np.float64), "" if is_text else np.nan)
        return np.asarray(values[codes.astype(np.int64)])  # the code -1 is the missing value at the end
    if kind.startswith("nullable"):
        values = _values(element["values"], start, stop)
        return np.where(element["mask"][start:stop], "" if values.dtype.kind == "O" else np.nan, values)
    return _values(element, start, stop)


def _values(array: Any, start: int, stop: int | None) -> Array:
    """Rows [start, stop) of an array. Text is Python's; h5py gives bytes."""
    text = array.asstr() if hasattr(array, "asstr") and array.dtype.kind == "O" else array
    values = np.asarray(text[start:stop])
    return values if values.dtype.kind in "biuf" else values.astype(object)


class Neighbors(Element):
    """The stored entries of each row of a CSR matrix as row numbers (n, widest row); -1 pads. starts: its indptr."""

    def __init__(self, file: Container, name: str, starts: Array) -> None:
        width = max(1, int(np.diff(starts).max(initial=1)))
        super().__init__(file, name, f"{name}/indices", (len(starts) - 1, width), np.dtype(np.int64))
        self._starts = starts

    def read(self, start: int, stop: int) -> Array:
        with self._file.open() as group:
            entries = group[self._member][self._starts[start] : self._starts[stop]]
        ids = np.full((stop - start, self.shape[1]), -1, np.int64)
        ids[np.arange(self.shape[1]) < np.diff(self._starts)[start:stop, None]] = entries
        return ids


def _neighbors(file: Container, name: str) -> Neighbors:
    with file.open() as group:
        element = _member(file, group, name)
        if _encoding(element) != "csr_matrix":
            raise InputError(
                f"{file.where}: expected a sparse matrix by rows (csr_matrix) in {name}, found {_encoding(element)}; "
                f"store it as csr_matrix(...) in adata.obsp"
            )
        return Neighbors(file, name, np.asarray(element["indptr"][:], np.int64))


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
    listed = ", ".join(sorted(key for key in folder if key != "_index"))
    key = {"obsm": "input.obsm", "obs": "input.label", "obsp": "neighbors.precomputed.obsp"}.get(parent)
    content = f"{parent or 'the file'} holds {listed or 'nothing'}"
    cure = (
        f"set {key} to one of them" if key and listed else "write it first, as scanpy.pp.pca(adata) writes obsm/X_pca"
    )
    raise InputError(f"{file.where}: there is no {name}; {content}; {cure}")

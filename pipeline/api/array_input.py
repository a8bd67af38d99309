"""Read arrays of a Python program, and make their input section: the URL of a stored array, else a new .npy file.

The file is written one block of rows at a time, so Dask and Zarr arrays may be larger than memory.
"""

import contextlib
import hashlib
import json
import math
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.format import dtype_to_descr, write_array_header_1_0

from ..core.errors import InputError
from ..storage.storage_errors import storage_errors
from .array_checks import refuse_other_types
from .python_errors import python_errors

BLOCK_BYTES = 64 * 2**20


def is_dask(X: object) -> bool:
    """Whether X is a Dask array. If it is one, dask.array has been imported; otherwise this does not import it."""
    return "dask.array" in sys.modules and isinstance(X, sys.modules["dask.array"].Array)


def is_zarr(X: object) -> bool:
    return isinstance(X, getattr(sys.modules.get("zarr"), "Array", ()))  # another thread may be importing it


def is_chunked(X: object) -> bool:
    """Whether X is a Dask or Zarr array, which must be read by blocks."""
    return is_dask(X) or is_zarr(X)


def as_array(X: Any) -> Any:
    """A NumPy array of X; Dask and Zarr arrays stay such arrays.

    NaN replaces masked entries. The columns of a pandas table may have different or nullable types; NaN replaces
    missing entries of the latter.
    """
    if is_dask(X) and isinstance(X._meta, np.ma.MaskedArray):
        return X.map_blocks(as_array, dtype=np.result_type(X.dtype, np.float16), meta=np.empty((0,) * X.ndim))
    if is_chunked(X):
        return X
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "biuf":
        dtype = np.result_type(X.dtype, np.float16)  # float32 stays
        return np.ma.filled(X.astype(dtype), np.nan) if X.mask.any() else X.data
    array = np.asarray(X)
    if array.dtype == object and array.ndim == 2:
        with contextlib.suppress(TypeError, ValueError, OverflowError):  # an entry is no number in float64
            is_pandas = type(X).__module__.startswith("pandas")
            return X.to_numpy(np.float64, na_value=np.nan) if is_pandas else array.astype(np.float64)
    return array


def as_vector(values: Any) -> npt.NDArray[np.generic]:
    """A NumPy array of labels or colours; None replaces masked entries, and integers of pandas stay integers."""
    values = values.compute() if is_dask(values) else values
    if isinstance(values, np.ma.MaskedArray) and values.mask.any():
        entries = values.data.tolist()
        return np.asarray(np.where(np.ma.getmaskarray(values), np.array(None), np.array(entries, object)))
    array = np.asarray(values)
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    return np.asarray(values, object) if kind in {"i", "u"} and array.dtype.kind == "f" else array


def checked_rows(estimator: Any, X: Any, reset: bool) -> Any:
    """Validate the rows for an estimator by scikit-learn's rules; of a chunked array only the shape.

    The stages check the rest. reset: whether X is fitted, and sets the number and the names of the features. Raises
    ValueError.
    """
    if reset and hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    if type(X) is dict and reset:  # an input section; one of SciPy's sparse matrices is a subclass of dict
        return X
    from sklearn.utils.validation import validate_data

    if is_chunked(X):
        if X.ndim != 2:
            raise ValueError(f"expected a 2-D array of (rows, features), found shape {X.shape}")
        return validate_data(estimator, as_array(X), reset=reset, skip_check_array=True)
    with python_errors():
        refuse_other_types(X)
    X = as_array(X) if isinstance(X, np.ma.MaskedArray) else X  # scikit-learn would read the values behind the mask
    return validate_data(
        estimator, X, reset=reset, dtype="numeric", ensure_min_samples=3 if reset else 1, ensure_all_finite=False
    )  # later steps search for NaN, and name its row and column


def input_section(X: Any, folder: Path, labels: object = None, ids: object = None) -> dict[str, Any]:
    """The input section for X: a NumPy, Dask or Zarr array (n, d), or a copy of X if it is such a section.

    A Zarr array of the local file system is named by its path. Other arrays are written to `input-<digest>.npy` in
    `folder`, labels (n,) or (n, c) to `labels-<digest>.npy`, and ids (n,) to `id-<digest>.npy`. Equal arrays get the
    same file, which is then not written again, so a run of the same input resumes.

    Raises InputError for a Dask array with an unknown number of rows, a sparse matrix, and labels beside a section.
    """
    if type(X) is dict:
        if labels is not None:
            raise InputError(
                "labels: X is a file or an input section; remove the argument labels, and pass an input section with "
                "the key for labels"
            )
        return dict(X)
    if is_zarr(X) and labels is None and type(X.store).__name__ == "LocalStore":
        return {"kind": "zarr", "url": str(Path(X.store.root).absolute() / X.path)}
    matrix = as_matrix(X)
    section = {"kind": "npy", "path": _write(matrix, folder, "input")}
    if labels is not None:
        section["labels"] = _write(_as_labels(labels, matrix.shape[0]), folder, "labels")
    if ids is not None:
        array = np.asarray(ids)  # ids that are no whole numbers are stored as text
        section["id"] = _write(array if array.dtype.kind in "iu" else _texts(ids), folder, "id")
    return section


def as_matrix(X: object, name: str = "input") -> Any:
    """The array of real numbers (n, d) of X, with rows and columns. Raises InputError for other types and shapes."""
    refuse_other_types(X, name)
    array = as_array(X)
    if array.ndim != 2 or 0 in array.shape:
        cure = "reshape it: numpy.reshape(X, (len(X), -1)), or numpy.reshape(X, (1, -1)) for a single row"
        cure = "check how X was made" if 0 in array.shape else cure if array.ndim else "pass a table of numbers"
        columns = "features" if name == "input" else name
        raise InputError(f"{name}: expected an array of shape (rows, {columns}), found shape {array.shape}; {cure}")
    if math.isnan(math.prod(array.shape)):
        raise InputError(
            f"{name}: expected an array of known size, found a Dask array of shape {array.shape}; call its "
            f"compute_chunk_sizes() first"
        )
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"{name}: expected real numbers, found dtype {array.dtype}; convert it, numpy.asarray(X, float)"
        )
    return array


def index_of(X: object) -> object:
    """The index of a pandas DataFrame; None if X is none, or if its rows are only numbered from 0."""
    if not hasattr(X, "iloc"):
        return None
    index: Any = getattr(X, "index", None)
    is_numbering = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
    return None if is_numbering else index


def _texts(values: object) -> npt.NDArray[np.str_]:
    """Python objects as text; "" for a missing one: None, NaN, pandas.NA or NaT."""
    import pandas as pd

    array = np.asarray(values, object)
    is_missing = np.ravel(pd.isna(array))
    texts = ["" if missing else str(value) for value, missing in zip(array.ravel(), is_missing, strict=True)]
    return np.array(texts, np.str_).reshape(array.shape)


def digest_of(X: object) -> str:
    """A digest of an array (n, d), read by blocks, or of an input section."""
    if type(X) is dict:
        return hashlib.sha256(json.dumps(X, sort_keys=True, default=str).encode()).hexdigest()
    array = as_matrix(X)
    digest = hashlib.sha256(repr((array.shape, array.dtype.str)).encode())
    for block in row_blocks(array):
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def row_blocks(X: Any) -> Iterator[npt.NDArray[np.generic]]:
    """Yield an array by blocks of rows: Dask's chunks, else about 64 MiB."""
    if is_dask(X):
        yield from (np.asarray(X.blocks[number].compute()) for number in range(X.numblocks[0]))
        return
    chunk_rows = X.chunks[0] if is_zarr(X) else 1
    rows = max(1, BLOCK_BYTES // max(1, chunk_rows * math.prod(X.shape[1:]) * X.dtype.itemsize)) * chunk_rows
    for start in range(0, X.shape[0], rows):
        yield np.asarray(X[start : start + rows])


def _as_labels(labels: object, n_rows: int) -> npt.NDArray[np.generic]:
    array = as_vector(labels)
    array = _texts(array) if array.dtype.kind in "OT" else array  # .npy files hold neither
    if array.dtype.kind not in "biufUS":
        raise InputError(
            f"labels: expected numbers or text, found dtype {array.dtype}; convert them, for instance to text"
        )
    if array.ndim not in (1, 2) or len(array) != n_rows:
        raise InputError(f"labels: expected one for each of the {n_rows} rows, found shape {array.shape}")
    return array


def _write(X: Any, folder: Path, name: str) -> str:
    """Write `<name>-<digest>.npy`."""
    partial = folder / f".input.{uuid.uuid4().hex}.partial"
    digest = hashlib.sha256(repr((X.shape, X.dtype.str)).encode())
    header = {"descr": dtype_to_descr(X.dtype), "fortran_order": False, "shape": tuple(map(int, X.shape))}
    try:
        with storage_errors(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                write_array_header_1_0(file, header)
                for block in row_blocks(X):
                    rows = np.ascontiguousarray(block, X.dtype).data
                    file.write(rows)
                    digest.update(rows)
            path = folder / f"{name}-{digest.hexdigest()[:32]}.npy"
            if not path.exists():
                partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return str(path)

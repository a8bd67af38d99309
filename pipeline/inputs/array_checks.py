"""What arrays of an input must be: real numbers, two-dimensional, with the chosen columns."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..core.errors import InputError
from .base import Rows

_DTYPE_CURES = {
    "c": "give the real and the imaginary part as separate columns",
    "O": "save it with a numeric dtype, for instance x.astype('float64')",
    "V": "save the fields as the columns of one array: numpy.lib.recfunctions.structured_to_unstructured(x)",
    "M": "convert times to numbers first",
    "m": "convert times to numbers first",
}

TO_ROWS = "flatten each sample to one row: x.reshape(len(x), -1)"


def common_dtype(parts: Sequence[Rows]) -> np.dtype[np.generic]:
    """float32 if it holds every value of these dtypes exactly, else float64.

    Raises InputError if one is not numeric.
    """
    for part in parts:
        kind = part.dtype.kind
        if kind not in "biuf":
            cure = _DTYPE_CURES.get(kind, "convert it to numbers, or use it as a label")
            raise InputError(f"{part.where}: expected real numbers, found dtype {part.dtype}; {cure}")
    fits = all(np.can_cast(part.dtype, np.float32, "safe") for part in parts)
    return np.dtype(np.float32 if fits else np.float64)


def only_matrix(where: str, key: str, shapes: dict[str, tuple[int, ...]], none: str = "none") -> str:
    """The name of the one matrix among named arrays.

    Raises InputError for another number of matrices, and if an array of more dimensions has as many rows.
    """
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    stacks = stacks_beside(matrices[0], shapes) if len(matrices) == 1 else []
    if len(matrices) != 1 or stacks:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or none
        cure = f"; set {key} to one of: {listed}" if matrices else f" among {listed}; {_cure_without_matrix(shapes)}"
        found = " and ".join([str(len(matrices)), *stacks])
        raise InputError(f"{where}: without {key} there must be exactly one 2-D array, found {found}{cure}")
    return matrices[0]


def stacks_beside(matrix: str, shapes: dict[str, tuple[int, ...]]) -> list[str]:
    """Name and shape of each array of more dimensions, such as images, with as many rows as a matrix."""
    n_rows = shapes[matrix][0]
    return [f"{name} {shape}" for name, shape in shapes.items() if len(shape) > 2 and shape[0] == n_rows]


def _cure_without_matrix(shapes: dict[str, tuple[int, ...]]) -> str:
    if {"data", "indices", "indptr"} <= shapes.keys():  # as scipy.sparse.save_npz writes them
        return "a sparse matrix is not read: reduce it first, for instance by sklearn.decomposition.TruncatedSVD"
    several = next((name for name, shape in shapes.items() if len(shape) > 2), None)
    return "save one with a row for each sample" if several is None else f"save {several} anew: {TO_ROWS}"


def check_matrix(rows: Rows) -> None:
    """Raises InputError unless the array is numeric and two-dimensional with at least one column."""
    common_dtype([rows])  # tested first: fields of a structured array are no dimension
    n_dims = len(rows.shape)
    if n_dims != 2:
        cure = "name the points if these are labels; one feature per row is x.reshape(-1, 1)" if n_dims < 2 else TO_ROWS
        raise InputError(f"{rows.where}: expected a 2-D array of (rows, features), found shape {rows.shape}; {cure}")
    if rows.shape[1] == 0:
        raise InputError(
            f"{rows.where}: expected at least one column, found shape {rows.shape}; check how the file was written"
        )


def check_columns(columns: Sequence[int] | None, n_features: int, where: str) -> list[int] | None:
    """The column numbers as a list, None for all.

    Raises InputError if one is out of range, repeated or not a whole number.
    """
    if columns is None:
        return None
    chosen = list(columns)
    counts = Counter(column for column in chosen if type(column) is int and 0 <= column < n_features)
    bad = [column for column in chosen if type(column) is not int or counts[column] != 1]
    if bad or not chosen:
        raise InputError(
            f"{where}: input.columns must be different whole numbers from 0 to {n_features - 1}, found "
            f"{bad[:5] or 'an empty list'}; remove the key to use all columns"
        )
    return chosen

"""Compiled products of rows of a CSR matrix with blocks of vectors. Importing this module loads numba."""

import numba
import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.integer]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def multiply_rows(indptr: Ids, indices: Ids, data: F64, x: F64, out: F64, start: int, stop: int) -> None:
    """out[start:stop] = (matrix x)[start:stop]."""
    n_columns = x.shape[1]
    row = np.empty(n_columns)
    for i in range(start, stop):
        row[:] = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            value, j = data[entry], indices[entry]
            for c in range(n_columns):
                row[c] += value * x[j, c]
        for c in range(n_columns):
            out[i, c] = row[c]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def advance_rows(
    indptr: Ids,
    indices: Ids,
    data: F64,
    x: F64,
    residual: F64,
    out: F64,
    total: F64,
    factors: F64,
    start: int,
    stop: int,
) -> None:
    """Rows start to stop of out = f0 matrix x + f1 residual and total += f2 out + f3 residual, f = ``factors``."""
    n_columns = x.shape[1]
    row = np.empty(n_columns)
    for i in range(start, stop):
        row[:] = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            value, j = data[entry], indices[entry]
            for c in range(n_columns):
                row[c] += value * x[j, c]
        for c in range(n_columns):
            new = factors[0] * row[c] + factors[1] * residual[i, c]
            total[i, c] += factors[2] * new + factors[3] * residual[i, c]
            out[i, c] = new


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def combine_rows(
    indptr: Ids, indices: Ids, data: F32, x: F32, y: F32, out: F32, factors: F32, start: int, stop: int
) -> None:
    """Rows start to stop of out = f0 matrix x + f1 y + f2 out, f = ``factors``."""
    n_columns = x.shape[1]
    row = np.empty(n_columns, np.float32)
    for i in range(start, stop):
        row[:] = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            value, j = np.float32(data[entry]), indices[entry]
            for c in range(n_columns):
                row[c] += value * x[j, c]
        for c in range(n_columns):
            new = factors[0] * row[c]
            if factors[1] != 0.0:
                new += factors[1] * y[i, c]
            if factors[2] != 0.0:  # out may be uninitialised
                new += factors[2] * out[i, c]
            out[i, c] = new


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def column_dots(x: F32, y: F32, out: F64, start: int, stop: int) -> None:
    """out (m,) = dot products of the columns of x and y (n, m), over the rows start to stop."""
    out[:] = 0.0
    for i in range(start, stop):
        for c in range(x.shape[1]):
            out[c] += np.float64(x[i, c]) * np.float64(y[i, c])


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def add_columns(x: F32, factors: F32, out: F32, start: int, stop: int) -> None:
    """out += x times ``factors`` (m,), column by column, in the rows start to stop."""
    for i in range(start, stop):
        for c in range(x.shape[1]):
            out[i, c] += factors[c] * x[i, c]

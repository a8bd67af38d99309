"""Compiled products of rows of a CSR matrix with blocks of vectors. Importing this module loads numba."""

import numba
import numpy as np
import numpy.typing as npt

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

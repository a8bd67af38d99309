"""Products with M = A' A from the sparse A alone, in parallel over rows: the same bytes for any number of threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any, Protocol, Self

import numba
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.integer]
Factors = tuple[float, float, float]


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
def recur_rows(
    indptr: Ids, indices: Ids, data: F64, x: F64, current: F64, previous: F64, factors: F64, start: int, stop: int
) -> None:
    """previous[start:stop] = factors[0] matrix x + factors[1] current + factors[2] previous, row by row."""
    n_columns = x.shape[1]
    row = np.empty(n_columns)
    for i in range(start, stop):
        row[:] = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            value, j = data[entry], indices[entry]
            for c in range(n_columns):
                row[c] += value * x[j, c]
        for c in range(n_columns):
            previous[i, c] = factors[0] * row[c] + factors[1] * current[i, c] + factors[2] * previous[i, c]


class Operator(Protocol):
    """Polynomials of M = A' A, wherever A is."""

    def recurrence(self, block: F64, first: Factors, later: Factors, n_products: int) -> F64:
        """y_n of y_0 = block (n, m), y_1 = f0 M y_0 + f1 y_0, y_i+1 = g0 M y_i + g1 y_i + g2 y_i-1; n = n_products.

        f stands for ``first``, g for ``later``.
        """


class NormalOperator:
    """v -> A' (A v) for blocks of vectors in C order; a context manager that ends its threads.

    Holds A and its transpose as CSR, so that both products run over rows: no two threads write one row.
    """

    def __init__(self, factor: csr_array, n_threads: int) -> None:
        """Take A (rows, n)."""
        self.shape = factor.shape
        self._forward, self._backward = factor, csr_array(factor.T.tocsr())
        self._pool = ThreadPoolExecutor(n_threads)
        self._forward_cuts = _equal_work(self._forward, n_threads)
        self._backward_cuts = _equal_work(self._backward, n_threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the threads."""
        self._pool.shutdown()

    def recurrence(self, block: F64, first: Factors, later: Factors, n_products: int) -> F64:
        """y_n of y_0 = block (n, m), y_1 = f0 M y_0 + f1 y_0, y_i+1 = g0 M y_i + g1 y_i + g2 y_i-1; n = n_products.

        f stands for ``first``, g for ``later``.
        """
        half = np.empty((self.shape[0], block.shape[1]))
        previous, current = block.copy(), block.copy()
        self.half(previous, half)
        self.recur(half, previous, current, first)
        for _ in range(n_products - 1):
            self.half(current, half)
            self.recur(half, current, previous, later)
            previous, current = current, previous
        return current

    def half(self, block: F64, out: F64) -> None:
        """out = A block, for block (n, m) and out (rows, m)."""
        a = self._forward
        self._run(multiply_rows, self._forward_cuts, (a.indptr, a.indices, a.data, block, out))

    def recur(self, half: F64, current: F64, previous: F64, factors: Factors) -> None:
        """previous = factors[0] A' half + factors[1] current + factors[2] previous, all (n, m) but half (rows, m)."""
        a = self._backward
        arguments = (a.indptr, a.indices, a.data, half, current, previous, np.array(factors))
        self._run(recur_rows, self._backward_cuts, arguments)

    def apply(self, block: F64) -> F64:
        """M block, for block (n, m)."""
        half = np.empty((self.shape[0], block.shape[1]))
        out = np.zeros_like(block)
        self.half(block, half)
        self.recur(half, block, out, (1.0, 0.0, 0.0))
        return out

    def _run(self, kernel: Callable[..., None], cuts: npt.NDArray[np.int64], arguments: tuple[Any, ...]) -> None:
        parts = [self._pool.submit(kernel, *arguments, first, past) for first, past in pairwise(cuts)]
        for part in parts:
            part.result()


def _equal_work(matrix: csr_array, n_parts: int) -> npt.NDArray[np.int64]:
    """Row numbers that cut the matrix into parts of about equal numbers of entries."""
    wanted = np.linspace(0, matrix.nnz, n_parts + 1)
    cuts = np.searchsorted(matrix.indptr, wanted).astype(np.int64)
    cuts[0], cuts[-1] = 0, matrix.shape[0]
    return cuts

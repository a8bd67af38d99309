"""Apply polynomials of A, A' and A' A to blocks of vectors, in parallel over rows.

The bytes of a result do not depend on the number of threads.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .polynomial import C128, products

F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.integer]
Matrix = Literal["factor", "transposed", "normal"]
"""A (square only), A' (square only), or A' A."""


class Operator(Protocol):
    """Polynomials of A, A' or A' A, for an A in this process or on other machines."""

    def approximate_inverse(self, block: F64, roots: C128, matrix: Matrix) -> tuple[F64, F64]:
        """p(B) block and r(B) block, (n, m) each, for B = ``matrix``; r has the ``roots``, p(z) = (1 - r(z)) / z."""


class NormalOperator:
    """Polynomials of A, A' and A' A times blocks of vectors; a context manager that stops its threads at the end.

    A and its transpose are stored as CSR, so both products run over rows and no two threads write the same row.
    """

    def __init__(self, factor: csr_array, n_threads: int) -> None:
        """Store A (rows, n) and its transpose."""
        self.shape = factor.shape
        self._forward, self._backward = factor, csr_array(factor.T.tocsr())
        self._pool = ThreadPoolExecutor(n_threads)
        self._forward_cuts = _equal_work(self._forward, n_threads)
        self._backward_cuts = _equal_work(self._backward, n_threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def approximate_inverse(self, block: F64, roots: C128, matrix: Matrix) -> tuple[F64, F64]:
        """See ``Operator``."""
        from .row_products import advance_rows, multiply_rows  # noqa: PLC0415 (numba, a quarter of a second)

        residual = np.array(block, order="C")
        total, auxiliary, spare = np.zeros_like(residual), np.empty_like(residual), np.empty_like(residual)
        half = np.empty((self.shape[0] if matrix == "normal" else 0, block.shape[1]))
        last, cuts = (
            (self._forward, self._forward_cuts) if matrix == "factor" else (self._backward, self._backward_cuts)
        )
        for product in products(roots):
            x = auxiliary if product.from_auxiliary else residual
            if matrix == "normal":
                a = self._forward
                self._run(multiply_rows, self._forward_cuts, (a.indptr, a.indices, a.data, x, half))
                x = half
            out = auxiliary if product.to_auxiliary else spare
            arguments = (last.indptr, last.indices, last.data, x, residual, out, total, np.array(product.factors))
            self._run(advance_rows, cuts, arguments)
            if not product.to_auxiliary:
                residual, spare = spare, residual
        return total, residual

    def _run(self, kernel: Callable[..., None], cuts: npt.NDArray[np.int64], arguments: tuple[Any, ...]) -> None:
        parts = [self._pool.submit(kernel, *arguments, first, past) for first, past in pairwise(cuts)]
        for part in parts:
            part.result()


def _equal_work(matrix: csr_array, n_parts: int) -> npt.NDArray[np.int64]:
    """Row numbers (n_parts + 1,) that split the matrix into parts with about equal numbers of entries."""
    entries = np.linspace(0, matrix.nnz, n_parts + 1)
    cuts = np.searchsorted(matrix.indptr, entries).astype(np.int64)
    cuts[0], cuts[-1] = 0, matrix.shape[0]
    return cuts

"""Polynomials of A, A' and A' A on Dask workers, which hold A and its transpose in blocks of rows.

Only vectors are sent between workers. Every output row is computed by the kernel of the one-process operator, from the
same entries in the same order, so the results have the same bytes. A block needs the vectors of all blocks that its
columns belong to. These are few if points are ordered by cells and the intrinsic dimension is small, and nearly all if
it is large.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from distributed import Client, wait
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker
from scipy.sparse import csr_array

from ..clusters.version_check import check_versions, required_versions
from ..core.errors import LleError
from ..kernels.eigensolver.normal_operator import F64, Matrix, NormalOperator, Operator
from ..kernels.eigensolver.polynomial import C128, Product, products
from ..kernels.eigensolver.row_products import advance_rows, multiply_rows

BLOCKS_PER_WORKER = 2
PRODUCTS_IN_FLIGHT = 8
"""Limits the task graph in the scheduler. Vectors are released as soon as no task needs them."""
ATTEMPTS = 3


class RowBlock(NamedTuple):
    """Consecutive rows of a matrix. Column ids are positions in the stacked vectors of the blocks in `touched`."""

    indptr: npt.NDArray[np.integer]
    indices: npt.NDArray[np.integer]
    data: F64
    touched: tuple[int, ...]


@contextmanager
def operator_on_workers(factor: csr_array, n_threads: int) -> Iterator[Operator]:
    """Polynomials on the workers of this process's Dask client; without a client, in this process."""
    try:
        client = Client.current()
    except ValueError:
        with NormalOperator(factor, n_threads) as local:
            yield local
        return
    yield RowBlocks(factor, client)


class RowBlocks:
    """Polynomials of A, A' and A' A times blocks of vectors, on a Dask client's workers."""

    def __init__(self, factor: csr_array, client: Client) -> None:
        """Take A (n, n) or (rows, n); its blocks are sent to the workers at the first product."""
        self._client = client
        n_blocks = BLOCKS_PER_WORKER * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        transposed = csr_array(factor.T.tocsr())
        in_rows, in_columns = np.diff(factor.indptr), np.diff(transposed.indptr)
        square = factor.shape[0] == factor.shape[1]  # rows and columns have the same cuts
        self._columns, self._rows = (
            _equal_work(in_rows + in_columns if square else counts, n_blocks) for counts in (in_columns, in_rows)
        )
        self._forward = _cut(factor, self._rows, self._columns)
        self._backward = _cut(transposed, self._columns, self._rows)
        self._sent: tuple[list[Any], list[Any], list[str]] | None = None

    def approximate_inverse(self, block: F64, roots: C128, matrix: Matrix) -> tuple[F64, F64]:
        """See ``Operator``. Raises LleError after ATTEMPTS losses of workers."""
        for _ in range(ATTEMPTS):
            try:
                return self._approximate_inverse(block, roots, matrix)
            # the scheduler raises KeyError for a worker that has left
            except (KilledWorker, FutureCancelledError, KeyError, OSError, TimeoutError) as error:
                self._sent, failure = None, error
        raise LleError(f"eigensolver: the workers were lost {ATTEMPTS} times in one polynomial ({failure}); run again")

    def _approximate_inverse(self, block: F64, roots: C128, matrix: Matrix) -> tuple[F64, F64]:
        forward, backward, places = self._send()
        last, layout = (forward, self._forward) if matrix == "factor" else (backward, self._backward)
        residual = [self._place(block[a:b], places, i) for i, (a, b) in enumerate(pairwise(self._columns))]
        total: list[Any] = [None] * len(residual)
        auxiliary = residual
        for number, product in enumerate(products(roots)):
            x = auxiliary if product.from_auxiliary else residual
            if matrix == "normal":
                x = [
                    self._submit(_half, places, i, part, *(x[t] for t in self._forward[i].touched))
                    for i, part in enumerate(forward)
                ]
            out = [
                self._submit(_advance, places, i, part, product, residual[i], *(x[t] for t in layout[i].touched))
                for i, part in enumerate(last)
            ]
            if any(product.factors[2:]):
                total = [
                    self._submit(_add, places, i, product, total[i], out[i], residual[i]) for i in range(len(residual))
                ]
            if product.to_auxiliary:
                auxiliary = out
            else:
                residual = out
            if number % PRODUCTS_IN_FLIGHT == PRODUCTS_IN_FLIGHT - 1:
                wait([*out, *total])
        return np.concatenate(self._client.gather(total)), np.concatenate(self._client.gather(residual))

    def _send(self) -> tuple[list[Any], list[Any], list[str]]:
        if self._sent is None:
            places = sorted(self._client.scheduler_info(n_workers=-1)["workers"])
            if not places:
                raise OSError("the cluster has no workers")
            if required_versions(self._client) is not None:  # some workers may have joined after the step began
                check_versions(self._client, "eigensolver")
            forward, backward = (
                [self._place(matrix, places, i) for i, matrix in enumerate(matrices)]
                for matrices in (self._forward, self._backward)
            )
            self._sent = forward, backward, places
        return self._sent

    def _place(self, data: Any, places: list[str], i: int) -> Any:
        return self._client.scatter(data, workers=[places[i % len(places)]], hash=False, direct=False)

    def _submit(self, function: Any, places: list[str], i: int, *arguments: Any) -> Any:
        place = [places[i % len(places)]]
        return self._client.submit(function, *arguments, workers=place, allow_other_workers=True, pure=False)


def _half(matrix: RowBlock, *vectors: F64) -> F64:
    """Rows of A times the vectors."""
    stacked = np.concatenate(vectors)
    out = np.empty((len(matrix.indptr) - 1, stacked.shape[1]))
    multiply_rows(matrix.indptr, matrix.indices, matrix.data, stacked, out, 0, len(out))
    return out


def _advance(matrix: RowBlock, product: Product, residual: F64, *vectors: F64) -> F64:
    """The rows of this block after the product."""
    stacked, residual = np.concatenate(vectors), np.ascontiguousarray(residual)
    out, factors = np.empty_like(residual), np.array(product.factors)
    unused = np.zeros_like(residual)
    advance_rows(
        matrix.indptr, matrix.indices, matrix.data, stacked, residual, out, unused, factors, 0, len(out)
    )  # fmt: skip
    return out


def _add(product: Product, total: F64 | None, out: F64, residual: F64) -> F64:
    """The rows of the running total after the product."""
    _, _, of_out, of_residual = product.factors
    return np.asarray((0.0 if total is None else total) + (of_out * out + of_residual * residual))


def _equal_work(counts: npt.NDArray[np.integer], n_blocks: int) -> npt.NDArray[np.int64]:
    """Cuts of rows with these numbers of entries into at most `n_blocks` blocks with about equal sums.

    A point in very many lists has a long row of A'. Every row counts as one entry more.
    """
    sums = np.cumsum(counts + 1, dtype=np.int64)
    inner = np.searchsorted(sums, np.linspace(0, sums[-1], n_blocks + 1)[1:-1])
    return np.unique(np.concatenate([[0], inner, [len(counts)]]))


def _cut(matrix: csr_array, row_cuts: npt.NDArray[np.int64], column_cuts: npt.NDArray[np.int64]) -> list[RowBlock]:
    """Cut a matrix into blocks of rows; `touched` is ascending, so the entries of a row keep their order."""
    lengths, blocks = np.diff(column_cuts), []
    for first, past in pairwise(row_cuts):
        part = matrix[first:past]
        home = np.searchsorted(column_cuts, part.indices, side="right") - 1
        touched = np.unique(home) if len(home) else np.array([0])
        shift = np.zeros(len(lengths), np.int64)
        shift[touched] = np.cumsum(lengths[touched]) - lengths[touched] - column_cuts[touched]
        indices = (part.indices + shift[home]).astype(matrix.indices.dtype)
        blocks.append(RowBlock(part.indptr, indices, part.data, tuple(int(t) for t in touched)))
    return blocks

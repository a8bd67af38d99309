"""Products with M = A' A on Dask workers: A and its transpose lie there in blocks of rows, the vectors travel.

Every output row is computed by the kernel of the one-process operator, from the same entries in the same order, so the
results have the same bytes. A block needs the vectors of the blocks its columns lie in: few where points are ordered by
cells and the intrinsic dimension is small, nearly all where it is large.
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

from pipeline.clusters.version_check import check_versions, required_versions
from pipeline.core.errors import LleError
from pipeline.kernels.eigensolver.normal_operator import (
    F64,
    Factors,
    NormalOperator,
    Operator,
    multiply_rows,
    recur_rows,
)

BLOCKS_PER_WORKER = 2
PRODUCTS_IN_FLIGHT = 8
"""Bounds the graph that the scheduler holds; the vectors themselves are given up as soon as nothing needs them."""
ATTEMPTS = 3


class RowBlock(NamedTuple):
    """Consecutive rows of a matrix; columns count through the vectors of the blocks they touch, one below another."""

    indptr: npt.NDArray[np.integer]
    indices: npt.NDArray[np.integer]
    data: F64
    touched: tuple[int, ...]


@contextmanager
def operator_on_workers(factor: csr_array, n_threads: int) -> Iterator[Operator]:
    """Products on the workers of this process's Dask client; in this process where it has none."""
    try:
        client = Client.current()
    except ValueError:
        with NormalOperator(factor, n_threads) as local:
            yield local
        return
    yield RowBlocks(factor, client)


class RowBlocks:
    """v -> polynomial of M times v, M = A' A, on a Dask client's workers."""

    def __init__(self, factor: csr_array, client: Client) -> None:
        """Take A (n, n) or (rows, n); its blocks are sent to the workers at the first product."""
        self._client = client
        n_blocks = BLOCKS_PER_WORKER * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        self._columns, self._rows = (
            np.linspace(0, length, min(n_blocks, length) + 1).astype(np.int64) for length in factor.shape[::-1]
        )
        self._forward = _cut(factor, self._rows, self._columns)
        self._backward = _cut(csr_array(factor.T.tocsr()), self._columns, self._rows)
        self._sent: tuple[list[Any], list[Any], list[str]] | None = None

    def recurrence(self, block: F64, first: Factors, later: Factors, n_products: int) -> F64:
        """See ``Operator``. Raises LleError when workers keep dying."""
        for _ in range(ATTEMPTS):
            try:
                return self._recurrence(block, first, later, n_products)
            # KeyError is what the scheduler says when it is asked for a worker that has gone
            except (KilledWorker, FutureCancelledError, KeyError, OSError, TimeoutError) as error:
                self._sent, failure = None, error
        raise LleError(f"eigensolver: the workers were lost {ATTEMPTS} times in one filter ({failure}); run again")

    def _recurrence(self, block: F64, first: Factors, later: Factors, n_products: int) -> F64:
        forward, backward, places = self._send()
        cuts = list(pairwise(self._columns))
        current = [self._place(block[a:b], places, i) for i, (a, b) in enumerate(cuts)]
        previous = current
        for number in range(n_products):
            halves = [
                self._submit(_half, places, i, matrix, *(current[t] for t in self._forward[i].touched))
                for i, matrix in enumerate(forward)
            ]
            factors = later if number else first
            following = [
                self._submit(
                    _recur, places, i, matrix, factors, current[i], previous[i],
                    *(halves[t] for t in self._backward[i].touched),
                )
                for i, matrix in enumerate(backward)
            ]  # fmt: skip
            previous, current = current, following
            if number % PRODUCTS_IN_FLIGHT == PRODUCTS_IN_FLIGHT - 1:
                wait(current)
        return np.concatenate(self._client.gather(current))

    def _send(self) -> tuple[list[Any], list[Any], list[str]]:
        if self._sent is None:
            places = sorted(self._client.scheduler_info(n_workers=-1)["workers"])
            if not places:
                raise OSError("the cluster has no workers")
            if required_versions(self._client) is not None:  # workers that came since the step began are among them
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


def _recur(matrix: RowBlock, factors: Factors, current: F64, previous: F64, *halves: F64) -> F64:
    """One step of the recurrence for rows of A'."""
    out = np.array(previous, order="C")
    stacked, current = np.concatenate(halves), np.ascontiguousarray(current)
    recur_rows(
        matrix.indptr, matrix.indices, matrix.data, stacked, current, out, np.array(factors), 0, len(out)
    )  # fmt: skip
    return out


def _cut(matrix: csr_array, row_cuts: npt.NDArray[np.int64], column_cuts: npt.NDArray[np.int64]) -> list[RowBlock]:
    """Blocks of rows; `touched` names the blocks of columns, in ascending order, so that entries keep their order."""
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

"""Aggregates of nodes of a sparse matrix, and local bases of near-null vectors on them. Loads numba.

Vanek, Mandel & Brezina 1996 (Computing 56): smoothed aggregation. Here an aggregate is grown breadth first up to a
fixed number of nodes, and its basis is cut to the leading local directions of the near-null vectors.
"""

from typing import NamedTuple

import numba
import numpy as np
from scipy.sparse import csr_array

from ...core.arrays import Float32, Float64, Floats, Int32, Ints
from .threads import Threads

F32 = Float32

AGGREGATES_AT_ONCE = 2048
LEAST_SHARE = 0.25
"""Aggregates with a smaller share of the largest number of nodes join a neighbour."""


class Aggregates(NamedTuple):
    """Aggregates of the rows of a level, with the local bases that make the columns of P0."""

    number: Ints
    """(n,) aggregate of each row."""
    starts: Ints
    """(aggregates + 1,) positions in ``rows``."""
    rows: Ints
    """(n,) rows ordered by aggregate."""
    basis: F32
    """(n, q): row i holds the basis vectors of its aggregate at i. Vector d of aggregate a is column q a + d of P0."""
    threads: Threads

    @property
    def n_columns(self) -> int:
        """Columns of P0, the rows of the next level."""
        return (len(self.starts) - 1) * int(self.basis.shape[1])

    def matrix(self) -> csr_array:
        """P0 (n, n_columns)."""
        n, width = self.basis.shape
        columns = self.number[:, None] * np.int32(width) + np.arange(width, dtype=np.int32)
        indptr = np.arange(0, n * width + 1, width, dtype=np.int32 if n * width < 2**31 else np.int64)
        return csr_array((self.basis.ravel(), columns.ravel(), indptr), shape=(n, self.n_columns))

    def restrict(self, fine: Floats) -> Floats:
        """P0' fine, (n_columns, m)."""
        coarse = np.empty((self.n_columns, fine.shape[1]), fine.dtype)
        self.threads.each(
            lambda first, past: restrict_rows(self.starts, self.rows, self.basis, fine, coarse, first, past),
            len(self.starts) - 1,
            AGGREGATES_AT_ONCE,
        )
        return coarse

    def prolong(self, coarse: Floats) -> Floats:
        """P0 coarse, (n, m)."""
        fine = np.empty((len(self.number), coarse.shape[1]), coarse.dtype)
        self.threads.each(
            lambda first, past: prolong_rows(self.number, self.basis, coarse, fine, first, past), len(self.number)
        )
        return fine


class LocalBases(NamedTuple):
    """Aggregates with their bases, and the near-null vectors in these bases."""

    aggregates: Aggregates
    candidates: Float64
    """(n_columns, c) near-null vectors of the next level."""
    shares: Float64
    """(aggregates, 3) shares of their variance in the first one, two and three directions of an aggregate."""


def find_aggregates(matrix: csr_array, node_rows: int, max_nodes: int, width: int) -> tuple[Ints, Ints, Ints]:
    """(number, starts, rows) of ``Aggregates`` for a matrix whose nodes are ``node_rows`` successive rows."""
    min_nodes = least_nodes(node_rows, max_nodes, width)
    return ordered(np.repeat(aggregate(matrix.indptr, matrix.indices, node_rows, max_nodes, min_nodes), node_rows))


def least_nodes(node_rows: int, max_nodes: int, width: int) -> int:
    """Nodes below which an aggregate joins a neighbour."""
    return max(-(-width // node_rows), int(max_nodes * LEAST_SHARE))


def ordered(number: Ints) -> tuple[Ints, Ints, Ints]:
    """(number, starts, rows) of ``Aggregates`` from the aggregate of each row."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(number))])
    return number, starts, np.argsort(number, kind="stable").astype(np.int32)


def find_bases(number: Ints, starts: Ints, rows: Ints, candidates: Float64, width: int, threads: Threads) -> LocalBases:
    """Orthonormal bases of ``width`` vectors on the aggregates, for near-null vectors ``candidates`` (n, c)."""
    n_aggregates = len(starts) - 1
    basis = np.empty((len(number), width), np.float32)
    coarse = np.empty((n_aggregates * width, candidates.shape[1]))
    shares = np.ones((n_aggregates, 3))
    threads.each(
        lambda first, past: local_bases(starts, rows, candidates, width, basis, coarse, shares, first, past),
        n_aggregates,
        AGGREGATES_AT_ONCE,
    )
    return LocalBases(Aggregates(number, starts, rows, basis, threads), coarse, shares)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def aggregate(indptr: Ints, indices: Ints, width: int, max_nodes: int, min_nodes: int) -> Int32:
    """Aggregate number of each node (n,), numbered in the order of their first nodes.

    A node is ``width`` successive rows; its neighbours are the nodes in the pattern of its first row. The first node
    without an aggregate starts one, which grows breadth first through nodes without an aggregate up to ``max_nodes``.
    An aggregate that stays below ``min_nodes`` joins the first one next to it.
    """
    n = (len(indptr) - 1) // width
    number = np.full(n, -1, np.int32)
    members = np.empty(max_nodes, np.int64)
    sizes = np.zeros(n, np.int64)
    n_aggregates = 0
    for first in range(n):
        if number[first] >= 0:
            continue
        members[0], used, done, near = first, 1, 0, -1
        number[first] = n_aggregates
        while done < used:
            row = members[done] * width
            done += 1
            for entry in range(indptr[row], indptr[row + 1]):
                node = indices[entry] // width
                if number[node] < 0 and used < max_nodes:
                    number[node] = n_aggregates
                    members[used] = node
                    used += 1
                elif number[node] >= 0 and number[node] != n_aggregates and near < 0:
                    near = number[node]
        if used < min_nodes and near >= 0:
            for member in range(used):
                number[members[member]] = near
            sizes[near] += used
        else:
            sizes[n_aggregates] = used
            n_aggregates += 1
    return number


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def local_bases(
    starts: Ints,
    rows: Ints,
    candidates: Float64,
    width: int,
    basis: F32,
    coarse: Float64,
    shares: Float64,
    first: int,
    past: int,
) -> None:
    """Orthonormal bases of the near-null vectors on the aggregates ``first`` to ``past``.

    The basis of an aggregate holds the first near-null vector and the ``width`` - 1 leading principal directions of the
    others.

    Args:
        starts: (aggregates + 1,) positions in ``rows``.
        rows: rows of the matrix, ordered by aggregate.
        candidates: (n, c) near-null vectors.
        width: columns q of a basis; no aggregate has fewer rows.
        basis: (n, q), written: row i holds the basis vectors of its aggregate at i.
        coarse: (q aggregates, c), written: the near-null vectors in these bases.
        shares: (aggregates, 3), written: shares of the variance in the first one, two and three principal directions.
        first: first aggregate.
        past: last aggregate plus 1.
    """
    n_others = candidates.shape[1] - 1
    for aggregate in range(first, past):
        members = rows[starts[aggregate] : starts[aggregate + 1]]
        local = np.empty((len(members), candidates.shape[1]))
        for i in range(len(members)):
            local[i] = candidates[members[i]]
        block = np.zeros((len(members), width))
        length = np.sqrt((local[:, 0] ** 2).sum())
        block[:, 0] = 1.0
        if length > 0.0:
            block[:, 0] = local[:, 0] / length
        if n_others:
            others = np.ascontiguousarray(local[:, 1:])
            main = np.ascontiguousarray(block[:, 0])
            main /= np.sqrt((main**2).sum())
            others -= np.outer(main, main @ others)
            left, singular, _ = np.linalg.svd(others, full_matrices=False)
            total = (singular**2).sum()
            for d in range(3):
                shares[aggregate, d] = (singular[: d + 1] ** 2).sum() / total if total > 0.0 else 1.0
            for d in range(min(width - 1, left.shape[1])):
                block[:, d + 1] = left[:, d]
        if width > 1:
            # Householder reflections complete a basis also where the directions are dependent
            columns, _ = np.linalg.qr(block)
        else:
            columns = block / np.sqrt((block**2).sum())
        for i in range(len(members)):
            for d in range(width):
                basis[members[i], d] = columns[i, d]
        coarse[aggregate * width : (aggregate + 1) * width] = np.ascontiguousarray(columns.T) @ local


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def restrict_rows(starts: Ints, rows: Ints, basis: F32, fine: Floats, coarse: Floats, first: int, past: int) -> None:
    """coarse = P0' fine for the aggregates ``first`` to ``past``; P0 has the bases of ``local_bases``."""
    width = basis.shape[1]
    for aggregate in range(first, past):
        for d in range(width):
            coarse[aggregate * width + d] = 0.0
        for position in range(starts[aggregate], starts[aggregate + 1]):
            i = rows[position]
            for d in range(width):
                for c in range(fine.shape[1]):
                    coarse[aggregate * width + d, c] += basis[i, d] * fine[i, c]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def prolong_rows(number: Ints, basis: F32, coarse: Floats, fine: Floats, first: int, past: int) -> None:
    """fine = P0 coarse for the rows ``first`` to ``past``; ``number`` (n,) is the aggregate of each row."""
    width = basis.shape[1]
    for i in range(first, past):
        for c in range(fine.shape[1]):
            fine[i, c] = 0.0
        for d in range(width):
            for c in range(fine.shape[1]):
                fine[i, c] += basis[i, d] * coarse[number[i] * width + d, c]

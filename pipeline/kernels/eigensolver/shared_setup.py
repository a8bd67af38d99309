"""Levels of multigrid whose rows lie in several processes. Aggregates lie within a cut, so P0 needs no exchange."""

import numpy as np
from scipy.sparse import csr_array, eye_array

from ...core.arrays import Bools, Float64, Ints
from .aggregation import Aggregates, aggregate, least_nodes, ordered
from .rows import Rows
from .shared_matrix import Halo, Numbering, SharedMatrix
from .smoother import Smoother
from .threads import Threads


def aggregates_by_cut(matrix: SharedMatrix, node_rows: int, max_nodes: int, width: int) -> tuple[Ints, Ints, Ints]:
    """As ``aggregation.find_aggregates``, for the rows of this process, without edges between cuts.

    A group of a cut with fewer rows than ``width`` joins the aggregate before it: most of its edges lead to other cuts.
    """
    numbers, n_aggregates = list[Ints](), 0
    min_nodes = least_nodes(node_rows, max_nodes, width)
    for first, past in matrix.rows.cuts(matrix.local.indptr):
        indptr, indices = _pattern_inside(matrix, first, past)
        number = _without_small(aggregate(indptr, indices, node_rows, max_nodes, min_nodes), -(-width // node_rows))
        numbers.append(number + n_aggregates)
        n_aggregates += int(number.max()) + 1
    return ordered(np.repeat(np.concatenate(numbers), node_rows))


def _pattern_inside(matrix: SharedMatrix, first: int, past: int) -> tuple[Ints, Ints]:
    """(indptr, indices) of the entries whose row and column are both in one cut, numbered from its first row."""
    rows, before = matrix.local[first:past], matrix.halo.n_before
    inside: Bools = (rows.indices >= before + first) & (rows.indices < before + past)
    indptr = np.concatenate([[0], np.cumsum(inside)])[rows.indptr]
    return indptr, rows.indices[inside] - np.int32(before + first)


def _without_small(number: Ints, least: int) -> Ints:
    """The numbers (nodes,) of aggregates, after each one of fewer than ``least`` nodes has joined the one before it."""
    large = np.flatnonzero(np.bincount(number) >= least)
    if not large.size:
        return np.zeros_like(number)
    return np.maximum(np.searchsorted(large, number, side="right") - 1, 0).astype(np.int32)


def coarse_rows(matrix: SharedMatrix, aggregates: Aggregates, smoother: Smoother, threads: Threads) -> SharedMatrix:
    """R B P as in ``multigrid``: the rows of the aggregates of this process."""
    rows = _rows_below(matrix, aggregates)
    own, columns = _product(matrix, aggregates, smoother, threads, rows)
    own.sort_indices()
    indices = columns.numbers[own.indices]
    return SharedMatrix.from_rows(rows, csr_array((own.data, indices, own.indptr), shape=(own.shape[0], rows.n)))


def sampled_entries(
    matrix: SharedMatrix, aggregates: Aggregates, smoother: Smoother, threads: Threads, step: int
) -> float:
    """Entries of R B P0, estimated from one of ``step`` rows; only the rows of (I - omega B) P0 that these need."""
    rows, halo, b = _rows_below(matrix, aggregates), matrix.halo, matrix.local
    sample = np.concatenate([np.arange(first, past, step) for first, past in rows.own_cuts])
    near, p0 = _numbered(halo.extended_rows(_with_columns(aggregates.matrix(), rows)), rows)
    part = csr_array(csr_array(aggregates.matrix().T.tocsr())[sample] @ b)
    needed = Halo(matrix.rows, halo.numbering.numbers[part.indices])
    used = np.unique(np.concatenate([part.indices - halo.n_before, needed.sent]))
    used = used[(used >= 0) & (used < matrix.rows.n_own)]
    product = threads.by_rows(lambda part: csr_array(part @ p0), _smoothing(matrix, smoother.omega_r)[used])
    indptr = np.zeros(matrix.rows.n_own + 1, np.int64)
    indptr[used + 1] = np.diff(product.indptr)
    own = csr_array((product.data, near.numbers[product.indices], np.cumsum(indptr)), shape=(len(indptr) - 1, rows.n))
    part = csr_array((part.data, halo.numbering.numbers[part.indices], part.indptr), shape=(len(sample), matrix.rows.n))
    entries = csr_array(needed.numbering.renumbered(part) @ needed.extended_rows(own)).nnz
    return rows.total(entries) * rows.n / rows.total(len(sample))


def _product(
    matrix: SharedMatrix, aggregates: Aggregates, smoother: Smoother, threads: Threads, rows: Rows
) -> tuple[csr_array, Numbering]:
    """(R B P for the rows of this process, numbers of its columns); ``rows`` are those of the next level."""
    halo, b, omega = matrix.halo, matrix.local, max(smoother.omega_r, smoother.omega_p)
    p0_rows = csr_array(aggregates.matrix().T.tocsr())
    near, p = _numbered(halo.extended_rows(_with_columns(aggregates.matrix(), rows)), rows)
    if omega:
        smoothing = _smoothing(matrix, omega)
        p = threads.by_rows(lambda part: csr_array(part @ p), smoothing)
        own_p = csr_array((p.data, near.numbers[p.indices], p.indptr), shape=(p.shape[0], rows.n))
    if not (smoother.omega_r and smoother.omega_p):
        if omega:
            near, p = _numbered(halo.extended_rows(own_p), rows)
        return threads.by_rows(lambda part: csr_array((part @ b) @ p), p0_rows), near
    near_b = halo.extended_rows(matrix.global_rows())
    far = Halo(matrix.rows, near_b.indices)
    near_b = far.numbering.renumbered(near_b)
    near, p = _numbered(far.extended_rows(own_p), rows)
    own_p = b[:0]  # the matrices of the finest level need most of the memory
    return threads.by_rows(lambda part: csr_array((part @ smoothing @ near_b) @ p), p0_rows), near


def _smoothing(matrix: SharedMatrix, omega: float) -> csr_array:
    """The rows of I - omega B of this process; their columns are the rows of the halo."""
    b = matrix.local
    identity = eye_array(b.shape[0], b.shape[1], k=matrix.halo.n_before, dtype=b.dtype, format="csr")
    return csr_array(identity - b.dtype.type(omega) * b)


def _with_columns(p0: csr_array, rows: Rows) -> csr_array:
    """P0 (own, own coarse rows) with all coarse ``rows`` as columns."""
    number = np.int32 if rows.n <= np.iinfo(np.int32).max else np.int64
    return csr_array((p0.data, p0.indices + number(rows.start), p0.indptr), shape=(p0.shape[0], rows.n))


def _numbered(matrix: csr_array, rows: Rows) -> tuple[Numbering, csr_array]:
    """The columns of a matrix (any, coarse rows) that have an entry or are own, and the matrix with these columns."""
    numbering = Numbering(rows.start, rows.stop, matrix.indices)
    return numbering, numbering.renumbered(matrix)


def _rows_below(matrix: SharedMatrix, aggregates: Aggregates) -> Rows:
    """The rows of the next level: the cuts are those of this level."""
    width, rows = aggregates.basis.shape[1], matrix.rows
    counts = [int(aggregates.number[first:past].max()) + 1 for first, past in rows.cuts(aggregates.number)]
    sizes = np.concatenate(rows.group.gather(np.diff([0, *counts]) * width))
    return Rows(rows.group, np.concatenate([[0], np.cumsum(sizes)]), rows.first_cuts)


def normalised_rows(matrix: SharedMatrix, least: float, tiny: float) -> tuple[SharedMatrix, Float64]:
    """As ``multigrid.normalised``, with the bounds MIN_DIAGONAL and TINY."""
    local, before = matrix.local, matrix.halo.n_before
    diagonal = np.abs(local.diagonal(before).astype(np.float64))
    for part in (matrix.T.local, local):
        squares = csr_array((np.square(part.data, dtype=np.float64), part.indices, part.indptr), shape=part.shape)
        diagonal = np.maximum(diagonal, least * np.sqrt(np.asarray(squares.sum(axis=1)).ravel()))
    diagonal[diagonal <= tiny] = 1.0
    scale = 1 / np.sqrt(diagonal)
    scaled, transposed = (_scaled(each, scale) for each in (matrix, matrix.T))
    return SharedMatrix(matrix.rows, matrix.halo, scaled.local, transposed), scale


def _scaled(matrix: SharedMatrix, scale: Float64) -> SharedMatrix:
    """S B S with the diagonal matrix ``scale`` (own,)."""
    local = matrix.local
    factors = scale.astype(local.dtype)
    data = np.repeat(factors, np.diff(local.indptr))
    data *= matrix.halo.extended(factors)[local.indices]
    data *= local.data
    return matrix.with_data(data)

"""The cost matrix M, summed by blocks of rows from the contributions of single points.

Every method of the family has M = F' F = sum_i f_i f_i' with a sparse factor F. A row of F has entries for one point
and its neighbours only. For LLE, F = A = I - W (Roweis & Saul 2000, Science 290, eq. 3). Only ``local_factor`` is
specific to LLE; the rest works on any F with n_points columns.

A block of source rows of F contributes to few rows of M. So its contribution is stored in compact form
(``RowContribution``), split by destination block, and summed there. All sums run over source rows in ascending order,
for (i, j) as for (j, i). So M is symmetric bit for bit and does not depend on the size of the destination blocks.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, get_index_dtype

from ...core.arrays import Float64, Int32, Int64, Ints

TABLE_SHARE = 4
"""Largest table for renumbering, in entries per id. It limits the memory and changes no result."""

DENSE_SHARE, DENSE_ROWS = 4, 512
"""A factor of at least so many rows with more than this part of all entries is multiplied as a dense matrix."""


class RowContribution(NamedTuple):
    """The rows with entries of a sum of f_i f_i', in compressed form (r rows, m entries)."""

    rows: Ints
    """(r,) global row ids, ascending."""
    indptr: Ints
    """(r + 1,) row s holds entries indptr[s] to indptr[s + 1]."""
    indices: Ints
    """(m,) global column ids, ascending and distinct within a row."""
    data: Float64
    """(m,) values."""


def local_factor(indices: Ints, weights: Float64, first_row: int, n_points: int) -> csr_array:
    """Rows first_row, ..., first_row + B - 1 of A = I - W as a (B, n_points) matrix with sorted columns.

    Args:
        indices: (B, K) distinct neighbour ids other than the point's, -1 in empty slots; empty slots give no entry.
        weights: (B, K) reconstruction weights.
        first_row: id of the first of the B points.
        n_points: number of columns.
    """
    n_rows, n_slots = indices.shape
    dtype = get_index_dtype(maxval=max(n_points, n_rows * (n_slots + 1)))
    own_ids = np.arange(first_row, first_row + n_rows, dtype=dtype)[:, None]
    # Empty slots get the column n_points, which is sorted after all real columns.
    columns = np.hstack([own_ids, np.where(indices < 0, n_points, indices).astype(dtype)])
    values = np.hstack([np.ones((n_rows, 1)), -weights])
    order = np.argsort(columns, axis=1)
    columns = np.take_along_axis(columns, order, axis=1)
    used = columns < n_points
    indptr = np.zeros(n_rows + 1, dtype=dtype)
    np.cumsum(used.sum(axis=1), out=indptr[1:])
    data = np.take_along_axis(values, order, axis=1)[used]
    return csr_array((data, columns[used], indptr), shape=(n_rows, n_points))


def gram_contributions(factor: csr_array, max_entries: int) -> Iterator[RowContribution]:
    """F' F of a block of source rows F (B, n_points), in runs of consecutive rows; rows without entries are skipped.

    A run has at least one row, and otherwise at most ``max_entries`` entries by an upper bound: each row of F' F counts
    the entries of all rows of F that contribute to it, up to the number of columns with entries. Entries at one
    position are already summed. The work is done on renumbered columns, so no matrix with n_points rows is created.
    """
    if not factor.nnz:
        return
    touched, compact = _renumber(factor.indices)
    n_points = factor.shape[1]
    rows: Ints = touched.astype(get_index_dtype(maxval=n_points))
    local = csr_array((factor.data, compact, factor.indptr), shape=(factor.shape[0], len(touched)))
    transposed = local.T.tocsr()
    dense = None
    if DENSE_SHARE * local.nnz >= local.shape[0] * local.shape[1] and local.shape[0] >= DENSE_ROWS:
        entries = local.toarray()
        dense = entries.T @ entries  # as one symmetric product
    lengths = np.diff(local.indptr).astype(np.int64)
    counts = np.add.reduceat(lengths[transposed.indices], transposed.indptr[:-1])
    cuts = cut_rows(np.minimum(counts, len(touched)), max_entries)
    for first, past in pairwise(cuts):
        # SciPy's product adds the terms of an entry in ascending order of the source rows.
        product = transposed[first:past] @ local if dense is None else csr_array(dense[first:past])
        product.sort_indices()
        indptr: Ints = product.indptr.astype(get_index_dtype(maxval=max(n_points, int(product.nnz))))
        yield RowContribution(rows[first:past], indptr, rows[product.indices], product.data)


def cut_rows(counts: Int64, max_entries: int) -> list[int]:
    """Boundaries of runs of consecutive rows that have at most ``max_entries`` entries each, or consist of one row.

    >>> cut_rows(np.array([2, 2, 9, 1, 1]), 4)
    [0, 2, 3, 5]
    """
    cuts, sums = [0], counts.cumsum()
    while cuts[-1] < len(sums):
        n_before = int(sums[cuts[-1] - 1]) if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(sums, n_before + max_entries, side="right"))))
    return cuts


def split_by_rows(contribution: RowContribution, block_points: int) -> dict[int, RowContribution]:
    """Split a contribution at the multiples of block_points: {destination block: its rows}, without empty blocks.

    Row and column ids stay global. The pieces are views if possible.
    """
    blocks = np.unique(contribution.rows // block_points).tolist()
    return {block: rows_between(contribution, block * block_points, (block + 1) * block_points) for block in blocks}


def rows_between(contribution: RowContribution, row_start: int, row_stop: int) -> RowContribution:
    """The rows row_start to row_stop - 1 of a contribution, as views if possible."""
    rows, indptr, indices, data = contribution
    start, stop = np.searchsorted(rows, [row_start, row_stop])
    entries = slice(int(indptr[start]), int(indptr[stop]))
    return RowContribution(rows[start:stop], indptr[start : stop + 1] - indptr[start], indices[entries], data[entries])


def merge_contributions(
    contributions: Sequence[RowContribution], row_start: int, row_stop: int, n_points: int
) -> csr_array:
    """Rows row_start to row_stop of M, (row_stop - row_start, n_points), columns sorted.

    Needs about three times the memory of the pieces, for any n_points: columns are renumbered, because SciPy's sparse
    product uses a work array with one entry for each column.

    Args:
        contributions: pieces of this destination block **in the order of their source blocks**; this order fixes
            the order of the additions.
        row_start, row_stop: the destination block, which has all rows of the pieces.
        n_points: number of columns.
    """
    shape = (row_stop - row_start, n_points)
    if not contributions:
        return csr_array(shape, dtype=np.float64)
    rows = np.concatenate([piece.rows for piece in contributions])
    touched, stacked = _stack(contributions)
    # Row r of M is the sum of the stacked rows with id r: a product with a 0/1 matrix. SciPy adds the terms in the
    # order of the stacked rows, which is the order of the sources. (Sorting COO entries would not keep that order.)
    dtype = stacked.indptr.dtype
    order = np.argsort(rows, kind="stable")
    indptr = np.searchsorted(rows[order], np.arange(row_start, row_stop + 1)).astype(dtype)
    selection = csr_array((np.ones(len(rows)), order.astype(dtype), indptr), shape=(shape[0], len(rows)))
    merged = selection @ stacked
    merged.sort_indices()
    ids = get_index_dtype(maxval=max(n_points, merged.nnz))
    return csr_array((merged.data, touched.astype(ids)[merged.indices], merged.indptr.astype(ids)), shape=shape)


def merge_row(contributions: Iterable[RowContribution], n_points: int) -> csr_array:
    """The sum of contributions to one row of M, (1, n_points): as ``merge_contributions``, bit for bit.

    Needs 29 bytes for each column (33 with ids of 64 bits) and the memory of one piece, whatever the number of pieces.
    """
    sums, present = np.zeros(n_points), np.zeros(n_points, np.bool_)
    for piece in contributions:
        sums[piece.indices] += piece.data  # the column ids of a piece are distinct
        present[piece.indices] = True
    columns = np.flatnonzero(present)
    ids = get_index_dtype(maxval=n_points)
    return csr_array((sums[columns], columns.astype(ids), np.array([0, len(columns)], ids)), shape=(1, n_points))


def _stack(contributions: Sequence[RowContribution]) -> tuple[Ints, csr_array]:
    """Stack the pieces: (distinct columns ascending, matrix with one row for each row of a piece, on these columns)."""
    lengths = np.concatenate([np.diff(piece.indptr) for piece in contributions])
    n_entries = int(lengths.sum())
    dtype = get_index_dtype(maxval=max(n_entries, len(lengths)))
    indptr = np.zeros(len(lengths) + 1, dtype=dtype)
    np.cumsum(lengths, out=indptr[1:])
    touched, position = _renumber(np.concatenate([piece.indices for piece in contributions]))
    data = np.concatenate([piece.data for piece in contributions])
    return touched, csr_array((data, position.astype(dtype, copy=False), indptr), shape=(len(lengths), len(touched)))


def _renumber(ids: Ints) -> tuple[Ints, Int32]:
    """(distinct ids ascending, position of each id among them).

    If the range of ids is at most TABLE_SHARE times their number, a table is used: 5 times faster than sorting.
    """
    if not ids.size:
        return ids, np.zeros(0, dtype=np.int32)
    lowest = ids.min()
    if int(ids.max()) - int(lowest) > TABLE_SHARE * ids.size:
        distinct, inverse = np.unique(ids, return_inverse=True)
        return distinct, inverse.astype(np.int32)
    shifted = ids - lowest
    present = np.zeros(int(shifted.max()) + 1, dtype=np.bool_)
    present[shifted] = True
    distinct = np.flatnonzero(present)
    position = np.empty(len(present), dtype=np.int32)
    position[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct + lowest, position[shifted]

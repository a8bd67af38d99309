"""The sparse factor F: local rows of single points, stacked, or for large K a factor of the sum of their products.

A point with K neighbours has nearly K rows of K entries in F for ltsa, hessian and modified, so F takes n K^2 entries,
and its product n K^3 operations. But the points of a group share most of their neighbours. If K is large, their local
matrices are added to one dense matrix over the T points of all these neighbourhoods, and its Cholesky factor, with at
most T rows, replaces their rows of F. The sum is rounded, by about 1e-16 of its largest eigenvalue. The smallest
eigenvalues of M are far above that if neighbourhoods are large.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.sparse import csr_array, get_index_dtype

from ...core.arrays import Bools, Float64, Int64, Ints
from ..batches import batches

LARGE = 48
"""From this number of neighbours on local matrices are added; with fewer, rows of F are as fast and more accurate."""
GROUP_POINTS = 2048
MAX_COLUMNS = 4096
"""Largest T, which bounds the memory of a group: MATRIX_BYTES for each entry of a (T, T) matrix."""
MATRIX_BYTES = 32


class LocalRows(NamedTuple):
    """Rows of F for points whose neighbourhoods have the same size (b points, R rows each, C ids)."""

    points: Ints
    """(b,) position of each point in its block."""
    columns: Ints
    """(b, C) global ids of the neighbourhood of each point, distinct in each row."""
    values: Float64
    """(b, R, C) entries of the rows."""
    used: Bools
    """(b, R) which rows are part of F."""


def batches_of_equal_size(ids: Int64, n_features: int) -> Iterator[tuple[Int64, Int64]]:
    """Batches of lists (b, K), -1 in empty slots, with the same number c of ids: (positions (g,), ids (g, c)).

    >>> lists = np.array([[4, 7], [-1, 5], [9, 8]])
    >>> [(rows.tolist(), ids.tolist()) for rows, ids in batches_of_equal_size(lists, 3)]
    [([1], [[5]]), ([0, 2], [[4, 7], [9, 8]])]
    """
    ids = np.take_along_axis(ids, np.argsort(ids < 0, axis=1, kind="stable"), axis=1)
    counts = (ids >= 0).sum(axis=1)
    for count in np.unique(counts).tolist():
        rows = np.flatnonzero(counts == count)
        for part in batches(len(rows), 8 * max(count, 1) * (2 * n_features + 5 * count)):
            yield rows[part], ids[rows[part], :count]


def stack_rows(parts: Sequence[LocalRows], n_block: int, n_points: int) -> csr_array:
    """All rows as one matrix (rows, n_points), columns sorted. Rows are ordered by point, then as in its local rows.

    Args:
        parts: local rows; each of the ``n_block`` points of the block is in at most one part.
    """
    counts, lengths = np.zeros(n_block, np.int64), np.zeros(n_block, np.int64)
    for part in parts:
        counts[part.points] = part.used.sum(axis=1)
        lengths[part.points] = part.columns.shape[1]
    first = np.concatenate([[0], np.cumsum(counts)])
    entries = np.concatenate([[0], np.cumsum(np.repeat(lengths, counts))])
    dtype = get_index_dtype(maxval=max(n_points, int(entries[-1])))
    indices, data = np.empty(entries[-1], dtype), np.empty(entries[-1])
    for part in parts:
        order = np.argsort(part.columns, axis=1)
        columns = np.take_along_axis(part.columns, order, axis=1)
        values = np.take_along_axis(part.values, order[:, None, :], axis=2)
        point, row = np.nonzero(part.used)
        rank = np.cumsum(part.used, axis=1)[point, row] - 1
        at = entries[first[part.points[point]] + rank][:, None] + np.arange(columns.shape[1])
        indices[at], data[at] = columns[point], values[point, row]
    return csr_array((data, indices, entries.astype(dtype)), shape=(int(first[-1]), n_points))


def group_points(n_neighbors: int, n_block: int) -> int:
    """Points of a group in a block of n_block points with up to n_neighbors neighbours."""
    return min(GROUP_POINTS, n_block) if n_neighbors >= LARGE else n_block


def group_bytes(n_neighbors: int, n_points: int) -> int:
    """Bytes of the dense matrices of a group; 0 if none is made."""
    return MATRIX_BYTES * min(n_points, MAX_COLUMNS) ** 2 if n_neighbors >= LARGE else 0


def always_added(n_neighbors: int, n_points: int, n_block: int) -> bool:
    """Whether matrices are added for any lists of n_neighbors neighbours, in blocks of n_block points."""
    fewest = n_block % GROUP_POINTS or GROUP_POINTS
    return n_neighbors >= LARGE and n_points <= MAX_COLUMNS and n_points**2 <= 2 * fewest * n_neighbors**2


def columns_to_add(ids: Ints, n_entries: int) -> Ints | None:
    """The distinct ids (T,) of a group (b, K), -1 in empty slots; None if its n_entries of F need less memory."""
    if ids.shape[1] < LARGE:
        return None
    columns = np.unique(ids[ids >= 0])
    return columns if len(columns) <= MAX_COLUMNS and len(columns) ** 2 <= 2 * n_entries else None


def root_of_sum(parts: Iterable[LocalRows], columns: Ints, n_points: int) -> csr_array:
    """R (at most T, n_points) with R'R the sum of the products F_i' F_i of local rows, columns sorted.

    Args:
        parts: local rows.
        columns: (T,) ascending ids, which include all neighbourhoods.
        n_points: number of columns of R.
    """
    size = len(columns)
    total = np.zeros((size, size))
    flat = total.reshape(-1)
    upper = np.triu_indices(0)
    for part in parts:
        if upper[0].size != part.columns.shape[1] * (part.columns.shape[1] + 1) // 2:
            upper = np.triu_indices(part.columns.shape[1])
        rows = part.values * part.used[:, :, None]
        for members, matrix in zip(np.searchsorted(columns, part.columns), rows.transpose(0, 2, 1) @ rows, strict=True):
            a, b = members[upper[0]], members[upper[1]]
            flat[np.minimum(a, b) * size + np.maximum(a, b)] += matrix[upper]
    factor, pivots, rank, _ = dpstrf(total, lower=0)
    del total, flat
    rows = np.zeros((rank, size))
    rows[:, pivots - 1] = np.triu(factor[:rank])
    root = csr_array(rows)
    ids_dtype = get_index_dtype(maxval=max(n_points, root.nnz))
    return csr_array(
        (root.data, columns.astype(ids_dtype)[root.indices], root.indptr.astype(ids_dtype)), shape=(rank, n_points)
    )

"""Stack the local rows of single points to a sparse factor F."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ...core.arrays import Bools, Float64, Int64, Ints
from .cost_matrix import index_dtype


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


def groups_of_equal_size(ids: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Divide the rows of lists (b, K), -1 in empty slots, by their number c of ids: (positions (g,), ids (g, c)).

    >>> [(rows.tolist(), ids.tolist()) for rows, ids in groups_of_equal_size(np.array([[4, 7], [-1, 5], [9, 8]]))]
    [([1], [[5]]), ([0, 2], [[4, 7], [9, 8]])]
    """
    ids = np.take_along_axis(ids, np.argsort(ids < 0, axis=1, kind="stable"), axis=1)
    counts = (ids >= 0).sum(axis=1)
    for count in np.unique(counts).tolist():
        rows = np.flatnonzero(counts == count)
        yield rows, ids[rows, :count]


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
    dtype = index_dtype(n_points, int(entries[-1]))
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

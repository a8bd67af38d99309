"""A factor of the summed local matrices of a group of points, for large neighbourhoods.

A point with K neighbours has nearly K rows of K entries in F for ltsa, hessian and modified, so F takes n K^2 entries,
and its product n K^3 operations. But the points of a group share most of their neighbours. If K is large, their local
matrices are added to one dense matrix over the T points of all these neighbourhoods, and its Cholesky factor, with at
most T rows, replaces their rows of F. The sum is rounded, by about 1e-16 of its largest eigenvalue. The smallest
eigenvalues of M are far above that if neighbourhoods are large.
"""

from collections.abc import Iterable

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.sparse import csr_array

from ...core.arrays import Float64, Ints
from .cost_matrix import index_dtype

LARGE = 48
"""From this number of neighbours on local matrices are added; with fewer, rows of F are as fast and more accurate."""
GROUP_POINTS = 2048
MAX_COLUMNS = 4096
"""Largest T, which bounds the memory of a group: MATRIX_BYTES for each entry of a (T, T) matrix."""
MATRIX_BYTES = 32


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
    """The distinct ids (T,) of neighbourhoods (b, K), -1 in empty slots; None if rows of F need less memory.

    Args:
        ids: neighbourhoods of a group.
        n_entries: entries of its rows of F.
    """
    if ids.shape[1] < LARGE:
        return None
    columns = np.unique(ids[ids >= 0])
    return columns if len(columns) <= MAX_COLUMNS and len(columns) ** 2 <= 2 * n_entries else None


def root_of_sum(matrices: Iterable[tuple[Ints, Float64]], columns: Ints, n_points: int) -> csr_array:
    """R (at most T, n_points) with R'R the sum of local matrices, columns sorted.

    Args:
        matrices: batches of neighbourhoods (b, C) and their symmetric positive semidefinite matrices (b, C, C).
        columns: (T,) ascending ids, which include all neighbourhoods.
        n_points: number of columns of R.
    """
    size = len(columns)
    total = np.zeros((size, size))
    flat = total.reshape(-1)
    upper = np.triu_indices(0)
    for ids, values in matrices:
        if upper[0].size != ids.shape[1] * (ids.shape[1] + 1) // 2:
            upper = np.triu_indices(ids.shape[1])
        for members, matrix in zip(np.searchsorted(columns, ids), values, strict=True):
            a, b = members[upper[0]], members[upper[1]]
            flat[np.minimum(a, b) * size + np.maximum(a, b)] += matrix[upper]
    factor, pivots, rank, _ = dpstrf(total, lower=0)
    del total, flat
    rows = np.zeros((rank, size))
    rows[:, pivots - 1] = np.triu(factor[:rank])
    root = csr_array(rows)
    ids_dtype = index_dtype(n_points, root.nnz)
    return csr_array(
        (root.data, columns.astype(ids_dtype)[root.indices], root.indptr.astype(ids_dtype)), shape=(rank, n_points)
    )

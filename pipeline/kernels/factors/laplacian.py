"""Local factors of Laplacian eigenmaps: one row for each edge of the neighbour graph.

Belkin & Niyogi 2003 (Neural Computation 15, 1373-1396): two points are linked if one of them is a neighbour of the
other. The weight is exp(-d^2 / t) (heat kernel) or 1. The coordinates solve L f = lambda D f with L = D - W.

With f = D^-1/2 v this is the symmetric eigenproblem of D^-1/2 L D^-1/2 = F' F, where an edge {i, j} of weight w gives
the row sqrt(w) (e_i / sqrt(d_i) - e_j / sqrt(d_j)). Its null vector is D^1/2 1, not the constant.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, get_index_dtype

from ...core.arrays import Float64, Ints

LARGEST_EXPONENT = -float(np.log(np.finfo(np.float64).eps))
"""Largest d^2 / t of `heat_scale`: 36. A smaller weight is lost beside a weight of 1."""


def heat_scale(mean: float, largest: float) -> float:
    """The default t of the heat kernel, from the mean and the largest squared distance of neighbours: the mean.

    It is larger if the weight of the longest edge would be rounded away: far points could lose all of their edges.

    >>> heat_scale(2.0, 50.0), round(heat_scale(2.0, 720.87), 2)
    (2.0, 20.0)
    """
    return max(mean, largest / LARGEST_EXPONENT)


class LaplacianEdges(NamedTuple):
    """Undirected edges, three arrays (e,)."""

    rows: Ints
    """The point that owns the edge; the edge is stored in its block."""
    neighbors: Ints
    weights: Float64


def own_edges(rows: Ints, indices: Ints, squared: Float64, lists: Ints, t: float | None) -> LaplacianEdges:
    """The edges that the given points own. Each edge {i, j} has one owner: the point that lists the other as neighbour.

    If both points list each other, the lower id is the owner.

    Args:
        rows: (B,) ids of the points.
        indices: (B, K) their neighbours, -1 in empty slots.
        squared: (B, K) squared distances.
        lists: (B, K, K) the neighbours of these neighbours; the content for empty slots is ignored.
        t: scale of the heat kernel exp(-d^2 / t), in squared input units; None for weights of 1.
    """
    mutual = (lists == rows[:, None, None]).any(axis=2)
    owned = (indices >= 0) & (~mutual | (rows[:, None] < indices))
    at, slot = np.nonzero(owned)
    distances = squared[at, slot]
    weights = np.ones(len(at)) if t is None else np.exp(-distances / t)
    return LaplacianEdges(rows[at], indices[at, slot].astype(np.int64), weights)


def edge_factor(edges: LaplacianEdges, row_degrees: Float64, neighbor_degrees: Float64, n_points: int) -> csr_array:
    """Rows of F (e, n_points), one for each edge, columns sorted; the degrees (e,) are those of the ends of an edge."""
    length = np.sqrt(edges.weights)
    values = np.column_stack([length / np.sqrt(row_degrees), -length / np.sqrt(neighbor_degrees)])
    columns = np.column_stack([edges.rows, edges.neighbors])
    is_descending = columns[:, 0] > columns[:, 1]
    columns[is_descending], values[is_descending] = columns[is_descending, ::-1], values[is_descending, ::-1]
    dtype = get_index_dtype(maxval=max(n_points, columns.size))
    indptr = np.arange(0, columns.size + 1, 2, dtype=dtype)
    return csr_array((values.ravel(), columns.ravel().astype(dtype), indptr), shape=(len(columns), n_points))


def partial_degrees(edges: LaplacianEdges) -> tuple[Ints, Float64]:
    """Sums of edge weights at each point: (distinct ids ascending (i,), their contributions to the degrees (4, i)).

    The degree is the sum of the four rows. The first three hold the bits of the weights down to 2^-30, 2^-60 and 2^-90:
    their sums over up to eight million edges are exact, so they do not depend on the order of edges and blocks.
    """
    ids, positions = np.unique(np.concatenate([edges.rows, edges.neighbors]), return_inverse=True)
    rest, sums = edges.weights, np.empty((4, len(ids)))
    for row, bits in enumerate((30, 60, 90, None)):
        part = rest if bits is None else np.ldexp(np.floor(np.ldexp(rest, bits)), -bits)
        sums[row] = np.bincount(positions, np.tile(part, 2), minlength=len(ids))
        rest = rest - part
    return ids, sums


def degrees(sums: Float64) -> Float64:
    """Degrees (i,) from summed contributions (4, i), the smallest added first."""
    return np.asarray(((sums[3] + sums[2]) + sums[1]) + sums[0])

"""Connectivity of the neighbour graph, which has an edge i -> j if j is in the list of i.

Rows of W sum to 1, so the null space of I - W is that of a Markov chain on the same graph. Its dimension is the number
of closed classes (strongly connected components that no edge leaves), not of undirected components (Kemeny & Snell
1976, Finite Markov Chains, chapter 2). A point outside all closed classes is transient.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ...core.arrays import Float32, Int32, Int64, Ints
from ...core.errors import BoundsNotMet

Components = tuple[int, Int32]
"""Number of components, and the label of each point."""

ROWS_AT_ONCE = 65536
"""Rows of a graph per pass; bounds the memory beside the graph itself, does not affect results."""


class ClosedClasses(NamedTuple):
    """The closed classes of a directed graph on n points, largest first (ties: lowest member first)."""

    class_of_point: Int32
    """(n,) class of each point, -1 if it is transient."""
    sizes: Int64
    """(number of classes,) points in each class; empty only if n = 0."""


class Edges(NamedTuple):
    """Directed edges row -> neighbor with their lengths; three arrays (m,)."""

    rows: Ints
    neighbors: Ints
    distances: Float32


NO_EDGES = Edges(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))


def neighbor_graph(indices: Ints) -> csr_array:
    """Adjacency of neighbour lists (n, K), -1 in empty slots: (n, n), float64 ones. Ascending columns halve the time of
    strong components.
    """
    lists = np.sort(indices, axis=1)
    is_edge = lists >= 0
    is_edge[:, 1:] &= lists[:, 1:] != lists[:, :-1]
    indptr = np.zeros(len(lists) + 1, np.int64 if lists.size > np.iinfo(np.int32).max else lists.dtype)
    np.cumsum(is_edge.sum(axis=1), out=indptr[1:])
    return unit_graph(lists[is_edge], indptr)


def unit_graph(columns: Ints, indptr: Ints) -> csr_array:
    """A graph (n, n) with all entries one, from the columns of each row, distinct and ascending.

    SciPy's graph functions take it without a copy: all ones are one number in memory.
    """
    n_nodes = len(indptr) - 1
    ones = np.broadcast_to(np.float64(1), len(columns))
    return csr_array((ones, columns, indptr), shape=(n_nodes, n_nodes))


def disconnected_from_own_list(indices: Ints) -> Int64:
    """Points, ascending, that the lists (n, K) do not connect with the points of their own list.

    A list connects its members with each other, but not with its owner. Methods whose local matrices cover only the
    list (ltsa, hessian) have one constant null vector for each part connected by lists. There can be more such parts
    than weak components: a point in no list is a separate part. If the points returned here were members of their own
    lists, the parts would be the weak components.

    >>> disconnected_from_own_list(np.array([[1, 2], [2, -1], [1, -1], [1, 2]]))
    array([0, 3])
    """
    n_points, first = len(indices), indices[:, :1]
    linked = indices[:, 1:] >= 0
    ends = (np.broadcast_to(first, linked.shape)[linked], indices[:, 1:][linked])
    graph = csr_array((np.ones(len(ends[0]), np.int8), ends), shape=(n_points, n_points))
    part_of_point = connected_components(graph, directed=False)[1]
    return np.flatnonzero((first[:, 0] >= 0) & (part_of_point != part_of_point[first[:, 0]]))


def weak_components(graph: csr_array) -> Components:
    """Components without edge directions of a small graph: (number, label of each point).

    Labels are sorted by size, largest first, ties by the lowest member, so they do not depend on the algorithm.
    """
    n_components, labels = connected_components(graph, directed=False)
    return n_components, by_size(labels, n_components)[0]


def closed_classes(graph: csr_array) -> ClosedClasses:
    """Strongly connected components that no edge leaves."""
    n_strong, node = connected_components(graph, connection="strong")
    is_open = np.zeros(n_strong, np.bool_)
    for start in range(0, len(node), ROWS_AT_ONCE):
        indptr = graph.indptr[start : start + ROWS_AT_ONCE + 1]
        sources = np.repeat(node[start : start + ROWS_AT_ONCE], np.diff(indptr))
        is_open[sources[sources != node[graph.indices[indptr[0] : indptr[-1]]]]] = True
    return ClosedClasses(*by_size(np.where(is_open[node], np.int32(-1), node), n_strong))


def closed_point(factor: csr_array, component: str = "this component") -> int:
    """A point of the one closed class of I - W (n, n). Raises BoundsNotMet if there are several classes."""
    pattern = csr_array((np.ones(factor.nnz, np.int8), factor.indices, factor.indptr), shape=factor.shape)
    classes = closed_classes(pattern)
    if len(classes.sizes) != 1:
        sizes = ", ".join(map(str, classes.sizes[:5]))
        raise BoundsNotMet(
            f"graph: expected one closed class in {component}, found {len(classes.sizes)} ({sizes} points). "
            f"No neighbour link leaves a closed class, so the null space of M has one dimension for each of them, and "
            f"the lowest vectors only separate the classes. Set neighbors.reverse: auto (or 4), or raise n_neighbors"
        )
    members = np.flatnonzero(classes.class_of_point == 0)
    return int(members[len(members) // 2])


def rank_in_row(rows: Ints) -> Int64:
    """Position of each entry within its row, for sorted rows: 0, 1, ... in each row."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def by_size(labels: Ints, n_labels: int) -> tuple[Int32, Int64]:
    """Renumber the labels by size, then lowest member; -1 stays -1. Returns (new labels, sizes)."""
    members = np.flatnonzero(labels >= 0)
    sizes = np.bincount(labels[members], minlength=n_labels)
    lowest = np.full(n_labels, len(labels))
    np.minimum.at(lowest, labels[members], members)
    order = np.lexsort((lowest, -sizes))[: np.count_nonzero(sizes)]
    new_label = np.full(n_labels + 1, -1, dtype=np.int32)  # index -1 reads the extra last entry
    new_label[order] = np.arange(len(order), dtype=np.int32)
    return new_label[labels], sizes[order]

"""Connectivity of the neighbour graph, which has an edge i -> j if j is in the list of i.

Rows of W sum to 1, so the null space of I - W is that of a Markov chain on the same graph. Its dimension is the number
of closed classes (strongly connected components that no edge leaves), not of undirected components (Kemeny & Snell
1976, Finite Markov Chains, chapter 2). A point outside all closed classes is transient.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ...core.errors import BoundsNotMet, InputError

Ids = npt.NDArray[np.integer]


class ClosedClasses(NamedTuple):
    """The closed classes of a directed graph on n points, largest first (ties: lowest member first)."""

    class_of_point: npt.NDArray[np.int32]
    """(n,) class of each point, -1 if it is transient."""
    sizes: npt.NDArray[np.int64]
    """(number of classes,) points in each class; empty only if n = 0."""


class Edges(NamedTuple):
    """Directed edges row -> neighbor with their lengths; three arrays (m,)."""

    rows: Ids
    neighbors: Ids
    distances: npt.NDArray[np.float32]


class Condensation(NamedTuple):
    """One node for each strong component of a graph (v nodes), and the edges between nodes (e edges)."""

    sources: Ids
    """(e,) node that each edge leaves."""
    targets: Ids
    """(e,) node that each edge enters."""
    component: Ids
    """(v,) weak component of each node."""
    size: Ids
    """(v,) points in each node."""
    lowest: Ids
    """(v,) lowest point in each node."""


def neighbor_graph(indices: npt.NDArray[np.integer]) -> csr_array:
    """Adjacency of neighbour lists (n, K), -1 in empty slots: (n, n), int8 ones, columns in list order.

    Without empty slots the column ids share the memory of ``indices``.
    """
    n_points = len(indices)
    valid = indices >= 0
    indptr = np.zeros(n_points + 1, dtype=np.int64 if indices.size > np.iinfo(np.int32).max else indices.dtype)
    np.cumsum(valid.sum(axis=1), out=indptr[1:])
    columns = indices.reshape(-1) if valid.all() else indices[valid]
    return csr_array((np.ones(len(columns), dtype=np.int8), columns, indptr), shape=(n_points, n_points))


def disconnected_from_own_list(indices: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
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


def weak_components(graph: csr_array) -> tuple[int, npt.NDArray[np.int32]]:
    """Components of the graph without edge directions: (number, label of each point).

    Labels are sorted by size, largest first, ties by the lowest member, so they do not depend on the algorithm.
    """
    n_components, raw = connected_components(graph, directed=True, connection="weak")
    labels, _ = _by_size(raw, n_components)
    return int(n_components), labels


def closed_classes(graph: csr_array) -> ClosedClasses:
    """Strongly connected components that no edge leaves."""
    n_strong, strong = connected_components(graph, directed=True, connection="strong")
    is_open = np.zeros(n_strong, dtype=np.bool_)
    sources = np.repeat(strong, np.diff(graph.indptr))
    is_open[sources[sources != strong[graph.indices]]] = True
    class_of_point, sizes = _by_size(np.where(is_open[strong], -1, strong), n_strong)
    return ClosedClasses(class_of_point, sizes)


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


def condense(node: Ids, n_nodes: int, edges: Edges, component: Ids) -> Condensation:
    """The condensation from the strong component ``node`` (n,) of each point; edges inside a node may be omitted."""
    lowest = np.full(n_nodes, len(node))
    np.minimum.at(lowest, node, np.arange(len(node)))
    size = np.bincount(node, minlength=n_nodes)
    return Condensation(node[edges.rows], node[edges.neighbors], component[lowest], size, lowest)


def add_reverses(condensed: Condensation, chosen: Ids) -> Condensation:
    """Append the reverses of the chosen edges (positions), and merge nodes that become strongly connected."""
    sources = np.append(condensed.sources, condensed.targets[chosen])
    targets = np.append(condensed.targets, condensed.sources[chosen])
    n_nodes = len(condensed.size)
    graph = csr_array((np.ones(len(sources), dtype=np.int8), (sources, targets)), shape=(n_nodes, n_nodes))
    n_merged, label = connected_components(graph, directed=True, connection="strong")
    component, size = np.zeros((2, n_merged), dtype=np.int64)
    component[label] = condensed.component
    np.add.at(size, label, condensed.size)
    lowest = np.full(n_merged, condensed.lowest.max())
    np.minimum.at(lowest, label, condensed.lowest)
    return Condensation(label[sources], label[targets], component, size, lowest)


def closed_nodes(condensed: Condensation) -> npt.NDArray[np.intp]:
    """Nodes that no edge leaves."""
    is_open = np.zeros(len(condensed.size), dtype=np.bool_)
    is_open[condensed.sources[condensed.sources != condensed.targets]] = True
    return np.flatnonzero(~is_open)


def all_but_largest(closed: Ids, condensed: Condensation, large: npt.NDArray[np.bool_]) -> Ids:
    """Closed nodes of the large components, without the largest of each (ties: the lowest point stays)."""
    closed = closed[large[condensed.component[closed]]]
    component = condensed.component[closed]
    order = np.lexsort((condensed.lowest[closed], -condensed.size[closed], component))
    smaller: Ids = closed[order[rank_in_row(component[order]) > 0]]
    return smaller


def shortest_entering(condensed: Condensation, nodes: Ids) -> Ids:
    """For each node the position of the first edge into it; this is the shortest if edges are sorted by length.

    Raises:
        InputError: no edge enters one of the nodes.
    """
    is_target = np.zeros(len(condensed.size), dtype=np.bool_)
    is_target[nodes] = True
    entering = np.flatnonzero(is_target[condensed.targets] & (condensed.sources != condensed.targets))
    entered, first = np.unique(condensed.targets[entering], return_index=True)
    if len(entered) < len(nodes):
        raise InputError(
            f"expected an edge into each of {len(nodes)} closed classes from the rest of their components, found one "
            f"into {len(entered)}: the component labels are not the weak components of this graph; compute them again"
        )
    return entering[first]


def rank_in_row(rows: Ids) -> npt.NDArray[np.int64]:
    """Position of each entry within its row, for sorted rows: 0, 1, ... in each row."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def _by_size(labels: npt.NDArray[np.integer], n_labels: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Renumber the labels by size, then lowest member; -1 stays -1. Returns (new labels, sizes)."""
    members = np.flatnonzero(labels >= 0)
    sizes = np.bincount(labels[members], minlength=n_labels)
    lowest = np.full(n_labels, len(labels))
    np.minimum.at(lowest, labels[members], members)
    order = np.lexsort((lowest, -sizes))[: np.count_nonzero(sizes)]
    new_label = np.full(n_labels + 1, -1, dtype=np.int32)  # index -1 reads the extra last entry
    new_label[order] = np.arange(len(order), dtype=np.int32)
    return new_label[labels], sizes[order]

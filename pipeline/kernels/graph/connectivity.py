"""Connectivity of the neighbour graph: an edge i -> j where j is in the list of i.

Rows of W sum to 1, so the null space of I - W is that of a Markov chain on the same graph: its dimension is the number
of closed classes (strongly connected components that no edge leaves), not of undirected components (Kemeny & Snell
1976, Finite Markov Chains, chapter 2). A point outside all closed classes is transient.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from pipeline.core.errors import InputError

Ids = npt.NDArray[np.integer]


class ClosedClasses(NamedTuple):
    """The closed classes of a directed graph on n points, largest first (ties: lowest member first)."""

    class_of_point: npt.NDArray[np.int32]
    """(n,) class of each point, -1 where it is transient."""
    sizes: npt.NDArray[np.int64]
    """(number of classes,) points in each class; never empty unless n = 0."""


class Edges(NamedTuple):
    """Directed edges row -> neighbor with their lengths, three arrays (m,)."""

    rows: Ids
    neighbors: Ids
    distances: npt.NDArray[np.float32]


class Condensation(NamedTuple):
    """One node for each strong component of a graph (v nodes), with the edges between them (e edges)."""

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
    """Adjacency of neighbour lists (n, K) with -1 in empty slots: (n, n), int8 ones, columns in list order.

    Without empty slots the column ids are the memory of ``indices``, not a copy.
    """
    n_points = len(indices)
    valid = indices >= 0
    indptr = np.zeros(n_points + 1, dtype=np.int64 if indices.size > np.iinfo(np.int32).max else indices.dtype)
    np.cumsum(valid.sum(axis=1), out=indptr[1:])
    columns = indices.reshape(-1) if valid.all() else indices[valid]
    return csr_array((np.ones(len(columns), dtype=np.int8), columns, indptr), shape=(n_points, n_points))


def apart_from_their_lists(indices: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """Points, ascending, that the lists (n, K) leave unconnected with their own list.

    Lists join the points in them, not the point that they belong to. Methods whose local matrices cover the list alone
    (ltsa, hessian) have one constant null vector for each part that the lists leave, which can be more than weak
    components: a point in nobody's list is a part by itself. Were the points found here members of their own lists,
    the parts would be the weak components.

    >>> apart_from_their_lists(np.array([[1, 2], [2, -1], [1, -1], [1, 2]]))
    array([0, 3])
    """
    n_points, first = len(indices), indices[:, :1]
    linked = indices[:, 1:] >= 0
    ends = (np.broadcast_to(first, linked.shape)[linked], indices[:, 1:][linked])
    graph = csr_array((np.ones(len(ends[0]), np.int8), ends), shape=(n_points, n_points))
    part = connected_components(graph, directed=False)[1]
    return np.flatnonzero((first[:, 0] >= 0) & (part != part[first[:, 0]]))


def weak_components(graph: csr_array) -> tuple[int, npt.NDArray[np.int32]]:
    """Components of the graph without edge directions: (how many, label of each point).

    Labels go by size, largest first, ties by the lowest member, so they do not depend on the algorithm.
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


def condense(node: Ids, n_nodes: int, edges: Edges, component: Ids) -> Condensation:
    """The condensation from the strong component ``node`` (n,) of each point; edges inside a node may be left out."""
    lowest = np.full(n_nodes, len(node))
    np.minimum.at(lowest, node, np.arange(len(node)))
    size = np.bincount(node, minlength=n_nodes)
    return Condensation(node[edges.rows], node[edges.neighbors], component[lowest], size, lowest)


def add_reverses(condensed: Condensation, chosen: Ids) -> Condensation:
    """Append the reverses of the chosen edges (positions) and merge the nodes that are strongly connected then."""
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
    """Closed nodes of the large components, without the largest of each (ties: the one with the lowest point)."""
    closed = closed[large[condensed.component[closed]]]
    home = condensed.component[closed]
    order = np.lexsort((condensed.lowest[closed], -condensed.size[closed], home))
    rest: Ids = closed[order[rank_in_row(home[order]) > 0]]
    return rest


def shortest_entering(condensed: Condensation, nodes: Ids) -> Ids:
    """For each of the nodes the position of the first edge into it, the shortest if edges are sorted by length.

    Raises:
        InputError: no edge enters one of the nodes.
    """
    wanted = np.zeros(len(condensed.size), dtype=np.bool_)
    wanted[nodes] = True
    entering = np.flatnonzero(wanted[condensed.targets] & (condensed.sources != condensed.targets))
    entered, first = np.unique(condensed.targets[entering], return_index=True)
    if len(entered) < len(nodes):
        raise InputError(
            f"expected an edge into each of {len(nodes)} closed classes from the rest of their components, found one "
            f"into {len(entered)}: the component labels are not the weak components of this graph; compute them anew"
        )
    return entering[first]


def rank_in_row(rows: Ids) -> npt.NDArray[np.int64]:
    """Position of each entry among those of its row, for sorted rows: 0, 1, ... from the first on."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def _by_size(labels: npt.NDArray[np.integer], n_labels: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Renumber the labels that occur by size, then lowest member; -1 stays -1. (new labels, sizes)."""
    members = np.flatnonzero(labels >= 0)
    sizes = np.bincount(labels[members], minlength=n_labels)
    lowest = np.full(n_labels, len(labels))
    np.minimum.at(lowest, labels[members], members)
    order = np.lexsort((lowest, -sizes))[: np.count_nonzero(sizes)]
    new = np.full(n_labels + 1, -1, dtype=np.int32)  # the extra last entry serves label -1
    new[order] = np.arange(len(order), dtype=np.int32)
    return new[labels], sizes[order]

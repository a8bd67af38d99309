"""Closed classes and weak components of a graph that is read in blocks, with a few numbers in memory for each point.

Each block of neighbour lists joins the points that reach each other by its own edges to one node (`contract`). The
edges between nodes are read several times, never held together. Of each node that some edge leaves, one such edge is
kept. The kept edges make a forest whose roots are the nodes that no edge is known to leave. An edge out of a root
either makes it a branch of another tree or, if it leads to a branch of its own tree, joins the nodes on the way to one.
After a pass without such an edge the roots are the closed classes. This is the path-based algorithm for strong
components (Gabow 2000, Information Processing Letters 74), for many paths at once.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ...core.arrays import Bools, Int32, Int64, Ints
from .connectivity import ROWS_AT_ONCE, Components, by_size, neighbor_graph, unit_graph

EDGES_AT_ONCE = 2**22
"""Edges between nodes that are joined together; does not affect results. With more nodes it is a quarter of them."""

Pairs = tuple[Ints, Ints]
"""Edges as ids of their first and last points."""


class Contracted(NamedTuple):
    """A block of a graph whose points are joined to v nodes."""

    n_nodes: int
    node: Int32
    """(b,) node of each point of the block, 0 to v - 1."""
    sources: Ints
    """(e,) a point of the node that each edge leaves; several edges between two nodes of a block count as one."""
    targets: Ints
    """(e,) a point of the node that it enters."""


def contract(indices: Ints, start: int) -> Contracted:
    """Join the points of a block of neighbour lists (b, K), of the points from `start` on; -1 in empty slots.

    >>> contract(np.array([[1, 7], [0, 2], [7, -1]]), 0)._asdict() | {"node": None}
    {'n_nodes': 2, 'node': None, 'sources': array([0, 0, 2]), 'targets': array([2, 7, 7])}
    """
    is_inside = (indices >= start) & (indices < start + len(indices))
    inside = np.where(is_inside, indices - start, -1)
    n_nodes, node = connected_components(neighbor_graph(inside), connection="strong")
    first = np.zeros(n_nodes, indices.dtype)
    first[node[::-1]] = np.arange(start + len(node) - 1, start - 1, -1, dtype=indices.dtype)
    crosses = np.where(is_inside, node[inside] != node[:, None], indices >= 0)
    rows, slots = np.nonzero(crosses)
    ends = inside[rows, slots]
    targets = np.where(ends >= 0, first[node[ends]], indices[rows, slots])
    return Contracted(n_nodes, node, *_distinct(first[node[rows]], targets))


def _distinct(sources: Ints, targets: Ints) -> Pairs:
    """Each pair once, sorted."""
    keys = sources.astype(np.int64) << 32  # a pair is one number: ids are below 2^31, so that keys stay positive
    keys |= targets
    keys.sort()  # np.unique would take five times as long
    keys = keys[np.diff(keys, prepend=-1) != 0]
    return (keys >> 32).astype(sources.dtype), (keys & (2**32 - 1)).astype(targets.dtype)


class CondensedGraph:
    """The closed classes of a graph; edges can be added to it.

    Attributes:
        node: (n,) int32, node of each point.
        follows: (v,) int32, the node that the kept edge of a node enters; -1: it is a closed class.
        size: (v,) int32, points of each node.
        lowest: (v,) int32, lowest point of each node.
    """

    def __init__(self, node: Int32, n_nodes: int, edges: Callable[[], Iterable[Pairs]]) -> None:
        """`node` belongs to the graph from now on; `edges` reads all edges between different nodes once."""
        self.node, self._edges, self._added = node, edges, list[Pairs]()
        self.follows = np.full(n_nodes, -1, np.int32)
        self.size = np.zeros(n_nodes, np.int32)
        self.lowest = np.full(n_nodes, len(node), np.int32)
        for start, part in self._parts():
            np.add.at(self.size, part, 1)
            np.minimum.at(self.lowest, part, np.arange(start, start + len(part), dtype=np.int32))

    @property
    def closed(self) -> Int64:
        """The nodes that are closed classes, if the graph is settled."""
        return np.flatnonzero(self.follows < 0)

    def weak_components(self) -> Components:
        """Components without edge directions: (number, label of each point), largest first, then lowest member."""
        n_labels = len(self.size)
        labels = np.arange(n_labels, dtype=np.int32)

        def joins_labels(source: Ints, target: Ints) -> Bools:
            return np.asarray(labels[source] != labels[target])

        for sources, targets in self._batches(joins_labels):
            ends = labels[sources], labels[targets]
            joined = csr_array((np.ones(len(sources), np.int8), ends), shape=(n_labels, n_labels))
            n_labels, merged = connected_components(joined, directed=False)
            labels = merged[labels]
        return int(n_labels), by_size(labels[self.node], n_labels)[0]

    def settle(self) -> None:
        """Read the edges until none leaves a root."""

        def leaves_root(source: Ints, target: Ints) -> Bools:
            return np.asarray((self.follows[source] < 0) & (source != target))

        is_settled = False
        while not is_settled:
            is_settled = True
            for sources, targets in self._batches(leaves_root):
                self._join(sources, targets)
                is_settled = False

    def add(self, rows: Ints, neighbors: Ints) -> None:
        """Add edges between points, and settle again."""
        ends = self.node[rows], self.node[neighbors]
        crosses = ends[0] != ends[1]
        sources, targets = _distinct(ends[0][crosses], ends[1][crosses])
        self._added.append((self.lowest[sources], self.lowest[targets]))
        self.settle()

    def _batches(self, is_wanted: Callable[[Ints, Ints], Bools]) -> Iterator[Pairs]:
        """The wanted edges of all, as nodes; joining nodes between two batches is possible."""
        at_least = max(EDGES_AT_ONCE, len(self.size) // 4)
        pending, n_pending = list[Pairs](), 0
        for sources, targets in chain(self._edges(), self._added):
            ends = self.node[sources], self.node[targets]
            selected = is_wanted(*ends)
            pending.append((ends[0][selected], ends[1][selected]))
            n_pending += len(pending[-1][0])
            if n_pending >= at_least:
                yield _concatenated(pending)
                pending, n_pending = [], 0
        if n_pending:
            yield _concatenated(pending)

    def _join(self, sources: Ints, targets: Ints) -> None:
        """Join the nodes of each cycle of these edges and the kept ones, and keep one edge out of each node."""
        branches, n_nodes = np.flatnonzero(self.follows >= 0).astype(np.int32), len(self.size)
        sources, targets = _distinct(*_concatenated([(branches, self.follows[branches]), (sources, targets)]))
        indptr: Ints = np.zeros(n_nodes + 1, np.int32 if len(sources) < 2**31 else np.int64)
        np.cumsum(np.bincount(sources, minlength=n_nodes), out=indptr[1:])
        n_joined, label = connected_components(unit_graph(targets, indptr), connection="strong")
        ends = label[sources], label[targets]
        crosses = ends[0] != ends[1]
        self.follows = np.full(n_joined, -1, np.int32)
        self.follows[ends[0][crosses]] = ends[1][crosses]  # any of them: joined nodes have no cycle
        size, lowest = np.zeros(n_joined, np.int32), np.full(n_joined, len(self.node), np.int32)
        np.add.at(size, label, self.size)
        np.minimum.at(lowest, label, self.lowest)
        self.size, self.lowest = size, lowest
        for _, part in self._parts():
            part[:] = label[part]

    def _parts(self) -> Iterator[tuple[int, Int32]]:
        """Views of `node`, each with its first point."""
        return ((start, self.node[start : start + ROWS_AT_ONCE]) for start in range(0, len(self.node), ROWS_AT_ONCE))


def _concatenated(parts: list[Pairs]) -> Pairs:
    sources, targets = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    return sources, targets


def condensed_in_memory(indices: Ints) -> CondensedGraph:
    """The condensed graph of neighbour lists (n, K) in memory."""
    whole = contract(indices, 0)
    graph = CondensedGraph(whole.node, whole.n_nodes, lambda: [(whole.sources, whole.targets)])
    graph.settle()
    return graph

"""Edges to add to a neighbour graph so that each component has one closed class, hence one null vector of I - W.

Both methods add only reverses of edges that the search found:
- reverse neighbours: a point gets up to c points that list it and that it does not list, nearest first (K_i = K .. K +
  c, as LLE allows; Laplacian eigenmaps does the same with its OR rule, Belkin & Niyogi 2003, Neural Computation 15).
  By default only members of small closed classes get them, because every other point can leave its class already;
- bridges: the shortest edge out of each class that is still closed.
Reverse neighbours come first: they open a class at many of its points, a bridge at one.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...core.arrays import Bools, Float32, Int32, Ints
from .connectivity import NO_EDGES, ROWS_AT_ONCE, Edges, rank_in_row
from .contraction import CondensedGraph, condensed_in_memory

AUTO_REVERSE = 4
"""Reverse neighbours per point for ``reverse=None``: on the cover type data 4 gave the same eigenvalues as 24."""

TARGETS_AT_ONCE = 2**21
"""Points that get reverse neighbours in one pass over all lists; bounds its memory, does not affect results."""


class Lists(NamedTuple):
    """Neighbour lists that are read in blocks of `size` rows."""

    n: int
    size: int
    read: Callable[[int, int], tuple[Ints, Float32]]
    """The lists of the points start to stop - 1: (b, K) ids, -1 in empty slots, and (b, K) distances."""
    longest: int
    """Length of the longest list."""

    def blocks(self, points: Ints | None = None) -> Iterator[tuple[int, Ints, Float32]]:
        """(first point, ids, distances) of each block; `points`: ascending, blocks without any of them are not read."""
        for start in range(0, self.n, self.size):
            stop = min(start + self.size, self.n)
            if points is None or np.diff(np.searchsorted(points, [start, stop]))[0]:
                yield start, *self.read(start, stop)


class Repair(NamedTuple):
    """The edges to add to a neighbour graph, and their effect."""

    added: Edges
    """Points that get another neighbour, that neighbour, and the distance that the search gave for the opposite edge;
    sorted by row, then distance."""
    n_reverse_added: int
    n_bridges_added: int
    closed_classes_before: int
    """In the whole graph, including small components."""
    closed_classes_left: int
    classes_by_component: Ints
    """(components,) closed classes left in each."""
    max_neighbors: int
    """Longest neighbour list after the repair: the k_max for ``apply_repair``."""


def plan_repair(indices: Ints, distances: Float32, component: Int32, reverse: int | None, is_large: Bools) -> Repair:
    """As `repair_graph`, for lists in memory: (n, K) ids, -1 in empty slots, and (n, K) distances."""
    longest = int((indices >= 0).sum(axis=1).max(initial=0))
    lists = Lists(len(indices), ROWS_AT_ONCE, lambda start, stop: (indices[start:stop], distances[start:stop]), longest)
    return repair_graph(lists, condensed_in_memory(indices), component, reverse, is_large)


def repair_graph(lists: Lists, graph: CondensedGraph, component: Int32, reverse: int | None, is_large: Bools) -> Repair:
    """Choose the edges to add. Deterministic; uses sorts and table look-ups, no loop over points.

    Args:
        lists: the neighbour lists.
        graph: their graph, settled. It has the added edges afterwards.
        component: (n,) labels of the weak components of this graph.
        reverse: reverse neighbours per point. None: ``AUTO_REVERSE`` for the members of closed classes with less than
            half of the points of their component, 0 for other points. c > 0: c for all points. 0: no edge is added
            at all, also no bridge (the graph of Roweis & Saul).
        is_large: (components,) mask; the others get no bridges, and with None no reverse neighbours.
    """
    n_before, sizes = len(graph.closed), np.bincount(component, minlength=len(is_large))
    reverses = bridges = NO_EDGES
    if reverse is None:
        reverses = _open_small_classes(lists, graph, component, sizes, is_large)
    elif reverse > 0:
        is_target, is_small = np.ones(len(component), np.bool_), _small_classes(graph, component, sizes)
        reverses = _reverse_neighbors(lists, is_target, graph.node, is_small, reverse)
        graph.add(reverses.rows, reverses.neighbors)
    if reverse != 0:
        bridges = _bridges(lists, graph, component, is_large)
    added = _concatenate([reverses, bridges])
    added = _take(added, np.lexsort((added.neighbors, added.distances, added.rows)))
    components = component[graph.lowest[graph.closed]]
    return Repair(
        added,
        n_reverse_added=len(reverses.rows),
        n_bridges_added=len(bridges.rows),
        closed_classes_before=n_before,
        closed_classes_left=len(components),
        classes_by_component=np.bincount(components, minlength=int(component.max(initial=-1)) + 1),
        max_neighbors=longest_with(lists, added.rows),
    )


def longest_with(lists: Lists, rows: Ints) -> int:
    """Length of the longest list with one more neighbour for each of `rows` (ascending, possibly repeated)."""
    longest = lists.longest
    for start, indices, _ in lists.blocks(rows):
        first, past = np.searchsorted(rows, [start, start + len(indices)])
        counts = (indices >= 0).sum(axis=1) + np.bincount(rows[first:past] - start, minlength=len(indices))
        longest = max(longest, int(counts.max()))
    return longest


def apply_repair(indices: Ints, distances: Float32, first_row: int, added: Edges, k_max: int) -> tuple[Ints, Float32]:
    """Neighbour lists of a block with the added neighbours, by distance: ((B, k_max) ids, (B, k_max) distances).

    Empty slots come last, with id -1 and distance inf. At equal distances the original neighbours precede the added
    ones.
    Args:
        indices, distances: (B, K) from the search.
        first_row: id of the first of the B points.
        added: edges sorted by row; those of other rows are ignored.
        k_max: width of the result; no list is longer.
    """
    n_rows, n_slots = indices.shape
    start, stop = np.searchsorted(added.rows, [first_row, first_row + n_rows])
    rows = added.rows[start:stop] - first_row
    slot = rank_in_row(rows)
    n_extra = int(slot.max(initial=-1)) + 1
    width = max(n_slots + n_extra, k_max)
    all_indices = np.full((n_rows, width), -1, dtype=indices.dtype)
    all_distances = np.full((n_rows, width), np.inf, dtype=distances.dtype)
    all_indices[:, :n_slots] = indices
    all_distances[:, :n_slots] = np.where(indices >= 0, distances, np.inf)
    all_indices[rows, n_slots + slot] = added.neighbors[start:stop]
    all_distances[rows, n_slots + slot] = added.distances[start:stop]
    order = np.argsort(all_distances, axis=1, kind="stable")[:, :k_max]
    return np.take_along_axis(all_indices, order, axis=1), np.take_along_axis(all_distances, order, axis=1)


def _open_small_classes(lists: Lists, graph: CondensedGraph, component: Int32, sizes: Ints, is_large: Bools) -> Edges:
    """Reverse neighbours of the members of small closed classes, until every such member has them.

    A class that was opened may now be part of a larger one that is still small, so the step is repeated. Each round
    gives reverse neighbours to points that had none, and some edge enters every class: the next round has fewer.
    """
    added, is_repaired = [NO_EDGES], np.zeros(len(component), np.bool_)
    while True:
        is_small = _small_classes(graph, component, sizes)
        is_target = (is_small & is_large[component[graph.lowest]])[graph.node] & ~is_repaired
        if not is_target.any():
            return _concatenate(added)
        added.append(_reverse_neighbors(lists, is_target, graph.node, is_small, AUTO_REVERSE))
        is_repaired |= is_target
        graph.add(added[-1].rows, added[-1].neighbors)


def _small_classes(graph: CondensedGraph, component: Ints, sizes: Ints) -> Bools:
    """For each node: whether it is a closed class with less than half of the points of its component."""
    is_small = np.zeros(len(graph.size), np.bool_)
    closed = graph.closed
    is_small[closed] = 2 * graph.size[closed].astype(np.int64) < sizes[component[graph.lowest[closed]]]
    return is_small


def _reverse_neighbors(lists: Lists, is_target: Bools, node: Ints, is_small: Bools, limit: int) -> Edges:
    """Up to ``limit`` reverse neighbours of each wanted point: those outside its small class first, by distance.

    `node` is the node of each point, `is_small` says which nodes are small closed classes.
    """
    targets, parts = np.flatnonzero(is_target), [NO_EDGES]
    for start in range(0, len(targets), TARGETS_AT_ONCE):
        is_part = np.zeros(lists.n, np.bool_)
        is_part[targets[start : start + TARGETS_AT_ONCE]] = True
        candidates = _one_way(lists, _entering(lists, is_part, node, is_small, limit))
        parts.append(_nearest(candidates, node, is_small, limit))
    return _concatenate(parts)


def _entering(lists: Lists, is_target: Bools, node: Ints, is_small: Bools, limit: int) -> Edges:
    """Reverses of edges that enter the targets, those first that `_nearest` prefers: ``limit`` and one list for each.

    One list of a target has so many edges, so ``limit`` candidates are left without them.
    """
    pending, n_pending, n_targets = [NO_EDGES], 0, int(np.count_nonzero(is_target))
    for start, indices, distances in lists.blocks():
        rows, slots = np.nonzero((indices >= 0) & is_target[indices])
        listing = (rows + start).astype(indices.dtype)
        pending.append(Edges(indices[rows, slots], listing, distances[rows, slots]))
        n_pending += len(pending[-1].rows)
        enough = limit + lists.longest
        if n_pending > 2 * n_targets * enough:
            pending = [_nearest(_concatenate(pending), node, is_small, enough)]
            n_pending = len(pending[0].rows)
    return _concatenate(pending)


def _nearest(candidates: Edges, node: Ints, is_small: Bools, limit: int) -> Edges:
    """Up to ``limit`` edges of each row: those inside a small class last, by distance, then by neighbour."""
    rows, _, lengths = candidates
    ends = node[rows], node[candidates.neighbors]
    inside = is_small[ends[0]] & (ends[0] == ends[1])
    # One 64-bit key: 31 bits of row, 1 of inside, 32 of distance (floats >= 0 sort like their bits). Candidates of a
    # row with equal keys are sorted by neighbour, so the stable sort breaks ties in distance by the lower id.
    key = rows.astype(np.uint64) << np.uint64(33)
    key |= inside.astype(np.uint64) << np.uint64(32)
    key |= (lengths.astype(np.float32) + np.float32(0.0)).view(np.uint32)  # + 0.0 turns -0.0 into 0.0
    order = np.argsort(key, kind="stable")
    return _take(candidates, order[rank_in_row(rows[order]) < limit])


def _one_way(lists: Lists, edges: Edges) -> Edges:
    """Those of the edges that the lists do not have, sorted by row, in each row in the given order."""
    edges = _take(edges, np.argsort(edges.rows, kind="stable"))
    is_new = np.ones(len(edges.rows), np.bool_)
    for start, indices, _ in lists.blocks(edges.rows):
        first, past = np.searchsorted(edges.rows, [start, start + len(indices)])
        for low in range(first, past, ROWS_AT_ONCE):
            part = slice(low, min(low + ROWS_AT_ONCE, past))
            is_new[part] = (indices[edges.rows[part] - start] != edges.neighbors[part, None]).all(axis=1)
    return _take(edges, np.flatnonzero(is_new))


def _bridges(lists: Lists, graph: CondensedGraph, component: Ints, is_large: Bools) -> Edges:
    """Shortest edges out of closed classes, added to the graph until each large component has one class.

    Some edge enters every closed class that is not its whole component; the shortest one is reversed. The class merges
    with the other end and may stay closed, so the step is repeated. Only edges of the lists are reversed: the reverse
    of an added edge is one of them, so an added edge never enters a closed class.
    """
    bridges = [NO_EDGES]
    while len(to_open := _all_but_largest(graph, component, is_large)):
        entering = _shortest_entering(lists, graph, to_open)
        bridges.append(Edges(entering.neighbors, entering.rows, entering.distances))
        graph.add(entering.neighbors, entering.rows)
    return _concatenate(bridges)


def _all_but_largest(graph: CondensedGraph, component: Ints, is_large: Bools) -> Ints:
    """Closed classes of the large components, without the largest of each (ties: the one of the lowest point)."""
    closed = graph.closed[is_large[component[graph.lowest[graph.closed]]]]
    components = component[graph.lowest[closed]]
    order = np.lexsort((graph.lowest[closed], -graph.size[closed], components))
    return np.asarray(closed[order[rank_in_row(components[order]) > 0]])


def _shortest_entering(lists: Lists, graph: CondensedGraph, classes: Ints) -> Edges:
    """The shortest edge of the lists into each of the classes (ties: lowest end, then lowest start)."""
    is_wanted = np.zeros(len(graph.size), np.bool_)
    is_wanted[classes] = True
    found = NO_EDGES
    for start, block, lengths in lists.blocks():
        own, ends = graph.node[start : start + len(block), None], graph.node[block]
        rows, slots = np.nonzero((block >= 0) & is_wanted[ends] & (ends != own))
        entering = Edges((rows + start).astype(block.dtype), block[rows, slots], lengths[rows, slots])
        found = _concatenate([found, entering])
        order = np.lexsort((found.rows, found.neighbors, found.distances, graph.node[found.neighbors]))
        found = _take(found, order[rank_in_row(graph.node[found.neighbors[order]]) == 0])
    assert len(found.rows) == len(classes), "an edge enters every closed class that is not its whole component"
    return found


def _concatenate(parts: list[Edges]) -> Edges:
    return Edges(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _take(edges: Edges, order: Ints) -> Edges:
    return Edges(edges.rows[order], edges.neighbors[order], edges.distances[order])

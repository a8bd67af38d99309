"""Edges to add to a neighbour graph so that each component has one closed class, hence one null vector of I - W.

Both methods add only reverses of edges that the search found:
- reverse neighbours: a point gets up to c points that list it and that it does not list, nearest first (K_i = K .. K +
  c, as LLE allows; Laplacian eigenmaps does the same with its OR rule, Belkin & Niyogi 2003, Neural Computation 15).
  By default only members of small closed classes get them, because every other point can leave its class already;
- bridges: the shortest edge out of each class that is still closed.
Reverse neighbours come first: they open a class at many of its points, a bridge at one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.errors import InputError
from .connectivity import (
    ROWS_AT_ONCE,
    ClosedClasses,
    Edges,
    add_reverses,
    all_but_largest,
    closed_classes,
    closed_nodes,
    condense,
    neighbor_graph,
    open_nodes,
    rank_in_row,
    shortest_entering,
    strong_components,
)

AUTO_REVERSE = 4
"""Reverse neighbours per point for ``reverse=None``: on the cover type data 4 gave the same eigenvalues as 24."""

TARGETS_AT_ONCE = 2**22
"""Points that get reverse neighbours in one pass over all lists; bounds its memory, does not affect results."""

Ids = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
Float32 = npt.NDArray[np.float32]


class Repair(NamedTuple):
    """The edges to add to a neighbour graph, and their effect."""

    added_rows: Ids
    """(m,) points that get another neighbour, ascending; the three arrays are sorted by row, then distance."""
    added_neighbors: Ids
    """(m,) that neighbour."""
    added_distances: Float32
    """(m,) the distance that the search gave for the opposite edge."""
    n_reverse_added: int
    n_bridges_added: int
    n_points_repaired: int
    """Points that get a neighbour."""
    closed_classes_before: int
    """In the whole graph, including small components."""
    closed_classes_left: int
    classes_by_component: Ids
    """(components,) closed classes left in each."""
    max_neighbors: int
    """Longest neighbour list after the repair: the k_max for ``apply_repair``."""


def plan_repair(
    indices: Ids,
    distances: Float32,
    component: npt.NDArray[np.int32],
    reverse: int | None,
    is_large: npt.NDArray[np.bool_],
    classes: ClosedClasses | None = None,
) -> Repair:
    """Choose the edges to add. Deterministic; uses sorts and table look-ups, no loop over points.

    Args:
        indices: (n, K) neighbour ids, -1 in empty slots.
        distances: (n, K) their distances; empty slots are ignored.
        component: (n,) labels of the weak components of this graph.
        reverse: reverse neighbours per point. None: ``AUTO_REVERSE`` for the members of closed classes with less than
            half of the points of their component, 0 for other points. c > 0: c for all points. 0: no edge is added
            at all, also no bridge (the graph of Roweis & Saul).
        is_large: (components,) mask; the others get no bridges, and with None no reverse neighbours.
        classes: the closed classes of this graph; None computes them.

    Raises:
        InputError: a distance is negative or not a number.
    """
    classes = classes or closed_classes(neighbor_graph(indices))
    n_classes = len(classes.sizes)
    component_of_class = _component_of_class(classes, component)
    is_small = _members_of_small_classes(classes, component)
    needs_repair = (is_small & is_large[component]).any() or (np.bincount(component_of_class) > 1)[is_large].any()
    if reverse == 0 or (reverse is None and not needs_repair):
        return _as_repair(indices, component, _no_edges(indices), _no_edges(indices), n_classes, component_of_class)
    if reverse is None:
        reverses = _open_small_classes(indices, distances, classes, component, is_large)
    else:
        avoid = np.where(is_small, classes.class_of_point, -1)
        reverses = _reverse_neighbors(indices, distances, np.ones(len(indices), np.bool_), avoid, reverse)
    bridges, component_of_class = _bridges(indices, distances, reverses, component, is_large)
    return _as_repair(indices, component, reverses, bridges, n_classes, component_of_class)


def _as_repair(
    indices: Ids, component: npt.NDArray[np.int32], reverses: Edges, bridges: Edges, n_before: int,
    component_of_class: Ids,
) -> Repair:  # fmt: skip
    added = _concatenate([reverses, bridges])
    added = _take(added, np.lexsort((added.neighbors, added.distances, added.rows)))
    counts = (indices >= 0).sum(axis=1) + np.bincount(added.rows, minlength=len(indices))
    return Repair(
        *added,
        n_reverse_added=len(reverses.rows),
        n_bridges_added=len(bridges.rows),
        n_points_repaired=len(np.unique(added.rows)),
        closed_classes_before=n_before,
        closed_classes_left=len(component_of_class),
        classes_by_component=np.bincount(component_of_class, minlength=int(component.max(initial=-1)) + 1),
        max_neighbors=int(counts.max(initial=0)),
    )


def apply_repair(indices: Ids, distances: Float32, first_row: int, added: Edges, k_max: int) -> tuple[Ids, Float32]:
    """Neighbour lists of a block with the added neighbours, by distance: ((B, k_max) ids, (B, k_max) distances).

    Empty slots come last, with id -1 and distance inf. At equal distances the original neighbours precede the added
    ones.
    Args:
        indices, distances: (B, K) from the search.
        first_row: id of the first of the B points.
        added: edges sorted by row; those of other rows are ignored.
        k_max: width of the result.

    Raises:
        InputError: a list is longer than k_max.
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
    order = np.argsort(all_distances, axis=1, kind="stable")
    all_indices = np.take_along_axis(all_indices, order, axis=1)
    if (all_indices[:, k_max:] >= 0).any():
        raise InputError(
            f"expected at most k_max = {k_max} neighbours per point after the repair, found "
            f"{(all_indices >= 0).sum(axis=1).max()} in the block at row {first_row}; use the repair's max_neighbors"
        )
    return all_indices[:, :k_max], np.take_along_axis(all_distances, order, axis=1)[:, :k_max]


def _open_small_classes(
    indices: Ids, distances: Float32, classes: ClosedClasses, component: npt.NDArray[np.int32], is_large: Bools
) -> Edges:
    """Reverse neighbours of the members of small closed classes, until every such member has them.

    A class that was opened may now be part of a larger one that is still small, so the step is repeated. Each round
    gives reverse neighbours to points that had none, and some edge enters every class: the next round has fewer.
    """
    added, is_repaired = _no_edges(indices), np.zeros(len(indices), np.bool_)
    while True:
        is_small = _members_of_small_classes(classes, component) & is_large[component]
        is_target = is_small & ~is_repaired
        if not is_target.any():
            return added
        avoid = np.where(is_small, classes.class_of_point, -1)
        new_edges = _reverse_neighbors(indices, distances, is_target, avoid, AUTO_REVERSE)
        added = _concatenate([added, new_edges])
        added = _take(added, np.argsort(added.rows, kind="stable"))
        is_repaired |= is_target
        classes = closed_classes(neighbor_graph(indices, added))


def _members_of_small_classes(classes: ClosedClasses, component: Ids) -> Bools:
    """For each point: whether it is in a closed class with less than half of the points of its component."""
    sizes = np.bincount(component)[_component_of_class(classes, component)]
    is_small = np.append(2 * classes.sizes < sizes, False)  # index -1 (transient points) reads the last entry
    return np.asarray(is_small[classes.class_of_point])


def _component_of_class(classes: ClosedClasses, component: Ids) -> Ids:
    component_of_class = np.zeros(len(classes.sizes), dtype=np.int64)
    members = classes.class_of_point >= 0
    component_of_class[classes.class_of_point[members]] = component[members]
    return component_of_class


def _reverse_neighbors(indices: Ids, distances: Float32, is_target: Bools, avoid: Ids, limit: int) -> Edges:
    """Up to ``limit`` reverse neighbours of each wanted point: those outside its class ``avoid`` first, by distance."""
    parts = [_no_edges(indices)]
    for targets in _passes(indices, np.flatnonzero(is_target)):
        is_part = np.zeros(len(indices), np.bool_)
        is_part[targets] = True
        candidates = _concatenate(
            [_one_way_edges(indices, distances, is_part, start) for start in range(0, len(indices), ROWS_AT_ONCE)]
        )
        parts.append(_nearest(candidates, avoid, limit))
    return _concatenate(parts)


def _passes(indices: Ids, targets: Ids) -> list[Ids]:
    """The targets, cut where so many edges enter them as enter TARGETS_AT_ONCE points on average."""
    if len(indices) <= TARGETS_AT_ONCE:
        return [targets]
    n_entering = np.zeros(len(indices), np.int32)
    for start in range(0, len(indices), ROWS_AT_ONCE):
        block = indices[start : start + ROWS_AT_ONCE]
        np.add.at(n_entering, block[block >= 0], 1)
    ends, limit = np.cumsum(n_entering[targets], dtype=np.int64), TARGETS_AT_ONCE * indices.shape[1]
    cuts = np.searchsorted(ends, np.arange(limit, ends.max(initial=0), limit))
    return [part for part in np.split(targets, cuts) if len(part)]


def _nearest(candidates: Edges, avoid: Ids, limit: int) -> Edges:
    """Up to ``limit`` edges of each row: those to points outside its class first, by distance, then by neighbour."""
    rows, neighbors, lengths = candidates
    inside = (avoid[rows] >= 0) & (avoid[rows] == avoid[neighbors])
    # One 64-bit key: 31 bits of row, 1 of inside, 32 of distance (floats >= 0 sort like their bits). Candidates are
    # sorted by neighbour, so the stable sort breaks ties in distance by the lower id.
    key = rows.astype(np.uint64) << np.uint64(33)
    key |= inside.astype(np.uint64) << np.uint64(32)
    key |= (lengths.astype(np.float32) + np.float32(0.0)).view(np.uint32)  # + 0.0 turns -0.0 into 0.0
    order = np.argsort(key, kind="stable")
    selected = order[rank_in_row(rows[order]) < limit]
    return Edges(rows[selected], neighbors[selected], lengths[selected])


def _one_way_edges(indices: Ids, distances: Float32, is_target: Bools, start: int) -> Edges:
    """Reverses i -> j of the edges j -> i of ROWS_AT_ONCE rows j that have no reverse yet, for wanted i."""
    stop = min(start + ROWS_AT_ONCE, len(indices))
    block, lengths = indices[start:stop], distances[start:stop]
    own_ids = np.arange(start, stop, dtype=indices.dtype)
    is_wanted = (block >= 0) & is_target[block]
    if not (lengths[block >= 0] >= 0).all():
        raise InputError(
            f"expected distances that are zero or positive, found others in rows {start} to {stop - 1}; "
            "compute the distances of these neighbours again"
        )
    rows, slots = np.nonzero(is_wanted)
    ends = block[rows, slots]
    is_new = np.empty(len(rows), np.bool_)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(first, first + ROWS_AT_ONCE)
        is_new[part] = (indices[ends[part]] != own_ids[rows[part], None]).all(axis=1)
    return Edges(ends[is_new], own_ids[rows[is_new]], lengths[rows[is_new], slots[is_new]])


def _bridges(indices: Ids, distances: Float32, added: Edges, component: Ids, large: Bools) -> tuple[Edges, Ids]:
    """Shortest edges out of closed classes until each large component has one: (edges, component of each class left).

    Some edge enters every closed class that is not its whole component; the shortest one is reversed. The class merges
    with the other end and may stay closed, so the step is repeated, on the condensation only.
    """
    graph = neighbor_graph(indices, added)
    n_nodes, node = strong_components(graph)
    closed = np.flatnonzero(~open_nodes(graph, n_nodes, node))
    condensed = condense(node, n_nodes, _no_edges(indices), component)
    if not all_but_largest(closed, condensed, large).size:
        return _no_edges(indices), condensed.component[closed]
    del graph
    edges = _crossing_edges(indices, distances, added, node)
    condensed = condense(node, n_nodes, edges, component)
    bridges = [_no_edges(indices)]
    while True:
        closed = closed_nodes(condensed)
        to_open = all_but_largest(closed, condensed, large)
        if not to_open.size:
            return _concatenate(bridges), condensed.component[closed]
        chosen = shortest_entering(condensed, to_open)
        bridge = Edges(edges.neighbors[chosen], edges.rows[chosen], edges.distances[chosen])
        bridges.append(bridge)
        # A bridge is never reversed: its reverse is an edge of the graph, so the bridge enters no closed class.
        edges = _concatenate([edges, bridge])
        condensed = add_reverses(condensed, chosen)


def _crossing_edges(indices: Ids, distances: Float32, added: Edges, node: Ids) -> Edges:
    """Edges between different strong components, shortest first (ties: lowest end, then lowest start).

    Of the edges from one component to another in a pass only the first is needed.
    """
    is_crossing = node[added.rows] != node[added.neighbors]
    parts = [_take(added, np.flatnonzero(is_crossing))]
    for start in range(0, len(indices), ROWS_AT_ONCE):
        block = indices[start : start + ROWS_AT_ONCE]
        rows, slots = np.nonzero((block >= 0) & (node[block] != node[start : start + len(block), None]))
        ids = (rows + start).astype(indices.dtype)
        edges = _shortest_first(Edges(ids, block[rows, slots], distances[start : start + len(block)][rows, slots]))
        pairs = node[edges.rows].astype(np.int64) * len(node) + node[edges.neighbors]
        parts.append(_take(edges, np.sort(np.unique(pairs, return_index=True)[1])))
    return _shortest_first(_concatenate(parts))


def _shortest_first(edges: Edges) -> Edges:
    return _take(edges, np.lexsort((edges.rows, edges.neighbors, edges.distances)))


def _no_edges(like: Ids) -> Edges:
    empty = np.zeros(0, dtype=like.dtype)
    return Edges(empty, empty, np.zeros(0, dtype=np.float32))


def _concatenate(parts: list[Edges]) -> Edges:
    return Edges(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _take(edges: Edges, order: Ids) -> Edges:
    return Edges(edges.rows[order], edges.neighbors[order], edges.distances[order])

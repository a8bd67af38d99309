"""Edges to add to a neighbour graph so that each component has one closed class, hence one null vector of I - W.

Two means, both of which only add reverses of edges that the search found:
reverse neighbours, up to c points a point that list it and that it does not list, nearest first (K_i = K .. K + c,
as LLE allows; Laplacian eigenmaps does the same with its OR rule, Belkin & Niyogi 2003, Neural Computation 15), and
bridges, the shortest edge out of each class that is closed even then. Reverse neighbours come first: they also open
clumps that are nearly closed, which bridges do not, and so lift the small eigenvalues.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from pipeline.core.errors import InputError
from pipeline.kernels.graph.connectivity import (
    ClosedClasses,
    Edges,
    add_reverses,
    all_but_largest,
    closed_classes,
    closed_nodes,
    condense,
    neighbor_graph,
    rank_in_row,
    shortest_entering,
)

AUTO_REVERSE = 4
"""Reverse neighbours per point that ``reverse=None`` adds: on the cover type data 4 gave the eigenvalues of 24."""

ROWS_AT_ONCE = 65536
"""Rows per pass of the search for one-way edges; bounds its memory and changes no result."""

Ids = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
Float32 = npt.NDArray[np.float32]


class Repair(NamedTuple):
    """What to add to a neighbour graph, and what it cures."""

    added_rows: Ids
    """(m,) points that get a further neighbour, ascending; the three arrays are sorted by row, then distance."""
    added_neighbors: Ids
    """(m,) that neighbour."""
    added_distances: Float32
    """(m,) the distance that the search gave for the edge the other way."""
    n_reverse_added: int
    n_bridges_added: int
    closed_classes_before: int
    """Of the whole graph, small components included."""
    closed_classes_left: int
    repaired_components: npt.NDArray[np.int32]
    """Labels of the components to which something is added."""
    max_neighbors: int
    """Longest neighbour list after the repair: the k_max to give to ``apply_repair``."""


def plan_repair(
    indices: Ids, distances: Float32, component: npt.NDArray[np.int32], reverse: int | None, min_component: int
) -> Repair:
    """Choose the edges to add. Deterministic, sorts and table look-ups only (no loop over points).

    Args:
        indices: (n, K) neighbour ids, -1 in empty slots.
        distances: (n, K) their distances; the content of empty slots is ignored.
        component: (n,) labels of the weak components of this graph.
        reverse: reverse neighbours per point. None: ``AUTO_REVERSE`` for the points of components whose closed
            classes are not exactly one that holds at least half of the points, none elsewhere. c > 0: c in all
            components. 0: nothing at all is added (the graph of Roweis & Saul).
        min_component: smaller components are not repaired by None, and get no bridges.

    Raises:
        InputError: a distance is negative or not a number.
    """
    before = closed_classes(neighbor_graph(indices))
    n_classes = len(before.sizes)
    is_large = np.bincount(component) >= min_component
    limit = AUTO_REVERSE if reverse is None else reverse
    treated = np.full_like(is_large, limit > 0)
    if reverse is None:
        treated = is_large & ~_one_giant_class(before, component)
    if not treated.any():
        return _as_repair(indices, component, _no_edges(indices), _no_edges(indices), n_classes, n_classes)
    is_small = np.append(_is_small_class(before, component), False)  # the last entry serves the transient points, -1
    avoid = np.where(is_small[before.class_of_point], before.class_of_point, -1)
    reverses = _reverse_neighbors(indices, distances, treated[component], avoid, limit)
    bridges, n_left = _bridges(indices, distances, reverses, component, is_large)
    return _as_repair(indices, component, reverses, bridges, n_classes, n_left)


def _as_repair(
    indices: Ids, component: npt.NDArray[np.int32], reverses: Edges, bridges: Edges, n_before: int, n_left: int
) -> Repair:
    added = _concatenate([reverses, bridges])
    added = _take(added, np.lexsort((added.neighbors, added.distances, added.rows)))
    counts = (indices >= 0).sum(axis=1) + np.bincount(added.rows, minlength=len(indices))
    return Repair(
        *added,
        n_reverse_added=len(reverses.rows),
        n_bridges_added=len(bridges.rows),
        closed_classes_before=n_before,
        closed_classes_left=n_left,
        repaired_components=np.unique(component[added.rows]),
        max_neighbors=int(counts.max(initial=0)),
    )


def apply_repair(indices: Ids, distances: Float32, first_row: int, added: Edges, k_max: int) -> tuple[Ids, Float32]:
    """Neighbour lists of a block with the added neighbours, by distance: ((B, k_max) ids, (B, k_max) distances).

    Empty slots come last, with id -1 and distance inf. At equal distances neighbours that were found come before
    those that are added.

    Args:
        indices, distances: (B, K) as found by the search.
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
    extra = int(slot.max(initial=-1)) + 1
    width = max(n_slots + extra, k_max)
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


def _one_giant_class(classes: ClosedClasses, component: Ids) -> Bools:
    """For each component: it has exactly one closed class, and this holds at least half of its points."""
    home = _component_of_class(classes, component)
    sizes = np.bincount(component)
    in_classes = np.bincount(component[classes.class_of_point >= 0], minlength=len(sizes))
    only_one: Bools = np.bincount(home, minlength=len(sizes)) == 1
    return only_one & (2 * in_classes >= sizes)


def _is_small_class(classes: ClosedClasses, component: Ids) -> Bools:
    """For each class: it holds less than half of its component."""
    return 2 * classes.sizes < np.bincount(component)[_component_of_class(classes, component)]


def _component_of_class(classes: ClosedClasses, component: Ids) -> Ids:
    home = np.zeros(len(classes.sizes), dtype=np.int64)
    members = classes.class_of_point >= 0
    home[classes.class_of_point[members]] = component[members]
    return home


def _reverse_neighbors(indices: Ids, distances: Float32, wanted: Bools, avoid: Ids, limit: int) -> Edges:
    """Up to ``limit`` reverse neighbours of each wanted point: first those outside its class ``avoid``, by distance."""
    found = _concatenate(
        [
            _one_way_edges(indices, distances, wanted, start, min(start + ROWS_AT_ONCE, len(indices)))
            for start in range(0, len(indices), ROWS_AT_ONCE)
        ]
    )
    rows, neighbors, lengths = found
    inside = (avoid[rows] >= 0) & (avoid[rows] == avoid[neighbors])
    # One 64-bit key: 31 bits of row, 1 of inside, 32 of distance (floats >= 0 sort like their bits). Candidates come
    # with their neighbours ascending, so the stable sort settles equal distances by the lower id.
    key = rows.astype(np.uint64) << np.uint64(33)
    key |= inside.astype(np.uint64) << np.uint64(32)
    key |= (lengths.astype(np.float32) + np.float32(0.0)).view(np.uint32)  # + 0.0 turns -0.0 into 0.0
    order = np.argsort(key, kind="stable")
    kept = order[rank_in_row(rows[order]) < limit]
    return Edges(rows[kept], neighbors[kept], lengths[kept])


def _one_way_edges(indices: Ids, distances: Float32, wanted: Bools, start: int, stop: int) -> Edges:
    """Reverses i -> j of the edges j -> i from rows j in [start, stop) that have none yet, for wanted i."""
    block, lengths = indices[start:stop], distances[start:stop]
    own = np.arange(start, stop, dtype=indices.dtype)
    one_way = (block >= 0) & wanted[block]
    if not (lengths[block >= 0] >= 0).all():
        raise InputError(
            f"expected distances that are zero or positive, found others in rows {start} to {stop - 1}; "
            "recompute the distances of the neighbours found"
        )
    for slot in range(block.shape[1]):
        one_way[:, slot] &= (indices[block[:, slot]] != own[:, None]).all(axis=1)
    return Edges(block[one_way], np.repeat(own, one_way.sum(axis=1)), lengths[one_way])


def _bridges(indices: Ids, distances: Float32, added: Edges, component: Ids, large: Bools) -> tuple[Edges, int]:
    """Shortest edges out of closed classes until each large component has one: (edges, classes left in the graph).

    A closed class that is not its whole component is entered by some edge; the shortest one is reversed. The class may
    stay closed, grown by the other end, so the step is repeated, on the condensation only.
    """
    graph = neighbor_graph(np.hstack([indices, _as_columns(indices, added)]))
    n_nodes, node = connected_components(graph, directed=True, connection="strong")
    edges = _crossing_edges(indices, distances, added, node)
    condensed = condense(node, n_nodes, edges, component)
    bridges = [_no_edges(indices)]
    while True:
        closed = closed_nodes(condensed)
        to_open = all_but_largest(closed, condensed, large)
        if not to_open.size:
            return _concatenate(bridges), len(closed)
        chosen = shortest_entering(condensed, to_open)
        bridge = Edges(edges.neighbors[chosen], edges.rows[chosen], edges.distances[chosen])
        bridges.append(bridge)
        # A bridge is never reversed itself: its reverse is an edge of the graph, so it enters no closed class.
        edges = _concatenate([edges, bridge])
        condensed = add_reverses(condensed, chosen)


def _crossing_edges(indices: Ids, distances: Float32, added: Edges, node: Ids) -> Edges:
    """Edges between different strong components, shortest first (ties: lowest end, then lowest start)."""
    crosses = (indices >= 0) & (node[indices] != node[:, None])
    rows = np.repeat(np.arange(len(indices), dtype=indices.dtype), crosses.sum(axis=1))
    apart = node[added.rows] != node[added.neighbors]
    rest = Edges(added.rows[apart], added.neighbors[apart], added.distances[apart])
    edges = _concatenate([Edges(rows, indices[crosses], distances[crosses]), rest])
    return _take(edges, np.lexsort((edges.rows, edges.neighbors, edges.distances)))


def _as_columns(indices: Ids, added: Edges) -> Ids:
    """Added neighbours as further slots (n, longest), -1 where a row has fewer."""
    slot = rank_in_row(added.rows)
    columns = np.full((len(indices), int(slot.max(initial=-1)) + 1), -1, dtype=indices.dtype)
    columns[added.rows, slot] = added.neighbors
    return columns


def _no_edges(like: Ids) -> Edges:
    empty = np.zeros(0, dtype=like.dtype)
    return Edges(empty, empty, np.zeros(0, dtype=np.float32))


def _concatenate(parts: list[Edges]) -> Edges:
    return Edges(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _take(edges: Edges, order: Ids) -> Edges:
    return Edges(edges.rows[order], edges.neighbors[order], edges.distances[order])

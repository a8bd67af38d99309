"""The shortest links between the components of a neighbour graph: a minimum spanning tree of the components.

scikit-learn's Isomap links every pair of components by their nearest two points; a tree needs one link less than there
are components. Borůvka's algorithm (1926): each group of joined components takes its shortest link to another group,
until one group is left. All distances are measured from points outside the largest component. Of the largest component
only the point nearest to each of them is used, so the work depends on the smaller components. Of these a run takes some
points each (``candidates``): all distances between groups of many points in many dimensions would take quadratic time.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from ...core.arrays import Float64, Floats, Int64, Ints
from ..neighbors.list_lengths import as_stored
from .connectivity import Edges, rank_in_row

TREE_POINTS = 1024
"""Groups with more points have a separate k-d tree. For a point of a smaller group one neighbour more is searched than
the group has points, so at least one of them is in another group."""
POINTS_AT_ONCE = 4096
CANDIDATES, LEAST_CANDIDATES = 2**12, 4
"""Points outside the largest component between which links are searched, and least number of each component."""
REVERSED_LINKS = 4
"""Links from other components that a point lists, shortest first; more would make it a hub."""


def spanning_links(
    points: Floats, ids: Int64, component: Int64, nearest_ids: Int64, nearest_distances: Float64
) -> tuple[Int64, Float64]:
    """Links that join all components: ids (l, 2), first that of a point of the group that chose it, and lengths (l,).

    Equal arguments give equal links.

    Args:
        points: (s, d) the points outside the largest component.
        ids: (s,) their ids.
        component: (s,) their components.
        nearest_ids: (s,) id of the nearest point of the largest component.
        nearest_distances: (s,) its distance.
    """
    group = np.unique(component, return_inverse=True)[1].astype(np.int64) + 1  # 0: joined with the largest component
    ends, lengths = nearest_ids.copy(), nearest_distances.copy()
    links = np.empty((0, 2), np.int64), np.empty(0)
    # Each group is joined with another one, so a round leaves at most half of the groups.
    while len(outside := np.flatnonzero(group)):
        start, end, distances = _between(points[outside], group[outside])
        own = np.r_[group[outside], group[outside][start]]
        other = np.r_[np.zeros(len(outside), np.int64), group[outside][end]]
        pairs = np.column_stack([np.r_[ids[outside], ids[outside][start]], np.r_[ends[outside], ids[outside][end]]])
        all_lengths = np.r_[lengths[outside], distances]
        chosen = _shortest_of_each_group(own, pairs, all_lengths)
        links = np.vstack([links[0], pairs[chosen]]), np.r_[links[1], all_lengths[chosen]]
        joined = _joined(own[chosen], other[chosen], int(group.max()) + 1)[group]
        absorbed = outside[joined[outside] == 0]
        group = joined
        remaining = np.flatnonzero(group)
        if len(absorbed) and len(remaining):
            near, at = (np.asarray(values) for values in cKDTree(points[absorbed]).query(points[remaining]))
            closer = (near < lengths[remaining]) | (
                (near == lengths[remaining]) & (ids[absorbed][at] < ends[remaining])
            )
            lengths[remaining[closer]], ends[remaining[closer]] = near[closer], ids[absorbed][at[closer]]
    return links


def most_candidates(n_components: int) -> int:
    """Points of a component that ``candidates`` takes at most."""
    return max(LEAST_CANDIDATES, CANDIDATES // n_components)


def candidates(component: Ints) -> Int64:
    """Points outside component 0, of (n,) points: all of a component, or as many evenly spaced ones as are allowed."""
    outside = np.flatnonzero(component)
    order = np.argsort(component[outside], kind="stable")
    of_order = component[outside][order].astype(np.int64)
    size = np.bincount(component)[of_order]
    taken, rank = np.minimum(size, most_candidates(int(component.max()) + 1)), rank_in_row(of_order)
    return np.sort(outside[order[(rank + 1) * taken // size > rank * taken // size]])


def _between(points: Floats, group: Int64) -> tuple[Int64, Int64, Float64]:
    """Pairs of points of different groups, with the shortest of each group among them: (point, other, distance)."""
    sizes = np.bincount(group)
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    tree = cKDTree(points)
    # by powers of two, so that at most twice the needed neighbours of a point are searched
    small = np.flatnonzero(sizes[group] <= TREE_POINTS)
    powers = np.ceil(np.log2(sizes[group[small]] + 1)).astype(np.int64)
    for power in np.unique(powers).tolist():
        members = small[powers == power]
        for first in range(0, len(members), POINTS_AT_ONCE):
            part = members[first : first + POINTS_AT_ONCE]
            k = np.arange(1, min(2**power, len(points)) + 1)
            distances, near = (np.asarray(values) for values in tree.query(points[part], k))
            foreign = group[near] != group[part, None]
            has_foreign = foreign.any(axis=1)  # none: there is one group only
            slot = foreign.argmax(axis=1)[has_foreign]
            rows = np.flatnonzero(has_foreign)
            parts.append((part[rows], near[rows, slot].astype(np.int64), distances[rows, slot]))
    for label in np.flatnonzero(sizes > TREE_POINTS).tolist():
        members, outside = np.flatnonzero(group == label), np.flatnonzero(group != label)
        if len(outside):
            distances, near = (np.asarray(values) for values in cKDTree(points[members]).query(points[outside]))
            parts.append((outside, members[near], distances))
    start, end, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    return np.r_[start, end], np.r_[end, start], np.r_[lengths, lengths]


def _shortest_of_each_group(group: Int64, pairs: Int64, lengths: Float64) -> Int64:
    """Positions of the shortest link of each group, shortest first; once if it is that of both its groups.

    Every link is a candidate of both groups, and ties have one order, so the chosen links have no cycle.
    """
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    order = np.lexsort((high, low, lengths, group))
    first = order[rank_in_row(group[order]) == 0]
    first = first[np.lexsort((high[first], low[first], lengths[first]))]
    _, positions = np.unique(np.column_stack([low, high])[first], axis=0, return_index=True)
    return np.asarray(first[np.sort(positions)])


def _joined(group: Int64, other_group: Int64, n_groups: int) -> Int64:
    """The new group of each group; 0 for those that are joined with group 0."""
    graph = csr_array((np.ones(len(group), np.int8), (group, other_group)), shape=(n_groups, n_groups))
    label = connected_components(graph, directed=False)[1].astype(np.int64)
    return np.where(label == label[0], 0, label + 1)


def as_edges(pairs: Int64, lengths: Float64) -> Edges:
    """Links (l, 2) with lengths (l,) as edges of neighbour lists, sorted by row, then distance.

    Each link is an edge i -> j, and j -> i if it is among the ``REVERSED_LINKS`` shortest to j.
    """
    order = np.lexsort((pairs[:, 0], lengths, pairs[:, 1]))
    reversed_links = order[rank_in_row(pairs[order, 1]) < REVERSED_LINKS]
    rows, neighbors = np.r_[pairs[:, 0], pairs[reversed_links, 1]], np.r_[pairs[:, 1], pairs[reversed_links, 0]]
    distances = as_stored(np.r_[lengths, lengths[reversed_links]])
    order = np.lexsort((neighbors, distances, rows))
    return Edges(rows[order], neighbors[order], distances[order])

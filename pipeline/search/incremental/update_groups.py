"""New points among groups of cells: each is compared exactly with the groups nearest to it, both ways.

A group is a run of cells whose points were searched together and lie together in the store, with all that were appended
to these cells since. An old point takes in the new points that come to its own group.
"""

from collections.abc import Generator

import numpy as np
import numpy.typing as npt

from pipeline.engine import disk_costs, task_costs
from pipeline.engine.plan import (
    WHOLE_DATA,
    Decides,
    Earlier,
    Layout,
    Report,
    Runs,
    Step,
    Writes,
    index_dtype,
    largest_total,
)
from pipeline.kernels.neighbors.cells import nearest_groups
from pipeline.kernels.neighbors.knn import NeighborLists, brute_neighbors, select_nearest
from pipeline.kernels.neighbors.knn_between_sets import mutual_neighbors
from pipeline.kernels.neighbors.list_lengths import as_stored
from pipeline.search import cell_groups
from pipeline.search.cell_groups import KEPT_CELLS, first_target, group_all_cells, lists_at, received_lists, write_lists
from pipeline.storage import array_specs
from pipeline.storage.array_specs import PlannedArray
from pipeline.storage.blocks import block_rows
from pipeline.storage.store import Store, read_elsewhere

PLACE = "_work/appended"
N_GROUPS_NEW = 4
BOUNDED_BY, MOST_BOUNDING = 8, 4096
"""At least so many times k points of its own cell or around it, and so many at most, bound a new point's reach."""
FLOAT32_ERROR = 1e-6
"""Distances are stored in single precision: so much farther, relatively, a point looks."""
FOUND = (array_specs.KNN_INDICES.name, array_specs.KNN_DISTANCES.name)

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]


def search_among_groups(layout: Layout, earlier: Earlier, k: int) -> Generator[Step, list[Report], None]:
    """group_cells -> send_new -> search_new -> merge_new."""
    n, d, block = layout.n_points, layout.n_features, layout.block_points
    row, late = d * np.dtype(layout.dtype).itemsize, n - earlier.n_searched
    target = first_target(layout, k)
    size = {"size": block, "n_points": n}
    kept = {"kept": earlier.n_points, "searched": earlier.n_searched}
    whose = {"earlier": earlier.url, "lists": earlier.lists}
    [groups] = yield Step(
        "find_neighbors",
        "group_cells",
        group_all_cells,
        1,
        Decides({"target": target, "place": PLACE, "kept": True}),
        Runs(cell_groups.group_cells_bytes(n_blocks=1, n_cells=layout.n_cells), place=WHOLE_DATA),
        Writes(bundles=(f"{PLACE}/groups.npz",), bundle_bytes=disk_costs.groups(n_cells=layout.n_cells)),
        expected=lambda b: {"n_groups": max(1, round(earlier.n_searched / target)), "largest": target},
    )
    n_blocks = layout.point_blocks() - earlier.n_searched // block
    # New points lie where old ones do, as far as is known.
    sent_in_all = N_GROUPS_NEW * (n - earlier.n_points) + late
    spread = -(-sent_in_all // groups["n_groups"])
    sent: list[Report] = []
    if n_blocks:
        sent = yield Step(
            "find_neighbors",
            "send_new",
            send_new,
            n_blocks,
            Decides({"n_neighbors": k, **kept, **size}),
            Runs(
                cell_groups.send_members_bytes(block=block, row=row)
                + 2 * task_costs.SCORE_BYTES
                + 3 * MOST_BOUNDING * row
                + 40 * layout.n_cells * d
            ),
            Writes(
                bundles=(f"{PLACE}/group_members",),
                bundle_bytes=disk_costs.members(
                    blocks=n_blocks, groups=groups["n_groups"], visits=sent_in_all, row=row
                ),
            ),
            expected=lambda b: {"new": {"0": min(late, spread) if b == 0 else 0}},
        )
    visits = largest_total([report["new"] for report in sent])
    yield Step(
        "find_neighbors",
        "search_new",
        search_new,
        groups["n_groups"],
        Decides({"n_neighbors": k, **kept, **size}),
        Runs(search_new_bytes(old=groups["largest"], late=visits, row=row, d=d, k=k), resources=whose),
        Writes(
            bundles=(f"{PLACE}/group_neighbors",),
            bundle_bytes=disk_costs.lists(
                blocks=layout.point_blocks(), groups=groups["n_groups"], visits=n + sent_in_all, k=k
            ),
        ),
    )
    yield Step(
        "find_neighbors",
        "merge_new",
        merge_new,
        layout.point_blocks(),
        Decides({"n_neighbors": k, **kept, **size}, version=2),
        Runs(cell_groups.merge_lists_bytes(block=block, k=k, lists=N_GROUPS_NEW + 1), resources=whose),
        Writes(arrays=planned_lists(layout, k)),
    )


def planned_lists(layout: Layout, k: int) -> tuple[PlannedArray, PlannedArray]:
    """The arrays that hold the neighbours found, of all points."""
    n, block = layout.n_points, layout.block_points
    return (PlannedArray(array_specs.KNN_INDICES, (n, k), index_dtype(n), block),
            PlannedArray(array_specs.KNN_DISTANCES, (n, k), "float32", block))  # fmt: skip


def earlier_lists(url: str, place: str, start: int, stop: int) -> NeighborLists:
    """The lists that points had in an earlier version, distances as stored in single precision."""
    then = Store(url)
    with read_elsewhere(then):
        ids, distances = (then.read(spec.name, start, stop) for spec in lists_at(place))
    return NeighborLists(ids.astype(np.int64), distances.astype(np.float64))


def send_new(store: Store, block: int, n_neighbors: int, kept: int, searched: int, size: int, n_points: int) -> Report:
    """Send the new points of a block to the groups nearest to them, and every point appended so far to its own.

    A new point takes along how far its neighbours can be. Blocks are counted from the first with appended points.
    """
    start, stop = block_rows(block + searched // size, size, n_points)
    ids, points = np.arange(start, stop), store.read(array_specs.POINTS.name, start, stop)
    groups = store.read_bundle(f"{PLACE}/groups")["groups"]
    cells = store.read(array_specs.NEAREST_CELLS.name, start, stop)[:, 0]
    own, new = np.where(ids >= searched, groups[cells], -1), ids >= kept
    centers = store.read_bundle("_work/cells")["centers"]
    visited, reach = np.full((len(ids), N_GROUPS_NEW), -1, np.int32), np.zeros(len(ids))
    nearest = nearest_groups(points[new], centers, groups, N_GROUPS_NEW)
    visited[new, : nearest.shape[1]] = nearest
    reach[new] = bounded_reach(store, points[new], cells[new], n_neighbors)
    sent = {}
    for group in np.unique(np.column_stack([own, visited])).tolist():
        rows = np.flatnonzero((own == group) | (visited == group).any(axis=1))
        if group >= 0:
            store.write_bundle(
                f"{PLACE}/group_members/{group:05d}/{block:05d}", members=ids[rows], points=points[rows],
                own=own[rows] == group, visits=(visited[rows] == group).any(axis=1), reach=reach[rows],
            )  # fmt: skip
            sent[str(group)] = len(rows)
    return {"new": sent}


def bounded_reach(store: Store, points: Floats, cells: Ids, k: int) -> npt.NDArray[np.float64]:
    """(b,) distance within which new points (b, d) have k others: to the k-th old point in or around their own cell."""
    ends = np.cumsum(store.read_bundle(KEPT_CELLS)["counts"])
    reach = np.empty(len(points))
    for cell in np.unique(cells).tolist():
        rows = np.flatnonzero(cells == cell)
        first, past = int(ends[cell - 1]) if cell else 0, int(ends[cell])
        spare = max(0, BOUNDED_BY * k - (past - first))
        first, past = max(0, first - spare), min(int(ends[-1]), past + spare, first + MOST_BOUNDING + BOUNDED_BY * k)
        near = store.read(array_specs.POINTS.name, first, past)
        found = brute_neighbors(points[rows], np.full(len(rows), -1), near, np.arange(first, past), k)
        reach[rows] = found.distances[:, -1]
    return reach


def search_new(
    store: Store, block: int, n_neighbors: int, kept: int, searched: int, size: int, n_points: int, earlier: str,
    lists: str,
) -> Report:  # fmt: skip
    """Compare the new points that visit a group with its members, both ways, exactly."""
    parts = [store.read_bundle(name.removesuffix(".npz"))
             for name in store.objects.names(f"{PLACE}/group_members/{block:05d}")]  # fmt: skip
    if not any(part["visits"].any() for part in parts):
        return {"new": 0, "members": 0}
    late = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    visits, own = late["visits"], late["own"]
    first, past = rows_of_group(store, block)
    ids = np.concatenate([np.arange(first, past), late["members"][own]])
    points = np.concatenate([store.read(array_specs.POINTS.name, first, past), late["points"][own]])
    new_ids, old = late["members"][visits], ids < kept
    reach = np.full(len(ids), -np.inf)  # appended points look for the new ones only by visiting
    reach[old] = (1 + FLOAT32_ERROR) * np.concatenate([
        earlier_lists(earlier, lists, first, past).distances[:, -1],
        _gathered_reach(earlier, lists, ids[old][past - first :]),
    ])  # fmt: skip
    found, reached = mutual_neighbors(
        late["points"][visits], new_ids, late["reach"][visits], points, ids, reach, n_neighbors
    )  # fmt: skip
    taken = np.flatnonzero((reached.ids >= 0).any(axis=1))
    columns = [(ids[taken], new_ids), (reached.ids[taken], found.ids), (reached.distances[taken], found.distances)]
    members, listed, distances = (np.concatenate(pair) for pair in columns)
    order = np.argsort(members, kind="stable")
    cuts = np.searchsorted(members[order], np.arange(0, n_points + size, size))
    for target in np.flatnonzero(np.diff(cuts)):
        rows = order[cuts[target] : cuts[target + 1]]
        name = f"{PLACE}/group_neighbors/{target:05d}/{block:05d}"
        store.write_bundle(name, members=members[rows], ids=listed[rows], distances=distances[rows])
    return {"new": len(new_ids), "members": len(ids), "reached": len(taken)}


def rows_of_group(store: Store, group: int) -> tuple[int, int]:
    """[first, past): where the points of a group's cells lie that were searched together."""
    groups, counts = store.read_bundle(f"{PLACE}/groups")["groups"], store.read_bundle(KEPT_CELLS)["counts"]
    return int(counts[groups < group].sum()), int(counts[groups <= group].sum())


def _gathered_reach(url: str, place: str, rows: Ids) -> npt.NDArray[np.float64]:
    then = Store(url)
    with read_elsewhere(then):
        return np.asarray(then.gather(lists_at(place)[1].name, rows)[:, -1], np.float64)


def merge_new(
    store: Store, block: int, n_neighbors: int, kept: int, searched: int, size: int, n_points: int, earlier: str,
    lists: str,
) -> Report:  # fmt: skip
    """Merge what a block's points found in the groups with the lists they had.

    All distances are compared in single precision, as the old ones are stored, so that ties go to the lower id.
    """
    start, stop = block_rows(block, size, n_points)
    ids, distances, n_lists = received_lists(
        store, f"{PLACE}/group_neighbors/{block:05d}", start, stop, N_GROUPS_NEW + 1, n_neighbors
    )  # fmt: skip
    n_kept = max(0, min(stop, kept) - start)
    if n_kept:
        before = earlier_lists(earlier, lists, start, start + n_kept)
        ids[:n_kept, -1], distances[:n_kept, -1] = before
    flat = (stop - start, (N_GROUPS_NEW + 1) * n_neighbors)
    rounded = as_stored(distances.reshape(flat))
    merged = select_nearest(ids.reshape(flat), rounded, np.arange(start, stop), n_neighbors)
    write_lists(store, start, merged, FOUND)
    return {"lists": n_lists, "kept": n_kept}


# --- bytes of a task (engine/task_costs.py says what they count)


def search_new_bytes(*, old: int, late: int, row: int, d: int, k: int) -> int:
    tiles = min(late, 8192) * (1024 * 12 + ((old + late) // 1024 + 2) * 48 * k)  # a tenth of a tile's pairs may be near
    return task_costs.TASK_BYTES + task_costs.SCORE_BYTES + (old + late) * (4 * row + 24 * d + 100 * k) + tiles

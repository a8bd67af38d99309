"""Search for appended points in groups of cells: each is compared exactly with its nearest groups, in both directions.

A group is a range of cells whose points were searched and stored together, plus the points appended to these cells
later. An old point is compared with the new points that visit its own group.
"""

from collections.abc import Generator

import numpy as np
import numpy.typing as npt

from ...engine import disk_costs, task_costs
from ...engine.plan import WHOLE_DATA, Decides, Earlier, Json, Layout, Report, Runs, Step, Writes
from ...engine.plan_sizes import index_dtype, largest_total
from ...kernels.neighbors.cells import nearest_groups
from ...kernels.neighbors.knn import NeighborLists, brute_neighbors, select_nearest
from ...kernels.neighbors.knn_between_sets import mutual_neighbors
from ...kernels.neighbors.list_lengths import as_stored
from ...storage import array_specs
from ...storage.array_specs import PlannedArray
from ...storage.blocks import Blocks
from ...storage.store import Store, read_elsewhere
from .. import cell_groups
from ..cell_groups import KEPT_CELLS, Folder, first_target, group_all_cells, write_lists

APPENDED = Folder("_work/appended")
N_GROUPS_NEW = 4
BOUNDED_BY, MAX_BOUNDING = 8, 4096
"""Bounds on the points that limit a new point's reach: at least BOUNDED_BY * k points in or around its own cell."""
FLOAT32_ERROR = 1e-6
"""Relative error of distances stored in single precision; reaches are increased by it."""
FOUND = (array_specs.KNN_INDICES.name, array_specs.KNN_DISTANCES.name)

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]


def search_among_groups(layout: Layout, earlier: Earlier, k: int) -> Generator[Step, list[Report], None]:
    """group_cells -> send_new -> search_new -> merge_new."""
    n, d, block_size = layout.n_points, layout.n_features, layout.block_points
    row, target = d * np.dtype(layout.dtype).itemsize, first_target(layout, k)
    sizes_then = {"kept": earlier.n_points, "searched": earlier.n_searched}
    parameters = {"n_neighbors": k, **sizes_then, "blocks": Blocks(n, block_size)}
    resources = {"earlier": earlier.url, "lists": earlier.lists}
    [groups] = yield Step(
        "find_neighbors",
        "group_cells",
        group_all_cells,
        1,
        Decides({"target": target, "place": APPENDED.place, "kept": True}),
        Runs(cell_groups.group_cells_bytes(n_blocks=1, n_cells=layout.n_cells), place=WHOLE_DATA),
        Writes(bundles=(f"{APPENDED.groups}.npz",), bundle_bytes=disk_costs.groups(n_cells=layout.n_cells)),
        expected=lambda b: {"n_groups": max(1, round(earlier.n_searched / target)), "largest": target},
    )
    n_groups = groups["n_groups"]
    # The plan assumes that new points are distributed like the old ones.
    sent_in_all = N_GROUPS_NEW * (n - earlier.n_points) + n - earlier.n_searched
    sent: list[Report] = []
    if layout.point_blocks() > earlier.n_searched // block_size:
        sent = yield send_new_step(layout, earlier, parameters, n_groups, sent_in_all)
    visits = largest_total([report["new"] for report in sent])
    n_bytes = disk_costs.lists(blocks=layout.point_blocks(), groups=n_groups, visits=n + sent_in_all, k=k)
    yield Step(
        "find_neighbors",
        "search_new",
        search_new,
        n_groups,
        Decides(parameters, version=2),
        Runs(search_new_bytes(old=groups["largest"], late=visits, row=row, d=d, k=k), resources=resources),
        Writes(bundles=(APPENDED.neighbors(),), bundle_bytes=n_bytes),
        frees=(APPENDED.members(),),
    )
    yield Step(
        "find_neighbors",
        "merge_new",
        merge_new,
        layout.point_blocks(),
        Decides(parameters, version=2),
        Runs(cell_groups.merge_lists_bytes(block_size=block_size, k=k, lists=N_GROUPS_NEW + 1), resources=resources),
        Writes(arrays=planned_lists(layout, k)),
        frees=(APPENDED.neighbors(),),
    )


def send_new_step(layout: Layout, earlier: Earlier, parameters: Json, n_groups: int, sent_in_all: int) -> Step:
    row, n_appended = layout.n_features * np.dtype(layout.dtype).itemsize, layout.n_points - earlier.n_searched
    n_blocks = layout.point_blocks() - earlier.n_searched // layout.block_points
    n_bytes = 2 * task_costs.SCORE_BYTES
    n_bytes += cell_groups.send_members_bytes(block_size=layout.block_points, row=row, overlap=N_GROUPS_NEW + 1)
    disk_bytes = disk_costs.members(blocks=n_blocks, groups=n_groups, visits=sent_in_all, row=row)
    spread = min(n_appended, -(-sent_in_all // n_groups))
    return Step(
        "find_neighbors",
        "send_new",
        send_new,
        n_blocks,
        Decides(parameters, version=2),
        Runs(n_bytes + 3 * MAX_BOUNDING * row + 40 * layout.n_cells * layout.n_features),
        Writes(bundles=(APPENDED.members(),), bundle_bytes=disk_bytes),
        expected=lambda b: {"new": {"0": spread if b == 0 else 0}},
    )


def planned_lists(layout: Layout, k: int) -> tuple[PlannedArray, PlannedArray]:
    """The arrays of all neighbour lists."""
    n, block_size = layout.n_points, layout.block_points
    return (PlannedArray(array_specs.KNN_INDICES, (n, k), index_dtype(n), block_size),
            PlannedArray(array_specs.KNN_DISTANCES, (n, k), "float32", block_size))  # fmt: skip


def earlier_lists(url: str, place: str, start: int, stop: int) -> NeighborLists:
    """The lists of points in an earlier version, with the stored single-precision distances."""
    earlier_store = Store(url)
    with read_elsewhere(earlier_store):
        ids, distances = (earlier_store.read(spec.name, start, stop) for spec in Folder(place).lists)
    return NeighborLists(ids.astype(np.int64), distances.astype(np.float64))


def send_new(store: Store, block_index: int, n_neighbors: int, kept: int, searched: int, blocks: Blocks) -> Report:
    """Send the new points of a block to their nearest groups, and every point appended so far to its own group.

    A new point carries its reach, a bound on the distance of its neighbours. Blocks are counted from the first one with
    appended points.
    """
    start, stop = blocks.rows(block_index + searched // blocks.size)
    ids, points = np.arange(start, stop), store.read(array_specs.POINTS.name, start, stop)
    groups = store.read_bundle(APPENDED.groups)["groups"]
    cells = store.read(array_specs.NEAREST_CELLS.name, start, stop)[:, 0]
    own_group, is_new = np.where(ids >= searched, groups[cells], -1), ids >= kept
    centers = store.read_bundle("_work/cells")["centers"]
    visited_groups, reach = np.full((len(ids), N_GROUPS_NEW), -1, np.int32), np.zeros(len(ids))
    nearest = nearest_groups(points[is_new], centers, groups, N_GROUPS_NEW)
    visited_groups[is_new, : nearest.shape[1]] = nearest
    reach[is_new] = bounded_reach(store, points[is_new], cells[is_new], n_neighbors)
    rows_of = {group: np.flatnonzero((own_group == group) | (visited_groups == group).any(axis=1))
               for group in np.unique(np.column_stack([own_group, visited_groups])).tolist() if group >= 0}  # fmt: skip
    parts = ((group, {
        "members": ids[rows], "points": points[rows], "own": own_group[rows] == group,
        "visits": (visited_groups[rows] == group).any(axis=1), "reach": reach[rows],
    }) for group, rows in rows_of.items())  # fmt: skip
    store.write_parts(APPENDED.members(block_index), int(groups.max()) + 1, parts)
    return {"new": {str(group): len(rows) for group, rows in rows_of.items()}}


def bounded_reach(store: Store, points: Floats, cells: Ids, k: int) -> npt.NDArray[np.float64]:
    """(b,) reach of new points (b, d): the distance of the k-th old point in or around their own cell."""
    ends = np.cumsum(store.read_bundle(KEPT_CELLS)["counts"])
    reach = np.empty(len(points))
    for cell in np.unique(cells).tolist():
        rows = np.flatnonzero(cells == cell)
        first, stop = int(ends[cell - 1]) if cell else 0, int(ends[cell])
        spare = max(0, BOUNDED_BY * k - (stop - first))
        first, stop = max(0, first - spare), min(int(ends[-1]), stop + spare, first + MAX_BOUNDING + BOUNDED_BY * k)
        near = store.read(array_specs.POINTS.name, first, stop)
        lists = brute_neighbors(points[rows], np.full(len(rows), -1), near, np.arange(first, stop), k)
        reach[rows] = lists.distances[:, -1]
    return reach


def search_new(
    store: Store, block_index: int, n_neighbors: int, kept: int, searched: int, blocks: Blocks, earlier: str,
    lists: str,
) -> Report:  # fmt: skip
    """Compare the new points that visit a group with its members, in both directions, exactly."""
    n_sending = blocks.count - searched // blocks.size
    parts = cell_groups.received_members(store, APPENDED, block_index, n_sending)
    if not any(part["visits"].any() for part in parts):
        store.write_parts(APPENDED.neighbors(block_index), blocks.count, ())
        return {"new": 0, "members": 0}
    appended = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    visits, is_own = appended["visits"], appended["own"]
    first, stop = rows_of_group(store, block_index)
    ids = np.concatenate([np.arange(first, stop), appended["members"][is_own]])
    points = np.concatenate([store.read(array_specs.POINTS.name, first, stop), appended["points"][is_own]])
    new_ids, old = appended["members"][visits], ids < kept
    reach = np.full(len(ids), -np.inf)  # appended points find new ones only by their own visits
    reach[old] = (1 + FLOAT32_ERROR) * np.concatenate([
        earlier_lists(earlier, lists, first, stop).distances[:, -1],
        _gathered_reach(earlier, lists, ids[old][stop - first :]),
    ])  # fmt: skip
    of_new, of_members = mutual_neighbors(
        appended["points"][visits], new_ids, appended["reach"][visits], points, ids, reach, n_neighbors
    )  # fmt: skip
    updated = np.flatnonzero((of_members.ids >= 0).any(axis=1))
    columns = [
        (ids[updated], new_ids),
        (of_members.ids[updated], of_new.ids),
        (of_members.distances[updated], of_new.distances),
    ]
    members, neighbor_ids, distances = (np.concatenate(pair) for pair in columns)
    order = np.argsort(members, kind="stable")
    sorted_lists = NeighborLists(neighbor_ids[order], distances[order])
    cell_groups.write_by_block(store, APPENDED.neighbors(block_index), members[order], sorted_lists, blocks)
    return {"new": len(new_ids), "members": len(ids), "reached": len(updated)}


def rows_of_group(store: Store, group: int) -> tuple[int, int]:
    """Row range [start, stop) of the points of a group's cells that were searched together."""
    groups, counts = store.read_bundle(APPENDED.groups)["groups"], store.read_bundle(KEPT_CELLS)["counts"]
    return int(counts[groups < group].sum()), int(counts[groups <= group].sum())


def _gathered_reach(url: str, place: str, rows: Ids) -> npt.NDArray[np.float64]:
    earlier_store = Store(url)
    with read_elsewhere(earlier_store):
        return np.asarray(earlier_store.gather(Folder(place).lists[1].name, rows)[:, -1], np.float64)


def merge_new(
    store: Store, block_index: int, n_neighbors: int, kept: int, searched: int, blocks: Blocks, earlier: str,
    lists: str,
) -> Report:  # fmt: skip
    """Merge the lists of a block's points from the groups with their earlier lists.

    Distances are compared in single precision, in which the old ones are stored, so that ties go to the lower id.
    """
    start, stop = blocks.rows(block_index)
    ids, distances, n_lists = cell_groups.received_lists(
        store, APPENDED, block_index, blocks, N_GROUPS_NEW + 1, n_neighbors
    )  # fmt: skip
    n_kept = max(0, min(stop, kept) - start)
    if n_kept:
        earlier_part = earlier_lists(earlier, lists, start, start + n_kept)
        ids[:n_kept, -1], distances[:n_kept, -1] = earlier_part
    flat = (stop - start, (N_GROUPS_NEW + 1) * n_neighbors)
    rounded = as_stored(distances.reshape(flat))
    merged = select_nearest(ids.reshape(flat), rounded, np.arange(start, stop), n_neighbors)
    write_lists(store, start, merged, FOUND)
    return {"lists": n_lists, "kept": n_kept}


# --- bytes of a task (engine/task_costs.py explains the terms)


def search_new_bytes(*, old: int, late: int, row: int, d: int, k: int) -> int:
    tiles = min(late, 8192) * (1024 * 12 + ((old + late) // 1024 + 2) * 48 * k)  # a tenth of a tile's pairs may be near
    return task_costs.TASK_BYTES + task_costs.SCORE_BYTES + (old + late) * (4 * row + 24 * d + 100 * k) + tiles

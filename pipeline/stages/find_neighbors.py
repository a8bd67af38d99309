"""The k nearest neighbours of every point, and how many of them it keeps where points have different numbers.

kdtree: exact, by block: the block's own points bound how far a neighbour can be, and only the cells within that
reach are read besides, a batch at a time. brute: exact, against all points. pynndescent: every point is sent to the
groups of cells nearest to it, each group is searched by itself, and the lists are merged by distance; so every chunk of
points is read once.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pipeline import list_sizes, memory, schema
from pipeline.config import Config
from pipeline.kernels.knn import (
    NeighborLists,
    brute_neighbors,
    cell_neighbors,
    kdtree_neighbors,
    select_nearest,
)
from pipeline.kernels.partition import Boxes, boxes_within, first_distinct, group_cells
from pipeline.plan import (
    Layout,
    PlannedArray,
    Report,
    Step,
    Steps,
    block_rows,
    index_dtype,
    largest_total,
    neighbor_method,
)
from pipeline.store import Store

Ids = npt.NDArray[np.int64]

FOUND = (schema.KNN_INDICES, schema.KNN_DISTANCES)
FOUND_LONG = (schema.SEARCHED_INDICES, schema.SEARCHED_DISTANCES)
KNN = tuple(spec.name for spec in FOUND)

GROUP_POINTS = 50_000
GROUP_BYTES = 256 * 2**20
GROUP_BLOCKS = 8  # blocks follow the workers' memory, and groups follow the blocks
N_GROUPS_EACH = 2
HALO_ROWS = 65_536
EXACT_CELL = 4096


def steps(config: Config, layout: Layout) -> Steps:
    """search (or group_cells -> search_cells -> merge), and where lists vary in length what list_sizes does."""
    if config.varies:
        searched = layout if config.neighbors.precomputed else (yield from _search(config, layout, FOUND_LONG))
        return (yield from list_sizes.steps(config, searched))
    return (yield from _search(config, layout, FOUND))


def _search(config: Config, layout: Layout, found: tuple[schema.ArraySpec, schema.ArraySpec]) -> Steps:
    """k_max nearest neighbours of every point, into two arrays."""
    n, k, block = layout.n_points, config.k_bounds[1], layout.block_points
    method = neighbor_method(config.neighbors.method, n, layout.n_features)
    arrays = (
        PlannedArray(found[0], (n, k), index_dtype(n), block),
        PlannedArray(found[1], (n, k), "float32", block),
    )
    target_arrays = {} if found == FOUND else {"into": [spec.name for spec in found]}
    d, row = layout.n_features, layout.n_features * np.dtype(layout.dtype).itemsize
    size = {"size": block, "n_points": n}
    if method != "pynndescent":
        yield Step(
            "find_neighbors", "search", search_block, layout.point_blocks(),
            memory.search_brute(block=block, n=n, row=row, d=d, k=k) if method == "brute" else memory.search_tree(
                block=block, halo=HALO_ROWS, row=row, d=d, k=k, n_boxes=layout.n_cells + layout.point_blocks()
            ),
            {"method": method, "n_neighbors": k, "n_blocks": layout.point_blocks(), **target_arrays, **size},
            arrays=arrays,
        )  # fmt: skip
        return replace(layout, k_max=k)
    target = max(10 * k, min(GROUP_POINTS, GROUP_BYTES // row, GROUP_BLOCKS * block))
    n_groups = max(1, round(n / target))
    [groups] = yield Step(
        "find_neighbors", "group_cells", group_all_cells, 1,
        memory.group_cells(n_blocks=layout.input_blocks(), n_cells=layout.n_cells), {"target": target},
        bundles=("_work/groups.npz",), on_driver=True, expected=lambda b: {"n_groups": n_groups},
    )  # fmt: skip
    sent = yield Step(
        "find_neighbors", "send_members", send_members, layout.point_blocks(),
        memory.send_members(block=block, row=row), {"n_groups_each": N_GROUPS_EACH, **size},
        bundles=("_work/group_members",),
        expected=lambda b: {"members": {"0": min(n, N_GROUPS_EACH * target) if b == 0 else 0}},
    )  # fmt: skip
    members = largest_total([report["members"] for report in sent])
    yield Step(
        "find_neighbors", "search_cells", search_group, groups["n_groups"],
        memory.search_cells(members=members, row=row, d=d, k=k),
        {"n_neighbors": k, "exact_below": EXACT_CELL, "seed": config.neighbors.seed, "size": block},
        bundles=("_work/group_neighbors",),
    )  # fmt: skip
    yield Step(
        "find_neighbors", "merge", merge_block, layout.point_blocks(),
        memory.merge_lists(block=block, k=k, lists=N_GROUPS_EACH),
        {"n_neighbors": k, "n_groups_each": N_GROUPS_EACH, **target_arrays, **size}, arrays=arrays,
    )  # fmt: skip
    return replace(layout, k_max=k)


def search_block(
    store: Store, block: int, method: str, n_neighbors: int, n_blocks: int, size: int, n_points: int,
    into: Sequence[str] = KNN,
) -> Report:  # fmt: skip
    """Exact neighbours of a block of points."""
    start, stop = block_rows(block, size, n_points)
    search = search_by_tree if method == "kdtree" else search_by_brute_force
    lists, n_read = search(store, start, stop, n_neighbors, n_blocks, n_points)
    _write(store, start, lists, into)
    return {"rows_read": n_read}


def search_by_brute_force(
    store: Store, start: int, stop: int, n_neighbors: int, n_blocks: int, n_points: int
) -> tuple[NeighborLists, int]:
    """Against all points; (neighbours of the rows [start, stop), rows read)."""
    everything, all_ids = store.read_all(schema.POINTS.name), np.arange(n_points)
    slices = [slice(first, min(first + 1024, stop)) for first in range(start, stop, 1024)]
    parts = [brute_neighbors(everything[s], all_ids[s], everything, all_ids, n_neighbors) for s in slices]
    return NeighborLists(*(np.concatenate(columns) for columns in zip(*parts, strict=True))), n_points


def search_by_tree(
    store: Store, start: int, stop: int, n_neighbors: int, n_blocks: int, n_points: int
) -> tuple[NeighborLists, int]:
    """Against the block's own points first; then, if need be, against the cells within the reach these give."""
    own, ids = store.read(schema.POINTS.name, start, stop), np.arange(start, stop)
    boxes, near, points = read_boxes(store, n_blocks), ids, own
    if len(own) <= n_neighbors < n_points:
        near = np.sort(np.concatenate([ids, nearest_rows(boxes, start, stop, n_neighbors + 1)]))
        points = store.gather(schema.POINTS.name, near)
    lists = kdtree_neighbors(own, ids, points, near, n_neighbors)
    n_read = len(near)
    for batch in batches_of(boxes, boxes_within_reach(boxes, start, stop, own, lists.distances[:, -1]), HALO_ROWS):
        halo = rows_of(boxes, batch)
        gap = np.maximum(0.0, np.maximum(boxes.low[batch].min(axis=0) - own, own - boxes.high[batch].max(axis=0)))
        rows = np.flatnonzero(np.einsum("bd,bd->b", gap, gap) <= lists.distances[:, -1] ** 2)
        # the block's own points are in the tree too: without near ones a query would look through all the far ones
        points = np.concatenate([own, store.gather(schema.POINTS.name, halo)])
        more = kdtree_neighbors(own[rows], ids[rows], points, np.concatenate([ids, halo]), n_neighbors)
        both = (np.hstack([lists.ids[rows], more.ids]), np.hstack([lists.distances[rows], more.distances]))
        for column, better in zip(lists, select_nearest(*both, ids[rows], n_neighbors), strict=True):
            column[rows] = better
        n_read += len(halo)
    return lists, n_read


def read_boxes(store: Store, n_blocks: int) -> Boxes:
    """The bounding boxes of all cells, cut where blocks of points end."""
    parts = [store.read_bundle(f"_work/boxes/{b:05d}") for b in range(n_blocks)]
    return Boxes(**{key: np.concatenate([part[key] for part in parts]) for key in Boxes._fields})


def boxes_within_reach(
    boxes: Boxes, start: int, stop: int, points: npt.NDArray[np.floating], reach: npt.NDArray[np.float64]
) -> Ids:
    """Boxes of rows outside [start, stop) that are within reach (b,) of one of its points (b, d)."""
    own = (boxes.start >= start) & (boxes.start < stop)
    points = points.astype(np.float64)
    wanted = np.zeros(len(own), bool)
    for i in np.flatnonzero(own):
        part = slice(int(boxes.start[i]) - start, int(boxes.stop[i]) - start)
        near = boxes_within(boxes, boxes.low[i], boxes.high[i], float(reach[part].max())) & ~own & ~wanted
        for j in np.flatnonzero(near):
            gap = np.maximum(0.0, np.maximum(boxes.low[j] - points[part], points[part] - boxes.high[j]))
            wanted[j] = bool((np.einsum("bd,bd->b", gap, gap) <= reach[part] ** 2).any())
    return np.flatnonzero(wanted)


def batches_of(boxes: Boxes, chosen: Ids, n_rows: int) -> list[Ids]:
    """The chosen boxes in runs of about n_rows rows, so that no more are held at one time."""
    total = np.cumsum((boxes.stop - boxes.start)[chosen])
    return np.split(chosen, np.flatnonzero(np.diff(total // n_rows)) + 1) if len(chosen) else []


def nearest_rows(boxes: Boxes, start: int, stop: int, n_wanted: int) -> Ids:
    """At least n_wanted rows of the cells nearest to a block that has too few points to bound the search itself."""
    own = (boxes.start >= start) & (boxes.start < stop)
    middle = (boxes.low[own] + boxes.high[own]).mean(axis=0)
    others = np.flatnonzero(~own)
    order = others[np.argsort(np.square(boxes.low[others] + boxes.high[others] - middle).sum(axis=1), kind="stable")]
    enough = int(np.searchsorted(np.cumsum((boxes.stop - boxes.start)[order]), n_wanted)) + 1
    return rows_of(boxes, order[:enough])


def rows_of(boxes: Boxes, chosen: Ids) -> Ids:
    """The rows of the chosen boxes."""
    rows = [np.arange(boxes.start[i], boxes.stop[i]) for i in chosen]
    return np.concatenate(rows) if rows else np.empty(0, np.int64)


def group_all_cells(store: Store, block: int, target: int) -> Report:
    """Which group every cell belongs to."""
    groups = group_cells(store.read_all(schema.CELL_COUNTS.name).sum(axis=0), target)
    store.write_bundle("_work/groups", groups=groups)
    return {"n_groups": int(groups.max()) + 1}


def send_members(store: Store, block: int, n_groups_each: int, size: int, n_points: int) -> Report:
    """Send every point of a block to the groups of cells nearest to it, a bundle for each group."""
    start, stop = block_rows(block, size, n_points)
    groups = store.read_bundle("_work/groups")["groups"]
    nearest = first_distinct(groups[store.read(schema.NEAREST_CELLS.name, start, stop)], n_groups_each)
    points = store.read(schema.POINTS.name, start, stop)
    sent = {}
    for group in np.unique(nearest[nearest >= 0]).tolist():
        rows = np.flatnonzero((nearest == group).any(axis=1))
        store.write_bundle(f"_work/group_members/{group:05d}/{block:05d}", members=rows + start, points=points[rows])
        sent[str(group)] = len(rows)
    return {"members": sent}


def search_group(store: Store, block: int, n_neighbors: int, exact_below: int, seed: int, size: int) -> Report:
    """Neighbours of all members of a group of cells among each other, a bundle for each block of points."""
    members, points = read_members(store, block)
    lists = cell_neighbors(points, members, n_neighbors, exact_below, (seed + block) % 2**32)
    cuts = np.searchsorted(members, np.arange(0, int(members[-1]) + size + 1, size))
    for target in np.flatnonzero(np.diff(cuts)):
        part = slice(cuts[target], cuts[target + 1])
        name = f"_work/group_neighbors/{target:05d}/{block:05d}"
        store.write_bundle(name, members=members[part], ids=lists.ids[part], distances=lists.distances[part])
    return {"members": len(members)}


def read_members(store: Store, group: int) -> tuple[Ids, npt.NDArray[np.floating]]:
    """(ids of a group's members, ascending; their points)."""
    names = store.objects.names(f"_work/group_members/{group:05d}")
    parts = [store.read_bundle(name.removesuffix(".npz")) for name in names]
    return np.concatenate([part["members"] for part in parts]), np.concatenate([part["points"] for part in parts])


def merge_block(
    store: Store, block: int, n_neighbors: int, n_groups_each: int, size: int, n_points: int,
    into: Sequence[str] = KNN,
) -> Report:  # fmt: skip
    """Merge the lists a block's points got in their groups."""
    start, stop = block_rows(block, size, n_points)
    ids = np.full((stop - start, n_groups_each, n_neighbors), -1, np.int64)
    distances = np.full(ids.shape, np.inf)
    filled = np.zeros(stop - start, np.int64)
    for name in store.objects.names(f"_work/group_neighbors/{block:05d}"):
        part = store.read_bundle(name.removesuffix(".npz"))
        rows = part["members"] - start
        ids[rows, filled[rows]] = part["ids"]
        distances[rows, filled[rows]] = part["distances"]
        filled[rows] += 1
    flat = (stop - start, n_groups_each * n_neighbors)
    lists = select_nearest(ids.reshape(flat), distances.reshape(flat), np.arange(start, stop), n_neighbors)
    _write(store, start, lists, into)
    return {"lists": int(filled.sum())}


def _write(store: Store, start: int, lists: NeighborLists, into: Sequence[str]) -> None:
    ids, distances = into
    store.write(ids, start, lists.ids.astype(store.array(ids).dtype))
    store.write(distances, start, lists.distances.astype(np.float32))

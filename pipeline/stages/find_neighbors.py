"""The k nearest neighbours of every point, their recall, and the graph they form, mended where it must be.

kdtree: exact, by block: the block's own points bound how far a neighbour can be, and only the cells within that
reach are read besides. brute: exact, against all points. pynndescent: each group of cells is searched with the
points for which it is one of the nearest groups, and the lists are merged by distance.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pipeline import schema
from pipeline.config import Config
from pipeline.kernels.knn import (
    NeighborLists,
    brute_neighbors,
    cell_neighbors,
    kdtree_neighbors,
    select_nearest,
)
from pipeline.kernels.partition import Boxes, boxes_within, first_distinct, group_cells
from pipeline.plan import Layout, PlannedArray, Report, Step, Steps, block_rows, index_dtype, neighbor_method
from pipeline.store import Store

Ids = npt.NDArray[np.int64]

GROUP_POINTS = 50_000
GROUP_BYTES = 256 * 2**20
N_GROUPS_EACH = 2
EXACT_CELL = 4096


def steps(config: Config, layout: Layout) -> Steps:
    """search (or group_cells -> search_cells -> merge)."""
    n, k, block = layout.n_points, config.neighbors.n_neighbors, layout.block_points
    method = neighbor_method(config.neighbors.method, n, layout.n_features)
    arrays = (
        PlannedArray(schema.KNN_INDICES, (n, k), index_dtype(n), block),
        PlannedArray(schema.KNN_DISTANCES, (n, k), "float32", block),
    )
    row_bytes = layout.n_features * np.dtype(layout.dtype).itemsize
    size = {"size": block, "n_points": n}
    if method != "pynndescent":
        yield Step(
            "find_neighbors", "search", search_block, layout.point_blocks(),
            block * (10 * row_bytes + 64 * k) + (3 * n * row_bytes if method == "brute" else 0),
            {"method": method, "n_neighbors": k, "n_blocks": layout.point_blocks(), **size}, arrays=arrays,
        )  # fmt: skip
        return replace(layout, k_max=k)
    target = max(10 * k, min(GROUP_POINTS, GROUP_BYTES // row_bytes))
    n_groups = max(1, round(n / target))
    [groups] = yield Step(
        "find_neighbors", "group_cells", group_points, 1, n * (12 * N_GROUPS_EACH + 40),
        {"target": target, "n_groups_each": N_GROUPS_EACH}, bundles=("_work/groups",), on_driver=True,
        expected=lambda b: {"n_groups": n_groups},
    )  # fmt: skip
    members = min(n, 2 * N_GROUPS_EACH * target)
    yield Step(
        "find_neighbors", "search_cells", search_group, groups["n_groups"], members * (4 * row_bytes + 400 * k),
        {"n_neighbors": k, "exact_below": EXACT_CELL, "seed": config.neighbors.seed, "size": block},
        bundles=("_work/group_neighbors",),
    )  # fmt: skip
    yield Step(
        "find_neighbors", "merge", merge_block, layout.point_blocks(), block * N_GROUPS_EACH * k * 60,
        {"n_neighbors": k, "n_groups_each": N_GROUPS_EACH, **size}, arrays=arrays,
    )  # fmt: skip
    return replace(layout, k_max=k)


def search_block(
    store: Store, block: int, method: str, n_neighbors: int, n_blocks: int, size: int, n_points: int
) -> Report:
    """Exact neighbours of a block of points."""
    start, stop = block_rows(block, size, n_points)
    search = search_by_tree if method == "kdtree" else search_by_brute_force
    lists, n_read = search(store, start, stop, n_neighbors, n_blocks, n_points)
    _write(store, start, lists)
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
    boxes, near = read_boxes(store, n_blocks), ids
    if len(own) <= n_neighbors < n_points:
        near = np.sort(np.concatenate([ids, nearest_rows(boxes, start, stop, n_neighbors + 1)]))
    lists = kdtree_neighbors(own, ids, store.gather(schema.POINTS.name, near), near, n_neighbors)
    halo = np.union1d(near, rows_within_reach(store, start, stop, boxes, lists.distances[:, -1]))
    if len(halo) > len(near):
        lists = kdtree_neighbors(own, ids, store.gather(schema.POINTS.name, halo), halo, n_neighbors)
    return lists, len(halo)


def read_boxes(store: Store, n_blocks: int) -> Boxes:
    """The bounding boxes of all cells, cut where blocks of points end."""
    parts = [store.read_bundle(f"_work/boxes/{b:05d}") for b in range(n_blocks)]
    return Boxes(**{key: np.concatenate([part[key] for part in parts]) for key in Boxes._fields})


def rows_within_reach(store: Store, start: int, stop: int, boxes: Boxes, reach: npt.NDArray[np.float64]) -> Ids:
    """Rows outside [start, stop) whose cell's box is within reach (b,) of a point of this block."""
    own = (boxes.start >= start) & (boxes.start < stop)
    points = store.read(schema.POINTS.name, start, stop).astype(np.float64)
    wanted = np.zeros(len(own), bool)
    for i in np.flatnonzero(own):
        part = slice(int(boxes.start[i]) - start, int(boxes.stop[i]) - start)
        near = boxes_within(boxes, boxes.low[i], boxes.high[i], float(reach[part].max())) & ~own & ~wanted
        for j in np.flatnonzero(near):
            gap = np.maximum(0.0, np.maximum(boxes.low[j] - points[part], points[part] - boxes.high[j]))
            wanted[j] = bool((np.einsum("bd,bd->b", gap, gap) <= reach[part] ** 2).any())
    return rows_of(boxes, np.flatnonzero(wanted))


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


def group_points(store: Store, block: int, target: int, n_groups_each: int) -> Report:
    """List the members of every group of cells: all points for which it is one of the nearest groups."""
    counts = store.read_all(schema.CELL_COUNTS.name).sum(axis=0)
    groups = group_cells(counts, target)
    nearest = first_distinct(groups[store.read_all(schema.NEAREST_CELLS.name)], n_groups_each)
    flat = nearest.ravel()
    order = np.argsort(flat, kind="stable")
    order = order[np.searchsorted(flat[order], 0) :]
    members = order // n_groups_each
    bounds = np.searchsorted(flat[order], np.arange(int(groups.max()) + 2))
    for group in range(len(bounds) - 1):
        store.write_bundle(f"_work/groups/{group:05d}", members=members[bounds[group] : bounds[group + 1]])
    return {"n_groups": len(bounds) - 1, "members": len(members)}


def search_group(store: Store, block: int, n_neighbors: int, exact_below: int, seed: int, size: int) -> Report:
    """Neighbours of all members of a group of cells among each other, a bundle for each block of points."""
    members = store.read_bundle(f"_work/groups/{block:05d}")["members"]
    points = store.gather(schema.POINTS.name, members)
    lists = cell_neighbors(points, members, n_neighbors, exact_below, (seed + block) % 2**32)
    cuts = np.searchsorted(members, np.arange(0, int(members[-1]) + size + 1, size))
    for target in np.flatnonzero(np.diff(cuts)):
        part = slice(cuts[target], cuts[target + 1])
        name = f"_work/group_neighbors/{target:05d}/{block:05d}"
        store.write_bundle(name, members=members[part], ids=lists.ids[part], distances=lists.distances[part])
    return {"members": len(members)}


def merge_block(store: Store, block: int, n_neighbors: int, n_groups_each: int, size: int, n_points: int) -> Report:
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
    _write(store, start, lists)
    return {"lists": int(filled.sum())}


def _write(store: Store, start: int, lists: NeighborLists) -> None:
    dtype = store.array(schema.KNN_INDICES.name).dtype
    store.write(schema.KNN_INDICES.name, start, lists.ids.astype(dtype))
    store.write(schema.KNN_DISTANCES.name, start, lists.distances.astype(np.float32))

"""The k nearest neighbours of every point, and how many of them it keeps where points have different numbers.

kdtree: exact, by block: the block's own points bound how far a neighbour can be, and only the cells within that
reach are read besides, a batch at a time. brute: exact, against all points. pynndescent: in overlapping groups of cells
(groups.py).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pipeline import list_sizes, memory, schema
from pipeline.config import Config
from pipeline.groups import first_round, search_groups, write_lists
from pipeline.kernels.knn import NeighborLists, brute_neighbors, kdtree_neighbors, select_nearest
from pipeline.kernels.partition import Boxes, boxes_within
from pipeline.plan import (
    Layout,
    PlannedArray,
    Report,
    Step,
    Steps,
    block_rows,
    index_dtype,
    neighbor_method,
)
from pipeline.store import Store

Ids = npt.NDArray[np.int64]

FOUND = (schema.KNN_INDICES, schema.KNN_DISTANCES)
FOUND_LONG = (schema.SEARCHED_INDICES, schema.SEARCHED_DISTANCES)
KNN = tuple(spec.name for spec in FOUND)

HALO_ROWS = 65_536


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
    d, row = layout.n_features, layout.n_features * np.dtype(layout.dtype).itemsize
    size = {"size": block, "n_points": n}
    if method != "pynndescent":
        arrays = (
            PlannedArray(found[0], (n, k), index_dtype(n), block),
            PlannedArray(found[1], (n, k), "float32", block),
        )
        target_arrays = {} if found == FOUND else {"into": [spec.name for spec in found]}
        yield Step(
            "find_neighbors", "search", search_block, layout.point_blocks(),
            memory.search_brute(block=block, n=n, row=row, d=d, k=k) if method == "brute" else memory.search_tree(
                block=block, halo=HALO_ROWS, row=row, d=d, k=k, n_boxes=layout.n_cells + layout.point_blocks()
            ),
            {"method": method, "n_neighbors": k, "n_blocks": layout.point_blocks(), **target_arrays, **size},
            arrays=arrays,
        )  # fmt: skip
        return replace(layout, k_max=k)
    first = first_round(layout, k, config.neighbors.seed)
    yield from search_groups("find_neighbors", layout, k, first, None if found == FOUND else found)
    return replace(layout, k_max=k)


def search_block(
    store: Store, block: int, method: str, n_neighbors: int, n_blocks: int, size: int, n_points: int,
    into: Sequence[str] = KNN,
) -> Report:  # fmt: skip
    """Exact neighbours of a block of points."""
    start, stop = block_rows(block, size, n_points)
    search = search_by_tree if method == "kdtree" else search_by_brute_force
    lists, n_read = search(store, start, stop, n_neighbors, n_blocks, n_points)
    write_lists(store, start, lists, into)
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

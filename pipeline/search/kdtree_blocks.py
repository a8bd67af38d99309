"""Exact neighbours by k-d trees, one block of points at a time, without loading all points.

The block's own points bound the distance of a neighbour. Only cells within that reach are read, a batch at a time.
"""

import numpy as np

from ..core.arrays import Float64, Floats, Int64
from ..kernels.neighbors.cells import Boxes
from ..kernels.neighbors.knn import TIE, NeighborLists, kdtree_neighbors, merge_into
from ..storage import array_specs
from ..storage.store import Store

HALO_ROWS, ROWS_AT_ONCE = 65_536, 1024


def search_by_tree(store: Store, start: int, stop: int, n_neighbors: int, n_blocks: int) -> NeighborLists:
    """Search the block's own points first, then the cells within the reach that these neighbours give.

    The reach of a block with at most ``n_neighbors`` points is infinite until the first batch of cells is searched, so
    such a block reads most cells.
    """
    block_points, ids = store.read(array_specs.POINTS.name, start, stop), np.arange(start, stop)
    boxes, lists = read_boxes(store, n_blocks), kdtree_neighbors(block_points, ids, block_points, ids, n_neighbors)
    outside, reach = np.flatnonzero((boxes.start < start) | (boxes.start >= stop)), (1 + TIE) * lists.distances[:, -1]
    _, chosen = within_reach(block_points, reach, boxes.low[outside], boxes.high[outside])
    for batch in batches_of(boxes.stop - boxes.start, outside[chosen], HALO_ROWS):
        halo, reach = rows_of(boxes, batch), (1 + TIE) * lists.distances[:, -1]
        rows, _ = within_reach(block_points, reach, boxes.low[batch], boxes.high[batch])
        if not len(rows):
            continue
        # The tree includes the block's own points: without near points a query would visit all far ones.
        points = np.concatenate([block_points, store.gather(array_specs.POINTS.name, halo)])
        found = kdtree_neighbors(block_points[rows], ids[rows], points, np.concatenate([ids, halo]), n_neighbors)
        merge_into(lists, rows, found, ids)
    return lists


def read_boxes(store: Store, n_blocks: int) -> Boxes:
    """The bounding boxes of all cells, divided at the ends of blocks."""
    parts = list(store.read_bundles([f"_work/boxes/{b:05d}" for b in range(n_blocks)]))
    return Boxes(**{key: np.concatenate([part[key] for part in parts]) for key in Boxes._fields})


def within_reach(points: Floats, reach: Float64, low: Float64, high: Float64) -> tuple[Int64, Int64]:
    """(points (b, d) with a box within their reach (b,), boxes (c, d) within reach of a point): ascending positions.

    Consecutive points of a block are near each other, so few pairs of ROWS_AT_ONCE points and a box need a look at each
    point. For points in any order nearly all pairs do.
    """
    is_near, is_reached = np.zeros(len(points), bool), np.zeros(len(low), bool)
    for start in range(0, len(points), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        part, limits = points[rows].astype(np.float64), reach[rows] ** 2
        between = np.maximum(0.0, np.maximum(low - part.max(axis=0), part.min(axis=0) - high))
        # Buffers are reused: workers of Dask return freed memory at once, so new ones for each box cost page faults.
        gap, above = np.empty_like(part), np.empty_like(part)
        for j in np.flatnonzero(np.einsum("cd,cd->c", between, between) <= limits.max()):
            np.maximum(np.subtract(low[j], part, out=gap), np.subtract(part, high[j], out=above), out=gap)
            np.maximum(0.0, gap, out=gap)
            is_within = np.einsum("bd,bd->b", gap, gap) <= limits
            is_near[rows] |= is_within
            is_reached[j] |= is_within.any()
    return np.flatnonzero(is_near), np.flatnonzero(is_reached)


def batches_of(counts: Int64, chosen: Int64, n_rows: int) -> list[Int64]:
    """The chosen boxes with counts (boxes,) of rows in batches of about n_rows rows, to bound the memory."""
    total = np.cumsum(counts[chosen])
    return np.split(chosen, np.flatnonzero(np.diff(total // n_rows)) + 1) if len(chosen) else []


def rows_of(boxes: Boxes, chosen: Int64) -> Int64:
    rows = [np.arange(boxes.start[i], boxes.stop[i]) for i in chosen]
    return np.concatenate(rows) if rows else np.empty(0, np.int64)

"""Exact nearest embedded points of new rows or of rows without coordinates: reads cells within reach, in batches."""

import numpy as np
import numpy.typing as npt

from ..engine import task_costs
from ..kernels.neighbors.cells import Boxes
from ..kernels.neighbors.knn import NO_POINT, NeighborLists, exact_neighbors, select_nearest
from ..kernels.out_of_sample import reach_of, reached
from ..storage import array_specs
from ..storage.store import Store, block_of
from .kdtree_blocks import read_boxes

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]

HALO_ROWS, HALO_BYTES = 65_536, 64 * 2**20  # limits on the stored points in memory at one time


def halo_rows(row: int) -> int:
    """Number of training points of `row` bytes in memory at one time."""
    return max(1, min(HALO_ROWS, HALO_BYTES // row))


def nearest_points(trained: Store, points: npt.NDArray[np.float64], k: int, n_embedded: int) -> NeighborLists:
    """The k nearest embedded training points of new points (b, d)."""
    stored = trained.array(array_specs.POINTS.name)
    boxes = read_boxes(trained, -(-stored.shape[0] // block_of(stored)))
    halo = halo_rows(stored.shape[1] * stored.dtype.itemsize)
    counts = _embedded_rows(trained, boxes, n_embedded)
    lists = NeighborLists(np.full((len(points), k), -1, np.int64), np.full((len(points), k), np.inf))
    unknown = np.full(len(points), NO_POINT)
    bound = reach_of(points, boxes, counts, k)
    for batch in np.split(np.arange(len(counts)), np.flatnonzero(np.diff(np.cumsum(counts) // halo)) + 1):
        near = reached(points, np.minimum(bound, lists.distances[:, -1]), boxes, batch[counts[batch] > 0])
        queries, used = np.flatnonzero(near.any(axis=1)), batch[counts[batch] > 0][near.any(axis=0)]
        if not len(queries):
            continue
        rows = np.concatenate([np.arange(boxes.start[box], boxes.stop[box]) for box in used])
        if n_embedded:
            rows = rows[trained.gather(array_specs.POINT_COMPONENT.name, rows) < n_embedded]
        near_points = trained.gather(array_specs.POINTS.name, rows)
        nearest = exact_neighbors(points[queries], unknown[queries], near_points, rows, k)
        both = (np.hstack([lists.ids[queries], nearest.ids]), np.hstack([lists.distances[queries], nearest.distances]))
        for column, better in zip(lists, select_nearest(*both, unknown[queries], k), strict=True):
            column[queries] = better
    return lists


def _embedded_rows(trained: Store, boxes: Boxes, n_embedded: int) -> Ids:
    """How many points of each box have coordinates; a box lies in one block."""
    counts = boxes.stop - boxes.start
    if n_embedded:
        size = block_of(trained.array(array_specs.POINT_COMPONENT.name))
        for block in np.unique(boxes.start // size).tolist():
            inside = np.flatnonzero(boxes.start // size == block)
            first, past = int(boxes.start[inside[0]]), int(boxes.stop[inside[-1]])
            embedded = trained.read(array_specs.POINT_COMPONENT.name, first, past) < n_embedded
            counts[inside] = np.add.reduceat(embedded.astype(np.int64), boxes.start[inside] - first)
    return counts


# --- bytes of a task (engine/task_costs.py explains the terms)


def nearest_points_bytes(*, rows: int, row: int, d: int, k: int, halo: int) -> int:
    search = halo * (3 * row + 64) + task_costs.tree_bytes(halo, d) + rows * (24 * d + 150 * k)
    return task_costs.TASK_BYTES + search + 2 * task_costs.SCORE_BYTES + rows * k * (row + 8 * d)

"""The k nearest neighbours of every point, and how many of them it keeps where points have different numbers.

kdtree: exact, by block (tree_search.py). brute: exact, against all points. pynndescent: in overlapping groups of cells
(groups.py). Where an earlier version's lists are kept, only its new points are searched (appended.py).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..config.models import Config
from ..engine import task_costs
from ..engine.plan import Decides, Layout, Report, Runs, Step, Steps, Writes, index_dtype, neighbor_method
from ..kernels.neighbors.knn import NeighborLists, brute_neighbors
from ..search import kdtree_blocks, variable_neighborhoods
from ..search.cell_groups import first_round, search_groups, write_lists
from ..search.incremental import update_lists
from ..search.kdtree_blocks import HALO_ROWS, search_by_tree
from ..storage import array_specs
from ..storage.array_specs import PlannedArray
from ..storage.blocks import Blocks
from ..storage.store import Store

FOUND = (array_specs.KNN_INDICES, array_specs.KNN_DISTANCES)
FOUND_LONG = (array_specs.SEARCHED_INDICES, array_specs.SEARCHED_DISTANCES)
KNN = tuple(spec.name for spec in FOUND)


def steps(config: Config, layout: Layout) -> Steps:
    """search (or group_cells -> search_cells -> merge), and where lists vary in length what list_sizes does."""
    if config.varies:
        searched = layout if config.neighbors.precomputed else (yield from _search(config, layout, FOUND_LONG))
        return (yield from variable_neighborhoods.steps(config, searched))
    return (yield from _search(config, layout, FOUND))


def _search(config: Config, layout: Layout, found: tuple[array_specs.ArraySpec, array_specs.ArraySpec]) -> Steps:
    """k_max nearest neighbours of every point, into two arrays."""
    n, k, block_size = layout.n_points, config.k_bounds[1], layout.block_points
    method = neighbor_method(config.neighbors.method, n, layout.n_features)
    d, row = layout.n_features, layout.row_bytes
    blocks = Blocks(n, block_size)
    if layout.earlier is not None and method != "brute":
        return (yield from update_lists.steps(config, layout))
    if method != "pynndescent":
        arrays = (
            PlannedArray(found[0], (n, k), index_dtype(n), block_size),
            PlannedArray(found[1], (n, k), "float32", block_size),
        )
        target_arrays = {} if found == FOUND else {"into": [spec.name for spec in found]}
        yield Step(
            "find_neighbors",
            "search",
            search_block,
            layout.point_blocks(),
            Decides(
                {
                    "method": method,
                    "n_neighbors": k,
                    "n_blocks": layout.point_blocks(),
                    **target_arrays,
                    "blocks": blocks,
                },
                version=2,
            ),
            Runs(
                search_brute_bytes(block_size=block_size, n=n, row=row, d=d, k=k)
                if method == "brute"
                else kdtree_blocks.search_tree_bytes(
                    block_size=block_size,
                    halo=HALO_ROWS,
                    row=row,
                    d=d,
                    k=k,
                    n_boxes=layout.n_cells + layout.point_blocks(),
                )
            ),
            Writes(arrays=arrays),
        )
        return replace(layout, k_max=k)
    first = first_round(layout, k, config.neighbors.seed)
    yield from search_groups("find_neighbors", layout, k, first, None if found == FOUND else found)
    return replace(layout, k_max=k)


def search_block(
    store: Store, block_index: int, method: str, n_neighbors: int, n_blocks: int, blocks: Blocks,
    into: Sequence[str] = KNN,
) -> Report:  # fmt: skip
    """Exact neighbours of a block of points."""
    start, stop = blocks.rows(block_index)
    search = search_by_tree if method == "kdtree" else search_by_brute_force
    lists, n_read = search(store, start, stop, n_neighbors, n_blocks, blocks.n)
    write_lists(store, start, lists, into)
    return {"rows_read": n_read}


def search_by_brute_force(
    store: Store, start: int, stop: int, n_neighbors: int, n_blocks: int, n_points: int
) -> tuple[NeighborLists, int]:
    """Against all points; (neighbours of the rows [start, stop), rows read)."""
    everything, all_ids = store.read_all(array_specs.POINTS.name), np.arange(n_points)
    slices = [slice(first, min(first + 1024, stop)) for first in range(start, stop, 1024)]
    parts = [brute_neighbors(everything[s], all_ids[s], everything, all_ids, n_neighbors) for s in slices]
    return NeighborLists(*(np.concatenate(columns) for columns in zip(*parts, strict=True))), n_points


# --- bytes of a task (engine/task_costs.py says what they count)


def search_brute_bytes(*, block_size: int, n: int, row: int, d: int, k: int) -> int:
    in_flight = min(n, task_costs.IN_FLIGHT * block_size)
    return (
        task_costs.TASK_BYTES
        + 2 * task_costs.SCORE_BYTES
        + n * (row + 16)
        + 2 * in_flight * row
        + block_size * 80 * k
        + 4096 * 16 * d
    )

"""The k nearest neighbours of every point, and their number if neighbourhoods are variable.

- kdtree: exact search by block (search/kdtree_blocks.py).
- brute: exact search against all points.
- pynndescent: approximate search in overlapping groups of cells (search/cell_groups.py).
"""

from dataclasses import replace

import numpy as np

from ..config.models import Config
from ..engine import task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import max_boxes, neighbor_method, search_among_all, search_in_tree
from ..engine.step import Report, Step, Work, task
from ..kernels.neighbors.knn import brute_neighbors
from ..search import variable_neighborhoods
from ..search.cell_groups import Lists, first_round, planned_lists, search_groups, write_lists
from ..search.kdtree_blocks import HALO_ROWS, search_by_tree
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

FOUND = (array_specs.KNN_INDICES, array_specs.KNN_DISTANCES)
FOUND_LONG = (array_specs.SEARCHED_INDICES, array_specs.SEARCHED_DISTANCES)


def steps(config: Config, layout: Layout) -> Steps:
    """search (or group_cells -> search_cells -> merge), then the steps of variable neighbourhoods, if configured."""
    if config.varies:
        searched = layout if config.neighbors.precomputed else (yield from _search(config, layout, FOUND_LONG))
        return (yield from variable_neighborhoods.steps(config, searched))
    return (yield from _search(config, layout, FOUND))


def _search(config: Config, layout: Layout, targets: Lists) -> Steps:
    """Search k_max nearest neighbours of every point; `targets` are the arrays for ids and distances."""
    n, k, blocks = layout.n_points, config.k_bounds[1], layout.blocks
    d, row = layout.n_features, layout.row_bytes
    method = neighbor_method(config.neighbors.method, n, d)
    if method == "pynndescent":
        first = first_round(layout, k, config.neighbors.seed)
        yield from search_groups(layout, k, first, targets)
        return replace(layout, k_max=k)
    seconds = search_among_all(n, n, d)
    if method == "brute":
        n_bytes = task_costs.TASK_BYTES + 2 * task_costs.SCORE_BYTES + n * (row + 16) + blocks.size * 80 * k
        n_bytes += 2 * min(n, task_costs.IN_FLIGHT * blocks.size) * row + 4096 * 16 * d
    else:
        n_bytes = task_costs.TASK_BYTES + blocks.size * (3 * row + 8 * d + 150 * k)
        n_bytes += (blocks.size + HALO_ROWS) * (3 * row + 16 * d + 32)
        n_bytes += 64 * max_boxes(layout.n_cells, blocks.count) * d
        seconds = min(search_in_tree(n, n, d, k), 20 * seconds)
    into = targets[0].name, targets[1].name
    search = task(search_block, method=method, n_neighbors=k, blocks=blocks, into=into)
    arrays, work = planned_lists(targets, layout, k), Work(parallel=seconds)
    yield from Step("find_neighbors.search", search, blocks.count, n_bytes, arrays=arrays, version=2, work=work)
    return replace(layout, k_max=k)


def search_block(
    store: Store, block_index: int, method: str, n_neighbors: int, blocks: Blocks, into: tuple[str, str]
) -> Report:
    """Write the exact neighbours of a block of points into the arrays `into`."""
    start, stop = blocks.rows(block_index)
    if method == "kdtree":
        lists = search_by_tree(store, start, stop, n_neighbors, blocks.count)
    else:
        all_points, all_ids = store.read_all(array_specs.POINTS.name), np.arange(blocks.n)
        lists = brute_neighbors(all_points[start:stop], all_ids[start:stop], all_points, all_ids, n_neighbors)
    write_lists(store, start, lists, into)
    return Report()

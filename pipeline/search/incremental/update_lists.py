"""Extend an earlier version by appended points: its cells, order and neighbour lists stay, new points are added.

New points are searched, and every old list is updated with nearer new points. With the k-d tree, the lists equal those
of a full search; update_groups.py extends the approximate search. Brute force keeps only cells and order, and searches
all points again.
"""

from dataclasses import replace

import numpy as np

from ...config.models import Config
from ...engine import disk_costs, task_costs
from ...engine.plan import WHOLE_DATA, Decides, Earlier, Layout, Report, Runs, Step, Steps, Writes
from ...engine.plan_sizes import max_boxes, neighbor_method
from ...storage import array_specs
from ...storage.blocks import Blocks
from ...storage.store import Store, read_elsewhere
from .. import kdtree_blocks
from ..cell_groups import KEPT_CELLS, group_cells_bytes, write_lists
from ..kdtree_blocks import HALO_ROWS, boxes_within_reach, merge_from_boxes, read_boxes, search_by_tree
from .update_groups import FLOAT32_ERROR, FOUND, earlier_lists, planned_lists, search_among_groups

CELLS, TRANSFORM = "_work/cells", "_work/transform"


def compare(earlier: Earlier, layout: Layout) -> Step:
    """Check whether the rows of the earlier version are an unchanged prefix; the report holds `kept`."""
    return Step(
        "ingest",
        "find_kept",
        find_kept,
        1,
        Decides({"blocks": Blocks(earlier.n_input, layout.block_points)}, {"version": earlier.version}),
        Runs(task_costs.TASK_BYTES + 100 * layout.block_points, place=WHOLE_DATA, resources={"earlier": earlier.url}),
        expected=lambda b: {"kept": True},
        feeds=False,
    )


def find_kept(store: Store, block_index: int, blocks: Blocks, earlier: str) -> Report:
    """Compare the hashes of the first n_rows input rows with those of an earlier version, one block at a time.

    `earlier` is empty if that version no longer exists; then nothing is kept, because copied results hold only for
    unchanged rows.
    """
    if not earlier:
        return {"kept": False}
    earlier_store = Store(earlier)
    for start in range(0, blocks.n, blocks.size):
        stop = min(start + blocks.size, blocks.n)
        for name in (array_specs.ROW_HASH.name, array_specs.VALID.name):
            hashes = store.read(name, start, stop)
            with read_elsewhere(earlier_store):
                earlier_hashes = earlier_store.read(name, start, stop)
            if not np.array_equal(hashes, earlier_hashes):
                version = earlier_store.url.rsplit("/", 1)[1]
                reason = (
                    f"rows were not only appended (among {start:,} to {stop - 1:,}, counted from 0, some differ from "
                    f"version {version}): all points are searched again"
                )
                return {"kept": False, "differs_in_rows": [start, stop], "says": reason}
    return {"kept": True}


def keep_cells(earlier: Earlier, layout: Layout, transform: bool, method: str) -> Step:
    """Copy the cells and the fitted preprocessing; `method` is the method of the next search."""
    lists = "; all points are searched (neighbors.method brute)" if method == "brute" else (
        " and their lists, and only the new points are searched"
    )  # fmt: skip
    copied = [CELLS, *([TRANSFORM] if transform else [])]
    n_bytes = group_cells_bytes(n_blocks=-(-earlier.n_input // layout.block_points), n_cells=earlier.n_cells)
    n_bytes += 40 * layout.n_features * (earlier.n_cells + layout.n_features_input)
    return Step(
        "order_points",
        "keep_cells",
        keep_cells_of,
        1,
        Decides({"copied": copied}, {"version": earlier.version}),
        Runs(
            n_bytes,
            place=WHOLE_DATA,
            resources={"earlier": earlier.url},
            remark=f"rows were appended: the {earlier.n_points:,} points of version {earlier.version} keep their order"
            f"{lists}",
        ),
        Writes(
            bundles=tuple(f"{name}.npz" for name in (*copied, KEPT_CELLS)),
            bundle_bytes=disk_costs.cells(n_cells=earlier.n_cells, d=layout.n_features)
            + disk_costs.transform(d=layout.n_features_input),
        ),
        expected=lambda b: {"n_cells": earlier.n_cells},
    )


def keep_cells_of(store: Store, block_index: int, copied: list[str], earlier: str) -> Report:
    """Copy the cells' centres and the transform, and the numbers of points searched together."""
    earlier_store = Store(earlier)
    with read_elsewhere(earlier_store):
        for name in copied:
            store.write_bundle(name, **earlier_store.read_bundle(name))
        if earlier_store.has_bundle(KEPT_CELLS):
            counts, generations = (earlier_store.read_bundle(KEPT_CELLS)[key] for key in ("counts", "generations"))
        else:
            counts, generations = earlier_store.read_all(array_specs.CELL_COUNTS.name).sum(axis=0), np.array(0)
    store.write_bundle(KEPT_CELLS, counts=counts, generations=generations + 1)
    return {"n_cells": len(counts), "searched_together": int(counts.sum())}


def steps(config: Config, layout: Layout) -> Steps:
    """update (k-d tree), or group_cells -> send_new -> search_new -> merge_new (groups of cells)."""
    assert layout.earlier is not None
    k = config.k_bounds[1]
    method = neighbor_method(config.neighbors.method, layout.n_points, layout.n_features)
    if method == "kdtree":
        yield _update_by_tree(layout, layout.earlier, k)
    else:
        yield from search_among_groups(layout, layout.earlier, k)
    return replace(layout, k_max=k)


def _update_by_tree(layout: Layout, earlier: Earlier, k: int) -> Step:
    n, d, block_size, n_blocks = layout.n_points, layout.n_features, layout.block_points, layout.point_blocks()
    row = d * np.dtype(layout.dtype).itemsize
    n_boxes = max_boxes(layout.n_cells, n_blocks, earlier.generations + 1)
    return Step(
        "find_neighbors",
        "update",
        update_block,
        n_blocks,
        Decides(
            {"n_neighbors": k, "n_blocks": n_blocks, "blocks": Blocks(n, block_size), "kept": earlier.n_points},
            version=2,
        ),
        Runs(
            kdtree_blocks.search_tree_bytes(block_size=block_size, halo=HALO_ROWS, row=row, d=d, k=k, n_boxes=n_boxes),
            resources={"earlier": earlier.url, "lists": earlier.lists},
        ),
        Writes(arrays=planned_lists(layout, k)),
    )


def update_block(
    store: Store, block_index: int, n_neighbors: int, n_blocks: int, blocks: Blocks, kept: int, earlier: str,
    lists: str,
) -> Report:  # fmt: skip
    """Exact neighbours of a block: kept points start from their earlier lists and search only the new points."""
    start, stop = blocks.rows(block_index)
    if stop > kept:
        neighbor_lists, n_read = search_by_tree(store, start, stop, n_neighbors, n_blocks, blocks.n)
        write_lists(store, start, neighbor_lists, FOUND)
        return {"rows_read": n_read}
    neighbor_lists = earlier_lists(earlier, lists, start, stop)
    points, ids, boxes = (
        store.read(array_specs.POINTS.name, start, stop),
        np.arange(start, stop),
        read_boxes(store, n_blocks),
    )
    chosen = boxes_within_reach(boxes, start, stop, points, (1 + FLOAT32_ERROR) * neighbor_lists.distances[:, -1])
    n_read = merge_from_boxes(
        store, boxes, chosen[boxes.start[chosen] >= kept], points, ids, neighbor_lists, FLOAT32_ERROR
    )
    write_lists(store, start, neighbor_lists, FOUND)
    return {"rows_read": n_read, "kept": stop - start}

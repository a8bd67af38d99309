"""M, the sum of the contributions of all points, in blocks of CSR rows.

contribute: each block of points computes its contribution to M, a run of rows at a time, and writes each run as one
object with a part for each destination block. merge: each destination block adds its parts in the order of their source
blocks, so M is symmetric bit for bit. A block with many more entries than others, because its points are in very many
lists, is merged a range of rows at a time.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from ..config.models import Config
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import SURFACE_FEATURES, factor_entries, largest_total
from ..engine.second_level import Parts, join_step, parts_of
from ..engine.step import Count, Counts, Resource, Step, Work, task
from ..kernels.factors.cost_matrix import (
    RowContribution,
    cut_rows,
    gram_contributions,
    local_factor,
    merge_contributions,
    merge_row,
    rows_between,
    split_by_rows,
)
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

CONTRIBUTIONS = "_work/contributions"
PART_ENTRIES = 2**21
"""Entries of M that a contribute task holds in memory at a time."""
MOST_JOINED = 2**30
"""Contributions to one block are joined if they have no more bytes."""
RANGE_CHUNK = 2**18
"""Largest number of entries in a chunk of a block of M that is written in ranges of rows; the last chunk is padded."""


def steps(config: Config, layout: Layout) -> Steps:
    """contribute (-> join) -> merge."""
    n, k, block_size, n_blocks = layout.n_points, layout.k_max, layout.block_points, layout.blocks.count
    blocks = layout.blocks
    factor_bound = block_size * factor_entries(config.method, k, config.eigensolver.n_components)
    factor = min(factor_bound, layout.factor_entries or factor_bound)
    width = 2 if config.method == "laplacian" else k + 1
    products = min(max(PART_ENTRIES, block_size * (k + 1)), block_size * (k + 1) ** 2, width * factor)
    row_entries = width * factor_entries(config.method, k, config.eigensolver.n_components)
    total_entries = n * min((k + 1) ** 2, row_entries, n * n_blocks)  # a block of F adds each entry of M once at most
    n_parts = -(-products // PART_ENTRIES)
    stored_bytes = 12 * total_entries + 8 * min(total_entries, n * n_blocks * n_parts)
    n_written, at_once = n_blocks * n_parts, block_size * min((k + 1) ** 2, n)
    seconds = _seconds(config, layout)
    contributions = yield from Step(
        "assemble_cost.contribute",
        task(contribute_block, method=config.method, blocks=blocks),
        n_blocks,
        task_costs.TASK_BYTES + 60 * factor + 40 * products,
        bundles={CONTRIBUTIONS: disk_costs.parts(writers=n_written, readers=n_blocks, arrays=4, n_bytes=stored_bytes)},
        version=2,
        expected=lambda b: Counts({str(b): at_once}),
        work=Work(parallel=0.6 * seconds),
    )
    entries = largest_total([report.counts for report in contributions])
    total_entries = min(total_entries, sum(sum(report.counts.values()) for report in contributions))
    parts = Parts(CONTRIBUTIONS, n_blocks)
    if 16 * entries <= MOST_JOINED:
        parts = parts_of(CONTRIBUTIONS, n_blocks)
        yield from join_step("assemble_cost.join", CONTRIBUTIONS, n_blocks, n_blocks, 16 * entries, stored_bytes)
    merge = task(merge_block, blocks=blocks, max_entries=at_once, parts=parts)
    # all entries, or a range of rows: a single row takes the 33 bytes per column of `merge_row`, and its parts
    merged = 80 * entries if entries <= at_once else max(80 * at_once, 60 * n)
    bundles = {array_specs.COST_MATRIX: disk_costs.sparse_rows(n=n, blocks=n_blocks, entries=total_entries)}
    work, deletes, n_bytes = Work(parallel=0.4 * seconds), (parts.folder,), task_costs.TASK_BYTES + merged
    yield from Step("assemble_cost.merge", merge, n_blocks, n_bytes, bundles=bundles, deletes=deletes, work=work)
    return layout


def _seconds(config: Config, layout: Layout) -> float:
    surplus = min(max(layout.n_features - SURFACE_FEATURES, 0), 4)  # neighbours of neighbours are few on a surface
    rows = 1 if config.method in ("lle", "laplacian") else 2
    return float((layout.k_max + 1) ** 1.7) * layout.n_points * 6.9e-8 * (1 + 0.45 * surplus) * rows


def contribute_block(store: Store, block_index: int, method: str, blocks: Blocks) -> Counts:
    """The contribution of a block to M, in one part for each destination block; returns the entries of each."""
    start, stop = blocks.rows(block_index)
    if method == "lle":
        indices = store.read(array_specs.NEIGHBOR_INDICES.name, start, stop)
        weights = store.read(array_specs.WEIGHTS.name, start, stop)
        factor = local_factor(indices, weights, start, blocks.n)
    else:
        factor = store.read_rows(array_specs.LOCAL_FACTORS, block_index)
    entries: dict[str, int] = {}
    # rows of F of one point have the same columns; two rows of the laplacian (edges) share only one column
    rows_each = 1 if method == "laplacian" else max(1, factor.shape[0] // (stop - start))
    number = -1
    for number, contribution in enumerate(gram_contributions(factor, PART_ENTRIES * rows_each)):
        parts = split_by_rows(contribution, blocks.size)
        for target, part in parts.items():
            entries[str(target)] = entries.get(str(target), 0) + len(part.data)
        name = f"{CONTRIBUTIONS}/{number:03d}/{block_index:05d}"  # a part is freed once it is encoded
        store.write_parts(name, blocks.count, ((target, parts.pop(target)._asdict()) for target in list(parts)))
    if number < 0:  # no entries
        store.write_parts(f"{CONTRIBUTIONS}/000/{block_index:05d}", blocks.count, ())
    return Counts(entries)


def merge_block(
    store: Store, block_index: int, blocks: Blocks, max_entries: Resource[int], parts: Resource[Parts]
) -> Count:
    """Write a block of rows of M, the sum of its parts; returns the number of its entries.

    If the parts have more than `max_entries` entries, they are read again for each range of rows with so many.
    """
    start, stop = blocks.rows(block_index)
    n_entries = 0
    for number, rows in enumerate(_merged_ranges(store, block_index, blocks, max_entries, parts)):
        if number == 0:
            chunk = 0 if rows.shape[0] == stop - start else max(1, min(RANGE_CHUNK, max_entries // 8))
            store.write_rows(array_specs.COST_MATRIX, block_index, start, rows, chunk)
        else:
            store.append_rows(array_specs.COST_MATRIX, block_index, rows)
        n_entries += int(rows.nnz)
    return Count(n_entries)


def _merged_ranges(
    store: Store, block_index: int, blocks: Blocks, max_entries: int, contributions: Parts
) -> Iterator[csr_array]:
    """Ranges of the rows of a block of M, in order: one if all parts have at most `max_entries` entries."""
    start, stop = blocks.rows(block_index)
    counts, parts = np.zeros(stop - start, np.int64), list[RowContribution]()
    for part in _read_parts(store, contributions, block_index):
        counts[part.rows - start] += np.diff(part.indptr)
        parts = [*parts, part] if counts.sum() <= max_entries else []
    if counts.sum() <= max_entries:
        yield merge_contributions(parts, start, stop, blocks.n)
        return
    for first, past in pairwise(start + cut for cut in cut_rows(counts, max_entries)):
        views = (rows_between(part, first, past) for part in _read_parts(store, contributions, block_index))
        selected = (RowContribution._make(array.copy() for array in view) for view in views)  # whole parts are freed
        if past == first + 1:
            yield merge_row(selected, blocks.n)
        else:
            yield merge_contributions(list(selected), first, past, blocks.n)


def _read_parts(store: Store, contributions: Parts, block_index: int) -> Iterator[RowContribution]:
    return (RowContribution(**part) for part in contributions.of(store, block_index))

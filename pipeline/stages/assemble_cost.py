"""M = sum of every point's local contribution, in blocks of CSR rows.

contribute: each block of points computes its part of M, a run of rows at a time, cut by the block it belongs to.
merge: each block of rows adds its parts in the order of their sources, so that M is symmetric bit for bit.
"""

import numpy as np

from pipeline import disk, memory, schema
from pipeline.config import Config
from pipeline.kernels.cost_matrix import (
    RowContribution,
    gram_contributions,
    local_factor,
    merge_contributions,
    split_by_rows,
)
from pipeline.plan import Layout, Report, Step, Steps, block_rows, factor_entries, largest_total
from pipeline.store import Store

PART_ENTRIES = 2**21  # of M that a task holds at one time while it computes its part


def steps(config: Config, layout: Layout) -> Steps:
    """contribute -> merge."""
    n, k, block, n_blocks = layout.n_points, layout.k_max, layout.block_points, layout.point_blocks()
    size = {"size": block, "n_points": n}
    most = block * factor_entries(config.method, k, config.eigensolver.n_components)
    factor = min(most, layout.factor_entries or most)
    width = 2 if config.method == "laplacian" else k + 1
    products = min(max(PART_ENTRIES, block * (k + 1)), block * (k + 1) ** 2, width * factor)
    in_all = n * min((k + 1) ** 2, width * factor_entries(config.method, k, config.eigensolver.n_components))
    sent = yield Step(
        "assemble_cost", "contribute", contribute_block, n_blocks,
        memory.contribute(factor=factor, products=products),
        {"method": config.method, **size}, bundles=("_work/contributions",),
        bundle_bytes=disk.contributions(n=n, blocks=n_blocks, parts=-(-products // PART_ENTRIES), entries=in_all),
        expected=lambda b: {"entries": {str(b): block * (k + 1) ** 2}},
    )  # fmt: skip
    entries = largest_total([report["entries"] for report in sent])
    in_all = min(in_all, sum(sum(report["entries"].values()) for report in sent))
    yield Step(
        "assemble_cost", "merge", merge_block, n_blocks, memory.merge_rows(entries=entries),
        {"n_blocks": n_blocks, **size}, bundles=(schema.COST_MATRIX,),
        bundle_bytes=disk.sparse_rows(n=n, blocks=n_blocks, entries=in_all), expected=lambda b: {"nnz": block * 4 * k},
    )  # fmt: skip
    return layout


def contribute_block(store: Store, block: int, method: str, size: int, n_points: int) -> Report:
    """What the points of a block add to M, one bundle for each block of rows it touches."""
    start, stop = block_rows(block, size, n_points)
    if method == "lle":
        indices = store.read(schema.NEIGHBOR_INDICES.name, start, stop)
        weights = store.read(schema.WEIGHTS.name, start, stop)
        factor = local_factor(indices, weights, start, n_points)
    else:
        factor = store.read_rows(schema.LOCAL_FACTORS, block)
    entries: dict[str, int] = {}
    # rows of F of one point touch the same columns; those of the laplacian, an edge each, have only one in common
    rows_each = 1 if method == "laplacian" else max(1, factor.shape[0] // (stop - start))
    for number, contribution in enumerate(gram_contributions(factor, PART_ENTRIES * rows_each)):
        folder = f"part_{number:03d}/" if number else ""
        for target, part in split_by_rows(contribution, size, n_points).items():
            store.write_bundle(f"_work/contributions/{target:05d}/{folder}{block:05d}", **part._asdict())
            entries[str(target)] = entries.get(str(target), 0) + len(part.data)
    return {"parts": len(entries), "entries": entries}


def merge_block(store: Store, block: int, n_blocks: int, size: int, n_points: int) -> Report:
    """A block of rows of M: the sum of its parts."""
    start, stop = block_rows(block, size, n_points)
    names = sorted(store.objects.names(f"_work/contributions/{block:05d}"), key=lambda name: name.rsplit("/", 1)[1])
    parts = [RowContribution(**store.read_bundle(name.removesuffix(".npz"))) for name in names]
    rows = merge_contributions(parts, start, stop, n_points)
    store.write_rows(schema.COST_MATRIX, block, start, rows)
    sums = np.bincount(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.data, rows.shape[0])
    largest = float(np.abs(sums).max(initial=0.0))
    return {"nnz": int(rows.nnz), "largest_row_sum": largest}



"""The rows of the factor F that every point contributes, for the methods ltsa, hessian and modified.

Steps: request -> send, then list_unlisted -> solve for ltsa and hessian, and spread -> threshold -> (choose_reg ->)
solve for modified. For every method a block of points gives a block of CSR rows, so later stages do not depend on the
method.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from ..config.models import Config
from ..core.arrays import Float64, Floats, Int64, Ints
from ..core.errors import UndeterminedEmbedding
from ..core.methods import METHODS
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import FactorRows, factor_entries
from ..engine.row_exchange import exchange, exchanged, positions_of, receive_rows
from ..engine.step import WHOLE_DATA, Count, Report, Step, Task, Work, task
from ..kernels.batches import BATCH_BYTES
from ..kernels.factors import factor_rows
from ..kernels.factors.factor_rows import LocalRows, batches_of_equal_size, stack_rows
from ..kernels.factors.ltsa_hessian import alignment_rows, hessian_rows
from ..kernels.factors.modified_lle import modified_rows, spread, variances
from ..kernels.graph.connectivity import disconnected_from_own_list
from ..linalg.reg_step import reg_for_weights
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store


def steps(config: Config, layout: Layout) -> Steps:
    """Statistics over all points that the method needs, then solve."""
    method, m = config.method, config.eigensolver.n_components
    n, k, blocks = layout.n_points, layout.k_max, layout.blocks
    received = yield from exchange("local_factors", layout, array_specs.POINTS.name, layout.row_bytes)
    received += 6 * BATCH_BYTES
    entries_per_point = factor_entries(method, k, m)
    rows_per_point = max(1, entries_per_point // (k + 1))
    factor_bytes = disk_costs.sparse_rows(n=n * rows_per_point, blocks=blocks.count, entries=n * entries_per_point)
    if method == "modified":
        rows = yield from modified_rows_task(config, layout, received)
    else:
        rows = task(tangent_block, method=method, n_components=m, blocks=blocks)
        unlisted, n_bytes = task(list_unlisted, n_points=n), task_costs.TASK_BYTES + n * (60 * k + 16)
        bundles = {"_work/unlisted.npz": disk_costs.per_point(n=n, blocks=1)}
        yield from Step("local_factors.list_unlisted", unlisted, 1, n_bytes, bundles=bundles, runs_on=WHOLE_DATA)
    solved = yield from Step(
        "local_factors.solve",
        rows,
        blocks.count,
        received + solve_bytes(block_size=blocks.size, k=k, entries=entries_per_point, n=n),
        bundles={array_specs.LOCAL_FACTORS: factor_bytes},
        deletes=exchanged(blocks.count),
        version=2 if method == "hessian" else 1,
        work=Work(parallel=n * k**2 * (8e-8 + 3e-10 * layout.n_features)),
        expected=lambda b: FactorRows(blocks.size * entries_per_point, 0),
    )
    return replace(layout, factor_entries=max(report.entries for report in solved))


def solve_bytes(block_size: int, k: int, entries: int, n: int) -> int:
    """Bytes of a task that solves a block, without the rows that it receives."""
    dense = factor_rows.group_bytes(k, n)
    if dense and factor_rows.always_added(k, n, block_size):
        return dense + block_size * 48 * k
    # The K x K matrices of the kernels stay until the rows are stacked.
    return dense + block_size * (8 * (k + 1) ** 2 + 48 * entries + 48 * k)


def modified_rows_task(
    config: Config, layout: Layout, received: int
) -> Generator[Step[Report], list[Report], Task[FactorRows]]:
    """spread -> threshold (-> choose reg); the task of the solve; `received` bytes hold the rows of a block."""
    n, blocks, m = layout.n_points, layout.blocks, config.eigensolver.n_components
    measure = task(spread_block, n_components=m, blocks=blocks)
    n_bytes = received + blocks.size * (48 * layout.k_max + 32)
    bundles = {"_work/spread": disk_costs.per_point(n=n, blocks=blocks.count)}
    yield from Step("local_factors.spread", measure, blocks.count, n_bytes, bundles=bundles)
    median, n_bytes = task(find_threshold, n_blocks=blocks.count), task_costs.TASK_BYTES + 40 * n
    [found] = yield from Step(
        "local_factors.threshold", median, 1, n_bytes, expected=lambda b: Threshold(0.0), runs_on=WHOLE_DATA
    )
    reg = yield from reg_for_weights("local_factors", config, layout)
    return task(modified_block, threshold=found.threshold, reg=reg, rule=config.weights.rule, blocks=blocks)


@dataclass(frozen=True)
class Threshold(Report):
    threshold: float


def list_unlisted(store: Store, block_index: int, n_points: int) -> Count:
    """Find the points that no neighbour list connects with their own list, so that M would not determine them.

    The step solve adds them to their own neighbourhoods. Most of them are in no list; the report counts these.
    """
    indices = store.read_all(array_specs.NEIGHBOR_INDICES.name)
    unlisted = np.ones(n_points, bool)
    unlisted[indices[indices >= 0]] = False
    store.write_bundle("_work/unlisted", ids=disconnected_from_own_list(indices))
    return Count(int(unlisted.sum()))


def tangent_block(store: Store, block_index: int, method: str, n_components: int, blocks: Blocks) -> FactorRows:
    """Compute the rows of F of a block from tangent spaces (ltsa, hessian)."""

    def rows(batch: Batch) -> LocalRows:
        values = (alignment_rows if method == "ltsa" else hessian_rows)(batch.points, n_components)
        return LocalRows(batch.at, batch.ids, values, np.any(values != 0.0, axis=2))

    lists = read_lists(store, block_index, blocks, store.read_bundle("_work/unlisted")["ids"])
    smallest = METHODS[method].min_neighbors(n_components)
    return _write(store, block_index, blocks, lists, rows, smallest, lists.ids)


def spread_block(store: Store, block_index: int, n_components: int, blocks: Blocks) -> Report:
    """Compute rho, the variance outside the leading directions over that within them, for each point of a block."""
    start, stop = blocks.rows(block_index)
    values = np.full(stop - start, np.nan)
    for batch in read_lists(store, block_index, blocks).batches():
        values[batch.at] = spread(variances(batch.points - batch.centers[:, None]), n_components)
    store.write_bundle(f"_work/spread/{block_index:05d}", values=values)
    return Report()


def find_threshold(store: Store, block_index: int, n_blocks: int) -> Threshold:
    """eta, the median of rho over all points. Raises UndeterminedEmbedding if no point has a value."""
    parts = store.read_bundles([f"_work/spread/{b:05d}" for b in range(n_blocks)])
    values = np.concatenate([part["values"] for part in parts])
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise UndeterminedEmbedding(
            "modified: all neighbours of every point coincide with it in float64, so there are no principal "
            "directions; scale the data (preprocess.scale: standard)"
        )
    return Threshold(float(np.median(finite)))


def modified_block(
    store: Store, block_index: int, threshold: float, reg: float, rule: str, blocks: Blocks
) -> FactorRows:
    """Compute the rows of F of a block from multiple weights: the weights of the neighbours, and -1 at the point."""
    lists = read_lists(store, block_index, blocks)

    def rows(batch: Batch) -> LocalRows:
        local = modified_rows(batch.points - batch.centers[:, None], threshold, reg, rule)
        return LocalRows(batch.at, np.column_stack([batch.ids, lists.start + batch.at]), *local)

    own_ids = np.arange(lists.start, lists.start + len(lists.ids))
    return _write(store, block_index, blocks, lists, rows, 2, np.column_stack([lists.ids, own_ids]))


class Batch(NamedTuple):
    """Points of a block whose neighbourhoods have the same size (b points, C ids, d features)."""

    at: Int64
    """(b,) positions in the block."""
    ids: Int64
    """(b, C) global ids of the neighbourhood."""
    points: Float64
    """(b, C, d) their coordinates."""
    centers: Float64
    """(b, d) the points themselves."""


class BlockLists(NamedTuple):
    """The neighbourhoods of a block (n points, K slots), and the rows that they need."""

    start: int
    ids: Int64
    """(n, K) global ids, -1 in empty slots."""
    listed: Ints
    """(r,) ids of the rows."""
    points: Floats
    """(r, d) their coordinates."""

    def batches(self, members: slice = slice(None)) -> Iterator[Batch]:
        """Batches of equal size of the neighbourhoods `members`."""
        own_ids = np.arange(self.start, self.start + len(self.ids))
        selected = np.arange(len(self.ids))[members]
        for positions_inside, chosen in batches_of_equal_size(self.ids[members], self.points.shape[1]):
            at = selected[positions_inside]
            positions = positions_of(chosen, self.listed, self.start, self.start + len(self.ids))
            coordinates = self.points[positions].astype(np.float64)
            centers = self.points[np.searchsorted(self.listed, own_ids[at])].astype(np.float64)
            yield Batch(at, chosen, coordinates, centers)


def read_lists(store: Store, block_index: int, blocks: Blocks, joined: Int64 | None = None) -> BlockLists:
    """The neighbourhoods of a block; points in `joined` (ascending) are members of their own."""
    start, stop = blocks.rows(block_index)
    ids = store.read(array_specs.NEIGHBOR_INDICES.name, start, stop).astype(np.int64)
    listed, points = receive_rows(store, block_index, array_specs.POINTS.name, blocks, ids)
    if joined is not None:
        own_ids = np.arange(start, stop)
        ids = np.column_stack([ids, np.where(np.isin(own_ids, joined), own_ids, -1)])
    return BlockLists(start, ids, listed, points)


def _write(
    store: Store,
    block_index: int,
    blocks: Blocks,
    lists: BlockLists,
    rows_of: Callable[[Batch], LocalRows],
    smallest: int,
    columns: Int64,
) -> FactorRows:
    """Write the rows of F of a block, or a factor of their summed products where neighbourhoods are large.

    Neighbourhoods with fewer than `smallest` points are skipped. columns (n, any): ids of the columns of each point,
    -1 in empty slots.
    """
    n, skipped, pieces = len(lists.ids), 0, []
    step = factor_rows.group_points(lists.ids.shape[1], n)
    for first in range(0, n, step):
        members = slice(first, min(first + step, n))
        sizes = (lists.ids[members] >= 0).sum(axis=1)
        skipped += int((sizes < smallest).sum())
        batched = (batch for batch in lists.batches(members) if batch.ids.shape[1] >= smallest)
        added = factor_rows.columns_to_add(columns[members], int(np.square(sizes).sum()))
        if added is None:
            parts = [part._replace(points=part.points - first) for part in map(rows_of, batched)]
            pieces.append(stack_rows(parts, members.stop - first, blocks.n))
        else:
            pieces.append(factor_rows.root_of_sum(map(rows_of, batched), added, blocks.n))
    rows = pieces[0] if len(pieces) == 1 else csr_array(vstack(pieces, format="csr"))
    store.write_rows(array_specs.LOCAL_FACTORS, block_index, lists.start, rows)
    return FactorRows(int(rows.nnz), skipped)

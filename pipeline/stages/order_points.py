"""Sort the points by cell (internal order), so that neighbours are close to each other in memory and on disk.

Each of two passes moves every row once. The first sorts a few input blocks at a time by cell and writes them as one
shard. In the second, each block of points reads its slice of every shard; of many blocks, several are read together.
There are at most 64 shards if memory allows, so the time grows with the number of points and not with its square.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..config.models import Config
from ..core.arrays import Int64
from ..core.errors import NAMED_ROWS, InputError, first_rows
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import SAMPLE_PER_CELL, n_cells, neighbor_method, sampled_per_block
from ..engine.second_level import DIRECT_WRITERS
from ..engine.step import WHOLE_DATA, Count, Report, Resource, Step, Work, task
from ..kernels.neighbors.cells import bounding_boxes, fit_cells, nearest_cells
from ..linalg.preprocess import Preparation
from ..search.recall import sample_rows
from ..storage import array_specs
from ..storage.array_specs import PlannedArray
from ..storage.blocks import Blocks
from ..storage.store import Store, block_of

N_NEAREST = 8
MAX_SHARDS = 64
SORT_BYTES = 512 * 2**20
Arrays = tuple[array_specs.ArraySpec, array_specs.ArraySpec, array_specs.ArraySpec]
SORTED: Arrays = (array_specs.SORTED_POINTS, array_specs.SORTED_INDEX, array_specs.SORTED_CELLS)
GATHERED: Arrays = (array_specs.POINTS, array_specs.ORIGINAL_INDEX, array_specs.NEAREST_CELLS)


LEAST_EXTENT = 2.0**-480
"""Smallest allowed difference of a coordinate from that of a cell: distances a million times smaller have squares with
all digits."""


def steps(config: Config, layout: Layout) -> Steps:
    """find_cells -> sort -> gather."""
    n, block_size, d = layout.n_input, layout.block_points, layout.n_features
    approximate = neighbor_method(config.neighbors.method, layout.n_points, d) == "pynndescent"
    transform = config.preprocess.scale != "none" or config.preprocess.pca is not None
    unit = config.neighbors.metric == "cosine"
    dtype = "float64" if transform or unit else layout.dtype
    d_in, row = layout.n_features_input, d * np.dtype(dtype).itemsize
    [cells] = yield from find_cells_step(config, layout, transform, unit)
    n_cells_fitted, widest = cells.count, max(d, d_in)
    n_nearest = min(N_NEAREST, n_cells(layout.n_points), n_cells_fitted) if approximate else 1

    def sort_bytes(rows: int) -> int:
        prepared = 4 * row + 32 * widest * (transform or unit) + 24 * n_nearest + 64
        fixed = task_costs.TASK_BYTES + task_costs.SCORE_BYTES + 40 * n_cells_fitted * widest
        return fixed + rows * (3 * d_in * np.dtype(layout.dtype).itemsize + prepared)

    shard = blocks_together(layout, sort_bytes) * block_size
    shards = Blocks(n, shard)
    counts = array_specs.CELL_COUNTS.sized(Blocks(shards.count, 1), n_cells_fitted)
    sorting = task(sort_block, n_nearest=n_nearest, transform=transform, blocks=shards, unit=unit)
    arrays, n_bytes = (*planned(SORTED, shards, layout, dtype, n_nearest), counts), sort_bytes(shard)
    work = Work(parallel=n * (7e-7 + 1.4e-8 * d + 2.5e-10 * n_cells_fitted * d))
    sorted_blocks = yield from Step("order_points.sort", sorting, shards.count, n_bytes, arrays, work=work)
    _require_directions(sorted_blocks, layout.n_points)
    _require_extent(sorted_blocks)
    yield from gather_step(replace(layout, n_cells=n_cells_fitted), dtype, n_nearest, shard)
    return replace(layout, n_cells=n_cells_fitted, dtype=dtype)


@dataclass(frozen=True)
class SortedRows(Report):
    """The largest difference of a coordinate from a cell (1 with the cosine distance), and the rows that are zero."""

    extent: float = 1.0
    zero: int = 0
    first_zero: list[int] = field(default_factory=list)


def find_cells_step(config: Config, layout: Layout, transform: bool, unit: bool) -> Step[Count]:
    n, n_blocks, seed = n_cells(layout.n_points), layout.input_blocks.count, config.neighbors.seed
    d, widest = layout.n_features_input, max(layout.n_features, layout.n_features_input)
    row = d * np.dtype(layout.dtype).itemsize
    n_bytes = task_costs.TASK_BYTES + task_costs.LIBRARY_BYTES
    n_bytes += n_blocks * sampled_per_block(layout) * (3 * row + 48 * widest + 32)
    return Step(
        "order_points.find_cells",
        task(find_cells, n_cells=n, n_blocks=n_blocks, seed=seed, transform=transform, unit=unit),
        1,
        n_bytes,
        bundles={"_work/cells.npz": disk_costs.files(3, 8 * n * (layout.n_features + 2))},
        version=2,
        expected=lambda b: Count(n),
        runs_on=WHOLE_DATA,
        work=Work(0.1 + 1.5e-4 * n),
    )


def planned(specs: Arrays, blocks: Blocks, layout: Layout, dtype: str, n_nearest: int) -> tuple[PlannedArray, ...]:
    points, index, cells = (replace(spec, parts=spec.parts * blocks.size // layout.block_points) for spec in specs)
    sized_points = points.sized(blocks, layout.n_features, dtype=dtype)
    return sized_points, index.sized(blocks), cells.sized(blocks, n_nearest)


def gather_step(layout: Layout, dtype: str, n_nearest: int, shard: int) -> Step[Report]:
    blocks, d = layout.blocks, layout.n_features
    of_block = blocks.size * (6 * d * np.dtype(dtype).itemsize + 24 * n_nearest + 64)
    group = max(1, min(SORT_BYTES // of_block, -(-blocks.count // DIRECT_WRITERS)))
    n_bytes = task_costs.TASK_BYTES + group * of_block
    n_bytes += 24 * task_costs.COUNTED_BLOCKS * layout.n_cells + 16 * (-(-layout.n_input // shard) + layout.n_cells)
    gather = task(gather_blocks, blocks=blocks, group=group)
    arrays, deletes = planned(GATHERED, blocks, layout, dtype, n_nearest), tuple(spec.name for spec in SORTED)
    bundles = {"_work/boxes": disk_costs.files(blocks.count, 16 * (layout.n_cells + 2 * blocks.count) * (d + 1))}
    work = Work(parallel=blocks.n * (7e-7 + 1.4e-8 * d))
    n_tasks = -(-blocks.count // group)
    return Step("order_points.gather", gather, n_tasks, n_bytes, arrays, bundles, deletes, work=work)


def blocks_together(layout: Layout, sort_bytes: Callable[[int], int]) -> int:
    """Input blocks that a task sorts together: enough for at most MAX_SHARDS shards, within SORT_BYTES of memory."""
    fixed = sort_bytes(0)
    fit = (SORT_BYTES - fixed) // (sort_bytes(layout.block_points) - fixed)
    return max(1, min(fit, -(-layout.input_blocks.count // MAX_SHARDS)))


def _require_directions(reports: Sequence[SortedRows], n_points: int) -> None:
    """Raises InputError if some rows are zero: they have no direction, so no cosine distance."""
    count = sum(report.zero for report in reports)
    if count:
        rows = [row for report in reports for row in report.first_zero][:NAMED_ROWS]
        raise InputError(
            f"neighbors.metric: cosine compares directions, but {count} of {n_points} distinct rows are zero after "
            f"preprocessing (input rows {first_rows(rows, count)}). "
            f"Leave them out of the input, or set neighbors.metric: euclidean"
        )


def _require_extent(reports: Sequence[SortedRows]) -> None:
    """Raises InputError if squares of differences between points are not normal numbers of float64."""
    extent = max((report.extent for report in reports), default=1.0)
    if extent < LEAST_EXTENT:
        raise InputError(
            f"input: no difference between points is above {2 * extent:.1e} after preprocessing, so squares of "
            f"differences underflow in float64; expected differences above {LEAST_EXTENT:.1e}. Multiply the numbers, "
            f"for instance by 2.0**{-math.frexp(extent)[1]}"
        )


def find_cells(
    store: Store, block_index: int, n_cells: int, n_blocks: int, seed: int, transform: bool, unit: bool
) -> Count:
    parts = list(store.read_bundles([f"_work/sample/{b:05d}" for b in range(n_blocks)]))
    rows = np.concatenate([part["rows"] for part in parts])
    points = np.concatenate([part["points"] for part in parts])
    is_distinct = store.gather(array_specs.REPRESENTATIVE.name, rows) == rows
    points, _ = Preparation.of_run(store, transform, unit)(points[is_distinct])
    n_wanted = max(n_cells * SAMPLE_PER_CELL, 1000)
    if len(points) > n_wanted:
        points = points[sample_rows(n_wanted, seed, len(points), stream=1)]
    centers = fit_cells(points, n_cells, seed) if len(points) else np.zeros((1, points.shape[1]))
    store.write_bundle("_work/cells", centers=centers)
    return Count(len(centers))


def sort_block(
    store: Store, block_index: int, n_nearest: int, transform: bool, blocks: Blocks, unit: bool
) -> SortedRows:
    """Preprocess the distinct points of a shard and write them sorted by cell, and the number of points in each."""
    start, stop = blocks.rows(block_index)
    rows = np.arange(start, stop)
    distinct = rows[store.read(array_specs.REPRESENTATIVE.name, start, stop) == rows]
    raw = store.read(array_specs.RAW.name, start, stop)[distinct - start]
    points, zero = Preparation.of_run(store, transform, unit)(raw)
    centers = store.read_bundle("_work/cells")["centers"]
    cells = nearest_cells(points, centers, n_nearest)
    order = np.argsort(cells[:, 0], kind="stable")
    for spec, values in zip(SORTED, (points, distinct, cells), strict=True):
        padded = np.zeros((len(rows), *values.shape[1:]), values.dtype)
        padded[: len(order)] = values[order]
        store.write(spec.name, start, padded)
    store.write(array_specs.CELL_COUNTS.name, block_index, np.bincount(cells[:, 0], minlength=len(centers))[None, :])
    if not unit:
        extent = np.abs(points - centers[0]).max(initial=0.0)  # cells do not depend on blocks
        return SortedRows(float(extent))
    return SortedRows(zero=int(zero.sum()), first_zero=distinct[zero][:NAMED_ROWS].tolist())


def gather_blocks(store: Store, block_index: int, blocks: Blocks, group: Resource[int]) -> Report:
    """Collect a group of blocks of points in internal order from the slices of all sorted shards."""
    own = range(block_index * group, min((block_index + 1) * group, blocks.count))
    start, stop = blocks.rows(own[0])[0], blocks.rows(own[-1])[1]
    first_row, counts, n_earlier = cells_between(store, start, stop)
    offsets = np.arange(len(counts)) * block_of(store.array(array_specs.SORTED_INDEX.name)) + n_earlier
    slices, targets = list[tuple[int, int]](), list[Int64]()
    moves = slices_of_shards(counts, start - first_row, stop - first_row)
    for offset, (first, past, rows) in zip(offsets.tolist(), moves, strict=True):
        if first < past:
            slices.append((offset + first, offset + past))
            targets.append(rows)
    for spec, source in zip(GATHERED, SORTED, strict=True):
        array = store.array(source.name)
        gathered = np.empty((stop - start, *array.shape[1:]), array.dtype)
        for rows, values in zip(targets, store.read_slices(source.name, slices), strict=True):
            gathered[rows] = values
        store.write(spec.name, start, gathered)
        if spec is array_specs.POINTS:
            ends = first_row + np.cumsum(counts.sum(axis=0))
            for number in own:
                first, past = blocks.rows(number)
                bounds = np.unique(np.clip(np.concatenate([[first], ends, [past]]), first, past)) - first
                boxes = bounding_boxes(gathered[first - start : past - start], bounds, first)
                store.write_bundle(f"_work/boxes/{number:05d}", **boxes._asdict())
    return Report()


def cells_between(store: Store, start: int, stop: int) -> tuple[int, Int64, Int64]:
    """The c cells that overlap rows [start, stop) of the internal order, read a few shards at a time.

    The row at which the first of them begins, their points in each shard (shards, c), and the points of earlier cells
    in each shard (shards,).
    """
    batches = Blocks(store.array(array_specs.CELL_COUNTS.name).shape[0], task_costs.COUNTED_BLOCKS)

    def read() -> Iterator[Int64]:
        return (store.read(array_specs.CELL_COUNTS.name, *batches.rows(batch)) for batch in range(batches.count))

    ends = np.cumsum(sum(counts.sum(axis=0) for counts in read()))
    first, past = int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(ends, stop)) + 1
    parts = [(counts[:, first:past].copy(), counts[:, :first].sum(axis=1)) for counts in read()]
    counts, n_earlier = (np.concatenate(column) for column in zip(*parts, strict=True))
    return int(ends[first - 1]) if first else 0, counts, n_earlier


def slices_of_shards(counts: Int64, start: int, stop: int) -> Iterator[tuple[int, int, Int64]]:
    """The rows [first, past) of each shard that belong to block [start, stop) of the internal order; their rows in it.

    Internal order is by cell, then by shard, then by input row. A shard is sorted by cell; counts (shards, cells).
    """
    n_points = counts.sum(axis=0)
    target = np.cumsum(n_points) - n_points  # the internal rows of the shard's first points of each cell
    for own in counts:
        before, through = (np.clip(bound - target, 0, own) for bound in (start, stop))
        taken = through - before
        within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
        yield int(before.sum()), int(through.sum()), np.repeat(target + before - start, taken) + within
        target = target + own

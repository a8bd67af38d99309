"""Neighbour lists of varying length: how many of the k_max nearest neighbours each point keeps.

Every search gives k_max neighbours. Then each list is truncated by a radius or by a column of the input. A
precomputed graph replaces the search. So every rule works with every search, and later stages only see lists with
empty slots at their ends.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..config.models import Config
from ..core.arrays import Float64
from ..core.errors import NAMED_ROWS, InputError, first_rows
from ..engine import task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import index_dtype
from ..engine.row_exchange import exchange, exchanged, receive_rows, receive_rows_bytes
from ..engine.step import WHOLE_DATA, Json, Location, Report, Step, Work, task
from ..inputs import Source, open_source
from ..inputs.consistency import array_digest, require_same_rows
from ..kernels.batches import BATCH_BYTES
from ..kernels.neighbors.knn import NeighborLists, exact_distances, select_nearest
from ..kernels.neighbors.list_lengths import counts_within, cut_lists
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store
from .cell_groups import planned_lists, write_lists

LONG = array_specs.SEARCHED_INDICES.name


def steps(config: Config, layout: Layout) -> Steps:
    """cut; before it read_k for k_per_point, and read_graph -> request -> send for a precomputed graph."""
    k_min, k_max = config.k_bounds
    is_precomputed = config.neighbors.precomputed is not None
    width = k_max
    if is_precomputed:
        width = yield from _read_graph(config, layout)
        k_max = width if config.neighbors.k_max == "auto" else min(width, k_max)
    layout = replace(layout, k_max=k_max)
    has_column, n, block_size = config.neighbors.k_per_point is not None, layout.n_points, layout.block_points
    row = layout.row_bytes
    blocks = Blocks(n, block_size)
    if has_column:
        yield from _read_k_step(config, layout)
    received = receive_rows_bytes(block_size=block_size, foreign=0, row=row)
    if is_precomputed:
        wide = replace(layout, k_max=width)
        received = yield from exchange("find_neighbors", wide, array_specs.POINTS.name, row, LONG)
    cut = task(
        cut_block,
        has_column=has_column,
        radius=radius_of(config),
        k_min=k_min,
        k_max=k_max,
        measured=is_precomputed,
        blocks=blocks,
    )
    reports = yield from Step(
        "find_neighbors.cut",
        cut,
        blocks.count,
        received + 6 * BATCH_BYTES + 64 * block_size * width,
        arrays=planned_lists((array_specs.KNN_INDICES, array_specs.KNN_DISTANCES), layout, k_max),
        deletes=exchanged(blocks.count, LONG) if is_precomputed else (),
        expected=lambda b: ListLengths(0, k_max, k_max, 0, 0),
        work=Work(parallel=1e-6 * n * k_max),
    )
    if is_precomputed:
        _require_neighbors(reports, config)
    return layout


@dataclass(frozen=True)
class ListLengths(Report):
    """Neighbours of a block together, least and most of a point, and points with k_min or k_max of them by the radius.

    `short` counts points with fewer than k_min neighbours; `first_short` are the first of their input rows.
    """

    neighbors: int
    least: int
    most: int
    raised: int
    full: int
    short: int = 0
    first_short: list[int] = field(default_factory=list)


def radius_of(config: Config) -> float | None:
    """The radius as a Euclidean distance; for the cosine distance as a chord of the unit sphere."""
    n = config.neighbors
    if n.radius is not None and n.metric == "cosine":
        return float(np.sqrt(2 * n.radius))
    return n.radius


def state_of_files(config: Config) -> Json:
    """Fingerprints of the other files that determine the lists, without reading them; {} if there are none."""
    files = {"precomputed": _graph, "k_per_point": _column}
    sources = {name: source(config) for name, source in files.items() if getattr(config.neighbors, name) is not None}
    return {name: open_source(**source).fingerprint() for name, source in sources.items()}


def _column(config: Config) -> Json:
    """Arguments of `open_source` to read numbers of neighbours as labels; the input's labels still choose the rows."""
    source = config.input.model_dump(mode="json")
    labels = "label" if "label" in source else "labels"
    row_choice = {"chosen_by": source.get(labels)} if source.get("where") is not None else {}
    return {**source, labels: config.neighbors.k_per_point, **row_choice}


def _graph(config: Config) -> Json:
    assert config.neighbors.precomputed is not None
    return config.neighbors.precomputed.model_dump(mode="json")


def _read_k_step(config: Config, layout: Layout) -> Step[Report]:
    """Read the numbers of neighbours in the way the labels of the input are read.

    Later steps depend on the digest of the content, so a touched or copied file is only read again. Version 2: reports
    of version 1 have no digest.
    """
    source = _column(config)
    k_min, k_max = config.k_bounds
    n_bytes = task_costs.TASK_BYTES + 40 * layout.n_input + 128 * layout.block_points + layout.bytes_beside
    blocks = layout.input_blocks
    needed = f"{config.method} needs at least {config.min_neighbors}"
    read = task(read_k, source=source, k_min=k_min, k_max=k_max, blocks=blocks, needed=needed)
    arrays = (array_specs.K_PER_POINT.sized(layout.blocks),)
    state, key = open_source(**source).fingerprint(), "find_neighbors.read_k"
    return Step(key, read, 1, n_bytes, arrays, version=2, input_state=state, runs_on=WHOLE_DATA)


def _read_graph(config: Config, layout: Layout) -> Generator[Step[Report], list[Report], int]:
    """Read the lists of a precomputed graph; returns the maximum number of neighbours.

    Later steps depend on the digest of the content, as in `_read_k`.
    """
    source = _graph(config)
    graph = open_source(**source)
    if graph.n_rows != layout.n_input:
        raise InputError(
            f"neighbors.precomputed: expected a row for each of the {layout.n_input} input rows, found "
            f"{graph.n_rows}; give a graph of the same rows, in the same order"
        )
    width, n, block_size = graph.n_features, layout.n_points, layout.block_points
    n_bytes = task_costs.TASK_BYTES + layout.n_input * (60 + 12 * width) + 32 * block_size * width
    read = task(read_graph, source=source, blocks=Blocks(layout.n_input, block_size))
    lists = array_specs.SEARCHED_INDICES.sized(layout.blocks, width, dtype=index_dtype(n))
    state, key = graph.fingerprint(), "find_neighbors.read_graph"
    yield from Step(key, read, 1, n_bytes, (lists,), version=2, input_state=state, runs_on=WHOLE_DATA)
    return width


def _require_neighbors(reports: Sequence[ListLengths], config: Config) -> None:
    """Raises InputError if a precomputed graph has points with fewer neighbours than the method needs."""
    k_min, count = config.k_bounds[0], sum(report.short for report in reports)
    if count:
        rows = sorted(row for report in reports for row in report.first_short)[:NAMED_ROWS]
        raise InputError(
            f"neighbors.precomputed: {count} points have fewer than {k_min} neighbours (neighbors.k_min; "
            f"{config.method} needs at least {config.min_neighbors}), not counting themselves, repetitions and rows "
            f"that were dropped or merged (input rows {first_rows(rows, count)}). "
            f"Give them more neighbours, or lower k_min"
        )


def read_graph(store: Store, block_index: int, source: Location[Json], blocks: Blocks) -> Report:
    """The lists of a graph with internal ids, in internal order; equal rows use the list of the first one.

    Ids of dropped rows become empty slots; ids of merged rows become the id of the point that represents them. The
    digest covers the file's ids (n_rows, width) in its order. Raises InputError for ids that are not row numbers.
    """
    graph = open_source(**source)
    representative = store.read_all(array_specs.REPRESENTATIVE.name)
    internal = np.full(blocks.n, -1, np.int64)
    internal[store.read_all(array_specs.ORIGINAL_INDEX.name)] = np.arange((representative == np.arange(blocks.n)).sum())
    points = np.where(representative >= 0, internal[representative], -1)
    point_of = np.append(points, -1)  # index -1 reads the last entry
    array = store.array(LONG)
    lists = np.empty(array.shape, array.dtype)
    bad_rows, digest = list[int](), ""
    for start, stop in map(blocks.rows, range(blocks.count)):
        ids, rows = graph.read(start, stop), np.arange(start, stop)
        digest = array_digest(ids, digest)
        valid = (ids >= -1) & (ids < blocks.n) & (ids == np.floor(ids))
        bad_rows += rows[~valid.all(axis=1)].tolist()
        firsts = representative[rows] == rows
        lists[internal[rows[firsts]]] = point_of[np.where(valid, ids, -1)[firsts].astype(np.int64)]
    if bad_rows:
        raise InputError(
            f"neighbors.precomputed: expected row numbers from 0 to {blocks.n - 1}, and -1 in empty slots, found "
            f"others in {len(bad_rows)} rows ({first_rows(bad_rows)}); ids count the rows of this input from 0"
        )
    store.write(LONG, 0, lists)
    return Report(digest=digest)


def read_k(
    store: Store, block_index: int, source: Location[Json], k_min: int, k_max: int, blocks: Blocks, needed: str
) -> Report:
    """The requested number of neighbours of each point, in internal order; equal rows use that of the first one.

    The digest covers the numbers of all points in input order. Raises InputError unless all are whole numbers from
    k_min to k_max, InputChanged if the input rows have changed since they were read.
    """
    source_of_k = open_source(**source)
    require_same_rows(store, source_of_k, blocks.n)
    values = np.concatenate([_numbers(source_of_k, *blocks.rows(b)) for b in range(blocks.count)])
    original = store.read_all(array_specs.ORIGINAL_INDEX.name)
    is_wrong = ~((values >= k_min) & (values <= k_max) & (values == np.floor(values)))
    rows = np.sort(original[is_wrong[original]])
    if len(rows):
        examples = ", ".join(f"{values[row]:g} in row {row}" for row in rows[:NAMED_ROWS])
        raise InputError(
            f"neighbors.k_per_point: expected whole numbers from {k_min} to {k_max} (neighbors.k_min and k_max; "
            f"{needed}), found others for {len(rows)} of {len(original)} points: {examples}, counted from 0. Correct "
            f"them, or change k_min or k_max"
        )
    requested = values[original].astype(np.int32)
    store.write(array_specs.K_PER_POINT.name, 0, requested)
    return Report(digest=array_digest(requested[np.argsort(original)]))


def _numbers(source: Source, start: int, stop: int) -> Float64:
    """Labels as numbers; integer classes are stored as indices into their names."""
    values, names = source.read_labels(start, stop), source.labels.names
    assert values is not None  # the config names them
    if values.ndim != 1:
        raise InputError(
            f"neighbors.k_per_point: expected one number per row, found {values.shape[1]}; name one column"
        )
    if names is None:
        return np.asarray(values, np.float64)
    numbers = np.full(len(names) + 1, np.nan)
    for index, name in enumerate(names):
        try:
            numbers[index] = float(name)
        except ValueError:
            raise InputError(
                f"neighbors.k_per_point: expected numbers, found text such as {name!r}; name a column of whole numbers"
            ) from None
    return np.asarray(numbers[np.where(np.isnan(values), len(names), values).astype(int)])


def cut_block(
    store: Store,
    block_index: int,
    has_column: bool,
    radius: float | None,
    k_min: int,
    k_max: int,
    measured: bool,
    blocks: Blocks,
) -> ListLengths:
    """Truncate the lists of a block by the radius or the column of numbers.

    Lists of a precomputed graph are first measured and sorted, and the points themselves and repetitions are removed.
    """
    start, stop = blocks.rows(block_index)
    ids = store.read(LONG, start, stop).astype(np.int64)
    if measured:
        rows, points = receive_rows(store, block_index, array_specs.POINTS.name, blocks, ids, LONG)
        block_points = points[np.searchsorted(rows, np.arange(start, stop))]
        distances = exact_distances(block_points, points, np.where(ids >= 0, np.searchsorted(rows, ids), -1))
        lists = select_nearest(ids, distances, np.arange(start, stop), k_max)
    else:
        lists = NeighborLists(ids, store.read(array_specs.SEARCHED_DISTANCES.name, start, stop))
    n_listed = (lists.ids >= 0).sum(axis=1)
    counts, n_raised = n_listed, 0
    if radius is not None:
        counts = counts_within(lists.distances, radius, k_min)
        n_raised = int((counts_within(lists.distances, radius, 0) < counts).sum())
    elif has_column:
        counts = np.minimum(n_listed, store.read(array_specs.K_PER_POINT.name, start, stop))
    lists = cut_lists(lists, counts)
    write_lists(store, start, lists, (array_specs.KNN_INDICES.name, array_specs.KNN_DISTANCES.name))
    short = np.flatnonzero(counts < k_min) if measured else np.zeros(0, np.int64)
    first = np.sort(store.read(array_specs.ORIGINAL_INDEX.name, start, stop)[short])[:NAMED_ROWS].tolist()
    n_full = int((counts == k_max).sum()) if radius is not None else 0
    total, least, most = int(counts.sum()), int(counts.min()), int(counts.max())
    return ListLengths(total, least, most, n_raised, n_full, len(short), first)

"""Read the input by block, reject or drop invalid rows, merge duplicates, fit the preprocessing.

No task holds more than one block of the input. Merging duplicates holds a hash of 16 bytes for each row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..config.models import Config
from ..core.arrays import Int64
from ..core.errors import NAMED_ROWS, CorruptChunk, InputError, Setting, UndeterminedEmbedding, counted, first_rows
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import MAX_BLOCKS, block_points, sample_size, sampled_per_block
from ..engine.step import DRIVER, Json, Location, Report, Resource, Step, Work, task
from ..inputs import Source, open_source
from ..inputs.consistency import array_digest, require_unchanged_input
from ..kernels.neighbors.duplicates import row_hashes
from ..linalg.preprocess import fit_bytes, fit_transform, valid_array
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.bundles import Array
from ..storage.store import Store, block_of
from .ingest_duplicates import DistinctRows, merge_step
from .ingest_ids import check_ids_step, read_ids_step

EarlierRows = tuple[str, list[int]]
"""URL of an earlier store, and the blocks whose rows are unchanged there."""
NAMED_COLUMNS = 100
"""Columns of which each block reports the invalid entries, those with the most."""


def all_rows(config: Config) -> Json:
    """The arguments of `open_source` without input.fit_sample."""
    return {key: value for key, value in config.input.model_dump(mode="json").items() if key != "fit_sample"}


def open_input(config: Config) -> Source:
    """Open the input of a config (its sample with fit_sample); the header is read and checked. Raises InputError."""
    return open_source(**config.input.model_dump(mode="json"))


def first_layout(config: Config, source: Source) -> Layout:
    """The layout according to the input's header. Raises InputError if k or n_components is too large for the input."""
    n, d = source.n_rows, source.n_features
    k, m = config.k_bounds[1], config.eigensolver.n_components
    if k >= n and config.neighbors.precomputed is None:
        rows = f"input.fit_sample takes {n} rows" if config.input.fit_sample else f"the input has {n} rows"
        raise InputError(f"neighbors.{_width_key(config)} is {k}, but {rows}; it must be below {n}")
    if m > d:
        raise InputError(f"eigensolver.n_components is {m}, but the input has {d} features; it must be at most {d}")
    _check_components(config, n, "rows")
    if config.preprocess.pca is not None and config.preprocess.pca > min(n, d):
        raise InputError(f"preprocess.pca is {config.preprocess.pca}, but the input has {n} rows of {d} features")
    size = block_points(config.execution.block_points, n, d * source.dtype.itemsize)
    if n > MAX_BLOCKS * size:
        raise InputError(
            f"input: {n} rows make {-(-n // size)} blocks of {size} rows (execution.block_points); at most "
            f"{MAX_BLOCKS} are possible. Check the number of rows in the input's header, or raise block_points"
        )
    bytes_beside = source.bytes_beside(min(size, n))
    return Layout(n, d, source.dtype.name, size, label_width=source.labels.width, bytes_beside=bytes_beside)


def stored_block(store: Store, layout: Layout) -> int | None:
    """Rows of a block in a store's copy of this input; None if the store has no copy of this shape."""
    array = store.usable_array(array_specs.RAW.name)
    size = (layout.n_input, layout.n_features_input)
    return block_of(array) if array is not None and array.shape == size else None


SCALER_SECONDS = 1.5
"""Processor seconds of the import of dask-ml, which only `preprocess.scale: standard` needs."""


def steps(config: Config, layout: Layout) -> Steps:
    """read -> read_labels -> merge_duplicates -> fit."""
    blocks, d = layout.input_blocks, layout.n_features_input
    source = config.input.model_dump(mode="json")
    plain = without_labels(source)
    is_wide = layout.bytes_beside > blocks.size * d * np.dtype(layout.dtype).itemsize
    advice = "write the input in smaller chunks or row groups" if is_wide else Step.advice
    opened = open_source(**plain)
    reports = yield from read_step(plain, opened, layout, advice)
    if any(report.is_read for report in reports):
        require_unchanged_input(opened, open_source(**plain), blocks, [report.state for report in reports])
    check_invalid([(report.invalid, report.first_invalid) for report in reports], config, opened)
    if layout.label_width:
        labelled = yield from labels_step(source, blocks, layout.label_width, layout.bytes_beside, advice)
        if any(report.digest for report in labelled):  # a new file would shift the labels against their rows
            require_unchanged_input(opened, open_source(**plain), blocks, [])
    if source.get("id") is not None:
        ids = yield from read_ids_step(source, blocks, layout.bytes_beside)
        if any(report.digest for report in ids):
            require_unchanged_input(opened, open_source(**plain), blocks, [])
        yield from check_ids_step(blocks)
    [merged] = yield from merge_step(blocks, config.preprocess.invalid)
    _check_size(merged, layout.n_input, config)
    scale, pca = config.preprocess.scale, config.preprocess.pca
    layout = replace(layout, n_points=merged.n_points, n_features=pca or d)
    if scale != "none" or pca is not None:
        counts = [report.rows - report.invalid for report in reports]
        yield from fit_step(config, counts, layout, opened.feature_names)
    return layout


def read_step(source: Json, opened: Source, layout: Layout, advice: str) -> "Step[RowsRead]":
    n, d, blocks = layout.n_input, layout.n_features_input, layout.input_blocks
    row, sample = d * np.dtype(layout.dtype).itemsize, sampled_per_block(layout)
    n_bytes = task_costs.TASK_BYTES + blocks.size * (2 * row + max(8 * d, 2 * row) + 128) + 5 * sample * row
    arrays = (
        array_specs.RAW.sized(blocks, d, dtype=layout.dtype),
        array_specs.ROW_HASH.sized(blocks, 2),
        array_specs.VALID.sized(blocks),
    )
    return Step(
        "ingest.read",
        task(read_block, source=source, blocks=blocks, sample=sample_size(n)),
        blocks.count,
        n_bytes + layout.bytes_beside,
        arrays,
        bundles={"_work/sample": disk_costs.files(blocks.count, blocks.count * sample * (row + 8))},
        version=3,
        input_state=opened.fingerprint(),
        expected=lambda b: RowsRead(0, 0, [], False),
        remark=opened.remark(),
        advice=advice,
        work=Work(parallel=n * (3e-7 + 1.2e-8 * d)),
    )


def fit_step(config: Config, counts: list[int], layout: Layout, names: Sequence[str] | None) -> Step[Report]:
    blocks, d = layout.input_blocks, layout.n_features_input
    scale, pca, sampled = config.preprocess.scale, config.preprocess.pca, config.input.fit_sample is not None
    bundles = {"_work/transform.npz": disk_costs.files(1, 8 * d * (d + 4))}
    fit = task(
        fit_preprocess, scale=scale, pca=pca, n_valid=counts, n_features=d, blocks=blocks, names=names, sampled=sampled
    )
    n_bytes = fit_bytes(block_size=blocks.size, d=d, n=blocks.n)
    work = Work(SCALER_SECONDS if scale == "standard" else 0.0)
    return Step("ingest.fit", fit, 1, n_bytes, bundles=bundles, version=4, runs_on=DRIVER, work=work)


def labels_step(source: Json, blocks: Blocks, width: int, bytes_beside: int, advice: str = Step.advice) -> Step[Report]:
    """Copy the labels of an input, `width` per row, into the store."""
    return Step(
        "ingest.read_labels",
        task(read_labels, source=source, blocks=blocks),
        blocks.count,
        task_costs.TASK_BYTES + blocks.size * (64 * width + 128) + bytes_beside,
        arrays=(array_specs.LABEL.sized(blocks, width),),
        version=2,
        input_state=open_source(**source).fingerprint(),
        is_measurement=True,
        advice=advice,
    )


@dataclass(frozen=True)
class LabelsReport(Report):
    """Kind of the labels of an input (categorical or continuous), and the names of its classes."""

    kind: str
    names: tuple[str, ...] | None


@dataclass(frozen=True)
class RowsRead(Report):
    """Rows of a block, those with invalid numbers, whether they were read now, and the state of their files then.

    `invalid_columns` counts the invalid entries of columns, which are numbers as text.
    """

    rows: int
    invalid: int
    first_invalid: list[int]
    is_read: bool
    invalid_columns: dict[str, int] = field(default_factory=dict)
    state: str | None = None


def read_block(
    store: Store,
    block_index: int,
    source: Location[Json],
    blocks: Blocks,
    sample: int,
    earlier: Resource[EarlierRows] = ("", []),
) -> RowsRead:
    """Copy a block of the input into the store with a hash and a validity flag for each row, and write a sample.

    Blocks whose rows are unchanged in an earlier store are copied from it.
    """
    start, stop = blocks.rows(block_index)
    state, is_read = None, False
    rows = _earlier_rows(earlier, block_index, start, stop)
    if rows is None:
        opened = open_source(**source)
        rows, state, is_read = opened.read(start, stop), opened.state(start, stop), True
    with np.errstate(over="ignore", invalid="ignore"):  # if a square overflows, distances would be infinite
        valid = np.asarray(np.isfinite(np.square(rows, dtype=np.float64).sum(axis=1)))
    invalid_entries = (~np.isfinite(rows[~valid])).sum(axis=0)
    worst = np.argsort(-invalid_entries, kind="stable")[:NAMED_COLUMNS]
    store.write(array_specs.RAW.name, start, rows)
    store.write(array_specs.ROW_HASH.name, start, row_hashes(rows))
    store.write(array_specs.VALID.name, start, valid.astype(np.uint8))
    chosen = rows_of_sample(sample, blocks.n)
    chosen = chosen[(chosen >= start) & (chosen < stop)] - start
    chosen = chosen[valid[chosen]]
    store.write_bundle(f"_work/sample/{block_index:05d}", rows=chosen + start, points=rows[chosen])
    invalid = np.flatnonzero(~valid) + start
    counts = {str(column): int(invalid_entries[column]) for column in worst if invalid_entries[column]}
    first = invalid[:NAMED_ROWS].tolist()
    return RowsRead(len(rows), len(invalid), first, is_read, counts, state, digest=array_digest(rows))


def rows_of_sample(sample: int, n_rows: int) -> Int64:
    """Ascending input rows, one drawn from each of `sample` equal ranges: the same rows for any block size."""
    positions = (np.arange(sample) + np.random.default_rng(2003).random(sample)) * (n_rows / sample)
    return np.unique(np.minimum(positions.astype(np.int64), n_rows - 1))


def _earlier_rows(earlier: EarlierRows, block_index: int, start: int, stop: int) -> Array | None:
    """The rows of a block from an earlier store; None if that store does not have them or they are damaged."""
    url, blocks = earlier
    if block_index not in blocks:
        return None
    try:
        return Store(url).read(array_specs.RAW.name, start, stop)
    except CorruptChunk:
        return None


def read_labels(store: Store, block_index: int, source: Location[Json], blocks: Blocks) -> LabelsReport:
    """Copy a block of labels (or true coordinates) into the store."""
    start, stop = blocks.rows(block_index)
    opened = open_source(**source)
    labels = opened.read_labels(start, stop)
    if labels is None:
        raise InputError(
            "input: expected labels, as the input's header lists them, found none; check whether the input has changed"
        )
    store.write(array_specs.LABEL.name, start, labels.reshape(len(labels), -1))
    kind_of_labels, names = opened.labels.kind, opened.labels.names
    return LabelsReport(kind_of_labels, names, digest=array_digest(labels, kind_of_labels, names))


def fit_preprocess(
    store: Store,
    block_index: int,
    scale: str,
    pca: int | None,
    n_valid: list[int],
    n_features: int,
    blocks: Blocks,
    names: Resource[Sequence[str] | None],
    sampled: Resource[bool] = False,
) -> Report:
    """Fit the scaler and the principal components on the running cluster; `sampled`: the blocks are a sample."""
    names = names or (store.attributes().get("columns") or {}).get("features")  # of a DataFrame
    X = valid_array(store, n_valid, blocks, n_features)
    transform = fit_transform(X, scale, pca, names, sampled)
    arrays: dict[str, Array] = {"mean": transform.mean, "scale": transform.scale}
    if transform.components is not None and transform.center is not None:
        arrays |= {"center": transform.center, "components": transform.components}
    store.write_bundle("_work/transform", **arrays)
    return Report(message=transform.left_out(names))


def without_labels(source: Json) -> Json:
    """The parameters that determine the points, so that the points are not read again if only the labels change.

    Two inputs keep their label: a table without a list of columns, which uses all columns but the label, and an input
    with `where`, which can select rows by the label.
    """
    if source.get("where") is not None:
        return source
    is_table = "label" in source
    names = {"labels"} if is_table and source.get("columns", ()) is None else {"labels", "label", "id"}
    return {key: value for key, value in source.items() if key not in names}


def check_invalid(
    invalid: Sequence[tuple[int, list[int]]], config: Config, opened: Source, kinds: str = "", note: str = ""
) -> None:
    """Raises InputError for invalid rows, unless they are dropped.

    invalid: for each block the number of its invalid rows and the first of them. kinds, note: further text.
    """
    count = sum(n for n, _ in invalid)
    if count and config.preprocess.invalid == "error":
        rows = [row for _, first in invalid for row in first][:NAMED_ROWS]
        drop = Setting("preprocess", "invalid", "drop")
        raise InputError(
            f"input: {counted(count, 'row')} with NaN or infinity, or with numbers whose squares overflow{kinds} (rows "
            f"{first_rows(rows, count)}; the first is {_location_of_invalid(opened, rows[0])}). Correct them, or set "
            f"{drop} to leave them out (their embedding is NaN){note}",
            settings=(drop,),
        )


def _location_of_invalid(opened: Source, row: int) -> str:
    """The file, the row, and the columns that are not finite in that row."""
    columns = np.flatnonzero(~np.isfinite(opened.read(row, row + 1)[0])).tolist()[:NAMED_ROWS]
    names = opened.feature_names
    listed = ", ".join(str(column) if names is None else f"'{names[column]}'" for column in columns)
    return opened.locate(row) + (f", column {listed}" if listed else "")


def _check_size(merged: DistinctRows, n_rows: int, config: Config) -> None:
    n, k = merged.n_points, config.k_bounds[1] if config.neighbors.precomputed is None else 1
    if n <= k:
        n_left_out = n_rows - merged.n_valid
        gaps = f". {n_left_out} of {n_rows} rows hold NaN or infinity: fill the gaps first" * (n_left_out > 0)
        raise UndeterminedEmbedding(
            f"input: {merged.n_valid} valid rows hold {counted(n, 'distinct point')}, but "
            f"neighbors.{_width_key(config)} is {k}; there must be more distinct points than neighbours{gaps}"
        )
    _check_components(config, n, "distinct points")


def _check_components(config: Config, n: int, of: str) -> None:
    """Raises InputError if method pca is to compute more components than n points have."""
    m = config.eigensolver.n_components
    if config.method == "pca" and m >= n:
        raise InputError(
            f"eigensolver.n_components is {m}, but {n} {of} have at most {n - 1} principal components; set it to "
            f"{n - 1} or less"
        )


def _width_key(config: Config) -> str:
    """The config key for the number of neighbours that are searched."""
    return "k_max" if config.varies else "n_neighbors"

"""Neighbour lists of varying length: how many of the k_max nearest each point keeps.

Any search leaves its k_max nearest; what follows cuts each list, by a radius, by a column of the input, or to where the
neighbourhood is flat. A precomputed graph takes the place of the search. So every rule works with every search, and
what comes after only sees lists with empty slots at their ends.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.config.models import Config
from pipeline.core.errors import InputError
from pipeline.engine import task_costs
from pipeline.engine.plan import WHOLE_DATA, Decides, Json, Layout, Report, Runs, Step, Steps, Writes, index_dtype
from pipeline.engine.row_exchange import exchange, receive_rows, receive_rows_bytes
from pipeline.inputs import open_source
from pipeline.inputs.consistency import array_digest, require_same_rows
from pipeline.kernels.neighbors.knn import NeighborLists, exact_distances, select_nearest
from pipeline.kernels.neighbors.list_lengths import as_stored, counts_within, cut_lists, flat_counts
from pipeline.storage import array_specs
from pipeline.storage.array_specs import PlannedArray
from pipeline.storage.blocks import block_rows
from pipeline.storage.store import Store

BATCH_BYTES = 16 * 2**20
NAMED_ROWS = 5
LONG = array_specs.SEARCHED_INDICES.name

Ids = npt.NDArray[np.int64]


def steps(config: Config, layout: Layout) -> Steps:
    """read_graph (precomputed), read_k (k_per_point) -> request -> send (where coordinates are needed) -> cut."""
    k_min, k_max = config.k_bounds
    measured = config.neighbors.precomputed is not None
    width = k_max
    if measured:
        width = yield from _read_graph(config, layout)
        k_max = width if config.neighbors.k_max == "auto" else min(width, k_max)
    layout = replace(layout, k_max=k_max)
    rule, n, block = config.neighbors.rule, layout.n_points, layout.block_points
    row = layout.n_features * np.dtype(layout.dtype).itemsize
    size = {"size": block, "n_points": n}
    if rule == "k_per_point":
        yield from _read_k(config, layout)
    foreign = 0
    if rule == "eta" or measured:
        foreign = yield from exchange(
            "find_neighbors", replace(layout, k_max=width), array_specs.POINTS.name, row, LONG
        )
    reports = yield Step(
        "find_neighbors",
        "cut",
        cut_block,
        layout.point_blocks(),
        Decides(
            {
                "rule": rule,
                "value": value_of(config),
                "k_min": k_min,
                "m": config.eigensolver.n_components,
                "k_max": k_max,
                "measured": measured,
                **size,
            }
        ),
        Runs(cut_lists_bytes(block=block, foreign=foreign, row=row, k=width, batch=BATCH_BYTES)),
        Writes(
            arrays=(
                PlannedArray(array_specs.KNN_INDICES, (n, k_max), index_dtype(n), block),
                PlannedArray(array_specs.KNN_DISTANCES, (n, k_max), "float32", block),
            )
        ),
        expected=lambda b: {"neighbors": 0, "least": k_max, "most": k_max, "raised": 0, "full": 0},
    )
    if measured:
        _require_neighbors(reports, config)
    return layout


def value_of(config: Config) -> float | None:
    """The number that the rule goes by; a radius of cosine distance as the chord of the unit sphere."""
    n = config.neighbors
    if n.radius is not None and n.metric == "cosine":
        return float(np.sqrt(2 * n.radius))
    return n.radius if n.radius is not None else n.eta


def names_files(config: Config) -> bool:
    """Whether the lists come from other files than the input's points."""
    return config.neighbors.precomputed is not None or config.neighbors.k_per_point is not None


def state_of_files(config: Config) -> Json:
    """Fingerprints of the files, besides the input's, that decide the lists; nothing is read; {} without such files."""
    files = {"precomputed": _graph, "k_per_point": _column}
    named = {name: source(config) for name, source in files.items() if getattr(config.neighbors, name) is not None}
    return {name: open_source(kind, **source).fingerprint() for name, (kind, source) in named.items()}


def _column(config: Config) -> tuple[str, Json]:
    """What `open_source` takes for the numbers of neighbours as the labels of the input, whose own choose the rows."""
    source = config.input.model_dump(mode="json")
    labels = "label" if "label" in source else "labels"
    chosen = {"chosen_by": source.get(labels)} if source.get("where") is not None else {}
    return source.pop("kind"), {**source, labels: config.neighbors.k_per_point, **chosen}


def _graph(config: Config) -> tuple[str, Json]:
    assert config.neighbors.precomputed is not None
    source = config.neighbors.precomputed.model_dump(mode="json")
    return source.pop("kind"), source


def _read_k(config: Config, layout: Layout) -> Steps:
    """Read the numbers of neighbours as labels of the input are read.

    The digest decides what follows, so that a file that was touched or copied is only read. Version 2: reports of the
    first have none.
    """
    kind, source = _column(config)
    k_min, k_max = config.k_bounds
    yield Step(
        "find_neighbors",
        "read_k",
        read_k,
        1,
        Decides(
            {
                "kind": kind,
                "source": source,
                "k_min": k_min,
                "k_max": k_max,
                "size": layout.block_points,
                "n_rows": layout.n_input,
                "needed": f"{config.method} needs at least {config.least_neighbors}",
            },
            open_source(kind, **source).fingerprint(),
            version=2,
            digested=("kind", "source"),
        ),
        Runs(read_k_bytes(n=layout.n_input, block=layout.block_points) + layout.beside, place=WHOLE_DATA),
        Writes(arrays=(PlannedArray(array_specs.K_PER_POINT, (layout.n_points,), "int32", layout.block_points),)),
    )
    return layout


def _read_graph(config: Config, layout: Layout) -> Generator[Step, list[Report], int]:
    """Read the lists of a precomputed graph; returns how many neighbours they have at most.

    Its digest decides what follows, as of `_read_k`.
    """
    kind, source = _graph(config)
    opened = open_source(kind, **source)
    if opened.n_rows != layout.n_input:
        raise InputError(
            f"neighbors.precomputed: expected a row for each of the {layout.n_input} input rows, found "
            f"{opened.n_rows}; give the graph of the same rows, in the same order"
        )
    width, n, block = opened.n_features, layout.n_points, layout.block_points
    yield Step(
        "find_neighbors",
        "read_graph",
        read_graph,
        1,
        Decides(
            {"kind": kind, "source": source, "size": block, "n_rows": layout.n_input},
            opened.fingerprint(),
            version=2,
            digested=("kind", "source"),
        ),
        Runs(read_graph_bytes(n=layout.n_input, block=block, k=width), place=WHOLE_DATA),
        Writes(arrays=(PlannedArray(array_specs.SEARCHED_INDICES, (n, width), index_dtype(n), block),)),
    )
    return width


def _require_neighbors(reports: list[Report], config: Config) -> None:
    """Raises InputError where a precomputed graph gives points fewer neighbours than the method can work with."""
    k_min, count = config.k_bounds[0], sum(report.get("short", 0) for report in reports)
    if count:
        rows = sorted(row for report in reports for row in report.get("first_short", ()))[:NAMED_ROWS]
        raise InputError(
            f"neighbors.precomputed: {count} points have fewer than {k_min} neighbours (neighbors.k_min; "
            f"{config.method} needs at least {config.least_neighbors}), besides themselves, repetitions and rows that "
            f"were dropped or merged (input rows {', '.join(map(str, rows))}{', ...' if count > len(rows) else ''}, "
            f"counted from 0). Give them more neighbours, or lower k_min"
        )


def read_graph(store: Store, block: int, kind: str, source: Json, size: int, n_rows: int) -> Report:
    """The lists of a graph by internal ids, in internal order; of equal rows the first one's.

    Ids of dropped rows become empty slots; those of equal rows become the id of the point that stands for them. The
    digest is one of the file's ids (n_rows, width) in its order. Raises InputError for ids that are no rows'.
    """
    opened = open_source(kind, **source)
    representative = store.read_all(array_specs.REPRESENTATIVE.name)
    internal = np.full(n_rows, -1, np.int64)
    internal[store.read_all(array_specs.ORIGINAL_INDEX.name)] = np.arange((representative == np.arange(n_rows)).sum())
    point_of = np.append(np.where(representative >= 0, internal[representative], -1), -1)  # the last serves id -1
    array = store.array(LONG)
    lists = np.empty(array.shape, array.dtype)
    wrong, digest = list[int](), ""
    for start in range(0, n_rows, size):
        ids, rows = opened.read(start, min(start + size, n_rows)), np.arange(start, min(start + size, n_rows))
        digest = array_digest(ids, digest)
        valid = (ids >= -1) & (ids < n_rows) & (ids == np.floor(ids))
        wrong += rows[~valid.all(axis=1)].tolist()
        own = representative[rows] == rows
        lists[internal[rows[own]]] = point_of[np.where(valid, ids, -1)[own].astype(np.int64)]
    if wrong:
        raise InputError(
            f"neighbors.precomputed: expected row numbers from 0 to {n_rows - 1}, and -1 in empty slots, found others "
            f"in {len(wrong)} rows ({', '.join(map(str, wrong[:NAMED_ROWS]))}{', ...' if wrong[NAMED_ROWS:] else ''}, "
            f"counted from 0); ids count the rows of this input from 0"
        )
    store.write(LONG, 0, lists)
    return {"rows": n_rows, "digest": digest}


def read_k(
    store: Store, block: int, kind: str, source: Json, k_min: int, k_max: int, size: int, n_rows: int, needed: str
) -> Report:
    """The number of neighbours that each point asks for, in internal order; of equal rows the first one's.

    The digest is one of the numbers of all points in the order of the input. Raises InputError for other numbers than
    whole ones from k_min to k_max, InputChanged where the rows are no longer those that were read.
    """
    opened = open_source(kind, **source)
    require_same_rows(store, opened, n_rows)
    values = np.concatenate([_numbers(opened, *block_rows(b, size, n_rows)) for b in range(-(-n_rows // size))])
    original = store.read_all(array_specs.ORIGINAL_INDEX.name)
    wrong = ~((values >= k_min) & (values <= k_max) & (values == np.floor(values)))
    rows = np.sort(original[wrong[original]])
    if len(rows):
        shown = ", ".join(f"{values[row]:g} in row {row}" for row in rows[:NAMED_ROWS])
        raise InputError(
            f"neighbors.k_per_point: expected whole numbers from {k_min} to {k_max} (neighbors.k_min and k_max; "
            f"{needed}), found others for {len(rows)} of {len(original)} points: {shown}, counted from 0. Correct "
            f"them, or change k_min or k_max"
        )
    asked = values[original].astype(np.int32)
    store.write(array_specs.K_PER_POINT.name, 0, asked)
    digest = array_digest(asked[np.argsort(original)])
    return {"least": int(asked.min()), "most": int(asked.max()), "digest": digest}


def _numbers(opened: Any, start: int, stop: int) -> npt.NDArray[np.float64]:
    """Labels as the numbers they were: classes of integers come as indices into their names."""
    values, names = opened.read_labels(start, stop), opened.label_names
    if values.ndim != 1:
        raise InputError(f"neighbors.k_per_point: expected one number a row, found {values.shape[1]}; name one column")
    if names is None:
        return np.asarray(values, np.float64)
    try:
        numbers = np.array([*map(float, names), np.nan])
    except ValueError:
        raise InputError(
            f"neighbors.k_per_point: expected numbers, found text such as {names[0]!r}; name a column of whole numbers"
        ) from None
    return np.asarray(numbers[np.where(np.isnan(values), len(names), values).astype(int)])


def cut_block(
    store: Store, block: int, rule: str | None, value: float | None, k_min: int, m: int, k_max: int, measured: bool,
    size: int, n_points: int,
) -> Report:  # fmt: skip
    """Cut the lists of a block by the rule.

    Those of a precomputed graph are measured and sorted first, without the points themselves and repetitions.
    """
    start, stop = block_rows(block, size, n_points)
    ids = store.read(LONG, start, stop).astype(np.int64)
    rows: npt.NDArray[np.integer] = np.arange(0)
    points = np.empty((0, 1))
    if measured or rule == "eta":
        rows, points = receive_rows(store, block, array_specs.POINTS.name, start, stop, ids, LONG)
    if measured:
        own = points[np.searchsorted(rows, np.arange(start, stop))]
        distances = exact_distances(own, points, np.where(ids >= 0, np.searchsorted(rows, ids), -1))
        lists = select_nearest(ids, distances, np.arange(start, stop), k_max)
    else:
        lists = NeighborLists(ids, store.read(array_specs.SEARCHED_DISTANCES.name, start, stop))
    listed = (lists.ids >= 0).sum(axis=1)
    kept, raised = listed, 0
    if rule == "radius" and value is not None:
        kept = counts_within(lists.distances, value, k_min)
        raised = int((counts_within(lists.distances, value, 0) < kept).sum())
    elif rule == "k_per_point":
        kept = np.minimum(listed, store.read(array_specs.K_PER_POINT.name, start, stop))
    elif rule == "eta" and value is not None:
        kept = _flat_counts(rows, points, lists.ids, listed, m, k_min, value)
    lists = cut_lists(lists, kept)
    store.write(array_specs.KNN_INDICES.name, start, lists.ids.astype(store.array(array_specs.KNN_INDICES.name).dtype))
    store.write(array_specs.KNN_DISTANCES.name, start, as_stored(lists.distances))
    report = {"neighbors": int(kept.sum()), "least": int(kept.min()), "most": int(kept.max()), "raised": raised,
              "full": int((kept == k_max).sum()) if rule == "radius" else 0}  # fmt: skip
    short = np.flatnonzero(kept < k_min)
    if measured and len(short):
        rows = np.sort(store.read(array_specs.ORIGINAL_INDEX.name, start, stop)[short])
        report |= {"short": len(rows), "first_short": rows[:NAMED_ROWS].tolist()}
    return report


def _flat_counts(
    rows: npt.NDArray[np.integer], points: npt.NDArray[np.floating], ids: Ids, listed: Ids, m: int, k_min: int,
    eta: float,
) -> Ids:  # fmt: skip
    kept = np.empty(len(ids), np.int64)
    batch = max(1, BATCH_BYTES // (8 * ids.shape[1] * (2 * points.shape[1] + ids.shape[1])))
    for first in range(0, len(ids), batch):
        part = slice(first, first + batch)
        neighbors = points[np.searchsorted(rows, ids[part])].astype(np.float64)  # empty slots show the first row
        kept[part] = flat_counts(neighbors, listed[part], m, k_min, eta)
    return kept


# --- bytes of a task (engine/task_costs.py says what they count)


def read_k_bytes(*, n: int, block: int) -> int:
    return task_costs.TASK_BYTES + 40 * n + 128 * block


def read_graph_bytes(*, n: int, block: int, k: int) -> int:
    return task_costs.TASK_BYTES + n * (60 + 12 * k) + 32 * block * k


def cut_lists_bytes(*, block: int, foreign: int, row: int, k: int, batch: int) -> int:
    return receive_rows_bytes(block=block, foreign=foreign, row=row) + 6 * batch + block * k * 64

"""Columns of the input of a finished run for its explorers: numbers, dates, and texts as classes."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import Float64, Int64
from ..core.errors import LleError
from ..engine import current_config
from ..engine.step import Json
from ..inputs import Source, open_source
from ..inputs.labels import natural_order
from ..report.column import Column
from ..storage import array_specs
from ..storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

OWN_NAMES = re.compile(r"(input_)*(row|component|distance_ratio|reconstruction_error|trustworthiness|placed|y\d+)")
"""With the prefix of `exported_name`: a table may hold `row` and, from an earlier export, `input_row`."""
SHOWN = ("integer", "floating", "decimal", "boolean", "string", "large_string", "string_view", "timestamp", "date")
"""Arrow's types of columns that are shown."""
ROWS_AT_ONCE = 2**18
MAX_CLASSES = 1000
"""A column with more different texts is left out: it names rows, and `input.id` is for such a column."""
MAX_INTEGER_CLASSES = 10
UNNAMED_FEATURES = 20
"""Features without names are shown if there are at most this many; more are pixels or measurements of one kind."""


def exported_name(name: str) -> str:
    """The name that a column of the input has beside results; the names of results get the prefix "input_".

    >>> exported_name("city"), exported_name("row"), exported_name("input_row")
    ('city', 'input_row', 'input_input_row')
    """
    return f"input_{name}" if OWN_NAMES.fullmatch(name) else name


def recorded_input(attributes: Json, n_rows: int) -> Source | None:
    """The input of a run with these attributes; None if it has changed since. Raises InputError if it is gone."""
    parameters = {key: value for key, value in attributes["config"]["input"].items() if key != "fit_sample"}
    source = open_source(**parameters)
    recorded, current = (
        json.dumps(state, sort_keys=True) for state in (attributes["input_fingerprint"], source.fingerprint())
    )
    return source if recorded == current and source.n_rows == n_rows else None


def input_columns(store: Store, rows: Int64, limit: int) -> list[Column]:
    """Up to `limit` columns of some input rows (ascending), without label and id; those that are no features first.

    A table is read again. If it has changed or is gone, and for arrays, the features are those of the store.
    """
    source = None
    with contextlib.suppress(LleError, OSError, KeyError):  # the explorer shows the results all the same
        source = recorded_input(store.attributes(), store.array(array_specs.COMPONENT.name).shape[0])
    with contextlib.suppress(LleError, OSError):
        if source is not None and source.roles is not None:
            names = [*source.roles.left_out, *source.roles.features]
            types = source.column_types(names)
            return _read(source, [name for name in names if _is_shown(types[name])][:limit], types, rows)
    return _stored_features(store, rows, limit)


def _is_shown(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(getattr(pa.types, f"is_{name}")(kind) for name in SHOWN)


def _read(source: Source, names: Sequence[str], types: "Mapping[str, pa.DataType]", rows: Int64) -> list[Column]:
    """The columns of these rows, in blocks of the input that hold some of them."""
    import pyarrow as pa

    parts: dict[str, list[object]] = {name: [] for name in names}
    for start in range(0, source.n_rows if names else 0, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, source.n_rows)
        low, high = np.searchsorted(rows, (start, stop))
        if low < high:
            table = source.read_columns(names, start, stop).take(pa.array(rows[low:high] - start))
            for name in names:
                parts[name] += table.column(name).cast(types[name]).chunks
    columns = [_column(name, pa.chunked_array(parts[name], types[name])) for name in names]
    return [column for column in columns if column is not None]


def _column(name: str, values: "pa.ChunkedArray") -> Column | None:
    """A column of the explorer; None for a text with too many different values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, name = values.type, name or "row index"
    own = exported_name(name)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        seconds = values.cast(pa.timestamp("ms", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        return Column(own, name, _floats(seconds) / 1e3, kind="date")
    is_whole = pa.types.is_integer(kind)
    if is_whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        if not is_whole or pc.count_distinct(values).as_py() > MAX_INTEGER_CLASSES:
            return Column(own, name, _floats(values), kind="whole" if is_whole else "number")
        names = [str(value) for value in sorted(pc.unique(values.drop_null()).to_pylist())]
    elif pa.types.is_boolean(kind):
        names = ["false", "true"]
    else:
        found = pc.unique(values.cast(pa.string()).drop_null())
        if len(found) > MAX_CLASSES:
            return None
        names = sorted(found.to_pylist(), key=natural_order)
    codes = pc.index_in(values.cast(pa.string()), pa.array(names, pa.string()))
    return Column(own, name, np.asarray(pc.fill_null(codes, -1), np.int64), names)


def _floats(values: "pa.ChunkedArray") -> Float64:
    """Numbers as float64; NaN where they are missing."""
    import pyarrow as pa

    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def _stored_features(store: Store, rows: Int64, limit: int) -> list[Column]:
    """The features in the store's copy of the input; none without a copy, or if rows are images."""
    name, attributes = array_specs.RAW.name, store.attributes()
    if attributes.get("image_shape") or not current_config.has_array(store, name):
        return []
    n_features = store.array(name).shape[1]
    names = (attributes.get("columns") or {}).get("features")
    if names is None:
        names = [f"feature {j + 1}" for j in range(n_features if n_features <= UNNAMED_FEATURES else 0)]
    values = store.gather(name, rows)[:, :limit] if names else np.empty((len(rows), 0))
    return [Column(exported_name(name), name, values[:, j]) for j, name in enumerate(names[:limit])]

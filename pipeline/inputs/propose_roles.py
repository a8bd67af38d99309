"""Propose the role of each column of a table: feature, label or id. Only a few rows are read; the user checks it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .base import AnyArray, Source
from .suspect_columns import ID_NAME, Look, sample_windows, suspect_columns

MAX_CATEGORIES = 50
MAX_NUMBERED_CATEGORIES = 20
MIN_REPEATS = 5
"""A label has on average at least this number of rows in each category."""
LONGEST_ID = 64
LABEL_NAME = re.compile(r"labels?|class(es)?|targets?|y|category|categories|species|cluster|group|(cell_?)?type", re.I)


class Column(NamedTuple):
    """Properties of one column in the sampled rows. `distinct` ignores missing entries."""

    name: str
    is_text: bool
    distinct: int
    missing: int
    is_id: bool
    can_be_label: bool


class Roles(NamedTuple):
    """Proposed roles. `left_out` has the reason for each numeric column that is no feature; `rows` were sampled."""

    features: tuple[str, ...]
    label: Column | None
    id: Column | None
    left_out: Mapping[str, str]
    other_labels: tuple[str, ...]
    incomplete: int
    rows: int


def propose_roles(source: Source, text: Sequence[str]) -> Roles:
    """The roles of the columns of a table that was opened without label and id; `text` names those that hold text.

    id: a column with a different whole number or text in each row. label: text with few categories, or whole numbers
    with few values if its name is typical for a label or no other column has few. Both are guesses, because only a
    sample is read. Raises InputError.
    """
    assert source.roles is not None
    windows = sample_windows(source)
    numbers = np.concatenate([source.read(*window) for window in windows] or [np.empty((0, source.n_features))])
    suspects = suspect_columns(source)
    columns = [_numeric(name, numbers[:, i], suspects.get(name)) for i, name in enumerate(source.roles.features)]
    columns = _without_wrong_ids(source, columns)
    columns += _text_columns(source, text, windows)
    chosen_id = _first([column for column in columns if column.is_id], ID_NAME)
    labels = [column for column in columns if column.can_be_label and column is not chosen_id]
    label = _label(labels)
    special = {column.name for column in (chosen_id, label) if column is not None}
    left_out = {name: look.says for name, look in suspects.items() if name not in special}
    left_out |= {
        column.name: why
        for column in columns
        if not column.is_text and column.name not in special and (why := _without_measurements(column, len(numbers)))
    }
    features = tuple(name for name in source.roles.features if name not in special and name not in left_out)
    positions = [position for position, name in enumerate(source.roles.features) if name in features]
    return Roles(
        features, label, chosen_id, left_out, tuple(column.name for column in labels if column is not label),
        int((~np.isfinite(numbers[:, positions])).any(axis=1).sum()), len(numbers),
    )  # fmt: skip


def _numeric(name: str, values: AnyArray, look: Look | None) -> Column:
    present = values[np.isfinite(values)]
    distinct = len(np.unique(present))
    is_integral = bool((present == np.rint(present)).all())
    is_category = 2 <= distinct <= MAX_NUMBERED_CATEGORIES and distinct * MIN_REPEATS <= len(present)
    return Column(
        name,
        False,
        distinct,
        len(values) - len(present),
        look is not None and look.is_id,
        is_integral and is_category and look is None,
    )


def _without_measurements(column: Column, n_rows: int) -> str:
    """Why a numeric column is no feature, although it is no id and no time; empty if it can be one."""
    if 2 * column.missing > n_rows:
        return f"{column.missing} of {n_rows} sampled rows have no value"
    return f"the same value in all {n_rows} sampled rows" if column.distinct == 1 < n_rows else ""


def _without_wrong_ids(source: Source, columns: Sequence[Column]) -> list[Column]:
    """The columns with `is_id` for whole numbers only: Parquet columns of floating-point numbers cannot be ids."""
    ids = [column.name for column in columns if column.is_id]
    kinds = source.column_types(ids) if ids else {}
    integer_columns = {name for name, kind in kinds.items() if pa.types.is_integer(kind)}
    return [column._replace(is_id=column.name in integer_columns) for column in columns]


def _text_columns(source: Source, names: Sequence[str], windows: Sequence[tuple[int, int]]) -> list[Column]:
    if not names or not windows:
        return []
    table = pa.concat_tables([source.read_columns(names, *window) for window in windows])
    return [_text(name, table.column(name)) for name in names]


def _text(name: str, values: Any) -> Column:
    present = pc.drop_null(values.cast(pa.string()))
    present = present.filter(pc.not_equal(present, ""))
    distinct, n = pc.count_distinct(present).as_py(), len(present)
    is_id = n == len(values) > 1 and distinct == n and pc.max(pc.utf8_length(present)).as_py() <= LONGEST_ID
    is_category = 2 <= distinct <= MAX_CATEGORIES and distinct * MIN_REPEATS <= n
    return Column(name, True, distinct, len(values) - n, is_id, is_category)


def _label(candidates: Sequence[Column]) -> Column | None:
    """Text before numbers. Numbers with few values may be measurements: only if named as a label, or the only ones."""
    text = [column for column in candidates if column.is_text]
    numbered = [column for column in candidates if not column.is_text]
    named = [column for column in numbered if LABEL_NAME.fullmatch(column.name)]
    return _first(text or named or (numbered if len(numbered) == 1 else []), LABEL_NAME)


def _first(candidates: Sequence[Column], name: "re.Pattern[str]") -> Column | None:
    """The first with such a name, else the first."""
    return next((column for column in candidates if name.fullmatch(column.name)), next(iter(candidates), None))

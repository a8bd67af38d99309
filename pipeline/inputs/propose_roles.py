"""Propose the role of each column of a table: feature, label or id. The user checks the proposal.

A table of up to LOOKED_AT numbers is read as a whole, of a larger one the first, middle and last rows.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..storage.bundles import Array
from .base import Source
from .propose_scale import propose_scale
from .suspect_columns import EXACT, ID_NAME, MAX_CODES, Look, read_windows, sample_windows, suspect_columns

LOOKED_AT = 1 << 24
MAX_CATEGORIES = 50
MIN_REPEATS = 5
"""A label or a code has on average at least this number of rows for each of its values."""
MAX_MISSING = 0.05
"""Share of rows without a value above which a column is left out: each such row would get no coordinates."""
LONGEST_ID = 64
DATE = r"^\d{4}-\d\d-\d\d([ T]|$)"
LABEL_NAME = re.compile(
    r"labels?|class(es)?|targets?|y|category|categories|species|clusters?|leiden|louvain|group|(cell_?)?type", re.I
)


class Column(NamedTuple):
    """Properties of one column in the rows looked at. `distinct` ignores missing entries.

    Text with few categories and codes, whole numbers with few values, can be labels. `problem` says why numbers are no
    measurements.
    """

    name: str
    is_text: bool
    distinct: int
    missing: int
    is_id: bool
    can_be_label: bool
    problem: str = ""


class Roles(NamedTuple):
    """Proposed roles.

    `left_out` has the reason for each numeric column that is no feature, `missing` the rows without a number for each
    feature that has such rows, `incomplete` the number of all such rows, and `where` the rows looked at, in words.
    """

    features: tuple[str, ...]
    label: Column | None
    id: Column | None
    left_out: Mapping[str, str]
    other_labels: tuple[str, ...]
    missing: Mapping[str, int]
    incomplete: int
    where: str
    scale: tuple[str, str]


def propose_roles(source: Source, text: Sequence[str]) -> Roles:
    """The roles of the columns of a table that was opened without label and id; `text` names those that hold text.

    id: a column with a different whole number or text in each row. label: text with few categories, or whole numbers
    with few values if its name is typical for a label or no other column has few. Columns with many missing values,
    one value, or codes are left out. Raises InputError.
    """
    assert source.roles is not None
    names, windows = source.roles.features, rows_to_look_at(source)
    numbers = read_windows(source, windows)
    where = f"{len(numbers):,} " + ("rows" if len(numbers) == source.n_rows else "sampled rows")
    suspects = suspect_columns(source)
    columns = [_numeric(name, numbers[:, i], suspects.get(name), where) for i, name in enumerate(names)]
    columns = _without_wrong_ids(source, columns)
    columns += _text_columns(source, text, windows)
    chosen_id = _first([column for column in columns if column.is_id], ID_NAME)
    labels = [column for column in columns if column.can_be_label and column is not chosen_id]
    label = _label(labels)
    special = {column.name for column in (chosen_id, label) if column is not None}
    rest = [column for column in columns if not column.is_text and column.name not in special]
    left_out = {column.name: column.problem for column in rest if column.problem}
    left_out |= _codes([column for column in rest if not column.problem])
    features = [column for column in rest if column.name not in left_out]
    chosen = numbers[:, [names.index(column.name) for column in features]]
    return Roles(
        tuple(column.name for column in features),
        label,
        chosen_id,
        left_out,
        tuple(column.name for column in labels if column is not label),
        {column.name: column.missing for column in features if column.missing},
        int((~np.isfinite(chosen)).any(axis=1).sum()),
        where,
        propose_scale(chosen, [column.name for column in features]),
    )


def rows_to_look_at(source: Source) -> list[tuple[int, int]]:
    """All rows if they hold at most LOOKED_AT numbers, else `sample_windows`."""
    if 0 < source.n_rows * source.n_features <= LOOKED_AT:
        return [(0, source.n_rows)]
    return sample_windows(source)


def _numeric(name: str, values: Array, look: Look | None, where: str) -> Column:
    present = values[np.isfinite(values)]
    distinct = len(np.unique(present))
    is_integral = bool((present == np.rint(present)).all())
    is_code = is_integral and 2 <= distinct <= MAX_CODES and distinct * MIN_REPEATS <= len(present) and look is None
    if look is not None and look.is_id and distinct < len(values) and np.abs(present).max() < EXACT:
        # It differs in the few rows that `suspect_columns` reads.
        look = Look(f"an id: whole numbers, {distinct:,} different ones in {where}", False)
    missing, problem = len(values) - len(present), look.says if look is not None else ""
    if missing > MAX_MISSING * len(values):
        problem = f"{missing:,} of {where} have no value"
    elif distinct == 1 < len(values):
        problem = f"the same value in all {where}"
    return Column(name, False, distinct, missing, look is not None and look.is_id, is_code, problem)


def _codes(columns: Sequence[Column]) -> dict[str, str]:
    """Columns of codes to leave out, with the reason; none if fewer than two measurements would be left.

    If names differ only in a number, as those of pixels, and one of the columns holds measurements, all are kept.
    """
    families = {_family(column.name) for column in columns if not column.can_be_label}
    codes = [column for column in columns if column.can_be_label and _family(column.name) not in families]
    if len(columns) - len(codes) < 2:
        return {}
    return {
        column.name: "two values" if column.distinct == 2 else f"whole numbers with {column.distinct} values"
        for column in codes
    }


def _family(name: str) -> str:
    return re.sub(r"\d+", "#", name)


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


def _text(name: str, values: pa.ChunkedArray) -> Column:
    present = pc.drop_null(values.cast(pa.string()))
    present = present.filter(pc.not_equal(present, ""))
    distinct, n = pc.count_distinct(present).as_py(), len(present)
    is_id = n == len(values) > 1 and distinct == n and pc.max(pc.utf8_length(present)).as_py() <= LONGEST_ID
    is_id = is_id and not pc.all(pc.match_substring_regex(present, DATE)).as_py()
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

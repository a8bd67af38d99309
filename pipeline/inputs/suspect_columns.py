"""Find features of a table that look like an id or a time, from a few rows."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..storage.bundles import Array
from .base import Source

WINDOW_ROWS = 1000
WINDOW_BYTES = 1 << 24
READ_BYTES = 1 << 30
MIN_ROWS = 50
"""In fewer rows, any column of measurements may rise or hold different whole numbers by chance."""
MANY_ROWS = 1000
MAX_CODES = 20
"""Whole numbers with at most this number of different values are codes: their differences may have no meaning."""
EXACT = 2.0**53
"""Whole numbers of this size and above may be rounded in float64, so that different ids become equal."""
ID_NAME = re.compile(r"id|.*[_\s.-]id|id[_\s.-].*|.*[a-z]I[Dd]|uuid|guid|key|.*_key|name", re.I)
EPOCH_UNITS = {"seconds": 1e0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
EPOCH_RANGE = (6.3e8, 2.2e9)
"""In seconds since 1970: from 1989 to 2039."""


class Look(NamedTuple):
    """What a column looks like that holds no measurements."""

    says: str
    is_id: bool


ID = Look("an id: a different whole number in each row", True)
REPEATED_ID = Look("an id: whole numbers, a few of them equal or missing", False)
NAMED_ID = Look("an id by its name: whole numbers, some of them equal or missing", False)


def suspect_columns(source: Source) -> dict[str, Look]:
    """Name of each feature that looks like an id or a time, and what it looks like.

    Reads up to WINDOW_ROWS rows at the start, in the middle and at the end. Empty for inputs without column names, and
    if reading these rows would take more than READ_BYTES. Raises InputError for damaged rows.
    """
    names = source.feature_names
    windows = sample_windows(source)
    if names is None or source.n_rows < MIN_ROWS or not windows:
        return {}
    rows = read_windows(source, windows)
    looks = {
        name: look_of(rows[:, column], source.n_rows) or _id_by_name(name, rows[:, column])
        for column, name in enumerate(names)
    }
    large = [name for column, name in enumerate(names) if np.abs(rows[:, column]).max() >= EXACT]
    rounded = [name for name in large if (look := looks[name]) is None or (not look.is_id and ID_NAME.fullmatch(name))]
    looks |= dict.fromkeys(_distinct_numbers(source, rounded, windows), ID)
    return {name: look for name, look in looks.items() if look is not None}


def _id_by_name(name: str, values: Array) -> Look | None:
    present = values[np.isfinite(values)]
    is_named = ID_NAME.fullmatch(name) is not None and len(np.unique(present)) > MAX_CODES
    return NAMED_ID if is_named and (present == np.rint(present)).all() else None


def _distinct_numbers(source: Source, names: list[str], windows: list[tuple[int, int]]) -> list[str]:
    """Those of the columns whose sampled entries, read without rounding, are different whole numbers."""
    if not names:
        return []
    import pyarrow as pa  # few tables have such numbers
    import pyarrow.compute as pc

    table = pa.concat_tables([source.read_columns(names, *window) for window in windows])
    texts = {name: table.column(name).cast(pa.string()) for name in names}
    return [
        name
        for name, text in texts.items()
        if pc.count_distinct(text, mode="all").as_py() == len(table) >= MIN_ROWS
        and pc.all(pc.match_substring_regex(text, r"^-?[0-9]+$"), skip_nulls=False).as_py()
    ]


def sample_windows(source: Source) -> list[tuple[int, int]]:
    """Ranges of rows at the start, in the middle and at the end; empty if reading them takes more than READ_BYTES."""
    window = max(1, min(WINDOW_ROWS, WINDOW_BYTES // (8 * max(1, source.n_features))))
    if source.bytes_beside(window) > READ_BYTES:
        return []
    if source.n_rows <= 3 * window:
        return [(0, source.n_rows)]
    last = source.n_rows - window
    return [(start, start + window) for start in (0, last // 2, last)]


def read_windows(source: Source, windows: Sequence[tuple[int, int]]) -> Array:
    """The rows of all windows. Raises InputError."""
    none = np.empty((0, source.n_features), source.dtype)
    return np.concatenate([none, *(source.read(*window) for window in windows)])


def look_of(values: Array, n_rows: int) -> Look | None:
    """What a sample of a column, in the order of its n_rows rows, looks like; None if it looks like measurements.

    >>> look_of(np.arange(100.0), 100)
    Look(says='a row number or an id: whole numbers that rise from row to row', is_id=True)
    >>> look_of(np.random.default_rng(0).normal(size=100), 100)
    """
    values = np.asarray(values, np.float64)
    if len(values) < MIN_ROWS or not np.isfinite(values).all() or values.min() == values.max():
        return None
    for unit, per_second in EPOCH_UNITS.items():
        if EPOCH_RANGE[0] * per_second <= values.min() and values.max() < EPOCH_RANGE[1] * per_second:
            return Look(f"a time: {unit} since 1970", False)
    is_integral = bool((values == np.rint(values)).all())
    steps = np.diff(values)
    if (steps > 0).all() or (steps < 0).all():
        direction = "rise" if steps[0] > 0 else "fall"
        if is_integral:
            return Look(f"a row number or an id: whole numbers that {direction} from row to row", True)
        return Look(f"a time: numbers that {direction} from row to row", False)
    numbering = values.max() - values.min() < 2 * n_rows  # a small table may hold different measurements by chance
    if is_integral and len(np.unique(values)) == len(values) and (len(values) >= MANY_ROWS or numbering):
        return ID
    return None

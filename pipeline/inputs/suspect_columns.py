"""Find features of a table that look like an id, a code or a time, from a few rows."""

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
EQUAL_PAIRS = 10
"""Whole numbers that all differ are ids if, of as many random ones from their range, this many pairs would be equal."""
WHOLE_SHARE = 0.99
"""Share of whole numbers in a column that is an id by its name: a few entries may be mistyped."""
MAX_CODES = 20
"""Whole numbers with at most this number of different values are codes: their differences may have no meaning."""
EXACT = 2.0**53
"""Whole numbers of this size and above may be rounded in float64, so that different ids become equal."""
MIN_GROUP, UNEVEN = 1.5, 10
"""An id of groups has at least MIN_GROUP rows for each value on average, and at most UNEVEN times as many for any. A
measurement by which the file is sorted often has fewer, or many small values."""
MAX_STARTS = 0.1
"""Largest share of rows at which positions in a group start again, and of those that start above the least number."""
NAMED_ROWS = (
    r"obs|row|rec(ord)?|doc|seq(uence)?|ser(ial)?|case|subj(ect)?|pers(on)?|patient|participant|child|sample|specimen|item"
    r"|order|invoice|account|customer|employee|student|household|hh|int(erview)?|resp(ondent)?|prov(ider)?"
)
NAMED_THINGS = r"user|client|device|store|product|town|choice|fam(ily)?|school|firm|company|group|session|machine|unit"
ID_NAME = re.compile(
    rf"(.*[_\s.-])?([ugpfsch]?id|({NAMED_ROWS}|{NAMED_THINGS})id)|id[_\s.-].*|uuid|guid|key|.*_key|name", re.I
)
"""Names of ids. Other words may end in id, as fluid and acid do."""
CAMEL_CASE = re.compile(
    r"(?<=^id)(?=[A-Z])|(?<=^ID)(?=[a-z])"
    r"|(?<=[a-z])(?<![pP]er)(?<!Last)(?=(I[dD]|Code|Type|Class|Group|Category|Team|Year|Date)$)"
)
"""Where a name in camel case has words that say what it is; others, as in lowKey and perYear, do not."""
NUMBERING = re.compile(
    rf"({NAMED_ROWS})[_\s.-]*(no|nr|num|number|idx|index)\.?|nr\.?|num|obs|subj(ect)?|case|person", re.I
)
"""Names of columns that number the rows, or the persons and things that they belong to."""
ROW_NAME = re.compile(r"row[_\s.-]*names?", re.I)
NUMBER_NAMES = ID_NAME, NUMBERING, ROW_NAME, re.compile(r"row|index|idx|unnamed: \d+", re.I)
"""Names of ids and of row numbers. In fewer rows than MIN_ROWS, only these tell them from measurements."""
CODE_WORDS = (
    r"[a-z]*codes?\d?|type|class|category|kind|group|grp|cluster|label|zip|plz|[a-z]*fips?|region|state|country"
    r"|county|district|commune|municipality|species|gender|sex|race|religion|arms?|strat(a|um)?|batch|plate|station|site"
    r"|status|sector|cent(er|re)|hospital|institution|dep(artmen)?t|industry|occupation|language|brand|team"
)
COUNT = r"(?!(n|no|nr|num|number|count)([_\s.-]|codes)|.*[_\s.-](per|last)[_\s.-])"
CODE_NAME = re.compile(rf"{COUNT}(.*[_\s.(-])?({CODE_WORDS})\)?", re.I)
"""Names of columns whose whole numbers stand for something: their differences have no meaning."""
TIME_NAME = re.compile(
    rf"({COUNT}(.*[_\s.-])?(year|yr|(day|date|week)[_\s.-]?of[_\s.-]?(week|month|year))"
    r"|date|quarter|mon(th)?|week|day|weekday|dow|hour)([_\s.-]+(no|nr|num|number)\.?)?",
    re.I,
)
DATE_NAME = re.compile(
    r"(.*[_\s.-])?(year|yr|jahr|ann[ée]e|ann?o|año|time([_\s.-]period|[_\s.-]?stamp)?)|.*(?<!candi)(?<!up)(?<!man)date",
    re.I,
)
"""Names of columns that are times if their numbers are dates, as ``_are_dates``: saledate, but not candidate. Tables of
the OECD name years TIME, those of Eurostat TIME_PERIOD."""
STAMP_NAME = re.compile(r"(.*[_\s.-])?time[_\s.-]?stamp|.*(?<!candi)(?<!up)(?<!man)date", re.I)
"""Names of columns that are times if their numbers have the size of seconds since 1970, in any order of the rows."""
FIRST_YEAR, LAST_YEAR = 1800, 2100
DAY_OF_2000 = 1231
"""Days of 2000 lose their leading zeros and become 101 to 1231. Alone, such numbers may be something else."""
LEADING_ZERO = r"^[+-]?0[0-9]+$"
AXIS_NAME, CURVE, CURVE_SHARE = re.compile(r"\d+([.]\d*)?"), 40, 4
"""At least CURVE columns that are named by numbers, such as wavelengths or times, are a curve if they are CURVE_SHARE
times as many as the others."""
EPOCH_UNITS = {"seconds": 1e0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
EPOCH_RANGE = 6.3e8, 2.2e9
"""In seconds since 1970: from 1989 to 2039."""
ONE_WAY, SMALL_STEP = 0.75, 0.1
"""Times go one way in this share of the steps, or are in no order: the mean step is at least this share of the standard
deviation. Other numbers of their size are positions of a moving thing."""
LONG_STEP, LONG_ONE_WAY = 20, 0.95
"""Times with delays go one way in this share of the steps over LONG_STEP rows, as random walks rarely do."""


class Look(NamedTuple):
    """What a column looks like that holds no measurements."""

    says: str
    is_id: bool


NAMED_ID = Look("an id by its name: whole numbers, some of them equal or missing", False)
NAMED_ROW = Look("a name of the row, by its name", False)
NAMED_CODE = Look("a code by its name: whole numbers whose differences have no meaning", False)
NAMED_TIME = Look("a time by its name: whole numbers", False)
NAMED_DATE = Look("a time by its name: its numbers are years or dates", False)
PADDED = Look("a code: numbers with leading zeros", False)
POSITION = Look("a position in a group, or a time: whole numbers that rise by one and start again", False)
GROUP_ID = Look("an id of groups, or a time: whole numbers that repeat and never fall from row to row", False)


def suspect_columns(source: Source) -> dict[str, Look]:
    """Name of each feature that looks like an id, a code or a time, and what it looks like.

    Reads up to WINDOW_ROWS rows at the start, in the middle and at the end. Empty for inputs without column names, and
    if reading these rows would take more than READ_BYTES. Raises InputError for damaged rows.
    """
    names = source.feature_names
    windows = sample_windows(source)
    if names is None or not source.n_rows or not windows:
        return {}
    rows = read_windows(source, windows)
    looks = {name: _look(name, rows[:, column], source.n_rows) for column, name in enumerate(names)}
    large = [name for column, name in enumerate(names) if np.abs(rows[:, column]).max() >= EXACT]
    rounded = [
        name
        for name in large
        if (look := looks[name]) is None or look == GROUP_ID or (not look.is_id and is_named(name, ID_NAME))
    ]
    looks |= dict.fromkeys(_distinct_numbers(source, rounded, windows), id_in_all(len(rows), source.n_rows))
    whole = [name for column, name in enumerate(names) if looks[name] is None and _share_whole(rows[:, column]) == 1]
    looks |= dict.fromkeys(_with_leading_zeros(source, whole, windows), PADDED)
    return {name: look for name, look in looks.items() if look is not None}


def _look(name: str, values: Array, n_rows: int) -> Look | None:
    may_be_epoch = False if is_named(name, ID_NAME) else True if is_named(name, STAMP_NAME) else None
    look = look_of(values, n_rows, may_be_epoch)
    is_whole = bool((values == np.rint(values)).all())
    if look is None and is_whole and 1 < len(values) == len(np.unique(values)) and is_named(name, *NUMBER_NAMES):
        return id_in_all(len(values), n_rows)
    return look_by_name(name, values) or look if look in {None, GROUP_ID, POSITION} else look


def is_named(name: str, *patterns: re.Pattern[str]) -> bool:
    """Whether a name, as one of words with underscores, matches a pattern.

    >>> is_named("idPlayer", ID_NAME), is_named("playerID", ID_NAME), is_named("ideal", ID_NAME)
    (True, True, False)
    """
    return any(pattern.fullmatch(CAMEL_CASE.sub("_", name)) for pattern in patterns)


def id_in_all(n_seen: int, n_rows: int) -> Look:
    """The look of whole numbers that differ in all rows, or in all n_seen of them that are tested."""
    return Look(f"an id: a different whole number in each {'row' if n_seen == n_rows else 'tested row'}", True)


def look_by_name(name: str, values: Array) -> Look | None:
    """What whole numbers look like by the name of their column; None for codes of few values, which may be labels."""
    present = values[np.isfinite(values)]
    share = _share_whole(values)
    n_values = len(np.unique(present))
    if is_named(name, TIME_NAME) and share == 1 and n_values > 2:  # "AREA_-1 year" may be a flag of a category
        return NAMED_TIME
    if is_named(name, DATE_NAME) and _are_dates(present):
        return NAMED_DATE
    if is_named(name, ROW_NAME):
        return NAMED_ROW
    if n_values <= MAX_CODES:
        return None
    if is_named(name, ID_NAME, NUMBERING) and share >= WHOLE_SHARE:
        return NAMED_ID if share == 1 else Look("an id by its name: nearly all entries are whole numbers", False)
    return NAMED_CODE if is_named(name, CODE_NAME) and share == 1 else None


def _are_dates(values: Array) -> bool:
    """Whether all numbers are years, also with a fraction, or all are days, written as 20241231 or 241231.

    >>> [_are_dates(np.array(one)) for one in ([1999, 2000.25], [960423, 10131], [19960423], [101, 131], [20241331])]
    [True, True, True, False, False]
    """
    if ((values >= FIRST_YEAR) & (values < LAST_YEAR)).all():
        return len(values) > 0
    year, month, day = values // 10000, values // 100 % 100, values % 100
    is_year = (year >= 0) & (year < 100) | (year >= FIRST_YEAR) & (year < LAST_YEAR)
    is_day = (values == np.rint(values)) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool((is_year & is_day).all() and values.max() > DAY_OF_2000)


def _share_whole(values: Array) -> float:
    """The share of whole numbers among the entries that are no NaN; 0 without entries."""
    present = values[np.isfinite(values)]
    return float(np.mean(present == np.rint(present))) if len(present) else 0.0


def _with_leading_zeros(source: Source, names: list[str], windows: list[tuple[int, int]]) -> list[str]:
    """Those of the columns of a CSV file that are written with leading zeros: other files hold numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not names or not pa.types.is_string(source.read_columns(names[:1], 0, 1).column(0).type):
        return []
    table = pa.concat_tables([source.read_columns(names, *window) for window in windows])
    return [name for name in names if pc.any(pc.match_substring_regex(table.column(name), LEADING_ZERO)).as_py()]


def _distinct_numbers(source: Source, names: list[str], windows: list[tuple[int, int]]) -> list[str]:
    """Those of the columns whose sampled entries, read without rounding, are different whole numbers."""
    if not names:
        return []
    import pyarrow as pa
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
    none = np.empty((0, source.n_features), source.dtype)
    return np.concatenate([none, *(source.read(*window) for window in windows)])


@np.errstate(over="ignore", invalid="ignore")  # a run refuses numbers whose squares overflow
def look_of(values: Array, n_rows: int, may_be_epoch: bool | None = None) -> Look | None:
    """What a sample of a column, in the order of its n_rows rows, looks like; None if it looks like measurements.

    may_be_epoch: whether numbers of the size of seconds since 1970 are times; None if their order decides. Those of a
    column named as an id are none.

    >>> look_of(np.arange(100.0), 100)
    Look(says='a row number or an id: whole numbers that rise from row to row', is_id=True)
    >>> look_of(np.random.default_rng(0).normal(size=100), 100)
    """
    values = np.asarray(values, np.float64)
    if len(values) < MIN_ROWS or not np.isfinite(values).all() or values.min() == values.max():
        return None
    steps = np.diff(values)
    long_steps = values[LONG_STEP:] - values[:-LONG_STEP]
    if may_be_epoch is None:
        is_one_way = _one_way(steps) >= ONE_WAY or _one_way(long_steps) >= LONG_ONE_WAY
        may_be_epoch = bool(is_one_way or np.abs(steps).mean() >= SMALL_STEP * values.std())
    for unit, per_second in EPOCH_UNITS.items() if may_be_epoch else ():
        if EPOCH_RANGE[0] * per_second <= values.min() and values.max() < EPOCH_RANGE[1] * per_second:
            return Look(f"a time: {unit} since 1970", False)
    is_integral = bool((values == np.rint(values)).all())
    if (steps > 0).all() or (steps < 0).all():
        direction = "rise" if steps[0] > 0 else "fall"
        if is_integral:
            return Look(f"a row number or an id: whole numbers that {direction} from row to row", True)
        return Look(f"a time: numbers that {direction} from row to row", False)
    counts = np.unique(values, return_counts=True)[1]
    distinct, mean = len(counts), len(values) / len(counts)
    is_grouped = distinct > MAX_CODES and mean >= MIN_GROUP and counts.max() <= UNEVEN * mean
    if is_integral and is_grouped and (steps >= 0).all():
        return GROUP_ID
    if is_integral and distinct > MAX_CODES and _starts_again(values, steps):
        return POSITION
    width = values.max() - values.min()
    if is_integral and distinct == len(values) and width < max(2 * n_rows, len(values) ** 2 / (2 * EQUAL_PAIRS)):
        return id_in_all(len(values), n_rows)
    return None


def _one_way(steps: Array) -> float:
    """The share of the steps that go in the more frequent direction."""
    return float(max(np.mean(steps >= 0), np.mean(steps <= 0)))


def _starts_again(values: Array, steps: Array) -> bool:
    """Whether nearly all steps are 1, and most others lead to the least values. Two may lie between sampled ranges."""
    if values.min() not in {0, 1}:  # such as a grid of latitudes
        return False
    after = values[1:][steps != 1]
    n_others = int((after > values.min() + 1).sum())
    return len(after) <= MAX_STARTS * len(steps) and n_others <= max(2, MAX_STARTS * len(after))


def beside_curve(names: Sequence[str]) -> dict[str, str]:
    """Columns to leave out beside a curve, such as a spectrum: those whose names are no numbers, if most others are.

    They are mostly properties of the sample that the curve is to predict.

    >>> beside_curve([*map(str, range(400, 440)), "moisture"])
    {'moisture': 'the names of the other 40 columns are numbers, as in a spectrum'}
    >>> beside_curve(["1", "2", "3", "4", "moisture"])
    {}
    """
    others = [name for name in names if not AXIS_NAME.fullmatch(name)]
    n_axis = len(names) - len(others)
    if n_axis < CURVE or n_axis < CURVE_SHARE * len(others):
        return {}
    return dict.fromkeys(others, f"the names of the other {n_axis:,} columns are numbers, as in a spectrum")

"""Find columns in which one number, such as -9999, may stand for a missing value, or a few are far from all others."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..storage.bundles import Array
from .base import Source
from .suspect_columns import MAX_CODES, MIN_ROWS, read_windows, sample_windows

MIN_COUNT, MIN_SHARE, MAX_SHARE, MAX_ZEROS = 3, 0.002, 0.99, 0.5
"""A code is in at least so many of the rows, and at least this share of them, but not in nearly all; 0 not in most."""
CODES = 3
"""Several codes may say why a value is missing: 97, 98 and 99."""
MIN_OTHERS = 3
FAR, FAR_FROM_FEW, FAR_IF_SHARED, SHARED = 1.0, 3.0, 0.5, 3
"""A code is further from the other values than they are from each other; from few whole numbers three times as far, and
half as far, but more than a step of whole numbers, if so many columns have the same code and the same range of the
others, as 9 beside answers from 1 to 5."""

USUAL = re.compile(r"0|9*[789]|8+|7+")
"""The digits of a code, as of 98, 99.9 and 777."""
FEW, SETS_SPREAD = 0.01, 3.0
"""Far values are at most this share of a column, and make its standard deviation at least so many times larger."""
NEGATIVE = {-99.0, -999.0, -9999.0, -99999.0}
"""Codes that need not be far from the other values, as counts, if these are not negative."""
HUGE, LARGEST = 1e9, {2**15 - 1, 2**16 - 1}
"""Fill values of programs, and the largest integers of 16 bits."""


class Code(NamedTuple):
    """Numbers that may mark missing values, how often they occur, and the range of the other values."""

    numbers: tuple[float, ...]
    n_rows: int
    others: tuple[float, float]


def strange_values(source: Source) -> dict[str, str]:
    """What each feature of a table holds that seems to be a code or is far from its other values; others are left out.

    Rows are those that `suspect_columns` reads. Empty for inputs without column names. Raises InputError for damaged
    rows.
    """
    names, windows = source.feature_names, sample_windows(source)
    if names is None or source.n_rows < MIN_ROWS or not windows:
        return {}
    rows = read_windows(source, windows)
    unit = "rows" if len(rows) == source.n_rows else "tested rows"
    near = [missing_code(column, FAR_IF_SHARED) for column in rows.T]
    n_same = Counter((code.numbers, code.others) for code in near if code is not None)
    found = dict[str, str]()
    for name, column, code in zip(names, rows.T, near, strict=True):
        own = code if code is None or n_same[code.numbers, code.others] >= SHARED else missing_code(column)
        if text := far_values(column, unit) if own is None else _sentence(own, f"{len(rows):,} {unit}"):
            found[name] = text
    return found


def further_far_values(source: Source, names: Sequence[str], rows: Array) -> dict[str, str]:
    """`far_values` of the columns of these rows (n, d) that `strange_values` does not name."""
    named = strange_values(source)
    texts = {name: far_values(values) for name, values in zip(names, rows.T, strict=True) if name not in named}
    return {name: text for name, text in texts.items() if text}


def _sentence(code: Code, where: str) -> str:
    numbers, (low, high) = " or ".join(f"{number:.10g}" for number in code.numbers), code.others
    return f"holds {numbers} in {code.n_rows:,} of {where}, but its other values are from {low:g} to {high:g}"


@np.errstate(over="ignore", invalid="ignore")  # a run refuses numbers whose squares overflow
def missing_code(values: Array, far_from_few: float = FAR_FROM_FEW) -> Code | None:
    """Repeated extreme values that lie far from all others, as codes for a missing value do; None without them.

    far_from_few: how far they are from few whole numbers, as a multiple of the range of these.

    >>> missing_code(np.array([*range(40), -9999, -9999, -9999]))
    Code(numbers=(-9999.0,), n_rows=3, others=(0.0, 39.0))
    >>> missing_code(np.arange(99))
    """
    distinct, counts = np.unique(np.asarray(values, np.float64)[np.isfinite(values)], return_counts=True)
    least = max(MIN_COUNT, MIN_SHARE * counts.sum())
    for n_codes in range(1, min(CODES, len(distinct) - MIN_OTHERS) + 1):
        for codes, others in ((slice(n_codes), slice(n_codes, None)), (slice(-n_codes, None), slice(-n_codes))):
            found, rest = distinct[codes], distinct[others]
            gap = max(found.min() - rest.max(), rest.min() - found.max())
            times = FAR if len(rest) > MAX_CODES else far_from_few
            is_far = gap > times * (rest.max() - rest.min()) and (gap > 1.0 or times >= FAR)
            is_far |= rest.min() >= 0 and all(number in NEGATIVE for number in found)
            share = counts[codes].sum() / counts.sum()
            is_repeated = counts[codes].min() >= least and share <= (MAX_SHARE if found.all() else MAX_ZEROS)
            if is_far and is_repeated and all(map(_is_usual, found)):
                return Code(tuple(found.tolist()), int(counts[codes].sum()), (float(rest.min()), float(rest.max())))
    return None


def _is_usual(number: float) -> bool:
    """Whether people or programs write such a number for a missing value: others are far but real, as 646 branches."""
    is_whole = number == np.rint(number)
    if is_whole and (number < 0 or number >= HUGE or number in LARGEST):
        return True
    digits = f"{abs(number):.0f}" if is_whole else f"{abs(number):.6g}".replace(".", "")  # float32 rounds 99.9
    return USUAL.fullmatch(digits) is not None


@np.errstate(over="ignore", invalid="ignore")  # a run refuses numbers whose squares overflow
def far_values(values: Array, unit: str = "rows") -> str:
    """What a column holds of which a few values are far from all others and set its spread; empty for other columns.

    Distances are from the median. The far ones are larger than the next by a greater factor than that one is larger
    than half of them. In a long tail, as of incomes, there is no such step. Codes for missing values do not count.

    >>> far_values(np.append(np.arange(1000.0), 1e6))
    'holds 1000000 in 1 of 1,001 rows, far from its other values, 0 to 999'
    >>> far_values(np.exp(np.random.default_rng(0).normal(0, 3, 1000)))
    ''
    """
    values = np.asarray(values, np.float64)[np.isfinite(values)]
    if len(values) < MIN_ROWS:
        return ""
    away = np.abs(values - np.median(values))
    distances = np.sort(away)[::-1][: max(1, int(FEW * len(values))) + 1]
    n_far = np.flatnonzero(distances[:-1] * np.median(away) > distances[1:] ** 2) + 1
    others = values[away < distances[n_far[-1] - 1]] if len(n_far) else values
    if values.std() <= SETS_SPREAD * others.std() or missing_code(values) is not None:
        return ""
    count, furthest = len(values) - len(others), values[away.argmax()]
    held = f"{'numbers such as ' * (count > 1)}{furthest:.10g} in {count:,} of {len(values):,} {unit}"
    return f"holds {held}, far from its other values, {others.min():g} to {others.max():g}"

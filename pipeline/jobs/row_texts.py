"""Values of rows as text, and how some rows differ from all, for `lle explore`."""

from collections.abc import Callable, Sequence

import numpy as np

from ..engine.step import Json
from ..report.column import Column
from ..storage.bundles import Array

SUMMARY_CLASSES = 30


def summary_of(
    columns: Sequence[Column], points: Array, shown: Column | None, mean_of_all: Callable[[int], float]
) -> Json:
    """Counts by class of some points, and means by column, both beside those of all points; empty without points.

    The classes are those of the shown column, else of the first one with classes. mean_of_all: by column number.
    """
    if not len(points):
        return {"classes": None, "means": []}
    means = [
        [column.label, *(_mean_text(column, mean) for mean in (known_mean(column.values[points]), mean_of_all(number)))]
        for number, column in enumerate(columns)
        if column.names is None
    ]
    candidates = ([] if shown is None else [shown]) + [column for column in columns if column.role == "value"]
    by_class = next((column for column in candidates if column.names is not None), None)
    return {"classes": None if by_class is None else _counts(by_class, points), "means": means}


def _counts(column: Column, points: Array) -> Json:
    names = [*map(str, column.names or ()), "unknown"]
    last = len(names) - 1
    counts, totals = (
        np.bincount(np.where(codes < 0, last, codes), minlength=len(names))
        for codes in (column.values[points], column.values)
    )
    first = np.argsort(-counts, kind="stable")[: min(SUMMARY_CLASSES, np.count_nonzero(counts))]
    rows = [[names[code], int(counts[code]), int(totals[code])] for code in first.tolist()]
    return {"label": column.label, "rows": rows}


def value_text(column: Column, point: int) -> str:
    """The value of a point; "" if unknown."""
    value = column.values[point]
    if column.names is not None:
        return str(column.names[value]) if 0 <= value < len(column.names) else ""
    if column.kind == "date" or not np.isfinite(value):
        return date_text(float(value))
    return f"{value:.6g}" if value.dtype == np.float32 and column.kind == "number" else f"{value:.12g}"


def _mean_text(column: Column, mean: float) -> str:
    return date_text(mean)[:10] if column.kind == "date" else "" if np.isnan(mean) else f"{mean:.4g}"


def known_mean(values: Array) -> float:
    """The mean of the values (n,) that are known; NaN if none is."""
    known = values[np.isfinite(values)]
    return float(known.mean(dtype=np.float64)) if len(known) else np.nan


def date_text(seconds: float) -> str:
    """The UTC date, with the time unless it is midnight; "" if unknown.

    >>> date_text(86400.0), date_text(86460.0)
    ('1970-01-02', '1970-01-02 00:01:00')
    """
    if not np.isfinite(seconds):
        return ""
    return str(np.datetime64(round(seconds), "s")).replace("T", " ").removesuffix(" 00:00:00")

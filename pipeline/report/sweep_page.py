"""The results of a sweep, one row per experiment: a Parquet table with all numbers, and an HTML page."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from .bounds import CROWDED, SPREAD_SHARE
from .figure_style import Pair
from .number_format import is_known, template

Row = dict[str, Any]

SHOWN = (
    "seconds",
    "n_points",
    "reg_used",
    "recall",
    "n_components_weak",
    "closed_classes",
    "reconstruction_error",
    "trustworthiness",
    "continuity",
    "eigenvalue_1",
    "residual_max",
    "steps_computed",
    "steps_reused",
)
"""Columns of the page in fixed order; other quality measures follow trustworthiness."""
BEST_BY = ("neighborhood_hit", "trustworthiness")
"""The measure that marks the best experiments: the first one that every finished experiment has."""
COSTS = {"seconds", "peak_bytes", "blocks", "dropped", "versions"}


def flat_metrics(metrics: Mapping[str, Any]) -> Row:
    """metrics.json as columns: numbers unchanged, {value, low, high} as three, eigenpairs of the first component.

    >>> flat_metrics({"n_points": 9, "recall": {"value": 1.0, "low": 0.9, "high": 1.0}, "eigenvalues": [[1.0, 2.0]]})
    {'n_points': 9, 'recall': 1.0, 'recall_low': 0.9, 'recall_high': 1.0, 'eigenvalue_1': 1.0, 'eigenvalue_2': 2.0}
    """
    row: Row = {}
    for name, value in metrics.items():
        if name in COSTS:
            continue
        if isinstance(value, bool) or is_known(value):
            row[name] = value
        elif name == "reg" and value:
            row["reg_used"] = value["value"]  # "reg" is the value of a sweep, which may be auto
        elif isinstance(value, dict) and is_known(value.get("value")):
            row |= {name: value["value"], f"{name}_low": value.get("low"), f"{name}_high": value.get("high")}
    for name in ("eigenvalues", "participation"):
        for number, value in enumerate((metrics.get(name) or [[]])[0], start=1):
            row[f"{name.removesuffix('s')}_{number}"] = value
    for number, value in enumerate(metrics.get("redundancy") or [], start=1):
        row[f"redundancy_{number}"] = value
    residuals = [value for values in metrics.get("residuals") or [] for value in values if is_known(value)]
    if residuals:
        row["residual_max"] = max(residuals)
    solver = metrics.get("solver") or {}
    return row | {f"solver_{key}": solver[key] for key in ("method", "converged") if key in solver}


def table_bytes(rows: Sequence[Row]) -> bytes:
    """The rows as a Parquet file; columns of mixed types are written as text."""
    import pandas as pd  # the import takes a second, and other commands do not need it

    frame = pd.DataFrame(list(rows))
    for name in frame.columns:
        kinds = {type(value) for value in frame[name] if value is not None and value == value}
        if (not kinds <= {int, float} and len(kinds) > 1) or kinds & {list, dict, tuple}:
            frame[name] = [None if value is None or value != value else str(value) for value in frame[name]]
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def render_sweep(
    title: str,
    parameters: Sequence[str],
    rows: Sequence[Row],
    counts: Mapping[str, int],
    seconds: float,
    pictures: Pair,
    reports: Mapping[str, str],
) -> str:
    """Self-contained HTML: the counts, the contact sheet, and the table of parameters and metrics.

    reports: the address of the report of each experiment that has one. Those with the highest `BEST_BY` are marked.
    """
    names = {name for row in rows for name in row} - {*parameters}
    measures = [name for name in SHOWN if name in names]
    with_interval = sorted(name.removesuffix("_low") for name in names if name.endswith("_low"))
    position = measures.index("continuity") + 1 if "continuity" in measures else len(measures)
    measures[position:position] = [name for name in with_interval if name not in measures]
    measure, best = best_experiments(rows)
    return template("sweep.html.j2", shown=_shown).render(
        title=title,
        parameters=list(parameters),
        measures=measures,
        counts=counts,
        seconds=seconds,
        rows=rows,
        reports=reports,
        best=best,
        best_by=measure.replace("_", " "),
        pictures=pictures,
    )


def best_experiments(rows: Sequence[Row]) -> tuple[str, set[str]]:
    """The measure by which finished experiments are compared, and those with its highest value; "" without a measure.

    Pictures of a few dots, about which their reports warn, come last.

    >>> done = {"state": "done"}
    >>> rows = [{"experiment": "a", "trustworthiness": 0.8}, {"experiment": "b", "trustworthiness": 0.9}]
    >>> best_experiments([row | done for row in rows])
    ('trustworthiness', {'b'})
    >>> rows[1] |= {"correlation_sum": 0.4, "correlation_sum_low": 0.3, "pca_correlation_sum": 0.01}
    >>> best_experiments([row | done for row in rows])
    ('trustworthiness', {'a'})
    """
    done = [row for row in rows if row["state"] == "done"]
    measure = next((name for name in BEST_BY if done and all(is_known(row.get(name)) for row in done)), "")
    if not measure or len(done) < 2:
        return "", set()
    compared = [row for row in done if not _is_dots(row)] or done
    highest = max(row[measure] for row in compared)
    return measure, {row["experiment"] for row in compared if row[measure] == highest}


def _is_dots(row: Row) -> bool:
    """Whether the picture shows many points at few places, and principal components spread them."""
    low, value, in_pca = (row.get(name) for name in ("correlation_sum_low", "correlation_sum", "pca_correlation_sum"))
    if not (is_known(low) and is_known(value) and is_known(in_pca)):
        return False
    return low > CROWDED and in_pca < SPREAD_SHARE * value


def _shown(value: object) -> str:
    if not is_known(value):
        return "" if value is None or value != value else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

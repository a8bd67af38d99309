"""The metrics of a run, collected from the reports of its finished blocks."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ..engine.damage import StepRecord
from ..engine.step import BlockReport, Json
from .metrics import Metrics

Reports = dict[str, list[BlockReport[Json]]]
Records = dict[str, StepRecord]

COPIED = (
    "ingest.merge_duplicates",
    "mend_graph.analyse",
    "mend_graph.connect",
    "solve_embedding.write",
    "measure_quality.sample",
    "measure_quality.score",
    "measure_quality.geodesics",
    "measure_quality.compare",
)
"""Steps whose reports have metrics under the names of `Metrics`, each metric in one of them."""


def collect(
    reports: Reports, records: Records, n_input: int, n_features: int | None, columns: Sequence[str] | None = None
) -> Metrics:
    """All metrics known so far; keys of stages that have not run are None. columns: their names, if they have any."""

    def name(column: str | int) -> str:
        return f"column {column}" if columns is None else columns[int(column)]

    known = {name: value for step in COPIED for name, value in _first(reports, step).items() if value is not None}
    n_points, differ_in = known.get("n_points"), known.get("differ_in")
    squared_error = _total(reports, "solve_weights.solve", "squared_error")
    invalid = _total(reports, "ingest.read", "invalid")
    small = _first(reports, "solve_embedding.write").get("rows_in_small_components")
    dropped = {"invalid": invalid, "small_component": small}
    return replace(
        Metrics.read(known),
        n_input=n_input,
        n_features=n_features,
        duplicates_merged=None if n_points is None else known["n_valid"] - n_points,
        ids=_ids(reports),
        invalid_dropped=invalid,
        dropped={reason: count for reason, count in dropped.items() if count},
        invalid_by_column=_invalid_by_column(reports, name),
        list_sizes=_list_sizes(reports, n_points),
        closed_classes_embedded=_classes_of_embedded(reports),
        reconstruction_error=None if squared_error is None or not n_points else squared_error / n_points,
        rows_measured=known.get("n_rows"),
        components_differ_in=None if differ_in is None else [name(column) for column in differ_in],
        nnz_cost_matrix=_total(reports, "assemble_cost.merge", "count"),
        zero_trace_rows=_total(reports, "solve_weights.solve", "zero_trace"),
        unlisted_points=_first(reports, "local_factors.list_unlisted").get("count"),
        skipped_neighborhoods=_total(reports, "local_factors.solve", "skipped"),
        alignment=_first(reports, "solve_embedding.align") or None,
        **_recall(reports),
        **_solutions(_solved(reports)),
        **_costs(reports, records),
    )


def with_placed_rows(fit: Metrics, placing: Metrics, n_input: int, reports: Reports) -> Metrics:
    """The metrics of a fit, with those of all n_input rows where these differ; `placing`: of the placing."""
    changes: Json = {key: {**getattr(fit, key), **getattr(placing, key)} for key in ("seconds", "peak_bytes", "blocks")}
    sample: Json = {"rows_fitted": fit.n_input, "rows_placed": None, "far": None, "max_ratio": None, "mixed": None}
    if blocks := reports.get("transform.embed"):
        invalid, far, mixed = (_total(reports, "transform.embed", key) for key in ("invalid", "far", "mixed"))
        n_placed = n_input - fit.n_input - (invalid - (fit.invalid_dropped or 0))
        changes |= {"invalid_dropped": invalid, "dropped": {"invalid": invalid} if invalid else {}}
        changes["invalid_by_column"] = None  # that of the fit counts rows of the sample
        changes["rows_placed"] = n_placed + (fit.rows_placed or 0)
        sample |= {"rows_placed": n_placed, "far": far, "mixed": mixed, "max_ratio": blocks[0].report["limit"]}
    return replace(fit, n_input=n_input, version=placing.version, fit_sample=sample, **changes)


def _invalid_by_column(reports: Reports, name: Callable[[str], str]) -> dict[str, int] | None:
    """Entries of each column that are NaN or infinite, of the 20 columns with most."""
    if "ingest.read" not in reports:
        return None
    counts: Counter[str] = Counter()
    for block in reports["ingest.read"]:
        counts.update({str(column): count for column, count in block.report.get("invalid_columns", {}).items()})
    return {name(column): count for column, count in counts.most_common(20)}


def _ids(reports: Reports) -> Json | None:
    checked = _first(reports, "ingest.check_ids")
    if not checked:
        return None
    missing = _total(reports, "ingest.read_ids", "missing")
    return {"missing": missing, "duplicates": checked["duplicates"], "first": checked["first"]}


def _recall(reports: Reports) -> Json:
    """The last measured recall, and the effect of each round of search with more overlap."""
    measured: dict[int, Json] = {0: _first(reports, "mend_graph.measure_recall")}
    for key in reports:
        if key.startswith("mend_graph.measure_recall_") and (recall := _first(reports, key)):
            measured[int(key.rpartition("_")[2])] = recall
    if not measured[0]:
        return {}
    rounds = [
        {"overlap": overlap, "before": before["value"], "after": after["value"]}
        for (_, before), (overlap, after) in pairwise(sorted(measured.items()))
    ]
    return {"recall": measured[max(measured)], "recall_raised": rounds}


def _list_sizes(reports: Reports, n_points: int | None) -> Json | None:
    truncated = [report.report for report in reports.get("find_neighbors.cut", [])]
    if not truncated or not n_points:
        return None
    return {
        "mean": sum(part["neighbors"] for part in truncated) / n_points,
        "least": min(part["least"] for part in truncated),
        "most": max(part["most"] for part in truncated),
        "raised_to_k_min": sum(part["raised"] for part in truncated),
        "at_k_max": sum(part["full"] for part in truncated),
    }


def _classes_of_embedded(reports: Reports) -> Json | None:
    graph = _first(reports, "mend_graph.analyse")
    classes_left = graph.get("closed_classes_by_component")
    if classes_left is None:
        return None
    n_components = len(_solved(reports)) or graph["n_components_large"]
    return {"components": min(n_components, len(classes_left)), "classes": sum(classes_left[:n_components])}


def _solved(reports: Reports) -> list[Json]:
    return [component for block in reports.get("solve_embedding.solve", []) for component in block.report["components"]]


def _solutions(solved: list[Json]) -> Json:
    """Measures of the eigenpairs that are coordinates, and how these were chosen (`embedding.coordinates`)."""
    if not solved:
        return {}
    choices = [report["coordinates"] for report in solved] if solved[0].get("coordinates") else None
    solvers = [{**report["stats"], "converged": report["converged"]} for report in solved]
    columns = ("eigenvalues", "residuals", "participation", "separated", "vector_errors")
    return {
        **{key: _taken([report.get(key) for report in solved], choices) for key in columns},
        "coordinates": choices,
        "solver": {**solvers[0], "converged": all(solver["converged"] for solver in solvers)},
        "solvers": solvers,
        "component_points": [report["n_points"] for report in solved],
    }


def _taken(rows: list[list[float] | None], choices: list[Json] | None) -> list[list[float] | None]:
    """The numbers of the chosen eigenpairs of each component; all numbers without a choice."""
    if choices is None:
        return rows
    return [row and [row[j - 1] for j in choice["taken"]] for row, choice in zip(rows, choices, strict=True)]


def _costs(reports: Reports, records: Records) -> Json:
    seconds: dict[str, float] = {}
    peak_bytes: dict[str, int] = {}
    blocks: dict[str, int] = {}
    for key, block_reports in reports.items():
        stage = key.partition(".")[0]
        seconds[stage] = round(seconds.get(stage, 0.0) + records[key].seconds, 3)
        if not block_reports:  # the report itself, not yet finished
            continue
        peak_bytes[stage] = max([peak_bytes.get(stage, 0), *(report.peak_bytes for report in block_reports)])
        blocks[stage] = blocks.get(stage, 0) + len(block_reports)
    return {"seconds": seconds, "peak_bytes": peak_bytes, "blocks": blocks}


def _first(reports: Reports, step: str) -> Json:
    block_reports = reports.get(step)
    return block_reports[0].report if block_reports else {}


def _total(reports: Reports, step: str, key: str) -> Any:
    block_reports = reports.get(step)
    return sum(report.report[key] for report in block_reports) if block_reports else None

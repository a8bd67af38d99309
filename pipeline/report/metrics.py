"""metrics.json of a run, collected from the reports of its finished blocks. Input and output are plain dicts."""

import math
from itertools import pairwise
from typing import Any

from ..engine.plan import BlockReport

Reports = dict[tuple[str, str], list[BlockReport]]
Records = dict[tuple[str, str], dict[str, Any]]

CLUMP_SHARE = 0.01  # a coordinate concentrated on a smaller share of its component's points is a clump
EXACT = 1e-10  # times eps lambda_max: a smaller eigenvalue is the square of rounding errors
QUALITY = (
    "trustworthiness", "continuity", "redundancy", "regression_residual", "procrustes_error", "residual_variance",
    "residual_variance_truth", "residual_variance_affine", "neighborhood_hit", "neighborhood_hit_input",
)  # fmt: skip
LOW_TRUSTWORTHINESS = 0.8
DROPPED_SHARE = 0.01  # share of dropped rows from which on there is a warning
MOVED = 0.3  # residual of the alignment, relative to the earlier coordinates, above which they have changed
UNRELATED = math.sqrt(2.0)  # that residual for unrelated coordinates of equal size
SUSPECTS = 20  # warnings about columns at most
REDUNDANT = 0.95  # R^2 of a coordinate predicted from the earlier ones, above which it adds nothing


def collect(reports: Reports, records: Records, n_input: int, n_features: int | None) -> dict[str, Any]:
    """All metrics known so far; keys of stages that have not run are None."""
    merged, graph = _first(reports, "ingest", "merge_duplicates"), _first(reports, "mend_graph", "analyse")
    invalid = _total(reports, "ingest", "read", "invalid")
    n_points = merged.get("n_points")
    n_valid = merged.get("n_valid", 0)
    squared_error = _total(reports, "solve_weights", "solve", "squared_error")
    small = _first(reports, "solve_embedding", "write").get("rows_in_small_components")
    return {
        "n_input": n_input,
        "n_points": n_points,
        "n_features": n_features,
        "duplicates_merged": None if n_points is None else n_valid - n_points,
        "invalid_dropped": invalid,
        "dropped": {reason: count for reason, count in (("invalid", invalid), ("small_component", small)) if count},
        "rows_placed": _first(reports, "solve_embedding", "write").get("rows_placed"),
        "list_sizes": _list_sizes(reports, n_points),
        "appended": _appended(reports),
        **_recall(reports),
        "n_components_weak": graph.get("n_components_weak"),
        "component_sizes": graph.get("component_sizes"),
        "closed_classes": graph.get("closed_classes"),
        "closed_classes_left": graph.get("closed_classes_left"),
        "reverse_added": graph.get("reverse_added"),
        "bridges_added": graph.get("bridges_added"),
        "nnz_cost_matrix": _total(reports, "assemble_cost", "merge", "nnz"),
        "reconstruction_error": None if squared_error is None or not n_points else squared_error / n_points,
        "zero_trace_rows": _total(reports, "solve_weights", "solve", "zero_trace"),
        "unlisted_points": _first(reports, "local_factors", "list_unlisted").get("unlisted"),
        "skipped_neighborhoods": _total(reports, "local_factors", "solve", "skipped"),
        "alignment": _first(reports, "solve_embedding", "align") or None,
        **_solutions([report.report for report in reports.get(("solve_embedding", "solve"), [])]),
        **_quality(reports),
        **_costs(reports, records),
    }


def _appended(reports: Reports) -> dict[str, Any] | None:
    """For a run that kept the lists of an earlier version: its points, and how many were last searched together."""
    cells = _first(reports, "order_points", "keep_cells")
    if not cells:
        return None
    n_kept = _total(reports, "order_points", "gather", "kept")
    return {"points_kept": n_kept, "points_searched_together": cells["searched_together"]}


def warnings(metrics: dict[str, Any]) -> list[str]:
    """Sentences that a user should read before trusting the embedding."""
    sentences = []
    if metrics.get("method") != "pca" and metrics["n_components_weak"] and metrics["n_components_weak"] > 1:
        sentences.append(
            f"the neighbour graph has {metrics['n_components_weak']} components; each embedded component has its own "
            f"coordinates, which cannot be compared"
        )
    sizes = metrics.get("list_sizes") or {}
    if sizes.get("raised_to_k_min"):
        sentences.append(
            f"{sizes['raised_to_k_min']} points have fewer than k_min neighbours within the radius; they keep the "
            f"k_min nearest"
        )
    if sizes.get("at_k_max"):
        sentences.append(
            f"{sizes['at_k_max']} points have k_max or more neighbours within the radius; they keep the k_max nearest"
        )
    small = metrics["dropped"].get("small_component")
    if small:
        share = small / metrics["n_input"]
        sentences.append(
            f"{small} rows ({share:.1%}) are in components that were not embedded; their coordinates are NaN. "
            f"graph.components: separate embeds every component"
        )
    invalid, n_input = metrics["dropped"].get("invalid", 0), metrics.get("n_input")
    if n_input and invalid and invalid >= DROPPED_SHARE * n_input:
        sentences.append(f"{invalid} of {n_input} rows hold NaN or infinity; they are not embedded")
    sentences += _of_null_space(metrics)
    for number, shares in enumerate(metrics["participation"] or []):
        size = metrics["component_points"][number]
        for coordinate, value in enumerate(shares, start=1):
            if value < CLUMP_SHARE * size:
                cure = "" if metrics["reverse_added"] else "; neighbors.reverse: 4 connects such points to the others"
                sentences.append(
                    f"coordinate {coordinate} of component {number} is a clump: it is concentrated on about "
                    f"{value:.0f} of {size} points{cure}"
                )
    sentences += _of_quality(metrics)
    lowest = min((min(values) for values in metrics["eigenvalues"] or []), default=1.0)
    floor = (metrics["solver"] or {}).get("rounding_floor", 0.0)
    if metrics.get("method") in ("ltsa", "hessian") and lowest < EXACT * floor:
        sentences.append(
            "eigenvalues are zero to rounding: the neighbourhoods are exactly flat, or groups of points have too few "
            "links to the others (then a coordinate is a clump)"
        )
    if metrics.get("skipped_neighborhoods"):
        sentences.append(
            f"{metrics['skipped_neighborhoods']} neighbourhoods are too small to be used; raise n_neighbors"
        )
    if metrics["solver"] and not metrics["solver"]["converged"]:
        sentences.append("the eigensolver did not reach its tolerance; the vectors are the best that it computed")
    return sentences + _of_alignment(metrics.get("alignment"))


def column_metrics(columns: dict[str, Any] | None) -> dict[str, Any]:
    """The columns of a table by their role, from the attributes of a run's store; all None for an array."""
    columns = columns or {}
    keys = {"features": "features", "label": "label", "id": "id", "columns_left_out": "left_out"}
    return {name: columns.get(key) for name, key in keys.items()}


def warnings_of_columns(columns: dict[str, Any] | None) -> list[str]:
    """A sentence for each feature that looks like an id or a time; `columns` as in the attributes of a run's store."""
    suspect = (columns or {}).get("suspect") or {}
    return [
        f"column '{name}' is a feature but looks like {look}; to leave it out, list the features in input.columns"
        for name, look in list(suspect.items())[:SUSPECTS]
    ]


def _of_null_space(metrics: dict[str, Any]) -> list[str]:
    """Sentences about closed classes: how they were repaired, and how many are left."""
    sentences = []
    if metrics["reverse_added"] and metrics["closed_classes"] > metrics["n_components_weak"]:
        sentences.append(
            f"{metrics['closed_classes']} closed classes were repaired with {metrics['reverse_added']} reverse "
            f"neighbours and {metrics['bridges_added']} bridges"
        )
    n_classes_left, n_components = metrics.get("closed_classes_left"), metrics["n_components_weak"]
    if metrics.get("method", "lle") == "lle" and n_classes_left and n_components and n_classes_left > n_components:
        sentences.append(
            f"{n_classes_left} closed classes are left, where {n_components} is right: some coordinates only separate "
            f"closed groups of points"
        )
    return sentences


def _of_quality(metrics: dict[str, Any]) -> list[str]:
    """Sentences about redundant coordinates and about an embedding that cannot be trusted."""
    sentences = []
    for coordinate, value in enumerate(metrics["redundancy"] or [], start=1):
        if value > REDUNDANT:
            sentences.append(
                f"coordinate {coordinate} is nearly a function of the earlier ones (R^2 {value:.2f}): it adds no new "
                f"information"
            )
    trust = (metrics.get("trustworthiness") or {}).get("value")
    if trust is not None and trust < LOW_TRUSTWORTHINESS:
        sentences.append(
            f"the trustworthiness is low ({trust:.3f}): many neighbours in the embedding are not neighbours in the "
            f"data; do not read clusters off the picture"
        )
    return sentences


def _of_alignment(alignment: dict[str, Any] | None) -> list[str]:
    """Sentences about a requested alignment that did not keep the coordinates; none for a first run."""
    if alignment is None or alignment.get("reason") == "no earlier embedding":
        return []
    if alignment.get("reason"):
        return [f"embedding.align: nothing was aligned: {alignment['reason']}"]
    if not any(component["rows_shared"] for component in alignment["components"]):
        return [f"embedding.align: no rows are shared with the earlier embedding ({alignment['previous']}), so nothing "
                f"was aligned"]  # fmt: skip
    sentences = []
    for component in alignment["components"]:
        where = f"the {component['rows_shared']} shared rows of component {component['component']}"
        change = _change(component, alignment.get("scale"))
        if change is None and component["rows_shared"]:
            sentences.append(f"embedding.align: {where} do not determine a rotation onto the earlier embedding")
        elif change is not None and change > MOVED:
            sentences.append(
                f"embedding.align: the coordinates of {where} changed: {change:.2f} of their size is left after the "
                f"alignment (unrelated coordinates: {UNRELATED:.2f})"
            )
    return sentences


def _change(component: dict[str, Any], scale: str | None) -> float | None:
    """Residual of a component's alignment, relative to its size; None if it was not aligned.

    With unit_norm all coordinates shrink by one factor as points are added. So this gives the residual for equal
    sizes, from ||s a - b||^2 = (s - 1)^2 + s ||a - b||^2 for a and b of norm 1.
    """
    residual, ratio = component["residual_after"], component.get("size_ratio")
    if scale != "unit_norm" or residual is None or not ratio:
        return None if residual is None else float(residual)
    return math.sqrt(max(0.0, residual**2 - (1.0 - ratio) ** 2) / ratio)


def _recall(reports: Reports) -> dict[str, Any]:
    """The last measured recall, and the effect of each round of search with more overlap."""
    measured = {0: _first(reports, "mend_graph", "measure_recall")}
    for stage, step in reports:
        if stage == "mend_graph" and step.startswith("measure_recall_") and (recall := _first(reports, stage, step)):
            measured[int(step.rpartition("_")[2])] = recall
    if not measured[0]:
        return {"recall": None, "recall_raised": None}
    rounds = [{"overlap": overlap, "before": before["value"], "after": after["value"]}
              for (_, before), (overlap, after) in pairwise(sorted(measured.items()))]  # fmt: skip
    return {"recall": measured[max(measured)], "recall_raised": rounds}


def _list_sizes(reports: Reports, n_points: int | None) -> dict[str, Any] | None:
    """Neighbours per point before the graph is repaired, if the numbers differ."""
    truncated = [report.report for report in reports.get(("find_neighbors", "cut"), [])]
    if not truncated or not n_points:
        return None
    return {
        "mean": sum(part["neighbors"] for part in truncated) / n_points,
        "least": min(part["least"] for part in truncated),
        "most": max(part["most"] for part in truncated),
        "raised_to_k_min": sum(part["raised"] for part in truncated),
        "at_k_max": sum(part["full"] for part in truncated),
    }


def _solutions(solved: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("eigenvalues", "residuals", "participation")
    if not solved:
        return {**dict.fromkeys(keys), "solver": None, "solvers": None, "component_points": None}
    solvers = [{**report["stats"], "converged": report["converged"]} for report in solved]
    return {
        **{key: [report[key] for report in solved] for key in keys},
        "solver": {**solvers[0], "converged": all(solver["converged"] for solver in solvers)},
        "solvers": solvers,
        "component_points": [report["n_points"] for report in solved],
    }


def _quality(reports: Reports) -> dict[str, Any]:
    steps = ("score", "geodesics", "compare")
    values = {key: value for step in steps for key, value in _first(reports, "measure_quality", step).items()}
    return {key: values.get(key) for key in QUALITY}


def _costs(reports: Reports, records: Records) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    peak_bytes: dict[str, int] = {}
    blocks: dict[str, int] = {}
    for (stage, step), done in reports.items():
        seconds[stage] = round(seconds.get(stage, 0.0) + records[stage, step].get("seconds", 0.0), 3)
        if not done:  # the report itself, not yet finished
            continue
        peak_bytes[stage] = max([peak_bytes.get(stage, 0), *(report.peak_bytes for report in done)])
        blocks[stage] = blocks.get(stage, 0) + len(done)
    return {"seconds": seconds, "peak_bytes": peak_bytes, "blocks": blocks}


def _first(reports: Reports, stage: str, step: str) -> dict[str, Any]:
    block_reports = reports.get((stage, step))
    return block_reports[0].report if block_reports else {}


def _total(reports: Reports, stage: str, step: str, key: str) -> Any:
    block_reports = reports.get((stage, step))
    return sum(report.report[key] for report in block_reports) if block_reports else None

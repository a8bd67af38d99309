"""metrics.json of a run, assembled from the reports of its finished blocks. Plain dicts in, one dict out."""

import math
from itertools import pairwise
from typing import Any

from pipeline.engine.plan import BlockReport

Reports = dict[tuple[str, str], list[BlockReport]]
Records = dict[tuple[str, str], dict[str, Any]]

CLUMP_SHARE = 0.01  # a coordinate that lives on a smaller share of its component's points is a clump
EXACT = 1e-10  # of eps lambda_max: an eigenvalue below it is the square of rounding errors
QUALITY = (
    "trustworthiness", "continuity", "redundancy", "regression_residual", "procrustes_error", "residual_variance",
    "residual_variance_truth", "residual_variance_affine", "neighborhood_hit", "neighborhood_hit_input",
)  # fmt: skip
LOW_TRUSTWORTHINESS = 0.8
DROPPED_SHARE = 0.01  # of the rows: from here on dropping them is worth a warning
MOVED = 0.3  # of the earlier coordinates' size: with more left after the alignment, the coordinates did not stay
UNRELATED = math.sqrt(2.0)  # what is left between coordinates of one size that have nothing to do with each other
REDUNDANT = 0.95  # R^2 of a coordinate predicted from those before it, from which on it shows nothing new


def collect(reports: Reports, records: Records, n_input: int, n_features: int | None) -> dict[str, Any]:
    """All metrics known so far; a stage that has not run leaves its keys at None."""
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
    """Of a run that kept the lists of an earlier version: its points, and how many were last searched together."""
    cells = _first(reports, "order_points", "keep_cells")
    if not cells:
        return None
    kept = _total(reports, "order_points", "gather", "kept")
    return {"points_kept": kept, "points_searched_together": cells["searched_together"]}


def warnings(metrics: dict[str, Any]) -> list[str]:
    """Sentences about what a careful reader should know before trusting the embedding."""
    said = []
    if metrics.get("method") != "pca" and metrics["n_components_weak"] and metrics["n_components_weak"] > 1:
        said.append(
            f"the neighbour graph has {metrics['n_components_weak']} components; those embedded have coordinates of "
            f"their own, which cannot be compared"
        )
    sizes = metrics.get("list_sizes") or {}
    if sizes.get("raised_to_k_min"):
        said.append(
            f"{sizes['raised_to_k_min']} points have fewer than k_min neighbours within the radius; they keep the "
            f"k_min nearest"
        )
    if sizes.get("at_k_max"):
        said.append(
            f"{sizes['at_k_max']} points have k_max or more neighbours within the radius; they keep the k_max nearest"
        )
    small = metrics["dropped"].get("small_component")
    if small:
        said.append(f"{small} rows lie in components that were not embedded; they are NaN")
    invalid, n_input = metrics["dropped"].get("invalid", 0), metrics.get("n_input")
    if n_input and invalid and invalid >= DROPPED_SHARE * n_input:
        said.append(f"{invalid} of {n_input} rows hold NaN or infinity; they are not embedded")
    said += _of_null_space(metrics)
    for number, shares in enumerate(metrics["participation"] or []):
        size = metrics["component_points"][number]
        for coordinate, value in enumerate(shares, start=1):
            if value < CLUMP_SHARE * size:
                cure = "" if metrics["reverse_added"] else "; neighbors.reverse: 4 ties such points to the others"
                said.append(
                    f"coordinate {coordinate} of component {number} is a clump: about {value:.0f} of {size} points "
                    f"carry it{cure}"
                )
    said += _of_quality(metrics)
    lowest = min((min(values) for values in metrics["eigenvalues"] or []), default=1.0)
    floor = (metrics["solver"] or {}).get("rounding_floor", 0.0)
    if metrics.get("method") in ("ltsa", "hessian") and lowest < EXACT * floor:
        said.append(
            "eigenvalues are zero to rounding: the neighbourhoods are exactly flat, or groups of points hang on too "
            "few others (then a coordinate is a clump)"
        )
    if metrics.get("skipped_neighborhoods"):
        said.append(
            f"{metrics['skipped_neighborhoods']} neighbourhoods are too small to say anything; raise n_neighbors"
        )
    if metrics["solver"] and not metrics["solver"]["converged"]:
        said.append("the eigensolver did not reach its tolerance; the vectors are the best it found")
    return said + _of_alignment(metrics.get("alignment"))


def _of_null_space(metrics: dict[str, Any]) -> list[str]:
    """Sentences about closed classes: what mending them took, and what is left of them."""
    said = []
    if metrics["reverse_added"] and metrics["closed_classes"] > metrics["n_components_weak"]:
        said.append(
            f"{metrics['closed_classes']} closed classes were mended with {metrics['reverse_added']} reverse "
            f"neighbours and {metrics['bridges_added']} bridges"
        )
    left, n_components = metrics.get("closed_classes_left"), metrics["n_components_weak"]
    if metrics.get("method", "lle") == "lle" and left and n_components and left > n_components:
        said.append(
            f"{left} closed classes are left, where {n_components} is right: some coordinates only mark closed groups "
            f"of points"
        )
    return said


def _of_quality(metrics: dict[str, Any]) -> list[str]:
    """Sentences about coordinates that show nothing new, and about an embedding that is not to be trusted."""
    said = []
    for coordinate, value in enumerate(metrics["redundancy"] or [], start=1):
        if value > REDUNDANT:
            said.append(
                f"coordinate {coordinate} is nearly a function of those before it (R^2 {value:.2f}): it shows nothing "
                f"new"
            )
    trust = (metrics.get("trustworthiness") or {}).get("value")
    if trust is not None and trust < LOW_TRUSTWORTHINESS:
        said.append(
            f"the trustworthiness is low ({trust:.3f}): many neighbours in the embedding are none in the data; do not "
            f"read clusters off the picture"
        )
    return said


def _of_alignment(found: dict[str, Any] | None) -> list[str]:
    """Sentences about an alignment that was asked for and did not keep the coordinates. None about a first run."""
    if found is None or found.get("reason") == "no earlier embedding":
        return []
    if found.get("reason"):
        return [f"embedding.align: nothing was aligned: {found['reason']}"]
    if not any(one["rows_shared"] for one in found["components"]):
        return [f"embedding.align: no rows are shared with the earlier embedding ({found['previous']}), so nothing was "
                f"aligned"]  # fmt: skip
    said = []
    for one in found["components"]:
        where = f"the {one['rows_shared']} shared rows of component {one['component']}"
        change = _change(one, found.get("scale"))
        if change is None and one["rows_shared"]:
            said.append(f"embedding.align: {where} do not tell how to turn it onto the earlier embedding")
        elif change is not None and change > MOVED:
            said.append(
                f"embedding.align: the coordinates of {where} did not stay: {change:.2f} of their size is left after "
                f"the alignment (unrelated ones: {UNRELATED:.2f})"
            )
    return said


def _change(one: dict[str, Any], scale: str | None) -> float | None:
    """What the alignment of a component left, of its size; None where it was not aligned.

    Coordinates of unit norm shrink as points are added, by the same factor all: there it is what would be left were
    both of one size, from ||s a - b||^2 = (s - 1)^2 + s ||a - b||^2 of a and b of norm 1.
    """
    left, ratio = one["residual_after"], one.get("size_ratio")
    if scale != "unit_norm" or left is None or not ratio:
        return None if left is None else float(left)
    return math.sqrt(max(0.0, left**2 - (1.0 - ratio) ** 2) / ratio)


def _recall(reports: Reports) -> dict[str, Any]:
    """The recall measured last, and what searching in more groups a point did to it."""
    measured = {0: _first(reports, "mend_graph", "measure_recall")}
    for stage, step in reports:
        if stage == "mend_graph" and step.startswith("measure_recall_") and (found := _first(reports, stage, step)):
            measured[int(step.rpartition("_")[2])] = found
    if not measured[0]:
        return {"recall": None, "recall_raised": None}
    rounds = [{"overlap": overlap, "before": before["value"], "after": after["value"]}
              for (_, before), (overlap, after) in pairwise(sorted(measured.items()))]  # fmt: skip
    return {"recall": measured[max(measured)], "recall_raised": rounds}


def _list_sizes(reports: Reports, n_points: int | None) -> dict[str, Any] | None:
    """How many neighbours points have before the graph is mended, where that differs."""
    cut = [report.report for report in reports.get(("find_neighbors", "cut"), [])]
    if not cut or not n_points:
        return None
    return {
        "mean": sum(part["neighbors"] for part in cut) / n_points,
        "least": min(part["least"] for part in cut),
        "most": max(part["most"] for part in cut),
        "raised_to_k_min": sum(part["raised"] for part in cut),
        "at_k_max": sum(part["full"] for part in cut),
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
    found = {key: value for step in steps for key, value in _first(reports, "measure_quality", step).items()}
    return {key: found.get(key) for key in QUALITY}


def _costs(reports: Reports, records: Records) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    peak_bytes: dict[str, int] = {}
    blocks: dict[str, int] = {}
    for (stage, step), done in reports.items():
        seconds[stage] = round(seconds.get(stage, 0.0) + records[stage, step].get("seconds", 0.0), 3)
        if not done:  # the report, which is being written
            continue
        peak_bytes[stage] = max([peak_bytes.get(stage, 0), *(report.peak_bytes for report in done)])
        blocks[stage] = blocks.get(stage, 0) + len(done)
    return {"seconds": seconds, "peak_bytes": peak_bytes, "blocks": blocks}


def _first(reports: Reports, stage: str, step: str) -> dict[str, Any]:
    found = reports.get((stage, step))
    return found[0].report if found else {}


def _total(reports: Reports, stage: str, step: str, key: str) -> Any:
    found = reports.get((stage, step))
    return sum(report.report[key] for report in found) if found else None

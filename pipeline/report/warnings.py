"""The warnings of a run: sentences to read before trusting the embedding, each with the config key that cures it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from . import bounds
from .bounds import value_of
from .cures import FLAT, cure_of_clumps, cure_of_convergence, cure_of_lost_neighbors, cure_of_redundancy
from .number_format import capitalized, percent

Metrics = Mapping[str, Any]
Config = Mapping[str, Any]

NAMED_COORDINATES = 3
"""Coordinates that one sentence names."""
NAMED_COLUMNS = 3
SUSPECTS = 20
"""Columns that get a warning."""


def warnings(metrics: Metrics, config: Config) -> list[str]:
    """Sentences about everything outside the bounds of `report.bounds`; `config` is the resolved config of the run."""
    return [
        *_of_rows(metrics),
        *_of_ids(metrics),
        *_of_placed_rows(metrics),
        *_of_neighbor_counts(metrics),
        *_of_graph(metrics, config),
        *_of_clumps(metrics, config),
        *_of_replaced_solver(metrics, config),
        *_of_eigenpairs(metrics, config),
        *_of_quality(metrics, config),
        *_of_alignment(metrics.get("alignment")),
    ]


def defects(metrics: Metrics, config: Config) -> list[str]:
    """The warnings about coordinates that are missing or wrong. The others judge the data and the embedding."""
    errors = [error for of_component in metrics.get("vector_errors") or [] for error in of_component or []]
    inaccurate = max(errors, default=0.0) > bounds.LARGE_VECTOR_ERROR
    return [
        *_of_rows(metrics),
        *_of_placed_rows(metrics),
        *(_of_eigenpairs(metrics, config) if inaccurate else []),
        *_of_alignment(metrics.get("alignment")),
    ]


def warnings_of_columns(columns: dict[str, Any] | None) -> list[str]:
    """A sentence for each feature that looks like an id or a time; `columns` as in the attributes of a run's store."""
    suspect, possible_ids = ((columns or {}).get(key) or {} for key in ("suspect", "possible_ids"))
    return [
        f"column '{name}' is a feature but looks like {look}; to leave it out, list the features in input.columns"
        + f", or set input.id: {name}" * (name in possible_ids)
        for name, look in list(suspect.items())[:SUSPECTS]
    ]


def _of_rows(metrics: Metrics) -> list[str]:
    sentences = []
    dropped, n_input = metrics.get("dropped") or {}, metrics.get("n_input")
    if small := dropped.get("small_component"):
        sentences.append(
            f"{small} rows ({small / n_input:.1%}) are in components that were not embedded; their coordinates are "
            f"NaN. graph.components: separate gives coordinates to every row"
        )
    invalid = dropped.get("invalid", 0)
    if n_input and invalid and invalid >= bounds.DROPPED_SHARE * n_input:
        sentences.append(
            f"{invalid} of {n_input} rows hold NaN or infinity{most_invalid(metrics)}; their coordinates are NaN. "
            f"preprocess.invalid: error names the rows, so that the input can be repaired"
        )
    return sentences


def most_invalid(metrics: Metrics) -> str:
    """The columns that hold the most invalid entries, as the end of a clause; empty if they are not known."""
    counts = metrics.get("invalid_by_column") or {}
    return f", most in {names_of([f'{name} ({count:,})' for name, count in counts.items()])}" if counts else ""


def names_of(columns: Sequence[str]) -> str:
    """The first names of columns, in words."""
    more = f" and {len(columns) - NAMED_COLUMNS} more" if len(columns) > NAMED_COLUMNS else ""
    return ", ".join(columns[:NAMED_COLUMNS]) + more


def _of_ids(metrics: Metrics) -> list[str]:
    """Sentences about missing and repeated ids."""
    ids, sentences = metrics.get("ids") or {}, []
    if ids.get("duplicates"):
        named = ", ".join(map(str, ids["first"]))
        sentences.append(
            f"{ids['duplicates']} rows have the id of an earlier row ({named}, ...): input.id does not identify them"
        )
    if ids.get("missing"):
        sentences.append(f"{ids['missing']} rows have no id in the column of input.id")
    return sentences


def _of_placed_rows(metrics: Metrics) -> list[str]:
    """A sentence if more rows than usual are far from the fitted sample."""
    fit_sample = metrics.get("fit_sample") or {}
    if not fit_sample.get("far") or fit_sample["far"] < bounds.FAR_SHARE * metrics["n_input"]:
        return []
    return [
        f"{fit_sample['far']} of {metrics['n_input']} rows are far from the fitted sample (distance_ratio above "
        f"{fit_sample['max_ratio']:.3g}): their coordinates are not reliable. A larger input.fit_sample brings the "
        f"sample nearer to them"
    ]


def _of_neighbor_counts(metrics: Metrics) -> list[str]:
    sentences, sizes = [], metrics.get("list_sizes") or {}
    if sizes.get("raised_to_k_min"):
        sentences.append(
            f"{sizes['raised_to_k_min']} points have fewer than neighbors.k_min neighbours within the radius, and "
            f"keep the k_min nearest; a larger neighbors.radius reaches more"
        )
    if sizes.get("at_k_max"):
        sentences.append(
            f"{sizes['at_k_max']} points have neighbors.k_max or more neighbours within the radius, and keep the "
            f"k_max nearest; raise neighbors.k_max"
        )
    if metrics.get("skipped_neighborhoods"):
        sentences.append(
            f"{metrics['skipped_neighborhoods']} neighbourhoods are too small to be used; raise neighbors.n_neighbors"
        )
    return sentences


def _of_graph(metrics: Metrics, config: Config) -> list[str]:
    """Sentences about separate components, and about closed classes in those that are embedded."""
    sentences, n_components = [], metrics.get("n_components_weak")
    method = config["method"]
    if method != "pca" and n_components and n_components > 1:
        sentences.append(
            f"the neighbour graph has {n_components} components{_differing(metrics)}; each embedded component has its "
            f"own coordinates, which cannot be compared. graph.components: connect joins them by their shortest links, "
            f"a larger neighbors.n_neighbors (now {config['neighbors']['n_neighbors']}) by more of them"
        )
    embedded = metrics.get("closed_classes_embedded")
    if method == "lle" and embedded and embedded["classes"] > embedded["components"]:
        sentences.append(
            f"{embedded['classes']} closed classes are left, expected {embedded['components']}: some coordinates "
            f"only separate closed groups of points. Set neighbors.reverse: auto"
        )
    return sentences


def _differing(metrics: Metrics) -> str:
    columns = metrics.get("components_differ_in") or []
    return f", which differ in {names_of(columns)}" if columns else ""


def _of_clumps(metrics: Metrics, config: Config) -> list[str]:
    """One sentence about all coordinates that are concentrated on few points."""
    clumps = clumps_of(metrics)
    if not clumps:
        return []
    named = ", ".join(
        f"coordinate {coordinate} of component {component} on about {value:.0f} of {size}"
        for component, coordinate, value, size in clumps[:NAMED_COORDINATES]
    )
    more = f" and {len(clumps) - NAMED_COORDINATES} more" if len(clumps) > NAMED_COORDINATES else ""
    return [f"coordinates are clumps of few points: {named}{more}. {cure_of_clumps(metrics, config)}"]


def clumps_of(metrics: Metrics) -> list[tuple[int, int, float, int]]:
    """(component, coordinate from 1, points it is concentrated on, points of the component), fewest points first."""
    clumps = []
    for component, shares in enumerate(metrics.get("participation") or []):
        size = metrics["component_points"][component]
        clumps += [
            (component, coordinate, value, size)
            for coordinate, value in enumerate(shares, start=1)
            if value < bounds.CLUMP_SHARE * size
        ]
    return sorted(clumps, key=lambda clump: clump[2] / clump[3])


def _of_replaced_solver(metrics: Metrics, config: Config) -> list[str]:
    """A sentence if another eigensolver took the place of one that could not factor its matrix, or was killed."""
    used = (metrics.get("reg") or {}).get("value")
    reg = f", or a larger weights.reg (now {used:g})" if used is not None and used < bounds.SMALL_REG else ""
    for component, solver in enumerate(metrics.get("solvers") or []):
        if reason := solver.get("requested_failed"):
            return [
                f"eigensolver.method {config['eigensolver']['method']} could not factor its matrix in component "
                f"{component}: {reason}. The method {solver['method']} computed the eigenpairs instead. "
                f"Set eigensolver.method: auto{reg}"
            ]
        if killed := solver.get("killed"):
            return [
                f"component {component}: {killed}. The method {solver['method']} computed the eigenpairs instead; the "
                f"last digits can differ from those of an undisturbed run. If memory ran out, raise "
                f"eigensolver.max_memory, or set eigensolver.method: {solver['method']}"
            ]
    return []


def _of_eigenpairs(metrics: Metrics, config: Config) -> list[str]:
    solvers = metrics.get("solvers") or []
    if any(not solver["converged"] for solver in solvers):
        return [
            f"the eigensolver did not reach its tolerance; the vectors are the best that it computed. "
            f"{cure_of_convergence(metrics, config)}"
        ]
    lowest = min((min(values) for values in metrics.get("eigenvalues") or []), default=1.0)
    floor = max((solver.get("rounding_floor") or 0.0 for solver in solvers), default=0.0)
    if config["method"] in FLAT and lowest < bounds.EXACT * floor:
        return [
            "eigenvalues are zero to rounding: the neighbourhoods are exactly flat, or groups of points have too few "
            "links to the others (then a coordinate is a clump). A larger neighbors.n_neighbors adds links"
        ]
    if not (lost := lost_eigenvalues(metrics)):
        return []
    component, coordinate, value, residual = lost[0]
    errors = [error for errors in metrics.get("vector_errors") or [] for error in errors or []]
    largest = f"errors of about {max(errors):.0e}" if max(errors, default=0.0) > 0.0 else "no measurable errors"
    remark = f"The coordinates themselves have {largest}. " if errors else ""
    reg = "a larger weights.reg, such as 0.1, or " if (metrics.get("reg") or {}).get("value") is not None else ""
    return [
        f"{len(lost)} eigenvalue{'s are' if len(lost) > 1 else ' is'} not above the rounding errors of float64 "
        f"(coordinate {coordinate} of component {component}: eigenvalue {value:.1e}, rounding errors {floor:.1e}, "
        f"residual {residual:.2g}). {remark}To raise the eigenvalues, set {reg}a larger neighbors.n_neighbors"
    ]


def lost_eigenvalues(metrics: Metrics) -> list[tuple[int, int, float, float]]:
    """(component, coordinate from 1, eigenvalue, residual) of eigenpairs that are not above rounding errors."""
    lost = []
    columns = (metrics.get(key) or [] for key in ("solvers", "eigenvalues", "residuals"))
    for component, (solver, *pairs) in enumerate(zip(*columns, strict=False)):
        floor = solver.get("rounding_floor") or 0.0
        lost += [
            (component, coordinate, value, residual)
            for coordinate, (value, residual) in enumerate(zip(*pairs, strict=True), start=1)
            if value <= floor or residual > bounds.LARGE_RESIDUAL
        ]
    return lost


def _of_quality(metrics: Metrics, config: Config) -> list[str]:
    """Sentences about neighbourhoods and distances that the embedding has not kept, and redundant coordinates."""
    sentences, trust = [], value_of(metrics, "trustworthiness")
    if lost := bounds.lost_neighbors(metrics):
        sentences.append(
            f"neighbours of the same {metrics.get('label') or 'label'} fell from {percent(lost[0])} in the data to "
            f"{percent(lost[1])} in the embedding (bound: {percent(bounds.min_hit(lost[0]))}). "
            f"{capitalized(cure_of_lost_neighbors(metrics, config))}"
        )
    if trust is not None and trust < bounds.LOW_TRUSTWORTHINESS:
        cure = "The same cures hold" if lost else capitalized(cure_of_lost_neighbors(metrics, config))
        sentences.append(
            f"the trustworthiness is low ({trust:.3f}; bound: {bounds.LOW_TRUSTWORTHINESS:g}): many neighbours in the "
            f"embedding are not neighbours in the data; do not interpret clusters in the picture. {cure}"
        )
    for coordinate, value in enumerate(metrics.get("redundancy") or [], start=1):
        if value > bounds.REDUNDANT:
            sentences.append(
                f"coordinate {coordinate} is nearly a function of the earlier ones (R^2 {value:.2f}): it adds no new "
                f"information. {cure_of_redundancy(metrics, config)}"
            )
    variance = value_of(metrics, "residual_variance")
    if variance is not None and variance > bounds.HIGH_RESIDUAL_VARIANCE:
        cure = "" if config["method"] == "pca" else "; method: pca keeps more of them"
        sentences.append(
            f"distances across the embedding do not follow the paths along the data (residual variance "
            f"{variance:.2f}; bound: {bounds.HIGH_RESIDUAL_VARIANCE:g}): only neighbourhoods can be interpreted{cure}"
        )
    return sentences


def _of_alignment(alignment: Mapping[str, Any] | None) -> list[str]:
    """Sentences about a requested alignment that did not keep the coordinates; none for a first run."""
    if alignment is None or alignment.get("reason") == "no earlier embedding":
        return []
    if alignment.get("reason"):
        return [f"embedding.align: nothing was aligned: {alignment['reason']}"]
    if not any(component["rows_shared"] for component in alignment["components"]):
        return [
            f"embedding.align: no rows are shared with the earlier embedding ({alignment['previous']}), so nothing "
            f"was aligned"
        ]
    sentences = []
    for component in alignment["components"]:
        where = f"the {component['rows_shared']} shared rows of component {component['component']}"
        change = _change(component, alignment.get("scale"))
        if change is None and component["rows_shared"]:
            sentences.append(f"embedding.align: {where} do not determine a rotation onto the earlier embedding")
        elif change is not None and change > bounds.MOVED:
            sentences.append(
                f"embedding.align: the coordinates of {where} changed: {change:.2f} of their size is left after the "
                f"alignment (unrelated coordinates: {bounds.UNRELATED:.2f})"
            )
    return sentences


def _change(component: Mapping[str, Any], scale: str | None) -> float | None:
    """Residual of a component's alignment, relative to its size; None if it was not aligned.

    With unit_norm all coordinates shrink by one factor as points are added. So this gives the residual for equal
    sizes, from ||s a - b||^2 = (s - 1)^2 + s ||a - b||^2 for a and b of norm 1.
    """
    residual, ratio = component["residual_after"], component.get("size_ratio")
    if scale != "unit_norm" or residual is None or not ratio:
        return None if residual is None else float(residual)
    return math.sqrt(max(0.0, residual**2 - (1.0 - ratio) ** 2) / ratio)

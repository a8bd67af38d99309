"""Findings about the eigenpairs and about the alignment with an earlier embedding."""

import math
from collections.abc import Iterator

from ..core.errors import Setting
from ..engine.step import Json
from . import bounds
from .bounds import Cure, Finding, Level
from .cures import FLAT, Config, cure_of_convergence, cure_of_low_eigenvalues, more_neighbors
from .metrics import Metrics
from .number_format import is_known


def of_convergence(metrics: Metrics, config: Config) -> Iterator[Finding]:
    if all(solver["converged"] for solver in metrics.solvers or []):
        return
    residuals = [value for row in metrics.residuals or [] for value in row if is_known(value)]
    worst = max(residuals, default=None)
    remark = "" if worst is None else f" (largest residual {worst:.2g})"
    sentence = f"The eigensolver did not reach its tolerance{remark}: these coordinates are not final"
    cure = cure_of_convergence(metrics, config)
    is_defect = _largest_error(metrics) > bounds.LARGE_VECTOR_ERROR
    yield Finding("residuals", worst, config["eigensolver"]["tol"], sentence, cure, "grave", is_defect)


def _largest_error(metrics: Metrics) -> float:
    """The largest error of an eigenvector; 0 if none was measured."""
    return max((error for row in metrics.vector_errors or [] for error in row or []), default=0.0)


def of_lost_eigenvalues(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """Eigenvalues that are zero, or near or below the rounding errors, if the solver has converged."""
    solvers = metrics.solvers or []
    lost = lost_eigenvalues(metrics)
    if not lost or not all(solver["converged"] for solver in solvers):
        return
    lowest = min(min(values) for values in metrics.eigenvalues or [])
    floor = max(solver.get("rounding_floor") or 0.0 for solver in solvers)
    error = _largest_error(metrics)
    is_defect = error > bounds.LARGE_VECTOR_ERROR
    level: Level = "grave" if is_defect else "minor"
    if config["method"] in FLAT and lowest < bounds.EXACT * floor:
        sentence = (
            "Eigenvalues are zero to rounding: the neighbourhoods are exactly flat, or groups of points have too few "
            "links to the others (then a coordinate is a clump)"
        )
        cure = more_neighbors(metrics, config, "{} adds links")
        yield Finding("eigenvalues", lowest, bounds.EXACT * floor, sentence, cure, level, is_defect)
        return
    component, coordinate, value, residual = lost[0]
    verb = "Eigenvalues are" if len(lost) > 1 else "An eigenvalue is"
    is_harmless = 0 < error <= bounds.LARGE_VECTOR_ERROR
    remark = f"; the coordinates have errors of about {error:.0e}" if error else ""
    remark += ", too small to be seen" * is_harmless
    sentence = (
        f"{verb} near or below the rounding errors of float64 (coordinate {coordinate} of component {component}: "
        f"eigenvalue {value:.1e}, rounding errors {floor:.1e}, residual {residual:.2g}){remark}"
    )
    cure = cure_of_low_eigenvalues(metrics, config, is_harmless)
    yield Finding("eigenvalues", value, floor, sentence, cure, level, is_defect)


def lost_eigenvalues(metrics: Metrics) -> list[tuple[int, int, float, float]]:
    """(component, coordinate from 1, eigenvalue, residual) of eigenpairs near or below the rounding errors."""
    columns = (metrics.solvers or [], metrics.eigenvalues or [], metrics.residuals or [])
    return [
        (component, coordinate, value, residual)
        for component, (solver, *rows) in enumerate(zip(*columns, strict=False))
        for coordinate, (value, residual) in enumerate(zip(*rows, strict=True), start=1)
        if value <= (solver.get("rounding_floor") or 0.0) or residual > bounds.LARGE_RESIDUAL
    ]


def of_replaced_solver(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """Another eigensolver took the place of one that could not factor its matrix, or was killed."""
    requested = config["eigensolver"]["method"]
    for component, solver in enumerate(metrics.solvers or []):
        used, killed = solver["method"], solver.get("killed")
        done = f"The method {used} computed the eigenpairs instead"
        if reason := solver.get("requested_failed"):
            sentence = f"Method {requested} could not factor its matrix in component {component}: {reason}. {done}"
            cure = Cure("{} tries the methods in turn", (Setting("eigensolver", "method", "auto"),))
        elif killed:
            sentence = f"Component {component}: {killed}. {done}; the last digits can differ from an undisturbed run"
            settings = (Setting("eigensolver", "max_memory"), Setting("eigensolver", "method", used))
            cure = Cure("If memory ran out, a larger {} or {} avoids that", settings)
        else:
            continue
        yield Finding("solvers", used, None, sentence, cure)
        return


def of_alignment(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """A requested alignment that did not keep the coordinates; nothing for a first run."""
    alignment = metrics.alignment
    if alignment is None or alignment["reason"] == "no earlier embedding":
        return
    for value, sentence in _changes(alignment):
        yield Finding("alignment", value, bounds.MOVED, f"embedding.align: {sentence}", is_defect=True)


def _changes(alignment: Json) -> Iterator[tuple[float | None, str]]:
    """(change, sentence) of what was not aligned or has moved."""
    if alignment["reason"]:
        yield None, f"nothing was aligned: {alignment['reason']}"
    elif not any(component["rows_shared"] for component in alignment["components"]):
        yield None, f"no rows are shared with the earlier embedding ({alignment['previous']}), so nothing was aligned"
    for component in alignment["components"]:
        where = f"the {component['rows_shared']} shared rows of component {component['component']}"
        change = _change(component, alignment["scale"])
        if change is None and component["rows_shared"]:
            yield None, f"{where} do not determine a rotation onto the earlier embedding"
        elif change is not None and change > bounds.MOVED:
            yield (
                change,
                f"the coordinates of {where} changed: {change:.2f} of their size is left after the alignment "
                f"(unrelated coordinates: {bounds.UNRELATED:.2f})",
            )


def _change(component: Json, scale: str) -> float | None:
    """Residual of a component's alignment, relative to its size; None if it was not aligned.

    With unit_norm all coordinates shrink by one factor as points are added. So this gives the residual for equal
    sizes, from ||s a - b||^2 = (s - 1)^2 + s ||a - b||^2 for a and b of norm 1.
    """
    residual: float | None = component["residual_after"]
    if scale != "unit_norm" or residual is None or not (ratio := component["size_ratio"]):
        return residual
    return math.sqrt(max(0.0, residual**2 - (1.0 - ratio) ** 2) / ratio)

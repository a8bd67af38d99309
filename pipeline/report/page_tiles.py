"""The tiles at the top of a report: each has a headline number and a sentence that explains it."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from . import bounds
from .bounds import value_of
from .number_format import NOT_MEASURED, duration, is_known, known_sum, number, percent, share_of, size, thousands
from .warnings import lost_eigenvalues

Metrics = Mapping[str, Any]
State = Literal["good", "note", "warning", "unknown", "fact"]
"""good: a tick, within a bound that the sentence states; fact: no bound applies."""


class Tile(NamedTuple):
    """One headline number: its name, its value, an explanation, and a verdict."""

    label: str
    value: str
    sentence: str
    state: State


def rows_tile(metrics: Metrics) -> Tile:
    n_input, merged, invalid = (metrics.get(key) for key in ("n_input", "duplicates_merged", "invalid_dropped"))
    if not is_known(n_input):
        return Tile("Rows read", NOT_MEASURED, "The number of input rows is not known.", "unknown")
    texts = [f"{thousands(metrics.get('n_features'))} features each."] if metrics.get("n_features") else []
    if merged:
        texts.append(f"{thousands(merged)} equal an earlier row and share its coordinates.")
    if invalid:
        texts.append(f"{thousands(invalid)} with missing or infinite values were dropped.")
    return Tile("Rows read", thousands(n_input), " ".join(texts), "note" if invalid else "fact")


def points_tile(metrics: Metrics) -> Tile:
    label, n_points, n_input = "Distinct points", metrics.get("n_points"), metrics.get("n_input")
    dropped = known_sum(metrics.get("dropped")) or 0
    if not is_known(n_points):
        return Tile(label, NOT_MEASURED, "The number of embedded points is not known.", "unknown")
    if metrics.get("rows_placed") is None:
        return Tile(label, thousands(n_points), "No row has coordinates yet.", "unknown")
    if metrics.get("dropped") is None:
        return Tile(label, thousands(n_points), "Whether rows were dropped is not known.", "unknown")
    if not dropped:
        return Tile(label, thousands(n_points), "Every row has coordinates; bound: all rows.", "good")
    share = share_of(dropped, n_input)
    sentence = f"{thousands(dropped)} rows ({percent(share)}) were dropped and have no coordinates."
    is_small_share = share is not None and share < bounds.DROPPED_SHARE
    return Tile(label, thousands(n_points), sentence, "note" if is_small_share else "warning")


def recall_tile(metrics: Metrics, bound: float | None) -> Tile:
    recall = metrics.get("recall") or {}
    label, value, low, high = "Neighbour recall", recall.get("value"), recall.get("low"), recall.get("high")
    if not is_known(value):
        return Tile(label, NOT_MEASURED, "The share of true neighbours found is not known.", "unknown")
    sentence = f"Share of the true nearest neighbours found, on {thousands(recall.get('sample'))} points"
    sentence += f" (interval {low:.3f} to {high:.3f})" if is_known(low) and is_known(high) else ""
    state: State = "fact" if bound is None else "good"
    if bound is not None and value < bound:
        state, sentence = "warning", f"{sentence}: below the bound of {bound:g}"
    elif bound is not None and is_known(low) and low < bound:
        state, sentence = "note", f"{sentence}: the bound of {bound:g} is within the interval"
    elif bound is not None:
        sentence = f"{sentence}; the bound is {bound:g}"
    return Tile(label, f"{value:.3f}", f"{sentence}.", state)


def components_tile(metrics: Metrics) -> Tile:
    label, n_components = "Graph components", metrics.get("n_components_weak")
    if not is_known(n_components):
        return Tile(label, NOT_MEASURED, "Whether the neighbour graph is connected is not known.", "unknown")
    if n_components == 1 and metrics.get("components_joined"):
        joined, links = thousands(metrics["components_joined"]), thousands(metrics.get("links_added"))
        longest = number(metrics.get("longest_link"), ".3g")
        sentence = f"{joined} pieces joined by their {links} shortest links, the longest of length {longest}."
        return Tile(label, "1", f"{sentence} The widths of the gaps between pieces have no meaning.", "note")
    if n_components == 1:
        return Tile(label, "1", "The neighbour graph is connected; bound: one component.", "good")
    sentence = "Separate pieces of the neighbour graph: coordinates of different pieces cannot be compared."
    return Tile(label, thousands(n_components), sentence, "note")


def closed_classes_tile(metrics: Metrics) -> Tile:
    label, n_before, n_left = "Closed classes", metrics.get("closed_classes"), metrics.get("closed_classes_left")
    embedded = metrics.get("closed_classes_embedded")
    if not is_known(n_left):
        return Tile(label, NOT_MEASURED, "The null space of M was not checked.", "unknown")
    if metrics.get("method", "lle") != "lle":
        sentence = "Groups of points that no neighbour link leaves; this method does not depend on them."
        return Tile(label, thousands(n_left), sentence, "fact")
    if not embedded:
        sentence = "How many of them are in components that are embedded is not known."
        return Tile(label, thousands(n_left), sentence, "unknown")
    n_left, n_components = embedded["classes"], embedded["components"]
    if n_left > n_components:
        sentence = f"More than the {thousands(n_components)} embedded components: coordinates only separate groups."
        return Tile(label, thousands(n_left), sentence, "warning")
    if is_known(n_before) and n_before > n_left:
        keys = ("points_repaired", "reverse_added", "bridges_added")
        points, reverse, bridges = (thousands(metrics.get(key)) for key in keys)
        sentence = (
            f"There were {thousands(n_before)}; {points} points got {reverse} reverse neighbours and {bridges} bridges."
        )
        return Tile(label, thousands(n_left), sentence, "note")
    sentence = "Nothing to repair; bound: one for each embedded component."
    return Tile(label, thousands(n_left), sentence, "good")


def residual_tile(metrics: Metrics, tol: float | None) -> Tile:
    residuals = [value for row in by_component(metrics.get("residuals")) for value in row]
    if not residuals or not all(is_known(value) for value in residuals):
        return Tile("Residual", NOT_MEASURED, "The accuracy of the eigenpairs is not known.", "unknown")
    worst, sentence = max(residuals), "Largest ‖Mv − λv‖ / λ of all coordinates"
    if lost_eigenvalues(metrics):
        sentence = f"{sentence}: eigenvalues are not above the rounding errors of float64."
        return Tile("Residual", f"{worst:.1e}", sentence, "warning")
    if tol is None:
        return Tile("Residual", f"{worst:.1e}", f"{sentence}.", "fact")
    if worst > tol and converged(metrics):
        sentence = f"{sentence}: above the tolerance of {tol:g}, as small as float64 allows for such eigenvalues."
        return Tile("Residual", f"{worst:.1e}", sentence, "note")
    if worst > tol:
        return Tile("Residual", f"{worst:.1e}", f"{sentence}: above the tolerance of {tol:g}.", "warning")
    return Tile("Residual", f"{worst:.1e}", f"{sentence}; bound: the tolerance of {tol:g}.", "good")


def converged(metrics: Metrics) -> bool:
    """Whether the solver's residuals are as small as requested, or as rounding allows."""
    solver = metrics.get("solver") or []
    solvers = [solver] if isinstance(solver, Mapping) else solver
    return bool(solvers) and all(entry.get("converged") is True for entry in solvers)


def trustworthiness_tile(metrics: Metrics) -> Tile:
    label, value = "Trustworthiness", (metrics.get("trustworthiness") or {}).get("value")
    continuity = number((metrics.get("continuity") or {}).get("value"), ".3f")
    if not is_known(value):
        return Tile(label, NOT_MEASURED, "Neighbourhoods before and after were not compared.", "unknown")
    high, low = bounds.GOOD_TRUSTWORTHINESS, bounds.LOW_TRUSTWORTHINESS
    sentence = (
        f"1 if neighbours in the embedding are neighbours in the data; tick from {high:g}, warning below {low:g}. The "
        f"converse, continuity, is {continuity}."
    )
    if value < low:
        return Tile(label, f"{value:.3f}", f"Low: do not interpret clusters in the picture. {sentence}", "warning")
    return Tile(label, f"{value:.3f}", sentence, "good" if value >= high else "note")


def hit_tile(metrics: Metrics) -> Tile | None:
    """Neighbours with the same label, before and after; None if the input has no classes."""
    after, before = value_of(metrics, "neighborhood_hit"), value_of(metrics, "neighborhood_hit_input")
    if after is None or before is None:
        return None
    bound, label = bounds.min_hit(before), metrics.get("label") or "label"
    sentence = f"Neighbours in the embedding with the same {label}; in the data {percent(before)}, "
    return Tile("Neighbourhood hit", percent(after), f"{sentence}bound: {percent(bound)}.",
                "good" if after >= bound else "warning")  # fmt: skip


def residual_variance_tile(metrics: Metrics) -> Tile | None:
    """Distances across the embedding; None if they were not measured."""
    value = value_of(metrics, "residual_variance")
    if value is None:
        return None
    low, high = bounds.GOOD_RESIDUAL_VARIANCE, bounds.HIGH_RESIDUAL_VARIANCE
    state: State = "good" if value <= low else "note" if value <= high else "warning"
    meaning = "follow" if value <= low else "follow only roughly" if value <= high else "do not follow"
    sentence = f"Distances across the embedding {meaning} the paths along the data"
    return Tile("Residual variance", f"{value:.2f}", f"{sentence}; tick up to {low:g}, warning above {high:g}.", state)


def time_tile(metrics: Metrics) -> Tile:
    seconds = {stage: value for stage, value in (metrics.get("seconds") or {}).items() if is_known(value)}
    peaks = {stage: value for stage, value in (metrics.get("peak_bytes") or {}).items() if is_known(value)}
    if not seconds:
        return Tile("Time", NOT_MEASURED, "No stage was timed.", "unknown")
    longest = max(seconds, key=lambda stage: seconds[stage])
    sentence = f"{percent(share_of(seconds[longest], sum(seconds.values())))} of it in {longest.replace('_', ' ')}."
    if peaks:
        largest = max(peaks, key=lambda stage: peaks[stage])
        sentence += f" Highest memory: {size(peaks[largest])}, in {largest.replace('_', ' ')}."
    return Tile("Time", duration(sum(seconds.values())), sentence, "fact")


def by_component(table: Any) -> list[list[Any]]:
    """One list per component; the list of a single component may be given without nesting."""
    rows = list(table) if table is not None else []
    if any(isinstance(row, (list, tuple)) for row in rows):
        return [list(row or []) for row in rows]
    return [rows] if rows else []

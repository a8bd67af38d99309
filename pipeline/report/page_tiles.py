"""The tiles at the top of a report: each has a headline number and a sentence that explains it."""

from collections.abc import Collection
from typing import Literal, NamedTuple

from ..core.errors import counted
from . import bounds
from .cures import Config
from .findings import find
from .metrics import Metrics
from .number_format import NOT_MEASURED, beside, duration, is_known, number, percent, share_of, size, thousands
from .quality_findings import least_hit

State = Literal["good", "note", "warning", "unknown", "fact"]
"""good: a tick, within a bound that the sentence states; warning: a finding; fact: no bound applies."""


class Tile(NamedTuple):
    """One headline number: its name, its value, an explanation, and a verdict."""

    label: str
    value: str
    sentence: str
    state: State


def headline(metrics: Metrics, config: Config) -> list[Tile]:
    """The tiles in reading order. A tile warns exactly if there is a finding about its measure."""
    outside = {finding.measure for finding in find(metrics, config) if finding.level != "note"}
    tiles = [
        _rows(metrics),
        _points(metrics, outside),
        _recall(metrics, config),
        _components(metrics),
        _closed_classes(metrics, outside),
        _residual(metrics, config, outside),
        _trustworthiness(metrics, outside),
        _hit(metrics, outside),
        _residual_variance(metrics, outside),
        _time(metrics),
    ]
    return [tile for tile in tiles if tile is not None]


def _unknown(label: str, sentence: str) -> Tile:
    return Tile(label, NOT_MEASURED, sentence, "unknown")


def _rows(metrics: Metrics) -> Tile:
    if not metrics.n_input:
        return _unknown("Rows read", "The number of input rows is not known.")
    texts = [f"{thousands(metrics.n_features)} features each."] if metrics.n_features else []
    if metrics.duplicates_merged:
        texts.append(f"{thousands(metrics.duplicates_merged)} equal an earlier row and share its coordinates.")
    if metrics.invalid_dropped:
        texts.append(f"{thousands(metrics.invalid_dropped)} with missing or infinite values were dropped.")
    return Tile("Rows read", thousands(metrics.n_input), " ".join(texts), "note" if metrics.invalid_dropped else "fact")


def _points(metrics: Metrics, outside: Collection[str]) -> Tile:
    label, value = "Points fitted" if metrics.fit_sample else "Distinct points", thousands(metrics.n_points)
    if metrics.n_points is None:
        return _unknown(label, "The number of embedded points is not known.")
    if metrics.rows_placed is None or metrics.dropped is None:
        return Tile(label, value, "No row has coordinates yet.", "unknown")
    if not (dropped := sum(metrics.dropped.values())):
        others = "The other rows were placed among them. " if metrics.fit_sample else ""
        return Tile(label, value, f"{others}Every row has coordinates; bound: all rows.", "good")
    share = percent(share_of(dropped, metrics.n_input))
    rows, have = counted(dropped, "row"), "was dropped and has" if dropped == 1 else "were dropped and have"
    sentence = f"{rows} ({share}) {have} no coordinates."
    return Tile(label, value, sentence, "warning" if "dropped" in outside else "note")


def _recall(metrics: Metrics, config: Config) -> Tile:
    recall, bound = metrics.recall or {}, config["neighbors"]["min_recall"]
    label, value, low, high = "Neighbour recall", recall.get("value"), recall.get("low"), recall.get("high")
    if not is_known(value):
        return _unknown(label, "The share of true neighbours found is not known.")
    sentence = f"Share of the true nearest neighbours found, on {thousands(recall.get('sample'))} points"
    sentence += f" (interval {low:.3f} to {high:.3f})" if is_known(low) and is_known(high) else ""
    if value < bound:
        return Tile(label, beside(value, 3, bound), f"{sentence}: below the bound of {bound:g}.", "warning")
    if is_known(low) and low < bound:
        return Tile(label, f"{value:.3f}", f"{sentence}: the bound of {bound:g} is within the interval.", "note")
    return Tile(label, f"{value:.3f}", f"{sentence}; the bound is {bound:g}.", "good")


def _components(metrics: Metrics) -> Tile:
    label, value = "Graph components", thousands(metrics.n_components_weak)
    if metrics.n_components_weak is None:
        return _unknown(label, "Whether the neighbour graph is connected is not known.")
    if metrics.n_components_weak > 1:
        sentence = "Separate pieces of the neighbour graph: coordinates of different pieces cannot be compared."
        return Tile(label, value, sentence, "warning")
    if metrics.components_joined:
        joined, n, longest = metrics.components_joined, metrics.links_added or 0, number(metrics.longest_link, ".3g")
        links = f"link, of length {longest}" if n == 1 else f"{thousands(n)} links, of length {longest} or less"
        sentence = f"{thousands(joined)} pieces joined by the shortest {links}."
        sentence += " The widths of the gaps between pieces have no meaning."
        return Tile(label, value, sentence, "note")
    return Tile(label, value, "The neighbour graph is connected; bound: one component.", "good")


def _closed_classes(metrics: Metrics, outside: Collection[str]) -> Tile:
    label, n_before, n_left = "Closed classes", metrics.closed_classes, metrics.closed_classes_left
    embedded = metrics.closed_classes_embedded
    if n_left is None or embedded is None:
        return _unknown(label, "The null space of M was not checked.")
    if metrics.method != "lle":
        sentence = "Groups of points that no neighbour link leaves; this method does not depend on them."
        return Tile(label, thousands(n_left), sentence, "fact")
    value, n_components = thousands(embedded["classes"]), thousands(embedded["components"])
    if "closed_classes_left" in outside:
        sentence = f"More than the {n_components} embedded components: coordinates only separate groups."
        return Tile(label, value, sentence, "warning")
    if n_before is not None and n_before > embedded["classes"]:
        sentence = (
            f"There were {thousands(n_before)}; {thousands(metrics.points_repaired)} points got "
            f"{thousands(metrics.reverse_added)} reverse neighbours and {thousands(metrics.bridges_added)} bridges."
        )
        return Tile(label, value, sentence, "note")
    return Tile(label, value, "Nothing to repair; bound: one for each embedded component.", "good")


def _residual(metrics: Metrics, config: Config, outside: Collection[str]) -> Tile:
    residuals, tol = [value for row in metrics.residuals or [] for value in row], config["eigensolver"]["tol"]
    if not residuals or not all(is_known(value) for value in residuals):
        return _unknown("Residual", "The accuracy of the eigenpairs is not known.")
    value, sentence = f"{max(residuals):.1e}", "Largest ‖Mv − λv‖ / λ of all coordinates"
    if "residuals" in outside:
        return Tile("Residual", value, f"{sentence}: above the tolerance of {tol:g}.", "warning")
    if "eigenvalues" in outside:
        sentence += ": eigenvalues are near or below the rounding errors of float64."
        return Tile("Residual", value, sentence, "warning")
    if max(residuals) > tol:
        sentence += f": above the tolerance of {tol:g}, as small as float64 allows for such eigenvalues."
        return Tile("Residual", value, sentence, "note")
    return Tile("Residual", value, f"{sentence}; bound: the tolerance of {tol:g}.", "good")


def _trustworthiness(metrics: Metrics, outside: Collection[str]) -> Tile:
    label, value = "Trustworthiness", metrics.number("trustworthiness")
    if value is None:
        return _unknown(label, "Neighbourhoods before and after were not compared.")
    low, high = bounds.LOW_TRUSTWORTHINESS, bounds.GOOD_TRUSTWORTHINESS
    sentence = (
        f"1 if neighbours in the embedding are neighbours in the data; tick from {high:g}, warning below {low:g}. The "
        f"converse, continuity, is {number(metrics.number('continuity'), '.3f')}."
    )
    return Tile(label, beside(value, 3, low, high), sentence, _state("trustworthiness", outside, value >= high))


def _hit(metrics: Metrics, outside: Collection[str]) -> Tile | None:
    """Neighbours with the same label, before and after; None if the input has no classes."""
    after, before = metrics.number("neighborhood_hit"), metrics.number("neighborhood_hit_input")
    if after is None or before is None:
        return None
    bound, chance = least_hit(metrics), (metrics.neighborhood_hit_input or {}).get("chance")
    about = "little more than by chance" if bound == 0.0 else f"bound: {percent(bound)}"
    by_chance = "" if chance is None else f", by chance {percent(chance)}"
    sentence = f"Neighbours in the embedding with the same {metrics.label or 'label'}; in the data {percent(before)}"
    sentence += f"{by_chance}; {about}."
    return Tile("Neighbourhood hit", percent(after), sentence, _state("neighborhood_hit", outside, bound > 0.0))


def _residual_variance(metrics: Metrics, outside: Collection[str]) -> Tile | None:
    """Distances across the embedding; None if they were not measured."""
    value = metrics.number("residual_variance")
    if value is None:
        return None
    low, high = bounds.GOOD_RESIDUAL_VARIANCE, bounds.HIGH_RESIDUAL_VARIANCE
    meaning = "follow" if value <= low else "follow only roughly" if value <= high else "do not follow"
    sentence = f"Distances across the embedding {meaning} the paths along the data"
    state = _state("residual_variance", outside, value <= low)
    sentence += f"; tick up to {low:g}, warning above {high:g}."
    return Tile("Residual variance", beside(value, 2, low, high), sentence, state)


def _state(measure: str, outside: Collection[str], is_good: bool) -> State:
    return "warning" if measure in outside else "good" if is_good else "note"


def _time(metrics: Metrics) -> Tile:
    seconds, peaks = metrics.seconds, metrics.peak_bytes
    if not seconds:
        return _unknown("Time", "No stage was timed.")
    longest = max(seconds, key=lambda stage: seconds[stage])
    sentence = f"{percent(share_of(seconds[longest], sum(seconds.values())))} of it in {longest.replace('_', ' ')}."
    if peaks:
        largest = max(peaks, key=lambda stage: peaks[stage])
        sentence += f" Highest memory: {size(peaks[largest])}, in {largest.replace('_', ' ')}."
    return Tile("Time", duration(sum(seconds.values())), sentence, "fact")

"""Everything outside the bounds of `report.bounds`, as findings, and the verdict, the gravest of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NotRequired, TypedDict

from ..core.errors import Setting, counted, listed
from ..core.methods import CLUMP_SHARE
from . import bounds, cures
from .bounds import Cure, Finding, Level
from .cures import NO_CURE, Config
from .metrics import Metrics, Stopped
from .number_format import percent, share_of, thousands
from .quality_findings import (
    kept_words,
    of_crowding,
    of_dimensions,
    of_distances,
    of_neighborhoods,
    of_pca,
    of_redundancy,
)
from .solution_findings import of_alignment, of_convergence, of_lost_eigenvalues, of_replaced_solver

NAMED = 3
"""Columns or coordinates that one sentence names."""


def find(metrics: Metrics, config: Config) -> list[Finding]:
    """The findings of a run, gravest first; `config` is the resolved config. Each cure is given once, without those
    that contradict it."""
    found: list[Finding] = []
    for about in ABOUT:
        for finding in about(metrics, config):
            is_repeated = any(
                finding.cure.is_like(earlier.cure) or finding.cure.contradicts(earlier.cure) for earlier in found
            )
            found.append(replace(finding, cure=NO_CURE) if is_repeated else finding)
    return sorted(found, key=lambda finding: finding.level != "grave")


class Columns(TypedDict):
    """The role of each column of a table; `left_out` has the reason for each column without a role.

    `suspect` are features that look like an id or a time, with what they look like; `possible_ids` those of them that
    look like an id. `strange_values` are features in which a number may stand for a missing value or be an error, with
    the reason.
    """

    features: list[str]
    label: str | None
    id: str | None
    left_out: dict[str, str]
    suspect: dict[str, str]
    possible_ids: list[str]
    strange_values: NotRequired[dict[str, str]]


def of_columns(columns: Columns | None) -> list[Finding]:
    """A finding for each feature, of the first 20, that looks like an id, a code or a time, or has strange values."""
    if columns is None:
        return []
    found = []
    for name, look in list(columns["suspect"].items())[:20]:
        settings = (Setting("input", "columns"), Setting("input", "id", name))[: 1 + (name in columns["possible_ids"])]
        cure = Cure("To leave it out, list the features in {}" + ", or set {}" * (len(settings) - 1), settings)
        found.append(Finding("features", name, None, f"Column '{name}' is a feature but looks like {look}", cure))
    empty = "If such numbers mark missing values or are errors, leave these entries empty in the input and set {}"
    cure = Cure(empty, (Setting("preprocess", "invalid", "drop"),))
    for name, text in list(columns.get("strange_values", {}).items())[:20]:
        found.append(Finding("features", name, None, f"Column '{name}' {text}", cure))
    return found


def _of_rows(metrics: Metrics, config: Config, *, are_half: bool) -> Iterator[Finding]:
    """Rows without coordinates. `are_half`: only if they are half of the rows or more, else only if they are fewer.
    Fewer ones come after findings about the coordinates of the others."""
    dropped, n_input = metrics.dropped or {}, max(metrics.n_input, 1)
    if are_half != (sum(dropped.values()) >= bounds.HALF_OF_ROWS * n_input):
        return
    if small := dropped.get("small_component", 0):
        sentence = f"{small} rows ({small / n_input:.1%}) are in components that were not embedded"
        yield _rows_without(sentence, small / n_input, Cure("{} embeds all rows together", (cures.CONNECT,)))
    invalid = dropped.get("invalid", 0)
    if invalid and invalid >= bounds.DROPPED_SHARE * n_input:
        sentence = f"{invalid} of {n_input} rows ({invalid / n_input:.1%}) hold NaN or infinity{most_invalid(metrics)}"
        leave_out = "columns" in config["input"]
        text = (
            "Fill the gaps in the input to keep these rows" + ", or leave columns with many gaps out of {}" * leave_out
        )
        settings = Setting("input", "columns"), Setting("preprocess", "invalid", "error")
        cure = Cure(f"{text}; {{}} names the rows", settings[not leave_out :])
        yield _rows_without(sentence, invalid / n_input, cure)


def _of_repeated_rows(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """A remark if most rows equal an earlier one, so that the picture shows few points."""
    repeated, n_points = metrics.duplicates_merged or 0, metrics.n_points or 0
    n_rows = repeated + n_points
    if not repeated or repeated < bounds.MOST_REPEATED * n_rows or metrics.fit_sample:
        return
    sentence = f"{repeated:,} of {n_rows:,} rows equal an earlier row, so the picture has {counted(n_points, 'point')}"
    yield Finding("duplicates_merged", repeated / n_rows, bounds.MOST_REPEATED, sentence, level="note")


def _rows_without(sentence: str, share: float, cure: Cure) -> Finding:
    level: Level = "grave" if share >= bounds.MOST_DROPPED_SHARE else "minor"
    nan = f"{sentence}; their coordinates are NaN"
    return Finding("dropped", share, bounds.DROPPED_SHARE, nan, cure, level, is_defect=True)


def most_invalid(metrics: Metrics) -> str:
    """The columns that hold the most invalid entries, as the end of a clause; empty if they are not known."""
    columns = [f"{name} ({count:,})" for name, count in (metrics.invalid_by_column or {}).items()]
    more = ", ..." if len(columns) > NAMED else ""  # the record holds at most 20 columns
    return f", most in {', '.join(columns[:NAMED])}{more}" if columns else ""


def _of_ids(metrics: Metrics, config: Config) -> Iterator[Finding]:
    if metrics.ids is None:
        return
    if n_repeated := metrics.ids["duplicates"]:
        named = ", ".join(map(str, metrics.ids["first"]))
        have = f"{counted(n_repeated, 'row')} {'has' if n_repeated == 1 else 'have'}"
        sentence = f"{have} the id of an earlier row ({named}, ...): input.id does not identify them"
        yield Finding("ids", n_repeated, 0, sentence)
    if n_missing := metrics.ids["missing"]:
        yield Finding("ids", n_missing, 0, f"{counted(n_missing, 'row')} without an id in the column of input.id")


def _of_placed_rows(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """More rows than usual far from the fitted sample."""
    sample = metrics.fit_sample
    if sample is None or not sample["far"] or sample["far"] < bounds.FAR_SHARE * metrics.n_input:
        return
    sentence = (
        f"{sample['far']} of {metrics.n_input} rows are far from the fitted sample (distance_ratio above "
        f"{sample['max_ratio']:.3g}): their coordinates are not reliable"
    )
    share = sample["far"] / metrics.n_input
    cure = Cure("A larger {} brings the sample nearer to them", (Setting("input", "fit_sample"),))
    yield Finding("fit_sample", share, bounds.FAR_SHARE, sentence, cure, is_defect=True)


def _of_neighbor_counts(metrics: Metrics, config: Config) -> Iterator[Finding]:
    if (sizes := metrics.list_sizes) and config["method"] != "pca":
        if raised := sizes["raised_to_k_min"]:
            sentence = f"{raised} points have fewer than k_min neighbours within the radius, and keep the k_min nearest"
            cure = Cure("A larger {} reaches more neighbours", (Setting("neighbors", "radius"),))
            yield Finding("list_sizes", raised, 0, sentence, cure)
        if full := sizes["at_k_max"]:
            sentence = f"{full} points have k_max or more neighbours within the radius, and keep the k_max nearest"
            cure = Cure("A larger {} keeps more neighbours", (Setting("neighbors", "k_max"),))
            yield Finding("list_sizes", full, 0, sentence, cure)
    if skipped := metrics.skipped_neighborhoods:
        cure = cures.more_neighbors(metrics, config, "{} makes them larger")
        yield Finding("skipped_neighborhoods", skipped, 0, f"{skipped} neighbourhoods are too small to be used", cure)


def _of_components(metrics: Metrics, config: Config, *, are_small: bool) -> Iterator[Finding]:
    """Separate pieces, whose coordinates cannot be compared. `are_small`: if none holds half of the rows; else if one
    does. Small ones come before findings about the largest piece."""
    n_components, columns = metrics.n_components_weak or 1, metrics.components_differ_in
    n_rows = metrics.fit_sample["rows_fitted"] if metrics.fit_sample else metrics.n_input
    largest = share_of(max(metrics.component_sizes or [0]), n_rows)
    if config["method"] == "pca" or n_components < 2 or are_small != (0 < (largest or 0) < bounds.HALF_OF_ROWS):
        return
    sentence = f"The data fall into {n_components:,} separate pieces"
    if largest:
        sentence += f", the largest with {percent(largest)} of the rows"
    sentence += f", which differ in {listed(columns, NAMED)}" if columns else ""
    sentence += "; coordinates of different pieces cannot be compared"
    trust = metrics.number("trustworthiness")
    if trust is not None and trust >= bounds.LOW_TRUSTWORTHINESS:  # a lower one has its own finding
        sentence += f". Inside the largest piece: trustworthiness {trust:.3f}"
    yield Finding("n_components_weak", n_components, 1, sentence, cures.connected(metrics, config), "grave")


def _of_closed_classes(metrics: Metrics, config: Config) -> Iterator[Finding]:
    embedded = metrics.closed_classes_embedded
    if config["method"] != "lle" or embedded is None or embedded["classes"] <= embedded["components"]:
        return
    sentence = (
        f"{embedded['classes']} closed classes are left, expected {embedded['components']}: some coordinates only "
        f"separate closed groups of points"
    )
    reverse = Setting("neighbors", "reverse", "auto")
    cure = NO_CURE if config["neighbors"]["reverse"] == "auto" else Cure("{} opens them", (reverse,))
    yield Finding("closed_classes_left", embedded["classes"], embedded["components"], sentence, cure)


def _of_participation(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """One finding about all coordinates that are concentrated on few points, or that separate a group."""
    tables = zip(metrics.participation or [], metrics.separated or [], metrics.component_points or [], strict=False)
    shares = sorted(
        (value / size, component, coordinate, f"{value:,.0f} of {thousands(size)} points", group > 0)
        for component, (row, groups, size) in enumerate(tables)
        for coordinate, (value, group) in enumerate(zip(row, groups, strict=True), start=1)
    )
    clumps = [one for one in shares if one[0] < CLUMP_SHARE]
    groups = [one for one in shares if one[0] < bounds.GROUP_SHARE and one[2] <= 2 and one[4]]
    if not (narrow := clumps or groups):
        return
    bound = bounds.GROUP_SHARE  # of one component, so joining components does not link the group to the others
    cure = cures.cure_of_groups(metrics, config)
    if clumps:
        bound, cure = CLUMP_SHARE, cures.cure_of_clumps(metrics, config)
    several = len(metrics.participation or []) > 1
    places = [
        (f"coordinate {coordinate}{f' of component {component}' * several}", points)
        for _, component, coordinate, points, _ in narrow[:NAMED]
    ]
    about = f"{'only' if clumps else 'mainly'} separates about {{}} from the others"
    if not narrow[0][4]:
        about = "is concentrated on about {}"
    sentence = f"C{places[0][0][1:]} {about.format(places[0][1])}"
    sentence += "".join(f", {where} about {points}" for where, points in places[1:])
    sentence += f", and {counted(len(narrow) - NAMED, 'more coordinate')}" if len(narrow) > NAMED else ""
    if config["method"] == "pca":  # the picture leaves out such rows, and shows the others
        sentence += "; principal components follow rows that are far from the others"
        cure = Cure("Take the logarithm of features with long tails, or leave these rows out of the input")
        yield Finding("participation", narrow[0][0], bound, sentence, cure)
        return
    trust = metrics.number("trustworthiness") or 0.0
    keeps = trust >= bounds.GOOD_TRUSTWORTHINESS and (metrics.number("kept_neighbors") or 0.0) >= bounds.MOST_KEPT
    is_in_picture = any(coordinate <= 2 for _, _, coordinate, _, _ in narrow)
    level: Level = "grave" if is_in_picture or not keeps else "minor"
    has_other_cure = any(finding.cure for finding in of_neighborhoods(metrics, config))
    if cure and cures.more_neighbors(metrics, config, cure.text) == cure and has_other_cure:
        cure, level = NO_CURE, "minor"  # the cure of lost neighbours is needed: more neighbours often lose as many
    yield Finding("participation", narrow[0][0], bound, sentence, cure, level)


ABOUT: tuple[Callable[[Metrics, Config], Iterator[Finding]], ...] = (
    of_convergence,
    of_lost_eigenvalues,
    partial(_of_rows, are_half=True),
    partial(_of_components, are_small=True),
    _of_participation,
    of_neighborhoods,
    of_crowding,
    of_redundancy,
    partial(_of_rows, are_half=False),
    partial(_of_components, are_small=False),
    of_pca,
    _of_ids,
    _of_placed_rows,
    _of_neighbor_counts,
    _of_closed_classes,
    of_replaced_solver,
    _of_repeated_rows,
    of_dimensions,
    of_distances,
    of_alignment,
)
"""Gravest first."""


def with_findings(metrics: Metrics, findings: list[Finding]) -> Metrics:
    """The metrics with all findings as records and in sentences. The verdict is not repeated among the warnings."""
    the_verdict = None if metrics.stopped else _gravest(findings)
    outside = [finding for finding in findings if finding.level != "note"]
    return replace(
        metrics,
        findings=[finding.as_json() for finding in findings],
        verdict=verdict(metrics, findings),
        warnings=[finding.text() for finding in outside if finding is not the_verdict],
        defects=[finding.text() for finding in findings if finding.is_defect],
    )


def verdict(metrics: Metrics, findings: list[Finding], as_keyword: Callable[[Setting], str] | None = None) -> str:
    """The gravest finding with its cure, or that there is none; for Python with `as_keyword`, as in `Finding.text`."""
    if metrics.stopped is not None:
        return _of_stopped_run(metrics.stopped, metrics.rows_placed is not None)
    if (gravest := _gravest(findings)) is not None:
        return gravest.text(as_keyword)
    notes = [finding.text(as_keyword) for finding in findings if finding.level == "note"]
    return " ".join([_of_good_embedding(metrics), *notes])


def _gravest(findings: list[Finding]) -> Finding | None:
    return next((finding for finding in findings if finding.level == "grave"), None)


def _of_stopped_run(stopped: Stopped, has_coordinates: bool) -> str:
    if stopped["reason"]:
        return f"The run stopped before its end. {stopped['reason']}"
    state = "Rows have coordinates, but some results are missing" if has_coordinates else "No row has coordinates yet"
    if stopped["running"]:
        return f"The run is going on, in {stopped['stage']}. {state}."
    return f"The run has not finished: it stopped in {stopped['stage']}. {state}; run the same command again to resume."


def _of_good_embedding(metrics: Metrics) -> str:
    """The verdict if no warning about quality applies."""
    trust, continuity = metrics.number("trustworthiness"), metrics.number("continuity")
    if trust is None:
        return "The quality of the embedding was not measured."
    word = "Neighbours" if trust >= bounds.GOOD_TRUSTWORTHINESS else "Most neighbours"
    kept = metrics.number("kept_neighbors")
    near = "neighbours" if kept is None or kept >= bounds.MOST_KEPT else "near each other"
    few = ", but hardly any are the nearest" if cures.hardly_kept(metrics) else ""
    between = "" if continuity is None else f", continuity {continuity:.3f}"
    sentence = f"{word} in the embedding are {near} in the data{few} ({kept_words(metrics, between)})"
    before, after = metrics.number("neighborhood_hit_input"), metrics.number("neighborhood_hit")
    if before is not None and after is not None:
        label = metrics.label or "label"
        chance = (metrics.neighborhood_hit_input or {}).get("chance")
        by_chance = f", {percent(chance)} by chance" if chance is not None else ""
        sentence += f", and {percent(after)} of them have the same {label} ({percent(before)} in the data{by_chance})"
    return f"{sentence}."

"""What people read about a run, as views of its findings: the verdict and the other warnings."""

from collections.abc import Callable
from dataclasses import replace

from ..core.errors import Setting
from . import bounds
from .bounds import Finding
from .findings import scope
from .metrics import Metrics, Stopped
from .number_format import percent


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


def verdict(
    metrics: Metrics, findings: list[Finding], spelled: Callable[[Setting], str] = str, commands: bool = True
) -> str:
    """The gravest finding with its cure, or that there is none. `spelled` and `commands` as in `Finding.text`."""
    if metrics.stopped is not None:
        return _of_stopped_run(metrics.stopped, metrics.rows_placed is not None)
    if (gravest := _gravest(findings)) is not None:
        return gravest.text(spelled, commands)
    notes = [finding.text(spelled, commands) for finding in findings if finding.level == "note"]
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
    torn = "" if continuity is None else f", continuity {continuity:.3f}"
    sentence = f"{word} in the embedding are neighbours in the data (trustworthiness {trust:.3f}{torn}"
    sentence += f"{scope(metrics, ', ')})"
    before, after = metrics.number("neighborhood_hit_input"), metrics.number("neighborhood_hit")
    if before is not None and after is not None:
        label = metrics.label or "label"
        sentence += f", and {percent(after)} of them have the same {label} ({percent(before)} in the data)"
    return f"{sentence}."

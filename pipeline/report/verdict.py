"""The verdict of a run: what its measures mean for the embedding, in plain words, and what to do."""

from collections.abc import Callable, Mapping
from typing import Any

from . import bounds
from .bounds import value_of
from .cures import (
    cure_of_clumps,
    cure_of_convergence,
    cure_of_long_distances,
    cure_of_lost_neighbors,
    cure_of_redundancy,
    in_words,
)
from .number_format import capitalized, is_known, known_sum, percent, share_of, thousands
from .warnings import clumps_of, lost_eigenvalues, most_invalid, names_of

Metrics = Mapping[str, Any]
Config = Mapping[str, Any]


def verdict(metrics: Metrics, config: Config) -> str:
    """The most serious finding of a run with its cure, or that there is none; `config` is the resolved config."""
    for finding in FINDINGS:
        if sentence := finding(metrics, config):
            return sentence
    return _of_good_embedding(metrics, config)


def _of_stopped_run(metrics: Metrics, config: Config) -> str:
    stopped = metrics.get("stopped")
    if stopped is None:
        return ""
    if stopped.get("reason"):
        return f"The run stopped before its end. {stopped['reason']}"
    state = "No row has coordinates yet"
    if metrics.get("rows_placed") is not None:
        state = "Rows have coordinates, but some results are missing"
    if stopped["running"]:
        return f"The run is going on, in {stopped['stage']}. {state}."
    return f"The run has not finished: it stopped in {stopped['stage']}. {state}; run the same command again to resume."


def _of_convergence(metrics: Metrics, config: Config) -> str:
    if all(solver["converged"] for solver in metrics.get("solvers") or []):
        return ""
    residuals = [value for row in metrics.get("residuals") or [] for value in row if is_known(value)]
    worst = f" (largest residual {max(residuals):.2g})" if residuals else ""
    return (
        f"The eigensolver did not reach its tolerance{worst}: these coordinates are not final. "
        f"{cure_of_convergence(metrics, config)}."
    )


def _of_lost_eigenvalues(metrics: Metrics, config: Config) -> str:
    errors = [error for row in metrics.get("vector_errors") or [] for error in row or []]
    if not lost_eigenvalues(metrics) or max(errors, default=1.0) <= bounds.LARGE_VECTOR_ERROR:
        return ""
    return (
        "Eigenvalues are not above the rounding errors of float64, so coordinates may be rounding errors too. Raise "
        "neighbors.n_neighbors or weights.reg."
    )


def _of_lost_rows(metrics: Metrics, config: Config) -> str:
    share = share_of(known_sum(metrics.get("dropped")), metrics.get("n_input"))
    if share is None or share < bounds.DROPPED_SHARE:
        return ""
    dropped = metrics["dropped"]
    if dropped.get("small_component", 0) >= dropped.get("invalid", 0):
        cause = "they are in components that were not embedded. Set graph.components: separate to embed every row."
    else:
        repair = "preprocess.invalid: error names the rows, so that the input can be repaired."
        cause = f"they hold NaN or infinity{most_invalid(metrics)}. {repair}"
    return f"{percent(share)} of the rows have no coordinates: {cause}"


def _of_clumps(metrics: Metrics, config: Config) -> str:
    clumps = clumps_of(metrics)
    if not clumps:
        return ""
    component, coordinate, value, size = clumps[0]
    where = f" of component {component}" if len(metrics["participation"]) > 1 else ""
    return (
        f"Coordinate {coordinate}{where} only separates about {value:.0f} of {thousands(size)} points from the others. "
        f"{cure_of_clumps(metrics, config)}."
    )


def _of_lost_neighbors(metrics: Metrics, config: Config) -> str:
    lost, trust = bounds.lost_neighbors(metrics), value_of(metrics, "trustworthiness")
    if lost:
        label = metrics.get("label") or "label"
        finding = (
            f"Neighbours of the same {label} fell from {percent(lost[0])} in the data to {percent(lost[1])} in the "
            f"embedding{_scope(metrics)}"
        )
    elif trust is not None and trust < bounds.LOW_TRUSTWORTHINESS:
        finding = (
            f"Many neighbours in the embedding are not neighbours in the data (trustworthiness {trust:.2f}"
            f"{_scope(metrics, ', ')})"
        )
    else:
        return ""
    cure = cure_of_lost_neighbors(metrics, config)
    return f"{finding}. {capitalized(cure)}."


def _of_pieces(metrics: Metrics, config: Config) -> str:
    n_components = metrics.get("n_components_weak")
    if config["method"] == "pca" or not is_known(n_components) or n_components < 2:
        return ""
    n_components, columns = int(n_components), metrics.get("components_differ_in")
    largest = share_of(max(metrics.get("component_sizes") or [0]), metrics.get("n_input"))
    rest = "coordinates of different pieces cannot be compared"
    if largest is not None and largest >= bounds.MAIN_PIECE:
        others = in_words(n_components - 1) + (" small pieces" if n_components > 2 else " small piece")
        sentence = f"One piece holds {percent(largest)} of the rows, beside {others}; {rest}"
    else:
        share = "" if not largest else f", the largest with {percent(largest)} of the rows"
        sentence = f"The data fall into {in_words(n_components)} separate pieces{share}; {rest}"
    cure = "graph.components: connect joins them"
    if columns:
        left_out = "them" if len(columns) > 1 else "it"
        cure = f"they differ in {names_of(columns)}; leave {left_out} out of input.columns to join them, or {cure}"
    return f"{sentence}; {cure}. {_of_good_embedding(metrics, config)}"


def _of_redundancy(metrics: Metrics, config: Config) -> str:
    redundant = [j for j, value in enumerate(metrics.get("redundancy") or [], start=1) if value > bounds.REDUNDANT]
    if not redundant:
        return ""
    is_single = len(redundant) == 1
    subject = f"Coordinate {redundant[0]} repeats" if is_single else f"Coordinates {_listed(redundant)} repeat"
    trust = value_of(metrics, "trustworthiness")
    remark = "" if trust is None else f"Neighbours are kept (trustworthiness {trust:.3f}{_scope(metrics, ', ')}). "
    return f"{subject} what earlier coordinates show. {remark}{cure_of_redundancy(metrics, config)}."


def _listed(numbers: list[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _of_good_embedding(metrics: Metrics, config: Config) -> str:
    """The verdict if no warning about quality applies."""
    trust, continuity = value_of(metrics, "trustworthiness"), value_of(metrics, "continuity")
    if trust is None:
        return "The quality of the embedding was not measured."
    word = "Neighbours" if trust >= bounds.GOOD_TRUSTWORTHINESS else "Most neighbours"
    torn = "" if continuity is None else f", continuity {continuity:.3f}"
    sentence = (
        f"{word} in the embedding are neighbours in the data (trustworthiness {trust:.3f}{torn}{_scope(metrics, ', ')})"
    )
    before, after = value_of(metrics, "neighborhood_hit_input"), value_of(metrics, "neighborhood_hit")
    if before is not None and after is not None:
        label = metrics.get("label") or "label"
        sentence += f", and {percent(after)} of them have the same {label} ({percent(before)} in the data)"
    variance = value_of(metrics, "residual_variance")
    if variance is not None and variance > bounds.GOOD_RESIDUAL_VARIANCE:
        cure = cure_of_long_distances(metrics, config)
        return (
            f"{sentence}. Long distances differ from those along the data (residual variance {variance:.2f})"
            f"{'; ' * bool(cure)}{cure}."
        )
    return f"{sentence}."


def _scope(metrics: Metrics, prefix: str = " ") -> str:
    """Where the quality was measured, if the embedding has several components."""
    return f"{prefix}of the largest piece" if len(metrics.get("component_points") or []) > 1 else ""


FINDINGS: tuple[Callable[[Metrics, Config], str], ...] = (
    _of_stopped_run,
    _of_convergence,
    _of_lost_eigenvalues,
    _of_lost_rows,
    _of_clumps,
    _of_lost_neighbors,
    _of_redundancy,
    _of_pieces,
)
"""Gravest first."""

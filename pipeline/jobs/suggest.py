"""Suggest method, n_components, n_neighbors and reg for an input from a sample of it, with reasons (`lle suggest`).

The results are of two kinds, which are not comparable. The dimension comes from sampled points and their neighbours
among **all** rows, so it holds for the run. Trustworthiness, continuity, the share of kept neighbours and neighbourhood
hit need an embedding. They come from trials on the sample alone, each with the reg that the sample needs. Neighbours
are farther away there, unless it holds all rows.
"""

import contextlib
from collections.abc import Mapping
from itertools import chain, count
from operator import attrgetter
from pathlib import Path

import numpy as np

from ..config.load import load_config, parse_override
from ..config.models import Config
from ..config.yaml_edit import NotEdited, changed, edited
from ..config.yaml_io import read_mapping, to_yaml
from ..core.errors import ConfigError, InputError, counted
from ..core.patterns import is_url, local_path
from ..core.signals import interruptible
from ..core.threads import limited_threads
from ..engine.step import Json
from ..kernels.quality.intrinsic_dimension import Dimension, maximum_likelihood, two_nearest
from ..stages.ingest import first_layout, open_input
from .suggest_sample import NeighborSample, sample_neighbors
from .suggest_search import MAX_TRIAL_POINTS, NEIGHBORS, TOLERANCE, WORTH_ANOTHER_METHOD, Search, Watch
from .suggest_trials import COMPARED_NEIGHBORS, Trial

SAMPLED_ROWS = 2000
"""Rows in the sample of a large table. The trials embed a small table of few features whole: a few points can decide
whether a number of neighbours is enough, and a sample may lack them."""

TIGHT_GROUPS = 0.7
"""Smaller estimates of the dimension are too low even for a curve, whose dimension is one."""


OF_PIECES = {
    "separate": ", which a run embeds one by one, but pca together",
    "largest": ", and a run embeds the largest, but pca all of them",
    "connect": ", which the trials join as a run does",
    "error": ", and graph.components: error refuses a graph in pieces",
}


@interruptible()
def suggest(config: Config, sample: int | None, watch: Watch = lambda text: None) -> Json:
    """Estimates, trials and the choice as JSON-able data. Raises ConfigError, InputError and Interrupted.

    sample: number of rows; None for all of a small table, and SAMPLED_ROWS of a larger one.
    """
    source = open_input(config)
    sample = sample or (SAMPLED_ROWS if source.n_rows > MAX_TRIAL_POINTS else source.n_rows)
    first_layout(config, source)
    own = config.neighbors.n_neighbors
    watch(f"reading {source.n_rows:,} rows for a sample of {min(sample, source.n_rows):,} and its neighbours")
    distinct = sample_neighbors(config, source, sample, max(*NEIGHBORS, own), config.quality.seed)
    sampled = _without_coinciding(distinct, config)
    n_others = int((sampled.lists.ids >= 0).sum(axis=1).min())
    if n_others < own:
        raise InputError(f"neighbors.n_neighbors is {own}, but a sampled point has only {n_others} distinct others")
    likely = maximum_likelihood(sampled.lists.distances[:, :own])
    nearest: Dimension | None = None  # where the two nearest neighbours are equally far: coordinates on a grid
    with contextlib.suppress(InputError):
        nearest = two_nearest(sampled.lists.distances)
    search = Search(config, sampled, likely, n_others, watch)
    with limited_threads(1):
        search.run()
    stretch = max(1.0, distinct.n_distinct / search.n_sampled) ** (1 / max(likely.value, 1.0))
    return {
        "method": config.method,
        "n_rows": sampled.n_rows,
        "n_features": sampled.points.shape[1],
        "sample": search.n_sampled,
        "pieces": search.n_pieces,
        "queries": len(sampled.lists.ids),
        "stretch": stretch,
        "dimension": {
            "two_nearest": None if nearest is None else nearest._asdict(),
            "maximum_likelihood": {**likely._asdict(), "n_neighbors": own},
        },
        "candidates": [trial.as_json(trial is search.chosen) for trial in search.trials.done()],
        "suggested": search.suggested(),
        "reasons": _reasons(search, nearest, stretch),
    }


def suggest_for_file(
    path: Path, overrides: tuple[str, ...], sample: int | None, out: Path | None, watch: Watch
) -> Json:
    """As `suggest`, for the config of a file; the suggested values are written to the new file `out`, if it is given.

    In addition the file written, the store of the proposal, and the store that is `kept` beside it (None: the same).
    """
    config = load_config(path, overrides)
    if out is not None and (out.exists() or out.is_symlink()):
        raise ConfigError(f"--write {out}: this file already exists; choose another name")
    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError(f"--write {out}: its folder does not exist; create it first")
    suggestion, current = suggest(config, sample, watch), config.output.store
    if out is not None:
        store = _write_config(path, overrides, suggestion["suggested"], current, out)
    else:
        is_used = is_url(current) or Path(local_path(current)).exists()  # a URL is not looked up
        store = other_store(current, "suggested") if is_used else current
    kept = None if store == current else current
    return {**suggestion, "written": None if out is None else str(out), "store": store, "kept": kept}


def _write_config(
    config: Path, overrides: tuple[str, ...], values: Mapping[str, object], current: str, out: Path
) -> str:
    """Write the file of a config with the overrides and the suggested values as a new file; returns its output.store.

    Comments are kept, unless aliases make that impossible. The store gets another name than the `current` one, so that
    a run of the proposal does not replace a result; one given in the overrides is kept. Raises ConfigError.
    """
    changes = dict(map(parse_override, overrides))
    if changes.keys().isdisjoint({"output", "output.store"}):
        changes["output.store"] = other_store(current, out.stem)
    changes |= values
    try:
        text = edited(config.read_bytes().decode(), changes)
    except NotEdited:
        text = f"# Without the comments of {config.name}, whose values refer to each other.\n"
        text += to_yaml(changed(read_mapping(config), changes))
    try:
        with out.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"--write {out}: cannot be written: {error.strerror}; choose another name") from None
    return str(changes.get("output.store", current))


def other_store(store: str, name: str) -> str:
    """Another store beside this one, with `name` in its own; a local one that does not exist.

    >>> other_store("s3://bucket/rows.zarr", "better"), other_store("no/such/rows", "better")
    ('s3://bucket/rows-better.zarr', 'no/such/rows-better')
    """
    stem = store.rstrip("/")
    stem, suffix = (stem.removesuffix(".zarr"), ".zarr") if stem.endswith(".zarr") else (stem, "")
    numbers = chain([""], (f"-{number}" for number in count(2)))
    names = (f"{stem}-{name}{number}{suffix}" for number in numbers)
    return next(new for new in names if is_url(new) or not Path(local_path(new)).exists())


def _without_coinciding(sample: NeighborSample, config: Config) -> NeighborSample:
    """Remove the sampled points that preprocessing maps onto a neighbour; their distances hold no information."""
    distinct = sample.lists.distances[:, 0] > 0
    if not distinct.any():
        if config.preprocess.pca is not None:
            raise InputError("preprocess.pca maps every sampled point onto its neighbours; raise it")
        raise InputError(
            "input: expected distinct points, found only distances that are 0 in float64 between sampled points and "
            "their neighbours; multiply the numbers by a larger unit, or set preprocess.scale: standard"
        )
    remaining = np.concatenate([np.flatnonzero(distinct), np.arange(len(distinct), len(sample.points))])
    lists = sample.lists._replace(ids=sample.lists.ids[distinct], distances=sample.lists.distances[distinct])
    labels = None if sample.labels is None else sample.labels[remaining]
    return sample._replace(points=sample.points[remaining], lists=lists, labels=labels)


def _reasons(search: Search, nearest: Dimension | None, stretch: float) -> list[str]:
    """One sentence for each suggestion, and what limits it."""
    reasons = [f"n_components {search.n_components}: {search.why_components}"]
    if nearest is not None and abs(search.likely.value - nearest.value) > 0.5:
        reasons.append(
            f"the dimension depends on the scale: it is {nearest.value:.2f} at the two nearest neighbours. A higher "
            "value there means noise or rounded numbers, a lower one means curvature or clusters at larger scales"
        )
    if search.likely.value < TIGHT_GROUPS:
        reasons.append(
            f"a dimension of {search.likely.value:.2f} means that points form tight groups with fewer members than "
            f"neighbors.n_neighbors, such as near-duplicates: n_components is not reliable. Rounding the input merges "
            f"near-duplicates, because equal rows count once"
        )
    if search.sample.left_out:
        reasons.append(search.sample.left_out)
    if search.n_pieces > 1:
        components = search.config.graph.components
        falls = f"the sample falls into {search.n_pieces} pieces{OF_PIECES[components]}"
        if components != "connect":
            falls += f": the trials use the {len(search.trials.points):,} points of the largest and are measured in it"
        reasons.append(falls)
    if search.chosen is None:
        return [*reasons, "no trial could embed the sample; see the table"]
    trials = search.trials.done()
    reasons += [*_why_low(search.chosen, trials), _why_method(search, search.chosen)]
    reasons += _why_not_best(search, search.chosen, trials)
    if (best := search.best_of_fewer) is not None:
        warns = f". A run would warn: {best.warning}" if best.warning else ""
        count = counted(best.n_components, "coordinate")
        of = " and ".join(dict.fromkeys([search.config.method, "lle", "pca"]))
        reasons.append(
            f"with {count}, as in the config, the best of {of} is {best.name}: score {best.score:.3f}{warns}"
        )
    reasons += _why_neighbors(search, search.chosen)
    if reason := search.reg_reasons.get((search.chosen.method, search.chosen.n_neighbors)):
        value = search.suggested()["weights.reg"]
        about = f"auto: it is {search.chosen.reg:g} for the sample: " if value == "auto" else f"{value:g}: "
        reasons.append(f"reg {about}{reason}")
    if stretch > 1.05:
        largest = min(search.most_points, search.sample.n_rows)
        larger = f". --sample {largest} takes longer and comes nearer to a run" * (search.n_sampled < 0.9 * largest)
        reasons.append(
            f"the measures are those of the sample embedded alone, where neighbours are about {stretch:.1f} times "
            f"as far away as among all rows; the run will have other values{larger}"
        )
    if all(attrgetter(key)(search.config) == value for key, value in search.suggested().items()):
        reasons.append("the config has these settings already: a run with them would repeat its result")
    return reasons


def _why_low(chosen: Trial, trials: list[Trial]) -> list[str]:
    """A sentence if a run would warn of the suggested trial too."""
    if not chosen.warning:
        return []
    reason = f"the suggested trial is only the best of these: {chosen.warning}"
    if chosen.lost and chosen.lost.measure == "trustworthiness":
        reason += ". Do not interpret clusters in its picture"
    elif chosen.lost:
        best = max(trials, key=lambda trial: trial.hit)
        reason += f". The highest hit of {COMPARED_NEIGHBORS} neighbours is {best.hit:.3f}, of {best.name}"
    return [reason]


def _why_method(search: Search, chosen: Trial) -> str:
    if search.own is None or search.own.scores is None or chosen.scores is None:
        return f"method {chosen.method}: the best score; no trial of {search.config.method} succeeded"
    score = search.own.score
    if chosen is not search.own:
        own_m, m = search.own.n_components, chosen.n_components
        with_own, with_m = (f" with {counted(n, 'coordinate')}" * (own_m != m) for n in (own_m, m))
        reason = f"method {chosen.method}: its score{with_m} is {chosen.score:.3f}, that of {search.own.method}"
        reason += f"{with_own} is {score:.3f}"
        would = f". A run with {search.own.method} would warn: {search.own.warning}"
        return reason + would * bool(search.own.warning and not chosen.warning)
    best = max([chosen, *search.others], key=lambda trial: trial.score)
    if best.score <= score + WORTH_ANOTHER_METHOD:
        return f"method {chosen.method}: no other method has a score {WORTH_ANOTHER_METHOD} higher than {score:.3f}"
    why = _why_not_method(best, chosen)
    return f"method {chosen.method}: {best.method} has a higher score ({best.score:.3f}, not {score:.3f}), but {why}"


def _why_not_method(best: Trial, chosen: Trial) -> str:
    if best.warning and not chosen.warning:
        return best.warning
    if best.score <= chosen.score + WORTH_ANOTHER_METHOD:
        return f"a less simple method needs a score {WORTH_ANOTHER_METHOD} higher"
    return "the 95 % interval of the difference holds 0"


def _why_not_best(search: Search, chosen: Trial, trials: list[Trial]) -> list[str]:
    """Why the trial with the best score is not the chosen one, unless the reason of the method says it."""
    best = max(trials, key=lambda trial: trial.score)
    picked = [trial for trial in (search.own, *search.others) if trial is not None and trial.method == best.method]
    if best.score <= chosen.score or best is search.own or (best in picked and chosen is search.own) or not picked:
        return []
    if best is picked[0]:
        why = _why_not_method(best, chosen)
    elif best.method == "lle" and best.reg != picked[0].reg:
        why = "a run chooses reg itself, by trustworthiness and noise (weights.reg: auto)"
    elif best.n_neighbors != picked[0].n_neighbors:
        why = f"{best.method} with {picked[0].n_neighbors} neighbours is as good"
    else:
        return []
    return [f"the best score, {best.score:.3f}, is that of {best.name}, but {why}"]


def _why_neighbors(search: Search, chosen: Trial) -> list[str]:
    if chosen.method == "pca":
        return []
    measures = "trustworthiness, continuity, kept neighbours" + " and hit" * (search.sample.labels is not None)
    reasons = [
        f"n_neighbors {chosen.n_neighbors}: the smallest number whose score is as good as the best of the method, up "
        f"to {TOLERANCE} or the 95 % interval of the difference. The score is the mean of {measures}; points outside "
        f"the largest component of a trial have the score 0"
    ]
    if search.min_neighbors > NEIGHBORS[0]:
        reasons.append(
            f"fewer than {search.min_neighbors} neighbours were not tried, because the graph could fall into more "
            f"pieces than with {search.config.neighbors.n_neighbors}"
        )
    if search.config.varies:
        rule = search.config.neighbors.rule or "precomputed"
        reasons.append(
            f"neighbors.{rule} determines the number of neighbours of each point; the trials had the same "
            f"n_neighbors for every point, so no n_neighbors is suggested"
        )
    return reasons

"""Suggest n_components, n_neighbors and reg for an input from a sample of it, with reasons (`lle suggest`).

The results are of two kinds, which are not comparable. Dimension and reconstruction error come from sampled points and
their neighbours among **all** rows, so they hold for the run. Components, closed classes, trustworthiness and
continuity need a graph and an embedding. They come from trial runs on the sample alone, where neighbours are farther
away.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config.models import Config, to_yaml
from ..core.errors import ConfigError, InputError
from ..core.signals import interruptible
from ..kernels.factors.choose_reg import SURFACE_REG, LocalVariance, choose_reg, local_variance
from ..kernels.factors.lle_weights import barycenter_weights
from ..kernels.quality.bootstrap import Estimate
from ..kernels.quality.intrinsic_dimension import Dimension, maximum_likelihood, two_nearest
from ..kernels.quality.trustworthiness import NORMAL_QUANTILE_975, mean_interval
from ..kernels.trial_embedding import reg_by_trial, trial_points
from ..linalg.reg_choice import METHODS, sample_points
from ..stages.ingest import first_layout, open_input
from .suggest_sample import NeighborSample, sample_neighbors
from .suggest_trial import Trial, trial_folder, trial_or_error

NEIGHBORS = (6, 8, 10, 12, 16, 20, 30, 40)
TOLERANCE = 0.001
"""Differences up to this, in the mean of trustworthiness and continuity, do not decide between candidates."""
BATCH_BYTES = 16 * 2**20

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """A value of n_neighbors with its reg and measures; `trial` is an error message if its trial run failed."""

    n_neighbors: int
    reg: float
    dimension: Dimension
    error: Estimate
    trial: Trial | str
    reg_reason: str = ""
    chosen: bool = False

    def scores(self) -> Float64:
        """Mean of trustworthiness and continuity of each sampled point."""
        assert isinstance(self.trial, Trial)
        return (self.trial.trustworthiness + self.trial.continuity) / 2


@interruptible()
def suggest(config: Config, sample: int) -> dict[str, Any]:
    """Estimates, candidates and the choice as JSON-able data. Raises ConfigError, InputError and Interrupted."""
    source = open_input(config)
    first_layout(config, source)
    widest = max(*NEIGHBORS, config.neighbors.n_neighbors)
    sampled = sample_neighbors(config, source, sample, widest, config.quality.seed)
    sampled = _apart(sampled)
    own = config.neighbors.n_neighbors
    n_others = int((sampled.lists.ids >= 0).sum(axis=1).min())
    if n_others < own:
        raise InputError(f"neighbors.n_neighbors is {own}, but a sampled point has only {n_others} distinct others")
    likely = maximum_likelihood(sampled.lists.distances[:, :own])
    nearest = two_nearest(sampled.lists.distances)
    m = int(np.clip(round(likely.value), 1, sampled.points.shape[1]))
    candidates = _candidates(config, sampled, m, [k for k in sorted({*NEIGHBORS, own}) if m < k <= n_others])
    stretch = (sampled.n_rows / len(sampled.points)) ** (1 / max(likely.value, 1.0))
    best = next((candidate for candidate in candidates if candidate.chosen), None)
    values: dict[str, Any] = {"eigensolver.n_components": m}
    if best is not None:
        values |= {} if config.varies else {"neighbors.n_neighbors": best.n_neighbors}
        values |= {"weights.reg": best.reg} if config.method in METHODS else {}
    return {
        "method": config.method, "n_rows": sampled.n_rows, "n_features": sampled.points.shape[1],
        "sample": len(sampled.points), "queries": len(sampled.lists.ids), "stretch": stretch,
        "dimension": {"two_nearest": nearest._asdict(), "maximum_likelihood": {**likely._asdict(), "n_neighbors": own}},
        "candidates": [_described(candidate) for candidate in candidates], "suggested": values,
        "reasons": _reasons(config, likely, nearest, m, candidates, stretch),
    }  # fmt: skip


def write_config(config: Config, values: dict[str, Any], path: Path) -> None:
    """The config with the suggested values as a new YAML file; defaults stay unwritten. Raises ConfigError."""
    data = config.model_dump(mode="json", exclude_unset=True)
    for key, value in values.items():
        section, name = key.split(".")
        data.setdefault(section, {})[name] = value
    try:
        with path.open("x") as file:
            file.write(to_yaml(data))
    except FileExistsError:
        raise ConfigError(f"--write {path}: this file exists already; choose another name") from None
    except OSError as error:
        raise ConfigError(f"--write {path}: cannot be written: {error.strerror}") from None


def _apart(sample: NeighborSample) -> NeighborSample:
    """Remove the sampled points that preprocessing maps onto a neighbour; their distances hold no information."""
    apart = sample.lists.distances[:, 0] > 0
    if not apart.any():
        raise InputError("input: preprocessing maps every sampled point onto its neighbours; keep more of the features")
    remaining = np.concatenate([np.flatnonzero(apart), np.arange(len(apart), len(sample.points))])
    lists = sample.lists._replace(ids=sample.lists.ids[apart], distances=sample.lists.distances[apart])
    return sample._replace(points=sample.points[remaining], lists=lists)


def _candidates(config: Config, sample: NeighborSample, m: int, neighbors: list[int]) -> list[Candidate]:
    """Measure every n_neighbors, each with the reg that is chosen for neighbourhoods of this size among all rows."""
    if config.method == "pca" or not neighbors:
        return []
    with trial_folder() as folder:

        def measure(k: int) -> Candidate:
            reg, reason = _reg(config, sample, k, m)
            changes: dict[str, dict[str, Any]] = {
                "neighbors": {"n_neighbors": k}, "weights": {"reg": reg}, "eigensolver": {"n_components": m},
            }  # fmt: skip
            dimension = maximum_likelihood(sample.lists.distances[:, :k])
            error = mean_interval(reconstruction_errors(sample, k, reg, config.weights.rule))
            return Candidate(
                k, reg, dimension, error, trial_or_error(config, sample.points, folder, changes), reg_reason=reason
            )

        candidates = [measure(k) for k in neighbors]
    chosen = choose(candidates)
    return [replace(candidate, chosen=candidate is chosen) for candidate in candidates]


def _reg(config: Config, sample: NeighborSample, k: int, m: int) -> tuple[float, str]:
    """A value of weights.reg for k neighbours and m coordinates, as a run with auto would choose it, and its reason.

    The number in the config is used if the rule is absolute, because reg then has the unit of the points.
    """
    if config.weights.reg != "auto" and (config.method not in METHODS or config.weights.rule == "absolute"):
        return config.weights.reg, "set in the config"
    if config.method not in METHODS:
        return SURFACE_REG, ""
    step = max(1, BATCH_BYTES // (8 * k * (sample.points.shape[1] + k)))
    n_queries = min(len(sample.lists.ids), sample_points(k, sample.points.shape[1]))
    parts = []
    for first in range(0, n_queries, step):
        past = min(first + step, n_queries)
        valid = sample.lists.ids[first:past, :k] >= 0
        parts.append(local_variance(sample.points[first:past], sample.neighbors(first, past, k), valid, m))
    chosen = choose_reg(LocalVariance(*(np.concatenate(column) for column in zip(*parts, strict=True))), m)
    if config.method == "lle":
        points = sample.points[: trial_points(sample.points.shape[1])].astype(np.float64)
        chosen = reg_by_trial(points, chosen, k, m, config.weights.rule)
    return chosen.reg, chosen.reason


def choose(candidates: list[Candidate]) -> Candidate | None:
    """The first candidate that is not worse than the best one by more than TOLERANCE or the interval of the difference.

    Differences are taken point by point, because all candidates are measured on the same points.
    """
    measured = [candidate for candidate in candidates if isinstance(candidate.trial, Trial)]
    if not measured:
        return None
    best = max(measured, key=lambda candidate: float(candidate.scores().mean()))
    for candidate in measured:
        difference = best.scores() - candidate.scores()
        half_width = NORMAL_QUANTILE_975 * float(difference.std(ddof=1)) / len(difference) ** 0.5
        if difference.mean() <= max(TOLERANCE, half_width):
            return candidate
    return best


def reconstruction_errors(sample: NeighborSample, k: int, reg: float, rule: str) -> Float64:
    """|x - sum_j w_j y_j|^2 over the mean of |x - y_j|^2 of each point with neighbours, in [0, 1]: (q,)."""
    n_queries, step = len(sample.lists.ids), max(1, BATCH_BYTES // (8 * k * (sample.points.shape[1] + k)))
    out = np.empty(n_queries)
    for first in range(0, n_queries, step):
        past = min(first + step, n_queries)
        valid = sample.lists.ids[first:past, :k] >= 0
        solved = barycenter_weights(sample.points[first:past], sample.neighbors(first, past, k), valid, reg, rule)
        out[first:past] = solved.squared_error / np.square(sample.lists.distances[first:past, :k]).mean(axis=1)
    return np.clip(out, 0.0, 1.0)


def _described(candidate: Candidate) -> dict[str, Any]:
    """A candidate as data for JSON; trustworthiness and continuity are means over the embedded points."""
    keys = ("value", "low", "high")
    line: dict[str, Any] = {
        "n_neighbors": candidate.n_neighbors, "reg": candidate.reg, "chosen": candidate.chosen,
        "dimension": candidate.dimension._asdict(), "error": dict(zip(keys, candidate.error, strict=True)),
    }  # fmt: skip
    if isinstance(candidate.trial, str):
        return {**line, "failed": candidate.trial}
    trial, inside = candidate.trial, candidate.trial.in_largest
    return {
        **line, "n_components_weak": trial.n_components_weak, "closed_classes": trial.closed_classes,
        "in_largest": float(inside.mean()),
        "trustworthiness": dict(zip(keys, mean_interval(trial.trustworthiness[inside]), strict=True)),
        "continuity": dict(zip(keys, mean_interval(trial.continuity[inside]), strict=True)),
    }  # fmt: skip


def _reasons(
    config: Config, likely: Dimension, nearest: Dimension, m: int, candidates: list[Candidate], stretch: float
) -> list[str]:
    reasons = [
        f"n_components {m}: {likely.value:.2f} ({likely.low:.2f} to {likely.high:.2f}) by maximum likelihood at the "
        f"scale of {config.neighbors.n_neighbors} neighbours, rounded"
    ]
    if abs(likely.value - nearest.value) > 0.5:
        reasons.append(
            f"the dimension depends on the scale: it is {nearest.value:.2f} at the two nearest neighbours. A higher "
            f"value there means noise, a lower one means curvature or clusters at larger scales"
        )
    if likely.value > 6:
        reasons.append("above about six both estimators are too low, because of boundaries and few points")
    best = next((candidate for candidate in candidates if candidate.chosen), None)
    if best is None:
        return reasons if config.method == "pca" else [*reasons, "no candidate could embed the sample; see the table"]
    reasons.append(
        f"n_neighbors {best.n_neighbors}: the smallest whose mean of trustworthiness and continuity is not below the "
        f"best, by {TOLERANCE} or the interval of the difference; points outside the largest component count 0"
    )
    if config.varies:
        reasons.append(
            f"neighbors.{config.neighbors.rule or 'precomputed'} determines the number of neighbours of each point; "
            f"the candidates were tried with the same n_neighbors for every point, so none of these is suggested"
        )
    if config.method in METHODS:
        reasons.append(f"reg {best.reg:g}: {best.reg_reason}")
    if stretch > 1.05:
        reasons.append(
            f"parts, closed, trustworthiness and continuity are those of the sample embedded alone, where neighbours "
            f"are about {stretch:.1f} times as far away as among all rows; the run will have other values"
        )
    return reasons

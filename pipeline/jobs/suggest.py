"""Which n_components, n_neighbors and reg suit an input, from a sample of it, and why.

Two kinds of figures, which must not be mixed. Dimension and reconstruction error come from sampled points and their
neighbours among **all** rows, so they are those of the run. Components, closed classes, trustworthiness and continuity
need a graph and an embedding; they come from the sample embedded by itself, whose neighbourhoods are wider.
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
from ..linalg.reg_choice import METHODS, sample_points
from ..stages.ingest import first_layout, open_input
from .suggest_sample import Survey, survey
from .suggest_trial import Pilot, trial_folder, tried

NEIGHBORS = (6, 8, 10, 12, 16, 20, 30, 40)
TOLERANCE = 0.001
"""Of the mean of trustworthiness and continuity: a smaller difference decides nothing."""
BATCH_BYTES = 16 * 2**20

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """One n_neighbors, the reg for it, and what was measured; pilot is the reason where the sample was not embedded."""

    n_neighbors: int
    reg: float
    dimension: Dimension
    error: Estimate
    pilot: Pilot | str
    reg_reason: str = ""
    chosen: bool = False

    def scores(self) -> Float64:
        """Mean of trustworthiness and continuity of each sampled point."""
        assert isinstance(self.pilot, Pilot)
        return (self.pilot.trustworthiness + self.pilot.continuity) / 2


@interruptible()
def suggest(config: Config, sample: int) -> dict[str, Any]:
    """Estimates, candidates and the choice as JSON-able data. Raises ConfigError, InputError and Interrupted."""
    source = open_input(config)
    first_layout(config, source)
    found = survey(config, source, sample, max(*NEIGHBORS, config.neighbors.n_neighbors), config.quality.seed)
    found = _apart(found)
    own = config.neighbors.n_neighbors
    most = int((found.lists.ids >= 0).sum(axis=1).min())
    if most < own:
        raise InputError(f"neighbors.n_neighbors is {own}, but a sampled point has only {most} distinct others")
    likely = maximum_likelihood(found.lists.distances[:, :own])
    nearest = two_nearest(found.lists.distances)
    m = int(np.clip(round(likely.value), 1, found.points.shape[1]))
    tried_ones = _candidates(config, found, m, [k for k in sorted({*NEIGHBORS, own}) if m < k <= most])
    stretch = (found.n_rows / len(found.points)) ** (1 / max(likely.value, 1.0))
    best = next((one for one in tried_ones if one.chosen), None)
    values: dict[str, Any] = {"eigensolver.n_components": m}
    if best is not None:
        values |= {} if config.varies else {"neighbors.n_neighbors": best.n_neighbors}
        values |= {"weights.reg": best.reg} if config.method in METHODS else {}
    return {
        "method": config.method, "n_rows": found.n_rows, "n_features": found.points.shape[1],
        "sample": len(found.points), "queries": len(found.lists.ids), "stretch": stretch,
        "dimension": {"two_nearest": nearest._asdict(), "maximum_likelihood": {**likely._asdict(), "n_neighbors": own}},
        "candidates": [_described(one) for one in tried_ones], "suggested": values,
        "reasons": _reasons(config, likely, nearest, m, tried_ones, stretch),
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


def _apart(found: Survey) -> Survey:
    """Without the sampled points that preprocessing has moved onto a neighbour: their distances say nothing."""
    apart = found.lists.distances[:, 0] > 0
    if not apart.any():
        raise InputError("input: preprocessing maps every sampled point onto its neighbours; keep more of the features")
    kept = np.concatenate([np.flatnonzero(apart), np.arange(len(apart), len(found.points))])
    lists = found.lists._replace(ids=found.lists.ids[apart], distances=found.lists.distances[apart])
    return found._replace(points=found.points[kept], lists=lists)


def _candidates(config: Config, found: Survey, m: int, neighbors: list[int]) -> list[Candidate]:
    """Every n_neighbors with the reg that neighbourhoods of this size among all rows ask for."""
    if config.method == "pca" or not neighbors:
        return []
    with trial_folder() as folder:

        def measure(k: int) -> Candidate:
            reg, reason = _reg(config, found, k, m)
            changes: dict[str, dict[str, Any]] = {
                "neighbors": {"n_neighbors": k}, "weights": {"reg": reg}, "eigensolver": {"n_components": m},
            }  # fmt: skip
            dimension = maximum_likelihood(found.lists.distances[:, :k])
            error = mean_interval(reconstruction_errors(found, k, reg, config.weights.rule))
            return Candidate(k, reg, dimension, error, tried(config, found.points, folder, changes), reg_reason=reason)

        candidates = [measure(k) for k in neighbors]
    chosen = choose(candidates)
    return [replace(one, chosen=one is chosen) for one in candidates]


def _reg(config: Config, found: Survey, k: int, m: int) -> tuple[float, str]:
    """A value of weights.reg for k neighbours and m coordinates, as a run with auto would choose it, and its reason.

    The config's own number stays where the rule is absolute, which has the unit of the points.
    """
    if config.weights.reg != "auto" and (config.method not in METHODS or config.weights.rule == "absolute"):
        return config.weights.reg, "set in the config"
    if config.method not in METHODS:
        return SURFACE_REG, ""
    step = max(1, BATCH_BYTES // (8 * k * (found.points.shape[1] + k)))
    n_queries = min(len(found.lists.ids), sample_points(k, found.points.shape[1]))
    parts = []
    for first in range(0, n_queries, step):
        past = min(first + step, n_queries)
        valid = found.lists.ids[first:past, :k] >= 0
        parts.append(local_variance(found.points[first:past], found.neighbors(first, past, k), valid, m))
    chosen = choose_reg(LocalVariance(*(np.concatenate(column) for column in zip(*parts, strict=True))), m)
    return chosen.reg, chosen.reason


def choose(candidates: list[Candidate]) -> Candidate | None:
    """The first that is not worse than the best one: by less than TOLERANCE, or within the interval of the difference.

    Differences are taken point by point: candidates are measured on the same points.
    """
    able = [one for one in candidates if isinstance(one.pilot, Pilot)]
    if not able:
        return None
    best = max(able, key=lambda one: float(one.scores().mean()))
    for one in able:
        difference = best.scores() - one.scores()
        half = NORMAL_QUANTILE_975 * float(difference.std(ddof=1)) / len(difference) ** 0.5
        if difference.mean() <= max(TOLERANCE, half):
            return one
    return best


def reconstruction_errors(found: Survey, k: int, reg: float, rule: str) -> Float64:
    """|x - sum_j w_j y_j|^2 over the mean of |x - y_j|^2 of each point with neighbours, in [0, 1]: (q,)."""
    n_queries, step = len(found.lists.ids), max(1, BATCH_BYTES // (8 * k * (found.points.shape[1] + k)))
    out = np.empty(n_queries)
    for first in range(0, n_queries, step):
        past = min(first + step, n_queries)
        valid = found.lists.ids[first:past, :k] >= 0
        solved = barycenter_weights(found.points[first:past], found.neighbors(first, past, k), valid, reg, rule)
        out[first:past] = solved.squared_error / np.square(found.lists.distances[first:past, :k]).mean(axis=1)
    return np.clip(out, 0.0, 1.0)


def _described(one: Candidate) -> dict[str, Any]:
    """A candidate as JSON-able data; trustworthiness and continuity are those of the points that were embedded."""
    keys = ("value", "low", "high")
    line: dict[str, Any] = {
        "n_neighbors": one.n_neighbors, "reg": one.reg, "chosen": one.chosen, "dimension": one.dimension._asdict(),
        "error": dict(zip(keys, one.error, strict=True)),
    }  # fmt: skip
    if isinstance(one.pilot, str):
        return {**line, "failed": one.pilot}
    inside = one.pilot.in_largest
    return {
        **line, "n_components_weak": one.pilot.n_components_weak, "closed_classes": one.pilot.closed_classes,
        "in_largest": float(inside.mean()),
        "trustworthiness": dict(zip(keys, mean_interval(one.pilot.trustworthiness[inside]), strict=True)),
        "continuity": dict(zip(keys, mean_interval(one.pilot.continuity[inside]), strict=True)),
    }  # fmt: skip


def _reasons(
    config: Config, likely: Dimension, nearest: Dimension, m: int, candidates: list[Candidate], stretch: float
) -> list[str]:
    said = [
        f"n_components {m}: {likely.value:.2f} ({likely.low:.2f} to {likely.high:.2f}) by maximum likelihood at the "
        f"scale of {config.neighbors.n_neighbors} neighbours, rounded"
    ]
    if abs(likely.value - nearest.value) > 0.5:
        said.append(
            f"the dimension depends on the scale: it is {nearest.value:.2f} at the two nearest neighbours. Higher "
            f"there means noise, lower means curvature or clusters farther out"
        )
    if likely.value > 6:
        said.append("above six or so both estimators fall short of the dimension, boundaries and few points being why")
    best = next((one for one in candidates if one.chosen), None)
    if best is None:
        return said if config.method == "pca" else [*said, "no candidate could embed the sample; see the table"]
    said.append(
        f"n_neighbors {best.n_neighbors}: the smallest whose mean of trustworthiness and continuity is not below the "
        f"best, by {TOLERANCE} or the interval of the difference; points outside the largest component count 0"
    )
    if config.varies:
        said.append(
            f"neighbors.{config.neighbors.rule or 'precomputed'} decides how many neighbours each point has and stays "
            f"as it is; the candidates were tried with n_neighbors for every point, so none of these is suggested"
        )
    if config.method in METHODS:
        said.append(f"reg {best.reg:g}: {best.reg_reason}")
    if stretch > 1.05:
        said.append(
            f"parts, closed, trustworthiness and continuity are those of the sample embedded by itself, where "
            f"neighbours are about {stretch:.1f} times as far as among all rows; the run counts its own"
        )
    return said

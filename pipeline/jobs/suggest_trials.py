"""Trials of `lle suggest`: one sample in memory, embedded with many settings and measured in the same way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..config.models import Config
from ..config.neighbors import reverse_neighbors
from ..core.arrays import Float64, Int64
from ..core.errors import LleError
from ..core.methods import CLUMP_SHARE
from ..kernels.embed_in_memory import embed_in_memory, repaired_lists
from ..kernels.factors.choose_reg import FAILED, Quality, RegChoice, choose_by_trial, reg_of_lists
from ..kernels.neighbors.knn import NeighborLists, exact_neighbors
from ..kernels.quality.intervals import mean_interval, pair_interval
from ..kernels.quality.locality import hit_of_random_neighbors, shares_within_radius
from ..kernels.quality.sample_quality import SampleQuality, Scores
from ..kernels.quality.trustworthiness import participation
from ..kernels.trial_embedding import few_dimensions, joined_lists, largest_component, largest_trial
from ..report.bounds import CROWDED, LOW_TRUSTWORTHINESS, min_hit

MEASURED_POINTS = 500
"""At least this number of points is measured; a suggestion has many more trials than a choice of reg."""

COMPARED_NEIGHBORS = 12
"""Number of neighbours that the measures compare; the same for all trials, so that their values are comparable."""


class Lost(NamedTuple):
    """A measure of an embedding below the bound of the report."""

    measure: str
    value: float
    bound: float


@dataclass(frozen=True)
class Trial:
    """Settings and measures of an embedding of the sample; `scores` is None and `error` a message if it failed."""

    method: str
    n_neighbors: int
    n_components: int
    reg: float | None
    """None for methods without reg."""
    scores: Scores | None
    in_largest: float = 0.0
    """Share of the sample that is embedded: the largest component of the trial's graph, or all of it by pca."""
    error: str = ""
    participation: float = 1.0
    """Least share of the embedded points on which a coordinate is concentrated."""
    is_crowded: bool = False
    """Whether many of the embedded points are at few places."""
    quality: Quality = FAILED
    """The measures by which `weights.reg: auto` chooses."""
    lost: Lost | None = None
    """What a run would warn that the embedding has lost."""

    @property
    def name(self) -> str:
        """Method and settings in words."""
        about = f" with {self.n_neighbors} neighbours" * (self.method != "pca")
        return self.method + about + ("" if self.reg is None else f" and reg {self.reg:g}")

    @property
    def hit(self) -> float:
        """Mean neighbourhood hit; 0 without labels or for a failed trial."""
        return 0.0 if self.scores is None else self.scores.mean_hit()

    @property
    def warning(self) -> str:
        """What a run with this embedding would warn of; "" for nothing. Of pca only lost neighbours count."""
        reasons = []
        if self.participation < CLUMP_SHARE and self.method != "pca":
            reasons.append("a coordinate of it only separates few points")
        if self.is_crowded and self.method != "pca":
            reasons.append("it shows many points at few places")
        if self.lost is not None:
            measure, value, bound = self.lost
            of_neighbors = f" of {self.n_neighbors} neighbours" * (measure == "neighbourhood hit")
            reasons.append(f"it loses neighbours ({measure}{of_neighbors} {value:.3f}, bound {bound:.3g})")
        return ", and ".join(reasons)

    @property
    def score(self) -> float:
        """Mean of all measures; 0 for a failed trial."""
        return 0.0 if self.scores is None else float(self.scores.mean().mean())

    def as_json(self, chosen: bool) -> dict[str, object]:
        """Settings, and the mean of each measure with its 95 % interval."""
        line: dict[str, object] = {
            "method": self.method,
            "n_neighbors": self.n_neighbors,
            "n_components": self.n_components,
            "reg": self.reg,
            "chosen": chosen,
        }
        if self.scores is None:
            return {**line, "failed": self.error}
        measures = {**self.scores._asdict(), "score": self.scores.mean()}
        return {**line, "in_largest": self.in_largest} | {
            name: dict(zip(("value", "low", "high"), mean_interval(values[np.isfinite(values)]), strict=True))
            for name, values in measures.items()
            if values is not None and np.isfinite(values).any()
        }


class Trials:
    """Embeds points of a sample (s, d), `inside`, and measures the result; calls `watch` with a text before each trial.

    `n_distinct`: points of a run; its choice of reg tries other values if its trial embeds all of them.
    """

    def __init__(
        self,
        sample: Float64,
        inside: Int64,
        labels: Float64 | None,
        config: Config,
        max_neighbors: int,
        n_distinct: float,
        watch: Callable[[str], None],
    ) -> None:
        self._sample, self._inside = sample, inside
        self.points, self._config, self._n_distinct, self._watch = sample[inside], config, n_distinct, watch
        self._done: dict[tuple[str, int, int, float | None], Trial] = {}
        every = np.arange(len(inside))
        self.lists = exact_neighbors(self.points, every, self.points, every, max_neighbors)
        labels = None if labels is None else labels[inside]
        self.quality = SampleQuality(self.points, COMPARED_NEIGHBORS, MEASURED_POINTS, labels)
        self._graphs: dict[tuple[int, int | None], tuple[Int64, Int64]] = {}

    def run(self, method: str, n_neighbors: int, n_components: int, reg: float | None) -> Trial:
        """Embed the sample and measure the embedding."""
        key = method, n_neighbors, n_components, reg
        if key not in self._done:
            about = "" if reg is None else f", reg {reg:g}"
            self._watch(f"trial {len(self._done) + 1}: {method} with {n_neighbors} neighbours{about}")
            self._done[key] = self._new_trial(method, n_neighbors, n_components, reg)
        return self._done[key]

    def _new_trial(self, method: str, n_neighbors: int, n_components: int, reg: float | None) -> Trial:
        try:
            embedding = self.embedding(method, n_neighbors, n_components, reg)
        except (LleError, np.linalg.LinAlgError) as error:
            return Trial(method, n_neighbors, n_components, reg, None, error=str(error).splitlines()[0])
        inside, scores = embedding[np.isfinite(embedding[:, 0])], self.quality.measure(embedding)
        return Trial(
            method,
            n_neighbors,
            n_components,
            reg,
            scores,
            1.0 if method == "pca" else len(inside) / len(self._sample),
            participation=float(participation(inside).min()) / len(inside),
            is_crowded=pair_interval(shares_within_radius(inside))[1] > CROWDED,
            quality=Quality(*self.quality.trustworthiness_and_kept(embedding)),
            lost=self._lost(scores, embedding, n_neighbors),
        )

    def done(self) -> list[Trial]:
        """All trials, by method, coordinates, neighbours and reg; methods in the order of their first trial."""
        methods = list(dict.fromkeys(method for method, *_ in self._done))
        return sorted(
            self._done.values(),
            key=lambda one: (methods.index(one.method), one.n_components, one.n_neighbors, one.reg or 0),
        )

    def embedding(self, method: str, n_neighbors: int, n_components: int, reg: float | None) -> Float64:
        """Coordinates (i, m) of the points inside; NaN outside of the largest component, except with `connect` or pca.

        The lowest ones: with a choice of independent ones a suggestion for digits took five times as long.
        Raises LleError and LinAlgError.
        """
        rule, reverse = self._config.weights.rule, self._config.neighbors.reverse
        if method == "pca":
            return embed_in_memory(method, self._sample, self.lists.ids, n_components, 1.0, rule)[self._inside]
        inside, ids = self._graph(n_neighbors, reverse_neighbors(reverse, method, n_components, n_neighbors))
        coordinates = np.full((len(self.points), n_components), np.nan)
        coordinates[inside] = embed_in_memory(method, self.points[inside], ids, n_components, reg or 1.0, rule)
        return coordinates

    def scores_by_components(self, embedding: Float64) -> Float64:
        """Mean of trustworthiness and continuity of the first 1, ..., m coordinates of an embedding (n, m): (m,)."""
        scores = [self.quality.measure(embedding[:, : m + 1]) for m in range(embedding.shape[1])]
        return np.array([(one.trustworthiness.mean() + one.continuity.mean()) / 2 for one in scores])

    def _lost(self, scores: Scores, embedding: Float64, n_neighbors: int) -> Lost | None:
        """Whether trustworthiness or neighbourhood hit is below the bound of the report; a run counts n_neighbors."""
        trust = float(scores.trustworthiness.mean())
        if trust < LOW_TRUSTWORTHINESS:
            return Lost("trustworthiness", trust, LOW_TRUSTWORTHINESS)
        before, after = self.quality.hit(n_neighbors), self.quality.hit(n_neighbors, embedding)
        if before is None or after is None or self.quality.labels is None or np.isnan(before).all():
            return None
        hit = 0.0 if np.isnan(after).all() else float(np.nanmean(after))
        value, low, _ = mean_interval(before[np.isfinite(before)])
        bound = min_hit(value, low, hit_of_random_neighbors(self.quality.labels))
        return Lost("neighbourhood hit", hit, bound) if hit < bound else None

    def local_reg(self, n_neighbors: int, n_components: int) -> RegChoice:
        """The choice of reg from neighbourhoods of the sample, whose embeddings are measured."""
        return reg_of_lists(self.points, self.points, self.lists.ids[:, :n_neighbors], n_components)

    def choose_reg(self, n_neighbors: int, n_components: int) -> RegChoice:
        """The choice of `weights.reg: auto` for lle, as ``trial_embedding.reg_by_trial`` of the sample alone."""

        def quality(reg: float) -> Quality:
            return self.run("lle", n_neighbors, n_components, reg).quality

        local = self.local_reg(n_neighbors, n_components)
        is_whole = self._n_distinct <= largest_trial(self.points.shape[1], few_dimensions(local))
        return choose_by_trial(local, None, quality, len(self.points), is_whole)

    def _graph(self, n_neighbors: int, reverse: int | None) -> tuple[Int64, Int64]:
        """The largest component of the sample's graph: its points, and their lists after the repair of a run.

        All points if a run joins the components.
        """
        key = n_neighbors, reverse
        if key not in self._graphs:
            nearest = NeighborLists(self.lists.ids[:, :n_neighbors], self.lists.distances[:, :n_neighbors])
            if self._config.graph.components == "connect":
                nearest = joined_lists(self.points, nearest)
            inside, lists = largest_component(nearest)
            self._graphs[key] = inside, repaired_lists(lists, len(inside), reverse)
        return self._graphs[key]

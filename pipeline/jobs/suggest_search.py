"""The search of `lle suggest`: n_components from the sample, then trials of the config's method and of the others."""

from collections.abc import Callable

import numpy as np

from ..config.models import Config
from ..core.arrays import Float64
from ..core.errors import LleError, counted
from ..core.methods import METHODS
from ..kernels.factors.choose_reg import SURFACE_REG, RegChoice
from ..kernels.quality.intervals import NORMAL_QUANTILE_975
from ..kernels.quality.intrinsic_dimension import Dimension
from .suggest_sample import NeighborSample, pieces
from .suggest_trials import Trial, Trials

Watch = Callable[[str], None]

NEIGHBORS = (6, 8, 10, 12, 16, 20, 30, 40)

OTHER_NEIGHBORS, OTHER_TRIALS = (12, 20, 30, 40), 2
"""A method that is not the config's is tried with the first OTHER_TRIALS of these numbers that it can use."""

WORSE_TRIALS = 2
"""The search upwards, or downwards, ends after this number of trials in a row that do not raise the best score."""

FAR_START = 30
"""For lle, a second search begins with this number: the best reg for few neighbours can hide that more are better."""

MIN_COMPONENTS, MAX_COMPONENTS = 2, 10
"""Bounds of n_components. One coordinate is suggested only for a curve: if it alone has 1 - SAME_QUALITY."""

SAME_QUALITY = 0.01
"""n_components is the smallest number whose mean of trustworthiness and continuity is at most this far below the best.
"""

TOLERANCE = 0.001
"""Differences of the score up to this do not decide between numbers of neighbours."""

WORTH_ANOTHER_METHOD = 0.01
"""Another method than the config's, or than a simpler one, is suggested only if its score is higher by more than this.
"""

SIMPLEST_FIRST = ("pca", "lle", "laplacian", "modified", "ltsa", "hessian")
"""Local fits of high order separate single points: the last methods more often than the first. A small sample does not
show it, because it has few outliers."""

TRIAL_NUMBERS, MIN_TRIAL_POINTS, MAX_TRIAL_POINTS = 2**18, 1000, 5000
"""The trials embed as many points as have TRIAL_NUMBERS values (points times features), within bounds."""


def choose(trials: list[Trial]) -> Trial | None:
    """The first trial whose score is below the best by at most TOLERANCE or the 95 % interval of the difference.

    Differences are taken point by point, because all trials are measured at the same points.
    """
    measured = [(trial, trial.scores.mean()) for trial in trials if trial.scores is not None]
    if not measured:
        return None
    best_scores = max((scores for _, scores in measured), key=lambda scores: float(scores.mean()))
    return next(trial for trial, scores in measured if not _is_better(best_scores, scores, TOLERANCE))


def _is_better(scores: Float64, others: Float64, least: float) -> bool:
    """Whether the mean difference of scores at the same points is above `least` and its 95 % interval above 0."""
    difference = scores - others
    half_width = NORMAL_QUANTILE_975 * float(difference.std(ddof=1)) / len(difference) ** 0.5
    return bool(difference.mean() > max(least, half_width))


def best_method(own: Trial | None, others: list[Trial]) -> Trial | None:
    """The trial of the config's method, or of another one whose score is higher by WORTH_ANOTHER_METHOD.

    A method needs the same margin to a simpler one. A trial that a run would warn of replaces none without a warning,
    and is replaced by one without whose score is not lower by this margin.
    """
    trials = [*([] if own is None else [own]), *sorted(others, key=lambda trial: SIMPLEST_FIRST.index(trial.method))]
    measured = [(trial, trial.scores.mean()) for trial in trials if trial.scores is not None]
    if not measured:
        return None
    best, best_scores = measured[0]
    for trial, scores in measured[1:]:
        if best.warning and not trial.warning:
            is_chosen = not _is_better(best_scores, scores, WORTH_ANOTHER_METHOD)
        else:
            may_replace = bool(best.warning) or not trial.warning
            is_chosen = may_replace and _is_better(scores, best_scores, WORTH_ANOTHER_METHOD)
        if is_chosen:
            best, best_scores = trial, scores
    return best


def _trial_points(n_features: int) -> int:
    """Number of sampled points that the trials embed.

    >>> _trial_points(3), _trial_points(128), _trial_points(784)
    (5000, 2048, 1000)
    """
    return max(MIN_TRIAL_POINTS, min(MAX_TRIAL_POINTS, TRIAL_NUMBERS // n_features))


def _measured_scores(scores: Float64, chosen: int, name: str) -> str:
    """What was measured with 1, ..., m coordinates of the named trial, and what follows for the chosen number.

    >>> _measured_scores(np.array([0.9, 0.96, 0.965]), 2, "lle with 12 neighbours")  # doctest: +NORMALIZE_WHITESPACE
    'the mean of trustworthiness and continuity of lle with 12 neighbours is 0.900, 0.960, 0.965 with 1 to 3
    coordinates: more than 2 raise it by at most 0.005'
    """
    values, m = ", ".join(f"{value:.3f}" for value in scores), len(scores)
    if chosen < m:
        follows = f"more than {chosen} raise it by at most {max(scores.max() - scores[chosen - 1], 0.0):.3f}"
    else:
        follows = f"fewer than {m} lower it by {max(scores[-1] - scores[:-1].max(), 0.0):.3f} or more"
    return f"the mean of trustworthiness and continuity of {name} is {values} with 1 to {m} coordinates: {follows}"


class Search:
    """The trials for a config, and what follows from them.

    A run embeds each piece of the neighbour graph on its own, so trials use the largest piece of the sample. Those of
    pca use all of it, as a run does. All are measured within the largest piece, so that they are comparable. If a run
    joins the pieces, the trials do so too, and use all points.
    """

    def __init__(self, config: Config, sample: NeighborSample, likely: Dimension, n_others: int, watch: Watch) -> None:
        self.config, self.sample, self.likely = config, sample, likely
        own, n_tried = config.neighbors.n_neighbors, _trial_points(sample.points.shape[1])
        self.most_points = n_tried
        """Points that the trials embed of a larger sample."""
        searched = sample.points[: max(n_tried, len(sample.lists.ids))].astype(np.float64)
        points = searched[:n_tried]
        self.n_sampled = len(points)
        self.n_pieces, inside, fewest = pieces(searched, n_tried, own, sample.n_distinct)
        if config.graph.components == "connect":
            inside, fewest = np.arange(len(points)), 1
        most_tried = min(max(*NEIGHBORS, own), len(inside) - 1)
        self.trials = Trials(points, inside, sample.labels, config, most_tried, sample.n_distinct, watch)
        self.max_neighbors = min(n_others, len(inside) // 4)
        self.min_neighbors = fewest if own <= self.max_neighbors else 1
        """With fewer neighbours the graph falls into more pieces than that of the config."""
        self.reg_reasons: dict[tuple[str, int], str] = {}
        self.n_components, self.why_components = 0, ""
        self.own: Trial | None = None
        """The chosen trial of the config's method."""
        self.others: list[Trial] = []
        """The chosen trial of each other method."""
        self.chosen: Trial | None = None
        self.best_of_fewer: Trial | None = None
        """The best trial of the config's method, lle and pca with as many coordinates as the config has, if more are
        chosen."""

    def _components(self) -> tuple[int, str]:
        """n_components and the reason. Closed curves and surfaces need one coordinate more than their dimension."""
        own, likely, d = self.config.neighbors.n_neighbors, self.likely, self.sample.points.shape[1]
        dimension = max(round(likely.value), 1)
        # fewer than features, since as many reduce nothing, but two for two features
        largest = min(own - 1, max(d - 1, min(d, MIN_COMPONENTS)), len(self.trials.points) - 2, MAX_COMPONENTS)
        m = min(dimension + 1, largest)
        about = f"the dimension is {likely.value:.2f} ({likely.low:.2f} to {likely.high:.2f}) by maximum likelihood"
        if dimension >= d:
            about += f", and {counted(d, 'coordinate')} of {counted(d, 'feature')} reduce nothing"
        try:
            embedding = self.trials.embedding("lle", own, m, self._local_reg(own, m).reg)
            scores = self.trials.scores_by_components(embedding)
        except (LleError, np.linalg.LinAlgError):
            return min(dimension, m), f"{about} at the scale of {own} neighbours, rounded"
        least = 1 if scores[0] >= 1 - SAME_QUALITY else min(m, MIN_COMPONENTS)
        chosen = max(least, int(np.flatnonzero(scores >= scores.max() - SAME_QUALITY)[0]) + 1)
        return chosen, f"{_measured_scores(scores, chosen, f'lle with {own} neighbours')}; {about}"

    def run(self) -> None:
        """Choose n_components, then try the config's method and the other methods, and choose a trial."""
        self.n_components, self.why_components = self._components()
        own, k = self.config.method, self.config.neighbors.n_neighbors
        sizes = [size for size in sorted({*NEIGHBORS, k}) if self._usable(own, size)]
        if own == "pca":
            self.own = self._run(own, k, None)
        elif sizes:
            start = k if k in sizes else sizes[0]
            far = [size for size in sizes if size == FAR_START != start] if own == "lle" else []
            self.own = self._search_from(own, sizes, [start, *far])
        self.others = self._other_methods()
        self.chosen = best_method(self.own, self.others)
        self._try_more_components()
        m = self.config.eigensolver.n_components
        if m < self.n_components:
            tried = [
                one for one in (self.own, *self.others) if one and (one is self.own or one.method in ("lle", "pca"))
            ]
            again = [self.trials.run(one.method, one.n_neighbors, m, one.reg) for one in tried]
            self.best_of_fewer = best_method(None, again)

    def _try_more_components(self) -> None:
        """Try pca with more coordinates if it is best, for a curve, or if a run would warn of the best trial.

        The number of coordinates was chosen by lle, which often keeps no more neighbours with more of them. It becomes
        the smallest number with the quality of all, and if possible one of which a run would not warn.
        """
        chosen, k, d = self.chosen, self.config.neighbors.n_neighbors, self.sample.points.shape[1]
        most = min(max(MAX_COMPONENTS, round(self.likely.value)), d - 1, len(self.trials.points) - 2)
        of_pca = next((trial for trial in self.trials.done() if trial.method == "pca"), None)
        if chosen is None or of_pca is None or most <= self.n_components:
            return
        loses_by_warning = bool(of_pca.warning) and of_pca.score >= chosen.score
        is_tried = chosen.method == "pca" or loses_by_warning or chosen.warning or self.n_components < MIN_COMPONENTS
        if not is_tried:
            return
        scores = self.trials.scores_by_components(self.trials.embedding("pca", k, most, None))
        m = max(int(np.flatnonzero(scores >= scores.max() - SAME_QUALITY)[0]) + 1, MIN_COMPONENTS)
        tried = [self.trials.run("pca", k, m, None)]
        while tried[-1].warning and tried[-1].n_components < most:
            tried.append(self.trials.run("pca", k, tried[-1].n_components + 1, None))
        trial = tried[0] if tried[-1].warning else tried[-1]
        if (m := trial.n_components) > self.n_components and best_method(chosen, [trial]) is trial:
            if self.config.method == "pca":
                self.own = trial
            self.chosen, self.n_components = trial, m
            self.why_components = _measured_scores(scores, m, "pca")
            if trial is not tried[0]:
                self.why_components += f". A run with fewer would warn: {tried[-2].warning}"

    def _search_from(self, method: str, sizes: list[int], starts: list[int]) -> Trial | None:
        """The best of the chosen trials of searches that begin with each of `starts` and its reg; for lle, the reg is
        chosen again at the end."""
        found = list[Trial | None]()
        for start in starts:
            trial = self._search_neighbors(method, sizes, start, self._reg(method, start))
            if trial is not None and method == "lle":
                trial = self._run(method, trial.n_neighbors, self._reg(method, trial.n_neighbors))
            found.append(trial)
        return choose([trial for trial in found if trial is not None])

    def _search_neighbors(self, method: str, sizes: list[int], start: int, reg: float | None) -> Trial | None:
        """The chosen trial of a method, from numbers of neighbours around `start`."""
        position = sizes.index(start)
        trials = {start: self._run(method, start, reg)}
        for direction in (sizes[position + 1 :], sizes[:position][::-1]):
            n_worse = 0
            for size in direction:
                best = max(trial.score for trial in trials.values())
                trials[size] = self._run(method, size, self._same_reg(method, size, reg))
                n_worse = n_worse + 1 if trials[size].score <= best else 0
                if n_worse == WORSE_TRIALS:
                    break
        return choose([trials[size] for size in sorted(trials)])

    def _other_methods(self) -> list[Trial]:
        """The chosen trial of each other method."""
        best: list[Trial | None] = []
        for method in METHODS:
            if method == self.config.method or self.config.eigensolver.method == "factored":
                continue
            sizes = [size for size in OTHER_NEIGHBORS if self._usable(method, size)][:OTHER_TRIALS]
            if method == "pca":
                best.append(self._run(method, self.config.neighbors.n_neighbors, None))
            elif sizes:
                reg = self._reg(method, sizes[0])
                best.append(choose([self._run(method, size, self._same_reg(method, size, reg)) for size in sizes]))
        return [trial for trial in best if trial is not None]

    def _same_reg(self, method: str, n_neighbors: int, reg: float | None) -> float | None:
        """For lle `reg`, the value of its first trials, to save trials; else the value for this n_neighbors."""
        return reg if method == "lle" else self._reg(method, n_neighbors)

    def _usable(self, method: str, n_neighbors: int) -> bool:
        least = METHODS[method].min_neighbors(self.n_components), self.n_components + 1, self.min_neighbors
        return max(least) <= n_neighbors <= self.max_neighbors

    def _run(self, method: str, n_neighbors: int, reg: float | None) -> Trial:
        return self.trials.run(method, n_neighbors, self.n_components, reg)

    def _reg(self, method: str, n_neighbors: int) -> float | None:
        """The weights.reg that a run of the sample with auto would choose; for lle it needs trials. None for methods
        without reg.

        If weights.rule is absolute, the number in the config is used, because reg then has the unit of the points.
        """
        if not METHODS[method].has_reg:
            return None
        is_given = self.config.weights.rule == "absolute"
        if method == "lle" and not is_given:
            choice = self.trials.choose_reg(n_neighbors, self.n_components)
        else:
            choice = self._local_reg(n_neighbors, self.n_components)
        self.reg_reasons[method, n_neighbors] = "set in the config" if is_given else choice.reason
        return choice.reg

    def _local_reg(self, k: int, m: int) -> RegChoice:
        """The choice from neighbourhoods of k points of the sample."""
        weights = self.config.weights
        if weights.rule == "absolute":
            return RegChoice(SURFACE_REG if weights.reg == "auto" else weights.reg, 0.0, 0.0, m, 0)
        return self.trials.local_reg(k, m)

    def suggested(self) -> dict[str, object]:
        """Config keys and their values."""
        values: dict[str, object] = {"eigensolver.n_components": self.n_components}
        if self.chosen is None:
            return values
        values = {"method": self.chosen.method, **values}
        if not self.config.varies and self.chosen.method != "pca":
            values["neighbors.n_neighbors"] = self.chosen.n_neighbors
        if self.chosen.reg is None:
            return values
        # A run repeats the choice among all points, so a number from the sample could be worse.
        return values | {"weights.reg": self.chosen.reg if self.config.weights.rule == "absolute" else "auto"}

"""Trials with a sample of the points: it is embedded with several settings, and every embedding is measured.

`weights.reg: auto` and `lle suggest` use them. The variances of neighbourhoods (``factors.choose_reg``) measure the
noise, but not its effect on an embedding: a noisy sphere needs a larger `reg` than a Swiss roll with the same noise.
Daza-Santacoloma et al. 2010 (Neurocomputing 73) choose `reg` by the quality of the result as well.
"""

import numpy as np
import numpy.typing as npt

from ..core.errors import InputError, LleError
from .embed_in_memory import embed_in_memory, repaired_lists
from .factors.choose_reg import NOISY_NOISE, RegChoice, Tried, choose_by_trial
from .graph.connectivity import neighbor_graph, weak_components
from .neighbors.knn import NeighborLists, exact_neighbors
from .quality.sample_quality import SampleQuality

COMPARED_NEIGHBORS = 12
"""Number of neighbours that the measures compare; the same for all trials, so that their values are comparable."""

MEASURED_POINTS = 500
"""At least this number of points is measured, up to 999 points all of them: the mean has a standard error of 0.003."""

FEWEST_POINTS, NOISY_POINTS, TRIAL_POINTS = 1000, 500, 4000
"""A trial for `reg` embeds an eighth of the points: at least FEWEST_POINTS, at most TRIAL_POINTS. With much noise it
embeds a quarter of these, at least NOISY_POINTS: the work grows faster with the number of points then, and few points
show the same differences. Measured with tests/benchmarks/reg_choice.py."""

TRIAL_WORK = 4 * 10**9
"""Bound on n^2 d, the work of the exact search among n points with d features."""

CONNECTED = 0.95
"""Least share of the points that a graph must connect to be embedded."""

Float64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def largest_trial(n_features: int) -> int:
    """Largest number of points of a trial.

    >>> largest_trial(3), largest_trial(784), largest_trial(10**6)
    (4000, 2258, 63)
    """
    return int(min(TRIAL_POINTS, (TRIAL_WORK / n_features) ** 0.5))


def trial_points(n_points: int, n_features: int) -> int:
    """Points that are sampled for a trial of `reg`.

    >>> [trial_points(n, 3) for n in (900, 5000, 12000, 10**6)]
    [900, 1000, 1500, 4000]
    """
    return min(n_points, largest_trial(n_features), max(FEWEST_POINTS, n_points // 8))


class Trials:
    """Embeddings of the largest component of a sample (s, d), all measured in the same way."""

    def __init__(
        self, points: Float64, n_neighbors: int, rule: str, labels: Float64 | None = None, most_neighbors: int = 0
    ) -> None:
        """n_neighbors decides the component; most_neighbors is the largest number that is tried, if it is larger."""
        lists = _exact_lists(points, max(n_neighbors, most_neighbors))
        inside = largest_component(_nearest_of(lists, n_neighbors))
        self.share = len(inside) / len(points)
        """Share of the sample in the component."""
        if len(inside) < len(points):
            points, labels = points[inside], None if labels is None else labels[inside]
            lists = _exact_lists(points, max(n_neighbors, most_neighbors))
        self.points, self.labels = points, labels
        self._lists, self._rule = lists, rule
        self.quality = SampleQuality(points, COMPARED_NEIGHBORS, MEASURED_POINTS, labels)
        self._graphs: dict[tuple[int, int | None], tuple[Ids, Ids]] = {}

    def embedding(self, method: str, n_neighbors: int, n_components: int, reg: float, reverse: int | None) -> Float64:
        """Coordinates (n, m); NaN outside of the largest component of the graph, which pca does not need.

        `reverse` is the number of reverse neighbours as in ``plan_repair``. Raises LleError and LinAlgError.
        """
        if method == "pca":
            return embed_in_memory(method, self.points, self._lists.ids, n_components, reg, self._rule)
        inside, ids = self._graph(n_neighbors, reverse)
        coordinates = np.full((len(self.points), n_components), np.nan)
        coordinates[inside] = embed_in_memory(method, self.points[inside], ids, n_components, reg, self._rule)
        return coordinates

    def _graph(self, n_neighbors: int, reverse: int | None) -> tuple[Ids, Ids]:
        """The largest component of the graph: its points, and their lists after the repair of a run."""
        key = n_neighbors, reverse
        if key not in self._graphs:
            nearest = _nearest_of(self._lists, n_neighbors)
            inside = largest_component(nearest)
            if len(inside) < CONNECTED * len(self.points):
                raise InputError(f"{n_neighbors} neighbours connect only {len(inside) / len(self.points):.0%} of them")
            lists = NeighborLists(np.searchsorted(inside, nearest.ids[inside]), nearest.distances[inside])
            self._graphs[key] = inside, repaired_lists(lists, len(inside), reverse)
        return self._graphs[key]


def reg_by_trial(
    points: Float64,
    n_points: int,
    local: RegChoice,
    method: str,
    k: int,
    n_components: int,
    rule: str,
    reverse: int | None,
) -> RegChoice:
    """`reg` for all points by a trial with a sample (s, d) of them; the reason tells if no trial was possible.

    Args:
        points: (s, d) sampled points, ``trial_points`` of them.
        n_points: number of all points.
        local: the choice from the neighbourhoods of sampled points among all points.
        method: lle or modified.
        k: `neighbors.n_neighbors`.
        n_components: coordinates of the embedding.
        rule: `weights.rule`, see ``barycenter_weights``.
        reverse: reverse neighbours, as in ``plan_repair``.
    """
    fewest = 4 * max(k, n_components)
    if len(points) < fewest:
        return _without_trial(local, f"{len(points)} points are too few, {fewest} are needed")
    few = min(len(points), max(NOISY_POINTS, len(points) // 4)) if local.noise >= NOISY_NOISE else len(points)
    for step in (len(points) // few, 1):
        trials = Trials(points[::step], k, rule)
        if len(trials.points) >= max(fewest, few // 2):  # fewer sampled points fall into more components
            break
    if len(trials.points) < fewest:
        found = f"the largest component of {len(points):,} sampled points has {len(trials.points)}"
        return _without_trial(local, f"{found}, {fewest} are needed")

    def measure(reg: float) -> Tried:
        try:
            values = trials.quality.near_and_kept(trials.embedding(method, k, n_components, reg, reverse))
        except (LleError, np.linalg.LinAlgError):
            return Tried(np.nan, np.nan)
        return Tried(*(float(value.mean()) for value in values))

    return choose_by_trial(local, measure, n_points, len(trials.points))


def _without_trial(local: RegChoice, cause: str) -> RegChoice:
    return local._replace(reason=f"{local.reason}; no trial: {cause}")


def _exact_lists(points: Float64, k: int) -> NeighborLists:
    every = np.arange(len(points))
    return exact_neighbors(points, every, points, every, min(k, len(points) - 1))


def _nearest_of(lists: NeighborLists, k: int) -> NeighborLists:
    return NeighborLists(lists.ids[:, :k], lists.distances[:, :k])


def largest_component(lists: NeighborLists) -> Ids:
    """The points of the largest weak component of a graph, ascending."""
    _, component = weak_components(neighbor_graph(lists.ids))  # component 0 is the largest
    return np.flatnonzero(component == 0)

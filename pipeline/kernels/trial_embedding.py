"""Choose `reg` by trial: a sample of the points is embedded with several values, and the best one is taken.

The variances of neighbourhoods (``factors.choose_reg``) show how much noise there is, but not how much an embedding
suffers from it: a noisy sphere needs a larger `reg` than a Swiss roll with the same noise. Daza-Santacoloma et al. 2010
(Neurocomputing 73) choose `reg` by the quality of the result as well. A sample has larger neighbourhoods than all
points, so the trial counts only if its neighbourhoods have the same noise.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..core.errors import LleError
from .eigensolver.solve import bottom_eigenpairs
from .factors.choose_reg import (
    TRIAL_REGS,
    LocalVariance,
    RegChoice,
    choose_by_trial,
    choose_reg,
    local_variance,
    same_neighborhoods,
    sufficient_quality,
)
from .factors.cost_matrix import local_factor
from .factors.lle_weights import barycenter_weights
from .graph.connectivity import Edges, neighbor_graph, weak_components
from .graph.repair import apply_repair, plan_repair
from .neighbors.knn import NeighborLists, brute_neighbors, kdtree_neighbors
from .quality.trustworthiness import count_closer, neighbor_thresholds, trustworthiness

TREE_FEATURES = 8
"""Up to this number of features a k-d tree finds neighbours faster than a matrix product; does not affect results."""

JUDGED_POINTS = 500
"""Points whose neighbours are compared: the standard error of the mean is then about 0.003."""

TRIAL_POINTS = 4000
"""Points of a trial at most: 0.4 processor seconds for all values in three features."""

TRIAL_WORK = 4 * 10**9
"""Bound on n^2 d, the work of the exact search among n points with d features."""

LEAST_POINTS = 100
"""A smaller trial shows nothing: no trial is made."""

BATCH_BYTES = 16 * 2**20
"""Coordinates of neighbours in memory at one time; does not affect results."""

TOL = 1e-4
MAX_BYTES = 2**31

Float64 = npt.NDArray[np.float64]


def trial_points(n_features: int) -> int:
    """Points of a trial.

    >>> trial_points(3), trial_points(784), trial_points(10**6)
    (4000, 2258, 63)
    """
    return int(min(TRIAL_POINTS, (TRIAL_WORK / n_features) ** 0.5))


def reg_by_trial(points: Float64, local: RegChoice, k: int, n_components: int, rule: str) -> RegChoice:
    """`reg` for all points by a trial with a sample (n, d) of them, or `local` if the trial cannot show it.

    Args:
        points: (n, d) sampled points, at most ``trial_points``.
        local: the choice from the neighbourhoods of the sampled points among all points.
        k: `neighbors.n_neighbors`.
        n_components: coordinates of the embedding.
        rule: `weights.rule`, see ``barycenter_weights``.
    """
    if len(points) < max(LEAST_POINTS, 4 * k, 4 * n_components):
        return local
    inside, lists = _trial_lists(points, k)
    if len(inside) < max(LEAST_POINTS, 4 * k, 4 * n_components):
        return local
    component = points[inside]
    parts = [
        local_variance(component[part], component[lists.ids[part]], lists.ids[part] >= 0, n_components)
        for part in _batches(len(inside), k, points.shape[1])
    ]
    variance = LocalVariance(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    sample = choose_reg(variance, n_components)
    if not same_neighborhoods(local, sample):
        return local
    quality = trial_trustworthiness(component, lists, TRIAL_REGS, rule, n_components, sufficient_quality(local))
    return choose_by_trial(local, sample, quality, len(inside))


def _trial_lists(points: Float64, k: int) -> tuple[npt.NDArray[np.int64], NeighborLists]:
    """The largest weak component of the k-nearest-neighbour graph of (n, d) points: (ids in it, its neighbour lists).

    The lists count the points of the component from 0.
    """
    exact = kdtree_neighbors if points.shape[1] <= TREE_FEATURES else brute_neighbors
    every = np.arange(len(points))
    lists = exact(points, every, points, every, k)
    _, component = weak_components(neighbor_graph(lists.ids))  # component 0 is the largest
    inside = np.flatnonzero(component == 0)
    return inside, NeighborLists(np.searchsorted(inside, lists.ids[inside]), lists.distances[inside])


def trial_trustworthiness(
    points: Float64, lists: NeighborLists, regs: Sequence[float], rule: str, n_components: int,
    sufficient: float = np.inf,
) -> Float64:  # fmt: skip
    """Trustworthiness of the LLE of (n, d) points with each of `regs`: (len(regs),); NaN where the solver fails.

    The values after the first `sufficient` one are not tried; they are NaN too.

    Args:
        points: (n, d), one weak component.
        lists: (n, K) neighbours, none empty; closed classes are repaired as in a run.
        regs: values of `weights.reg`.
        rule: `weights.rule`.
        n_components: coordinates, at least 1 and below n - 1.
    """
    repaired = _without_closed_classes(lists, len(points))
    values = np.full(len(regs), np.nan)
    for position, reg in enumerate(regs):
        try:
            embedding = _embed(points, repaired, reg, rule, n_components)
        except LleError:
            continue
        values[position] = _mean_trustworthiness(points, embedding, lists.ids.shape[1])
        if values[position] >= sufficient:
            break
    return values


def _without_closed_classes(lists: NeighborLists, n_points: int) -> npt.NDArray[np.int64]:
    """(n, K or more) neighbour ids of a graph with one closed class, -1 in empty slots."""
    distances = lists.distances.astype(np.float32)
    repair = plan_repair(lists.ids, distances, np.zeros(n_points, np.int32), None, np.ones(1, bool))
    added = Edges(repair.added_rows, repair.added_neighbors, repair.added_distances)
    return apply_repair(lists.ids, distances, 0, added, repair.max_neighbors)[0].astype(np.int64)


def _batches(n_points: int, k: int, n_features: int) -> list[slice]:
    step = max(1, BATCH_BYTES // (8 * k * (n_features + k)))
    return [slice(first, min(first + step, n_points)) for first in range(0, n_points, step)]


def _embed(points: Float64, ids: npt.NDArray[np.int64], reg: float, rule: str, n_components: int) -> Float64:
    weights = np.concatenate([
        barycenter_weights(points[part], points[np.maximum(ids[part], 0)], ids[part] >= 0, reg, rule).weights
        for part in _batches(len(points), ids.shape[1], points.shape[1])
    ])  # fmt: skip
    factor = local_factor(ids, weights, 0, len(points))
    return bottom_eigenpairs(
        factor, n_components, method="factored", pin=None, cost_matrix=lambda: csr_array(factor.T @ factor), tol=TOL,
        max_memory=MAX_BYTES, sigma=0.0, n_threads=1, initial=None, max_degrees=1,
    ).vectors  # fmt: skip


def _mean_trustworthiness(points: Float64, embedding: Float64, k: int) -> float:
    """Mean over JUDGED_POINTS evenly spaced points."""
    judged = np.arange(0, len(points), -(-len(points) // JUDGED_POINTS))
    near = kdtree_neighbors(embedding[judged], judged, embedding, np.arange(len(points)), k).ids
    ranks = np.concatenate([
        count_closer(points[rows], rows, points, 0, neighbor_thresholds(points[rows], points[near[part]])) + 1
        for part in _batches(len(judged), k, points.shape[1]) for rows in (judged[part],)
    ])  # fmt: skip
    return float(trustworthiness(ranks, len(points)).mean())

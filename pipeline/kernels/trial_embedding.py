"""Choose `reg` by trial: a sample of the points is embedded with several values, and the best one is taken.

The variances of neighbourhoods (``factors.choose_reg``) measure the noise, but not its effect on an embedding: a noisy
sphere needs a larger `reg` than a Swiss roll with the same noise. Daza-Santacoloma et al. 2010
(Neurocomputing 73) choose `reg` by the quality of the result as well. A sample has larger neighbourhoods than all
points. So patches of neighbouring points are embedded beside it, and no trial is made if all points have noise and the
sample has less (``choose_by_trial``).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

import numpy as np

from ..core.arrays import Float64, Int64
from ..core.errors import LleError
from .eigensolver.factorization import Analyses
from .embed_in_memory import embed_in_memory, repaired_lists
from .factors.choose_reg import FAILED, NOISY_NOISE, Quality, RegChoice, choose_by_trial, reg_of_lists
from .graph.connectivity import neighbor_graph, weak_components
from .graph.repair import apply_repair
from .graph.spanning_links import as_edges, spanning_links
from .neighbors.knn import NeighborLists, exact_neighbors
from .quality.independent import embed_independently
from .quality.sample_quality import SampleQuality

MEASURED_POINTS = 1000
"""At least this number of points is measured, up to 1,999 points all of them: a mean has a standard error of 0.002."""

TRIAL_POINTS = 4000
"""Largest number of points of a trial: 0.4 processor seconds for all values in three features."""

WHOLE_POINTS = 8000
"""Largest number of points of a trial of all points in ``few_dimensions``: 0.8 processor seconds on a surface and 3 in
four dimensions. In more dimensions the factors have more entries: a cube of eight dimensions takes 12 seconds."""

FEW_DIMENSIONS, OUTSIDE_A_DIMENSION = 4, 0.15
"""Few dimensions are about four: for each of them that the embedding lacks, up to this variance may be outside."""

SAMPLED_POINTS = 2000
"""A trial of a sample embeds a quarter of the points, but at least this number, and at most `largest_trial`.

Of 5,000 to 14,000 points, samples of a quarter and of a half gave equally good choices, and so did the mean, the median
or the best of three samples: with a small `reg` the trustworthiness varies by 0.03 between samples, and between a
sample and all points: a single link between two turns of a roll in one of them changes it."""

PATCHES, PATCH_POINTS = 6, 1000
"""Patches beside a sample, and points of each: the nearest ones of a sampled point, at the density of all points. They
show what a sample hides: rows of a time series are nearest to the rows before and after them, and rounded numbers form
a lattice."""

TRIAL_WORK = 4 * 10**9
"""Bound on n^2 d, the work of the exact search among n points with d features."""

MIN_POINTS = 100
"""With fewer points no trial of a sample or patch is made, because its result would be too uncertain."""


def few_dimensions(local: RegChoice) -> bool:
    """Neighbourhoods have few dimensions and not much noise, so that factors have few entries.

    >>> [few_dimensions(RegChoice(3e-2, noise, 0.25, 2, 900)) for noise in (0.3, 0.4)]
    [True, False]
    >>> [few_dimensions(RegChoice(3e-2, 0.0, 0.25, m, 900)) for m in (1, 2, 3, 10)]
    [True, True, False, False]
    """
    outside = OUTSIDE_A_DIMENSION * (FEW_DIMENSIONS - local.n_components)
    return local.outside < outside and local.noise < NOISY_NOISE


def largest_trial(n_features: int, is_simple: bool = False) -> int:
    """Largest number of points of a trial; `is_simple`: of all points, in ``few_dimensions``.

    >>> largest_trial(3), largest_trial(784), largest_trial(10**6), largest_trial(3, is_simple=True)
    (4000, 2258, 63, 8000)
    """
    most = WHOLE_POINTS if is_simple else TRIAL_POINTS
    return int(min(most, (TRIAL_WORK / n_features) ** 0.5))


def patch_points(n_features: int) -> int:
    """Points of a patch; 0 if they would be too few.

    >>> patch_points(3), patch_points(784), patch_points(30_000)
    (1000, 564, 0)
    """
    size = min(PATCH_POINTS, largest_trial(n_features) // 4)
    return size if size > MIN_POINTS else 0


def trial_points(n_points: int, n_features: int, is_simple: bool) -> int:
    """Points of a trial: all of them, or a sample if they are more than ``largest_trial``.

    >>> [trial_points(n, 3, is_simple=True) for n in (900, 8000, 8001, 12000, 10**6)]
    [900, 8000, 2000, 3000, 4000]
    >>> trial_points(4001, 3, is_simple=False)
    2000
    """
    if n_points <= largest_trial(n_features, is_simple):
        return n_points
    return min(largest_trial(n_features), max(SAMPLED_POINTS, n_points // 4))


def reg_by_trial(
    points: Float64,
    local: RegChoice,
    k: int,
    n_components: int,
    rule: str,
    is_whole: bool = False,
    lists: NeighborLists | None = None,
    connects: bool = False,
    n_more: int = 0,
    patches: Callable[[], Iterable[Float64]] = tuple,
) -> RegChoice:
    """`reg` for all points by a trial with a sample (n, d) of them, or that of `local` without a trial.

    Args:
        points: (n, d) sampled points, ``trial_points`` of them.
        local: the choice from the neighbourhoods of the sampled points among all points.
        k: `neighbors.n_neighbors`.
        n_components: coordinates of the embedding.
        rule: `weights.rule`, see ``barycenter_weights``.
        is_whole: `points` are all points.
        lists: the neighbours of each point among them, -1 in empty slots; None: k are searched.
        connects: pieces of the searched graph are joined (`graph.components: connect`); else the largest is embedded.
        n_more: eigenvectors among which a run replaces redundant coordinates (`embedding.coordinates: independent`), as
            a trial of all points does too; 0: it takes the first.
        patches: returns patches (s, d) of all points. The trustworthiness of the sample and the mean of theirs have the
            same weight. A patch that cannot be embedded counts as 0.
    """
    fewest = max(0 if is_whole else MIN_POINTS, 4 * k, 4 * n_components)
    inside = np.arange(len(points))
    if len(points) >= fewest:
        if lists is None:
            lists = _searched(points, k, connects)
        inside, lists = largest_component(lists)
    if len(inside) < fewest or lists is None:
        return replace(local, no_trial="few points", trial_points=len(inside))
    component = points[inside]
    sample = None if is_whole else reg_of_lists(component, component, lists.ids, n_components)
    of_sample = _trial(component, lists, k, n_components, rule, MEASURED_POINTS, n_more * is_whole)

    @cache
    def of_patches() -> list[Callable[[float], Quality]]:
        pieces = [(patch, *largest_component(_searched(patch, k, connects))) for patch in patches()]
        enough = [(patch[within], near) for patch, within, near in pieces if len(within) >= fewest]
        return [_trial(piece, near, k, n_components, rule, MEASURED_POINTS // 2) for piece, near in enough]

    def quality(reg: float) -> Quality:
        in_patches = np.nan_to_num([trial(reg) for trial in of_patches()])
        both = [of_sample(reg), in_patches.mean(axis=0)] if len(in_patches) else [of_sample(reg)]
        return Quality(*np.mean(both, axis=0).tolist())

    chosen = choose_by_trial(local, sample, quality, len(inside), is_whole, n_more > 0)
    return replace(chosen, has_patches=bool(chosen.tried and of_patches()))


def _searched(points: Float64, k: int, connects: bool) -> NeighborLists:
    every = np.arange(len(points))
    lists = exact_neighbors(points, every, points, every, k)
    return joined_lists(points, lists) if connects else lists


def _trial(
    points: Float64, lists: NeighborLists, k: int, n_components: int, rule: str, n_measured: int, n_more: int = 0
) -> Callable[[float], Quality]:
    """The quality of an embedding of the points (n, d) with a value of `reg`."""
    repaired, measured = repaired_lists(lists, len(points)), SampleQuality(points, k, n_measured)
    analyses: Analyses = {}

    def quality(reg: float) -> Quality:
        def embed(m: int) -> Float64:
            return embed_in_memory("lle", points, repaired, m, reg, rule, analyses)

        try:
            embedding = embed_independently(embed, points, n_components, n_more, k) if n_more else embed(n_components)
        except LleError:
            return FAILED
        return Quality(*measured.trustworthiness_and_kept(embedding))

    return quality


def joined_lists(points: Float64, lists: NeighborLists) -> NeighborLists:
    """The lists (n, K) with the shortest links between the components of their graph, as a run joins them."""
    _, component = weak_components(neighbor_graph(lists.ids))  # component 0 is the largest
    outside, largest = np.flatnonzero(component), np.flatnonzero(component == 0)
    nearest = exact_neighbors(points[outside], outside, points[largest], largest, 1)
    groups, ends, lengths = component[outside].astype(np.int64), nearest.ids[:, 0], nearest.distances[:, 0]
    links = as_edges(*spanning_links(points[outside], outside, groups, ends, lengths))
    width = lists.ids.shape[1] + int(np.bincount(links.rows).max(initial=0))
    ids, distances = apply_repair(lists.ids, lists.distances.astype(np.float32), 0, links, width)
    return NeighborLists(ids.astype(np.int64), distances.astype(np.float64))


def largest_component(lists: NeighborLists) -> tuple[Int64, NeighborLists]:
    """The largest weak component of a graph: (ids in it, ascending; its lists, which count its points from 0)."""
    _, component = weak_components(neighbor_graph(lists.ids))  # component 0 is the largest
    inside = np.flatnonzero(component == 0)
    ids = lists.ids[inside]
    return inside, NeighborLists(np.where(ids >= 0, np.searchsorted(inside, ids), -1), lists.distances[inside])

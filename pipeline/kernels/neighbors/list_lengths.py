"""How many of its nearest neighbours each point keeps. Lists sorted by distance are truncated, never reordered."""

import numpy as np

from ...core.arrays import Float32, Float64, Floats, Int64, Ints
from .knn import Hits, NeighborLists


def as_stored(distances: Float64) -> Float32:
    """Distances (b, k) in float32 for the store; finite values beyond float32 become its maximum (inf: empty slot).

    >>> as_stored(np.array([[1.0, 1e39, np.inf]])).tolist()
    [[1.0, 3.4028234663852886e+38, inf]]
    """
    largest = np.finfo(np.float32).max
    return np.where(np.isfinite(distances), np.minimum(distances, largest), np.inf).astype(np.float32)


def _rounded(distances: Floats) -> Float32:
    with np.errstate(over="ignore"):  # values beyond float32 become inf, which is outside any radius
        return distances.astype(np.float32)


def cut_lists(lists: NeighborLists, counts: Ints) -> NeighborLists:
    """The first counts (b,) neighbours of each list (b, k); other slots get id -1 and distance inf.

    >>> cut_lists(NeighborLists(np.array([[4, 7]]), np.array([[1.0, 2.0]])), np.array([1])).ids
    array([[ 4, -1]])
    """
    is_kept = np.arange(lists.ids.shape[1]) < np.asarray(counts)[:, None]
    return NeighborLists(np.where(is_kept, lists.ids, -1), np.where(is_kept, lists.distances, np.inf))


def counts_within(distances: Floats, radius: float, k_min: int) -> Int64:
    """Neighbours to keep (b,) of lists (b, k), ascending: those within the radius, but at least k_min.

    Distances are compared in float32, the stored precision. So a neighbour exactly at the radius is within it in spite
    of rounding errors.
    """
    within = (_rounded(distances) <= np.float32(radius)).sum(axis=1)
    return np.asarray(np.maximum(within, np.minimum(k_min, np.isfinite(distances).sum(axis=1))))


def exact_reach(distances: Float64, radius: float | None) -> Float64:
    """Search radius (s,) of an exact search that verifies lists (s, k) of varying length.

    The distance of the last listed neighbour. With a radius, at least that radius, unless the list is full: then only
    its k nearest count.
    """
    reach = np.where(np.isfinite(distances), distances, -np.inf).max(axis=1, initial=0.0)
    further = reach if radius is None else np.maximum(reach, radius)
    return np.asarray(np.where(np.isfinite(distances[:, -1]), reach, further))


def true_counts(hits: Hits, radius: float, k_min: int, k_max: int, n_sample: int) -> Int64:
    """Neighbours (s,) that an exact search keeps within the radius, from all hits within ``exact_reach``."""
    within = _rounded(hits.distances) <= np.float32(radius)
    return np.asarray(np.clip(np.bincount(hits.sample[within], minlength=n_sample), k_min, k_max))

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


def flat_counts(neighbors: Float64, n_listed: Ints, n_components: int, k_min: int, eta: float) -> Int64:
    """Neighbours to keep (b,) so that the neighbourhood is close to an affine subspace of n_components dimensions.

    The neighbourhood contraction of Zhang, Wang & Zha 2012 (Adaptive Manifold Learning, IEEE Trans. PAMI 34, section
    4.1): with r_k = sqrt(sum_{j > m} s_j^2 / sum_{j <= m} s_j^2) of the singular values s of the k nearest
    neighbours, centred, take the largest k with r_k < eta, or the k with the smallest r_k if there is none. As in
    ``tangent_coordinates`` the point itself is not a member. Their expansion step, which adds single neighbours again,
    is omitted: the lists stay the K_i nearest.

    Args:
        neighbors: (b, K, d) coordinates, nearest first; slots from n_listed on are ignored.
        n_listed: (b,) lengths of the lists; lists of at most k_min are not truncated.
        n_components: m, dimension of the tangent spaces.
        k_min: minimum length.
        eta: largest accepted ratio r_k, dimensionless.
    """
    counts = np.asarray(n_listed, np.int64).copy()
    lowest_ratio = np.full(len(neighbors), np.inf)
    open_rows = np.flatnonzero(counts > k_min)
    for k in range(int(counts.max(initial=0)), k_min - 1, -1):
        rows = open_rows[n_listed[open_rows] >= k]
        ratio = flatness(neighbors[rows, :k], n_components)
        is_better = ratio < lowest_ratio[rows]
        counts[rows[is_better]], lowest_ratio[rows[is_better]] = k, ratio[is_better]
        open_rows = np.setdiff1d(open_rows, rows[ratio < eta], assume_unique=True)
        if not len(open_rows):
            break
    return counts


def spectra(points: Floats) -> Float64:
    """Sums of squares (b, min(k, d)) of neighbourhoods (b, k, d) along their principal axes, descending."""
    centered = points - points.mean(axis=1, keepdims=True, dtype=np.float64)
    transposed = centered.transpose(0, 2, 1)
    gram = transposed @ centered if points.shape[2] < points.shape[1] else centered @ transposed
    return np.maximum(np.linalg.eigvalsh(gram)[:, ::-1], 0.0)


def flatness(points: Float64, n_components: int) -> Float64:
    """r (b,) of neighbourhoods (b, k, d): root of the variance outside the leading directions over that inside."""
    values = spectra(points)
    inside, outside = values[:, :n_components].sum(axis=1), values[:, n_components:].sum(axis=1)
    return np.asarray(np.sqrt(np.divide(outside, inside, out=np.zeros_like(inside), where=inside > 0)))


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

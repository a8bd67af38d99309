"""How many of its nearest neighbours each point keeps: lists sorted by distance are cut, never reordered."""

import numpy as np
import numpy.typing as npt

from pipeline.kernels.neighbors.knn import Hits, NeighborLists

F64 = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def as_stored(distances: F64) -> npt.NDArray[np.float32]:
    """Distances (b, k) as they are stored; those beyond float32 as its largest number, since inf is an empty slot.

    >>> as_stored(np.array([[1.0, 1e39, np.inf]])).tolist()
    [[1.0, 3.4028234663852886e+38, inf]]
    """
    largest = np.finfo(np.float32).max
    return np.where(np.isfinite(distances), np.minimum(distances, largest), np.inf).astype(np.float32)


def _rounded(distances: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what float32 does not hold is farther than any radius
        return distances.astype(np.float32)


def cut_lists(lists: NeighborLists, counts: npt.NDArray[np.integer]) -> NeighborLists:
    """The first counts (b,) neighbours of each list (b, k); ids of -1 and infinite distances in the slots behind.

    >>> cut_lists(NeighborLists(np.array([[4, 7]]), np.array([[1.0, 2.0]])), np.array([1])).ids
    array([[ 4, -1]])
    """
    kept = np.arange(lists.ids.shape[1]) < np.asarray(counts)[:, None]
    return NeighborLists(np.where(kept, lists.ids, -1), np.where(kept, lists.distances, np.inf))


def counts_within(distances: npt.NDArray[np.floating], radius: float, k_min: int) -> Counts:
    """How many neighbours (b,) of lists (b, k), ascending, to keep: those within the radius, but at least k_min.

    Compared as float32, the precision in which distances are stored: a neighbour exactly at the radius is within it,
    whatever the rounding of its distance.
    """
    within = (_rounded(distances) <= np.float32(radius)).sum(axis=1)
    return np.asarray(np.maximum(within, np.minimum(k_min, np.isfinite(distances).sum(axis=1))))


def flat_counts(neighbors: F64, n_listed: npt.NDArray[np.integer], n_components: int, k_min: int, eta: float) -> Counts:
    """How many neighbours (b,) to keep so that what is kept lies near an affine subspace of n_components dimensions.

    The neighbourhood contraction of Zhang, Wang & Zha 2012 (Adaptive Manifold Learning, IEEE Trans. PAMI 34, section
    4.1): with r_k = sqrt(sum_{j > m} s_j^2 / sum_{j <= m} s_j^2) of the singular values s of the k nearest
    neighbours, centred, take the largest k with r_k < eta, and where there is none the k with the least r_k. As in
    ``tangent_space`` the point itself is no member. Their expansion, which adds single neighbours again, is left out:
    the lists stay the K_i nearest.

    Args:
        neighbors: (b, K, d) coordinates, nearest first; the content of slots from n_listed on is ignored.
        n_listed: (b,) neighbours there are; lists of k_min and fewer stay as they are.
        n_components: m, dimensions of the tangent spaces.
        k_min: at least this many.
        eta: how far from flat is still flat, dimensionless.
    """
    best = np.asarray(n_listed, np.int64).copy()
    least = np.full(len(neighbors), np.inf)
    open_rows = np.flatnonzero(best > k_min)
    for k in range(int(best.max(initial=0)), k_min - 1, -1):
        rows = open_rows[n_listed[open_rows] >= k]
        ratio = flatness(neighbors[rows, :k], n_components)
        better = ratio < least[rows]
        best[rows[better]], least[rows[better]] = k, ratio[better]
        open_rows = np.setdiff1d(open_rows, rows[ratio < eta], assume_unique=True)
        if not len(open_rows):
            break
    return best


def flatness(points: F64, n_components: int) -> F64:
    """r (b,) of neighbourhoods (b, k, d): root of the variance outside the leading directions over that within."""
    centered = points - points.mean(axis=1, keepdims=True)
    if points.shape[2] < points.shape[1]:
        gram = centered.transpose(0, 2, 1) @ centered
    else:
        gram = centered @ centered.transpose(0, 2, 1)
    values = np.maximum(np.linalg.eigvalsh(gram)[:, ::-1], 0.0)
    inside, outside = values[:, :n_components].sum(axis=1), values[:, n_components:].sum(axis=1)
    return np.asarray(np.sqrt(np.divide(outside, inside, out=np.zeros_like(inside), where=inside > 0)))


def exact_reach(distances: F64, radius: float | None) -> F64:
    """How far (s,) exact search must look to judge lists (s, k) of varying length.

    To the last neighbour listed; with a radius also to it, unless the list is full, in which case only its k nearest
    count.
    """
    reach = np.where(np.isfinite(distances), distances, -np.inf).max(axis=1, initial=0.0)
    further = reach if radius is None else np.maximum(reach, radius)
    return np.asarray(np.where(np.isfinite(distances[:, -1]), reach, further))


def true_counts(hits: Hits, radius: float, k_min: int, k_max: int, n_sample: int) -> Counts:
    """How many neighbours (s,) exact search would have kept within the radius, by all hits within ``exact_reach``."""
    within = _rounded(hits.distances) <= np.float32(radius)
    return np.asarray(np.clip(np.bincount(hits.sample[within], minlength=n_sample), k_min, k_max))

"""Measures of single neighbourhoods (label agreement, local Procrustes error, other points within a radius), and
distances in the graph."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from ...core.arrays import Bools, Float64, Floats, Ints
from ..batches import batches

RADIUS, TAIL = 0.01, 0.01
"""Radius of the correlation sum, as a share of each coordinate's range without the share TAIL of points at each end."""


def shares_within_radius(embedding: Float64) -> Float64:
    """Share of the other points (s,) of an embedding (s, m), s > 1, that differ from each point by at most RADIUS in
    every coordinate.

    The mean is the correlation sum of Grassberger & Procaccia 1983 (Physica D 9) with the maximum norm: the probability
    that two points are so close.

    >>> shares_within_radius(np.array([[0.0], [0.001], [0.5], [1.0]])).round(2).tolist()
    [0.33, 0.33, 0.0, 0.0]
    """
    from scipy.spatial import cKDTree  # a fifth of a second

    low, high = np.quantile(embedding, [TAIL, 1.0 - TAIL], axis=0)
    rounding = np.finfo(np.float64).eps * np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-280)
    size = np.maximum(RADIUS * (high - low), rounding)
    scaled = np.clip((embedding - low) / size, -1e9, 1e9)
    counts = cKDTree(scaled).query_ball_point(scaled, 1.0, p=np.inf, return_length=True)
    return np.asarray((counts - 1) / (len(embedding) - 1))


def neighborhood_hit(labels: Float64, neighbor_labels: Float64) -> Float64:
    """Share of each point's neighbours that have its label, in [0, 1]: (s,); NaN if it is undefined.

    Source: Paulovich, Nonato, Minghim & Levkowitz 2008 (Least Square Projection, IEEE TVCG 14), section 6.

    Args:
        labels: (s,) category of each point, NaN for none.
        neighbor_labels: (s, q) categories of its neighbours; NaN (no label, no neighbour) is ignored.

    >>> neighborhood_hit(np.array([1.0, 2.0]), np.array([[1.0, 3.0, np.nan], [np.nan, np.nan, np.nan]]))
    array([0.5, nan])
    """
    counted = np.isfinite(neighbor_labels) & np.isfinite(labels)[:, None]
    hits = (neighbor_labels == labels[:, None]) & counted
    total = counted.sum(axis=1)
    share: Float64 = np.where(total > 0, hits.sum(axis=1) / np.maximum(total, 1), np.nan)
    return share


def hit_of_random_neighbors(labels: Float64) -> float:
    """Probability that two of the points have the same label. labels: (s,), NaN for none, which does not count.

    >>> hit_of_random_neighbors(np.array([1.0, 1.0, 2.0, 2.0, np.nan]))
    0.3333333333333333
    """
    counts = np.unique(labels[np.isfinite(labels)], return_counts=True)[1]
    total = counts.sum()
    return float(np.sum(counts * (counts - 1)) / max(1, total * (total - 1)))


def procrustes_errors(points: Floats, embedding: Floats, rows: Ints, embedded_rows: Ints, valid: Bools) -> Float64:
    """Distance of each neighbourhood from its image under the best rotation, shift and scale, in [0, 1]: (s,).

    The normalised local Procrustes statistic of Goldberg & Ritov 2009 (Local Procrustes for manifold embedding,
    Machine Learning 77), sections 2 and 4: min over c, A, b of sum_j |x_j - c A y_j - b|^2 divided by sum_j |x_j -
    mean|^2, A with orthonormal columns. With centred X and Y it is 1 - |X'Y|_*^2 / (|X|^2 |Y|^2), |.|_* the sum of the
    singular values. The free scale c is that of their conformal version, because LLE fixes its own scale. 0 for a
    similarity; unequal stretching of directions also counts, even if nothing is torn.

    Args:
        points: (a, d) rows for the positions ``rows``.
        embedding: (e, m) rows for the positions ``embedded_rows``; m may exceed d.
        rows: (s, q) the point and its neighbours.
        embedded_rows: (s, q) the same points in the embedding.
        valid: (s, q) mask of the points to use.

    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> turned, ids = 3 * square[:, ::-1] + 5, np.array([[0, 1, 2, 3]])
    >>> bool(procrustes_errors(square, turned, ids, ids, ids >= 0)[0] < 1e-12)
    True
    """
    out = np.empty(len(rows))
    for part in batches(len(rows), 8 * rows.shape[1] * points.shape[1]):
        x, y = (_centred(table[ids[part]], valid[part]) for table, ids in ((points, rows), (embedding, embedded_rows)))
        nuclear = np.linalg.svd(x.transpose(0, 2, 1) @ y, compute_uv=False).sum(axis=1)
        total = np.square(x).sum(axis=(1, 2)) * np.square(y).sum(axis=(1, 2))
        out[part] = np.where(total > 0, 1 - nuclear**2 / np.where(total > 0, total, 1.0), 1.0)
    return np.clip(out, 0.0, 1.0)


def _centred(neighborhoods: Floats, valid: Bools) -> Float64:
    """(b, q, d) minus the mean of each neighbourhood's valid points, times a power of two; zero where not valid.

    The power makes the largest entry about 1, so that products of squares neither overflow nor underflow.
    """
    weights = valid[:, :, None] / valid.sum(axis=1)[:, None, None]
    offsets = neighborhoods.astype(np.float64) - neighborhoods[:, :1].astype(np.float64)
    centred: Float64 = (offsets - (offsets * weights).sum(axis=1, keepdims=True)) * valid[:, :, None]
    return np.asarray(np.ldexp(centred, -np.frexp(np.abs(centred).max(axis=(1, 2), keepdims=True))[1]))


def undirected_graph(neighbors: Ints, distances: Floats) -> csr_array:
    """Neighbour lists (n, K), -1 in empty slots, as edge lengths in both directions, for ``graph_distances``."""
    valid = neighbors >= 0
    indptr = np.concatenate([[0], np.cumsum(valid.sum(axis=1))]).astype(neighbors.dtype)
    lengths = np.maximum(distances[valid].astype(np.float64), np.finfo(np.float32).tiny)  # a length of 0 is no edge
    graph = csr_array((lengths, neighbors[valid], indptr), shape=(len(valid), len(valid)))
    return csr_array(graph.maximum(graph.T.tocsr()))


def graph_distances(graph: csr_array, source: int, targets: Ints) -> Float64:
    """Lengths (t,) of the shortest paths from a point to the targets along edges; inf if there is no path.

    Estimates of geodesic distances on the manifold (Tenenbaum, de Silva & Langford 2000, Science 290).
    """
    lengths: Float64 = dijkstra(graph, directed=True, indices=np.array([source]))[0, targets]
    return lengths

"""The local matrices of every method in plain dense linear algebra, one point at a time, as the papers write them."""

import numpy as np
import numpy.typing as npt
import scipy.linalg

Array = npt.NDArray[np.float64]


def _centred(points: Array) -> Array:
    """Points minus their mean, twice: the rounding of a mean far from zero may exceed the size of the neighbourhood."""
    once = points - points.mean(axis=0)
    return np.asarray(once - once.mean(axis=0))


def ltsa_matrix(points: Array, m: int) -> Array:
    """I - G G' with G = [1/sqrt(K), the m leading left singular vectors] (Zhang & Zha 2004)."""
    U = scipy.linalg.svd(_centred(points))[0][:, :m]
    G = np.column_stack([np.full(len(points), len(points) ** -0.5), U])
    return np.eye(len(points)) - G @ G.T


def hessian_matrix(points: Array, m: int) -> Array:
    """H' H with H the Gram-Schmidt remainder of the products of tangent coordinates (Donoho & Grimes 2003).

    Added is the projection on all other functions, times the share of the variance of the points outside of the tangent
    and its products, over the variance in the tangent; nothing below a share of 0.001.
    """
    X = _centred(points)
    U = scipy.linalg.svd(X)[0][:, :m]
    columns = [np.ones(len(points)), *U.T, *(U[:, a] * U[:, b] for a in range(m) for b in range(a, m))]
    basis: list[Array] = []
    for column in columns:
        remainder = column.copy()
        for _ in range(2):
            for q in basis:
                remainder -= (q @ remainder) * q
        basis.append(remainder / np.linalg.norm(remainder))
    H, everything = np.array(basis[1 + m :]), np.array(basis)
    rest = np.eye(len(points)) - everything.T @ everything
    inside, outside = float(((U.T @ X) ** 2).sum()), float(((rest @ X) ** 2).sum())
    noise = min(1.0, outside / inside) if inside > 0 and outside >= 1e-3 * inside else 0.0
    return H.T @ H + noise * rest


def modified_spread(x: Array, neighbors: Array, m: int) -> float:
    values = np.sort(np.linalg.eigvalsh((neighbors - x) @ (neighbors - x).T))[::-1]
    return float(values[m:].sum() / values[:m].sum())


def modified_matrix(x: Array, neighbors: Array, threshold: float, reg: float) -> Array:
    """(K + 1, K + 1) over the neighbours and the point, by explicit Householder matrices (Zhang & Wang 2006)."""
    K = len(neighbors)
    G = (neighbors - x) @ (neighbors - x).T
    values, V = scipy.linalg.eigh(G)
    values, V = np.maximum(values[::-1], 0.0), V[:, ::-1]
    rank = min(neighbors.shape)
    values[rank:] = 0.0
    fits = [size for size in range(1, K) if values[K - size :].sum() < threshold * values[: K - size].sum()]
    s = max([1, K - rank, *fits])
    w = np.linalg.solve(G + reg * np.trace(G) * np.eye(K), np.ones(K))
    w /= w.sum()
    V = V[:, K - s :]
    alpha = np.linalg.norm(V.sum(axis=0)) / np.sqrt(s)
    h = alpha * np.ones(s) - V.T @ np.ones(K)
    H = np.eye(s)
    if np.linalg.norm(h) > 1e-12:
        H -= 2 * np.outer(h, h) / (h @ h)
    W = np.vstack([V @ H + (1 - alpha) * np.outer(w, np.ones(s)), -np.ones(s)])
    return W @ W.T


def laplacian_matrices(neighbors: npt.NDArray[np.int64], weight: Array) -> tuple[Array, Array]:
    """L = D - W of the graph symmetrised by OR, and its degrees; weight (n, n) of every pair."""
    n = len(neighbors)
    linked = np.zeros((n, n), bool)
    for i, row in enumerate(neighbors):
        linked[i, row[row >= 0]] = True
    W = np.where(linked | linked.T, weight, 0.0)
    degree = W.sum(axis=1)
    return np.diag(degree) - W, degree

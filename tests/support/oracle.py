"""Locally linear embedding in plain dense linear algebra, one point at a time: the reference for all kernels.

Slow and large on purpose (n x n matrices). Exact neighbours, every matrix written out, the null space from an SVD of A.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.sparse import csr_array

Array = npt.NDArray[np.float64]


class Lle(NamedTuple):
    neighbors: npt.NDArray[np.int64]  # (n, k), nearest first
    distances: Array  # (n, k)
    weights: Array  # (n, k)
    A: Array  # (n, n) I - W
    M: Array  # (n, n) A' A
    eigenvalues: Array  # (n,) of M, ascending, the null one included
    vectors: Array  # (n, n) eigenvectors in columns


def exact_neighbors(X: Array, k: int) -> tuple[npt.NDArray[np.int64], Array]:
    distances = np.sqrt(np.square(X[:, None, :] - X[None, :, :]).sum(axis=2))
    np.fill_diagonal(distances, np.inf)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(distances, order, axis=1)


def point_weights(x: Array, Y: Array, reg: float) -> Array:
    C = Y - x
    G = C @ C.T
    trace = np.trace(G)
    R = reg * trace if trace > 0 else reg
    w = scipy.linalg.solve(G + R * np.eye(len(Y)), np.ones(len(Y)), assume_a="pos")
    return w / w.sum()


def dense_factor(neighbors: npt.NDArray[np.int64], weights: Array) -> Array:
    """A = I - W; slots of -1 are skipped."""
    A = np.eye(len(neighbors))
    for i, (row, w) in enumerate(zip(neighbors, weights, strict=True)):
        A[i, row[row >= 0]] -= w[row >= 0]
    return A


def lle(X: Array, k: int, reg: float) -> Lle:
    neighbors, distances = exact_neighbors(X, k)
    weights = np.stack([point_weights(x, X[row], reg) for x, row in zip(X, neighbors, strict=True)])
    A = dense_factor(neighbors, weights)
    _, singular, Vt = scipy.linalg.svd(A)
    return Lle(neighbors, distances, weights, A, A.T @ A, singular[::-1] ** 2, Vt[::-1].T)


def exact_pairs(A: csr_array, m: int) -> tuple[Array, Array]:
    """The m eigenpairs of A'A after the null one, by the dense SVD of A."""
    _, singular, Vt = np.linalg.svd(A.toarray(), full_matrices=False)
    return singular[::-1][1 : m + 1] ** 2, Vt[::-1][1 : m + 1].T


def largest_angle(U: Array, V: Array) -> float:
    """Largest principal angle between the column spaces of U and V, in degrees."""
    return float(np.degrees(scipy.linalg.subspace_angles(U, V).max()))

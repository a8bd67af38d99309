"""Parts of LLE in plain dense linear algebra, one point at a time: the reference for all kernels.

Slow and large on purpose: n x n matrices, and eigenpairs from an SVD of A.
"""

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.sparse import csr_array

Array = npt.NDArray[np.float64]


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


def exact_pairs(A: csr_array, m: int) -> tuple[Array, Array]:
    """The m eigenpairs of A'A after the null one, by the dense SVD of A."""
    _, singular, Vt = np.linalg.svd(A.toarray(), full_matrices=False)
    return singular[::-1][1 : m + 1] ** 2, Vt[::-1][1 : m + 1].T


def largest_angle(U: Array, V: Array) -> float:
    """Largest principal angle between the column spaces of U and V, in degrees."""
    return float(np.degrees(scipy.linalg.subspace_angles(U, V).max()))

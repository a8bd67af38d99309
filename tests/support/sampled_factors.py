"""Sparse factors A = I - W of sampled manifolds, for the tests of the eigensolver; exact neighbours, whole arrays."""

import numpy as np
import numpy.typing as npt
from scipy.sparse import block_diag, csr_array
from scipy.spatial import cKDTree

from lle.kernels import embed_in_memory
from lle.kernels.neighbors.knn import exact_neighbors

Array = npt.NDArray[np.float64]


def points(name: str, n: int, seed: int) -> Array:
    """(n, 3) samples of a surface or body, uniform in its parameters, or (n, 2) of a circle at equal angles."""
    u = np.random.default_rng(seed).random((n, 3))
    if name == "swiss_roll":
        t = 1.5 * np.pi * (1 + 2 * u[:, 0])
        return np.column_stack([t * np.cos(t), 21 * u[:, 1], t * np.sin(t)])
    if name == "s_curve":
        t = 3 * np.pi * (u[:, 0] - 0.5)
        return np.column_stack([np.sin(t), 2 * u[:, 1], np.sign(t) * (np.cos(t) - 1)])
    if name == "sheet":
        return u * [1, 1, 0]
    if name == "cube":
        return u
    if name == "circle":
        t = 2 * np.pi * np.arange(n) / n
        return np.column_stack([np.cos(t), np.sin(t)])
    raise AssertionError(name)


def order(X: Array) -> npt.NDArray[np.intp]:
    """Neighbours near each other in memory, as the program has them."""
    return cKDTree(X, leafsize=32).indices


def lle_factor(X: Array, k: int, reg: float) -> csr_array:
    """A (n, n) by the k nearest neighbours, the points taken in the order of ``order``."""
    X, every = X[order(X)], np.arange(len(X))
    return embed_in_memory.lle_factor(X, exact_neighbors(X, every, X, every, k).ids, reg, "trace")


def roll_factor(n: int, seed: int) -> csr_array:
    """A of a swiss roll as the program makes it by default."""
    return lle_factor(points("swiss_roll", n, seed), 12, 1e-3)


def roll_coordinates(n: int, seed: int) -> Array:
    """The points of ``roll_factor``, each column with variance 1."""
    X = points("swiss_roll", n, seed)
    return np.asarray(X[order(X)] / X.std(axis=0))


def roll_with_outliers(n: int, n_outliers: int, seed: int) -> tuple[csr_array, npt.NDArray[np.intp]]:
    """A of a swiss roll with far points that are in no list, so they are transient; (A, the transient rows)."""
    A = roll_factor(n, seed)
    rng = np.random.default_rng(seed + 1)
    listed = np.stack([rng.choice(n, 12, replace=False) for _ in range(n_outliers)])
    rows = np.repeat(np.arange(n_outliers), 12)
    W = csr_array((np.full(rows.size, 1 / 12), (rows, listed.ravel())), shape=(n_outliers, n))
    coo, far = A.tocoo(), W.tocoo()
    diagonal = np.arange(n, n + n_outliers)
    row = np.concatenate([coo.row, far.row + n, diagonal])
    column = np.concatenate([coo.col, far.col, diagonal])
    data = np.concatenate([coo.data, -far.data, np.ones(n_outliers)])
    both = csr_array((data, (row, column)), shape=(n + n_outliers, n + n_outliers))
    both.sort_indices()
    return both, diagonal


def separate_rolls(n: int, n_rolls: int, seed: int) -> csr_array:
    """A of several rolls that do not touch: as many closed classes, and null vectors."""
    return csr_array(block_diag([roll_factor(n, seed + i) for i in range(n_rolls)], format="csr"))


def edge_factor(X: Array, k: int) -> csr_array:
    """Rows (1, -1) for the links of every point to its neighbours, (n k, n): A' A is the graph's Laplacian."""
    n = len(X)
    neighbors = cKDTree(X).query(X, k + 1)[1][:, 1:]
    columns = np.column_stack([np.repeat(np.arange(n), k), neighbors.ravel()]).astype(np.int32)
    indptr = np.arange(0, columns.size + 1, 2, dtype=np.int32)
    A = csr_array((np.tile([1.0, -1.0], n * k), columns.ravel(), indptr), shape=(n * k, n))
    A.sort_indices()
    return A


def gram(A: csr_array) -> csr_array:
    """A'A with sorted column indices."""
    M = csr_array(A.T @ A)
    M.sort_indices()
    return M

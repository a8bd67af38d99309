"""The matrices for the benchmarks of the eigensolver."""

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack
from scipy.spatial import cKDTree

from lle.kernels.factors.cost_matrix import local_factor
from lle.kernels.factors.lle_weights import barycenter_weights
from lle.kernels.manifolds import sample
from lle.storage.store import Store

BLOCK = 20_000
SEED = 5


def roll_points(n_points: int) -> npt.NDArray[np.float64]:
    """A Swiss roll, in the order of a k-d tree."""
    return in_tree_order(sample("swiss_roll", 0, n_points, SEED, 0.0, 0.0).points)


def cube_points(n_points: int, dimension: int) -> npt.NDArray[np.float64]:
    """Points uniform in the unit cube, in the order of a k-d tree."""
    return in_tree_order(np.random.default_rng(SEED).random((n_points, dimension)))


def in_tree_order(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The rows in the order of a k-d tree."""
    return points[cKDTree(points, leafsize=32).indices]


def neighbor_factor(points: npt.NDArray[np.float64], reg: float = 1e-3) -> csr_array:
    """A = I - W of points (n, d), k = 12; made block by block."""
    n_points, tree, blocks = len(points), cKDTree(points), []
    for start in range(0, n_points, BLOCK):
        ids = np.arange(start, min(start + BLOCK, n_points))
        neighbors = tree.query(points[ids], 13, workers=-1)[1]
        neighbors = neighbors[neighbors != ids[:, None]].reshape(len(ids), 12)
        weights = barycenter_weights(
            points[ids], points[neighbors], np.ones(neighbors.shape, bool), reg, "trace"
        ).weights
        blocks.append(local_factor(neighbors, weights, start, n_points))
    return csr_array(vstack(blocks, format="csr"))


def stored_factor(path: str) -> csr_array:
    """A of all points of a finished run."""
    store = Store(path)
    indices, weights = store.read_all("neighbor_indices"), store.read_all("weights")
    return csr_array(local_factor(indices, weights, 0, len(indices)))

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


def roll_factor(n_points: int) -> csr_array:
    """A = I - W of a Swiss roll."""
    return neighbor_factor(sample("swiss_roll", 0, n_points, SEED, 0.0, 0.0).points)


def cube_factor(n_points: int, dimension: int) -> csr_array:
    """A = I - W of points uniform in the unit cube."""
    return neighbor_factor(np.random.default_rng(SEED).random((n_points, dimension)))


def neighbor_factor(points: npt.NDArray[np.float64]) -> csr_array:
    """A = I - W of points (n, d), k = 12, reg = 1e-3, in the order of a k-d tree; made block by block."""
    n_points = len(points)
    points = points[cKDTree(points, leafsize=32).indices]
    tree, blocks = cKDTree(points), []
    for start in range(0, n_points, BLOCK):
        ids = np.arange(start, min(start + BLOCK, n_points))
        neighbors = tree.query(points[ids], 13, workers=-1)[1]
        neighbors = neighbors[neighbors != ids[:, None]].reshape(len(ids), 12)
        weights = barycenter_weights(
            points[ids], points[neighbors], np.ones(neighbors.shape, bool), 1e-3, "trace"
        ).weights
        blocks.append(local_factor(neighbors, weights, start, n_points))
    return csr_array(vstack(blocks, format="csr"))


def stored_factor(path: str) -> csr_array:
    """A of all points of a finished run."""
    store = Store(path)
    indices, weights = store.read_all("neighbor_indices"), store.read_all("weights")
    return csr_array(local_factor(indices, weights, 0, len(indices)))

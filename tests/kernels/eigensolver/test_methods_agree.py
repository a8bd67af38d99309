"""The methods of the eigensolver agree: angles below 0.1 degree, eigenvalues to 1e-4."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from lle.kernels.factors.cost_matrix import local_factor
from lle.storage.store import Store
from tests.support.commands import lle, write_config
from tests.support.eigenproblems import solve
from tests.support.oracle import largest_angle
from tests.support.sampled_factors import lle_factor, order, points

ROUTES = ("factored", "shift_invert", "multigrid")
DEGREE = np.pi / 180


def assert_agree(A, m, routes, threads, X):
    """The methods agree for A; X are coordinates of the points that A was made from. Returns the methods used."""
    first, methods = solve(A, m, routes[0], n_threads=threads[0]), set(routes[:1])
    assert first.converged
    for route, n_threads in [(route, n) for route in routes for n in threads][1:]:
        solution = solve(A, m, route, n_threads=n_threads, candidates=lambda: X)
        assert solution.converged, (route, n_threads)
        methods.add(solution.stats.method)
        assert largest_angle(solution.vectors, first.vectors) < 0.1 * DEGREE, (route, n_threads)
        np.testing.assert_allclose(solution.eigenvalues, first.eigenvalues, rtol=1e-4)
    return methods


@pytest.mark.parametrize("seed", [pytest.param(3, marks=pytest.mark.slow), 19])
def test_s_curve(seed):
    X = points("s_curve", 1500, seed)
    assert assert_agree(lle_factor(X, 12, 1e-3), 2, ROUTES, (1, 2), X[order(X)]) == set(ROUTES)


@pytest.mark.slow
def test_digits():
    X = load_digits().data
    X = X + 1e-6 * np.random.default_rng(9).normal(size=X.shape)
    assert_agree(lle_factor(X, 12, 1e-3), 4, ROUTES, (1, 2), PCA(10).fit_transform(X[order(X)]))


@pytest.mark.slow
def test_large_surface():
    X = points("swiss_roll", 30_000, 3)
    routes = ("factored", "multigrid")
    assert assert_agree(lle_factor(X, 12, 1e-3), 2, routes, (2,), X[order(X)]) == set(routes)


def stored_factor(path):
    store = Store(str(path))
    indices, weights = store.read_all("neighbor_indices"), store.read_all("weights")
    component = store.read_bundle("_work/embedding")["component"]
    assert (component == 0).all()
    return csr_array(local_factor(indices, weights, 0, len(indices)))


@pytest.mark.manual
def test_mnist(tmp_path, shared_data):
    images = shared_data("mnist/train-images-idx3-ubyte.gz").parent
    config = write_config(tmp_path, input={"kind": "idx", "path": f"{images}/*-images-idx3-ubyte.gz"})
    lle("run", config, "--set", "execution.cluster.kind=local")
    assert_agree(stored_factor(tmp_path / "run.zarr"), 5, ROUTES, (2,), np.empty((0, 0)))

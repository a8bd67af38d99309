"""Embeddings in memory equal those of a run, for every method and a graph that needs repair."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from lle.api.embed import finished_run
from lle.config.neighbors import reverse_neighbors
from lle.core.errors import LleError
from lle.kernels.embed_in_memory import embed_in_memory, repaired_lists
from lle.kernels.neighbors.knn import exact_neighbors
from tests.support.points import swiss_roll

N, K, M = 450, 10, 2


@pytest.fixture(scope="module")
def points():
    """A noisy roll with a dense group whose lists do not leave it: a closed class."""
    rng = np.random.default_rng(71)
    roll = swiss_roll(N, rng) + 0.1 * rng.normal(size=(N, 3))
    roll[: K + 2] = roll[0] + 1e-3 * rng.normal(size=(K + 2, 3))
    return roll


@pytest.mark.parametrize("method", ["lle", "modified", "ltsa", "hessian", "laplacian", "pca"])
def test_coordinates_span_those_of_a_run(points, method):
    every = np.arange(N)
    lists = exact_neighbors(points, every, points, every, K)
    ids = repaired_lists(lists, N, reverse_neighbors("auto", method, M, K))
    assert (ids.shape[1] > K) == (method == "lle")
    found = embed_in_memory(method, points, ids, M, 1e-2, "trace")
    sections = {
        "method": method,
        "neighbors": {"n_neighbors": K},
        "weights": {"reg": 1e-2},
        "eigensolver": {"n_components": M},
        "quality": {"sample": 50, "geodesic_sources": 0},
    }
    with finished_run(points, sections) as (store, _):
        expected = store.read_all("embedding")
    assert found.shape == (N, M)
    centered = found - found.mean(axis=0)
    assert np.sin(subspace_angles(centered, expected - expected.mean(axis=0))).max() < 1e-2
    if method == "pca":  # principal components have the lengths of the data
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6 * np.abs(expected).max())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [2.0**400, 2.0**-400])
def test_repaired_lists_do_not_depend_on_the_unit(points, unit):
    every = np.arange(N)
    expected, scaled = (
        repaired_lists(exact_neighbors(rows, every, rows, every, K), N, 4) for rows in (points, unit * points)
    )
    np.testing.assert_array_equal(scaled, expected)


def test_eigenvectors_that_did_not_converge_are_an_error():
    """Of a graph in two pieces M has a second null vector, so its factor is singular."""
    rows, every = np.random.default_rng(72).random((N, 3)), np.arange(N)
    rows[: N // 2] += 100.0
    ids = exact_neighbors(rows, every, rows, every, K).ids
    with pytest.raises(LleError, match="could not be computed"):
        embed_in_memory("laplacian", rows, ids, 2, 1e-3, "trace")


def test_point_that_the_random_walk_hardly_visits_may_be_pinned(monkeypatch):
    """The LU with that point is inaccurate; the Cholesky factor of M then gives the coordinates."""
    points = np.random.default_rng(0).random((900, 2)) ** 4
    every, outermost = np.arange(900), int(np.linalg.norm(points, axis=1).argmax())
    ids = repaired_lists(exact_neighbors(points, every, points, every, K), 900)
    expected = embed_in_memory("lle", points, ids, M, 1.0, "trace")
    monkeypatch.setattr("lle.kernels.embed_in_memory.closed_point", lambda factor: outermost)
    analyses = {}
    for _ in range(2):  # the second time with the analyses of the first
        found = embed_in_memory("lle", points, ids, M, 1.0, "trace", analyses)
        assert subspace_angles(found, expected).max() < 1e-3

"""Neighbourhood hit, local Procrustes error, distances in the graph: closed forms and other implementations."""

import numpy as np
import pytest
from scipy.spatial import procrustes
from sklearn.manifold import Isomap

from lle.kernels.quality.locality import (
    graph_distances,
    neighborhood_hit,
    procrustes_errors,
    shares_within_radius,
    undirected_graph,
)
from tests.support.oracle import exact_neighbors
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37)


def test_neighborhood_hit__counts_labelled_points_only() -> None:
    labels = np.array([1.0, 2.0, np.nan, 3.0])
    neighbor_labels = np.array([[1, 1, 2, 1], [2, np.nan, 1, np.nan], [np.nan, 1, 2, 3], [np.nan] * 4])
    np.testing.assert_array_equal(neighborhood_hit(labels, neighbor_labels), [0.75, 0.5, np.nan, np.nan])


def around(X: np.ndarray, k: int) -> np.ndarray:
    return np.column_stack([np.arange(len(X)), exact_neighbors(X, k)[0]])


@pytest.mark.parametrize("seed", SEEDS)
def test_procrustes__same_as_scipy_neighbourhood_by_neighbourhood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(60, 5)), rng.normal(size=(60, 2))
    rows = around(X, 7)
    padded = np.column_stack([Y, np.zeros((60, 3))])  # scipy needs equally many columns
    expected = [procrustes(X[neighborhood], padded[neighborhood])[2] for neighborhood in rows]
    np.testing.assert_allclose(procrustes_errors(X, Y, rows, rows, rows >= 0), expected, atol=1e-12)


def test_procrustes__empty_slots_and_coincident_points() -> None:
    rng = np.random.default_rng(7)
    X, Y = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    rows = around(X, 6)
    valid = np.ones(rows.shape, bool)
    valid[:, 4:] = False
    np.testing.assert_allclose(
        procrustes_errors(X, Y, rows, rows, valid), procrustes_errors(X, Y, rows[:, :4], rows[:, :4], valid[:, :4])
    )
    assert (procrustes_errors(np.ones((20, 3)), Y, rows, rows, valid) == 1).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_within_radius__same_as_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(500, 3)) * np.where(rng.random((500, 1)) < 0.5, 1e-3, 1.0) * [1, 1e-200, 1e200] + [0, 0, 1e199]
    size = 0.01 * np.ptp(np.quantile(Y, [0.01, 0.99], axis=0), axis=0)
    near = (np.abs(Y[:, None] - Y) <= size).all(axis=2).sum(axis=1) - 1
    assert near.max() > 200 > near.min()
    np.testing.assert_allclose(shares_within_radius(Y), near / 499)


def test_shares_within_radius__far_points_and_constant_coordinates() -> None:
    Y = np.column_stack([np.linspace(0, 1, 10_001), np.full(10_001, 7.0)])
    assert shares_within_radius(Y).mean() == pytest.approx(0.0196, abs=4e-4)
    Y[:5, 0] = [1e9, -1e9, 1e300, -1e300, 0.5]  # the range leaves them out
    assert shares_within_radius(Y).mean() == pytest.approx(0.0196, abs=4e-4)
    assert (shares_within_radius(np.full((20, 2), -3.0)) == 1).all()
    Y = np.repeat([0.0, 1.0], [900, 100])[:, None] + 1e-6 * np.random.default_rng(0).normal(size=(1000, 1))
    np.testing.assert_allclose(shares_within_radius(Y), np.repeat([899 / 999, 99 / 999], [900, 100]))


@pytest.mark.parametrize("seed", SEEDS)
def test_graph_distances__same_as_isomap(seed: int) -> None:
    X = np.random.default_rng(seed).random((300, 3))
    neighbors, lengths = exact_neighbors(X, 6)
    neighbors, lengths = (
        np.column_stack([part, fill]) for part, fill in ((neighbors, np.full(300, -1)), (lengths, np.full(300, np.inf)))
    )
    graph = undirected_graph(neighbors, lengths)
    expected = Isomap(n_neighbors=6).fit(X).dist_matrix_
    for source in (0, 17, 299):
        actual = graph_distances(graph, source, np.arange(0, 300, 7))
        np.testing.assert_allclose(actual, expected[source, ::7], rtol=1e-12)


def test_graph_distances__unreachable_points_and_zero_lengths() -> None:
    graph = undirected_graph(np.array([[1], [0], [3], [2]]), np.array([[0.0], [0.0], [2.0], [2.0]]))
    np.testing.assert_allclose(graph_distances(graph, 0, np.arange(4)), [0, 0, np.inf, np.inf], atol=1e-30)

"""Edges of the graph symmetrised by OR, their degrees and rows, and the null vector that replaces the constant."""

import numpy as np
import pytest

from lle.kernels.eigensolver.rayleigh_ritz import complement, remove_null, without_null
from lle.kernels.factors.laplacian import LaplacianEdges, degrees, edge_factor, own_edges, partial_degrees
from tests.support.method_oracle import laplacian_matrices
from tests.support.oracle import exact_neighbors

N = 60


def edges_of(neighbors: np.ndarray, squared: np.ndarray, t: float | None, cut: int = N) -> list[LaplacianEdges]:
    """The edges of two blocks of points, cut at a point."""
    return [
        own_edges(rows, neighbors[rows], squared[rows], neighbors[neighbors[rows]], t)
        for rows in (np.arange(cut), np.arange(cut, len(neighbors)))
    ]


@pytest.fixture
def graph(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Neighbour lists with empty slots, and squared distances."""
    X = rng.normal(size=(N, 4))
    neighbors, distances = exact_neighbors(X, 6)
    neighbors[rng.random(neighbors.shape) < 0.2] = -1
    neighbors[:, 0] = exact_neighbors(X, 1)[0][:, 0]
    return neighbors, np.square(distances)


@pytest.mark.parametrize("t", [None, 0.7, 3.0])
@pytest.mark.parametrize("cut", [N, 25, 1])
class TestEdges:
    def test_rows_give_the_normalised_laplacian(self, graph, t, cut):
        neighbors, squared = graph
        weight = np.zeros((N, N))
        for i, row in enumerate(neighbors):
            weight[i, row[row >= 0]] = 1.0 if t is None else np.exp(-squared[i, row >= 0] / t)
        L, degree = laplacian_matrices(neighbors, np.maximum(weight, weight.T))
        blocks = edges_of(neighbors, squared, t, cut)
        summed = np.zeros((4, N))
        for edges in blocks:
            ids, sums = partial_degrees(edges)
            summed[:, ids] += sums
        np.testing.assert_allclose(degrees(summed), degree, rtol=1e-13)
        factors = [edge_factor(edges, degree[edges.rows], degree[edges.neighbors], N) for edges in blocks]
        assert all(factor.has_canonical_format for factor in factors)
        F = np.concatenate([factor.toarray() for factor in factors])
        root = np.sqrt(degree)
        np.testing.assert_allclose(F.T @ F, L / np.outer(root, root), atol=1e-13)
        np.testing.assert_allclose(F @ root, 0, atol=1e-14)

    def test_every_edge_has_one_owner_that_lists_it(self, graph, t, cut):
        neighbors, squared = graph
        owned = [
            (i, j)
            for edges in edges_of(neighbors, squared, t, cut)
            for i, j in zip(edges.rows.tolist(), edges.neighbors.tolist(), strict=True)
        ]
        linked = {frozenset((i, j)) for i, row in enumerate(neighbors.tolist()) for j in row if j >= 0}
        assert sorted(map(sorted, map(frozenset, owned))) == sorted(map(sorted, linked))
        assert all(j in neighbors[i] for i, j in owned)
        assert [i for i, _ in owned] == sorted(i for i, _ in owned)


def test_projection_removes_the_null_vector(rng):
    block, q = rng.normal(size=(20, 3)), rng.random(20) + 0.1
    q /= np.linalg.norm(q)
    for null, unit in ((None, np.full(20, 20**-0.5)), (q, q)):
        expected = block - np.outer(unit, unit @ block)
        np.testing.assert_allclose(without_null(block, null), expected, atol=1e-14)
        np.testing.assert_allclose(remove_null(block.copy(), null), expected, atol=1e-14)
        basis = complement(20, null)
        np.testing.assert_allclose(basis.T @ basis, np.eye(19), atol=1e-13)
        np.testing.assert_allclose(unit @ basis, 0, atol=1e-14)


def test_degrees_do_not_depend_on_the_order_of_edges(rng):
    edges = LaplacianEdges(np.zeros(300, np.int64), np.arange(1, 301), rng.random(300) ** 20)
    orders = [rng.permutation(300) for _ in range(20)]
    totals = {degrees(partial_degrees(LaplacianEdges(*(part[order] for part in edges)))[1])[0] for order in orders}
    assert len(totals) == 1
    assert len({np.bincount(np.zeros(300, int), edges.weights[order])[0] for order in orders}) > 1

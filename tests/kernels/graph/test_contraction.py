"""Closed classes and weak components of graphs read in blocks, against SciPy's components of the whole graph."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from lle.kernels.graph import contraction
from lle.kernels.graph.connectivity import by_size, neighbor_graph
from lle.kernels.graph.contraction import CondensedGraph, contract
from lle.kernels.graph.repair import Lists, plan_repair, repair_graph
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37, 41, 53)
N = 240
KINDS = ["sparse", "dense", "groups", "chain", "acyclic", "tree"]


def random_lists(kind: str, seed: int) -> np.ndarray:
    """(N, K) neighbour lists, -1 in empty slots."""
    rng = np.random.default_rng(seed)
    if kind == "chain":  # one class at each end of long ways, and edges back to random points of the way
        lists = np.column_stack([np.arange(N) - 1, np.where(rng.random(N) < 0.1, rng.integers(0, N, N), -1)])
        lists[0, 0] = rng.choice([-1, N - 1])
    elif kind == "acyclic":
        lists = np.arange(N)[:, None] - rng.integers(1, N, (N, 4))
    elif kind == "tree":
        lists = np.where(rng.random((N, 1)) < 0.95, rng.permutation(N)[np.arange(N) // 2][:, None], -1)
    elif kind == "groups":
        lists = np.arange(N)[:, None] // 12 * 12 + rng.integers(0, 12, (N, 3))
        lists = np.where(rng.random((N, 3)) < 0.03, rng.integers(0, N, (N, 3)), lists)
    else:
        lists = rng.integers(0, N, (N, 6 if kind == "dense" else 2))
    order = rng.permutation(N) if rng.random() < 0.7 else np.arange(N)
    place = np.argsort(order)
    lists = np.where((lists < 0) | (lists == np.arange(N)[:, None]), -1, place[lists])[order]
    return np.where(rng.random(lists.shape) < 0.1, -1, lists).astype(np.int32)


def in_blocks(indices: np.ndarray, size: int) -> CondensedGraph:
    """The graph of these lists, contracted block by block."""
    nodes, parts, n_nodes = [], [], 0
    for start in range(0, len(indices), size):
        part = contract(indices[start : start + size], start)
        nodes.append(part.node + n_nodes)
        parts.append((part.sources, part.targets))
        n_nodes += part.n_nodes
    return CondensedGraph(np.concatenate(nodes).astype(np.int32), n_nodes, lambda: iter(parts))


def classes_of(indices: np.ndarray) -> np.ndarray:
    """Closed class of each point, -1 if it is in none, by the strong components of the whole graph."""
    graph = neighbor_graph(indices)
    n_strong, strong = connected_components(graph.toarray(), directed=True, connection="strong")
    rows, columns = graph.nonzero()
    is_open = np.zeros(n_strong, bool)
    is_open[strong[rows[strong[rows] != strong[columns]]]] = True
    return by_size(np.where(is_open[strong], -1, strong), n_strong)[0]


def assert_classes(graph: CondensedGraph, indices: np.ndarray) -> None:
    is_closed = np.isin(graph.node, graph.closed)
    labels = by_size(np.where(is_closed, graph.node, -1), len(graph.size))[0]
    np.testing.assert_array_equal(labels, classes_of(indices))
    np.testing.assert_array_equal(graph.size, np.bincount(graph.node))
    np.testing.assert_array_equal(graph.lowest, np.unique(graph.node, return_index=True)[1])


@pytest.fixture(params=[1, 20, 10**6])
def edges_at_once(request, monkeypatch):
    monkeypatch.setattr(contraction, "EDGES_AT_ONCE", request.param)
    monkeypatch.setattr(contraction, "ROWS_AT_ONCE", 50)


@pytest.mark.slow
@pytest.mark.usefixtures("edges_at_once")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1, 17, N])
@pytest.mark.parametrize("kind", KINDS)
def test_graph_in_blocks_has_the_classes_and_components_of_the_whole(kind: str, size: int, seed: int) -> None:
    indices = random_lists(kind, seed)
    graph = in_blocks(indices, size)
    n_expected, expected = connected_components(neighbor_graph(indices).toarray(), directed=False)
    for _ in range(2):  # before and after nodes are joined
        n_components, component = graph.weak_components()
        np.testing.assert_array_equal(component, by_size(expected, n_expected)[0])
        assert n_components == n_expected
        graph.settle()
        assert_classes(graph, indices)


@pytest.mark.usefixtures("edges_at_once")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_added_edges_count(kind: str, seed: int) -> None:
    """Random edges out of closed classes: classes become open, or larger, and edges that were left out before count."""
    indices = random_lists(kind, seed)
    graph, rng = in_blocks(indices, 17), np.random.default_rng(seed)
    graph.settle()
    for _ in range(4):
        members = np.flatnonzero(classes_of(indices) >= 0)
        rows = rng.choice(members, min(8, len(members)), replace=False)
        added = np.full((N, 1), -1, np.int32)
        added[rows, 0] = rng.integers(0, N, len(rows))
        indices = np.column_stack([indices, added])
        graph.add(rows, added[rows, 0])
        assert_classes(graph, indices)


def test_contracted_block_has_its_strong_components_and_each_edge_between_them_once() -> None:
    # {10, 11} -> {12, 13, 14} <- 15, and both ends of an edge to 90 are in one node.
    lists = [[11, 90, 12], [10, 90, 12], [13, -1, 12], [14, 13, 14], [13, 12, -1], [10, 11, 12]]
    block = contract(np.array(lists, np.int32), 10)
    np.testing.assert_array_equal(by_size(block.node, block.n_nodes)[0], [1, 1, 0, 0, 0, 2])
    edges = sorted(zip(block.sources.tolist(), block.targets.tolist(), strict=True))
    assert edges == [(10, 12), (10, 90), (15, 10), (15, 12)]


@pytest.mark.usefixtures("edges_at_once")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [None, 2])
def test_repair_of_blocks_equals_that_in_memory(kind: str, seed: int, reverse: int | None) -> None:
    indices = random_lists(kind, seed)
    distances = np.random.default_rng(seed).integers(1, 30, indices.shape).astype(np.float32)  # many ties
    indices[:, 1:][indices[:, 1:] == indices[:, :1]] = -1
    graph = in_blocks(indices, 17)
    graph.settle()
    component = graph.weak_components()[1]
    is_large = np.bincount(component) > 3
    longest = int((indices >= 0).sum(axis=1).max())
    lists = Lists(N, 17, lambda start, stop: (indices[start:stop], distances[start:stop]), longest)
    repair = repair_graph(lists, graph, component, reverse, is_large)
    for actual, expected in zip(repair, plan_repair(indices, distances, component, reverse, is_large), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_memory_does_not_grow_with_the_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of long lists, read in blocks."""
    monkeypatch.setattr(contraction, "EDGES_AT_ONCE", 1000)
    n, k, size = 40_000, 48, 500

    def edges():
        for start in range(0, n, size):
            part = contract((np.arange(start, start + size)[:, None] + np.arange(1, k + 1)).astype(np.int32) % n, start)
            yield part.sources, part.targets

    tracemalloc.start()
    try:
        graph = CondensedGraph(np.arange(n, dtype=np.int32), n, edges)
        graph.settle()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert graph.size.tolist() == [n]
    assert peak < 100 * n + 100 * size * k < 4 * n * k

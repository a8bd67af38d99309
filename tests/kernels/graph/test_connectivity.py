import tracemalloc

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from lle.kernels.graph import connectivity
from lle.kernels.graph.connectivity import closed_classes, neighbor_graph, weak_components
from tests.support.oracle import dense_factor
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37)


def lists_of(*neighbors: list[int]) -> np.ndarray:
    width = max(map(len, neighbors))
    return np.array([row + [-1] * (width - len(row)) for row in neighbors], dtype=np.int32)


# 0 <-> 1 is left by 1 -> 2; 2 <-> 3 and 4 <-> 5 are left by nothing: one weak component, two closed classes.
TWO_CLASSES = lists_of([1], [0, 2], [3], [2], [5], [4], [3, 4], [6, 0])


def null_dimension(indices: np.ndarray) -> int:
    """dim null(I - W) for equal weights, from singular values."""
    weights = (indices >= 0) / (indices >= 0).sum(axis=1, keepdims=True)
    singular = np.linalg.svd(dense_factor(indices, weights), compute_uv=False)
    return int(np.count_nonzero(singular < 1e-9))


def random_lists(seed: int, n_points: int, k: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    lists = []
    for i in range(n_points):
        candidates = np.delete(np.arange(n_points), i)
        lists.append(rng.permutation(candidates)[: rng.integers(1, k + 1)].tolist())
    return lists_of(*lists)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_neighbor_graph__empty_slots_and_repeated_ids(dtype: type) -> None:
    indices = np.array([[3, -1, 1], [-1, -1, -1], [0, 3, 3], [-1, 2, -1]], dtype=dtype)
    expected = np.zeros((4, 4))
    expected[[0, 0, 2, 2, 3], [3, 1, 0, 3, 2]] = 1
    graph = neighbor_graph(indices)
    np.testing.assert_array_equal(graph.toarray(), expected)
    assert graph.has_canonical_format
    assert graph.data.strides == (0,)


def test_closed_classes__take_few_bytes_for_each_edge() -> None:
    """SciPy takes 20 bytes an edge for a graph with another type of numbers."""
    n_points, k = 100_000, 12
    indices = (np.arange(n_points, dtype=np.int32)[:, None] + np.arange(1, k + 1, dtype=np.int32)) % n_points
    tracemalloc.start()
    try:
        sizes = closed_classes(neighbor_graph(indices)).sizes
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sizes.tolist() == [n_points]
    assert peak < (5 * k + 50) * n_points + 100 * connectivity.ROWS_AT_ONCE


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 2])
def test_weak_components__those_of_scipy(seed: int, k: int) -> None:
    indices = random_lists(seed, 80, k)
    indices[50:] = np.where(indices[50:] >= 0, 50 + indices[50:] % 30, -1)  # no edge leaves the last 30 points
    indices[:50] = np.where(indices[:50] >= 50, -1, indices[:50])
    n_components, labels = weak_components(neighbor_graph(indices))
    n_expected, expected = connected_components(neighbor_graph(indices).toarray(), directed=False)
    assert n_components == n_expected > 1
    assert len(np.unique(np.column_stack([labels, expected]), axis=0)) == n_components


def test_weak_components__by_size_then_lowest_member() -> None:
    indices = lists_of([5], [2], [1], [4], [3], [0], [3])  # {0, 5}, {1, 2}, {3, 4, 6}
    n_components, labels = weak_components(neighbor_graph(indices))
    assert n_components == 3
    np.testing.assert_array_equal(labels, [1, 2, 2, 0, 0, 1, 0])
    assert labels.dtype == np.int32


def test_closed_classes__are_more_than_undirected_components() -> None:
    assert weak_components(neighbor_graph(TWO_CLASSES))[0] == 1
    classes = closed_classes(neighbor_graph(TWO_CLASSES))
    np.testing.assert_array_equal(classes.class_of_point, [-1, -1, 0, 0, 1, 1, -1, -1])
    np.testing.assert_array_equal(classes.sizes, [2, 2])
    assert null_dimension(TWO_CLASSES) == 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_closed_classes__are_the_null_space(seed: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectivity, "ROWS_AT_ONCE", 7)
    indices = random_lists(seed, 40, k)
    assert len(closed_classes(neighbor_graph(indices)).sizes) == null_dimension(indices)


@pytest.mark.parametrize("seed", SEEDS)
def test_closed_classes__by_definition(seed: int) -> None:
    """No edge leaves a class; each point of it reaches each other; every point reaches some class."""
    indices = random_lists(seed, 40, 2)
    classes = closed_classes(neighbor_graph(indices))
    reach = np.linalg.matrix_power(neighbor_graph(indices).toarray().astype(float) + np.eye(40), 40) > 0
    for label, size in enumerate(classes.sizes):
        members = np.flatnonzero(classes.class_of_point == label)
        assert len(members) == size
        for point in members:
            np.testing.assert_array_equal(np.flatnonzero(reach[point]), members)
    assert reach[:, classes.class_of_point >= 0].any(axis=1).all()
    assert (np.diff(classes.sizes) <= 0).all()

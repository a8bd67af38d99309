"""Links between components: as many and as short as a minimum spanning tree of the dense distance matrix."""

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist

from lle.kernels.graph import spanning_links as kernel
from lle.kernels.graph.connectivity import Edges, neighbor_graph, weak_components
from lle.kernels.graph.repair import apply_repair
from lle.kernels.graph.spanning_links import REVERSED_LINKS, as_edges, candidates, spanning_links
from tests.support.oracle import exact_neighbors
from tests.support.seeds import seeds


def islands(rng: np.random.Generator, n_islands: int, largest: int = 60, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Points and the island of each: tight groups of 4 to 30 points at random places, and a wider one, number 0."""
    centers = rng.normal(size=(n_islands, d)) * 40
    sizes = np.r_[largest, rng.integers(4, 31, n_islands - 1)]
    component = np.repeat(np.arange(n_islands), sizes)
    return centers[component] + rng.normal(size=(len(component), d)), component


def links_of(points: np.ndarray, component: np.ndarray) -> Edges:
    outside, inside = np.flatnonzero(component), np.flatnonzero(component == 0)
    distances = cdist(points[outside], points[inside])
    nearest = inside[distances.argmin(axis=1)]
    return as_edges(*spanning_links(points[outside], outside, component[outside], nearest, distances.min(axis=1)))


def undirected(links: Edges) -> set[tuple[int, int]]:
    return {(min(i, j), max(i, j)) for i, j in zip(links.rows.tolist(), links.neighbors.tolist(), strict=True)}


@pytest.mark.parametrize("seed", seeds(5, 17, 29, 43))
@pytest.mark.parametrize("n_islands", [2, 3, 12, 40])
@pytest.mark.parametrize("tree_points", [0, 9, 1024])
def test_total_length_is_that_of_the_minimum_spanning_tree(
    seed: int, n_islands: int, tree_points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "TREE_POINTS", tree_points)
    points, component = islands(np.random.default_rng(seed), n_islands)
    links = links_of(points, component)
    between = cdist(points, points)
    shortest = np.array(
        [[between[component == a][:, component == b].min() for b in range(n_islands)] for a in range(n_islands)]
    )
    pairs = undirected(links)
    assert len(pairs) == n_islands - 1
    assert len(set(zip(links.rows.tolist(), links.neighbors.tolist(), strict=True))) == len(links.rows)
    total = sum(between[i, j] for i, j in pairs)
    assert total == pytest.approx(minimum_spanning_tree(shortest).sum(), rel=1e-12)
    np.testing.assert_allclose(links.distances, between[links.rows, links.neighbors], rtol=1e-6)
    np.testing.assert_array_equal(np.lexsort((links.distances, links.rows)), np.arange(len(links.rows)))


@pytest.mark.parametrize("seed", seeds(5, 17, 29))
def test_lists_with_the_links_are_one_component(seed: int) -> None:
    points, _ = islands(np.random.default_rng(seed), 9)
    neighbors, distances = (
        array.astype(kind) for array, kind in zip(exact_neighbors(points, 3), (int, np.float32), strict=True)
    )
    component = weak_components(neighbor_graph(neighbors))[1]
    assert component.max() >= 8
    links = links_of(points, component)
    width = 3 + int(np.bincount(links.rows).max())
    joined = apply_repair(neighbors, distances, 0, links, width)[0]
    assert weak_components(neighbor_graph(joined))[0] == 1


def test_a_point_near_many_components_does_not_become_a_hub() -> None:
    points = np.vstack([np.zeros((1, 50)), 9 * np.eye(50)])
    links = links_of(points, np.arange(51))
    assert np.bincount(links.rows, minlength=51).tolist() == [REVERSED_LINKS, *[1] * 50]
    assert len(undirected(links)) == 50


def test_later_links_may_end_at_components_that_were_joined_before() -> None:
    """On a line: 0 takes 3, then 8 and 9 take each other, then both together take 3, and not 0."""
    points = np.array([[0.0], [3.0], [8.0], [9.0]])
    links = links_of(points, np.arange(4))
    assert undirected(links) == {(0, 1), (2, 3), (1, 2)}


def test_equal_distances_make_no_cycle() -> None:
    corners = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1]])
    assert len(undirected(links_of(corners, np.arange(6)))) == 5


def test_candidates_are_all_points_of_small_components_and_evenly_spaced_ones_of_large(monkeypatch) -> None:
    monkeypatch.setattr(kernel, "CANDIDATES", 4 * 20)
    component = np.random.default_rng(3).permutation(np.repeat(np.arange(4), [500, 400, 41, 20]))
    found = candidates(component)
    assert np.bincount(component[found], minlength=4).tolist() == [0, 20, 20, 20]
    assert (np.diff(found) > 0).all()
    positions = np.searchsorted(np.flatnonzero(component == 1), found[component[found] == 1])
    assert set(np.diff(positions).tolist()) == {20}

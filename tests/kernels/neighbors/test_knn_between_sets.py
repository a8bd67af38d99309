"""Both ways at once against brute force each way."""

import numpy as np
import pytest

from lle.kernels.neighbors import distances, knn_between_sets
from lle.kernels.neighbors.knn_between_sets import mutual_neighbors
from tests.support.seeds import seeds


def brute(queries, query_ids, reach, points, ids, k):
    """Ids (b, k) of the nearest points within reach of each query, -1 where there are fewer."""
    distances = np.linalg.norm(queries[:, None] - points[None], axis=2)
    distances[(query_ids[:, None] == ids) | (distances > reach[:, None])] = np.inf
    order = np.argsort(distances, axis=1)[:, :k]
    actual = np.where(np.isfinite(np.take_along_axis(distances, order, axis=1)), ids[order], -1)
    return actual, np.sort(distances, axis=1)[:, :k]


@pytest.mark.parametrize("seed", seeds(3, 11, 29))
@pytest.mark.parametrize("d", [2, 40])
@pytest.mark.parametrize("at_a_time", [32, 1000])
def test_search_in_both_directions_equals_brute_force(seed, d, at_a_time, monkeypatch):
    monkeypatch.setattr(knn_between_sets, "TILE_POINTS", 50)
    monkeypatch.setattr(knn_between_sets, "TILE_QUERIES", 30)
    monkeypatch.setattr(knn_between_sets, "QUERIES_AT_A_TIME", at_a_time)
    monkeypatch.setattr(distances, "DIFFERENCES", 11 * d)
    rng = np.random.default_rng(seed)
    points = (rng.normal(size=(170, d)) + 1e3).astype(np.float32)  # far from the origin: rounding shows
    new = rng.permutation(170)[:70]
    queries, query_ids, ids = points[new], new + 1000, np.arange(170) + 1000
    near, far = np.quantile(np.linalg.norm(points[:50, None] - points[None], axis=2), [0.05, 0.4])
    query_reach, reach = rng.uniform(near, far, 70), rng.uniform(near, far, 170)
    reach[rng.permutation(170)[:20]] = -np.inf  # these have no neighbours
    forward, backward = mutual_neighbors(queries, query_ids, query_reach, points, ids, reach, 7)
    wide = points.astype(np.float64)
    for actual, expected in (
        (forward, brute(wide[new], query_ids, query_reach, wide, ids, 7)),
        (backward, brute(wide, ids, reach, wide[new], query_ids, 7)),
    ):
        np.testing.assert_array_equal(actual.ids, expected[0])
        np.testing.assert_allclose(actual.distances, expected[1], rtol=1e-9)
    assert (backward.ids[np.isinf(reach)] == -1).all()
    assert (forward.ids >= 0).any()
    assert (forward.ids < 0).any()


def test_empty_set_gives_empty_lists():
    actual = mutual_neighbors(
        np.zeros((3, 2)), np.arange(3), np.ones(3), np.empty((0, 2)), np.arange(0), np.empty(0), 4
    )
    assert [lists.ids.tolist() for lists in actual] == [[[-1] * 4] * 3, []]
    assert [lists.distances.shape for lists in actual] == [(3, 4), (0, 4)]


def test_point_exactly_at_the_reach_is_found():
    points, queries = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 5.0]])
    lists = mutual_neighbors(queries, np.array([9]), np.array([5.0]), points, np.arange(2), np.array([5.0, 3.0]), 2)
    assert lists[0].ids.tolist() == [[1, 0]]
    assert lists[1].ids.tolist() == [[9, -1], [-1, -1]]

"""Which points of a block are searched again among the cells of other blocks."""

import numpy as np
import pytest

from lle.search import kdtree_blocks
from lle.search.kdtree_blocks import within_reach


@pytest.mark.parametrize("rows_at_once", [1, 7, 1024])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points_and_boxes_within_reach_equal_all_distances(rng, monkeypatch, rows_at_once, dtype):
    monkeypatch.setattr(kdtree_blocks, "ROWS_AT_ONCE", rows_at_once)
    points = np.sort(rng.random((60, 3)), axis=0).astype(dtype)
    low = 0.8 * rng.random((5, 3))
    low[2] += 7  # far from all points
    high = low + 0.2 * rng.random((5, 3))
    reach = 0.3 * rng.random(60)
    nearest = np.clip(points[:, None], low, high)  # of each box to each point
    is_within = np.square(points[:, None] - nearest).sum(axis=2) <= reach[:, None] ** 2
    assert 0 < is_within.any(axis=1).sum() < 60
    near, reached = within_reach(points, reach, low, high)
    np.testing.assert_array_equal(near, np.flatnonzero(is_within.any(axis=1)))
    np.testing.assert_array_equal(reached, np.flatnonzero(is_within.any(axis=0)))


def test_a_point_without_enough_neighbors_is_near_every_box(rng):
    points, reach = rng.random((4, 2)), np.array([0.1, np.inf, 0.1, 0.1])
    near, reached = within_reach(points, reach, np.full((1, 2), 90.0), np.full((1, 2), 91.0))
    assert (near.tolist(), reached.tolist()) == ([1], [0])

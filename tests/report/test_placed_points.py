"""Points are found by their places, and points that are not in the picture are not."""

import numpy as np
import pytest
from matplotlib.path import Path

from lle.report.placed_points import PlacedPoints, shown_range, side_by_side


@pytest.fixture
def placed(rng):
    """Two clouds and a few points far away, in no order, of which some are not in the picture."""
    x = np.concatenate([rng.normal(0, 1, 4000), rng.normal(5, 0.1, 4000), [-300.0, 900.0]]).astype(np.float32)
    y = np.concatenate([rng.normal(0, 1, 4000), rng.normal(-3, 0.1, 4000), [700.0, -40.0]]).astype(np.float32)
    order = rng.permutation(len(x))
    x, y = x[order], y[order]
    x[::7] = y[::7] = np.nan
    return PlacedPoints(x, y)


@pytest.mark.parametrize(
    "corners",
    [
        [(-1, -2), (0.5, -2), (0.5, 2), (-1, 2)],
        [(6, 2), (-1, 2), (-1, -2), (6, -2)],
        [(0, 0), (5, -4), (5.5, -2.8), (1, 1)],
        [(-1, -1), (1, 1), (1, -1), (-1, 1)],
        [(0, 0), (1, 0), (0, 1)],
    ],
)
def test_points_inside_a_polygon(placed, corners):
    polygon = np.array(corners, float)
    expected = np.flatnonzero(Path(polygon).contains_points(np.column_stack([placed.x, placed.y])))
    assert len(expected) > 10
    np.testing.assert_array_equal(placed.inside(polygon), expected)


def test_nearest_points_come_first(placed):
    points = placed.nearest(0.3, 0.2, (0.5, 0.25))
    distances = ((placed.x - np.float32(0.3)) / 0.5) ** 2 + ((placed.y - np.float32(0.2)) / 0.25) ** 2
    assert len(points) == (distances <= 1).sum() > 10
    assert points[0] == np.nanargmin(distances)
    assert (np.diff(distances[points]) >= -1e-6).all()
    assert len(placed.nearest(100.0, 100.0, (1.0, 1.0))) == 0


def test_far_points_do_not_stretch_the_view_and_equal_points_have_one():
    values = np.concatenate([np.linspace(0, 1, 10_000), [1e6]]).astype(np.float32)
    low, high = shown_range(values)
    assert -0.1 < low < 0 < 1 < high < 1.1
    assert shown_range(np.full(5, 2.0, np.float32)) == (1.0, 3.0)
    assert shown_range(np.array([np.nan, 2.0, np.nan], np.float32)) == (1.0, 3.0)
    assert PlacedPoints(np.empty(0, np.float32), np.empty(0, np.float32)).part == (-0.5, 0.5, -0.5, 0.5)


def test_components_are_side_by_side_and_keep_their_shape(rng):
    component = rng.integers(0, 3, 900)
    x, y = (rng.normal(size=900).astype(np.float32) for _ in range(2))
    moved_x, moved_y = side_by_side(x, y, component, 4)  # the fourth has no points
    boxes = []
    for label in range(3):
        rows = component == label
        np.testing.assert_allclose(np.diff(moved_x[rows]), np.diff(x[rows]), atol=1e-5)
        boxes.append((moved_x[rows].min(), moved_x[rows].max(), moved_y[rows].min(), moved_y[rows].max()))
    for a in range(3):
        for b in range(a):
            (l1, r1, b1, t1), (l2, r2, b2, t2) = boxes[a], boxes[b]
            assert r1 < l2 or r2 < l1 or t1 < b2 or t2 < b1

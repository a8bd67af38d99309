"""The grid gives the same points as a comparison with all points."""

import numpy as np
import pytest
from matplotlib.path import Path

from lle.report.point_grid import Part, PointGrid, shown_range, side_by_side


@pytest.fixture
def grid(rng):
    """Two clouds and a few points far away, in no order."""
    x = np.concatenate([rng.normal(0, 1, 4000), rng.normal(5, 0.1, 4000), [-300.0, 900.0]]).astype(np.float32)
    y = np.concatenate([rng.normal(0, 1, 4000), rng.normal(-3, 0.1, 4000), [700.0, -40.0]]).astype(np.float32)
    order = rng.permutation(len(x))
    return PointGrid(x[order], y[order], np.arange(len(x))), x[order], y[order]


PARTS = [
    Part(-1, 1, -1, 1),
    Part(4.9, 5.1, -3.05, -2.95),
    Part(-1e4, 1e4, -1e4, 1e4),
    Part(-400, -200, 600, 800),
    Part(2.0, 2.0001, 2.0, 2.0001),
]


@pytest.mark.parametrize("part", PARTS)
def test_ranges_hold_all_points_of_a_part(grid, part):
    grid, x, y = grid
    numbers = np.concatenate([grid.numbers[:0], *(grid.numbers[found] for found in grid.ranges(part))])
    inside = np.flatnonzero((x >= part.left) & (x <= part.right) & (y >= part.bottom) & (y <= part.top))
    assert set(inside) <= set(numbers)
    assert len(set(numbers)) == len(numbers)
    if part.right - part.left < 1:
        assert len(numbers) < len(x)


def test_numbers_name_the_points(grid):
    grid, x, y = grid
    np.testing.assert_array_equal(grid.x, x[grid.numbers])
    np.testing.assert_array_equal(grid.y, y[grid.numbers])


@pytest.mark.parametrize(
    "corners",
    [
        [(-1, -2), (6, -2), (6, 2), (-1, 2)],
        [(6, 2), (-1, 2), (-1, -2), (6, -2)],
        [(0, 0), (5, -4), (5.5, -2.8), (1, 1)],
        [(-1, -1), (1, 1), (1, -1), (-1, 1)],
        [(0, 0), (1, 0), (0, 1)],
    ],
)
def test_points_inside_a_polygon(grid, corners):
    grid, x, y = grid
    polygon = np.array(corners, float)
    expected = np.flatnonzero(Path(polygon).contains_points(np.column_stack([x, y])))
    assert len(expected) > 10
    np.testing.assert_array_equal(np.sort(grid.numbers[grid.inside(polygon)]), expected)


def test_nearest_points_come_first(grid):
    grid, x, y = grid
    places = grid.nearest(0.3, 0.2, (0.5, 0.25))
    distances = ((x - np.float32(0.3)) / 0.5) ** 2 + ((y - np.float32(0.2)) / 0.25) ** 2
    assert len(places) == (distances <= 1).sum() > 10
    assert grid.numbers[places[0]] == distances.argmin()
    assert (np.diff(distances[grid.numbers[places]]) >= -1e-6).all()
    assert len(grid.nearest(100.0, 100.0, (1.0, 1.0))) == 0


def test_far_points_do_not_stretch_the_view_and_equal_points_have_one():
    values = np.concatenate([np.linspace(0, 1, 10_000), [1e6]]).astype(np.float32)
    low, high = shown_range(values)
    assert -0.1 < low < 0 < 1 < high < 1.1
    assert shown_range(np.full(5, 2.0, np.float32)) == (1.0, 3.0)
    assert len(PointGrid(np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0)).ranges(Part(0, 1, 0, 1))) <= 1


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

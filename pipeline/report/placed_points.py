"""Points of a picture: which of them are inside a polygon, near a position, or in a direction from it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.arrays import Array, Float32, Float64
from .point_colors import Range, view_of

Positions = npt.NDArray[np.intp]


class Part(NamedTuple):
    """A rectangle of the picture, in the units of the coordinates."""

    left: float
    right: float
    bottom: float
    top: float

    def widened(self, x: float, y: float) -> "Part":
        return Part(self.left - x, self.right + x, self.bottom - y, self.top + y)


class PlacedPoints:
    """Points (x, y), each (n,) float32; NaN for points that are not in the picture.

    A place is the number of a point. part: the range of the points, which a few far ones cannot stretch.
    """

    def __init__(self, x: Float32, y: Float32) -> None:
        self.x, self.y = x, y
        self.part = Part(*shown_range(x), *shown_range(y))

    def inside(self, polygon: Float64) -> Positions:
        """Places of the points inside a polygon (v, 2), ascending."""
        from matplotlib.path import Path  # a fifth of a second

        (left, bottom), (right, top) = polygon.min(axis=0).tolist(), polygon.max(axis=0).tolist()
        places = self._places(Part(left, right, bottom, top))
        sides = np.diff(polygon, axis=0, append=polygon[:1])
        if len(polygon) == 4 and (sides == 0).any(axis=1).all():  # a rectangle
            return places
        points = np.column_stack([self.x[places], self.y[places]])
        return np.asarray(places[Path(polygon).contains_points(points)])

    def nearest(self, x: float, y: float, reach: tuple[float, float]) -> Positions:
        """Places of the points within `reach` (along x, along y), the nearest first."""
        places = self._places(Part(x, x, y, y).widened(*reach))
        distances = ((self.x[places] - x) / reach[0]) ** 2 + ((self.y[places] - y) / reach[1]) ** 2
        near = np.flatnonzero(distances <= 1.0)
        return np.asarray(places[near[np.argsort(distances[near], kind="stable")]])

    def toward(self, at: Sequence[float], direction: tuple[int, int]) -> Positions:
        """Places of the points seen from `at` within 45 degrees of a direction, (0, 1) for up, the nearest first.

        Distances along x and y are shares of the ranges of `part`.
        """
        u = (self.x - np.float32(at[0])) / np.float32(self.part.right - self.part.left)
        v = (self.y - np.float32(at[1])) / np.float32(self.part.top - self.part.bottom)
        along, across = u * direction[0] + v * direction[1], np.abs(u * direction[1] - v * direction[0])
        places = np.flatnonzero((along > 0) & (across <= along))
        return np.asarray(places[np.argsort(u[places] ** 2 + v[places] ** 2, kind="stable")])

    def part_around(self, places: Positions) -> Part:
        """The part of some points with a margin, which is not below a thirteenth of `self.part`."""
        x, y = self.x[places], self.y[places]
        box = Part(float(x.min()), float(x.max()), float(y.min()), float(y.max()))
        width, height = self.part.right - self.part.left, self.part.top - self.part.bottom
        return box.widened(
            max(0.15 * (box.right - box.left), 0.075 * width), max(0.15 * (box.top - box.bottom), 0.075 * height)
        )

    def _places(self, part: Part) -> Positions:
        x, y = self.x, self.y
        return np.flatnonzero((x >= part.left) & (x <= part.right) & (y >= part.bottom) & (y <= part.top))


def shown_range(values: Float32) -> Range:
    """The `view_of` an even sample of about a million coordinates (n,) that are known; also of none."""
    known = values[np.isfinite(values)]
    sample = known[:: max(1, len(known) // 1_000_000)].astype(np.float64)
    return view_of(sample if len(sample) else np.zeros(1))


def side_by_side(x: Float32, y: Float32, component: Array, n_components: int) -> tuple[Float32, Float32]:
    """Coordinates of points with the components on shelves, moved but not scaled, like the pictures of the report."""
    from .component_layout import GAP, shelves  # matplotlib

    members = np.split(np.argsort(component, kind="stable"), np.cumsum(np.bincount(component, minlength=n_components)))
    ranges = np.array([[shown_range(x[rows]), shown_range(y[rows])] for rows in members[:n_components]])
    sizes = ranges[:, :, 1] - ranges[:, :, 0]
    shifts = shelves(sizes + GAP * sizes.mean(axis=0), 1.6) - ranges[:, :, 0]
    return (x + shifts[component, 0]).astype(np.float32), (y + shifts[component, 1]).astype(np.float32)

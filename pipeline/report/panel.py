"""The points on a pair of axes, and their aggregation on its pixels: overplotting would show only those drawn last."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array

from ..core.arrays import Array, Float64, Int64, UInt8
from .point_colors import Range

POINTS_AT_ONCE = 2**20
FAINTEST = 110
"""Opacity of the pixels with the fewest points, of 255."""

Shape = tuple[int, int]
"""Rows and columns of pixels; the first row is the lowest."""


class Panel(NamedTuple):
    """A pair of axes: `rows` of the embedding at (x, y), shown in (x_range, y_range)."""

    ax: Axes
    rows: Int64
    x: Float64
    y: Float64
    x_range: Range
    y_range: Range

    def take(self, chosen: Array) -> "Panel":
        """The panel with some of its points; chosen: their places, or a mask."""
        return self._replace(rows=self.rows[chosen], x=self.x[chosen], y=self.y[chosen])


def count_points(panel: Panel, shape: Shape, values: Array | None = None) -> Float64:
    """Number of points, or sum of their values, in the 3 x 3 pixels around each pixel.

    A single point on one pixel would hardly be visible at 150 dpi.
    """
    from scipy.ndimage import convolve  # pictures of few points start faster without

    total = np.zeros(shape)
    for start in range(0, len(panel.x), POINTS_AT_ONCE):
        part, ranges = slice(start, start + POINTS_AT_ONCE), (panel.y_range, panel.x_range)
        weights = None if values is None else values[part]
        total += np.histogram2d(panel.y[part], panel.x[part], shape, ranges, weights=weights)[0]
    return np.asarray(convolve(total, np.ones((3, 3)), mode="constant"))


def mean_values(panel: Panel, shape: Shape, values: Array) -> Float64:
    """Mean of the finite values in the 3 x 3 pixels around each pixel; NaN if there are none."""
    is_finite = np.isfinite(values)
    known = panel.take(is_finite)
    counts = count_points(known, shape)
    return count_points(known, shape, values[is_finite]) / np.where(counts > 0.0, counts, np.nan)


def shade_classes(panel: Panel, shape: Shape, codes: Array, colors: Sequence[str]) -> UInt8:
    """RGBA (height, width, 4): class colours mixed by their counts around a pixel, opacity by rank of density.

    codes: (n,) class of each point from 0 on, an index into `colors` (#rrggbb).
    """
    counts, channels = count_points(panel, shape), to_rgba_array(colors)[:, :3].T
    sums = np.stack([count_points(panel, shape, channel[codes]) for channel in channels], axis=-1)
    return shaded(counts, sums[counts > 0] / counts[counts > 0, None], FAINTEST)


def shaded(counts: Float64, colors: Float64, faintest: int) -> UInt8:
    """RGBA (height, width, 4) of pixels with these numbers of points (height, width).

    colors: (k, 3), 0 to 1, of the k pixels with points. The opacity is the rank of the number of points: 255 for the
    largest, `faintest` for the smallest.
    """
    picture, is_drawn = np.zeros((*counts.shape, 4), np.uint8), counts > 0
    numbers = np.minimum(counts[is_drawn], 2**16 - 1).astype(np.int64)  # larger numbers have the same rank
    rank = (np.cumsum(np.bincount(numbers)) / max(1, len(numbers)))[numbers]
    lowest = rank.min(initial=1.0)
    picture[is_drawn, :3] = np.rint(255 * colors)
    picture[is_drawn, 3] = 255 if lowest == 1.0 else faintest + (255 - faintest) * (rank - lowest) / (1.0 - lowest)
    return picture

"""The points on a pair of axes, and their aggregation on its pixels: overplotting would show only those drawn last."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from ..core.arrays import Array, Float64, Int64, UInt8
from .point_colors import Range

POINTS_AT_ONCE = 2**20

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
    """RGBA: class colours mixed by their counts around a pixel, opacity by rank of density.

    codes: (n,) class of each point from 0 on, an index into `colors` (#rrggbb).
    """
    # Importing these takes seconds, so pictures without classes avoid it.
    import xarray
    from datashader.transfer_functions import shade

    counts = [count_points(panel.take(codes == code), shape).astype(np.uint32) for code in range(len(colors))]
    classes = {"class": list(range(len(colors)))}
    stacked = xarray.DataArray(np.stack(counts, axis=-1), dims=("y", "x", "class"), coords=classes)
    shaded = shade(stacked, color_key=list(colors), how="eq_hist", min_alpha=110)
    return np.asarray(shaded.to_pil(origin="upper"))

"""Aggregate points on the pixels of their axes; overplotting would show only the points drawn last."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array, Float64, UInt8

POINTS_AT_ONCE = 2**20


class Grid(NamedTuple):
    """Pixels of a panel: rows and columns, and their x and y range; the first row is the lowest."""

    shape: tuple[int, int]
    x_range: tuple[float, float]
    y_range: tuple[float, float]


def count_points(grid: Grid, x: Array, y: Array, values: Array | None = None) -> Float64:
    """Number of points, or sum of their values, in the 3 x 3 pixels around each pixel, lowest row first.

    A single point on one pixel would hardly be visible at 150 dpi.
    """
    from scipy.ndimage import convolve  # pictures of few points start faster without

    total = np.zeros(grid.shape)
    for start in range(0, len(x), POINTS_AT_ONCE):
        part = slice(start, start + POINTS_AT_ONCE)
        weights = None if values is None else values[part]
        total += np.histogram2d(y[part], x[part], grid.shape, (grid.y_range, grid.x_range), weights=weights)[0]
    return np.asarray(convolve(total, np.ones((3, 3)), mode="constant"))


def mean_values(grid: Grid, x: Array, y: Array, values: Array) -> Float64:
    """Mean of the finite values in the 3 x 3 pixels around each pixel; NaN if there are none."""
    is_finite = np.isfinite(values)
    x, y = x[is_finite], y[is_finite]
    counts = count_points(grid, x, y)
    return count_points(grid, x, y, values[is_finite]) / np.where(counts > 0.0, counts, np.nan)


def shade_classes(grid: Grid, x: Array, y: Array, codes: Array, colors: Sequence[str]) -> UInt8:
    """RGBA, lowest row first: class colours mixed by their counts around a pixel, opacity by rank of density.

    Args:
        codes: (n,) class of each point from 0 on, an index into `colors` (#rrggbb).
    """
    # Importing these takes seconds, so pictures without classes avoid it.
    import xarray
    from datashader.transfer_functions import shade

    counts = [count_points(grid, x[codes == code], y[codes == code]).astype(np.uint32) for code in range(len(colors))]
    classes = {"class": list(range(len(colors)))}
    stacked = xarray.DataArray(np.stack(counts, axis=-1), dims=("y", "x", "class"), coords=classes)
    shaded = shade(stacked, color_key=list(colors), how="eq_hist", min_alpha=110)
    return np.asarray(shaded.to_pil(origin="upper"))

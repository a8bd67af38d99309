"""Pictures of a part of an embedding from all of its points. Importing this module loads numba."""

import math
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
from matplotlib.colors import to_rgba_array

from ..core.arrays import Array, Bools, Float64, Int64, UInt8
from ..core.machine import available_cores
from .color_key import ColorKey
from .images import png_of
from .point_grid import Part, PointGrid

FAINTEST = 110
"""Opacity of the pixels with the fewest points, of 255."""
FAINTEST_OF_FEW, FEW = 210, 20_000
"""Another such opacity, and the number of points up to which it is used: single points would look pale."""
RADII = ((2_000, 3), (20_000, 2), (150_000, 1))
"""Radius of a point in pixels up to a number of points in the picture; one pixel above."""


def draw_part(
    grid: PointGrid,
    codes: UInt8,
    key: ColorKey,
    dark: bool,
    part: Part,
    size: tuple[int, int],
    chosen: Sequence[int] = (),
    is_selected: Bools | None = None,
    larger: int = 0,
) -> bytes:
    """A part of the picture as a PNG of `size` (width, height) with a transparent background.

    codes: (n,) colour codes in the order of the grid. chosen: codes of the classes to show; empty shows all.
    A pixel mixes the colours of its points; its opacity is the rank of their number among all pixels.
    is_selected: (n,) points to draw over the others, which are faded. larger: pixels to add to the radius of a point.
    """
    colors = to_rgba_array(key.palettes[dark])[:, :3]
    every, is_scale = range(len(colors)), key.kind == "scale"
    is_shown = np.isin(every, chosen or every)
    picture = _drawn(grid, codes, colors, is_scale, is_shown, part, size, larger)
    if is_selected is not None:
        picture[..., 3] = (0.2 * picture[..., 3]).astype(np.uint8)
        only_selected = np.where(is_selected, codes, len(every)).astype(np.uint8)  # a code that is not shown
        over = _drawn(grid, only_selected, colors, is_scale, np.append(is_shown, False), part, size, larger)
        picture = np.where(over[..., 3:] > 0, over | np.array([0, 0, 0, 255], np.uint8), picture)
    return png_of(picture, compress_level=1, compress_type=zlib.Z_RLE)  # a third of the time of the defaults


def _drawn(
    grid: PointGrid,
    codes: UInt8,
    colors: Float64,
    is_scale: bool,
    is_shown: Bools,
    part: Part,
    size: tuple[int, int],
    larger: int,
) -> UInt8:
    """RGBA (height, width, 4), the top row first: the mean colour of classes, the colour of the mean of a scale.

    is_shown: (n_colors,), whether points of a code are drawn. Each point is a disc, the smaller the more points.
    """
    values = colors
    if is_scale:  # step, 1, 0 for each step; zeros for unknown values
        values = np.zeros((len(colors), 3))
        values[:-1, 0], values[:-1, 1] = np.arange(len(colors) - 1), 1.0
    sums, n = _sums(grid, codes, values, is_shown, part, size, 0)
    if radius := max(0, larger + next((radius for limit, radius in RADII if n <= limit), 0)):
        sums, _ = _sums(grid, codes, values, is_shown, part, size, radius)
    picture = np.zeros((*sums.shape[:2], 4), np.uint8)
    opacity = _opacity(sums[..., 0], FAINTEST_OF_FEW if n <= FEW else FAINTEST)
    paint(sums, opacity, np.rint(255 * colors).astype(np.uint8), is_scale, picture)
    return picture


def _sums(
    grid: PointGrid, codes: UInt8, values: Float64, is_shown: Bools, part: Part, size: tuple[int, int], radius: int
) -> tuple[Float64, int]:
    """(height, width, 4): number of points on each pixel and sums of their values; and the number of points drawn.

    Strips of the picture are computed in threads.
    """
    width, height = size
    x_step, y_step = (part.right - part.left) / width, (part.top - part.bottom) / height
    margin, sums, disc = radius + 1, np.zeros((height, width, 4)), _disc(radius)

    def strip(first: int, last: int) -> int:
        rows = Part(part.left, part.right, part.top - last * y_step, part.top - first * y_step)
        ranges = grid.ranges(rows.widened(margin * x_step, margin * y_step))
        bounds = np.array([(places.start, places.stop) for places in ranges], np.int64).reshape(-1, 2)
        return int(add_points(grid.x, grid.y, codes, bounds, values, is_shown, disc, part, sums, first, last))

    # Threads write to one array without a lock, because each has rows of its own.
    n_strips = available_cores()
    edges = np.linspace(0, height, n_strips + 1).astype(int).tolist()
    with ThreadPoolExecutor(n_strips) as pool:
        return sums, sum(pool.map(strip, edges[:-1], edges[1:]))


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def add_points(
    x: Array,
    y: Array,
    codes: Array,
    bounds: Array,
    values: Array,
    is_shown: Array,
    disc: Array,
    part: Part,
    sums: Array,
    first: int,
    last: int,
) -> int:
    """Add 1 and values[code] to the pixels, in rows first to last, of the discs of the points in ranges `bounds`.

    Returns the number of points whose middle is in these rows.
    """
    height, width = sums.shape[0], sums.shape[1]
    x_scale, y_scale, n = width / (part.right - part.left), height / (part.top - part.bottom), 0
    margin = disc.max() + 1
    for b in range(len(bounds)):
        for i in range(bounds[b, 0], bounds[b, 1]):
            row, column = (part.top - y[i]) * y_scale, (x[i] - part.left) * x_scale
            if not (first - margin <= row < last + margin and -margin <= column < width + margin):
                continue
            code = codes[i]
            if not is_shown[code]:
                continue
            middle_row, middle_column = math.floor(row), math.floor(column)
            n += first <= middle_row < last and 0 <= middle_column < width
            for j in range(len(disc)):
                r, c = middle_row + disc[j, 0], middle_column + disc[j, 1]
                if first <= r < last and 0 <= c < width:
                    sums[r, c, 0] += 1.0
                    for v in range(3):
                        sums[r, c, v + 1] += values[code, v]
    return n


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def paint(sums: Array, opacity: Array, colors: Array, is_scale: bool, picture: Array) -> None:
    """Fill `picture` from the sums of its points; `opacity` is by their number."""
    for r in range(sums.shape[0]):
        for c in range(sums.shape[1]):
            n = sums[r, c, 0]
            if n == 0.0:
                continue
            if is_scale:
                known = sums[r, c, 2]
                code = len(colors) - 1 if known == 0.0 else int(sums[r, c, 1] / known)
                picture[r, c, :3] = colors[code]
            else:
                for v in range(3):
                    picture[r, c, v] = np.rint(255 * sums[r, c, v + 1] / n)
            picture[r, c, 3] = opacity[min(int(n), len(opacity) - 1)]


def _opacity(n: Array, faintest: int) -> UInt8:
    """Opacity of pixels with 0, 1, 2, ... points by the rank of their number, 255 for the largest number."""
    pixels = np.bincount(np.minimum(n, 2**16 - 1).astype(np.int64).ravel())  # larger numbers have the same rank
    pixels[0] = 0
    rank = np.cumsum(pixels) / max(1, pixels.sum())
    lowest = rank[pixels.nonzero()[0][:1]].sum()
    if lowest == 1.0:
        return np.full(len(rank), 255, np.uint8)
    return np.asarray(faintest + (255 - faintest) * np.maximum(rank - lowest, 0.0) / (1.0 - lowest)).astype(np.uint8)


def _disc(radius: int) -> Int64:
    """(pixels, 2): rows and columns of a disc about its middle."""
    rows, columns = np.mgrid[-radius : radius + 1, -radius : radius + 1].reshape(2, -1)
    inside = rows**2 + columns**2 <= radius**2 + (radius > 0)
    return np.column_stack([rows[inside], columns[inside]])

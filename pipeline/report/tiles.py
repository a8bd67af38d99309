"""Pictures of a part of an embedding from all of its points."""

import zlib
from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgba_array
from scipy.ndimage import convolve

from ..core.arrays import Bools, Float64, UInt8
from .images import png_of
from .panel import FAINTEST, shaded
from .placed_points import Part, PlacedPoints
from .point_colors import ColorKey

FAINTEST_OF_FEW, FEW = 210, 20_000
"""Another `FAINTEST`, and the number of points up to which it is used: single points would look pale."""
RADII = ((2_000, 3), (20_000, 2), (150_000, 1))
"""Radius of a point in pixels up to a number of points in the picture; one pixel above."""
BLOCK = 2**16
"""Points whose pixels are computed together, so that the temporary arrays stay in the cache of the processor."""


def draw_part(
    points: PlacedPoints,
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

    codes: (n,) colour codes. chosen: codes of the classes to show; empty shows all.
    A pixel mixes the colours of its points; its opacity is the rank of their number among all pixels.
    is_selected: (n,) points to draw over the others, which are faded. larger: pixels to add to the radius of a point.
    """
    colors = to_rgba_array(key.palettes[dark])[:, :3]
    every, is_scale = range(len(colors)), key.kind == "scale"
    is_shown = np.isin(every, chosen or every)
    picture = _drawn(points, codes, colors, is_scale, is_shown, part, size, larger)
    if is_selected is not None:
        picture[..., 3] = (0.2 * picture[..., 3]).astype(np.uint8)
        only_selected = np.where(is_selected, codes, len(every)).astype(np.uint8)  # a code that is not shown
        over = _drawn(points, only_selected, colors, is_scale, np.append(is_shown, False), part, size, larger)
        picture = np.where(over[..., 3:] > 0, over | np.array([0, 0, 0, 255], np.uint8), picture)
    return png_of(picture, compress_level=1, compress_type=zlib.Z_RLE)  # a third of the time of the defaults


def _drawn(
    points: PlacedPoints,
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
    values = np.vstack([np.ones(len(colors)), colors.T])
    if is_scale:
        is_known = np.arange(len(colors)) < len(colors) - 1
        values = np.stack([np.ones(len(colors)), is_known, is_known * np.arange(len(colors))])
    margin = RADII[0][1] + max(0, larger)  # discs of points outside of the picture reach into it
    sums, inside = _sums(points, codes, values, is_shown, part, size, margin), np.s_[margin:-margin, margin:-margin]
    n = sums[0][inside].sum()
    if radius := max(0, larger + next((radius for limit, radius in RADII if n <= limit), 0)):
        sums = convolve(sums, _disc(radius), mode="constant")
    counts = sums[0][inside]
    counts_drawn, *others = (table[inside][counts > 0] for table in sums)
    if is_scale:
        n_known, steps = others
        code = np.where(n_known > 0, steps / np.maximum(n_known, 1), len(colors) - 1).astype(np.int64)
        mean_colors = colors[code]
    else:
        mean_colors = np.column_stack(others) / counts_drawn[:, None]
    return shaded(counts, mean_colors, FAINTEST_OF_FEW if n <= FEW else FAINTEST)


def _sums(
    points: PlacedPoints, codes: UInt8, values: Float64, is_shown: Bools, part: Part, size: tuple[int, int], margin: int
) -> Float64:
    """Sums of values[:, code] of the points on each pixel, (len(values), height, width) with a margin at each side."""
    width, height = size[0] + 2 * margin, size[1] + 2 * margin
    x_scale, y_scale = size[0] / (part.right - part.left), size[1] / (part.top - part.bottom)
    pixels, drawn_codes = [], []
    for start in range(0, max(1, len(codes)), BLOCK):
        block = slice(start, start + BLOCK)
        rows = (part.top - points.y[block].astype(np.float64)) * y_scale + margin
        columns = (points.x[block].astype(np.float64) - part.left) * x_scale + margin
        is_drawn = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width) & is_shown[codes[block]]
        pixels.append(rows[is_drawn].astype(np.int64) * width + columns[is_drawn].astype(np.int64))
        drawn_codes.append(codes[block][is_drawn])
    pixel, code = np.concatenate(pixels), np.concatenate(drawn_codes)
    return np.array([np.bincount(pixel, value[code], width * height).reshape(height, width) for value in values])


def _disc(radius: int) -> Float64:
    """(1, rows, columns): 1 for the pixels of a disc about its middle, else 0."""
    rows, columns = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    return np.asarray(rows**2 + columns**2 <= radius**2 + 1, np.float64)[None]

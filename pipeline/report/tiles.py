"""Pictures of a part of an embedding from all of its points. Importing this module loads numba."""

import math
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numba
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgba_array

from ..core.arrays import Array, Bools, Float64, Int64, UInt8
from ..core.machine import available_cores
from .explore import Column
from .figure_style import COLOR_MAP, OKABE_ITO, class_colors
from .images import png_of
from .point_colors import MAX_CLASSES, scale_of
from .point_grid import Part, PointGrid

STEPS = 64
"""Steps of a colour scale."""
FAINTEST = 110
"""Opacity of the pixels with the fewest points, of 255."""
FAINTEST_OF_FEW, FEW = 210, 20_000
"""Another such opacity, and the number of points up to which it is used: single points would look pale."""
RADII = ((2_000, 3), (20_000, 2), (150_000, 1))
"""Radius of a point in pixels up to a number of points in the picture; one pixel above."""


class ColorKey(NamedTuple):
    """How points get their colours.

    kind: "plain", "classes" or "scale". codes: (n,) uint8, an index into colors (#rrggbb); the last colour of a scale
    is that of unknown values. entries: of a class key, name and number of points for each colour; n_named: how many of
    them are a single class. range: of a scale, None without values; log: it is logarithmic; clipped: values are outside
    of it; unknown: number of points without a value.
    """

    kind: str
    codes: UInt8
    colors: list[str]
    entries: list[tuple[str, int]] = []  # noqa: RUF012 (a tuple's default)
    n_named: int = 0
    range: tuple[float, float] | None = None
    log: bool = False
    clipped: bool = False
    unknown: int = 0


def color_key(column: Column | None, n: int, dark: bool) -> ColorKey:
    """The colours of n points by a column; None colours all alike. Classes after the 20 largest share one colour."""
    missing = "#5b6673" if dark else "#b4bcc6"
    if column is None:
        return ColorKey("plain", np.zeros(n, np.uint8), [OKABE_ITO[4 if dark else 0]])
    if column.names is None:
        return _scale(column.values, missing, dark)
    n_names = len(column.names)
    classes = np.where(column.values < 0, n_names, column.values)
    counts = np.bincount(classes, minlength=n_names + 1)
    shown = np.flatnonzero(counts[:n_names])
    if len(shown) > MAX_CLASSES:
        shown = np.sort(np.argsort(-counts[:n_names], kind="stable")[: MAX_CLASSES - 1])
    code_of = np.full(n_names + 1, len(shown), np.uint8)
    code_of[shown] = np.arange(len(shown))
    colors = class_colors(len(shown), dark)
    entries = [(str(column.names[code]) or "(empty)", int(counts[code])) for code in shown.tolist()]
    if n_others := int(counts.sum() - counts[shown].sum()):
        n_classes = int(np.count_nonzero(counts[:n_names])) - len(shown)
        entries.append((f"{n_classes} other classes" if n_classes else "unknown", n_others))
        colors.append(missing)
    return ColorKey("classes", code_of[classes], colors, entries, len(shown))


def _scale(values: Array, missing: str, dark: bool) -> ColorKey:
    is_known = np.isfinite(values)
    known = values[is_known].astype(np.float64)
    scale, is_log, codes = None, False, np.full(len(values), STEPS, np.uint8)
    if known.size:
        scale, is_log = scale_of(known)
        low, high = scale
        with np.errstate(divide="ignore", over="ignore"):
            places, width = (np.log(known.clip(0.0) / low), np.log(high / low)) if is_log else (known - low, high - low)
        codes[is_known] = np.clip(STEPS * (places / width), 0, STEPS - 1) if low < high else STEPS // 2
    first, last = (0.25, 1.0) if dark else (0.0, 0.92)  # without the end that is near the page's colour
    colors = [to_hex(colormaps[COLOR_MAP](share)) for share in np.linspace(first, last, STEPS)]
    clipped = scale is not None and bool(known.min() < scale[0] or known.max() > scale[1])
    return ColorKey("scale", codes, [*colors, missing], [], 0, scale, is_log, clipped, len(values) - len(known))


def draw_part(
    grid: PointGrid,
    codes: UInt8,
    key: ColorKey,
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
    every = range(len(key.colors))
    is_shown = np.isin(every, chosen or every)
    picture = _drawn(grid, codes, key, is_shown, part, size, larger)
    if is_selected is not None:
        picture[..., 3] = (0.2 * picture[..., 3]).astype(np.uint8)
        only_selected = np.where(is_selected, codes, len(every)).astype(np.uint8)  # a code that is not shown
        over = _drawn(grid, only_selected, key, np.append(is_shown, False), part, size, larger)
        picture = np.where(over[..., 3:] > 0, over | np.array([0, 0, 0, 255], np.uint8), picture)
    return png_of(picture, compress_level=1, compress_type=zlib.Z_RLE)  # a third of the time of the defaults


def _drawn(
    grid: PointGrid, codes: UInt8, key: ColorKey, is_shown: Bools, part: Part, size: tuple[int, int], larger: int
) -> UInt8:
    """RGBA (height, width, 4), the top row first: the mean colour of classes, the colour of the mean of a scale.

    is_shown: (n_colors,), whether points of a code are drawn. Each point is a disc, the smaller the more points.
    """
    colors = np.asarray(to_rgba_array(key.colors)[:, :3])
    values = colors
    if key.kind == "scale":  # step, 1, 0 for each step; zeros for unknown values
        values = np.zeros((len(colors), 3))
        values[:-1, 0], values[:-1, 1] = np.arange(len(colors) - 1), 1.0
    sums, n = _sums(grid, codes, values, is_shown, part, size, 0)
    if radius := max(0, larger + next((radius for limit, radius in RADII if n <= limit), 0)):
        sums, _ = _sums(grid, codes, values, is_shown, part, size, radius)
    picture = np.zeros((*sums.shape[:2], 4), np.uint8)
    opacity = _opacity(sums[..., 0], FAINTEST_OF_FEW if n <= FEW else FAINTEST)
    paint(sums, opacity, np.rint(255 * colors).astype(np.uint8), key.kind == "scale", picture)
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

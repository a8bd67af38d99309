"""Pictures of a part of an embedding from all of its points: datashader counts them, this module colours the pixels."""

import io
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgba_array

from .explore import Column
from .palette import COLOR_MAP, OKABE_ITO, class_colors
from .point_colors import MAX_CLASSES, robust_range
from .point_grid import Part, PointGrid

Array = npt.NDArray[Any]
Rgba = npt.NDArray[np.uint8]

STEPS = 64
"""Steps of a colour scale."""
FAINTEST = 110
"""Opacity of the pixels with the fewest points, of 255."""
FAINTEST_OF_FEW, FEW = 210, 20_000
"""The same up to a number of points in the picture, which are apart and would look pale."""
RADII = ((2_000, 3), (20_000, 2), (150_000, 1))
"""Radius of a point in pixels up to a number of points in the picture; one pixel above."""

MEDIAN_SAMPLE = 200_000
"""Points of a class whose median is taken."""
SELECTED = ("#000000", "#ffffff")
"""Colour of selected points on a light and on a dark page."""


class ColorKey(NamedTuple):
    """How points get their colours.

    kind: "plain", "classes" or "scale". codes: (n,) uint8, an index into colors (#rrggbb); the last colour of a scale
    is that of unknown values. entries: of a class key, name and number of points for each colour; n_named: how many of
    them are a single class. range: of a scale; clipped: values are outside of it; unknown: number of points without a
    value.
    """

    kind: str
    codes: npt.NDArray[np.uint8]
    colors: list[str]
    entries: list[tuple[str, int]] = []  # noqa: RUF012 (a tuple's default)
    n_named: int = 0
    range: tuple[float, float] = (0.0, 1.0)
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
    known = values[np.isfinite(values)]
    low, high = robust_range(known.astype(np.float64)) if known.size else (0.0, 1.0)
    high = high if high > low else low + 1.0
    with np.errstate(invalid="ignore"):
        steps = np.clip((values - low) * (STEPS / (high - low)), 0, STEPS - 1)
    codes = np.where(np.isfinite(values), steps, STEPS).astype(np.uint8)
    first, last = (0.25, 1.0) if dark else (0.0, 0.92)  # without the end that is near the page's colour
    colors = [to_hex(colormaps[COLOR_MAP](share)) for share in np.linspace(first, last, STEPS)]
    clipped = bool(known.size and (known.min() < low or known.max() > high))
    return ColorKey(
        "scale", codes, [*colors, missing], range=(low, high), clipped=clipped, unknown=len(values) - len(known)
    )


def name_places(grid: PointGrid, codes: npt.NDArray[np.uint8], key: ColorKey) -> dict[int, tuple[float, float]]:
    """Where the names of classes stand, by their codes: medians of the coordinates of (an even sample of) their points.

    codes: (n,) colour codes in the order of the grid.
    """
    places = {}
    for code in range(key.n_named):
        members = np.flatnonzero(codes == code)
        if len(members):
            sample = members[:: 1 + len(members) // MEDIAN_SAMPLE]
            places[code] = (float(np.median(grid.x[sample])), float(np.median(grid.y[sample])))
    return places


def draw_part(
    grid: PointGrid, codes: npt.NDArray[np.uint8], key: ColorKey, part: Part, size: tuple[int, int],
    chosen: Sequence[int] = (), is_selected: npt.NDArray[np.bool_] | None = None, selected_color: str = "",
) -> bytes:  # fmt: skip
    """A part of the picture as a PNG of `size` (width, height) with a transparent background.

    codes: (n,) colour codes in the order of the grid. chosen: codes of the classes to show; empty shows all.
    A pixel mixes the colours of its points; its opacity is the rank of their number among all pixels.
    is_selected: (n,) points to draw over the others in `selected_color`.
    """
    from PIL import Image  # noqa: PLC0415

    x_step, y_step = (part.right - part.left) / size[0], (part.top - part.bottom) / size[1]
    margin = RADII[0][1] + 1
    ranges = grid.ranges(part.widened(margin * x_step, margin * y_step))
    x, y, codes = (_joined(values, ranges) for values in (grid.x, grid.y, codes))
    is_chosen = np.isin(codes, chosen) if chosen else slice(None)
    x_shown, y_shown, codes_shown = x[is_chosen], y[is_chosen], codes[is_chosen]
    faintest = FAINTEST_OF_FEW if len(x_shown) <= FEW else FAINTEST
    picture = colored(*_discs(x_shown, y_shown, codes_shown, x_step, y_step), key, part, size, faintest)
    if is_selected is not None:
        selected = _joined(is_selected, ranges)
        plain = ColorKey("plain", np.zeros(np.count_nonzero(selected), np.uint8), [selected_color])
        over = colored(*_discs(x[selected], y[selected], plain.codes, x_step, y_step), plain, part, size)
        picture = np.where(over[..., 3:] > 0, over | np.array([0, 0, 0, 255], np.uint8), picture)
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "png", compress_level=1, compress_type=zlib.Z_RLE)
    return file.getvalue()


def _discs(x: Array, y: Array, codes: Array, x_step: float, y_step: float) -> tuple[Array, Array, Array]:
    """Points x, y (n,) and their codes, each drawn as a disc that is smaller the more points there are."""
    radius = next((radius for limit, radius in RADII if len(x) <= limit), 0)
    if not radius:
        return x, y, codes
    across, up = _disc(radius)
    x = np.add.outer(np.asarray(across * x_step, np.float32), x).ravel()
    y = np.add.outer(np.asarray(up * y_step, np.float32), y).ravel()
    return x, y, np.tile(codes, len(across))


def colored(
    x: Array, y: Array, codes: Array, key: ColorKey, part: Part, size: tuple[int, int], faintest: int = FAINTEST
) -> Rgba:
    """RGBA (height, width, 4), the top row first: the mean colour of classes, the colour of the mean of a scale."""
    import datashader  # noqa: PLC0415 (seconds)

    canvas, colors = datashader.Canvas(*size, part[:2], part[2:]), _rgb(key.colors)
    if key.kind == "scale":
        known = np.where(codes < STEPS, codes.astype(np.float32), np.float32(np.nan))
        both = datashader.summary(n=datashader.count(), mean=datashader.mean("code"))
        counted = canvas.points(pd.DataFrame({"x": x, "y": y, "code": known}), "x", "y", both)
        n, mean = (np.asarray(counted[name].values[::-1]) for name in ("n", "mean"))
        drawn = n > 0
        mixed = colors[np.where(np.isnan(mean[drawn]), STEPS, mean[drawn]).astype(np.uint8)]
    else:
        classes = pd.Categorical.from_codes(codes, range(len(colors)), validate=False)
        frame = pd.DataFrame({"x": x, "y": y, "code": classes})
        counts = np.asarray(canvas.points(frame, "x", "y", datashader.by("code", datashader.count())).values[::-1])
        n = counts.sum(axis=2)
        drawn = n > 0
        mixed = (counts[drawn].astype(np.float32) @ colors) / n[drawn][:, None]
    picture = np.zeros((*n.shape, 4), np.uint8)
    picture[drawn, :3], picture[drawn, 3] = np.rint(255 * mixed), _opacity(n[drawn], faintest)
    return picture


def _rgb(colors: Sequence[str]) -> npt.NDArray[np.float32]:
    return np.asarray(to_rgba_array(colors)[:, :3], np.float32)


def _opacity(n: Array, faintest: int) -> Array:
    """Opacity of pixels by the rank of their number of points, 255 for the largest number."""
    if not n.size:
        return n
    n = np.minimum(n, 2**16 - 1)
    rank = np.cumsum(np.bincount(n)) / len(n)
    lowest = rank[n.min()]
    return np.asarray((faintest + (255 - faintest) * (rank - lowest) / (1 - lowest))[n]) if lowest < 1 else 0 * n + 255


def _joined(values: Array, ranges: list[slice]) -> Array:
    return values[ranges[0]] if len(ranges) == 1 else np.concatenate([values[:0], *(values[part] for part in ranges)])


def _disc(radius: int) -> tuple[Array, Array]:
    steps = np.arange(-radius, radius + 1)
    across, up = (values.ravel() for values in np.meshgrid(steps, steps))
    inside = across**2 + up**2 <= radius**2 + 1
    return across[inside], up[inside]

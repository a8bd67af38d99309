"""The key of the colours of a picture; colours of the points of a contact sheet, and one key for all its cells."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize, to_rgba
from matplotlib.figure import Figure

from ..core.arrays import Float64, Int64
from .figure_style import COLOR_MAP, INK, MISSING, POINT, RULE, add_legend, plain_text
from .point_colors import PLAIN, ColorSource, Paint, paint_points

Color = tuple[float, ...]

BAR, GAP = (0.14, 2.6), 0.18
"""Inches: width and height of the colour bar, and distance between the cells and the key."""


class Key(NamedTuple):
    """Meaning of the colours: name and colour of each class, or without classes the range of a value."""

    label: str
    classes: tuple[tuple[str, Color], ...]
    lowest: float = 0.0
    highest: float = 1.0


def key_of(paint: Paint) -> Key | None:
    """The key of these colours; None for one colour."""
    if paint.classes is not None:
        named = zip(paint.classes.names, map(tuple, paint.classes.colors.tolist()), strict=True)
        return Key(paint.label, tuple(named))
    if not paint.label:
        return None
    return Key(paint.label, (), float(paint.norm.vmin or 0.0), float(paint.norm.vmax or 0.0))


def color_points(color: ColorSource | None, rows: Int64) -> tuple[Float64, Key | None]:
    """RGBA (len(rows), 4) of some rows of an embedding, by class or by value, and the key; None without values."""
    paint = PLAIN if color is None else paint_points(color, np.ones(color.values.size, bool))
    if paint.classes is not None:
        return paint.classes.colors[paint.classes.codes[rows]], key_of(paint)
    if paint.values is None:
        return np.tile(to_rgba(POINT if color is None else MISSING), (len(rows), 1)), None
    rgba = colormaps[COLOR_MAP].with_extremes(bad=MISSING)(paint.norm(paint.values[rows]))
    return np.asarray(rgba), key_of(paint)


def common_key(keys: Sequence[Key | None]) -> Key | None:
    """The key of all cells: the same classes, or the same value with any range; None if the keys differ."""
    first = keys[0] if keys else None
    if first is None or any(key is None or key[:2] != first[:2] for key in keys):
        return None
    ranges = np.array([(key.lowest, key.highest) for key in keys if key])
    return first if np.allclose(ranges, ranges[0]) else first._replace(lowest=np.nan, highest=np.nan)


def add_key(target: Figure | Axes, axes: Sequence[Axes], paint: Paint, **place: Any) -> None:
    """A legend of the classes at a `place` of the target, or a colour bar of values and counts beside the axes."""
    figure = target.get_figure(root=True)
    assert figure is not None
    if paint.classes is not None:
        classes = paint.classes
        add_legend(target, paint.label, classes.names, classes.colors, 9, alignment="left", **place)
    elif paint is not PLAIN:
        bar = figure.colorbar(ScalarMappable(paint.norm, COLOR_MAP), ax=list(axes), aspect=36, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.tick_params(which="both", labelsize=9, labelcolor=INK, color=RULE)
        bar.set_label(plain_text(paint.label), fontsize=10, color=INK)


def draw_key(ax: Axes, key: Key, extent: tuple[float, float]) -> None:
    """Draw a legend of classes, or a colour bar. Its ends are words if the ranges of the cells differ.

    extent: width and height of the axes in inches.
    """
    wide, high = extent
    left = 1 + GAP / wide
    if key.classes:
        names, colors = zip(*key.classes, strict=True)
        place = {"loc": "upper left", "bbox_to_anchor": (left, 1.0), "borderaxespad": 0.0}
        add_legend(ax, key.label, names, colors, 8, **place)
        return
    per_cell = not np.isfinite(key.lowest)
    scale = Normalize(0.0, 1.0) if per_cell or key.lowest == key.highest else Normalize(key.lowest, key.highest)
    length = min(BAR[1], high)
    bar_axes = ax.inset_axes((left, 1 - length / high, BAR[0] / wide, length / high))
    bar = Colorbar(bar_axes, ScalarMappable(scale, COLOR_MAP))
    if per_cell:
        bar.set_ticks([0.0, 1.0], labels=["lowest", "highest"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, labelcolor=INK, length=0)
    bar.set_label(plain_text(key.label + (" in each cell" if per_cell else ""), 40), fontsize=8, color=INK)

"""Colours of points, by class, by value, or one for all, and their key: a legend, a colour bar or text of a page."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize, to_rgba, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..core.arrays import Bools, Float64, Int64
from .column import Column
from .figure_style import COLOR_MAP, INK, MISSING, POINT, RULE, add_legend, class_colors, plain_text

Range = tuple[float, float]
Color = tuple[float, ...]

MAX_CLASSES = 20
UNKNOWN_CLASS = "unknown"
COLOR_TAILS = ((0.1, 3.0), (1.0, 5.0), (5.0, 10.0))
"""For colours, which must tell apart most values. A view must show nearly all points."""


class Classes(NamedTuple):
    """codes (n,) index into names and colors (n_classes, 4); points of unknown class have the last code. Only
    codes of points drawn have a meaning."""

    codes: Int64
    names: list[str]
    colors: Float64


class Paint(NamedTuple):
    """How points get colours: by class, by value through `norm`, or (both None) one colour for all.

    names: of classes that are too many for a colour each, so that values are their numbers.
    """

    classes: Classes | None
    values: Float64 | None
    norm: Normalize
    label: str
    names: tuple[str, ...] = ()


PLAIN = Paint(None, None, Normalize(0.0, 1.0), "")


def robust_range(values: Float64, tails: Sequence[Range] = ((0.1, 3.0),)) -> Range:
    """A range that ignores a few extreme values: percentiles 0.1 to 99.9 if all values span over 3 times that range.

    LLE places weakly connected points far out along spikes; a view of all of them would shrink the others to a dot.
    tails: per cent of the values to leave out at each end, ascending, and how many times narrower the range must get.
    """
    low, high = float(values.min()), float(values.max())
    for tail, most in tails:
        inner, outer = np.percentile(values, (tail, 100.0 - tail)).tolist()
        if outer > inner and high - low > most * (outer - inner):
            low, high = inner, outer
    return low, high


def view_of(values: Float64) -> Range:
    """The `robust_range` with a margin, so that it is never empty."""
    low, high = robust_range(values)
    margin = 0.04 * (high - low) if high > low else 0.5 * max(1.0, abs(low))
    return low - margin, high + margin


def scale_of(known: Float64) -> tuple[Range, bool]:
    """The range of a colour scale of values (n,), and whether it is logarithmic.

    Values without negative ones, of which the positive ones lie mostly near the low end: their percentiles 1 and 99, on
    a log scale; zeros have its lowest colour. Others: a `robust_range`.
    """
    if known.min() >= 0.0 and (positive := known[known > 0.0]).size:
        low, median, high = np.percentile(positive, (1, 50, 99)).tolist()
        if high > 10.0 * low and median - low < 0.1 * (high - low):
            return (low, high), True
    return robust_range(known, COLOR_TAILS), False


def classify(color: Column, is_drawn: Bools) -> Classes | None:
    """The classes of the points drawn; None for numbers and for over 20 classes, which use a continuous scale."""
    if color.names is None:
        return None
    is_unknown = color.values < 0
    shown = np.unique(color.values[is_drawn & ~is_unknown])
    if shown.size > MAX_CLASSES:
        return None
    names = [color.names[code] for code in shown.tolist()]
    palette = to_rgba_array(class_colors(shown.size)).reshape(-1, 4)
    if (is_drawn & is_unknown).any():
        names.append(UNKNOWN_CLASS)
        palette = np.vstack((palette, to_rgba_array(MISSING)))
    return Classes(np.where(is_unknown, shown.size, np.searchsorted(shown, color.values)), names, palette)


def paint_points(color: Column | None, is_drawn: Bools) -> Paint:
    """The colours of the points; the scale of values depends only on the points drawn, `is_drawn` (n,)."""
    if color is None:
        return PLAIN
    classes = classify(color, is_drawn)
    if classes is not None:
        return Paint(classes, None, PLAIN.norm, color.label)
    numbers, names = color.numbers, tuple(color.names or ())
    finite = numbers[is_drawn & np.isfinite(numbers)]
    if not finite.size:
        return PLAIN
    label = color.label + f" ({len(names)} classes)" * bool(names)
    return Paint(None, numbers, Normalize(*robust_range(finite, COLOR_TAILS)), label, names)


class Key(NamedTuple):
    """Meaning of the colours: name and colour of each class, or without classes the range of a value.

    names: as of a Paint.
    """

    label: str
    classes: tuple[tuple[str, Color], ...]
    lowest: float = 0.0
    highest: float = 1.0
    names: tuple[str, ...] = ()


def key_of(paint: Paint) -> Key | None:
    """The key of these colours; None for one colour."""
    if paint.classes is not None:
        named = zip(paint.classes.names, map(tuple, paint.classes.colors.tolist()), strict=True)
        return Key(paint.label, tuple(named))
    if not paint.label:
        return None
    return Key(paint.label, (), float(paint.norm.vmin or 0.0), float(paint.norm.vmax or 0.0), paint.names)


def color_points(color: Column | None, rows: Int64) -> tuple[Float64, Key | None]:
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
        name_ticks(bar.ax, paint.names)
        bar.outline.set_visible(False)
        bar.ax.tick_params(which="both", labelsize=9, labelcolor=INK, color=RULE)
        bar.set_label(plain_text(paint.label), fontsize=10, color=INK)


def name_ticks(ax: Axes, names: Sequence[str]) -> None:
    """Names of some classes along a vertical axis of their numbers; without names the numbers stay."""
    if names:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        ax.yaxis.set_major_formatter(lambda at, _: plain_text(names[round(at)], 20) if 0 <= at < len(names) else "")


def draw_key(ax: Axes, key: Key, extent: tuple[float, float]) -> None:
    """Draw a legend of classes, or a colour bar. Its ends are words if the ranges of the cells differ.

    extent: width and height of the axes in inches. The key is 0.18 inches beside them, a bar is at most 2.6 high.
    """
    wide, high = extent
    left = 1 + 0.18 / wide
    if key.classes:
        names, colors = zip(*key.classes, strict=True)
        place = {"loc": "upper left", "bbox_to_anchor": (left, 1.0), "borderaxespad": 0.0}
        add_legend(ax, key.label, names, colors, 8, **place)
        return
    per_cell = not np.isfinite(key.lowest)
    scale = Normalize(0.0, 1.0) if per_cell or key.lowest == key.highest else Normalize(key.lowest, key.highest)
    length = min(2.6, high)
    bar_axes = ax.inset_axes((left, 1 - length / high, 0.14 / wide, length / high))
    bar = Colorbar(bar_axes, ScalarMappable(scale, COLOR_MAP))
    name_ticks(bar_axes, key.names)
    if per_cell:
        bar.set_ticks([0.0, 1.0], labels=["lowest", "highest"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, labelcolor=INK, length=0)
    bar.set_label(plain_text(key.label + (" in each cell" if per_cell else ""), 40), fontsize=8, color=INK)

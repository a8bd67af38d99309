"""Colours of points, by class, by value, or one for all, and their key: a legend, a colour bar or text of a page."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize, to_rgba_array
from matplotlib.figure import Figure

from ..core.arrays import Bools, Float64, Int64, UInt8
from .column import MAX_CLASSES, Column
from .figure_style import COLOR_MAP, INK, MISSING, POINT, RULE, add_legend, class_colors, plain_text

Range = tuple[float, float]

COLOR_TAILS = ((0.1, 3.0), (1.0, 5.0), (5.0, 10.0))
"""For colours, which must tell apart most values. A view must show nearly all points."""


class Classes(NamedTuple):
    """The classes with a colour of their own, in the order of the column, and one entry for all other points, if any.

    codes: (n,), index into the entries. entries: name and number of points. n_named: how many of them are a single
    class. code_of: (n_names + 1,), the code of each class of the column, and of unknown ones.
    """

    codes: UInt8
    entries: list[tuple[str, int]]
    n_named: int
    code_of: UInt8


class Paint(NamedTuple):
    """How points get colours: by class, by value through `norm`, or (no label) one colour for all.

    names, colors (#rrggbb): of the entries of `Classes`. codes: (n,), index into them. values: (n,), NaN if unknown.
    Only codes and values of points drawn have a meaning; a key has neither.
    """

    label: str = ""
    names: tuple[str, ...] = ()
    colors: tuple[str, ...] = ()
    n_named: int = 0
    codes: UInt8 | None = None
    values: Float64 | None = None
    norm: Normalize = Normalize(0.0, 1.0)

    def rgba(self, rows: Int64) -> Float64:
        """(len(rows), 4), the colours of these points."""
        if self.codes is not None:
            return to_rgba_array(self.colors)[self.codes[rows]]
        if self.values is not None:
            return np.asarray(colormaps[COLOR_MAP].with_extremes(bad=MISSING)(self.norm(self.values[rows])))
        return to_rgba_array([POINT] * len(rows))

    @property
    def scale(self) -> ScalarMappable:
        """The colours of values."""
        return ScalarMappable(self.norm, COLOR_MAP)


PLAIN = Paint()


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


def choose_classes(column: Column, is_drawn: Bools | None = None) -> Classes:
    """Which classes of the points drawn get a colour: all, or the MAX_CLASSES - 1 largest if there are too many."""
    names = column.names or ()
    classes = np.where(column.values < 0, len(names), column.values)
    counts = np.bincount(classes if is_drawn is None else classes[is_drawn], minlength=len(names) + 1)
    shown = drawn = np.flatnonzero(counts[:-1])
    if len(drawn) > MAX_CLASSES:
        shown = np.sort(np.argsort(-counts[:-1], kind="stable")[: MAX_CLASSES - 1])
    code_of = np.full(len(names) + 1, len(shown), np.uint8)
    code_of[shown] = np.arange(len(shown))
    entries = [(str(names[code]) or "(empty)", int(counts[code])) for code in shown.tolist()]
    if n_points := int(counts.sum() - counts[shown].sum()):
        n_others = len(drawn) - len(shown)
        entries.append((f"{n_others} other classes" if n_others else "unknown", n_points))
    return Classes(code_of[classes], entries, len(shown), code_of)


def paint_points(color: Column | None, is_drawn: Bools) -> Paint:
    """The colours of the points; classes and scale depend only on the points drawn, `is_drawn` (n,)."""
    if color is None:
        return PLAIN
    if color.names is not None:
        codes, entries, n_named, _ = choose_classes(color, is_drawn)
        colors = (*class_colors(n_named), MISSING)[: len(entries)]
        return Paint(color.label, tuple(name for name, _ in entries), colors, n_named, codes)
    known = color.values[is_drawn & np.isfinite(color.values)]
    if not known.size:
        return PLAIN
    low, high = robust_range(known, COLOR_TAILS)
    margin = 0.0 if low < high else 0.1 * (abs(low) or 1.0)  # one value has the colour in the middle
    return Paint(color.label, values=color.values, norm=Normalize(low - margin, high + margin))


def common_key(keys: Sequence[Paint]) -> Paint:
    """The key of all cells: the same classes, or the same value, with the range of the first cell if all have it.

    PLAIN if the keys differ.
    """
    first = keys[0] if keys else PLAIN
    if any(key[:3] != first[:3] for key in keys):
        return PLAIN
    ranges = np.array([(key.norm.vmin, key.norm.vmax) for key in keys])
    return first if np.allclose(ranges, ranges[:1]) else first._replace(norm=Normalize())


def add_key(target: Figure | Axes, axes: Sequence[Axes], paint: Paint, **place: Any) -> None:
    """A legend of the classes at a `place` of the target, or a colour bar of values and counts beside the axes."""
    if paint.names:
        add_legend(target, paint.label, paint.names, paint.colors, 9, alignment="left", **place)
    elif paint.label:
        figure = target.get_figure(root=True)
        assert figure is not None
        style_bar(figure.colorbar(paint.scale, ax=list(axes), aspect=36, pad=0.02), paint.label, 9)


def style_bar(bar: Colorbar, label: str, size: float) -> None:
    """Give a colour bar its label, and numbers of this size in points."""
    bar.outline.set_visible(False)
    bar.ax.tick_params(which="both", labelsize=size, labelcolor=INK, color=RULE)
    bar.set_label(plain_text(label, 40), fontsize=size + 1, color=INK)

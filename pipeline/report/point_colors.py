"""Colours of points in figures and explorers, by class, by value, or one for all, and their key: also a legend."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize, to_hex, to_rgba_array
from matplotlib.figure import Figure

from ..core.arrays import Array, Bools, Float64, Int64, UInt8
from ..engine.step import Json
from .column import MAX_CLASSES, Column
from .figure_style import COLOR_MAP, INK, MISSING, OKABE_ITO, ON_DARK, POINT, RULE, add_legend, class_colors, plain_text

Range = tuple[float, float]

STEPS = 64
"""Steps of a colour scale of the explorers."""
UNKNOWN = MISSING, ON_DARK[MISSING]
"""The colour of unknown values and of classes without a colour, on a light and on a dark page."""
COLOR_TAILS = ((0.1, 3.0), (1.0, 5.0), (5.0, 10.0))
"""For colours, which must tell apart most values. A view must show nearly all points."""


class ColorKey(NamedTuple):
    """How the points of the explorers, and classes in figures, get their colours.

    kind: "plain", "classes" or "scale". codes: (n,) uint8, an index into colours; the last colour of a scale is that of
    unknown values. palettes: colours (#rrggbb) on a light and on a dark page. entries: of a class key, name and number
    of points for each colour; n_named: how many of them are a single class, in the order of the column, before one for
    all other points; code_of: the code of each class of the column, and of unknown ones. range: of a scale, None
    without values; log: it is logarithmic; clipped: values are outside of it; unknown: number of points without a
    value.
    """

    kind: str
    codes: UInt8
    palettes: tuple[list[str], list[str]]
    entries: Sequence[tuple[str, int]] = ()
    n_named: int = 0
    code_of: Sequence[int] = ()
    range: tuple[float, float] | None = None
    log: bool = False
    clipped: bool = False
    unknown: int = 0

    def described(self, dark: bool) -> Json:
        """The key in the form of a page."""
        colors = self.palettes[dark]
        entries = [{"name": name, "count": n, "color": colors[code]} for code, (name, n) in enumerate(self.entries)]
        copied = ("kind", "range", "log", "clipped", "unknown")
        return {**{name: getattr(self, name) for name in copied}, "colors": colors, "entries": entries}


class Paint(NamedTuple):
    """How points get colours: by class, by value through `norm`, or (no label) one colour for all.

    names, colors (#rrggbb): of the entries of a `ColorKey`. codes: (n,), index into them. values: (n,), NaN if unknown.
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


def color_key(column: Column | None, n: int) -> ColorKey:
    """The colours of n points by a column; None colours all alike. The smallest of too many classes share one."""
    if column is None:
        return ColorKey("plain", np.zeros(n, np.uint8), ([OKABE_ITO[0]], [OKABE_ITO[4]]))
    if column.names is None:
        return _scale_key(column.values)
    return class_key(column)


def _scale_key(values: Array) -> ColorKey:
    is_known = np.isfinite(values)
    known = values[is_known].astype(np.float64)
    scale, is_log, codes = None, False, np.full(len(values), STEPS, np.uint8)
    if known.size:
        scale, is_log = scale_of(known)
        low, high = scale
        with np.errstate(divide="ignore", over="ignore"):
            places, width = (np.log(known.clip(0.0) / low), np.log(high / low)) if is_log else (known - low, high - low)
        codes[is_known] = np.clip(STEPS * (places / width), 0, STEPS - 1) if low < high else STEPS // 2
    clipped = scale is not None and bool(known.min() < scale[0] or known.max() > scale[1])
    unknown = len(values) - len(known)
    return ColorKey("scale", codes, _scale_colors(), range=scale, log=is_log, clipped=clipped, unknown=unknown)


def _scale_colors() -> tuple[list[str], list[str]]:
    """Colours of the steps, without the end of the map that is near the page's colour, and that of unknown values."""
    steps = (np.linspace(*ends, STEPS) for ends in ((0.0, 0.92), (0.25, 1.0)))
    light, dark = ([to_hex(color) for color in colormaps[COLOR_MAP](shares)] for shares in steps)
    return [*light, UNKNOWN[0]], [*dark, UNKNOWN[1]]


def class_key(column: Column, is_drawn: Bools | None = None) -> ColorKey:
    """The classes of the points drawn that get a colour: all, or the MAX_CLASSES - 1 largest if there are too many."""
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
    light, dark = ([*class_colors(len(shown), page), UNKNOWN[page]][: len(entries)] for page in (False, True))
    return ColorKey("classes", code_of[classes], (light, dark), entries, len(shown), code_of.tolist())


def paint_points(color: Column | None, is_drawn: Bools) -> Paint:
    """The colours of the points; classes and scale depend only on the points drawn, `is_drawn` (n,)."""
    if color is None:
        return PLAIN
    if color.names is not None:
        key = class_key(color, is_drawn)
        names, colors = tuple(name for name, _ in key.entries), tuple(key.palettes[0])
        return Paint(color.label, names, colors, key.n_named, key.codes)
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

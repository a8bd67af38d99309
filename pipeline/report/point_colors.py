"""Colours of points: by class, by value, or one for all."""

from typing import Literal, NamedTuple

import numpy as np
from matplotlib.colors import Normalize, to_rgba_array

from ..core.arrays import Bools, Float64, Int64
from .figure_style import MISSING, class_colors

Range = tuple[float, float]

MAX_CLASSES = 20
UNKNOWN_CLASS = "unknown"


class ColorSource(NamedTuple):
    """The colour values of the points.

    values: (n,), one number for each row of the embedding, NaN if unknown; for classes the class number.
    names: names[v] is the name of class v; None shows the numbers.
    label: name of the values, with their unit.
    """

    values: Float64
    kind: Literal["categorical", "continuous"]
    names: tuple[str, ...] | None
    label: str


class Classes(NamedTuple):
    """codes (n,) index into names and colors (n_classes, 4); rows of unknown class have the last code."""

    codes: Int64
    names: list[str]
    colors: Float64


class Paint(NamedTuple):
    """How points get colours: by class, by value through `norm`, or (both None) one colour for all."""

    classes: Classes | None
    values: Float64 | None
    norm: Normalize
    label: str


PLAIN = Paint(None, None, Normalize(0.0, 1.0), "")


def robust_range(values: Float64) -> Range:
    """A range that ignores a few extreme values: percentiles 0.1 to 99.9 if all values span over 3 times that range.

    LLE places weakly connected points far out along spikes; a view of all of them would shrink the others to a dot.
    """
    lowest, low, high, highest = np.percentile(values, (0.0, 0.1, 99.9, 100.0)).tolist()
    return (low, high) if 0.0 < high - low < (highest - lowest) / 3.0 else (lowest, highest)


def color_range(known: Float64) -> Range:
    """The range of a linear colour scale of values (n,): inner percentiles if all span over 3, 5, 10 times their range.

    A view must show nearly all points, but colours must tell apart the values of most.
    """
    q = np.percentile(known, (0.0, 0.1, 1.0, 5.0, 95.0, 99.0, 99.9, 100.0)).tolist()
    low, high = q[0], q[-1]
    for inner, outer, most in ((q[1], q[-2], 3.0), (q[2], q[-3], 5.0), (q[3], q[-4], 10.0)):
        if outer > inner and high - low > most * (outer - inner):
            low, high = inner, outer
    return low, high


def scale_of(known: Float64) -> tuple[Range, bool]:
    """The range of a colour scale of values (n,), and whether it is logarithmic.

    Values without negative ones, of which the positive ones lie mostly near the low end: their percentiles 1 and 99, on
    a log scale; zeros have its lowest colour. Others: `color_range`.
    """
    if known.min() >= 0.0 and (positive := known[known > 0.0]).size:
        low, median, high = np.percentile(positive, (1, 50, 99)).tolist()
        if high > 10.0 * low and median - low < 0.1 * (high - low):
            return (low, high), True
    return color_range(known), False


def classify(color: ColorSource) -> Classes | None:
    """Classes of a categorical source; None for numbers and for over 20 classes, which use a continuous scale."""
    is_known = np.isfinite(color.values)
    labels, codes = np.unique(color.values[is_known], return_inverse=True)
    if color.kind != "categorical" or labels.size > MAX_CLASSES:
        return None
    names = [_class_name(label, color.names) for label in labels.tolist()]
    palette = to_rgba_array(class_colors(labels.size)).reshape(-1, 4)
    if not is_known.all():
        names.append(UNKNOWN_CLASS)
        palette = np.vstack((palette, to_rgba_array(MISSING)))
    all_codes = np.full(color.values.size, labels.size, dtype=np.int64)
    all_codes[is_known] = codes
    return Classes(all_codes, names, palette)


def _class_name(label: float, names: tuple[str, ...] | None) -> str:
    if names is not None and label.is_integer() and 0 <= label < len(names):
        return names[int(label)]
    return f"{label:g}"


def paint_points(color: ColorSource | None, is_drawn: Bools) -> Paint:
    """The colours of the points; the scale of values depends only on the points drawn, `is_drawn` (n,)."""
    if color is None:
        return PLAIN
    classes = classify(color)
    if classes is not None:
        return Paint(classes, None, PLAIN.norm, color.label)
    finite = color.values[is_drawn & np.isfinite(color.values)]
    label = color.label
    if color.kind == "categorical" and color.names is not None:
        label += f" ({len(color.names)} classes, numbered from 0)"
    return Paint(None, color.values, Normalize(*color_range(finite)), label) if finite.size else PLAIN

"""Place the components of a graph in one picture: each is shifted, not turned or scaled, so that they do not overlap.

Every component has its own coordinates and origin; its position in the picture has no meaning.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from .figure_style import INK, label_axes

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Range = tuple[float, float]

GAP = 0.12
"""Distance between boxes, relative to the mean box; above each box there is room for its label."""


LABELLED = 24
"""Number of components with labels, the largest first; more labels would overlap."""


class Box(NamedTuple):
    """The shown range of a component, before it is shifted."""

    x_range: Range
    y_range: Range


class Arrangement(NamedTuple):
    """Points of several components side by side, and the labels (x, y, text) above them."""

    rows: IntArray
    x: FloatArray
    y: FloatArray
    x_range: Range
    y_range: Range
    labels: list[tuple[float, float, str]]
    n_outside: int


def arrange(
    groups: Mapping[int, IntArray], x: FloatArray, y: FloatArray, boxes: Mapping[int, Box], aspect: float | None
) -> Arrangement:
    """Place the components `groups` (rows of each) on shelves, about `aspect` times as wide as high in total.

    x, y: the two coordinates of every row. boxes: the shown range of each component; points outside would overlap
    another component, so they are omitted and counted. aspect None: all on one shelf, with unchanged y.
    """
    sizes = np.array([[box.x_range[1] - box.x_range[0], box.y_range[1] - box.y_range[0]] for box in boxes.values()])
    gap = GAP * sizes.mean(axis=0)
    corners = shelves(sizes + gap * (1, 2 if aspect else 0), aspect)
    highest = max(box.y_range[1] for box in boxes.values())
    parts, labels = [], []
    for (label, rows), box, corner, size in zip(groups.items(), boxes.values(), corners, sizes, strict=True):
        inside = (x[rows] >= box.x_range[0]) & (x[rows] <= box.x_range[1])
        inside &= (y[rows] >= box.y_range[0]) & (y[rows] <= box.y_range[1])
        shift = corner - [box.x_range[0], box.y_range[0]]
        if aspect is None:
            shift[1] = 0.0
        inside_rows = rows[inside]
        parts.append((inside_rows, x[inside_rows] + shift[0], y[inside_rows] + shift[1]))
        top = corner[1] + size[1] if aspect else highest
        labels.append((float(corner[0] + size[0] / 2), float(top), f"{label}: {rows.size:,}"))
    rows, moved_x, moved_y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    extent = (corners + sizes).max(axis=0)
    low, high = (-gap[1], extent[1] + 2 * gap[1]) if aspect else _hull([box.y_range for box in boxes.values()])
    n_outside = sum(group.size for group in groups.values()) - rows.size
    return Arrangement(rows, moved_x, moved_y, (-gap[0], extent[0] + gap[0]), (low, high), labels, n_outside)


def shelves(sizes: FloatArray, aspect: float | None) -> FloatArray:
    """Lower left corners (b, 2) of boxes of these sizes (b, 2), on shelves from the top, each filled from the left.

    A shelf is as high as its highest box. The width is the one that brings all boxes closest to `aspect` (width over
    height). None: one shelf.
    >>> shelves(np.array([[2.0, 1.0], [1.0, 1.0], [1.0, 2.0]]), 1.5)
    array([[0., 2.],
           [2., 2.],
           [0., 0.]])
    """
    if aspect is None:
        return _fill(sizes, float("inf"))
    widths = np.cumsum(sizes[:, 0])
    widths = widths[widths >= sizes[:, 0].max() * (1 - 1e-12)]
    ratios = []
    for width in widths:
        extent = (_fill(sizes, float(width)) + sizes).max(axis=0)
        ratios.append(abs(np.log(extent[0] / extent[1] / aspect)))
    return _fill(sizes, float(widths[int(np.argmin(ratios))]))


def _fill(sizes: FloatArray, width: float) -> FloatArray:
    corners = np.zeros_like(sizes)
    left, top, bottom = 0.0, 0.0, 0.0
    for number, (wide, high) in enumerate(sizes):
        if left > 0 and left + wide > width * (1 + 1e-12):
            left, top = 0.0, bottom
        corners[number] = left, top
        left, bottom = left + wide, max(bottom, top + high)
    corners[:, 1] = bottom - corners[:, 1] - sizes[:, 1]  # the first shelf is the highest
    return corners


def round_length(longest: float) -> float:
    """The largest of 1, 2, 5, 10, ... that is not above a length, for a scale bar.

    >>> round_length(7.3), round_length(0.03)
    (5.0, 0.02)
    """
    power = 10.0 ** np.floor(np.log10(longest))
    return float(max(step * power for step in (1, 2, 5) if step * power <= longest * (1 + 1e-12)))


def draw_frame(ax: Axes, arrangement: Arrangement, x_label: str, y_label: str, flat: bool) -> None:
    """Limits, labels and a scale bar. There are no ticks, because positions in the picture have no meaning.

    flat: all components share the y axis, which keeps its ticks.
    """
    ax.set_xlim(arrangement.x_range)
    ax.set_ylim(arrangement.y_range)
    label_axes(ax, x_label, y_label)
    ax.set_xticks([])
    if not flat:
        ax.set_yticks([])
        ax.set_aspect("equal")
    for left, top, text in arrangement.labels[:LABELLED]:
        ax.text(left, top, text, ha="center", va="bottom", fontsize=8.5, color=INK)
    length = round_length(0.2 * (arrangement.x_range[1] - arrangement.x_range[0]))
    left, bottom = arrangement.x_range[0], arrangement.y_range[0]
    ax.plot([left, left + length], [bottom, bottom], color=INK, linewidth=2.5, clip_on=False, solid_capstyle="butt")
    ax.annotate(f"{length:g}", (left + length, bottom), (4, 3), textcoords="offset points", va="bottom", fontsize=8.5,
                color=INK)  # fmt: skip


def _hull(ranges: list[Range]) -> Range:
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    return low, high + 0.06 * (high - low)

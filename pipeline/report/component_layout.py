"""Place the components of a graph in one picture: each is shifted and scaled as a whole, so that they do not overlap.

Every component has its own coordinates and origin; its position and its size in the picture have no meaning.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from ..core.arrays import Float64, Int64
from .figure_style import INK, label_axes

Range = tuple[float, float]

GAP = 0.12
"""Distance between boxes, relative to the mean box; above each box there is room for its label."""
SMALL_SHARE = 0.02
"""Components with a smaller share of the rows of the largest are small."""
SMALLEST_SCALE = 0.3
"""Least length of the other components, relative to the largest one."""
STRIP, STRIP_GAP = 0.16, 1.6
"""Height of the strip of small components, relative to the others, and the distance between them, to that height."""
PIECE = "piece"
"""Mark of the labels of components."""


class Box(NamedTuple):
    """The shown range of a component, before it is shifted."""

    x_range: Range
    y_range: Range


class Arrangement(NamedTuple):
    """Points of several components side by side, the labels (x, y, text) above them, and what has no room."""

    rows: Int64
    x: Float64
    y: Float64
    x_range: Range
    y_range: Range
    labels: list[tuple[float, float, str]]
    n_outside: int
    n_hidden: int = 0
    n_hidden_rows: int = 0


def arrange(
    groups: Mapping[int, Int64], x: Float64, y: Float64, boxes: Mapping[int, Box], aspect: float | None
) -> Arrangement:
    """Place the components `groups` (rows of each, largest first), about `aspect` times as wide as high in total.

    The area of a component follows its number of rows. Small ones are in one strip at the bottom, as many as fit.

    x, y: the two coordinates of every row. boxes: the shown range of each component; points outside would overlap
    another component, so they are omitted and counted. aspect None: all on one shelf, with unchanged y.
    """
    n_rows = np.array([rows.size for rows in groups.values()])
    sizes = np.array([[box.x_range[1] - box.x_range[0], box.y_range[1] - box.y_range[0]] for box in boxes.values()])
    scales, corners, gap = _places(n_rows, sizes, aspect)
    n_drawn = len(corners)
    extent = (corners + sizes[:n_drawn] * scales[:n_drawn]).max(axis=0)
    highest = max(box.y_range[1] for box in boxes.values())
    parts, labels = [], []
    for number, ((label, rows), box) in enumerate(list(zip(groups.items(), boxes.values(), strict=True))[:n_drawn]):
        inside = (x[rows] >= box.x_range[0]) & (x[rows] <= box.x_range[1])
        inside &= (y[rows] >= box.y_range[0]) & (y[rows] <= box.y_range[1])
        low, corner, scale = np.array([box.x_range[0], box.y_range[0]]), corners[number], scales[number]
        if aspect is None:
            low[1] = corner[1] = 0.0
        moved = corner + scale * (np.column_stack([x[rows[inside]], y[rows[inside]]]) - low)
        parts.append((rows[inside], *moved.T))
        middle, top = corner + scale * sizes[number] * (0.5, 1.0)
        labels.append((float(middle), float(top if aspect else highest), f"{label}: {rows.size:,}"))
    rows, moved_x, moved_y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    y_range = (-gap[1], extent[1] + 1.5 * gap[1]) if aspect else _hull([box.y_range for box in boxes.values()])
    n_outside, hidden = int(n_rows[:n_drawn].sum()) - rows.size, n_rows[n_drawn:]
    x_range = (-gap[0], extent[0] + gap[0])
    return Arrangement(rows, moved_x, moved_y, x_range, y_range, labels, n_outside, len(hidden), int(hidden.sum()))


def _places(n_rows: Int64, sizes: Float64, aspect: float | None) -> tuple[Float64, Float64, Float64]:
    """Factors (c, 2) of the sizes (c, 2) of components, lower left corners (b, 2) of the first b <= c, and the gap."""
    scales = np.ones(sizes.shape)
    scales[:, : 2 if aspect else 1] = np.maximum(np.sqrt(n_rows / n_rows[0]), SMALLEST_SCALE)[:, None]
    n_main = len(n_rows) if aspect is None else int((n_rows >= SMALL_SHARE * n_rows[0]).sum())
    main = (sizes * scales)[:n_main]
    gap = GAP * main.mean(axis=0)
    corners = shelves(main + gap * (1, 2 if aspect else 0), aspect)
    if n_main == len(n_rows):
        return scales, corners, gap
    width, height = (corners + main).max(axis=0)
    cell = STRIP * height
    n_small = min(len(n_rows) - n_main, max(1, int(width // (STRIP_GAP * cell))))
    scales[n_main:] = (cell / sizes[n_main:].max(axis=1))[:, None]
    in_strip = np.column_stack([STRIP_GAP * cell * np.arange(n_small), np.zeros(n_small)])
    corners[:, 1] += cell + 2 * gap[1]
    return scales, np.concatenate([corners, in_strip]), gap


def shelves(sizes: Float64, aspect: float | None) -> Float64:
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


def _fill(sizes: Float64, width: float) -> Float64:
    corners = np.zeros_like(sizes)
    left, top, bottom = 0.0, 0.0, 0.0
    for number, (wide, high) in enumerate(sizes):
        if left > 0 and left + wide > width * (1 + 1e-12):
            left, top = 0.0, bottom
        corners[number] = left, top
        left, bottom = left + wide, max(bottom, top + high)
    corners[:, 1] = bottom - corners[:, 1] - sizes[:, 1]  # the first shelf is the highest
    return corners


def draw_frame(ax: Axes, arrangement: Arrangement, x_label: str, y_label: str, flat: bool) -> None:
    """Limits and labels. There are no ticks, because positions and sizes in the picture have no meaning.

    flat: all components share the y axis, which keeps its ticks. Of labels that would overlap, the first is shown.
    """
    ax.set_xlim(arrangement.x_range)
    ax.set_ylim(arrangement.y_range)
    label_axes(ax, x_label, y_label)
    ax.set_xticks([])
    if not flat:
        ax.set_yticks([])
        ax.set_aspect("equal")
    for left, top, text in arrangement.labels:
        shown = ax.text(left, top, text, ha="center", va="bottom", fontsize=8.5, color=INK, gid=PIECE)
        if flat:
            shown.set(y=0.98, va="top", transform=ax.get_xaxis_transform())


def remove_overlapping(texts: Sequence[Text]) -> None:
    """Remove each text that overlaps an earlier one; call it when the layout of the figure is final."""
    shown = list[Bbox]()
    for text in texts:
        extent = text.get_window_extent().padded(2.0)
        if extent.count_overlaps(shown):
            text.remove()
        else:
            shown.append(extent)


def _hull(ranges: list[Range]) -> Range:
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    return low, high + 0.06 * (high - low)

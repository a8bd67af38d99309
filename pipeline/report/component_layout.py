"""Place the components of a graph in one picture: each is shifted and scaled as a whole, so that they do not overlap.

Every component has its own coordinates and origin; its position and its size in the picture have no meaning.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from ..core.arrays import Float64, Int64
from ..core.errors import counted
from .figure_style import FAINT, INK
from .panel import Panel
from .point_colors import Range

GAP = 0.12
"""Distance between boxes, relative to the mean box; above each box there is room for its label."""
SMALLEST_SCALE = 0.3
"""Least length of the other components, relative to the largest one."""
STRIP, STRIP_GAP = 0.16, 1.6
"""Height of the strip of small components, relative to the others, and the distance between them, to that height."""
ASPECT = 1.25
"""Of the axes, width over height."""
MOST_WIDTHS = 200
"""Most widths that are tried for shelves; the best one of 10,000 equal squares is among them."""
PIECE = "piece"
"""Mark of the labels of components."""


def side_by_side(
    ax: Axes, groups: Mapping[int, Int64], x: Float64, y: Float64, views: Sequence[tuple[Range, Range]], flat: bool
) -> Panel:
    """Place components, with limits, labels and notes, about ASPECT times as wide as high in total.

    The axes are filled, so x and y have different units: else a high component beside small ones would leave most of
    the width empty.

    The area of a component follows its number of rows. Small ones are in one strip at the bottom, as many as fit. There
    are no ticks, because positions and sizes in the picture have no meaning.

    groups: the rows of each component, largest first. x, y: the two coordinates of every row. views: the shown ranges
    of each component; points outside would overlap another component, so they are omitted and counted. flat: all on one
    shelf, with unchanged y and its ticks.
    """
    n_rows, ranges = np.array([rows.size for rows in groups.values()]), np.array(views)
    low, high = ranges[:, :, 0], ranges[:, :, 1]
    sizes = high - low
    scales, corners, gap = _places(n_rows, sizes, None if flat else ASPECT)
    n_drawn = len(corners)
    extent = (corners + sizes[:n_drawn] * scales[:n_drawn]).max(axis=0)
    y_range = (-gap[1], extent[1] + 1.5 * gap[1])
    origins = low.copy()
    if flat:
        y_range = (low[:, 1].min(), high[:, 1].max() + 0.06 * np.ptp(ranges[:, 1]))
        origins[:, 1] = corners[:, 1] = 0.0
    parts = []
    for number, (label, rows) in enumerate(list(groups.items())[:n_drawn]):
        points = np.column_stack([x[rows], y[rows]])
        inside = ((points >= low[number]) & (points <= high[number])).all(axis=1)
        moved = corners[number] + scales[number] * (points[inside] - origins[number])
        parts.append((rows[inside], *moved.T))
        middle, top = corners[number] + scales[number] * sizes[number] * (0.5, 1.0)
        text = ax.text(
            middle, top, f"{label}: {rows.size:,}", ha="center", va="bottom", fontsize=8.5, color=INK, gid=PIECE
        )
        if flat:
            text.set(y=0.98, va="top", transform=ax.get_xaxis_transform())
    drawn, x, y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    panel = Panel(ax, drawn, x, y, (-gap[0], extent[0] + gap[0]), y_range)
    ax.set(xlim=panel.x_range, ylim=panel.y_range, xticks=[])
    if not flat:
        ax.set(yticks=[])
    _note_omitted(ax, int(n_rows[:n_drawn].sum()) - drawn.size, n_rows[n_drawn:])
    return panel


def _note_omitted(ax: Axes, n_outside: int, hidden: Int64) -> None:
    """A note below the axes on points outside the views, and on components without room, of `hidden` rows each."""
    notes = [f"{n_outside:,} outside the view"] if n_outside else []
    if hidden.size:
        notes.append(f"{counted(hidden.size, 'smaller component')} ({counted(int(hidden.sum()), 'row')}) not drawn")
    if notes:
        ax.set_title("; ".join(notes), loc="right", y=-0.12, fontsize=8.5, color=FAINT)


def _places(n_rows: Int64, sizes: Float64, aspect: float | None) -> tuple[Float64, Float64, Float64]:
    """Factors (c, 2) of the sizes (c, 2) of components, lower left corners (b, 2) of the first b <= c, and the gap.

    Components with less than 2 % of the rows of the largest are in the strip.
    """
    scales = np.ones(sizes.shape)
    scales[:, : 2 if aspect else 1] = np.maximum(np.sqrt(n_rows / n_rows[0]), SMALLEST_SCALE)[:, None]
    n_main = len(n_rows) if aspect is None else int((n_rows >= 0.02 * n_rows[0]).sum())
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
    >>> shelves(np.array([[2.0, 1.0], [1.0, 1.0], [1.0, 2.0]]), 1.0)
    array([[0., 2.],
           [2., 2.],
           [0., 0.]])
    """
    if aspect is None:
        return _fill(sizes, float("inf"))
    widths = np.cumsum(sizes[:, 0])
    widths = widths[widths >= sizes[:, 0].max() * (1 - 1e-12)][:MOST_WIDTHS]
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


def remove_overlapping_labels(ax: Axes) -> None:
    """Remove each label of a component that overlaps an earlier one; call it when the layout of the figure is final."""
    shown = list[Bbox]()
    for text in [text for text in ax.texts if text.get_gid() == PIECE]:
        extent = text.get_window_extent().padded(2.0)
        if extent.count_overlaps(shown):
            text.remove()
        else:
            shown.append(extent)

"""The picture of an embedding: its first coordinates in pairs, with a title and a key.

Up to `SCATTER_POINTS` points are drawn one by one; more points are aggregated on the pixels of the axes. Figures do not
use pyplot's global state, so any process or thread can draw them.
"""

import textwrap
from collections.abc import Collection, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..core.arrays import Float64, Int32, Int64
from ..core.errors import counted
from .class_names import write_names
from .column import Column
from .component_layout import remove_overlapping_labels, side_by_side
from .figure_style import COLOR_MAP, DPI, FAINT, INK, MISSING, POINT, label_axes, message_figure, plain_text, to_png
from .panel import Panel, count_points, mean_values, shade_classes
from .point_colors import PLAIN, Paint, add_key, paint_points, view_of

SCATTER_POINTS = 100_000
MAX_EMBEDDED_COMPONENTS = 60
MOST_TICKS = 6
"""Intervals of the x axis; numbers of six digits below more of them overlap beside other panels."""
DRAW_ORDER_SEED = 20001222


class Content(NamedTuple):
    """The content of pictures: rows of each component, the largest first, pairs of columns, and colours."""

    component: Int32
    groups: dict[int, Int64]
    pairs: list[tuple[Column, Column]]
    paint: Paint
    n_coordinates: int

    @property
    def n_rows(self) -> int:
        """Number of drawn rows; duplicate rows are one point, but each is drawn."""
        return sum(rows.size for rows in self.groups.values())

    @property
    def is_histogram(self) -> bool:
        return self.pairs[0][0] is self.pairs[0][1]

    def selection(self) -> list[str]:
        """The components and coordinates that are drawn, where there are more."""
        notes, n_components = [], len(np.unique(self.component))
        if n_components > len(self.groups):
            drawn = f"{self.n_rows:,} of {self.component.size:,} rows"
            notes.append(f"the {len(self.groups)} largest of {n_components:,} components: {drawn}")
        if self.n_coordinates > 3:
            notes.append(f"the first 3 of {self.n_coordinates} coordinates")
        return notes


def draw_embedding(embedding: Float64, component: Int32, color: Column | None, title: str) -> bytes:
    """PNG of the first (up to three) coordinates of an embedding.

    embedding: (n, m), rows of NaN for dropped points; component: (n,), -1 for dropped points. Each graph
    component has a separate embedding, so several components are placed side by side, shifted but not scaled, each
    labelled with its number and size. One coordinate is drawn against the colour value (or as a histogram without
    one), three or more as the panels (1, 2), (1, 3), (2, 3). Points outside the view (see `view_of`) are
    counted above their panel.
    """
    content = content_of(embedding, component, color)
    groups = content.groups
    if not groups:
        return to_png(message_figure(title, "no point was embedded"))
    n_pairs = len(content.pairs)
    size = (4.0 * n_pairs + 1.0, 4.2) if n_pairs > 1 else (7.4, 5.6)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    heading = textwrap.fill(plain_text(title, 90), int(7.5 * (size[0] - 1.6)))
    figure.suptitle(heading, x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)  # left of the key
    axes = list(figure.subplots(1, n_pairs, squeeze=False).flat)
    if notes := content.selection():
        figure.supxlabel("; ".join(notes), fontsize=8.5, color=FAINT)
    panels = [panel_of(ax, content, pair) for ax, pair in zip(axes, content.pairs, strict=True)]
    parts = f" in {len(groups)} components, side by side" if len(groups) > 1 else ""
    axes[0].set_title(counted(content.n_rows, "row") + parts, loc="left", fontsize=10, color=INK)
    paint = shown_paint(content, panels)
    add_key(figure, axes, paint, loc="outside right upper")
    draw_content(figure, panels, content, paint)
    return to_png(figure)


def content_of(embedding: Float64, component: Int32, color: Column | None) -> Content:
    """Choose what to draw of an embedding (n, m), NaN for dropped points; component: (n,), -1 for dropped points.

    One coordinate is paired with the colour value, or with itself if there is none; of several coordinates the first
    three are paired with each other.
    """
    is_drawn = np.isfinite(embedding).all(axis=1) & (component >= 0)
    paint = paint_points(color, is_drawn & np.isin(component, _largest(component[is_drawn])))
    columns = [Column(f"y{j + 1}", f"coordinate {j + 1}", embedding[:, j]) for j in range(min(3, embedding.shape[1]))]
    if len(columns) == 1 and paint.label:
        columns.append(Column("color", paint.label, _heights(paint)))
        is_drawn &= np.isfinite(columns[1].values)
    largest = _largest(component[is_drawn])
    groups = {int(label): np.flatnonzero(is_drawn & (component == label)) for label in largest}
    pairs = [(columns[0], columns[0])] if len(columns) == 1 else list(combinations(columns, 2))
    return Content(component[is_drawn], groups, pairs, paint, embedding.shape[1])


def _largest(component: Int32) -> Int32:
    """The labels of the components that are drawn, the largest first."""
    labels, counts = np.unique(component, return_counts=True)
    return labels[np.lexsort((labels, -counts))[:MAX_EMBEDDED_COMPONENTS]]


def panel_of(ax: Axes, content: Content, pair: tuple[Column, Column]) -> Panel:
    """Set limits, labels and the note on points outside; returns the points to show."""
    x, y = pair
    label_axes(ax, x.label, y.label)
    views = [(view_of(x.values[rows]), view_of(y.values[rows])) for rows in content.groups.values()]
    if len(views) > 1:
        return side_by_side(ax, content.groups, x.values, y.values, views, flat=content.n_coordinates == 1)
    [rows], [(x_range, y_range)] = content.groups.values(), views
    panel = Panel(ax, rows, x.values[rows], y.values[rows], x_range, y_range)
    ax.set(xlim=x_range, ylim=y_range)
    ax.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
    is_outside = (panel.x < x_range[0]) | (panel.x > x_range[1]) | (panel.y < y_range[0]) | (panel.y > y_range[1])
    if n_outside := np.count_nonzero(is_outside):
        ax.set_title(f"{n_outside:,} outside the view", loc="right", fontsize=8.5, color=FAINT)
    return panel


def _heights(paint: Paint) -> Float64:
    """The second axis of a single coordinate: the colour value, or the class with some jitter."""
    if paint.codes is None:
        assert paint.values is not None
        return paint.values
    return paint.codes + np.random.default_rng(DRAW_ORDER_SEED).uniform(-0.3, 0.3, paint.codes.size)


def shown_paint(content: Content, panels: Sequence[Panel]) -> Paint:
    """The colours of the points in the panels: without class and value, those of many points are by their number.

    The second axis of a single coordinate shows the colour value, so its points have none.
    """
    paint = content.paint if content.n_coordinates > 1 else PLAIN
    return density_paint() if not paint.label and _are_many(panels) and not content.is_histogram else paint


def _are_many(panels: Sequence[Panel]) -> bool:
    return max(panel.rows.size for panel in panels) > SCATTER_POINTS


def draw_content(
    figure: Figure, panels: Sequence[Panel], content: Content, paint: Paint, numbered: Collection[int] = ()
) -> None:
    """Draw the points of each panel in the colours of `shown_paint`; the key is already there, as it takes room.

    numbered: classes with a number in place of a name, see `write_names`.
    """
    if content.is_histogram:
        heights, _, _ = panels[0].ax.hist(panels[0].x, bins=80, range=panels[0].x_range, color=POINT)
        panels[0].ax.set(ylim=(0.0, 1.05 * float(np.max(heights))), ylabel="points")
    elif _are_many(panels):
        draw_rasters(figure, panels, paint)
    else:
        for panel in panels:
            _draw_points(panel, paint)
    if len(content.groups) > 1:
        figure.draw_without_rendering()
        for panel in panels:
            remove_overlapping_labels(panel.ax)
    classes = content.paint
    for panel in panels:
        if classes.codes is not None and content.n_coordinates == 1:
            panel.ax.set_yticks(range(len(classes.names)), [plain_text(name) for name in classes.names])
        elif classes.codes is not None and len(classes.names) > 1:
            piece = np.zeros(len(classes.codes), np.int64)
            for number, rows in enumerate(content.groups.values()):
                piece[rows] = number
            codes, names = classes.codes[panel.rows], classes.names[: classes.n_named]
            write_names(figure, panel, codes, names, classes.colors, piece[panel.rows], numbered)


def density_paint() -> Paint:
    """Colours by the number of points, independent of class and value."""
    return PLAIN._replace(norm=LogNorm(1.0, 10.0), label="points in 3 x 3 pixels")


def draw_rasters(figure: Figure, panels: Sequence[Panel], paint: Paint) -> None:
    """Aggregate the points on the pixels of their axes, whose positions become fixed."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    rasters = [_aggregate(panel, paint) for panel in panels]
    if isinstance(paint.norm, LogNorm):
        paint.norm.vmax = max(10.0, *(float(np.nanmax(raster, initial=1.0)) for raster in rasters))
    for panel, raster in zip(panels, rasters, strict=True):
        extent, aspect = (*panel.x_range, *panel.y_range), panel.ax.get_aspect()
        image = panel.ax.imshow(raster, origin="lower", extent=extent, aspect=aspect, interpolation="nearest")
        image.set(cmap=COLOR_MAP, norm=paint.norm)


def _draw_points(panel: Panel, paint: Paint) -> None:
    # Random order: input is often sorted by class, and the last class drawn would cover the others.
    order = np.random.default_rng(DRAW_ORDER_SEED).permutation(panel.rows.size)
    rows = panel.rows[order]
    size = float(np.clip(350.0 / np.sqrt(rows.size), 1.0, 28.0))
    scatter = partial(panel.ax.scatter, panel.x[order], panel.y[order], s=size, linewidths=0.0, alpha=0.85)
    if paint.codes is not None:
        scatter(c=paint.rgba(rows))
    elif paint.values is not None:
        color_map = colormaps[COLOR_MAP].with_extremes(bad=MISSING)
        scatter(c=paint.values[rows], cmap=color_map, norm=paint.norm, plotnonfinite=True)
    else:
        scatter(color=POINT)


def _aggregate(panel: Panel, paint: Paint) -> npt.NDArray[np.generic]:
    """Raster of a panel: RGBA for classes, else mean value or point count around a pixel; NaN for none."""
    box = panel.ax.get_window_extent()
    shape = max(1, round(box.height)), max(1, round(box.width))
    if paint.codes is not None:
        return shade_classes(panel, shape, paint.codes[panel.rows], paint.colors)
    if paint.values is not None:
        return mean_values(panel, shape, paint.values[panel.rows])
    counts = count_points(panel, shape)
    return np.where(counts > 0.0, counts, np.nan)

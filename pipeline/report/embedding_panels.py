"""Choose and draw the points that each pair of axes shows.

Up to `SCATTER_POINTS` points are drawn one by one; more points are aggregated on the pixels of the axes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, to_hex
from matplotlib.figure import Figure

from ..core.arrays import Bools, Float64, Int32, Int64
from .class_names import write_names
from .component_layout import PIECE, Box, arrange, draw_frame, remove_overlapping
from .figure_style import COLOR_MAP, FAINT, MISSING, POINT, label_axes, plain_text
from .point_colors import PLAIN, UNKNOWN_CLASS, ColorSource, Paint, Range, paint_points, robust_range
from .rasterize import Grid, count_points, mean_values, shade_classes

SCATTER_POINTS = 100_000
MAX_EMBEDDED_COMPONENTS = 60
PANEL_ASPECT = 1.25  # of the axes, width over height
DRAW_ORDER_SEED = 20001222


class Column(NamedTuple):
    """The content of one axis: values (n,) for each row of the embedding."""

    label: str
    values: Float64


class Panel(NamedTuple):
    """One pair of axes: `rows` of the embedding at (x, y), shown in (x_range, y_range)."""

    rows: Int64
    x: Float64
    y: Float64
    x_range: Range
    y_range: Range


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
    def point_paint(self) -> Paint:
        """The colours of the points; PLAIN for a single coordinate, whose second axis shows the colour value."""
        return self.paint if self.n_coordinates > 1 else PLAIN

    def selection(self) -> list[str]:
        """The components and coordinates that are drawn, where there are more."""
        notes, n_components = [], len(np.unique(self.component))
        if n_components > len(self.groups):
            drawn = f"{self.n_rows:,} of {self.component.size:,} rows"
            notes.append(f"the {len(self.groups)} largest of {n_components:,} components: {drawn}")
        if self.n_coordinates > 3:
            notes.append(f"the first 3 of {self.n_coordinates} coordinates")
        return notes


def content_of(embedding: Float64, component: Int32, color: ColorSource | None) -> Content:
    """Choose what to draw of an embedding (n, m), NaN for dropped points; component: (n,), -1 for dropped points.

    One coordinate is paired with the colour value, or with itself if there is none; of several coordinates the first
    three are paired with each other.
    """
    is_drawn = np.isfinite(embedding).all(axis=1) & (component >= 0)
    paint = paint_points(color, is_drawn)
    columns = [Column(f"coordinate {j + 1}", embedding[:, j]) for j in range(min(3, embedding.shape[1]))]
    if len(columns) == 1 and paint is not PLAIN:
        columns.append(_color_column(paint))
        is_drawn &= np.isfinite(columns[1].values)
    groups = largest_components(component, is_drawn, MAX_EMBEDDED_COMPONENTS)
    pairs = [(columns[0], columns[0])] if len(columns) == 1 else list(combinations(columns, 2))
    return Content(component[is_drawn], groups, pairs, paint, embedding.shape[1])


def panel_of(ax: Axes, content: Content, pair: tuple[Column, Column]) -> Panel:
    """Set limits, labels and the note on points outside; returns the points to show."""
    if len(content.groups) > 1:
        return _side_by_side(ax, content.groups, *pair, flat=content.n_coordinates == 1)
    [rows] = content.groups.values()
    return _plain_panel(ax, rows, *pair)


def largest_components(component: Int32, is_drawn: Bools, limit: int) -> dict[int, Int64]:
    """The shown rows of the `limit` components with most shown rows, largest first."""
    labels, counts = np.unique(component[is_drawn], return_counts=True)
    order = np.lexsort((labels, -counts))[:limit]
    return {int(label): np.flatnonzero(is_drawn & (component == label)) for label in labels[order]}


def count_outside(x: Float64, y: Float64, x_range: Range, y_range: Range) -> int:
    """Number of points outside a view of x_range by y_range."""
    inside = (x >= x_range[0]) & (x <= x_range[1]) & (y >= y_range[0]) & (y <= y_range[1])
    return int(inside.size - np.count_nonzero(inside))


def _color_column(paint: Paint) -> Column:
    """The second axis of a single coordinate: the colour value, or the class with some jitter."""
    if paint.classes is None:
        assert paint.values is not None
        return Column(paint.label, paint.values)
    jitter = np.random.default_rng(DRAW_ORDER_SEED).uniform(-0.3, 0.3, paint.classes.codes.size)
    return Column(paint.label, paint.classes.codes + jitter)


def _plain_panel(ax: Axes, rows: Int64, x: Column, y: Column) -> Panel:
    """Set limits, labels and the note on points outside; returns the points to show."""
    panel = Panel(rows, x.values[rows], y.values[rows], _view(x.values[rows]), _view(y.values[rows]))
    ax.set_xlim(panel.x_range)
    ax.set_ylim(panel.y_range)
    label_axes(ax, x.label, y.label)
    outside = count_outside(*panel[1:])
    if outside:
        ax.set_title(f"{outside:,} outside the view", loc="right", fontsize=8.5, color=FAINT)
    return panel


def _side_by_side(ax: Axes, groups: Mapping[int, Int64], x: Column, y: Column, flat: bool) -> Panel:
    """As _panel for several components; with one coordinate (flat) they share the other axis."""
    boxes = {label: Box(_view(x.values[rows]), _view(y.values[rows])) for label, rows in groups.items()}
    arrangement = arrange(groups, x.values, y.values, boxes, None if flat else PANEL_ASPECT)
    draw_frame(ax, arrangement, x.label, y.label, flat)
    notes = [f"{arrangement.n_outside:,} outside the view"] * bool(arrangement.n_outside)
    if arrangement.n_hidden:
        notes.append(f"{arrangement.n_hidden} smaller components ({arrangement.n_hidden_rows:,} rows) not drawn")
    if notes:
        ax.set_title("; ".join(notes), loc="right", y=-0.12, fontsize=8.5, color=FAINT)
    return Panel(*arrangement[:5])


def _view(values: Float64) -> Range:
    low, high = robust_range(values)
    margin = 0.04 * (high - low) if high > low else 0.5 * max(1.0, abs(low))
    return low - margin, high + margin


def draw_content(
    figure: Figure, axes: Sequence[Axes], panels: Sequence[Panel], content: Content, add_key: Callable[[Paint], None],
    numbered: set[int] | None = None,
) -> Paint:  # fmt: skip
    """Draw the points of each panel; returns their colours. `add_key` is called before points are aggregated.

    numbered: classes with a number in place of a name, see `write_names`; None if the key has no numbers.
    """
    if content.pairs[0][0] is content.pairs[0][1]:
        _draw_histograms(axes, panels)
        return PLAIN
    paint = _draw_panels(figure, axes, panels, content.point_paint, add_key)
    if len(content.groups) > 1:
        figure.draw_without_rendering()
        for ax in axes:
            remove_overlapping([text for text in ax.texts if text.get_gid() == PIECE])
    classes = content.paint.classes
    for ax, panel in zip(axes, panels, strict=True):
        if classes is not None and content.n_coordinates == 1:
            ax.set_yticks(range(len(classes.names)), [plain_text(name) for name in classes.names])
        elif classes is not None and len(classes.names) > 1:
            piece = np.zeros(len(classes.codes), np.int64)
            for number, rows in enumerate(content.groups.values()):
                piece[rows] = number
            codes = classes.codes[panel.rows]
            names = classes.names[:-1] if classes.names[-1] == UNKNOWN_CLASS else classes.names
            at = panel.x, panel.y
            write_names(figure, ax, at, codes, names, classes.colors, piece[panel.rows], numbered)
    return paint


def _draw_histograms(axes: Sequence[Axes], panels: Sequence[Panel]) -> None:
    for ax, panel in zip(axes, panels, strict=True):
        heights, _, _ = ax.hist(panel.x, bins=80, range=panel.x_range, color=POINT)
        ax.set_ylim(0.0, 1.05 * float(np.max(heights)))
        ax.set_ylabel("points")


def _draw_panels(
    figure: Figure, axes: Sequence[Axes], panels: Sequence[Panel], paint: Paint, add_key: Callable[[Paint], None]
) -> Paint:
    if max(panel.rows.size for panel in panels) <= SCATTER_POINTS:
        add_key(paint)
        for ax, panel in zip(axes, panels, strict=True):
            _draw_points(ax, panel, paint)
        return paint
    if paint is PLAIN:
        paint = density_paint()
    add_key(paint)
    draw_rasters(figure, axes, panels, paint)
    return paint


def density_paint() -> Paint:
    """Colours by the number of points, independent of class and value."""
    return PLAIN._replace(norm=LogNorm(1.0, 10.0), label="points in 3 x 3 pixels")


def draw_rasters(figure: Figure, axes: Sequence[Axes], panels: Sequence[Panel], paint: Paint) -> None:
    """Aggregate the points on the pixels of their axes, whose positions become fixed."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    rasters = [_aggregate(ax, panel, paint) for ax, panel in zip(axes, panels, strict=True)]
    if isinstance(paint.norm, LogNorm):
        paint.norm.vmax = max(10.0, *(float(np.nanmax(raster, initial=1.0)) for raster in rasters))
    for ax, panel, raster in zip(axes, panels, rasters, strict=True):
        extent = (*panel.x_range, *panel.y_range)
        image = ax.imshow(raster, origin="lower", extent=extent, aspect=ax.get_aspect(), interpolation="nearest")
        image.set(cmap=COLOR_MAP, norm=paint.norm)


def _draw_points(ax: Axes, panel: Panel, paint: Paint) -> None:
    # Random order: input is often sorted by class, and the last class drawn would cover the others.
    order = np.random.default_rng(DRAW_ORDER_SEED).permutation(panel.rows.size)
    rows = panel.rows[order]
    size = float(np.clip(350.0 / np.sqrt(rows.size), 1.0, 28.0))
    scatter = partial(ax.scatter, panel.x[order], panel.y[order], s=size, linewidths=0.0, alpha=0.85)
    if paint.classes is not None:
        scatter(c=paint.classes.colors[paint.classes.codes[rows]])
    elif paint.values is not None:
        color_map = colormaps[COLOR_MAP].with_extremes(bad=MISSING)
        scatter(c=paint.values[rows], cmap=color_map, norm=paint.norm, plotnonfinite=True)
    else:
        scatter(color=POINT)


def _aggregate(ax: Axes, panel: Panel, paint: Paint) -> npt.NDArray[np.generic]:
    """Raster of a panel: RGBA for classes, else mean value or point count around a pixel; NaN for none."""
    box = ax.get_window_extent()
    grid = Grid((max(1, round(box.height)), max(1, round(box.width))), panel.x_range, panel.y_range)
    if paint.classes is not None:
        colors = [to_hex(color) for color in paint.classes.colors]
        return shade_classes(grid, panel.x, panel.y, paint.classes.codes[panel.rows], colors)
    if paint.values is not None:
        return mean_values(grid, panel.x, panel.y, paint.values[panel.rows])
    counts = count_points(grid, panel.x, panel.y)
    return np.where(counts > 0.0, counts, np.nan)

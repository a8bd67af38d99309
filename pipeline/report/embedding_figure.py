"""Pictures of a run as PNG bytes: the embedding, the eigenvalue spectrum, the seconds of each stage.

Figures do not use pyplot's global state, so any process or thread can draw them. Up to `SCATTER_POINTS` points are
drawn one by one; more points are aggregated on the pixels of the axes.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize, to_hex, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.report.component_layout import Box, arrange, draw_frame
from pipeline.report.figure_style import (
    DPI,
    FAINT,
    INK,
    MISSING,
    POINT,
    RULE,
    label_axes,
    message_figure,
    plain_text,
    to_png,
)
from pipeline.report.rasterize import Grid, count_points, mean_values, shade_classes

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Range = tuple[float, float]

SCATTER_POINTS = 100_000
MAX_CLASSES = 20
MAX_EMBEDDED_COMPONENTS = 60
PANEL_ASPECT = 1.25  # width over height of the axes
DRAW_ORDER_SEED = 20001222
COLOR_MAP = "viridis"


class ColorSource(NamedTuple):
    """The colour values of the points.

    values: (n,), one number for each row of the embedding, NaN if unknown; for classes the class number.
    names: names[v] is the name of class v; None shows the numbers.
    label: name of the values, with their unit.
    """

    values: FloatArray
    kind: Literal["categorical", "continuous"]
    names: tuple[str, ...] | None
    label: str


class Classes(NamedTuple):
    """codes (n,) index into names and colors (n_classes, 4); rows of unknown class have the last code."""

    codes: IntArray
    names: list[str]
    colors: FloatArray


class Paint(NamedTuple):
    """How points get colours: by class, by value through `norm`, or (both None) one colour for all."""

    classes: Classes | None
    values: FloatArray | None
    norm: Normalize
    label: str


class Column(NamedTuple):
    """The content of one axis: values (n,) for each row of the embedding."""

    label: str
    values: FloatArray


class Panel(NamedTuple):
    """One pair of axes: `rows` of the embedding at (x, y), shown in (x_range, y_range)."""

    rows: IntArray
    x: FloatArray
    y: FloatArray
    x_range: Range
    y_range: Range


PLAIN = Paint(None, None, Normalize(0.0, 1.0), "")


class Captioned(NamedTuple):
    """A PNG and its caption; "" for none."""

    png: bytes
    caption: str


def draw_embedding(
    embedding: FloatArray, component: npt.NDArray[np.int32], color: ColorSource | None, title: str
) -> bytes:
    """The PNG of `draw_captioned`."""
    return draw_captioned(embedding, component, color, title).png


def draw_captioned(
    embedding: FloatArray, component: npt.NDArray[np.int32], color: ColorSource | None, title: str
) -> Captioned:
    """PNG of the first (up to three) coordinates of an embedding.

    embedding: (n, m), rows of NaN for dropped points; component: (n,), -1 for dropped points. Each graph
    component has a separate embedding, so several components are placed side by side, shifted but not scaled, each
    labelled with its number and size. One coordinate is drawn against the colour value (or as a histogram without
    one), three or more as the panels (1, 2), (1, 3), (2, 3). Points outside the view (see `robust_range`) are
    counted above their panel.
    """
    shown = np.isfinite(embedding).all(axis=1) & (component >= 0)
    paint = _paint(color, shown)
    columns = [Column(f"coordinate {j + 1}", embedding[:, j]) for j in range(min(3, embedding.shape[1]))]
    if len(columns) == 1 and paint is not PLAIN:
        columns.append(_color_column(paint))
        shown &= np.isfinite(columns[1].values)
    groups = largest_components(component, shown, MAX_EMBEDDED_COMPONENTS)
    if not groups:
        return Captioned(to_png(message_figure(title, "no point was embedded")), "")
    pairs = [(columns[0], columns[0])] if len(columns) == 1 else list(combinations(columns, 2))
    figure, axes = _panel_figure(title, len(pairs))
    _add_footnote(figure, component[shown], groups, embedding.shape[1])
    if len(groups) == 1:
        [rows] = groups.values()
        panels = [_panel(ax, rows, x, y) for ax, (x, y) in zip(axes, pairs, strict=True)]
    else:
        flat = embedding.shape[1] == 1
        panels = [_side_by_side(ax, groups, x, y, flat) for ax, (x, y) in zip(axes, pairs, strict=True)]
    n_rows = sum(rows.size for rows in groups.values())  # duplicate rows are one point; each row is drawn
    drawn = "1 row" if n_rows == 1 else f"{n_rows:,} rows"
    parts = f" in {len(groups)} components, side by side" if len(groups) > 1 else ""
    axes[0].set_title(drawn + parts, loc="left", fontsize=10, color=INK)
    if len(columns) == 1:
        _draw_histograms(axes, panels)
    else:
        _draw_panels(figure, axes, panels, paint if embedding.shape[1] > 1 else PLAIN)
    if embedding.shape[1] == 1 and paint.classes is not None:
        for ax in axes:
            ax.set_yticks(range(len(paint.classes.names)), [plain_text(name) for name in paint.classes.names])
    return Captioned(to_png(figure), _caption(axes, len(groups)))


def _caption(axes: Sequence[Axes], n_groups: int) -> str:
    """Remarks on this picture, only those that apply to it."""
    outside = any(ax.get_title(loc="right") for ax in axes)
    remarks = ["points outside the view are counted above their panel"] if outside else []
    remarks += ["each component has its own coordinates"] if n_groups > 1 else []
    return f"{'; '.join(remarks).capitalize()}." if remarks else ""


def largest_components(component: npt.NDArray[np.int32], shown: BoolArray, limit: int) -> dict[int, IntArray]:
    """The shown rows of the `limit` components with most shown rows, largest first."""
    labels, counts = np.unique(component[shown], return_counts=True)
    order = np.lexsort((labels, -counts))[:limit]
    return {int(label): np.flatnonzero(shown & (component == label)) for label in labels[order]}


def robust_range(values: FloatArray) -> Range:
    """A range that ignores a few extreme values: percentiles 0.1 to 99.9 if all values span over 3 times that range.

    LLE places weakly connected points far out along spikes; a view of all of them would shrink the others to a dot.
    """
    lowest, low, high, highest = np.percentile(values, (0.0, 0.1, 99.9, 100.0)).tolist()
    return (low, high) if 0.0 < high - low < (highest - lowest) / 3.0 else (lowest, highest)


def count_outside(x: FloatArray, y: FloatArray, x_range: Range, y_range: Range) -> int:
    """Number of points outside a view of x_range by y_range."""
    inside = (x >= x_range[0]) & (x <= x_range[1]) & (y >= y_range[0]) & (y <= y_range[1])
    return int(inside.size - np.count_nonzero(inside))


def classify(color: ColorSource) -> Classes | None:
    """Classes of a categorical source; None for numbers and for over 20 classes, which use a continuous scale."""
    known = np.isfinite(color.values)
    labels, codes = np.unique(color.values[known], return_inverse=True)
    if color.kind != "categorical" or labels.size > MAX_CLASSES:
        return None
    names = [_class_name(label, color.names) for label in labels.tolist()]
    palette = colormaps["tab10" if labels.size <= 10 else "tab20"](np.arange(labels.size)).reshape(-1, 4)
    if not known.all():
        names.append("unknown")
        palette = np.vstack((palette, to_rgba_array(MISSING)))
    all_codes = np.full(color.values.size, labels.size, dtype=np.int64)
    all_codes[known] = codes
    return Classes(all_codes, names, palette)


def _class_name(label: float, names: tuple[str, ...] | None) -> str:
    if names is not None and label.is_integer() and 0 <= label < len(names):
        return names[int(label)]
    return f"{label:g}"


def _paint(color: ColorSource | None, shown: BoolArray) -> Paint:
    if color is None:
        return PLAIN
    classes = classify(color)
    if classes is not None:
        return Paint(classes, None, PLAIN.norm, color.label)
    known = color.values[shown & np.isfinite(color.values)]
    return Paint(None, color.values, Normalize(*robust_range(known)), color.label) if known.size else PLAIN


def _color_column(paint: Paint) -> Column:
    """The second axis of a single coordinate: the colour value, or the class with some jitter."""
    if paint.classes is None:
        assert paint.values is not None
        return Column(paint.label, paint.values)
    jitter = np.random.default_rng(DRAW_ORDER_SEED).uniform(-0.3, 0.3, paint.classes.codes.size)
    return Column(paint.label, paint.classes.codes + jitter)


def _panel(ax: Axes, rows: IntArray, x: Column, y: Column) -> Panel:
    """Set limits, labels and the note on points outside; returns the points to show."""
    panel = Panel(rows, x.values[rows], y.values[rows], _view(x.values[rows]), _view(y.values[rows]))
    ax.set_xlim(panel.x_range)
    ax.set_ylim(panel.y_range)
    label_axes(ax, x.label, y.label)
    outside = count_outside(*panel[1:])
    if outside:
        ax.set_title(f"{outside:,} outside the view", loc="right", fontsize=8.5, color=FAINT)
    return panel


def _side_by_side(ax: Axes, groups: Mapping[int, IntArray], x: Column, y: Column, flat: bool) -> Panel:
    """As _panel for several components; with one coordinate (flat) they share the other axis."""
    boxes = {label: Box(_view(x.values[rows]), _view(y.values[rows])) for label, rows in groups.items()}
    placed = arrange(groups, x.values, y.values, boxes, None if flat else PANEL_ASPECT)
    draw_frame(ax, placed, x.label, y.label, flat)
    if placed.n_outside:
        ax.set_title(f"{placed.n_outside:,} outside the view", loc="right", fontsize=8.5, color=FAINT)
    return Panel(*placed[:5])


def _view(values: FloatArray) -> Range:
    low, high = robust_range(values)
    margin = 0.04 * (high - low) if high > low else 0.5 * max(1.0, abs(low))
    return low - margin, high + margin


def _draw_histograms(axes: Sequence[Axes], panels: Sequence[Panel]) -> None:
    for ax, panel in zip(axes, panels, strict=True):
        heights, _, _ = ax.hist(panel.x, bins=80, range=panel.x_range, color=POINT)
        ax.set_ylim(0.0, 1.05 * float(np.max(heights)))
        ax.set_ylabel("points")


def _draw_panels(figure: Figure, axes: Sequence[Axes], panels: Sequence[Panel], paint: Paint) -> None:
    if max(panel.rows.size for panel in panels) <= SCATTER_POINTS:
        _add_key(figure, axes, paint)
        for ax, panel in zip(axes, panels, strict=True):
            _draw_points(ax, panel, paint)
        return
    if paint is PLAIN:
        paint = PLAIN._replace(norm=LogNorm(1.0, 10.0), label="points in 3 x 3 pixels")
    _add_key(figure, axes, paint)
    # A raster has the pixels of its axes, so their position must be fixed before aggregating.
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
    style: dict[str, Any] = {"color": POINT}
    if paint.classes is not None:
        style = {"c": paint.classes.colors[paint.classes.codes[rows]]}
    elif paint.values is not None:
        color_map = colormaps[COLOR_MAP].with_extremes(bad=MISSING)
        style = {"c": paint.values[rows], "cmap": color_map, "norm": paint.norm, "plotnonfinite": True}
    size = float(np.clip(350.0 / np.sqrt(rows.size), 1.0, 28.0))
    ax.scatter(panel.x[order], panel.y[order], s=size, linewidths=0.0, alpha=0.85, **style)


def _aggregate(ax: Axes, panel: Panel, paint: Paint) -> npt.NDArray[Any]:
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


def _add_key(figure: Figure, axes: Sequence[Axes], paint: Paint) -> None:
    """Legend for classes, colour bar for values and counts."""
    if paint.classes is not None:
        style: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 6}
        marks = [Line2D([], [], color=color, **style) for color in paint.classes.colors]
        names, title = [plain_text(name, 24) for name in paint.classes.names], plain_text(paint.label, 24)
        legend = figure.legend(marks, names, title=title, loc="outside right upper", frameon=False)
        legend.set_alignment("left")
        for text in (*legend.get_texts(), legend.get_title()):
            text.set(fontsize=9, color=INK)
    elif paint is not PLAIN:
        bar = figure.colorbar(ScalarMappable(paint.norm, COLOR_MAP), ax=list(axes), aspect=36, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.tick_params(which="both", labelsize=9, labelcolor=INK, color=RULE)
        bar.set_label(plain_text(paint.label), fontsize=10, color=INK)


def _add_footnote(
    figure: Figure, component: npt.NDArray[np.int32], groups: Mapping[int, IntArray], n_coordinates: int
) -> None:
    notes = []
    n_components = len(np.unique(component))
    if n_components > len(groups):
        drawn = f"{sum(rows.size for rows in groups.values()):,} of {component.size:,} rows"
        notes.append(f"the {len(groups)} largest of {n_components:,} components: {drawn}")
    if n_coordinates > 3:
        notes.append(f"the first 3 of {n_coordinates} coordinates")
    if notes:
        figure.supxlabel("; ".join(notes), fontsize=8.5, color=FAINT)


def _panel_figure(title: str, n_pairs: int) -> tuple[Figure, list[Axes]]:
    """Figure with a row of `n_pairs` axes."""
    size = (4.0 * n_pairs + 1.0, 4.2) if n_pairs > 1 else (7.4, 5.6)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    figure.suptitle(plain_text(title, 90), x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
    return figure, list(figure.subplots(1, n_pairs, squeeze=False).flat)

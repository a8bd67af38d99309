"""The embeddings of a sweep in one picture: one cell per experiment, rows and columns by parameter.

All cells share one pair of axes, and each embedding is scaled into its cell: 324 cells of 1,234 points take 2 s, with a
pair of axes for each cell and a constrained layout 5 s.
"""

import io
import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from math import ceil, log, prod, sqrt
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from PIL import Image

from ..core.arrays import Float64, Int64
from .figure_style import FAINT, INK, RULE, Pair, add_legend, plain_text, to_pair
from .point_colors import PLAIN, Paint, common_key, robust_range, style_bar

POINTS_IN_ALL, MAX_POINTS = 400_000, 5_000
WIDTH = 14.0
CELL = (0.6, 2.4)
MARGIN = 0.07
EDGE = 0.12
SHEET_DPI = 100
WIDER = 1.6
TITLE_SIZE, LABEL_SIZE, LABEL_LINES = 13.0, 7.0, 4


class Cell(NamedTuple):
    """One experiment: its parameters, positions (n, 2) and colours (n, 4) of its points, and their key; without points
    a note gives the reason. One of the best experiments has a star."""

    values: Mapping[str, object]
    points: Float64 | None
    colors: Float64 | None
    note: str = ""
    key: Paint = PLAIN
    is_best: bool = False


class Grid(NamedTuple):
    """The parameters of rows and columns, the last of each varying fastest, and their values."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Mapping[str, list[object]]

    def places(self, names: tuple[str, ...]) -> list[tuple[object, ...]]:
        return list(product(*(self.values[name] for name in names)))


def sampled_rows(n_rows: int, n_cells: int) -> Int64:
    """Evenly spaced rows of an embedding, as many as fit a sheet of `n_cells` cells."""
    n_points = int(np.clip(POINTS_IN_ALL // max(n_cells, 1), 200, MAX_POINTS))
    return np.unique(np.linspace(0, n_rows - 1, min(n_points, n_rows)).astype(np.int64))


def choose_grid(cells: Sequence[Cell]) -> Grid | None:
    """Assign parameters to rows and columns for a sheet slightly wider than high; None if they form no grid."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.values))
    if not names or len(names) > 6 or any(len(cell.values) < len(names) for cell in cells):
        return None
    values = {name: _distinct([cell.values.get(name) for cell in cells]) for name in names}
    places = {tuple(repr(cell.values[name]) for name in names) for cell in cells}
    sizes = {name: len(values[name]) for name in names}
    if len(places) < len(cells) or prod(sizes.values()) > 2 * len(cells):
        return None
    subsets = [rows for count in range(len(names) + 1) for rows in combinations(names, count)]

    def misfit(rows: tuple[str, ...]) -> float:
        high = prod(sizes[name] for name in rows)
        return abs(log(prod(sizes.values()) / high / high / WIDER))

    rows = min(subsets, key=misfit)
    if len(names) == 1 and misfit(rows) > log(4.0):
        return None  # a single row, in which cells would be tiny
    return Grid(rows, tuple(name for name in names if name not in rows), values)


def _distinct(values: list[object]) -> list[object]:
    return [value for number, value in enumerate(values) if value not in values[:number]]


def draw_contact_sheet(cells: Sequence[Cell], title: str) -> Pair:
    """Pictures of all cells for light and dark pages; parameters label the axes, or each cell if they form no grid."""
    grid = choose_grid(cells)
    shape, places = _places(cells, grid)
    side = float(np.clip(WIDTH / shape[1], *CELL))
    labels = [] if grid else [_wrapped(cell.values, side) for cell in cells]
    band = max((label.count("\n") + 1 for label in labels), default=0) * 1.4 * LABEL_SIZE / 72 / side
    key = common_key([cell.key for cell in cells if cell.points is not None])
    extent = (side * shape[1], side * shape[0] * (1 + band))
    figure = Figure(figsize=extent, dpi=SHEET_DPI)
    ax = figure.add_axes((0, 0, 1, 1))
    corners = [(column, row * (1 + band) + band) for row, column in places]
    _fill(ax, cells, corners, side)
    ax.set(xlim=(0, shape[1]), ylim=(shape[0] * (1 + band), 0))
    ax.spines[:].set_color(RULE)
    ax.vlines(range(1, shape[1]), 0, shape[0] * (1 + band), color=RULE, linewidth=0.5)
    ax.hlines([row * (1 + band) for row in range(1, shape[0])], 0, shape[1], color=RULE, linewidth=0.5)
    ax.set_xticks([])
    ax.set_yticks([])
    for (left, top), label in zip(corners, labels, strict=False):
        ax.text(left + 0.03, top, label, fontsize=LABEL_SIZE, color=INK, va="bottom", linespacing=1.1)
    if grid is not None and grid.columns:
        _label_columns(ax, grid)
    if grid is not None and grid.rows:
        _label_rows(ax, grid)
    _draw_key(figure, ax, key, extent)
    _fit_figure(figure, ax, extent, title)
    return Pair(*map(_few_colors, to_pair(figure)))


def _draw_key(figure: Figure, ax: Axes, key: Paint, extent: tuple[float, float]) -> None:
    """Draw a legend of classes, or a colour bar. Its ends are words if the ranges of the cells differ.

    extent: width and height of the axes in inches. The key is 0.18 inches beside them, a bar is at most 2.6 high.
    """
    wide, high = extent
    left, length = 1 + 0.18 / wide, min(2.6, high)
    if key.names:
        place = {"loc": "upper left", "bbox_to_anchor": (left, 1.0), "borderaxespad": 0.0}
        add_legend(ax, key.label, key.names, key.colors, 8, **place)
    elif key.label:
        one_range = key.norm.scaled()
        bar_axes = ax.inset_axes((left, 1 - length / high, 0.14 / wide, length / high))
        style_bar(bar := figure.colorbar(key.scale, cax=bar_axes), key.label, 8)
        if not one_range:
            bar.set_ticks([0.0, 1.0], labels=["lowest", "highest"])
            bar.set_label(f"{bar.ax.get_ylabel()} in each cell")


def _fit_figure(figure: Figure, ax: Axes, extent: tuple[float, float], title: str) -> None:
    """Add the title, and fit the figure's size to the axes (width and height in inches) and all their labels.

    matplotlib's layouts shrink axes to fit the labels, and leave too little space for square cells.
    """
    figure.draw_without_rendering()
    box = ax.get_tightbbox()
    assert box is not None
    left, bottom, right, top = np.array(box.extents) / SHEET_DPI
    width = right - left + 2 * EDGE
    heading = textwrap.fill(plain_text(title, 120), int(width * 72 / (0.72 * TITLE_SIZE)))
    height = top - bottom + 3 * EDGE + 1.3 * TITLE_SIZE / 72 * (heading.count("\n") + 1)
    figure.set_size_inches(width, height)
    ax.set_position(((EDGE - left) / width, (EDGE - bottom) / height, extent[0] / width, extent[1] / height))
    figure.text(
        EDGE / width, 1 - EDGE / height, heading, ha="left", va="top", fontsize=TITLE_SIZE, fontweight="bold", color=INK
    )


def _places(cells: Sequence[Cell], grid: Grid | None) -> tuple[tuple[int, int], list[tuple[int, int]]]:
    """Numbers of rows and columns, and row and column of each cell; without a grid the cells are in sequence."""
    if grid is not None:
        across, down = grid.places(grid.columns), grid.places(grid.rows)
        values = [tuple(tuple(cell.values.get(name) for name in names) for names in grid[:2]) for cell in cells]
        return (len(down), len(across)), [(down.index(row), across.index(column)) for row, column in values]
    narrow = min(len(cells), ceil(sqrt(WIDER * len(cells))))
    n_columns = min((narrow, narrow + 1), key=lambda columns: -len(cells) % columns)  # fewest empty places
    return (ceil(len(cells) / n_columns), n_columns), [divmod(number, n_columns) for number in range(len(cells))]


def _wrapped(values: Mapping[str, object], side: float) -> str:
    """The parameters of a cell `side` inches wide, wrapped to fit it."""
    words = ", ".join(f"{name} {_word(value)}" for name, value in values.items())
    letters = int(0.94 * side / (0.6 * LABEL_SIZE / 72))
    lines = textwrap.wrap(" ".join(words.split()), letters, max_lines=LABEL_LINES, placeholder="…")
    return "\n".join(plain_text(line, letters) for line in lines)


def _few_colors(png: bytes) -> bytes:
    """The picture with a palette of 256 colours, which takes a third of the bytes.

    Pillow's default method gives text, which has few pixels, the colours of points. The octree changes all colours by
    at most a few units of 255.
    """
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        few = image.convert("RGB").quantize(method=Image.Quantize.FASTOCTREE)
    few.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _fill(ax: Axes, cells: Sequence[Cell], corners: Sequence[tuple[float, float]], side: float) -> None:
    """Draw the points and notes of the cells, each a unit square from its upper left corner (left, top)."""
    points, colors, sizes = [], [], []
    for cell, (left, top) in zip(cells, corners, strict=True):
        if cell.points is not None and cell.colors is not None and len(cell.points):
            x, y = (_scaled(cell.points[:, j]) for j in range(2))
            inside = (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)
            x, y = MARGIN + (1 - 2 * MARGIN) * x, MARGIN + (1 - 2 * MARGIN) * y
            points.append(np.column_stack([left + x, top + 1 - y])[inside])
            colors.append(cell.colors[inside])
            sizes.append(np.full(inside.sum(), float(np.clip(800 * side**2 / len(x), 0.2, 12.0))))
        if cell.is_best:
            ax.text(left + 0.97, top + 0.03, "★", fontsize=TITLE_SIZE, color=INK, ha="right", va="top")
        if cell.note:
            note = plain_text(cell.note, 24)
            ax.text(left + 0.5, top + 0.97, note, fontsize=6, color=FAINT, ha="center", va="bottom")
    if points:
        all_points = np.concatenate(points)
        order = np.random.default_rng(2000).permutation(len(all_points))
        x, y = all_points[order].T
        ax.scatter(x, y, c=np.concatenate(colors)[order], s=np.concatenate(sizes)[order], linewidths=0)


def _scaled(values: Float64) -> Float64:
    low, high = robust_range(values)
    return (values - low) / (high - low) if high > low else np.full(len(values), 0.5)


def _label_columns(ax: Axes, grid: Grid) -> None:
    """The fastest parameter as ticks above the cells, the others as headings of groups."""
    across = grid.places(grid.columns)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    _label(ax.xaxis, grid.columns[-1], [_word(place[-1]) for place in across])
    for level, name in enumerate(grid.columns[:-1]):
        width = prod(len(grid.values[inner]) for inner in grid.columns[level + 1 :])
        above = 34 + 16 * (len(grid.columns) - 2 - level)  # points; 34 for ticks and label
        for start in range(0, len(across), width):
            ax.annotate(
                f"{name} {_word(across[start][level])}",
                (start + width / 2, 0),
                (0, above),
                textcoords="offset points",
                ha="center",
                fontsize=10,
                fontweight="bold",
                color=INK,
            )
            ax.axvline(start, color=INK, linewidth=1.2)


def _label_rows(ax: Axes, grid: Grid) -> None:
    """The fastest parameter as ticks beside the cells, with the others above it where they change."""
    labels, earlier = [], ""
    for *outer, value in grid.places(grid.rows):
        group = ", ".join(f"{name} {_word(other)}" for name, other in zip(grid.rows, outer, strict=False))
        labels.append(_word(value) if group == earlier else f"{group}\n{_word(value)}")
        earlier = group
    _label(ax.yaxis, grid.rows[-1], labels)


def _label(axis: Axis, name: str, ticks: Sequence[str]) -> None:
    axis.set_ticks(np.arange(len(ticks)) + 0.5, ticks)
    axis.set_tick_params(length=0, labelsize=8, labelcolor=INK)
    axis.set_label_text(name, fontsize=9, color=INK)


def _word(value: object) -> str:
    return plain_text(f"{value:g}" if isinstance(value, float) else str(value), 24)

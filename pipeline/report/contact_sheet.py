"""The embeddings of a sweep in one picture: a cell for each experiment, rows and columns by parameter.

One pair of axes holds them all, each embedding scaled into its cell, since hundreds of axes would take minutes.
"""

import io
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from math import ceil, log, prod, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_rgba
from matplotlib.figure import Figure
from PIL import Image

from pipeline.report.figures import FAINT, INK, POINT, RULE, plain_text, to_png
from pipeline.report.pictures import COLOR_MAP, ColorSource, classify, robust_range

FloatArray = npt.NDArray[np.float64]

POINTS_IN_ALL, MOST_POINTS = 400_000, 5_000
WIDTH = 14.0
CELL = (0.6, 2.4)
MARGIN = 0.07
SHEET_DPI = 100
PALETTE = 96
WIDER = 1.6
MOST_PARAMETERS = 6


class Cell(NamedTuple):
    """One experiment: its parameters, where its points lie (n, 2) and their colours (n, 4); None with a note why."""

    values: Mapping[str, Any]
    points: FloatArray | None
    colors: FloatArray | None
    note: str = ""


class Grid(NamedTuple):
    """Which parameters run along rows and columns, the last of each fastest, and their values."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Mapping[str, list[Any]]

    def places(self, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        return list(product(*(self.values[name] for name in names)))


def sampled_rows(n_rows: int, n_cells: int) -> npt.NDArray[np.int64]:
    """Evenly spaced rows of an embedding, as many as a sheet of `n_cells` cells has room for."""
    most = int(np.clip(POINTS_IN_ALL // max(n_cells, 1), 200, MOST_POINTS))
    return np.unique(np.linspace(0, n_rows - 1, min(most, n_rows)).astype(np.int64))


def point_colors(color: ColorSource | None, rows: npt.NDArray[np.int64]) -> FloatArray:
    """RGBA (len(rows), 4) of some rows of an embedding, by class or by value."""
    if color is None:
        return np.tile(to_rgba(POINT), (len(rows), 1))
    classes = classify(color)
    if classes is not None:
        return np.asarray(classes.colors[classes.codes[rows]])
    known = color.values[np.isfinite(color.values)]
    norm = Normalize(*robust_range(known)) if known.size else Normalize(0.0, 1.0)
    return np.asarray(colormaps[COLOR_MAP](norm(color.values[rows])))


def choose_grid(cells: Sequence[Cell]) -> Grid | None:
    """Parameters to rows and columns so that the sheet is somewhat wider than high; None where they make no grid."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.values))
    if not names or len(names) > MOST_PARAMETERS or any(len(cell.values) < len(names) for cell in cells):
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
    return Grid(rows, tuple(name for name in names if name not in rows), values)


def _distinct(values: list[Any]) -> list[Any]:
    return [value for number, value in enumerate(values) if value not in values[:number]]


def draw_contact_sheet(cells: Sequence[Cell], title: str) -> bytes:
    """PNG of all cells; parameters label the axes, or each cell where they make no grid."""
    grid = choose_grid(cells)
    if grid is None:
        n_columns = ceil(sqrt(WIDER * len(cells)))
        shape = (ceil(len(cells) / n_columns), n_columns)
        places = [divmod(number, n_columns) for number in range(len(cells))]
    else:
        across, down = grid.places(grid.columns), grid.places(grid.rows)
        shape = (len(down), len(across))
        places = [(down.index(tuple(cell.values.get(name) for name in grid.rows)),
                   across.index(tuple(cell.values.get(name) for name in grid.columns))) for cell in cells]  # fmt: skip
    side = float(np.clip(WIDTH / shape[1], *CELL))
    figure = Figure(figsize=(side * shape[1] + 1.6, side * shape[0] + 1.5), dpi=SHEET_DPI, layout="constrained")
    figure.suptitle(plain_text(title, 120), x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
    ax = figure.subplots()
    _fill(ax, cells, places, side)
    ax.set(xlim=(0, shape[1]), ylim=(shape[0], 0), aspect="equal")
    ax.spines[:].set_color(RULE)
    ax.vlines(range(1, shape[1]), 0, shape[0], color=RULE, linewidth=0.5)
    ax.hlines(range(1, shape[0]), 0, shape[1], color=RULE, linewidth=0.5)
    ax.set_xticks([])
    ax.set_yticks([])
    if grid is None:
        for cell, (row, column) in zip(cells, places, strict=True):
            label = ", ".join(f"{name} {_word(value)}" for name, value in cell.values.items())
            ax.text(column + 0.03, row + 0.06, plain_text(label, 60), fontsize=7, color=INK, va="center")
    else:
        _label_columns(ax, grid)
        _label_rows(ax, grid)
    return _few_colors(to_png(figure))


def _few_colors(png: bytes) -> bytes:
    """The same picture with a palette of its own: a third of the bytes."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(PALETTE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _fill(ax: Axes, cells: Sequence[Cell], places: Sequence[tuple[int, int]], side: float) -> None:
    points, colors, sizes = [], [], []
    for cell, (row, column) in zip(cells, places, strict=True):
        if cell.points is not None and cell.colors is not None and len(cell.points):
            x, y = (_scaled(cell.points[:, j]) for j in range(2))
            inside = (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)
            x, y = MARGIN + (1 - 2 * MARGIN) * x, MARGIN + (1 - 2 * MARGIN) * y
            points.append(np.column_stack([column + x, row + 1 - y])[inside])
            colors.append(cell.colors[inside])
            sizes.append(np.full(inside.sum(), float(np.clip(800 * side**2 / len(x), 0.2, 12.0))))
        if cell.note:
            style: dict[str, Any] = {"fontsize": 6, "color": FAINT, "ha": "center", "va": "bottom"}
            ax.text(column + 0.5, row + 0.97, plain_text(cell.note, 24), **style)
    if points:
        all_points = np.concatenate(points)
        order = np.random.default_rng(2000).permutation(len(all_points))
        x, y = all_points[order].T
        ax.scatter(x, y, c=np.concatenate(colors)[order], s=np.concatenate(sizes)[order], linewidths=0)


def _scaled(values: FloatArray) -> FloatArray:
    low, high = robust_range(values)
    return (values - low) / (high - low) if high > low else np.full(len(values), 0.5)


def _label_columns(ax: Axes, grid: Grid) -> None:
    """The fastest parameter as ticks above the cells, the others over groups of them."""
    across = grid.places(grid.columns)
    if not grid.columns:
        return
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xticks(np.arange(len(across)) + 0.5, [_word(place[-1]) for place in across])
    ax.tick_params(axis="x", length=0, labelsize=8, labelcolor=INK)
    height = 1.0
    for level, name in reversed(list(enumerate(grid.columns))):
        width = prod(len(grid.values[inner]) for inner in grid.columns[level + 1 :])
        if level == len(grid.columns) - 1:
            ax.set_xlabel(name + "\n" * (len(grid.columns) - 1), fontsize=9, color=INK)
            continue
        height += 0.45
        for start in range(0, len(across), width):
            ax.annotate(
                f"{name} {_word(across[start][level])}", (start + width / 2, 0), (0, 14 + 16 * height),
                textcoords="offset points", ha="center", fontsize=10, fontweight="bold", color=INK,
            )  # fmt: skip
            ax.axvline(start, color=INK, linewidth=1.2)


def _label_rows(ax: Axes, grid: Grid) -> None:
    down = grid.places(grid.rows)
    if not grid.rows:
        return
    inner = [_word(place[-1]) for place in down]
    outer = [", ".join(f"{name} {_word(value)}" for name, value in zip(grid.rows[:-1], place[:-1], strict=True))
             for place in down]  # fmt: skip
    labels = [f"{group}\n{value}" if group and group != before else value
              for group, value, before in zip(outer, inner, ["", *outer], strict=False)]  # fmt: skip
    ax.set_yticks(np.arange(len(down)) + 0.5, labels)
    ax.tick_params(axis="y", length=0, labelsize=8, labelcolor=INK)
    ax.set_ylabel(grid.rows[-1], fontsize=9, color=INK)


def _word(value: Any) -> str:
    return plain_text(f"{value:g}" if isinstance(value, float) else str(value), 24)

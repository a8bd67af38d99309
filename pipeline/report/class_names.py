"""Names of classes in pictures: beside the points of each piece, with a line to them, where nothing else is drawn."""

import math
import textwrap
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from ..core.arrays import Array, Int64
from .figure_style import INK, PAPER, fonts_for, plain_text
from .panel import Panel

SAMPLE = 20_000
"""The middle of a class is computed from about this number of its points."""
LEAST_RATIO, LEAST_GAIN = 1.5, 0.1
"""A class is not mixed with others if its mean share of the points beside its members, in their cells or in their
range, is LEAST_RATIO times its share of all points, or LEAST_GAIN of the way from it to 1."""
LINE_LETTERS, MOST_LETTERS = 20, 80
STYLE: dict[str, Any] = {
    "fontsize": 9,
    "fontweight": "bold",
    "ha": "center",
    "va": "center",
    "bbox": {"boxstyle": "round,pad=0.1", "facecolor": PAPER, "alpha": 0.75, "edgecolor": "none"},
}


class NamePlace(NamedTuple):
    """Where the name of a class points: its code, coordinates, and the number of points that it names."""

    code: int
    x: float
    y: float
    n_points: int


def name_places(x: Array, y: Array, codes: Array, n_named: int, piece: Array | None) -> list[NamePlace]:
    """Up to 60 places of classes in the pieces of a picture: a point of the class where many of them are.

    A class has one in each piece of which it is at least 1 %, and in the piece with most of its points; none where it
    is mixed with others everywhere.
    x, y, codes: (n,) coordinates and classes; codes of n_named and more have no name. piece: (n,) number of the piece
    of each point, 0 or more; None for one piece. The classes with most points come first.
    """
    piece = np.zeros(len(codes), np.int64) if piece is None else piece
    sizes = np.bincount(piece, minlength=1)
    some = slice(None, None, 1 + len(codes) // SAMPLE)
    x_of_some, y_of_some, piece_of_some = x[some], y[some], piece[some]
    places = []
    for code in range(n_named):
        members = np.flatnonzero(codes == code)
        counts = np.bincount(piece[members], minlength=len(sizes))
        is_named = (counts > 0) & ((counts >= 0.01 * sizes) | (counts == counts.max(initial=0)))
        for p in np.flatnonzero(is_named).tolist():
            inside = members[piece[members] == p]
            sample, beside = inside[:: 1 + len(inside) // SAMPLE], piece_of_some == p
            others = x_of_some[beside], y_of_some[beside]
            weight, share = some.step / (1 + len(inside) // SAMPLE), len(inside) / sizes[p]
            at = middle(x[sample], y[sample], *others, weight, share)
            places += [] if at is None else [NamePlace(code, *at, len(inside))]
    return sorted(places, key=lambda place: -place.n_points)[:60]


def middle(x: Array, y: Array, all_x: Array, all_y: Array, weight: float, share: float) -> tuple[float, float] | None:
    """A point in a clear part of a class: the one nearest to the medians, which themselves may lie beside all points.

    The range of its points (x, y) is divided into 8 x 8 cells. A cell is good if it holds many points of the class and
    few others, which would cover them: members^2 / points. If the cell of the medians is less than half as good as the
    best one, only the members in the best cell are used. all_x, all_y: a sample of the points of all classes, each of
    which stands for `weight` points. share: of the class among them. None if the class is mixed with others.
    """
    low, half, high = np.percentile([x, y], (2, 50, 98), axis=1)
    span = np.maximum(high - low, 1e-300)
    members, others = np.array([x, y]).T, np.array([all_x, all_y]).T
    cells, [half_cell] = _cells(members, low, span), _cells(half[None], low, span)
    is_inside, are_inside = (((table >= low) & (table <= high)).all(axis=1) for table in (members, others))
    # points outside of the range are counted in the cells at its edge, where the others outside are not known
    counts, inside = (np.bincount(table, minlength=64) for table in (cells, cells[is_inside]))
    points = weight * np.bincount(_cells(others[are_inside], low, span), minlength=64)
    points = np.maximum(points, inside)
    if _is_mixed(inside, points, share) and _is_mixed(inside.sum()[None], points.sum()[None], share):
        return None
    scores = counts**2 / np.maximum(np.maximum(counts, points), 1)
    best = scores.argmax()
    if 2 * scores[half_cell] < scores[best]:
        members = members[cells == best]
    nearest = np.square(members - np.median(members, axis=0)).sum(axis=1).argmin()
    x_of_nearest, y_of_nearest = members[nearest].tolist()
    return x_of_nearest, y_of_nearest


def _is_mixed(members: Array, points: Array, share: float) -> bool:
    """Whether points are hardly more often of a class beside its members than anywhere. members, points: (cells,)."""
    members, points = members[points > 1], points[points > 1]
    gain = np.sum(members * ((members - 1) / (points - 1) - share))
    return bool(gain < min((LEAST_RATIO - 1.0) * share, LEAST_GAIN * (1.0 - share)) * members.sum())


def _cells(points: Array, low: Array, span: Array) -> Int64:
    """The cell, of 8 x 8, of each point (n, 2)."""
    column, row = (8 * (points - low) / span).clip(0, 7).astype(int).T
    return np.asarray(8 * row + column)


def write_names(
    figure: Figure,
    panel: Panel,
    codes: Array,
    names: Sequence[str],
    colors: Sequence[str],
    piece: Array | None,
    numbered: Collection[int] = (),
) -> None:
    """Write the names of classes into a panel whose layout is final. codes: (n,) of its points.

    colors: #rrggbb of the lines from the names to their points. numbered: classes whose number stands for
    their name.

    A name never covers another one, or the title of a piece; without a free place it is left out. A long one has
    several lines, and is cut after MOST_LETTERS.
    """
    with fonts_for(figure.findobj(Text)):
        figure.draw_without_rendering()
    ax, unit = panel.ax, figure.dpi / 72.0
    frame, pixels = ax.get_window_extent(), ax.transData.transform(np.column_stack([panel.x, panel.y]))
    drawn = _drawn_cells(pixels - (frame.x0, frame.y0), frame, 4 * unit)
    titles = [text.get_window_extent() for text in ax.texts]
    placed = [_Placed(title, Path([title.min])) for title in titles]
    for place in name_places(panel.x, panel.y, codes, len(names), piece):
        text = number_of(place.code) if place.code in numbered else _lines_of(names[place.code])
        extent = _extent(ax, text)
        at = ax.transData.transform((place.x, place.y))
        best = _best(at, extent.width + 4 * unit, extent.height + 2 * unit, frame, drawn, placed, unit)
        if best is not None:
            placed.append(best)
            _write(ax, text, best, colors[place.code])


def number_of(code: int) -> str:
    """The number of a class in pictures and in their legend."""
    return f"#{code + 1}"


class _Placed(NamedTuple):
    """A placed name: its box, and the line from its points, in pixels."""

    box: Bbox
    line: Path


def _extent(ax: Axes, text: str) -> Bbox:
    artist = ax.text(0.0, 0.0, text, **STYLE)
    with fonts_for([artist]):
        extent = artist.get_window_extent()
    artist.remove()
    return extent


def _lines_of(name: str) -> str:
    return "\n".join(textwrap.wrap(plain_text(name, MOST_LETTERS), LINE_LETTERS)) or "(empty)"


def _write(ax: Axes, text: str, best: _Placed, color: str) -> None:
    """Write a text and its line; the axes keep their layout."""
    to_data = ax.transData.inverted()
    x, y = to_data.transform(best.box.get_points().mean(axis=0)).tolist()
    ax.text(x, y, text, color=INK, zorder=6, **STYLE).set_in_layout(False)
    line = to_data.transform(best.line.vertices)
    for width, shade in ((1.8, INK), (0.9, color)):
        ax.plot(
            *line.T,
            color=shade,
            linewidth=width,
            marker="o",
            markevery=[0],
            markersize=3.0 + width,
            zorder=5,
            markeredgewidth=0.0,
            scalex=False,
            scaley=False,
            in_layout=False,
        )


def _drawn_cells(pixels: Array, frame: Bbox, cell: float) -> Array:
    """Summed-area table of the cells of a frame that hold points, with a first row and column of zeros."""
    counts, _, _ = np.histogram2d(
        pixels[:, 1],
        pixels[:, 0],
        bins=(math.ceil(frame.height / cell), math.ceil(frame.width / cell)),
        range=((0.0, frame.height), (0.0, frame.width)),
    )
    return np.pad((counts > 0).cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))


def _best(
    at: Array, width: float, height: float, frame: Bbox, drawn: Array, placed: Sequence[_Placed], unit: float
) -> _Placed | None:
    """The place with the lowest cost: distance from the points, covered points and crossed lines add to it."""
    best, lowest = None, np.inf
    for radius in np.multiply((8, 14, 22, 32, 44, 60, 80, 105, 135, 170, 220), unit):
        for angle in np.linspace(0.0, 2.0 * np.pi, 48, endpoint=False):
            x = at[0] + math.cos(angle) * (radius + width / 2)
            y = at[1] + math.sin(angle) * (radius + height / 2)
            box = Bbox.from_bounds(x - width / 2, y - height / 2, width, height)
            is_inside = frame.x0 < box.x0 and frame.y0 < box.y0 and box.x1 < frame.x1 and box.y1 < frame.y1
            if not is_inside or box.count_overlaps([other.box for other in placed]):
                continue
            end = min(max(at[0], box.x0), box.x1), min(max(at[1], box.y0), box.y1)
            line = Path(np.array([at, end]))
            cost = radius / unit + 60.0 * _covered(box, frame, drawn)
            if cost < lowest:  # the other term takes longer
                cost += 150.0 * _faults(box, line, placed)
            if cost < lowest:
                best, lowest = _Placed(box, line), cost
        if lowest <= radius / unit:  # places farther away cost more
            break
    return best


def _covered(box: Bbox, frame: Bbox, drawn: Array) -> float:
    """The number of cells under a box in which something is drawn."""
    rows, columns = drawn.shape[0] - 1, drawn.shape[1] - 1
    c0, c1 = (edge(columns * (x - frame.x0) / frame.width) for edge, x in ((math.floor, box.x0), (math.ceil, box.x1)))
    r0, r1 = (edge(rows * (y - frame.y0) / frame.height) for edge, y in ((math.floor, box.y0), (math.ceil, box.y1)))
    r1, c1 = min(r1, rows), min(c1, columns)
    return float(drawn[r1, c1] - drawn[r0, c1] - drawn[r1, c0] + drawn[r0, c0])


def _faults(box: Bbox, line: Path, placed: Sequence[_Placed]) -> int:
    """How often the line of a name crosses other lines, or names."""
    return sum(
        line.intersects_path(other.line, filled=False)
        + 2 * (line.intersects_bbox(other.box, filled=False) + other.line.intersects_bbox(box, filled=False))
        for other in placed
    )

"""The pictures of an embedding on the report page: one for each pair of coordinates, readable on a phone.

The colour key is text of the page. If classes can cover each other, there is also a picture of the density and one
with a cell for each class.
"""

import math
from textwrap import wrap
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ..core.arrays import Float64, Int32
from ..core.errors import counted
from .class_names import number_of
from .column import Column
from .embedding_figure import (
    DRAW_ORDER_SEED,
    Content,
    content_of,
    density_paint,
    draw_content,
    draw_rasters,
    panel_of,
    shown_paint,
)
from .figure_style import INK, RULE, Pair, message_figure, plain_text, to_pair
from .panel import count_points
from .point_colors import PLAIN, Paint

WIDTH, SINGLE_WIDTH = 3.9, 4.6
"""Width in inches of one picture of several, and of a single one: 9-point text has at least 10 pixels at 420 pixels."""
ASPECT = 0.82
DPI = 180
DENSITY_POINTS = 2_000
CLASS_POINTS = 200_000
CLASS_LETTERS = 10
"""Letters of a line of the name above a cell of a class."""
LONG_NAME = 40
"""Letters of a name above which its class has a number in all pictures: such names would fill them."""


class PagePicture(NamedTuple):
    """A picture, its caption, its alternative text for screen readers, and the same picture for wide screens."""

    pair: Pair
    caption: str
    alternative: str
    wide: Pair | None = None
    dpi: int = DPI

    @property
    def width(self) -> int:
        """Its width in CSS pixels, 96 to an inch; the header chunk of a PNG begins with the width."""
        return round(int.from_bytes(self.pair.light[16:20], "big") * 96 / self.dpi)


class PagePictures(NamedTuple):
    """All pictures of an embedding, the colours (PLAIN: one), a remark below all of them, and the picture of the
    eigenvalues. numbered: classes of the key with a number in place of a name in the pictures."""

    pictures: list[PagePicture]
    key: Paint
    remark: str
    spectrum: PagePicture | None = None
    numbered: frozenset[int] = frozenset()


def draw_page_pictures(embedding: Float64, component: Int32, color: Column | None) -> PagePictures:
    """Draw an embedding (n, m), rows of NaN for dropped points; component: (n,), -1 for dropped points."""
    content = content_of(embedding, component, color)
    if not content.groups:
        empty = "no point was embedded"
        return PagePictures([PagePicture(to_pair(message_figure("", empty)), "", empty)], PLAIN, "")
    names = content.paint.names
    apart = content.n_coordinates > 1 and len(names) > 1
    width = SINGLE_WIDTH if len(content.pairs) == 1 and not apart else WIDTH
    numbered = frozenset(code for code, name in enumerate(names) if apart and len(name) > LONG_NAME)
    drawn = [_scatter(content, pair, width, numbered) for pair in content.pairs]
    wide, _ = _scatter(content, content.pairs[0], 11.0, numbered, aspect=0.5)
    pictures = [picture for picture, _ in drawn]
    pictures[0] = pictures[0]._replace(wide=wide.pair)
    if apart:
        if content.n_rows >= DENSITY_POINTS:
            pictures.append(_density(content))
        pictures.append(_each_class(content, numbered))
    return PagePictures(pictures, drawn[0][1], _remark(content), numbered=numbered)


def _figure(width: float, aspect: float = ASPECT) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, aspect * width), dpi=DPI, layout="constrained")
    return figure, figure.subplots()


def _scatter(
    content: Content, pair: tuple[Column, Column], width: float, numbered: frozenset[int], aspect: float = ASPECT
) -> tuple[PagePicture, Paint]:
    figure, ax = _figure(width, aspect)
    panel = panel_of(ax, content, pair)
    outside = ax.get_title(loc="right")
    paint = shown_paint(content, [panel])
    draw_content(figure, [panel], content, paint, numbered)
    histogram = content.is_histogram
    kind = "Histogram" if histogram else "Scatter plot"
    subject = pair[0].label if histogram else f"{pair[0].label} (across) and {pair[1].label} (up)"
    colored = f", coloured by {plain_text(paint.label, 60)}" if paint.label else ""
    parts = f" in {len(content.groups)} components side by side" if len(content.groups) > 1 else ""
    alternative = (
        f"{kind} of {subject}: {counted(content.n_rows, 'row')}{parts}{colored}{'; ' + outside if outside else ''}."
    )
    return PagePicture(to_pair(figure), "", alternative), paint


def _density(content: Content) -> PagePicture:
    figure, ax = _figure(WIDTH)
    panel = panel_of(ax, content, content.pairs[0])
    paint = density_paint()
    draw_rasters(figure, [panel], paint)
    highest = float(paint.norm.vmax or 0.0)
    caption = f"Density: from 1 to {highest:,.0f} points in 3 × 3 pixels, on a log scale, dark to bright."
    return PagePicture(to_pair(figure), caption, f"The same points by density: at most {highest:,.0f} about a pixel.")


def _each_class(content: Content, numbered: frozenset[int]) -> PagePicture:
    """One cell per class: its points in colour, all others in grey."""
    classes, names = content.paint, content.paint.names
    assert classes.codes is not None
    n_columns = min(4, math.ceil(math.sqrt(len(names))))
    n_rows = -(-len(names) // n_columns)
    texts = [number_of(code) if code in numbered else plain_text(name, LONG_NAME) for code, name in enumerate(names)]
    titles = [wrap(text, CLASS_LETTERS) for text in texts]
    more_lines = max(map(len, titles)) - 1
    height = max(
        ASPECT * WIDTH, (0.95 + 0.15 * more_lines) * n_rows + 0.1
    )  # as high as the pictures beside it, or more
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    cells = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    panel = panel_of(cells[0], content, content.pairs[0])
    if panel.rows.size > CLASS_POINTS:
        panel = panel.take(np.random.default_rng(DRAW_ORDER_SEED).integers(0, panel.rows.size, CLASS_POINTS))
    codes = classes.codes[panel.rows]
    width = 300 // n_columns  # pixels
    shape = round(width * height * n_columns / (WIDTH * n_rows)), width
    background = np.zeros((*shape, 4))
    background[count_points(panel, shape) > 0.0] = (0.5, 0.5, 0.5, 0.3)
    for ax in cells:
        ax.clear()
        ax.set_axis_off()
    for code, (ax, title) in enumerate(zip(cells, titles, strict=False)):
        image = background.copy()
        image[count_points(panel.take(codes == code), shape) > 0.0] = (*to_rgb(classes.colors[code]), 1.0)
        ax.set_axis_on()
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=RULE)
        ax.imshow(image, origin="lower", aspect="auto", interpolation="nearest")
        ax.set_title("\n".join(title), fontsize=9, color=INK, pad=2)
    pair = f"{content.pairs[0][0].label} and {content.pairs[0][1].label}"
    caption = "One picture for each class; the points of the others are grey."
    alternative = f"A small scatter plot of {pair} for each of {len(names)} classes."
    return PagePicture(to_pair(figure), caption, alternative)


def _remark(content: Content) -> str:
    remarks = content.selection()
    if len(content.groups) > 1:
        remarks.append("each component has its own coordinates; labels are its number and size")
    text = "; ".join(remarks)
    return f"{text[:1].upper()}{text[1:]}." if text else ""

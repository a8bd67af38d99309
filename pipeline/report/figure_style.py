"""Shared style of all pictures: colours, empty axes, labels, PNG output."""

import contextlib
import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import Collection
from matplotlib.colors import ListedColormap, to_hex, to_rgb, to_rgba, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.typing import ColorType
from PIL import Image

from ..core.arrays import Array

DPI = 150
INK, FAINT, RULE, MISSING, POINT, PAPER = "#1f2933", "#6b7280", "#cbd2d9", "#a3acb7", "#2a6f97", "#ffffff"
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7F7F7F", "#F0E442")
"""Okabe and Ito (2008), "Color Universal Design": distinguishable with all common forms of colour vision. Grey
replaces black, which is invisible on a dark page; yellow is last, because it is the faintest on white."""
COLOR_MAP = "viridis"


def class_colors(n: int, dark: bool = False) -> list[str]:
    """Colours #rrggbb of n classes. After eight, the hues repeat, darker, then lighter; such pictures also need names.

    On a dark page the hues repeat lighter, then darker.

    >>> class_colors(2), class_colors(9)[8]
    (['#0072b2', '#e69f00'], '#a16f00')
    """
    colors = []
    for i in range(n):
        turn = i // len(OKABE_ITO)
        base = to_rgb(OKABE_ITO[(i + (turn > 0)) % len(OKABE_ITO)])
        target = float((turn == 2) != dark)
        red, green, blue = (part if turn == 0 else part + (target - part) * 0.3 for part in base)
        colors.append(to_hex((red, green, blue)))
    return colors


ON_DARK = {INK: "#e4e8ed", FAINT: "#a5b0bc", RULE: "#56616d", MISSING: "#56616d", POINT: "#6fb3d9", PAPER: "#1d232a"}
"""Colours of pictures on a dark page; the last one is the background of its cards."""
CLASSES_ON_DARK = {
    light: dark for light, dark in zip(class_colors(24), class_colors(24, dark=True), strict=True) if light != dark
}
"""Colours of classes that are another one on a dark page."""
LEGEND_LINES, LEGEND_LETTERS = 20, 24
"""Lines of a legend, and letters of a line, if its names are long."""
CJK_CHARACTERS = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
CJK_FONTS = re.compile(
    "CJK|Source Han Sans|WenQuanYi|Droid Sans Fallback|IPA.*Gothic|Hiragino Sans|PingFang|Heiti|YaHei|Yu Gothic|Malgun|"
    "Gothic Neo|Nanum|Arial Unicode|Noto Sans (SC|TC|JP|KR)$"
)
DARK_MAP = ListedColormap(colormaps[COLOR_MAP](np.linspace(0.25, 1.0, 256)))
"""The colour map of values, without the end that is invisible on a dark page."""


def chart_figure(title: str, width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    ax = figure.subplots()
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    return figure, ax


def message_figure(title: str, message: str) -> Figure:
    figure, ax = chart_figure(plain_text(title, 60), 6.4, 2.4)
    ax.set_axis_off()
    ax.text(0.5, 0.5, message, ha="center", va="center", fontsize=11, color=FAINT)
    return figure


def label_axes(ax: Axes, x_label: str, y_label: str) -> None:
    ax.set_xlabel(plain_text(x_label), fontsize=10, color=INK)
    ax.set_ylabel(plain_text(y_label), fontsize=10, color=INK)
    ax.tick_params(which="both", labelsize=9, labelcolor=INK, color=RULE)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(RULE)


def add_legend(
    target: Figure | Axes, title: str, names: Iterable[str], colors: Iterable[ColorType], size: float, **place: Any
) -> None:
    """A legend of classes, as high as LEGEND_LINES lines or as the classes: few long names have several lines each."""
    marks = [Line2D([], [], color=color, marker="o", linestyle="", markersize=6) for color in colors]
    most = LEGEND_LETTERS * max(1, LEGEND_LINES // max(1, len(marks)))
    texts = ["\n".join(textwrap.wrap(plain_text(name, most), LEGEND_LETTERS)) for name in names]
    legend = target.legend(marks, texts, title=plain_text(title, LEGEND_LETTERS), frameon=False, **place)
    for text in (*legend.get_texts(), legend.get_title()):
        text.set(fontsize=size, color=INK)


def plain_text(text: str, limit: int = 32) -> str:
    """Text on one line, cut at `limit`, with dollar signs escaped for matplotlib."""
    line = " ".join(text.split())
    return (line if len(line) <= limit else line[: limit - 1] + "…").replace("$", r"\$")


@cache
def font_families() -> list[str]:
    """Matplotlib's own font, then the fonts of this machine with Chinese, Japanese and Korean characters."""
    return ["DejaVu Sans", *sorted(name for name in get_font_names() if CJK_FONTS.search(name))]


@contextlib.contextmanager
def fonts_for(texts: Iterable[Text]) -> Iterator[None]:
    """Give texts fonts that have their characters; within the block, characters that no font has give no warning."""
    for text in texts:
        if CJK_CHARACTERS.search(text.get_text()):
            text.set(fontfamily=font_families(), fontweight="normal")  # few of these fonts have a bold one
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from")  # the page has the same text
        yield


def to_png(figure: Figure) -> bytes:
    """The picture of a figure. Axes get their places at the first call and keep them.

    Without the alpha channel, which is full everywhere, level 3 gives the size of matplotlib's files in half the time.
    """
    pixels, buffer = io.BytesIO(), io.BytesIO()
    with fonts_for(figure.findobj(Text)):
        if (layout := figure.get_layout_engine()) is not None:  # savefig would draw the figure twice, the next one too
            layout.execute(figure)
            figure.set_layout_engine(None)
        with rc_context({"savefig.bbox": None, "savefig.transparent": False}):  # a user's style may set them
            figure.savefig(pixels, format="rgba", dpi="figure")
    image = Image.frombytes("RGBA", figure.canvas.get_width_height(), pixels.getvalue()).convert("RGB")
    image.save(buffer, "png", compress_level=3, dpi=(figure.dpi, figure.dpi))
    return buffer.getvalue()


class Pair(NamedTuple):
    """One picture for a light and for a dark page."""

    light: bytes
    dark: bytes


def to_pair(figure: Figure) -> Pair:
    """The light and the dark picture of a figure; the figure keeps the dark colours."""
    light = to_png(figure)
    darken(figure)
    return Pair(light, to_png(figure))


def darken(figure: Figure) -> None:
    """Replace the colours of this module in a drawn figure by those for a dark page."""
    dark = {to_rgba(light)[:3]: to_rgba(color)[:3] for light, color in (ON_DARK | CLASSES_ON_DARK).items()}
    steps = np.arange(256)  # points whose colours come from the map of values
    dark |= zip(map(tuple, colormaps[COLOR_MAP](steps)[:, :3].tolist()), DARK_MAP(steps)[:, :3].tolist(), strict=True)

    def map_one(color: ColorType) -> ColorType:
        rgba = to_rgba(color)
        if rgba[3] == 0.0:
            return "none"  # a colour with alpha 0 would take the alpha of its artist
        return (*dark.get(rgba[:3], rgba[:3]), rgba[3])

    boxes = [text.get_bbox_patch() for text in figure.findobj(Text)]
    for artist in (*figure.findobj(), *boxes):
        if isinstance(artist, (Text, Line2D)):
            artist.set_color(map_one(artist.get_color()))
        if isinstance(artist, Patch):
            artist.set(facecolor=map_one(artist.get_facecolor()), edgecolor=map_one(artist.get_edgecolor()))
        if isinstance(artist, AxesImage) and (pixels := np.asarray(artist.get_array())).ndim == 3:
            artist.set_data(_pixels_on_dark(pixels))
        elif isinstance(artist, ScalarMappable) and artist.get_array() is not None:
            artist.set_cmap(DARK_MAP.with_extremes(bad=artist.get_cmap().get_bad()))
        elif isinstance(artist, Collection):
            for kind in ("facecolor", "edgecolor"):
                colors, which = np.unique(getattr(artist, f"get_{kind}")(), axis=0, return_inverse=True)
                mapped, which = [map_one(tuple(color)) for color in colors.tolist()], which.ravel()
                of_points = [mapped[color] for color in which] if "none" in mapped else to_rgba_array(mapped)[which]
                artist.set(**{kind: of_points})


def _pixels_on_dark(pixels: Array) -> Array:
    """RGBA pixels (height, width, 4) of 0 to 255, or of 0 to 1, with the colours of classes for a dark page."""
    full = 255 if pixels.dtype == np.uint8 else 1
    pixels, place = pixels.copy(), np.array([65536, 256, 1])
    codes = np.rint(pixels[..., :3] * (255 / full)).astype(int) @ place
    for light, dark in CLASSES_ON_DARK.items():
        pixels[codes == int(light[1:], 16), :3] = full * np.array(to_rgba(dark)[:3])
    return pixels

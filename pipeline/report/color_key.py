"""Colours of the points of a contact sheet, and the one key that says what they mean in all its cells."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize, to_rgba
from matplotlib.lines import Line2D

from pipeline.report.embedding_figure import COLOR_MAP, ColorSource, classify, robust_range
from pipeline.report.figure_style import INK, MISSING, POINT, plain_text

FloatArray = npt.NDArray[np.float64]
Color = tuple[float, ...]

BAR, GAP = (0.14, 2.6), 0.18
"""Inches: width and height of the colour bar, and from the cells to the key."""


class Key(NamedTuple):
    """What colours mean: the name and colour of each class, or (no classes) a value from lowest to highest."""

    label: str
    classes: tuple[tuple[str, Color], ...]
    lowest: float = 0.0
    highest: float = 1.0


def color_points(color: ColorSource | None, rows: npt.NDArray[np.int64]) -> tuple[FloatArray, Key | None]:
    """RGBA (len(rows), 4) of some rows of an embedding, by class or by value, and their key; None without values."""
    if color is None:
        return np.tile(to_rgba(POINT), (len(rows), 1)), None
    classes = classify(color)
    if classes is not None:
        named = zip(classes.names, map(tuple, classes.colors.tolist()), strict=True)
        return np.asarray(classes.colors[classes.codes[rows]]), Key(color.label, tuple(named))
    known = color.values[np.isfinite(color.values)]
    lowest, highest = robust_range(known) if known.size else (0.0, 1.0)
    painted = colormaps[COLOR_MAP].with_extremes(bad=MISSING)(Normalize(lowest, highest)(color.values[rows]))
    return np.asarray(painted), Key(color.label, (), lowest, highest) if known.size else None


def common_key(keys: Sequence[Key | None]) -> Key | None:
    """The key that holds in every cell: of the same classes, or of one value, whatever its range; else None."""
    first = keys[0] if keys else None
    if first is None or any(key is None or key[:2] != first[:2] for key in keys):
        return None
    ranges = np.array([(key.lowest, key.highest) for key in keys if key])
    return first if np.allclose(ranges, ranges[0]) else first._replace(lowest=np.nan, highest=np.nan)


def draw_key(ax: Axes, key: Key, extent: tuple[float, float]) -> None:
    """A legend of classes, or a colour bar; its ends are in words where each cell has a range of its own.

    extent: width and height of the axes in inches.
    """
    wide, high = extent
    left = 1 + GAP / wide
    if key.classes:
        marks = [Line2D([], [], color=color, marker="o", linestyle="", markersize=6) for _, color in key.classes]
        names, title = [plain_text(name, 24) for name, _ in key.classes], plain_text(key.label, 24)
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (left, 1.0), "borderaxespad": 0.0}
        legend = ax.legend(marks, names, title=title, frameon=False, **place)
        for text in (*legend.get_texts(), legend.get_title()):
            text.set(fontsize=8, color=INK)
        return
    own = not np.isfinite(key.lowest)
    scale = Normalize(0.0, 1.0) if own or key.lowest == key.highest else Normalize(key.lowest, key.highest)
    length = min(BAR[1], high)
    beside = ax.inset_axes((left, 1 - length / high, BAR[0] / wide, length / high))
    bar = Colorbar(beside, ScalarMappable(scale, COLOR_MAP))
    if own:
        bar.set_ticks([0.0, 1.0], labels=["lowest", "highest"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, labelcolor=INK, length=0)
    bar.set_label(plain_text(key.label + (" in each cell" if own else ""), 40), fontsize=8, color=INK)

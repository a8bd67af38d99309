"""Colours of the points of a contact sheet, and one key for all its cells."""

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

from .figure_style import INK, MISSING, POINT, plain_text
from .palette import COLOR_MAP
from .point_colors import ColorSource, classify, robust_range

FloatArray = npt.NDArray[np.float64]
Color = tuple[float, ...]

BAR, GAP = (0.14, 2.6), 0.18
"""Inches: width and height of the colour bar, and distance between the cells and the key."""


class Key(NamedTuple):
    """Meaning of the colours: name and colour of each class, or without classes the range of a value."""

    label: str
    classes: tuple[tuple[str, Color], ...]
    lowest: float = 0.0
    highest: float = 1.0


def color_points(color: ColorSource | None, rows: npt.NDArray[np.int64]) -> tuple[FloatArray, Key | None]:
    """RGBA (len(rows), 4) of some rows of an embedding, by class or by value, and the key; None without values."""
    if color is None:
        return np.tile(to_rgba(POINT), (len(rows), 1)), None
    classes = classify(color)
    if classes is not None:
        entries = zip(classes.names, map(tuple, classes.colors.tolist()), strict=True)
        return np.asarray(classes.colors[classes.codes[rows]]), Key(color.label, tuple(entries))
    finite = color.values[np.isfinite(color.values)]
    lowest, highest = robust_range(finite) if finite.size else (0.0, 1.0)
    rgba = colormaps[COLOR_MAP].with_extremes(bad=MISSING)(Normalize(lowest, highest)(color.values[rows]))
    return np.asarray(rgba), Key(color.label, (), lowest, highest) if finite.size else None


def common_key(keys: Sequence[Key | None]) -> Key | None:
    """The key of all cells: the same classes, or the same value with any range; None if the keys differ."""
    first = keys[0] if keys else None
    if first is None or any(key is None or key[:2] != first[:2] for key in keys):
        return None
    ranges = np.array([(key.lowest, key.highest) for key in keys if key])
    return first if np.allclose(ranges, ranges[0]) else first._replace(lowest=np.nan, highest=np.nan)


def draw_key(ax: Axes, key: Key, extent: tuple[float, float]) -> None:
    """Draw a legend of classes, or a colour bar. Its ends are words if the ranges of the cells differ.

    extent: width and height of the axes in inches.
    """
    wide, high = extent
    left = 1 + GAP / wide
    if key.classes:
        handles = [Line2D([], [], color=color, marker="o", linestyle="", markersize=6) for _, color in key.classes]
        names, title = [plain_text(name, 24) for name, _ in key.classes], plain_text(key.label, 24)
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (left, 1.0), "borderaxespad": 0.0}
        legend = ax.legend(handles, names, title=title, frameon=False, **place)
        for text in (*legend.get_texts(), legend.get_title()):
            text.set(fontsize=8, color=INK)
        return
    per_cell = not np.isfinite(key.lowest)
    scale = Normalize(0.0, 1.0) if per_cell or key.lowest == key.highest else Normalize(key.lowest, key.highest)
    length = min(BAR[1], high)
    bar_axes = ax.inset_axes((left, 1 - length / high, BAR[0] / wide, length / high))
    bar = Colorbar(bar_axes, ScalarMappable(scale, COLOR_MAP))
    if per_cell:
        bar.set_ticks([0.0, 1.0], labels=["lowest", "highest"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, labelcolor=INK, length=0)
    bar.set_label(plain_text(key.label + (" in each cell" if per_cell else ""), 40), fontsize=8, color=INK)

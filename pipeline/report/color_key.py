"""How the points of both explorers get their colours: all alike, by class, or by value."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from ..core.arrays import Array, UInt8
from ..engine.step import Json
from .column import Column
from .figure_style import COLOR_MAP, OKABE_ITO, class_colors
from .point_colors import choose_classes, scale_of

STEPS = 64
"""Steps of a colour scale."""
MISSING = ("#b4bcc6", "#5b6673")
"""Of unknown values and classes without a colour, on a light and on a dark page."""


class ColorKey(NamedTuple):
    """How points get their colours.

    kind: "plain", "classes" or "scale". codes: (n,) uint8, an index into colours; the last colour of a scale is that of
    unknown values. palettes: colours (#rrggbb) on a light and on a dark page. entries: of a class key, name and number
    of points for each colour; n_named: how many of them are a single class; code_of: the code of each class, and of
    unknown ones. range: of a scale, None without values; log: it is logarithmic; clipped: values are outside of it;
    unknown: number of points without a value.
    """

    kind: str
    codes: UInt8
    palettes: tuple[list[str], list[str]]
    entries: Sequence[tuple[str, int]] = ()
    n_named: int = 0
    code_of: Sequence[int] = ()
    range: tuple[float, float] | None = None
    log: bool = False
    clipped: bool = False
    unknown: int = 0

    def described(self, dark: bool) -> Json:
        """The key in the form of a page."""
        colors = self.palettes[dark]
        entries = [{"name": name, "count": n, "color": colors[code]} for code, (name, n) in enumerate(self.entries)]
        copied = ("kind", "range", "log", "clipped", "unknown")
        return {**{name: getattr(self, name) for name in copied}, "colors": colors, "entries": entries}


def color_key(column: Column | None, n: int) -> ColorKey:
    """The colours of n points by a column; None colours all alike. The smallest of too many classes share one."""
    if column is None:
        return ColorKey("plain", np.zeros(n, np.uint8), ([OKABE_ITO[0]], [OKABE_ITO[4]]))
    if column.names is None:
        return _scale(column.values)
    codes, entries, n_named, code_of = choose_classes(column)
    light, dark = ([*class_colors(n_named, page), MISSING[page]][: len(entries)] for page in (False, True))
    return ColorKey("classes", codes, (light, dark), entries, n_named, code_of.tolist())


def _scale(values: Array) -> ColorKey:
    is_known = np.isfinite(values)
    known = values[is_known].astype(np.float64)
    scale, is_log, codes = None, False, np.full(len(values), STEPS, np.uint8)
    if known.size:
        scale, is_log = scale_of(known)
        low, high = scale
        with np.errstate(divide="ignore", over="ignore"):
            places, width = (np.log(known.clip(0.0) / low), np.log(high / low)) if is_log else (known - low, high - low)
        codes[is_known] = np.clip(STEPS * (places / width), 0, STEPS - 1) if low < high else STEPS // 2
    clipped = scale is not None and bool(known.min() < scale[0] or known.max() > scale[1])
    unknown = len(values) - len(known)
    return ColorKey("scale", codes, _scale_colors(), range=scale, log=is_log, clipped=clipped, unknown=unknown)


def _scale_colors() -> tuple[list[str], list[str]]:
    """Colours of the steps, without the end of the map that is near the page's colour, and that of unknown values."""
    steps = (np.linspace(*ends, STEPS) for ends in ((0.0, 0.92), (0.25, 1.0)))
    light, dark = ([to_hex(color) for color in colormaps[COLOR_MAP](shares)] for shares in steps)
    return [*light, MISSING[0]], [*dark, MISSING[1]]

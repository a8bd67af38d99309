"""The explorer of a run: one HTML file that opens offline and shows up to `MAX_POINTS` points.

The page holds its columns as base64 text. Numbers are stored as 16-bit steps of their robust range, the few
values outside that range as float32. Where such steps are too coarse, all numbers of a column are float32; whole
numbers and dates are exact. Classes are stored as class numbers. `explorer/data.js` decodes the columns.
"""

import base64
from collections.abc import Sequence
from importlib import resources
from typing import Literal, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from ..core.arrays import Array, Float64, Int64
from ..engine.step import Json
from .figure_style import COLOR_MAP, OKABE_ITO, class_colors
from .images import Shape, Sheet
from .number_format import template
from .point_colors import MAX_CLASSES, robust_range

MAX_POINTS = 1_000_000
MAX_INPUT_COLUMNS, MAX_INPUT_VALUES = 40, 10_000_000
"""Largest number of columns of the input on a page, and of their values; `lle explore` shows all columns."""
STEPS = 65_534
"""Steps of a 16-bit number; the largest code, above them, means "unknown"."""
DAY = 86_400
SHARED_SCRIPTS = (
    "data.js",
    "axes.js",
    "names.js",
    "selection.js",
    "controls.js",
    "picture.js",
    "pointers.js",
    "explorer.js",
)
SERVED_SCRIPTS = ("server.js", *SHARED_SCRIPTS)
SCRIPTS = ("layout.js", "colors.js", "points.js", *SHARED_SCRIPTS)


class Column(NamedTuple):
    """One column of the page.

    values: (n,), numbers (NaN if unknown), or class numbers (-1 if unknown).
    names: the names of the classes; None for numbers.
    role: "coordinate" (an axis), "component" (of the neighbour graph) or "value" (anything else).
    kind: of numbers; "whole" ones have no decimals, a "date" is in seconds since 1970 (UTC).
    """

    name: str
    label: str
    values: Array
    names: Sequence[str] | None = None
    role: Literal["coordinate", "component", "value"] = "value"
    kind: Literal["number", "whole", "date"] = "number"


class ExplorerPage(NamedTuple):
    """The content of the page: title, ascending input rows (n,), their columns, counts for the heading, ids, images.

    ids: the name of their column, and the id of each row, "" if unknown.
    """

    title: str
    rows: Int64
    columns: Sequence[Column]
    n_input: int
    n_embedded: int
    ids: tuple[str, Sequence[str]] | None = None
    images: Sheet | None = None


class ServedPage(NamedTuple):
    """The page of `lle explore`, which holds no points: title, store, counts for the heading, and what menus offer.

    components: number and text of each component; ids: the name of their column; image_shape: of the rows.
    """

    title: str
    served: str
    n_embedded: int
    n_input: int
    columns: Sequence[Column]
    components: Sequence[tuple[int, str]]
    ids: str | None
    image_shape: Shape | None = None


def render_explorer(page: ExplorerPage) -> bytes:
    """The page as UTF-8 bytes, with styles, scripts and data inline."""
    payloads: list[str] = []

    def add(*texts: str) -> list[int]:
        payloads.extend(texts)
        return list(range(len(payloads) - len(texts), len(payloads)))

    described, rows, ids, images = [], None, None, None
    for column in page.columns:
        description, texts = encode_column(column)
        described.append({**description, "data": add(*texts)})
    if not len(page.rows) or page.rows[-1] != len(page.rows) - 1:
        wide = page.n_input >= 2**32
        [data] = add(to_base64(page.rows.astype("<f8" if wide else "<u4")))
        rows = {"data": data, "wide": wide}
    if page.ids is not None:
        lines = (" ".join(text.splitlines()) for text in page.ids[1])  # one for each id
        [data] = add(base64.b64encode("\n".join(lines).encode()).decode("ascii"))
        ids = {"label": page.ids[0], "data": data}
    if page.images is not None:
        points, png = add(to_base64(page.images.points.astype("<u4")), page.images.png)
        images = {**page.images._asdict(), "points": points, "png": png}
    content = {
        "images": images,
        "ids": ids,
        "nRows": len(page.rows),
        "rows": rows,
        "columns": described,
        "palette": OKABE_ITO,
        "classColors": [class_colors(MAX_CLASSES, dark) for dark in (False, True)],
        "colorMap": [to_hex(colormaps[COLOR_MAP](step / 63)) for step in range(64)],
    }
    return _rendered(page, SCRIPTS, content, payloads)


def render_served(page: ServedPage) -> bytes:
    """The page that shows tiles of a server, as UTF-8 bytes."""
    content = {
        "columns": [_for_menus(column) for column in page.columns],
        "components": page.components,
        "ids": page.ids,
        "imageShape": page.image_shape,
    }
    return _rendered(page, SERVED_SCRIPTS, content)


def _rendered(
    page: ExplorerPage | ServedPage, scripts: Sequence[str], content: Json, payloads: Sequence[str] = ()
) -> bytes:
    style, script = read_asset("page.css"), "\n".join(read_asset(name) for name in scripts)
    html = template("explorer/page.html.j2")
    return html.render(page=page, style=style, script=script, content=content, payloads=payloads).encode()


def read_asset(name: str) -> str:
    return resources.files(__package__).joinpath("explorer", name).read_text(encoding="utf-8")


def to_base64(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def _for_menus(column: Column) -> Json:
    return {"label": column.label, "role": column.role, "kind": column.kind, "classes": column.names is not None}


def encode_column(column: Column) -> tuple[Json, list[str]]:
    """The page's description of a column, and its base64 texts."""
    described: Json = {"name": column.name, **_for_menus(column)}
    if column.names is not None:
        codes = np.where(column.values < 0, len(column.names), column.values)
        width = 1 if len(column.names) < 2**8 else 2 if len(column.names) < 2**16 else 4
        return {**described, "names": list(column.names), "bytes": width}, [to_base64(codes.astype(f"<u{width}"))]
    values = np.asarray(column.values, np.float64)
    numbers, texts = _encode_measures(values) if column.kind == "number" else _encode_whole(values)
    return {**described, "names": None, **numbers}, texts


def _encode_measures(values: Float64) -> tuple[Json, list[str]]:
    """Type and steps of numbers, and their base64 texts: 16-bit steps, or floats if such steps are too coarse."""
    known = np.isfinite(values)
    low, high = robust_range(values[known]) if known.any() else (0.0, 1.0)
    if not high - low > 1e-300:
        low, high = low - 0.5, low + 0.5
    quarter, three_quarters = np.percentile(values[known], (25.0, 75.0)) if known.any() else (low, high)
    if high - low > 256 * (three_quarters - quarter) and np.ptp(values[known]) > 0.0:
        return _encode_floats(values)  # the middle half of the values would have fewer than 256 steps
    step = (high - low) / STEPS
    with np.errstate(invalid="ignore"):
        codes = np.rint((values - low) / step)
    outside = np.flatnonzero(known & ((codes < 0) | (codes > STEPS)))
    texts = [to_base64(np.where(known, np.clip(codes, 0, STEPS), STEPS + 1).astype("<u2"))]
    if outside.size:
        texts += [to_base64(outside.astype("<u4")), to_base64(values[outside].astype("<f4"))]
    return {"type": "u2", "low": low, "step": step}, texts


def _encode_whole(values: Float64) -> tuple[Json, list[str]]:
    """As `_encode_measures` for whole numbers and for dates, which are rounded to seconds and otherwise exact."""
    known, whole = np.isfinite(values), np.rint(values)
    low, high = (float(whole[known].min()), float(whole[known].max())) if known.any() else (0.0, 0.0)
    step = 1 if (whole[known] % DAY).any() else DAY
    n_steps = (high - low) / step
    if n_steps >= 2**32 - 1:
        return {"type": "f8", "low": low, "step": step}, [to_base64(whole.astype("<f8"))]
    width = 2 if n_steps <= STEPS else 4
    codes = np.where(known, (whole - low) / step, 2 ** (8 * width) - 1)
    return {"type": f"u{width}", "low": low, "step": step}, [to_base64(codes.astype(f"<u{width}"))]


def _encode_floats(values: Float64) -> tuple[Json, list[str]]:
    """As float32, with seven digits, or as float64 where float32 has no such number. Unknown values are NaN."""
    known = np.where(np.isfinite(values), values, np.nan)
    with np.errstate(over="ignore", under="ignore"):
        short = known.astype("<f4")
    is_lost = np.isinf(short) | ((np.abs(short) < np.finfo(np.float32).tiny) & (known != 0.0))
    kept = known.astype("<f8") if is_lost.any() else short
    return {"type": kept.dtype.str[1:], "low": 0.0, "step": 0.0}, [to_base64(kept)]

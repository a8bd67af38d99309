"""The explorer of a run: one HTML file that opens offline and shows up to `MAX_POINTS` points.

The page holds its columns as base64 text. Numbers are stored as 16-bit steps of their range, or as float32 where such
steps are too coarse; whole numbers and dates are exact. Classes are stored as class numbers. `explorer/data.js` decodes
the columns.
"""

import base64
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.arrays import Array, Float64
from ..engine.step import Json
from .column import Column
from .images import Shape, Sheet
from .number_format import template
from .point_colors import color_key

if TYPE_CHECKING:
    import pyarrow as pa

MAX_POINTS = 1_000_000
LISTED_COMPONENTS = 100
MAX_INPUT_COLUMNS, MAX_INPUT_VALUES = 40, 10_000_000
"""Largest number of columns of the input on a page, and of their values; `lle explore` shows all columns."""
STEPS = 65_534
"""Steps of a 16-bit number; the largest code, above them, means "unknown"."""
MOST_SPREAD = 16
"""Range of measures, in ranges of their middle half, above which 16-bit steps are too coarse."""
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


class ExplorerPage(NamedTuple):
    """The content of the page: title, ascending input rows (n,), their columns, counts for the heading, ids, images.

    ids: the name of their column, and the id of each row, "" if unknown. A server has them as an Arrow array,
    and images of its own.
    """

    title: str
    rows: Array
    columns: Sequence[Column]
    n_input: int
    n_embedded: int
    ids: "tuple[str, Sequence[str] | pa.Array] | None" = None
    images: Sheet | None = None


def render_explorer(page: ExplorerPage) -> bytes:
    """The page as UTF-8 bytes, with styles, scripts and data inline."""
    payloads: list[str] = []

    def add(text: str) -> int:
        payloads.append(text)
        return len(payloads) - 1

    described, rows, ids, images = [], None, None, None
    for column in page.columns:
        description, text = encode_column(column)
        described.append({**description, "data": add(text)})
    if not len(page.rows) or page.rows[-1] != len(page.rows) - 1:
        wide = page.n_input >= 2**32
        rows = {"data": add(to_base64(page.rows.astype("<f8" if wide else "<u4"))), "wide": wide}
    if page.ids is not None:
        lines = (" ".join(text.splitlines()) for text in page.ids[1])  # one for each id
        ids = {"label": page.ids[0], "data": add(base64.b64encode("\n".join(lines).encode()).decode("ascii"))}
    if page.images is not None:
        points = add(to_base64(page.images.points.astype("<u4")))
        images = {**page.images._asdict(), "points": points, "png": add(page.images.png)}
    content = {
        "images": images,
        "ids": ids,
        "nRows": len(page.rows),
        "rows": rows,
        "columns": described,
        **_key_of(None),
    }
    return _rendered(page, SCRIPTS, content, payloads)


def render_served(page: ExplorerPage, store: str, image_shape: Shape | None) -> bytes:
    """The page of a store whose points a server draws, as UTF-8 bytes; image_shape: of the rows."""
    component = component_of(page.columns)
    codes, names = (np.empty(0, np.int64), ()) if component is None else (component.values, component.names or ())
    sizes = np.bincount(codes, minlength=len(names)).tolist()
    content = {
        "columns": [_for_menus(column) for column in page.columns],
        "components": [(number, f"{number}: {size:,} rows") for number, size in enumerate(sizes[:LISTED_COMPONENTS])],
        "ids": page.ids and page.ids[0],
        "imageShape": image_shape,
    }
    return _rendered(page, SERVED_SCRIPTS, content, (), store)


def component_of(columns: Sequence[Column]) -> Column | None:
    return next((column for column in columns if column.role == "component"), None)


def _rendered(
    page: ExplorerPage, scripts: Sequence[str], content: Json, payloads: Sequence[str], served: str = ""
) -> bytes:
    style, script = read_asset("page.css"), "\n".join(read_asset(name) for name in scripts)
    html = template("explorer/page.html.j2")
    return html.render(
        page=page, served=served, style=style, script=script, content=content, payloads=payloads
    ).encode()


def read_asset(name: str) -> str:
    return resources.files(__package__).joinpath("explorer", name).read_text(encoding="utf-8")


def to_base64(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def _for_menus(column: Column) -> Json:
    return {"label": column.label, "role": column.role, "kind": column.kind, "classes": column.names is not None}


def _key_of(column: Column | None) -> Json:
    """The colours of the points on a light and on a dark page; `explorer/colors.js` computes their codes."""
    key = color_key(column, 0 if column is None else len(column.values))
    keys = [{**key.described(dark), "nNamed": key.n_named} for dark in (False, True)]
    return {"keys": keys, "codeOf": key.code_of}


def encode_column(column: Column) -> tuple[Json, str]:
    """The page's description of a column, and its base64 text."""
    described: Json = {"name": column.name, **_for_menus(column), **_key_of(column)}
    if column.names is not None:
        codes = np.where(column.values < 0, len(column.names), column.values)
        width = 1 if len(column.names) < 2**8 else 2 if len(column.names) < 2**16 else 4
        return {**described, "names": list(column.names), "bytes": width}, to_base64(codes.astype(f"<u{width}"))
    stored, low, step = _encoded(np.asarray(column.values, np.float64), column.kind == "number")
    return {**described, "names": None, "type": stored.dtype.str[1:], "low": low, "step": step}, to_base64(stored)


def _encoded(values: Float64, are_measures: bool) -> tuple[Array, float, float]:
    """Numbers (n,) as whole steps from `low`, of which the largest one is unknown; or as floats, NaN if unknown."""
    known = np.isfinite(values)
    values = np.where(known, values if are_measures else np.rint(values), np.nan)
    low, high = (float(np.nanmin(values)), float(np.nanmax(values))) if known.any() else (0.0, 0.0)
    if are_measures:
        step = (high - low) / STEPS or 1 / STEPS
        middle = float(np.ptp(np.percentile(values[known], (25, 75)))) if known.any() else 0.0
        width = 2 if high - low <= MOST_SPREAD * middle else None
    else:
        step = 1.0 if (values[known] % DAY).any() else DAY
        width = 2 if (high - low) / step <= STEPS else 4 if (high - low) / step < 2**32 - 1 else None
    if width is None:
        return _as_floats(values) if are_measures else values, 0.0, 0.0
    codes = np.where(known, np.rint((values - low) / step), 2 ** (8 * width) - 1)
    return codes.astype(f"<u{width}"), low, step


def _as_floats(values: Float64) -> Array:
    """As float32, with seven digits, or as float64 where float32 has no such number."""
    with np.errstate(over="ignore", under="ignore"):
        short = values.astype("<f4")
    is_lost = np.isinf(short) | ((np.abs(short) < np.finfo(np.float32).tiny) & (values != 0.0))
    return values.astype("<f8") if is_lost.any() else short

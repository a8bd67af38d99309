"""All points of a finished run in memory, and what `lle explore` shows of them."""

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..engine import current_config
from ..engine.plan import Json
from ..report.explore import Column, ServedPage, render_served
from ..report.point_grid import Part, PointGrid, side_by_side
from ..report.tiles import ColorKey, color_key, draw_part
from ..stages.ingest_ids import stored_ids
from ..stages.report_columns import page_columns, rows_with_place
from ..stages.report_images import StoredImages, image_shape
from ..stages.write_report import figure_title, gather_metrics
from ..storage import array_specs
from ..storage.store import Store

Array = npt.NDArray[Any]

TABLE_ROWS = 200
"""Rows of a selection that the page shows; the file holds all."""
CSV_ROWS = 100_000
LISTED_COMPONENTS = 100
SMALL_CHANGE = 1e-6
"""Rounding of a column to float32 as a share of its range, up to which it is done to save memory."""
GRIDS = 2
"""Sorted copies of the points in memory, each for a pair of coordinates: 12 bytes for each point."""


class Axes(NamedTuple):
    """Numbers of the columns along x and y, and of the component that is shown; -1 for all side by side."""

    x: int
    y: int
    component: int


class ServedRun:
    """The points of a run. Every method may be called from several threads.

    rows: (n,) input rows of the points, ascending. columns: with (n,) values. ids: an Arrow array, or None.
    """

    def __init__(
        self, page: ServedPage, rows: Array, columns: Sequence[Column], ids: Any, images: StoredImages | None = None
    ) -> None:
        self._page, self._rows, self.columns, self._ids, self._images = page, rows, columns, ids, images
        self.component = next((column for column in columns if column.role == "component"), None)
        self._lock = threading.RLock()
        self._cached_grid = lru_cache(GRIDS)(self._grid)
        self._cached_key = lru_cache(GRIDS)(self._key)
        self._cached_codes = lru_cache(GRIDS)(self._codes)

    def page(self) -> bytes:
        return render_served(self._page)

    # --- pictures

    def _grid(self, axes: Axes) -> PointGrid:
        x, y = self.columns[axes.x].values, self.columns[axes.y].values
        numbers = np.arange(len(self._rows), dtype=np.uint32)
        if self.component is None:
            return PointGrid(x, y, numbers)
        if axes.component < 0:
            return PointGrid(*side_by_side(x, y, self.component.values, len(self.component.names or ())), numbers)
        is_member = self.component.values == axes.component
        return PointGrid(x[is_member], y[is_member], numbers[is_member])

    def grid(self, axes: Axes) -> PointGrid:
        with self._lock:
            return self._cached_grid(axes)

    def _key(self, color: int, dark: bool) -> ColorKey:
        return color_key(None if color < 0 else self.columns[color], len(self._rows), dark)

    def key(self, color: int, dark: bool) -> ColorKey:
        with self._lock:
            return self._cached_key(color, dark)

    def _codes(self, axes: Axes, color: int, dark: bool) -> Array:
        """Colour codes in the order of the grid."""
        return self.key(color, dark).codes[self.grid(axes).numbers]

    def first_view(self, axes: Axes) -> Json:
        """The part of the picture that is shown first, and whether components in it are moved side by side."""
        return {"view": list(self.grid(axes).part), "moved": self.component is not None and axes.component < 0}

    def legend(self, color: int, dark: bool) -> Json:
        """The colour key in the form of the page."""
        key = self.key(color, dark)
        entries = [{"name": name, "count": n, "color": key.colors[code]} for code, (name, n) in enumerate(key.entries)]
        return {"kind": key.kind, "colors": key.colors, "entries": entries, "range": list(key.range), "log": False,
                "clipped": key.clipped, "unknown": key.unknown}  # fmt: skip

    def tile(self, axes: Axes, color: int, dark: bool, chosen: Sequence[int], part: Part,
             size: tuple[int, int]) -> bytes:  # fmt: skip
        """The PNG of a part of the picture."""
        with self._lock:
            grid, key, codes = self.grid(axes), self.key(color, dark), self._cached_codes(axes, color, dark)
        return draw_part(grid, codes, key, part, size, chosen)

    # --- rows

    def image(self, row: int) -> bytes:
        """The PNG of a row. Raises ValueError if there is none."""
        if self._images is None or not np.isin(row, self._rows):
            raise ValueError(f"row {row} has no image")
        with self._lock:
            return self._images.png(row)

    def near(self, axes: Axes, color: int, chosen: Sequence[int], at: tuple[float, float],
             reach: tuple[float, float]) -> Json | None:  # fmt: skip
        """The nearest shown row within reach of a position; None if there is none."""
        grid = self.grid(axes)
        places = self._shown(grid, grid.nearest(*at, reach), color, chosen)
        return self._record(grid, int(places[0])) if len(places) else None

    def row(self, axes: Axes, row: int) -> Json | None:
        """The row of this number; None if it is not in the picture."""
        point = int(np.searchsorted(self._rows, row))
        return self._at(axes, point) if point < len(self._rows) and self._rows[point] == row else None

    def row_of_id(self, axes: Axes, text: str) -> Json | None:
        """The first row with this id."""
        points = pc.indices_nonzero(pc.equal(self._ids, text)) if self._ids is not None and text else []
        return self._at(axes, points[0].as_py()) if len(points) else None

    def row_beside(self, axes: Axes, row: int, by: int) -> Json | None:
        """The row before or after another one; with `row` -1 the last or the first row."""
        rows = self._rows
        if self.component is not None and axes.component >= 0:
            rows = rows[self.component.values == axes.component]
        if not len(rows):
            return None
        place = int(np.searchsorted(rows, row, side="right" if by > 0 else "left")) - (by < 0)
        return self.row(axes, int(rows[place % len(rows)]))

    def selection(self, axes: Axes, color: int, chosen: Sequence[int], polygon: npt.NDArray[np.float64]) -> Array:
        """The points inside a polygon (v, 2), ascending."""
        grid = self.grid(axes)
        return np.sort(grid.numbers[self._shown(grid, grid.inside(polygon), color, chosen)])

    def table(self, points: Array) -> Json:
        """The number of points, and the texts of the first TABLE_ROWS."""
        first = points[:TABLE_ROWS]
        head = [label for label, _ in self._values(0)] if len(self._rows) else []
        rows = [[str(self._rows[point]), *(text for _, text in self._values(point))] for point in first.tolist()]
        return {"head": ["row", *head], "rows": rows, "count": len(points)}

    def csv(self, points: Array) -> Iterator[bytes]:
        """The points as the parts of a CSV file."""
        for start in range(0, max(1, len(points)), CSV_ROWS):
            part = points[start : start + CSV_ROWS]
            table: dict[str, Any] = {"row": self._rows[part]}
            if self._ids is not None:
                table[str(self._page.ids)] = self._ids.take(pa.array(part)).to_pylist()
            for column in self.columns:
                values = column.values[part]
                if column.names is not None:
                    values = np.array([*column.names, ""], object)[values]
                table[column.name] = values
            yield pd.DataFrame(table).to_csv(header=start == 0, index=False, lineterminator="\r\n").encode()

    def _shown(self, grid: PointGrid, places: Array, color: int, chosen: Sequence[int]) -> Array:
        if not chosen:
            return places
        return places[np.isin(self.key(color, False).codes[grid.numbers[places]], chosen)]

    def _at(self, axes: Axes, point: int) -> Json | None:
        grid = self.grid(axes)
        places = np.flatnonzero(grid.numbers == point)
        return self._record(grid, int(places[0])) if len(places) else None

    def _record(self, grid: PointGrid, place: int) -> Json:
        point = int(grid.numbers[place])
        values = self._values(point)
        first = next((text for column, (_, text) in zip(self.columns, values[-len(self.columns):], strict=True)
                      if column.role == "value"), None)  # fmt: skip
        tip = [text for _, text in values[: -len(self.columns)]] + ([] if first is None else [first or "unknown"])
        return {"row": int(self._rows[point]), "values": values, "tip": tip,
                "at": [float(grid.x[place]), float(grid.y[place])]}  # fmt: skip

    def _values(self, point: int) -> list[tuple[str, str]]:
        """Label and text of the id, if any, and of each column of a point."""
        ids = [] if self._ids is None else [(str(self._page.ids), str(self._ids[point].as_py() or ""))]
        return ids + [(column.label, _text(column, point)) for column in self.columns]


def _text(column: Column, point: int) -> str:
    value = column.values[point]
    if column.names is not None:
        return str(column.names[value]) if 0 <= value < len(column.names) else ""
    if not np.isfinite(value):
        return ""
    return f"{value:.6g}" if value.dtype == np.float32 else f"{value:.12g}"


def load_run(store: Store) -> ServedRun:
    """Read all rows with coordinates into memory, about 4 bytes for each number. Raises ConfigError, StoreError."""
    current_config.require_embedding(store)
    n_input = store.array(array_specs.EMBEDDING.name).shape[0]
    rows = rows_with_place(store, np.arange(n_input))
    columns = [_compact(column) for column in page_columns(store, rows, np.float32)]
    ids = stored_ids(store)
    texts = None if ids is None else ids.read(0, n_input).take(pa.array(rows)).cast(pa.large_string())
    component = next((column for column in columns if column.role == "component"), None)
    sizes: Any = [] if component is None else np.bincount(component.values, minlength=len(component.names or ()))
    listed = [(number, f"{number}: {size:,} rows") for number, size in enumerate(sizes)][:LISTED_COMPONENTS]
    title = figure_title(store.attributes()["config"], gather_metrics(store))
    shape = image_shape(store)
    images = StoredImages(store, shape, rows) if shape is not None and len(rows) else None
    page = ServedPage(title, store.url, len(rows), n_input, columns, listed, None if ids is None else ids.name, shape)
    return ServedRun(page, rows.astype(np.uint32) if n_input < 2**32 else rows, columns, texts, images)


def _compact(column: Column) -> Column:
    """Class numbers as int32; other values as float32, unless that would change whole numbers or a small range."""
    if column.names is not None:
        return column._replace(values=column.values.astype(np.int32, copy=False))
    with np.errstate(over="ignore"):
        compact = column.values.astype(np.float32, copy=False)
    known, rounded = column.values[np.isfinite(column.values)], compact[np.isfinite(column.values)]
    change = np.abs(rounded - known).max(initial=0.0)
    is_small = change <= SMALL_CHANGE * np.ptp(known) if known.size and (known != np.rint(known)).any() else change == 0
    return column._replace(values=compact if is_small else column.values)

"""All points of a finished run in memory, and what `lle explore` shows of them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import count
from typing import NamedTuple, TypeVar, TypeVarTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Bools, Float64
from ..core.errors import DamagedStore
from ..core.machine import available_memory
from ..engine import current_config
from ..engine.checkpoint import recorded_steps
from ..engine.step import Json
from ..report.class_names import name_places
from ..report.column import Column
from ..report.explore import ExplorerPage, component_of, render_served
from ..report.placed_points import Part, PlacedPoints, side_by_side
from ..report.point_colors import ColorKey, color_key
from ..report.tiles import draw_part
from ..stages.ingest_ids import stored_ids
from ..stages.input_columns import exported_name
from ..stages.report_columns import page_columns, rows_with_place
from ..stages.report_images import StoredImages, image_shape
from ..stages.write_report import figure_title, gather_metrics
from ..storage import array_specs
from ..storage.bundles import Array
from ..storage.store import Store
from .row_texts import date_text, known_mean, summary_of, value_text

TABLE_ROWS = 200
"""Rows of a selection that the page shows; the file holds all."""
CSV_ROWS = 100_000
COLUMN_MEMORY = 0.3
"""Columns of the input take at most this share of the free memory, at 16 bytes for a value while they are read."""
SMALL_CHANGE = 1e-6
"""A column is stored as float32, which saves memory, if no value changes by more than this share of its range."""
HELD_SELECTIONS = 16
"""Selections that the server holds; pages refer to them by number."""
HELD_VIEWS = 2
"""Pairs of coordinates (copies of 8 bytes for each point if there are several components) and colour keys (1 byte for
each point) in memory."""


class Axes(NamedTuple):
    """Numbers of the columns along x and y, and of the component that is shown; -1 for all side by side."""

    x: int
    y: int
    component: int


class View(NamedTuple):
    """What a page shows: the column of its colours (-1: none), codes of chosen classes (none: all), a selection."""

    axes: Axes
    color: int
    chosen: Sequence[int]
    is_dark: bool
    selection: int


A = TypeVarTuple("A")
R = TypeVar("R")
TOWARD = {"ArrowLeft": (-1, 0), "ArrowRight": (1, 0), "ArrowUp": (0, 1), "ArrowDown": (0, -1)}
CHANGES = ("replace", "add", "remove", "toggle", "limit", "clear")


class ServedRun:
    """The points of a run in a store. Every method may be called from several threads."""

    def __init__(self, page: ExplorerPage, store: str, images: StoredImages | None = None) -> None:
        self._page, self._store, self._images, self._rows, self.columns = page, store, images, page.rows, page.columns
        self._id_label, ids = page.ids or ("", None)
        self._ids: pa.Array | None = ids
        self.component = component_of(page.columns)
        self._lock = threading.RLock()  # a cached function calls another one
        self.placed, self.key = self._cached(self._placed), self._cached(self._key)
        self._selections = {0: np.empty(0, np.uint32)}
        self._numbers = count(1)
        self._mean_of_all = cache(lambda column: known_mean(self.columns[column].values))

    def _cached(self, function: Callable[[*A], R]) -> Callable[[*A], R]:
        """The function with its last results. Of several threads one computes a result, and the others wait for it."""
        last_results = lru_cache(HELD_VIEWS)(function)

        def call(*arguments: *A) -> R:
            with self._lock:
                return last_results(*arguments)

        return call

    def page(self) -> bytes:
        return render_served(self._page, self._store, None if self._images is None else self._images.shape)

    # --- pictures

    def _placed(self, axes: Axes) -> PlacedPoints:
        x, y = self.columns[axes.x].values, self.columns[axes.y].values
        if self.component is None:
            return PlacedPoints(x, y)
        if axes.component < 0:
            return PlacedPoints(*side_by_side(x, y, self.component.values, len(self.component.names or ())))
        is_member = self.component.values == axes.component
        return PlacedPoints(*(np.where(is_member, values, np.float32(np.nan)) for values in (x, y)))

    def _key(self, color: int) -> ColorKey:
        return color_key(None if color < 0 else self.columns[color], len(self._rows))

    def first_view(self, axes: Axes) -> Json:
        """The part of the picture that is shown first, and whether components in it are moved side by side."""
        return {"view": list(self.placed(axes).part), "moved": self.component is not None and axes.component < 0}

    def legend(self, view: View) -> Json:
        """The colour key in the form of the page, with the places of the names of classes in the picture."""
        placed, key = self.placed(view.axes), self.key(view.color)
        is_placed = np.isfinite(placed.x)
        piece = None if self.component is None or view.axes.component >= 0 else self.component.values[is_placed]
        x, y, codes = placed.x[is_placed], placed.y[is_placed], key.codes[is_placed]
        names = [
            {"entry": place.code, "name": key.entries[place.code][0], "x": place.x, "y": place.y}
            for place in name_places(x, y, codes, key.n_named, piece)
        ]
        return {**key.described(view.is_dark), "names": names}

    def tile(self, view: View, part: Part, size: tuple[int, int], larger: int) -> bytes:
        """The PNG of a part of the picture. Selected points are over the others."""
        placed, key, points = self.placed(view.axes), self.key(view.color), self.selected(view.selection)
        is_selected = self._is_member(points) if len(points) else None
        return draw_part(placed, key.codes, key, view.is_dark, part, size, view.chosen, is_selected, larger)

    # --- rows

    def image(self, row: int) -> bytes:
        """The PNG of a row. Raises ValueError if there is none."""
        if self._images is None or not np.isin(row, self._rows):
            raise ValueError(f"row {row} has no image")
        with self._lock:
            return self._images.png(row)

    def near(self, view: View, at: Sequence[float], reach: Sequence[float]) -> Json | None:
        """The nearest shown row within reach of a position; None if there is none."""
        points = self.placed(view.axes).nearest(at[0], at[1], (reach[0], reach[1]))
        return self._first_record(view.axes, self._shown(view, points))

    def row(self, axes: Axes, row: int) -> Json | None:
        """The row of this number; None if it is not in the picture."""
        return self._first_record(axes, self._in_picture(axes, self.points_of(row)))

    def row_toward(self, view: View, row: int, key: str) -> Json | None:
        """The nearest shown row in the direction of an arrow key from another row; None if there is none."""
        if (start := self.row(view.axes, row)) is None:
            return None
        points = self.placed(view.axes).toward(start["at"], TOWARD[key])
        return self._first_record(view.axes, self._shown(view, points))

    def row_beside(self, view: View, row: int, by: int) -> Json | None:
        """The shown row before or after another one; with `row` -1 the last or the first row."""
        rows = self._rows
        if view.chosen or view.axes.component >= 0:
            rows = rows[self._is_member(self.shown(view))]
        if not len(rows):
            return None
        place = int(np.searchsorted(rows, row, side="right" if by > 0 else "left")) - (by < 0)
        return self.row(view.axes, int(rows[place % len(rows)]))

    # --- points

    def points_of(self, row: int) -> Array:
        """The point of a row; empty if the row has none."""
        first, stop = (int(np.searchsorted(self._rows, row, side=side)) for side in ("left", "right"))
        return np.arange(first, stop)

    def shown(self, view: View) -> Array:
        """The points of the chosen component and classes."""
        return self._shown(view, self._in_picture(view.axes, np.arange(len(self._rows))))

    def inside(self, view: View, polygon: Float64) -> Array:
        """The shown points inside a polygon (v, 2)."""
        return self._shown(view, self.placed(view.axes).inside(polygon))

    def search(self, view: View, column: str, text: str) -> tuple[Array, int]:
        """The shown points of a row number, an id or a class, ascending, and the number of such points not shown."""
        none = np.empty(0, np.int64)
        if column == "row":
            points = self.points_of(int(text)) if text.isdecimal() and len(text) < 16 else none
        elif column == "id":
            points = (
                np.asarray(pc.indices_nonzero(pc.equal(self._ids, text))) if self._ids is not None and text else none
            )
        else:
            values, names = self.columns[int(column)].values, self.columns[int(column)].names or ()
            codes = [code for code, name in enumerate(names) if str(name).lower() == text.lower()]
            points = np.flatnonzero(np.isin(values, codes))
        is_shown = self._is_member(self.shown(view))[points]
        return points[is_shown], int(len(points) - is_shown.sum())

    def around(self, axes: Axes, points: Array) -> Json:
        """A view of some points in the picture with a margin, and the record of the point if there is one only."""
        placed = self.placed(axes)
        if not len(points):
            return {"view": list(placed.part), "record": None}
        record = self._first_record(axes, points) if len(points) == 1 else None
        return {"view": list(placed.part_around(points)), "record": record}

    def select(self, selection: int, change: str, points: Array) -> int:
        """The number of a new selection: another one changed by points. The last HELD_SELECTIONS are held."""
        is_member = self._is_member(self.selected(selection))
        if change == "limit":
            is_member &= self._is_member(points)
        elif change == "toggle":
            is_member[points] ^= True
        else:
            is_member &= change in ("add", "remove")
            is_member[points] = change in ("add", "replace")
        number = next(self._numbers)
        with self._lock:
            self._selections[number] = np.flatnonzero(is_member).astype(np.uint32)
            for old in sorted(self._selections)[1:-HELD_SELECTIONS]:
                del self._selections[old]
        return number

    def selected(self, selection: int) -> Array:
        """The points of a selection, ascending. Raises ValueError if it is not held."""
        if (points := self._selections.get(selection)) is None:  # another request may delete it meanwhile
            raise ValueError("this selection is no longer held; select the rows again")
        return points

    def _is_member(self, points: Array) -> Bools:
        is_member = np.zeros(len(self._rows), bool)
        is_member[points] = True
        return is_member

    def summary(self, selection: int, color: int) -> Json:
        """The number of selected points, texts of the first TABLE_ROWS, and how they differ from all points."""
        points, shown = self.selected(selection), None if color < 0 else self.columns[color]
        head = [label for label, _ in self._values(0)] if len(self._rows) else []
        rows = [
            [str(self._rows[point]), *(text for _, text in self._values(point))]
            for point in points[:TABLE_ROWS].tolist()
        ]
        table = {"head": ["row", *head], "rows": rows, "count": len(points)}
        return {**table, **summary_of(self.columns, points, shown, self._mean_of_all)}

    def csv(self, points: Array) -> Iterator[bytes]:
        """The points as the parts of a CSV file."""
        for start in range(0, max(1, len(points)), CSV_ROWS):
            part = points[start : start + CSV_ROWS]
            table: dict[str, object] = {"row": self._rows[part]}
            if self._ids is not None:
                table[self._id_label] = self._ids.take(pa.array(part)).to_pylist()
            for column in self.columns:
                values = column.values[part]
                if column.names is not None:
                    values = np.array([*column.names, ""], object)[values]
                elif column.kind == "date":
                    values = np.array([date_text(value) for value in values.tolist()], object)
                table[column.name] = values
            yield pd.DataFrame(table).to_csv(header=start == 0, index=False, lineterminator="\r\n").encode()

    def _in_picture(self, axes: Axes, points: Array) -> Array:
        """Those of some points that are in the chosen component."""
        return points[np.isfinite(self.placed(axes).x[points])]

    def _shown(self, view: View, points: Array) -> Array:
        """Those of some points that are of the chosen classes."""
        return points[np.isin(self.key(view.color).codes[points], view.chosen)] if view.chosen else points

    def _first_record(self, axes: Axes, points: Array) -> Json | None:
        """The row at the first of some points; None without points."""
        if not len(points):
            return None
        placed, point = self.placed(axes), int(points[0])
        values = self._values(point)
        of_columns = zip(self.columns, values[-len(self.columns) :], strict=True)
        first = next((text for column, (_, text) in of_columns if column.role == "value"), None)
        tip = [text for _, text in values[: -len(self.columns)]] + ([] if first is None else [first or "unknown"])
        return {
            "row": int(self._rows[point]),
            "values": values,
            "tip": tip,
            "at": [float(placed.x[point]), float(placed.y[point])],
        }

    def _values(self, point: int) -> list[tuple[str, str]]:
        """Label and text of the id, if any, and of each column of a point."""
        ids = [] if self._ids is None else [(self._id_label, str(self._ids[point].as_py() or ""))]
        return ids + [(column.label, value_text(column, point)) for column in self.columns]


def load_run(store: Store) -> ServedRun:
    """Read all rows with coordinates into memory, about 4 bytes for each number. Raises ConfigError, StoreError."""
    current_config.require_embedding(store)
    if damaged := [key for key, record in recorded_steps(store).items() if not record.fingerprint]:
        raise DamagedStore(f"{store.url}: the record of {damaged[0]} is damaged; run the job again to restore it")
    n_input = store.array(array_specs.EMBEDDING.name).shape[0]
    rows = rows_with_place(store, np.arange(n_input), np.float32)
    n_of_input = int(COLUMN_MEMORY * available_memory() / (16 * max(1, len(rows))))
    columns = [_compact(column) for column in page_columns(store, rows, np.float32, n_of_input)]
    ids = stored_ids(store)
    named_ids = None
    if ids is not None:
        texts = ids.read(0, n_input).take(pa.array(rows)).cast(pa.large_string())
        named_ids = exported_name(ids.name), texts
    title = figure_title(store.attributes()["config"], gather_metrics(store))
    shape = image_shape(store)
    images = StoredImages(store, shape, rows) if shape is not None and len(rows) else None
    held = rows.astype(np.uint32) if n_input < 2**32 else rows
    page = ExplorerPage(title, held, columns, n_input, len(rows), named_ids)
    return ServedRun(page, store.url, images)


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

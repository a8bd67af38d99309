"""An input of only some rows of another: those with one label, or a sample."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import Float64, Int64
from ..core.errors import InputError
from ..storage.bundles import Array
from .base import Fingerprint, Source
from .labels import Labels

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_ROWS, WINDOW_BYTES = 4096, 1 << 23
"""Rows of the source in memory at a time: WINDOW_ROWS, or more if they fit WINDOW_BYTES. No result depends on it."""

SAMPLE_SEED = 20001222

KEPT_CHOICES = 8
"""Chosen rows that a process keeps; the workers of a sweep use several in turn."""

_rows_by_key: dict[str, Int64] = {}


class ChosenRows(Source):
    """Some rows of a source, ascending. `labelled` is the same input with the labels to return."""

    def __init__(self, source: Source, rows: Int64, labelled: Source) -> None:
        self._source, self._rows, self._labelled = source, rows, labelled
        self.n_rows, self.n_features, self.dtype = len(rows), source.n_features, source.dtype
        self.roles, self.image_shape, self.labels = source.roles, source.image_shape, labelled.labels
        self.detects_changes = source.detects_changes

    def locate(self, row: int) -> str:
        return self._source.locate(int(self._rows[row]))

    def remark(self) -> str:
        return self._source.remark()

    def _read(self, start: int, stop: int) -> Array:
        out = np.empty((stop - start, self.n_features), self.dtype)
        for part, low, high, rows in self._windows(start, stop):
            out[part] = self._source.read(low, high)[rows]
        return out

    def _read_labels(self, start: int, stop: int) -> Float64 | None:
        if not self.labels.width:
            return None
        parts = [
            np.asarray(self._labelled.read_labels(low, high))[rows] for _, low, high, rows in self._windows(start, stop)
        ]
        return np.concatenate(parts)

    def column_types(self, names: Sequence[str]) -> "dict[str, pa.DataType]":
        return self._source.column_types(names)

    def _read_columns(self, names: Sequence[str], start: int, stop: int) -> "pa.Table":
        import pyarrow as pa  # only tables have columns

        return pa.concat_tables(
            self._source.read_columns(names, low, high).take(rows) for _, low, high, rows in self._windows(start, stop)
        )

    def _windows(self, start: int, stop: int) -> Iterator[tuple[slice, int, int, Int64]]:
        """Yield (target slice in rows [start, stop), source range low, high, row numbers in that range)."""
        chosen = self._rows[start:stop]
        size = self._window_rows
        for window in np.unique(chosen // size):
            first, stop_at = np.searchsorted(chosen, [window * size, (window + 1) * size])
            low, high = int(chosen[first]), int(chosen[stop_at - 1]) + 1
            yield slice(first, stop_at), low, high, chosen[first:stop_at] - low

    @property
    def _window_rows(self) -> int:
        return max(WINDOW_ROWS, WINDOW_BYTES // (self.n_features * self.dtype.itemsize))

    def bytes_beside(self, n_rows: int) -> int:
        """Bytes of a window of the source, and the numbers of all chosen rows."""
        window = min(self._window_rows, self._source.n_rows)
        return self._source.bytes_beside(window) + window * self.n_features * self.dtype.itemsize + 8 * self.n_rows


class SelectedRows(ChosenRows):
    """The rows of a source whose label is `where`: the name of a class, or a number.

    `labelled` is the same input with the labels to return, which may differ from the labels that choose the rows.
    Labels are read once per process and KEPT_CHOICES. Raises InputError if the source has no labels, or no row matches.
    """

    def __init__(self, source: Source, where: float | str, labelled: Source) -> None:
        if source.labels.width != 1:
            problem = "no labels" if not source.labels.width else f"{source.labels.width} label columns"
            raise InputError(f"input.where: needs an input with one label per row, found {problem}; give labels")
        super().__init__(source, _matching(source, where), labelled)
        self._where = where

    def state(self, start: int, stop: int) -> str:
        """State of the whole source: its labels choose the rows."""
        return self._source.state(0, self._source.n_rows)

    def bytes_beside(self, n_rows: int) -> int:
        return super().bytes_beside(n_rows) + 24 * self._source.n_rows

    def fingerprint(self) -> Fingerprint:
        of, labelled = self._source.fingerprint(), self._labelled.fingerprint()
        return {"where": self._where, "of": of, **({} if labelled == of else {"labelled": labelled})}


class SampledRows(ChosenRows):
    """An even sample of the rows of a source; all rows if there are fewer."""

    def __init__(self, source: Source, size: int) -> None:
        super().__init__(source, even_sample(source.n_rows, size), source)
        self._size = size

    def state(self, start: int, stop: int) -> str:
        """State of the part of the source that holds these rows."""
        return self._source.state(int(self._rows[start]), int(self._rows[stop - 1]) + 1) if stop > start else ""

    def fingerprint(self) -> Fingerprint:
        return {"fit_sample": self._size, "of": self._source.fingerprint()}


def _matching(source: Source, where: float | str) -> Int64:
    places = [part.where for part in source.labels.stack.parts] if isinstance(source.labels, Labels) else []
    key = json.dumps([places, source.fingerprint(), where], sort_keys=True)  # a fingerprint has no folders
    if key not in _rows_by_key:
        names, name = source.labels.names, str(where)
        if names is not None and name not in names and isinstance(where, float) and where.is_integer():
            name = str(int(where))  # 3.0 is the class "3"
        if names is not None and name in names:
            code = float(names.index(name))
        elif names is None and not isinstance(where, str):
            code = float(where)
        else:
            choices = f"its labels are {', '.join(names[:20])}" if names else "its labels are numbers"
            raise InputError(f"input.where: no label {where!r}; {choices}")
        labels = source.read_labels(0, source.n_rows)
        rows = np.flatnonzero(np.ravel(np.asarray(labels)) == code)
        if not len(rows):
            raise InputError(f"input.where: no row has the label {where!r}; choose one that occurs")
        if len(_rows_by_key) >= KEPT_CHOICES:
            del _rows_by_key[next(iter(_rows_by_key))]
        _rows_by_key[key] = rows
    return _rows_by_key[key]


def even_sample(n_rows: int, size: int) -> Int64:
    """One random row from each of `size` equal ranges of n_rows rows, ascending; all rows if there are no more.

    It depends on these two numbers only.

    >>> len(even_sample(1000, 300)), even_sample(5, 9)
    (300, array([0, 1, 2, 3, 4]))
    """
    if n_rows <= size:
        return np.arange(n_rows)
    edges = np.arange(size + 1) * n_rows // size
    return np.random.default_rng(SAMPLE_SEED).integers(edges[:-1], edges[1:])

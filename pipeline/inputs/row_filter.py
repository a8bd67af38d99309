"""An input of only the rows with one label."""

import json
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..core.errors import InputError
from .base import AnyArray, Fingerprint, FloatArray, LabelKind, Source, check_range

WINDOW_ROWS = 4096
"""Rows of the source in memory at a time; does not affect results."""

_rows_by_key: dict[str, npt.NDArray[np.int64]] = {}


class SelectedRows(Source):
    """The rows of a source whose label is `where`: the name of a class, or a number.

    `labelled` is the same input with the labels to return, which may differ from the labels that choose the rows.
    Labels are read once per process. Raises InputError if the source has no labels, or no row matches.
    """

    def __init__(self, source: Source, where: float | str, labelled: Source) -> None:
        if source.label_width != 1:
            problem = "no labels" if not source.label_width else f"{source.label_width} label columns"
            raise InputError(f"input.where: needs an input with one label per row, found {problem}; give labels")
        self._source, self._where, self._labelled = source, where, labelled
        self._rows = _matching(source, where)
        self.n_rows, self.n_features, self.dtype = len(self._rows), source.n_features, source.dtype
        self.roles = source.roles

    def locate(self, row: int) -> str:
        """As in the source."""
        return self._source.locate(int(self._rows[row]))

    def remark(self) -> str:
        """As in the source."""
        return self._source.remark()

    @property
    def label_kind(self) -> LabelKind:
        """Kind of the returned labels."""
        return self._labelled.label_kind

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """Names of the returned labels."""
        return self._labelled.label_names

    @property
    def label_width(self) -> int:
        """Width of the returned labels."""
        return self._labelled.label_width

    def read(self, start: int, stop: int) -> AnyArray:
        """Selected rows [start, stop); reads one window of the source at a time."""
        check_range(start, stop, self.n_rows)
        out = np.empty((stop - start, self.n_features), self.dtype)
        for part, low, high, rows in self._windows(start, stop):
            out[part] = self._source.read(low, high)[rows]
        return out

    def read_labels(self, start: int, stop: int) -> FloatArray:
        """The labels of selected rows [start, stop)."""
        check_range(start, stop, self.n_rows)
        parts = [np.asarray(self._labelled.read_labels(low, high))[rows]
                 for _, low, high, rows in self._windows(start, stop)]  # fmt: skip
        return np.concatenate(parts) if parts else np.empty((0, *([self.label_width] * (self.label_width > 1))))

    def _windows(self, start: int, stop: int) -> Iterator[tuple[slice, int, int, npt.NDArray[np.int64]]]:
        """Yield (target slice in rows [start, stop), source range low, high, row numbers in that range)."""
        selected = self._rows[start:stop]
        for window in np.unique(selected // WINDOW_ROWS):
            first, stop_at = np.searchsorted(selected, [window * WINDOW_ROWS, (window + 1) * WINDOW_ROWS])
            low, high = int(selected[first]), int(selected[stop_at - 1]) + 1
            yield slice(first, stop_at), low, high, selected[first:stop_at] - low

    def state(self, start: int, stop: int) -> str:
        """State of the whole source: its labels choose the rows."""
        return self._source.state(0, self._source.n_rows)

    def bytes_beside(self, n_rows: int) -> int:
        """Bytes of a window of the source, and the numbers of all selected rows."""
        return self._source.bytes_beside(min(WINDOW_ROWS, self._source.n_rows)) + 24 * self._source.n_rows

    def fingerprint(self) -> Fingerprint:
        """Fingerprint of the source, the chosen label, and the returned labels if they differ."""
        fingerprint = {"where": self._where, "of": self._source.fingerprint()}
        labelled = self._labelled.fingerprint()
        return fingerprint if labelled == fingerprint["of"] else {**fingerprint, "labelled": labelled}


def _matching(source: Source, where: float | str) -> npt.NDArray[np.int64]:
    key = json.dumps([source.fingerprint(), where], sort_keys=True)
    if key not in _rows_by_key:
        names = source.label_names
        if names is not None and str(where) in names:
            code = float(names.index(str(where)))
        elif names is None and not isinstance(where, str):
            code = float(where)
        else:
            choices = f"its labels are {', '.join(names[:20])}" if names else "its labels are numbers"
            raise InputError(f"input.where: no label {where!r}; {choices}")
        labels = source.read_labels(0, source.n_rows)
        rows = np.flatnonzero(np.ravel(np.asarray(labels)) == code)
        if not len(rows):
            raise InputError(f"input.where: no row has the label {where!r}; choose one that occurs")
        _rows_by_key[key] = rows
    return _rows_by_key[key]

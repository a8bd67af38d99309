"""The rows of an input that have one label, as an input of its own."""

import json

import numpy as np
import numpy.typing as npt

from pipeline.errors import InputError
from pipeline.sources.base import AnyArray, Fingerprint, FloatArray, LabelKind, Source, check_range

WINDOW_ROWS = 4096
"""Rows of the whole input in memory at a time; changes no result."""

_rows_by_key: dict[str, npt.NDArray[np.int64]] = {}


class SelectedRows(Source):
    """Those rows of a source whose label is `where`: a name of its classes, or a number.

    The labels are read once per process. Raises InputError where the source has no labels, or no row that matches.
    """

    def __init__(self, source: Source, where: float | str) -> None:
        if source.label_width != 1:
            found = "no labels" if not source.label_width else f"{source.label_width} label columns"
            raise InputError(f"input.where: needs an input with one label per row, found {found}; give labels")
        self._source, self._where = source, where
        self._rows = _matching(source, where)
        self.n_rows, self.n_features, self.dtype = len(self._rows), source.n_features, source.dtype

    @property
    def label_kind(self) -> LabelKind:
        """That of the source."""
        return self._source.label_kind

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """Those of the source."""
        return self._source.label_names

    @property
    def label_width(self) -> int:
        """One."""
        return 1

    def read(self, start: int, stop: int) -> AnyArray:
        """Selected rows [start, stop); of the source no more than a window at a time."""
        check_range(start, stop, self.n_rows)
        wanted = self._rows[start:stop]
        out = np.empty((len(wanted), self.n_features), self.dtype)
        for window in np.unique(wanted // WINDOW_ROWS):
            first, past = np.searchsorted(wanted, [window * WINDOW_ROWS, (window + 1) * WINDOW_ROWS])
            low = int(wanted[first])
            out[first:past] = self._source.read(low, int(wanted[past - 1]) + 1)[wanted[first:past] - low]
        return out

    def read_labels(self, start: int, stop: int) -> FloatArray:
        """The one label, for each row."""
        check_range(start, stop, self.n_rows)
        row = int(self._rows[0])
        return np.full(stop - start, np.asarray(self._source.read_labels(row, row + 1)).item())

    def state(self, start: int, stop: int) -> str:
        """That of the whole source, whose labels choose the rows."""
        return self._source.state(0, self._source.n_rows)

    def bytes_beside(self, n_rows: int) -> int:
        """That of a window of the source, and the numbers of all rows selected."""
        return self._source.bytes_beside(min(WINDOW_ROWS, self._source.n_rows)) + 24 * self._source.n_rows

    def fingerprint(self) -> Fingerprint:
        """That of the source, and the label."""
        return {"where": self._where, "of": self._source.fingerprint()}


def _matching(source: Source, where: float | str) -> npt.NDArray[np.int64]:
    key = json.dumps([source.fingerprint(), where], sort_keys=True)
    if key not in _rows_by_key:
        names = source.label_names
        if names is not None and str(where) in names:
            wanted = float(names.index(str(where)))
        elif names is None and not isinstance(where, str):
            wanted = float(where)
        else:
            known = f"its labels are {', '.join(names[:20])}" if names else "its labels are numbers"
            raise InputError(f"input.where: no label {where!r}; {known}")
        labels = source.read_labels(0, source.n_rows)
        rows = np.flatnonzero(np.ravel(np.asarray(labels)) == wanted)
        if not len(rows):
            raise InputError(f"input.where: no row has the label {where!r}; choose one that occurs")
        _rows_by_key[key] = rows
    return _rows_by_key[key]

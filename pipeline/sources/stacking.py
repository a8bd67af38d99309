"""Several files as one input: rows one after the other, in the order of the file names."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pipeline.errors import InputError
from pipeline.sources.base import (
    AnyArray,
    Fingerprint,
    FloatArray,
    LabelKind,
    Rows,
    Source,
    check_columns,
    check_matrix,
    check_range,
    reading_dtype,
    stamp_text,
)
from pipeline.sources.labels import Labels

WINDOW_BYTES = 1 << 25


class Piece(NamedTuple):
    """The part of a requested range that lies in one file; `block` goes to rows `target` of the result."""

    target: slice
    block: AnyArray


class StackedRows:
    """Several Rows one after the other.

    Raises InputError naming the file that does not match the first one.
    """

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = tuple(parts)
        first = self.parts[0]
        for part in self.parts[1:]:
            if part.shape[1:] != first.shape[1:]:
                raise InputError(
                    f"{part.where}: expected rows of shape {first.shape[1:]} as in {first.where}, found "
                    f"{part.shape[1:]}; all files of an input need the same columns"
                )
            if _family(part.dtype) != _family(first.dtype):
                raise InputError(
                    f"{part.where}: expected {_family(first.dtype)} values ({first.dtype}) as in "
                    f"{first.where}, found {part.dtype}; convert the files to one dtype"
                )
        self._starts = np.cumsum([0] + [part.shape[0] for part in self.parts]).tolist()
        self.n_rows: int = self._starts[-1]

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """The blocks that make up rows [start, stop), in order."""
        for part, (first, end) in zip(self.parts, pairwise(self._starts), strict=True):
            low, high = max(start, first), min(stop, end)
            if low < high:
                yield Piece(slice(low - start, high - start), part.read(low - first, high - first))

    @property
    def can_tell(self) -> bool:
        """Whether all parts can."""
        return all(part.can_tell for part in self.parts)

    def stamps(self, size: int) -> list[Any]:
        """For each block of `size` rows, the stamps of the pieces that make it up."""
        stampers = [part.stamper() for part in self.parts]

        def stamp(start: int, stop: int) -> list[Any]:
            found = zip(stampers, pairwise(self._starts), strict=True)
            return [of(max(start, first) - first, min(stop, end) - first)
                    for of, (first, end) in found if max(start, first) < min(stop, end)]  # fmt: skip

        return [stamp(start, min(start + size, self.n_rows)) for start in range(0, self.n_rows, size)]

    def fingerprint(self) -> list[Fingerprint]:
        """One entry per file, in the order of the rows."""
        return [part.fingerprint() for part in self.parts]


def _family(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "biu":
        return "integer"
    return "floating-point" if dtype.kind == "f" else "text" if dtype.kind in "USOT" else dtype.name


class FileSource(Source):
    """An input stored in files: points, labels of as many rows, and which columns of the points to take.

    Raises InputError where the points are not a numeric matrix, or the labels do not fit them.
    """

    def __init__(
        self, points: Sequence[Rows], labels: Sequence[Rows] | None, columns: Sequence[int] | None = None
    ) -> None:
        for part in points:
            check_matrix(part)
        self._points = StackedRows(points)
        self.n_rows = self._points.n_rows
        self.dtype = reading_dtype(points)
        if self.n_rows == 0:
            raise InputError(
                f"{points[0].where}: expected at least one row, found none; check how the file was written"
            )
        width = points[0].shape[1]
        self._columns = check_columns(columns, width, points[0].where)
        self._stored_row = width * max(part.dtype.itemsize for part in points)
        self.n_features = width if self._columns is None else len(self._columns)
        self._labels = None if labels is None else Labels(StackedRows(labels), self.n_rows)

    @property
    def label_kind(self) -> LabelKind:
        """What the labels are."""
        return "none" if self._labels is None else self._labels.kind

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The names of categorical labels."""
        return None if self._labels is None else self._labels.names

    @property
    def label_width(self) -> int:
        """Label values per row."""
        return 0 if self._labels is None else self._labels.width

    def read(self, start: int, stop: int) -> AnyArray:
        """Rows [start, stop), in `dtype`."""
        check_range(start, stop, self.n_rows)
        result = np.empty((stop - start, self.n_features), self.dtype)
        if self._columns is None:
            for target, block in self._points.pieces(start, stop):
                result[target] = block
            return result
        # The rows come with all their columns, of which the plan of memory counts only those taken.
        rows = max(1, WINDOW_BYTES // self._stored_row)
        for first in range(start, stop, rows):
            for target, block in self._points.pieces(first, min(first + rows, stop)):
                result[first - start :][target] = block[:, self._columns]
        return result

    def read_labels(self, start: int, stop: int) -> FloatArray | None:
        """The labels of rows [start, stop)."""
        check_range(start, stop, self.n_rows)
        return None if self._labels is None else self._labels.read(start, stop)

    @property
    def can_tell(self) -> bool:
        """Whether every file has a size and a time, or a tag."""
        return self._points.can_tell and (self._labels is None or self._labels.can_tell)

    def stamps(self, size: int) -> list[str]:
        """Of the points alone, by the files or chunks that hold the rows."""
        taken = [self.dtype.name, self._columns]
        return [stamp_text([taken, found]) for found in self._points.stamps(size)]

    def fingerprint(self) -> Fingerprint:
        """The files of the points and of the labels."""
        files: Fingerprint = {
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "points": self._points.fingerprint(),
        }
        return files if self._labels is None else files | {"labels": self._labels.fingerprint()}

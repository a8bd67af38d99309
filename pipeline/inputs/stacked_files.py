"""Several files as one input: their rows in the order of the file names."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.arrays import Float64
from ..core.errors import InputError
from ..storage.bundles import Array
from .array_checks import check_columns, check_matrix, common_dtype
from .base import Fingerprint, Rows, Source, Stamp, stamp_text
from .column_names import ColumnRoles
from .files import ColumnRows
from .labels import Labels

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_BYTES = 1 << 25


class Share(NamedTuple):
    """Rows [low, high) of one of several files."""

    number: int
    low: int
    high: int


def shares_of(starts: Sequence[int], start: int, stop: int) -> Iterator[Share]:
    """The rows of each file that make up rows [start, stop), in order. `starts`: their first rows, and the end."""
    # bisect_right skips files without rows: several of them begin at the same row.
    for number in range(max(0, bisect_right(starts, start) - 1), len(starts) - 1):
        first, end = starts[number : number + 2]
        if first >= stop:
            return
        if max(start, first) < min(stop, end):
            yield Share(number, max(start, first) - first, min(stop, end) - first)


class StackedRows:
    """Several Rows in a sequence.

    Raises InputError with the name of the first file that does not match the first one. Labels can be integers in one
    file and floating-point numbers in another: pandas writes integers with missing ones as floating-point numbers.
    """

    def __init__(self, parts: Sequence[Rows], are_labels: bool = False) -> None:
        self.parts = tuple(parts)
        first = self.parts[0]
        for part in self.parts:
            if not part.shape:
                raise InputError(f"{part.where}: expected one entry for each row, found a single one; give all of them")
            if part.shape[1:] != first.shape[1:]:
                raise InputError(
                    f"{part.where}: expected rows of shape {first.shape[1:]} as in {first.where}, found "
                    f"{part.shape[1:]}; all files of an input need the same columns"
                )
            is_other = _family(part.dtype) != _family(first.dtype)
            if is_other and not (are_labels and {part.dtype.kind, first.dtype.kind} <= {*"biuf"}):
                raise InputError(
                    f"{part.where}: expected {_family(first.dtype)} values ({first.dtype}) as in "
                    f"{first.where}, found {part.dtype}; convert the files to one dtype"
                )
        self._starts = np.cumsum([0] + [part.shape[0] for part in self.parts]).tolist()
        self.n_rows: int = self._starts[-1]

    def shares(self, start: int, stop: int) -> Iterator[Share]:
        """The rows of each part that make up rows [start, stop), in order."""
        return shares_of(self._starts, start, stop)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[slice, Array]]:
        """The blocks that make up rows [start, stop), in order, each with the rows of the result that it fills."""
        for number, low, high in self.shares(start, stop):
            target = self._starts[number] + low - start
            yield slice(target, target + high - low), self.parts[number].read(low, high)

    def locate(self, row: int) -> str:
        [share] = self.shares(row, row + 1)
        return f"row {share.low} of {self.parts[share.number].where}"

    def bytes_beside(self, n_rows: int) -> int:
        """The maximum over the parts: they are read one after the other."""
        return max(part.bytes_beside(min(n_rows, part.shape[0])) for part in self.parts)

    def fingerprint(self) -> list[Fingerprint]:
        return [part.fingerprint() for part in self.parts]


def _family(dtype: np.dtype[np.generic]) -> str:
    if dtype.kind in "biu":
        return "integer"
    return "floating-point" if dtype.kind == "f" else "text" if dtype.kind in "USOT" else dtype.name


class FileSource(Source):
    """An input stored in files: points, labels with as many rows, and the columns of the points to use.

    Raises InputError if the points are not a numeric matrix, or the labels do not match them.
    """

    def __init__(
        self, points: Sequence[Rows], labels: Sequence[Rows] | None, columns: Sequence[int] | None = None
    ) -> None:
        for part in points:
            check_matrix(part)
        self._points = StackedRows(points)
        self.n_rows = self._points.n_rows
        self.dtype = common_dtype(points)
        if self.n_rows == 0:
            raise InputError(
                f"{points[0].where}: expected at least one row, found none; check how the file was written"
            )
        width = points[0].shape[1]
        self._columns = check_columns(columns, width, points[0].where)
        self._stored_row = width * max(part.dtype.itemsize for part in points)
        self.n_features = width if self._columns is None else len(self._columns)
        if labels is not None:
            self.labels = Labels(StackedRows(labels, are_labels=True), self.n_rows)
        self.detects_changes = all(part.detects_changes for part in (*points, *(labels or ())))

    def locate(self, row: int) -> str:
        return self._points.locate(row)

    def remark(self) -> str:
        return "; ".join(filter(None, (part.remark() for part in self._points.parts)))

    def _read(self, start: int, stop: int) -> Array:
        result = np.empty((stop - start, self.n_features), self.dtype)
        # Files return rows with all columns, but the memory plan counts only the chosen ones: read small windows.
        all_columns = self._columns is None
        rows = max(1, stop - start if all_columns else WINDOW_BYTES // self._stored_row)
        for first in range(start, stop, rows):
            for target, block in self._points.pieces(first, min(first + rows, stop)):
                result[first - start :][target] = block if all_columns else block[:, self._columns]
        return result

    def _read_labels(self, start: int, stop: int) -> Float64 | None:
        return self.labels.read(start, stop) if isinstance(self.labels, Labels) else None

    def _read_columns(self, names: Sequence[str], start: int, stop: int) -> "pa.Table":
        import pyarrow as pa  # only tables have columns

        return pa.concat_tables([self._columns_of_file(names, *share) for share in self._points.shares(start, stop)])

    def _columns_of_file(self, names: Sequence[str], number: int, low: int, high: int) -> "pa.Table":
        """The columns of rows [low, high) of one of the files, if it is a table."""
        return super()._read_columns(names, low, high)

    def bytes_beside(self, n_rows: int) -> int:
        """The maximum of points and labels: separate steps read them."""
        labels = self.labels.bytes_beside(n_rows) if isinstance(self.labels, Labels) else 0
        return max(self._points.bytes_beside(n_rows), labels)

    def stamps(self, size: int, n_rows: int | None = None) -> list[str]:
        """Stamps of the points only, from the files or chunks that hold the rows."""
        selection, n = [self.dtype.name, self._columns], n_rows or self.n_rows
        blocks = [self._points.shares(start, min(start + size, n)) for start in range(0, n, size)]
        parts = self._points.parts
        return [stamp_text([selection, [parts[i].stamp(*rows) for i, *rows in shares]]) for shares in blocks]

    def state(self, start: int, stop: int) -> str:
        parts, shares = self._points.parts, self._points.shares(start, stop)
        return stamp_text([self.dtype.name, self._columns, [parts[i].known_stamp(*rows) for i, *rows in shares]])

    def fingerprint(self) -> Fingerprint:
        files = Fingerprint(n_rows=self.n_rows, n_features=self.n_features, points=self._points.fingerprint())
        return files | {"labels": self.labels.stack.fingerprint()} if isinstance(self.labels, Labels) else files


class TableSource(FileSource):
    """The features and the label of a table in files, which are read by `rows_of`."""

    rows_of: type[ColumnRows]

    def __init__(self, stamps: Sequence[Stamp], roles: ColumnRoles) -> None:
        labels = None if roles.label is None else [self.rows_of(stamp, (), roles.label) for stamp in stamps]
        super().__init__([self.rows_of(stamp, roles.features) for stamp in stamps], labels)
        self._stamps, self.roles = stamps, roles

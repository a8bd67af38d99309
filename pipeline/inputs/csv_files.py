"""Reader of CSV files: one scan records where rows start, then only the requested rows are read."""

import contextlib
import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ..core.errors import InputError
from .base import AnyArray, Source
from .column_names import TableColumns, choose_columns
from .files import FileRows, Stamp, find_files, open_file, reading
from .stacked_files import FileSource, Share

SCAN_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 28
ROWS_PER_MARK = 1024
PARSE_BYTES = 1 << 26
TYPED_ROWS = 1 << 17  # rows in memory at a time while the types of columns are determined
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


class RowIndex(NamedTuple):
    """Positions of the rows, counted after the header.

    marks: the byte position of every ROWS_PER_MARK-th row, then the end of the file.
    """

    names: tuple[str, ...]
    n_rows: int
    marks: npt.NDArray[np.int64]


def open_csv(
    path: str | os.PathLike[str], columns: Sequence[str] | None = None, label: str | None = None,
    id_column: str | None = None,
) -> Source:  # fmt: skip
    """The named columns of CSV files with a header, or all numeric ones but the label and the id; labels from a column.

    A column is text if the first rows of a file hold entries in it and none of them is a number. A column with numbers
    and text is refused. Empty entries read as NaN.

    Raises InputError.
    """
    stamps = find_files(path, "path")
    for stamp in stamps:
        names = index_rows(stamp).names
        if columns is None and "" in names:
            raise InputError(
                f"{stamp.path}: column {names.index('') + 1} has no name (a row index?); list the columns to "
                "read in input.columns, or write the file without an index"
            )
    tables = (
        csv_tables(stamps)
        if columns is None
        else [TableColumns(stamp.path, index_rows(stamp).names, {}, ()) for stamp in stamps]
    )
    roles = choose_columns(tables, columns, label, id_column)
    for stamp in stamps:
        check_first_rows(stamp, roles.features)
    return FileSource(
        [CsvRows(stamp, roles.features, None) for stamp in stamps],
        [CsvRows(stamp, (), label) for stamp in stamps] if label is not None else None,
        roles=roles,
        table=CsvTable(stamps),
    )


class CsvTable:
    """Any columns of CSV files. Entries are text; `types` gives the narrowest type that can hold them."""

    def __init__(self, stamps: Sequence[Stamp]) -> None:
        self._stamps = tuple(stamps)

    def types(self, names: Sequence[str]) -> dict[str, Any]:
        """int64, float64 or text, the first that holds every entry of a column as it is written (1, 007, 1.50)."""
        types = dict.fromkeys(names, pa.int64())
        for number, stamp in enumerate(self._stamps):
            n_rows = index_rows(stamp).n_rows
            for start in range(0, n_rows, TYPED_ROWS):
                table = self.read(names, [Share(number, start, min(start + TYPED_ROWS, n_rows))])
                for name in names:
                    types[name] = _narrowest(table.column(name), types[name])
        return types

    def read(self, names: Sequence[str], shares: Iterable[Share]) -> Any:
        """The columns of the rows as text, null where an entry is empty. Raises InputError."""
        tables = [
            CsvRows(self._stamps[share.number], tuple(names), None).read_as(pa.string(), share.low, share.high)
            for share in shares
        ]
        empty = pa.schema([(name, pa.string()) for name in names]).empty_table()
        return pa.concat_tables([table.rename_columns(list(names)) for table in tables]) if tables else empty


def _narrowest(column: Any, kind: Any) -> Any:
    """The first of int64, float64 and text, from `kind` on, that keeps every entry of a column of text."""
    for candidate in (pa.int64(), pa.float64()) if kind == pa.int64() else (kind,):
        if candidate == pa.string():
            break
        with contextlib.suppress(pa.ArrowInvalid):
            numbers = column.cast(candidate)
            padded = pc.any(pc.match_substring_regex(column, r"^[+-]?0[0-9]")).as_py()  # 007 is a name, no number
            if not padded and (candidate != pa.int64() or pc.all(pc.equal(numbers.cast(pa.string()), column)).as_py()
                               is not False):  # fmt: skip
                return candidate
    return pa.string()


def csv_tables(stamps: Sequence[Stamp]) -> list[TableColumns]:
    """The columns of each file, and which of them are text, from its first rows.

    A column without entries in the first rows of one file has the type that it has in the others.
    """
    first_rows = [_types_of_first_rows(stamp) for stamp in stamps]
    text = {name for types in first_rows for name, kind in types.items() if kind == "text"}
    return [
        TableColumns(
            stamp.path,
            index_rows(stamp).names,
            {name: "text" for name, kind in types.items() if name in text and kind != "numbers"},
            (),
        )
        for stamp, types in zip(stamps, first_rows, strict=True)
    ]


class CsvRows(FileRows):
    """The number columns of one file as float64, or its label column as text."""

    def __init__(self, stamp: Stamp, columns: tuple[str, ...], label: str | None) -> None:
        self.where = stamp.path if label is None else f"{stamp.path}, column '{label}'"
        self._stamp, self._index = stamp, index_rows(stamp)
        self._member = label or ""
        position = {name: i for i, name in enumerate(self._index.names)}
        self._columns = [position[name] for name in (columns if label is None else (label,))]
        self._is_text = label is not None
        n = self._index.n_rows
        self.shape = (n,) if self._is_text else (n, len(columns))
        self.dtype = np.dtype(object if self._is_text else np.float64)

    def bytes_beside(self, n_rows: int) -> int:
        """The text of the rows and its parsed form."""
        n_marks = min(-(-n_rows // ROWS_PER_MARK) + 1, len(self._index.marks) - 1)
        text = int(np.diff(self._index.marks).max(initial=0)) * n_marks
        parsed = 160 if self._is_text else 16 * len(self._columns)
        return 2 * text + n_marks * ROWS_PER_MARK * parsed

    def read(self, start: int, stop: int) -> AnyArray:
        """Rows [start, stop); parses up to ROWS_PER_MARK rows more on either side."""
        table = self.read_as(pa.string() if self._is_text else pa.float64(), start, stop)
        if self._is_text:
            return np.asarray(table.column(0).fill_null("").to_numpy())
        numbers = np.empty((stop - start, len(self._columns)))
        for position, column in enumerate(table.columns):
            numbers[:, position] = column.to_numpy()
        del table, column
        pa.default_memory_pool().release_unused()
        return numbers

    def read_as(self, kind: Any, start: int, stop: int) -> Any:
        """The columns of rows [start, stop) as an Arrow table of one type; empty entries are null."""
        first = start // ROWS_PER_MARK
        last = min(-(-stop // ROWS_PER_MARK), len(self._index.marks) - 1)
        low, high = self._index.marks[first], self._index.marks[last]
        with reading(self.where), open_file(self._stamp) as handle:
            handle.seek(low)
            text = handle.read(high - low)
        base = first * ROWS_PER_MARK
        expected = min(last * ROWS_PER_MARK, self._index.n_rows) - base
        return self._parse(text, base, expected, kind).slice(start - base, stop - start)

    def _parse(self, text: bytes, base: int, expected: int, kind: Any) -> Any:
        # Columns are named by number here: their names need not be unique or acceptable to Arrow.
        column_ids = [str(column) for column in self._columns]
        try:
            table = pyarrow.csv.read_csv(
                pa.py_buffer(text),
                pyarrow.csv.ReadOptions(
                    use_threads=False,
                    block_size=PARSE_BYTES,
                    column_names=[str(i) for i in range(len(self._index.names))],
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(column_ids, kind), include_columns=column_ids, strings_can_be_null=True
                ),
            )
        except pa.ArrowInvalid as error:
            raise InputError(self._explain(str(error), base)) from error
        if table.num_rows != expected:
            raise InputError(
                f"{self.where}: expected {expected} rows after line {base + 1}, found {table.num_rows}; line "
                "breaks must all be the same: convert the file, or write it as Parquet"
            )
        return table

    def _explain(self, message: str, base: int) -> str:
        row = re.search(r"Row #(\d+)", message)
        column = re.search(r"CSV column #(\d+)", message)
        # Row 1 is line 2, below the header; blank lines are not counted.
        line = f" near line {base + int(row[1]) + 1}" if row else ""
        detail = re.sub(r"^(In CSV column #\d+: |Row #\d+: |CSV \w+ error( to \w+)?: )+", "", message.split("\n")[0])
        name = f", column '{self._index.names[int(column[1])]}'" if column else ""
        return (
            f"{self._stamp.path}{line}{name}: expected {'text in UTF-8' if self._is_text else 'numbers'}, "
            f"one entry per column; found: {detail}. Correct the line, or name the columns to read in "
            "input.columns"
        )


@lru_cache(maxsize=4096)
def check_first_rows(stamp: Stamp, columns: tuple[str, ...]) -> None:
    """Parse the first rows of these columns. Raises InputError that names the line and the column of an error."""
    rows = CsvRows(stamp, columns, None)
    if rows.shape[0]:
        rows.read(0, min(ROWS_PER_MARK, rows.shape[0]))


@lru_cache(maxsize=4096)
def _types_of_first_rows(stamp: Stamp) -> dict[str, str]:
    """For each column name: "numbers" (with or without text between them), "text" or "no values"."""
    names = tuple(dict.fromkeys(index_rows(stamp).names))
    n_rows = min(ROWS_PER_MARK, index_rows(stamp).n_rows)
    if not n_rows:
        return dict.fromkeys(names, "no values")
    table = CsvRows(stamp, names, None).read_as(pa.binary(), 0, n_rows)  # text may be in any encoding
    return {name: _type_of_entries(column) for name, column in zip(names, table.columns, strict=True)}


def _type_of_entries(column: Any) -> str:
    if column.null_count == len(column):
        return "no values"
    try:
        pc.utf8_trim_whitespace(column.cast(pa.string())).cast(pa.float64())
    except pa.ArrowInvalid:
        return "numbers" if any(_is_number(entry) for entry in column.to_pylist() if entry is not None) else "text"
    return "numbers"


@lru_cache(maxsize=4096)
def index_rows(stamp: Stamp) -> RowIndex:
    """Scan a file for its rows, once per process. Raises InputError if it is not a CSV file with a header."""
    marks: list[npt.NDArray[np.int64]] = []
    names: tuple[str, ...] = ()
    n_rows = n_lines = 0
    with reading(stamp.path), open_file(stamp) as handle:
        for offset, block in _whole_lines(handle, stamp.path):
            if n_lines == 0:
                names = _header(block[: block.index(b"\n")], stamp.path)
            starts, lines = _row_starts(block, n_lines, stamp.path)
            if n_lines == 0:
                starts = starts[1:]
            marks.append(offset + starts[-n_rows % ROWS_PER_MARK :: ROWS_PER_MARK])
            n_rows += len(starts)
            n_lines += lines
    if n_lines == 0:
        raise InputError(
            f"{stamp.path}: expected a header line and rows, found an empty file; check how it was written"
        )
    return RowIndex(names, n_rows, np.concatenate([*marks, [stamp.size]]).astype(np.int64))


def _whole_lines(handle: IO[bytes], path: str) -> Iterator[tuple[int, bytes]]:
    """Pieces of the file that end at a line break, each with its start byte."""
    offset, tail = 0, b""
    while block := handle.read(SCAN_BYTES):
        block = tail + block
        cut = block.rfind(b"\n") + 1
        if cut:
            yield offset, block[:cut]
        offset, tail = offset + cut, block[cut:]
        if len(tail) > MAX_LINE_BYTES:
            raise InputError(
                f"{path}: expected lines of text, found {len(tail)} bytes without a line break; check that "
                "it is a CSV file"
            )
    if tail:
        yield offset, tail + b"\n"


def _row_starts(block: bytes, lines_before: int, path: str) -> tuple[npt.NDArray[np.int64], int]:
    """Starts of the lines that are not blank (the header always counts), and the number of all lines."""
    codes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(codes == _NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if b'"' in block:
        quotes = np.searchsorted(np.flatnonzero(codes == _QUOTE), ends)
        if (quotes % 2).any():
            raise InputError(
                f"{path}, line {lines_before + int(np.argmax(quotes % 2)) + 1}: expected every quote closed "
                "on its own line, found a line break inside quotes; convert the file to Parquet "
                "(pandas.read_csv(...).to_parquet(...)) or remove the line break"
            )
    lengths = ends - starts
    is_row = (lengths > 1) | ((lengths == 1) & (codes[starts] != _RETURN))
    if lines_before == 0:
        is_row[0] = True
    return starts[is_row], len(ends)


def _header(line: bytes, path: str) -> tuple[str, ...]:
    if line[:2] == b"\x1f\x8b":
        raise InputError(f"{path}: gzip-compressed CSV is not supported; decompress it, or convert it to Parquet")
    try:
        text = line.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: expected a header line in UTF-8, found other bytes ({error}); convert the file"
        ) from error
    try:
        names = tuple(name.strip() for name in next(csv.reader([text]), []))
    except csv.Error as error:
        raise InputError(f"{path}: the header line cannot be read ({error}); write it again") from error
    if "\0" in text or not any(names):
        raise InputError(
            f"{path}: expected a header line with column names, found {text[:40]!r}; write the names into "
            "the first line"
        )
    if len(names) == 1 and (";" in text or "\t" in text):
        raise InputError(
            f"{path}: expected columns separated by commas, found the header {text[:60]!r}; write the file with commas"
        )
    if all(_is_number(name) for name in names):
        raise InputError(
            f"{path}: expected a header line with column names, found numbers ({text[:60]!r}); add a first "
            "line with names"
        )
    return names


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

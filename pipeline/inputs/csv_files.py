"""Reader of CSV files: only the requested rows are read, from the positions in their index (csv_index)."""

import contextlib
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ..core.errors import InputError, counted
from ..storage.bundles import Array
from . import csv_index
from .base import Source, Stamp
from .column_names import PADDED_WORDS, SHOWN_WORDS, TableColumns, choose_columns, is_missing_word, number_in
from .csv_index import index_rows, open_text
from .damage import reading
from .files import ColumnRows, PathText, find_files
from .stacked_files import TableSource

PARSE_BYTES = 1 << 26
TYPED_ROWS = 1 << 17  # rows in memory at a time while the types of columns are determined
TRUTH = "truth values"
NUMBER_WITH_COMMA = re.compile(rb"([+-]?\d+),(\d+([eE][+-]?\d+)?)")
NUMBER_WITH_POINT = re.compile(rb"[+-]?\d+\.\d+([eE][+-]?\d+)?")
TYPES = ("numbers", TRUTH, "text", "no values")
TRUE, FALSE = (b"true", b"True", b"TRUE", b"1", b"1.0"), (b"false", b"False", b"FALSE", b"0", b"0.0")
COMMA_CURE = "write a decimal point, and no separators of thousands"
MAX_EXAMPLE = 20  # characters of an entry in a message


def open_csv(
    path: PathText, columns: Sequence[str] | None = None, label: str | None = None, id_column: str | None = None
) -> Source:
    """The named columns of CSV files with a header, or all numeric ones but the label and the id; labels from a column.

    A column is text if the first rows of a file hold entries in it and fewer than half of them are numbers. A column
    with text between its numbers is refused. Empty entries and words such as NA read as NaN in columns of numbers.

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
    tables = csv_tables(stamps) if columns is None else [_table(stamp) for stamp in stamps]
    roles = choose_columns(tables, columns, label, id_column)
    for stamp in stamps:
        check_first_rows(stamp, roles.features)
    return CsvSource(stamps, roles)


def _columns_of_numbers(stamps: Sequence[Stamp]) -> set[str]:
    """Columns with numbers or truth values in the first rows of a file, and with text in those of none."""
    first_rows = [looks_of_first_rows(stamp) for stamp in stamps]
    kinds = {
        name: {looks[name].kind for looks in first_rows if name in looks} for looks in first_rows for name in looks
    }
    return {name for name, found in kinds.items() if found & {"numbers", TRUTH} and found <= {*TYPES} - {"text"}}


def _narrowest(column: pa.ChunkedArray, kind: pa.DataType) -> pa.DataType:
    """The first of int64, float64 and text, from `kind` on, that keeps every entry of a column of text."""
    for candidate in (pa.int64(), pa.float64()) if kind == pa.int64() else (kind,):
        if candidate == pa.string():
            break
        with contextlib.suppress(pa.ArrowInvalid):
            numbers = column.cast(candidate)
            padded = pc.any(pc.match_substring_regex(column, r"^[+-]?0[0-9]")).as_py()  # 007 is a name, no number
            if not padded and (
                candidate != pa.int64() or pc.all(pc.equal(numbers.cast(pa.string()), column)).as_py() is not False
            ):
                return candidate
    return pa.string()


def csv_tables(stamps: Sequence[Stamp]) -> list[TableColumns]:
    """The columns of each file, and which of them are text, from its first rows.

    A column without values in the first rows of one file has the type that it has in the others. If it has values in
    none, it is left out if it holds words such as NA: they may be texts.
    """
    first_rows, numeric = [looks_of_first_rows(stamp) for stamp in stamps], _columns_of_numbers(stamps)
    other: dict[str, str] = {}
    for name, look in ((name, look) for looks in first_rows for name, look in looks.items()):
        if look.kind == "text" or (look.words and look.kind == "no values" and name not in numeric):
            other[name] = "text" if "text" in {look.kind, other.get(name)} else f"no numbers, only {look.words[0]!r}"
    mixed = {name: look.kind for looks in first_rows for name, look in looks.items() if look.kind not in TYPES}
    words = {name: look.words for looks in first_rows for name, look in looks.items() if look.words and name in numeric}
    tables = []
    for stamp, looks in zip(stamps, first_rows, strict=True):
        unused = {name for name, look in looks.items() if look.kind in {"text", "no values"}}
        types = {name: other[name] for name in looks if name in unused & other.keys()}
        tables.append(_table(stamp)._replace(other_types=types, mixed=mixed, missing_words=words))
    return tables


def _table(stamp: Stamp) -> TableColumns:
    return TableColumns(stamp.path, index_rows(stamp).names, {}, ())


class CsvRows(ColumnRows):
    """Columns of one CSV file: numbers as float64, a label as text."""

    def __init__(self, stamp: Stamp, columns: tuple[str, ...], label: str | None = None) -> None:
        super().__init__(stamp, columns, label)
        self._index = index_rows(stamp)
        position = {name: i for i, name in enumerate(self._index.names)}
        self._positions = [position[name] for name in (columns if label is None else (label,))]
        self._is_text = label is not None
        n = self._index.n_rows
        self.shape = (n,) if self._is_text else (n, len(columns))
        self.dtype = np.dtype(object if self._is_text else np.float64)

    def bytes_beside(self, n_rows: int) -> int:
        """The text of the rows and its parsed form."""
        n_positions = min(-(-n_rows // csv_index.ROWS_PER_POSITION) + 1, len(self._index.positions) - 1)
        text = int(np.diff(self._index.positions).max(initial=0)) * n_positions
        parsed = 160 if self._is_text else 16 * len(self._positions)
        return 2 * text + n_positions * csv_index.ROWS_PER_POSITION * parsed

    def read(self, start: int, stop: int) -> Array:
        """Rows [start, stop); parses up to csv_index.ROWS_PER_POSITION rows more on either side."""
        table = self.read_as(pa.string() if self._is_text else pa.float64(), start, stop)
        if self._is_text:
            return np.asarray(table.column(0).fill_null("").to_numpy())
        numbers = np.empty((stop - start, len(self._positions)))
        for position, column in enumerate(table.columns):
            numbers[:, position] = column.cast(pa.float64()).to_numpy()
        del table, column
        pa.default_memory_pool().release_unused()
        return numbers

    def read_as(self, kind: pa.DataType, start: int, stop: int) -> pa.Table:
        """The columns of rows [start, stop) as an Arrow table of one type; empty entries are null.

        Numbers in text have a decimal point, whatever the file has.
        """
        first = start // csv_index.ROWS_PER_POSITION
        last = min(-(-stop // csv_index.ROWS_PER_POSITION), len(self._index.positions) - 1)
        low, high = self._index.positions[first], self._index.positions[last]
        with reading(self.where), open_text(self._stamp) as handle:
            handle.seek(low)
            text = handle.read(high - low)
        base = first * csv_index.ROWS_PER_POSITION
        expected = min(last * csv_index.ROWS_PER_POSITION, self._index.n_rows) - base
        table = self._parse(text, base, expected, kind).slice(start - base, stop - start)
        if kind == pa.float64() or decimal_point(self._stamp) == ".":
            return table
        pattern = f"^{NUMBER_WITH_COMMA.pattern.decode()}$"
        columns = [pc.replace_substring_regex(column, pattern, r"\1.\2") for column in table.columns]
        return pa.table(columns, table.column_names)

    def _parse(self, text: bytes, base: int, expected: int, kind: pa.DataType) -> pa.Table:
        # Columns are named by number here: their names need not be unique or acceptable to Arrow.
        column_ids = [str(column) for column in self._positions]
        names = [self._index.names[column] for column in self._positions]
        looks = looks_of_first_rows(self._stamp) if kind == pa.float64() else {}
        kinds = [pa.bool_() if name in looks and looks[name].kind == TRUTH else kind for name in names]
        all_ids = [str(number) for number in range(len(self._index.names))]
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=PARSE_BYTES, column_names=all_ids)
        parse = pyarrow.csv.ParseOptions(delimiter=self._index.delimiter)
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict(zip(column_ids, kinds, strict=True)),
            include_columns=column_ids,
            null_values=PADDED_WORDS if kind == pa.float64() else [""],
            strings_can_be_null=True,
            true_values=TRUE,
            false_values=FALSE,
            decimal_point=decimal_point(self._stamp),
        )
        try:
            table = pyarrow.csv.read_csv(pa.py_buffer(text), read, parse, convert)
        except pa.ArrowInvalid as error:
            raise InputError(self._explain(str(error), base)) from error
        if table.num_rows != expected:
            raise InputError(
                f"{self.where}: expected {expected} rows after line {base + self._index.lines_above + 1}, found "
                f"{table.num_rows}; line breaks must all be the same: convert the file, or write it as Parquet"
            )
        return table

    def _explain(self, message: str, base: int) -> str:
        row = re.search(r"Row #(\d+)", message)
        column = re.search(r"CSV column #(\d+)", message)
        # Row 1 is line 2, below the header; blank lines are not counted.
        line = f" near line {base + self._index.lines_above + int(row[1]) + 1}" if row else ""
        detail = re.sub(r"^(In CSV column #\d+: |Row #\d+: |CSV \w+ error( to \w+)?: )+", "", message.split("\n")[0])
        name = f", column '{self._index.names[int(column[1])]}'" if column else ""
        value = re.search(r"invalid value '(.*)'", detail)
        with_comma = value is not None and NUMBER_WITH_COMMA.fullmatch(value[1].encode())
        cure = COMMA_CURE if with_comma else "correct the line, or name the columns to read in input.columns"
        if column is None:  # a line of another length
            names = counted(len(self._index.names), "name")
            cure = f"the header line has {names}: correct the line, or remove the lines above the header"
        return (
            f"{self._stamp.path}{line}{name}: expected {'text in UTF-8' if self._is_text else 'numbers'}, "
            f"one entry per column; found: {detail}; {cure}"
        )


class CsvSource(TableSource):
    """Other columns than the features are read as text; `column_types` has the narrowest type that can hold them."""

    rows_of = CsvRows

    def column_types(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """int64, float64 or text, the first that holds every entry of a column as it is written (1, 007, 1.50)."""
        types = dict.fromkeys(names, pa.int64())
        for start in range(0, self.n_rows, TYPED_ROWS):
            table = self.read_columns(names, start, min(start + TYPED_ROWS, self.n_rows))
            types = {name: _narrowest(table.column(name), kind) for name, kind in types.items()}
        return types

    def _columns_of_file(self, names: Sequence[str], number: int, low: int, high: int) -> pa.Table:
        """As text; empty entries are null, and in columns of numbers also words for a missing one."""
        table = CsvRows(self._stamps[number], tuple(names)).read_as(pa.string(), low, high)
        words, null = pa.array(PADDED_WORDS), pa.scalar(None, pa.string())
        columns = [
            pc.if_else(pc.is_in(column, value_set=words), null, column) if name in self._numeric else column
            for name, column in zip(names, table.columns, strict=True)
        ]
        return pa.table(columns, list(names))

    @cached_property
    def _numeric(self) -> set[str]:
        return _columns_of_numbers(self._stamps)


@lru_cache(maxsize=4096)
def check_first_rows(stamp: Stamp, columns: tuple[str, ...]) -> None:
    """Parse the first rows of these columns. Raises InputError that names the line and the column of an error."""
    rows = CsvRows(stamp, columns)
    if rows.shape[0]:
        rows.read(0, min(csv_index.ROWS_PER_POSITION, rows.shape[0]))


@lru_cache(maxsize=4096)
def decimal_point(stamp: Stamp) -> str:
    """The decimal point of a file: a comma if its first rows hold numbers with a comma and none with a point.

    It is a point if columns are separated by commas, or if three digits follow each comma, as in thousands.
    """
    index = index_rows(stamp)
    if index.delimiter == "," or not index.n_rows:
        return "."
    low, high = index.positions[:2]
    with reading(stamp.path), open_text(stamp) as handle:
        handle.seek(low)
        entries = re.split(f'["\r\n{index.delimiter}]+'.encode(), handle.read(high - low))
    decimals = {len(match[2]) for entry in entries if (match := NUMBER_WITH_COMMA.fullmatch(entry.strip()))}
    return "," if decimals - {3} and not any(map(NUMBER_WITH_POINT.fullmatch, entries)) else "."


class Look(NamedTuple):
    """What the first rows of a column hold: one of TYPES, or a sentence about the text between its numbers.

    `words` are those for a missing number that occur there, without the empty one.
    """

    kind: str
    words: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def looks_of_first_rows(stamp: Stamp) -> dict[str, Look]:
    names = tuple(dict.fromkeys(index_rows(stamp).names))
    n_rows = min(csv_index.ROWS_PER_POSITION, index_rows(stamp).n_rows)
    if not n_rows:
        return dict.fromkeys(names, Look("no values"))
    table = CsvRows(stamp, names).read_as(pa.binary(), 0, n_rows)  # text may be in any encoding
    return {name: _look_at(column) for name, column in zip(names, table.columns, strict=True)}


def _look_at(column: pa.ChunkedArray) -> Look:
    found = pc.unique(column.drop_null()).to_pylist()
    words = [entry for entry in found if is_missing_word(entry)]
    entries = column.filter(pc.invert(pc.is_in(column, value_set=pa.array([None, *words], pa.binary()))))
    named = dict.fromkeys(word.decode().strip() for word in words)
    return Look(_type_of_entries(entries), tuple(filter(None, named)))


def _type_of_entries(column: pa.ChunkedArray) -> str:
    """The type of the entries of a column, without those that are missing."""
    if not len(column):
        return "no values"
    entries = set(pc.unique(column).to_pylist())
    if entries <= {*TRUE, *FALSE} and not entries <= {b"0", b"1", b"0.0", b"1.0"}:
        return TRUTH
    try:
        pc.utf8_trim_whitespace(column.cast(pa.string())).cast(pa.float64())
    except pa.ArrowInvalid:
        entries = column.to_pylist()
        text = [entry for entry in entries if number_in(entry) is None]
        with_comma = [entry for entry in text if NUMBER_WITH_COMMA.fullmatch(entry.strip())]
        if 2 * len(with_comma) > len(entries):
            example = with_comma[0].decode()
            return f"numbers with a comma, such as {example!r}; {COMMA_CURE}"
        if 2 * len(text) > len(entries):
            return "text"
        example = (text or entries)[0].decode(errors="replace")  # 1_000 is a number for Python only
        return f"text between numbers, such as {example[:MAX_EXAMPLE]!r}; missing values are empty or {SHOWN_WORDS}"
    return "numbers"

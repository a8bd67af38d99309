"""Reader of CSV files: only the requested rows are read, from the positions in their index (csv_index)."""

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ..core.errors import InputError
from ..storage.bundles import Array
from . import csv_index
from .base import Source, Stamp
from .column_names import (
    PADDED_WORDS,
    TableColumns,
    TextAmongNumbers,
    choose_columns,
    is_missing_word,
    number_in,
    point_between_thousands,
    text_found,
)
from .csv_index import index_rows, open_text
from .damage import reading
from .files import ColumnRows, PathText, find_files
from .stacked_files import TableSource

PARSE_BYTES = 1 << 26
TYPED_ROWS = 1 << 17  # rows in memory at a time while the types of columns are determined
TRUTH, WITH_COMMA = "truth values", "numbers with a comma"
NUMBER_WITH_COMMA = re.compile(rb"([+-]?\d+),(\d+([eE][+-]?\d+)?)")
NUMBER_WITH_POINT = re.compile(rb"[+-]?\d+\.\d+([eE][+-]?\d+)?")
TYPES = ("numbers", TRUTH, "text", "no values")
TRUE, FALSE = (b"true", b"True", b"TRUE", b"1", b"1.0"), (b"false", b"False", b"FALSE", b"0", b"0.0")
COMMA_CURE = "write a decimal point, and no separators of thousands"
TOP_ROWS = 3  # rows that may hold units and their names


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
        if columns is None and "" in names[1:]:
            raise InputError(
                f"{stamp.path}: column {names.index('', 1) + 1} has no name; list the columns to read in input.columns"
            )
    tables = csv_tables(stamps) if columns is None else [_table(stamp) for stamp in stamps]
    roles = choose_columns(tables, columns, label, id_column)
    for stamp in stamps:
        check_first_rows(stamp, roles.features)
    return CsvSource(stamps, roles)


def _columns_of_numbers(stamps: Sequence[Stamp]) -> set[str]:
    """Columns with numbers or truth values in the first rows of a file, and with text in those of none."""
    looks = [item for stamp in stamps for item in looks_of_first_rows(stamp).items()]
    with_text = {name for name, look in looks if look.kind not in {"numbers", TRUTH, "no values"}}
    return {name for name, look in looks if look.kind in {"numbers", TRUTH}} - with_text


def _narrowest(column: pa.ChunkedArray, kind: pa.DataType) -> pa.DataType:
    """The first of int64, float64 and text, from `kind` on, that keeps every entry of a column of text."""
    if kind == pa.string() or pc.any(pc.match_substring_regex(column, r"^[+-]?0[0-9]")).as_py():  # 007 is a name
        return pa.string()
    with contextlib.suppress(pa.ArrowInvalid):
        if kind == pa.int64() and pc.all(pc.equal(column.cast(kind).cast(pa.string()), column)).as_py() is not False:
            return kind
    is_long = pc.any(pc.match_substring_regex(column, r"^[+-]?[0-9]{19,}$")).as_py()  # float64 would round them
    with contextlib.suppress(pa.ArrowInvalid):
        return pa.string() if is_long else column.cast(pa.float64()).type
    return pa.string()


def csv_tables(stamps: Sequence[Stamp]) -> list[TableColumns]:
    """The columns of each file, and which of them are text, from its first rows.

    A column without values in the first rows of one file has the type that it has in the others. If it has values in
    none, it is left out if it holds words such as NA: they may be texts.
    """
    numeric = _columns_of_numbers(stamps)
    looks = [item for stamp in stamps for item in looks_of_first_rows(stamp).items()]
    words = {name: look.words for name, look in looks if look.words and name in numeric}
    mixed = {name: look.kind for name, look in looks if look.kind not in TYPES}
    of_commas = next((kind for kind in mixed.values() if kind.startswith(WITH_COMMA)), "")  # one example for all
    mixed = {name: of_commas if kind.startswith(WITH_COMMA) else kind for name, kind in mixed.items()}
    words_only = [(name, look) for name, look in looks if look.kind == "no values" and look.words]
    types = {name: f"no numbers, only {look.words[0]!r}" for name, look in words_only if name not in numeric}
    types |= {name: "text" for name, look in looks if look.kind == "text"}
    tables = []
    for stamp in stamps:
        unused = [name for name, look in looks_of_first_rows(stamp).items() if look.kind in {"text", "no values"}]
        other_types = {name: types[name] for name in unused if name in types}
        on_top = {name: look.on_top for name, look in looks_of_first_rows(stamp).items() if look.on_top}
        tables.append(_table(stamp)._replace(other_types=other_types, mixed=mixed, missing_words=words, on_top=on_top))
    return tables


def _table(stamp: Stamp) -> TableColumns:
    names = index_rows(stamp).names
    return TableColumns(stamp.path, names, {}, [name for name in names[:1] if name == ""])


class CsvRows(ColumnRows):
    """Columns of one CSV file: numbers as float64, a label as text."""

    def __init__(self, stamp: Stamp, columns: tuple[str, ...], label: str | None = None) -> None:
        super().__init__(stamp, columns, label)
        self._index, self._is_text = index_rows(stamp), label is not None
        self._names = columns if label is None else (label,)
        n = self._index.n_rows
        self.shape = (n,) if self._is_text else (n, len(columns))
        self.dtype = np.dtype(object if self._is_text else np.float64)

    def bytes_beside(self, n_rows: int) -> int:
        """The text of the rows and its parsed form."""
        n_positions = min(-(-n_rows // csv_index.ROWS_PER_POSITION) + 1, len(self._index.positions) - 1)
        text = int(np.diff(self._index.positions).max(initial=0)) * n_positions
        parsed = 160 if self._is_text else 16 * len(self._names)
        return 2 * text + n_positions * csv_index.ROWS_PER_POSITION * parsed

    def read(self, start: int, stop: int) -> Array:
        """Rows [start, stop); parses up to csv_index.ROWS_PER_POSITION rows more on either side."""
        table = self.read_as(pa.string() if self._is_text else pa.float64(), start, stop)
        if self._is_text:
            return np.asarray(table.column(0).fill_null("").to_numpy())
        numbers = np.empty((stop - start, len(self._names)))
        for position, column in enumerate(table.columns):
            numbers[:, position] = column.cast(pa.float64()).to_numpy()
        del table, column
        pa.default_memory_pool().release_unused()
        return numbers

    def read_as(self, kind: pa.DataType, start: int, stop: int) -> pa.Table:
        """The columns of rows [start, stop) as an Arrow table of one type; empty entries are null.

        Numbers in text have a decimal point, whatever the file has.
        """
        step = csv_index.ROWS_PER_POSITION
        first, last = start // step, min(-(-stop // step), len(self._index.positions) - 1)
        base, end = first * step, min(last * step, self._index.n_rows)
        table = self._parse(_text_between(self._stamp, first, last), base, end - base, kind)
        columns = table.slice(start - base, stop - start).columns
        if kind != pa.float64() and decimal_point(self._stamp) == ",":
            pattern = f"^( *){NUMBER_WITH_COMMA.pattern.decode()}( *)$"
            columns = [pc.replace_substring_regex(column, pattern, r"\1\2.\3\5") for column in columns]
        return pa.table(columns, self._names)

    def _parse(self, text: bytes, base: int, expected: int, kind: pa.DataType) -> pa.Table:
        looks = looks_of_first_rows(self._stamp) if kind == pa.float64() else {}
        words = {"", *(word for name in self._names if name in looks for word in looks[name].words)}
        try:
            try:
                table = self._table(text, kind, looks, sorted(words))
            except pa.ArrowInvalid:  # other words: Arrow keeps a table of all words for each column, so few come first
                table = self._table(text, kind, looks, PADDED_WORDS if looks else [""])
        except pa.ArrowInvalid as error:
            raise self._explained(str(error), base, kind == pa.string()) from error
        if table.num_rows != expected:
            raise InputError(
                f"{self.where}: expected {expected} rows after line {base + self._index.lines_above + 1}, found "
                f"{table.num_rows}; line breaks must all be the same: convert the file, or write it as Parquet"
            )
        return table

    def _table(
        self, text: bytes, kind: pa.DataType, looks: Mapping[str, "Look"], null_values: Sequence[str]
    ) -> pa.Table:
        # Columns are named by number here: their names need not be unique or acceptable to Arrow.
        id_of = {name: str(number) for number, name in enumerate(self._index.names)}
        all_ids, column_ids = list(map(str, range(len(self._index.names)))), [id_of[name] for name in self._names]
        kinds = [pa.bool_() if name in looks and looks[name].kind == TRUTH else kind for name in self._names]
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=PARSE_BYTES, column_names=all_ids)
        parse = pyarrow.csv.ParseOptions(delimiter=self._index.delimiter)
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict(zip(column_ids, kinds, strict=True)),
            include_columns=column_ids,
            null_values=null_values,
            strings_can_be_null=True,
            true_values=TRUE,
            false_values=FALSE,
            decimal_point=decimal_point(self._stamp),
        )
        return pyarrow.csv.read_csv(pa.py_buffer(text), read, parse, convert)

    def _explained(self, message: str, base: int, is_text: bool) -> InputError:
        row = re.search(r"Row #(\d+)", message)
        column = re.search(r"CSV column #(\d+)", message)
        # Row 1 is line 2, below the header; blank lines are not counted.
        line = f" near line {base + self._index.lines_above + int(row[1]) + 1}" if row else ""
        detail = re.sub(r"^(In CSV column #\d+: |Row #\d+: |CSV \w+ error( to \w+)?: )+", "", message.split("\n")[0])
        name = f", column '{self._index.names[int(column[1])]}'" if column else ""
        value = re.search(r"invalid value '(.*)'", detail)
        with_comma = value is not None and NUMBER_WITH_COMMA.fullmatch(value[1].encode())
        cure = COMMA_CURE if with_comma else "correct the line, or leave the column out of input.columns"
        if column is None or "invalid UTF8" in detail:
            cure = csv_index.cure_of_line(self._index, detail)
        sentence = (
            f"{self._stamp.path}{line}{name}: expected {'text in UTF-8' if is_text else 'numbers'}, "
            f"one entry per column; found: {detail}; {cure}"
        )
        if column is None or value is None or with_comma or is_text:
            return InputError(sentence)
        among = TextAmongNumbers(sentence)
        among.column = self._index.names[int(column[1])]
        among.found = text_found(value[1], among.column)
        return among


def _text_between(stamp: Stamp, first: int, last: int) -> bytes:
    """The text from one of the recorded positions of a file to another."""
    low, high = index_rows(stamp).positions[[first, last]]
    with reading(stamp.path), open_text(stamp) as handle:
        handle.seek(low)
        return handle.read(high - low)


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
        """As text. Null: empty entries, words for a missing number in columns of numbers, columns of other files."""
        stamp, words, null = self._stamps[number], pa.array(PADDED_WORDS), pa.scalar(None, pa.string())
        in_file = set(index_rows(stamp).names)
        stored = tuple(name for name in names if name in in_file)
        texts = CsvRows(stamp, stored).read_as(pa.string(), low, high).columns if stored else []
        columns = dict.fromkeys(names, pa.nulls(high - low, pa.string()))
        for name, column in zip(stored, texts, strict=True):
            is_missing = pc.is_in(column, value_set=words)
            columns[name] = pc.if_else(is_missing, null, column) if name in self._numeric else column
        return pa.table(columns)

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
    entries = re.split(f'["\r\n{re.escape(index.delimiter)}]+'.encode(), _text_between(stamp, 0, 1))
    decimals = {len(match[2]) for entry in entries if (match := NUMBER_WITH_COMMA.fullmatch(entry.strip()))}
    return "," if decimals - {3} and not any(map(NUMBER_WITH_POINT.fullmatch, entries)) else "."


class Look(NamedTuple):
    """What the first rows of a column hold: one of TYPES, or a sentence about the text between its numbers.

    `words` are those for a missing number that occur there, without the empty one; `on_top` has the text of each
    line with text in most columns of numbers, if only the first TOP_ROWS rows of the column hold text.
    """

    kind: str
    words: tuple[str, ...] = ()
    on_top: Mapping[int, str] = {}


@lru_cache(maxsize=4096)
def looks_of_first_rows(stamp: Stamp) -> dict[str, Look]:
    names = tuple(dict.fromkeys(index_rows(stamp).names))
    n_rows = min(csv_index.ROWS_PER_POSITION, index_rows(stamp).n_rows)
    if not n_rows:
        return dict.fromkeys(names, Look("no values"))
    table = CsvRows(stamp, names).read_as(pa.binary(), 0, n_rows)  # text may be in any encoding
    looks = {name: _look_at(name, column) for name, column in zip(names, table.columns, strict=True)}
    entries = {name: pc.unique(table.column(name)).to_pylist() for name, look in looks.items() if look.kind == "text"}
    if csv_index.is_first_row([name for name in names if name not in entries], entries):
        raise csv_index.no_header(stamp.path, index_rows(stamp).delimiter.join(index_rows(stamp).names))
    n_numeric = sum(look.kind == "numbers" or bool(look.on_top) for look in looks.values())
    texts = Counter(row for look in looks.values() for row in look.on_top)
    lines = csv_index.first_lines(stamp) if texts else []
    for name, look in looks.items():  # text in few columns may be data
        on_top = {lines[row]: text for row, text in look.on_top.items() if 2 * texts[row] > n_numeric}
        kind = "text in its first rows, numbers below" if on_top else look.kind
        looks[name] = look._replace(kind=kind, on_top=on_top)
    return looks


def _look_at(name: str, column: pa.ChunkedArray) -> Look:
    """What a column holds; `on_top` has rows, counted from 0, instead of lines."""
    words = [entry for entry in pc.unique(column.drop_null()).to_pylist() if is_missing_word(entry)]
    is_entry = pc.invert(pc.is_in(column, value_set=pa.array([None, *words], pa.binary())))
    named = tuple(filter(None, dict.fromkeys(word.decode().strip() for word in words)))
    kind = _type_of_entries(name, column.filter(is_entry))
    if kind not in TYPES and _type_of_entries(name, column[TOP_ROWS:].filter(is_entry[TOP_ROWS:])) == "numbers":
        top = {row: entry for row, entry in enumerate(column[:TOP_ROWS].to_pylist()) if is_entry[row].as_py()}
        on_top = {row: entry.decode(errors="replace") for row, entry in top.items() if number_in(entry) is None}
        return Look(kind, named, on_top)
    return Look(kind, named)


def _type_of_entries(name: str, column: pa.ChunkedArray) -> str:
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
        if 2 * len(with_comma) > len(text):
            return f"{WITH_COMMA}, such as {with_comma[0].decode()!r}; {COMMA_CURE}"
        if 2 * len(text) > len(entries):
            return "text"
        example = (text or entries)[0].decode(errors="replace")  # Python also reads the digits of other scripts
        return text_found(example, name)
    thousands = point_between_thousands(entries)
    return f"numbers with points between thousands, such as {thousands!r}; {COMMA_CURE}" if thousands else "numbers"

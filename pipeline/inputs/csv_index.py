"""Where the rows of a CSV file start, and what separates its columns: one scan of the file, once per process."""

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import IO, NamedTuple, cast

import numpy as np
import pyarrow as pa

from ..core.arrays import Int64
from ..core.errors import InputError, counted
from ..core.patterns import PACKED
from .array_rows import unpacked
from .base import Stamp
from .column_names import is_missing_word, number_in
from .damage import reading
from .files import open_file

DELIMITERS = ",;\t|"
SCAN_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 28
ROWS_PER_POSITION = 1024
DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?\"?sep=([\t -~])\"?\r?\n", re.IGNORECASE)
"""A line above the header that names the delimiter, as Excel writes and reads it."""
COUNTED_COLUMNS, AXIS_COLUMNS = 3, 10
"""Numbers are names if so many count from 0, as those of pandas, or rise or fall along the line, as wavelengths do:
measurements do so once in 10!/2 lines. If the line below does so too, as with sums along time, the line is a row."""
FIRST_BYTES = {
    ".gz": rb"\x1f\x8b",
    ".bz2": rb"BZh[1-9]1AY&SY",
    ".xz": rb"\xfd7zXZ\0",
    ".zst": rb"\(\xb5/\xfd",
    ".xlsx or .zip": rb"PK\x03\x04",
    ".parquet": rb"PAR1",
    ".json, or .jsonl if each line is a record": rb"[\[{]\s*([\[{\"]|$)",
}
"""Patterns of the first bytes of files that hold no table of text, by the ends of their names."""
ENCODING_CURE = "convert the file. If its encoding is {0}: iconv -f {0} -t UTF-8 OLD > NEW"
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


class RowIndex(NamedTuple):
    """Positions of the rows, counted after the header.

    positions: the byte position of every ROWS_PER_POSITION-th row, then the end of the (decompressed) file.
    lines_above: lines above the header, 1 if the first one names the delimiter.
    """

    names: tuple[str, ...]
    n_rows: int
    positions: Int64
    delimiter: str
    lines_above: int


@lru_cache(maxsize=4096)
def index_rows(stamp: Stamp) -> RowIndex:
    """Scan a file for its rows, once per process. Raises InputError if it is not a CSV file with a header."""
    positions: list[Int64] = []
    names, delimiter = tuple[str, ...](), ","
    n_rows = n_lines = 0
    with reading(stamp.path), open_text(stamp) as handle:
        declaration = DECLARATION.match(handle.read(16))
        start, declared = (declaration.end(), declaration[1].decode()) if declaration else (0, None)
        handle.seek(start)
        for offset, block in _whole_lines(handle, start, stamp.path):
            if n_lines == 0:
                header, _, rest = block.partition(b"\n")
                first_row = rest.lstrip(b"\r\n").partition(b"\n")[0]
                names, delimiter = _header(header, first_row, declared, stamp.path)
            starts, lines = _row_starts(block, n_lines, bool(start), stamp.path, delimiter)
            # Rows here are counted from n_rows on. The first multiple of ROWS_PER_POSITION is -n_rows modulo it.
            positions.append(offset + starts[-n_rows % ROWS_PER_POSITION :: ROWS_PER_POSITION])
            n_rows += len(starts)
            n_lines += lines
        n_bytes = handle.tell()
    if n_lines == 0:
        raise InputError(
            f"{stamp.path}: expected a header line and rows, found an empty file; check how it was written"
        )
    ends = np.concatenate([*positions, [n_bytes]]).astype(np.int64)
    return RowIndex(names, n_rows, ends, delimiter, int(start > 0))


def first_lines(stamp: Stamp) -> list[int]:
    """The numbers of the lines of the first rows, from 1 on: blank lines are no rows."""
    index = index_rows(stamp)
    with reading(stamp.path), open_text(stamp) as handle:
        lines = handle.read(int(index.positions[1])).split(b"\n")
    return [number for number, line in enumerate(lines, 1) if line not in {b"", b"\r"}][index.lines_above + 1 :]


def open_text(stamp: Stamp) -> IO[bytes]:
    """The file, decompressed if its name ends in one of PACKED."""
    if not stamp.path.lower().endswith(PACKED):
        return open_file(stamp)
    return cast(IO[bytes], pa.BufferReader(pa.py_buffer(unpacked(stamp, "", stamp.path))))


def _whole_lines(handle: IO[bytes], offset: int, path: str) -> Iterator[tuple[int, bytes]]:
    """Pieces of the file from byte `offset` on that end at a line break, each with its start byte."""
    tail = b""
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


def _row_starts(block: bytes, lines_before: int, lines_above: int, path: str, delimiter: str) -> tuple[Int64, int]:
    """Starts of the lines that are neither blank nor the header, and the number of all lines."""
    codes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(codes == _NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if b'"' in block:
        # A quote inside a quoted field is written as two, so a complete row has an even number. An odd number is right
        # only if a quote stands inside a field without quotes, as in 4'-5". Such a quote can also make the number of an
        # incomplete row even, so then all lines with quotes are tested.
        quotes = np.searchsorted(np.flatnonzero(codes == _QUOTE), ends)
        in_line = np.diff(quotes, prepend=0)
        for number in np.flatnonzero(in_line) if (in_line % 2).any() else ():
            has_mark = number == 0 and block.startswith(BOM_UTF8)
            start = starts[number] + len(BOM_UTF8) * has_mark
            if _whole_fields(delimiter).fullmatch(block, start, ends[number]):
                continue
            raise InputError(
                f"{path}, line {lines_above + lines_before + int(number) + 1}: expected every quote closed on its own "
                "line, found a line break inside quotes; convert the file to Parquet "
                "(pandas.read_csv(...).to_parquet(...)) or remove the line break"
            )
    lengths = ends - starts
    is_row = (lengths > 1) | ((lengths == 1) & (codes[starts] != _RETURN))
    if lines_before == 0:
        is_row[0] = False
    return starts[is_row], len(ends)


@lru_cache
def _whole_fields(delimiter: str) -> "re.Pattern[bytes]":
    """Matches a line in which every field that begins with a quote is closed."""
    mark = re.escape(delimiter)
    field = rf'(?>"(?:[^"]++|"")*+"[^{mark}]*+|[^"{mark}][^{mark}]*+|)'
    return re.compile(f"{field}(?:{mark}{field})*+".encode())


def _header(line: bytes, first_row: bytes, declared: str | None, path: str) -> tuple[tuple[str, ...], str]:
    """The names of the columns, and the delimiter: that which the file declares, else the one that fits both lines.

    `first_row` is empty if the file has only a header.
    """
    if end := next((end for end, first in FIRST_BYTES.items() if re.match(first, line)), ""):
        raise InputError(
            f"{path}: expected a CSV file, found a file of another kind; rename it so that it ends in {end}"
        )
    try:
        text = line.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else "WINDOWS-1252"
        raise InputError(
            f"{path}: expected a header line in UTF-8, found other bytes ({error}); {ENCODING_CURE.format(encoding)}"
        ) from error
    row = first_row.decode(errors="replace").rstrip("\r")
    try:
        delimiter = declared or _delimiter(text, row or text)
        names = tuple(name.strip() for name in _fields(text, delimiter))
    except csv.Error as error:
        raise InputError(f"{path}: the header line cannot be read ({error}); write it again") from error
    if "\0" in text or not _are_names(names, row.split(delimiter)):
        raise no_header(path, text)
    return (("", *names) if _has_row_names(text, row, delimiter) else names), delimiter


def no_header(path: str, line: str) -> InputError:
    found = f"expected a header line with column names, found {line[:60]!r}"
    return InputError(f"{path}: {found}; add a first line with names")


def cure_of_line(index: RowIndex, found: str) -> str:
    """What to do with a line in another encoding, or of another number of entries; `found` is Arrow's error."""
    if "invalid UTF8" in found:
        return ENCODING_CURE.format("WINDOWS-1252")
    if index.names[-1] == "" and f"got {len(index.names) - 1}:" in found:
        return f"remove the {index.delimiter!r} at the end of the header line"
    cure = f"the header line has {counted(len(index.names), 'name')}: correct or remove the line, "
    return f"{cure}remove the lines above the header, or add a name if a column has none"


def is_first_row(others: Sequence[str], texts: Mapping[str, Collection[bytes | None]]) -> bool:
    """Whether the names of columns are a row of a file without a header: numbers above all columns that do not hold
    text, and a text that is also below it. Numbers that count up, or those of an axis, are names.

    Args:
        others: names of columns that do not hold text.
        texts: names of the others, with the entries of each.

    >>> texts = {"rose": [b"lily", b"rose"]}
    >>> [is_first_row(names, texts) for names in (["5.1", "3.5"], ["2019", "2020"], ["5.1", "tail"])]
    [True, False, False]
    """
    numbers = [number_in(name) for name in others if not is_missing_word(name)]
    known = [number for number in numbers if number is not None]
    counts_up = len(known) > 1 and bool((np.diff(known) == 1).all())
    if not numbers or len(known) < len(numbers) or counts_up or _is_axis(others):
        return False
    return any(name and name.encode() in map(bytes.strip, filter(None, entries)) for name, entries in texts.items())


def _has_row_names(header: str, row: str, delimiter: str) -> bool:
    """Whether a row has one field more than the header: the name of the row, as R writes it without a header field.

    Between commas it must be in quotes, as R writes it: numbers with decimal commas give a field more too. An empty
    last field is that of a row which ends in a delimiter. A line without numbers may be the header, below a title.

    >>> [_has_row_names("a,b", row, ",") for row in ('"1",5,2', '"x",5,NA', "x,5,2", "1,5,", '"x",y,z')]
    [True, True, False, False, False]
    """
    if _n_fields(row, delimiter) != _n_fields(header, delimiter) + 1:
        return False
    fields = _fields(row, delimiter)
    if not (fields[0] and fields[-1]):
        return False
    is_name = delimiter != "," or row.startswith('"')
    return is_name and any(number_in(field) is not None for field in fields[1:])


def _are_names(fields: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a line above another holds names: not only numbers, or numbers counted from 0, or those of an axis.

    >>> [_are_names(line.split(), "7 7 8".split()) for line in ("red 1 2", "0 1 2", "0 1 5")]
    [True, True, False]
    """
    if fields and fields[0] == "":
        fields, below = fields[1:], below[1:]  # a row index, or a missing number
    if any(number_in(name) is None for name in fields):
        return any(fields)
    is_counted = len(fields) >= COUNTED_COLUMNS and list(fields) == list(map(str, range(len(fields))))
    return is_counted or (_is_axis(fields) and not _is_axis(below))


def _is_axis(fields: Sequence[str]) -> bool:
    """Whether a line has AXIS_COLUMNS or more numbers that rise, or fall, from each to the next."""
    steps = np.diff([np.nan if (number := number_in(field)) is None else number for field in fields])
    return len(fields) >= AXIS_COLUMNS and bool((steps > 0).all() or (steps < 0).all())


def _delimiter(header: str, row: str) -> str:
    """The comma if it gives two or more fields, as many in the row as in the header; else the one with most fields.

    If none gives as many, rows may begin with names, for which R writes no header field. A name may contain other
    delimiters, so the header alone does not decide. The comma if no delimiter matches.

    >>> _delimiter("P(x|y),P(y|x)", "0.1,0.2"), _delimiter("a;b", "1,5;2"), _delimiter("weight; dry", "1.5")
    (',', ';', ',')
    """
    n_fields = {delimiter: _n_fields(header, delimiter) for delimiter in DELIMITERS}
    several = [delimiter for delimiter, n in n_fields.items() if n >= 2]
    matching = [delimiter for delimiter in several if n_fields[delimiter] == _n_fields(row, delimiter)]
    matching = matching or [delimiter for delimiter in several if _has_row_names(header, row, delimiter)]
    return "," if not matching or "," in matching else max(matching, key=n_fields.__getitem__)


def _n_fields(line: str, delimiter: str) -> int:
    """0 if a field is too long for the csv module, as with a delimiter that a wide table does not use."""
    try:
        return len(_fields(line, delimiter))
    except csv.Error:
        return 0


def _fields(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])

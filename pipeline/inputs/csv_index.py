"""Where the rows of a CSV file start: one scan of the file, once per process."""

import csv
from collections.abc import Iterator
from functools import lru_cache
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.errors import InputError
from .files import Stamp, open_file, reading

SCAN_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 28
ROWS_PER_POSITION = 1024
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


class RowIndex(NamedTuple):
    """Positions of the rows, counted after the header.

    positions: the byte position of every ROWS_PER_POSITION-th row, then the end of the file.
    """

    names: tuple[str, ...]
    n_rows: int
    positions: npt.NDArray[np.int64]


@lru_cache(maxsize=4096)
def index_rows(stamp: Stamp) -> RowIndex:
    """Scan a file for its rows, once per process. Raises InputError if it is not a CSV file with a header."""
    positions: list[npt.NDArray[np.int64]] = []
    names: tuple[str, ...] = ()
    n_rows = n_lines = 0
    with reading(stamp.path), open_file(stamp) as handle:
        for offset, block in _whole_lines(handle, stamp.path):
            if n_lines == 0:
                names = _header(block[: block.index(b"\n")], stamp.path)
            starts, lines = _row_starts(block, n_lines, stamp.path)
            if n_lines == 0:
                starts = starts[1:]
            positions.append(offset + starts[-n_rows % ROWS_PER_POSITION :: ROWS_PER_POSITION])
            n_rows += len(starts)
            n_lines += lines
    if n_lines == 0:
        raise InputError(
            f"{stamp.path}: expected a header line and rows, found an empty file; check how it was written"
        )
    return RowIndex(names, n_rows, np.concatenate([*positions, [stamp.size]]).astype(np.int64))


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
    if all(is_number(name) for name in names):
        raise InputError(
            f"{path}: expected a header line with column names, found numbers ({text[:60]!r}); add a first "
            "line with names"
        )
    return names


def is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

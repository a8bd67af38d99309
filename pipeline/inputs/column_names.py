"""The columns of a table: words for a missing number, and the choice of features, by name or all numeric ones."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import product
from typing import NamedTuple

from ..core.errors import InputError, listed

OF_PANDAS = "#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN <NA> N/A NA NULL NaN None n/a nan null"
OTHERS = r"- -- ? . .. : #DIV/0! #VALUE! n.a. NAN NONE Null na nil none \N"
MISSING_WORDS = {"", "#N/A N/A", *OF_PANDAS.split(), *OTHERS.split()}
"""Words for a missing number: those of pandas.read_csv, the World Bank (..), Eurostat (:) and Excel, and others. In a
column of texts they are texts like any."""

SHOWN_WORDS = "NA, None, NULL, n/a, - and ?"
"""Some of them, for messages."""
THOUSANDS = re.compile(rb" *[+-]?(0|[1-9]\d{0,2}(\.\d{3})*) *")
MAX_EXAMPLE = 20  # characters of an entry in a message

PADDED_WORDS = [
    " " * left + word + " " * right for word, left, right in product(sorted(MISSING_WORDS), range(9), range(2))
]
"""The words with spaces around them, as in files with aligned columns."""


@dataclass(frozen=True)
class ColumnRoles:
    """What a run does with each column of its table. `left_out` has the reason for each column without a role."""

    features: tuple[str, ...]
    label: str | None = None
    id: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)


class TextAmongNumbers(InputError):
    """A column of numbers holds text: `column` is its name, `found` describes the text."""

    column = found = ""


class TableColumns(NamedTuple):
    """The columns of one file: all names, the type of each that holds no numbers, and those that are a row index.

    `mixed` has a description of each column that is refused as a feature, because it holds numbers and text, and
    `missing_words` the words for a missing number that are in columns of numbers. `on_top` has the text of columns that
    hold numbers below it, by its line in the file; `on_top_of` names it if there are several.
    """

    where: str
    names: Sequence[str]
    other_types: Mapping[str, str]
    row_index: Sequence[str]
    mixed: Mapping[str, str] = {}
    missing_words: Mapping[str, Sequence[str]] = {}
    on_top: Mapping[str, Mapping[int, str]] = {}
    on_top_of: str = ""

    def features(self, special: Sequence[str | None]) -> list[str]:
        """The columns to use if the config names none; `special` are label and id."""
        unused = {*special, *self.other_types, *self.row_index}
        return [name for name in self.names if name not in unused]


def choose_columns(
    tables: Sequence[TableColumns], columns: Sequence[str] | None, label: str | None, id_column: str | None = None
) -> ColumnRoles:
    """The role of each column. Features are in the requested order, or in that of the first file.

    Raises InputError if a file lacks a column or holds a name twice, or if a column is not numeric.
    """
    special = [name for name in (label, id_column) if name is not None]
    for table in tables:
        _check_names(table, [*(columns or []), *special], reads_all=columns is None)
    features = _numeric_everywhere(tables, special) if columns is None else _requested(tables, columns, special)
    first, used = tables[0], {*features, *special}
    left_out = {name: _why(first, name) for name in first.names if name not in used}
    return ColumnRoles(features, label, id_column, left_out)


def _why(table: TableColumns, name: str) -> str:
    if name in table.row_index:
        return "row index"
    return table.other_types.get(name, "not in input.columns")


def _requested(tables: Sequence[TableColumns], columns: Sequence[str], special: Sequence[str]) -> tuple[str, ...]:
    wrong = sorted({name for name in columns if name in special or list(columns).count(name) > 1})
    if wrong or not columns:
        found = f"remove {_quoted(wrong)} from the list" if wrong else "found none"
        raise InputError(
            f"{tables[0].where}: input.columns must name at least one column, each once, and neither the label, the id "
            f"nor neighbors.k_per_point; {found}"
        )
    for table in tables:
        bad = [name for name in columns if name in table.other_types]
        if bad:
            raise InputError(
                f"{table.where}: expected numbers in the columns of input.columns, found other types in "
                f"{_quoted(bad)}; remove them from the list or convert them"
            )
    return tuple(columns)


def _quoted(names: Sequence[str]) -> str:
    return listed([f"'{name}'" for name in names])


def _check_names(table: TableColumns, required: Sequence[str], *, reads_all: bool) -> None:
    counts = Counter(table.names)
    missing = [name for name in required if name not in counts]
    if missing:
        similar = get_close_matches(missing[0], table.names, n=1)
        hint = f"; did you mean '{similar[0]}'?" if similar else ""
        raise InputError(
            f"{table.where}: there is no column {_quoted(missing)}{hint} (its columns are {listed(table.names)})"
        )
    # Excel writes empty columns without a name at the end of a table; they may repeat if they are not read
    repeated = [name for name, count in counts.items() if count > 1 and (name or name in required or reads_all)]
    if repeated:
        raise InputError(
            f"{table.where}: expected each column name once, found {_quoted(repeated)} more often; rename them"
        )


def _numeric_everywhere(tables: Sequence[TableColumns], special: Sequence[str]) -> tuple[str, ...]:
    first = tables[0]
    chosen = tuple(first.features(special))
    if not chosen:
        raise InputError(
            f"{first.where}: expected at least one numeric column besides the label and the id, found the columns "
            f"{listed([f'{name} ({_why(first, name)})' if name not in special else name for name in first.names])}"
        )
    for table in tables[1:]:
        differing = set(chosen).symmetric_difference(table.features(special))
        if differing:
            raise InputError(
                f"{table.where}: expected the same columns of numbers as {first.where}; "
                f"{listed([_difference(table, first, name) for name in sorted(differing)])}. Correct the file, or name "
                "the columns to use in input.columns"
            )
    return chosen


def _difference(table: TableColumns, first: TableColumns, name: str) -> str:
    if name not in table.names:
        return f"'{name}' is missing"
    if name not in first.names:
        return f"'{name}' is new"
    return f"'{name}' holds {table.other_types.get(name, 'numbers')}, there {first.other_types.get(name, 'numbers')}"


def is_missing_word(text: str | bytes) -> bool:
    """Whether a text stands for a missing number.

    >>> is_missing_word(" ?"), is_missing_word(b"n/a"), is_missing_word("Norway")
    (True, True, False)
    """
    return (text if isinstance(text, str) else text.decode(errors="replace")).strip(" ") in MISSING_WORDS


def number_in(text: str | bytes) -> float | None:
    """The number that a text holds. A text such as 1_2 holds one for Python only: it is a name.

    >>> number_in("1e3"), number_in("1_2")
    (1000.0, None)
    """
    text = text if isinstance(text, str) else text.decode(errors="replace")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def point_between_thousands(entries: set[bytes]) -> str:
    """The least of the numbers in which a point separates thousands, as 14.210 beside 14; empty if there are none.

    A program that drops zeros writes 14.21, and one that keeps them writes 14.000.

    >>> [point_between_thousands({b"14.210", b"893.315", other}) for other in (b"14", b"0", b"14.5", b"14.000")]
    ['14.210', '', '', '']
    """
    grouped = {entry for entry in entries if b"." in entry}
    are_mixed = any(entry.endswith(b"0") for entry in grouped) and len(entries - {b"0"}) > len(grouped)
    return min(grouped).decode() if are_mixed and all(map(THOUSANDS.fullmatch, entries)) else ""


def text_found(example: str, name: str) -> str:
    """What the column ``name`` holds if one of its entries is a text, for a message."""
    if example.strip().strip('"') == name:
        return "its name between numbers: remove header lines below the first line"
    return f"text between numbers, such as {example[:MAX_EXAMPLE]!r}; missing values are empty or {SHOWN_WORDS}"

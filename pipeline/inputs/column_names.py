"""Choose the feature columns of a table: those named in the config, or all numeric ones."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..core.errors import InputError

LISTED = 12


class TableColumns(NamedTuple):
    """The columns of one file: all names, the numeric ones, and those that are only a row index."""

    where: str
    names: Sequence[str]
    numeric: Sequence[str]
    row_index: Sequence[str]

    def features(self, label: str | None) -> list[str]:
        """The columns to use if the config names none."""
        return [name for name in self.numeric if name != label and name not in self.row_index]


def choose_columns(tables: Sequence[TableColumns], columns: Sequence[str] | None, label: str | None) -> tuple[str, ...]:
    """The feature columns, in the requested order or in that of the first file.

    Raises InputError if a file lacks a column or holds a name twice, or if a column is not numeric.
    """
    for table in tables:
        _check_names(table, [*(columns or []), *([label] if label is not None else [])])
    if columns is None:
        return _numeric_everywhere(tables, label)
    if not columns or len(set(columns)) < len(columns) or label in columns:
        raise InputError(
            f"{tables[0].where}: input.columns must name at least one column, each once and not the label "
            f"'{label}'; found {list(columns)}"
        )
    for table in tables:
        numeric = set(table.numeric)
        bad = [name for name in columns if name not in numeric]
        if bad:
            raise InputError(
                f"{table.where}: expected numbers in the columns of input.columns, found other types in "
                f"{bad[:LISTED]}; remove them from the list or convert them"
            )
    return tuple(columns)


def _check_names(table: TableColumns, required: Sequence[str]) -> None:
    counts = Counter(table.names)
    missing = [name for name in required if name not in counts]
    if missing:
        raise InputError(
            f"{table.where}: there is no column {missing[:LISTED]}; its columns are {_listed(table.names)}"
        )
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise InputError(
            f"{table.where}: expected each column name once, found {repeated[:LISTED]} more often; rename them"
        )


def _numeric_everywhere(tables: Sequence[TableColumns], label: str | None) -> tuple[str, ...]:
    first = tables[0]
    chosen = tuple(first.features(label))
    if not chosen:
        raise InputError(
            f"{first.where}: expected at least one numeric column besides the label, found the columns "
            f"{_listed(first.names)}"
        )
    for table in tables[1:]:
        differing = set(chosen).symmetric_difference(table.features(label))
        if differing:
            raise InputError(
                f"{table.where}: expected the same numeric columns as {first.where}, found a difference in "
                f"{sorted(differing)[:LISTED]}; name the columns to use in input.columns"
            )
    return chosen


def _listed(names: Sequence[str]) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more

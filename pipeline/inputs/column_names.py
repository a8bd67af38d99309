"""Which columns of a table are the features: named in the config, or all numeric ones."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pipeline.core.errors import InputError

LISTED = 12


class TableColumns(NamedTuple):
    """The columns of one file: all names, those that hold numbers, and those that only number the rows."""

    where: str
    names: Sequence[str]
    numeric: Sequence[str]
    row_index: Sequence[str]

    def features(self, label: str | None) -> list[str]:
        """The columns taken where none are named."""
        return [name for name in self.numeric if name != label and name not in self.row_index]


def choose_columns(tables: Sequence[TableColumns], columns: Sequence[str] | None, label: str | None) -> tuple[str, ...]:
    """The feature columns, in the order asked for or in that of the first file.

    Raises InputError where a file lacks one, holds a name twice, or a column is not numeric.
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
                f"{bad[:LISTED]}; leave them out or convert them"
            )
    return tuple(columns)


def _check_names(table: TableColumns, wanted: Sequence[str]) -> None:
    counts = Counter(table.names)
    missing = [name for name in wanted if name not in counts]
    if missing:
        raise InputError(
            f"{table.where}: there is no column {missing[:LISTED]}; its columns are {_listed(table.names)}"
        )
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise InputError(
            f"{table.where}: expected each column name once, found {twice[:LISTED]} more often; rename them"
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
        odd = set(chosen).symmetric_difference(table.features(label))
        if odd:
            raise InputError(
                f"{table.where}: expected the same numeric columns as {first.where}, found a difference in "
                f"{sorted(odd)[:LISTED]}; name the columns to use in input.columns"
            )
    return chosen


def _listed(names: Sequence[str]) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more

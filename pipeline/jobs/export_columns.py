"""Further columns of an exported table, read from the input of a run a block at a time."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from ..core.errors import ConfigError, InputError, listed
from ..engine.plan import Json
from ..inputs import Source, open_source
from ..stages.ingest_ids import StoredIds
from .output_file import suffix_of

OWN_NAMES = re.compile(r"row|component|distance_ratio|y\d+")


class RowColumns(Protocol):
    """Columns with one entry for each exported row."""

    def read(self, start: int, stop: int) -> dict[str, pa.Array]:
        """The entries of rows [start, stop) by the name of their exported column."""


class IdColumn:
    """The ids of a run."""

    def __init__(self, ids: StoredIds) -> None:
        self._ids = ids

    def read(self, start: int, stop: int) -> dict[str, pa.Array]:
        """As RowColumns.read. Raises CorruptChunk."""
        return {exported_name(self._ids.name): self._ids.read(start, stop)}


class InputColumns:
    """Columns of a table that is an input. A column named as one of the export has the prefix "input_" there."""

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        self._source, self._names = source, tuple(dict.fromkeys(names))
        self._types = source.column_types(self._names)

    def read(self, start: int, stop: int) -> dict[str, pa.Array]:
        """As RowColumns.read. Raises InputError."""
        table = self._source.read_columns(self._names, start, stop)
        return {exported_name(name): table.column(name).cast(self._types[name]) for name in self._names}


def exported_name(name: str) -> str:
    """The name that a column of the input has in an export.

    >>> exported_name("city"), exported_name("row"), exported_name("y2")
    ('city', 'input_row', 'input_y2')
    """
    return f"input_{name}" if OWN_NAMES.fullmatch(name) else name


def input_of_run(attributes: Json, n_rows: int) -> Source:
    """The input of a run with these attributes, opened for `--with`. Raises InputError if it has changed since."""
    parameters = {key: value for key, value in attributes["config"]["input"].items() if key != "fit_sample"}
    source = open_source(parameters.pop("kind"), **parameters)
    recorded, current = (
        json.dumps(state, sort_keys=True) for state in (attributes["input_fingerprint"], source.fingerprint())
    )
    if recorded != current or source.n_rows != n_rows:
        raise InputError(
            "--with: the input has changed since the run, so its rows may not be those of the embedding; run the job "
            "again, or export without --with"
        )
    return source


def columns_of_input(source: Source, names: Sequence[str], out: str) -> list[RowColumns]:
    """These columns of an input, for the file `out`; empty without names.

    Raises ConfigError if `out` is no table, or if the input is no table or lacks a column.
    """
    if not names:
        return []
    if suffix_of(out) == ".npy":
        raise ConfigError(f"{out}: --with needs a table; choose a name that ends in .parquet, .arrow or .csv")
    if source.roles is None:
        raise ConfigError("--with: the input has no named columns; only those of Parquet and CSV files can be copied")
    all_names = list(_all_names(source))
    if missing := [name for name in names if name not in all_names]:
        cure = "; give --with once for each column: --with a --with b" if any("," in name for name in missing) else ""
        raise ConfigError(f"--with: the input has no column {missing}; its columns are {listed(all_names)}{cure}")
    return [InputColumns(source, names)]


def _all_names(source: Source) -> Iterator[str]:
    roles: Any = source.roles
    yield from roles.features
    yield from (name for name in (roles.label, roles.id) if name is not None)
    yield from roles.left_out

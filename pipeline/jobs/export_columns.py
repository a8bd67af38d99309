"""Further columns of an exported table, read from the input of a run a block at a time."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from ..core.errors import ConfigError, InputError, listed
from ..engine.step import Json
from ..inputs import Source
from ..stages.input_columns import exported_name, recorded_input
from .output_file import suffix_of

RowColumns = Callable[[int, int], dict[str, pa.Array]]
"""From rows [start, stop) to further columns of these rows, by their exported names."""


def input_of_run(attributes: Json, n_rows: int) -> Source:
    """The input of a run with these attributes, opened for `--with`. Raises InputError if it has changed since."""
    source = recorded_input(attributes, n_rows)
    if source is None:
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
    roles = source.roles
    all_names = [*roles.features, *filter(None, (roles.label, roles.id)), *roles.left_out]
    if missing := [name for name in names if name not in all_names]:
        cure = "; give --with once for each column: --with a --with b" if any("," in name for name in missing) else ""
        quoted = listed([f"'{name}'" for name in missing])
        raise ConfigError(f"--with: the input has no column {quoted}; its columns are {listed(all_names)}{cure}")
    chosen = tuple(dict.fromkeys(names))
    types = source.column_types(chosen)

    def read(start: int, stop: int) -> dict[str, pa.Array]:
        table = source.read_columns(chosen, start, stop)
        return {exported_name(name): table.column(name).cast(types[name]) for name in chosen}

    return [read]

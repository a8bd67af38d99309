"""Write the embedding of a store to one file, in input order, a block at a time."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from ..core.errors import ConfigError, InputError, listed
from ..engine import current_config
from ..engine.step import Json
from ..inputs import Source
from ..stages.ingest_ids import stored_ids
from ..stages.input_columns import exported_name, recorded_input
from ..storage import array_specs
from ..storage.store import Store
from . import export_anndata
from .output_file import SUFFIXES, check_out, refuse_input, written_whole

RowColumns = Callable[[int, int], dict[str, pa.Array]]
"""From rows [start, stop) to further columns of these rows, by their exported names."""


def export_run(store: Store, out: str, names: Sequence[str] = (), into: str | None = None) -> int:
    """As `export_embedding`, for the store of a run, with further columns of its input.

    An .h5ad file gets the coordinates in the matrix `into`, obsm/X_lle by default.

    Raises ConfigError if the store has no finished embedding of its config. The check is needed because arrays of an
    earlier config stay in the store until steps of the new one replace them.
    """
    if Path(out).suffix == export_anndata.SUFFIX:
        if names:
            raise ConfigError(f"{out}: --with is for tables; an .h5ad file has its own obs; remove --with")
        return export_anndata.export_anndata(store, out, into or export_anndata.DEFAULT)
    if into is not None:
        raise ConfigError(f"--into {into}: expected OUT.h5ad, found {out}; remove --into, or choose another name")
    check_out(out, (*SUFFIXES, export_anndata.SUFFIX))
    current_config.require_embedding(store)
    refuse_input(out, store)
    parts: list[RowColumns] = []
    if (ids := stored_ids(store)) is not None:
        parts.append(lambda start, stop: {exported_name(ids.name): ids.read(start, stop)})
    if names:
        source = input_of_run(store.attributes(), store.array(array_specs.EMBEDDING.name).shape[0])
        parts += columns_of_input(source, names, out)
    return export_embedding(store, out, parts)


def export_embedding(store: Store, out: str, further: Sequence[RowColumns] = ()) -> int:
    """Write `out` by its suffix; returns the rows written. Raises ConfigError for another suffix or a missing folder.

    .npy holds the (n_input, n_components) float64 array; tables hold columns row, component, y1, y2, ... and the
    `further` columns. Where the store holds distance ratios, they are one more column.
    """
    check_out(out)
    with written_whole(out) as file:
        if Path(out).suffix == ".npy":
            _write_npy(file, store)
        else:
            _write_table(file, store, Path(out).suffix, further)
    return int(store.array(array_specs.EMBEDDING.name).shape[0])


def _write_npy(file: BinaryIO, store: Store) -> None:
    ratios = store.has_array(array_specs.DISTANCE_RATIO.name)
    n_rows, n_columns = store.array(array_specs.EMBEDDING.name).shape
    header = {"descr": "<f8", "fortran_order": False, "shape": (n_rows, n_columns + ratios)}
    np.lib.format.write_array_header_1_0(file, header)
    for start, rows in store.in_blocks(array_specs.EMBEDDING.name):
        if ratios:
            rows = np.column_stack([rows, store.read(array_specs.DISTANCE_RATIO.name, start, start + len(rows))])
        file.write(np.ascontiguousarray(rows, "<f8").tobytes())


def _write_table(file: BinaryIO, store: Store, suffix: str, further: Sequence[RowColumns]) -> None:
    import pyarrow.parquet as pq

    open_writer = {".parquet": pq.ParquetWriter, ".arrow": pa.ipc.new_file}
    with contextlib.ExitStack() as closing:
        writer = None
        for start, rows in store.in_blocks(array_specs.EMBEDDING.name):
            stop = start + len(rows)
            columns: dict[str, object] = {"row": np.arange(start, stop)}
            columns["component"] = store.read(array_specs.COMPONENT.name, start, stop)
            columns |= {f"y{j + 1}": rows[:, j] for j in range(rows.shape[1])}
            if store.has_array(array_specs.DISTANCE_RATIO.name):
                columns["distance_ratio"] = store.read(array_specs.DISTANCE_RATIO.name, start, stop)
            for part in further:
                columns |= part(start, stop)
            table = pa.table(columns)
            if suffix == ".csv":
                table.to_pandas(integer_object_nulls=True).to_csv(file, header=start == 0, index=False)
                continue
            writer = writer or closing.enter_context(open_writer[suffix](file, table.schema))
            writer.write_table(table)


def input_of_run(attributes: Json, n_rows: int) -> Source:
    """The input of a run with these attributes, opened for `--with`. Raises InputError if it has changed since."""
    source = recorded_input(attributes, n_rows)
    if source is None:
        raise InputError(
            "--with: the input has changed since the run, so its rows may not be those of the embedding",
            advice="run the job again, or export without --with",
        )
    return source


def columns_of_input(source: Source, names: Sequence[str], out: str) -> list[RowColumns]:
    """These columns of an input, for the file `out`; empty without names.

    Raises ConfigError if `out` is no table, or if the input is no table or lacks a column.
    """
    if not names:
        return []
    if Path(out).suffix == ".npy":
        raise ConfigError(f"{out}: --with needs a table; choose a name that ends in .parquet, .arrow or .csv")
    if source.roles is None:
        raise ConfigError("--with: the input has no named columns; only those of Parquet and CSV files can be copied")
    roles = source.roles
    special = [name for name in (roles.label, roles.id) if name is not None]  # the name may be empty
    all_names = [*roles.features, *special, *roles.left_out]
    if missing := [name for name in names if name not in all_names]:
        cure = "; give --with once for each column: --with a --with b" if any("," in name for name in missing) else ""
        quoted = listed([f"'{name}'" for name in missing])
        raise ConfigError(f"--with: the input has no column {quoted}; its columns are {listed(all_names)}{cure}")
    return [reader_of_columns(source, tuple(dict.fromkeys(names)))]


def reader_of_columns(source: Source, names: Sequence[str]) -> RowColumns:
    types = source.column_types(names)

    def read(start: int, stop: int) -> dict[str, pa.Array]:
        table = source.read_columns(names, start, stop)
        return {exported_name(name): table.column(name).cast(types[name]) for name in names}

    return read

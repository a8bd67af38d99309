"""Write the embedding of a store to one file, in input order, a block at a time."""

import contextlib
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..core.errors import ConfigError
from ..engine import current_config
from ..storage import array_specs
from ..storage.storage_errors import storage_errors
from ..storage.store import Store, block_of

SUFFIXES = (".npy", ".parquet", ".csv")


def export_run(store: Store, out: Path) -> int:
    """As `export_embedding`, for the store of a run. Raises ConfigError if it has no finished embedding of its config.

    The check is needed because arrays of an earlier config stay in the store until steps of the new one replace them.
    """
    check_out(out)
    current_config.require_embedding(store)
    return export_embedding(store, out)


def export_embedding(store: Store, out: Path) -> int:
    """Write `out` by its suffix; returns the rows written. Raises ConfigError for another suffix or a missing folder.

    .npy holds the (n_input, n_components) float64 array; .parquet and .csv hold columns row, component, y1, y2, ...
    Where the store holds distance ratios, all three have them as one more column.
    """
    check_out(out)
    array = store.array(array_specs.EMBEDDING.name)
    partial = out.with_name(f".{uuid.uuid4().hex}.partial")  # of this process alone: others may write to `out` too
    with storage_errors(str(out)):
        try:
            with partial.open("xb") as file:
                if out.suffix == ".npy":
                    _write_npy(file, store)
                else:
                    _write_table(file, store, out.suffix)
            partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)
    return int(array.shape[0])


def check_out(out: Path) -> None:
    """Raises ConfigError if `out` has another suffix or no folder, or is a URL (`Path` keeps one slash of its two)."""
    if re.match(r"\w+:/", str(out)):
        raise ConfigError(f"{out}: expected a file on this machine, found a URL; write it here and copy it there")
    if out.suffix not in SUFFIXES:
        raise ConfigError(f"{out}: expected a name that ends in {', '.join(SUFFIXES)}")
    if out.is_dir():
        raise ConfigError(f"{out}: expected the name of a file, found a folder; choose another name")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"{out}: its folder does not exist; create it first")


def _blocks(store: Store) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    array = store.array(array_specs.EMBEDDING.name)
    for start in range(0, array.shape[0], block_of(array)):
        yield start, store.read(array_specs.EMBEDDING.name, start, min(start + block_of(array), array.shape[0]))


def _write_npy(file: BinaryIO, store: Store) -> None:
    ratios = store.has_array(array_specs.DISTANCE_RATIO.name)
    n_rows, n_columns = store.array(array_specs.EMBEDDING.name).shape
    header = {"descr": "<f8", "fortran_order": False, "shape": (n_rows, n_columns + ratios)}
    np.lib.format.write_array_header_1_0(file, header)
    for start, rows in _blocks(store):
        if ratios:
            rows = np.column_stack([rows, store.read(array_specs.DISTANCE_RATIO.name, start, start + len(rows))])
        file.write(np.ascontiguousarray(rows, "<f8").tobytes())


def _write_table(file: BinaryIO, store: Store, suffix: str) -> None:
    import pandas as pd  # noqa: PLC0415 (a second of imports that the other commands need not wait for)
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    with contextlib.ExitStack() as closing:
        writer: pq.ParquetWriter | None = None
        for start, rows in _blocks(store):
            columns: dict[str, Any] = {"row": np.arange(start, start + len(rows))}
            columns["component"] = store.read(array_specs.COMPONENT.name, start, start + len(rows))
            columns |= {f"y{j + 1}": rows[:, j] for j in range(rows.shape[1])}
            if store.has_array(array_specs.DISTANCE_RATIO.name):
                columns["distance_ratio"] = store.read(array_specs.DISTANCE_RATIO.name, start, start + len(rows))
            if suffix == ".csv":
                pd.DataFrame(columns).to_csv(file, header=start == 0, index=False)
                continue
            table = pa.table(columns)
            writer = writer or closing.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)

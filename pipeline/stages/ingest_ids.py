"""The ids of the input rows: copied into the store and checked for duplicates. They enter no computation."""

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.arrays import Int64
from ..core.errors import InputError
from ..engine import checkpoint, current_config, task_costs
from ..engine.step import WHOLE_DATA, Json, Location, Report, Step, task
from ..inputs import open_source
from ..inputs.consistency import array_digest
from ..kernels.neighbors.duplicates import merge_duplicates
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

NAMED_IDS = 5
ID_BYTES = 64
"""Bytes of an id in the plan; most ids are shorter."""
HASH_KEYS = ("first key of ids", "other key of ids")


def read_ids_step(source: Json, blocks: Blocks, bytes_beside: int) -> "Step[IdsReport]":
    """Copy the ids of an input, its column or file `source["id"]`, into the store."""
    return Step(
        "ingest.read_ids",
        task(read_block_of_ids, source=source, blocks=blocks),
        blocks.count,
        task_costs.TASK_BYTES + 4 * ID_BYTES * blocks.size + bytes_beside,
        bundles={array_specs.ROW_IDS: ID_BYTES * blocks.n},
        version=2,
        input_state=open_source(**source).fingerprint(),
        is_measurement=True,
    )


def check_ids_step(blocks: Blocks) -> "Step[RepeatedIds]":
    """Count the rows that have the id of an earlier row."""
    n_bytes = task_costs.TASK_BYTES + 130 * blocks.n + 8 * ID_BYTES * blocks.size
    checked = task(check_ids, blocks=blocks)
    return Step("ingest.check_ids", checked, 1, n_bytes, runs_on=WHOLE_DATA, is_measurement=True)


@dataclass(frozen=True)
class IdsReport(Report):
    """Name of the column ("id" for a file), whether all ids of a block are whole numbers, and how many are missing."""

    name: str
    whole: bool
    missing: int
    block_size: int


@dataclass(frozen=True)
class RepeatedIds(Report):
    duplicates: int
    first: list[str]


def read_block_of_ids(store: Store, block_index: int, source: Location[Json], blocks: Blocks) -> IdsReport:
    """Write the ids of a block; reports whether all are whole numbers, and how many are missing."""
    name, kind = source["id"], source["kind"]
    column = _whole_numbers(open_source(**source).read_columns([name], *blocks.rows(block_index)).column(name))
    are_integers, encoded = _are_integers(column, kind), encode_ids(column)
    store.write_bundle(f"{array_specs.ROW_IDS}/{block_index:05d}", **encoded)
    missing = int((np.diff(encoded["offsets"]) == 0).sum())
    digest = array_digest(encoded["content"], array_digest(encoded["offsets"]))
    return IdsReport("id" if kind == "npy" else name, are_integers, missing, blocks.size, digest=digest)


def _whole_numbers(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """A column of numbers as int64 if all are whole: pandas writes whole numbers as double where one is missing."""
    import pyarrow as pa

    with contextlib.suppress(pa.ArrowInvalid):
        return column.cast(pa.int64()) if pa.types.is_floating(column.type) else column
    return column


def _are_integers(column: "pa.ChunkedArray", kind: str) -> bool:
    """Whether all ids are whole numbers that int64 holds; those of CSV files if they are written so (7, not 007)."""
    import pyarrow as pa  # few runs have ids
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type):
        return column.type != pa.uint64() or (pc.max(column).as_py() or 0) <= np.iinfo(np.int64).max
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise InputError(
            f"input.id: expected a column of whole numbers or text, found the type {column.type}; choose another "
            f"column, or convert it"
        )
    if kind != "csv":
        return False
    return pc.all(pc.match_substring_regex(column, r"^(0|-?[1-9][0-9]{0,17})$")).as_py() is not False


def check_ids(store: Store, block_index: int, blocks: Blocks) -> RepeatedIds:
    """Count the rows that have the id of an earlier row, by 128-bit hashes; missing ids are no duplicates."""
    import pandas as pd  # `lle validate` loads this module

    hashes = np.empty((blocks.n, 2), np.uint64)
    is_valid = np.empty(blocks.n, bool)
    for block in range(blocks.count):
        start, stop = blocks.rows(block)
        ids = read_ids(store, block)
        is_valid[start:stop] = ids.is_valid().to_numpy(zero_copy_only=False)
        texts = np.asarray(ids.fill_null("").to_pylist(), object)
        for half, key in enumerate(HASH_KEYS):
            hashes[start:stop, half] = pd.util.hash_array(texts, hash_key=key, categorize=False)
    first_rows = merge_duplicates(hashes, is_valid)
    repeated = np.flatnonzero(is_valid & (first_rows != np.arange(blocks.n)))
    stored = StoredIds(store, "", False, blocks.size)
    return RepeatedIds(len(repeated), stored.gather(repeated[:NAMED_IDS]))


def encode_ids(ids: "pa.ChunkedArray") -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of a bundle for a chunked Arrow array of ids; null and empty ids are both missing.

    >>> import pyarrow as pa
    >>> encode_ids(pa.chunked_array([["a", None, "bc"]]))["offsets"]
    array([0, 1, 1, 3])
    """
    import pyarrow as pa

    texts = [text.encode() for text in ids.cast(pa.large_string()).fill_null("").to_pylist()]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    return {"offsets": offsets, "content": np.frombuffer(b"".join(texts), np.uint8)}


def read_ids(store: Store, block_index: int) -> "pa.Array":
    """The ids of a block of rows as an Arrow array of text, null where one is missing. Raises CorruptChunk."""
    import pyarrow as pa
    import pyarrow.compute as pc

    stored = store.read_bundle(f"{array_specs.ROW_IDS}/{block_index:05d}")
    buffers = [pa.py_buffer(np.ascontiguousarray(stored[name])) for name in ("offsets", "content")]
    ids = pa.LargeStringArray.from_buffers(len(stored["offsets"]) - 1, *buffers)
    return pc.if_else(pc.equal(ids, ""), pa.scalar(None, pa.large_string()), ids)


class StoredIds(NamedTuple):
    """The ids of a run for exports and the explorer, under the name of their column."""

    store: Store
    name: str
    is_integer: bool
    block_size: int

    def read(self, start: int, stop: int) -> "pa.Array":
        """The ids of rows [start, stop) as an Arrow array of int64 or text, null where one is missing."""
        import pyarrow as pa

        first = start // self.block_size
        parts = [read_ids(self.store, block) for block in range(first, -(-stop // self.block_size))]
        ids = pa.chunked_array(parts).slice(start - first * self.block_size, stop - start)
        return ids.cast(pa.int64() if self.is_integer else pa.string()).combine_chunks()

    def gather(self, rows: Int64) -> list[str]:
        """The ids of some rows, ascending, as text; "" where one is missing."""
        texts: list[str] = []
        for block in np.unique(rows // self.block_size).tolist():
            inside = rows[rows // self.block_size == block] - block * self.block_size
            texts += read_ids(self.store, block).take(inside).fill_null("").to_pylist()
        return texts


def stored_ids(store: Store) -> StoredIds | None:
    """The ids of a run; None if its config names no id."""
    is_current = current_config.current_record(store, "ingest.read_ids") is not None
    if not (reports := checkpoint.reports_of_step(store, "ingest.read_ids", IdsReport) if is_current else []):
        return None
    is_integer = all(report.whole for report in reports)
    name = store.attributes().get("names", {}).get("id") or reports[0].name
    return StoredIds(store, name, is_integer, reports[0].block_size)

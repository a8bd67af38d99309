"""The ids of input rows, as text: one bundle for each block of rows, with the bytes of all ids and the end of each."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .store import Store

ROW_IDS = "ids"
"""Folder of the bundles."""


def encode_ids(ids: Any) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a bundle for a chunked Arrow array of ids; null and empty ids are both missing.

    >>> encode_ids(pa.chunked_array([["a", None, "bc"]]))["offsets"]
    array([0, 1, 1, 3])
    """
    texts = [text.encode() for text in ids.cast(pa.large_string()).fill_null("").to_pylist()]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    return {"offsets": offsets, "content": np.frombuffer(b"".join(texts), np.uint8)}


def write_ids(store: Store, block_index: int, encoded: dict[str, npt.NDArray[Any]]) -> None:
    """Write the ids of a block of rows."""
    store.write_bundle(_name(block_index), **encoded)


def read_ids(store: Store, block_index: int) -> Any:
    """The ids of a block of rows as an Arrow array of text, null where one is missing. Raises CorruptChunk."""
    stored = store.read_bundle(_name(block_index))
    buffers = [pa.py_buffer(np.ascontiguousarray(stored[name])) for name in ("offsets", "content")]
    ids = pa.LargeStringArray.from_buffers(len(stored["offsets"]) - 1, *buffers)
    return pc.if_else(pc.equal(ids, ""), pa.scalar(None, pa.large_string()), ids)


def gather_ids(store: Store, rows: npt.NDArray[np.int64], block_size: int) -> list[str]:
    """The ids of some rows, ascending, stored in blocks of block_size rows; "" where one is missing."""
    texts: list[str] = []
    for block in np.unique(rows // block_size).tolist():
        inside = rows[rows // block_size == block] - block * block_size
        texts += read_ids(store, block).take(pa.array(inside)).fill_null("").to_pylist()
    return texts


def _name(block_index: int) -> str:
    return f"{ROW_IDS}/{block_index:05d}"

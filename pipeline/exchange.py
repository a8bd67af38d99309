"""Rows of points that other blocks need, sent there, so that no chunk of points is read more than twice.

A block of points needs the rows of its neighbours, which lie anywhere in high dimension. Were they read where they
lie, every block would read nearly every chunk. Instead each block asks (`request_rows`: ids, by the block that holds
them), each block answers (`send_rows`: one read of its own chunk, a bundle for each that asked), and the task that
needs them reads its own chunk and what it was sent (`receive_rows`).
"""

import numpy as np
import numpy.typing as npt

from pipeline import schema
from pipeline.plan import Report, block_rows
from pipeline.store import Store

Ids = npt.NDArray[np.integer]

REQUESTS, SENT = "_work/row_requests", "_work/sent_rows"


def foreign_rows(indices: Ids, start: int, stop: int) -> Ids:
    """The distinct ids in (b, K) neighbour lists that lie outside rows [start, stop), ascending; -1 is none."""
    return np.unique(indices[(indices >= 0) & ((indices < start) | (indices >= stop))])


def request_rows(store: Store, block: int, size: int, n_points: int) -> Report:
    """Ask the blocks that hold them for the neighbours of a block of points."""
    start, stop = block_rows(block, size, n_points)
    wanted = foreign_rows(store.read(schema.NEIGHBOR_INDICES.name, start, stop), start, stop)
    sources, first = np.unique(wanted // size, return_index=True)
    for source, low, high in zip(sources.tolist(), first, [*first[1:], len(wanted)], strict=False):
        store.write_bundle(f"{REQUESTS}/{source:05d}/{block:05d}", rows=wanted[low:high])
    return {"rows": len(wanted), "blocks": len(sources)}


def send_rows(store: Store, block: int, size: int, n_points: int) -> Report:
    """Send every block that asked the rows it wants of this one."""
    start, stop = block_rows(block, size, n_points)
    names = store.objects.names(f"{REQUESTS}/{block:05d}")
    points = store.read(schema.POINTS.name, start, stop) if names else None
    sent = 0
    for name in names:
        rows = store.read_bundle(name.removesuffix(".npz"))["rows"]
        target = int(name.rsplit("/", 1)[1].removesuffix(".npz"))
        if points is not None:
            store.write_bundle(f"{SENT}/{target:05d}/{block:05d}", rows=rows, points=points[rows - start])
        sent += len(rows)
    return {"rows": sent, "blocks": len(names)}


def receive_rows(store: Store, block: int, start: int, stop: int, indices: Ids) -> tuple[Ids, npt.NDArray[np.floating]]:
    """(ids, points): the rows [start, stop) of a block and all the neighbours it was sent, ascending ids."""
    wanted = foreign_rows(indices, start, stop)
    before = int(np.searchsorted(wanted, start))
    rows = np.concatenate([wanted[:before], np.arange(start, stop), wanted[before:]])
    array = store.array(schema.POINTS.name)
    points = np.empty((len(rows), array.shape[1]), array.dtype)
    points[before : before + stop - start] = store.read(schema.POINTS.name, start, stop)
    for name in store.objects.names(f"{SENT}/{block:05d}"):
        part = store.read_bundle(name.removesuffix(".npz"))
        points[np.searchsorted(rows, part["rows"])] = part["points"]
    return rows, points

"""Exchange rows of an array between blocks, so that no chunk of the array is read more than twice.

A block of points needs the rows of its neighbours, which are in nearly all blocks if the dimension is high. To read
them directly, every block would read nearly every chunk. Instead, each group of blocks writes the ids that its blocks
need, in one part for each block that holds them (`request_rows`). Each block then reads its own chunk once and its part
of every request, and writes the rows, in one part for each block that needs them (`send_rows`). The task that needs the
rows reads its own chunk and its parts of what the other blocks sent (`receive_rows`).

A task writes all its parts as one object (`Bundles.write_parts`), so there are as many objects as blocks, not as many
as pairs of blocks.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np

from ..core.arrays import Int64, Ints
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.bundles import BATCH_BYTES, Array
from ..storage.store import Store
from . import disk_costs, task_costs
from .plan import Layout
from .second_level import join_step, parts_of
from .step import Report, Step, task

REQUESTS, SENT = "_work/row_requests", "_work/sent_rows"
LISTS = array_specs.NEIGHBOR_INDICES.name
GROUP_BYTES = 32 * 2**20
"""Ids that a request task holds."""


def folders(lists: str) -> tuple[str, str]:
    """Folders of requests and of sent rows; lists other than the final ones have separate folders.

    >>> folders("neighbor_indices"), folders("_work/found")
    (('_work/row_requests', '_work/sent_rows'), ('_work/row_requests_found', '_work/sent_rows_found'))
    """
    suffix = "" if lists == LISTS else f"_{lists.rsplit('/', 1)[-1]}"
    return REQUESTS + suffix, SENT + suffix


def exchanged(n_blocks: int, lists: str = LISTS) -> tuple[str, ...]:
    """The folders that `exchange` leaves."""
    requests, sent = folders(lists)
    return requests, parts_of(sent, n_blocks).folder


def exchange(
    stage: str, layout: Layout, array: str, row: int, lists: str = LISTS
) -> Generator[Step[Report], list[Report], int]:
    """request -> send (-> join_sent), for the rows of `array` (`row` bytes each) whose ids are in the lists `lists`.

    Returns the bytes of a task that receives the rows.
    """
    n, n_blocks = layout.n_points, layout.blocks.count
    block_size, n_ids = layout.block_points, layout.block_points * layout.k_max
    group = max(1, min(isqrt(n_blocks), GROUP_BYTES // (8 * n_ids)))
    n_groups = -(-n_blocks // group)
    requests_folder, sent = folders(lists)
    most_rows, blocks = min(n - min(n, block_size), n_ids), Blocks(n, block_size)
    n_bytes = task_costs.TASK_BYTES + 40 * n_ids + 16 * group * n_ids + task_costs.written_at_once(8 * group * n_ids)
    id_bytes = 16 * n_blocks**2 + 8 * n_blocks * most_rows
    bundles = {requests_folder: disk_costs.parts(writers=n_groups, readers=n_blocks, arrays=3, n_bytes=id_bytes)}
    request = task(request_rows, blocks=blocks, group=group, lists=lists)
    expected = Requested(group * most_rows, min(n, 4 * block_size) if n_blocks > 1 else 0)
    requests = yield from Step(
        f"{stage}.request", request, n_groups, n_bytes, bundles=bundles, version=2, expected=lambda b: expected
    )
    n_bytes = block_size * (7 * row + 32 + 24 * group) + task_costs.written_at_once((n_blocks - 1) * block_size * row)
    sent_bytes = row * sum(report.rows for report in requests)
    bundles = {sent: disk_costs.parts(writers=n_blocks, readers=n_blocks, arrays=1, n_bytes=sent_bytes)}
    send = task(send_rows, array=array, blocks=blocks, group=group, lists=lists)
    yield from Step(f"{stage}.send", send, n_blocks, task_costs.TASK_BYTES + n_bytes, bundles=bundles, version=2)
    largest = max((report.largest for report in requests), default=0)
    yield from join_step(f"{stage}.join_sent", sent, n_blocks, n_blocks, row * largest, sent_bytes)
    return receive_rows_bytes(block_size=block_size, foreign=largest, row=row)


@dataclass(frozen=True)
class Requested(Report):
    """Rows that the blocks of a group request together, and the largest number of one block."""

    rows: int
    largest: int


def foreign_rows(indices: Ints, start: int, stop: int) -> Ints:
    """The distinct ids in (b, K) neighbour lists outside [start, stop), ascending; -1 is ignored."""
    return np.unique(indices[(indices >= 0) & ((indices < start) | (indices >= stop))])


def request_rows(store: Store, block_index: int, blocks: Blocks, group: int, lists: str) -> Requested:
    """Write the ids of the neighbours of a group of blocks, in one part for each block that holds them."""
    bounds = np.arange(blocks.count + 1) * blocks.size
    targets = range(block_index * group, min((block_index + 1) * group, blocks.count))
    needed = [foreign_rows(store.read(lists, *blocks.rows(target)), *blocks.rows(target)) for target in targets]
    cuts = np.array([np.searchsorted(ids, bounds) for ids in needed])
    counts = np.diff(cuts, axis=1)  # (targets, blocks); ids ascend, so those of one block stand together

    def parts() -> Iterator[tuple[int, dict[str, Ints]]]:
        for source in np.flatnonzero(counts.any(axis=0)).tolist():
            rows = np.concatenate(
                [ids[slice(*cut)] for ids, cut in zip(needed, cuts[:, source : source + 2], strict=True)]
            )
            yield source, {"rows": rows, "targets": np.array(targets), "counts": counts[:, source]}

    store.write_parts(f"{folders(lists)[0]}/{block_index:05d}", blocks.count, parts())
    return Requested(int(counts.sum()), int(counts.sum(axis=1).max()))


def send_rows(store: Store, block_index: int, array: str, blocks: Blocks, group: int, lists: str) -> Report:
    """Write the requested rows of this block of an array, in one part for each requesting block."""
    start, stop = blocks.rows(block_index)
    requests_folder, sent = folders(lists)
    names = [f"{requests_folder}/{number:05d}" for number in range(-(-blocks.count // group))]

    def parts() -> Iterator[tuple[int, dict[str, Array]]]:
        values = None
        for request in filter(None, store.read_parts(names, block_index)):
            values = store.read(array, start, stop) if values is None else values
            ends = np.cumsum(request["counts"])
            # The ids of all targets stand one after the other; `counts` divides them.
            for target, count, end in zip(request["targets"].tolist(), request["counts"], ends, strict=True):
                if count:
                    yield target, {"values": values[request["rows"][end - count : end] - start]}

    store.write_parts(f"{sent}/{block_index:05d}", blocks.count, parts())
    return Report()


def receive_rows(
    store: Store, block_index: int, array: str, blocks: Blocks, indices: Ints, lists: str = LISTS
) -> tuple[Ints, Array]:
    """(ids ascending, rows of the array) of the points of a block and of all their neighbours in other blocks."""
    start, stop = blocks.rows(block_index)
    needed = foreign_rows(indices, start, stop)
    n_before = int(np.searchsorted(needed, start))
    rows = np.concatenate([needed[:n_before], np.arange(start, stop), needed[n_before:]])
    stored = store.array(array)
    values = np.empty((len(rows), stored.shape[1]), stored.dtype)
    values[n_before : n_before + stop - start] = store.read(array, start, stop)
    sources = np.unique(needed // blocks.size).astype(np.int64)
    cuts = np.searchsorted(rows, np.column_stack([sources, sources + 1]) * blocks.size)
    # A part holds no ids: it has one row for each id of that block in `rows`, in the same order, since both come from
    # the same lists by `foreign_rows`. The other blocks have no part.
    parts = parts_of(folders(lists)[1], blocks.count)
    if parts.is_joined:
        received = parts.of(store, block_index)
    else:
        received = store.read_parts([f"{parts.folder}/{source:05d}" for source in sources.tolist()], block_index)
    for (low, high), part in zip(cuts, received, strict=True):
        values[low:high] = part["values"]
    return rows, values


def positions_of(ids: Ints, rows: Ints, start: int, stop: int) -> Int64:
    """Positions of neighbours in the rows of `receive_rows`, for the block of the ids start .. stop - 1.

    Most neighbours are in the block itself, so only the others are searched for. Empty slots (-1) get position 0.

    >>> positions_of(np.array([[4, 2], [9, -1]]), np.array([2, 4, 5, 9]), 4, 6)
    array([[1, 0],
           [3, 0]])
    """
    positions = ids + np.int64(np.searchsorted(rows, start) - start)
    foreign = (ids < start) | (ids >= stop)
    positions[foreign] = np.searchsorted(rows, ids[foreign])
    return positions


# --- bytes of a task (engine/task_costs.py explains the terms)


def receive_rows_bytes(*, block_size: int, foreign: int, row: int) -> int:
    received = (block_size + foreign) * (row + 40)
    part = max(min(block_size, foreign) * row, min(BATCH_BYTES, foreign * row))
    return task_costs.TASK_BYTES + received + 3 * part + 2 * block_size * row

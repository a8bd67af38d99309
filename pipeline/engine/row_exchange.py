"""Exchange rows of an array between blocks, so that no chunk of the array is read more than twice.

A block of points needs the rows of its neighbours, which are in nearly all blocks if the dimension is high. To read
them directly, every block would read nearly every chunk. Instead, each block writes the ids that it needs, sorted by
the block that holds them (`request_rows`). Each block then reads its own chunk once and writes a bundle for each
requesting block (`send_rows`). The task that needs the rows reads its own chunk and the bundles sent to it
(`receive_rows`).
"""

from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store
from . import disk_costs, task_costs
from .plan import Decides, Layout, Report, Runs, Step, Writes

Ids = npt.NDArray[np.integer]

REQUESTS, SENT = "_work/row_requests", "_work/sent_rows"
LISTS = array_specs.NEIGHBOR_INDICES.name


def folders(lists: str) -> tuple[str, str]:
    """Folders of requests and of sent rows; lists other than the final ones have separate folders.

    >>> folders("neighbor_indices"), folders("_work/found")
    (('_work/row_requests', '_work/sent_rows'), ('_work/row_requests_found', '_work/sent_rows_found'))
    """
    suffix = "" if lists == LISTS else f"_{lists.rsplit('/', 1)[-1]}"
    return REQUESTS + suffix, SENT + suffix


def exchange(
    stage: str, layout: Layout, array: str, row: int, lists: str = LISTS
) -> Generator[Step, list[Report], int]:
    """request -> send, for the rows (`row` bytes each) of `array` whose ids are in the neighbour lists `lists`.

    Returns the largest number of rows that are sent to one block.
    """
    n, n_blocks = layout.n_points, layout.point_blocks()
    block_size = layout.block_points
    parameters = {"blocks": Blocks(n, block_size), **({} if lists == LISTS else {"lists": lists})}
    requests_folder, sent = folders(lists)
    most_rows = min(n - min(n, block_size), block_size * layout.k_max)
    requests = yield Step(
        stage,
        "request",
        request_rows,
        n_blocks,
        Decides(parameters),
        Runs(task_costs.TASK_BYTES + 40 * block_size * layout.k_max),
        Writes(bundles=(requests_folder,), bundle_bytes=disk_costs.files(n_blocks**2, 8 * n_blocks * most_rows)),
        expected=lambda b: {"rows": min(n, 4 * block_size) if n_blocks > 1 else 0, "most": most_rows},
    )
    n_requested = sum(report["most" if "most" in report else "rows"] for report in requests)
    yield Step(
        stage,
        "send",
        send_rows,
        n_blocks,
        Decides({"array": array, **parameters}),
        Runs(task_costs.TASK_BYTES + block_size * (7 * row + 32)),
        Writes(bundles=(sent,), bundle_bytes=disk_costs.files(n_blocks**2, (8 + row) * n_requested)),
    )
    return max((report["rows"] for report in requests), default=0)


def foreign_rows(indices: Ids, start: int, stop: int) -> Ids:
    """The distinct ids in (b, K) neighbour lists outside [start, stop), ascending; -1 is ignored."""
    return np.unique(indices[(indices >= 0) & ((indices < start) | (indices >= stop))])


def request_rows(store: Store, block_index: int, blocks: Blocks, lists: str = LISTS) -> Report:
    """Write the ids of the neighbours of a block of points, one bundle for each block that holds them."""
    start, stop = blocks.rows(block_index)
    needed = foreign_rows(store.read(lists, start, stop), start, stop)
    sources, first = np.unique(needed // blocks.size, return_index=True)
    for source, low, high in zip(sources.tolist(), first, [*first[1:], len(needed)], strict=False):
        store.write_bundle(f"{folders(lists)[0]}/{source:05d}/{block_index:05d}", rows=needed[low:high])
    return {"rows": len(needed), "blocks": len(sources)}


def send_rows(store: Store, block_index: int, array: str, blocks: Blocks, lists: str = LISTS) -> Report:
    """Write the requested rows of this block of an array, one bundle for each requesting block."""
    start, stop = blocks.rows(block_index)
    requests_folder, answers = folders(lists)
    names = store.objects.names(f"{requests_folder}/{block_index:05d}")
    values = store.read(array, start, stop) if names else None
    sent = 0
    for name in names:
        rows = store.read_bundle(name.removesuffix(".npz"))["rows"]
        target = int(name.rsplit("/", 1)[1].removesuffix(".npz"))
        if values is not None:
            store.write_bundle(f"{answers}/{target:05d}/{block_index:05d}", rows=rows, values=values[rows - start])
        sent += len(rows)
    return {"rows": sent, "blocks": len(names)}


def receive_rows(
    store: Store, block_index: int, array: str, start: int, stop: int, indices: Ids, lists: str = LISTS
) -> tuple[Ids, npt.NDArray[Any]]:
    """(ids ascending, rows of the array) of the points [start, stop) and of all their neighbours in other blocks."""
    needed = foreign_rows(indices, start, stop)
    n_before = int(np.searchsorted(needed, start))
    rows = np.concatenate([needed[:n_before], np.arange(start, stop), needed[n_before:]])
    stored = store.array(array)
    values = np.empty((len(rows), stored.shape[1]), stored.dtype)
    values[n_before : n_before + stop - start] = store.read(array, start, stop)
    for name in store.objects.names(f"{folders(lists)[1]}/{block_index:05d}"):
        part = store.read_bundle(name.removesuffix(".npz"))
        values[np.searchsorted(rows, part["rows"])] = part["values"]
    return rows, values


# --- bytes of a task (engine/task_costs.py explains the terms)


def receive_rows_bytes(*, block_size: int, foreign: int, row: int) -> int:
    received = (block_size + foreign) * (row + 40) + 3 * min(block_size, foreign) * row
    return task_costs.TASK_BYTES + received + 2 * block_size * row

"""Bytes that one task of each step takes, as a function of the plan's integers, and what is done when they do not fit.

A figure counts everything a task holds at its worst moment besides the process that runs it (`PROCESS_BYTES`): what it
reads and writes (a chunk up to three times while it is decoded or encoded) and its work arrays.
`tests/engine/test_task_costs.py` runs every step, measures, and fails when one takes more than its figure. Sizes:
`block` rows of a block, `row` bytes of a stored point, `d` features, `k` neighbour slots, `n` points, `beside` the
rows read what the input's files add.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pipeline.core.errors import NotEnoughMemory
from pipeline.engine.plan import KDTREE_FEATURES, MIN_BLOCK_POINTS, Layout, Stage, Step, walk

MIB = 2**20
GIB = 2**30

PROCESS_BYTES = 384 * MIB  # an idle worker with all of the package imported
TASK_BYTES = 16 * MIB  # what any task takes: buffers of libraries, small arrays, objects of the store
COMPILER_BYTES = 320 * MIB  # importing and compiling pynndescent
LIBRARY_BYTES = 192 * MIB  # importing dask-ml, scikit-learn, or matplotlib and datashader
USABLE_SHARE = 0.9  # dask's nanny ends a worker at 95 % of its limit
SCORE_BYTES = 4 * 8 * 2**20  # chunks of distances, kernels/neighbors/cells.py and kernels/neighbors/knn.py
COUNTED_BLOCKS = 64  # stages/order_points.py reads the counts of so many input blocks at one time
IN_FLIGHT = 10  # chunks that zarr decodes at one time


def task_room(limit: int) -> int:
    """Bytes that a worker with a memory limit has for its task.

    >>> task_room(2 * GIB) // MIB
    1459
    """
    return max(0, int(USABLE_SHARE * limit) - PROCESS_BYTES)


def limit_for(task_bytes: int) -> int:
    """The memory limit, in whole tenths of GiB, of a worker that has room for a task.

    >>> task_room(limit_for(3 * GIB)) >= 3 * GIB
    True
    """
    tenth = GIB // 10
    return -(-int((task_bytes + PROCESS_BYTES) / USABLE_SHARE + tenth) // tenth) * tenth


def check_worker(step: Step, limit: int | None) -> None:
    """Raises NotEnoughMemory when a task of the step does not fit into a worker of `limit` bytes (None: not known)."""
    if limit is None or step.bytes_per_task <= task_room(limit):
        return
    needed = limit_for(step.bytes_per_task)
    refused = NotEnoughMemory(
        f"{step.stage}.{step.name}: a task needs {gib(step.bytes_per_task)}, and a worker of {gib(limit)} has room for "
        f"{gib(task_room(limit))} beside the process itself. Nothing of this step was started. Give each worker "
        f"{gib(needed)} (execution.cluster.memory, or fewer workers on the machine), or {step.cure}"
    )
    refused.exit_code = 2  # a limit of the config: trying again ends the same way
    raise refused


def check_high_memory(step: Step, limit: int | None) -> None:
    """Raises NotEnoughMemory when a whole-data step does not fit into the workers of `limit` bytes that take these."""
    if limit is None or step.bytes_per_task <= task_room(limit):
        return
    refused = NotEnoughMemory(
        f"{step.stage}.{step.name}: this step looks at all points and needs {gib(step.bytes_per_task)}, and the "
        f"high-memory worker of {gib(limit)} has room for {gib(task_room(limit))} beside the process itself. Nothing "
        f"of this step was started. Give that worker {gib(limit_for(step.bytes_per_task))} "
        f"(execution.cluster.high_memory for kind: kubernetes, --memory-limit of the worker for kind: address)"
    )
    refused.exit_code = 2
    raise refused


def check_driver(step: Step, available: int) -> None:
    """Raises NotEnoughMemory when a step that runs in the calling process does not fit into what is available there."""
    if step.bytes_per_task > available:
        raise NotEnoughMemory(
            f"{step.stage}.{step.name}: this step runs in the driver and needs {gib(step.bytes_per_task)}, and "
            f"{gib(available)} are available here. Nothing of this step was started. Start the run on a machine (or in "
            f"a container) with more memory; what is finished is kept"
        )


def check_plan(steps: Iterable[Step], limit: int | None) -> None:
    """Refuse a run whose plan already tells that a step will not fit its workers. Raises NotEnoughMemory."""
    for step in steps:
        if not step.on_driver:
            check_worker(step, limit)


def fit_blocks(stages: Mapping[str, Stage], config: Any, layout: Layout, limit: int | None) -> Layout:
    """The layout with the largest power of two of points a block, up to the layout's, whose tasks fit the workers.

    Not below MIN_BLOCK_POINTS: where even that does not fit, the step itself is refused with its numbers.
    """
    while limit is not None and layout.block_points > MIN_BLOCK_POINTS:
        steps = walk(stages, config, layout)
        if all(step.on_driver or step.bytes_per_task <= task_room(limit) for step in steps):
            break
        layout = replace(layout, block_points=1 << (layout.block_points - 1).bit_length() - 1)
    return layout


def gib(n_bytes: int) -> str:
    """
    >>> gib(3 * GIB // 2), gib(5 * MIB)
    ('1.50 GiB', '0.005 GiB')
    """
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes >= GIB // 10 else f"{n_bytes / GIB:.3f} GiB"


def _tree(rows: int, d: int) -> int:
    """A k-d tree with its float64 points, where the kernels build one."""
    return rows * (8 * d + 32) if d <= KDTREE_FEATURES else 0


# --- ingest


def read_input(*, block: int, row: int, d: int, sample: int, beside: int) -> int:
    return TASK_BYTES + block * (2 * row + max(8 * d, 2 * row) + 128) + 5 * sample * row + beside


def read_labels(*, block: int, width: int, beside: int) -> int:
    return TASK_BYTES + block * (64 * width + 128) + beside


def merge_duplicates(*, n: int) -> int:
    return TASK_BYTES + 130 * n


def fit(*, block: int, d: int, tall: int) -> int:
    """`tall` rows in a block of the QR; 0 without components."""
    return TASK_BYTES + LIBRARY_BYTES + 8 * d * (8 * block + 6 * tall)


# --- order_points


def find_cells(*, sample: int, row: int, d: int) -> int:
    return TASK_BYTES + LIBRARY_BYTES + sample * (3 * row + 48 * d + 32)


def sort(*, block: int, row_in: int, row: int, d: int, nearest: int, transform: bool, n_cells: int) -> int:
    rows = block * (3 * row_in + 4 * row + 32 * d * transform + 24 * nearest + 64)
    return TASK_BYTES + SCORE_BYTES + 40 * n_cells * d + rows


def gather(*, block: int, row: int, nearest: int, n_blocks: int, n_cells: int) -> int:
    counts = 24 * COUNTED_BLOCKS * n_cells + 16 * (n_blocks + n_cells)
    return TASK_BYTES + block * (6 * row + 24 * nearest + 64) + counts


def keep_cells(*, n_blocks: int, n_cells: int, d: int, d_in: int) -> int:
    return group_cells(n_blocks=n_blocks, n_cells=n_cells) + 40 * d * (n_cells + d_in)


# --- find_neighbors


def search_tree(*, block: int, halo: int, row: int, d: int, k: int, n_boxes: int) -> int:
    trees = (block + halo) * (3 * row + 16 * d + 32)
    return TASK_BYTES + block * (3 * row + 8 * d + 150 * k) + trees + 64 * n_boxes * d


def search_brute(*, block: int, n: int, row: int, d: int, k: int) -> int:
    in_flight = min(n, IN_FLIGHT * block)
    return TASK_BYTES + 2 * SCORE_BYTES + n * (row + 16) + 2 * in_flight * row + block * 80 * k + 4096 * 16 * d


def group_cells(*, n_blocks: int, n_cells: int) -> int:
    return TASK_BYTES + 32 * n_blocks * n_cells


def send_members(*, block: int, row: int) -> int:
    return TASK_BYTES + block * (6 * row + 320)


def search_cells(*, members: int, row: int, d: int, k: int) -> int:
    return TASK_BYTES + COMPILER_BYTES + 2 * SCORE_BYTES + members * (3 * row + 8 * d + 120 * k + 1200)


def search_new(*, old: int, late: int, row: int, d: int, k: int) -> int:
    tiles = min(late, 8192) * (1024 * 12 + ((old + late) // 1024 + 2) * 48 * k)  # a tenth of a tile's pairs may be near
    return TASK_BYTES + SCORE_BYTES + (old + late) * (4 * row + 24 * d + 100 * k) + tiles


def merge_lists(*, block: int, k: int, lists: int) -> int:
    return TASK_BYTES + block * lists * k * 80


# --- lists of varying length


def read_k(*, n: int, block: int) -> int:
    return TASK_BYTES + 40 * n + 128 * block


def read_graph(*, n: int, block: int, k: int) -> int:
    return TASK_BYTES + n * (60 + 12 * k) + 32 * block * k


def cut_lists(*, block: int, foreign: int, row: int, k: int, batch: int) -> int:
    return receive_rows(block=block, foreign=foreign, row=row) + 6 * batch + block * k * 64


# --- mend_graph


def choose_recall_sample(*, sample: int, block: int, n: int, row: int, d: int, k: int) -> int:
    rows = sample + min(n, sample * k)
    return TASK_BYTES + SCORE_BYTES + 3 * block * row + rows * (row + 8) + sample * (4 * row + 64 * k)


def sample_exact(*, sample: int, block: int, row: int, d: int, k: int) -> int:
    hits = sample * k * (200 + (24 * d if d <= KDTREE_FEATURES else 0))
    return TASK_BYTES + 3 * block * row + _tree(block, d) + sample * (3 * row + 24 * d) + hits + 4096 * 24 * d


def measure_recall(*, sample: int, k: int, hits: int) -> int:
    return TASK_BYTES + sample * k * 300 + 100 * hits


def analyse_graph(*, n: int, k: int) -> int:
    return TASK_BYTES + n * (60 * k + 100)


def apply_repair(*, block: int, k: int) -> int:
    return TASK_BYTES + block * k * 80


# --- exchange of rows, solve_weights


def request_rows(*, block: int, k: int) -> int:
    return TASK_BYTES + block * k * 40


def send_rows(*, block: int, row: int) -> int:
    return TASK_BYTES + block * (7 * row + 32)


def receive_rows(*, block: int, foreign: int, row: int) -> int:
    return TASK_BYTES + (block + foreign) * (row + 40) + 2 * block * row + 3 * min(block, foreign) * row


def solve_weights(*, block: int, foreign: int, row: int, k: int, batch: int) -> int:
    return receive_rows(block=block, foreign=foreign, row=row) + 6 * batch + block * k * 48


# --- local_factors


def spread(*, block: int, foreign: int, row: int, k: int, batch: int) -> int:
    return receive_rows(block=block, foreign=foreign, row=row) + 6 * batch + block * (k * 48 + 32)


def find_threshold(*, n: int) -> int:
    return TASK_BYTES + 40 * n


def list_unlisted(*, n: int, k: int) -> int:
    return TASK_BYTES + n * (60 * k + 16)


def solve_factors(*, block: int, foreign: int, row: int, k: int, batch: int, factor: int) -> int:
    """`factor` entries of F a point; the kernels' square matrices stay until the rows are put in order."""
    rows = block * (8 * (k + 1) ** 2 + 48 * factor + 48 * k)
    return receive_rows(block=block, foreign=foreign, row=row) + 6 * batch + rows


def measure_links(*, block: int, k: int) -> int:
    return TASK_BYTES + 48 * block * k


def weigh_edges(*, block: int, foreign: int, row: int, k: int, links: int) -> int:
    return receive_rows(block=block, foreign=foreign, row=row) + 16 * links + 200 * block * k


def add_degrees(*, n: int, block: int, k: int) -> int:
    return TASK_BYTES + 24 * n + 100 * block * k


def factor_edges(*, block: int, k: int) -> int:
    return TASK_BYTES + 240 * block * k


# --- assemble_cost


def contribute(*, factor: int, products: int) -> int:
    """`factor` entries of F, and `products` entries of M at one time, while the largest of them are written."""
    return TASK_BYTES + 60 * factor + 40 * products


def merge_rows(*, entries: int) -> int:
    return TASK_BYTES + 80 * entries


# --- measure_quality


def choose_quality_sample(*, n: int, m: int, sample: int, block: int, row: int, d: int, k: int) -> int:
    near = 2 * sample * (k + 1)
    return TASK_BYTES + n * (40 * m + 120) + 3 * block * row + near * (row + 32 * d + 64) + sample * 4 * row


def count_closer(*, m: int, sample: int, block: int, row: int, d: int, k: int) -> int:
    points = block * (4 * row + 32 * m + 64) + _tree(block, d) + 8192 * 24 * d
    return TASK_BYTES + 2 * SCORE_BYTES + points + sample * (3 * row + 16 * d + 80 * k)


def score(*, n: int, m: int, sample: int, d: int, k: int, n_blocks: int) -> int:
    spread = sample * (16 * k * (n_blocks + 6) + 24 * d + 400 * m + 400)
    return TASK_BYTES + 2 * SCORE_BYTES + n * (24 * m + 16) + spread


def compare_geodesics(*, n: int, m: int, k: int, sample: int) -> int:
    return TASK_BYTES + n * (90 * k + 32 * m + 100) + sample * 5000


def compare_labels(*, block: int, m: int, sample: int, d: int, k: int, width: int) -> int:
    listed = sample * (k + 1) * (32 + 32 * width)
    return TASK_BYTES + 3 * block * (8 * width + 8) + 8 * 8 * 500**2 + listed + sample * (8 * d + 24 * m + 64 * width)


# --- embed_new


def calibrate(*, sample: int, block: int, k: int) -> int:
    return TASK_BYTES + sample * k * 120 + 3 * block * k * 16


def embed_new(
    *, block: int, n: int, row_in: int, row: int, d: int, k: int, k_max: int, m: int, halo: int, stored: int,
    n_boxes: int, batch: int,
) -> int:  # fmt: skip
    """`block` new rows against n points stored in blocks of `stored` rows, `halo` of them at a time."""
    search = halo * (3 * row + 64) + _tree(halo, d) + block * (16 * d + 150 * k) + 2 * SCORE_BYTES
    read = min(n, block * k) * (row + 8 * m + 16 * k_max + 64) + 3 * stored * max(row, 8 * m, 8 * k_max)
    return TASK_BYTES + block * (3 * row_in + 16 * d + 8 * m) + n_boxes * (64 * d + 32) + search + read + 6 * batch


# --- write_report


def write_report(*, rows: int, m: int) -> int:
    return TASK_BYTES + LIBRARY_BYTES + rows * (48 * m + 160)

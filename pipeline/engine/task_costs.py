"""Memory of tasks: constants for the formulas in the `task_bytes` of the steps, and checks against the limits.

A formula gives the peak memory of a task, without that of its process (`PROCESS_BYTES`): the data it reads and writes
(up to three copies of a chunk while it is decoded or encoded) and its work arrays. tests/engine/test_measured_memory.py
runs every step and compares the measured peak. Sizes: `block_size` rows of a block, `row` bytes of a stored point,
`d` features, `k` neighbour slots, `n` points, `bytes_beside` bytes of the reader of the input, without the rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..clusters.limits import memory_of_high_memory, memory_of_task, memory_resource
from ..config.models import Config
from ..core.errors import NotEnoughMemory, gib
from ..storage.bundles import OBJECT_BYTES
from .plan import Layout, Stage, planned
from .plan_sizes import KDTREE_FEATURES, MAX_BLOCKS, MIN_BLOCK_POINTS
from .step import DRIVER, WHOLE_DATA, Report, RunsOn, Step

MIB = 2**20
GIB = 2**30

PROCESS_BYTES = 384 * MIB  # an idle worker with all of the package imported
TASK_BYTES = 16 * MIB  # in every task: buffers of libraries, small arrays, objects of the store
COMPILER_BYTES = 480 * MIB  # importing and compiling pynndescent
LIBRARY_BYTES = 192 * MIB  # importing dask-ml, scikit-learn, or matplotlib
USABLE_SHARE = 0.9  # dask's nanny ends a worker at 95 % of its limit
SCORE_BYTES = 4 * 8 * 2**20  # chunks of distances, kernels/neighbors/cells.py and kernels/neighbors/knn.py
COUNTED_BLOCKS = 64  # input blocks whose counts stages/order_points.py reads at one time
IN_FLIGHT = 10  # chunks that zarr decodes at one time


def task_room(limit: int) -> int:
    """Bytes that a worker with a memory limit has for its task."""
    return max(0, int(USABLE_SHARE * limit) - PROCESS_BYTES)


def limit_for(task_bytes: int) -> int:
    """The memory limit, in whole tenths of GiB, of a worker that has room for a task."""
    tenth = GIB // 10
    return -(-int((task_bytes + PROCESS_BYTES) / USABLE_SHARE + tenth) // tenth) * tenth


def where(step: Step[Report], config: Config) -> RunsOn:
    """Where a step's tasks run: without high-memory workers, steps over all points run in the driver."""
    is_elsewhere = step.runs_on == WHOLE_DATA and memory_resource(config.execution.cluster) is None
    return DRIVER if is_elsewhere else step.runs_on


def fits(step: Step[Report], config: Config) -> bool:
    """Whether a step's task fits its worker, as far as limits are known; the driver's memory is checked in the run."""
    cluster = config.execution.cluster
    limit = memory_of_high_memory(cluster) if step.runs_on == WHOLE_DATA else memory_of_task(cluster)
    return step.all_cores or limit is None or step.task_bytes <= task_room(limit)


def has_worker_tasks(step: Step[Report]) -> bool:
    """Whether workers need memory for this step. A step of the driver (DRIVER) sends them tasks of the same size."""
    return step.runs_on != WHOLE_DATA and not step.all_cores


def check_worker(step: Step[Report], limit: int | None) -> None:
    """Raises NotEnoughMemory when a task of the step does not fit into its worker of `limit` bytes (None: unknown)."""
    if limit is None or step.task_bytes <= task_room(limit):
        return
    needed = limit_for(step.task_bytes)
    if step.runs_on == WHOLE_DATA:
        what, worker = "this step processes all points and needs", "the high-memory worker"
        cure = (
            f"that worker {gib(needed)} (execution.cluster.high_memory for kind: kubernetes, --memory-limit of the "
            f"worker for kind: address)"
        )
    else:
        what, worker = "a task needs", "a worker"
        cure = (
            f"each worker {gib(needed)} (execution.cluster.memory, or fewer workers on the machine), or {step.advice}"
        )
    refused = NotEnoughMemory(
        f"{step.key}: {what} {gib(step.task_bytes)}, and {worker} of {gib(limit)} has room for "
        f"{gib(task_room(limit))} beside the process itself. Nothing of this step was started. Give {cure}",
        exit_code=2,
    )
    refused.worker_bytes = needed
    raise refused


def check_driver(step: Step[Report], available: int) -> None:
    """Raises NotEnoughMemory if a step that runs in the calling process needs more than `available` bytes."""
    if step.task_bytes > available:
        raise NotEnoughMemory(
            f"{step.key}: this step runs in the driver and needs {gib(step.task_bytes)}, and "
            f"{gib(available)} are available here. Nothing of this step was started. Start the run on a machine (or in "
            f"a container) with more memory; finished steps are kept"
        )


def check_plan(steps: Iterable[Step[Report]], limit: int | None) -> None:
    """Raises NotEnoughMemory if the plan has a step that does not fit its workers."""
    for step in steps:
        if has_worker_tasks(step):
            check_worker(step, limit)


def fit_workers(steps: Iterable[Step[Report]], limit: int | None) -> bool:
    """Whether the tasks that run on workers fit workers of `limit` bytes (None: unknown)."""
    return limit is None or all(step.task_bytes <= task_room(limit) for step in filter(has_worker_tasks, steps))


def fit_blocks(stages: Mapping[str, Stage], layout: Layout, *limits: int | None) -> Layout:
    """The layout with the largest block size whose tasks fit the workers: the layout's own, or a smaller power of two.

    Blocks have at least MIN_BLOCK_POINTS points, and there are at most MAX_BLOCKS. The next of the `limits` of a worker
    counts if no block size fits one. If the smallest size does not fit the last limit, the step is refused later.
    """
    least = max(MIN_BLOCK_POINTS, 2 * -(-layout.n_input // MAX_BLOCKS))
    smaller = layout
    for limit in limits:
        smaller = layout
        while limit is not None:
            steps, _ = planned(stages, smaller)
            if fit_workers(steps, limit):
                return smaller
            if smaller.block_points <= least:
                break
            smaller = replace(smaller, block_points=1 << (smaller.block_points - 1).bit_length() - 1)
    return smaller


def written_at_once(n_bytes: int) -> int:
    """Bytes that `write_parts` holds of parts of `n_bytes` together: an object, and its copy while it is written."""
    return 2 * min(OBJECT_BYTES, n_bytes)


def tree_bytes(rows: int, d: int) -> int:
    """Bytes of a k-d tree with its float64 points; 0 for dimensions in which the kernels build no tree."""
    return rows * (8 * d + 32) if d <= KDTREE_FEATURES else 0

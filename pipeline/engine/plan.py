"""The plan of a run in integers: blocks, steps, bytes. Nothing is computed or stored here.

A stage is a generator of `Step` records. A step holds its function, its number of blocks and what it writes. The stage
receives the reports of the blocks, and derives the sizes of its next step from them (points after duplicates are
merged, width of the neighbour lists). `lle plan` drives the same generators with `expected` reports, so plan and run
always agree.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..storage.array_specs import PlannedArray, dtype_bytes

Report = dict[str, Any]
Json = dict[str, Any]

CHUNK_BYTES = 32 * 2**20
MAX_BLOCK_POINTS = 65_536
MIN_BLOCK_POINTS = 1_024
BLOCKS_PER_WORKER = 3  # fewer leave workers idle at the end of a step
BLOCK_WORK, ROW_WORK = 2**20, 128  # least work of a block; a row of d features counts as ROW_WORK + d
CLUSTER_BLOCKS = 8  # least blocks of BLOCK_WORK that are worth the start of workers
MAX_BLOCKS = 1_000_000  # a plan of ten times as many takes gigabytes
KDTREE_FEATURES = 10
KDTREE_FEATURES_OF_MANY, KDTREE_POINTS = 5, 50_000  # with more points, trees are used only for fewer features
BRUTE_POINTS = 20_000
CELL_POINTS = 2048
MAX_CELLS = 4096
SAMPLE_PER_CELL = 40


@dataclass(frozen=True)
class Earlier:
    """A finished version that a run with appended rows builds on: it keeps its order of points and neighbour lists.

    `n_input` and `n_points` are the rows and points of the version, `lists` is the folder of its neighbour lists. Its
    first `n_searched` points were searched together; the others were appended later, in `generations` runs.
    """

    url: str
    version: str
    n_input: int
    n_points: int
    n_searched: int
    n_cells: int
    n_nearest: int
    lists: str
    generations: int


@dataclass(frozen=True)
class Layout:
    """Sizes of a run. Stages fill in more of them as they become known."""

    n_input: int
    n_features_input: int
    dtype: str
    block_points: int
    label_width: int = 0
    bytes_beside: int = 0  # bytes held while a block of the input is read, besides its rows
    n_points: int = 0
    n_features: int = 0
    n_cells: int = 0
    k_max: int = 0
    lists: str = "_work"  # folder of the neighbour lists that the graph was built from
    n_components: int = 1
    n_large: int = 1  # components with graph.min_component input rows
    factor_entries: int = 0  # entries of the factor F in its largest block; 0: unknown
    earlier: Earlier | None = None

    def input_blocks(self) -> int:
        return math.ceil(self.n_input / self.block_points)

    def point_blocks(self) -> int:
        return math.ceil(self.n_points / self.block_points)

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored point."""
        return self.n_features * dtype_bytes(self.dtype)


Place = Literal["worker", "whole data", "driver"]
WORKER: Place = "worker"
"""Any worker: the step processes one block at a time."""
WHOLE_DATA: Place = "whole data"
"""The cluster's high-memory worker, or the driver if there is none: the step processes all points at once."""
DRIVER: Place = "driver"
"""Always the calling process: the step itself uses the Dask client."""


@dataclass(frozen=True)
class Decides:
    """Everything that determines the result of a step; all of it is part of the step's fingerprint.

    `identity` is the state of other data that determine the result, such as the input files. `digested` names the
    parameters that only locate data (a path): another path with the same bytes, as the digests in the reports
    show, is the same data. A step that `shows_records`
    depends on the store's records and attributes (`checkpoint.with_records`).
    """

    parameters: Json
    identity: Json = field(default_factory=dict)
    version: int = 1
    digested: tuple[str, ...] = ()
    shows_records: bool = False


@dataclass(frozen=True)
class Runs:
    """How the tasks of a step run; none of it changes the result.

    `bytes_per_task` is the peak memory of a task, without that of its process. `all_cores` removes the limit of one
    thread. `resources` are further keyword arguments of the function. `remark` is logged when the step begins, `cure`
    is the advice if a task does not fit its worker. `state(store)` returns a line on what the tasks do now, empty if
    that is unknown; it is logged when its part before the first colon changes, and from time to time.
    """

    bytes_per_task: int
    place: Place = WORKER
    all_cores: bool = False
    resources: Json = field(default_factory=dict)
    remark: str = ""
    state: Callable[[Any], str] | None = None
    cure: str = "set execution.block_points: auto, which uses the largest blocks that fit"


@dataclass(frozen=True)
class Writes:
    """Data that a step writes to the store: arrays, and bundles of at most `bundle_bytes`, all blocks together."""

    arrays: tuple[PlannedArray, ...] = ()
    bundles: tuple[str, ...] = ()
    bundle_bytes: int = 0

    @property
    def disk_bytes(self) -> int:
        """Upper bound on the bytes that the step writes to the store, all blocks together."""
        return sum(array.nbytes for array in self.arrays) + self.bundle_bytes


@dataclass(frozen=True)
class Step:
    """One function over numbered blocks.

    `function(store, block_index, **parameters, **resources) -> Report` reads, computes and writes whole chunks that no
    other block writes. `expected(block_index)` is the report that `lle plan` assumes. Steps with `feeds` false
    (measurements) do not invalidate the steps after them.
    """

    stage: str
    name: str
    function: Callable[..., Report]
    n_blocks: int
    decides: Decides
    runs: Runs
    writes: Writes = field(default_factory=Writes)
    expected: Callable[[int], Report] = lambda block_index: {}
    feeds: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """Stage and name, which identify the step in a store."""
        return self.stage, self.name


@dataclass(frozen=True)
class BlockReport:
    """The report of a finished task: scalars only, stored in its marker.

    `peak_bytes` is the peak memory of its process while it ran, `base_bytes` the memory before. `bundles` are the
    names of the bundles that the task wrote.
    """

    block: int
    seconds: float
    peak_bytes: int
    report: Report
    base_bytes: int = 0
    bundles: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """The result of a run: metrics, and the number of blocks that each stage computed and reused.

    `version` is the published version (None without output.keep). `unchanged` is true if there was nothing to compute.
    """

    store: str
    metrics: dict[str, Any]
    computed: dict[str, int]
    reused: dict[str, int]
    seconds: float
    version: str | None = None
    unchanged: bool = False


Steps = Generator[Step, list[Report], Layout]
Stage = Callable[[Any, Layout], Steps]


def block_points(requested: int | str, n_rows: int, row_bytes: int) -> int:
    """Rows of a block: the requested number, or the power of two that keeps a chunk of points within 32 MiB.

    >>> block_points("auto", 10**6, 3 * 4), block_points("auto", 70_000, 784 * 4), block_points(500, 10**6, 12)
    (65536, 8192, 500)
    """
    if isinstance(requested, int):
        return min(requested, max(n_rows, 1))
    fitting = 1 << int(math.log2(max(CHUNK_BYTES // row_bytes, 1)))
    block = min(MAX_BLOCK_POINTS, max(MIN_BLOCK_POINTS, fitting))
    return min(block, max(n_rows, 1))


def block_points_for(n_workers: int, layout: Layout) -> int:
    """Rows of a block, at most the layout's, so that each worker gets BLOCKS_PER_WORKER blocks.

    Blocks are not smaller than BLOCK_WORK, and an input of one block is divided only if it is worth several workers.

    >>> roll, images = Layout(100_000, 3, "float64", 65_536), Layout(20_000, 784, "float32", 8192)
    >>> block_points_for(2, roll), block_points_for(16, roll), block_points_for(2, images)
    (16384, 8192, 2048)
    >>> block_points_for(2, Layout(10_000, 3, "float64", 10_000))
    10000
    """
    least = BLOCK_WORK // (ROW_WORK + layout.n_features_input)
    if layout.input_blocks() == 1 and layout.n_input < CLUSTER_BLOCKS * least:
        return layout.block_points
    even = 1 << int(math.log2(max(layout.n_input // (BLOCKS_PER_WORKER * n_workers), 1)))
    useful = 1 << max(least - 1, 0).bit_length()
    return min(layout.block_points, max(even, useful, MIN_BLOCK_POINTS))


def n_cells(n_points: int) -> int:
    """Number of cells for `n_points` points."""
    return min(MAX_CELLS, math.ceil(n_points / CELL_POINTS))


def max_boxes(n_cells: int, n_blocks: int, generations: int = 0) -> int:
    """Upper bound on the number of bounding boxes: one per cell and generation of appended points, cut at block ends.

    >>> max_boxes(n_cells=10, n_blocks=3), max_boxes(n_cells=10, n_blocks=3, generations=2)
    (13, 35)
    """
    return (generations + 1) * n_cells + n_blocks + generations


def sample_size(n_rows: int) -> int:
    """Input rows to sample for finding the cells: twice the required number, because some rows are dropped."""
    return min(n_rows, max(1000, 2 * SAMPLE_PER_CELL * n_cells(n_rows)))


def sampled_per_block(layout: Layout) -> int:
    """Largest number of these rows in one input block."""
    return min(layout.block_points, math.ceil(sample_size(layout.n_input) * layout.block_points / layout.n_input) + 1)


def neighbor_method(requested: str, n_points: int, n_features: int) -> str:
    """The search method: for `auto`, k-d tree for few features, brute force for few points, else NN-descent.

    In many dimensions a block of points has nearly all others within reach, so tree search takes quadratic time:
    minutes for 120,000 Gaussian points in ten dimensions, where NN-descent takes seconds.

    >>> neighbor_method("auto", 10**6, 3), neighbor_method("auto", 1797, 64), neighbor_method("auto", 70_000, 784)
    ('kdtree', 'brute', 'pynndescent')
    >>> neighbor_method("auto", 50_000, 10), neighbor_method("auto", 10**6, 10)
    ('kdtree', 'pynndescent')
    """
    if requested != "auto":
        return requested
    if n_features <= (KDTREE_FEATURES if n_points <= KDTREE_POINTS else KDTREE_FEATURES_OF_MANY):
        return "kdtree"
    return "brute" if n_points <= BRUTE_POINTS else "pynndescent"


def largest_total(counts: Sequence[Mapping[str, int]]) -> int:
    """The largest sum of counts for one target over all blocks, which is the amount in its task.

    >>> largest_total([{"0": 2, "1": 3}, {"1": 4}])
    7
    """
    totals: dict[str, int] = {}
    for count in counts:
        for target, number in count.items():
            totals[target] = totals.get(target, 0) + number
    return max(totals.values(), default=0)


def factor_entries(method: str, k: int, n_components: int) -> int:
    """Upper bound on the entries of the factor F per point: rows over its neighbourhood, or edges with two ends.

    >>> factor_entries("lle", 12, 2), factor_entries("ltsa", 12, 2), factor_entries("hessian", 12, 2)
    (13, 130, 39)
    """
    rows = {
        "lle": 1, "modified": k - 1, "ltsa": max(1, k - n_components), "hessian": n_components * (n_components + 1) // 2
    }  # fmt: skip
    return 2 * k if method == "laplacian" else rows[method] * (k + 1)


def index_dtype(n: int) -> str:
    """dtype of point ids: int32 if they fit, else int64."""
    return "int32" if n < 2**31 else "int64"


def drive(steps: Steps, run_step: Callable[[Step], list[Report]]) -> Layout:
    """Run a stage: pass each of its steps to `run_step`, send the reports back; returns the layout at its end."""
    try:
        step = next(steps)
        while True:
            step = steps.send(run_step(step))
    except StopIteration as stop:
        layout: Layout = stop.value
        return layout


def walk(
    stages: Mapping[str, Stage],
    config: Any,
    layout: Layout,
    finished_reports: Callable[[Step], list[Report] | None] | None = None,
) -> tuple[list[Step], Layout]:
    """All steps of a run and its last layout, from `finished_reports` if known, else expected; computes nothing."""
    steps: list[Step] = []

    def assume(step: Step) -> list[Report]:
        steps.append(step)
        reports = finished_reports(step) if finished_reports is not None else None
        return reports or [step.expected(block_index) for block_index in range(step.n_blocks)]

    for stage in stages.values():
        layout = drive(stage(config, layout), assume)
    return steps, layout

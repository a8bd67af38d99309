"""The plan of a run in integers: blocks, steps, bytes. Nothing is computed or stored here.

A stage is a generator of `Step` records. A step holds its function, its number of blocks and what it writes. The stage
receives the reports of the blocks, and derives the sizes of its next step from them (points after duplicates are
merged, width of the neighbour lists). `lle plan` drives the same generators with `expected` reports, so plan and run
always agree.
"""

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..storage.array_specs import PlannedArray, dtype_bytes

Report = dict[str, Any]
Json = dict[str, Any]


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
    (measurements) do not invalidate the steps after them. `frees` are arrays and bundles of earlier steps of the stage
    that no step after this one reads: they are deleted when all blocks of this step are done.
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
    frees: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Stage and name, which identify the step in a store."""
        return self.stage, self.name

    @property
    def written(self) -> set[str]:
        """Names of the arrays and bundles that the step writes."""
        return {array.spec.name for array in self.writes.arrays} | set(self.writes.bundles)


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


def disk_totals(steps: Iterable[Step]) -> tuple[int, int]:
    """Upper bounds on the bytes that these steps hold in the store: the largest during the run, and at its end."""
    held, largest, sizes = 0, 0, dict[str, int]()
    for step in steps:
        held += step.writes.disk_bytes
        largest = max(largest, held)
        sizes |= {array.spec.name: array.nbytes for array in step.writes.arrays}
        sizes |= dict.fromkeys(step.writes.bundles[:1], step.writes.bundle_bytes)
        held -= sum(sizes.pop(name, 0) for name in step.frees)
    return largest, held


def freed_inputs(before: Sequence[tuple[Step, set[str]]]) -> list[int]:
    """Positions of the steps whose freed data the next step of the stage may read.

    `before` are the earlier steps of the stage, each with those of its arrays and bundles that were freed. A step does
    not read what an earlier one frees.
    """
    needed, freed_earlier = list[int](), set[str]()
    for number in range(len(before) - 1, -1, -1):
        step, freed = before[number]
        if freed - freed_earlier:
            needed.insert(0, number)
        freed_earlier |= set(step.frees)
    return needed


Steps = Generator[Step, list[Report], Layout]
Stage = Callable[[Any, Layout], Steps]


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

"""The plan of a run in integers: blocks, steps, bytes. Nothing is computed or stored here.

A stage is a generator of `Step` records, which receives the reports of their blocks. `lle plan` drives the same
generators with `expected` reports, so plan and run always agree.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from ..storage.blocks import Blocks
from ..storage.store import Store
from .step import Json, Report, Step


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

    @property
    def input_blocks(self) -> Blocks:
        return Blocks(self.n_input, self.block_points)

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.n_points, self.block_points)

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored point."""
        return self.n_features * np.dtype(self.dtype).itemsize


Steps = Generator[Step[Report], list[Report], Layout]
Stage = Callable[[Layout], Steps]
"""The steps of a stage of one run, from the sizes before it."""


@dataclass(frozen=True)
class RunResult:
    """The result of a run: metrics, and the number of blocks that each stage computed and reused.

    `version` is the published version (None without output.keep). `unchanged` is true if no new version was published.
    """

    store: str
    metrics: Json
    computed: dict[str, int]
    reused: dict[str, int]
    seconds: float
    version: str | None = None
    unchanged: bool = False


def disk_totals(steps: Iterable[Step[Report]]) -> tuple[int, int]:
    """Upper bounds on the bytes that these steps hold in the store: the largest during the run, and at its end."""
    held, largest, sizes = 0, 0, dict[str, int]()
    for step in steps:
        held += step.disk_bytes
        largest = max(largest, held)
        sizes |= {array.spec.name: array.nbytes for array in step.arrays} | dict(step.bundles)
        held -= sum(sizes.pop(name, 0) for name in step.deletes)
    return largest, held


def deleted_inputs(before: Sequence[tuple[Step[Report], set[str]]]) -> list[int]:
    """Positions of the steps whose deleted data the next step of the stage may read.

    `before` are the earlier steps of the stage, each with those of its arrays and bundles that were deleted. A step
    does not read what an earlier one deletes.
    """
    needed, deleted_earlier = list[int](), set[str]()
    for number in range(len(before) - 1, -1, -1):
        step, deleted = before[number]
        if deleted - deleted_earlier:
            needed.insert(0, number)
        deleted_earlier |= set(step.deletes)
    return needed


@dataclass
class History:
    """Finished steps that a run may reuse, in `source_stores`. This base class is for stores without versions.

    `attributes` are those of the run's store besides its config and input.
    """

    source_stores: tuple[Store, ...] = ()
    attributes: Json = field(default_factory=dict)

    def prepared(self, step: Step[Report]) -> Step[Report]:
        """The step with information about earlier runs."""
        return step

    def chained(self, upstream: str, step: Step[Report], reports: Sequence[Report]) -> str:
        """The fingerprint that later steps depend on."""
        return step.fingerprint(upstream)

    def is_known(self, store: Store, stage: str, digests: list[str]) -> bool:
        """Whether the digests equal those of the published version, so that the run can end here.

        Called at the end of each stage with the digests of everything read so far.
        """
        return False


@dataclass(kw_only=True)
class Walker:
    """Goes through the steps of stages in their order, and gives each stage the reports of its steps.

    The subclasses that run a job and that look up what is done differ in where the reports come from. This class
    assumes the expected ones, so it computes nothing.

    Attributes:
        steps: the steps so far.
        upstream: the fingerprint that the next step depends on.
    """

    history: History = field(default_factory=History)
    upstream: str = ""
    steps: list[Step[Report]] = field(default_factory=list)

    def walk(self, stages: Mapping[str, Stage], layout: Layout) -> Layout:
        """Go through all stages; returns the layout at the end."""
        for stage in stages.values():
            layout = self.drive(stage(layout))
        return layout

    def drive(self, steps: Steps) -> Layout:
        """Send each step of a stage its reports; returns the layout at the end."""
        try:
            step = next(steps)
            while True:
                step = steps.send(self.visit(step))
        except StopIteration as stop:
            return cast(Layout, stop.value)

    def visit(self, step: Step[Report]) -> list[Report]:
        """The reports of a step's blocks in block order, found or else expected."""
        step = self.history.prepared(step)
        self.steps.append(step)
        reports = self.reports_of(step)
        if not step.is_measurement:
            self.upstream = self.history.chained(self.upstream, step, reports or [])
        if reports is None:
            expected = step.expected
            return [] if expected is None else [expected(block) for block in range(step.n_blocks)]
        return reports

    def reports_of(self, step: Step[Report]) -> list[Report] | None:
        """The reports of all blocks of a step that depends on `upstream`; None if they are not known."""
        return None


def planned(stages: Mapping[str, Stage], layout: Layout) -> tuple[list[Step[Report]], Layout]:
    """All steps of a run with their expected reports, and the layout at its end."""
    walker = Walker()
    layout = walker.walk(stages, layout)
    return walker.steps, layout

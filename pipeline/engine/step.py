"""A step of a stage: one task for each of its blocks, what it reads and writes, and its memory.

A task is a function `function(store, block_index, **parameters)` that returns a `Report`. The annotations of the
function say what is stored of it: every parameter is part of the fingerprint of the step, except those marked
`Resource`; those marked `Location` name data whose digest identifies them.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, TypeVar, cast, get_type_hints

from ..storage.array_specs import PlannedArray
from ..storage.store import Store

Json = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")

RESOURCE, LOCATION = "resource", "location"
Resource = Annotated[T, RESOURCE]
"""A parameter of a task that does not change its result."""
Location = Annotated[T, LOCATION]
"""A parameter that only locates data, such as a path: equal bytes (`Report.digest`) elsewhere are the same data."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a task returns: numbers and short lists, stored in the marker of its block.

    `message` is a line for the log, `digest` the digest of what was read from a `Location`, and `subprocess_bytes` the
    peak memory of a process that the task started.
    """

    message: str = ""
    digest: str = ""
    subprocess_bytes: int = 0


@dataclass(frozen=True)
class Count(Report):
    """The report of a task that counts one thing."""

    count: int


@dataclass(frozen=True)
class Counts(Report):
    """How many of one thing go to each block or group, by its number."""

    counts: dict[str, int]


R = TypeVar("R", bound=Report, covariant=True)


@dataclass(frozen=True)
class Task(Generic[R]):
    """A function with its parameters, without a store and a block. `task` makes one, and mypy checks the parameters."""

    function: Callable[..., R]
    parameters: Mapping[str, object]

    def __call__(self, store: Store, block_index: int) -> R:
        return self.function(store, block_index, **self.parameters)

    @property
    def report_type(self) -> type[R]:
        return cast(type[R], _annotations(self.function).get("return", Report))

    @property
    def deciding(self) -> dict[str, object]:
        """The parameters that determine the result."""
        return {name: value for name, value in self.parameters.items() if not self._is_marked(name, RESOURCE)}

    @property
    def locations(self) -> set[str]:
        """Names of the parameters that locate data."""
        return {name for name in self.parameters if self._is_marked(name, LOCATION)}

    def _is_marked(self, name: str, mark: str) -> bool:
        return mark in getattr(_annotations(self.function).get(name), "__metadata__", ())


@lru_cache(maxsize=1024)
def _annotations(function: Callable[..., object]) -> dict[str, object]:
    return get_type_hints(function, include_extras=True)


def task(function: Callable[Concatenate[Store, int, P], R], *positional: P.args, **parameters: P.kwargs) -> Task[R]:
    """A task that calls `function(store, block_index, **parameters)`; parameters are given by name."""
    assert not positional
    return Task(function, parameters)


@dataclass(frozen=True)
class TaskState:
    """What the tasks of a running step do.

    A `phase`, a line of text on it, and the seconds left in the step (None: unknown), which may be a forecast.
    """

    phase: str
    text: str
    seconds_left: float | None
    is_forecast: bool = False


class Compilation(NamedTuple):
    """Functions that the first run on a machine compiles, in `seconds`.

    Afterwards the cache of compiled functions holds `function`, one of them, named "module.name".
    """

    function: str
    seconds: float


class Work(NamedTuple):
    """Processor seconds of a step: of one process, and of all its blocks together, which workers share."""

    serial: float = 0.0
    parallel: float = 0.0
    compilation: Compilation | None = None


RunsOn = Literal["worker", "high-memory worker", "driver"]
WORKER: RunsOn = "worker"
"""Any worker: the step processes one block at a time."""
WHOLE_DATA: RunsOn = "high-memory worker"
"""The cluster's high-memory worker, or the driver if there is none: the step processes all points at once."""
DRIVER: RunsOn = "driver"
"""Always the calling process: the step itself uses the Dask client."""


@dataclass(frozen=True)
class Step(Generic[R]):
    """A task for each of `n_blocks` blocks. It writes whole chunks that no other block writes.

    Attributes:
        key: "stage.step", which identifies the step in a store.
        task_bytes: peak memory of a task, without that of its process.
        work: processor seconds; steps that take a small part of a run need none.
        arrays: arrays that it writes.
        bundles: bundles that it writes, and the most bytes of each, all blocks together.
        deletes: arrays and bundles of earlier steps of the stage that no step after this one reads; they are deleted
            when all blocks of this step are done.
        version: raised whenever the result changes for the same parameters.
        input_state: state of other data that determine the result, such as the input files.
        expected: the report of a block that `lle plan` assumes; not needed if the stage reads no report of the step.
        is_measurement: later steps do not depend on its result.
        depends_on_records: its result depends on the store's records and attributes (`checkpoint.with_records`).
        all_cores: removes the limit of one thread.
        remark: logged when the step begins.
        advice: what to change if a task does not fit its worker.
        progress: returns what the tasks do now, None if that is unknown. It is logged when its phase changes, and from
            time to time.
    """

    key: str
    task: Task[R]
    n_blocks: int
    task_bytes: int
    arrays: tuple[PlannedArray, ...] = ()
    bundles: Mapping[str, int] = field(default_factory=dict)
    deletes: tuple[str, ...] = ()
    version: int = 1
    input_state: Json = field(default_factory=dict)
    expected: Callable[[int], R] | None = None
    runs_on: RunsOn = WORKER
    is_measurement: bool = False
    depends_on_records: bool = False
    all_cores: bool = False
    remark: str = ""
    advice: str = "set execution.block_points: auto if it is a number, for the largest blocks that fit"
    progress: Callable[[Store], TaskState | None] | None = None
    work: Work = field(default_factory=Work)

    def __iter__(self) -> "Generator[Step[Report], list[Report], list[R]]":
        """For `reports = yield from step` in a stage: the reports of all blocks, in block order."""
        return cast(list[R], (yield self))

    @property
    def stage(self) -> str:
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        return self.key.partition(".")[2]

    @property
    def written(self) -> set[str]:
        return {array.spec.name for array in self.arrays} | set(self.bundles)

    @property
    def disk_bytes(self) -> int:
        """Upper bound on the bytes that the step writes to the store, all blocks together."""
        return sum(array.nbytes for array in self.arrays) + sum(self.bundles.values())

    def fingerprint(self, upstream: str) -> str:
        """SHA-256 over canonical JSON of what decides the result, with `upstream`, the fingerprint before it."""
        content = [upstream, self.stage, self.name, self.version, self.n_blocks, self.task.deciding, self.input_state]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=asdict).encode()).hexdigest()[:32]


S = TypeVar("S", covariant=True)


@dataclass(frozen=True)
class BlockReport(Generic[S]):
    """A finished task and its report, as its marker stores them.

    `peak_bytes` is the peak memory of its process while it ran, `base_bytes` the memory before. `bundles` are the
    names of the bundles that the task wrote.
    """

    block: int
    seconds: float
    peak_bytes: int
    report: S
    base_bytes: int = 0
    bundles: tuple[str, ...] = ()

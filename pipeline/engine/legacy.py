"""Steps in their earlier form, as long as stages use it: parameters and reports are plain dicts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..storage.array_specs import PlannedArray
from ..storage.store import Store
from . import step as new
from .step import WORKER, Json, RunsOn

ADVICE = new.Step.advice


class OldReport(dict[str, Any]):
    """A report as a dict, with the attributes of `Report`."""

    @property
    def message(self) -> str:
        return str(self.get("says", ""))

    @property
    def digest(self) -> str:
        return str(self.get("digest", ""))

    @property
    def subprocess_bytes(self) -> int:
        return int(self.pop("peak_bytes", 0))


@dataclass(frozen=True)
class OldTask(new.Task[Any]):
    resources: tuple[str, ...] = ()
    digested: tuple[str, ...] = ()

    def __call__(self, store: Store, block_index: int) -> Any:
        return OldReport(self.function(store, block_index, **self.parameters))

    @property
    def report_type(self) -> type[Any]:
        return OldReport

    @property
    def deciding(self) -> dict[str, object]:
        return {name: value for name, value in self.parameters.items() if name not in self.resources}

    @property
    def locations(self) -> set[str]:
        return set(self.digested)


@dataclass(frozen=True)
class Decides:
    parameters: Json
    identity: Json = field(default_factory=dict)
    version: int = 1
    digested: tuple[str, ...] = ()
    shows_records: bool = False


@dataclass(frozen=True)
class Runs:
    bytes_per_task: int
    place: RunsOn = WORKER
    all_cores: bool = False
    resources: Json = field(default_factory=dict)
    remark: str = ""
    state: Callable[[Any], Any] | None = None
    cure: str = ADVICE


@dataclass(frozen=True)
class Writes:
    arrays: tuple[PlannedArray, ...] = ()
    bundles: tuple[str, ...] = ()
    bundle_bytes: int = 0


def Step(  # noqa: N802
    stage: str, name: str, function: Callable[..., Any], n_blocks: int, decides: Decides, runs: Runs,
    writes: Writes = Writes(), expected: Callable[[int], Any] = lambda block_index: {}, feeds: bool = True,
    frees: tuple[str, ...] = (),
) -> "new.Step[Any]":  # fmt: skip
    """A step in its new form."""
    return new.Step(
        f"{stage}.{name}", OldTask(
            function, {**decides.parameters, **runs.resources}, tuple(runs.resources), decides.digested
        ), n_blocks,
        runs.bytes_per_task, writes.arrays, writes.bundles, writes.bundle_bytes, frees, decides.version,
        decides.identity, lambda block: OldReport(expected(block)), runs.place, not feeds, decides.shows_records,
        runs.all_cores, runs.remark, runs.cure, runs.state,
    )  # fmt: skip

"""Progress of the eigensolver, as small records in the store that the log and `lle status` read from any process."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.step import TaskState
from ..storage.store import Store

if TYPE_CHECKING:
    from ..kernels.eigensolver.problem import SolverProgress

RECORD_SECONDS = 2.0
OVERDUE_SECONDS = 10.0
FOLDER = "_work/eigen/progress"
LONG_SECONDS = 2.0
"""A phase predicted to take longer is recorded at its start."""


@dataclass(frozen=True)
class StateHead:
    """A saved state: its method, steps, blocks of rows, and the lowest Ritz values (bounds from above)."""

    method: str
    n_steps: int
    n_blocks: int
    values: list[float]


@dataclass(frozen=True)
class ProgressRecord:
    """The fields of `SolverProgress`, and when they were recorded (seconds since the epoch).

    >>> ProgressRecord("multigrid", "solves for 8 vectors", 13, 2e-4, 1e-8, None, False, 0.0).text
    'multigrid: vector error 2.0e-04 (to reach: 1.0e-08) after 13 solves for 8 vectors'
    """

    method: str
    phase: str
    n_solves: int
    vector_error: float | None
    bound: float | None
    seconds_left: float | None
    is_forecast: bool
    time: float

    @property
    def remaining(self) -> float | None:
        """Predicted seconds until the solver ends; negative if it takes longer; None if they are unknown."""
        return None if self.seconds_left is None else self.seconds_left - max(time.time() - self.time, 0.0)

    @property
    def text(self) -> str:
        """The method, vector error, solves and time left: a narrow terminal shows the beginning."""
        text = f"{self.n_solves:,} {self.phase}" if self.n_solves else self.phase
        if self.vector_error is not None:
            text = f"vector error {self.vector_error:.1e} (to reach: {self.bound:.1e}) after {text}"
        text = f"{self.method}: {text}"
        if (left := self.remaining) is None:
            return text
        is_late = left <= -OVERDUE_SECONDS
        return text + (", longer than predicted" if is_late else f", about {max(left, 1.0):,.0f} s left")


@contextmanager
def recorded(store: Store, component: int) -> Iterator[Callable[["SolverProgress"], None]]:
    """A function that records the progress of a component every RECORD_SECONDS; the record is removed at the end."""
    name, last = f"{FOLDER}/{component:05d}.json", time.monotonic()

    def record(progress: "SolverProgress") -> None:
        nonlocal last
        now = time.monotonic()
        long_phase = progress.n_solves == 0 and (progress.seconds_left or 0.0) > LONG_SECONDS
        if long_phase or now - last >= RECORD_SECONDS:
            store.put_record(name, ProgressRecord(**progress._asdict(), time=time.time()))
            last = now

    store.objects.delete_objects([name])  # a killed process leaves its own
    try:
        yield record
    finally:
        store.objects.delete_objects([name])


def recorded_progress(store: Store) -> list[ProgressRecord]:
    found = store.read_records(sorted(store.objects.names(FOLDER)), ProgressRecord)
    return [record for record in found if record]


def saved_heads(store: Store, folder: str) -> list[StateHead]:
    names = [name for name in store.objects.names(folder) if name.endswith("/head.json")]
    return [head for head in store.read_records(sorted(names), StateHead) if head]


def solver_state(store: Store) -> TaskState | None:
    """The state of all components that are being solved; None if there is no record."""
    records = recorded_progress(store)
    if not records:
        return None
    left = [record.remaining for record in records]
    known = [max(seconds, 1.0) for seconds in left if seconds is not None and seconds > -OVERDUE_SECONDS]
    phase, text = "; ".join(record.phase for record in records), "; ".join(record.text for record in records)
    is_forecast = any(record.is_forecast for record in records)
    return TaskState(phase, text, max(known) if len(known) == len(left) else None, is_forecast)

"""Progress of the eigensolver, as a small record in the store that the log and `lle status` read from any process."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..engine.step import TaskState
from ..storage.records import SOLVER_PROGRESS
from ..storage.store import Store

if TYPE_CHECKING:
    from ..kernels.eigensolver.problem import SolverProgress

RECORD_SECONDS = 2.0
OVERDUE_SECONDS = 10.0
FOLDER = "_work/eigen/progress"
LONG_SECONDS = 2.0
"""A phase predicted to take longer is recorded at its start."""


@contextmanager
def recorded(store: Store, component: int) -> Iterator[Callable[["SolverProgress"], None]]:
    """A function that records the progress of a component every RECORD_SECONDS; the record is removed at the end."""
    name, last = f"{FOLDER}/{component:05d}.json", time.monotonic()

    def record(progress: "SolverProgress") -> None:
        nonlocal last
        now = time.monotonic()
        long_phase = progress.n_solves == 0 and (progress.seconds_left or 0.0) > LONG_SECONDS
        if long_phase or now - last >= RECORD_SECONDS:
            store.put_json(name, {**progress._asdict(), "time": time.time()})
            last = now

    try:
        yield record
    finally:
        store.objects.delete_objects([name])  # also one that a killed process left


def recorded_progress(store: Store) -> list[dict[str, Any]]:
    """The record of each component that is being solved, with its `text`."""
    records = (store.get_record(name, SOLVER_PROGRESS) for name in sorted(store.objects.names(FOLDER)))
    return [{**record, "text": describe(record)} for record in records if record]


def solver_state(store: Store) -> TaskState | None:
    """The state of all components that are being solved; None if there is no record."""
    records = recorded_progress(store)
    if not records:
        return None
    phase, text = ("; ".join(record[key] for record in records) for key in ("phase", "text"))
    left = [_seconds_left(record) for record in records]
    known = [max(seconds, 1.0) for seconds in left if seconds is not None and seconds > -OVERDUE_SECONDS]
    return TaskState(phase, text, max(known) if len(known) == len(left) else None)


def _seconds_left(record: dict[str, Any]) -> float | None:
    """Predicted seconds until the solver ends; negative if it takes longer; None if they are unknown."""
    if record["seconds_left"] is None:
        return None
    return float(record["seconds_left"] - max(time.time() - record["time"], 0.0))


def describe(record: dict[str, object]) -> str:
    """The method, and solves, residual and time left.

    >>> describe({"method": "multigrid", "phase": "solves for 8 vectors", "n_solves": 13, "residual": 2e-4,
    ...           "bound": 1e-8, "seconds_left": None, "time": 0.0})
    'multigrid: 13 solves for 8 vectors, residual 2.0e-04 (to reach: 1.0e-08)'
    """
    count = f"{record['n_solves']:,} " if record["n_solves"] else ""
    text = f"{record['method']}: {count}{record['phase']}"
    if record["residual"] is not None:
        text += f", residual {record['residual']:.1e} (to reach: {record['bound']:.1e})"
    left = _seconds_left(record)
    if left is None:
        return text
    return text + (f", about {max(left, 1.0):,.0f} s left" if left > -OVERDUE_SECONDS else ", longer than predicted")

"""Runs without a cluster. Dask is loaded only if a step needs it (`preprocess`), and then works in one thread."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

from .limits import require_shared_memory


class _SerialRuns:
    """Serial runs in progress. The last of several overlapping ones resets the scheduler of Dask."""

    def __init__(self) -> None:
        self._lock, self._n_runs = threading.Lock(), 0
        self._setting: AbstractContextManager[object] | None = None

    def begin(self) -> None:
        with self._lock:
            self._n_runs += 1

    def end(self) -> None:
        with self._lock:
            self._n_runs -= 1
            if not self._n_runs and self._setting is not None:
                self._setting.__exit__(None, None, None)
                self._setting = None

    def set_scheduler(self) -> None:
        with self._lock:
            if self._n_runs and self._setting is None:
                import dask  # 0.08 s

                self._setting = dask.config.set(scheduler="synchronous")


_RUNS = _SerialRuns()


@contextlib.contextmanager
def serial_run() -> Iterator[None]:
    """Around a run without a cluster. Raises LleError if there is too little shared memory."""
    require_shared_memory(0)
    _RUNS.begin()
    try:
        yield
    finally:
        _RUNS.end()


def use_synchronous_dask() -> None:
    """Set Dask's synchronous scheduler for the rest of the serial runs in progress; without one, do nothing.

    Call it before Dask computes anything in the driver: its default would be threads, or a client of the user's own.
    """
    _RUNS.set_scheduler()

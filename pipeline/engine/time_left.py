"""The share of a run that is done and the seconds it will take: a forecast of each step, corrected by measurements."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .step import TaskState

RECORD = "_run/progress.json"
"""Where a run stores its latest `Look`, so that other processes can show it."""

LARGEST = 0.99
"""The largest share before the end."""

PRIOR = 0.2
"""Share of the forecast that the measured seconds must exceed before they count more than the forecast."""

OVERDUE = 0.25
"""Share of its seconds so far that a step is assumed to take longer, if its forecast is over."""


@dataclass(frozen=True)
class Look:
    """The state of a run at a `time` (seconds since 1970); `seconds_left` is None if it is unknown."""

    time: float
    step: str
    fraction: float
    seconds_left: float | None


class TimeLeft:
    """Receives the beginnings and ends of steps and blocks of a run, and estimates what remains.

    All measured seconds so far, divided by their forecast, scale the forecast of what remains. Within a step the
    finished blocks count in proportion to their number, or the seconds that its tasks predict. The share never falls.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expected = dict[str, float]()
        self._forecast = self._measured = self._foreseen = self._reused = 0.0
        self._running, self._share, self._fraction = "", 0.0, 0.0
        self._n_left, self._n_fresh, self._begun, self._last_block = 0, 0, 0.0, 0.0

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Set the forecast of all steps that have not begun."""
        self._expected = dict(seconds)
        self._forecast = self._foreseen + self._reused + sum(seconds.values())

    def begin(self, step: str, n_blocks: int, n_done: int) -> None:
        """A step begins, with some blocks done by an earlier run."""
        self._running, self._share = step, 1 - n_done / max(n_blocks, 1)
        self._n_left, self._n_fresh = n_blocks - n_done, 0
        self._begun = self._last_block = self._clock()
        self._reused += (1 - self._share) * self._expected.get(step, 0.0)

    def advance(self) -> None:
        self._n_fresh, self._last_block = self._n_fresh + 1, self._clock()

    def end(self) -> None:
        self._foreseen += self._share * self._expected.get(self._running, 0.0)
        if self._running in self._expected:  # not deleted, because another thread iterates
            self._expected[self._running] = 0.0
        if self._share:
            self._measured += self._clock() - self._begun
        self._running = ""

    def look(self, state: TaskState | None = None, age: float = 0.0) -> Look:
        """The state now. `state` is what the tasks of the running step reported, `age` seconds ago."""
        later = sum(seconds for step, seconds in self._expected.items() if step != self._running)
        in_step, elapsed = self._left_in_step(state, age), self._clock() - self._begun
        left = None
        if self._running and (in_step is not None or later):
            left = (in_step or 0.0) + self._pace() * later
            spent = self._measured + elapsed + self._pace() * self._reused
            self._fraction = max(self._fraction, min(spent / max(spent + left, 1e-9), LARGEST))
        return Look(time.time(), self._running, self._fraction, left)

    def _pace(self) -> float:
        """Measured seconds for each second of the forecast, of the finished steps and of a running one that is late."""
        prior, expected = PRIOR * self._forecast, self._share * self._expected.get(self._running, 0.0)
        measured, foreseen, elapsed = self._measured, self._foreseen, self._clock() - self._begun
        if self._running and elapsed > expected > 0:
            measured, foreseen = measured + elapsed, foreseen + expected
        return (measured + prior) / (foreseen + prior) if prior else 1.0

    def _left_in_step(self, state: TaskState | None, age: float) -> float | None:
        """Seconds left in the running step; None if nothing is known."""
        if state is not None and state.seconds_left is not None:
            return max((self._pace() if state.is_forecast else 1.0) * state.seconds_left - age, 1.0)
        expected = self._pace() * self._share * self._expected.get(self._running, 0.0)
        if not expected and not self._n_fresh:
            return None
        done, until_last = self._n_fresh / max(self._n_left, 1), self._last_block - self._begun
        since_last, elapsed = self._clock() - self._last_block, self._clock() - self._begun
        predicted = (1 - done) * ((1 - done) * expected + until_last)
        return max(predicted - since_last, OVERDUE * elapsed if done < 1 else 0.0)

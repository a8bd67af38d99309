"""Every failure the program can name, each with the exit code it ends the command with.

| code | meaning |
|---|---|
| 1 | a failure that a retry may cure |
| 2 | a config or input error: a retry ends the same way |
| 3 | the job ran, but a bound stated in the config was not met |
| 130, 143 | interrupted by Ctrl-C, by SIGTERM |
"""

import signal
from typing import Any


class LleError(Exception):
    """Base of all named failures; the message says what was expected, what was found, where, and what to do."""

    exit_code = 1


class ConfigError(LleError):
    """The config asks for something that does not exist or does not fit together."""

    exit_code = 2


class InputError(LleError):
    """The input data cannot be used as the config describes it."""

    exit_code = 2


class InputChanged(LleError):
    """The input was changed while it was read: its rows are not those of one state. The next run reads them again."""


class BoundsNotMet(LleError):
    """The job ran, but a bound of the config (recall, residual, components) was not met; results so far are kept.

    `result` is what was reached (a RunResult), where a run has ended with this.
    """

    exit_code = 3
    result: Any = None


class StageIncomplete(LleError):
    """Some blocks of a stage failed; the finished ones are kept and the next run computes only the others."""


class StoreError(LleError):
    """The store cannot be read or written (permissions, disk full, another run holds it)."""


class CorruptChunk(StoreError):
    """A stored chunk does not match its checksum."""

    def __init__(self, array: str, chunk: str, detail: str) -> None:
        super().__init__(array, chunk, detail)
        self.array, self.chunk, self.detail = array, chunk, detail

    def __str__(self) -> str:
        return f"array '{self.array}', chunk {self.chunk}: the stored bytes do not match their checksum ({self.detail})"


class NotEnoughMemory(LleError):
    """A step or a solver needs more memory than it may use.

    `plan` is what `lle plan` found nevertheless: its table is what tells where else there is no room.
    """

    plan: dict[str, Any] | None = None


class ExperimentsFailed(LleError):
    """Some experiments of a sweep failed: 1 where a retry may cure one of them, else the largest of their codes."""

    def __init__(self, message: str, codes: list[int]) -> None:
        super().__init__(message)
        self.exit_code = 1 if 1 in codes else max(codes)


class Interrupted(LleError):
    """A signal asked the run to stop; everything finished is kept."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number

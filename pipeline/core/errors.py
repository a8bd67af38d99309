"""Named errors, each with the exit code of the command.

| code | meaning |
|---|---|
| 1 | a failure that a retry may cure |
| 2 | a config or input error: a retry fails the same way |
| 3 | a bound stated in the config was not met; the message says whether there is an embedding |
| 4 | the command succeeded, but its result could not be written to stdout |
| 130, 143 | interrupted by Ctrl-C, by SIGTERM |
"""

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """A config key in a message, as a record: the config and Python spell it differently.

    `value` is what it should get, None where the sentence gives no value.

    >>> print(Setting("neighbors", "n_neighbors", 24), Setting("", "method", "pca"), Setting("weights", "reg"))
    neighbors.n_neighbors: 24 method: pca weights.reg
    """

    section: str
    """Empty for method, which is in no section."""
    key: str
    value: int | float | str | None = None

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}" if self.section else self.key

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}: {self.value}"


class LleError(Exception):
    """Base of all named errors. The message states what was expected, what was found, where, and what to do.

    `advice` is what to do, at the end of the message. A caller that follows it, or has better advice, shows
    `args[0]` only.
    """

    exit_code = 1

    def __init__(
        self, *args: object, advice: str = "", settings: tuple[Setting, ...] = (), exit_code: int | None = None
    ) -> None:
        """`settings` are the config keys in the message, spelled as by `str`; Python spells them as arguments.

        `exit_code`: if it is not that of the class.
        """
        super().__init__(*(shortened(part) if isinstance(part, str) else part for part in args))
        self.advice, self.settings = advice, settings
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        return "; ".join([super().__str__(), *filter(None, [self.advice])])


def shortened(text: str) -> str:
    """The text, with each word of more than 400 characters, such as a long path, cut to its first 200.

    >>> shortened("a" * 1000 + " b")[195:]
    'aaaaa... (1000 characters) b'
    """
    return re.sub(r"\S{401,}", lambda word: f"{word[0][:200]}... ({len(word[0])} characters)", text)


class ConfigError(LleError):
    """The config names something that does not exist, or its settings contradict each other."""

    exit_code = 2


class InputError(LleError):
    """The input data cannot be used as the config describes it."""

    exit_code = 2


class UndeterminedEmbedding(InputError):
    """The rows do not determine an embedding: they coincide, or the neighbours of a row do not span a plane."""


class InputChanged(LleError):
    """The input changed while it was read, so its rows mix two states. The next run reads them again."""


class BoundsNotMet(LleError):
    """A bound of the config was not met; the results so far are kept.

    Low recall, several components or several closed classes stop a run before its embedding. Eigenvectors that did not
    converge, and many rows without coordinates, do not.
    `result` is the RunResult, if the error was raised at the end of a run.
    """

    exit_code = 3
    result: object = None


class OutputLost(LleError):
    """Stdout cannot be written: its disk is full, or the program that read it has ended."""

    exit_code = 4


class StageIncomplete(LleError):
    """Some blocks of a stage failed. Finished blocks are kept; the next run computes only the others."""


class GroupLost(LleError):
    """A process of a group that computes together has ended, or does not answer (core/group.py)."""


class StoreError(LleError):
    """The store cannot be read or written (permissions, disk full, another run holds it)."""


class StoreHeld(StoreError):
    """Another run holds the store's lock; `is_held` checks whether it still does."""

    def __init__(self, message: str, is_held: Callable[[], bool] = lambda: True) -> None:
        super().__init__(message)
        self.is_held = is_held


class DamagedStore(StoreError):
    """Something that a finished run has written is missing or does not match its checksum."""


class NoRunYet(ConfigError):
    """Nothing has been written to a store."""


class NoEmbedding(ConfigError):
    """A run has no finished embedding of its config."""


class OlderVersionRead(LleError):
    """The published version is damaged, so an older one was read; `plan` is the result of the command."""

    exit_code = 3

    def __init__(self, message: str, result: Mapping[str, object]) -> None:
        super().__init__(message)
        self.plan = result


class MissingArray(DamagedStore):
    """The store has no array of this name."""


class CorruptChunk(DamagedStore):
    """A stored chunk does not match its checksum."""

    def __init__(self, array: str, chunk: str, detail: str) -> None:
        super().__init__(array, chunk, detail)
        self.array, self.chunk, self.detail = array, chunk, detail

    def __str__(self) -> str:
        return f"array '{self.array}', chunk {self.chunk}: the stored bytes do not match their checksum ({self.detail})"


class NotEnoughMemory(LleError):
    """A step or a solver needs more memory than it may use.

    `plan` is the table of `lle plan`, if it could be made: it lists every step that does not fit. `worker_bytes` is the
    memory that its worker would need, if that is known.
    """

    plan: Mapping[str, object] | None = None
    worker_bytes: int | None = None


class ExperimentsFailed(LleError):
    """Some experiments of a sweep failed. Exit code 1 if a retry may cure one, else the largest of their codes."""


class Interrupted(BaseException):
    """A signal stopped the run; finished work is kept.

    As KeyboardInterrupt, it is no Exception: code that tolerates a failure lets it pass.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


NAMED_ROWS = 5
"""Maximum number of rows in a message."""


def first_rows(rows: Sequence[int], count: int | None = None) -> str:
    """The first row numbers for a message; `count` is the total number of rows (None: `rows` is complete).

    >>> first_rows([3, 17]), first_rows([3, 17], count=40)
    ('3, 17, counted from 0', '3, 17, ..., counted from 0')
    """
    more = ", ..." if (len(rows) if count is None else count) > min(len(rows), NAMED_ROWS) else ""
    return f"{', '.join(map(str, rows[:NAMED_ROWS]))}{more}, counted from 0"


MAX_NAMES = 12
"""Maximum number of names in a message."""


def listed(names: Sequence[str], limit: int = MAX_NAMES) -> str:
    """The first names for a message, and the number of all if there are more.

    >>> listed(["a", "b"]), listed(["a", "b", "c"], limit=2)
    ('a, b', 'a, b, ... (3 in all)')
    """
    return ", ".join(names[:limit]) + (f", ... ({len(names)} in all)" if len(names) > limit else "")


def by_reason(reasons: Mapping[str, str], spelled: Callable[[str], str] = str, limit: int = 20) -> list[str]:
    """Names with their reasons for a message, those with the same reason together. Names the first reasons only.

    >>> by_reason({"a": "text", "b": "no values", "c": "text"})
    ['a, c (text)', 'b (no values)']
    """
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(spelled(name))
    parts = [f"{listed(same)} ({reason})" for reason, same in names.items()]
    return parts[:limit] + [f"and others, {len(reasons):,} columns in all"] * (len(parts) > limit)


def counted(count: int, noun: str) -> str:
    """A number of things, for a message.

    >>> counted(1, "block"), counted(1200, "block")
    ('1 block', '1,200 blocks')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def describe_share(fraction: float, seconds_left: float | None) -> str:
    """The share in per cent and the time left.

    >>> describe_share(0.427, 200.0), describe_share(0.0, None)
    ('42 %, about 3 min left', '0 %')
    """
    left = "" if seconds_left is None else f", about {duration(seconds_left)} left"
    return f"{int(100 * fraction)} %{left}"


def duration(seconds: float) -> str:
    """Seconds in the largest fitting units.

    >>> duration(0.2), duration(95.4), duration(200), duration(7500)
    ('1 s', '95 s', '3 min', '2 h 5 min')
    """
    if seconds < 119.5:
        return f"{max(seconds, 1.0):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def gib(n_bytes: int) -> str:
    """A size in memory or on disk for a message.

    >>> gib(3 * 2**29), gib(5 * 2**20)
    ('1.50 GiB', '0.005 GiB')
    """
    return f"{n_bytes / 2**30:.{2 if n_bytes >= 2**30 // 10 else 3}f} GiB"

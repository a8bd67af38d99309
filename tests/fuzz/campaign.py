"""Runs the cases of a target in a process with limits, and collects what breaks a rule.

Rules of every case: no unnamed error, an exit code that the commands document, less than `seconds` and `n_bytes`.
Targets add their own: no wrong answer with exit code 0. A case is determined by (seed, number) alone.
"""

import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TARGETS = ("configs", "inputs", "stores", "bits", "walks", "whole_runs")
DEFAULT_CASES = {"configs": 2000, "inputs": 2000, "stores": 200, "bits": 60, "walks": 6, "whole_runs": 100}
HANG_SECONDS = 600
"""Time without a result after which a process counts as hanging, far above what any load makes of a case."""
START_SECONDS = 600
"""The same for a process that is not ready yet: it imports, compiles, and prepares what the cases share."""
HEADROOM_BYTES = 4 * 2**30
"""What malloc may take beyond the memory at the start: allocations fail, before the machine swaps."""


class BrokenRule(AssertionError):
    """A case broke a rule; the text names the rule and shows what was run."""


class Limits(NamedTuple):
    """Bounds of one case: processor seconds of its process, and bytes by which its memory may grow."""

    seconds: float
    n_bytes: int

    @property
    def end_seconds(self) -> float:
        """Processor seconds after which the process of a case is ended."""
        return 2 * self.seconds + 5


@dataclass
class Tally:
    """The result of a campaign."""

    target: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    longest_seconds: float = 0.0
    largest_bytes: int = 0
    seconds: float = 0.0

    def line(self) -> str:
        """One line: cases, outcomes, failures, and the most time and memory that a case took."""
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        return (
            f"{self.target}: {self.cases} cases in {self.seconds:.0f} s, {len(self.failures)} failures; {outcomes}; "
            f"longest case {self.longest_seconds:.1f} s, largest {self.largest_bytes / 2**20:.0f} MiB"
        )


def rng_of(seed: int, case: int) -> np.random.Generator:
    """The generator of a case, independent of all other cases."""
    return np.random.default_rng([seed, case])


def reproducer(target: str, seed: int, case: int) -> str:
    return f"python -m tests.fuzz {target} --seed {seed} --case {case} --keep FOLDER"


def run_case(target: str, seed: int, case: int, folder: Path) -> str:
    """Run one case in this process, its files in `folder`; returns its outcome. Raises BrokenRule."""
    module = import_module(f"tests.fuzz.{target}")
    shared = folder / "shared"
    if not shared.exists():
        shared.mkdir(parents=True)
        module.prepare(shared)
    own = folder / f"case{case}"
    own.mkdir()
    outcome: str = module.run(rng_of(seed, case), shared, own)
    return outcome


def campaign(target: str, seed: int, cases: range, processes: int = 1, seconds: float = np.inf) -> Tally:
    """Run the cases, spread over processes; ends early after `seconds`."""
    tally, started = Tally(target), time.monotonic()
    limits: Limits = import_module(f"tests.fuzz.{target}").LIMITS
    with tempfile.TemporaryDirectory(prefix="lle-fuzz-") as folder:
        stripes = [
            _Stripe(target, seed, cases[part::processes], Path(folder, str(part)), limits, tally)
            for part in range(processes)
        ]
        try:
            while any(stripe.busy for stripe in stripes) and time.monotonic() - started < seconds:
                wait([stripe.connection for stripe in stripes if stripe.busy], timeout=1.0)
                for stripe in stripes:
                    stripe.advance()
        finally:
            for stripe in stripes:
                stripe.stop()
    tally.seconds = time.monotonic() - started
    return tally


class _Stripe:
    """Cases that one process runs one after the other; a new process continues after one that died."""

    def __init__(self, target: str, seed: int, cases: range, folder: Path, limits: Limits, tally: Tally) -> None:
        self._target, self._seed, self._cases, self._folder = target, seed, list(cases), folder
        self._limits, self._tally = limits, tally
        folder.mkdir()
        self._start()

    @property
    def busy(self) -> bool:
        return bool(self._cases)

    def advance(self) -> None:
        """Take the results that have arrived; notice a process that died or hangs."""
        if not self._cases:
            return
        try:
            while self.connection.poll():
                self._take(*self.connection.recv())
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            ended = f"no result after {self._limits.end_seconds:g} s of processor time"
            self._lost(ended if code == -signal.SIGPROF else f"the process died with code {code}")
        else:
            if time.monotonic() > self._since + self._patience:
                os.kill(self._process.pid or 0, signal.SIGPROF)  # it writes its stack and ends
                self._process.join(timeout=10)
                self.stop()
                self._lost(f"no result after {self._patience:g} s")

    def stop(self) -> None:
        self._process.kill()
        self._process.join()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._stack = self._folder / "stack.txt"
        arguments = (theirs, self._target, self._seed, self._cases, self._folder, self._limits, str(self._stack))
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._wait_for(START_SECONDS)

    def _wait_for(self, seconds: float) -> None:
        self._since, self._patience = time.monotonic(), seconds

    def _take(self, case: int, outcome: str, failure: str, seconds: float, n_bytes: int) -> None:
        self._wait_for(HANG_SECONDS)
        if case < 0:  # the process is ready
            return
        self._cases.remove(case)
        self._note(case, outcome, failure)
        self._tally.longest_seconds = max(self._tally.longest_seconds, seconds)
        self._tally.largest_bytes = max(self._tally.largest_bytes, n_bytes)

    def _lost(self, how: str) -> None:
        stack = self._stack.read_text() if self._stack.exists() else ""
        self._note(self._cases.pop(0), "died", f"{how}\n{stack}")
        if self._cases:
            self._start()

    def _note(self, case: int, outcome: str, failure: str) -> None:
        self._tally.cases += 1
        self._tally.outcomes["failure" if failure else outcome] += 1
        if failure:
            self._tally.failures[case] = f"{failure}\n  {reproducer(self._target, self._seed, case)}"


def _serve(
    connection: Connection, target: str, seed: int, cases: list[int], folder: Path, limits: Limits, stack: str
) -> None:
    import_module(f"tests.fuzz.{target}")
    with tempfile.TemporaryDirectory(dir=folder) as own:
        warm = Path(own, "warm")
        _outcome(target, 0, 10**9, warm)  # imports and compiled functions are no cost of the first case
        resource.setrlimit(resource.RLIMIT_DATA, (_status_bytes("VmData") + HEADROOM_BYTES, -1))
        connection.send((-1, "", "", 0.0, 0))
        with open(stack, "w") as file:
            faulthandler.register(signal.SIGPROF, file=file, chain=True)  # writes the stack, then ends the process
            for case in cases:
                signal.setitimer(signal.ITIMER_PROF, limits.end_seconds)
                result = _measured(target, seed, case, warm, limits)
                signal.setitimer(signal.ITIMER_PROF, 0)
                connection.send((case, *result))


def _measured(target: str, seed: int, case: int, folder: Path, limits: Limits) -> tuple[str, str, float, int]:
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, started = _status_bytes("VmRSS"), time.process_time()
    outcome, failure = _outcome(target, seed, case, folder)
    seconds, n_bytes = time.process_time() - started, _status_bytes("VmHWM") - before
    if not failure and seconds > limits.seconds:
        failure = f"took {seconds:.1f} s of processor time, at most {limits.seconds:g} are allowed ({outcome})"
    if not failure and n_bytes > limits.n_bytes:
        failure = f"took {n_bytes / 2**20:.0f} MiB, at most {limits.n_bytes / 2**20:.0f} are allowed ({outcome})"
    return outcome, failure, seconds, n_bytes


def _outcome(target: str, seed: int, case: int, folder: Path) -> tuple[str, str]:
    try:
        return run_case(target, seed, case, folder), ""
    except BrokenRule as error:
        return "failure", str(error)
    except BaseException:
        return "failure", traceback.format_exc()
    finally:
        _remove(folder / f"case{case}")


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _status_bytes(key: str) -> int:
    return next(int(line.split()[1]) * 1024 for line in _status_lines() if line.startswith(f"{key}:"))


def _status_lines() -> Iterator[str]:
    yield from Path("/proc/self/status").read_text().splitlines()


def as_json(tally: Tally) -> dict[str, Any]:
    """The tally as plain data."""
    return {**vars(tally), "outcomes": dict(tally.outcomes)}

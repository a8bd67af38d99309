"""Progress of a run on stderr: one bar on a terminal, lines in a log, or JSON; and a record of it in the store."""

import contextlib
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..core.errors import LleError, counted, describe_share, gib
from ..storage.store import Store
from .step import BlockReport, Report, Step, TaskState
from .time_left import RECORD, Look, TimeLeft

WAIT_SECONDS, LOOK_SECONDS, RECORD_SECONDS, TICK_SECONDS = 30.0, 3.0, 2.0, 0.5

State = Callable[[], TaskState | None]


class RunProgress:
    """One line for each stage; on a terminal also a bar for the whole run, with the running step below it.

    Without a terminal a step has a line every WAIT_SECONDS, and when its tasks enter another phase (of an eigensolve).
    Steps without blocks to compute are counted, and printed in one line before the next step that computes.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self.computed: dict[str, int] = {}
        self.reused: dict[str, int] = {}
        self.time_left = TimeLeft()
        self._store: Store | None = None
        self._bar: Live | None = None
        self._step: Step[Report] | None = None
        self._state: State | None = None
        self._told: TaskState | None = None
        self._done, self._phase, self._is_recorded = 0, "", False
        self._begun = self._last_line = self._last_look = self._last_record = 0.0
        self._reused_steps: list[Step[Report]] = []
        self._ended: threading.Event | None = None
        self._ticking = threading.Lock()

    def print_line(self, text: str) -> None:
        self.console.print(text, markup=False)

    def start(self, store: Store, expected: Mapping[str, float]) -> None:
        """A run begins in a store, which gets its progress; `expected` are the seconds of its steps."""
        self.time_left, self._store, self._is_recorded = TimeLeft(), store, True  # perhaps by a killed run
        self._delete_record()
        self.time_left.expect(expected)

    def begin(self, step: Step[Report], n_done: int, state: State | None = None) -> None:
        """A step begins, with some blocks done; `state` returns what its tasks do now."""
        self.time_left.begin(step.key, step.n_blocks, n_done)
        self.reused[step.stage] = self.reused.get(step.stage, 0) + n_done
        self._done = n_done
        if n_done == step.n_blocks:
            return
        self._print_reused()
        if step.remark:
            self.print_line(step.remark)
        now = time.perf_counter()
        self._begun, self._last_line, self._last_look, self._phase, self._told = now, now, now, "", None
        self._step, self._state = step, state
        if self._ended is None:
            self._ended = threading.Event()
            threading.Thread(target=self._watch, args=(self._ended,), daemon=True).start()

    def advance(self, step: Step[Report], report: BlockReport[Report]) -> None:
        self.time_left.advance()
        self._done += 1
        self.computed[step.stage] = self.computed.get(step.stage, 0) + 1

    def end(self, step: Step[Report], seconds: float, computed: int) -> None:
        """A step has ended, with so many blocks computed now."""
        self._step = None
        self.time_left.end()
        if not computed:
            self._reused_steps.append(step)

    def computed_again(self, step: Step[Report]) -> None:
        """A reused step is computed after all, because its results were deleted and are needed."""
        self.reused[step.stage] -= step.n_blocks
        self._reused_steps = [other for other in self._reused_steps if other.key != step.key]
        self.print_line(f"{step.key}: its results were deleted, and are needed again")

    def end_stage(self, stage: str, seconds: float, peak_bytes: int) -> None:
        """Print one line about a finished stage, if it has computed something."""
        if not (computed := self.computed.get(stage, 0)):
            return
        self._print_reused()
        suffix = f", {reused} reused" if (reused := self.reused.get(stage, 0)) else ""
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        took = f"{counted(computed, 'block')} in {seconds:.1f} s, largest process {gib(peak_bytes)}"
        self.print_line(f"{now} {stage}: {took}{suffix}")

    def leave_store(self) -> None:
        """Delete the record in the store, and write no other. Called while the run holds the lock of its store."""
        with self._ticking:
            self._step = None
            self._delete_record()

    def stop(self, done: bool = False) -> None:
        """Remove the bar from the screen, and print the steps that were not printed yet.

        Called at the end of each run: `done` is false after an error.
        """
        with self._ticking:
            self._step = None
            if self._ended is not None:
                self._ended.set()
                self._ended = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
        self._print_reused()

    def _print_reused(self) -> None:
        """Print one line for all reused steps since the last such line."""
        if self._reused_steps:
            stages = len({step.stage for step in self._reused_steps})
            blocks = sum(step.n_blocks for step in self._reused_steps)
            totals = counted(stages, "stage"), counted(len(self._reused_steps), "step"), counted(blocks, "block")
            self.print_line(f"reused from the earlier run: {', '.join(totals)}")
            self._reused_steps = []

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(min(TICK_SECONDS, LOOK_SECONDS, WAIT_SECONDS)):
            with self._ticking, contextlib.suppress(LleError, OSError):
                if not ended.is_set() and (step := self._step) is not None:
                    self._tick(step, time.perf_counter())

    def _tick(self, step: Step[Report], now: float) -> None:
        """Show what the running step does now, and how far the run is."""
        if self._state is not None and now - self._last_look >= LOOK_SECONDS:
            self._last_look, self._told = now, None
            with contextlib.suppress(LleError, OSError):
                self._told = self._state()
        look = self.time_left.look(self._told, now - self._last_look)
        self._show(look, step, now)
        if self._store is not None and now - self._last_record >= RECORD_SECONDS:
            self._last_record, self._is_recorded = now, True
            self._store.put_record(RECORD, look)

    def _lines(self, step: Step[Report], now: float) -> list[str]:
        """The running step with its blocks, and what its tasks report."""
        counts = f"{step.key}: {self._done}/{step.n_blocks} blocks after {now - self._begun:.0f} s"
        return [counts] if self._told is None else [counts, self._told.text]

    def _show(self, look: Look, step: Step[Report], now: float) -> None:
        """Draw the bar, or print a line if one is due."""
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            if self._bar is None:
                self._bar = Live(console=self.console, auto_refresh=False, transient=True)
                self._bar.start()
            texts = [Text(line, no_wrap=True, overflow="ellipsis") for line in self._lines(step, now)]
            self._bar.update(Group(bar(look), *texts), refresh=True)
            return
        phase, self._phase = self._phase, "" if self._told is None else self._told.phase
        if self._phase != phase or now - self._last_line >= WAIT_SECONDS:
            self._last_line = now
            self._print_look(look, f"  {', '.join(self._lines(step, now))}")

    def _print_look(self, look: Look, text: str) -> None:
        self.print_line(f"{text}; run: {describe_share(look.fraction, look.seconds_left)}")

    def _delete_record(self) -> None:
        if self._store is not None and self._is_recorded:
            self._is_recorded = False
            with contextlib.suppress(LleError, OSError):
                self._store.objects.delete_objects([RECORD])


def bar(look: Look) -> Table:
    """The share of a run as a line with a bar, as wide as the terminal."""
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(ratio=1)
    row.add_column(justify="right")
    row.add_row(ProgressBar(total=1.0, completed=look.fraction), describe_share(look.fraction, look.seconds_left))
    return row


class SilentProgress(RunProgress):
    """Counts blocks and prints nothing."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())

    def print_line(self, text: str) -> None:
        """Nothing is printed."""

    def begin(self, step: Step[Report], n_done: int, state: State | None = None) -> None:
        self.reused[step.stage] = self.reused.get(step.stage, 0) + n_done


class JsonProgress(RunProgress):
    """Every event as one JSON object a line, for programs that collect logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(io.StringIO())  # no terminal
        self._stream = stream or sys.stderr

    def print_line(self, text: str) -> None:
        self._print_event("message", text=text)

    def begin(self, step: Step[Report], n_done: int, state: State | None = None) -> None:
        super().begin(step, n_done, state)
        if step.remark and n_done == step.n_blocks:
            self.print_line(step.remark)
        self._print_step("step_begun", step, done=n_done)

    def advance(self, step: Step[Report], report: BlockReport[Report]) -> None:
        super().advance(step, report)
        facts = {"block": report.block, "seconds": report.seconds, "peak_bytes": report.peak_bytes, "done": self._done}
        self._print_step("block_done", step, **facts)

    def end(self, step: Step[Report], seconds: float, computed: int) -> None:
        super().end(step, seconds, 1)
        self._print_step("step_done", step, seconds=round(seconds, 3), computed=computed)

    def end_stage(self, stage: str, seconds: float, peak_bytes: int) -> None:
        counts = {"computed": self.computed.get(stage, 0), "reused": self.reused.get(stage, 0)}
        self._print_event("stage_done", stage=stage, seconds=round(seconds, 3), peak_bytes=peak_bytes, **counts)

    def _print_look(self, look: Look, text: str) -> None:
        self._print_event("message", text=text, fraction=round(look.fraction, 4), seconds_left=look.seconds_left)

    def _print_step(self, event: str, step: Step[Report], **facts: object) -> None:
        self._print_event(event, stage=step.stage, step=step.name, blocks=step.n_blocks, **facts)

    def _print_event(self, event: str, **facts: object) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
        print(json.dumps(line), file=self._stream, flush=True)

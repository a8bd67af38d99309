"""Progress of a run on stderr: bars on a terminal, lines in a log, or JSON."""

import io
import json
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..core.errors import LleError, counted, gib
from .step import BlockReport, Report, Step

WAIT_SECONDS, LOOK_SECONDS = 30.0, 3.0


class RunProgress:
    """One line for each stage; on a terminal also a bar for each running step and a line when it ends.

    Without a terminal a step has a line every WAIT_SECONDS, and when it enters another phase (of an eigensolve). Steps
    without blocks to compute are counted, and printed in one line before the next step that computes.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self.computed: dict[str, int] = {}
        self.reused: dict[str, int] = {}
        self._bars = Progress(
            TextColumn("{task.description:<32}"), BarColumn(30), MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn(),
            console=self.console, transient=True, disable=not self.console.is_terminal,
        )  # fmt: skip
        self._task: TaskID | None = None
        self._done = self._fresh = 0
        self._started = self._last_line = 0.0
        self._reused_steps: list[Step[Report]] = []
        self._ended = threading.Event()

    def print_line(self, text: str) -> None:
        """Print one line of text."""
        self.console.print(text, markup=False)

    def begin(self, step: Step[Report], n_done: int, state: Callable[[], str] | None = None) -> None:
        """A step begins, with some blocks done; `state` returns a line on what its tasks do now."""
        self._done, self._fresh = n_done, 0
        self._started = self._last_line = time.perf_counter()
        self.reused[step.stage] = self.reused.get(step.stage, 0) + n_done
        if n_done == step.n_blocks:
            return
        self._end_waiting()  # of a step that failed
        self._print_reused()
        if step.remark:
            self.print_line(step.remark)
        if self.console.is_terminal:
            self._bars.start()
            self._task = self._bars.add_task(step.key, total=step.n_blocks, completed=n_done, rate="")
        if state is not None or not self.console.is_terminal:
            self._ended = threading.Event()
            threading.Thread(target=self._print_waiting, args=(step, state, self._ended), daemon=True).start()

    def advance(self, step: Step[Report], report: BlockReport[Report]) -> None:
        self._done += 1
        self._fresh += 1
        self.computed[step.stage] = self.computed.get(step.stage, 0) + 1
        now = time.perf_counter()
        rate = self._fresh / max(now - self._started, 1e-9)
        if self._task is not None:
            self._bars.update(self._task, advance=1, rate=f"{rate:.2g} blocks/s")
        elif now - self._last_line > WAIT_SECONDS and self._done < step.n_blocks:
            self._last_line = now
            remaining = (step.n_blocks - self._done) / rate
            counts = f"{self._done}/{step.n_blocks} blocks, {rate:.2g}/s"
            self.print_line(f"  {step.key}: {counts}, {remaining:.0f} s left")

    def end(self, step: Step[Report], seconds: float, computed: int) -> None:
        if not computed:
            self._reused_steps.append(step)
            return
        self._end_waiting()
        if not self.console.is_terminal:
            return
        reused = f", {step.n_blocks - computed} reused" if computed < step.n_blocks else ""
        took = f"{computed:>4} of {step.n_blocks} blocks in {seconds:.1f} s"
        self.print_line(f"  {step.key:<34} {took}{reused}")

    def computed_again(self, step: Step[Report]) -> None:
        """A reused step is computed after all, because its results were deleted and are needed."""
        self.reused[step.stage] -= step.n_blocks
        self._reused_steps = [other for other in self._reused_steps if other.key != step.key]
        self.print_line(f"{step.key}: its results were deleted, and are needed again")

    def end_stage(self, stage: str, seconds: float, peak_bytes: int) -> None:
        """Print one line about a finished stage, if it has computed something."""
        computed, reused = self.computed.get(stage, 0), self.reused.get(stage, 0)
        if not computed:
            return
        self._print_reused()
        suffix = f", {reused} reused" if reused else ""
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        blocks = counted(computed, "block")
        self.print_line(f"{now} {stage}: {blocks} in {seconds:.1f} s, largest process {gib(peak_bytes)}{suffix}")

    def stop(self) -> None:
        """Remove the bar from the screen (also after an error), and print the steps that were not printed yet."""
        self._end_waiting()
        self._print_reused()

    def _print_reused(self) -> None:
        """Print one line for all reused steps since the last such line."""
        if self._reused_steps:
            stages, blocks = (
                len({step.stage for step in self._reused_steps}),
                sum(step.n_blocks for step in self._reused_steps),
            )
            counts = ((stages, "stage"), (len(self._reused_steps), "step"), (blocks, "block"))
            totals = ", ".join(counted(count, noun) for count, noun in counts)
            self.print_line(f"reused from the earlier run: {totals}")
            self._reused_steps = []

    def _print_waiting(self, step: Step[Report], state: Callable[[], str] | None, ended: threading.Event) -> None:
        phase = ""
        while not ended.wait(min(LOOK_SECONDS, WAIT_SECONDS)):
            text = _read(state)
            if self._task is not None:
                self._bars.update(self._task, rate=text)
                continue
            now, last_phase = time.perf_counter(), phase
            phase = text.partition(":")[0]
            if phase != last_phase or now - self._last_line >= WAIT_SECONDS:
                self._last_line = now
                counts = f"{self._done}/{step.n_blocks} blocks after {now - self._started:.0f} s"
                self.print_line(f"  {step.key}: {counts}{text and f', {text}'}")

    def _end_waiting(self) -> None:
        self._ended.set()
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._bars.stop()
            self._task = None


def _read(state: Callable[[], str] | None) -> str:
    """The state of a step; empty if its store cannot be read now, because only the log needs it."""
    try:
        return "" if state is None else state()
    except (LleError, OSError):
        return ""


class SilentProgress(RunProgress):
    """Counts blocks and prints nothing."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())

    def print_line(self, text: str) -> None:
        """Nothing is printed."""

    def begin(self, step: Step[Report], n_done: int, state: Callable[[], str] | None = None) -> None:
        self.reused[step.stage] = self.reused.get(step.stage, 0) + n_done

    def end(self, step: Step[Report], seconds: float, computed: int) -> None:
        """Nothing is printed."""


class JsonProgress(RunProgress):
    """Every event as one JSON object a line, for programs that collect logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._stream = stream or sys.stderr
        self._bars.disable = True

    def print_line(self, text: str) -> None:
        self._print_event("message", text=text)

    def begin(self, step: Step[Report], n_done: int, state: Callable[[], str] | None = None) -> None:
        super().begin(step, n_done, state)
        if step.remark and n_done == step.n_blocks:
            self.print_line(step.remark)
        self._print_event("step_begun", stage=step.stage, step=step.name, blocks=step.n_blocks, done=n_done)

    def advance(self, step: Step[Report], report: BlockReport[Report]) -> None:
        self._done += 1
        self.computed[step.stage] = self.computed.get(step.stage, 0) + 1
        self._print_event(
            "block_done", stage=step.stage, step=step.name, block=report.block, seconds=report.seconds,
            peak_bytes=report.peak_bytes, done=self._done, blocks=step.n_blocks,
        )  # fmt: skip

    def end(self, step: Step[Report], seconds: float, computed: int) -> None:
        self._end_waiting()
        self._print_event(
            "step_done", stage=step.stage, step=step.name, seconds=round(seconds, 3), blocks=step.n_blocks,
            computed=computed,
        )  # fmt: skip

    def end_stage(self, stage: str, seconds: float, peak_bytes: int) -> None:
        self._print_event(
            "stage_done", stage=stage, seconds=round(seconds, 3), peak_bytes=peak_bytes,
            computed=self.computed.get(stage, 0), reused=self.reused.get(stage, 0),
        )  # fmt: skip

    def _print_event(self, event: str, **facts: Any) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
        print(json.dumps(line), file=self._stream, flush=True)

"""The progress of a run in a notebook: one output that is updated in place."""

import html
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..engine.progress import RunProgress
from ..engine.step import BlockReport, Report, Step

UPDATE_SECONDS = 0.2


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows updates of an output."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookProgress(RunProgress):
    """One bar over all stages, with the running step and the last message below it."""

    def __init__(self, stages: Sequence[str]) -> None:
        super().__init__()
        self._stages = list(stages)
        self._stage = self._step = self._message = ""
        self._share = self._furthest = 0.0
        self._updated = 0.0
        self._handle: Any = None

    def print_line(self, text: str) -> None:
        self._message = text
        self._show()

    def begin(self, step: Step[Report], n_done: int, state: Callable[[], str] | None = None) -> None:
        self.reused[step.stage] = self.reused.get(step.stage, 0) + n_done
        self._done, self._stage, self._step = n_done, step.stage, step.name
        self._share = n_done / max(step.n_blocks, 1)
        self._message = step.remark or self._message
        self._show()

    def advance(self, step: Step[Report], report: BlockReport[Report]) -> None:
        self._done += 1
        self.computed[step.stage] = self.computed.get(step.stage, 0) + 1
        self._share = self._done / max(step.n_blocks, 1)
        if time.perf_counter() - self._updated > UPDATE_SECONDS:
            self._show()

    def end(self, step: Step[Report], seconds: float, computed: int) -> None:
        """Does nothing: the next step replaces the line."""

    def end_stage(self, stage: str, seconds: float, peak_bytes: int) -> None:
        if stage == self._stages[-1]:
            self._stage, self._step = "", "done"
            self._show()

    def stop(self) -> None:
        self._show()

    def fraction(self) -> float:
        """The share of the stages that are done; the blocks of the running step count as parts of its stage.

        The number of steps of a stage is known only at its end, so the share never decreases at the start of a step.
        """
        if self._stage in self._stages:
            now = (self._stages.index(self._stage) + min(self._share, 1.0) * 0.99) / len(self._stages)
        else:
            now = float(self._step == "done")
        self._furthest = max(self._furthest, now)
        return self._furthest

    def _show(self) -> None:
        from IPython.display import display  # noqa: PLC0415 (only in a notebook)

        self._updated = time.perf_counter()
        where = f"{self._stage}.{self._step}" if self._stage else self._step
        text = f"{self.fraction():>4.0%}  {where}  {self._message}".rstrip()
        bar = f'<progress max="1" value="{self.fraction():.3f}" style="width: 20em"></progress>'
        content = {"text/plain": text, "text/html": f"{bar} {html.escape(text)}"}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

"""The progress of a run in a notebook: one output that is updated in place."""

import html
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import describe_share
from ..engine.progress import RunProgress
from ..engine.step import Report, Step
from ..engine.time_left import Look
from ..storage.store import Store

if TYPE_CHECKING:
    from IPython.display import DisplayHandle


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows updates of an output."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookProgress(RunProgress):
    """One bar for the whole run, with the running step and the last message beside it."""

    def __init__(self) -> None:
        super().__init__()
        self._message = ""
        self._handle: DisplayHandle | None = None

    def start(self, store: Store, expected: Mapping[str, float]) -> None:
        super().start(store, expected)
        self._display(self.time_left.look(), "")

    def print_line(self, text: str) -> None:
        self._message = text

    def stop(self, done: bool = False) -> None:
        super().stop()
        look = self.time_left.look()
        self._display(replace(look, fraction=1.0) if done else look, "done" if done else "")

    def _show(self, look: Look, step: Step[Report], now: float) -> None:
        self._display(look, ", ".join(self._lines(step, now)))

    def _display(self, look: Look, text: str) -> None:
        from IPython.display import display  # only in a notebook

        text = "  ".join(filter(None, [f"{describe_share(look.fraction, look.seconds_left):>4}", text, self._message]))
        bar = f'<progress max="1" value="{look.fraction:.3f}" style="width: 20em"></progress>'
        content = {"text/plain": text, "text/html": f"{bar} {html.escape(text)}"}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

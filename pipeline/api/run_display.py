"""What a notebook shows: the progress of a run, and an opened run, which is a few lines on a terminal."""

import base64
import html
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import describe_share
from ..core.methods import METHODS
from ..engine.progress import RunProgress
from ..engine.step import Report, Step
from ..engine.time_left import Look
from ..report.findings import find, verdict
from ..report.metrics import Metrics
from ..report.page_tiles import Tile, headline
from ..storage.store import Store
from .parameters import as_keyword

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

    from .open_run import OpenedRun

MAX_LINE, GREY = 100, "#6b7280"
TILE = "display:inline-block;vertical-align:top;width:11em;margin:0 .6em .6em 0;padding:.2em .6em;border-left:3px solid"
BORDERS = {"good": "#2e7d32", "warning": "#b45309"}


def as_text(run: "OpenedRun") -> str:
    """Lines of text: the store, the method and its sizes, the quality, the arrays."""
    lines = [f"OpenedRun({run.store!r})", f"  method {run.config['method']}, input {run.config['input']['kind']}"]
    if run.metrics is None:
        lines.append("  no report yet")
    else:
        tiles = [f"{tile.label.lower()} {tile.value}" for tile in headline(Metrics.read(run.metrics), run.config)]
        lines += _wrapped(tiles)
    arrays = [f"{name} {'x'.join(map(str, array.shape))}" for name, array in run.arrays.items()]
    if arrays:
        lines += _wrapped([f"arrays: {arrays[0]}", *arrays[1:]])
    return "\n".join(lines)


def as_html(run: "OpenedRun") -> str:
    """The verdict, the tiles of the report, and the picture, which is drawn if the run has no report."""
    parts = [f"<p><b>{html.escape(run.store)}</b></p>"]
    if run.metrics is not None:
        metrics = Metrics.read(run.metrics)
        sentence = verdict(metrics, find(metrics, run.config), as_keyword)
        parts.append(f"<p>{html.escape(sentence)}</p>")
        parts += [_tile(tile) for tile in headline(metrics, run.config)]
    if (png := picture_of(run)) is not None:
        data = base64.b64encode(png).decode("ascii")
        parts.append(f'<div><img style="max-width:100%" alt="the embedding" src="data:image/png;base64,{data}"></div>')
    return f"<div>{''.join(parts)}</div>"


def _tile(tile: Tile) -> str:
    border, sentence = BORDERS.get(tile.state, GREY), html.escape(tile.sentence)
    text = f"{html.escape(tile.label)}<br><b>{html.escape(tile.value)}</b>"
    return f'<div style="{TILE} {border}" title="{sentence}">{text}</div>'


def picture_of(run: "OpenedRun") -> bytes | None:
    """The picture of the report, or a new one; None if the run has no embedding."""
    if "embedding" not in run.arrays:
        return None
    stored = Store(run.store).objects
    if (run.metrics or {}).get("picture") and stored.exists("report/embedding.png"):
        return stored.get("report/embedding.png")
    from ..report.embedding_figure import draw_embedding  # matplotlib
    from ..stages.report_columns import color_column

    title = METHODS[run.config["method"]].title
    embedding, component = run.arrays["embedding"].compute(), run.arrays["component"].compute()
    return draw_embedding(embedding, component, color_column(Store(run.store), np.arange(len(component))), title)


def _wrapped(words: list[str]) -> list[str]:
    """The words, separated by commas, in lines of at most MAX_LINE characters; no line ends within a word."""
    text = ", ".join(word.replace(" ", "\xa0") for word in words)
    lines = textwrap.wrap(text, MAX_LINE, break_long_words=False, break_on_hyphens=False)
    return [f"  {line.rstrip(',')}".replace("\xa0", " ") for line in lines]


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

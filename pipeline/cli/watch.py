"""`lle status --watch`: on a terminal a table that is rewritten in place, else lines; JSON objects with --json."""

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..core.errors import NoRunYet
from .output import describe_progress, status_lines

if TYPE_CHECKING:
    from ..jobs.status import Status

LINE_SECONDS = 10.0


def watch_status(read: Callable[[], "Status"], as_json: bool, seconds: float) -> "Status":
    """Show the status every `seconds` until the run ends; returns the last one, which is not shown.

    Waits for a run that has not begun, or whose store is erased by --fresh, and says so on stderr.
    """
    show = _print_json if as_json else _rewrite_table if sys.stdout.isatty() else _print_lines
    return show(lambda: _read_begun(read, seconds), seconds)


def _read_begun(read: Callable[[], "Status"], seconds: float) -> "Status":
    is_announced = False
    while True:
        try:
            return read()
        except NoRunYet as error:
            if not is_announced:
                where = str(error).partition(": ")[0]
                typer.echo(f"{where}: no run has begun there yet; waiting for one (Ctrl-C ends this)", err=True)
            is_announced = True
            time.sleep(seconds)


def _print_json(read: Callable[[], "Status"], seconds: float) -> "Status":
    while (status := read())["state"] == "running":
        typer.echo(json.dumps(status))
        time.sleep(seconds)
    return status


def _rewrite_table(read: Callable[[], "Status"], seconds: float) -> "Status":
    with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:
        while (status := read())["state"] == "running":
            head, table, rest = status_lines(status, live.console.width)
            rows = [Text(line, no_wrap=True, overflow="ellipsis") for line in table]
            live.update(Group(*map(Text, head), *rows, *map(Text, rest)), refresh=True)
            time.sleep(seconds)
    return status


def _print_lines(read: Callable[[], "Status"], seconds: float) -> "Status":
    """One line when a stage begins, and one every LINE_SECONDS while it runs."""
    stage, printed = "", 0.0
    while (status := read())["state"] == "running":
        now = status["now"]
        elapsed = time.monotonic() - printed
        if now is not None and (now["stage"] != stage or elapsed >= LINE_SECONDS):
            counts = f"{now['stage']}.{now['step']}: {now['done']} of {now['blocks']} blocks"
            typer.echo(f"{time.strftime('%H:%M:%S')} {counts}{describe_progress(status)}")
            stage, printed = now["stage"], time.monotonic()
        time.sleep(seconds)
    return status

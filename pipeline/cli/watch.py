"""`lle status --watch`: on a terminal a table that is rewritten in place, else lines; JSON objects with --json."""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..core.errors import NoRunYet
from .output import describe_progress, status_lines

if TYPE_CHECKING:
    from ..jobs.status import Status


def watch_status(read: Callable[[], "Status"], as_json: bool, seconds: float) -> "Status":
    """Show the status every `seconds` until the run ends; returns the last one, which is not shown.

    Waits for a run that has not begun, or whose store is erased by --fresh, and says so on stderr.
    """
    is_table, is_waiting = sys.stdout.isatty() and not as_json, False
    table = Live(console=Console(highlight=False), auto_refresh=False, transient=True)
    show: Callable[[Status], None]
    show = partial(_rewrite, table) if is_table else _print_json if as_json else _line_printer()
    with table if is_table else contextlib.nullcontext():
        while True:
            try:
                status = read()
                if status["state"] != "running":
                    return status
                show(status)
                is_waiting = False
            except NoRunYet as error:
                if not is_waiting:
                    where = str(error).partition(": ")[0]
                    typer.echo(f"{where}: no run has begun there yet; waiting for one (Ctrl-C ends this)", err=True)
                is_waiting = True
            time.sleep(seconds)


def _print_json(status: "Status") -> None:
    typer.echo(json.dumps(status))


def _rewrite(table: Live, status: "Status") -> None:
    head, rows, rest = status_lines(status)
    unwrapped = [Text(line, no_wrap=True, overflow="ellipsis") for line in rows]
    table.update(Group(*map(Text, head), *unwrapped, *map(Text, rest)), refresh=True)


def _line_printer(seconds: float = 10.0) -> Callable[["Status"], None]:
    """A function that prints one line when a stage begins, and one every `seconds` while it runs."""
    stage, printed = "", 0.0

    def show(status: "Status") -> None:
        nonlocal stage, printed
        now = status["now"]
        if now is not None and (now["stage"] != stage or time.monotonic() - printed >= seconds):
            counts = f"{now['stage']}.{now['step']}: {now['done']} of {now['blocks']} blocks"
            typer.echo(f"{time.strftime('%H:%M:%S')} {counts}{describe_progress(status)}")
            stage, printed = now["stage"], time.monotonic()

    return show

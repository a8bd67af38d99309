"""The end of a command: its result or its error on stdout and stderr, as JSON objects for --json, and its exit code."""

import atexit
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

from ..core.address_space import explained, is_out_of_memory
from ..core.credentials import redact
from ..core.errors import Interrupted, LleError, OutputLost
from ..core.signals import interruptible

R = TypeVar("R", bound=Mapping[str, object])
"""The result of a command as JSON data."""


def finish(act: Callable[[], R], as_json: bool, describe: Callable[[R], str], resumes: bool = False) -> None:
    """Run a command's body; print its result or its error; end with its exit code."""
    details: dict[str, object] = {}
    try:
        with interruptible():
            result = act()
        typer.echo(json.dumps({"status": "done", **result}) if as_json else describe(result))
        return
    except OutputLost:
        raise
    except (LleError, Interrupted) as error:
        kind, message, code = type(error).__name__, str(error), error.exit_code
        if (so_far := getattr(error, "result", None)) is not None:
            details = {"store": so_far.store, "metrics": so_far.metrics}
        if (plan := getattr(error, "plan", None)) is not None:
            if not as_json:
                print_of_failure(describe(plan))
            details |= plan
    except Exception as error:
        if os.environ.get("LLE_DEBUG"):
            typer.echo(redact(traceback.format_exc()), err=True)
        kind, message, code = "NotEnoughMemory", explained(error), 1
        if not is_out_of_memory(error):
            kind, message = "InternalError", f"{message}. This is an error of the program; LLE_DEBUG=1 shows where"
    message = redact(message)
    typer.echo(f"lle: {message}", err=True)
    if code in {130, 143} and resumes:
        typer.echo("Finished blocks are kept; run the same command again to resume.", err=True)
    if as_json:
        print_failure(kind, message, code, details)
    raise typer.Exit(code)


def leave(code: int) -> NoReturn:
    """Run the exit functions, and end the process without the shutdown of its interpreter.

    A thread that is in a request at that time can abort the process during the shutdown, and a successful run would
    end with 134. Examples: obstore's client (github.com/PyO3/pyo3-async-runtimes/issues/40), a thread that waits for a
    server.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # what the command printed was written before
            stream.flush()
    os._exit(code)


def print_failure(kind: str, message: str, code: int, details: dict[str, object] | None = None) -> None:
    """Print the last object on a failed command's stdout; `details` holds partial results."""
    failure = {"status": "failed", "error": kind, "message": message, "exit_code": code, **(details or {})}
    print_of_failure(json.dumps(failure))


def print_of_failure(text: str) -> None:
    """Print on stdout what a failed command found. The exit code stays that of the failure if stdout has no room."""
    try:
        typer.echo(text)
    except OutputLost as lost:
        typer.echo(f"lle: {lost}", err=True)


class Commands(TyperGroup):
    """The commands; with --json, an error in the command line is printed as JSON on stdout too."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        try:
            return super().main(args, *rest, **options)
        except SystemExit as ended:  # the handler of typer's own error raises it; commands end with Exit
            format_message = getattr(ended.__context__, "format_message", None)
            if format_message is not None and "--json" in (sys.argv if args is None else args):
                print_failure("UsageError", redact(format_message()), 2)
            raise

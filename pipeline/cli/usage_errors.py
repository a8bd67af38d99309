"""Errors as JSON objects for --json, including errors in the command line itself."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from ..core.credentials import redact
from ..core.errors import OutputLost


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

    arguments: tuple[str, ...] = ()

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **extra: Any) -> Any:
        self.arguments = tuple(args)  # a copy: typer removes the arguments from the list
        with self._usage_error_as_json():
            return super().make_context(info_name, args, *rest, **extra)

    def invoke(self, ctx: Any) -> object:
        with self._usage_error_as_json():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def _usage_error_as_json(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            format_message = getattr(error, "format_message", None)  # typer's own errors only; commands end with Exit
            if format_message is not None and "--json" in self.arguments:
                print_failure("UsageError", redact(format_message()), 2)
            raise

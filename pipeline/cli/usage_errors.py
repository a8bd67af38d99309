"""Failures as the JSON objects that --json promises, also where the command itself was typed in a wrong way."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from pipeline.core.credentials import redact


def failure_json(kind: str, message: str, code: int, known: dict[str, Any] | None = None) -> str:
    """The object that ends a failed command's stdout; `known` is what it found nevertheless."""
    return json.dumps({"status": "failed", "error": kind, "message": message, "exit_code": code, **(known or {})})


class Commands(TyperGroup):
    """The commands; what was called in a wrong way is said on stdout as well where JSON was asked for."""

    given: tuple[str, ...] = ()

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **extra: Any) -> Any:
        self.given = tuple(args)  # the arguments themselves are taken from the list
        with self._said():
            return super().make_context(info_name, args, *rest, **extra)

    def invoke(self, ctx: Any) -> Any:
        with self._said():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            said = getattr(error, "format_message", None)  # only what typer itself refuses; commands end with Exit
            if said is not None and "--json" in self.given:
                typer.echo(failure_json("UsageError", redact(said()), 2))
            raise

"""A command of `lle` called in this process, with the rules that hold for every command."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from lle.cli.commands import app
from tests.fuzz.campaign import BrokenRule

MAX_MESSAGE = 20_000
SERIAL = "execution: {block_points: 40, cluster: {kind: serial}}\n"


class Ended(NamedTuple):
    """Exit code and last JSON object of a command."""

    code: int
    answer: dict[str, Any]

    @property
    def outcome(self) -> str:
        return "exit 0" if self.code == 0 else f"exit {self.code} {self.answer['error']}"


def call(*arguments: object, codes: tuple[int, ...] = (0, 1, 2, 3)) -> Ended:
    """Run the command. Raises BrokenRule for an unnamed error, another exit code, or output that is not JSON."""
    words = [str(argument) for argument in arguments]
    os.environ["LLE_DEBUG"] = "1"  # the stack of an unnamed error
    result = CliRunner().invoke(app, [*words, "--json"])
    shown = f"lle {' '.join(words)[:2000]}\nexit code {result.exit_code}\n{result.output[-6000:]}"
    try:
        answer = json.loads(result.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise BrokenRule(f"no JSON on stdout: {shown}") from result.exception
    if answer.get("error") == "InternalError" or "Traceback" in result.output:
        raise BrokenRule(f"an unnamed error: {shown}")
    if result.exit_code not in codes:
        raise BrokenRule(f"an exit code other than {codes}: {shown}")
    if result.exit_code and len(str(answer["message"])) > MAX_MESSAGE:
        raise BrokenRule(f"a message of {len(answer['message'])} characters: {shown}")
    return Ended(result.exit_code, answer)


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    return path

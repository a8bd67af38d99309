"""How a command ends: its exit code, also if stdout or stderr cannot be written."""

import json
import subprocess
import sys

import pytest

from tests.support.commands import write_config

FULL = "/dev/full"


def ended(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A shell command with `"$@"` for the command `lle` with these arguments."""
    words = ["sh", "-c", command, "sh", sys.executable, "-m", "lle", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("redirection", [f"> {FULL}", pytest.param(">&-", marks=pytest.mark.slow)])
def test_stdout_that_cannot_be_written_is_one_line_and_exit_code_4(redirection):
    process = ended(f'"$@" {redirection}', "schema", "--json")
    assert process.returncode == 4
    [line] = process.stderr.splitlines()
    assert line.startswith("lle: the result cannot be written to stdout: ")


@pytest.mark.slow
def test_a_failure_keeps_its_exit_code_if_stdout_cannot_be_written(tmp_path):
    for arguments in (("status", str(tmp_path / "none"), "--json"), ("schema", "--none", "--json")):
        process = ended(f'"$@" > {FULL}', *arguments)
        assert process.returncode == 2
        assert "Traceback" not in process.stderr
        assert "the result cannot be written to stdout" in process.stderr


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [f"2> {FULL}", "2>&-"])
@pytest.mark.parametrize("log", ["text", "json"])
def test_a_log_that_cannot_be_written_does_not_end_a_run(tmp_path, redirection, log):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "swiss_roll", "n_points": 400})
    process = ended(f'"$@" {redirection}', "run", str(config), "--json", "--log", log)
    assert process.returncode == 0
    [result] = process.stdout.splitlines()
    assert json.loads(result)["status"] == "done"


def test_the_end_of_a_command_does_not_run_the_shutdown_of_the_interpreter():
    """A thread that is inside a request can abort that shutdown. Here the destructor of an object does so."""
    code = """
import atexit, os
from lle.cli.finish import leave
class Aborting:
    def __del__(self, abort=os.abort):
        abort()
aborting = Aborting()
atexit.register(print, "exit function")
print("result")
leave(3)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (3, "result\nexit function\n")

"""The examples of cron, Airflow, Prefect and Apptainer in docs/ map exit codes as the pages say."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.support.commands import FEW, write_config
from tests.support.waiting import wait_until
from tests.test_docs import ROOT, code_blocks

[CRON] = code_blocks("docs/how_to/schedule.md", "sh")
AIRFLOW, PREFECT = code_blocks("docs/how_to/schedule.md", "python")
[APPTAINER] = [block for block in code_blocks("docs/tutorials/slurm.md", "sh") if "apptainer exec" in block]


def command(folder: Path, name: str, script: str) -> None:
    """A program in folder/bin."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / name).chmod(0o755)


def lle_that_ends_with(folder: Path, *codes: int) -> None:
    """A program lle that ends with these codes, one at each call, and counts its calls in folder/calls."""
    table = "\n".join(f"{number}) exit {code} ;;" for number, code in enumerate(codes, 1))
    command(folder, "lle", f"echo call >> {folder}/calls\ncase $(wc -l < {folder}/calls) in\n{table}\nesac\nexit 99")


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "RETRY_SECONDS": "0", "PYTHONPATH": str(ROOT)}


def cron(folder: Path, config: str = "job.yaml") -> tuple[int, str]:
    """(exit code, what cron would mail) of the script in the page."""
    (folder / "nightly.sh").write_text(CRON)
    ended = subprocess.run(
        ["sh", "nightly.sh", config], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("codes", "calls"), [((0,), 1), ((1, 0), 2), ((143, 130, 0), 3), ((1, 1, 1), 3), ((2,), 1), ((3,), 1), ((1, 2), 2)]
)
def test_cron_script_retries_what_a_retry_may_cure(tmp_path, codes, calls):
    lle_that_ends_with(tmp_path, *codes)
    code, mail = cron(tmp_path)
    assert code == codes[-1]
    assert len((tmp_path / "calls").read_text().splitlines()) == calls
    assert (f"exit code {code}" in mail) == bool(mail) == bool(code)


@pytest.mark.slow
def test_cron_script_runs_the_command_and_keeps_its_log(tmp_path):
    command(tmp_path, "lle", f'exec {sys.executable} -m lle "$@"')
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "sheet", "n_points": 200}, **FEW)
    assert cron(tmp_path, str(config)) == (0, "")
    config.write_text(config.read_text().replace("sheet", "shed"))
    code, mail = cron(tmp_path, str(config))
    assert code == 2
    assert "input.name" in mail
    assert (tmp_path / "nightly.log").read_text().count('"status": "done"') == 1


def decorator(*arguments, **options):
    """@decorator, or @decorator(...): returns the function, with the options as its attribute."""
    if arguments and callable(arguments[0]):
        return arguments[0]

    def apply(function):
        function.options = options
        return function

    return apply


class FailException(Exception):
    """Stands for AirflowFailException."""


@pytest.mark.parametrize(
    ("code", "error"),
    [(0, None), (1, RuntimeError), (143, RuntimeError), (2, FailException), (3, FailException), (4, FailException)],
)
def test_airflow_task_fails_without_retry_for_codes_2_to_4(tmp_path, monkeypatch, code, error):
    exceptions, sdk = ModuleType("airflow.sdk.exceptions"), ModuleType("airflow.sdk")
    exceptions.AirflowFailException, sdk.dag, sdk.task = FailException, decorator, decorator
    for module in (exceptions, sdk):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    lle_that_ends_with(tmp_path, code)
    monkeypatch.setenv("PATH", environment(tmp_path)["PATH"])
    if error is None:
        exec(AIRFLOW, {})  # its last line runs the task, which is a plain function here
        return
    with pytest.raises(error, match=f"exit code {code}"):
        exec(AIRFLOW, {})


@pytest.mark.parametrize(("code", "retry"), [(1, True), (143, True), (2, False), (3, False), (4, False)])
def test_prefect_task_retries_codes_other_than_2_to_4(tmp_path, monkeypatch, code, retry):
    prefect = ModuleType("prefect")
    prefect.flow = prefect.task = decorator
    monkeypatch.setitem(sys.modules, "prefect", prefect)
    lle_that_ends_with(tmp_path, code)
    monkeypatch.setenv("PATH", environment(tmp_path)["PATH"])
    names = {"__name__": "nightly"}
    exec(PREFECT, names)
    with pytest.raises(subprocess.CalledProcessError) as failure:
        names["nightly_embedding"]("job.yaml")
    state = SimpleNamespace(result=lambda raise_on_failure: failure.value)
    assert names["embed"].options["retry_condition_fn"](None, None, state) is retry


@pytest.mark.parametrize("signalled", [False, True])
def test_apptainer_job_is_requeued_after_the_signal_only(tmp_path, signalled):
    command(tmp_path, "apptainer", 'while [ "$1" != lle ]; do shift; done; exec "$@"')
    command(
        tmp_path, "lle", f"trap 'exit 143' TERM; echo $@ > {tmp_path}/began; {'sleep 60 & wait' if signalled else ''}"
    )
    command(tmp_path, "scontrol", f"echo $@ > {tmp_path}/requeued")
    (tmp_path / "job.sbatch").write_text(APPTAINER)
    process = subprocess.Popen(
        ["bash", "job.sbatch", "job.yaml"], cwd=tmp_path, env={**environment(tmp_path), "SLURM_JOB_ID": "7"}
    )
    wait_until((tmp_path / "began").exists)
    if signalled:
        process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == (143 if signalled else 0)
    assert (tmp_path / "began").read_text() == "run job.yaml --json\n"
    assert (tmp_path / "requeued").exists() is signalled

"""Worker jobs on a real SLURM of one node: a worker cancelled during a stage, a driver at its time limit."""

import gc
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lle.clusters import slurm as slurm_module
from lle.clusters.slurm import job_options, slurm_cluster
from lle.config.load import load_config
from lle.config.models import SlurmCluster
from lle.core.errors import ConfigError, LleError
from tests.support.commands import start, write_config
from tests.support.paths import REPOSITORY
from tests.support.slurm_node import slurm_node, why_not
from tests.support.stored import result_bytes

pytest.importorskip("dask_jobqueue", reason="NOT CHECKED: dask-jobqueue is not installed")
N_POINTS = 5000
needs_slurm = pytest.mark.skipif(bool(why_not()), reason=f"NOT CHECKED on SLURM: {why_not()}")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with slurm_node(tmp_path_factory.mktemp("slurm")) as environment:
        # Jobs run this checkout with this interpreter, whatever is installed.
        paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
        yield {
            **environment,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "MKL_CBWR": "AUTO,STRICT",
            "OMP_NUM_THREADS": "1",
        }


@pytest.fixture
def in_slurm(slurm, monkeypatch):
    """This process itself talks to the SLURM of the test."""
    for name in ("SLURM_CONF", "PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, slurm[name])


def job(folder: Path, **cluster) -> Path:
    folder.mkdir(exist_ok=True)
    section = {"kind": "slurm", "workers": 2, "memory": "1GiB", "start_timeout": 120, **cluster}
    return write_config(
        folder,
        input={"kind": "synthetic", "name": "swiss_roll", "n_points": N_POINTS, "seed": 5},
        neighbors={"method": "brute"},
        execution={"block_points": 125, "cluster": section},
    )


def queue(environment) -> dict[str, tuple[str, str]]:
    """{job id: (name, state)} of what waits or runs."""
    completed = subprocess.run(
        ["squeue", "-h", "-o", "%i %j %T"], env=environment, capture_output=True, text=True, check=True, timeout=30
    )
    return {words[0]: (words[1], words[2]) for words in map(str.split, completed.stdout.splitlines())}


def blocks(store: Path, stage: str) -> int:
    return len(list((store / "_done" / stage).glob("*.json")))


def wait_for(condition, seconds: float, describe) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    """Result of the same job without SLURM."""
    config = job(tmp_path_factory.mktemp("serial"))
    subprocess.run(
        [sys.executable, "-m", "lle", "run", str(config), "--set", "execution.cluster={kind: serial}"],
        check=True,
        capture_output=True,
        timeout=400,
        env={**os.environ, "MKL_CBWR": "AUTO,STRICT", "OMP_NUM_THREADS": "1"},
    )
    return result_bytes(config.parent / "run.zarr")


def cancel_a_worker(environment) -> None:
    running = [
        number
        for number, name_and_state in queue(environment).items()
        if name_and_state == (slurm_module.JOB_NAME, "RUNNING")
    ]
    subprocess.run(["scancel", running[0]], env=environment, check=True, timeout=30)


@needs_slurm
@pytest.mark.slow
@pytest.mark.timeout(600)
class TestOnSlurm:
    def test_worker_cancelled_during_a_stage_changes_no_byte(self, slurm, tmp_path, undisturbed):
        config = job(tmp_path / "cancelled")
        store = config.parent / "run.zarr"
        process = start(config, env=slurm, cwd=tmp_path)
        try:
            alive = lambda: process.poll() is None  # noqa: E731
            wait_for(lambda: blocks(store, "find_neighbors") >= 2 or not alive(), 300, lambda: queue(slurm))
            assert alive(), process.communicate()[1]
            cancel_a_worker(slurm)
            assert blocks(store, "find_neighbors") < N_POINTS // 125, "cancelled too late to be in mid-stage"
            out, errors = process.communicate(timeout=400)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, errors
        assert json.loads(out)["metrics"]["n_points"] == N_POINTS
        assert result_bytes(store) == undisturbed
        wait_for(lambda: not queue(slurm), 30, lambda: queue(slurm))

    def test_driver_job_resumes_after_its_time_limit(self, slurm, tmp_path, undisturbed):
        """The committed batch script: USR1 before the walltime stops it cleanly, the requeued job resumes."""
        config = job(tmp_path / "driver")
        store = config.parent / "run.zarr"
        lle_command = tmp_path / "bin" / "lle"
        lle_command.parent.mkdir()
        lle_command.write_text(f'#!/bin/sh\nexec {sys.executable} -m lle "$@"\n')
        lle_command.chmod(0o755)
        environment = {**slurm, "PATH": f"{lle_command.parent}:{slurm['PATH']}"}
        script = REPOSITORY / "configs" / "lle.sbatch"
        submitted = subprocess.run(
            f"sbatch --parsable --mem=2G --cpus-per-task=1 --output={tmp_path}/driver.log {script} {config}".split(),
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            timeout=30,
        )
        number = submitted.stdout.strip()
        log = lambda: (tmp_path / "driver.log").read_text() if (tmp_path / "driver.log").exists() else ""  # noqa: E731
        wait_for(lambda: blocks(store, "find_neighbors") >= 2, 300, lambda: (queue(slurm), log()))
        subprocess.run(["scancel", "--signal=USR1", "--batch", number], env=slurm, check=True, timeout=30)
        wait_for(lambda: "run the same command again to resume" in log(), 200, log)
        wait_for(lambda: number not in queue(slurm), 400, lambda: (queue(slurm), log()))
        results = [json.loads(line) for line in log().splitlines() if line.startswith('{"status"')]
        assert [result["status"] for result in results] == ["failed", "done"], log()
        assert results[0]["exit_code"] == 143
        assert sum(results[1]["blocks_reused"].values()) > 0
        assert result_bytes(store) == undisturbed

    def test_a_worker_cancelled_is_replaced(self, slurm, in_slurm, monkeypatch, tmp_path):
        monkeypatch.setattr(slurm_module, "REPLACE_SECONDS", 1)
        monkeypatch.chdir(tmp_path)
        with slurm_cluster(SlurmCluster(kind="slurm", workers=2, memory="1GiB", start_timeout=60)) as client:
            client.wait_for_workers(2, timeout=60)
            workers_before = set(client.scheduler_info(n_workers=-1)["workers"])
            cancel_a_worker(slurm)
            wait_for(
                lambda: set(client.scheduler_info(n_workers=-1)["workers"]) - workers_before, 60, lambda: queue(slurm)
            )
            assert client.submit(sum, [1, 2]).result(30) == 3
        wait_for(lambda: not queue(slurm), 30, lambda: queue(slurm))

    def test_error_message_of_slurm_is_shown(self, in_slurm):
        refused = SlurmCluster(kind="slurm", workers=1, partition="no-such-partition", start_timeout=20)
        with pytest.raises(ConfigError, match="no-such-partition"), slurm_cluster(refused):
            pass


def script_of(cluster: SlurmCluster) -> str:
    """The script of a worker's job."""
    from dask_jobqueue.slurm import SLURMJob  # skipped above where it is missing

    options = job_options(cluster)
    options.pop("scheduler_options")
    return SLURMJob("tcp://127.0.0.1:1", "one", **options).job_script().rstrip("\n")


class TestOptions:
    def test_workers_leave_before_slurm_ends_their_job(self):
        options = job_options(SlurmCluster(kind="slurm", walltime="02:00:00"))
        arguments = dict(zip(options["worker_extra_args"][::2], options["worker_extra_args"][1::2], strict=True))
        lifetime, stagger = (int(arguments[name].rstrip("s")) for name in ("--lifetime", "--lifetime-stagger"))
        assert options["walltime"] == "2:00:00"
        assert 0 < lifetime + stagger < 7200

    def test_a_job_holds_the_memory_of_its_workers(self):
        options = job_options(SlurmCluster(kind="slurm", memory="3GiB", workers_per_job=5))
        assert (options["memory"], options["processes"], options["cores"]) == (f"{15 * 2**30}B", 5, 5)

    def test_script_has_the_options_of_the_config(self):
        cluster = load_config(REPOSITORY / "configs" / "slurm.yaml").execution.cluster
        script = script_of(cluster.model_copy(update={"log_directory": None, "directives": ("--exclude=node013",)}))
        for line in ("-p normal", "--cpus-per-task=16", "--mem=64G", "-t 4:00:00", "--exclude=node013"):
            assert f"#SBATCH {line}\n" in script
        assert "export NUMBA_NUM_THREADS=1\n" in script
        assert f"export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED={sys.version_info >= (3, 12)}\n" in script
        assert "--nworkers 16" in script
        assert "--nthreads 1 " in script

    def test_dashboards_listen_on_their_own_machine_only(self):
        cluster = SlurmCluster(kind="slurm")
        assert job_options(cluster)["scheduler_options"]["dashboard_address"].startswith("127.0.0.1:")
        assert re.search(r"--dashboard-address 127\.0\.0\.1:\d", script_of(cluster).splitlines()[-1])

    def test_names_and_folders_cannot_add_lines_to_the_script(self, tmp_path):
        """Each value is one word on its own line; the other lines do not change."""
        settings = {
            "partition": "a-1,b",
            "account": "lab_2.x",
            "interface": "ib0:1",
            "log_directory": f"{tmp_path}/logs",
            "local_directory": "${TMPDIR}/x",
        }
        plain, full = (script_of(SlurmCluster(kind="slurm", **options)).splitlines() for options in ({}, settings))
        added = [
            f"#SBATCH -e {tmp_path}/logs/lle-worker-%J.err",
            f"#SBATCH -o {tmp_path}/logs/lle-worker-%J.out",
            "#SBATCH -p a-1,b",
            "#SBATCH -A lab_2.x",
        ]
        assert [line for line in full[:-1] if line not in plain] == added
        assert [line for line in full if line not in added][:-1] == plain[:-1]
        words, plain_words = full[-1].split(), plain[-1].split()
        assert len(words) == len(plain_words) + 4
        assert set(words) - set(plain_words) == {"--local-directory", "${TMPDIR}/x", "--interface", "ib0:1"}

    def test_the_folder_of_the_logs_may_be_below_the_home_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        options = job_options(SlurmCluster(kind="slurm", log_directory="~/logs"))
        assert options["log_directory"] == f"{tmp_path}/logs"

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("interface", "none0", r"'none0' is not a valid network interface.*execution\.cluster\.interface"),
            ("log_directory", "/proc/none", r"execution\.cluster\.log_directory: /proc/none: "),
        ],
    )
    def test_interface_or_folder_that_this_machine_lacks_is_a_config_error(self, monkeypatch, key, value, message):
        monkeypatch.setattr(slurm_module.shutil, "which", lambda command: command)
        with pytest.raises(ConfigError, match=message), slurm_cluster(SlurmCluster(kind="slurm", **{key: value})):
            pass
        gc.collect()  # a scheduler that was left half open would warn here

    def test_no_answer_of_slurm_is_an_error_that_a_retry_may_cure(self, monkeypatch, tmp_path):
        silent = tmp_path / "sbatch"
        silent.write_text("#!/bin/sh\nexec sleep 60\n")
        silent.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(slurm_module, "SBATCH_SECONDS", 0.2)
        with pytest.raises(LleError, match=r"did not answer .* within 0\.2 s; look at `sinfo`") as caught:
            slurm_module._try_submission("#!/bin/sh\n")
        assert caught.value.exit_code == 1

    def test_without_slurm_it_is_a_config_error(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ConfigError, match="sbatch, scancel, squeue"), slurm_cluster(SlurmCluster(kind="slurm")):
            pass

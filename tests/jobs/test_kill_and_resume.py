"""Kill the job and run it again: the same bytes, and no finished block is computed twice."""

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from lle.stages.registry import STAGES
from tests.support.commands import lle, start, wait_for_block, write_config
from tests.support.stored import result_bytes

N_POINTS, BLOCK = 2000, 500
KILLED_IN = tuple(stage for stage in STAGES if stage != "write_report")


def job(folder: Path, cluster: str = "serial") -> Path:
    folder.mkdir(exist_ok=True)
    workers = {"kind": cluster, "workers": 2} if cluster == "local" else {"kind": cluster}
    return write_config(
        folder,
        input={"kind": "synthetic", "name": "swiss_roll", "n_points": N_POINTS, "seed": 2},
        execution={"block_points": BLOCK, "cluster": workers},
        quality={"sample": 500},
    )


def markers(store: Path, stage: str) -> set[str]:
    return {path.name for path in (store / "_done" / stage).glob("*.json")}


def kill_in(config: Path, stage: str, number: int) -> set[str]:
    """Start the job, send the signal to all its processes once the stage has a marker; the markers it left."""
    store = config.parent / "run.zarr"
    process = start(config)
    wait_for_block(process, store, stage)
    os.killpg(process.pid, number)
    process.communicate(timeout=60)
    return {f"{name}/{marker}" for name in STAGES for marker in markers(store, name)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    config = job(tmp_path_factory.mktemp("undisturbed"))
    lle("run", config)
    return result_bytes(config.parent / "run.zarr")


@pytest.mark.parametrize("stages", [("find_neighbors",), pytest.param(KILLED_IN, marks=pytest.mark.slow)])
def test_killed_job_resumes_with_the_same_bytes(tmp_path, undisturbed, stages):
    """One job, killed once in each of some stages."""
    config = job(tmp_path / "killed")
    store = config.parent / "run.zarr"
    modified: dict[str, int] = {}
    for stage in stages:
        finished_blocks = kill_in(config, stage, signal.SIGKILL)
        assert any(name.startswith(f"{stage}/") for name in finished_blocks)
        times = {name: (store / "_done" / name).stat().st_mtime_ns for name in finished_blocks}
        assert {name: times[name] for name in modified} == modified, "a finished block was computed again"
        modified = times
    finished = sum(1 for name in modified if not name.startswith("write_report"))
    result = lle("run", config)
    assert sum(result["blocks_reused"].values()) == finished
    assert result_bytes(store) == undisturbed


@pytest.mark.slow
def test_workers_give_the_same_bytes_as_one_process(tmp_path, undisturbed):
    config = job(tmp_path / "workers", "local")
    finished_blocks = kill_in(config, "solve_weights", signal.SIGKILL)
    process = start(config)
    out, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    reused = sum(json.loads(out)["blocks_reused"].values())
    assert reused >= len(finished_blocks) > 0
    assert result_bytes(config.parent / "run.zarr") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGINT, 130)]
)
def test_signal_stops_the_run_with_its_exit_code(tmp_path, number, code):
    config = job(tmp_path / "stopped")
    store = config.parent / "run.zarr"
    process = start(config)
    wait_for_block(process, store, "find_neighbors")
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert json.loads(out)["exit_code"] == code
    assert "run the same command again to resume" in errors
    assert not (store / "_run" / "lock.json").exists()
    assert not list(store.rglob("*.partial"))


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["workers import", "workers compute"])
def test_ctrl_c_with_workers_prints_no_traceback(tmp_path, moment):
    """A terminal sends Ctrl-C to all processes of the run."""
    config = job(tmp_path / "interrupted", "local")
    process = start(config)
    while process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        imports = any("spawn_main" in " ".join(child.cmdline()) for child in children)
        if imports if moment == "workers import" else markers(config.parent / "run.zarr", "ingest"):
            break
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.endswith("stopped by SIGINT\nFinished blocks are kept; run the same command again to resume.\n")
    alive = psutil.wait_procs(children, timeout=20)[1]
    assert [child.cmdline() for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
def test_second_run_is_refused_but_the_lock_of_a_dead_run_is_taken_over(tmp_path):
    config = job(tmp_path / "twice")
    store = config.parent / "run.zarr"
    first = start(config)
    wait_for_block(first, store, "ingest")
    os.killpg(first.pid, signal.SIGSTOP)  # without it, a fast first run ends before the second one begins
    try:
        second = start(config)
        out, errors = second.communicate(timeout=60)
        assert second.returncode == 1, errors
        assert f"process {first.pid}" in json.loads(out)["message"]
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    assert (store / "_run" / "lock.json").exists()
    assert lle("run", config)["metrics"]["n_points"] == N_POINTS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_imports_ends_the_command(tmp_path, number):
    """As process 1 of a container, Python ignores SIGTERM until a handler is installed."""
    process = start(job(tmp_path / "early"))
    while "numpy" not in Path(f"/proc/{process.pid}/maps").read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert json.loads(out)["exit_code"] == 128 + number
    assert errors == f"lle: stopped by {number.name}\n"
    assert not (tmp_path / "early" / "run.zarr").exists()

"""`lle status`: the table, its total and the time left, and what --watch prints on a terminal and into a file."""

import io
import re
import signal
import time
from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from lle.cli import watch
from lle.cli.commands import app
from lle.cli.output import describe_run, describe_status
from lle.cli.watch import watch_status
from lle.core.errors import Interrupted, StoreError
from lle.engine import checkpoint
from lle.jobs.status import failure_recorded
from lle.storage.lock import RunLock
from lle.storage.store import Store
from tests.support.commands import FEW, lle, refused, write_config


def at(stage: str, step: str, done: int, blocks: int = 40) -> dict:
    return {"state": "running", "now": {"stage": stage, "step": step, "done": done, "blocks": blocks}}


def test_watch_prints_a_line_for_each_stage_into_a_file(monkeypatch, capsys):
    monkeypatch.setattr(
        watch, "time", Mock(strftime=time.strftime, monotonic=time.monotonic, sleep=lambda seconds: None)
    )
    searching = at("search", "a", 3) | {"progress": {"fraction": 0.424, "seconds_left": 200.0}}
    statuses = iter([at("ingest", "read", 1), at("ingest", "read", 2), searching, {"state": "done", "now": None}])
    assert watch_status(lambda: next(statuses), False, 2.0)["state"] == "done"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "ingest.read: 1 of 40 blocks",
        "search.a: 3 of 40 blocks; run: 42 %, about 3 min left",
    ]
    assert "\x1b" not in "".join(lines)


def status_with(n_blocks: int) -> dict:
    """A run in its second of three stages with such numbers of blocks."""
    names = ("find_neighbors", "solve_embedding", "write_report")
    entries = [
        {"done": n_blocks, "blocks": n_blocks, "seconds": 1234.5, "steps": {}},
        {"done": 3, "blocks": n_blocks, "seconds": 2.0, "steps": {}},
        {"done": 0, "blocks": None, "seconds": 0.0, "steps": {}},
    ]
    return {
        "store": "runs/x.zarr",
        "state": "running",
        "now": None,
        "solving": [],
        "filters": [],
        "stages": dict(zip(names, entries, strict=True)),
    }


def test_status_has_a_total_and_counts_stages_that_have_not_begun():
    total, waiting = describe_status(status_with(40)).splitlines()[-2:]
    assert " ".join(total.split()) == "total 43 of 80 blocks 1236.5 s"
    assert waiting == "  1 of 3 stages have not begun"


@pytest.mark.parametrize("width", [25, 40, 56])
def test_a_narrow_watch_wraps_no_line_of_the_table(monkeypatch, width):
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, height=40)
    monkeypatch.setattr(watch, "Console", lambda **options: screen)
    monkeypatch.setattr(watch.sys, "stdout", Mock(isatty=lambda: True))
    statuses = iter([status_with(40), {"state": "done"}])
    watch_status(lambda: next(statuses), False, 0.0)
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", screen.file.getvalue()).splitlines()]
    names = ["runs/x.zarr:", "find_neighbors", "solve_embedding", "write_report", "total"]
    assert [line.split()[0] for line in lines[:5]] == names
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("as_json", [False, True])
def test_watch_waits_for_a_run_that_has_not_begun(tmp_path, toy_stages, monkeypatch, as_json):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "sheet", "n_points": 200}, **FEW)
    sleeps = []

    def sleep(seconds):
        sleeps.append(seconds)
        if len(sleeps) == 3:
            lle("run", config)

    monkeypatch.setattr(watch, "time", Mock(strftime=time.strftime, monotonic=time.monotonic, sleep=sleep))
    result = CliRunner().invoke(app, ["status", str(config), "--watch", *["--json"] * as_json])
    assert result.exit_code == 0, result.output
    assert len(sleeps) == 3
    waiting = f"{tmp_path / 'run.zarr'}: no run has begun there yet; waiting for one (Ctrl-C ends this)\n"
    assert result.stderr == waiting
    assert "done" in result.stdout


def test_a_config_that_is_not_there_is_no_store_to_wait_for(tmp_path):
    for options in ([], ["--watch"]):
        assert "found nothing; correct the name" in refused(2, "status", tmp_path / "jop.yaml", *options)


def test_data_deleted_while_a_status_is_read_do_not_count_as_undone(tmp_path, monkeypatch):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "sheet", "n_points": 200}, **FEW)
    lle("run", config)
    before, records = lle("status", config), checkpoint.recorded_steps
    assert any(record.freed for record in records(Store(before["store"])).values())
    monkeypatch.setattr(
        checkpoint,
        "recorded_steps",
        lambda store: {key: replace(record, freed=()) for key, record in records(store).items()},
    )
    assert lle("status", config) == before


def test_watch_of_other_files_is_an_error(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    assert "other files: thesis.tex" in refused(2, "status", tmp_path, "--watch")


def test_a_config_names_the_store_of_status(tmp_path):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "sheet", "n_points": 200}, **FEW)
    assert f"{tmp_path / 'run.zarr'}: no run has been started there" in refused(2, "status", config)
    lle("run", config)
    by_config, by_store = (lle("status", name) for name in (config, tmp_path / "run.zarr"))
    assert by_config == by_store
    assert by_config["state"] == "done"
    assert lle("export", config, tmp_path / "y.npy")["rows"] == 200


def test_watch_rewrites_its_table_on_a_terminal(monkeypatch):
    """Each update moves the cursor up over the table before it, and the last one is erased."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(watch, "Console", lambda **options: screen)
    monkeypatch.setattr(watch.sys, "stdout", Mock(isatty=lambda: True))
    monkeypatch.setattr(watch, "status_lines", lambda status: ([f"table {status['now']['done']}"], ["second line"], []))
    statuses = iter([at("ingest", "read", 1), at("ingest", "read", 2), {"state": "done", "now": None}])
    assert watch_status(lambda: next(statuses), False, 0.0)["state"] == "done"
    written = screen.file.getvalue()
    assert written.index("table 1") < written.index("\x1b[1A") < written.index("table 2")
    assert written.rstrip().count("\x1b[2K") >= 4


@pytest.mark.parametrize("keep", [None, 2])
def test_the_error_of_the_last_run_is_shown_until_a_run_succeeds(tmp_path, toy_stages, keep):
    x = np.random.default_rng(3).random((60, 3))
    np.save(tmp_path / "x.npy", np.where(np.arange(60)[:, None] == 7, np.nan, x))
    source, store = {"kind": "npy", "path": str(tmp_path / "x.npy")}, tmp_path / "run.zarr"
    config = write_config(tmp_path, input=source, output={"keep": keep})
    message = refused(2, "run", config)
    failure = lle("status", store)["last_failure"]
    assert (failure["exit_code"], failure["message"]) == (2, " ".join(message.split()))
    assert abs((datetime.now(UTC) - datetime.fromisoformat(failure["when"])).total_seconds()) < 60
    shown = CliRunner().invoke(app, ["status", str(store)]).output
    assert f"last run failed at {failure['when']} (exit code 2): {failure['message']}" in shown.splitlines()[1]
    np.save(tmp_path / "x.npy", x)
    lle("run", config)
    assert lle("status", store)["last_failure"] is None
    assert "failed" not in CliRunner().invoke(app, ["status", str(store)]).output
    missed = refused(3, "run", config, "--set", "eigensolver.method=multigrid")
    assert lle("status", store)["last_failure"]["message"] == " ".join(missed.split())


def test_a_run_that_another_one_refuses_is_no_failure_of_the_store(tmp_path, toy_stages):
    np.save(tmp_path / "x.npy", np.random.default_rng(3).random((60, 3)))
    source = {"kind": "npy", "path": str(tmp_path / "x.npy")}
    store = Store(lle("run", write_config(tmp_path, input=source))["store"])
    with RunLock(store):
        refused(1, "run", tmp_path / "config.yaml")
    assert lle("status", store.url)["last_failure"] is None


def test_one_block_of_a_run_is_one_block():
    blocks = {"blocks_computed": {"write_report": 1}, "blocks_reused": {"ingest": 2}}
    shown = describe_run({"store": "s", "seconds": 2, "unchanged": False, "metrics": {}, **blocks})
    assert shown == "done in 2 s: 1 block computed, 2 reused\nstore:   s"


def test_an_error_before_there_is_a_store_writes_nothing(tmp_path, toy_stages):
    config = write_config(tmp_path, input={"kind": "npy", "path": str(tmp_path / "none.npy")})
    refused(2, "run", config)
    assert not (tmp_path / "run.zarr").exists()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MemoryError(), 1, "memory"),
        (ZeroDivisionError("a\nb"), 1, "ZeroDivisionError: a b"),
        (Interrupted(signal.SIGTERM), 143, "stopped by SIGTERM"),
        (StoreError("at s3://u:secret@b"), 1, "s3://"),
    ],
)
def test_any_error_is_recorded_in_one_line_without_secrets(tmp_path, error, code, message):
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({"config": {}})
    with pytest.raises(type(error)), failure_recorded(store.url):
        raise error
    failure = store.get_json("_run/failure.json")
    assert failure["exit_code"] == code
    assert message in failure["message"]
    assert "secret" not in failure["message"]

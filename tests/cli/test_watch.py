"""`lle status`: the table, its total and the time left, and what --watch prints on a terminal and into a file."""

import io
import time
from unittest.mock import Mock

from rich.console import Console

from pipeline.cli import watch
from pipeline.cli.output import describe_status
from pipeline.cli.watch import Pace, watch_status
from tests.support.commands import FEW, lle, refused, write_config


class Clock:
    """Seconds that pass with each status read."""

    def __init__(self, *statuses: dict):
        self.statuses, self.seconds = iter(statuses), 0.0

    def read(self) -> dict:
        self.seconds += 5.0
        return next(self.statuses)

    def __call__(self) -> float:
        return self.seconds


def at(stage: str, step: str, done: int, blocks: int = 40) -> dict:
    return {"state": "running", "now": {"stage": stage, "step": step, "done": done, "blocks": blocks}}


def test_time_left_follows_from_the_blocks_finished_while_watching():
    clock = Clock(at("search", "a", 10), at("search", "a", 20), at("search", "a", 30), at("search", "b", 30))
    pace = Pace()
    texts = [pace.describe(clock.read(), clock) for _ in range(4)]
    assert texts == [[], ["about 10 s left in this step"], ["about 5 s left in this step"], []]


def test_repeated_blocks_begin_the_measurement_again():
    clock = Clock(at("search", "a", 30), at("search", "a", 10), at("search", "a", 20))
    pace = Pace()
    assert [pace.describe(clock.read(), clock) for _ in range(3)] == [[], [], ["about 10 s left in this step"]]


def test_watch_prints_a_line_for_each_stage_into_a_file(monkeypatch, capsys):
    monkeypatch.setattr(
        watch, "time", Mock(strftime=time.strftime, monotonic=time.monotonic, sleep=lambda seconds: None)
    )
    clock = Clock(
        at("ingest", "read", 1), at("ingest", "read", 2), at("search", "a", 3), {"state": "done", "now": None}
    )
    assert watch_status(clock.read, False, 2.0)["state"] == "done"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["ingest.read: 1 of 40 blocks", "search.a: 3 of 40 blocks"]
    assert "\x1b" not in "".join(lines)


def test_status_has_a_total_and_counts_stages_that_have_not_begun():
    entry = {"done": 2, "blocks": 3, "seconds": 1.5, "steps": {}}
    waiting = {"done": 0, "blocks": None, "seconds": 0.0, "steps": {}}
    state = {"store": "s", "state": "running", "now": None, "stages": {"a": entry, "b": entry, "c": waiting},
             "solving": [], "filters": []}  # fmt: skip
    total = describe_status(state).splitlines()[-1]
    assert " ".join(total.split()) == "total 4 of 6 blocks 3.0 s; 1 of 3 stages have not begun"


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
    monkeypatch.setattr(watch, "describe_status", lambda status: f"table {status['now']['done']}\nsecond line")
    clock = Clock(at("ingest", "read", 1), at("ingest", "read", 2), {"state": "done", "now": None})
    assert watch_status(clock.read, False, 0.0)["state"] == "done"
    written = screen.file.getvalue()
    assert written.index("table 1") < written.index("\x1b[1A") < written.index("table 2")
    assert written.rstrip().count("\x1b[2K") >= 4

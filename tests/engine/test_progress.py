"""Output of a run: status during the run, lines of the log, Dask's performance report."""

import io
import json
import re
import subprocess
import sys
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from typer.testing import CliRunner

from lle.cli import commands
from lle.config.load import load_config
from lle.core.errors import StoreError
from lle.engine import progress
from lle.engine.checkpoint import marker_name, recorded_steps
from lle.engine.plan import planned
from lle.engine.progress import JsonProgress, RunProgress, SilentProgress
from lle.engine.step import BlockReport, TaskState
from lle.engine.time_left import RECORD, Look
from lle.jobs import run as runs
from lle.jobs.expected_time import foreseen
from lle.jobs.layout import layout_of
from lle.jobs.status import progress_of
from lle.stages import ingest
from lle.stages.registry import stages_of_run
from lle.storage.store import Store
from tests.support.commands import write_config
from tests.support.steps import make_step, no_task
from tests.support.toy_stages import TOY_STAGES
from tests.support.waiting import wait_until


@pytest.fixture
def config(tmp_path):
    return write_config(
        tmp_path,
        input={"kind": "synthetic", "name": "sheet", "n_points": 600},
        execution={"block_points": 200},
        output={"report": False},
    )


def invoke(*arguments):
    result = CliRunner().invoke(commands.app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


def test_missed_bound_reports_the_value_that_was_reached(config, tmp_path):
    """The last log line and the Prometheus file show the value that was reached, not only the failure."""
    settings = [
        part
        for setting in (
            "eigensolver.method=multigrid",
            "eigensolver.max_steps=1",
            "execution.block_points=600",
            f"output.prometheus={tmp_path}/lle.prom",
        )
        for part in ("--set", setting)
    ]
    result = CliRunner().invoke(commands.app, ["run", str(config), "--json", *settings])
    output = json.loads(result.stdout)
    assert (result.exit_code, output["error"]) == (3, "BoundsNotMet")
    assert output["metrics"] == Store(output["store"]).get_json("report/metrics.json")
    assert output["metrics"]["recall"]["value"] == 1.0
    assert not output["metrics"]["solver"]["converged"]
    families = text_string_to_metric_families((tmp_path / "lle.prom").read_text())
    samples = {
        (sample.name, *(sample.labels[key] for key in sample.labels if key != "store")): sample.value
        for family in families
        for sample in family.samples
    }
    assert (samples["lle_recall", "value"], samples["lle_rows", "points"], samples["lle_converged",]) == (1, 600, 0)
    assert samples["lle_residual_max",] > 0


# An object that is deleted at the end of the interpreter aborts, as clients with their own threads sometimes do.
ABORTS_AT_THE_END = """
import atexit, os, sys
import obstore
class Last:
    def __del__(self, abort=os.abort): abort()
held = Last()
atexit.register(print, "at the end")
from lle.cli.commands import main
sys.argv = ["lle", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("arguments", "code", "message"), [(["schema"], 0, '"title"'), (["run", "none.yaml"], 2, "none.yaml")]
)
def test_abort_of_the_client_at_the_end_keeps_the_exit_code(arguments, code, message):
    ended = subprocess.run([sys.executable, "-c", ABORTS_AT_THE_END, *arguments], capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    assert message in ended.stdout + ended.stderr
    assert ended.stdout.endswith("at the end\n")


@pytest.mark.parametrize("kind", [RunProgress, JsonProgress])
def test_step_without_finished_blocks_is_logged_as_active(monkeypatch, kind):
    monkeypatch.setattr(progress, "WAIT_SECONDS", 0.05)
    stream, n_lines = io.StringIO(), lambda: stream.getvalue().count("solve_embedding.solve: 0/1 blocks after ")
    step = make_step("solve_embedding.solve", no_task, 1)
    run_progress = kind(stream)
    run_progress.begin(step, 1)  # all is there
    time.sleep(0.2)
    assert n_lines() == 0
    run_progress.begin(step, 0)
    wait_until(lambda: n_lines() >= 2)
    run_progress.end(step, 0.2, 1)
    time.sleep(0.1)
    n_logged = n_lines()
    time.sleep(0.2)
    assert n_lines() == n_logged


def test_state_is_logged_when_its_phase_changes(monkeypatch):
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.02)
    states = [
        TaskState("LU", "LU: 1 s left", 1.0),
        TaskState("LU", "LU: 0 s left", None),
        TaskState("solves", "1", None),
    ]
    coming = [None, *states, *[TaskState("solves", "2 of 3", None)] * 20]
    stream, step = io.StringIO(), make_step("solve_embedding.solve", no_task, 1)
    run_progress = RunProgress(stream)
    run_progress.begin(step, 0, lambda: coming.pop(0) if coming else None)
    wait_until(lambda: not coming)
    run_progress.end(step, 0.4, 1)
    lines = [line for line in stream.getvalue().splitlines() if "0/1 blocks after" in line]
    assert [line.split(", ", 1)[1].partition(";")[0] for line in lines] == ["LU: 1 s left", "1"]


def test_unreadable_state_does_not_end_the_log(monkeypatch):
    monkeypatch.setattr(progress, "WAIT_SECONDS", 0.05)
    stream, step = io.StringIO(), make_step("solve_embedding.solve", no_task, 1)
    run_progress = RunProgress(stream)

    def state():
        raise StoreError("the store is away")

    run_progress.begin(step, 0, state)
    wait_until(lambda: stream.getvalue().count("0/1 blocks after") >= 2)
    run_progress.end(step, 0.5, 1)


@pytest.mark.parametrize("width", [80, 120])
def test_terminal_has_one_bar_for_the_run_that_is_removed_at_its_end(monkeypatch, width):
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.02)
    run_progress, stream = RunProgress(io.StringIO()), io.StringIO()
    run_progress.console = Console(file=stream, force_terminal=True, width=width)
    run_progress.time_left.expect({"solve_embedding.solve": 10.0, "write_report.write": 10.0})
    step = make_step("solve_embedding.solve", no_task, 1)
    run_progress.begin(step, 0, lambda: TaskState("solves", f"vector error 1e-4, {'long ' * 50}", 30.0))
    wait_until(lambda: stream.getvalue().count("vector error") >= 4)
    run_progress.end(step, 10.0, 1)
    run_progress.stop(done=True)
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", stream.getvalue())
    bars = [line for line in text.replace("\r", "\n").split("\n") if " %, about " in line]
    assert len(bars) > 3
    assert {len(line) for line in bars} == {width}
    assert {line[0] for line in bars} <= set("━╸╺")
    lines = text.replace("\r", "\n").split("\n")
    below = [number for number, line in enumerate(lines) if line.startswith("vector error 1e-4")]
    assert all(len(lines[number]) == width and lines[number].endswith("…") for number in below)
    assert re.fullmatch(r"solve_embedding\.solve: 0/1 blocks after \d+ s", lines[below[-1] - 1])
    assert stream.getvalue().rstrip("\r").endswith("\x1b[2K")  # the last line is erased


def test_other_processes_read_the_progress_from_the_store(monkeypatch, tmp_path):
    """As typed numbers, while the run is active; the log has the same share."""
    for name in ("TICK_SECONDS", "RECORD_SECONDS", "WAIT_SECONDS"):
        monkeypatch.setattr(progress, name, 0.02)
    store, stream, step = Store(str(tmp_path / "run.zarr")), io.StringIO(), make_step("ingest.read", no_task, 4)
    run_progress, found = JsonProgress(stream), []
    run_progress.start(store, {"ingest.read": 2.0, "write_report.write": 2.0})
    run_progress.begin(step, 0)
    for _ in range(3):
        least = found[-1]["fraction"] if found else 0.0
        wait_until(lambda least=least: (now := progress_of(store)) is not None and now["fraction"] > least)
        found.append(progress_of(store))
        run_progress.advance(step, BlockReport(0, 0.1, 1, {}))
    run_progress.leave_store()
    assert not store.objects.exists(RECORD)
    time.sleep(0.2)  # ten ticks
    assert progress_of(store) is None
    run_progress.stop()
    fractions = [entry["fraction"] for entry in found]
    assert 0 < fractions[0] < fractions[1] < fractions[2] < 1
    assert all(0 < entry["seconds_left"] < 60 for entry in found)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    logged = [event["fraction"] for event in events if event["event"] == "message"]
    assert logged == sorted(logged)
    assert min(abs(fraction - fractions[-1]) for fraction in logged) < 0.05


class Shares(RunProgress):
    """Keeps the share that is done at each begin of a step, and ends the run at one of them."""

    def __init__(self, last=""):
        super().__init__(io.StringIO())
        self.last, self.shares = last, []

    def begin(self, step, n_done, state=None):
        super().begin(step, n_done, state)
        self.shares.append(self.time_left.look().fraction)
        if step.key == self.last:
            raise StoreError("ended here")


@pytest.mark.slow
def test_a_run_advances_to_its_end_and_a_resumed_one_begins_with_what_is_done(config):
    """Where the second run begins to compute, the forecast of all reused steps is done."""
    first, second, third = Shares("assemble_cost.merge"), Shares("write_report.write"), Shares()
    settings = load_config(config)
    for run_progress in (first, second):
        with pytest.raises(StoreError):
            runs.run(settings, False, run_progress)
    runs.run(settings, False, third)
    for run_progress in (first, second, third):
        assert run_progress.shares == sorted(run_progress.shares)
        assert run_progress.shares[0] < 0.1
        assert 0 < run_progress.shares[-1] < 1
    steps, _ = planned(stages_of_run(settings), layout_of(settings, ingest.open_input(settings)))
    _, seconds = foreseen(settings, steps)
    reused = sum(list(seconds.values())[: list(seconds).index("assemble_cost.merge")])
    assert second.shares[len(first.shares) - 1] == pytest.approx(reused / sum(seconds.values()), abs=0.05)


def test_old_and_damaged_records_of_progress_are_not_shown(tmp_path):
    store = Store(str(tmp_path / "run.zarr"))
    store.put_record(RECORD, Look(time.time() - 10, "a", 0.5, 60.0))
    assert progress_of(store) == {"fraction": 0.5, "seconds_left": pytest.approx(50, abs=2)}
    store.put_record(RECORD, Look(time.time() - 1000, "a", 0.5, 60.0))
    assert progress_of(store) is None
    store.put_json(RECORD, {"time": time.time(), "step": "a", "fraction": "half", "seconds_left": 60.0})
    assert progress_of(store) is None


@pytest.mark.slow
def test_log_names_the_route_of_a_new_eigensolve_only(config):
    first_log, second_log = (
        invoke("run", config, *settings).stderr for settings in ([], ["--set", "quality.sample=100"])
    )
    assert first_log.count("\neigensolver: factored: LU of A, ") == 1
    assert "eigensolver:" not in second_log


def test_log_has_a_line_for_every_stage(toy_stages, config):
    text = invoke("run", config).stderr
    for stage in TOY_STAGES:
        took = rf"{stage}: (1 block|\d+ blocks) in [\d.]+ s, largest process \d\.\d\d GiB"
        assert re.search(rf"^\d\d:\d\d:\d\d {took}$", text, re.M)


def test_redirected_log_has_lines_for_stages_only(toy_stages, config, tmp_path):
    first = invoke("run", config).stderr
    store = Store(str(tmp_path / "run.zarr"))
    names = list(recorded_steps(store))
    assert not any(line.startswith("  ") for line in first.splitlines())
    for block in (1, 2):
        store.objects.delete(marker_name("solve_weights.solve", block))
    lines = invoke("run", config).stderr.splitlines()
    expected = [
        rf"reused from the earlier run: 1 stage, {names.index('solve_weights.solve')} steps, \d+ blocks",
        r"\d\d:\d\d:\d\d solve_weights: 2 blocks in .*, 1 reused",
        r"reused from the earlier run: 2 stages, .*",
    ]
    assert all(map(re.fullmatch, expected, lines)), lines


@pytest.mark.slow
def test_report_is_written_again_only_if_its_content_changes(config, tmp_path):
    def computed(*changes):
        planned = json.loads(invoke("plan", config, *changes, "--json").stdout)["steps"]
        actual = json.loads(invoke("run", config, *changes, "--json").stdout)["blocks_computed"]
        assert sum(row["tasks"] - row["reused"] for row in planned if row["stage"] == "write_report") == len(actual)
        return set(actual)

    store = Store(str(tmp_path / "run.zarr"))
    pages = (tmp_path / "run.zarr" / "report" / name for name in ("metrics.json", "index.html"))
    invoke("run", config)
    invoke("report", store.url)
    times = {page: page.stat().st_mtime_ns for page in pages}
    assert computed() == set()
    assert {page: page.stat().st_mtime_ns for page in times} == times
    lines = invoke("run", config).stderr.splitlines()
    steps = recorded_steps(store)
    blocks = sum(record.n_blocks for record in steps.values())
    assert lines == [f"reused from the earlier run: 9 stages, {len(steps)} steps, {blocks} blocks"]
    assert computed("--set", "neighbors.min_recall=0.5") == {"write_report"}  # the page shows the config
    store.objects.delete("report")
    assert json.loads(invoke("run", config, "--json").stdout)["metrics"]["min_recall"] == 0.9
    assert computed() == set()


def test_json_log_of_a_reused_run_names_every_step(toy_stages, config):
    first, second = (
        [json.loads(line) for line in invoke("run", config, "--log", "json").stderr.splitlines()] for _ in range(2)
    )
    for event in ("step_begun", "step_done", "stage_done"):
        actual, expected = (
            [(line["stage"], line.get("step")) for line in lines if line["event"] == event] for lines in (second, first)
        )
        assert actual == expected, event
        assert len(actual) >= len(TOY_STAGES)


def test_log_as_json(toy_stages, config):
    result = invoke("run", config, "--log", "json", "--json")
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert json.loads(result.stdout)["status"] == "done"
    assert [line["stage"] for line in lines if line["event"] == "stage_done"] == list(TOY_STAGES)
    blocks = [(line["stage"], line["step"], line["block"]) for line in lines if line["event"] == "block_done"]
    assert len(blocks) == len(set(blocks)) == sum(json.loads(result.stdout)["blocks_computed"].values())
    steps = {(line["stage"], line["step"]): line["blocks"] for line in lines if line["event"] == "step_begun"}
    assert {key: sum(block[:2] == key for block in blocks) for key in steps} == steps
    assert all(line["seconds"] >= 0 and line["peak_bytes"] > 10**6 for line in lines if line["event"] == "block_done")
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


@pytest.mark.slow
def test_status_follows_a_run_to_its_end(config, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "WATCH_SECONDS", 0.05)
    store = Store(str(tmp_path / "run.zarr"))
    thread = threading.Thread(target=runs.run, args=(load_config(config), False, JsonProgress(io.StringIO())))
    thread.start()
    wait_until(lambda: store.objects.names("_done/ingest"))
    statuses = [json.loads(line) for line in invoke("status", store.url, "--watch", "--json").stdout.splitlines()]
    thread.join(60)
    assert [status["state"] for status in statuses] == ["running"] * (len(statuses) - 1) + ["done"]
    assert len(statuses) >= 3
    n_done = [sum(stage["done"] for stage in status["stages"].values()) for status in statuses]
    assert n_done == sorted(n_done)
    assert len(set(n_done)) >= 3
    assert all(status["now"] is None or status["now"]["done"] <= status["now"]["blocks"] for status in statuses)
    assert statuses[-1]["now"] is None
    assert "done" in invoke("status", store.url).stdout.splitlines()[0]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_performance_report_is_saved(config, tmp_path):
    page = tmp_path / "run.zarr" / "report" / "performance.html"
    assert "nothing to show" in invoke("run", config, "--profile").stderr
    assert not page.exists()
    workers = ["--set", "execution.cluster={kind: local}"]
    text = invoke("run", config, "--fresh", "--profile", *workers).stderr
    assert str(page) in text
    content = page.read_text()
    assert "assemble_cost.merge" in content
    assert not re.search(r'<script[^>]*src="http', content)  # opens offline


def test_silent_progress_counts_blocks_and_starts_no_thread(capsys):
    step, threads = make_step("ingest.read", no_task, 3), threading.active_count()
    message = SilentProgress()
    message.begin(step, 1, lambda: TaskState("", "state", None))
    assert threading.active_count() == threads
    message.advance(step, BlockReport(1, 0.1, 1, {}))
    message.end(step, 0.1, 1)
    message.end_stage("ingest", 0.1, 1)
    message.stop()
    assert (message.computed, message.reused) == ({"ingest": 1}, {"ingest": 1})
    assert capsys.readouterr() == ("", "")


def test_the_seconds_left_go_on_between_two_records(tmp_path, monkeypatch):
    store = Store(str(tmp_path / "run.zarr"))
    for now, left, shown in ((90.0, 20.0, 20.0), (105.0, 20.0, 15.0), (130.0, 20.0, 0.0), (130.0, None, None)):
        store.put_record(RECORD, Look(100.0, "a", 0.5, left))
        monkeypatch.setattr(time, "time", lambda moment=now: moment)
        assert progress_of(store) == {"fraction": 0.5, "seconds_left": shown}

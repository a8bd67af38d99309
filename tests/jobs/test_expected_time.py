"""Expected seconds of a run: what they depend on, and runs that take at most twice or at least half of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lle
from lle.cli import commands
from lle.clusters import limits
from lle.config.load import check_config
from lle.engine.plan import Layout, planned
from lle.jobs import expected_time, run_stages
from lle.jobs.expected_time import expected, foreseen, machine_speed, placement
from lle.jobs.layout import layout_of
from lle.jobs.placing import config_of_fit
from lle.jobs.plan_preview import forecast_placing, plan_summary, steps_of_fit_and_placing
from lle.search import cell_groups
from lle.stages import ingest, solve_embedding
from lle.stages.registry import stages_of, stages_of_run
from tests.benchmarks.expected_time import JOBS, Job, compare, roll, total, warm_up, wide

SMALL_JOBS = {
    "roll": Job(lambda: roll(12_000), {"output": {"report": False}}),
    "wide": Job(lambda: wide(3_000, 50, 10), {"output": {"report": False}}),
    "fit": Job(lambda: roll(60_000), {"input": {"fit_sample": 4_000}, "output": {"report": False}}),
}


@pytest.fixture(autouse=True)
def all_is_compiled(monkeypatch):
    monkeypatch.setattr(expected_time, "is_compiled", lambda function: True)


def config(workers=1, **sections):
    cluster = {"kind": "serial"} if workers == 1 else {"kind": "local", "workers": workers}
    plain = {"input": {"kind": "synthetic", "name": "swiss_roll", "n_points": 5_000}, "output": {"store": "x.zarr"}}
    return check_config({**plain, "execution": {"cluster": cluster}, **sections}, "test")


def seconds_of(n=50_000, d=3, block=5_000, speed=1.0, finished=(), **changes):
    settings = config(**changes)
    layout = Layout(n, d, "float64", block, n_points=n, n_features=d)
    steps = planned(stages_of_run(settings), layout)[0]
    return expected(settings.execution.cluster, [step for step in steps if step.stage not in finished], speed).to_json()


@pytest.mark.parametrize("method", ["lle", "ltsa", "laplacian", "pca"])
@pytest.mark.parametrize("change", [{"n": 100_000}, {"d": 6}, {"neighbors": {"n_neighbors": 24}}])
def test_no_stage_gets_faster_with_more_work(method, change):
    less, more = seconds_of(method=method)["stages"], seconds_of(method=method, **change)["stages"]
    assert less.keys() == more.keys() == stages_of(method).keys()
    assert sum(more.values()) >= sum(less.values())
    assert all(more[stage] >= 0.99 * less[stage] for stage in less)


def test_placing_takes_longer_with_more_rows_and_fitted_points():
    def placing(n_rows=400_000, fitted=20_000, d=3, k=12, workers=1):
        source = {"kind": "synthetic", "name": "swiss_roll", "n_points": n_rows, "fit_sample": fitted}
        settings = config(workers, neighbors={"n_neighbors": k}, input=source)
        fit = Layout(fitted, d, "float64", 5_000, n_points=fitted, n_features=d)
        steps = [step for step, _ in forecast_placing(settings, fit, fit_is_done=False)[0]]
        return expected(settings.execution.cluster, steps, 1.0).stages

    less = placing()
    assert [*less] == ["ingest", "transform", "write_report"]
    for more in (placing(n_rows=800_000), placing(fitted=40_000), placing(d=4), placing(d=12), placing(k=24)):
        assert more["transform"] > less["transform"]
    assert placing(n_rows=800_000)["write_report"] > less["write_report"]
    assert placing(workers=2)["transform"] < less["transform"]


def test_plan_and_log_of_a_run_count_the_placing(tmp_path):
    """Nothing is computed."""
    source = {"kind": "synthetic", "name": "swiss_roll", "n_points": 4_000_000, "fit_sample": 200_000}
    settings = config(input=source, output={"store": str(tmp_path / "x.zarr")})
    assert [*plan_summary(settings)["expected"]["stages"]] == [*[*stages_of("lle")][:-1], "transform", "write_report"]
    layout = layout_of(config_of_fit(settings), ingest.open_input(config_of_fit(settings)))
    line, seconds = foreseen(settings, steps_of_fit_and_placing(settings, layout))
    assert "expected: about " in line
    assert "transform" in line
    assert [*dict.fromkeys(key.partition(".")[0] for key in seconds)] == [
        *[*stages_of("lle")][:-1],
        "transform",
        "write_report",
    ]
    few = settings.model_copy(
        update={"input": settings.input.model_copy(update={"n_points": 5_000, "fit_sample": 500})}
    )
    assert foreseen(few, steps_of_fit_and_placing(few, Layout(500, 3, "float64", 500)))[0] == ""


@pytest.mark.parametrize("method", ["lle", "ltsa", "hessian", "modified", "laplacian", "pca"])
def test_the_seconds_of_steps_add_up_to_those_of_their_stages(method):
    settings = config(method=method)
    layout = Layout(50_000, 3, "float64", 5_000, n_points=50_000, n_features=3)
    steps = planned(stages_of_run(settings), layout)[0]
    foreseen = expected(settings.execution.cluster, steps, 1.0)
    seconds = foreseen.steps
    assert seconds.keys() == {step.key for step in steps}
    for stage, of_stage in foreseen.stages.items():
        of_steps = [value for key, value in seconds.items() if key.startswith(f"{stage}.")]
        assert sum(of_steps) == pytest.approx(of_stage)
    assert all(value > 0 for value in foreseen.stages.values()), "a stage without work"


@pytest.mark.parametrize("d", [100, 784, 5000])
def test_trees_in_many_dimensions_take_a_multiple_of_all_pairs(d):
    tree, brute = (
        seconds_of(d=d, neighbors={"n_neighbors": 8, "method": name})["stages"] for name in ("kdtree", "brute")
    )
    assert brute["find_neighbors"] < tree["find_neighbors"] < 50 * brute["find_neighbors"]


def test_multigrid_that_is_set_is_expected_to_take_longer_on_a_surface():
    seconds = {
        method: seconds_of(n=20_000, eigensolver={"method": method})["stages"]["solve_embedding"]
        for method in ("auto", "multigrid")
    }
    assert seconds["auto"] < 2 < seconds["multigrid"] < 10


@pytest.mark.parametrize(("n", "extra"), [(6_000, 0.0), (30_000, solve_embedding.COMPILATION.seconds)])
def test_multigrid_is_expected_to_be_compiled_only_where_a_factorization_takes_long(monkeypatch, n, extra):
    seconds = []
    for compiled in (True, False):
        monkeypatch.setattr(expected_time, "is_compiled", lambda function, compiled=compiled: compiled)
        seconds.append(seconds_of(n=n, d=4)["stages"]["solve_embedding"])
    assert seconds[1] - seconds[0] == pytest.approx(extra)


def test_import_of_the_scaler_takes_time():
    scaled, plain = (seconds_of(preprocess={"scale": scale})["seconds"] for scale in ("standard", "none"))
    assert scaled - plain == pytest.approx(ingest.SCALER_SECONDS)


def test_functions_that_are_not_yet_compiled_take_longer(monkeypatch):
    seconds = {}
    for compiled in (True, False):
        monkeypatch.setattr(expected_time, "is_compiled", lambda function, compiled=compiled: compiled)
        for method in ("pynndescent", "kdtree"):
            stages = seconds_of(neighbors={"n_neighbors": 8, "method": method})["stages"]
            seconds[method, compiled] = stages["find_neighbors"]
        for method in ("factored", "multigrid"):
            stages = seconds_of(n=20_000, eigensolver={"method": method})["stages"]
            seconds[method, compiled] = stages["solve_embedding"]
    added = {method: seconds[method, False] - seconds[method, True] for method, _ in seconds}
    assert added == {
        "pynndescent": pytest.approx(cell_groups.COMPILATION.seconds),
        "kdtree": 0,
        "factored": 0,
        "multigrid": pytest.approx(solve_embedding.COMPILATION.seconds),
    }


@pytest.mark.parametrize("compilation", [cell_groups.COMPILATION, solve_embedding.COMPILATION])
def test_names_of_compiled_functions_are_those_of_the_program(compilation):
    module, name = compilation.function.split(".")
    [path] = Path(lle.__file__).parent.rglob(f"{module}.py")
    assert f"def {name}(" in path.read_text()


def test_workers_share_blocks_only():
    one, four, one_block = seconds_of(), seconds_of(workers=4), seconds_of(workers=4, block=50_000)
    assert four["stages"]["find_neighbors"] < one["stages"]["find_neighbors"]
    assert four["stages"]["write_report"] >= one["stages"]["write_report"]
    assert one_block["stages"] == seconds_of(block=50_000)["stages"]
    assert (one["workers"], four["workers"], one_block["workers"]) == (1, 4, 1)


@pytest.mark.parametrize(
    ("cluster", "cores", "n", "d", "kind", "n_threads"),
    [
        ({"kind": "local"}, 1, 100_000, 3, "serial", 1),
        ({"kind": "local"}, 2, 15_000, 784, "serial", 1),
        ({"kind": "local"}, 2, 70_000, 784, "serial", 2),
        ({"kind": "local"}, 2, 10_000_000, 3, "serial", 2),
        ({"kind": "local"}, 16, 100_000, 3, "serial", 7),
        ({"kind": "local"}, 16, 1_000_000, 100, "local", 1),
        ({"kind": "local", "workers": 2}, 2, 500, 3, "local", 1),
        ({"kind": "serial"}, 2, 1_000_000, 3, "serial", 1),
        ({"kind": "address", "address": "tcp://scheduler:8786"}, 2, 500, 3, "address", 1),
    ],
)
def test_workers_start_only_if_they_save_time_against_threads(monkeypatch, cluster, cores, n, d, kind, n_threads):
    monkeypatch.setattr(limits, "available_cores", lambda: cores)
    for name in ("total_memory", "available_memory"):
        monkeypatch.setattr(limits, name, lambda: 2**36)
    cluster = config(execution={"cluster": cluster}).execution.cluster
    steps, _ = planned(stages_of_run(config()), Layout(n, d, "float32", 15_000))
    started, threads = placement(cluster, steps)
    assert (started.kind, threads) == (kind, n_threads)
    assert placement(cluster, steps, needs_workers=True) == (cluster, 1)


def test_threads_compute_what_does_not_fit_workers(monkeypatch):
    """On 16 cores workers would be faster, but each has a sixteenth of the memory."""
    monkeypatch.setattr(limits, "available_cores", lambda: 16)
    cluster = config(execution={"cluster": {"kind": "local"}}).execution.cluster
    steps, _ = planned(stages_of_run(config()), Layout(1_000_000, 100, "float32", 15_000))
    chosen = []
    for gib in (64, 16):
        for name in ("total_memory", "available_memory"):
            monkeypatch.setattr(limits, name, lambda gib=gib: gib * 2**30)
        monkeypatch.setattr(limits, "AUTO_WORKER_BYTES", 2**29)
        chosen.append(placement(cluster, steps)[0].kind)
    assert chosen == ["local", "serial"]


def test_memory_of_a_task_is_that_of_all_workers_if_a_thread_may_have_it(monkeypatch):
    for name in ("total_memory", "available_memory"):
        monkeypatch.setattr(limits, name, lambda: 3 * 2**30)
    monkeypatch.setattr(limits, "available_cores", lambda: 2)
    found = []
    for cluster in ({}, {"workers": 2}, {"memory": "1GiB"}):
        section = config(execution={"cluster": {"kind": "local", **cluster}}).execution.cluster
        found.append((limits.memory_of_task(section), limits.memory_of_workers(section)))
    auto, two, given = found
    assert auto == (int(0.8 * 3 * 2**30), int(0.4 * 3 * 2**30))
    assert two == (int(0.4 * 3 * 2**30),) * 2
    assert given == (2**30,) * 2
    waits = [
        config(execution={"cluster": {"kind": "local", **more}}).execution.cluster for more in ({}, {"workers": 2})
    ]
    assert [limits.memory_is_in_use(section, 2**31) for section in waits] == [True, False]
    section = config(execution={"cluster": {"kind": "local", "memory": "1GiB"}}).execution.cluster
    assert limits.memory_of_workers(placement(section, [])[0]) == 2**30


def test_threads_share_blocks_except_for_what_they_compute_one_after_the_other(monkeypatch):
    cluster = {"cluster": {"kind": "local"}}
    one, many = [], []
    for cores, seconds in ((1, one), (8, many)):
        monkeypatch.setattr(limits, "available_cores", lambda cores=cores: cores)
        seconds.append(seconds_of(n=80_000, execution=cluster))
    share = many[0]["stages"]["find_neighbors"] / one[0]["stages"]["find_neighbors"]
    assert (one[0]["threads"], many[0]["threads"], many[0]["workers"]) == (1, 8, 1)
    assert expected_time.LOCKED_SHARE < share < 0.5
    assert "8 threads" in many[0]["says"]


def test_start_of_the_program_and_of_local_workers_takes_time():
    serial, two, one_block = seconds_of(), seconds_of(workers=2), seconds_of(workers=2, block=50_000)
    auto = seconds_of(execution={"cluster": {"kind": "local", "workers": "auto"}}, block=50_000)
    assert 0 < serial["start"] == auto["start"] < two["start"] == one_block["start"]
    assert two["seconds"] == pytest.approx(two["start"] + sum(two["stages"].values()), abs=0.01)


def test_half_the_speed_takes_twice_the_time():
    fast, slow = seconds_of(n=10**6), seconds_of(n=10**6, speed=0.5)
    assert slow["seconds"] == pytest.approx(2 * fast["seconds"], rel=1e-3)


def test_finished_stages_are_left_out():
    rest = seconds_of(finished=("ingest", "find_neighbors"))["stages"]
    assert {"ingest", "find_neighbors"}.isdisjoint(rest)
    assert "order_points" in rest


def test_speed_of_this_machine_is_measured_once(monkeypatch):
    probes = iter([0.2, 0.1, 0.4])
    monkeypatch.setattr(expected_time, "_probe", lambda: next(probes))
    machine_speed.cache_clear()
    try:
        assert machine_speed() == machine_speed() == expected_time.REFERENCE_SECONDS / 0.1
    finally:
        machine_speed.cache_clear()


def test_only_long_runs_are_announced():
    def text(n):
        return foreseen(config(), planned(stages_of_run(config()), Layout(n, 3, "float64", 5_000))[0])[0]

    assert text(5_000) == ""
    assert text(2_000_000).startswith("expected: about ")


@pytest.mark.parametrize(("n_distinct", "times"), [(60, 1), (550, 0)])
def test_seconds_are_estimated_again_if_few_rows_are_distinct(tmp_path, toy_stages, monkeypatch, n_distinct, times):
    estimates = []
    monkeypatch.setattr(run_stages, "foreseen", lambda config, steps: ("", estimates.append(steps) or {}))
    np.save(tmp_path / "x.npy", roll(n_distinct)[np.arange(600) % n_distinct])
    sections = {"input": {"kind": "npy", "path": str(tmp_path / "x.npy")}}
    sections |= {"output": {"store": str(tmp_path / "run.zarr")}, "execution": {"cluster": {"kind": "serial"}}}
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(sections))
    assert CliRunner().invoke(commands.app, ["run", str(path)]).exit_code == 0
    again = [steps for steps in estimates if "ingest" not in {step.stage for step in steps}]
    assert len(again) == times


def test_plan_shows_expected_seconds_until_the_run_is_finished(tmp_path, toy_stages):
    np.save(tmp_path / "x.npy", roll(60))
    path, config = tmp_path / "job.yaml", {"input": {"kind": "npy", "path": str(tmp_path / "x.npy")}}
    config |= {"output": {"store": str(tmp_path / "run.zarr")}, "execution": {"cluster": {"kind": "serial"}}}
    path.write_text(json.dumps(config))
    runner = CliRunner()
    before = json.loads(runner.invoke(commands.app, ["plan", str(path), "--json"]).stdout)
    assert before["expected"]["stages"].keys() == stages_of("lle").keys()
    lines = runner.invoke(commands.app, ["plan", str(path)]).stdout
    assert "expected time on this machine without other load: about " in lines
    assert runner.invoke(commands.app, ["run", str(path)]).exit_code == 0
    assert json.loads(runner.invoke(commands.app, ["plan", str(path), "--json"]).stdout)["expected"] is None


@pytest.mark.manual
@pytest.mark.parametrize("name", SMALL_JOBS)
def test_small_job_takes_the_expected_time_within_a_factor_of_two(name):
    times = total(compare(SMALL_JOBS[name]))
    assert times.expected / 2 <= times.measured <= 2 * times.expected


@pytest.mark.manual
@pytest.mark.parametrize("name", JOBS)
def test_long_stages_take_the_expected_time_within_a_factor_of_two(name):
    warm_up()
    times = compare(JOBS[name])
    long = {stage: each for stage, each in times.items() if max(each) > 1.0}
    ratios = {stage: each.expected / each.measured for stage, each in {**long, "all": total(times)}.items()}
    assert all(0.5 <= ratio <= 2.0 for ratio in ratios.values()), ratios

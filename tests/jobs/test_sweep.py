"""Sweeps: each distinct step is computed once, results equal separate runs, failures do not stop other runs."""

import contextlib
import errno
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.clusters import limits
from lle.clusters.version_check import program_versions
from lle.config.load import load_config
from lle.config.sweep import experiment_name
from lle.core.errors import ConfigError, ExperimentsFailed, Interrupted
from lle.engine import execute
from lle.engine.checkpoint import recorded_steps
from lle.jobs import run as runs
from lle.jobs import sweep, sweep_plan
from lle.jobs.sweep import StepCounts, run_sweep
from lle.jobs.sweep_plan import describe_sweep, load_sweep, plan_sweep
from lle.report import sweep_figure
from lle.storage import local_objects
from lle.storage.local_objects import LocalObjects
from lle.storage.store import Store
from tests.support.paths import REPOSITORY

EXPERIMENTS = REPOSITORY / "configs" / "experiments"
GRID = {"neighbors.n_neighbors": [6, 10], "weights.reg": ["1e-1", 1e-3]}


class Quiet(StepCounts):
    """Keeps the lines of a sweep."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def print_line(self, text):
        self.lines.append(text)


def write(path: Path, sweep: dict | None, **changes) -> Path:
    data = {
        "input": {"kind": "synthetic", "name": "s_curve", "n_points": 250, "seed": 5},
        "quality": {"sample": 50},
        "graph": {"min_component": 20},
        "output": {"store": str(path.with_suffix("")), "report": False},
        "execution": {"cluster": {"kind": "serial"}},
    }
    path.write_text(yaml.safe_dump({**data, **({"sweep": sweep} if sweep else {}), **changes}))
    return path


def sweep_of(path: Path, fresh: bool = False):
    return run_sweep(*load_sweep([path], (), None), fresh, Quiet())


def contents(url: str) -> dict[str, bytes]:
    """Every object of a store's results, but for times."""
    place = Path(url)
    skipped = ("_run", "_done", "report")
    return {
        name: (place / name).read_bytes()
        for name in LocalObjects(url).names("")
        if not name.startswith(skipped) and name != "zarr.json" and not name.endswith(".npz")
    }


@contextlib.contextmanager
def counted():
    """How often each block of each fingerprint is computed by tasks in this process."""
    counts: Counter = Counter()
    original = execute.run_task

    def run_task(url, step, fingerprint, block):
        counts[step.stage, step.name, fingerprint, block] += 1
        return original(url, step, fingerprint, block)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "run_task", run_task)
        yield counts


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep of four experiments in two blocks each, serial, and what its tasks computed."""
    execution = {"cluster": {"kind": "serial"}, "block_points": 128}
    path = write(tmp_path_factory.mktemp("sweep") / "grid.yaml", {"grid": GRID}, execution=execution)
    with counted() as calls:
        return path, sweep_of(path), calls


@pytest.mark.slow
def test_experiments_have_the_bytes_of_separate_runs(swept, tmp_path):
    path, result, _ = swept
    assert [row["state"] for row in result.rows] == ["done"] * 4
    row = result.rows[1]  # it reused the graph of the first
    changes = (f"neighbors.n_neighbors={row['n_neighbors']}", f"weights.reg={row['reg']}")
    plain = yaml.safe_load(path.read_text())
    del plain["sweep"]
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(plain))
    config = load_config(tmp_path / "plain.yaml", changes, str(tmp_path / "plain"))
    runs.run(config, False, Quiet())
    alone, shared = contents(config.output.store), contents(f"{result.url}/{row['experiment']}.zarr")
    deleted = set(shared) - set(alone)  # by the separate run; another experiment may read them
    assert set(alone) <= set(shared)
    assert {name.split("/")[0] for name in deleted} <= {"_work"}
    assert {name for name in alone if alone[name] != shared[name]} == set()


def test_nothing_is_computed_twice(swept):
    path, result, calls = swept
    assert set(calls.values()) == {1}
    kinds = Counter((stage, name) for stage, name, _, block in calls if block == 0)
    assert kinds["ingest", "read"] == kinds["order_points", "gather"] == 1
    assert kinds["find_neighbors", "search"] == kinds["mend_graph", "analyse"] == 2
    assert kinds["solve_weights", "solve"] == kinds["solve_embedding", "solve"] == 4
    assert result.counts["asked"] == sum(result.counts[kind] for kind in StepCounts.KINDS)
    assert result.counts["computed"] == sum(kinds.values())
    planned = describe_sweep("", plan_sweep(load_sweep([path], (), None)[1], None))
    assert planned["steps"] == {"asked": result.counts["asked"], "to_do": sum(kinds.values())}


def test_each_store_of_a_sweep_is_complete(swept):
    _, result, _ = swept
    for row in result.rows[:2]:
        store = Store(f"{result.url}/{row['experiment']}.zarr")
        config = load_config(_as_config(store), (), store.url)
        counts = Quiet()
        runs.run(config, False, counts)
        assert counts.steps == {"computed": 0, "reused": row["steps_asked"]}


def _as_config(store: Store) -> Path:
    path = Path(store.url).with_suffix(".yaml")
    path.write_text(yaml.safe_dump(store.attributes()["config"]))
    return path


@pytest.mark.parametrize("sweep", [{"grid": GRID}, {"grid": {"embedding.align": [None, "previous"]}}])
def test_align_previous_is_refused_in_a_sweep(tmp_path, sweep):
    path = write(tmp_path / "a.yaml", sweep, **({"embedding": {"align": "previous"}} if GRID in sweep.values() else {}))
    result = CliRunner().invoke(app, ["sweep", str(path), "--dry-run"])
    assert result.exit_code == 2
    assert "'previous' aligns with the last embedding of the same store" in result.output


def test_dry_run_names_experiments_that_cannot_run_and_why(tmp_path):
    path = write(tmp_path / "a.yaml", {"grid": {"neighbors.n_neighbors": [8, 10**6]}})
    result = CliRunner().invoke(app, ["sweep", str(path), "--dry-run"])
    assert result.exit_code == 0
    assert "2 experiments, 1 of which cannot run" in result.output
    assert "n_neighbors=1000000: neighbors.n_neighbors is 1000000, but the input has" in result.output


@pytest.mark.slow
def test_shared_files_are_linked_and_kept_when_the_source_store_changes(tmp_path):
    path = write(tmp_path / "grid.yaml", {"grid": {"weights.reg": [1e-1, 1e-3]}})
    url, experiments = load_sweep([path], (), None)
    run_sweep(url, experiments, False, Quiet())
    source_store, target_store = (Path(experiment.config.output.store) for experiment in experiments)
    chunk = next(
        name for name in LocalObjects(str(target_store)).names("neighbor_indices") if not name.endswith("json")
    )
    assert (source_store / chunk).stat().st_ino == (target_store / chunk).stat().st_ino
    expected = contents(str(target_store))
    neighbors = experiments[0].config.neighbors.model_copy(update={"n_neighbors": 9})
    changed_config = experiments[0].config.model_copy(update={"neighbors": neighbors})
    runs.run(changed_config, False, Quiet())
    assert contents(str(source_store)) != expected
    assert contents(str(target_store)) == expected


@pytest.mark.slow
def test_failed_experiment_is_reported_and_others_run(tmp_path):
    path = write(tmp_path / "n.yaml", {"grid": {"input.n_points": [40, 200], "neighbors.n_neighbors": [50, 8]}})
    url, experiments = load_sweep([path], (), None)
    with pytest.raises(ExperimentsFailed, match="1 of 4 experiments") as failure:
        run_sweep(url, experiments, False, Quiet())
    assert "n_neighbors is 50, but the input has 40 rows" in str(failure.value)
    assert failure.value.exit_code == 2
    table = pd.read_parquet(f"{url}/sweep.parquet").set_index("experiment")
    assert table["state"].value_counts().to_dict() == {"done": 3, "failed": 1}
    assert "40 rows" in table.loc["n_points=40,n_neighbors=50", "message"]
    page = Path(url, "sweep.html").read_text()
    assert "1 failed" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(("labels", "is_named"), [(["a", "b"], False), ([0.25, 0.5, 0.75], True)])
def test_title_names_the_axis_of_true_coordinates_but_not_of_classes(tmp_path, monkeypatch, labels, is_named):
    points = np.random.default_rng(3).normal(size=(60, 3))
    table = pd.DataFrame(points, columns=["x", "y", "z"]).assign(label=np.resize(labels, 60))
    table.to_csv(tmp_path / "x.csv", index=False)
    titles, draw = [], sweep_figure.draw_contact_sheet
    monkeypatch.setattr(
        sweep_figure, "draw_contact_sheet", lambda cells, title: titles.append(title) or draw(cells, title)
    )
    source = {"kind": "csv", "path": str(tmp_path / "x.csv"), "label": "label"}
    sweep_of(write(tmp_path / "a.yaml", {"list": [{"method": "pca"}]}, input=source, eigensolver={"n_components": 1}))
    assert ["to the right the true one" in title for title in titles] == [is_named]


def test_error_in_the_config_of_an_experiment_is_printed(toy_stages, tmp_path):
    path, progress = write(tmp_path / "a.yaml", {"list": [{"method": "lle"}, {"neighbors.method": "nope"}]}), Quiet()
    with pytest.raises(ExperimentsFailed, match=r"experiment .*: neighbors\.method: .*nope") as failure:
        run_sweep(*load_sweep([path], (), None), False, progress)
    [line] = [line for line in progress.lines if "failed" in line]
    assert "neighbors.method: " in line
    assert len(str(failure.value).splitlines()) == 2


def test_experiment_that_misses_a_bound_keeps_its_metrics(tmp_path):
    apart = {"graph.components": "error", "neighbors.n_neighbors": 3}  # too few for one component
    url, experiments = load_sweep([write(tmp_path / "tol.yaml", {"list": [{"method": "lle"}, apart]})], (), None)
    with pytest.raises(ExperimentsFailed) as failure:
        run_sweep(url, experiments, False, Quiet())
    assert failure.value.exit_code == 3
    table = pd.read_parquet(f"{url}/sweep.parquet")
    assert list(table["state"]) == ["done", "bound not met"]
    assert np.isfinite(table["recall"]).all()
    assert table["n_components_weak"][1] > 1


def test_failed_experiment_has_no_picture_of_an_earlier_config(tmp_path):
    path = write(tmp_path / "a.yaml", {"list": [{"method": "lle"}]})
    sweep_of(path)
    url, experiments = load_sweep([path], ("neighbors.n_neighbors=3", "graph.components=error"), None)
    with pytest.raises(ExperimentsFailed):
        run_sweep(url, experiments, False, Quiet())
    assert [(cell.points, cell.note) for cell in sweep._cells(experiments[0], 1)] == [(None, "failed")]


@pytest.mark.parametrize(("fresh", "attributes"), [(False, None), (True, {"lle_format": 1})])
def test_experiment_in_a_damaged_or_older_store_runs_again(toy_stages, tmp_path, fresh, attributes):
    path = write(tmp_path / "grid.yaml", {"grid": {"weights.reg": [0.1, 0.01]}})
    url, experiments = load_sweep([path], (), None)
    run_sweep(url, experiments, False, Quiet())
    for experiment in experiments:
        node = json.dumps({"node_type": "group", "attributes": attributes}) if attributes else "{"
        Path(experiment.config.output.store, "zarr.json").write_text(node)
    assert [row["state"] for row in run_sweep(url, experiments, fresh, Quiet()).rows] == ["done"] * 2
    assert all(Store(experiment.config.output.store).is_run() for experiment in experiments)


def test_interrupted_sweep_resumes(toy_stages, tmp_path):
    path = write(tmp_path / "grid.yaml", {"grid": {"weights.reg": [0.1, 0.01, 0.001]}})

    class StopsAtTwo(Quiet):
        def print_line(self, text):
            super().print_line(text)
            if len(self.lines) == 2:
                raise Interrupted(15)

    with counted() as calls:
        with pytest.raises(Interrupted):
            run_sweep(*load_sweep([path], (), None), False, StopsAtTwo())
        result = sweep_of(path)
    assert {key[0] for key, count in calls.items() if count > 1} == set()
    assert len({key[2] for key in calls if key[:2] == ("solve_weights", "solve")}) == 3
    assert [row["state"] for row in result.rows] == ["done"] * 3


@pytest.mark.parametrize(
    ("small", "gib", "expected"), [(5, 8, ("serial", 3)), (20_000, 8, ("local", 1)), (20_000, 1.2, ("serial", 1))]
)
def test_large_experiments_run_in_threads_and_small_ones_as_tasks_if_these_fit_workers(
    toy_stages, tmp_path, monkeypatch, small, gib, expected
):
    started = []

    def executing(progress, cluster, n_threads):
        started.append((cluster.kind, n_threads))
        return contextlib.nullcontext(execute.Executor(None))

    monkeypatch.setattr(sweep, "SMALL_POINTS", small)
    monkeypatch.setattr(sweep, "executing", executing)
    monkeypatch.setattr(limits, "available_cores", lambda: 3)
    for name, n_bytes in (("available_memory", int(gib * 2**30)), ("total_memory", 2**33)):
        monkeypatch.setattr(limits, name, lambda n_bytes=n_bytes: n_bytes)
    settings = {"block_points": 60, "cluster": {"kind": "local"}}
    sweep_of(write(tmp_path / "sweep.yaml", {"grid": {"weights.reg": [0.1, 0.01]}}, execution=settings))
    assert started == [expected]


@pytest.mark.slow
def test_workers_give_the_bytes_of_serial_runs(tmp_path):
    grid, results = {"grid": {"weights.reg": [0.1, 0.01]}}, []
    for name, cluster in (("serial", {"kind": "serial"}), ("local", {"kind": "local", "workers": 2, "memory": "1GiB"})):
        results.append(sweep_of(write(tmp_path / f"{name}.yaml", grid, execution={"cluster": cluster})))
    assert results[0].counts == results[1].counts
    for row in results[0].rows:
        first, second = (contents(f"{result.url}/{row['experiment']}.zarr") for result in results)
        assert first == second


def test_table_keeps_the_values_of_the_sweep_beside_those_that_were_used(tmp_path):
    grid = {"weights.reg": ["auto", 1e-3], "method": ["lle", "pca"]}
    url = sweep_of(write(tmp_path / "reg.yaml", {"grid": grid})).url
    table = pd.read_parquet(f"{url}/sweep.parquet")
    assert table["reg"].tolist() == ["auto", "0.001"] * 2
    assert table["reg_used"].isna().tolist() == [False, False, True, True]
    assert not {"reg_low", "reg_high"} & {*table}
    assert Path(url, "sweep.html").read_text().count("<th>reg</th>") == 1


def test_no_measure_replaces_a_value_of_the_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr("lle.jobs.sweep.flat_metrics", lambda metrics: {"method": "measured", "recall": 1.0})
    url = sweep_of(write(tmp_path / "m.yaml", {"grid": {"method": ["pca"]}})).url
    [row] = pd.read_parquet(f"{url}/sweep.parquet").to_dict("records")
    assert (row["method"], row["recall"]) == ("pca", 1.0)


def test_table_holds_parameters_and_metrics(swept):
    _, result, _ = swept
    table = pd.read_parquet(f"{result.url}/sweep.parquet")
    assert list(table["reg"]) == [0.1, 0.001] * 2
    for row in table.to_dict("records"):
        metrics = json.loads(Path(result.url, f"{row['experiment']}.zarr", "report/metrics.json").read_text())
        assert row["trustworthiness"] == metrics["trustworthiness"]["value"]
        assert row["eigenvalue_2"] == metrics["eigenvalues"][0][1]
        assert row["solver_method"] == metrics["solver"]["method"]


@pytest.mark.slow
def test_several_files_are_one_sweep(tmp_path):
    paths = [write(tmp_path / "plain.yaml", None), write(tmp_path / "more.yaml", {"list": [{"method": "ltsa"}]})]
    with pytest.raises(ConfigError, match="--store URL"):
        load_sweep(paths, (), None)
    url, experiments = load_sweep(paths, ("weights.reg=1e-2",), str(tmp_path / "both"))
    assert [experiment.name for experiment in experiments] == ["config=plain", "config=more,method=ltsa"]
    assert {experiment.config.weights.reg for experiment in experiments} == {0.01}
    result = run_sweep(url, experiments, False, Quiet())
    shared = recorded_steps(Store(f"{url}/config=plain.zarr"))["mend_graph.measure_recall"].fingerprint
    assert (
        recorded_steps(Store(f"{url}/config=more,method=ltsa.zarr"))["mend_graph.measure_recall"].fingerprint == shared
    )
    assert result.rows[1]["steps_reused"] > 5


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({"grids": {}}, "grids: unknown key"),
        ({"grid": {"weights.reg": []}}, "weights.reg has no values"),
        ({}, "neither grid nor list"),
        ({"grid": {"weights.rge": [1]}}, "weights.rge: unknown key"),
        ({"grid": {"method.a": [1]}}, "not a section"),
        ({"grid": {"weights.reg": 3}}, "grid.weights.reg"),
        ({"grid": {"output.store": ["a", "b"]}}, "sweeps output.store; remove it"),
        ({"list": [{"output": {"store": "a", "report": True}}, {"method": "pca"}]}, "sweeps output.store; remove it"),
        ({"grid": {"weights.reg": [1, 1]}}, "the same name"),
        ({"list": [{"execution.cluster.kind": "serial"}, {"execution.cluster.kind": "local"}]}, "use the same cluster"),
    ],
)
def test_invalid_sweeps_are_refused_with_a_reason(tmp_path, sweep, words):
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(write(path, None, method="lle").read_text()), "sweep": sweep}))
    with pytest.raises(ConfigError, match=words):
        load_sweep([path], (), None)


def test_key_that_the_sweep_sets_cannot_be_set_for_all(tmp_path):
    path = write(tmp_path / "s.yaml", {"list": [{"method": "pca"}, {"method": "lle", "weights.reg": 0.1}]})
    with pytest.raises(ConfigError, match=r"--set method: config .*s\.yaml has values of method in its sweep"):
        load_sweep([path], ("method=pca",), None)
    section = write(tmp_path / "t.yaml", {"list": [{"neighbors": {"n_neighbors": 9}}, {"neighbors.n_neighbors": 8}]})
    for override in ("neighbors.n_neighbors=7", "neighbors={n_neighbors: 7, method: brute}"):
        with pytest.raises(ConfigError, match=r"--set neighbors\.n_neighbors: config .*t\.yaml has values of"):
            load_sweep([section], (override,), None)
    experiments = load_sweep([section], ("neighbors={method: brute}", "weights.reg=1"), None)[1]
    assert [experiment.config.neighbors.method for experiment in experiments] == ["auto", "brute"]
    experiments = load_sweep([path], ("weights.reg=1",), None)[1]  # some experiments have no value of their own
    assert [experiment.config.weights.reg for experiment in experiments] == [1, 0.1]


@pytest.mark.parametrize("name", ["zarr.json", "published.json"])
def test_sweep_into_the_store_of_a_run_is_refused(tmp_path, name):
    path = write(tmp_path / "a.yaml", {"grid": {"weights.reg": [0.1]}})
    url, experiments = load_sweep([path], (), None)
    Store(url).objects.put(name, b"{}")
    with pytest.raises(ConfigError, match="found the store of a run or its versions"):
        run_sweep(url, experiments, False, Quiet())


def test_command_line(toy_stages, tmp_path):
    path, runner = write(tmp_path / "a.yaml", {"grid": {"weights.reg": [0.1, 0.01]}}), CliRunner()
    refused = runner.invoke(app, ["run", str(path)])
    assert refused.exit_code == 2
    assert "lle sweep" in refused.output
    dry = runner.invoke(app, ["sweep", str(path), "--dry-run"])
    assert "2 experiments" in dry.output
    assert not (tmp_path / "a").exists()
    swept = runner.invoke(app, ["sweep", str(path), "--json"])
    assert swept.exit_code == 0, swept.output
    last = json.loads(swept.stdout.splitlines()[-1])
    assert last["experiments"] == 2
    assert last["steps"]["reused"] == 3


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.name)
def test_the_shipped_experiments_load(path):
    _, experiments = load_sweep([path], (), None)
    assert [experiment.error for experiment in experiments] == [""] * len(experiments)
    assert path.read_text().splitlines()[0] == "# yaml-language-server: $schema=../schema.json"


def test_names_of_experiments_are_distinct():
    assert experiment_name({"reg": 1e-9, "method": "lle"}) == "reg=1e-09,method=lle"
    names = {experiment_name({"x": value}) for value in (0.1234567, 0.12345671, "a/b", "a b", "a" * 200, "a" * 201)}
    assert len(names) == 6
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789=,._+-x") for name in names)


def test_objects_are_linked_on_one_file_system_and_copied_between_two(tmp_path, monkeypatch):
    source, target = LocalObjects(str(tmp_path / "a")), LocalObjects(str(tmp_path / "b"))
    source.put("x/1", b"one")
    target.put("x/1", b"old")
    target.copy(["x/1"], source)
    assert os.path.samefile(tmp_path / "a/x/1", tmp_path / "b/x/1")

    def refuse(*names):
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(local_objects.os, "link", refuse)
    target.copy(["x/1"], source)
    assert not os.path.samefile(tmp_path / "a/x/1", tmp_path / "b/x/1")
    assert target.get("x/1") == b"one"


class TestWorkerOfAnotherVersion:
    """A late worker with another version of numpy than this process."""

    def test_worker_with_another_version_runs_no_experiment(self):
        with pytest.raises(ConfigError, match=r"numpy: 1\.2\.3 here"):
            sweep._task(None, None, False, None, {**program_versions(), "numpy": "1.2.3"})

    def test_row_of_a_version_conflict_has_a_permanent_exit_code(self):
        row = sweep._failed_row(sweep_plan.Experiment("one", {}, None), ConfigError("numpy"))
        assert (row["state"], row["exit_code"], row["message"]) == ("failed", 2, "ConfigError: numpy")

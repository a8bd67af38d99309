"""The columns of a table as features, label, id or left out, in the output of every command and in the report."""

import json
import os
import pty
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.inputs import open_source
from lle.jobs.export import columns_of_input
from lle.storage.store import Store
from tests.support.commands import FEW, lle, refused, write_config
from tests.support.points import swiss_roll

N = 300


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(config, table): a CSV file with a row number, text and a label."""
    folder = tmp_path_factory.mktemp("columns")
    table = pd.DataFrame(swiss_roll(N, np.random.default_rng(3)), columns=["x", "y", "z"])
    table = table.assign(number=np.arange(N), note="oak", kind=np.arange(N) % 3)
    table.to_csv(folder / "x.csv", index=False)
    source = {"kind": "csv", "path": str(folder / "x.csv"), "label": "kind"}
    config = write_config(folder, input=source, output={"report": True}, **FEW)
    lle("run", config)
    return config, table


def store_of(job) -> Store:
    return Store(str(job[0].parent / "run.zarr"))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "plan"])
def test_the_roles_of_columns_are_listed_before_a_run(job, command):
    output = lle(command, job[0])
    assert output["columns"]["features"] == ["x", "y", "z", "number"]
    assert output["columns"]["left_out"] == {"note": "text"}
    assert output["warnings"][0].endswith("list the features in input.columns, or set input.id: number.")
    lines = CliRunner().invoke(app, [command, str(job[0])]).output.splitlines()
    assert {"features: x, y, z, number", "label: kind", "left out: note (text)"} <= set(lines)
    assert any(line.startswith("warning: Column 'number' is a feature but looks like a row number") for line in lines)


def test_the_roles_of_columns_are_in_metrics_and_report(job):
    metrics = json.loads(store_of(job).objects.get("report/metrics.json"))
    assert (metrics["features"], metrics["label"], metrics["id"]) == (["x", "y", "z", "number"], "kind", None)
    assert metrics["columns_left_out"] == {"note": "text"}
    assert "list the features in input.columns" in metrics["warnings"][-1]
    page = store_of(job).objects.get("report/index.html").decode()
    assert "left out: text" in page
    assert "x, y, z, number" in page


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
def test_export_copies_columns_of_the_input(job, tmp_path, suffix):
    _, table = job
    lle("export", store_of(job).url, tmp_path / f"y.{suffix}", "--with", "note", "--with", "x", "--with", "number")
    read = {"parquet": pd.read_parquet, "csv": pd.read_csv, "arrow": lambda path: pa.ipc.open_file(path).read_pandas()}
    exported = read[suffix](tmp_path / f"y.{suffix}")
    assert list(exported.columns) == ["row", "component", "y1", "y2", "note", "x", "number"]
    assert (exported["note"] == "oak").all()
    np.testing.assert_array_equal(exported["number"], table["number"])
    assert exported["number"].dtype == np.int64
    np.testing.assert_allclose(exported["x"], table["x"], rtol=1e-15)


def test_transform_copies_columns_of_the_new_table(job, tmp_path):
    _, table = job
    texts = [f"r{i:02}" for i in range(40)]
    new = table[:40].assign(row=texts, input_row=texts[::-1], number=np.arange(40) + 0.5)
    new.to_parquet(tmp_path / "x.parquet")
    both = "--with", "row", "--with", "input_row"
    lle("transform", store_of(job).url, tmp_path / "x.parquet", tmp_path / "y.parquet", *both)
    exported = pd.read_parquet(tmp_path / "y.parquet")
    assert exported["row"].tolist() == list(range(40))
    assert exported["input_row"].tolist() == texts
    assert exported["input_input_row"].tolist() == texts[::-1]


def test_columns_that_cannot_be_copied_are_refused(job, tmp_path):
    url = store_of(job).url
    assert "no column 'colour'; its columns are x, y, z, number, kind, note" in refused(
        2, "export", url, tmp_path / "y.csv", "--with", "colour"
    )
    several = refused(2, "export", url, tmp_path / "y.csv", "--with", "x,note")
    assert "give --with once for each column" in several
    assert "--with needs a table" in refused(2, "export", url, tmp_path / "y.npy", "--with", "x")
    shutil.copytree(url, tmp_path / "run.zarr")
    Store(str(tmp_path / "run.zarr")).create_group({"input_fingerprint": {"n_rows": 1}})
    words = refused(2, "export", tmp_path / "run.zarr", tmp_path / "y.csv", "--with", "x")
    assert "the input has changed since the run" in words


@pytest.mark.slow
def test_columns_follow_the_rows_that_where_keeps(job, tmp_path):
    config, table = job
    url = lle("run", config, "--store", tmp_path / "run.zarr", "--set", "input.where=1")["store"]
    lle("export", url, tmp_path / "y.parquet", "--with", "number")
    exported = pd.read_parquet(tmp_path / "y.parquet")
    np.testing.assert_array_equal(exported["number"], table["number"][table["kind"] == 1])


def test_csv_columns_keep_what_is_written(tmp_path):
    lines = ["whole,padded,decimal,text,gap,late", "1,007,1.50,a,,1", "-2,010,2,,5,2", *["3,100,7,b,6,3"] * 3000]
    (tmp_path / "x.csv").write_text("\n".join([*lines, "4,000,8,c,7,x4"]))
    names = lines[0].split(",")
    [read] = columns_of_input(open_source("csv", path=tmp_path / "x.csv", columns=["whole"]), names, "y.parquet")
    assert {name: column.to_pylist() for name, column in read(0, 2).items()} == {
        "whole": [1, -2],
        "padded": ["007", "010"],
        "decimal": [1.5, 2.0],
        "text": ["a", None],
        "gap": [None, 5],
        "late": ["1", "2"],
    }


def test_listed_columns_are_not_suspect(job):
    listed = lle("validate", job[0], "--set", "input.columns=[x,number]")
    assert listed["warnings"] == []
    assert listed["columns"]["left_out"]["y"] == "not in input.columns"


def test_codes_for_missing_values_get_a_warning_also_in_listed_columns(tmp_path):
    table = pd.DataFrame(swiss_roll(N, np.random.default_rng(3)), columns=["x", "y", "z"])
    table.loc[[3, 50, 99, 120], "y"] = -9999
    table.to_csv(tmp_path / "x.csv", index=False)
    source = {"kind": "csv", "path": str(tmp_path / "x.csv"), "columns": ["x", "y", "z"]}
    config = write_config(tmp_path, input=source, **FEW)
    [warning] = lle("validate", config)["warnings"]
    assert warning.startswith(f"Column 'y' holds -9999 in 4 of {N} rows, but its other values are from ")
    assert warning.endswith("leave these entries empty in the input and set preprocess.invalid: drop.")
    assert warning in lle("run", config)["metrics"]["warnings"]
    assert lle("init", tmp_path / "x.csv", "-o", tmp_path / "first.yaml")["warnings"] == [warning]


def test_a_plan_after_the_run_keeps_the_report(job):
    assert [step["reused"] for step in lle("plan", job[0])["steps"] if step["stage"] == "write_report"] == [1]


def table_job(tmp_path, table: pd.DataFrame, **sections):
    """The config of a table."""
    table.to_parquet(tmp_path / "rows.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "rows.parquet")}
    return write_config(tmp_path, input=source, **{**FEW, **sections})


def test_columns_that_separate_the_components_are_named(tmp_path):
    table = pd.DataFrame(swiss_roll(2 * N, np.random.default_rng(3)), columns=["x", "y", "z"])
    table = table.assign(batch=np.where(np.arange(2 * N) % 2 == 0, 90.0, 0.0))
    metrics = lle("run", table_job(tmp_path, table))["metrics"]
    assert metrics["n_components_weak"] == 2
    assert metrics["components_differ_in"] == ["batch"]
    [finding] = [finding for finding in metrics["findings"] if finding["measure"] == "n_components_weak"]
    assert "which differ in batch;" in finding["sentence"]


def test_components_that_no_column_separates_name_none(tmp_path):
    points = np.random.default_rng(2).normal(size=(N, 3)) + 40.0 * (np.arange(N) % 2)[:, None]
    metrics = lle("run", table_job(tmp_path, pd.DataFrame(points, columns=["x", "y", "z"])))["metrics"]
    assert (metrics["n_components_weak"], metrics["components_differ_in"]) == (2, [])


def test_run_that_loses_most_rows_names_the_column_and_ends_with_code_3(tmp_path):
    table = pd.DataFrame(swiss_roll(N, np.random.default_rng(3)), columns=["x", "y", "z"]).assign(income=1.0)
    table.loc[: N // 2 + 5, "income"], table.loc[5:9, "x"] = np.nan, np.nan
    config = table_job(tmp_path, table, preprocess={"invalid": "drop"})
    message = refused(3, "run", config)
    assert "output.min_rows is 0.5" in message
    assert (
        f"most in income ({N // 2 + 6}), x (5); leave columns with many of them out with input.columns, "
        "fill the gaps, or" in message
    )
    metrics = lle("run", config, "--set", "output.min_rows=0.4")["metrics"]
    assert metrics["invalid_by_column"] == {"income": N // 2 + 6, "x": 5}
    assert "most in income" in metrics["verdict"]


def export_at_terminal(*arguments: object, answer: str = "") -> tuple[int, str]:
    """Exit code and messages of `lle export` with an answer typed at a terminal."""
    keyboard, terminal = pty.openpty()
    os.write(keyboard, answer.encode() + b"\n")
    command = [sys.executable, "-m", "lle", "export", *map(str, arguments)]
    result = subprocess.run(command, stdin=terminal, capture_output=True, text=True, check=False)
    os.close(keyboard)
    os.close(terminal)
    return result.returncode, result.stderr


@pytest.mark.slow
def test_export_asks_at_a_terminal_before_it_replaces_a_file(job, tmp_path):
    out, url = tmp_path / "y.csv", store_of(job).url
    lle("export", url, out)
    out.write_text("mine")
    code, message = export_at_terminal(url, out, answer="n")
    assert (code, out.read_text()) == (2, "mine")
    assert "add --force to replace it" in message
    assert export_at_terminal(url, out, answer="y")[0] == 0
    assert len(out.read_text().splitlines()) == N + 1
    out.write_text("mine")
    assert lle("export", url, out)["rows"] == N  # a job has no terminal


def test_validate_checks_every_experiment_of_a_sweep(job, tmp_path):
    text = job[0].read_text()
    (tmp_path / "sweep.yaml").write_text(f"{text}sweep: {{grid: {{neighbors.n_neighbors: [6, 8, 10]}}}}\n")
    assert lle("validate", tmp_path / "sweep.yaml")["experiments"] == 3
    (tmp_path / "wrong.yaml").write_text(f"{text}sweep: {{grid: {{neighbors.n_neighbors: [6, -1]}}}}\n")
    assert "n_neighbors" in refused(2, "validate", tmp_path / "wrong.yaml")


def test_data_file_instead_of_a_config_gets_the_command_that_writes_one(job):
    assert f"lle init {job[0].parent / 'x.csv'}" in refused(2, "run", job[0].parent / "x.csv")


def test_truth_values_of_new_csv_rows_are_those_of_a_parquet_run(tmp_path):
    table = pd.DataFrame(swiss_roll(N, np.random.default_rng(3)), columns=["x", "y", "z"])
    table = table.assign(paid=np.arange(N) % 2 == 0)
    lle("run", table_job(tmp_path, table, graph={"components": "connect"}))
    table.to_csv(tmp_path / "new.csv", index=False)
    assert lle("transform", tmp_path / "run.zarr", tmp_path / "new.csv", tmp_path / "y.npy")["rows"] == N
    embedding = Store(str(tmp_path / "run.zarr")).read_all("embedding")
    np.testing.assert_allclose(np.load(tmp_path / "y.npy")[:, :2], embedding, atol=1e-6)

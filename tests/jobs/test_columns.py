"""The columns of a table as features, label, id or left out, in the output of every command and in the report."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pipeline.cli.commands import app
from pipeline.storage.store import Store
from tests.support.commands import FEW, lle, write_config
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


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_the_roles_of_columns_are_listed_before_a_run(job, command):
    told = lle(command, job[0])
    assert told["columns"]["features"] == ["x", "y", "z", "number"]
    assert told["columns"]["left_out"] == {"note": "text"}
    assert "'number'" in told["warnings"][0]
    lines = CliRunner().invoke(app, [command, str(job[0])]).output.splitlines()
    assert {"features: x, y, z, number", "label: kind", "left out: note (text)"} <= set(lines)
    assert any(line.startswith("warning: column 'number' is a feature but looks like a row number") for line in lines)


def test_the_roles_of_columns_are_in_metrics_and_report(job):
    metrics = json.loads(store_of(job).objects.get("report/metrics.json"))
    assert (metrics["features"], metrics["label"], metrics["id"]) == (["x", "y", "z", "number"], "kind", None)
    assert metrics["columns_left_out"] == {"note": "text"}
    assert "list the features in input.columns" in metrics["warnings"][0]
    page = store_of(job).objects.get("report/index.html").decode()
    assert "left out: text" in page
    assert "x, y, z, number" in page


def test_listed_columns_are_not_suspect(job):
    listed = lle("validate", job[0], "--set", "input.columns=[x,number]")
    assert listed["warnings"] == []
    assert listed["columns"]["left_out"]["y"] == "not in input.columns"


def test_a_plan_after_the_run_keeps_the_report(job):
    assert [step["reused"] for step in lle("plan", job[0])["steps"] if step["stage"] == "write_report"] == [1]

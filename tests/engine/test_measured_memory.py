"""Measured peaks of memory stay within the plan, and are not far below it."""

import json
import os
import subprocess
import sys
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zarr
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.engine.task_costs import COMPILER_BYTES, PROCESS_BYTES, SCORE_BYTES, TASK_BYTES
from lle.stages.registry import stages_of
from lle.storage.store import Store
from tests.support.commands import write_config
from tests.support.paths import REPOSITORY


def low_dimensional(n: int, d: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    return (rng.normal(size=(n, 6)) @ rng.normal(size=(6, d)) + 0.05 * rng.normal(size=(n, d))).astype(dtype)


def gaussian(n: int, d: int, dtype: str) -> np.ndarray:
    """Points with neighbours in all blocks; the first lists have a low recall."""
    return np.random.default_rng(2).normal(size=(n, d)).astype(dtype)


def star(n: int, d: int, dtype: str) -> np.ndarray:
    """Random directions are farther from each other than from the points near the centre: these are in all lists."""
    points = gaussian(n, d, dtype)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    points[n // 3 : n // 3 + 4] /= 1000
    return points


# Large enough that the data take most of the memory of a task; test_task_costs.py tests the formulas with primes.
BRUTE = {
    "x": (6000, 401, "float32"),
    "neighbors": {"method": "brute", "n_neighbors": 21},
    "execution": {"block_points": 3000},
}
SCALED = {
    "x": (12_000, 211, "float64"),
    "preprocess": {"scale": "standard", "pca": 97},
    "neighbors": {"method": "brute", "n_neighbors": 15},
    "execution": {"block_points": 4000},
}
CELLS = {"neighbors": {"method": "pynndescent", "min_recall": 0}}
METHODS = {
    "x": (12_000, 40, "float32"),
    "neighbors": {"n_neighbors": 20, "method": "brute"},
    "execution": {"block_points": 6000},
    "eigensolver": {"method": "multigrid", "tol": 1.0e-2},
}
GROUPS = {
    "x": (20_000, 30, "float32"),
    "rows": gaussian,
    "execution": {"block_points": 600},
    "neighbors": {"method": "pynndescent", "min_recall": 0.93},
}
HUB = {
    "x": (12_000, 60, "float32"),
    "rows": star,
    "neighbors": {"method": "brute"},
    "execution": {"block_points": 1000},
}
LARGE = {
    "tree": {
        "input": {"kind": "synthetic", "name": "swiss_roll", "n_points": 150_000},
        "execution": {"block_points": 65_536},
    },
    "cells": {**CELLS, "x": (70_000, 64, "float32"), "execution": {"block_points": 32_768}},
}
PROBE = REPOSITORY / "tests" / "support" / "memory_probe.py"


def probe(folder: Path, case: dict, *last: str) -> list[dict]:
    """What every block of a serial run (to its last stage) planned and took, in a process of its own."""
    sections = dict(case)
    rows = sections.pop("rows", low_dimensional)
    if "x" in sections:
        np.save(folder / "x.npy", rows(*sections.pop("x")))
        sections["input"] = {"kind": "npy", "path": str(folder / "x.npy")}
    config = write_config(folder, **{key: value for key, value in sections.items() if key != "method"})
    with config.open("a") as file:
        file.write(f"method: {sections.get('method', 'lle')}\n")
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(
        [sys.executable, str(PROBE), str(config), *last],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")]


def check_peaks(records: list[dict], method: str = "lle", last: str = "write_report") -> None:
    """The eigensolve is excluded: it has its own limit and prediction."""
    records = [record for record in records if record["stage"] != "solve_embedding"]
    stages = list(stages_of(method))
    assert {record["stage"] for record in records} == {*stages[: stages.index(last) + 1]} - {"solve_embedding"}
    above = [record for record in records if record["taken"] > record["planned"]]
    assert above == []
    assert records[0]["base"] < PROCESS_BYTES
    # A plan that is far too large would pass, so the plan of a step must also be near the peak of its largest block.
    largest = {(record["stage"], record["step"]): record for record in sorted(records, key=itemgetter("taken"))}
    fixed = COMPILER_BYTES + TASK_BYTES + 2 * SCORE_BYTES
    loose = [e for e in largest.values() if e["planned"] > 6 * e["taken"] + fixed]
    assert loose == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", [BRUTE], ids=["brute"])
def test_no_step_takes_more_than_its_plan(tmp_path, case):
    check_peaks(probe(tmp_path, case))


def check_near(records: list[dict], name: str) -> None:
    """The plan of a step is at most 2.5 times its measured bytes, not counting the fixed bytes of every task."""
    entries = [record for record in records if record["step"] == name]
    assert entries
    assert [record for record in entries if record["planned"] > 2.5 * record["taken"] + TASK_BYTES] == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ltsa", "hessian", "modified", "laplacian"])
def test_no_step_of_a_method_takes_more_than_its_plan(tmp_path, method):
    entries = probe(tmp_path, {**METHODS, "method": method}, "assemble_cost")
    check_peaks(entries, method, "assemble_cost")
    check_near(entries, "contribute")


@pytest.mark.slow
def test_no_round_of_the_search_takes_more_than_its_plan(tmp_path):
    """Several groups of cells, and additional ones because the recall is too low."""
    entries = probe(tmp_path, GROUPS, "mend_graph")
    check_peaks(entries, last="mend_graph")
    steps = [entry["step"] for entry in entries]
    assert steps.count("search_cells_4") > steps.count("search_cells") > 3


@pytest.mark.slow
def test_points_in_all_lists_stay_within_the_plan(tmp_path):
    """Four points of one block of M."""
    entries = probe(tmp_path, HUB, "assemble_cost")
    check_peaks(entries, last="assemble_cost")
    listed = Store(str(tmp_path / "run.zarr")).read_all("neighbor_indices")
    hubs = np.flatnonzero(np.bincount(listed[listed >= 0]) >= 12_000 - 4)
    assert len(hubs) == 4
    assert len(set(hubs // 1000)) == 1
    merged = [entry for entry in entries if entry["step"] == "merge"]
    assert {entry["planned"] for entry in merged} == {TASK_BYTES + 80 * 1000 * 13**2}
    check_near(sorted(merged, key=itemgetter("taken"))[-1:], "merge")


def written(folder: Path, kind: str, x: np.ndarray) -> dict:
    """Input section of a file of this kind whose rows can only be read in large units."""
    names = [f"c{i}" for i in range(x.shape[1])]
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table(dict(zip(names, x.T, strict=True))), folder / "x.parquet")
    elif kind == "zarr":
        zarr.create_array(folder / "x.zarr", name="p", shape=x.shape, dtype=x.dtype, chunks=x.shape)[:] = x
        return {"kind": "zarr", "url": str(folder / "x.zarr"), "array": "p"}
    else:
        np.savetxt(folder / "x.csv", x, delimiter=",", header=",".join(names), comments="")
    return {"kind": kind, "path": str(folder / f"x.{kind}")}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n"), [("parquet", 100_000), ("zarr", 100_000), ("csv", 33_000)])
def test_inputs_with_one_large_row_group_stay_within_the_plan(tmp_path, kind, n):
    """One row group, one chunk, or lines of text: their bytes count during the read and are freed after it."""
    source = written(tmp_path, kind, gaussian(n, 120, "float64"))
    entries = probe(tmp_path, {"input": source}, "order_points")
    check_peaks(entries, last="order_points")
    assert max(entry["base"] for entry in entries if entry["stage"] == "order_points") < PROCESS_BYTES


def test_row_group_that_does_not_fit_is_refused_with_advice(tmp_path):
    source = written(tmp_path, "parquet", gaussian(30_000, 120, "float64"))
    config = write_config(tmp_path, input=source, execution={"cluster": {"kind": "serial", "memory": "512MiB"}})
    result = CliRunner().invoke(app, ["run", str(config)])
    assert result.exit_code == 2
    assert "ingest.read: a task needs" in result.output
    assert "write the input in smaller chunks or row groups" in result.output


@pytest.mark.slow
def test_blocks_sorted_together_stay_within_the_plan(tmp_path):
    case = {**CELLS, "x": (135_000, 64, "float32"), "execution": {"block_points": 2048}}
    entries = probe(tmp_path, case, "order_points")
    check_peaks(entries, last="order_points")
    steps = [entry["step"] for entry in entries]
    assert 2 * steps.count("sort") == steps.count("gather") == 66


@pytest.mark.slow
@pytest.mark.parametrize("case", [SCALED, *LARGE.values()], ids=["scaled", *LARGE])
def test_no_step_of_larger_data_takes_more_than_its_plan(tmp_path, case):
    """Runs up to M; later steps need the same bytes as in the smaller cases."""
    check_peaks(probe(tmp_path, case, "assemble_cost"), last="assemble_cost")

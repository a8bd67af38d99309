"""Every kind of bad input ends with its exit code and a message that names the cause, never with a traceback."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.engine import plan_sizes
from lle.search import cell_groups
from lle.storage.store import Store
from tests.support.commands import lle, npy_config, write_config

ROLL = {"kind": "synthetic", "name": "swiss_roll", "n_points": 600}


def refused(config: Path, code: int, *words: str, command: str = "run", overrides: tuple[str, ...] = ()) -> str:
    """Run, expect this exit code and these words on stderr and in the JSON; returns the message."""
    options = [part for override in overrides for part in ("--set", override)]
    result = CliRunner().invoke(app, [command, str(config), *options, "--json"])
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert found["exit_code"] == code
    assert found["error"] != "InternalError", found["message"]
    assert "Traceback" not in result.output
    for word in words:
        assert word in found["message"], found["message"]
        assert word in result.stderr.replace("\n", " ") or word in result.stderr
    return found["message"]


def points(rng: np.random.Generator, n: int = 300, d: int = 3) -> np.ndarray:
    return rng.normal(size=(n, d))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


def test_more_neighbors_than_rows(tmp_path, rng):
    refused(npy_config(tmp_path, points(rng, 12)), 2, "n_neighbors", "12")
    refused(npy_config(tmp_path, points(rng, 12)), 2, "n_neighbors", "12", command="validate")


def test_all_rows_invalid(tmp_path):
    refused(
        npy_config(tmp_path, np.full((100, 3), np.nan)), 2, "distinct points", overrides=("preprocess.invalid=drop",)
    )


def test_constant_column(tmp_path, rng):
    X = points(rng)
    X[:, 1] = 0.1
    config = npy_config(tmp_path, X)
    refused(config, 2, "one value only", "from 0: 1", "input.columns", overrides=("preprocess.scale=standard",))
    settings = ("preprocess.scale=standard", "input.columns=[0, 2]", "graph.min_component=10")
    lle("run", config, *(word for setting in settings for word in ("--set", setting)))


def test_recall_below_its_bound(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(plan_sizes, "CELL_POINTS", 40)
    monkeypatch.setattr(cell_groups, "N_GROUPS_EACH", 1)
    monkeypatch.setattr(cell_groups, "GROUP_POINTS", 100)
    X = np.random.default_rng(5).normal(size=(1500, 12))
    config = npy_config(tmp_path, X, neighbors={"method": "pynndescent", "min_recall": 0.99, "max_overlap": 2})
    message = refused(config, 3, "min_recall", "0.99", "brute")
    metrics = json.loads((tmp_path / "run.zarr" / "report" / "metrics.json").read_text())
    assert f"{metrics['recall']['value']:.4f}" in message
    assert metrics["recall"]["value"] < 0.99
    [raised] = metrics["recall_raised"]
    assert raised["overlap"] == 2
    assert raised["before"] < raised["after"] == metrics["recall"]["value"]
    assert f"after {raised['before']:.4f} with less overlap" in message


def test_several_closed_classes_without_repair(tmp_path, rng):
    """A tight group whose points list only each other, among other points: LLE's null space has two dimensions."""
    X = np.concatenate([points(rng, 400, 2), 0.001 * points(rng, 20, 2)])
    X = np.concatenate([X, X[:, :1] * 0], axis=1)
    config = npy_config(tmp_path, X, neighbors={"n_neighbors": 8, "reverse": 0})
    result = CliRunner().invoke(app, ["run", str(config), "--json"])
    assert result.exit_code in {0, 3}
    if result.exit_code == 3:
        assert "neighbors.reverse: auto" in result.output
    assert lle("run", config, "--set", "neighbors.reverse=auto")["metrics"]["closed_classes_left"] == 1


def test_corrupted_chunk_is_detected_and_computed_again(tmp_path):
    config = write_config(tmp_path, input=ROLL, execution={"block_points": 200})
    first = lle("run", config)
    before = (tmp_path / "run.zarr/weights/c/1/0").read_bytes()
    (tmp_path / "run.zarr/weights/c/1/0").write_bytes(before[:100] + bytes([before[100] ^ 4]) + before[101:])
    refused(config, 1, "'weights'", "chunk 1", "checksum", "again", overrides=("eigensolver.n_components=3",))
    second = lle("run", config, "--set", "eigensolver.n_components=3")
    n_exchanged = 2 * -(-ROLL["n_points"] // 200)  # requests and sent rows of each block, which were deleted
    assert second["blocks_computed"]["solve_weights"] == 1 + n_exchanged
    assert (tmp_path / "run.zarr/weights/c/1/0").read_bytes() == before
    assert first["metrics"]["n_points"] == 600


def test_folder_of_other_files_is_refused_and_kept(tmp_path):
    (tmp_path / "run.zarr").mkdir()
    (tmp_path / "run.zarr" / "thesis.tex").write_text("dear")
    config = write_config(tmp_path, input=ROLL)
    refused(config, 2, "other files")
    assert [path.name for path in (tmp_path / "run.zarr").iterdir()] == ["thesis.tex"]
    result = CliRunner().invoke(app, ["run", str(config), "--fresh"])
    assert result.exit_code == 2
    assert (tmp_path / "run.zarr" / "thesis.tex").exists()


def test_store_path_is_a_file(tmp_path):
    (tmp_path / "run.zarr").write_text("x")
    refused(write_config(tmp_path, input=ROLL), 2, "run.zarr")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_store_without_write_permission(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    config = write_config(tmp_path, input=ROLL, output={"store": str(tmp_path / "locked" / "run.zarr")})
    refused(config, 2, "Permission denied", "output.store")


@pytest.mark.slow
def test_store_in_a_read_only_file_system(tmp_path):
    config = write_config(tmp_path, input=ROLL, output={"store": "/proc/none/run.zarr"})
    result = CliRunner().invoke(app, ["run", str(config), "--json"])
    assert result.exit_code in {1, 2}
    assert "/proc/none/run.zarr" in result.output
    assert "InternalError" not in result.output


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small tmpfs cannot be mounted here (needs root)")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk(small_disk, tmp_path):
    config = write_config(tmp_path, input={**ROLL, "n_points": 20000}, output={"store": str(small_disk / "run.zarr")})
    refused(config, 1, "disk is full", "run the same command again")


def test_status_of_a_place_without_a_run(tmp_path):
    for command in ("status", "report"):
        result = CliRunner().invoke(app, [command, str(tmp_path / "none.zarr")])
        assert result.exit_code == 2
        assert "no run" in result.output
    result = CliRunner().invoke(app, ["export", str(tmp_path / "none.zarr"), str(tmp_path / "y.npy")])
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run", "--json"], "CONFIG"),
        (["run", "c.yaml", "--jsn", "--json"], "--jsn"),
        (["--json"], "--json"),
        (["rnu", "c.yaml", "--json"], "rnu"),
        (["suggest", "--json", "c.yaml", "--sample", "x"], "--sample"),
    ],
)
def test_wrong_arguments_are_reported_as_json(arguments, word):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert {**found, "message": ""} == {"status": "failed", "error": "UsageError", "message": "", "exit_code": 2}
    assert word in found["message"]
    assert word in result.stderr
    plain = CliRunner().invoke(app, [argument for argument in arguments if argument != "--json"] or ["run"])
    assert plain.stdout == ""


def test_plain_http_is_refused_and_the_environment_variable_is_named(tmp_path, monkeypatch):
    """The client sends no request and raises "builder error", so a retry would fail in the same way."""
    for name, value in {
        "ENDPOINT_URL": "http://127.0.0.1:9",
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
        "REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    config = write_config(tmp_path, input=ROLL, output={"store": "s3://bucket/run.zarr"})
    refused(config, 2, "http://127.0.0.1:9", "Set AWS_ALLOW_HTTP=true")
    config = write_config(tmp_path, input={"kind": "npy", "path": "s3://bucket/x.npy"})
    refused(config, 2, "Set AWS_ALLOW_HTTP=true", command="validate")


def test_missing_folder_of_the_prometheus_file(tmp_path):
    config = write_config(tmp_path, input=ROLL, output={"prometheus": str(tmp_path / "none" / "lle.prom")})
    parts = ("output.prometheus", "does not exist")
    messages = {refused(config, 2, *parts, command=command) for command in ("run", "validate")}
    assert len(messages) == 1


def test_yaml_tags_are_not_executed(tmp_path):
    path = tmp_path / "evil.yaml"
    path.write_text("input: !!python/object/apply:os.system ['true']\noutput: {store: x}\n")
    refused(path, 2, "YAML")


@pytest.mark.parametrize(("method", "neighbors"), [("laplacian", {}), ("lle", {"radius": 3.0, "k_max": 30})])
def test_neighbors_at_distances_beyond_float32_are_kept(tmp_path, method, neighbors):
    """A row with a large fill value has its nearest points as neighbours, at any distance."""
    points = np.random.default_rng(5).uniform(size=(500, 3)) * 4
    points[5] = 1e39
    config = npy_config(tmp_path, points, neighbors=neighbors)
    result = CliRunner().invoke(app, ["run", str(config), "--set", f"method={method}"])
    assert result.exit_code in {0, 3}, result.output
    store = Store(str(tmp_path / "run.zarr"))
    own = store.read_all("original_index").tolist().index(5)
    assert (store.read_all("neighbor_indices")[own] >= 0).sum() >= 3
    distances = store.read_all("neighbor_distances")[own]
    assert distances[0] == np.finfo(np.float32).max

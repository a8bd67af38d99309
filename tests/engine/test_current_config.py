"""After an unfinished run with another config, results of the earlier config are not given out as new ones."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lle import open_run
from lle.core.errors import Interrupted
from lle.engine import checkpoint, current_config
from lle.search import recall as recall_module
from lle.stages import find_neighbors, registry
from lle.storage.store import Store
from tests.support.commands import UNMET, lle, refused, write_config
from tests.support.plans import planned
from tests.support.points import swiss_roll
from tests.support.steps import make_step

N, BLOCK = 300, 150
APART = ("--set", "neighbors.n_neighbors=6", "--set", "eigensolver.n_components=3", "--set", "graph.components=error")


@pytest.fixture
def job(tmp_path) -> Path:
    """Two separate rolls, in a store with an embedding of two coordinates."""
    rng = np.random.default_rng(43)
    np.save(tmp_path / "x.npy", np.concatenate([swiss_roll(200, rng), swiss_roll(100, rng) + 500.0]))
    config = write_config(
        tmp_path,
        input={"kind": "npy", "path": str(tmp_path / "x.npy")},
        quality={"sample": 50},
        execution={"block_points": BLOCK},
        graph={"min_component": 20},
        neighbors={"n_neighbors": 8},
    )
    lle("run", config)
    return config


def nothing_of_before(store: Path, out: Path) -> None:
    """Neither command nor open_run gives the embedding of the config before."""
    for suffix in (".npy", ".parquet", ".csv"):
        assert "has no finished embedding" in refused(2, "export", store, out.with_suffix(suffix))
        assert not out.with_suffix(suffix).exists()
    assert "run the job again" in refused(2, "transform", store, store.parent / "x.npy", out.with_suffix(".npy"))
    run = open_run(str(store))
    assert run.config["eigensolver"]["n_components"] == 3
    assert not {"embedding", "component", "eigenvalues"} & run.arrays.keys()
    with pytest.raises(KeyError, match="has no array 'embedding'"):
        run["embedding"]
    lle("report", store)
    assert not Path(store, "report", "embedding.png").exists()
    metrics = json.loads(Path(store, "report", "metrics.json").read_text())
    assert (metrics["picture"], metrics["eigenvalues"], metrics["solver"]) == (None, None, None)
    assert "measure_quality" not in metrics["seconds"]
    assert "<td>embedding</td>" not in Path(store, "report", "index.html").read_text()
    assert open_run(str(store)).metrics == metrics


def test_leftovers_of_other_configs_are_deleted_at_the_end_of_a_run(tmp_path):
    store, kept = Store(str(tmp_path / "run.zarr")), ("_work/own/00000.npz", "_done/make/fill.00000.json", "notes.txt")
    store.create_group({})
    fill = make_step("make.fill", bundles={"_work/own": 0})
    for step in (fill, replace(fill, key="make.other", bundles={})):
        checkpoint.begin_step(store, step, "a1")
    left = (
        "_work/spread/00000.npz",
        "_work/unlisted.npz",
        "_done/make/fill.00001.json",
        "_done/make/other.00000.json",
        "_done/gone/step.00000.json",
        "weights/c/0",
        "label/c/0",
        "ids/00000.npz",
    )
    for name in (*kept, *left):
        store.objects.put(name, b"{}")
    current_config.delete_leftovers(store, {fill.key})
    assert [name for name in left if store.objects.exists(name)] == []
    assert [name for name in kept if not store.objects.exists(name)] == []
    assert checkpoint.begun_steps(store) == {fill.key}


def test_a_run_deletes_leftovers_at_its_end(tmp_path, toy_stages):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "swiss_roll", "n_points": 100})
    lle("run", config)
    left = tmp_path / "run.zarr" / "_work" / "spread" / "00000.npz"
    left.parent.mkdir(parents=True)
    left.touch()
    lle("run", config, "--set", "neighbors.n_neighbors=9")
    assert not left.exists()


@pytest.mark.slow
def test_run_that_stops_before_the_embedding_hides_the_earlier_one(job, tmp_path):
    refused(3, "run", job, *APART)
    nothing_of_before(tmp_path / "run.zarr", tmp_path / "y")
    lle("run", job, *APART[:4])
    assert lle("export", tmp_path / "run.zarr", tmp_path / "y.npy")["rows"] == N
    assert np.load(tmp_path / "y.npy").shape == (N, 3)
    assert open_run(str(tmp_path / "run.zarr"))["embedding"].shape == (N, 3)


@pytest.mark.slow
def test_run_that_stops_in_reused_steps_hides_the_earlier_embedding(job, tmp_path, monkeypatch):
    """All steps up to the recall are reused, so the run ends before it begins any step."""
    store, settings = tmp_path / "run.zarr", ("--set", "eigensolver.n_components=3", "--set", "quality.seed=9")
    with monkeypatch.context() as patch:

        def measure(*_, **__) -> recall_module.Recall:
            return recall_module.Recall(0.5, 0.4, 0.6, 50)

        patch.setattr(recall_module, "measure_recall", measure)
        for _ in range(2):
            assert "min_recall" in refused(3, "run", job, *settings)
            assert Store(str(store)).has_array("embedding")
            assert open_run(str(store)).metrics["recall"]["value"] == 0.5
            nothing_of_before(store, tmp_path / "y")
    resumed = lle("run", job)
    assert not resumed["blocks_computed"].get("solve_embedding"), "the config of before still has its embedding"
    assert lle("export", store, tmp_path / "y.npy")["rows"] == N


def test_killed_run_of_another_config_hides_the_metrics(job, tmp_path, monkeypatch):
    store = tmp_path / "run.zarr"

    def killed(*_, **__):
        raise Interrupted(2)

    assert open_run(str(store)).metrics is not None
    with monkeypatch.context() as patch:
        patch.setattr(find_neighbors, "search_block", killed)
        refused(130, "run", job, *APART[:4])
    run = open_run(str(store))
    assert run.metrics is None
    assert "points" in run.arrays
    nothing_of_before(store, tmp_path / "y")


def test_stopped_run_of_the_same_config_keeps_the_embedding(job, tmp_path, monkeypatch):
    def stopped(config, layout):
        raise Interrupted(2)
        yield

    metrics = open_run(str(tmp_path / "run.zarr")).metrics
    with monkeypatch.context() as patch:
        patch.setitem(registry.STAGES, "mend_graph", stopped)
        refused(130, "run", job)
    run = open_run(str(tmp_path / "run.zarr"))
    assert (run.metrics, run["embedding"].shape) == (metrics, (N, 2))
    assert lle("export", tmp_path / "run.zarr", tmp_path / "y.npy")["rows"] == N


def test_embedding_that_did_not_converge_is_exported(tmp_path):
    source = {"kind": "synthetic", "name": "s_curve", "n_points": 450}  # fewer are solved as a dense matrix
    job = write_config(tmp_path, input=source, quality={"sample": 50})
    lle("run", job)
    refused(3, "run", job, *UNMET, "--set", "eigensolver.n_components=3")
    assert lle("export", tmp_path / "run.zarr", tmp_path / "y.npy")["rows"] == 450
    assert np.load(tmp_path / "y.npy").shape == (450, 3)
    run = open_run(str(tmp_path / "run.zarr"))
    assert not run.metrics["solver"]["converged"]
    assert run["embedding"].shape == (450, 3)


@pytest.mark.slow
def test_published_version_is_exported_whatever_the_next_run_did(job, tmp_path):
    versioned = ("--set", "output.keep=2", "--store", str(tmp_path / "root.zarr"))
    lle("run", job, *versioned)
    refused(3, "run", job, *versioned, *APART)
    assert lle("export", tmp_path / "root.zarr", tmp_path / "y.npy")["rows"] == N
    assert np.load(tmp_path / "y.npy").shape == (N, 2)
    run = open_run(str(tmp_path / "root.zarr"))
    assert (run.config["eigensolver"]["n_components"], run["embedding"].shape) == (2, (N, 2))


def test_embedding_without_the_marker_of_a_block_is_not_exported(job, tmp_path):
    next(Path(tmp_path, "run.zarr", "_done", "solve_embedding").glob("write.*.json")).unlink()
    assert "has no finished embedding" in refused(2, "export", tmp_path / "run.zarr", tmp_path / "y.npy")


class TestList:
    """The list of current steps, without running a stage."""

    @pytest.fixture
    def store(self, tmp_path):
        store = Store(str(tmp_path / "list.zarr"))
        store.create_group({"config": {"a": 1}, "input_fingerprint": "first"})
        return store

    @pytest.mark.parametrize(
        ("config", "fingerprint", "is_emptied"),
        [({"a": 1}, "first", False), ({"a": 2}, "first", True), ({"a": 1}, "second", True)],
    )
    def test_another_config_or_input_empties_the_list(self, store, config, fingerprint, is_emptied):
        current_config.begin_run(store, config, fingerprint)
        assert current_config.has_metrics(store) is not is_emptied

    def test_array_that_is_not_listed_is_not_current(self, store):
        store.create(planned("embedding", (4, 2), "float64", 4, 0))
        assert current_config.has_array(store, "embedding")
        current_config.begin_run(store, {"a": 2}, "first")
        assert not current_config.has_array(store, "embedding")

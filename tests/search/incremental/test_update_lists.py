"""Rows appended to an input: data kept from the earlier version, and lists equal to those of a full search."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.engine import plan_sizes
from lle.search import cell_groups
from lle.search.incremental import update_groups, update_lists
from lle.stages import order_points
from lle.storage.store import Store
from lle.storage.versions import Versions
from tests.support.appended_rows import BLOCK, MORE, K, N, Night, exact, flags, lists, reports, steps
from tests.support.commands import lle, refused
from tests.support.seeds import seeds
from tests.support.stored import damage


@pytest.mark.parametrize("method", ["kdtree", pytest.param("pynndescent", marks=pytest.mark.slow)])
def test_lists_are_exact_after_several_appends(search_only, tmp_path, points, method, monkeypatch):
    monkeypatch.setattr(plan_sizes, "CELL_POINTS", 20)
    monkeypatch.setattr(order_points, "MAX_SHARDS", 2)  # blocks with and without new points are sorted together
    night = Night(tmp_path, points, method)
    night(N)
    for n in (N + MORE, N + 2 * MORE):
        store = night(n)
        assert "keep_cells" in steps(store)
        np.testing.assert_array_equal(lists(store), exact(points[:n]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3, 17))
def test_recall_stays_high_between_groups(search_only, tmp_path, seed, monkeypatch):
    """Groups of 100 points: a new point is searched in four groups, an old point in its own."""
    monkeypatch.setattr(cell_groups, "GROUP_POINTS", 100)
    monkeypatch.setattr(plan_sizes, "CELL_POINTS", 20)
    points = np.random.default_rng(seed).normal(size=(N + 2 * MORE, 4))
    night = Night(tmp_path, points, "pynndescent")
    night(N)
    night(N + MORE)
    store = night(N + 2 * MORE)
    assert store.read_bundle("_work/appended/groups")["groups"].max() >= update_groups.N_GROUPS_NEW
    true, actual = exact(points), lists(store)
    hits = np.array([len(np.intersect1d(*pair)) for pair in zip(true, actual, strict=True)])
    assert hits[N:].mean() > 0.97 * K
    assert hits[:N].mean() > 0.9 * K
    new = (true >= N).sum(axis=1)  # neighbours that only a comparison with new points can have found
    caught = (actual >= N).sum(axis=1)
    assert caught[:N].sum() > 0.95 * new[:N].sum() > 0


@pytest.mark.parametrize("block", ["auto", 5000])
def test_block_size_of_a_single_block_is_kept_after_an_append(search_only, tmp_path, points, block):
    night = Night(tmp_path, points, "kdtree", block)
    night(N)
    store = night(N + MORE)
    assert "keep_cells" in steps(store)
    assert store.array("points").attrs["block"] == N
    np.testing.assert_array_equal(lists(store), exact(points[: N + MORE]))


def test_old_blocks_are_the_same_files_and_only_new_points_are_searched(search_only, night):
    first, second = night(N), night(N + MORE)
    for name in ("points", "original_index", "_work/nearest_cells"):
        new_paths, old_paths = (sorted(Path(store.url, name, "c").rglob("*")) for store in (second, first))
        same = [
            path
            for path, old_path in zip(new_paths, old_paths, strict=False)
            if path.is_file() and path.samefile(old_path)
        ]
        assert len(same) == N // BLOCK
    assert sum(report.get("kept", 0) for report in reports(second, "order_points", "gather")) == N
    assert [report.get("kept", 0) for report in reports(second, "find_neighbors", "update")] == [BLOCK] * 4 + [0]
    actual = second.get_json("report/metrics.json")
    assert actual["appended"] == {"points_kept": N, "points_searched_together": N}
    assert actual["recall"]["value"] == 1.0
    assert first.get_json("report/metrics.json")["appended"] is None


def test_lists_are_kept_only_if_their_settings_are_unchanged(search_only, night):
    night(N)
    config = night.config(N + MORE)
    for settings, is_kept in (
        (("weights.reg=0.01", "neighbors.max_overlap=4", "eigensolver.n_components=3"), True),
        (("neighbors.n_neighbors=9",), False), (("neighbors.seed=4",), False), (("preprocess.scale=standard",), False),
        (("neighbors.method=brute",), False), (("neighbors.radius=2.0",), False), (("method=pca",), False),
        (("output.max_appended=0",), False), (("output.max_appended=0.04",), False),
        (("execution.block_points=100",), False),
    ):  # fmt: skip
        planned = {step["step"] for step in lle("plan", config, *flags(settings))["steps"]}
        assert ("keep_cells" in planned) == is_kept, settings


@pytest.mark.slow
def test_plan_states_what_is_kept_or_why_nothing_is(search_only, night):
    night(N)
    assert "only new points are searched" in lle("plan", night.config(N + MORE))["says"]
    night(N + MORE)
    plan = lle("plan", night.config(N + 2 * MORE + 1))
    assert "91 points are new since 900 were searched together, more than output.max_appended 0.1" in plan["says"]
    assert "only new points are searched" not in plan["says"]
    assert "keep_cells" not in steps(night(N + 2 * MORE + 1))
    assert "only new points are searched" in lle("plan", night.config(N + 3 * MORE))["says"]
    assert "keep_cells" in steps(night(N + 3 * MORE))


@pytest.mark.slow
def test_plan_states_that_brute_force_searches_all_points(tmp_path, points):
    night = Night(tmp_path, points, "brute")
    night(N)
    config = night.config(N + MORE)
    says = lle("plan", config)["says"]
    assert "cells and order are kept: brute force searches all points" in says
    assert "only new" not in says
    result = CliRunner().invoke(app, ["run", str(config), "--store", str(night.root)])
    assert result.exit_code == 0, result.output
    assert "keep their order; all points are searched (neighbors.method brute)" in result.output
    assert "only new" not in result.output
    second = Versions(str(night.root)).published()
    assert {"keep_cells", "search"} <= steps(second)
    assert [report["rows_read"] for report in reports(second, "find_neighbors", "search")] == 5 * [N + MORE]
    np.testing.assert_array_equal(lists(second), exact(points[: N + MORE]))


@pytest.mark.parametrize("row", [pytest.param(0, marks=pytest.mark.slow), N - 1])
def test_changed_row_computes_everything_again(search_only, night, points, row):
    night(N)
    changed = points.copy()
    changed[row] += 0.01
    command = ["run", str(night.config(N + MORE, changed)), "--store", str(night.root), "--json"]
    result = CliRunner().invoke(app, command)
    first = row // BLOCK * BLOCK
    text = f"rows were not only appended (among {first} to {min(first + BLOCK, N) - 1}, counted from 0"
    assert text in " ".join(result.stderr.split())
    store = Store(json.loads(result.stdout)["store"])
    assert "keep_cells" not in steps(store)
    np.testing.assert_array_equal(lists(store), exact(changed[: N + MORE]))


@pytest.mark.slow
def test_fewer_rows_compute_everything_again(search_only, night, points):
    night(N)
    assert f"the input has {N - 30:,} rows, 30 fewer than version" in lle("plan", night.config(N - 30))["says"]
    store = night(N - 30)
    assert "keep_cells" not in steps(store)
    np.testing.assert_array_equal(lists(store), exact(points[: N - 30]))


@pytest.mark.slow
def test_other_weights_after_rows_were_appended_search_nothing(night):
    night(N)
    first, second = night(N + MORE), night(N + MORE, "weights.reg=0.01")
    for name in ("points", "original_index", "_work/knn_indices", "_work/knn_distances"):
        [second_paths, first_paths] = (sorted(path for path in Path(store.url, name, "c").rglob("*") if path.is_file())
                          for store in (second, first))  # fmt: skip
        assert all(path.samefile(first_path) for path, first_path in zip(second_paths, first_paths, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kdtree", "pynndescent"])
def test_appended_copies_of_old_rows_are_merged(tmp_path, points, method):
    night = Night(tmp_path, points, method)
    night(N)
    store = night(N + 30, rows=np.concatenate([points[:N], points[5:25], points[N:]]))
    assert "keep_cells" in steps(store)
    assert store.array("points").shape == (N + 10, 3)
    embedding = store.read_all("embedding")
    np.testing.assert_array_equal(embedding[N : N + 20], embedding[5:25])
    assert np.isfinite(embedding).all()
    only = night(N + 35, rows=np.concatenate([points[:N], points[5:25], points[N : N + 10], points[:5]]))
    np.testing.assert_array_equal(only.read_all("embedding")[: N + 30], embedding)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_scaling_is_kept_from_the_last_full_search(night, points, metric):
    settings = ("preprocess.scale=standard", f"neighbors.metric={metric}")
    night(N, *settings)
    store = night(N + MORE, *settings)
    expected = (points - points[:N].mean(axis=0)) / points[:N].std(axis=0)
    if metric == "cosine":
        expected /= np.linalg.norm(expected, axis=1)[:, None]
    np.testing.assert_allclose(store.read_all("points"), expected[store.read_all("original_index")], atol=1e-8)
    np.testing.assert_array_equal(lists(store), exact(expected[: N + MORE]))


@pytest.mark.slow
def test_damaged_version_is_named_and_then_not_used_as_base(search_only, night):
    first = night(N)
    damage(first.url, "_work/knn_distances")
    message = refused(1, "run", night.config(N + MORE), "--store", night.root)
    assert first.url in message
    assert "lle verify" in message
    refused(1, "verify", night.root)
    assert "keep_cells" not in steps(night(N + MORE))


@pytest.mark.parametrize("method", ["kdtree", pytest.param("pynndescent", marks=pytest.mark.slow)])
def test_resumed_run_after_a_failure_gives_the_same_bytes(search_only, tmp_path, points, method, monkeypatch):
    night = Night(tmp_path, points, method)
    night.root = tmp_path / "undisturbed"
    night(N)
    undisturbed = night(N + MORE)
    night.root = tmp_path / "failed"
    night(N)
    module, calls = {"kdtree": update_lists, "pynndescent": update_groups}[method], []
    write = module.write_lists

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise OSError("no such device")
        write(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_lists", failing)
        refused(1, "run", night.config(N + MORE), "--store", night.root)
    resumed = night(N + MORE)
    assert "keep_cells" in steps(resumed)
    for array in ("points", "_work/knn_indices", "weights", "embedding"):
        np.testing.assert_array_equal(resumed.read_all(array), undisturbed.read_all(array))


def test_embedding_equals_that_of_a_run_on_all_rows(night, tmp_path, points):
    night(N)
    grown = night(N + MORE).read_all("embedding")
    night.root = tmp_path / "afresh"
    afresh = night(N + MORE).read_all("embedding")
    np.testing.assert_allclose(grown * np.sign(grown[0] * afresh[0]), afresh, atol=1e-5)

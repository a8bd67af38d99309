"""Versions built on another version: damage in copied data, reuse by the next version, and plans of their steps."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lle.engine import plan_sizes
from lle.engine.plan import Earlier
from lle.jobs import transform
from lle.search import cell_groups, kdtree_blocks
from lle.search.incremental import update_groups, update_lists
from lle.storage import array_specs
from lle.storage.array_specs import PlannedArray
from lle.storage.blocks import Blocks
from lle.storage.store import Store
from tests.support.appended_rows import MORE, K, N, Night, exact, flags, lists, steps
from tests.support.commands import lle, refused
from tests.support.plans import config_of, make_layout, walk_all
from tests.support.stored import damage, flip


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("method", ["kdtree", "pynndescent"])
def test_version_built_on_another_passes_verify(tmp_path, points, method):
    night = Night(tmp_path, points, method)
    night(N)
    assert lle("verify", night(N + MORE).url)["damaged"] == 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("points", marks=pytest.mark.slow),
        pytest.param("_work/boxes/00000.npz", marks=pytest.mark.slow),
        pytest.param("_work/boxes/00004.npz", marks=pytest.mark.slow),
        pytest.param("_work/cells.npz", marks=pytest.mark.slow),
        pytest.param("_work/cell_counts", marks=pytest.mark.slow),
        pytest.param("original_index", marks=pytest.mark.slow),
        "_work/row_hash",
    ],
)
def test_damage_in_copied_data_names_the_version_that_holds_it(search_only, night, name):
    """A repeated run names the cause, even if the damaged file was copied several times before."""
    first = night(N)
    damage(first.url, name)
    message = [refused(1, "run", night.config(N + MORE), "--store", night.root) for _ in range(2)]
    assert first.url in message[1]
    assert "lle verify" in message[1]
    refused(1, "verify", night.root)
    store = night(N + MORE)
    assert "keep_cells" not in steps(store)
    np.testing.assert_array_equal(lists(store), exact(night.points[: N + MORE]))


def test_error_for_missing_data_names_their_version(search_only, night):
    first = night(N)
    shutil.rmtree(Path(first.url, "points", "c", "1"))
    message = refused(1, "run", night.config(N + MORE), "--store", night.root)
    assert f"{first.url}: array 'points', chunk 1" in message
    assert "lle verify" in message


@pytest.mark.slow
def test_damaged_block_of_new_version_keeps_old_version_valid(night, monkeypatch):
    first = night(N)
    find = update_lists.find_kept

    def actual(store, *arguments, **named):
        flip(Path(store.url, "_work/row_hash/c/0/0"))
        return find(store, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(update_lists, "find_kept", actual)
        assert first.url not in refused(1, "run", night.config(N + MORE), "--store", night.root)
    assert "keep_cells" in steps(night(N + MORE))


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 3])
def test_changed_n_components_keeps_weights_and_matrix(night, keep):
    settings = (f"output.keep={keep}",)
    for n in (N, N + MORE):
        weights = night(n, *settings).read_all("weights")
    config = [night.folder / "config.yaml", *flags((*settings, "eigensolver.n_components=3")), "--store", night.root]
    plan = lle("plan", *config)
    planned = {step["step"]: step for step in plan["steps"]}
    assert planned["gather"]["reused"] == planned["gather"]["tasks"] > 0
    assert "new points are searched" not in plan["says"]
    result = lle("run", *config)
    computed = {stage for stage, blocks in result["blocks_computed"].items() if blocks}
    assert computed == {"solve_embedding", "measure_quality", "write_report"}
    store = Store(result["store"])
    np.testing.assert_array_equal(store.read_all("weights"), weights)
    assert "keep_cells" in steps(night(N + 2 * MORE, *settings))


@pytest.mark.slow
def test_changed_value_in_an_appended_row_gives_exact_lists(night, points):
    """The version that the rows were appended to may have been deleted."""
    for n in (N, N + MORE):
        night(n, "output.keep=1")
    changed = points.copy()
    changed[N + 3] += 0.01
    store = night(N + MORE, "output.keep=1", rows=changed)
    np.testing.assert_array_equal(lists(store), exact(changed[: N + MORE]))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kdtree", "pynndescent"])
def test_dropped_rows_among_old_and_new_rows(tmp_path, points, method):
    invalid = [3, N - 1, N, N + 7, N + MORE]
    rows = points.astype(np.float32)
    rows[invalid] = np.nan
    night = Night(tmp_path, rows, method)
    night(N, "preprocess.invalid=drop")
    for n in (N + MORE, N + 2 * MORE):
        store = night(n, "preprocess.invalid=drop")
        assert "keep_cells" in steps(store)
        valid = np.setdiff1d(np.arange(n), invalid)
        np.testing.assert_array_equal(lists(store), valid[exact(rows[valid].astype(float))])
        dropped = np.flatnonzero(np.isnan(store.read_all("embedding")).any(axis=1))
        assert dropped.tolist() == [row for row in invalid if row < n]
        assert store.array("points").dtype == np.float32


@pytest.mark.slow
def test_lists_of_additional_rounds_are_kept_and_improved_again(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_groups, "GROUP_POINTS", 100)
    monkeypatch.setattr(plan_sizes, "CELL_POINTS", 20)
    X = np.random.default_rng(7).normal(size=(N + 2 * MORE, 6))
    settings = ("neighbors.min_recall=0.99", "neighbors.max_overlap=16")
    night = Night(tmp_path, X, "pynndescent")
    first = night(N, *settings)
    assert "merge_4" in steps(first)
    for n in (N + MORE, N + 2 * MORE):
        store = night(n, *settings)
        assert "keep_cells" in steps(store)
        assert store.get_json("report/metrics.json")["recall"]["value"] >= 0.99
        hits = np.array([len(np.intersect1d(*pair)) for pair in zip(lists(store), exact(X[:n]), strict=True)])
        assert hits.mean() > 0.97 * K
        assert hits[N:].mean() > 0.93 * K


def test_group_without_searched_points(tmp_path):
    """Cells of a group can be empty, because centres come from a sample."""
    store = Store(str(tmp_path / "run"))
    store.create_group({})
    X, k = np.random.default_rng(3).normal(size=(12, 11)), 2
    for spec, shape, dtype in ((array_specs.POINTS, (12, 11), "float64"), (array_specs.KNN_INDICES, (12, k), "int32"),
                               (array_specs.KNN_DISTANCES, (12, k), "float32")):  # fmt: skip
        store.create(PlannedArray(spec, shape, dtype, 20))
        store.write(spec.name, 0, X if spec is array_specs.POINTS else np.ones(shape, dtype))
    store.write_bundle(update_groups.APPENDED.groups, groups=np.array([0, 1], np.int32))
    store.write_bundle(cell_groups.KEPT_CELLS, counts=np.array([0, 10]), generations=np.array(1))
    sizes = {"kept": 10, "searched": 10, "blocks": Blocks(12, 20)}
    new = {"members": np.array([10, 11]), "points": X[10:], "visits": np.array([True, True]),
           "reach": np.full(2, 9.0)}  # fmt: skip
    store.write_parts(update_groups.APPENDED.members(0), 2, (
        (group, {"own": np.full(2, is_member), **new}) for group, is_member in enumerate((False, True))
    ))  # fmt: skip
    for group in range(2):
        actual = update_groups.search_new(store, group, k, **sizes, earlier=store.url, lists="_work")
        assert actual["new"] == 2
    parts = list(store.read_parts([update_groups.APPENDED.neighbors(group) for group in (0, 1)], 0))
    assert parts[0]["members"].tolist() == [10, 11]
    assert (parts[0]["ids"] == -1).all()
    assert (parts[1]["ids"][-2:, 0] >= 0).all()


def test_plan_spreads_new_points_over_the_groups():
    """If all new points were in one group, it would not fit a worker."""
    config = config_of(neighbors={"n_neighbors": 12, "method": "pynndescent"})
    n, new = 10_000_000, 900_000
    earlier = Earlier("there", "1", n, n, n, plan_sizes.n_cells(n), 8, "_work", 0)
    layout = make_layout(config, n=n + new, d=100, block=32_768)
    planned = {step.name: step for step in walk_all(config, replace(layout, earlier=earlier))[0]}
    full_search = {step.name: step for step in walk_all(config, layout)[0]}
    assert planned["search_new"].runs.bytes_per_task < 2 * full_search["search_cells"].runs.bytes_per_task


@pytest.mark.slow
def test_plan_counts_the_boxes_of_all_versions(night, monkeypatch):
    monkeypatch.setattr(plan_sizes, "CELL_POINTS", 20)
    planned, figure = [], kdtree_blocks.search_tree_bytes

    def noted(**sizes):
        planned.append(sizes["n_boxes"])
        return figure(**sizes)

    monkeypatch.setattr(kdtree_blocks, "search_tree_bytes", noted)
    for n in (N, N + MORE, N + 2 * MORE, N + 2 * MORE + 1):
        store = night(n, "output.max_appended=0.5")
        assert ("keep_cells" in steps(store)) == (n > N)
        names = store.objects.names("_work/boxes")
        n_boxes = sum(len(store.read_bundle(name.removesuffix(".npz"))["start"]) for name in names)
        n_blocks = -(-store.array("points").shape[0] // night.block)
        for predicted in (planned[-1], transform.max_boxes(store, n_blocks)):
            assert n_boxes <= predicted <= 4 * n_boxes

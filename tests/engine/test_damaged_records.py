"""Valid JSON of the wrong shape, missing bundles, damaged stores of others: recognised, named, and cured by --fresh."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

from lle.api.open_run import open_run
from lle.cli.commands import app
from lle.core.errors import StoreError
from lle.engine import checkpoint, current_config
from lle.engine.checkpoint import begin_step, mark_done, marker_name, record_name
from lle.engine.damage import damage_of_step
from lle.engine.step import BlockReport
from lle.jobs.verify import check, unmarked_blocks
from lle.storage.array_specs import ArraySpec, PlannedArray
from lle.storage.local_objects import LocalObjects
from lle.storage.records import to_json
from lle.storage.run_group import METRICS_CRC
from lle.storage.store import Store
from tests.support.commands import lle, refused
from tests.support.steps import Facts, make_step, no_task
from tests.support.stored import flip

ARRAY = PlannedArray(ArraySpec("x", ("point",), "float64", ""), (12,), "float64", 4)
STEP = make_step("make.fill", no_task, 3, arrays=(ARRAY,), bundles={"_work/parts": 0})
WRONG = [b"", b"{}", b"[]", b"7", b'"x"', b"null", b'{"fingerprint": 5, "n_blocks": "a", "arrays": 3}', b"{" * 5000]
RECORDS = [
    "_run/lock.json",
    "_run/current.json",
    "_run/input.json",
    "_run/steps/ingest.read.json",
    "_done/ingest/read.00000.json",
    "report/metrics.json",
    "embedding/zarr.json",
    "zarr.json",
]


def finished(folder: Path) -> Store:
    """A store with the three blocks of STEP, each an array chunk and a bundle."""
    store = Store(str(folder))
    store.create_group({})
    begin_step(store, STEP, "a1")
    for block in range(3):
        store.bundles_written.clear()
        store.write("x", 4 * block, np.full(4, block, float))
        store.write_bundle(f"_work/parts/{block:05d}", block=np.array(block))
        mark_done(store, STEP, "a1", BlockReport(block, 0.5, 7, {}, bundles=tuple(store.bundles_written)))
    return store


class TestCopiedSteps:
    def test_only_undamaged_blocks_are_copied_from_another_store(self, tmp_path):
        source_store = finished(tmp_path / "source_store.zarr")
        flip(Path(source_store.url, "x/c/1"))
        Path(source_store.url, "_work/parts/00002.npz").unlink()
        store = Store(str(tmp_path / "new.zarr"))
        store.create_group({})
        assert begin_step(store, STEP, "a1", set(), [source_store]).keys() == {0}

    def test_source_store_with_most_undamaged_blocks_is_used(self, tmp_path):
        damaged, undamaged = finished(tmp_path / "damaged.zarr"), finished(tmp_path / "other.zarr")
        Path(damaged.url, "x/zarr.json").write_text('{"shape": []}')
        store = Store(str(tmp_path / "new.zarr"))
        store.create_group({})
        assert len(begin_step(store, STEP, "a1", set(), [damaged, undamaged])) == 3


def test_verify_finds_a_deleted_bundle(tmp_path):
    store = finished(tmp_path / "run.zarr")
    record, finished_blocks = (
        checkpoint.step_record(store, "make.fill"),
        checkpoint.finished_blocks(store, "make.fill", "a1"),
    )
    assert damage_of_step(store, record, finished_blocks) == []
    Path(store.url, "_work/parts/00001.npz").unlink()
    [error] = damage_of_step(store, record, finished_blocks)
    assert checkpoint.invalidate(store, error.array, error.chunk) == "block 1 of make.fill"


def test_record_with_a_field_of_another_type_is_damaged(tmp_path):
    store = finished(tmp_path / "run.zarr")
    record = checkpoint.step_record(store, "make.fill")
    assert record.seconds == 0.0
    for seconds, is_valid in ((1.5, True), ("1.5", False), (None, False), ([], False)):
        store.put_json("_run/steps/make.fill.json", {**to_json(record), "seconds": seconds})
        assert (checkpoint.step_record(store, "make.fill") is not None) == is_valid


@pytest.mark.parametrize("n_blocks", [2, 4, 2**32, 2**63, -1])
def test_record_with_another_number_of_blocks_begins_the_step_again(tmp_path, n_blocks):
    """The number is part of the fingerprint, so it differs in a damaged record only."""
    store = finished(tmp_path / "run.zarr")
    assert len(begin_step(store, STEP, "a1")) == 3
    store.put_json(
        "_run/steps/make.fill.json", {**to_json(checkpoint.step_record(store, "make.fill")), "n_blocks": n_blocks}
    )
    assert begin_step(store, STEP, "a1") == {}
    assert checkpoint.step_record(store, "make.fill").n_blocks == 3


def reported(folder: Path) -> Store:
    """A finished store with a report."""
    store, report = finished(folder), replace(STEP, key="write_report.write", n_blocks=1, arrays=(), bundles={})
    begin_step(store, report, "b1")
    mark_done(store, report, "b1", BlockReport(0, 0.5, 7, Facts()))
    store.put_metrics({})
    return store


def test_verify_deletes_damaged_markers_so_that_the_store_is_not_complete(tmp_path):
    store, marker = reported(tmp_path / "run.zarr"), "_done/make/fill.00001.json"
    path = Path(store.url, marker)
    path.write_text(path.read_text().replace('"seconds": 0.5', '"seconds": 1e300'))
    assert checkpoint.is_complete(store)  # markers are counted, not read
    with pytest.raises(StoreError, match="was damaged"):
        check(store, list)
    assert store.get_json(marker) is None
    assert not checkpoint.is_complete(store)


def test_store_with_a_damaged_record_of_a_step_is_not_complete(tmp_path):
    store = reported(tmp_path / "run.zarr")
    store.put_json("_run/steps/make.fill.json", {"fingerprint": 5})
    assert not checkpoint.is_complete(store)


def test_verify_counts_the_blocks_of_a_damaged_record_without_listing_them(tmp_path):
    store = reported(tmp_path / "run.zarr")
    assert unmarked_blocks(store) == {}
    store.put_json(
        "_run/steps/make.fill.json", {**to_json(checkpoint.step_record(store, "make.fill")), "n_blocks": 2**63}
    )
    assert unmarked_blocks(store) == {"make.fill": 2**63 - 3}


class TestGroup:
    def test_group_is_created_with_its_attributes_in_one_write(self, tmp_path, monkeypatch):
        store, written = Store(str(tmp_path / "run.zarr")), []
        put = store.objects.put
        monkeypatch.setattr(store.objects, "put", lambda name, data: (written.append((name, data)), put(name, data)))
        store.create_group({"config": {"a": 1}})
        [(name, data)] = written
        assert (name, json.loads(data)["attributes"]["config"]) == ("zarr.json", {"a": 1})
        assert zarr.open_group(store.url, mode="r").attrs["config"] == {"a": 1}

    def test_group_with_changed_attributes_is_damaged(self, tmp_path):
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({"config": {"a": 1}})
        path = tmp_path / "run.zarr" / "zarr.json"
        path.write_text(path.read_text().replace('"a": 1', '"b": 1'))
        with pytest.raises(StoreError, match="is damaged"):
            store.is_run()
        assert store.may_erase()

    def test_run_without_its_attributes_is_damaged_and_fresh_may_erase_it(self, tmp_path):
        store = finished(tmp_path / "run.zarr")
        Path(store.url, "zarr.json").unlink()
        with pytest.raises(StoreError, match="is damaged"):
            Store(store.url).is_run()
        assert Store(store.url).may_erase()

    def test_group_with_additional_attributes_is_valid(self, tmp_path):
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({"config": {"a": 1}})
        zarr.open_group(store.url, mode="a").attrs["note"] = "mine"
        assert Store(store.url).is_run()


def test_unreadable_list_of_current_steps_hides_all_results(tmp_path):
    store = finished(tmp_path / "run.zarr")
    assert current_config.current_steps(store)
    for content in WRONG:
        store.objects.put("_run/current.json", content)
        assert current_config.current_steps(store) == {}
        assert not current_config.has_metrics(store)


@pytest.fixture(scope="module")
def run_config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    config = folder / "c.yaml"
    config.write_text(
        "input: {kind: synthetic, name: s_curve, n_points: 90}\nquality: {sample: 20}\ngraph: {min_component: 5}\n"
        "execution: {block_points: 45, cluster: {kind: serial}}\noutput: {store: run.zarr, report: false}\n"
    )
    lle("run", config, "--store", folder / "run.zarr")
    return config


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "zarr.json" else pytest.mark.slow) for name in RECORDS]
)
def test_malformed_records_are_errors_and_fresh_repairs_them(run_config, tmp_path, name):
    for content in (b"{}", WRONG[-2]):
        shutil.copytree(run_config.parent / "run.zarr", tmp_path / "run.zarr")
        path = tmp_path / "run.zarr" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        for command in (["status"], ["verify"], ["export", tmp_path / "y.csv"]):
            subcommand, *arguments = command
            result = CliRunner().invoke(app, [subcommand, str(tmp_path / "run.zarr"), *map(str, arguments)])
            assert "error of the program" not in result.output
            assert result.exit_code in (0, 1, 2)
        lle("run", run_config, "--store", tmp_path / "run.zarr", "--fresh")
        shutil.rmtree(tmp_path / "run.zarr")


@pytest.fixture
def run_copy(run_config, tmp_path):
    """A copy of the finished store, the command that runs it again, and its embedding."""
    store = tmp_path / "copy.zarr"
    shutil.copytree(run_config.parent / "run.zarr", store)
    lle("export", store, tmp_path / "before.npy")
    return store, ("run", run_config, "--store", store), np.load(tmp_path / "before.npy")


@pytest.mark.parametrize("content", [b"\0" * 700, None, b"one bit"])
def test_damaged_zarr_json_of_a_run_is_written_again_and_finished_blocks_are_kept(run_copy, tmp_path, content):
    store, again, embedding = run_copy
    undamaged = (store / "zarr.json").read_bytes()
    (store / "zarr.json").unlink()
    if content is not None:
        (store / "zarr.json").write_bytes(undamaged.replace(b'"lle"', b'"lme"') if content == b"one bit" else content)
    for command in (["status"], ["verify"], ["report"], ["export"]):
        result = CliRunner().invoke(app, [*command, str(store), *[str(tmp_path / "y.npy")] * (command == ["export"])])
        assert result.exit_code == 1
        assert "`lle run CONFIG` writes it again and keeps all finished blocks" in " ".join(result.output.split())
        assert "--fresh" not in result.output
    assert {stage for stage, count in lle(*again)["blocks_computed"].items() if count} <= {"write_report"}
    lle("export", store, tmp_path / "after.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "after.npy"), embedding)


def test_zarr_json_damaged_in_transfer_is_read_again(run_copy, monkeypatch):
    store, undamaged, damaged = Store(str(run_copy[0])), LocalObjects.get, []

    def get(objects, name):
        data = undamaged(objects, name)
        if name == "zarr.json" and not damaged:
            damaged.append(name)
            return data.replace(b'"lle"', b'"lme"')
        return data

    monkeypatch.setattr(LocalObjects, "get", get)
    assert store.is_run()
    damaged.clear()
    assert store.attributes()["config"]["method"] == "lle"
    assert damaged


def test_changed_metrics_are_refused_and_written_again_by_run(run_copy):
    store, again, _ = run_copy
    path = store / "report" / "metrics.json"
    path.write_text(path.read_text().replace('"n_points": 90', '"n_points": 91'))
    with pytest.raises(StoreError, match=r"metrics\.json: is damaged"):
        open_run(str(store))
    assert "metrics.json is not as it was written" in refused(1, "verify", store)
    assert lle(*again)["metrics"]["n_points"] == 90
    assert open_run(str(store)).metrics["n_points"] == 90


@pytest.mark.slow
def test_metrics_without_their_checksum_are_damage(run_copy):
    store, again, _ = Store(str(run_copy[0])), *run_copy[1:]
    store.put_metrics({**store.metrics(), "solvers": 3})
    store.objects.delete(METRICS_CRC)
    assert "metrics.json is not as it was written" in refused(1, "verify", store.url)
    assert lle(*again)["metrics"]["solvers"][0]["converged"]
    assert lle("verify", store.url)["damaged"] == 0


@pytest.mark.slow
def test_marker_of_another_shape_without_its_checksum_is_not_done(run_copy):
    store, again, _ = run_copy
    path = store / marker_name("ingest.merge_duplicates", 0)
    marker = json.loads(path.read_text())
    del marker["crc32"]
    path.write_text(json.dumps({**marker, "report": {"n_valid": None, "n_points": 90}}))
    assert "merge_duplicates was damaged" in refused(1, "verify", store)
    lle("report", store)
    assert lle(*again)["metrics"]["duplicates_merged"] == 0
    path = store / record_name("ingest.merge_duplicates")
    record = json.loads(path.read_text())
    del record["crc32"]
    path.write_text(json.dumps({**record, "arrays": [""]}))
    assert "merge_duplicates was damaged" in refused(1, "verify", store)
    assert lle(*again)["metrics"]["duplicates_merged"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"shape": [60, 2]}, {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 2]}}}]
)
def test_changed_metadata_of_an_array_are_seen_by_every_reader_and_repaired_by_run(run_copy, tmp_path, change):
    store, again, embedding = run_copy
    path, out = store / "embedding" / "zarr.json", tmp_path / "y.npy"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    np.save(tmp_path / "new.npy", np.zeros((2, 3)))
    for command in (
        ["export", store, out],
        ["report", store],
        ["explore", "--no-browser", store],
        ["transform", store, tmp_path / "new.npy", out],
        ["verify", store],
    ):
        result = CliRunner().invoke(app, list(map(str, command)))
        assert result.exit_code == 1, command
        assert "error of the program" not in result.output
        if command[0] != "verify":
            assert lle("status", store)["state"] == "stopped"
    with pytest.raises(StoreError):
        open_run(str(store))["embedding"]
    assert lle(*again)["blocks_computed"]["solve_embedding"]
    lle("export", store, tmp_path / "after.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "after.npy"), embedding)


@pytest.mark.parametrize("content", [b"[]", pytest.param(WRONG[-2], marks=pytest.mark.slow)])
def test_malformed_pointer_is_an_error_and_a_run_repairs_it(run_config, tmp_path, content):
    versions = ("--store", tmp_path / "root.zarr", "--set", "output.keep=2")
    first = lle("run", run_config, *versions)["published"]
    (tmp_path / "root.zarr" / "published.json").write_bytes(content)
    result = CliRunner().invoke(app, ["status", str(tmp_path / "root.zarr")])
    assert result.exit_code == 1
    assert "published.json" in result.output
    assert lle("run", run_config, *versions)["published"] == first


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a command as another user")
@pytest.mark.parametrize("folder", ["_run", "_done"])
def test_folder_without_read_permission_is_named(tmp_path, folder):
    """Runs as another user, because root can read every folder."""
    store = finished(tmp_path / "run.zarr")
    (tmp_path / "run.zarr" / folder).chmod(0)
    code = (
        "import os, sys; from lle.storage.store import Store; from lle.engine import checkpoint\n"
        "checkpoint.from_json(checkpoint.StepRecord, {})  # loads pydantic: the other user may not read its files\n"
        "os.setuid(12345)\n"
        "try: checkpoint.read_reports(Store(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error, error.exit_code)"
    )
    for parent in (tmp_path, *tmp_path.parents):
        if "pytest-of-" not in str(parent):
            break
        parent.chmod(0o755)
    process = subprocess.run([sys.executable, "-c", code, store.url], capture_output=True, text=True, check=False)
    assert process.stdout.startswith(f"StoreError {store.url}/{folder}"), process
    assert "path cannot be used" in process.stdout
    assert process.stdout.endswith(" 2\n")

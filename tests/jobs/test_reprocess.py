"""Data that a new version reuses, and data that it must not: incomplete, damaged, or of other files."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.config.load import load_config
from lle.engine import checkpoint
from lle.engine.step import Location
from lle.jobs import reprocess
from lle.linalg import component_solve, solver_checkpoint
from lle.linalg.solver_progress import saved_heads
from lle.storage.run_group import METRICS, METRICS_CRC
from lle.storage.store import Store
from lle.storage.versions import Versions
from tests.support.commands import lle, refused
from tests.support.nightly import N, put_input
from tests.support.plans import config_of
from tests.support.steps import Facts, make_step
from tests.support.stored import damage

MULTIGRID = ("--set", "method=ltsa", "--set", "eigensolver.method=multigrid", "--set")
OTHER_QUALITY = ("--set", "quality.sample=60")


@pytest.mark.slow
def test_iteration_continues_in_a_new_version(real_job, tmp_path, monkeypatch):
    refused(3, "run", real_job(), *MULTIGRID, "eigensolver.max_steps=1")
    root = Versions(str(tmp_path / "run.zarr"))
    [version] = root.unpublished()
    [head] = saved_heads(root.open(version), "_work/eigen")
    results = []

    def listening(*arguments):
        results.append(solver_checkpoint.read_state(*arguments))
        return results[-1]

    monkeypatch.setattr(component_solve, "read_state", listening)
    refused(3, "run", real_job(), *MULTIGRID, "eigensolver.max_steps=2")
    [next_one, _] = root.unpublished()
    assert next_one != version
    assert [state.n_steps for state in results] == [head.n_steps]


def test_blocks_are_copied_from_the_store_with_most_of_them(job, tmp_path):
    first = lle("run", job())
    second = lle("run", job(), *OTHER_QUALITY)
    Path(second["store"], "_done/solve_weights/solve.00001.json").unlink()
    third = lle("run", job(), *OTHER_QUALITY)
    assert not third["unchanged"]
    assert lle("plan", job(), *OTHER_QUALITY)["unchanged"]
    assert "solve_weights" not in {stage for stage, blocks in third["blocks_computed"].items() if blocks}
    np.testing.assert_array_equal(Store(third["store"]).read_all("weights"), Store(first["store"]).read_all("weights"))


def test_plan_after_the_input_got_another_date(real_job, points, tmp_path):
    np.save(tmp_path / "x.npy", points)
    job = (real_job(), "--set", f"input={{kind: npy, path: {tmp_path}/x.npy}}")
    lle("run", *job)
    os.utime(tmp_path / "x.npy", ns=(1, 10**18))
    assert lle("run", *job)["unchanged"]
    assert lle("plan", *job)["unchanged"]
    assert not lle("plan", *job, *OTHER_QUALITY)["unchanged"]


def test_columns_of_an_unchanged_input_with_another_date_name_or_column_are_exported(real_job, points, tmp_path):
    """The published version refers to the files that the last run has read."""
    frame = pd.DataFrame(points, columns=["a", "b", "c"]).assign(note=1)

    def run_of(path: Path) -> bool:
        source = {"kind": "parquet", "path": str(path), "columns": ["a", "b", "c"]}
        return lle("run", real_job(), "--set", f"input={json.dumps(source)}")["unchanged"]

    frame.to_parquet(tmp_path / "x.parquet")
    assert not run_of(tmp_path / "x.parquet")
    frame.assign(note=2).to_parquet(tmp_path / "x.parquet")
    os.utime(tmp_path / "x.parquet", ns=(1, 10**18))
    out = tmp_path / "y.parquet"
    assert "the input has changed since the run" in refused(2, "export", tmp_path / "run.zarr", out, "--with", "note")
    path = tmp_path / "x.parquet"
    for name in ("x.parquet", "other.parquet"):
        path = path.rename(tmp_path / name)
        assert run_of(path)
        lle("export", tmp_path / "run.zarr", out, "--with", "note")
        assert (pd.read_parquet(out)["note"] == 2).all()


class TestEarlierBlocks:
    """Blocks of the input that are not read again."""

    @pytest.fixture
    def store(self, job):
        return Store(lle("run", job())["store"])

    def test_finished_blocks_with_equal_stamps_are_reused(self, store):
        now = store.read_record(reprocess.INPUT, reprocess.InputState)
        n_blocks = len(now.stamps)
        assert n_blocks > 1
        assert reprocess.earlier_blocks(store, now) == list(range(n_blocks))
        other_stamp = replace(now, stamps=("other", *now.stamps[1:]))
        assert reprocess.earlier_blocks(store, other_stamp) == list(range(1, n_blocks))
        Path(store.url, "_done/ingest/read.00001.json").unlink()
        assert reprocess.earlier_blocks(store, now) == [block for block in range(n_blocks) if block != 1]

    @pytest.mark.parametrize(("key", "value"), [("reads", "other settings"), ("size", 7)])
    def test_blocks_of_other_sizes_or_settings_are_read_again(self, store, key, value):
        now = store.read_record(reprocess.INPUT, reprocess.InputState)
        assert reprocess.earlier_blocks(store, replace(now, **{key: value})) == []


def test_new_release_of_the_program_computes_again(job, monkeypatch):
    config = load_config(job())
    key = reprocess.config_key(config, {})
    monkeypatch.setattr(reprocess, "versions", lambda: {"lle-pipeline": "999.0"})
    assert reprocess.config_key(config, {}) != key


@pytest.mark.parametrize(("detects_changes", "identity"), [(False, {"version": "v2"}), (True, {})])
def test_input_without_stamps_is_read_in_every_version(detects_changes, identity):
    source = SimpleNamespace(detects_changes=detects_changes)
    history = reprocess.VersionHistory((), {"version": "v2"}, config=config_of(), source=source, content="")
    step = make_step("ingest.labels", lambda store, block, source: Facts(), 1, {"source": "x"})
    step.task.function.__annotations__["source"] = Location[str]
    assert history.prepared(step).input_state == identity


def same_lists(first: str, second: str) -> None:
    for name in ("neighbor_indices", "neighbor_distances"):
        np.testing.assert_array_equal(Store(first).read_all(name), Store(second).read_all(name))


class TestOtherFiles:
    """Other files than the input also determine the result."""

    def twice(self, make, job, *more) -> None:
        """Run twice, change a file with `make`, and run again: only the last run publishes a new version."""
        make(0)
        first = lle("run", job(), *more)
        assert lle("run", job(), *more)["unchanged"]
        make(1)
        assert not lle("plan", job(), *more)["unchanged"]
        third = lle("run", job(), *more)
        assert not third["unchanged"]
        assert third["published"] > first["published"]
        assert lle("run", job(), *more)["unchanged"]

    @pytest.mark.slow
    def test_changed_precomputed_graph_gives_a_new_version(self, real_job, tmp_path, points):
        near = np.square(points[:, None] - points[None]).sum(axis=2).argsort(axis=1)[:, 1:11]
        path = tmp_path / "lists.npy"
        graph = json.dumps({"kind": "npy", "path": str(path)})
        settings = ("--set", f"neighbors.precomputed={graph}")
        self.twice(lambda turn: np.save(path, near[:, : 10 - turn]), real_job, *settings)

    @pytest.mark.slow
    def test_changed_numbers_of_neighbours_give_a_new_version(self, real_job, tmp_path, points):
        group = put_input(tmp_path, points).store_path

        def write(turn: int) -> None:
            import zarr

            zarr.create_array(group.store, name="k", data=np.full(N, 7 + turn), overwrite=True)

        self.twice(write, real_job, "--set", "neighbors.k_per_point=k")

    def touched(self, job, name, path, write):
        """Run, touch the file, copy it, then change it: it is read each time, but only the change repeats steps."""
        first = lle("run", job(), "--set", f"neighbors.{name}={path(0)}")
        os.utime(self.folder / "0.npy", ns=(1, 10**18))
        shutil.copyfile(self.folder / "0.npy", self.folder / "1.npy")
        for turn in (0, 1):
            settings = ("--set", f"neighbors.{name}={path(turn)}")
            says = lle("plan", job(), *settings)["says"]
            assert "if its content is unchanged, later steps are kept" in says
            result = lle("run", job(), *settings)
            assert result["unchanged"]
            assert (result["published"], result["store"]) == (first["published"], first["store"])
            assert result["blocks_computed"] == {**dict.fromkeys(result["blocks_computed"], 0), "find_neighbors": 1}
            assert lle("run", job(), *settings)["blocks_computed"] == {}, "the new date is known by now"
        more = lle("run", job(), *settings, "--set", "weights.reg=0.02")
        assert (more["blocks_computed"]["find_neighbors"], more["blocks_computed"].get("mend_graph", 0)) == (1, 0)
        same_lists(first["store"], more["store"])
        write(self.folder / "1.npy")
        changed = lle("run", job(), *settings)
        assert changed["published"] > more["published"]
        assert changed["blocks_computed"]["mend_graph"]

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    @pytest.mark.slow
    def test_a_graph_that_was_touched_or_copied_is_only_read(self, real_job, points):
        near = np.square(points[:, None] - points[None]).sum(axis=2).argsort(axis=1)[:, 1:11]
        np.save(self.folder / "0.npy", near)

        def path(turn):
            return json.dumps({"kind": "npy", "path": str(self.folder / f"{turn}.npy")})

        self.touched(real_job, "precomputed", path, lambda file: np.save(file, near[:, :9]))

    @pytest.mark.slow
    def test_numbers_of_neighbours_that_were_touched_or_copied_are_only_read(self, real_job, points):
        np.save(self.folder / "x.npy", points)
        np.save(self.folder / "0.npy", np.full(N, 7))

        def of_file(**output):
            config = real_job(**output)
            content = yaml.safe_load(config.read_text())
            content["input"] = {"kind": "npy", "path": str(self.folder / "x.npy")}
            config.write_text(yaml.safe_dump(content))
            return config

        self.touched(
            of_file, "k_per_point", lambda turn: self.folder / f"{turn}.npy", lambda file: np.save(file, np.full(N, 8))
        )

    @pytest.mark.slow
    def test_an_input_touched_with_its_column_of_numbers_is_only_read(self, real_job, points, tmp_path):
        frame = pd.DataFrame(points, columns=["a", "b", "c"]).assign(k=7)
        frame.to_parquet(tmp_path / "x.parquet")
        settings = (
            "--set",
            "neighbors.k_per_point=k",
            "--set",
            "input=" + json.dumps({"kind": "parquet", "path": str(tmp_path / "x.parquet"), "columns": ["a", "b", "c"]}),
        )
        config = real_job()
        first = lle("run", config, *settings)
        os.utime(tmp_path / "x.parquet", ns=(1, 10**18))
        result = lle("run", config, *settings)
        assert result["unchanged"]
        assert result["published"] == first["published"]
        assert result["blocks_computed"]["find_neighbors"] == 1

    @pytest.mark.slow
    @pytest.mark.parametrize("keep", ["null", "2"])
    def test_changed_run_to_align_with_gives_a_new_version(self, real_job, tmp_path, keep):
        other_store = str(tmp_path / "other.zarr")

        def run_other(turn: int) -> None:
            settings = ("--set", f"output.keep={keep}", "--set", f"weights.reg=0.{turn + 1}")
            lle("run", real_job(), "--store", other_store, *settings)

        self.twice(run_other, real_job, "--set", f"embedding.align={other_store}")


class TestIncompleteVersions:
    def test_version_killed_before_its_first_step_is_not_reused(self, job, tmp_path):
        root = Versions(str(tmp_path / "run.zarr"))
        dead = {"host": "elsewhere", "pid": 1, "started": 0, "alive": 0, "token": "0"}
        root.open(root.new_id()).put_json("_run/lock.json", dead)
        assert lle("run", job())["published"]
        root.open(root.new_id()).put_json("_run/lock.json", dead)
        assert lle("run", job(), "--set", "neighbors.n_neighbors=9")["published"]

    def test_version_removed_by_hand_is_not_reused(self, job):
        first = lle("run", job())
        lle("run", job(), "--set", "weights.reg=0.01")
        shutil.rmtree(first["store"])
        more = ("--set", "neighbors.n_neighbors=9")
        assert not lle("plan", job(), *more)["unchanged"]
        assert not lle("run", job(), *more)["unchanged"]

    @pytest.mark.parametrize("is_deleted", [True, False])
    def test_published_version_with_damaged_metadata_is_reported_and_replaced(self, job, tmp_path, is_deleted):
        first = lle("run", job())
        path = Path(first["store"], "zarr.json")
        content = path.read_text()
        path.unlink()
        if not is_deleted:
            path.write_text(content.replace('"method": "lle"', '"method": "lla"'))
        message = "is published, but cannot be read" if is_deleted else "zarr.json, which holds the config, is damaged"
        assert message in refused(1, "export", tmp_path / "run.zarr", tmp_path / "y.npy")
        assert message in refused(1, "status", tmp_path / "run.zarr")
        assert not lle("run", job())["unchanged"]
        assert lle("export", tmp_path / "run.zarr", tmp_path / "y.npy")["rows"] == N


class TestDamage:
    @pytest.mark.slow
    @pytest.mark.parametrize("head", [False, True])
    def test_damage_is_reported_until_it_is_repaired(self, job, tmp_path, head):
        first = lle("run", job())
        if head:
            Path(first["store"], "embedding/zarr.json").write_text("{")
        else:
            damage(first["store"], "weights")
        assert "damaged:" in refused(1, "verify", tmp_path / "run.zarr")
        for _ in range(2):
            message = refused(1, "verify", tmp_path / "run.zarr")
            assert "run the job again" in message
            assert head or "1 block of solve_weights.solve was damaged and marked as not done" in message
        assert not lle("run", job())["unchanged"]
        assert lle("verify", tmp_path / "run.zarr")["damaged"] == 0

    @pytest.mark.slow
    def test_unfinished_or_unconverged_steps_are_not_reported_as_damage(self, real_job, tmp_path):
        refused(3, "run", real_job(), *MULTIGRID, "eigensolver.max_steps=1")
        root = Versions(str(tmp_path / "run.zarr"))
        [version] = root.unpublished()
        store = root.open(version)
        actual = lle("status", root.url)["unpublished"]
        assert (actual["state"], actual["stopped_in"]["step"]) == ("stopped", "solve")
        assert "stopped in solve_embedding.solve" in CliRunner().invoke(app, ["status", root.url]).output
        assert lle("verify", store.url)["unfinished"] == {"solve_embedding.solve": 1}
        files = {path: path.read_bytes() for path in (Path(store.url, METRICS), Path(store.url, METRICS_CRC))}
        Path(store.url, METRICS).write_bytes(b"{}")
        message = refused(1, "verify", store.url)
        assert "metrics.json is not as it was written" in message
        assert "solve_embedding.solve" not in message
        for path, content in files.items():
            path.write_bytes(content)
        checkpoint.delete_step_record(store, "write_report.write")
        store.objects.delete("_done/local_factors/solve.00001.json")
        assert lle("verify", store.url)["unfinished"]["local_factors.solve"] == 1

    @pytest.mark.parametrize("key", ["measure_quality.score", "solve_embedding.solve"])
    def test_step_begun_after_the_report_is_not_reported_as_damage(self, job, key):
        store = Store(lle("run", job())["store"])
        store.objects.delete(f"_done/{key.replace('.', '/')}.00000.json")
        assert "marked as not done by an earlier check" in refused(1, "verify", store.url)
        record = store.get_json(f"_run/steps/{key}.json")
        store.put_json(f"_run/steps/{key}.json", {**record, "begun": record["begun"] + 3600})
        result = CliRunner().invoke(app, ["verify", store.url])
        assert (result.exit_code, f"not finished: 1 block of {key}" in result.output) == (0, True)

    def test_array_with_damaged_metadata_is_not_copied_to_a_new_version(self, job, tmp_path):
        first = lle("run", job())
        Path(first["store"], "weights/zarr.json").write_text("{")
        lle("run", job(), "--set", "eigensolver.n_components=3")
        assert lle("verify", tmp_path / "run.zarr")["damaged"] == 0

    @pytest.mark.parametrize(
        "name",
        [
            "embedding",
            pytest.param("weights", marks=pytest.mark.slow),
            pytest.param("_work/eigen/00000.npz", marks=pytest.mark.slow),
        ],
    )
    def test_damaged_file_shared_by_versions_is_not_copied_to_a_new_version(self, job, tmp_path, name):
        lle("run", job())
        second = lle("run", job(), *OTHER_QUALITY)
        damage(second["store"], name)
        refused(1, "verify", tmp_path / "run.zarr")
        assert not lle("run", job(), *OTHER_QUALITY)["unchanged"]
        assert lle("verify", tmp_path / "run.zarr")["damaged"] == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("keep", [pytest.param(1, marks=pytest.mark.slow), 3])
    def test_damaged_embedding_to_align_with_is_reported(self, real_job, tmp_path, keep):
        more = ("--set", "embedding.align=previous")
        lle("run", real_job(keep=keep), *more)
        second = lle("run", real_job(keep=keep), *more, *OTHER_QUALITY)
        undamaged = Store(second["store"]).read_all("embedding")
        damage(second["store"], "embedding")
        refused(1, "verify", tmp_path / "run.zarr")
        third = lle("run", real_job(keep=keep), *more, *OTHER_QUALITY)
        assert third["published"] > second["published"]
        if keep > 1:
            np.testing.assert_allclose(Store(third["store"]).read_all("embedding"), undamaged, atol=1e-9)

    @pytest.mark.slow
    def test_damaged_longer_lists_are_replaced_by_a_search(self, real_job, tmp_path):
        first = lle("run", real_job())
        record = checkpoint.recorded_steps(Store(first["store"]))["find_neighbors.search"]
        damage(first["store"], record.arrays[0])
        second = lle("run", real_job(), "--set", "neighbors.n_neighbors=7")
        alone = lle("run", real_job(store=str(tmp_path / "alone.zarr")), "--set", "neighbors.n_neighbors=7")
        for name in record.arrays:
            np.testing.assert_array_equal(Store(second["store"]).read_all(name), Store(alone["store"]).read_all(name))

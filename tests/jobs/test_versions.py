"""Versions under a root: published completely or not at all, no step computed twice, never changed afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

import lle.storage.bundles as bundles_module
from lle.api.open_run import open_run
from lle.cli.commands import app
from lle.core.errors import ConfigError, StoreError
from lle.engine import plan_sizes
from lle.storage.lock import RunLock
from lle.storage.objects import open_objects
from lle.storage.remote_objects import RemoteObjects
from lle.storage.store import Store
from lle.storage.versions import RETIRED, Versions, published_url, reading
from tests.support.commands import UNMET, lle, refused
from tests.support.nightly import N
from tests.support.points import swiss_roll
from tests.support.stored import files_below, flip, read_blocks

LATE = {"solve_embedding", "measure_quality", "write_report"}


def contents(folder: str | Path) -> dict[str, bytes]:
    """Every file of a version but for the bookkeeping of runs."""
    return {name: data for name, data in files_below(Path(folder)).items() if not name.startswith("_run")}


def same_arrays(first: str, second: str) -> None:
    for name in ("_work/raw", "weights", "embedding", "component"):
        np.testing.assert_array_equal(Store(first).read_all(name), Store(second).read_all(name))


class TestNothingChanged:
    def test_unchanged_job_computes_and_publishes_nothing(self, job, tmp_path):
        first = lle("run", job())
        assert not first["unchanged"]
        root = Versions(str(tmp_path / "run.zarr"))
        pointer, files = root.pointer(), contents(root.url)
        second = lle("run", job())
        assert second["unchanged"]
        assert second["blocks_computed"] == {}
        assert (second["published"], second["store"]) == (first["published"], first["store"])
        assert second["metrics"] == first["metrics"]
        assert (root.pointer(), contents(root.url)) == (pointer, files)

    def test_changed_date_alone_gives_no_new_version(self, job, tmp_path):
        first = lle("run", job())
        for chunk in (tmp_path / "in.zarr").rglob("*"):
            os.utime(chunk, ns=(1, 10**18))
        touched = lle("run", job())
        assert touched["unchanged"]
        assert touched["blocks_computed"] == {"ingest": 3}, "every block is read, and nothing else is done"
        assert touched["published"] == first["published"]
        assert Versions(str(tmp_path / "run.zarr")).ids() == [first["published"]]
        assert lle("run", job())["blocks_computed"] == {}, "the new dates are known by now"

    def test_changed_cluster_or_prometheus_file_gives_no_new_version(self, job, tmp_path):
        lle("run", job())
        config = job(prometheus=str(tmp_path / "a.prom"), keep=1)
        assert lle("run", config, "--set", "execution.cluster.kind=local")["unchanged"]
        text = (tmp_path / "a.prom").read_text()
        assert f'version="{Versions(str(tmp_path / "run.zarr")).pointer().version}"}} 1.0' in text
        assert 'lle_run_unchanged{store="' in text

    @pytest.mark.parametrize("setting", ["output.image_shape=[1,3]", "output.cost_matrix=false"])
    def test_changed_contents_of_the_store_give_a_new_version(self, job, setting):
        first, second = lle("run", job()), lle("run", job(), "--set", setting)
        assert not second["unchanged"]
        assert second["published"] > first["published"]

    def test_fresh_computes_a_new_version(self, job):
        first, second = lle("run", job()), lle("run", job(), "--fresh")
        assert second["published"] > first["published"]
        assert not any(second["blocks_reused"].values())
        same_arrays(first["store"], second["store"])


class TestReuse:
    @pytest.mark.slow
    def test_changed_eigensolver_reuses_the_matrix(self, real_job):
        first = lle("run", real_job())
        published = contents(first["store"])
        second = lle("run", real_job(), "--set", "eigensolver.n_components=3")
        assert set(second["blocks_computed"]) == LATE
        assert second["blocks_reused"]["assemble_cost"] == first["blocks_computed"]["assemble_cost"]
        assert contents(first["store"]) == published, "a later version changed a published one"
        chunk = "cost_matrix/00000/data/c/0"
        assert Path(first["store"], chunk).samefile(Path(second["store"], chunk))
        assert Store(second["store"]).read_all("embedding").shape == (N, 3)
        assert Store(first["store"]).read_all("embedding").shape == (N, 2)

    def test_steps_of_an_older_version_are_reused(self, job):
        first = lle("run", job())
        lle("run", job(), "--set", "weights.reg=0.01")
        third = lle("run", job())
        assert set(third["blocks_computed"]) == {"write_report"}
        same_arrays(first["store"], third["store"])

    def test_only_the_changed_chunk_is_read(self, job, tmp_path, points):
        lle("run", job())
        points[450] += 0.01
        zarr.open_group(str(tmp_path / "in.zarr"), mode="r+")["points"][400:500] = points[400:500]
        planned = lle("plan", job())
        assert {row["stage"] + "." + row["step"]: row["reused"] for row in planned["steps"][:2]} == {
            "ingest.read": 2,
            "ingest.merge_duplicates": 0,
        }
        assert "1 blocks of the input" in planned["says"]
        second = lle("run", job())
        assert read_blocks(second["store"]) == [False, False, True]
        np.testing.assert_array_equal(Store(second["store"]).read_all("_work/raw"), points)
        same_arrays(second["store"], lle("run", job(), "--fresh")["store"])

    @pytest.mark.slow
    @pytest.mark.parametrize("n_more", [20, pytest.param(150, marks=pytest.mark.slow)])
    def test_appended_rows_leave_the_old_blocks_unread(self, real_job, tmp_path, points, n_more, monkeypatch):
        monkeypatch.setattr(plan_sizes, "CELL_POINTS", 60)  # several cells: their order depends on all points
        lle("run", real_job())
        more = np.concatenate([points, swiss_roll(n_more, np.random.default_rng(3))])
        array = zarr.open_group(str(tmp_path / "in.zarr"), mode="r+")["points"]
        array.resize(more.shape)
        array[N:] = more[N:]
        second = lle("run", real_job())
        assert read_blocks(second["store"]) == [False, False, False, True]
        same_arrays(second["store"], lle("run", real_job(), "--fresh")["store"])
        assert second["metrics"]["n_input"] == N + n_more
        assert Versions(str(tmp_path / "run.zarr")).pointer().rows == N + n_more

    def test_damaged_copy_of_a_block_is_read_from_the_input(self, job, tmp_path, points):
        first = lle("run", job())
        chunk = Path(first["store"], "_work/raw/c/1/0")
        chunk.write_bytes(b"x" * chunk.stat().st_size)
        points[0] += 0.01
        zarr.open_group(str(tmp_path / "in.zarr"), mode="r+")["points"][:100] = points[:100]
        second = lle("run", job())
        assert read_blocks(second["store"]) == [True, True, False]
        np.testing.assert_array_equal(Store(second["store"]).read_all("_work/raw"), points)

    def test_damage_found_by_verify_is_repaired_in_a_new_version(self, job):
        first = lle("run", job())
        chunk = Path(first["store"], "weights/c/1/0")
        good = chunk.read_bytes()
        chunk.write_bytes(bytes([good[0] ^ 1]) + good[1:])
        assert "block 1 of solve_weights.solve" in refused(1, "verify", Path(first["store"]).parents[1])
        second = lle("run", job())
        assert second["blocks_computed"]["solve_weights"] == 1
        assert Path(second["store"], "weights/c/1/0").read_bytes() == good
        assert chunk.read_bytes() != good, "the damaged file was written through its other name"
        assert lle("verify", second["store"])["damaged"] == 0

    def test_verify_marks_damage_in_every_version_that_shares_the_file(self, job):
        first, second = lle("run", job()), lle("run", job(), "--set", "weights.reg=0.01")
        chunk = "_work/raw/c/1/0"
        assert Path(first["store"], chunk).samefile(Path(second["store"], chunk))
        flip(Path(first["store"], chunk))
        refused(1, "verify", job())
        for version in (first, second):
            assert "marked as not done by an earlier check" in refused(1, "verify", version["store"])


class TestPublishing:
    @pytest.mark.slow
    def test_report_names_its_version_and_units(self, real_job):
        result = lle("run", real_job(report=True), "--set", "preprocess.scale=standard")
        page = Path(result["store"], "report/index.html").read_text()
        assert f"Version {result['published']} · finished {result['metrics']['finished'][:10]}" in page
        assert "standardised units" in page
        assert "input units" not in page
        assert result["metrics"]["blocks"]["write_report"] == 1

    def test_killed_runs_are_resumed_and_never_published(self, real_job, tmp_path):
        config, root = real_job(), Versions(str(tmp_path / "run.zarr"))
        first = lle("run", config)
        command = [sys.executable, "-m", "lle", "run", str(config), "--set", "neighbors.n_neighbors=9"]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, start_new_session=True, **silent)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if any(
                path.name != first["published"] and any((path / "_done/solve_weights").glob("*"))
                for path in (tmp_path / "run.zarr/versions").iterdir()
            ):
                break
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert root.pointer().version == first["published"]
        assert lle("export", root.url, tmp_path / "y.npy")["store"] == first["store"]
        result = lle("status", root.url)
        assert (result["state"], result["published"]["version"]) == ("done", first["published"])
        unpublished = result["unpublished"]["store"]
        assert result["unpublished"]["state"] == "stopped"
        at = result["unpublished"]["stopped_in"]
        message = CliRunner().invoke(app, ["status", root.url]).output
        assert f"not published, stopped {'in' if at['done'] < at['blocks'] else 'after'} {at['stage']}." in message
        assert "blocks begun" not in message
        second = lle("run", config, "--set", "neighbors.n_neighbors=9")
        assert second["store"] == unpublished
        assert second["blocks_reused"]["find_neighbors"] == 3
        assert root.ids() == [first["published"], second["published"]]

    def test_run_killed_before_the_pointer_is_published_by_the_next(self, job, tmp_path, monkeypatch):
        first = lle("run", job())

        def killed(*arguments, **facts):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Versions, "publish", killed)
            CliRunner().invoke(app, ["run", str(job()), "--set", "weights.reg=0.1"])
        assert published_url(str(tmp_path / "run.zarr")) == first["store"]
        second = lle("run", job(), "--set", "weights.reg=0.1")
        assert not second["blocks_computed"]

    def test_bounds_not_met_are_not_published(self, job, tmp_path):
        config = job(prometheus=str(tmp_path / "a.prom"))
        first = lle("run", config)
        assert "tol" in refused(3, "run", config, *UNMET)
        assert Versions(str(tmp_path / "run.zarr")).pointer().version == first["published"]
        text = (tmp_path / "a.prom").read_text()
        assert "} 3.0\n" in text
        assert f'version="{first["published"]}"}} 1.0' in text

    def test_failed_version_is_deleted_when_another_is_published(self, job, tmp_path):
        refused(3, "run", job(), *UNMET)
        root = Versions(str(tmp_path / "run.zarr"))
        assert "no version has been published" in refused(2, "export", root.url, tmp_path / "y.npy")
        assert lle("status", root.url)["published"] is None
        result = lle("run", job())
        assert set(result["blocks_computed"]) == LATE, "what the failed run had finished was taken over"
        assert root.ids() == [result["published"]]

    def test_configured_number_of_versions_is_kept(self, job, tmp_path):
        root, published = Versions(str(tmp_path / "run.zarr")), []
        for reg in (0.1, 0.2, 0.3, 0.4):
            published.append(lle("run", job(keep=2), "--set", f"weights.reg={reg}")["published"])
        assert published == sorted(published)
        assert root.ids() == published[2:]
        assert root.pointer().history == tuple(published[:1:-1])
        assert lle("run", job(keep=1), "--set", "weights.reg=0.4")["unchanged"]
        assert root.ids() == published[3:]

    def test_metrics_name_the_version(self, job, tmp_path):
        result = lle("run", job())
        assert result["metrics"]["version"] == result["published"]
        assert lle("report", tmp_path / "run.zarr")["report"] == f"{result['store']}/report/index.html"


class TestReaders:
    def test_version_in_use_by_a_reader_is_not_deleted(self, job, tmp_path):
        root = Versions(str(tmp_path / "run.zarr"))
        first = lle("run", job(keep=1))
        with reading(root.url) as store:
            second = lle("run", job(keep=1), "--set", "weights.reg=0.1")
            assert store.url == first["store"]
            assert store.read_all("embedding").shape == (N, 2)
            assert root.ids() == [first["published"], second["published"]]
            with reading(root.url) as newer:
                assert newer.url == second["store"]
        third = lle("run", job(keep=1), "--set", "weights.reg=0.2")
        assert root.ids() == [third["published"]]

    def test_reader_of_a_version_being_deleted_gets_the_next(self, job, tmp_path, monkeypatch):
        root = Versions(str(tmp_path / "run.zarr"))
        first, second = lle("run", job()), lle("run", job(), "--set", "weights.reg=0.1")
        published = [first["store"], second["store"]]
        Store(first["store"]).put_json(RETIRED, {})
        monkeypatch.setattr(Versions, "published", lambda self: Store(published.pop(0)))
        with reading(root.url) as store:
            assert store.url == second["store"]
        assert not published
        assert not Store(first["store"]).objects.names("_run/readers")

    def test_open_run_reads_the_published_version(self, job, tmp_path):
        result = lle("run", job())
        group = zarr.open_group(published_url(str(tmp_path / "run.zarr")), mode="r")
        assert group["embedding"].shape == (N, 2)
        assert published_url(result["store"]) == result["store"]

    def test_incomplete_pointer_is_reported(self, job, tmp_path):
        lle("run", job())
        for text in ('{"version": ', "", "null", "[]", "7", "{}", '{"version": "20260102T030405Z-9f3e"}'):
            (tmp_path / "run.zarr/published.json").write_text(text)
            for command in (
                ("export", tmp_path / "run.zarr", tmp_path / "y.npy"),
                ("status", tmp_path / "run.zarr"),
                ("plan", job()),
            ):
                assert "`lle publish`" in refused(1, *command), (text, command)

    def test_run_writes_a_damaged_pointer_again(self, job, tmp_path):
        """With equal settings the finished version is published again; with others the new one."""
        first = lle("run", job())["published"]
        for settings in ((), ("--set", "quality.sample=60")):
            (tmp_path / "run.zarr/published.json").write_text('{"version": ')
            last = lle("run", job(), *settings)["published"]
            assert Versions(str(tmp_path / "run.zarr")).history() == ((first,) if last == first else (last, first))
            assert (last == first) == (not settings)

    def test_a_pointer_that_cannot_be_read_now_is_not_deleted(self, job, tmp_path, monkeypatch):
        lle("run", job())
        root = Versions(str(tmp_path / "run.zarr"))
        monkeypatch.setattr(Store, "read_record", Mock(side_effect=StoreError("the network is down")))
        with pytest.raises(StoreError, match="network"):
            root.delete_damaged_pointer()
        assert (tmp_path / "run.zarr/published.json").exists()


class TestDrivers:
    def test_second_driver_is_refused(self, job, tmp_path):
        first = lle("run", job())
        root = Versions(str(tmp_path / "run.zarr"))
        with RunLock(root.store):
            assert f"process {os.getpid()}" in refused(1, "run", job(), "--set", "weights.reg=0.1")
            assert lle("status", root.url)["state"] == "running"
            for command in (["publish", root.url, first["published"]], ["clean", root.url]):
                message = refused(1, *command)
                assert "Wait until it has ended, or stop it, and repeat this command" in message
                assert "output.store" not in message
        assert root.ids() == [first["published"]]

    def test_driver_that_lost_its_lock_does_not_publish(self, job, tmp_path, monkeypatch):
        first = lle("run", job())
        monkeypatch.setattr(RunLock, "held", lambda self: False)
        assert "taken over" in refused(1, "run", job(), "--set", "weights.reg=0.1")
        assert Versions(str(tmp_path / "run.zarr")).pointer().version == first["published"]

    def test_version_ids_increase_if_the_clock_goes_back(self, job, tmp_path):
        root = Versions(str(tmp_path / "run.zarr"))
        (tmp_path / "run.zarr/versions/29991231T235959Z-abcd").mkdir(parents=True)
        assert root.new_id() > "29991231T235959Z-abcd"


class TestPlaces:
    def test_store_of_a_single_run_is_refused_as_root(self, job):
        config = job(keep=None)
        assert lle("run", config)["published"] is None
        assert "one run" in refused(2, "run", job())

    def test_root_of_versions_is_refused_as_store_of_a_run(self, job):
        lle("run", job())
        assert "output.keep" in refused(2, "run", job(keep=None))
        assert "output.keep" in refused(2, "run", job(keep=None), "--fresh")

    def test_folder_of_other_files_is_refused(self, job, tmp_path):
        (tmp_path / "run.zarr").mkdir()
        (tmp_path / "run.zarr/letter.txt").write_text("dear")
        assert "other files" in refused(2, "run", job())

    @pytest.mark.parametrize(
        "name",
        [
            "notes",
            pytest.param(".ipynb_checkpoints", marks=pytest.mark.slow),
            pytest.param("20260102T030405Z-9f3e-copy", marks=pytest.mark.slow),
        ],
    )
    def test_other_folders_among_the_versions_are_kept(self, job, tmp_path, name):
        lle("run", job(keep=1))
        theirs = tmp_path / "run.zarr/versions" / name / "letter.txt"
        theirs.parent.mkdir()
        theirs.write_text("dear")
        second = lle("run", job(keep=1), "--set", "weights.reg=0.1")
        assert theirs.read_text() == "dear"
        assert Versions(str(tmp_path / "run.zarr")).ids() == [second["published"]]

    def test_missing_root_is_reported(self, tmp_path):
        with pytest.raises(ConfigError, match="no run"), reading(str(tmp_path / "none")):
            pass


def test_plan_names_the_steps_that_are_kept(job):
    assert lle("plan", job())["from"] is None
    first = lle("run", job())
    planned = lle("plan", job())
    assert planned["unchanged"]
    assert all(row["reused"] == row["tasks"] for row in planned["steps"])
    planned = lle("plan", job(), "--set", "embedding.scale=unit_norm")
    assert planned["from"] == first["published"]
    reused = {f"{row['stage']}.{row['step']}" for row in planned["steps"] if row["reused"] == row["tasks"]}
    assert {"solve_weights.solve", "solve_embedding.solve"} <= reused
    assert "solve_embedding.write" not in reused
    computed = lle("run", job(), "--set", "embedding.scale=unit_norm")["blocks_computed"]
    expected: dict[str, int] = {}
    for row in planned["steps"]:
        expected[row["stage"]] = expected.get(row["stage"], 0) + row["tasks"] - row["reused"]
    assert computed == {stage: blocks for stage, blocks in expected.items() if blocks}


@pytest.mark.slow
def test_versions_on_an_object_store(job, tmp_path, monkeypatch):
    """The same on an object store: listing by folder, copies by the service, one put for the pointer."""
    pytest.importorskip("obstore", reason="object stores need the extra s3")
    url = f"file://{tmp_path}/bucket"

    def opened(at: str):
        if at.startswith(url):
            Path(at.removeprefix("file://")).mkdir(parents=True, exist_ok=True)  # obstore wants the folder
            return RemoteObjects(at)
        return open_objects(at)

    monkeypatch.setattr(bundles_module, "open_objects", opened)
    first = lle("run", job(store=f"{url}/run.zarr", keep=1))
    assert lle("run", job(store=f"{url}/run.zarr", keep=1))["unchanged"]
    second = lle("run", job(store=f"{url}/run.zarr", keep=1), "--set", "eigensolver.n_components=3")
    assert set(second["blocks_computed"]) == LATE
    root = Versions(f"{url}/run.zarr")
    assert root.pointer().history == (second["published"],)
    assert not root.objects.names(f"versions/{first['published']}")
    assert lle("export", root.url, tmp_path / "y.npy")["store"] == second["store"]
    assert np.load(tmp_path / "y.npy").shape == (N, 3)


def test_status_skips_an_unpublished_version_of_another_format(job, tmp_path):
    published = lle("run", job())["published"]
    root = Versions(str(tmp_path / "run.zarr"))
    node = {"zarr_format": 3, "node_type": "group", "attributes": {"lle_format": 1}}
    root.open(root.new_id()).put_json("zarr.json", node)
    status = lle("status", root.url)
    assert (status["published"]["version"], status["unpublished"]) == (published, None)


def test_versions_that_cannot_be_deleted_do_not_stop_publishing(job, tmp_path, monkeypatch):
    root = Versions(str(tmp_path / "run.zarr"))
    published = [lle("run", job(keep=2), "--set", f"weights.reg={reg}")["published"] for reg in (0.1, 0.2)]
    unpublished = []
    for _ in range(2):  # killed before they began
        unpublished.append(root.new_id())
        root.open(unpublished[-1]).put_json(
            "_run/lock.json", {"host": "elsewhere", "pid": 1, "started": 0, "token": "0"}
        )
        os.utime(tmp_path / "run.zarr/versions" / unpublished[-1] / "_run/lock.json", (0, 0))
    stuck, drop = (published[0], unpublished[0]), Versions.drop

    def refuse(self, version):
        if version in stuck:
            raise StoreError(f"{version} may not be deleted")
        return drop(self, version)

    monkeypatch.setattr(Versions, "drop", refuse)
    result = CliRunner().invoke(app, ["run", str(job(keep=1)), "--set", "weights.reg=0.3", "--json"])
    assert result.exit_code == 0, result.output
    third = json.loads(result.stdout)["published"]
    assert root.pointer().history == (third,)
    assert root.ids() == sorted([*stuck, third])
    assert all(f"not pruned: {version} may not be deleted" in " ".join(result.stderr.split()) for version in stuck)


@pytest.mark.parametrize("remote", [False, True])
class TestCopies:
    def places(self, folder: Path, remote: bool):
        if remote:
            pytest.importorskip("obstore", reason="object stores need the extra s3")
        for name in "ab":
            (folder / name / "c").mkdir(parents=True)
        urls = [f"{folder}/{name}/c" for name in "ab"]
        return [RemoteObjects(f"file://{url}") if remote else open_objects(url) for url in urls]

    def test_copied_files_are_independent(self, tmp_path, remote):
        target, source = self.places(tmp_path, remote)
        for name in ("x", "deep/er/y"):
            source.put(name, name.encode())
        target.put("x", b"old")
        target.copy(["x", "deep/er/y"], source)
        assert [target.get(name) for name in target.names("")] == [b"deep/er/y", b"x"]
        target.put("x", b"new")
        assert source.get("x") == b"x"
        source.delete("deep")
        assert target.get("deep/er/y") == b"deep/er/y"


def test_input_without_change_detection_is_read_every_time(job, monkeypatch):
    monkeypatch.setattr("lle.inputs.zarr_input.Location.can_list", property(lambda self: False))
    first, second = lle("run", job()), lle("run", job())
    assert second["unchanged"]
    assert second["published"] == first["published"]
    assert second["blocks_computed"] == {"ingest": 3}


class TestDamagedPublishedVersion:
    """Readers take the newest whole version, with a warning and exit code 3."""

    @pytest.fixture
    def root(self, job, tmp_path):
        """A root of two versions, and the embedding of the older one."""
        lle("run", job())
        lle("export", tmp_path / "run.zarr", tmp_path / "older.npy")
        lle("run", job(), "--set", "neighbors.n_neighbors=9")
        lle("export", tmp_path / "run.zarr", tmp_path / "newer.npy")
        return tmp_path / "run.zarr"

    @pytest.mark.parametrize("damage", ["chunk", "metadata", "root", "marked by verify"])
    def test_the_newest_whole_version_is_read(self, root, tmp_path, damage):
        published = Path(Versions(str(root)).published().url)
        path = published / {"metadata": "embedding/zarr.json", "root": "zarr.json"}.get(damage, "embedding/c/0/0")
        data = path.read_bytes()
        path.unlink()  # versions share unchanged files
        path.write_bytes(data)
        flip(path)
        if damage == "marked by verify":
            refused(1, "verify", root)
        text = refused(3, "export", root, tmp_path / "y.npy")
        assert "the published version is damaged" in text
        assert damage != "chunk" or "lle verify" not in text  # the next run of the job computes the damaged block
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.load(tmp_path / "older.npy"))
        if damage != "chunk":  # open_run reads chunks later
            with pytest.warns(UserWarning, match="the published version is damaged"):
                embedding = open_run(str(root))["embedding"].compute()
            np.testing.assert_array_equal(embedding, np.load(tmp_path / "older.npy"))

    def test_a_mistake_of_the_user_is_no_reason_for_an_older_version(self, root, tmp_path):
        assert "the published version is damaged" not in refused(2, "export", root, tmp_path / "y.xyz")


class TestStepBack:
    """`lle versions`, `lle publish` and `lle clean`."""

    @pytest.mark.slow
    def test_publish_steps_back_and_forward(self, job, tmp_path):
        first = lle("run", job(report=True))["published"]
        second = lle("run", job(report=True), "--set", "eigensolver.n_components=3")["published"]
        root = tmp_path / "run.zarr"
        listed = lle("versions", root)
        assert [(row["version"], row["published"]) for row in listed["versions"]] == [(second, True), (first, False)]
        assert all(row["rows"] == N and row["bytes"] > 0 and row["complete"] for row in listed["versions"])
        for version, n_components in ((first, 2), (second, 3)):
            lle("publish", root, version)
            assert open_run(str(root))["embedding"].shape == (N, n_components)
            report = (root / "report" / "metrics.json").read_bytes()
            assert report == (root / "versions" / version / "report" / "metrics.json").read_bytes()
        assert set(Versions(str(root)).ids()) == {first, second}
        assert lle("run", job(report=True), "--set", "eigensolver.n_components=3")["unchanged"]

    def test_versions_that_are_missing_or_unfinished_are_refused(self, job, tmp_path):
        lle("run", job())
        assert "has no version 'yesterday'" in refused(2, "publish", tmp_path / "run.zarr", "yesterday")
        refused(3, "run", job(), "--set", "quality.sample=60", *UNMET)
        [stopped] = Versions(str(tmp_path / "run.zarr")).unpublished()
        assert "is not finished" in refused(2, "publish", tmp_path / "run.zarr", stopped)
        assert lle("clean", tmp_path / "run.zarr")["deleted"] == [stopped]
        lle("run", job(), "--set", "output.keep=null", "--store", tmp_path / "one.zarr")
        for command in (("versions",), ("publish", stopped)):
            assert "has no versions" in refused(2, command[0], tmp_path / "one.zarr", *command[1:])
            assert "no run has been started" in refused(2, command[0], tmp_path / "none.zarr", *command[1:])

    def test_run_after_a_lost_pointer_keeps_the_earlier_versions(self, job, tmp_path):
        versions = [lle("run", job(), "--set", f"quality.sample={n}")["published"] for n in (60, 70)]
        (tmp_path / "run.zarr" / "published.json").unlink()
        versions.append(lle("run", job(), "--set", "quality.sample=80")["published"])
        assert Versions(str(tmp_path / "run.zarr")).pointer().history == tuple(versions[::-1])

    def test_clean_keeps_the_published_version(self, job, tmp_path):
        first = lle("run", job())["published"]
        second = lle("run", job(), "--set", "quality.sample=60")["published"]
        lle("publish", tmp_path / "run.zarr", first)
        assert lle("clean", tmp_path / "run.zarr", "--keep", 1)["deleted"] == [second]
        assert Versions(str(tmp_path / "run.zarr")).published().url.endswith(first)

    def test_clean_refuses_what_is_no_store(self, tmp_path):
        other = tmp_path / "versions" / "notes.txt.partial"
        other.parent.mkdir()
        other.write_text("dear")
        (tmp_path / "versions" / "notes").mkdir()
        for place in (tmp_path, tmp_path / "versions", tmp_path / "none"):
            assert "no run has been started there" in refused(2, "clean", place)
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]
        assert not (tmp_path / "none").exists()

    def test_clean_deletes_unfinished_versions_before_the_first_publication(self, job, tmp_path):
        refused(3, "run", job(), *UNMET)
        [stopped] = Versions(str(tmp_path / "run.zarr")).ids()
        assert lle("clean", tmp_path / "run.zarr")["deleted"] == [stopped]
        assert Versions(str(tmp_path / "run.zarr")).ids() == []

    def test_a_damaged_pointer_is_written_again_by_publish(self, job, tmp_path):
        first, second = (lle("run", job(), "--set", f"quality.sample={n}")["published"] for n in (60, 70))
        root = tmp_path / "run.zarr"
        (root / "published.json").write_text('{"version": ')
        listed = lle("versions", root)
        assert (listed["published"], [row["version"] for row in listed["versions"]]) == (None, [second, first])
        lle("publish", root, first)
        assert Versions(str(root)).history() == (first, second)
        assert published_url(str(root)).endswith(first)

    def test_finished_versions_outlive_a_lost_pointer(self, job, tmp_path):
        samples = (50, 60, 70)
        ids = [lle("run", job(), "--set", f"quality.sample={sample}")["published"] for sample in samples]
        root = Versions(str(tmp_path / "run.zarr"))
        (tmp_path / "run.zarr/published.json").unlink()
        assert lle("clean", root.url)["deleted"] == []
        lle("publish", root.url, ids[1])
        assert root.pointer().history == (ids[1], ids[2], ids[0])
        assert lle("clean", root.url)["deleted"] == []
        assert root.ids() == ids

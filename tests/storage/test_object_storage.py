"""Runs with input, store and report on an object store, and the lock on different services."""

import contextlib
import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
import yaml

from lle.config.load import load_config
from lle.core.errors import ConfigError, CorruptChunk, StoreError
from lle.engine.progress import RunProgress
from lle.jobs import run as runs
from lle.jobs import status
from lle.jobs.sweep import run_sweep
from lle.jobs.sweep_plan import load_sweep
from lle.jobs.verify import find_damage
from lle.storage import remote_objects, retries
from lle.storage.lock import LOCK, RunLock
from lle.storage.objects import open_objects
from lle.storage.store import Store
from tests.support import fault_proxy
from tests.support.commands import start, wait_for_block
from tests.support.fault_proxy import FAULTS, at_random, disturbed, first
from tests.support.object_servers import KEY, SECRET, azurite_server, swift_server
from tests.support.plans import planned
from tests.support.points import swiss_roll
from tests.support.stored import check_that_one_writer_creates, result_bytes, zarr_group
from tests.support.traffic import counted

pytest.importorskip("obstore", reason="object stores need the extra s3")
pytestmark = pytest.mark.slow

N_POINTS, BLOCK = 300, 100
PATIENCE = 900.0


@pytest.fixture(scope="module")
def swift(tmp_path_factory):
    with swift_server(tmp_path_factory.mktemp("swift")) as server:
        yield server


@pytest.fixture(scope="module")
def azurite(tmp_path_factory):
    with azurite_server(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def bucket(moto_bucket, monkeypatch):
    monkeypatch.setattr(remote_objects, "SETTLE_SECONDS", 0.1)
    return moto_bucket


def config_at(path: Path, source: dict, store: str, cluster: dict | None = None, report: bool = False) -> Path:
    data = {
        "input": source,
        "neighbors": {"n_neighbors": 8},
        "execution": {"block_points": BLOCK, "cluster": cluster or {"kind": "serial"}},
        "output": {"store": store, "report": report},
        "quality": {"sample": 50, "geodesic_sources": 0},
        "weights": {"reg": 1e-3},
    }
    path.write_text(yaml.safe_dump(data))
    return path


FEW_RETRIES = """
import runpy
from lle.storage import retries
retries.RETRY_SECONDS = 1
runpy.run_module("lle", run_name="__main__")
"""
SHORT_PAUSES = """
import runpy
from lle.storage import remote_objects, retries
remote_objects.SETTLE_SECONDS, retries.FIRST_PAUSE = 0.1, 0.02
runpy.run_module("lle", run_name="__main__")
"""


def finish(process: subprocess.Popen) -> dict:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def put_points(url: str, points: np.ndarray, labels: np.ndarray) -> None:
    group = zarr_group(url)
    group.create_array("points", data=points, chunks=(200, points.shape[1]))
    group.create_array("labels", data=labels, chunks=(200,))


@pytest.mark.filterwarnings("ignore:.*:zarr.errors.ZarrUserWarning")
class TestWholeJob:
    def test_input_store_and_report_by_url(self, bucket, tmp_path, capfd):
        points = swiss_roll(N_POINTS, np.random.default_rng(59))
        source, store = bucket.url("in/points.zarr"), bucket.url("runs/roll.zarr")
        for place in (source, str(tmp_path / "points.zarr")):
            put_points(place, points, points[:, 1])
        keys = {"kind": "zarr", "array": "points", "labels": "labels"}
        config = load_config(config_at(tmp_path / "s3.yaml", {**keys, "url": source}, store, report=True))
        remote = runs.run(config, False, RunProgress())
        local_config = config_at(
            tmp_path / "here.yaml", {**keys, "url": str(tmp_path / "points.zarr")}, str(tmp_path / "run")
        )
        runs.run(load_config(local_config), False, RunProgress())
        assert remote.store == store
        assert result_bytes(store) == result_bytes(str(tmp_path / "run"))
        objects = open_objects(store)
        assert objects.get("report/index.html").startswith(b"<!doctype html>")
        assert objects.get("report/embedding.png").startswith(b"\x89PNG")
        assert status.status(Store(store))["state"] == "done"
        assert find_damage(Store(store)) == []
        repeated = runs.run(config, False, RunProgress())
        assert sum(repeated.computed.values()) <= 1  # the report, which is always made again
        output = "".join(capfd.readouterr()) + json.dumps(repeated.metrics)
        assert SECRET not in output
        assert not [name for name in objects.names("") if SECRET.encode() in objects.get(name)]


@pytest.mark.filterwarnings("ignore:.*:zarr.errors.ZarrUserWarning")
class TestSweep:
    def test_steps_are_shared_between_stores_of_a_bucket(self, bucket, tmp_path):
        source = {"kind": "synthetic", "name": "s_curve", "n_points": BLOCK, "seed": 5}
        config = config_at(tmp_path / "sweep.yaml", source, bucket.url("runs/sweep"))
        data = yaml.safe_load(config.read_text())
        data["sweep"] = {"list": [{"neighbors.n_neighbors": 9}, {}, {"weights.reg": 0.1}]}
        config.write_text(yaml.safe_dump(data))
        url, experiments = load_sweep([config], (), None)
        first = run_sweep(url, experiments, False, RunProgress())
        local_url, local_experiments = load_sweep([config], (), str(tmp_path / "here"))
        assert run_sweep(local_url, local_experiments, False, RunProgress()).counts == first.counts
        assert first.counts["reused"] == 21
        for experiment in experiments:
            assert result_bytes(f"{url}/{experiment.name}.zarr") == result_bytes(f"{local_url}/{experiment.name}.zarr")
        objects = open_objects(url)
        assert objects.get("contact_sheet.png").startswith(b"\x89PNG")
        assert objects.get("sweep.html").startswith(b"<!doctype html>")
        table = pd.read_parquet(io.BytesIO(objects.get("sweep.parquet")))
        assert list(table["experiment"]) == [experiment.name for experiment in experiments]
        assert run_sweep(url, experiments, False, RunProgress()).counts["computed"] == 0
        with pytest.raises(ConfigError, match="found the store of a run"):
            run_sweep(f"{url}/{experiments[0].name}.zarr", experiments, False, RunProgress())


def check_writers(url: str) -> None:
    for number in range(4):
        check_that_one_writer_creates(open_objects(url), f"lock{number}")


@pytest.mark.parametrize("service", ["moto", "swift", "azurite"])
def test_objects_are_deleted_with_one_request_of_the_client(service, request, monkeypatch):
    server = request.getfixturevalue(service)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    objects, deletions = open_objects(server.url("deletions")), []
    names = [f"d/{number}" for number in range(12)]
    for name in [*names, "kept"]:
        objects.put(name, b"x")
    delete = objects._obs.delete
    monkeypatch.setattr(objects._obs, "delete", lambda *arguments: deletions.append(1) or delete(*arguments))
    objects.delete_objects(names)
    assert len(deletions) == 1
    objects.put("d/2", b"again")
    objects.delete_objects(["d/1", "d/2", "nowhere"])
    assert objects.names("") == ["kept"]


class TestCreate:
    """Exactly one of several writers creates an object, also if the service ignores the condition."""

    @pytest.mark.parametrize("service", ["moto", "swift", "azurite"])
    def test_one_of_many_simultaneous_writers_creates_the_object(self, service, request, monkeypatch):
        server = request.getfixturevalue(service)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        check_writers(server.url("race"))

    def test_one_writer_wins_without_conditional_writes(self, bucket, monkeypatch):
        monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
        objects = open_objects(bucket.url("race-without"))
        with pytest.raises(NotImplementedError):
            objects._obs.put(objects._store, "x", b"", mode="create")
        monkeypatch.setattr(remote_objects, "SETTLE_SECONDS", 0.5)
        check_writers(objects.url)

    def test_one_writer_wins_if_the_condition_is_ignored(self, bucket, monkeypatch):
        objects = open_objects(bucket.url("race-ignored"))
        put = objects._obs.put
        monkeypatch.setattr(objects._obs, "put", lambda store, name, data, mode=None: put(store, name, data))
        monkeypatch.setattr(remote_objects, "SETTLE_SECONDS", 0.5)
        check_writers(objects.url)

    def test_lost_answer_of_the_own_create_counts_as_success(self, bucket, monkeypatch):
        """The client repeats the request, and its own object already exists."""
        objects = open_objects(bucket.url("lost"))
        put = objects._obs.put

        def twice(store, name, data, mode=None):
            put(store, name, data, mode=mode)
            put(store, name, data, mode=mode)

        monkeypatch.setattr(objects._obs, "put", twice)
        assert objects.create("lock", b"mine")
        assert not objects.create("lock", b"other")

    def test_only_one_driver_gets_the_lock(self, bucket):
        store = Store(bucket.url("locked.zarr"))
        with RunLock(store):
            with pytest.raises(StoreError, match="another run holds this store"), RunLock(store):
                pass
            assert store.get_json(LOCK)["pid"] == os.getpid()
        assert not store.objects.exists(LOCK)


class TestRequests:
    """A chunk is read by one request, which also shows whether it exists."""

    @pytest.fixture
    def filled(self, bucket, monkeypatch):
        with counted(bucket) as (server, traffic):
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            store = Store(bucket.url("requests.zarr"))
            for name, parts in (("chunks", 0), ("shards", 4)):
                store.create(planned(name, (24,), "float64", 8, parts))
                store.write(name, 0, np.arange(24.0))
                store.array(name)
            traffic.forget()
            yield store, traffic

    @pytest.mark.parametrize("name", ["chunks", "shards"])
    def test_each_chunk_is_read_with_one_request(self, filled, name):
        store, traffic = filled
        np.testing.assert_array_equal(store.read_all(name), np.arange(24.0))
        assert traffic.requests == {"GET": 3}

    def test_parts_are_read_with_two_requests_each(self, filled):
        store, traffic = filled
        names = [f"_work/sent/{writer:05d}" for writer in range(3)]
        for writer, name in enumerate(names):
            store.write_parts(name, 4, ((part, {"x": np.full(50, writer + part)}) for part in range(4)))
        assert traffic.requests == {"PUT": 3}
        traffic.forget()
        assert [part["x"].sum() for part in store.read_parts(names, 3)] == [150, 200, 250]
        assert traffic.requests == {"GET": 6}
        stored = store.objects.get(f"{names[1]}.parts")
        for length in (len(stored) - 1, len(stored) - 600, 40, 0):
            store.objects.put(f"{names[1]}.parts", stored[:length])
            with pytest.raises(CorruptChunk, match="its CRC-32 differs"):
                list(store.read_parts(names, 3))

    @pytest.mark.parametrize("name", ["chunks", "shards"])
    @pytest.mark.parametrize("rows", [(8, 16), (9, 10), (0, 24)])
    def test_missing_or_empty_chunk_is_damage(self, filled, name, rows):
        store, _ = filled
        for damage in (store.objects.delete, lambda key: store.objects.put(key, b"")):
            damage(f"{name}/c/1")
            with pytest.raises(CorruptChunk, match="missing or empty") as caught:
                store.read(name, *rows)
            assert (caught.value.array, caught.value.chunk) == (name, "1")
        store.write(name, 8, np.arange(8.0, 16.0))
        np.testing.assert_array_equal(store.read(name, *rows), np.arange(*rows))


class TestFaults:
    """A transfer error does not end a run and does not count as damage."""

    @contextlib.contextmanager
    def behind(self, bucket, monkeypatch, choose, name: str):
        """A store with an array and a bundle, behind a proxy that makes faults."""
        store = Store(bucket.url(name))
        store.create(planned("chunks", (24,), "float64", 8, 0))
        store.create(planned("shards", (24,), "float64", 8, 4))
        for array in ("chunks", "shards"):
            store.write(array, 0, np.arange(24.0))
        store.write_bundle("bundle", values=np.arange(5))
        store.put_json("_run/record.json", {"a": [1, 2, 3]})
        with disturbed(bucket, choose) as (server, counts):
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            yield Store(bucket.url(name)), counts

    def check(self, store) -> None:
        for array in ("chunks", "shards"):
            np.testing.assert_array_equal(store.read_all(array), np.arange(24.0))
        np.testing.assert_array_equal(store.read_bundle("bundle")["values"], np.arange(5))
        assert store.get_json("_run/record.json") == {"a": [1, 2, 3]}
        assert store.objects.names("chunks/c") == ["chunks/c/0", "chunks/c/1", "chunks/c/2"]
        assert store.objects.folders("") == ["_run", "chunks", "shards"]

    @pytest.mark.parametrize(
        ("fault", "part"),
        [
            *(
                ("cut", part)
                for part in ("chunks/c/1", "shards/c/1", "chunks/zarr.json", "bundle", "record", "list-type")
            ),
            ("500", "chunks/c/1"),
            ("503", "record"),
            ("reset", "shards/c/1"),
            ("reset", "list-type"),
        ],
    )
    def test_a_read_is_repeated(self, bucket, monkeypatch, fault, part):
        monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)
        with self.behind(bucket, monkeypatch, first(fault, "GET", part, 4), "reads.zarr") as (store, counts):
            self.check(store)
        assert counts[fault] == 4

    @pytest.mark.parametrize("fault", ["500", "reset"])
    def test_a_write_is_repeated(self, bucket, monkeypatch, fault):
        monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)
        with self.behind(bucket, monkeypatch, first(fault, "PUT", "", 7), "writes.zarr") as (store, counts):
            store.put_json("new.json", {})
            store.write("chunks", 8, np.arange(8.0))
            assert store.get_json("new.json") == {}
            np.testing.assert_array_equal(store.read("chunks", 8, 16), np.arange(8.0))
        assert counts[fault] == 7

    @pytest.mark.parametrize("part", ["chunks/c/1", "shards/c/1", "bundle"])
    def test_bit_flipped_in_transfer_is_logged_and_read_again(self, bucket, monkeypatch, capfd, part):
        with self.behind(bucket, monkeypatch, first("flip", "GET", part), "flips.zarr") as (store, counts):
            self.check(store)
        assert counts["flip"] == 1
        warning = capfd.readouterr().err
        assert warning.count("the bytes were damaged in transfer, not in the store") == 1
        assert f"{store.url}/{part.partition('/')[0]}" in warning

    def test_repeated_checksum_mismatch_is_damage(self, bucket, monkeypatch):
        damage = self.behind(bucket, monkeypatch, first("flip", "GET", "chunks/c/1", 99), "damage.zarr")
        with damage as (store, _), pytest.raises(CorruptChunk):
            store.read("chunks", 8, 16)

    @pytest.mark.slow
    @pytest.mark.timeout(1800)
    @pytest.mark.filterwarnings("ignore:.*:zarr.errors.ZarrUserWarning")
    def test_run_under_faults_succeeds_at_the_first_attempt_with_the_same_bytes(self, bucket, monkeypatch, tmp_path):
        share = 0.10
        monkeypatch.setattr(fault_proxy, "LATE_SECONDS", 0.1)
        source = {"kind": "synthetic", "name": "s_curve", "n_points": N_POINTS, "seed": 5}
        runs.run(load_config(config_at(tmp_path / "here.yaml", source, str(tmp_path / "run"))), False, RunProgress())
        store = bucket.url("runs/faults.zarr")
        with disturbed(bucket, at_random(share, 11)) as (server, counts):
            config = config_at(tmp_path / "faults.yaml", source, store)
            result = finish(start(config, program=("-c", SHORT_PAUSES), env=os.environ | server.environment))
        assert result["metrics"]["n_points"] == N_POINTS
        assert min(counts[fault] for fault in FAULTS) > 0
        print(f"{share:.0%} faults: {dict(counts)}")
        assert result_bytes(store) == result_bytes(str(tmp_path / "run"))


class TestRefusals:
    """Errors of the service name the place, the remedy, and have the right exit code."""

    def test_missing_bucket_is_reported(self, bucket):
        started = time.monotonic()
        with pytest.raises(StoreError, match="no such bucket") as caught:
            Store("s3://nobody/run.zarr").is_run()
        assert caught.value.exit_code == 2
        assert time.monotonic() - started < 5  # the refused request was not repeated
        with pytest.raises(StoreError, match="no such bucket"):
            Store("s3://nobody/run.zarr").put_json("a.json", {})

    def test_unreachable_service_is_reported(self, bucket, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setattr(retries, "RETRY_SECONDS", 0.0)
        store = Store(bucket.url("run.zarr"))
        for act in (store.is_run, lambda: store.create_group({}), lambda: store.array("points"), store.attributes):
            with pytest.raises(StoreError, match="did not answer") as caught:
                act()
            assert caught.value.exit_code == 1
            assert SECRET not in str(caught.value)

    @pytest.mark.slow
    def test_errors_contain_no_secrets(self, bucket, tmp_path, monkeypatch):
        """A failing run with the most detailed log."""
        nowhere = {**bucket.environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
        source = {"kind": "zarr", "url": bucket.url("missing.zarr")}
        config = config_at(tmp_path / "job.yaml", source, bucket.url("run.zarr"))
        for environment, message in ((bucket.environment, "found none"), (nowhere, "did not answer")):
            environment = {**os.environ, **environment, "LLE_DEBUG": "1"}
            failed = start(config, "--log", "json", program=("-c", FEW_RETRIES), env=environment)
            out, err = failed.communicate(timeout=PATIENCE)
            assert failed.returncode in (1, 2)
            assert message in err
            assert not {secret for secret in (SECRET, KEY) if secret in out + err}


class TestAzure:
    """az:// on the emulator of Azure's blob storage."""

    @pytest.fixture
    def container(self, azurite, monkeypatch):
        for name, value in azurite.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(remote_objects, "SETTLE_SECONDS", 0.1)
        return azurite

    def test_objects_are_written_listed_copied_and_deleted(self, container):
        objects, destination = open_objects(container.url("a")), open_objects(container.url("b"))
        assert (objects.get("d/x"), objects.size("d/x"), objects.age("d/x")) == (None, 0, float("inf"))
        objects.put("d/x", b"one")
        objects.put("y", b"three")
        assert (objects.get("d/x"), objects.size("y")) == (b"one", 5)
        assert (objects.names(""), objects.names("d"), objects.folders("")) == (["d/x", "y"], ["d/x"], ["d"])
        assert 0 <= objects.age("y") < 60
        destination.copy(["d/x"], objects)
        assert destination.get("d/x") == b"one"
        objects.delete("d")
        objects.delete("nowhere")
        assert objects.names("") == ["y"]
        with pytest.raises(StoreError, match="no such bucket or container"):
            open_objects("az://nobody/x").names("")

    @pytest.mark.parametrize("name", ["chunks", "shards"])
    def test_arrays_are_read_back_and_missing_chunks_are_errors(self, container, name):
        store = Store(container.url("arrays.zarr"))
        store.create(planned(name, (24,), "float64", 8, 4 * (name == "shards")))
        store.write(name, 0, np.arange(24.0))
        np.testing.assert_array_equal(store.read_all(name), np.arange(24.0))
        np.testing.assert_array_equal(store.gather(name, np.array([1, 9, 23])), [1.0, 9.0, 23.0])
        for damage in (store.objects.delete, lambda key: store.objects.put(key, b"")):
            damage(f"{name}/c/1")
            with pytest.raises(CorruptChunk, match="missing or empty"):
                store.read(name, 9, 10)

    @pytest.mark.timeout(1800)
    @pytest.mark.filterwarnings("ignore:.*:zarr.errors.ZarrUserWarning")
    def test_complete_job_gives_the_results_of_a_local_run(self, container, tmp_path):
        points = swiss_roll(N_POINTS, np.random.default_rng(59))
        source, folder = open_objects(container.url("in")), tmp_path / "in"
        folder.mkdir()
        for number, rows in enumerate(np.split(points, 2)):
            pd.DataFrame(rows, columns=["a", "b", "c"]).to_parquet(folder / f"{number}.parquet")
            source.put(f"{number}.parquet", (folder / f"{number}.parquet").read_bytes())
        for place, store in ((source.url, container.url("runs/roll.zarr")), (folder, str(tmp_path / "run"))):
            keys = {"kind": "parquet", "path": f"{place}/*.parquet", "label": "b", "columns": ["a", "c"]}
            runs.run(load_config(config_at(tmp_path / "job.yaml", keys, store)), False, RunProgress())
        assert result_bytes(container.url("runs/roll.zarr")) == result_bytes(str(tmp_path / "run"))
        assert find_damage(Store(container.url("runs/roll.zarr"))) == []


@pytest.mark.filterwarnings("ignore:.*:zarr.errors.ZarrUserWarning")
class TestSwift:
    """A real service that keeps its objects on disk."""

    @pytest.mark.timeout(1800)
    def test_killed_worker_changes_no_byte(self, swift, monkeypatch, tmp_path):
        for name, value in swift.environment.items():
            monkeypatch.setenv(name, value)
        points = swiss_roll(N_POINTS, np.random.default_rng(31))
        put_points(swift.url("in/points.zarr"), points, points[:, 1])
        put_points(str(tmp_path / "points.zarr"), points, points[:, 1])
        keys = {"kind": "zarr", "array": "points", "labels": "labels"}
        cluster = {"kind": "local", "workers": 2, "memory": "2GiB"}
        local_config = config_at(
            tmp_path / "here.yaml", {**keys, "url": str(tmp_path / "points.zarr")}, str(tmp_path / "run")
        )
        runs.run(load_config(local_config), False, RunProgress())
        store = swift.url("runs/a.zarr")
        remote_config = config_at(tmp_path / "s3.yaml", {**keys, "url": swift.url("in/points.zarr")}, store, cluster)
        process = start(remote_config, env=os.environ | swift.environment)
        kill_a_worker(process, store, "solve_weights")
        finish(process)
        assert result_bytes(store) == result_bytes(str(tmp_path / "run"))


def kill_a_worker(driver: subprocess.Popen, store: str, stage: str) -> None:
    """SIGKILL one of the driver's worker processes as soon as a stage has a marker, before it has them all."""
    wait_for_block(driver, store, stage)
    workers = [child for child in psutil.Process(driver.pid).children(recursive=True) if is_worker(child)]
    assert len(workers) == 2, workers
    os.kill(workers[0].pid, signal.SIGKILL)


def is_worker(process: psutil.Process) -> bool:
    """Dask starts its workers by multiprocessing's spawn."""
    with contextlib.suppress(psutil.Error):
        return "spawn_main" in " ".join(process.cmdline())
    return False

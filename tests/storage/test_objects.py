"""Whole objects on a disk, in an object store and in memory, and failures of their storage."""

import errno
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from lle.core.errors import ConfigError, StoreError
from lle.storage import remote_objects as remote_objects_module
from lle.storage import storage_errors as storage_errors_module
from lle.storage.local_objects import LocalObjects
from lle.storage.objects import open_objects
from lle.storage.remote_objects import RemoteObjects
from lle.storage.storage_errors import storage_errors
from lle.storage.store import Store
from lle.storage.store_in_memory import memory_root
from tests.support.plans import planned
from tests.support.stored import check_that_one_writer_creates, files_below


def local_objects(path: Path) -> LocalObjects:
    return LocalObjects(str(path))


def remote_objects(path: Path) -> RemoteObjects:
    pytest.importorskip("obstore", reason="object stores need the extra s3")
    path.mkdir()
    return RemoteObjects(f"file://{path}")


@pytest.mark.parametrize("place", ["disk", "object store", "memory"])
class TestObjects:
    @pytest.fixture
    def objects(self, tmp_path, place, monkeypatch):
        monkeypatch.setattr(remote_objects_module, "SETTLE_SECONDS", 0.01)
        with memory_root() as url:
            path = tmp_path / "objects"
            yield {"disk": local_objects, "object store": remote_objects}.get(place, lambda _: open_objects(url))(path)

    def test_put_and_get(self, objects):
        assert objects.get("a/b") is None
        objects.put("a/b", b"one")
        objects.put("a/b", b"two")
        assert (objects.get("a/b"), objects.size("a/b")) == (b"two", 3)
        assert objects.exists("a/b")
        assert not objects.exists("a")
        assert not objects.exists("a/c")

    def test_age_by_the_clock_of_the_store(self, objects):
        objects.put("a", b"1")
        assert 0 <= objects.age("a") < 60
        if isinstance(objects, LocalObjects):
            path = Path(objects.url, "a")
            os.utime(path, (path.stat().st_mtime - 1000,) * 2)
            assert 1000 <= objects.age("a") < 1060
        assert objects.age("b") == np.inf
        assert objects.names("") == ["a"]

    def test_names_of_a_folder_sorted(self, objects):
        for name in ("b/2", "a/x", "b/10", "bb/1", "b/c/1"):
            objects.put(name, b"")
        assert objects.names("b") == ["b/10", "b/2", "b/c/1"]
        assert objects.names("") == ["a/x", "b/10", "b/2", "b/c/1", "bb/1"]
        assert objects.names("nothing") == []
        assert (objects.folders("b"), objects.folders("")) == (["c"], ["a", "b", "bb"])
        assert objects.folders("nothing") == []

    def test_delete_an_object_a_folder_or_nothing(self, objects):
        for name in ("a/1", "a/b/2", "ab/3", "c"):
            objects.put(name, b"")
        objects.delete("a")
        objects.delete("c")
        objects.delete("nothing")
        assert objects.names("") == ["ab/3"]

    def test_delete_objects(self, objects):
        for name in ("a/1", "a/2", "a/b/3", "c"):
            objects.put(name, b"")
        objects.delete_objects(["a/1", "a/missing", "a/2", "nowhere"])
        assert objects.names("") == ["a/b/3", "c"]
        objects.delete_objects([])
        objects.delete_objects(["nowhere"])
        assert objects.names("") == ["a/b/3", "c"]

    def test_create_only_once(self, objects):
        assert objects.create("a/lock", b"first")
        assert not objects.create("a/lock", b"second")
        assert objects.get("a/lock") == b"first"

    def test_one_of_many_simultaneous_writers_creates_the_object(self, objects):
        for number in range(20):
            check_that_one_writer_creates(objects, f"lock{number}")

    def test_zarr_writes_where_the_objects_are(self, objects, place):
        if place == "memory":
            assert objects.place() is None
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Store(objects.url).create_group({})
        assert objects.exists("zarr.json")


class TestLocalFiles:
    def test_an_interrupted_put_keeps_the_old_object(self, tmp_path, monkeypatch):
        objects = local_objects(tmp_path)
        objects.put("a", b"old")

        def interrupt(self, target):
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            objects.put("a", b"new")
        monkeypatch.undo()
        assert files_below(tmp_path) == {"a": b"old"}

    def test_partial_files_of_killed_writers_are_removed_and_never_listed(self, tmp_path):
        objects = local_objects(tmp_path)
        objects.put("points/c/0/0", b"data")
        for name in (f".0.{4711:032x}.partial", f"0.{0xA1B2:032x}.partial"):  # of this program, of zarr
            (tmp_path / "points/c/0" / name).write_bytes(b"da")
        assert objects.names("") == ["points/c/0/0"]
        assert objects.delete_partial_files() == 2
        assert files_below(tmp_path) == {"points/c/0/0": b"data"}
        assert objects.delete_partial_files() == 0

    def test_partial_files_of_other_programs_are_kept(self, tmp_path):
        names = ("film.partial", ".film.4711.partial", f"film.{1:032x}.partial.txt")
        for name in names:
            (tmp_path / name).write_bytes(b"theirs")
        assert local_objects(tmp_path).delete_partial_files() == 0
        assert files_below(tmp_path) == dict.fromkeys(names, b"theirs")


class TestRemoteUrls:
    def test_invalid_url_is_a_config_error(self):
        pytest.importorskip("obstore", reason="object stores need the extra s3")
        with pytest.raises(ConfigError, match="gopher://x/y"):
            Store("gopher://x/y")

    @pytest.mark.parametrize(
        "act",
        [
            lambda objects: objects.put("file/x", b""),
            lambda objects: objects.create("file/x", b""),
            lambda objects: objects.get("file/x"),
            lambda objects: objects.exists("file/x"),
        ],
        ids=["put", "create", "get", "exists"],
    )
    def test_failing_storage_is_a_store_error(self, tmp_path, monkeypatch, act):
        monkeypatch.setattr("lle.storage.retries.RETRY_SECONDS", 0.0)
        objects = remote_objects(tmp_path / "objects")
        objects.put("file", b"in the way")
        with pytest.raises(StoreError, match="objects"):
            act(objects)

    def test_missing_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
        with pytest.raises(ConfigError, match=r"pip install '\.\[s3\]'"):
            Store("s3://bucket/run.zarr")


class TestStorageErrors:
    @pytest.mark.parametrize(
        ("number", "message", "code"),
        [
            (errno.ENOSPC, "disk is full", 1),
            (errno.EDQUOT, "disk is full", 1),
            (errno.EACCES, "path cannot be used", 2),
            (errno.ENAMETOOLONG, "path cannot be used", 2),
            (errno.ELOOP, "path cannot be used", 2),
            (errno.EROFS, "path cannot be used", 2),
            (errno.EIO, "OSError", 1),
        ],
    )
    def test_storage_errors_name_operation_and_place(self, number, message, code):
        with pytest.raises(StoreError, match=message) as caught, storage_errors("here"):
            raise OSError(number, os.strerror(number))
        assert str(caught.value).startswith("here: ")
        assert caught.value.exit_code == code

    def test_full_disk_while_writing(self, store, monkeypatch):
        def refuse(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

        store.put_json("x.json", {"x": 1})
        files = files_below(Path(store.url))
        monkeypatch.setattr(Path, "write_bytes", refuse)
        with pytest.raises(StoreError, match="disk is full"):
            store.put_json("x.json", {"x": 2})
        with pytest.raises(StoreError, match="disk is full"):
            store.objects.create("y.json", b"2")
        monkeypatch.undo()
        assert files_below(Path(store.url)) == files


class TestTemporaryFaults:
    """Writes with temporary failures are retried; others are not."""

    @pytest.fixture
    def failing(self, monkeypatch):
        """`failing(number, n_times)`: the next n renames fail with that error; how many did."""
        replace, failed = os.replace, []
        monkeypatch.setattr(storage_errors_module, "WRITE_PAUSES", (0.0, 0.0, 0.0))

        def arm(number, n_times):
            def refuse(source, target, **more):
                if len(failed) < n_times:
                    failed.append(target)
                    raise OSError(number, os.strerror(number), str(target))
                replace(source, target, **more)

            monkeypatch.setattr(os, "replace", refuse)
            return failed

        return arm

    def test_writes_succeed_after_temporary_failures(self, store, failing):
        values = np.random.default_rng(3).normal(size=(8, 3))
        store.create(planned("x", (8, 3), "float64", 8))
        for write in (
            lambda: store.write("x", 0, values),
            lambda: store.put_json("a.json", {"x": 1}),
            lambda: store.write_bundle("b", x=np.ones(2)),
            lambda: store.write_rows("m", 0, 0, csr_array(np.eye(3))),
        ):
            failed = failing(errno.EIO, 3)
            write()
            assert len(failed) == 3
            failed.clear()
        assert (store.get_json("a.json"), store.read_bundle("b")["x"].sum()) == ({"x": 1}, 2)
        np.testing.assert_array_equal(store.read_all("x"), values)
        np.testing.assert_array_equal(store.read_rows("m", 0).toarray(), np.eye(3))

    def test_permanent_failure_is_an_error(self, store, failing):
        failed = failing(errno.EIO, 99)
        with pytest.raises(StoreError, match="Input/output error"):
            store.put_json("a.json", {"x": 1})
        assert len(failed) == 4
        assert store.objects.names("") == ["zarr.json"]

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
    def test_full_or_forbidden_disk_is_not_retried(self, store, failing, number):
        failed = failing(number, 99)
        with pytest.raises(StoreError):
            store.put_json("a.json", {"x": 1})
        assert len(failed) == 1

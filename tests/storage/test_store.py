"""The store: what is written is read back, what is damaged is found, what is foreign is left alone."""

import errno
import gc
import io
import json
import os
import tempfile
import warnings
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from pipeline.api.open_run import open_run
from pipeline.core.errors import ConfigError, CorruptChunk, StoreError
from pipeline.jobs.status import status_of
from pipeline.storage import objects as objects_module
from pipeline.storage import storage_errors as storage_errors_module
from pipeline.storage.array_specs import FORMAT_VERSION
from pipeline.storage.objects import LocalObjects, RemoteObjects, open_objects
from pipeline.storage.storage_errors import storage_errors
from pipeline.storage.store import Store, block_of
from pipeline.storage.store_in_memory import memory_root
from pipeline.storage.versions import reading
from tests.support.plans import planned
from tests.support.seeds import seeds
from tests.support.stored import check_that_one_writer_creates

# One array of each way to be stored: as it is, compressed, and both of them as shards of several chunks.
KINDS = {
    "float": ("float64", 0),
    "index": ("int64", 0),
    "float in shards": ("float32", 4),
    "index in shards": ("int32", 4),
}


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 3) -> np.ndarray:
    return (1000 * np.random.default_rng(seed).normal(size=shape)).astype(dtype)


def files_below(folder: Path) -> dict[str, bytes]:
    results = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return dict(sorted(results.items()))


def chunk_file(store: Store, name: str, chunk: int) -> Path:
    [path] = Path(store.url, name, "c").glob(f"{chunk}/**/0" if store.array(name).ndim > 1 else f"{chunk}")
    return path


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({"config": {"a": 1}})
    return store


class TestGroup:
    def test_attributes(self, store):
        assert store.is_run()
        assert store.attributes() == {"lle_format": FORMAT_VERSION, "config": {"a": 1}}
        store.create_group({"config": {"a": 2}})
        assert store.attributes()["config"] == {"a": 2}

    @pytest.mark.parametrize("make", [False, True])
    def test_empty_place_is_not_a_run(self, tmp_path, make):
        if make:
            (tmp_path / "empty").mkdir()
        assert not Store(str(tmp_path / "empty")).is_run()

    def test_store_with_only_a_lock_is_not_a_run(self, tmp_path):
        store = Store(str(tmp_path / "x"))
        store.objects.create("_run/lock.json", b"{}")
        assert not store.is_run()

    def test_other_format_version(self, store):
        zarr.open_group(store.url, mode="a").attrs["lle_format"] = FORMAT_VERSION + 1
        text = f"store format {FORMAT_VERSION + 1}, this version writes {FORMAT_VERSION}"
        with pytest.raises(ConfigError, match=text):
            store.is_run()

    def test_incomplete_metadata_are_reported(self, store):
        store.put_json("_run/steps/a.b.json", {})
        Path(store.url, "zarr.json").write_text('{"attributes": ')
        with pytest.raises(StoreError, match=r"zarr\.json cannot be read"):
            Store(store.url).is_run()

    def test_file_url_is_the_path(self, tmp_path):
        store = Store(f"file://{tmp_path}/run.zarr")
        store.create_group({})
        store.create(planned("x", (4,), "float64", 2))
        store.write("x", 0, np.arange(4.0))
        assert Store(str(tmp_path / "run.zarr")).is_run()
        np.testing.assert_array_equal(Store(str(tmp_path / "run.zarr")).read_all("x"), np.arange(4.0))

    def test_erase_keeps_the_lock_alone(self, store):
        store.objects.create("_run/lock.json", b"{}")
        store.put_json("_run/steps/a.b.json", {})
        store.put_json("_done/a/b.00000.json", {})
        store.create(planned("x", (4,), "float64", 2))
        store.write("x", 0, np.arange(4.0))
        store.erase()
        assert list(files_below(Path(store.url))) == ["_run/lock.json"]


def some_files(path: Path) -> None:
    (path / "thesis").mkdir(parents=True)
    (path / "thesis" / "chapter1.txt").write_text("years of work")


def other_group(path: Path) -> None:
    zarr.open_group(str(path), mode="w", attributes={"title": "of another program"})


def old_group(path: Path) -> None:
    zarr.open_group(str(path), mode="w", zarr_format=2)


def lone_array(path: Path) -> None:
    zarr.create_array(str(path), data=np.arange(3.0))


def other_torn_group(path: Path) -> None:
    path.mkdir()
    (path / "zarr.json").write_text('{"attributes": ')


def _within(open_place, url: str) -> None:
    with open_place(url):
        pass


def one_file(path: Path) -> None:
    path.write_text("not a folder")


class TestForeignPlaces:
    @pytest.mark.parametrize("make", [some_files, other_group, old_group, lone_array, other_torn_group])
    def test_foreign_places_are_refused_and_not_changed(self, tmp_path, make):
        place = tmp_path / "place"
        make(place)
        files = files_below(place)
        with pytest.raises(ConfigError, match=r"choose another output\.store") as caught:
            Store(str(place)).is_run()
        assert str(place) in str(caught.value)
        assert files_below(place) == files

    @pytest.mark.parametrize("make", [some_files, other_group, old_group, lone_array, other_torn_group])
    @pytest.mark.parametrize("name", ["place", "information"])
    def test_fresh_does_not_erase_foreign_places(self, tmp_path, make, name):
        make(tmp_path / name)
        with pytest.raises(ConfigError):
            Store(str(tmp_path / name)).may_erase()

    @pytest.mark.parametrize(
        ("make", "content"),
        [(some_files, r"other files: thesis/;"), (other_group, r"zarr data of another program: zarr\.json;"),
         (other_torn_group, r"an unreadable zarr\.json beside zarr\.json;"), (one_file, "a file, not a folder;"),
         (lambda path: path.mkdir(), "nothing;"), (lambda path: None, "nothing;")],
    )  # fmt: skip
    def test_reading_a_foreign_place_names_what_it_holds(self, tmp_path, make, content):
        make(tmp_path / "place")
        for read in (status_of, partial(_within, reading), open_run):
            with pytest.raises(ConfigError, match=f"Expected the store of a run, found {content}") as caught:
                read(str(tmp_path / "place"))
            assert "no run has been started there" in str(caught.value)
            assert "choose another" not in str(caught.value)

    def test_error_names_the_first_few_of_many_files(self, tmp_path):
        for number in range(9):
            (tmp_path / f"{number}.csv").write_text("1")
        with pytest.raises(ConfigError, match=r"other files: 0\.csv, 1\.csv, 2\.csv, 3\.csv, 4\.csv and 4 more;"):
            status_of(str(tmp_path))

    def test_reading_another_format_version_gives_no_advice_to_move_the_store(self, store):
        zarr.open_group(store.url, mode="a").attrs["lle_format"] = FORMAT_VERSION + 1
        with pytest.raises(ConfigError, match=f"expected a run of store format {FORMAT_VERSION}, found") as caught:
            status_of(store.url)
        assert "another output.store" not in str(caught.value)

    def test_fresh_may_erase_runs_of_any_version(self, store, tmp_path):
        assert store.may_erase()
        zarr.open_group(store.url, mode="a").attrs["lle_format"] = FORMAT_VERSION + 1
        assert store.may_erase()
        assert not Store(str(tmp_path / "nothing")).may_erase()

    @pytest.mark.parametrize("name", ["place", "place/run.zarr"])
    def test_file_at_the_path_of_the_store_is_a_config_error(self, tmp_path, name):
        one_file(tmp_path / "place")
        store = Store(str(tmp_path / name))
        with pytest.raises(StoreError, match="access was refused") as caught:
            store.create_group({})
        assert caught.value.exit_code == 2
        with pytest.raises(StoreError, match="access was refused") as caught:
            store.objects.create("_run/lock.json", b"{}")
        assert caught.value.exit_code == 2
        with pytest.raises(ConfigError, match="no run has been started there"):
            status_of(store.url)
        assert (tmp_path / "place").read_text() == "not a folder"

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
    def test_missing_write_permission_is_reported(self, tmp_path):
        (tmp_path / "sealed").mkdir(mode=0o500)
        with pytest.raises(StoreError, match="access was refused") as caught:
            Store(str(tmp_path / "sealed" / "run.zarr")).create_group({})
        assert caught.value.exit_code == 2


class TestStorageErrors:
    @pytest.mark.parametrize(
        ("number", "message", "code"),
        [(errno.ENOSPC, "disk is full", 1), (errno.EDQUOT, "disk is full", 1), (errno.EACCES, "access was refused", 2),
         (errno.ENAMETOOLONG, "path cannot be used", 2), (errno.ELOOP, "path cannot be used", 2),
         (errno.EROFS, "access was refused", 2), (errno.EIO, "OSError", 1)],
    )  # fmt: skip
    def test_storage_errors_name_operation_and_place(self, number, message, code):
        with pytest.raises(StoreError, match=message) as caught, storage_errors("here"):
            raise OSError(number, os.strerror(number))
        assert str(caught.value).startswith("here: ")
        assert caught.value.exit_code == code

    def test_full_disk_while_writing(self, store, monkeypatch):
        def refuse(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

        store.put_json("x.json", 1)
        files = files_below(Path(store.url))
        monkeypatch.setattr(Path, "write_bytes", refuse)
        with pytest.raises(StoreError, match="disk is full"):
            store.put_json("x.json", 2)
        with pytest.raises(StoreError, match="disk is full"):
            store.objects.create("y.json", b"2")
        monkeypatch.undo()
        assert files_below(Path(store.url)) == files


class TestArrays:
    @pytest.mark.parametrize(("dtype", "parts"), KINDS.values(), ids=KINDS.keys())
    def test_layout(self, store, dtype, parts):
        store.create(planned("x", (20, 3), dtype, 8, parts))
        array = store.array("x")
        assert (array.shape, array.dtype, block_of(array)) == ((20, 3), np.dtype(dtype), 8)
        assert array.chunks == ((2, 3) if parts else (8, 3))
        assert array.attrs["block"] == 8
        assert array.attrs["unit"] == "metres"
        assert array.metadata.dimension_names == ("point", "feature")
        store.write("x", 0, numbers((20, 3), dtype))
        assert len(list(Path(store.url, "x", "c").rglob("0"))) >= 3
        assert store.has_array("x")

    def test_replaced_array_is_deleted_completely(self, store):
        store.create(planned("x", (20, 3), "float64", 4))
        store.write("x", 0, numbers((20, 3), "float64"))
        store.create(planned("x", (8, 2), "int32", 8))
        assert not Path(store.url, "x", "c").exists()
        assert store.array("x").shape == (8, 2)

    def test_missing_array(self, store):
        assert not store.has_array("x")
        with pytest.raises(StoreError, match="has no array 'x'"):
            store.read("x", 0, 1)

    @pytest.mark.parametrize("text", ["", "{", '{"zarr_format": 3}'])
    def test_damaged_array_metadata(self, store, text):
        store.create(planned("x", (4,), "float64", 2))
        Path(store.url, "x", "zarr.json").write_text(text)
        with pytest.raises(CorruptChunk) as caught:
            Store(store.url).read_all("x")
        assert (caught.value.array, caught.value.chunk) == ("x", "zarr.json")

    @pytest.mark.parametrize("attributes", ["[[1]]", "[]", '{"block": "x"}', '{"block": null}'])
    def test_damaged_array_attributes(self, store, attributes):
        array = planned("x", (4,), "float64", 2)
        store.create(array)
        path = Path(store.url, "x", "zarr.json")
        content = {**json.loads(path.read_text()), "attributes": json.loads(attributes)}
        path.write_text(json.dumps(content))
        with pytest.raises(CorruptChunk, match="attributes"):
            Store(store.url).read_all("x")
        assert not Store(store.url).holds(array)

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # zarr leaves tasks unawaited
    @pytest.mark.parametrize("text", ["\x80", "[" * 100_000, "array"])
    def test_damaged_metadata_of_a_group_above_are_replaced(self, store, text, capfd):
        store.create(planned("work/x", (4,), "float64", 2))
        above = Path(store.url, "work", "zarr.json")
        undamaged = above.read_bytes()
        above.write_bytes(
            Path(store.url, "work/x/zarr.json").read_bytes() if text == "array" else text.encode("latin1")
        )
        store.create(planned("work/y", (4,), "float64", 2))
        store.write("work/y", 0, numbers((4,), "float64"))
        assert json.loads(above.read_bytes()) == json.loads(undamaged)
        assert "metadata above it are written again" in capfd.readouterr().err
        np.testing.assert_array_equal(Store(store.url).read_all("work/y"), numbers((4,), "float64"))
        above.write_bytes(b"\x80")
        store.write_rows("work/m", 0, 0, csr_array(np.eye(3)))
        np.testing.assert_array_equal(store.read_rows("work/m", 0).toarray(), np.eye(3))
        gc.collect()  # of zarr's tasks, here and not in a later test

    @pytest.mark.parametrize("parts", [0, 4])
    @pytest.mark.parametrize(("start", "n"), [(1, 8), (4, 4), (0, 7), (8, 4), (8, 11), (0, 21), (16, 8), (24, 1)])
    def test_partial_blocks_are_refused(self, store, parts, start, n):
        store.create(planned("x", (20, 3), "float64", 8, parts))
        with pytest.raises(ValueError, match=rf"x\[{start}:{start + n}\] is not a whole number of blocks of 8 rows"):
            store.write("x", start, numbers((n, 3), "float64"))
        assert not Path(store.url, "x", "c").exists()

    @pytest.mark.parametrize("parts", [0, 4])
    @pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: data[:-9] + b"\0" * 9])
    def test_a_damaged_block_can_be_written_again(self, store, parts, damage):
        """Zarr reads the shard that it replaces; a damaged shard must not prevent the write."""
        store.create(planned("x", (20, 3), "float64", 8, parts))
        values = numbers((20, 3), "float64")
        store.write("x", 0, values)
        chunk = Path(store.url, "x", "c", "1", "0")
        chunk.write_bytes(damage(chunk.read_bytes()))
        with pytest.raises(CorruptChunk):
            store.read("x", 8, 16)
        store.write("x", 8, values[8:16])
        np.testing.assert_array_equal(store.read_all("x"), values)

    @pytest.mark.parametrize(("start", "n"), [(0, 8), (8, 8), (16, 4), (0, 16), (8, 12), (0, 20)])
    def test_whole_blocks_are_written(self, store, start, n):
        store.create(planned("x", (20, 3), "float64", 8))
        values = numbers((n, 3), "float64")
        store.write("x", start, values)
        np.testing.assert_array_equal(store.read("x", start, start + n), values)

    def test_a_chunk_equal_to_the_fill_value_is_stored(self, store):
        for name, dtype, value in (("f", "float64", np.nan), ("i", "int64", 0), ("s", "float32", np.nan)):
            store.create(planned(name, (20, 3), dtype, 8, parts=4 if name == "s" else 0))
            values = np.full((20, 3), value, dtype)
            Store(store.url).write(name, 0, values)
            assert len(list(Path(store.url, name, "c").iterdir())) == 3
            np.testing.assert_array_equal(Store(store.url).read_all(name), values)

    @pytest.mark.parametrize("seed", seeds(5, 31))
    @settings(max_examples=30)
    @given(st.data())
    def test_read_and_gather_equal_numpy(self, seed, data):
        dtype, parts = data.draw(st.sampled_from(sorted(KINDS.values())))
        n_rows, block = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 17))
        tail = data.draw(st.sampled_from([(), (1,), (3,)]))
        values = numbers((n_rows, *tail), dtype, seed)
        start = data.draw(st.integers(0, n_rows - 1))
        stop = data.draw(st.integers(start + 1, n_rows))
        rows = np.array(sorted(data.draw(st.lists(st.integers(0, n_rows - 1), max_size=25))), np.int64)
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            store.create_group({})
            store.create(planned("x", values.shape, dtype, block, parts))
            for first in range(0, n_rows, block):
                store.write("x", first, values[first : first + block])
            np.testing.assert_array_equal(store.read_all("x"), values)
            np.testing.assert_array_equal(store.read("x", start, stop), values[start:stop])
            actual = store.gather("x", rows)
        np.testing.assert_array_equal(actual, values[rows])
        assert actual.dtype == np.dtype(dtype)


@pytest.mark.parametrize(("dtype", "parts"), KINDS.values(), ids=KINDS.keys())
class TestDamage:
    @pytest.fixture
    def filled(self, store, dtype, parts):
        store.create(planned("x", (20, 3), dtype, 8, parts))
        store.write("x", 0, numbers((20, 3), dtype))
        return store

    def check(self, store, content: bytes) -> None:
        path = chunk_file(store, "x", 1)
        undamaged = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(CorruptChunk) as caught:
            store.read("x", 8, 16)
        assert (caught.value.array, caught.value.chunk) == ("x", "1")
        path.write_bytes(undamaged)
        np.testing.assert_array_equal(store.read("x", 8, 16), numbers((20, 3), str(store.array("x").dtype))[8:16])

    @pytest.mark.parametrize("bit", [0, 7, *(pytest.param(bit, marks=pytest.mark.slow) for bit in range(1, 7))])
    def test_any_flipped_bit_is_detected(self, filled, bit):
        undamaged = chunk_file(filled, "x", 1).read_bytes()
        for byte in range(bit, len(undamaged), 8):
            damaged = bytearray(undamaged)
            damaged[byte] ^= 1 << bit
            self.check(filled, bytes(damaged))

    def test_any_truncation_is_detected(self, filled):
        undamaged = chunk_file(filled, "x", 1).read_bytes()
        for length in (0, *range(1, len(undamaged), 5)):
            self.check(filled, undamaged[:length])

    def test_missing_chunk(self, filled):
        chunk_file(filled, "x", 1).unlink()
        with pytest.raises(CorruptChunk, match="missing") as caught:
            filled.read_all("x")
        assert (caught.value.array, caught.value.chunk) == ("x", "1")
        assert len(filled.read("x", 0, 8)) == 8

    def test_damaged_chunk_is_named_in_a_longer_read(self, filled):
        path = chunk_file(filled, "x", 2)
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with pytest.raises(CorruptChunk) as caught:
            filled.read_all("x")
        assert caught.value.chunk == "2"


class TestBundles:
    @pytest.mark.parametrize("array", [
        np.arange(7), np.zeros((0, 3)), np.array([[True], [False]]), np.array([1.5, np.nan, np.inf], np.float32),
        np.arange(12).reshape(3, 4)[:, ::2],
    ], ids=["int64", "empty", "bool", "float32", "view"])  # fmt: skip
    def test_round_trip(self, store, array):
        store.write_bundle("_work/b/00003", x=array, y=np.arange(3))
        bundle = store.read_bundle("_work/b/00003")
        np.testing.assert_array_equal(bundle["x"], array)
        assert (list(bundle), bundle["x"].dtype) == (["x", "y"], array.dtype)
        assert store.has_bundle("_work/b/00003")

    def test_missing(self, store):
        assert not store.has_bundle("b")
        with pytest.raises(CorruptChunk, match="missing") as caught:
            store.read_bundle("b")
        assert (caught.value.array, caught.value.chunk) == ("b", "bundle")

    def test_same_content_same_bytes(self, store):
        for name in ("a", "b"):
            store.write_bundle(name, x=np.arange(5), y=np.ones(2))
        assert store.objects.get("a.npz") == store.objects.get("b.npz")

    def test_any_truncation_of_a_bundle_is_detected(self, store):
        store.write_bundle("b", x=np.arange(5))
        undamaged = store.objects.get("b.npz")
        for length in range(len(undamaged)):
            store.objects.put("b.npz", undamaged[:length])
            with pytest.raises(CorruptChunk):
                store.read_bundle("b")

    def test_damaged_data(self, store):
        values = np.random.default_rng(7).integers(0, 2**62, 20)
        store.write_bundle("b", x=values)
        undamaged = store.objects.get("b.npz")
        first = undamaged.index(values.tobytes())
        for byte in range(first, first + values.nbytes, 3):
            store.objects.put("b.npz", undamaged[:byte] + bytes([undamaged[byte] ^ 64]) + undamaged[byte + 1 :])
            with pytest.raises(CorruptChunk):
                store.read_bundle("b")

    def test_any_flipped_bit_of_a_bundle_is_harmless_or_detected(self, store, monkeypatch):
        store.write_bundle("b", x=np.arange(3), y=np.arange(2))
        undamaged = store.objects.get("b.npz")
        good = store.read_bundle("b")
        undetected = []
        for bit in range(8 * len(undamaged)):
            damaged = bytearray(undamaged)
            damaged[bit // 8] ^= 1 << bit % 8
            monkeypatch.setattr(store.objects, "get", lambda name, damaged=damaged: bytes(damaged))
            try:
                bundle = store.read_bundle("b")
            except CorruptChunk:
                continue
            except Exception as error:
                undetected.append(f"{bit}: {error!r}")
                continue
            if list(bundle) != list(good) or any(not np.array_equal(bundle[key], good[key]) for key in good):
                undetected.append(f"{bit}: {list(bundle)}")
        assert undetected == []

    def test_pickled_objects_are_not_loaded(self, store):
        buffer = io.BytesIO()
        np.savez(buffer, x=np.array([{"an": "object"}], dtype=object))
        data = buffer.getvalue()
        store.objects.put("b.npz", data + zlib.crc32(data).to_bytes(4, "little"))
        with pytest.raises(ValueError, match="allow_pickle=False"):
            store.read_bundle("b")


class TestSparseRows:
    @pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
    @pytest.mark.parametrize("ids", [np.int32, np.int64])
    def test_round_trip(self, store, density, ids, rng):
        rows = csr_array(random_array((7, 30), density=density, rng=rng))
        rows = csr_array((rows.data, rows.indices.astype(ids), rows.indptr.astype(ids)), shape=rows.shape)
        store.write_rows("m", 2, 14, rows)
        actual = store.read_rows("m", 2)
        assert actual.shape == rows.shape
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(actual, part), getattr(rows, part))
            assert getattr(actual, part).dtype == getattr(rows, part).dtype

    def test_group_of_rows_records_first_row_and_shape(self, store):
        store.write_rows("m", 3, 24, csr_array((8, 50)))
        assert dict(zarr.open_group(f"{store.url}/m/00003", mode="r").attrs) == {"first_row": 24, "shape": [8, 50]}

    def test_second_write_removes_the_rows_of_the_first(self, store):
        store.write_rows("m", 0, 0, csr_array(np.eye(6)))
        store.write_rows("m", 0, 0, csr_array(np.array([[0.0, 2.0]])))
        np.testing.assert_array_equal(Store(store.url).read_rows("m", 0).toarray(), [[0, 2]])

    @pytest.mark.parametrize("part", ["data", "indices", "indptr"])
    def test_damage_names_the_part(self, store, part):
        store.write_rows("m", 1, 0, csr_array(np.eye(6)))
        path = Path(store.url, "m", "00001", part, "c", "0")
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(CorruptChunk) as caught:
            Store(store.url).read_rows("m", 1)
        assert caught.value.array == f"m/00001/{part}"

    @pytest.mark.parametrize("text", [
        "[" * 100_000, "[]", "{}", '{"attributes": {"shape": "x"}}', '{"attributes": {"shape": [5, 6]}}', None,
    ])  # fmt: skip
    def test_damaged_metadata_of_rows_are_named(self, store, text):
        store.write_rows("m", 1, 0, csr_array(np.eye(6)))
        path = Path(store.url, "m", "00001", "zarr.json")
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(CorruptChunk) as caught:
            Store(store.url).read_rows("m", 1)
        assert (caught.value.array, caught.value.chunk) == ("m/00001", "zarr.json")


class TestJson:
    def test_round_trip(self, store):
        store.put_json("a/b.json", {"x": [1, None, "y"]})
        assert store.get_json("a/b.json") == {"x": [1, None, "y"]}

    def test_missing_or_torn_is_none(self, store):
        assert store.get_json("a.json") is None
        store.objects.put("a.json", b'{"x": ')
        assert store.get_json("a.json") is None


def local_objects(path: Path) -> LocalObjects:
    return LocalObjects(str(path))


def remote_objects(path: Path) -> RemoteObjects:
    pytest.importorskip("obstore", reason="object stores need the extra s3")
    path.mkdir()
    return RemoteObjects(f"file://{path}")


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
        store.create(planned("x", (8, 3), "float64", 8))
        for write in (lambda: store.write("x", 0, numbers((8, 3), "float64")), lambda: store.put_json("a.json", 1),
                      lambda: store.write_bundle("b", x=np.ones(2)),
                      lambda: store.write_rows("m", 0, 0, csr_array(np.eye(3)))):  # fmt: skip
            failed = failing(errno.EIO, 3)
            write()
            assert len(failed) == 3
            failed.clear()
        assert (store.get_json("a.json"), store.read_bundle("b")["x"].sum()) == (1, 2)
        np.testing.assert_array_equal(store.read_all("x"), numbers((8, 3), "float64"))
        np.testing.assert_array_equal(store.read_rows("m", 0).toarray(), np.eye(3))

    def test_permanent_failure_is_an_error(self, store, failing):
        failed = failing(errno.EIO, 99)
        with pytest.raises(StoreError, match="Input/output error"):
            store.put_json("a.json", 1)
        assert len(failed) == 4
        assert store.objects.names("") == ["zarr.json"]

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
    def test_full_or_forbidden_disk_is_not_retried(self, store, failing, number):
        failed = failing(number, 99)
        with pytest.raises(StoreError):
            store.put_json("a.json", 1)
        assert len(failed) == 1


@pytest.mark.parametrize("place", ["disk", "object store", "memory"])
class TestObjects:
    @pytest.fixture
    def objects(self, tmp_path, place, monkeypatch):
        monkeypatch.setattr(objects_module, "SETTLE_SECONDS", 0.01)
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

    def test_delete_an_object_a_folder_or_nothing(self, objects):
        for name in ("a/1", "a/b/2", "ab/3", "c"):
            objects.put(name, b"")
        objects.delete("a")
        objects.delete("c")
        objects.delete("nothing")
        assert objects.names("") == ["ab/3"]

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
            zarr.open_group(Store(objects.url)._zarr_store(), mode="w")
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
        (tmp_path / "points/c/0/.0.4711.partial").write_bytes(b"da")
        (tmp_path / "points/c/0/0.a1b2.partial").write_bytes(b"da")
        assert objects.names("") == ["points/c/0/0"]
        assert objects.delete_partial_files() == 2
        assert files_below(tmp_path) == {"points/c/0/0": b"data"}
        assert objects.delete_partial_files() == 0


class TestRemoteUrls:
    def test_invalid_url_is_a_config_error(self):
        pytest.importorskip("obstore", reason="object stores need the extra s3")
        with pytest.raises(ConfigError, match="gopher://x/y"):
            Store("gopher://x/y")

    @pytest.mark.parametrize("act", [
        lambda objects: objects.put("file/x", b""), lambda objects: objects.create("file/x", b""),
        lambda objects: objects.get("file/x"), lambda objects: objects.exists("file/x"),
    ], ids=["put", "create", "get", "exists"])  # fmt: skip
    def test_failing_storage_is_a_store_error(self, tmp_path, monkeypatch, act):
        monkeypatch.setattr("pipeline.storage.retries.RETRY_SECONDS", 0.0)
        objects = remote_objects(tmp_path / "objects")
        objects.put("file", b"in the way")
        with pytest.raises(StoreError, match="objects"):
            act(objects)

    def test_missing_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "obstore", None)
        with pytest.raises(ConfigError, match=r"pip install '\.\[s3\]'"):
            Store("s3://bucket/run.zarr")

"""The store: what is written is read back, what is damaged is found."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from lle.core.errors import CorruptChunk
from lle.storage import bundles
from lle.storage.array_specs import FORMAT_VERSION
from lle.storage.store import Store, block_of
from tests.support.plans import planned
from tests.support.seeds import seeds
from tests.support.stored import files_below

# One array of each way to be stored: as it is, compressed, and both of them as shards of several chunks.
KINDS = {
    "float": ("float64", 0),
    "index": ("int64", 0),
    "float in shards": ("float32", 4),
    "index in shards": ("int32", 4),
}


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 3) -> np.ndarray:
    return (1000 * np.random.default_rng(seed).normal(size=shape)).astype(dtype)


def chunk_file(store: Store, name: str, chunk: int) -> Path:
    [path] = Path(store.url, name, "c").glob(f"{chunk}/**/0" if store.array(name).ndim > 1 else f"{chunk}")
    return path


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


class TestArrays:
    @pytest.mark.parametrize(("dtype", "parts"), KINDS.values(), ids=KINDS.keys())
    def test_array_has_blocks_dtype_and_attributes(self, store, dtype, parts):
        store.create(planned("x", (20, 3), dtype, 8, parts))
        array = store.array("x")
        assert (array.shape, array.dtype, block_of(array)) == ((20, 3), np.dtype(dtype), 8)
        assert array.chunks == ((2, 3) if parts else (8, 3))
        assert array.attrs["unit"] == "metres"
        assert array.metadata.dimension_names == ("point", "feature")
        store.write("x", 0, numbers((20, 3), dtype))
        assert len(list(Path(store.url, "x", "c").rglob("0"))) >= 3
        assert store.has_array("x")

    @pytest.mark.parametrize("text", ["", "{", '{"zarr_format": 3}'])
    def test_damaged_array_metadata(self, store, text):
        store.create(planned("x", (4,), "float64", 2))
        Path(store.url, "x", "zarr.json").write_text(text)
        with pytest.raises(CorruptChunk) as caught:
            Store(store.url).read_all("x")
        assert (caught.value.array, caught.value.chunk) == ("x", "zarr.json")

    @pytest.mark.parametrize(
        "change",
        [
            {"attributes": []},
            {"attributes": [[1]]},
            {"shape": [2, 3]},
            {"data_type": "int64"},
            {"zarr_format": 2},
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 3]}}},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_changed_metadata_are_damage_for_every_reader_and_for_the_next_run(self, store, change):
        array = planned("x", (4, 3), "float64", 2)
        store.create(array)
        store.write("x", 0, numbers((4, 3), "float64"))
        path = Path(store.url, "x", "zarr.json")
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        with pytest.raises(CorruptChunk, match=r"zarr\.json"):
            Store(store.url).read_all("x")
        assert not Store(store.url).holds(array)

    def test_metadata_of_another_array_are_damage(self, store):
        for name in ("x", "y"):
            store.create(planned(name, (4, 3), "float64", 2))
        Path(store.url, "x", "zarr.json").write_bytes(Path(store.url, "y", "zarr.json").read_bytes())
        with pytest.raises(CorruptChunk, match=r"zarr\.json"):
            Store(store.url).array("x")

    @pytest.mark.parametrize("parts", [0, 4])
    @pytest.mark.parametrize("kind", ["float", "index"])
    @pytest.mark.parametrize("rows", [(0, 8), (1, 3), (0, 16)])
    def test_exchanged_chunk_files_are_damage(self, store, parts, kind, rows):
        dtype = "float64" if kind == "float" else "int32"
        store.create(planned("x", (16, 3), dtype, 8, parts))
        store.write("x", 0, numbers((16, 3), dtype))
        first, second = (chunk_file(store, "x", chunk) for chunk in (0, 1))
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
        with pytest.raises(CorruptChunk, match="not written under this name") as caught:
            store.read("x", *rows)
        assert (caught.value.array, caught.value.chunk) in {("x", "0"), ("x", "1")}

    def test_exchanged_chunk_files_of_sparse_rows_are_damage(self, store):
        for block in (0, 1):
            store.write_rows("m", block, 3 * block, csr_array(np.eye(3)) * (block + 1))
        first, second = (Path(store.url, "m", f"0000{block}", "data/c/0") for block in (0, 1))
        first.write_bytes(second.read_bytes())
        with pytest.raises(CorruptChunk, match="not written under this name"):
            store.read_rows("m", 0)

    @pytest.mark.parametrize("parts", [0, 4])
    @pytest.mark.parametrize("dtype", ["float64", "int32"])
    def test_other_readers_of_zarr_read_the_arrays(self, store, parts, dtype):
        X = numbers((20, 3), dtype)
        store.create(planned("x", (20, 3), dtype, 8, parts))
        store.write("x", 0, X)
        opened = zarr.open_array(store.url, path="x", mode="r")
        np.testing.assert_array_equal(opened[:], X)
        np.testing.assert_array_equal(opened[3:5], X[3:5])

    @pytest.mark.parametrize("text", ["\x80", "[" * 100_000, "array"])
    def test_damaged_metadata_of_a_group_above_are_replaced(self, store, text):
        store.create(planned("work/x", (4,), "float64", 2))
        above = Path(store.url, "work", "zarr.json")
        undamaged = above.read_bytes()
        above.write_bytes(
            Path(store.url, "work/x/zarr.json").read_bytes() if text == "array" else text.encode("latin1")
        )
        store.create(planned("work/y", (4,), "float64", 2))
        store.write("work/y", 0, numbers((4,), "float64"))
        assert json.loads(above.read_bytes()) == json.loads(undamaged)
        np.testing.assert_array_equal(Store(store.url).read_all("work/y"), numbers((4,), "float64"))
        above.write_bytes(b"\x80")
        store.write_rows("work/m", 0, 0, csr_array(np.eye(3)))
        np.testing.assert_array_equal(store.read_rows("work/m", 0).toarray(), np.eye(3))

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


class TestSeveralAtOneTime:
    """Slices and bundles are read several at one time from an object store."""

    @pytest.fixture
    def remote(self, store, monkeypatch):
        """A store that is read three requests at a time, with x of 12 rows in blocks of 4."""
        store.create(planned("x", (12, 2), "float64", 4, 0))
        store.write("x", 0, numbers((12, 2), "float64"))
        monkeypatch.setattr(type(store.objects), "n_together", 3)
        return store

    def test_three_slices_wait_at_the_same_time(self, remote, monkeypatch):
        together, read = threading.Barrier(3, timeout=60), Store.read

        def waiting(*arguments):
            together.wait()
            return read(*arguments)

        monkeypatch.setattr(Store, "read", waiting)
        slices = [(8, 9), (0, 3), (5, 7)]
        for (start, stop), actual in zip(slices, remote.read_slices("x", slices), strict=True):
            np.testing.assert_array_equal(actual, numbers((12, 2), "float64")[start:stop])
        rows = np.array([1, 3, 6, 11])
        np.testing.assert_array_equal(remote.gather("x", rows), numbers((12, 2), "float64")[rows])

    def test_three_bundles_wait_at_the_same_time(self, remote, monkeypatch):
        names = ["_work/b", "_work/c", "_work/a"]
        for number, name in enumerate(names):
            remote.write_bundle(name, number=np.array(number))
        together, read = threading.Barrier(3, timeout=60), Store.read_bundle

        def waiting(*arguments):
            together.wait()
            return read(*arguments)

        monkeypatch.setattr(Store, "read_bundle", waiting)
        assert [int(bundle["number"]) for bundle in remote.read_bundles(names)] == [0, 1, 2]

    def test_large_chunks_are_not_read_all_at_one_time(self, remote, monkeypatch):
        """Otherwise a task would hold all of the array. A slice of one row takes the memory of its chunk."""
        monkeypatch.setattr(bundles, "BATCH_BYTES", 2 * 4 * 16)  # two chunks of four rows
        running, most, read = [], [], Store.read

        def counted(*arguments):
            running.append(None)
            time.sleep(0.1)
            most.append(len(running))
            running.pop()
            return read(*arguments)

        monkeypatch.setattr(Store, "read", counted)
        for slices in ([(0, 4), (4, 8), (8, 12)], [(0, 1), (4, 5), (8, 9)]):
            assert [len(rows) for rows in remote.read_slices("x", slices)] == [stop - start for start, stop in slices]
        assert max(most) == 2

    def test_damage_is_found(self, remote):
        chunk_file(remote, "x", 1).unlink()
        with pytest.raises(CorruptChunk, match="missing"):
            list(remote.read_slices("x", [(0, 4), (4, 8), (8, 12)]))


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

    @pytest.mark.slow
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


class TestSparseRows:
    def check(self, store, rows) -> None:
        actual = store.read_rows("m", 2)
        assert actual.shape == rows.shape
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(actual, part), getattr(rows, part))
            assert getattr(actual, part).dtype == getattr(rows, part).dtype

    @pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
    @pytest.mark.parametrize("ids", [np.int32, np.int64])
    def test_round_trip(self, store, density, ids, rng):
        rows = csr_array(random_array((7, 30), density=density, rng=rng))
        rows = csr_array((rows.data, rows.indices.astype(ids), rows.indptr.astype(ids)), shape=rows.shape)
        store.write_rows("m", 2, 14, rows)
        self.check(store, rows)

    def test_rows_written_in_parts_are_those_written_at_once(self, store, rng):
        rows = csr_array(random_array((7, 30), density=0.3, rng=rng))
        store.write_rows("m", 2, 14, rows[:3], chunk=10)
        for first, past in ((3, 4), (4, 7)):
            store.append_rows("m", 2, rows[first:past])
        self.check(Store(store.url), rows)
        assert zarr.open_array(store.url, path="m/00002/data", mode="r").chunks == (10,)

    def test_appended_rows_of_zeros_are_stored(self, store):
        zeros = csr_array((np.zeros(4), [0, 3, 5, 6], [0, 1, 4]), shape=(2, 30))
        store.write_rows("m", 0, 0, zeros, chunk=2)
        store.append_rows("m", 0, zeros)
        assert store.read_rows("m", 0).nnz == 8

    @pytest.mark.slow
    def test_first_reads_of_a_process_may_be_in_several_threads(self, store):
        """Before Python 3.11.9 a module that is loaded at its first use is not safe in threads."""
        for block in range(4):
            store.write_rows("m", block, 0, csr_array(np.eye(3)))
        code = (
            "from concurrent.futures import ThreadPoolExecutor as Pool; from lle.storage.store import Store\n"
            f"store = Store({store.url!r})\n"
            "print(sum(rows.nnz for rows in Pool(4).map(lambda block: store.read_rows('m', block), range(4))))"
        )
        completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (completed.stdout, completed.stderr) == ("12\n", "")

    def test_group_of_rows_records_first_row_and_shape(self, store):
        store.write_rows("m", 3, 24, csr_array((8, 50)))
        attributes = dict(zarr.open_group(f"{store.url}/m/00003", mode="r").attrs)
        assert (attributes["first_row"], attributes["shape"]) == (24, [8, 50])

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

    @pytest.mark.parametrize(
        "text", ["[" * 100_000, "[]", "{}", '{"attributes": {"shape": "x"}}', '{"attributes": {"shape": [5, 6]}}', None]
    )
    def test_damaged_metadata_of_rows_are_named(self, store, text):
        store.write_rows("m", 1, 0, csr_array(np.eye(6)))
        path = Path(store.url, "m", "00001", "zarr.json")
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(CorruptChunk) as caught:
            Store(store.url).read_rows("m", 1)
        assert (caught.value.array, caught.value.chunk) == ("m/00001", "zarr.json")

"""Bundles of small arrays and JSON objects: what is written is read back, what is damaged is found."""

import io
import zlib
from dataclasses import dataclass

import numpy as np
import pytest

from lle.core.errors import CorruptChunk
from lle.storage import bundles
from lle.storage.objects import open_objects
from lle.storage.remote_objects import RemoteObjects
from lle.storage.store_in_memory import memory_root


class TestBundles:
    def test_missing_bundle_is_an_error(self, store):
        assert not store.has_bundle("b")
        with pytest.raises(CorruptChunk, match="missing") as caught:
            store.read_bundle("b")
        assert (caught.value.array, caught.value.chunk) == ("b", "bundle")

    def test_same_content_same_bytes(self, store):
        written = set()
        for _ in range(2):
            store.write_bundle("a", x=np.arange(5), y=np.ones(2))
            written.add(store.objects.get("a.npz"))
        assert len(written) == 1

    def test_exchanged_bundles_are_damage(self, store):
        for name in ("a", "b"):
            store.write_bundle(name, x=np.arange(5))
            store.write_parts(name, 1, [(0, {"x": np.arange(5)})])
        for suffix in (".npz", ".parts"):
            store.objects.put(f"a{suffix}", store.objects.get(f"b{suffix}"))
        with pytest.raises(CorruptChunk):
            store.read_bundle("a")
        with pytest.raises(CorruptChunk):
            list(store.read_parts(["a"], 0))

    def test_changed_or_exchanged_records_count_as_missing(self, store):
        for number, name in enumerate(("a.json", "b.json")):
            store.put_json(name, {"seconds": number})
        undamaged = store.objects.get("a.json")
        store.objects.put("a.json", undamaged.replace(b'"seconds": 0', b'"seconds": 1'))
        assert store.get_json("a.json") is None
        store.objects.put("a.json", store.objects.get("b.json"))
        assert store.get_json("a.json") is None
        store.objects.put("a.json", undamaged)
        assert store.get_json("a.json") == {"seconds": 0}

    def test_any_truncation_of_a_bundle_is_detected(self, store):
        store.write_bundle("b", x=np.arange(5))
        undamaged = store.objects.get("b.npz")
        for length in range(len(undamaged)):
            store.objects.put("b.npz", undamaged[:length])
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
        store.objects.put("b.npz", data + zlib.crc32(data, zlib.crc32(b"b")).to_bytes(4, "little"))
        with pytest.raises(ValueError, match="allow_pickle=False"):
            store.read_bundle("b")


def part_of(writer: int, part: int) -> dict[str, np.ndarray]:
    return {"ids": np.arange(part), "values": np.full((part, 2), writer, np.float32)}


class TestParts:
    """Parts for several readers in one object, on a disk, in an object store and in memory."""

    NAMES = ("_work/sent/00000", "_work/sent/00001", "_work/sent/00002")

    @pytest.fixture(params=["disk", "object store", "memory"])
    def parts(self, request, store, tmp_path):
        """A store in which writer w has the parts 1, ..., 4 but not part w."""
        if request.param == "object store":
            pytest.importorskip("obstore", reason="object stores need the extra s3")
            store.objects = RemoteObjects(f"file://{tmp_path / 'run.zarr'}")
        with memory_root() as url:
            store.objects = open_objects(url) if request.param == "memory" else store.objects
            for writer, name in enumerate(self.NAMES):
                store.write_parts(name, 5, ((part, part_of(writer, part)) for part in range(1, 5) if part != writer))
            yield store

    def check(self, store, n_parts: int = 5) -> None:
        for part in range(n_parts):
            read = list(store.read_parts(self.NAMES, part))
            assert [writer for writer, arrays in enumerate(read) if not arrays] == (
                [part] if 0 < part < 3 else [] if part else [0, 1, 2]
            )
            for writer, arrays in enumerate(read):
                for key, values in arrays.items():
                    np.testing.assert_array_equal(values, part_of(writer, part)[key])

    def test_every_reader_gets_its_part_of_every_writer(self, parts):
        self.check(parts)
        assert parts.objects.names("_work") == [f"{name}.parts" for name in self.NAMES]
        assert parts.parts_below("_work", 3) == list(self.NAMES)
        assert parts.bundles_written == {f"{name}.parts" for name in self.NAMES}

    def test_task_without_parts_is_damage(self, parts):
        parts.objects.delete(f"{self.NAMES[1]}.parts")
        for n_writers, missing in ((3, "_work/sent/00001"), (5, "_work/sent/00001")):
            with pytest.raises(CorruptChunk, match="missing") as caught:
                parts.parts_below("_work/sent", n_writers)
            assert caught.value.array == missing
        with pytest.raises(CorruptChunk, match="missing"):
            parts.parts_below("_work/deleted", 1)

    def test_large_parts_are_divided_among_objects_and_read_alone(self, parts, monkeypatch):
        monkeypatch.setattr(bundles, "OBJECT_BYTES", 260)
        monkeypatch.setattr(bundles, "BATCH_BYTES", 230)
        for writer, name in enumerate(self.NAMES):
            parts.write_parts(name, 5, ((part, part_of(writer, part)) for part in range(1, 5) if part != writer))
        assert len(parts.objects.names("_work")) == 6
        assert all(parts.objects.size(name) < 500 for name in parts.objects.names("_work"))
        assert parts.parts_below("_work", 3) == list(self.NAMES)
        self.check(parts)
        for name in self.NAMES:
            parts.check_parts(name)
        parts.objects.delete("_work/sent/00001.parts.1")
        with pytest.raises(CorruptChunk, match="missing") as caught:
            list(parts.read_parts(self.NAMES, 2))
        assert (caught.value.array, caught.value.chunk) == ("_work/sent/00001", "part 2")
        with pytest.raises(CorruptChunk, match="missing"):
            parts.check_parts("_work/sent/00001")

    def test_parts_read_at_one_time_are_bounded(self, monkeypatch):
        monkeypatch.setattr(bundles, "BATCH_BYTES", 230)
        batches = [(batch.start, batch.stop) for batch in bundles._batches([100, 100, 30, 500, 0, 10])]
        assert batches == [(0, 3), (3, 4), (4, 6)]

    def test_missing_object(self, parts):
        parts.objects.delete("_work/sent/00001.parts")
        for read in (lambda: list(parts.read_parts(self.NAMES, 3)), lambda: parts.check_parts(self.NAMES[1])):
            with pytest.raises(CorruptChunk, match="missing") as caught:
                read()
            assert caught.value.array == "_work/sent/00001"

    def test_any_truncation_is_detected(self, parts):
        undamaged = parts.objects.get("_work/sent/00001.parts")
        for length in range(0, len(undamaged), 31):
            parts.objects.put("_work/sent/00001.parts", undamaged[:length])
            with pytest.raises(CorruptChunk):
                list(parts.read_parts(self.NAMES, 4))
            with pytest.raises(CorruptChunk):
                parts.check_parts("_work/sent/00001")

    def test_damage_is_named_with_its_part_and_harms_no_other(self, parts):
        """Each byte of the object belongs to the number of parts, to an entry of the index, or to a part."""
        undamaged = parts.objects.get("_work/sent/00001.parts")
        named = set()
        for byte in range(0, len(undamaged), 11):
            damaged = undamaged[:byte] + bytes([undamaged[byte] ^ 4]) + undamaged[byte + 1 :]
            parts.objects.put("_work/sent/00001.parts", damaged)
            with pytest.raises(CorruptChunk, match="its CRC-32 differs") as caught:
                parts.check_parts("_work/sent/00001")
            assert caught.value.array == "_work/sent/00001"
            named.add(caught.value.chunk)
            part = int(caught.value.chunk[-1]) if caught.value.chunk != "index" else 0
            assert len(list(parts.read_parts(self.NAMES, (part + 1) % 5))) == 3
            if caught.value.chunk != "index":
                with pytest.raises(CorruptChunk) as of_part:
                    list(parts.read_parts(self.NAMES, part))
                assert (of_part.value.array, of_part.value.chunk) == ("_work/sent/00001", caught.value.chunk)
        assert named == {"index", *(f"entry {part}" for part in range(5)), "part 2", "part 3", "part 4"}

    def test_bytes_damaged_in_transfer_are_read_again(self, parts, monkeypatch, capsys):
        get_range, changed = parts.objects.get_range, []

        def read(name, start, length):
            stored = get_range(name, start, length)
            if name != "_work/sent/00001.parts" or changed:
                return stored
            changed.append(name)
            return bytes(len(stored))

        monkeypatch.setattr(parts.objects, "get_range", read)
        self.check(parts)
        assert "damaged in transfer" in capsys.readouterr().err


@dataclass(frozen=True)
class Point:
    x: int


class TestJson:
    def test_missing_or_torn_is_none(self, store):
        assert store.get_json("a.json") is None
        store.objects.put("a.json", b'{"x": ')
        assert store.get_json("a.json") is None

    @pytest.mark.parametrize(
        ("content", "record"),
        [({"x": 1}, Point(1)), ({"x": 1, "later": 2}, Point(1)), ({"later": 2}, None), ({"x": "1", "later": 2}, None)],
    )
    def test_a_record_may_have_unknown_fields(self, store, content, record):
        store.put_json("a.json", content)
        assert store.read_record("a.json", Point) == record

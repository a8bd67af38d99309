"""Bundles of small arrays and JSON objects: what is written is read back, what is damaged is found."""

import io
import zlib

import numpy as np
import pytest

from pipeline.core.errors import CorruptChunk


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

    def test_missing_bundle_is_an_error(self, store):
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


class TestJson:
    def test_round_trip(self, store):
        store.put_json("a/b.json", {"x": [1, None, "y"]})
        assert store.get_json("a/b.json") == {"x": [1, None, "y"]}

    def test_missing_or_torn_is_none(self, store):
        assert store.get_json("a.json") is None
        store.objects.put("a.json", b'{"x": ')
        assert store.get_json("a.json") is None

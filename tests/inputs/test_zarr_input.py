"""Zarr arrays by themselves, on a web server and in an object store."""

import sys

import numpy as np
import pytest
import zarr

from lle.core.errors import InputError, LleError
from lle.inputs import array_shapes, open_source
from tests.support.input_files import D, N, write_group


def test_arrays_are_listed_by_name(tmp_path):
    names = [*"qeiamouycg"]
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    for name in names:
        group.create_array(name, data=np.zeros(3))
    assert [*array_shapes("zarr", str(tmp_path / "x.zarr"))] == sorted(names)


def test_single_zarr_array(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    zarr.save_array(tmp_path / "x.zarr", X)
    assert np.array_equal(open_source("zarr", url=tmp_path / "x.zarr").read(1, 3), X[1:3])
    assert open_source("zarr", url=f"file://{tmp_path}/x.zarr").n_rows == 4


@pytest.mark.parametrize("is_consolidated", [False, True])
def test_array_of_a_subgroup_is_found_if_the_group_has_none(tmp_path, is_consolidated):
    X = np.arange(12.0).reshape(4, 3)
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    root.create_array("cells/pca", data=X)
    root.create_array("cells/images", data=np.ones((2, 2, 2)))
    root.create_array("index", data=np.arange(4))
    if is_consolidated:
        zarr.consolidate_metadata(root.store)
    assert np.array_equal(open_source("zarr", url=tmp_path / "x.zarr").read(1, 3), X[1:3])
    root.create_array("weights", data=np.ones((4, 2)))
    if is_consolidated:
        zarr.consolidate_metadata(root.store)
    assert open_source("zarr", url=tmp_path / "x.zarr").n_features == 2


class TestRemoteZarr:
    def test_array_is_read_from_a_web_server(self, tmp_path, web_server, data):
        pytest.importorskip("obstore")
        write_group(tmp_path / "x.zarr", *data)
        source = open_source("zarr", url=f"{web_server}/x.zarr", array="points", labels="label")
        assert np.array_equal(source.read(399, 1201), data[0][399:1201])
        assert np.array_equal(source.read_labels(0, N), data[1])
        assert source.fingerprint()["points"][0]["shape"] == [N, D]
        with pytest.raises(InputError, match="no array 'pionts'"):
            open_source("zarr", url=f"{web_server}/x.zarr", array="pionts")
        with pytest.raises(InputError, match="found none"):
            open_source("zarr", url=f"{web_server}/y.zarr", array="points")

    def test_listing_of_an_object_store(self, tmp_path, data, monkeypatch):
        store = pytest.importorskip("obstore.store")
        write_group(tmp_path / "x.zarr", *data)
        # The same calls that an s3:// URL makes, on a store in a folder.
        monkeypatch.setattr(store, "from_url", lambda url, **options: store.LocalStore(tmp_path / "x.zarr"))
        first = open_source("zarr", url="s3://bucket/x.zarr", array="points")
        assert np.array_equal(first.read(5, 900), data[0][5:900])
        fingerprint = first.fingerprint()["points"][0]
        assert (fingerprint["name"], fingerprint["files"]) == ("x.zarr", 7 * 3 + 1)
        (tmp_path / "x.zarr/points/c/2/1").write_bytes(b"garbage")
        assert open_source("zarr", url="s3://bucket/x.zarr", array="points").fingerprint()["points"][0] != fingerprint

    def test_missing_answer_is_a_temporary_error(self, monkeypatch):
        monkeypatch.setattr("lle.storage.retries.RETRY_SECONDS", 0.0)
        store = pytest.importorskip("obstore.store")
        original = store.from_url
        monkeypatch.setattr(
            store, "from_url", lambda url, **options: original(url, **options | {"retry_config": {"max_retries": 0}})
        )
        with pytest.raises(LleError) as caught:
            open_source("zarr", url="http://127.0.0.1:9/x.zarr", array="points")
        assert caught.value.exit_code == 1

    def test_missing_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "obstore.store", None)
        with pytest.raises(InputError, match=r"pip install '\.\[s3\]'"):
            open_source("zarr", url="s3://bucket/x.zarr", array="points")

"""Stamps of blocks of the input: they change with the files or chunks that hold the rows, and with no others."""

import os

import numpy as np
import pandas as pd
import pytest
import zarr

from lle.inputs import open_source
from lle.inputs.synthetic import ManifoldSource
from tests.support.input_files import changed


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(71).normal(size=(100, 2))


def later(path) -> None:
    os.utime(path, ns=(1, os.stat(path).st_mtime_ns + 1))


@pytest.mark.parametrize("kind", ["npy", "parquet", "csv", "npz"])
def test_stamps_change_with_the_files_of_a_block_only(tmp_path, points, kind):
    for number in range(4):
        rows, path = points[25 * number : 25 * number + 25], tmp_path / f"{number}.{kind}"
        if kind in ("npy", "npz"):
            (np.save if kind == "npy" else np.savez)(path, rows)
        else:
            frame = pd.DataFrame(rows, columns=["a", "b"])
            frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)

    def stamps():
        return open_source(kind, path=str(tmp_path / f"*.{kind}")).stamps(20)

    stamps_before = stamps()
    assert len(stamps_before) == len(set(stamps_before)) == 5
    assert stamps() == stamps_before
    later(tmp_path / f"1.{kind}")  # rows 25 to 49
    assert changed(stamps_before, stamps()) == [1, 2]


@pytest.mark.parametrize(("zarr_format", "shards"), [(2, None), (3, None), (3, (20, 2))])
def test_stamps_change_with_the_chunks_of_a_block_only(tmp_path, points, zarr_format, shards):
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w", zarr_format=zarr_format)
    array = group.create_array("p", shape=(100, 2), chunks=(10, 1), shards=shards, dtype="f8")
    array[:] = points

    def stamps():
        return open_source("zarr", url=str(tmp_path / "x.zarr"), array="p").stamps(25)

    stamps_before = stamps()
    assert len(stamps_before) == len(set(stamps_before)) == 4
    array[42:44, 1] += 1.0  # the chunk of rows 40 to 49; the shard of rows 40 to 59
    assert changed(stamps_before, stamps()) == ([1, 2] if shards else [1])
    stamps_before = stamps()
    group.attrs["note"] = "other attributes are no other rows"
    array.resize((150, 2))
    array[100:] = 1.0
    assert changed(stamps_before, stamps()[:4]) == []
    assert len(stamps()) == 6


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize(("name", "zarr_format"), [("c", 3), ("c/0", 3), ("0", 2)])
def test_stamps_change_with_the_chunks_of_an_array_named_as_their_folder(
    tmp_path, points, name, zarr_format, is_remote, monkeypatch
):
    url = str(tmp_path / "x.zarr")
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w", zarr_format=zarr_format)
    encoding = {"name": "default" if zarr_format == 3 else "v2", "separator": "/"}
    array = group.create_array(name, shape=(100, 2), chunks=(50, 2), dtype="f8", chunk_key_encoding=encoding)
    array[:] = points
    if is_remote:  # the same calls that an s3:// URL makes, on a store in a folder
        store = pytest.importorskip("obstore.store")
        monkeypatch.setattr(store, "from_url", lambda url, **options: store.LocalStore(tmp_path / "x.zarr"))
        url = "s3://bucket/x.zarr"

    def stamps():
        return open_source("zarr", url=url, array=name).stamps(50)

    stamps_before = stamps()
    array[7] += 1.0
    assert changed(stamps_before, stamps()) == [0]


def test_temporary_file_of_a_writer_is_ignored(tmp_path, points):
    """The temporary file of a writer can vanish between listing and reading; here it is a broken link."""
    zarr.save(str(tmp_path / "x.zarr"), points)
    source = open_source("zarr", url=str(tmp_path / "x.zarr"))
    expected = source.fingerprint(), source.stamps(50)
    (tmp_path / "x.zarr" / ".0.partial").symlink_to("nothing")
    assert (source.fingerprint(), source.stamps(50)) == expected


def test_another_choice_of_columns_is_another_input(tmp_path, points):
    np.save(tmp_path / "x.npy", points)
    all_columns = open_source("npy", path=str(tmp_path / "x.npy")).stamps(50)
    first_column = open_source("npy", path=str(tmp_path / "x.npy"), columns=[0]).stamps(50)
    assert changed(all_columns, first_column) == [0, 1]


def test_generated_points():
    make = [ManifoldSource("swiss_roll", 50, 0.0, seed, 0.0) for seed in (3, 3, 4)]
    first, same, other_seed = (source.stamps(20) for source in make)
    assert first == same
    assert changed(first, other_seed) == [0, 1, 2]


def test_store_without_listing_detects_no_changes(tmp_path, points, monkeypatch):
    zarr.save(str(tmp_path / "x.zarr"), points)
    assert open_source("zarr", url=str(tmp_path / "x.zarr")).detects_changes
    monkeypatch.setattr("lle.inputs.zarr_input.Location.can_list", property(lambda self: False))
    assert not open_source("zarr", url=str(tmp_path / "x.zarr")).detects_changes

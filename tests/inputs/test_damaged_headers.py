"""Damaged headers and metadata of every kind of file: an InputError, never another exception."""

import gc
import gzip
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from lle.core.errors import InputError
from lle.inputs import open_source
from lle.inputs.zarr_input import zarr_shapes

SHAPE = b"(50, 4)"


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(200.0).reshape(50, 4))
    return (tmp_path / "x.npy").read_bytes()


def read_first_rows(kind: str, path) -> None:
    source = open_source(kind, path=str(path))
    source.read(0, min(source.n_rows, 50))


def refused(kind: str, path) -> str:
    with pytest.raises(InputError) as caught:
        read_first_rows(kind, path)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("shape", [b"(50, 4 ", b"(-5, 4)", b"(50,-4)", b"(5\x00, 4)"])
def test_npy_header(tmp_path, npy, shape):
    (tmp_path / "x.npy").write_bytes(npy.replace(SHAPE, shape))
    assert "x.npy" in refused("npy", tmp_path / "x.npy")


@pytest.mark.parametrize("metadata", [b"{broken", b"\xff\xfe\x00", b"7"])
def test_parquet_with_damaged_pandas_metadata(tmp_path, metadata):
    table = pa.table({"a": np.arange(9.0), "b": np.arange(9.0)}).replace_schema_metadata({b"pandas": metadata})
    pq.write_table(table, tmp_path / "x.parquet")
    assert "x.parquet" in refused("parquet", tmp_path / "x.parquet")


def test_idx_sizes_beyond_memory(tmp_path):
    header = struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31 - 1, 2**15, 2**15)
    (tmp_path / "x.idx.gz").write_bytes(gzip.compress(header + b"x" * 100))
    assert "header" in refused("idx", tmp_path / "x.idx.gz")


@pytest.mark.parametrize("kind", ["npy", "npz", "idx", "csv", "parquet"])
def test_device_file(kind):
    assert "a device, pipe or socket '/dev/zero'" in refused(kind, "/dev/zero")


def test_damaged_array_of_a_zarr_group_gives_one_error_only(tmp_path, caplog):
    """The errors of folders without metadata beside it must not appear later, when Python collects garbage."""
    group = zarr.open_group(tmp_path / "in.zarr", mode="w")
    for name in "abcdef":
        group.create_array(name, shape=(4, 2), dtype="f8")
        if name != "c":
            (tmp_path / "in.zarr" / name / "zarr.json").unlink()
    metadata = tmp_path / "in.zarr" / "c" / "zarr.json"
    metadata.write_text(metadata.read_text().replace('"float64"', '"float65"'))
    with pytest.raises(InputError, match=r"in\.zarr"):
        zarr_shapes(str(tmp_path / "in.zarr"))
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []

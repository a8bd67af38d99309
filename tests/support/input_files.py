"""The same points and labels as files of every format."""

import gzip
import struct

import pandas as pd
import zarr

N, D = 2500, 5
FILES = [
    "npy",
    "npy by columns",
    "npy glob",
    "npz",
    "npz deflated",
    "npz by columns",
    "idx",
    "idx gzip",
    "parquet",
    "csv",
]
"""The same rows and labels in every format of files, by the names of the fixture `inputs`."""
IDX_CODES = {"u1": 0x08, "i1": 0x09, ">i2": 0x0B, ">i4": 0x0C, ">f4": 0x0D, ">f8": 0x0E}


def write_idx(path, array, compress=False):
    code = IDX_CODES[array.dtype.str.lstrip("|")]
    payload = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(payload) if compress else payload)
    return path


def write_frame(path, X, y, **options):
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(label=y)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False, **options)
    else:
        frame.to_parquet(path, row_group_size=700, index=False, **options)
    return path


def write_group(path, X, y, zarr_format=3):
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    group.create_array("points", data=X, chunks=(400, 2))
    group.create_array("label", data=y, chunks=(1000,))
    return path


def changed(before: list[str], after: list[str]) -> list[int]:
    return [block for block, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]

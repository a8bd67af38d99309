"""The input of a nightly job: a zarr array of 100-row chunks, read in blocks of 200 rows."""

from pathlib import Path

import numpy as np
import zarr

N, BLOCK = 600, 200


def put_input(folder: Path, points: np.ndarray) -> "zarr.Array":
    group = zarr.open_group(str(folder / "in.zarr"), mode="w")
    array = group.create_array("points", shape=points.shape, chunks=(BLOCK // 2, 3), dtype="f8")
    array[:] = points
    return array

"""Make the input section of a config for an array: its URL if it is stored, else a new .npy file.

The file is written one block of rows at a time, so Dask and Zarr arrays may be larger than memory.
"""

import hashlib
import math
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import zarr
from numpy.lib.format import open_memmap
from zarr.storage import LocalStore

from ..core.errors import InputError

BLOCK_BYTES = 64 * 2**20


def is_chunked(X: Any) -> bool:
    """Whether X is a Dask or Zarr array, which must be read by blocks."""
    return isinstance(X, da.Array | zarr.Array)


def input_section(X: Any, folder: Path) -> dict[str, Any]:
    """The input section for X: a NumPy, Dask or Zarr array (n, d), or a copy of X if it is such a section.

    A Zarr array of the local file system is named by its path. Other arrays are written to `input-<digest>.npy` in
    `folder`. Equal arrays get the same file, which is then not written again, so a run of the same input resumes.

    Raises InputError for a Dask array with an unknown number of rows.
    """
    if type(X) is dict:
        return dict(X)
    if isinstance(X, zarr.Array) and isinstance(X.store, LocalStore):
        return {"kind": "zarr", "url": str(Path(X.store.root).absolute() / X.path)}
    if isinstance(X, str | Path):
        raise InputError(
            f"input: expected an array, or an input section for a file, such as {{'kind': 'csv', 'path': '{X}'}}; "
            f"found the text '{X}'"
        )
    return {"kind": "npy", "path": str(_write(X if is_chunked(X) else np.asarray(X), folder))}


def remove_unnamed(folder: Path, paths_in_use: Collection[str]) -> None:
    """Remove the files of arrays in `folder` that are not in `paths_in_use`."""
    for path in folder.glob("input-*.npy"):
        if str(path) not in paths_in_use:
            path.unlink(missing_ok=True)


def row_blocks(X: Any) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    """Yield a two-dimensional array by blocks of rows: Dask's chunks, else about 64 MiB."""
    if isinstance(X, da.Array):
        sizes = X.chunks[0]
    else:
        chunk_rows = X.chunks[0] if isinstance(X, zarr.Array) else 1
        rows = max(1, BLOCK_BYTES // max(1, chunk_rows * math.prod(X.shape[1:]) * X.dtype.itemsize)) * chunk_rows
        sizes = tuple(min(rows, X.shape[0] - start) for start in range(0, X.shape[0], rows))
    start = 0
    for size in sizes:
        rows_of_block = slice(start, start + size)
        block = X[rows_of_block]
        yield rows_of_block, np.asarray(block.compute() if isinstance(block, da.Array) else block)
        start += size


def _write(X: Any, folder: Path) -> Path:
    if math.isnan(math.prod(X.shape)):
        raise InputError(
            f"input: expected an array of known size, found a Dask array of shape {X.shape}; call its "
            f"compute_chunk_sizes() first"
        )
    if X.dtype.kind not in "biuf":
        raise InputError(f"input: expected real numbers, found dtype {X.dtype}; convert it first, X.astype('float64')")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".input.{uuid.uuid4().hex}.partial"
    digest = hashlib.sha256(repr((X.shape, X.dtype.str)).encode())
    try:
        target = open_memmap(partial, mode="w+", dtype=X.dtype, shape=tuple(X.shape))
        for rows, block in row_blocks(X):
            target[rows] = block
            digest.update(np.ascontiguousarray(block).data)
        target.flush()
        path = folder / f"input-{digest.hexdigest()[:32]}.npy"
        if not path.exists():
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path

"""Readers of .npy, .npz and IDX files: arrays whose header gives the position of each row."""

import gzip
import math
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from typing import IO, TYPE_CHECKING, cast

import numpy as np

from ..core.errors import InputError
from .array_checks import only_matrix
from .array_rows import COMPRESSED, ArrayRows
from .base import Fingerprint, Rows, Source, Stamp
from .damage import reading
from .files import HEADER_BYTES, Layout, PathText, find_files, open_file, path_or_file
from .stacked_files import FileSource, StackedRows

if TYPE_CHECKING:
    import pyarrow as pa

_GZIP_MAGIC = b"\x1f\x8b"
_LOCAL_HEADER_BYTES = 30
CACHED_HEADERS = 1 << 16  # every task opens the whole input, and each remote header costs a request
_IDX_DTYPES = {b"\x08": "u1", b"\x09": "i1", b"\x0b": ">i2", b"\x0c": ">i4", b"\x0d": ">f4", b"\x0e": ">f8"}


def open_npy(
    path: PathText, labels: PathText | None = None, columns: Sequence[int] | None = None, id_column: str | None = None
) -> Source:
    """Points in .npy files, memory-mapped or (behind URLs) read by ranges; labels and ids, in .npy files, as many.

    Raises InputError.
    """
    paths = {"path": path, "labels": labels, "id": id_column}
    files = {key: find_files(pattern, key) for key, pattern in paths.items() if pattern}
    rows = {key: [_npy_rows(stamp) for stamp in stamps] for key, stamps in files.items()}
    if id_column is None:
        return FileSource(rows["path"], rows.get("labels"), columns)
    return SourceWithIds(rows["path"], rows.get("labels"), columns, rows["id"])


def open_idx(path: PathText, labels: PathText | None = None, columns: Sequence[int] | None = None) -> Source:
    """Points in IDX files (plain or gzip), each sample flattened to one row; labels in IDX files. Raises InputError."""
    stamps = find_files(path, "path")
    points = [_idx_rows(stamp) for stamp in stamps]
    label_rows = [_idx_rows(stamp) for stamp in find_files(labels, "labels")] if labels else None
    source = FileSource(points, label_rows, columns)
    source.image_shape = _image_shape(stamps) if columns is None else None
    return source


def open_npz(
    path: PathText, key: str | None = None, labels: str | None = None, columns: Sequence[int] | None = None
) -> Source:
    """Points and labels in .npz files; `key` is required if a file holds several 2-D arrays.

    labels: the key of another array in each file. Arrays written by np.savez are mapped, those written by
    np.savez_compressed are streamed. Raises InputError.
    """
    stamps = find_files(path, "path")
    keys = [key or only_matrix(stamp.path, "input.key", _shapes(stamp)) for stamp in stamps]
    points = [_npz_rows(stamp, name) for stamp, name in zip(stamps, keys, strict=True)]
    return FileSource(points, [_npz_rows(stamp, labels) for stamp in stamps] if labels else None, columns)


class SourceWithIds(FileSource):
    """Rows that are named by vectors of whole numbers or text. Raises InputError unless there is one for each row."""

    def __init__(
        self, points: Sequence[Rows], labels: Sequence[Rows] | None, columns: Sequence[int] | None, ids: Sequence[Rows]
    ) -> None:
        super().__init__(points, labels, columns)
        self._ids, first = StackedRows(ids), ids[0]
        if len(first.shape) != 1 or self._ids.n_rows != self.n_rows or first.dtype.kind not in "iuUS":
            raise InputError(
                f"{first.where}: expected {self.n_rows} ids, a vector of whole numbers or text, found shape "
                f"{(self._ids.n_rows, *first.shape[1:])} of {first.dtype}; give one for each row"
            )

    def _read_columns(self, names: Sequence[str], start: int, stop: int) -> "pa.Table":
        import pyarrow as pa  # few runs of arrays have ids

        blocks = (block.astype(block.dtype.newbyteorder("=")) for _, block in self._ids.pieces(start, stop))
        parts = [pa.array(np.strings.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids) for ids in blocks]
        return pa.table([pa.chunked_array(parts)], list(names))

    def fingerprint(self) -> Fingerprint:
        return super().fingerprint() | {"ids": self._ids.fingerprint()}


@lru_cache(maxsize=CACHED_HEADERS)
def _npy_rows(stamp: Stamp) -> Rows:
    with reading(stamp.path), open_file(stamp, HEADER_BYTES) as handle:
        layout = read_npy_header(handle, stamp.path)
    return ArrayRows(stamp, "", stamp.path, layout)


def read_npy_header(handle: IO[bytes], where: str) -> Layout:
    """The layout in the .npy header at the handle's position; its offset counts from the handle's start.

    Raises InputError.
    """
    formats = np.lib.format
    with reading(where, "NumPy's .npy format, as np.save writes it"):
        # Version 3 differs from 2 in the names of the fields of structured arrays, which are not matrices.
        is_first = formats.read_magic(handle) == (1, 0)
        read = formats.read_array_header_1_0 if is_first else formats.read_array_header_2_0
        shape, fortran, dtype = read(handle)
    return Layout(shape, dtype, "F" if fortran else "C", handle.tell())


def npz_shapes(path: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of the first archive by their keys, as `_shapes`. Raises InputError."""
    return _shapes(find_files(path, "path")[0])


def _shapes(stamp: Stamp) -> dict[str, tuple[int, ...]]:
    """Without arrays of Python objects, which cannot be read, unless there are no others."""
    layouts = {key: layout for key, (_, layout) in _npz_layouts(stamp, None).items()}
    readable = {key: layout for key, layout in layouts.items() if not layout.dtype.hasobject}
    return {key: layout.shape for key, layout in (readable or layouts).items()}


@lru_cache(maxsize=CACHED_HEADERS)
def _npz_layouts(stamp: Stamp, only: str | None) -> dict[str, tuple[zipfile.ZipInfo, Layout]]:
    """Place and layout of the arrays of an archive by their keys, or of the one with the key `only`."""
    layouts = {}
    with (
        reading(stamp.path, "an .npz archive, as np.savez writes it"),
        zipfile.ZipFile(path_or_file(stamp, HEADER_BYTES)) as archive,
    ):
        infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        members = {info.filename.removesuffix(".npy"): info for info in infos}
        if only not in {None, *members}:
            known = ", ".join(members) or "none"
            raise InputError(f"{stamp.path}: there is no array '{only}'; its arrays are: {known}")
        for key in members if only is None else [only]:
            where = f"{stamp.path}, array '{key}'"
            with reading(where, COMPRESSED), archive.open(members[key]) as member:
                layouts[key] = members[key], read_npy_header(member, where)
    return layouts


@lru_cache(maxsize=CACHED_HEADERS)
def _npz_rows(stamp: Stamp, key: str) -> Rows:
    (info, layout), where = _npz_layouts(stamp, key)[key], f"{stamp.path}, array '{key}'"
    layout.require(where, info.file_size == layout.end, info.file_size)
    if info.compress_type != zipfile.ZIP_STORED:
        return ArrayRows(stamp, info.filename, where, layout, is_packed=True)
    return ArrayRows(stamp, key, where, layout._replace(offset=_member_start(stamp, info) + layout.offset))


def _member_start(stamp: Stamp, info: zipfile.ZipInfo) -> int:
    # The name and extra field before the data may be longer here than in the archive's directory.
    with reading(stamp.path), open_file(stamp) as handle:
        handle.seek(info.header_offset)
        header = handle.read(_LOCAL_HEADER_BYTES)
    name_bytes, extra_bytes = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    return info.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes


@lru_cache(maxsize=CACHED_HEADERS)
def _idx_header(stamp: Stamp) -> tuple[Layout, bool]:
    """The layout with the shape of the samples, and whether the file is compressed."""
    with reading(stamp.path, COMPRESSED), open_file(stamp, HEADER_BYTES) as raw:
        compressed = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if compressed else raw as handle:
            return _read_idx_header(cast(IO[bytes], handle), stamp.path), compressed


def _idx_rows(stamp: Stamp) -> Rows:
    layout, compressed = _idx_header(stamp)
    n, *sample = layout.shape
    flat = (n, math.prod(sample)) if sample else (n,)
    return ArrayRows(stamp, "", stamp.path, layout._replace(shape=flat), is_packed=compressed)


def _image_shape(stamps: Sequence[Stamp]) -> tuple[int, ...] | None:
    """The shape of the samples, if they are images: (height, width), or (height, width, 3)."""
    shapes = {_idx_header(stamp)[0].shape[1:] for stamp in stamps}
    shape = shapes.pop()
    return shape if not shapes and (len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)) else None


def _read_idx_header(handle: IO[bytes], where: str) -> Layout:
    """IDX: two zero bytes, a type code, the number of dimensions, then each as a big-endian int32."""
    magic = handle.read(4)
    zeros, code, n_dims = magic[:2], magic[2:3], int.from_bytes(magic[3:])
    sizes = handle.read(4 * n_dims)
    if zeros != b"\0\0" or code not in _IDX_DTYPES or not 0 < 4 * n_dims == len(sizes):
        raise InputError(
            f"{where}: expected an IDX file (such as MNIST's), found the first bytes "
            f"{(magic + sizes[:12]).hex(' ') or 'missing'}{' only' if len(sizes) < 4 * n_dims else ''}; check the path "
            "and input.kind, or copy the file again"
        )
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    return Layout(shape, np.dtype(_IDX_DTYPES[code]), "C", 4 + 4 * n_dims)

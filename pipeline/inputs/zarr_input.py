"""Reader of Zarr arrays (formats 2 and 3), local or behind a URL."""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlparse

import numpy as np
import zarr
from zarr.abc.store import Store as ZarrStore
from zarr.core.sync import collect_aiterator

from ..core.errors import ConfigError, InputError
from ..core.patterns import is_url
from ..storage.bundles import Array
from ..storage.records import FORMAT
from ..storage.remote_objects import open_remote
from ..storage.zarr_stores import RetryingObjectStore
from .array_checks import check_columns, check_matrix, only_matrix
from .base import Fingerprint, Rows, Source
from .damage import reading
from .detect_kind import RUN_CURE
from .files import PathText, find_paths
from .stacked_files import FileSource

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from zarr.types import AnyArray as ZarrArray

IN_FLIGHT = 10  # chunks that zarr decodes at one time
HEADS = ("zarr.json", ".z")  # beginnings of metadata file names
NOT_CODING = {"shape", "attributes", "consolidated_metadata"}  # metadata that changes when rows are appended


class Location(NamedTuple):
    """One Zarr group or array: its folder or URL, and the obstore store behind a URL."""

    url: str
    remote: "ObjectStore | None"

    @property
    def can_list(self) -> bool:
        """Whether names can be listed; plain web servers cannot."""
        return self.remote is None or not self.url.startswith("http")


def open_zarr(
    url: PathText, array: str | None = None, labels: str | None = None, columns: Sequence[int] | None = None
) -> Source:
    """Points in the array `array` of the group at `url`, or in the only 2-D array there; labels in another array of it.

    A local path may be a glob. Raises InputError.
    """
    nodes = [(location, open_node(location)) for location in locate(os.fspath(url))]
    points = [_points(location, node, array, columns) for location, node in nodes]
    if labels is None:
        return FileSource(points, None)
    return FileSource(points, [ZarrRows(location, _member(location, node, labels), None) for location, node in nodes])


class ZarrRows(Rows):
    """One array; with `columns`, only the chunks of those columns are read."""

    def __init__(self, location: Location, array: "ZarrArray", columns: list[int] | None) -> None:
        self.where = f"{location.url}, array '{array.path}'" if array.path else location.url
        self.dtype = np.dtype(array.dtype)
        self.shape = array.shape if columns is None else (array.shape[0], len(columns))
        self._location, self._array, self._columns = location, array, columns
        self.detects_changes = location.can_list

    def bytes_beside(self, n_rows: int) -> int:
        """Chunks being decoded, each in stored and in decoded form."""
        chunks = self._array.chunks
        down, *across = self._array.cdata_shape
        n_chunks = min(-(-n_rows // chunks[0]) + 1, down) * math.prod(across)
        return 2 * min(n_chunks, IN_FLIGHT) * math.prod(chunks) * self.dtype.itemsize

    def read(self, start: int, stop: int) -> Array:
        rows = slice(start, stop)
        with reading(f"{self.where}, rows {start} to {stop - 1}"):
            if self._columns is None:
                return np.asarray(self._array[rows])
            return np.asarray(self._array.get_orthogonal_selection((rows, np.array(self._columns))))

    @cached_property
    def _files(self) -> list[tuple[str, int, str]]:
        """Name, size and time (remote: tag) of the array's files at the first call."""
        location, path = self._location, self._array.path
        if location.remote is None:
            return list(_list_folder(Path(location.url) / path))
        if not location.can_list:
            return []
        with reading(location.url):
            entries = [entry for batch in location.remote.list(path or None) for entry in batch]
        return [(entry["path"], entry["size"], str(entry["e_tag"] or entry["last_modified"])) for entry in entries]

    @cached_property
    def _states(self) -> dict[str, list[object]]:
        """Size and time of each file by its name in the array; remote names begin with the array's path."""
        prefix = "" if self._location.remote is None else f"{self._array.path}/"
        return {name.removeprefix(prefix): state for name, *state in self._files}

    def remark(self) -> str:
        """Number of missing chunks. Zarr reads them as the fill value, whether never written or lost."""
        n_chunks = math.prod(self._grid)
        n_missing = n_chunks - sum(not name.rpartition("/")[2].startswith(HEADS) for name, *_ in self._files)
        if n_missing <= 0 or not self.detects_changes:
            return ""
        return (
            f"{self.where}: {n_missing:,} of {n_chunks:,} chunks are missing; their rows are read as the fill value "
            f"{self._array.fill_value}, as Zarr does for chunks that were never written"
        )

    @property
    def _grid(self) -> list[int]:
        """Number of chunks (or shards) along each axis."""
        sizes = self._array.shards or self._array.chunks
        return [-(-extent // size) for extent, size in zip(self._array.shape, sizes, strict=True)]

    def known_stamp(self, start: int, stop: int) -> list[object]:
        """Name and encoding only: the state of the chunks would need a request."""
        coding = {"where": self.where, "dtype": str(self._array.dtype), "chunks": list(self._array.chunks)}
        return [coding, start, stop]

    def stamp(self, start: int, stop: int) -> list[object]:
        """The state of the chunks (or shards) that hold the rows, and the encoding."""
        metadata, down = self._array.metadata, (self._array.shards or self._array.chunks)[0]
        coding = {key: value for key, value in metadata.to_dict().items() if key not in NOT_CODING}
        chunks = product(range(start // down, -(-stop // down)), *map(range, self._grid[1:]))
        keys = [metadata.encode_chunk_key(chunk) for chunk in chunks]
        return [coding, self._columns, start, stop, [[key, self._states.get(key)] for key in keys]]

    def fingerprint(self) -> Fingerprint:
        """The array's shape and chunks, and a digest over name, size and time (remote: tag) of its files."""
        listing = hashlib.sha256(json.dumps(sorted(self._files)).encode())
        return {
            "name": Path(unquote(urlparse(self._location.url).path)).name,
            "array": self._array.path,
            "shape": list(self._array.shape),
            "dtype": str(self._array.dtype),
            "chunks": list(self._array.chunks),
            "files": len(self._files),
            "bytes": sum(size for _, size, _ in self._files),
            "listing": listing.hexdigest(),
        }


def _list_folder(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Name, size and time of the files. A vanished file is skipped: writers rename finished chunks into place."""
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.stat(os.path.join(directory, name))
            except FileNotFoundError:
                continue
            yield (os.path.relpath(os.path.join(directory, name), folder), status.st_size, str(status.st_mtime_ns))


def locate(url: str) -> list[Location]:
    if not is_url(url):
        return [Location(path, None) for path in find_paths(url, "url")]
    try:
        return [Location(url, open_remote(url))]
    except ConfigError as error:
        raise InputError(f"input.url: {error}") from error


def open_node(location: Location) -> "ZarrArray | zarr.Group":
    if location.remote is None:
        store: ZarrStore = zarr.storage.LocalStore(location.url, read_only=True)
    else:
        store = RetryingObjectStore(location.remote, read_only=True)
    with reading(location.url):
        try:
            return zarr.open(store, mode="r")
        except (zarr.errors.NodeNotFoundError, FileNotFoundError, NotADirectoryError) as error:
            raise InputError(
                f"input.url: expected a Zarr group or array at {location.url}, found none; check the path"
            ) from error


def _points(
    location: Location, node: "ZarrArray | zarr.Group", name: str | None, columns: Sequence[int] | None
) -> ZarrRows:
    if name is None and not isinstance(node, zarr.Array):
        name = only_matrix(location.url, "input.array", _arrays(location, node), "none that can be listed")
    array = node if name is None else _member(location, node, name)
    assert isinstance(array, zarr.Array)
    rows = ZarrRows(location, array, None)
    check_matrix(rows)
    return ZarrRows(location, array, check_columns(columns, rows.shape[1], rows.where))


def _member(location: Location, node: "ZarrArray | zarr.Group", name: str) -> "ZarrArray":
    if isinstance(node, zarr.Array):
        raise InputError(
            f"{location.url}: expected a group with an array '{name}', found a single array; leave out "
            "input.array and input.labels"
        )
    with reading(location.url):
        array = node.get(name)
    if not isinstance(array, zarr.Array):
        listed = ", ".join(_arrays(location, node)) or "none that can be listed"
        raise InputError(f"{location.url}: there is no array '{name}' in this group; its arrays are: {listed}")
    return array


def _arrays(location: Location, group: zarr.Group) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a group by its path; empty if the place cannot be listed.

    Those of subgroups are looked for if the group itself has none with two dimensions.
    """
    is_listed = group.metadata.consolidated_metadata is not None
    if not location.can_list and not is_listed:
        return {}
    with reading(location.url):
        if is_listed:
            members = dict(group.members())
        else:  # one by one: if one is damaged, members() leaves the errors of the others to asyncio, which prints them
            names = collect_aiterator(group.store.list_dir(group.path))
            members = {name: member for name in names if (member := group.get(name)) is not None}
    shapes = {name: member.shape for name, member in members.items() if isinstance(member, zarr.Array)}
    subgroups = {name: member for name, member in members.items() if isinstance(member, zarr.Group)}
    if any(len(shape) == 2 for shape in shapes.values()):
        return shapes
    return shapes | {
        f"{name}/{inner}": shape
        for name, subgroup in subgroups.items()
        for inner, shape in _arrays(location, subgroup).items()
    }


def zarr_shapes(url: str) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a group by its path; empty for a single array. Raises InputError."""
    location = locate(url)[0]
    node = open_node(location)
    if FORMAT in node.attrs:
        raise InputError(f"{url} is the store of a run: {RUN_CURE}. To embed one of its arrays, name it in input.array")
    return _arrays(location, node) if isinstance(node, zarr.Group) else {}

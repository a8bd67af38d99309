"""JSON objects, bundles of small arrays, and bundles in parts for several readers, each with its checksum."""

import io
import json
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..core.arrays import Array as Array
from ..core.errors import CorruptChunk
from .objects import open_objects
from .records import from_json, opened, sealed, to_json

T = TypeVar("T")
Item = TypeVar("Item")
CRC_BYTES = 4
PARTS = ".parts"
OBJECT_BYTES = 32 * 2**20
"""`write_parts` begins another object when one would grow beyond this; so a task does not hold all of its parts."""
BATCH_BYTES = 8 * 2**20
"""Expected bytes of the results that `map_together` collects at one time; a larger one is read alone."""
JOINED_AT_ONCE = 64 * 2**20
"""Bytes of parts that `joined_parts` reads at one time, or one part of all objects."""
LENGTH, N_PARTS = struct.Struct("<I"), struct.Struct("<I")
ENTRY = struct.Struct("<QQI")  # offset and length of a part, number of the object that holds it
ENTRY_BYTES = ENTRY.size + CRC_BYTES
INDEX_START = N_PARTS.size + CRC_BYTES
CHANGED_IN_TRANSIT = (
    "the first read had a wrong checksum or could not be decoded, the second read was correct: the bytes were damaged "
    "in transfer, not in the store. Use https, and check the network and the memory of this machine"
)


class Bundles:
    """JSON objects and bundles of arrays under one URL. Bytes that were damaged in transfer are read a second time."""

    def __init__(self, url: str) -> None:
        self.objects = open_objects(url)
        self.url = self.objects.url
        self.before_write: Callable[[], None] = lambda: None
        """Called before every write of data; an exception raised here prevents the write."""
        self.bundles_written: set[str] = set()
        """Names of the bundles that were written here and not deleted again."""

    def _read_twice(self, name: str, read: Callable[[], T]) -> T:
        """The result of a read; a failed checksum is an error only if a second read fails too."""
        try:
            return read()
        except (CorruptChunk, ValueError, RuntimeError) as error:
            if isinstance(error, CorruptChunk) and "missing" in error.detail:
                raise
            value = read()
            reason = str(error).split(". ")[0]
            print(f"lle: warning: {self.url}/{name}: {CHANGED_IN_TRANSIT} ({reason})", file=sys.stderr)
            return value

    def write_bundle(self, name: str, **arrays: Array) -> None:
        """Several small arrays as one object: an .npz followed by its CRC-32 (four bytes)."""
        self.before_write()
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        buffer.write(_crc(buffer.getbuffer(), name))
        self.objects.put(f"{name}.npz", buffer.getvalue())
        self.bundles_written.add(name)

    def delete_bundle(self, name: str) -> None:
        self.objects.delete_objects([f"{name}.npz"])
        self.bundles_written.discard(name)

    def read_bundle(self, name: str) -> dict[str, Array]:
        """The arrays of a bundle. Raises CorruptChunk if it is missing or damaged."""
        data = self._read_twice(name, lambda: _checked(self.objects.get(f"{name}.npz"), name, "bundle"))
        with np.load(io.BytesIO(data), allow_pickle=False) as loaded:
            return {key: loaded[key] for key in loaded.files}

    def read_bundles(self, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """As `read_bundle` for several small bundles, in their order.

        Up to 16 are read at one time from an object store, whatever their size.
        """
        return self.map_together(self.read_bundle, names, [BATCH_BYTES // self.objects.n_together] * len(names))

    def write_parts(self, name: str, n_parts: int, parts: Iterable[tuple[int, Mapping[str, Array]]]) -> None:
        """Arrays for up to `n_parts` readers, in one object from which each reads its range; parts may be missing.

        The object holds the number of parts, an entry for each part, and then the parts, each followed by its CRC-32.
        Parts beyond OBJECT_BYTES are in further objects, which are written first.
        """
        index, pending, size, number = [(0, 0, 0)] * n_parts, list[bytes](), 0, 1
        for part, arrays in parts:
            data = _packed(arrays, name)
            if pending and size + len(data) > OBJECT_BYTES:
                self.before_write()
                self.objects.put(_object_of(name, number), b"".join(pending))
                pending, size, number = [], 0, number + 1
            index[part] = size, len(data), number
            pending.append(data)
            size += len(data)
        # The object with the index is written last: a reader that finds it finds all the others. It also holds the
        # parts that are still pending, behind the index, so their offsets grow by its length.
        first = INDEX_START + n_parts * ENTRY_BYTES
        entries = (
            (first + offset, length, 0) if in_object == number else (offset, length, in_object)
            for offset, length, in_object in index
        )
        head = [N_PARTS.pack(n_parts), *(ENTRY.pack(*entry) for entry in entries)]
        self.before_write()
        self.objects.put(_object_of(name, 0), b"".join([*(data + _crc(data, name) for data in head), *pending]))
        self.bundles_written.add(f"{name}{PARTS}")

    def read_parts(self, names: Sequence[str], part: int) -> Iterator[dict[str, Array]]:
        """The same part of several bundles, in their order; {} if a bundle does not have it.

        Several are read at one time from an object store. Raises CorruptChunk if an object is missing or damaged.
        """
        entries = list(self.map_together(lambda name: self._entries(name, part, part + 1), names))
        lengths = [int(length) for _, length, _ in np.concatenate(entries)] if entries else []
        pieces = self.map_together(
            lambda item: self._between(*item, part), list(zip(names, entries, strict=True)), lengths
        )
        for [piece] in pieces:
            yield _unpacked(piece) if piece else {}

    def joined_parts(self, names: Sequence[str], n_parts: int) -> Iterator[tuple[int, dict[str, Array]]]:
        """Each part of several bundles together, for `write_parts`; `read_joined` reads it."""
        indexes = list(self.map_together(lambda name: self._entries(name, 0, n_parts), names))
        lengths = np.array([index[:, 1] for index in indexes])
        # Parts [first, past) are read at one time: as many as JOINED_AT_ONCE holds, and at least one.
        ends, first = np.cumsum(lengths.sum(axis=0)), 0
        while first < n_parts:
            low = int(ends[first - 1]) if first else 0
            past = max(first + 1, int(np.searchsorted(ends, low + JOINED_AT_ONCE, side="right")))
            read = [self._between(name, index[first:past], first) for name, index in zip(names, indexes, strict=True)]
            for part, pieces in enumerate(zip(*read, strict=True), first):
                if any(pieces):
                    data, sizes = np.frombuffer(b"".join(pieces), np.uint8), np.array([len(piece) for piece in pieces])
                    yield part, {"sizes": sizes, "data": data}
            first = past

    def read_joined(self, names: Sequence[str], part: int) -> Iterator[dict[str, Array]]:
        """As `read_parts` for the bundles that were joined to these, in their order."""
        for joined in filter(None, self.read_parts(names, part)):
            for end, size in zip(np.cumsum(joined["sizes"]), joined["sizes"], strict=True):
                yield _unpacked(joined["data"][end - size : end].tobytes()) if size else {}

    def _entries(self, name: str, first: int, past: int) -> npt.NDArray[np.int64]:
        """The entries of parts [first, past) of a bundle: (past - first, 3)."""

        def read() -> npt.NDArray[np.int64]:
            start, n_bytes = INDEX_START + first * ENTRY_BYTES, (past - first) * ENTRY_BYTES
            stored = self.objects.get_range(_object_of(name, 0), start, n_bytes)
            pieces = (stored and stored[at : at + ENTRY_BYTES] for at in range(0, n_bytes, ENTRY_BYTES))
            checked = (_checked(piece, name, f"entry {part}") for part, piece in enumerate(pieces, first))
            return np.array([ENTRY.unpack(entry) for entry in checked], np.int64).reshape(-1, 3)

        return self._read_twice(name, read)

    def _between(self, name: str, entries: npt.NDArray[np.int64], first: int) -> list[bytes]:
        """The parts of a bundle with these entries, from part `first` on, without their CRC-32; empty if missing.

        One range of each object is read, from the first of these parts in it to the last.
        """
        held: dict[int, list[tuple[int, int, int]]] = {}
        for at, (offset, length, number) in enumerate(entries.tolist()):
            if length:
                held.setdefault(number, []).append((at, offset, offset + length))

        def read() -> list[bytes]:
            pieces = [b""] * len(entries)
            for number, ranges in held.items():
                start = min(low for _, low, _ in ranges)
                n_bytes = max(high for _, _, high in ranges) - start
                stored = self.objects.get_range(_object_of(name, number), start, n_bytes)
                for at, low, high in ranges:
                    pieces[at] = _checked(stored and stored[low - start : high - start], name, f"part {first + at}")
            return pieces

        return self._read_twice(name, read)

    def map_together(
        self, function: Callable[[Item], T], items: Sequence[Item], n_bytes: Sequence[int] | None = None
    ) -> Iterator[T]:
        """The results of a function that reads or writes, for several items, in their order.

        On an object store, where most of the time of a request is waiting, several calls run at one time. `n_bytes` are
        the expected bytes of each result; None if they are small.
        """
        if self.objects.n_together == 1 or len(items) < 2:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(self.objects.n_together) as pool:
            for batch in _batches(n_bytes or [0] * len(items)):
                yield from pool.map(function, items[batch])

    def parts_below(self, folder: str, n_writers: int) -> list[str]:
        """Names of the bundles in parts below a folder, sorted; the last number of a name is the task that wrote it.

        Raises CorruptChunk if one of the tasks 0 to n_writers - 1 has none: then data were deleted, not just empty.
        """
        names = sorted(name.removesuffix(PARTS) for name in self.objects.names(folder) if name.endswith(PARTS))
        if missing := set(range(n_writers)) - {int(name.rsplit("/", 1)[1]) for name in names}:
            raise CorruptChunk(f"{folder}/{min(missing):05d}", "parts", "it is missing")
        return names

    def check_parts(self, name: str) -> None:
        """Read all parts of a bundle. Raises CorruptChunk if an object is missing or damaged."""
        head = self._read_twice(
            name, lambda: _checked(self.objects.get_range(_object_of(name, 0), 0, INDEX_START), name, "index")
        )
        [n_parts] = N_PARTS.unpack(head)
        self._between(name, self._entries(name, 0, n_parts), 0)

    def has_bundle(self, name: str) -> bool:
        return self.objects.exists(f"{name}.npz")

    def put_json(self, name: str, value: dict[str, object]) -> None:
        self.objects.put(name, json.dumps(sealed(name, value), indent=1).encode())

    def get_json(self, name: str) -> dict[str, object] | None:
        """A JSON object; None if it is missing or does not match its checksum."""

        def read() -> dict[str, object] | None:
            if (data := self.objects.get(name)) is None:
                return None
            if (content := opened(name, json.loads(data))) is None:
                raise CorruptChunk(name, "record", "its CRC-32 differs")
            return content

        try:
            return self._read_twice(name, read)
        except (CorruptChunk, ValueError, RecursionError):
            return None

    def put_record(self, name: str, record: object) -> None:
        self.put_json(name, to_json(record))

    def read_record(self, name: str, kind: type[T]) -> T | None:
        """A dataclass that was stored as a JSON object (storage/records.py); None if it is missing or damaged."""
        return from_json(kind, self.get_json(name))

    def read_records(self, names: Sequence[str], kind: type[T]) -> list[T | None]:
        """As `read_record` for several names, in their order; several are read at one time from an object store."""
        return list(self.map_together(lambda name: self.read_record(name, kind), names))


def _packed(arrays: Mapping[str, Array], name: str) -> bytes:
    """Arrays as bytes: names, dtypes and shapes in JSON with its length in front, the elements, and their `_crc`.

    An .npz takes a tenth of a millisecond more to write and to read, and there is a part for each pair of tasks.
    """
    head = json.dumps([(key, array.dtype.str, array.shape) for key, array in arrays.items()]).encode()
    pieces: list[Any] = [LENGTH.pack(len(head)), head, *map(np.ascontiguousarray, arrays.values())]
    checksum = reduce(lambda crc, piece: zlib.crc32(piece, crc), pieces, zlib.crc32(name.encode()))
    return b"".join([*pieces, checksum.to_bytes(CRC_BYTES, "little")])


def _unpacked(data: bytes) -> dict[str, Array]:
    """The arrays of `_packed` (without its CRC-32), read-only views of `data`."""
    [length] = LENGTH.unpack_from(data)
    position, arrays = LENGTH.size + length, dict[str, Array]()
    for key, dtype, shape in json.loads(data[LENGTH.size : position]):
        arrays[key] = np.ndarray(shape, dtype, data, position)
        position += arrays[key].nbytes
    return arrays


def _crc(data: bytes | memoryview, name: str) -> bytes:
    """CRC-32 of a bundle's name and of data in it: swapped objects are detected."""
    return zlib.crc32(data, zlib.crc32(name.encode())).to_bytes(CRC_BYTES, "little")


def _checked(stored: bytes | None, name: str, chunk: str) -> bytes:
    """Stored bytes without their CRC-32. Raises CorruptChunk if it differs, or if the object is missing (None)."""
    if stored is None:
        raise CorruptChunk(name, chunk, "the object is missing")
    data = stored[:-CRC_BYTES]
    if _crc(data, name) != stored[-CRC_BYTES:] or not data:
        raise CorruptChunk(name, chunk, "its CRC-32 differs")
    return data


def _object_of(name: str, number: int) -> str:
    """The name of an object of a bundle in parts; 0 is the one with the index."""
    return f"{name}{PARTS}.{number}" if number else f"{name}{PARTS}"


def _batches(lengths: Sequence[int]) -> Iterator[slice]:
    """Slices of consecutive items with at most BATCH_BYTES together, or with one item.

    >>> list(_batches([2**22, 2**22, 1, 2**24]))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    start, total = 0, 0
    for position, length in enumerate(lengths):
        if position > start and total + length > BATCH_BYTES:
            yield slice(start, position)
            start, total = position, 0
        total += length
    if lengths:
        yield slice(start, len(lengths))

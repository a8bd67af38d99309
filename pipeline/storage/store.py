"""The store of a run: zarr arrays written by whole blocks, bundles of small arrays, JSON objects. The only zarr code.

A block is a chunk (or shard) along an array's first axis, so two tasks never write the same object. Every chunk has a
CRC-32C. Reading raises CorruptChunk if the checksum differs, or if a chunk of a finished block is missing (zarr itself
would return the fill value).
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import Ints
from ..core.errors import CorruptChunk, DamagedStore, MissingArray
from .array_specs import PlannedArray
from .bundles import Array
from .run_group import FIT, GROUP, RunGroup
from .storage_errors import persist, storage_errors

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from zarr.types import AnyArray as ZarrArray


class Store(RunGroup):
    """Arrays, bundles and JSON objects under one URL, stored by zarr unless the scheme of the URL has another class."""

    def __new__(cls, url: str) -> "Store":
        return super().__new__(STORE_CLASSES.get(url.partition("://")[0], cls) if cls is Store else cls)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._arrays: dict[str, ZarrArray] = {}

    def erase(self) -> None:
        """Remove everything but the run lock. Records go first, so that a kill leaves no record without its arrays."""
        self.objects.delete("_run/steps")
        for top in sorted({name.split("/")[0] for name in self.objects.names("")} - {"_run"}):
            self.objects.delete(top)
        self._arrays.clear()

    def delete(self, name: str) -> None:
        """Delete an array, or a folder of bundles."""
        self.objects.delete(name)
        self._arrays.pop(name, None)

    def take(self, other: "Store", names: Iterable[str]) -> None:
        names_to_copy = []
        for name in names:
            self.delete(name)
            names_to_copy += other.objects.names(name) or [name] * other.objects.exists(name)
        self.objects.copy(names_to_copy, other.objects)

    # --- arrays

    def create(self, planned: PlannedArray) -> None:
        """Create an array, replacing an old one. Raises StoreError if the store cannot be written."""
        from .zarr_stores import array_metadata  # commands that read no array start faster without

        spec, rows = planned.spec, planned.block
        parts = math.gcd(rows, spec.parts) if spec.parts else 1
        self.delete(spec.name)
        self._create_node(spec.name, array_metadata(planned.shape, planned.dtype, rows // parts, rows, spec))

    def _create_node(self, name: str, metadata: dict[str, object]) -> None:
        """Write the metadata of an array or a group, after those of the groups above it."""
        parts = name.split("/")[:-1]
        for depth in range(len(parts)):
            self._put_node("/".join(parts[: depth + 1]), GROUP)
        self._put_node(name, metadata)

    def array(self, name: str) -> "ZarrArray":
        """The zarr array of a name. Raises StoreError if it does not exist."""
        if name in self._arrays:
            return self._arrays[name]
        with storage_errors(f"{self.url}/{name}"):
            if (metadata := self._node(name)) is None:
                raise MissingArray(f"{self.url}: has no array '{name}' yet (`lle status` shows the progress)")
            from .zarr_stores import open_array  # classes of zarr

            self._arrays[name] = open_array(self.objects.place(), name, metadata)
        return self._arrays[name]

    def holds(self, planned: PlannedArray) -> bool:
        """Whether the array is there as planned; False if its metadata are damaged."""
        array, size = self.usable_array(planned.spec.name), (planned.shape, np.dtype(planned.dtype), planned.block)
        return array is not None and (array.shape, array.dtype, block_of(array)) == size

    def usable_array(self, name: str) -> "ZarrArray | None":
        """As `array`; None if it does not exist or its metadata are damaged."""
        try:
            return self.array(name)
        except (MissingArray, CorruptChunk):
            return None

    def has_array(self, name: str) -> bool:
        return self.objects.exists(f"{name}/zarr.json")

    def write(self, name: str, start: int, values: Array) -> None:
        """Write whole blocks from row `start` on. Raises ValueError if the rows are not whole blocks."""
        from .zarr_stores import write_blocks  # classes of zarr

        array = self.require_whole_blocks(name, start, len(values))
        self.before_write()
        persist(lambda: write_blocks(array, start, values), f"{self.url}/{name}")

    def require_whole_blocks(self, name: str, start: int, n_rows: int) -> "ZarrArray":
        """The array of a name. Raises ValueError if `n_rows` rows from row `start` on are not whole blocks of it."""
        array = self.array(name)
        block, stop = block_of(array), start + n_rows
        if start % block or stop > array.shape[0] or (stop % block and stop != array.shape[0]):
            raise ValueError(f"{name}[{start}:{stop}] is not a whole number of blocks of {block} rows")
        return array

    def read(self, name: str, start: int, stop: int) -> Array:
        """Rows [start, stop). Raises CorruptChunk if a chunk is missing or fails its checksum."""
        array = self.array(name)
        block = block_of(array)
        with storage_errors(f"{self.url}/{name}"):
            try:
                return self._read_twice(name, lambda: np.asarray(array[start:stop]))
            except (ValueError, RuntimeError) as error:
                if start // block == (stop - 1) // block:
                    raise CorruptChunk(name, str(start // block), str(error).split(". ")[0]) from None
        chunks = range(start // block, -(-stop // block))  # one by one, to find the damaged one
        return np.concatenate([self.read(name, max(start, i * block), min(stop, (i + 1) * block)) for i in chunks])

    def read_all(self, name: str) -> Array:
        return self.read(name, 0, self.array(name).shape[0])

    def in_blocks(self, name: str) -> Iterator[tuple[int, Array]]:
        """The rows of each block of an array, with the number of the first one."""
        n_rows, size = self.array(name).shape[0], block_of(self.array(name))
        for start in range(0, n_rows, size):
            yield start, self.read(name, start, min(start + size, n_rows))

    def gather(self, name: str, rows: Ints) -> Array:
        """The rows of an ascending list; each chunk that holds one of them is read once, and no other chunk."""
        array = self.array(name)
        block, chunk = block_of(array), array.chunks[0]
        out = np.empty((len(rows), *array.shape[1:]), array.dtype)
        # Rows are read as slices. A slice ends where at least one whole chunk lies between two rows, and at the end of
        # a block, because each block is an object of its own.
        is_gap = (np.diff(rows // chunk) > 1) | (np.diff(rows // block) > 0)
        cuts = list(pairwise([0, *(np.flatnonzero(is_gap) + 1).tolist(), len(rows)])) if len(rows) else []
        slices = [(int(rows[start]), int(rows[stop - 1]) + 1) for start, stop in cuts]
        for (start, stop), (low, _), values in zip(cuts, slices, self.read_slices(name, slices), strict=True):
            out[start:stop] = values[rows[start:stop] - low]
        return out

    def read_slices(self, name: str, slices: Sequence[tuple[int, int]]) -> Iterator[Array]:
        """The rows of each [start, stop), in order; several slices are read at one time from an object store."""
        array = self.array(name)
        chunk, row_bytes = array.chunks[0], array.dtype.itemsize * math.prod(array.shape[1:])
        n_chunks = [(stop - 1) // chunk - start // chunk + 1 for start, stop in slices]  # chunks are read whole
        n_bytes = [row_bytes * chunk * count for count in n_chunks]
        return self.map_together(lambda ends: self.read(name, *ends), slices, n_bytes)

    # --- sparse rows

    def write_rows(self, group: str, block: int, first_row: int, rows: "csr_array", chunk: int = 0) -> None:
        """A block of CSR rows as `<group>/<block>/{indptr,indices,data}`; attributes: first row, shape.

        Each array is one chunk, or chunks of `chunk` numbers, of which the last is padded: then `append_rows` adds
        further rows.
        """
        name = f"{group}/{block:05d}"
        self.before_write()
        self.objects.delete(name)
        attributes = {"first_row": first_row, "shape": list(rows.shape)}
        self._create_node(name, {**GROUP, "attributes": attributes})
        for part in ("indptr", "indices", "data"):
            values = getattr(rows, part)
            if chunk and part == "indptr":
                values = values.astype(np.int64)  # the appended rows may have any number of entries
            self._put_part(f"{name}/{part}", 0, values, chunk or max(1, len(values)))

    def _put_part(self, name: str, start: int, values: Array, chunk: int) -> None:
        """Write one of the arrays of a block of CSR rows from position `start` on, a multiple of `chunk`."""
        from .zarr_stores import array_metadata, open_array  # classes of zarr

        metadata = array_metadata((start + len(values),), values.dtype, chunk, chunk)
        self._put_node(name, metadata)
        self._arrays[name] = open_array(self.objects.place(), name, metadata)
        self.write(name, start, values)

    def append_rows(self, group: str, block: int, rows: "csr_array") -> None:
        """Add CSR rows at the end of a block that was written with a `chunk`."""
        name = f"{group}/{block:05d}"
        node = self._node(name)
        assert node is not None
        n_rows, n_columns = node["attributes"]["shape"]
        n_entries = int(self.read(f"{name}/indptr", n_rows, n_rows + 1)[0])
        # The shape is written last. A task that is killed before has no marker, and writes the block again.
        for part, end, values in (
            ("indices", n_entries, rows.indices),
            ("data", n_entries, rows.data),
            ("indptr", n_rows + 1, rows.indptr[1:].astype(np.int64) + n_entries),
        ):
            chunk = block_of(self.array(f"{name}/{part}"))
            start = end // chunk * chunk  # the last chunk is written again
            before = self.read(f"{name}/{part}", start, end)
            self._put_part(f"{name}/{part}", start, np.concatenate([before, values.astype(before.dtype)]), chunk)
        shape = [n_rows + rows.shape[0], n_columns]
        self._put_node(name, {**node, "attributes": {**node["attributes"], "shape": shape}})

    def read_rows(self, group: str, block: int) -> "csr_array":
        """A block of CSR rows. Raises CorruptChunk."""
        from scipy.sparse import csr_array

        name = f"{group}/{block:05d}"
        try:
            data, indices, indptr = (self.read_all(f"{name}/{part}") for part in ("data", "indices", "indptr"))
            node = self._node(name)
        except MissingArray:
            node = None
        if node is None:
            raise CorruptChunk(name, "zarr.json", "it is missing")
        if len(indices) <= np.iinfo(indices.dtype).max:  # SciPy would make both int64
            indptr = indptr.astype(indices.dtype, copy=False)
        return csr_array((data, indices, indptr), shape=tuple(node["attributes"]["shape"]))


STORE_CLASSES: dict[str, type[Store]] = {}
"""The class for URLs of a scheme; store_in_memory.py adds the one for stores in memory."""


def fitted_store(store: Store) -> Store:
    """The store of the fitted points of a run: the store itself, or its group `fit` with input.fit_sample."""
    return Store(f"{store.url}/{FIT}") if has_fit(store) else store


def has_fit(store: Store) -> bool:
    """Whether the store holds placed rows, and their fit in its group `fit`."""
    return store.attributes().get(FIT) is not None


@contextlib.contextmanager
def read_elsewhere(store: Store) -> Iterator[None]:
    """Read another run's store: damage there is a StoreError that names the store; this run cannot repair it."""
    try:
        yield
    except CorruptChunk as error:
        raise DamagedStore(
            f"{store.url}: {error}",
            advice="run `lle verify` on this store, which marks damaged blocks as not done, and then its job again",
        ) from None


def block_of(array: "ZarrArray") -> int:
    """Rows per block of an array: its shard size, or its chunk size."""
    return int((array.shards or array.chunks)[0])


class StoredArray:
    """A stored array that a Dask task can carry: it opens the store on reading and verifies checksums."""

    def __init__(self, url: str, name: str) -> None:
        array = Store(url).array(name)
        self.url, self.name = url, name
        self.shape, self.dtype, self.ndim = array.shape, np.dtype(array.dtype), len(array.shape)
        self.chunks = (block_of(array), *array.shape[1:])

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        start, stop, step = index[0].indices(self.shape[0])
        return np.asarray(Store(self.url).read(self.name, start, stop)[(slice(None, None, step), *index[1:])])

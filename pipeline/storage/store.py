"""The store of a run: zarr arrays written by whole blocks, bundles of small arrays, JSON objects. The only zarr code.

A block is a chunk (or shard) along an array's first axis, so two tasks never write the same object. Every chunk has a
CRC-32C. Reading raises CorruptChunk if the checksum differs, or if a chunk of a finished block is missing (zarr itself
would return the fill value).
"""

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..core.errors import CorruptChunk, StoreError
from .array_specs import PlannedArray
from .records import has_shape
from .run_group import RunGroup
from .storage_errors import explain_remote, persist, storage_errors

if TYPE_CHECKING:
    import zarr
    from scipy.sparse import csr_array

Array = npt.NDArray[Any]

GROUP = {"attributes": {}, "zarr_format": 3, "node_type": "group"}
WRITE_ALL: Any = {"write_empty_chunks": True}  # also store chunks that equal the fill value


class Store(RunGroup):
    """Arrays, bundles and JSON objects under one URL, stored by zarr unless the scheme of the URL has another class."""

    def __new__(cls, url: str) -> "Store":
        return super().__new__(STORE_CLASSES.get(url.partition("://")[0], cls) if cls is Store else cls)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._arrays: dict[str, zarr.Array[Any]] = {}

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
        """Replace arrays and bundles by those of another store."""
        names_to_copy = []
        for name in names:
            self.delete(name)
            names_to_copy += other.objects.names(name) or [name] * other.objects.exists(name)
        self.objects.copy(names_to_copy, other.objects)

    def take_block(self, other: "Store", names: Iterable[str], block: int) -> None:
        """Replace one block of some arrays by that of another store of the same block shape; no data is read here."""
        self.objects.copy([self._object_of(self.array(name), name, block) for name in names], other.objects)

    def _zarr_store(self) -> Any:
        place = self.objects.place()
        if isinstance(place, str):
            return place
        from .zarr_stores import RetryingObjectStore  # noqa: PLC0415 (classes of zarr)

        return RetryingObjectStore(place)

    # --- arrays

    def create(self, planned: PlannedArray) -> None:
        """Create an array, replacing an old one. Raises StoreError if the store cannot be written."""
        import zarr  # noqa: PLC0415 (commands that read no array start faster without)

        spec, rows = planned.spec, planned.block
        parts = math.gcd(rows, spec.parts) if spec.parts else 1
        inner, shard = rows // parts, rows if spec.parts else None
        tail = planned.shape[1:]
        self.objects.delete(spec.name)
        self._arrays.pop(spec.name, None)

        def create() -> None:
            zarr.create_array(
                self._zarr_store(), name=spec.name, shape=planned.shape, dtype=planned.dtype,
                chunks=(inner, *tail), shards=None if shard is None else (shard, *tail),
                compressors=_compressors(spec.kind), filters=None, dimension_names=spec.dims,
                fill_value=np.nan if np.dtype(planned.dtype).kind == "f" else 0,
                attributes={"meaning": spec.meaning, "unit": spec.unit, "block": rows},
                config=WRITE_ALL, overwrite=True,
            )  # fmt: skip

        self._create_node(spec.name, create)

    def _create_node(self, name: str, create: Callable[[], Any]) -> None:
        """Create an array or a group. If zarr cannot read the metadata of a group above it, write these again."""
        where = f"{self.url}/{name}"
        try:
            persist(create, where)
        except StoreError:
            raise
        except Exception as error:  # zarr raises errors of many types for damaged metadata
            parts = name.split("/")[:-1]
            above = ["/".join(parts[: depth + 1]) + "/zarr.json" for depth in range(len(parts))]
            damaged = [path for path in above if self.get_record(path, {"node_type": str, "attributes": {}}) != GROUP]
            if not damaged:
                raise
            print(f"lle: warning: {where}: damaged metadata above it are written again ({error})", file=sys.stderr)
            for path in damaged:
                self.objects.delete(path)
            persist(create, where)

    def array(self, name: str) -> "zarr.Array[Any]":
        """The zarr array of a name. Raises StoreError if it does not exist."""
        if name not in self._arrays:
            with storage_errors(f"{self.url}/{name}"):
                self._arrays[name] = self._read_twice(name, lambda: self._open_array(name))
        return self._arrays[name]

    def _open_array(self, name: str) -> "zarr.Array[Any]":
        import zarr  # noqa: PLC0415

        try:
            array = zarr.open_array(self._zarr_store(), path=name, mode="r+", zarr_format=3)
        except (zarr.errors.ArrayNotFoundError, FileNotFoundError):
            raise StoreError(f"{self.url}: has no array '{name}' yet (`lle status` shows the progress)") from None
        except Exception as error:  # zarr raises errors of many types for metadata of a wrong shape
            if isinstance(error, OSError) or explain_remote(error) is not None:
                raise
            raise CorruptChunk(name, "zarr.json", f"{type(error).__name__}: {error}") from None
        if array.ndim == 0 or not array.chunks[0]:
            raise CorruptChunk(name, "zarr.json", f"an array of shape {array.shape} in chunks of {array.chunks}")
        if not has_shape(array.metadata.attributes, {"block?": int}):  # zarr does not check them
            raise CorruptChunk(name, "zarr.json", "its attributes are damaged")
        return array.with_config(WRITE_ALL)

    def holds(self, planned: PlannedArray) -> bool:
        """Whether the array is there as planned; False if its metadata are damaged."""
        try:
            array = self.array(planned.spec.name)
        except CorruptChunk:
            return False
        except StoreError:
            if self.has_array(planned.spec.name):
                raise
            return False
        layout = (array.shape, array.dtype, block_of(array), array.attrs.get("block"))
        return layout == (planned.shape, np.dtype(planned.dtype), planned.block, planned.block)

    def has_array(self, name: str) -> bool:
        return self.objects.exists(f"{name}/zarr.json")

    def write(self, name: str, start: int, values: Array) -> None:
        """Write whole blocks from row `start` on. Raises ValueError if the rows are not whole blocks."""
        array = self.require_whole_blocks(name, start, len(values))
        block, stop = block_of(array), start + len(values)
        self.before_write()

        def write() -> None:
            try:
                array[start:stop] = values
            except (ValueError, RuntimeError):  # zarr reads the shard before replacing it, and that shard is damaged
                for chunk in range(start // block, -(-stop // block)):
                    self.objects.delete(self._object_of(array, name, chunk))
                array[start:stop] = values

        persist(write, f"{self.url}/{name}")

    def require_whole_blocks(self, name: str, start: int, n_rows: int) -> "zarr.Array[Any]":
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
                from .zarr_stores import with_all_chunks  # noqa: PLC0415 (classes of zarr)

                return self._read_twice(name, lambda: np.asarray(with_all_chunks(array)[start:stop]))
            except (ValueError, RuntimeError) as error:
                if start // block == (stop - 1) // block:
                    raise CorruptChunk(name, str(start // block), str(error).split(". ")[0]) from None
        chunks = range(start // block, -(-stop // block))  # one by one, to find the damaged one
        return np.concatenate([self.read(name, max(start, i * block), min(stop, (i + 1) * block)) for i in chunks])

    @staticmethod
    def _object_of(array: "zarr.Array[Any]", name: str, block: int) -> str:
        """The name of the object that holds a block of an array."""
        return f"{name}/{array.metadata.encode_chunk_key((block,) + (0,) * (array.ndim - 1))}"

    def read_all(self, name: str) -> Array:
        """The whole array."""
        return self.read(name, 0, self.array(name).shape[0])

    def gather(self, name: str, rows: npt.NDArray[np.integer]) -> Array:
        """The rows of an ascending list; each chunk that holds one of them is read once, and no other chunk."""
        array = self.array(name)
        block, chunk = block_of(array), array.chunks[0]
        out = np.empty((len(rows), *array.shape[1:]), array.dtype)
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
        import zarr  # noqa: PLC0415

        name = f"{group}/{block:05d}"
        attributes: Any = {"first_row": first_row, "shape": list(rows.shape)}
        self.before_write()

        def write() -> None:
            self.objects.delete(name)
            subgroup = zarr.open_group(self._zarr_store(), path=name, mode="w", attributes=attributes)
            for part in ("indptr", "indices", "data"):
                values = getattr(rows, part)
                if chunk and part == "indptr":
                    values = values.astype(np.int64)  # the appended rows may have any number of entries
                chunks = (chunk or max(1, len(values)),)
                stored_array = subgroup.create_array(
                    part, shape=(len(values),), dtype=values.dtype, chunks=chunks, filters=None,
                    compressors=_compressors("float" if part == "data" else "index"), config=WRITE_ALL,
                )  # fmt: skip
                stored_array[:] = values

        self._create_node(name, write)

    def append_rows(self, group: str, block: int, rows: "csr_array") -> None:
        """Add CSR rows at the end of a block that was written with a `chunk`."""
        import zarr  # noqa: PLC0415

        name = f"{group}/{block:05d}"
        self.before_write()

        def write() -> None:
            subgroup: Any = zarr.open_group(self._zarr_store(), path=name, mode="r+")
            n_rows, n_columns = subgroup.attrs["shape"]
            n_entries = int(subgroup["indptr"][n_rows])
            for part, start, values in (
                ("indices", n_entries, rows.indices),
                ("data", n_entries, rows.data),
                ("indptr", n_rows + 1, rows.indptr[1:].astype(np.int64) + n_entries),
            ):
                array = subgroup[part].with_config(WRITE_ALL)
                array.resize((start + len(values),))
                array[start:] = values
            subgroup.attrs["shape"] = [n_rows + rows.shape[0], n_columns]

        persist(write, f"{self.url}/{name}")

    def read_rows(self, group: str, block: int) -> "csr_array":
        """A block of CSR rows. Raises CorruptChunk."""
        from scipy.sparse import csr_array  # noqa: PLC0415

        name = f"{group}/{block:05d}"
        data, indices, indptr = (self.read_all(f"{name}/{part}") for part in ("data", "indices", "indptr"))
        head = self.get_record(f"{name}/zarr.json", {"attributes": {"shape": [int]}})
        if head is None:
            raise CorruptChunk(name, "zarr.json", "it is missing or damaged")
        try:
            if len(indices) <= np.iinfo(indices.dtype).max:  # SciPy would make both int64
                indptr = indptr.astype(indices.dtype, copy=False)
            return csr_array((data, indices, indptr), shape=tuple(head["attributes"]["shape"]))
        except ValueError as error:
            raise CorruptChunk(name, "zarr.json", str(error)) from None


STORE_CLASSES: dict[str, type[Store]] = {}
"""The class for URLs of a scheme; store_in_memory.py adds the one for stores in memory."""


@contextlib.contextmanager
def read_elsewhere(store: Store) -> Iterator[None]:
    """Read another run's store: damage there is a StoreError that names the store; this run cannot repair it."""
    try:
        yield
    except CorruptChunk as error:
        raise StoreError(
            f"{store.url}: {error}. Nothing was computed from it: run `lle verify` on that store, which marks damaged "
            f"blocks as not done, and run its job again to compute them"
        ) from None


def _compressors(kind: str) -> list[Any]:
    """Ids and counts are compressed; floating-point numbers hardly shrink. The checksum covers the stored bytes."""
    import zarr.codecs  # noqa: PLC0415

    packed = [zarr.codecs.BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle")] if kind == "index" else []
    return [*packed, zarr.codecs.Crc32cCodec()]


def block_of(array: "zarr.Array[Any]") -> int:
    """Rows per block of an array: its shard size, or its chunk size."""
    return int((array.shards or array.chunks)[0])

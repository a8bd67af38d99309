"""Which objects of a step's finished blocks are missing or do not match their checksums."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from ..core.errors import CorruptChunk
from ..storage import array_specs
from ..storage.bundles import PARTS
from ..storage.store import Store, block_of
from .step import BlockReport

BlockReports = Mapping[int, BlockReport[object]]

MATRICES = {array_specs.COST_MATRIX, array_specs.LOCAL_FACTORS}
"""Folders of blocks of CSR rows."""
READERS = 4


@dataclass(frozen=True)
class StepRecord:
    """The record of a begun step in a store.

    `begun` is a time, `seconds` the wall-clock seconds so far. `freed` are the arrays and bundles that it wrote and
    that were deleted after their last reader.
    """

    fingerprint: str
    n_blocks: int
    begun: float
    arrays: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()
    seconds: float = 0.0
    freed: tuple[str, ...] = ()

    @property
    def written(self) -> list[str]:
        return [*self.arrays, *self.bundles]

    def without_deleted(self) -> "StepRecord":
        arrays, bundles = (
            tuple(name for name in names if name not in self.freed) for names in (self.arrays, self.bundles)
        )
        return replace(self, arrays=arrays, bundles=bundles)


def damage_of_step(store: Store, record: StepRecord, reports: BlockReports) -> list[CorruptChunk]:
    """Every chunk and bundle of a step's finished blocks that is missing or does not match its checksum."""
    record = record.without_deleted()
    unusable = [name for name in record.arrays if store.usable_array(name) is None]
    damaged = [CorruptChunk(name, "zarr.json", "it is missing or damaged") for name in unusable]
    with ThreadPoolExecutor(READERS) as pool:
        return damaged + list(filter(None, pool.map(_error_of, _readings(store, record, reports))))


def block_of_damage(record: StepRecord, array: str, chunk: str, reports: BlockReports) -> int | None:
    """The block of a step that wrote a chunk or bundle; None if one task wrote it for all blocks.

    It is the block whose report lists the bundle. Else the last number in the bundle's name is the block. For blocks of
    sparse rows it is the first number, before the name of the part.
    """
    if record.n_blocks > 1 and (listing := [n for n, report in reports.items() if array in report.bundles]):
        return listing[0]
    numbers = [part for part in _path_in_bundle(record, array) or [] if part.isdigit()][-1:]
    is_chunk = array in record.arrays and chunk.isdigit()
    block = int([chunk, *numbers][-1]) if is_chunk or numbers else None
    return block if block is not None and record.n_blocks > max(1, block) else None


def wrote(record: StepRecord, array: str) -> bool:
    bundles = [bundle.removesuffix(".npz") for bundle in record.bundles]
    return array in record.arrays or array in bundles or _path_in_bundle(record, array) is not None


def _path_in_bundle(record: StepRecord, array: str) -> list[str] | None:
    for bundle in record.bundles:
        folder = f"{bundle.removesuffix('.npz')}/"
        if array.startswith(folder):
            return array.removeprefix(folder).split("/")
    return None


def _readings(store: Store, record: StepRecord, reports: BlockReports) -> Iterator[Callable[[], object]]:
    """A call for each object of a step's finished blocks."""
    for name in record.arrays:
        if (array := store.usable_array(name)) is None:
            continue
        rows, size = array.shape[0], block_of(array)
        for block in range(-(-rows // size)):
            if block in reports or (reports and record.n_blocks == 1):
                yield partial(store.read, name, block * size, min((block + 1) * size, rows))
    written = {name for report in reports.values() for name in report.bundles if wrote(record, name)}
    for bundle in record.bundles:
        names = [bundle] if bundle.endswith(".npz") and reports else store.objects.names(bundle)
        written |= {name.removesuffix(".npz") for name in names if name.endswith(".npz")}
    for name in sorted(written):
        read = store.check_parts if name.endswith(PARTS) else store.read_bundle
        yield partial(read, name.removesuffix(PARTS))
    for folder in MATRICES.intersection(record.bundles):
        for block in sorted(reports):
            yield partial(store.read_rows, folder, block)


def _error_of(read: Callable[[], object]) -> CorruptChunk | None:
    try:
        read()
    except CorruptChunk as error:
        return error
    return None

"""Read everything a store holds against its checksums, and forget what is damaged, so that a run computes it anew."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pipeline import checkpoint, schema
from pipeline.errors import CorruptChunk, StoreError
from pipeline.lock import RunLock
from pipeline.store import Store, block_of

Read = Callable[[], Any]

MATRICES = {schema.COST_MATRIX, schema.LOCAL_FACTORS}
"""Folders of blocks of CSR rows."""


def find_damage(store: Store) -> list[CorruptChunk]:
    """Every chunk and bundle of finished blocks that is missing or does not match its checksum."""
    found = []
    for (stage, step), record in checkpoint.recorded_steps(store).items():
        done = set(checkpoint.finished_blocks(store, stage, step, record["fingerprint"]))
        for read in _readings(store, record, done):
            try:
                read()
            except CorruptChunk as error:
                found.append(error)
    return found


def forget_damage(store: Store, damage: list[CorruptChunk]) -> list[str]:
    """Forget the blocks that wrote it; says which. Raises StoreError while a run holds the store."""
    with RunLock(store):
        return sorted({checkpoint.invalidate(store, error.array, error.chunk) for error in damage})


def _readings(store: Store, record: dict[str, Any], done: set[int]) -> Iterator[Read]:
    """A call for each object of a step's finished blocks."""
    for name in record["arrays"]:
        try:
            array = store.array(name)
        except StoreError as error:
            yield partial(_fail, CorruptChunk(name, "zarr.json", str(error)))
            continue
        rows, size = array.shape[0], block_of(array)
        for block in range(-(-rows // size)):
            if block in done or (done and record["n_blocks"] == 1):
                yield partial(store.read, name, block * size, min((block + 1) * size, rows))
    for bundle in record["bundles"]:
        names = [bundle] if bundle.endswith(".npz") and done else store.objects.names(bundle)
        for name in names:
            if name.endswith(".npz"):
                yield partial(store.read_bundle, name.removesuffix(".npz"))
    for folder in MATRICES.intersection(record["bundles"]):
        for block in sorted(done):
            yield partial(_read_rows, store, folder, block)


def _read_rows(store: Store, folder: str, block: int) -> None:
    try:
        store.read_rows(folder, block)
    except CorruptChunk:
        raise
    except (StoreError, ValueError, OSError) as error:
        raise CorruptChunk(f"{folder}/{block:05d}", "zarr.json", str(error)) from None


def _fail(error: CorruptChunk) -> None:
    raise error

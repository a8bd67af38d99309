"""Read from stores in tests, and damage them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zarr
from scipy.sparse import vstack

from lle.engine import checkpoint
from lle.storage.object_protocol import Objects
from lle.storage.objects import open_objects
from lle.storage.store import Store
from lle.storage.zarr_stores import RetryingObjectStore

RESULTS = (
    "points",
    "original_index",
    "neighbor_indices",
    "neighbor_distances",
    "weights",
    "cost_matrix",
    "component",
    "eigenvalues",
    "embedding",
)


def result_bytes(store: str | Path) -> dict[str, bytes]:
    """Every stored byte of the arrays that a run is for, by the names of the objects."""
    objects = open_objects(str(store))
    contents = {name: objects.get(name) for array in RESULTS for name in objects.names(array)}
    assert {name.split("/")[0] for name in contents} == set(RESULTS)
    return contents


def sum_rows(store: Store, n: int):
    blocks = sorted({name.split("/")[1] for name in store.objects.names("cost_matrix") if name.count("/") > 1})
    M = vstack([store.read_rows("cost_matrix", int(block)) for block in blocks]).tocsr()
    assert M.shape == (n, n)
    return M


def read_blocks(store: str) -> list[bool]:
    """Whether each block of the input was read from the source."""
    return [report.report["is_read"] for report in checkpoint.read_reports(Store(store))["ingest.read"]]


def flip(path: Path) -> None:
    """Change a byte in place, as a disk fault does, so that all hard links of the file change."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 255]))


def damage(store: str, name: str) -> None:
    """Flip a byte of the first chunk of an array, or of a bundle."""
    [first, *_] = [name] if name.endswith(".npz") else Store(store).objects.names(f"{name}/c")
    flip(Path(store, first))


def winners(create: Callable[[str, bytes], bool], name: str, n_writers: int = 8) -> list[bytes]:
    """The contents of the simultaneous writers that have created an object, as the service confirms."""
    barrier, contents = threading.Barrier(n_writers), [bytes([number]) for number in range(n_writers)]

    def write(content: bytes) -> bool:
        barrier.wait()
        return create(name, content)

    with ThreadPoolExecutor(n_writers) as pool:
        return [content for content, won in zip(contents, pool.map(write, contents), strict=True) if won]


def check_that_one_writer_creates(objects: Objects, name: str) -> None:
    """Exactly one of several simultaneous writers creates an object, which then has its content."""
    [content] = winners(objects.create, name)
    assert not objects.create(name, b"late")
    assert objects.get(name) == content


def files_below(folder: Path) -> dict[str, bytes]:
    """The content of all files below a folder by their path."""
    results = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return dict(sorted(results.items()))


def zarr_group(url: str) -> zarr.Group:
    """A new group at a folder or URL, written by zarr without the checksums of a run's store."""
    place = open_objects(url).place()
    return zarr.open_group(place if isinstance(place, str) else RetryingObjectStore(place), mode="w")

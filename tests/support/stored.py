"""Read from stores in tests, and damage them."""

from pathlib import Path

from scipy.sparse import vstack

from pipeline.engine import checkpoint
from pipeline.storage.store import Store

RESULTS = ("points", "neighbor_indices", "weights", "cost_matrix", "embedding", "eigenvalues", "component")


def result_bytes(store: Path) -> dict[str, bytes]:
    """The files of the result arrays of a store by their path."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for name in RESULTS for path in sorted((store / name).rglob("*")) if path.is_file()
    }  # fmt: skip


def sum_rows(store: Store, n: int):
    blocks = sorted({name.split("/")[1] for name in store.objects.names("cost_matrix") if name.count("/") > 1})
    M = vstack([store.read_rows("cost_matrix", int(block)) for block in blocks]).tocsr()
    assert M.shape == (n, n)
    return M


def read_blocks(store: str) -> list[bool]:
    """Whether each block of the input was read from the source."""
    return [report.report["read"] for report in checkpoint.read_reports(Store(store))["ingest", "read"]]


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

"""Change of the coordinates of unchanged points after rows are appended, with and without embedding.align.

    python -m tests.benchmarks.nightly 20000 --seeds 1 2 3

For each surface and seed: a run on n points, then one on the same points and 1 % more, once as it comes and once
aligned with the first. Prints the change of the n points, root mean square, in standard deviations of a coordinate, and
how many of the new points `lle transform` put within a tenth of a standard deviation of where the aligned run has them.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from lle.config.load import parse_input
from lle.config.models import Config
from lle.engine.progress import RunProgress
from lle.jobs.run import run
from lle.jobs.transform import NewRows, transform
from lle.kernels.manifolds import sample
from lle.storage.store import Store

SURFACES = ("swiss_roll", "bowl")
SHARE = 0.01
NEAR = 0.1
HEADER = ("surface", "points", "seed", "change as it comes", "change aligned", "new points within 0.1")


def points(surface: str, n: int, seed: int) -> np.ndarray[Any, Any]:
    """(n, 3) points; the bowl z = r^2 over the unit disc has two nearly equal lowest eigenvalues."""
    if surface != "bowl":
        return sample(surface, 0, n, seed, 0.0, 0.0).points
    u, v = np.random.default_rng(seed).random((n, 2)).T
    return np.column_stack([np.sqrt(u) * np.cos(2 * np.pi * v), np.sqrt(u) * np.sin(2 * np.pi * v), u])


def row(surface: str, n: int, seed: int, folder: Path) -> tuple[str, ...]:
    """One row of the table."""
    all_points, old = points(surface, n + round(SHARE * n), seed), folder / "old.npy"
    np.save(old, all_points[:n])
    np.save(folder / "new.npy", all_points[n:])
    np.save(folder / "all.npy", all_points)
    previous = embedding(folder / "before.zarr", old, None)
    free = embedding(folder / "free.zarr", folder / "all.npy", None)
    aligned = embedding(folder / "aligned.zarr", folder / "all.npy", str(folder / "before.zarr"))
    rows = NewRows(str(folder / "before.zarr"), str(folder / "new.npy"), str(folder / "y.npy"))
    transform(rows, RunProgress(sys.stderr))
    placed = np.load(folder / "y.npy")[:, :2]
    size = float(np.sqrt(np.square(previous).mean()))
    changes = [float(np.sqrt(np.square(current[:n] - previous).mean())) / size for current in (free, aligned)]
    near = np.linalg.norm(placed - aligned[n:], axis=1) < NEAR * size
    return surface, f"{n:,}", str(seed), *(f"{change:.2g}" for change in changes), f"{near.mean():.1%}"


def embedding(store: Path, path: Path, align: str | None) -> np.ndarray[Any, Any]:
    """(rows, 2) of a run on a file."""
    config = Config.model_validate(
        {
            "input": parse_input({"kind": "npy", "path": str(path)}, ()),
            "embedding": {"align": align},
            "output": {"store": str(store), "report": False},
            "execution": {"cluster": {"kind": "serial"}},
        }
    )
    run(config, False, RunProgress(sys.stderr))
    return np.asarray(Store(str(store)).read_all("embedding"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments = parser.parse_args()
    for cells in (HEADER, ("---",) * len(HEADER)):
        print(f"| {' | '.join(cells)} |", flush=True)
    for surface in SURFACES:
        for seed in arguments.seeds:
            with tempfile.TemporaryDirectory() as folder:
                print(f"| {' | '.join(row(surface, arguments.points, seed, Path(folder)))} |", flush=True)


if __name__ == "__main__":
    main()

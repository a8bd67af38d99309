"""Search in overlapping groups of cells against one pynndescent index over all points, on the same sample.

    python -m tests.benchmarks.one_index points.npy [--rows N] [--neighbors 12] [--workers 2] [--memory 3GiB]

Both search the distinct rows of the same array on as many cores (workers of one thread each; `n_jobs` of the index),
in turn, each in whole processes of its own. Recall is measured for both on the same sample against exact search over
all points, a neighbour as near as the k-th nearest counting as right; the difference is given with its 95 % interval
over the sampled points. Ours also names the recall it reported itself. Memory is that of all processes together
(proportional set size), and for ours that of the largest worker besides.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import yaml

from lle.config.load import load_config
from lle.engine import checkpoint
from lle.engine.progress import RunProgress
from lle.jobs import run as runs
from lle.kernels.neighbors.knn import brute_neighbors, exact_distances
from lle.stages import registry
from lle.storage.store import Store
from tests.benchmarks.measure import Cost, run_measured

SAMPLE, SEED = 2000, 17
LAST = "mend_graph"
INDEX = """
import sys, time, numpy as np
X, k, n_jobs = np.load(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])
started = time.perf_counter()
from pynndescent import NNDescent
NNDescent(X[:2048], n_neighbors=k + 1, random_state=1, n_jobs=n_jobs)
compiled = time.perf_counter()
found = NNDescent(X, n_neighbors=k + 1, random_state=0, n_jobs=n_jobs).neighbor_graph[0]
done = time.perf_counter()
np.savez(sys.argv[2], ids=found, seconds=[compiled - started, done - compiled])
"""


class Search(NamedTuple):
    """Cost and lists of one of the two searches."""

    cost: Cost
    ids: npt.NDArray[np.int64]
    """(sample, k) neighbours of the sampled rows, -1 where none was found."""
    details: str


class Pair(NamedTuple):
    """Both, and the share of each sampled point's neighbours that are right: (sample,), in [0, 1]."""

    ours: Search
    index: Search
    recalls: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def search_up_to(config: Path) -> None:
    """Run a config's stages up to the measured recall."""
    names = list(registry.STAGES)
    for name in names[names.index(LAST) + 1 :]:
        del registry.STAGES[name]
    runs.run(load_config(config), True, RunProgress())


def ours(folder: Path, sample: npt.NDArray[np.int64], k: int, n_workers: int, memory: str) -> Search:
    """Neighbours by the pipeline of folder/x.npy; `n_workers` 0 is serial."""
    cluster = {"kind": "local", "workers": n_workers, "memory": memory} if n_workers else {"kind": "serial"}
    config, store = folder / "job.yaml", Store(str(folder / "run.zarr"))
    config.write_text(
        yaml.safe_dump(
            {
                "input": {"kind": "npy", "path": str(folder / "x.npy")},
                "neighbors": {"method": "pynndescent", "n_neighbors": k, "min_recall": 0.0},
                "execution": {"cluster": cluster},
                "output": {"store": store.url, "report": False},
            }
        )
    )
    cost = run_measured([sys.executable, "-m", "tests.benchmarks.one_index", "--search", str(config)])
    row_of = store.read_all("original_index")
    place = np.empty(len(row_of), np.int64)
    place[row_of] = np.arange(len(row_of))
    internal = np.sort(place[sample])
    listed = store.gather("_work/knn_indices", internal)[np.argsort(np.argsort(place[sample]))]
    ids = np.where(listed >= 0, row_of[listed], -1)
    reports, records = checkpoint.read_reports(store), checkpoint.recorded_steps(store)
    took = {
        stage: sum(record.seconds for key, record in records.items() if key.startswith(f"{stage}."))
        for stage in ("order_points", "find_neighbors")
    }
    seconds = [f"{stage} {value:.1f}" for stage, value in took.items()]
    peak = max(
        report.peak_bytes
        for key, block_reports in reports.items()
        for report in block_reports
        if key.partition(".")[0] in took
    )
    [recall] = reports["mend_graph.measure_recall"]
    groups = len(reports["find_neighbors.search_cells"])
    return Search(
        cost,
        ids,
        f"{', '.join(seconds)} s; {groups} groups; a worker {peak / 2**30:.2f} GiB; "
        f"reported {recall.report['value']:.4f}",
    )


def one_index(folder: Path, sample: npt.NDArray[np.int64], k: int, n_jobs: int) -> Search:
    """Neighbours by one index over folder/x.npy."""
    arguments = [str(folder / "x.npy"), str(folder / "index.npz"), str(k), str(max(1, n_jobs))]
    cost = run_measured([sys.executable, "-c", INDEX, *arguments])
    with np.load(folder / "index.npz") as saved:
        listed, (compiling, building) = saved["ids"][sample], saved["seconds"]
    is_other = listed != sample[:, None]
    is_other[is_other.all(axis=1), -1] = False  # a row that does not list itself has one too many
    ids = listed[is_other].reshape(len(sample), k).astype(np.int64)
    return Search(cost, ids, f"compiling {compiling:.1f}, building {building:.1f} s")


def recall(
    points: npt.NDArray[np.floating],
    sample: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
    kth: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Share (sample,) of each sampled point's listed neighbours that are as near as its k-th nearest, `kth`."""
    distances = exact_distances(points[sample], points, ids)
    return np.asarray((distances <= (kth * (1 + 1e-9))[:, None]).mean(axis=1))


def compare(points: npt.NDArray[np.floating], k: int, n_workers: int, memory: str, folder: Path) -> Pair:
    """Run both on the distinct rows of `points` (n, d), one after the other."""
    points = points[np.sort(np.unique(points, axis=0, return_index=True)[1])]
    np.save(folder / "x.npy", points)
    sample = np.sort(np.random.default_rng(SEED).permutation(len(points))[:SAMPLE])
    both = (ours(folder, sample, k, n_workers, memory), one_index(folder, sample, k, n_workers))
    parts = [
        brute_neighbors(points[rows], rows, points, np.arange(len(points)), k).distances[:, -1]
        for rows in np.array_split(sample, max(1, len(sample) // 200))
    ]
    kth = np.concatenate(parts)
    first, second = (recall(points, sample, search.ids, kth) for search in both)
    return Pair(*both, (first, second))


def rows(pair: Pair) -> list[str]:
    """Table rows of both, and the difference."""
    lines = []
    for name, search, shares in zip(("ours", "one index"), pair[:2], pair.recalls, strict=True):
        cost = search.cost
        lines.append(
            f"| {name} | {shares.mean():.4f} | {cost.seconds:.1f} | {cost.peak_bytes / 2**30:.2f} | {search.details} |"
        )
    more = pair.recalls[0] - pair.recalls[1]
    half = 1.96 * more.std(ddof=1) / np.sqrt(len(more))
    factor = pair.ours.cost.seconds / pair.index.cost.seconds
    lines.append(f"| ours - one index | {more.mean():+.4f} +- {half:.4f} | times {factor:.2f} | | |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?", help="a .npy file of points (n, d)")
    parser.add_argument("--rows", type=int, help="the first rows only")
    parser.add_argument("--neighbors", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="3GiB", help="of a worker")
    parser.add_argument("--folder", type=Path, help="where copies and stores go while they are needed")
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.search:
        search_up_to(arguments.search)
        return
    if arguments.path is None:
        parser.error("the path of a .npy file is missing")
    points = np.load(arguments.path, mmap_mode="r")[: arguments.rows]
    points = np.ascontiguousarray(points.reshape(len(points), -1))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        pair = compare(points, arguments.neighbors, arguments.workers, arguments.memory, Path(name))
    print(json.dumps({"path": str(arguments.path), "shape": points.shape, "neighbors": arguments.neighbors}))
    print("| | recall | seconds, whole processes | GiB, all processes | of which |\n|---|---|---|---|---|")
    print("\n".join(rows(pair)))


if __name__ == "__main__":
    main()

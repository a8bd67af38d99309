"""The whole job against scikit-learn's LLE on Swiss rolls, in turn, as whole processes: ratios of time and memory.

    python -m tests.benchmarks.against_sklearn [n ...] [--repeat R]

With --estimator, it compares `fit` of both estimators in this process instead, in turn, by processor seconds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.benchmarks.measure import Cost, run_measured
from tests.support.points import swiss_roll

SIZES = (10_000, 50_000, 200_000)
ESTIMATOR_SIZES = (1_000, 5_000, 10_000)
IDLE_SECONDS = 0.2
"""After scikit-learn's fit, OpenBLAS's threads wait in a loop for up to 0.1 s, which would count in the next fit."""
SKLEARN = """
import sys, numpy as np
from sklearn.manifold import LocallyLinearEmbedding
X = np.load(sys.argv[1])
Y = LocallyLinearEmbedding(n_neighbors=12, n_components=2, reg=1e-3, eigen_solver="arpack", n_jobs=-1).fit_transform(X)
np.save(sys.argv[2], Y)
"""


def lle_command(folder: Path, cluster: str) -> list[str]:
    """The command of the job on folder/x.npy, with --fresh."""
    config = folder / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "input": {"kind": "npy", "path": str(folder / "x.npy")},
                "output": {"store": str(folder / "run.zarr")},
                "execution": {"cluster": {"kind": cluster}},
            }
        )
    )
    return [sys.executable, "-m", "lle", "run", str(config), "--fresh"]


def sklearn_command(folder: Path) -> list[str]:
    """scikit-learn's LLE with the same parameters on the same file."""
    return [sys.executable, "-c", SKLEARN, str(folder / "x.npy"), str(folder / "sklearn.npy")]


def roll(n_points: int) -> npt.NDArray[np.float64]:
    return swiss_roll(n_points, np.random.default_rng(6))


def fits(n_points: int, repeat: int) -> list[tuple[float, float]]:
    """Processor seconds of (our fit, scikit-learn's) with defaults and 12 neighbours, after a first fit of each."""
    from sklearn.manifold import LocallyLinearEmbedding as Theirs

    from lle import EmbeddingWarning, LocallyLinearEmbedding

    points, pairs = roll(n_points), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmbeddingWarning)
        for _ in range(repeat + 1):
            seconds = []
            for estimator in (LocallyLinearEmbedding(n_neighbors=12), Theirs(n_neighbors=12)):
                started = time.process_time()
                estimator.fit(points)
                seconds.append(time.process_time() - started)
                time.sleep(IDLE_SECONDS)
            pairs.append((seconds[0], seconds[1]))
    return pairs[1:]


def print_fits(sizes: Sequence[int], repeat: int) -> None:
    print("| points | lle: processor seconds | scikit-learn | ratio |\n|---|---|---|---|")
    for n_points in sizes:
        pairs = fits(n_points, repeat)
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"| {n_points:,} | {ours:.2f} | {theirs:.2f} | {ratio:.2f} |", flush=True)


def compare(n_points: int, repeat: int, cluster: str = "local") -> list[tuple[Cost, Cost]]:
    """(cost of ours, cost of scikit-learn's), run alternately `repeat` times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", roll(n_points))
        return [
            (run_measured(lle_command(folder, cluster)), run_measured(sklearn_command(folder))) for _ in range(repeat)
        ]


def stages(folder: Path) -> str:
    """Seconds and peak bytes by stage of the run in a folder."""
    metrics = json.loads((folder / "run.zarr" / "report" / "metrics.json").read_text())
    rows = [
        f"| {name} | {seconds:.2f} | {metrics['peak_bytes'].get(name, 0) / 2**20:.0f} |"
        for name, seconds in metrics["seconds"].items()
    ]
    return "\n".join(["| stage | seconds | peak MiB of a process |", "|---|---|---|", *rows])


def by_stage(n_points: int) -> str:
    """One run of the built-in Swiss roll: the table of its stages."""
    with tempfile.TemporaryDirectory() as name:
        source = {"kind": "synthetic", "name": "swiss_roll", "n_points": n_points}
        config = Path(name) / "config.yaml"
        config.write_text(json.dumps({"input": source, "output": {"store": f"{name}/run.zarr"}}))
        subprocess.run([sys.executable, "-m", "lle", "run", str(config)], check=True, capture_output=True)
        return stages(Path(name))


def main() -> None:
    """Print a table row for each size, then the stages of the largest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", type=int, nargs="*")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--estimator", action="store_true")
    arguments = parser.parse_args()
    if arguments.estimator:
        print_fits(arguments.sizes or ESTIMATOR_SIZES, arguments.repeat)
        return
    sizes = arguments.sizes or SIZES
    print(
        "| points | lle: seconds, GB | scikit-learn: seconds, GB | time ratio | processor time ratio | memory ratio |"
    )
    print("|---|---|---|---|---|---|")
    for n_points in sizes:
        pairs = compare(n_points, arguments.repeat)
        ours, theirs = (
            Cost(statistics.median(c.seconds for c in costs), int(statistics.median(c.peak_bytes for c in costs)))
            for costs in zip(*pairs, strict=True)
        )
        time_ratio = statistics.median(a.seconds / b.seconds for a, b in pairs)
        processor_ratio = statistics.median(a.processor_seconds / b.processor_seconds for a, b in pairs)
        memory_ratio = statistics.median(a.peak_bytes / b.peak_bytes for a, b in pairs)
        print(
            f"| {n_points:,} | {ours.seconds:.1f}, {ours.peak_bytes / 1e9:.2f} | {theirs.seconds:.1f}, "
            f"{theirs.peak_bytes / 1e9:.2f} | {time_ratio:.2f} | {processor_ratio:.2f} | {memory_ratio:.2f} |",
            flush=True,
        )
    print(f"\nStages of a Swiss roll of {max(sizes):,} points:\n\n{by_stage(max(sizes))}")


if __name__ == "__main__":
    main()

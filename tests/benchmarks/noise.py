"""Methods that unroll the Swiss roll at each noise level: the tables of docs/gallery.md.

    python -m tests.benchmarks.noise [--seeds 7 8 9] [--folder runs/experiments]

Runs configs/experiments/noise.yaml for each seed (what is there is kept) and prints the median over the seeds of the
share of the variance of the true coordinates that the best affine map of the embedding leaves unexplained: of the worse
of the two (0: an unrolled sheet), and of the length along the roll alone (0: unrolled to a curve at least). Rows that
were not embedded count as unexplained.
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lle.engine.progress import RunProgress
from lle.jobs.sweep import run_sweep
from lle.jobs.sweep_plan import load_sweep
from lle.storage.store import Store

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "experiments" / "noise.yaml"
UNROLLED = 0.1

Array = npt.NDArray[np.float64]


def unexplained(embedding: Array, truth: Array) -> Array:
    """Share (q,) of the variance of each true coordinate (n, q) that no affine map of the embedding (n, m) gives."""
    is_finite = np.isfinite(embedding).all(axis=1)
    design = np.column_stack([np.ones(int(is_finite.sum())), embedding[is_finite]])
    centred = truth - truth.mean(axis=0)
    missed = centred.copy()
    missed[is_finite] -= design @ np.linalg.lstsq(design, centred[is_finite])[0]
    return np.asarray(np.square(missed).sum(axis=0) / np.square(centred).sum(axis=0))


def measure(folder: Path, seed: int) -> dict[tuple[str, float], Array]:
    """(method, noise) -> what is left unexplained of length and height."""
    url, experiments = load_sweep([CONFIG], (f"input.seed={seed}",), str(folder / f"noise-{seed}"))
    run_sweep(url, experiments, False, RunProgress())
    stores = {
        (experiment.values["method"], experiment.values["noise"]): Store(f"{url}/{experiment.name}.zarr")
        for experiment in experiments
    }
    return {key: unexplained(store.read_all("embedding"), store.read_all("label")) for key, store in stores.items()}


def print_table(title: str, values: dict[tuple[str, float], list[float]]) -> None:
    """Medians by method and noise, bold if every seed is below UNROLLED."""
    methods, levels = (list(dict.fromkeys(key[j] for key in values)) for j in range(2))
    print(f"\n| {title} | " + " | ".join(f"{level:g}" for level in levels) + " |")
    print("|---" * (len(levels) + 1) + "|")
    for method in methods:
        cells = []
        for shares in (values[method, level] for level in levels):
            text = f"{np.median(shares):.2f}"
            cells.append(f"**{text}**" if max(shares) < UNROLLED else text)
        print(f"| {method} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8, 9])
    parser.add_argument("--folder", type=Path, default=Path("runs/experiments"))
    arguments = parser.parse_args()
    runs = [measure(arguments.folder, seed) for seed in arguments.seeds]
    print_table("sheet", {key: [float(run[key].max()) for run in runs] for key in runs[0]})
    print_table("length", {key: [float(run[key][0]) for run in runs] for key in runs[0]})


if __name__ == "__main__":
    main()

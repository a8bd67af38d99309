"""The whole job against umap-learn's fit_transform on the same points, run alternately as whole processes.

    python -m tests.benchmarks.against_umap X.npy [--repeat R] [--n-components M]

X.npy: (n, d), numbers. Both search 12 neighbours. Their embedding criteria differ, so only the cost is compared.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measure import Cost, run_measured

UMAP = """
import sys, warnings
import numpy as np
warnings.simplefilter("ignore")
import umap
X = np.load(sys.argv[1])
Y = umap.UMAP(n_neighbors=12, n_components=int(sys.argv[2])).fit_transform(X)
assert np.isfinite(Y).all()
"""


def compare(path: str, n_components: int, repeat: int) -> Iterator[tuple[Cost, Cost]]:
    """(cost of ours, cost of umap-learn's), run alternately `repeat` times."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps({
            "input": {"kind": "npy", "path": path}, "eigensolver": {"n_components": n_components},
            "output": {"store": f"{folder}/run.zarr"},
        }))  # fmt: skip
        for _ in range(repeat):
            ours = run_measured([sys.executable, "-m", "lle", "run", str(config), "--fresh"])
            yield ours, run_measured([sys.executable, "-c", UMAP, path, str(n_components)])


def main() -> None:
    """Print a table row for each repetition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--n-components", type=int, default=5)
    arguments = parser.parse_args()
    print("| lle: seconds, GB | umap-learn: seconds, GB | time ratio | memory ratio |\n|---|---|---|---|")
    for ours, theirs in compare(arguments.path, arguments.n_components, arguments.repeat):
        print(
            f"| {ours.seconds:.0f}, {ours.peak_bytes / 1e9:.2f} | {theirs.seconds:.0f}, {theirs.peak_bytes / 1e9:.2f} "
            f"| {ours.seconds / theirs.seconds:.2f} | {ours.peak_bytes / theirs.peak_bytes:.2f} |", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()

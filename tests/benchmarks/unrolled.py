"""Experiments of a sweep that unroll their sheet: the tables of docs/gallery.md by n, K and reg.

    python -m tests.benchmarks.unrolled configs/experiments/swiss_roll_sweep.yaml [--set input.seed=8]

Runs the sweep (what is there is kept) and prints, by its last two parameters, the share of the variance of the true
coordinates that the best affine map of the embedding leaves unexplained, of the worse of the two (0: an unrolled
sheet), bold below UNROLLED; in brackets the number of components where the graph has several, each embedded separately.
"""

import argparse
import contextlib
from itertools import groupby
from pathlib import Path
from typing import Any

from lle.core.errors import ExperimentsFailed
from lle.engine.progress import RunProgress
from lle.jobs.sweep import run_sweep
from lle.jobs.sweep_plan import Experiment, load_sweep
from lle.storage.store import Store
from tests.benchmarks.noise import UNROLLED, unexplained


def outcome(experiment: Experiment) -> str:
    """Unexplained share of an experiment, or that it failed."""
    store = Store(experiment.config.output.store) if experiment.config else None
    if store is None or not store.is_run() or not store.has_array("embedding"):
        return "-"
    share = float(unexplained(store.read_all("embedding"), store.read_all("label")).max())
    n_components = int(store.read_all("component").max()) + 1
    text = f"**{share:.2f}**" if share < UNROLLED else f"{share:.2f}"
    return f"{text} ({n_components})" if n_components > 1 else text


def word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def print_tables(experiments: list[Experiment]) -> None:
    """A table for each combination of all parameters but the last two."""
    *fixed_names, rows, columns = experiments[0].values

    def group(experiment: Experiment) -> list[Any]:
        return [experiment.values[name] for name in fixed_names]

    for fixed, members in groupby(experiments, group):
        cells = {(experiment.values[rows], experiment.values[columns]): outcome(experiment) for experiment in members}
        across, down = (list(dict.fromkeys(place[end] for place in cells)) for end in (1, 0))
        title = "".join(f"{name} {word(value)}, " for name, value in zip(fixed_names, fixed, strict=True))
        print(f"\n| {title}{rows} / {columns} | " + " | ".join(map(word, across)) + " |")
        print("|---" * (len(across) + 1) + "|")
        for row in down:
            print(f"| {word(row)} | " + " | ".join(cells[row, column] for column in across) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--store", help="where the runs are, output.store of the config if left out")
    arguments = parser.parse_args()
    url, experiments = load_sweep([arguments.config], tuple(arguments.set), arguments.store)
    with contextlib.suppress(ExperimentsFailed):
        run_sweep(url, experiments, False, RunProgress())
    print_tables(experiments)


if __name__ == "__main__":
    main()

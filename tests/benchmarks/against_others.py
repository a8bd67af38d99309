"""The whole job against scikit-learn, tapkee and umap-learn on the same points, in turn, as whole processes.

    python -m tests.benchmarks.against_others ["Noisy table" ...] [--repeat R] [--python OTHER/bin/python]
        [--write PAGE]

Prints a table for each data set. All programs search 12 neighbours and give two coordinates. --python names an
interpreter that has umap-learn and tapkee; a program that it lacks is left out. --write also puts the tables into a
page, between its two lines MARKS.
"""

import argparse
import datetime
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial import procrustes
from scipy.stats import spearmanr
from sklearn.datasets import load_digits, make_classification

from lle.kernels.manifolds import sample
from lle.kernels.quality.sample_quality import SampleQuality
from lle.storage.store import Store
from tests.benchmarks.against_sklearn import SKLEARN, lle_command
from tests.benchmarks.measure import Cost, run_measured

K = 12
MEASURED = 1000
TAPKEE = """
import sys, numpy as np, tapkee
X = np.asfortranarray(np.load(sys.argv[1]).T)
Y = tapkee.embed(X, method="lle", neighbors_method="vptree", num_neighbors=12, target_dimension=2,
                 check_connectivity=False)
np.save(sys.argv[2], np.asarray(Y).reshape(X.shape[1], 2))
"""
UMAP = """
import sys, numpy as np, umap
np.save(sys.argv[2], umap.UMAP(n_neighbors=12{}).fit_transform(np.load(sys.argv[1])))
"""
SCRIPTS = {
    "scikit-learn, LLE": ("sklearn", SKLEARN),
    "tapkee, LLE": ("tapkee", TAPKEE),
    "umap-learn": ("umap", UMAP.format("")),
    "umap-learn, `random_state=0`": ("umap", UMAP.format(", random_state=0")),
}
"""Module and script of the other programs; a script reads the points of its first argument and writes the second."""

MARKS = ("<!-- Written by `make benchmark` -->", "<!-- End of what `make benchmark` writes -->")

Array = npt.NDArray[np.float64]


class Data(NamedTuple):
    """Points (n, d), and their classes (n,) or their true coordinate along a roll (n,)."""

    points: Array
    classes: Array | None = None
    along: Array | None = None


def roll(n_points: int, noise: float = 0.0) -> Data:
    drawn = sample("swiss_roll", 0, n_points, 7, noise, 0.0)
    return Data(drawn.points, along=drawn.coordinates[:, 0])


def digits() -> Data:
    points, classes = load_digits(return_X_y=True)
    return Data(points, classes.astype(np.float64))


def noisy_table(n_points: int = 10_000) -> Data:
    points, classes = make_classification(
        n_points, n_features=20, n_informative=10, n_classes=6, n_clusters_per_class=1, class_sep=1.5, random_state=0
    )
    return Data(points, classes.astype(np.float64))


DATA = {
    "Digits: 1,797 x 64": digits,
    "Noisy table: 10,000 x 20": noisy_table,
    "Swiss roll: 20,000 x 3": lambda: roll(20_000),
    "Swiss roll: 100,000 x 3": lambda: roll(100_000),
}


class Run(NamedTuple):
    """What a program used, and its embedding (n, 2)."""

    cost: Cost
    embedding: Array


def installed(python: str) -> list[str]:
    """The names of SCRIPTS that this interpreter can run."""
    modules = {module for module, _ in SCRIPTS.values()}
    found = {
        module
        for module in modules
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0
    }
    return [name for name, (module, _) in SCRIPTS.items() if module in found]


def runs(data: Data, repeat: int, python: str, cluster: str = "local") -> dict[str, list[Run]]:
    """The runs of each program, in turn, `repeat` times."""
    found: dict[str, list[Run]] = {"lle run": [], **{name: [] for name in installed(python)}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", data.points)
        for _ in range(repeat):
            for program, of_program in found.items():
                of_program.append(run(program, folder, python, cluster))
    return found


def run(program: str, folder: Path, python: str, cluster: str) -> Run:
    """One program on folder/x.npy."""
    if program not in SCRIPTS:
        cost = run_measured(lle_command(folder, cluster))
        return Run(cost, Store(str(folder / "run.zarr")).read_all("embedding"))
    cost = run_measured([python, "-c", SCRIPTS[program][1], str(folder / "x.npy"), str(folder / "y.npy")])
    return Run(cost, np.load(folder / "y.npy").astype(np.float64))


def found_again(data: Data, embedding: Array) -> float:
    """Classes: share of the nearest neighbours with the point's class. Roll: rank correlation of the coordinate along
    the roll with the coordinate of the embedding that follows it most."""
    if data.along is None:
        hit = SampleQuality(data.points, K, MEASURED, data.classes).measure(embedding).hit
        return float(np.nanmean(hit)) if hit is not None else float("nan")
    is_finite = np.isfinite(embedding).all(axis=1)
    return max(abs(spearmanr(column[is_finite], data.along[is_finite])[0]) for column in embedding.T)


def change(first: Array, second: Array) -> float:
    """Share of the variance of one embedding (n, 2) that the best rotation and scale of the other does not give."""
    is_finite = np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1)
    return 0.0 if np.array_equal(first, second, equal_nan=True) else procrustes(first[is_finite], second[is_finite])[2]


def rows(data: Data, found: dict[str, list[Run]]) -> Iterator[str]:
    """The lines of a table: medians over the runs, quality of the last run, change between the first and the last."""
    quality = SampleQuality(data.points, K, MEASURED)
    again = "order along the roll" if data.classes is None else "neighbourhood hit"
    yield f"| program | seconds | processor seconds | GB | trustworthiness | {again} | change |"
    yield "|---|---|---|---|---|---|---|"
    for program, of_program in found.items():
        seconds, peak, used = (
            statistics.median(column) for column in zip(*(one.cost for one in of_program), strict=True)
        )
        embedding = of_program[-1].embedding
        changed = f"{change(of_program[0].embedding, embedding):.2g}" if len(of_program) > 1 else "-"
        yield (
            f"| {program} | {seconds:.1f} | {used:.1f} | {peak / 1e9:.2f} "
            f"| {quality.trustworthiness(embedding).mean():.3f} | {found_again(data, embedding):.3f} "
            f"| {changed} |"
        )


def sections(names: list[str], repeat: int, python: str) -> Iterator[str]:
    """The lines of all tables, with the load of the machine while each was measured."""
    yield f"{datetime.date.today()}, {os.cpu_count()} cores. {versions(python)}."
    for title, load in DATA.items():
        if not names or title.startswith(tuple(names)):
            data = load()
            found = runs(data, repeat, python)
            yield from ("", f"**{title}** (load {os.getloadavg()[1]:.1f})", "")
            yield from rows(data, found)


def versions(python: str) -> str:
    """Names and versions of the other programs that an interpreter has."""
    programs = sorted({name.partition(",")[0] for name in installed(python)})
    script = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    found = subprocess.check_output([python, "-c", script, *programs], text=True).split()
    return ", ".join(f"{program} {version}" for program, version in zip(programs, found, strict=True))


def around_marks(page: Path) -> tuple[str, str]:
    """The text of a page up to the first of its MARKS, and from the second on. Raises ValueError if one is missing."""
    before, first, rest = page.read_text().partition(MARKS[0])
    _, last, after = rest.partition(MARKS[1])
    if not last:
        raise ValueError(f"{page}: expected the lines {' and '.join(MARKS)}")
    return before + first, last + after


def main() -> None:
    """Print a table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="DATA", help=f"beginnings of {', '.join(DATA)}")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, metavar="FILE")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    around = arguments.write and around_marks(arguments.write)
    lines = []
    for line in sections(arguments.names, arguments.repeat, arguments.python):
        print(line, flush=True)
        lines.append(line)
    if around:
        arguments.write.write_text("\n".join([around[0], "", *lines, "", around[1]]))


if __name__ == "__main__":
    main()

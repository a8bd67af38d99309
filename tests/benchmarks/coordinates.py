"""embedding.coordinates: first, independent, and the best pair of the ten lowest eigenvectors, on about 60 data sets.

    python -m tests.benchmarks.coordinates [--only strip digits] [--points 2000]

Prints a line for each data set: the eigenvectors taken, then trustworthiness and neighbourhood hit (12 neighbours) of
the first two eigenvectors, of the independent ones and of the pair with the highest trustworthiness, and the processor
seconds of a run with each setting, and a summary. Generated shapes have cells of their true coordinates as classes.
Real data need the folder shared/data beside the repository.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits, load_sample_image, make_moons

from lle.api.embed import finished_run
from lle.kernels.quality.locality import neighborhood_hit
from lle.kernels.quality.sample_quality import SampleQuality
from lle.linalg.coordinates import Coordinates
from lle.storage.store import Store
from tests.benchmarks import reg_choice
from tests.benchmarks.reg_choice import SEED, Array, Data

K = 12
MEASURED = 500


class Measured(NamedTuple):
    """Eigenvectors, counted from 1, with the trustworthiness and neighbourhood hit of their embedding."""

    taken: tuple[int, ...]
    trustworthiness: float
    hit: float

    def __str__(self) -> str:
        return f"{self.trustworthiness:.3f}" + ("" if np.isnan(self.hit) else f" / {self.hit:.3f}")


def cells(*coordinates: Array, parts: int = 6) -> npt.NDArray[np.int64]:
    """The cell of each point among parts^c cells, of equal numbers of points along each coordinate."""
    label = np.zeros(len(coordinates[0]), np.int64)
    for values in coordinates:
        label = parts * label + np.argsort(np.argsort(values)) * parts // len(values)
    return label


def sheet(n: int, length: float, bend: Callable[[Array], tuple[Array, Array]]) -> Data:
    """A sheet of width 1 over a plane curve of this length."""
    u, v = np.random.default_rng(SEED).uniform(size=(2, n)) * [[length], [1.0]]
    return np.column_stack([*bend(u), v]), cells(u, v)


def wave(u: Array) -> tuple[Array, Array]:
    return u, 0.2 * np.sin(2 * u)


def arc(u: Array) -> tuple[Array, Array]:
    radius = u.max() / (1.5 * np.pi)
    return radius * np.cos(u / radius), radius * np.sin(u / radius)


def roll(n: int, height: float, noise: float = 0.0, n_features: int = 3) -> Data:
    rng = np.random.default_rng(SEED)
    angle, v = 1.5 * np.pi * (1 + 2 * rng.uniform(size=n)), height * rng.uniform(size=n)
    points = np.column_stack([angle * np.cos(angle), v, angle * np.sin(angle)])
    turned = points @ np.linalg.qr(rng.normal(size=(n_features, n_features)))[0][:3]
    return turned + noise * points.std() * rng.normal(size=turned.shape), cells(angle, v)


def torus(n: int, large: float, small: float) -> Data:
    a, b = 2 * np.pi * np.random.default_rng(SEED).uniform(size=(2, n))
    reach = large + small * np.cos(b)
    return np.column_stack([reach * np.cos(a), reach * np.sin(a), small * np.sin(b)]), cells(a, b)


def ellipsoid(n: int, *axes: float) -> Data:
    points = np.random.default_rng(SEED).normal(size=(n, 3))
    points /= np.linalg.norm(points, axis=1)[:, None]
    return points * axes, cells(np.arctan2(points[:, 1], points[:, 0]), points[:, 2])


def cylinder(n: int, height: float) -> Data:
    angle, z = np.random.default_rng(SEED).uniform(size=(2, n)) * [[2 * np.pi], [height]]
    return np.column_stack([np.cos(angle), np.sin(angle), z]), cells(angle, z)


def box(n: int, *sides: float) -> Data:
    points = np.random.default_rng(SEED).uniform(size=(n, len(sides))) * sides
    return points, cells(*points.T[:3], parts=4)


def tree(n: int) -> Data:
    """Five branches of three lengths from one point, in ten dimensions."""
    rng = np.random.default_rng(SEED)
    branch, along = rng.integers(5, size=n), rng.uniform(size=n)
    ends = np.linalg.qr(rng.normal(size=(10, 5)))[0].T * [[1], [2], [3], [1], [2]]
    return along[:, None] * ends[branch] + 0.05 * rng.normal(size=(n, 10)), 4 * branch + (4 * along).astype(int)


def blob(n: int, aspect: float) -> Data:
    """Images of 20 x 20 pixels with a bright spot anywhere in a box of this aspect ratio."""
    x, y = 10 + (np.random.default_rng(SEED).uniform(size=(2, n)) - 0.5) * [[10], [10 / aspect]]
    axis = np.arange(20)
    squares = (axis - x[:, None, None]) ** 2 + (axis[:, None] - y[:, None, None]) ** 2
    return np.exp(-squares / 8).reshape(n, -1), cells(x, y)


def lit_ball(n: int) -> Data:
    """Images of 20 x 20 pixels of a turning ball with dark patches, under a lamp that moves."""
    turn, lamp = np.random.default_rng(SEED).uniform(size=(2, n)) * [[np.pi], [2]] - [[0], [1]]
    x, y = np.meshgrid(np.linspace(-1, 1, 20), np.linspace(-1, 1, 20))
    inside = x**2 + y**2 < 1
    z = np.sqrt(np.maximum(0, 1 - x**2 - y**2))
    longitude = np.arctan2(x, z) + turn[:, None, None]
    surface = 1 + 0.5 * np.sin(3 * longitude) * np.cos(2 * y) + 0.4 * np.cos(longitude + 1)
    light = np.maximum(0, x * np.sin(lamp)[:, None, None] + z * np.cos(lamp)[:, None, None])
    return (inside * surface * light).reshape(n, -1), cells(turn, lamp)


def patches(name: str, n: int) -> Data:
    """Grey patches of 6 x 6 pixels of a photograph."""
    picture, rng = load_sample_image(name)[::2, ::2].mean(axis=2) / 255, np.random.default_rng(SEED)
    rows, columns = (rng.integers(size - 6, size=n) for size in picture.shape)
    return np.stack([picture[i : i + 6, j : j + 6].ravel() for i, j in zip(rows, columns, strict=True)]), None


def colours(name: str, n: int) -> Data:
    pixels = load_sample_image(name).reshape(-1, 3)
    return np.random.default_rng(SEED).permutation(np.unique(pixels, axis=0))[:n].astype(np.float64), None


def some_digits(*classes: int) -> Data:
    points, labels = load_digits(return_X_y=True)
    return points[np.isin(labels, classes)], labels[np.isin(labels, classes)] if len(classes) > 1 else None


def data_sets(n: int) -> dict[str, Callable[[], Data]]:
    sets: dict[str, Callable[[], Data]] = {}
    for length in (1, 2, 3, 5, 8, 12):
        sets[f"strip, length {length}"] = lambda length=length: sheet(n, length, wave)
    sets |= {
        "arc, length 4": lambda: sheet(n, 4, arc),
        "arc, length 10": lambda: sheet(n, 10, arc),
        **{f"roll, width {width}": lambda width=width: roll(n, width) for width in (5, 10, 21, 40)},
        "roll, width 21, noise 0.05": lambda: roll(n, 21, 0.05),
        "roll, width 10, noise 0.05, in 30 d": lambda: roll(n, 10, 0.05, 30),
        "torus": lambda: torus(n, 3, 1),
        "thin torus": lambda: torus(n, 5, 0.4),
        "sphere": lambda: ellipsoid(n, 1, 1, 1),
        "cigar": lambda: ellipsoid(n, 1, 1, 5),
        "pancake": lambda: ellipsoid(n, 1, 3, 0.3),
        **{f"cylinder, height {height}": lambda height=height: cylinder(n, height) for height in (1, 3, 12)},
        "cube": lambda: box(n, 1, 1, 1),
        "box of 4 x 2 x 1": lambda: box(n, 4, 2, 1),
        "tree": lambda: tree(n),
        "moons": lambda: make_moons(n, noise=0.12, random_state=SEED),
        "images of a spot": lambda: blob(n, 1),
        "images of a spot, aspect 3": lambda: blob(n, 3),
        "images of a lit ball": lambda: lit_ball(n),
        "patches of a temple": lambda: patches("china.jpg", n),
        "patches of a flower": lambda: patches("flower.jpg", n),
        "colours of a temple": lambda: colours("china.jpg", n),
        "colours of a flower": lambda: colours("flower.jpg", n),
        "digits 3, 5, 8": lambda: some_digits(3, 5, 8),
        "digit 1": lambda: some_digits(1),
    }
    return sets | reg_choice.data_sets(n)


def run(data: Data, setting: str) -> tuple[Measured, float]:
    """The embedding of the largest piece, and processor seconds of the run."""
    points, labels = data
    sections = {
        "embedding": {"coordinates": setting},
        "graph": {"components": "largest"},
        "quality": {"sample": 200, "geodesic_sources": 0},
    }
    started = time.process_time()
    with finished_run(np.unique(points, axis=0) if labels is None else points, sections) as (store, result):
        seconds = time.process_time() - started
        solution, measure = store.read_bundle("_work/eigen/00000"), measuring(store, labels)
    taken = (1, 2) if setting == "first" else tuple(result.metrics["coordinates"][0]["taken"])
    return measure(taken, solution["vectors"]), seconds


def best_pair(data: Data) -> Measured:
    """The pair of the ten lowest eigenvectors with the highest trustworthiness."""
    seen, choose = list[Array](), Coordinates.choose

    def noted(
        self: Coordinates, sizes: Array, sample: Array, vector: Callable[[int], Array]
    ) -> tuple[list[int], dict[str, object]]:
        seen.append(np.column_stack([vector(number) for number in range(len(sizes))]))
        return choose(self, sizes, sample, vector)

    with (
        patch.object(Coordinates, "suffice", lambda self, sizes, sample: len(sizes) > 2),
        patch.object(Coordinates, "choose", noted),
    ):
        points, labels = data
        sections = {"embedding": {"coordinates": "independent"}, "graph": {"components": "largest"}}
        with finished_run(np.unique(points, axis=0) if labels is None else points, sections) as (store, _):
            measure = measuring(store, labels)
    pairs = [measure((i + 1, j + 1), seen[0][:, [i, j]]) for i, j in combinations(range(10), 2)]
    return max(pairs, key=lambda pair: pair.trustworthiness)


def measuring(store: Store, labels: npt.NDArray[np.int64] | None) -> Callable[[tuple[int, ...], Array], Measured]:
    """A function that measures eigenvectors of the first component, with their numbers."""
    rows, stored = store.read_bundle("_work/eigen/00000")["rows"], store.read_all("points")
    original = store.read_all("original_index")[rows]
    quality = SampleQuality(stored[rows].astype(np.float64), K, MEASURED)
    classes = None if labels is None else np.unique(labels, return_inverse=True)[1].astype(np.float64)[original]

    def measure(taken: tuple[int, ...], vectors: Array) -> Measured:
        embedding = vectors * len(original) ** 0.5
        trust = float(quality.trustworthiness(embedding).mean())
        if classes is None:
            return Measured(taken, trust, np.nan)
        near = quality._nearest(embedding, quality.k)
        return Measured(taken, trust, float(np.nanmean(neighborhood_hit(classes[quality.measured], classes[near]))))

    return measure


class Compared(NamedTuple):
    """One line of the table."""

    name: str
    first: Measured
    independent: Measured
    best: Measured
    seconds: tuple[float, float]
    """Processor seconds of a run with first and with independent."""

    def __str__(self) -> str:
        names = (", ".join(map(str, one.taken)) for one in (self.independent, self.best))
        cells_of_line = [self.name, *names, *map(str, (self.first, self.independent, self.best))]
        return f"| {' | '.join(cells_of_line)} | {self.seconds[0]:.2f}, {self.seconds[1]:.2f} |"


def compare(name: str, data: Data) -> Compared:
    first, first_seconds = run(data, "first")
    independent, seconds = run(data, "independent")
    return Compared(name, first, independent, best_pair(data), (first_seconds, seconds))


def summary(lines: Sequence[Compared]) -> str:
    """Differences between independent and first over all data sets, and where the best pair is better by 0.01."""
    trust = np.array([line.independent.trustworthiness - line.first.trustworthiness for line in lines])
    hits = np.array([line.independent.hit - line.first.hit for line in lines])
    lower = [line.name for line, hit in zip(lines, hits, strict=True) if hit < -0.01]
    missed = [line.name for line in lines if line.best.trustworthiness > line.independent.trustworthiness + 0.01]
    seconds = np.sum([line.seconds for line in lines], axis=0)
    return (
        f"{len(lines)} data sets; independent minus first: "
        f"trustworthiness {trust.mean():.4f} (least {trust.min():.4f}), hit {np.nanmean(hits):.4f} "
        f"(lower by more than 0.01: {lower}); more than 0.01 below the best pair: {missed}; "
        f"processor seconds {seconds[0]:.1f}, {seconds[1]:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="data sets whose names begin so")
    parser.add_argument("--points", type=int, default=2000)
    arguments = parser.parse_args()
    print(
        "| data | taken | best pair | first | independent | best | seconds: first, independent |\n" + "|---" * 7 + "|"
    )
    lines = list[Compared]()
    for name, load in data_sets(arguments.points).items():
        if arguments.only is None or name.startswith(tuple(arguments.only)):
            lines.append(compare(name, load()))
            print(lines[-1], flush=True)
    print(f"\n{summary(lines)}")


if __name__ == "__main__":
    main()

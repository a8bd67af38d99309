"""weights.reg: auto against every value of a grid, on surfaces, clusters and real data, with and without noise.

    python -m tests.benchmarks.reg_choice [--only digits cover] [--points 3000] [--coordinates independent]

Prints a line for each data set: the reg chosen, then for reg 1e-3, auto and the best of the grid the trustworthiness,
the neighbourhood hit (12 neighbours, where rows have labels) and the smallest participation of a coordinate as a share
of the points, then the processor seconds of a run with 1e-3 and with auto. Real data need the folder shared/data beside
the repository.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from lle.api.embed import finished_run
from lle.kernels.manifolds import sample
from tests.support.paths import SHARED_DATA, load_script

GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
HIT_NEIGHBORS = 12
SEED = 31

Array = npt.NDArray[np.float64]
Data = tuple[Array, npt.NDArray[Any] | None]


class Outcome(NamedTuple):
    """Results of a run with one value of reg; processor seconds."""

    reg: float
    trustworthiness: float
    hit: float
    participation: float
    seconds: float


def surface(name: str, n: int, noise: float = 0.0, n_features: int = 3) -> Data:
    """A built-in manifold with noise of this share of its standard deviation, in n_features dimensions."""
    rng = np.random.default_rng(SEED)
    points = sample(name, 0, n, SEED, 0.0, 1.0 if name == "punctured_sphere" else 0.0).points
    turned = points @ np.linalg.qr(rng.normal(size=(n_features, n_features)))[0][: points.shape[1]]
    return turned + noise * points.std() * rng.normal(size=(n, n_features)), None


def blobs(n: int, clusters: int, n_features: int, distance: float) -> Data:
    rng = np.random.default_rng(SEED)
    labels = rng.integers(clusters, size=n)
    return distance * rng.normal(size=(clusters, n_features))[labels] + rng.normal(size=(n, n_features)), labels


def images(n: int, noise: float) -> Data:
    """Images of 16 x 16 pixels with a bright bar at any position and angle: a manifold of three dimensions."""
    rng = np.random.default_rng(SEED)
    axis = np.linspace(-1, 1, 16)
    x, y = (grid - rng.uniform(-0.6, 0.6, (n, 1, 1)) for grid in np.meshgrid(axis, axis))
    angle = rng.uniform(0, np.pi, (n, 1, 1))
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    return np.exp(-((along / 0.5) ** 2) - (across / 0.25) ** 2).reshape(n, -1) + noise * rng.normal(size=(n, 256)), None


def orbit(n: int) -> Data:
    """An orbit of the Lorenz equations in short steps: the nearest rows are those before and after."""
    point, rows = np.array([1.0, 1.0, 20.0]), np.empty((n, 3))
    for row in range(n):
        middle = point + 0.001 * _slope(point)
        point = rows[row] = point + 0.002 * _slope(middle)
    return rows, None


def _slope(point: Array) -> Array:
    x, y, z = point
    return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])


def bundled(loader: Callable[[], Any]) -> Data:
    dataset = loader()
    return (dataset.data - dataset.data.mean(0)) / np.where(
        dataset.data.std(0) > 0, dataset.data.std(0), 1
    ), dataset.target


def shared(name: str, n: int) -> Data:
    """n rows of a data set in shared/data."""
    load = load_script(SHARED_DATA / "load.py")
    rows, labels = {"mnist": load.mnist, "speech": load.speech, "ecg": lambda: (load.ecg(), None)}.get(
        name.partition(":")[0], lambda: load.table(name)
    )()
    if digit := name.partition(":")[2]:
        rows, labels = rows[labels == int(digit)], None
    chosen = np.random.default_rng(SEED).choice(len(rows), min(n, len(rows)), replace=False)
    points = np.asarray(rows[chosen], np.float64)
    scaled = (points - points.mean(0)) / points.std(0) if name == "cover" else points
    return scaled, None if labels is None else labels[chosen]


def data_sets(n: int) -> dict[str, Callable[[], Data]]:
    sets: dict[str, Callable[[], Data]] = {}
    dense = max(n, 30_000)
    for name in ("swiss_roll", "s_curve", "spiral_3d", "punctured_sphere", "elliptic_paraboloid", "cusp", "sheet"):
        for noise in (0.0, 0.02):
            sets[name + f", noise {noise:g}" * bool(noise)] = lambda name=name, noise=noise: surface(name, n, noise)
    sets |= {
        "swiss_roll, noise 0.1": lambda: surface("swiss_roll", n, 0.1),
        "swiss_roll in 30 d, noise 0.05": lambda: surface("swiss_roll", n, 0.05, 30),
        "dense sheet in 10 d": lambda: surface("sheet", dense, 0.003, 10),
        "dense s_curve in 10 d": lambda: surface("s_curve", dense, 0.003, 10),
        "dense swiss_roll in 10 d": lambda: surface("swiss_roll", dense, 0.004, 10),
        "dense elliptic_paraboloid in 6 d": lambda: surface("elliptic_paraboloid", dense, 0.006, 6),
        "dense punctured_sphere in 6 d": lambda: surface("punctured_sphere", dense, 0.005, 6),
        "orbit": lambda: orbit(dense),
        "punctured_sphere in 10 d, noise 0.2": lambda: surface("punctured_sphere", n, 0.2, 10),
        "3 blobs in 5 d": lambda: blobs(n, 3, 5, 1.5),
        "6 blobs in 10 d": lambda: blobs(n, 6, 10, 1.0),
        "12 blobs in 30 d": lambda: blobs(n, 12, 30, 1.2),
        "one blob in 10 d": lambda: blobs(n, 1, 10, 0.0),
        "images of 3 parameters": lambda: images(n, 0.0),
        "images of 3 parameters, noise 0.1": lambda: images(n, 0.1),
        "digits": lambda: load_digits(return_X_y=True),
        "wine": lambda: bundled(load_wine),
        "breast cancer": lambda: bundled(load_breast_cancer),
    }
    if (SHARED_DATA / "load.py").exists():
        for name in ("mnist", "mnist:1", "mnist:4", "mnist:8", "ecg", "speech", "cover", "skin"):
            sets[name] = lambda name=name: shared(name, n)
    return sets


def measure(
    data: Data, reg: float | str, n_components: int, method: str = "lle", coordinates: str = "first"
) -> tuple[Outcome, str]:
    """A run, and the reason of its reg."""
    points, labels = data
    sections = {
        "method": method,
        "weights": {"reg": reg},
        "eigensolver": {"n_components": n_components},
        "embedding": {"coordinates": coordinates},
        "graph": {"components": "largest"},
        "quality": {"sample": 1000, "geodesic_sources": 0},
    }
    started = time.process_time()
    with finished_run(points, sections) as (store, result):
        embedding, metrics = store.read_all("embedding"), result.metrics
    seconds = time.process_time() - started
    inside = np.isfinite(embedding).all(axis=1)
    hit = np.nan
    if labels is not None:
        near = np.asarray(cKDTree(embedding[inside]).query(embedding[inside], HIT_NEIGHBORS + 1)[1])[:, 1:]
        hit = float((labels[inside][near] == labels[inside][:, None]).mean())
    carried = min(metrics["participation"][0]) / inside.sum()
    outcome = Outcome(metrics["reg"]["value"], metrics["trustworthiness"]["value"], hit, carried, seconds)
    return outcome, metrics["reg"]["reason"]


def compare(name: str, data: Data, n_components: int, method: str = "lle", coordinates: str = "first") -> str:
    """One line of the table."""
    outcomes = {reg: measure(data, reg, n_components, method, coordinates)[0] for reg in GRID}
    auto, _ = measure(data, "auto", n_components, method, coordinates)
    plain, all_outcomes = outcomes[1e-3], [*outcomes.values(), auto]
    cells = [name, f"{data[0].shape[0]:,} x {data[0].shape[1]}", n_components, f"{auto.reg:g}"]
    for key in ("trustworthiness", "hit"):
        best = max(all_outcomes, key=lambda outcome: getattr(outcome, key))
        values = (getattr(outcome, key) for outcome in (plain, auto, best))
        is_known = not np.isnan(getattr(auto, key))
        cells.append(", ".join(f"{value:.3f}" for value in values) + f" ({best.reg:g})" if is_known else "")
    cells.append(f"{plain.participation:.2f}, {auto.participation:.2f}")
    cells.append(f"{plain.seconds:.1f}, {auto.seconds:.1f}")
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="data sets whose names begin so")
    parser.add_argument("--points", type=int, default=3000)
    parser.add_argument("--components", type=int, nargs="+", default=[2])
    parser.add_argument("--method", choices=("lle", "modified"), default="lle")
    parser.add_argument("--coordinates", choices=("first", "independent"), default="first")
    arguments = parser.parse_args()
    print(
        "| data | rows x columns | coordinates | auto | trustworthiness: 1e-3, auto, best | hit: 1e-3, auto, best "
        "| smallest participation: 1e-3, auto | seconds: 1e-3, auto |\n" + "|---" * 8 + "|"
    )
    for name, load in data_sets(arguments.points).items():
        if arguments.only is None or name.startswith(tuple(arguments.only)):
            data = load()
            for n_components in arguments.components:
                print(compare(name, data, n_components, arguments.method, arguments.coordinates), flush=True)


if __name__ == "__main__":
    main()

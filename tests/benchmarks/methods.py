"""Every method against scikit-learn: largest principal angle on small data, then seconds and memory of the whole job.

    python -m tests.benchmarks.methods [n ...] [--seeds S]

Two tables. The first compares embeddings of three data sets, the largest of S seeds (0: no such table); the second runs
the job on Swiss rolls of the sizes given, from reading to quality, in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import sklearn
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.manifold import LocallyLinearEmbedding, _locally_linear, spectral_embedding
from sklearn.neighbors import NearestNeighbors

from lle import embed
from lle.kernels.manifolds import sample
from tests.benchmarks.measure import Cost, run_measured

METHODS = ("lle", "modified", "hessian", "ltsa", "laplacian", "pca")
DATA = {"swiss_roll": "Swiss roll", "s_curve": "S-curve", "digits": "digits"}
K, M = 12, 2
AGREEMENT_POINTS = 2000
SIZES = (2000, 10_000)
SEEDS = (11, 23, 37, 53, 71)

Array = npt.NDArray[np.float64]


def points(name: str, n: int, seed: int) -> Array:
    """n points of a surface; or the first n digits, without ties and without those that no neighbour list holds.

    Digits hold small integers, so many distances are equal; noise of 1e-6 breaks these ties. scikit-learn's ltsa and
    hessian give no valid coordinates to points that are in no list.
    """
    if name != "digits":
        return sample(name, 0, n, seed, 0.0, 0.0).points
    X = load_digits().data[:n]
    X = X + 1e-6 * np.random.default_rng(seed).normal(size=X.shape)
    while True:
        listed = np.unique(NearestNeighbors(n_neighbors=K).fit(X).kneighbors()[1])
        if len(listed) == len(X):
            return np.asarray(X)
        X = X[listed]


def or_graph(X: Array, t: float | None) -> Array:
    """Dense weights of the graph symmetrised by OR: heat kernel of t (None: the mean squared link), or t = 0: 0/1.

    (scikit-learn's own nearest-neighbour affinity averages the graph and its transpose.)
    """
    distances, neighbors = NearestNeighbors(n_neighbors=K).fit(X).kneighbors()
    t = float(np.square(distances).mean()) if t is None else t
    weights = np.zeros((len(X), len(X)))
    np.put_along_axis(weights, neighbors, np.exp(-np.square(distances) / t) if t else 1.0, axis=1)
    return np.maximum(weights, weights.T)


def reference(method: str, X: Array) -> Array:
    """scikit-learn's embedding (n, 2) for the defaults of this program.

    Its Hessian eigenmap is corrected: Donoho & Grimes orthonormalise [1, U, products] and keep the columns of the
    products, where scikit-learn (1.9) takes those of a full QR factorization, which makes it the same as its ltsa.
    """
    if method == "pca":
        return np.asarray(PCA(n_components=M, svd_solver="full").fit_transform(X))
    if method == "laplacian":
        return np.asarray(spectral_embedding(or_graph(X, None), n_components=M, eigen_solver="arpack", random_state=4))
    original_qr, _locally_linear.qr = _locally_linear.qr, lambda Y: scipy.linalg.qr(Y, mode="economic")
    try:
        name = "standard" if method == "lle" else method
        model = LocallyLinearEmbedding(n_neighbors=K, n_components=M, method=name, eigen_solver="dense")
        return np.asarray(model.fit_transform(X))
    finally:
        _locally_linear.qr = original_qr


def command(folder: Path, method: str, source: dict[str, Any]) -> list[str]:
    """The job on a source, computed from nothing, with the plain neighbour graph."""
    config = folder / "config.yaml"
    sections = {
        "method": method,
        "input": source,
        "neighbors": {"n_neighbors": K, "reverse": 0},
        "output": {"store": str(folder / "run.zarr"), "report": False},
        "execution": {"cluster": {"kind": "serial"}},
    }
    config.write_text(json.dumps(sections))
    return [sys.executable, "-m", "lle", "run", str(config), "--fresh"]


def angle(method: str, X: Array) -> float:
    """Largest principal angle in degrees between the embedding of X and scikit-learn's."""
    embedding = embed(X, method=method, neighbors={"n_neighbors": K, "reverse": 0}, quality={"sample": 10})
    return float(np.degrees(scipy.linalg.subspace_angles(embedding, reference(method, X)).max()))


def cost(method: str, n: int) -> tuple[Cost, dict[str, Any]]:
    """Seconds and memory of the whole job on a Swiss roll, and its metrics."""
    with tempfile.TemporaryDirectory() as name:
        source = {"kind": "synthetic", "name": "swiss_roll", "n_points": n}
        measured = run_measured(command(Path(name), method, source))
        metrics = json.loads((Path(name) / "run.zarr" / "report" / "metrics.json").read_text())
    return measured, metrics


def agreement(method: str, seeds: tuple[int, ...]) -> str:
    """A row of the first table: the largest angle over the seeds for each data set."""
    angles = [max(angle(method, points(name, AGREEMENT_POINTS, seed)) for seed in seeds) for name in DATA]
    return f"| {method} | " + " | ".join(f"{value:.1e}" for value in angles) + " |"


def costs(method: str, n: int) -> str:
    """A row of the second table; a job that fails is a row too."""
    try:
        measured, metrics = cost(method, n)
    except subprocess.CalledProcessError as error:
        return f"| {n:,} | {method} | failed with exit code {error.returncode} | | | | |"
    solver = metrics["solver"]
    return (
        f"| {n:,} | {method} | {measured.seconds:.1f} | {measured.peak_bytes / 1e9:.2f} | "
        f"{metrics['seconds']['solve_embedding']:.1f}, {solver['method']} | {max(metrics['residuals'][0]):.0e} | "
        f"{metrics['trustworthiness']['value']:.4f} |"
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=3, choices=range(len(SEEDS) + 1))
    arguments = parser.parse_args()
    if arguments.seeds:
        seeds = SEEDS[: arguments.seeds]
        print(
            f"Largest principal angle to scikit-learn {sklearn.__version__}, degrees; {AGREEMENT_POINTS:,} points "
            f"(digits: fewer), K = {K}, {M} coordinates, seeds {', '.join(map(str, seeds))}\n"
        )
        print(f"| method | {' | '.join(DATA.values())} |\n|---|{'---|' * len(DATA)}")
        for method in METHODS:
            print(agreement(method, seeds), flush=True)
        print()
    print("| points | method | seconds | GB | eigensolve: seconds, route | residual | trustworthiness |")
    print("|---|---|---|---|---|---|---|")
    for n in arguments.sizes:
        for method in METHODS:
            print(costs(method, n), flush=True)


if __name__ == "__main__":
    main()

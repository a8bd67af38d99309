"""Random configs on random data, from the file to the embedding, beside dense linear algebra and scikit-learn."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.spatial.distance
import yaml
from sklearn.decomposition import PCA
from sklearn.manifold import LocallyLinearEmbedding

from lle.core.methods import METHODS
from lle.kernels.manifolds import sample
from lle.linalg.component_matrices import load_local_factors
from lle.storage.blocks import Blocks
from lle.storage.store import Store
from tests.fuzz.campaign import BrokenRule, Limits
from tests.fuzz.commands import call, write
from tests.fuzz.mutate import choose
from tests.support.method_oracle import hessian_matrix, ltsa_matrix
from tests.support.oracle import point_weights

LIMITS = Limits(seconds=60, n_bytes=700 * 2**20)
Array = npt.NDArray[np.float64]
LOCAL = {"ltsa": ltsa_matrix, "hessian": hessian_matrix}
ROUNDING = 1e-12
"""Of the largest eigenvalue: what the dense oracle, which forms M, cannot tell from zero, with a margin."""


def prepare(shared: Path) -> None:
    """Nothing to share."""


def run(rng: np.random.Generator, shared: Path, own: Path) -> str:
    """Run one config, then compare each of its results."""
    X = random_points(rng)
    np.save(own / "x.npy", X)
    config = random_config(rng, X, own)
    path = write(own / "config.yaml", yaml.safe_dump(config))
    ended = call("run", path, codes=(0, 2, 3))
    if ended.answer.get("error") == "FactorizationError":
        raise BrokenRule(f"no other eigensolver was tried: {ended.answer}\n{path.read_text()}")
    if ended.code:
        return ended.outcome
    try:
        compare(Store(str(own / "run.zarr")), X, config, ended.answer["metrics"])
    except AssertionError as error:
        raise BrokenRule(f"a wrong answer with exit code 0: {error}\n{path.read_text()}") from error
    return f"exit 0 {config['method']}"


def random_points(rng: np.random.Generator) -> npt.NDArray[Any]:
    """Points of one of several shapes, then some repeated, scaled, shifted or rounded."""
    n = int(rng.integers(420, 520)) if rng.random() < 0.3 else int(rng.integers(20, 160))
    d = int(rng.integers(2, 9))
    kind = choose(rng, ["gaussian", "roll", "grid", "line", "groups", "sheet"])
    if kind == "roll":
        X = sample(choose(rng, ["swiss_roll", "s_curve"]), 0, n, int(rng.integers(1000)), 0.0, 0.0).points
    elif kind == "grid":
        X = rng.integers(0, 12, (n, d)).astype(float)
    elif kind == "line":
        X = np.sort(rng.random(n))[:, None] * rng.standard_normal(d)
    elif kind == "groups":
        X = rng.standard_normal((n, d)) + 50 * rng.integers(0, 3, n)[:, None]
    elif kind == "sheet":
        X = np.column_stack([rng.random((n, 2)), np.zeros((n, 2))])
    else:
        X = rng.standard_normal((n, d)) * np.geomspace(1, 0.1, d)
    if rng.random() < 0.3:
        X[rng.integers(n, size=n // 8)] = X[rng.integers(n, size=n // 8)]
    X = choose(rng, [1.0, 1.0, 1e-6, 1e6]) * (X + choose(rng, [0.0, 0.0, 1e3]))
    return X.astype(choose(rng, ["f8", "f8", "f4"]))


def random_config(rng: np.random.Generator, X: npt.NDArray[Any], own: Path) -> dict[str, Any]:
    """A config that mostly fits the points."""
    m = int(rng.integers(1, min(4, X.shape[1] + 1)))
    method = choose(rng, ["lle", "lle", "lle", "modified", "hessian", "ltsa", "laplacian", "pca"])
    k = max(int(rng.integers(4, 14)), m + 2, METHODS[method].min_neighbors(m))
    solver = choose(rng, ["auto", "auto", "shift_invert", "factored", "multigrid"])
    neighbors: dict[str, Any] = {"n_neighbors": k, "method": choose(rng, ["auto", "kdtree", "brute"])}
    if rng.random() < 0.3:
        neighbors["reverse"] = int(rng.integers(0, 5))
    return {
        "method": method,
        "input": {"kind": "npy", "path": str(own / "x.npy")},
        "preprocess": {"scale": choose(rng, ["none", "none", "standard"])},
        "neighbors": neighbors,
        "weights": {"reg": choose(rng, [1e-3, 1e-3, 1e-2, 1e-1, 1e-6, "auto"])},
        "graph": {"components": choose(rng, ["separate", "separate", "largest"])},
        "eigensolver": {"n_components": m, "method": "auto" if method != "lle" and solver == "factored" else solver},
        "embedding": {"scale": choose(rng, ["unit_covariance", "unit_norm"])},
        "quality": {"sample": 20, "geodesic_sources": choose(rng, [0, "auto"])},
        "output": {"store": str(own / "run.zarr"), "report": False},
        "execution": {"block_points": int(rng.integers(16, 300)), "cluster": {"kind": "serial"}},
    }


def compare(store: Store, X: npt.NDArray[Any], config: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Check points, neighbours, eigenvalues and embedding of a finished run. Raises AssertionError."""
    points, index = np.asarray(store.read_all("points"), float), store.read_all("original_index")
    embedding, component = store.read_all("embedding"), store.read_all("component")
    wanted = np.asarray(X, float)
    if config["preprocess"]["scale"] == "none":
        np.testing.assert_array_equal(points, wanted[index], "stored points")
        assert len(points) == len(np.unique(X, axis=0)), "number of unique points"
    if config["graph"]["components"] == "separate":
        assert np.isfinite(embedding).all(), "every row has coordinates"
    if config["method"] == "pca":
        variances = PCA(svd_solver="full").fit(points).explained_variance_[: embedding.shape[1]]
        np.testing.assert_allclose(metrics["eigenvalues"][0], variances, rtol=1e-4, atol=1e-9 * variances.max())
        return
    k, lists = config["neighbors"]["n_neighbors"], store.read_all("neighbor_indices")
    check_neighbors(points, lists, k)
    eigenvalues, of_point = store.read_all("eigenvalues"), component[index]
    dense = dense_matrix(store, points, lists, config, metrics)
    for number, values in enumerate(eigenvalues):
        rows = np.flatnonzero(of_point == number)
        check_eigenpairs(
            dense[np.ix_(rows, rows)], values, _vectors(store, embedding[index[rows]], rows, config["method"])
        )
    check_scikit_learn(X, config, metrics, float(eigenvalues[0].sum()))


def check_neighbors(points: Array, lists: npt.NDArray[Any], k: int) -> None:
    """Each list holds the k nearest points; other entries are reverse neighbours and bridges."""
    distances = scipy.spatial.distance.cdist(points, points)
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, axis=1)[:, :k]
    for i, row in enumerate(lists):
        ids = row[row >= 0]
        assert len(set(ids.tolist())) == len(ids), f"point {i} has a neighbour twice"
        ours = np.sort(distances[i, ids])[: min(k, len(points) - 1)]
        np.testing.assert_allclose(
            ours,
            nearest[i, : len(ours)],
            rtol=1e-5,
            atol=1e-9 * distances[0, 1:].max(),
            err_msg=f"neighbours of point {i}",
        )


def dense_matrix(
    store: Store, points: Array, lists: npt.NDArray[Any], config: dict[str, Any], metrics: dict[str, Any]
) -> Array:
    """M (n, n) of the stored lists by the papers' formulas, else of the stored factors."""
    n, m, method = len(points), config["eigensolver"]["n_components"], config["method"]
    if method != "lle" and not has_formula(points, lists, method, m):
        factor = load_local_factors(store, np.arange(n), Blocks(n, config["execution"]["block_points"])).toarray()
        return np.asarray(factor.T @ factor)
    M = np.zeros((n, n))
    for i, row in enumerate(lists):
        ids = row[row >= 0]
        if method == "lle":
            c = np.zeros(n)
            c[i], c[ids] = 1.0, -point_weights(points[i], points[ids], metrics["reg"]["value"])
            M += np.outer(c, c)
        else:
            M[np.ix_(ids, ids)] += LOCAL[method](points[ids], m)
    return M


def has_formula(points: Array, lists: npt.NDArray[Any], method: str, m: int) -> bool:
    """Whether the papers define M here: every point is in a list, and every neighbourhood has m dimensions."""
    if method not in LOCAL or len(np.setdiff1d(np.arange(len(points)), lists)):
        return False
    for row in lists:
        singular = np.linalg.svd(points[row[row >= 0]] - points[row[row >= 0]].mean(axis=0), compute_uv=False)
        if singular[min(m, len(singular)) - 1] < 1e-5 * singular[0]:
            return False
    return True


def _vectors(store: Store, embedding: Array, rows: npt.NDArray[Any], method: str) -> Array:
    """The eigenvectors of a component, from its coordinates."""
    return embedding * np.sqrt(store.read_all("degree")[rows])[:, None] if method == "laplacian" else embedding


def check_eigenpairs(M: Array, values: Array, vectors: Array) -> None:
    """The eigenvalues are the lowest but one; orthogonal vectors with these Rayleigh quotients span their space."""
    dense, m = scipy.linalg.eigvalsh(M), len(values)
    largest = dense[-1]
    np.testing.assert_allclose(values, dense[1 : m + 1], rtol=1e-4, atol=ROUNDING * largest, err_msg="eigenvalues")
    unit = vectors / np.linalg.norm(vectors, axis=0)
    np.testing.assert_allclose(unit.T @ unit, np.eye(m), atol=1e-5, err_msg="orthogonal coordinates")
    quotients = np.einsum("ij,ij->j", unit, M @ unit)
    np.testing.assert_allclose(quotients, values, rtol=1e-3, atol=ROUNDING * largest, err_msg="Rayleigh quotients")


def check_scikit_learn(X: npt.NDArray[Any], config: dict[str, Any], metrics: dict[str, Any], total: float) -> None:
    """The sum of the eigenvalues of lle, where both programs have the same neighbours."""
    same = config["method"] == "lle" and config["preprocess"]["scale"] == "none" and config["weights"]["reg"] != "auto"
    repaired = metrics["reverse_added"] or metrics["bridges_added"] or metrics["duplicates_merged"]
    ties = len(np.unique(np.round(X - X.min(axis=0), 9)[:, 0])) < len(X)
    if not same or repaired or ties or metrics["n_components_weak"] > 1:
        return
    theirs = LocallyLinearEmbedding(
        n_neighbors=config["neighbors"]["n_neighbors"],
        n_components=config["eigensolver"]["n_components"],
        reg=config["weights"]["reg"],
        eigen_solver="dense",
    ).fit(np.asarray(X, float))
    np.testing.assert_allclose(total, theirs.reconstruction_error_, rtol=1e-3, atol=1e-11, err_msg="scikit-learn")

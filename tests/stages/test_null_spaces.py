"""The null space of M for each method, on graphs where the methods differ, and its repair.

| method | dimension of the null space of M, on data that are nowhere exactly flat |
|---|---|
| lle; hessian of one coordinate without noise | closed classes: one row for a point lets points outside follow any |
| modified, other hessian and ltsa | 1: several rows for each point leave no free values outside of closed classes |
| ltsa, hessian | at least the parts that the lists leave, where a list joins its members but not its owner |
| laplacian | weak components, since the graph is symmetrised |

So closed classes are repaired for the methods of the first line, and if K gives one row for each point: m + 2 for ltsa,
m + 1 for modified.
For ltsa and hessian, points that no list joins to their own list become members of it; the parts are then the weak
components.
"""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.kernels.graph.connectivity import closed_classes, neighbor_graph
from lle.kernels.manifolds import sample
from lle.storage.store import Store
from tests.support.commands import lle, write_config
from tests.support.oracle import dense_factor
from tests.support.seeds import seeds

QUICK_FIRST = [
    "lle",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("modified", "hessian", "ltsa", "laplacian")),
]
SLOW_CASES = [("modified", 1), ("hessian", 1), ("ltsa", 1), ("ltsa", 2)]
CASES = [
    ("lle", 1),
    ("laplacian", 1),
    ("hessian", 2),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_CASES),
]
ONE_ROW = [("lle", 1), ("hessian", 1)]
K = 8


def two_closed_classes(seed: int) -> np.ndarray:
    """Two dense curved patches, and sparse points between them that list both; 30 + 60 + 30 points."""
    rng = np.random.default_rng(seed)
    patches = [0.05 * sample("punctured_sphere", 0, 30, seed + side, 0.0, 1.0).points for side in (0, 1)]
    patches[1] += [6.0, 0.0, 0.0]
    between = np.column_stack([np.linspace(0.3, 5.7, 60), *(0.3 * rng.normal(size=(2, 60)))])
    return np.concatenate([*patches, between])


def config_of(folder: Path, X: np.ndarray, method: str, m: int = 1, **neighbors) -> Path:
    np.save(folder / "x.npy", X)
    path = write_config(
        folder,
        input={"kind": "npy", "path": str(folder / "x.npy")},
        neighbors={"n_neighbors": K, **neighbors},
        output={"report": False},
        graph={"min_component": 10},
        eigensolver={"n_components": m},
    )
    with path.open("a") as file:
        file.write(f"method: {method}\n")
    return path


def factor(store: Store, method: str) -> np.ndarray:
    if method == "lle":
        return dense_factor(store.read_all("neighbor_indices"), store.read_all("weights"))
    return store.read_rows("local_factors", 0).toarray()


def null_dimension(F: np.ndarray) -> int:
    singular = np.linalg.svd(F, compute_uv=False)
    return F.shape[1] - int((singular > 1e-8 * singular[0]).sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 5))
@pytest.mark.parametrize(("method", "m"), CASES)
def test_null_space_with_two_closed_classes_in_one_component(tmp_path, method, m, seed):
    path = config_of(tmp_path, two_closed_classes(seed), method, m, reverse=0)
    result = CliRunner().invoke(app, ["run", str(path)])
    store = Store(str(tmp_path / "run.zarr"))
    classes = closed_classes(neighbor_graph(store.read_all("_work/knn_indices")))
    assert classes.sizes.tolist() == [30, 30]
    assert store.read_all("_work/component").max() == 0
    assert null_dimension(factor(store, method)) == (2 if method == "lle" else 1)  # noise adds rows to hessian
    assert result.exit_code == (3 if method == "lle" else 0), result.output
    if method == "lle":
        assert "found 2 (30, 30 points)" in " ".join(result.output.split())
    mended = lle("run", path, "--set", "neighbors.reverse=auto")
    assert (mended["metrics"]["reverse_added"] > 0) == ((method, m) in ONE_ROW)
    assert null_dimension(factor(Store(store.url), method)) == 1
    assert mended["metrics"]["participation"][0][0] > 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, 7))
@pytest.mark.parametrize(
    ("method", "k", "dimension"), [("lle", 3, 2), ("modified", 5, 1), ("modified", 2, 2), ("laplacian", 3, 1)]
)
def test_null_space_of_random_lists_with_two_closed_classes(tmp_path, method, k, dimension, seed):
    """Points in general position: the dimension follows from the graph and the number of rows alone."""
    rng = np.random.default_rng(seed)
    lists = []
    for i in range(100):  # points of two rings list their successor and others of their ring, the rest anything
        pool = np.arange(100) if i >= 60 else np.arange(30) + i // 30 * 30
        successor = i if i >= 60 else pool[(i + 1) % 30]
        candidates = rng.permutation(np.setdiff1d(pool, [i, successor]))
        lists.append(np.append([] if i >= 60 else [successor], candidates)[:k])
    np.save(tmp_path / "graph.npy", lists)
    graph = {"kind": "npy", "path": str(tmp_path / "graph.npy")}
    path = config_of(tmp_path, rng.normal(size=(100, 3)), method, precomputed=graph, k_min=k, reverse=0)
    CliRunner().invoke(app, ["run", str(path)])
    store = Store(str(tmp_path / "run.zarr"))
    assert closed_classes(neighbor_graph(store.read_all("_work/knn_indices"))).sizes.tolist() == [30, 30]
    assert null_dimension(factor(store, method)) == dimension
    mended = lle("run", path, "--set", "neighbors.reverse=auto")
    assert (mended["metrics"]["reverse_added"] > 0) == (dimension == 2)
    assert null_dimension(factor(Store(store.url), method)) == 1


@pytest.mark.parametrize("method", QUICK_FIRST)
def test_null_space_of_two_sets_that_list_only_each_other(tmp_path, method):
    """One weak component and one closed class, but lists that join only points of the same set."""
    X = sample("punctured_sphere", 0, 160, 3, 0.0, 1.0).points
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    distances[np.equal.outer(np.arange(160) % 2, np.arange(160) % 2)] = np.inf
    np.save(tmp_path / "graph.npy", np.argsort(distances, axis=1)[:, :K])
    path = config_of(tmp_path, X, method, precomputed={"kind": "npy", "path": str(tmp_path / "graph.npy")})
    result = lle("run", path)
    store = Store(str(tmp_path / "run.zarr"))
    assert result["metrics"]["n_components_weak"] == 1
    assert null_dimension(factor(store, method)) == 1
    assert result["metrics"]["participation"][0][0] > 40

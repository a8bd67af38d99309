"""The whole job: against scikit-learn, reuse after a change, every row back in its place."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.manifold import LocallyLinearEmbedding
from sklearn.manifold._locally_linear import barycenter_weights

from lle import open_run
from lle.kernels.manifolds import sample
from lle.storage.store import Store
from tests.support.commands import lle, npy_config, write_config
from tests.support.oracle import largest_angle
from tests.support.stored import sum_rows


def internal_order(store: Store, input_rows: np.ndarray) -> np.ndarray:
    return input_rows[store.read_all("original_index")]


def untied_digits() -> np.ndarray:
    """Digits hold small integers, so many distances are equal and the choice among them is free; noise decides it."""
    X = load_digits().data
    return X + 1e-6 * np.random.default_rng(9).normal(size=X.shape)


@pytest.mark.parametrize(
    ("name", "n"), [("swiss_roll", 1000), pytest.param("swiss_roll", 5000, marks=pytest.mark.slow), ("digits", 1797)]
)
def test_equals_scikit_learn(tmp_path, name, n):
    k, m = 12, 2
    X = sample(name, 0, n, 11, 0.0, 0.0).points if name == "swiss_roll" else untied_digits()
    config = npy_config(
        tmp_path,
        X,
        neighbors={"n_neighbors": k, "reverse": 0},
        embedding={"scale": "unit_norm"},
        eigensolver={"n_components": m},
        execution={"block_points": 700},
        quality={"sample": 50},
    )
    lle("run", config)
    store = Store(str(tmp_path / "run.zarr"))
    points = store.read_all("points")
    np.testing.assert_array_equal(points, internal_order(store, X).astype(points.dtype))
    weights = barycenter_weights(points, points, store.read_all("neighbor_indices"), reg=1e-3)
    np.testing.assert_allclose(store.read_all("weights"), weights, atol=1e-9)
    reference = LocallyLinearEmbedding(
        n_neighbors=k, n_components=m, eigen_solver="arpack", reg=1e-3, tol=1e-12, max_iter=1000, random_state=4
    ).fit(X)
    embedding = store.read_all("embedding")
    assert largest_angle(embedding, reference.embedding_) < 0.01
    assert largest_angle(embedding[::-1].copy(), reference.embedding_) > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["unit_covariance", pytest.param("unit_norm", marks=pytest.mark.slow)])
def test_stored_eigenvalues_are_those_of_the_stored_factor(tmp_path, scale):
    config = write_config(
        tmp_path,
        input={"kind": "synthetic", "name": "s_curve", "n_points": 3000, "seed": 3},
        eigensolver={"n_components": 3},
        embedding={"scale": scale},
        execution={"block_points": 1000},
    )
    metrics = lle("run", config)["metrics"]
    store = Store(str(tmp_path / "run.zarr"))
    Y = store.read_all("embedding")[store.read_all("original_index")]
    W, N = store.read_all("weights"), store.read_all("neighbor_indices")
    AY = Y - np.einsum("nk,nkm->nm", W, Y[N])
    eigenvalues = store.read_all("eigenvalues")
    np.testing.assert_allclose((AY**2).sum(0) / (Y**2).sum(0), eigenvalues[0], rtol=1e-6)
    np.testing.assert_allclose(metrics["eigenvalues"], eigenvalues)
    norm = 1.0 if scale == "unit_norm" else len(Y)
    np.testing.assert_allclose(Y.T @ Y, norm * np.eye(3), atol=1e-6 * norm)
    assert (Y[np.abs(Y).argmax(axis=0), range(3)] > 0).all()
    M = sum_rows(store, len(Y))
    np.testing.assert_allclose(M @ Y, Y * eigenvalues[0], atol=1e-12 * np.abs(Y).max())


@pytest.mark.slow
def test_changed_config_reuses_unaffected_steps(tmp_path):
    config = write_config(
        tmp_path, input={"kind": "synthetic", "name": "swiss_roll", "n_points": 1500}, execution={"block_points": 500}
    )
    first = lle("run", config)
    assert not any(first["blocks_reused"].values())
    second = lle("run", config)
    assert not second["blocks_computed"]
    assert second["blocks_reused"] == first["blocks_computed"]
    assert second["metrics"] == first["metrics"]

    computed = set(lle("run", config, "--set", "weights.reg=0.01")["blocks_computed"])
    assert computed == {"solve_weights", "assemble_cost", "solve_embedding", "measure_quality", "write_report"}
    overrides = ["--set", "weights.reg=0.01", "--set", "eigensolver.n_components=3"]
    computed = set(lle("run", config, *overrides)["blocks_computed"])
    assert computed == {"solve_embedding", "measure_quality", "write_report"}
    computed = set(lle("run", config, *overrides, "--set", "neighbors.min_recall=0.5")["blocks_computed"])
    assert computed == {"write_report"}
    computed = set(lle("run", config, "--set", "neighbors.n_neighbors=10")["blocks_computed"])
    assert "find_neighbors" in computed
    assert "ingest" not in computed
    fresh = lle("run", config, "--fresh")
    assert fresh["blocks_computed"] == first["blocks_computed"]


@pytest.mark.slow
def test_a_change_back_and_forth_gives_the_same_bytes(tmp_path):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "s_curve", "n_points": 900})
    lle("run", config)
    store = Store(str(tmp_path / "run.zarr"))
    embedding = store.read_all("embedding").tobytes()
    lle("run", config, "--set", "preprocess.scale=standard", "--set", "preprocess.pca=2")
    store = Store(str(tmp_path / "run.zarr"))
    assert store.array("points").shape == (900, 2)
    assert store.read_all("embedding").tobytes() != embedding
    lle("run", config)
    assert Store(str(tmp_path / "run.zarr")).read_all("embedding").tobytes() == embedding


def test_duplicates_invalid_rows_and_components_are_in_input_order(tmp_path):
    rng = np.random.default_rng(10)
    roll = sample("swiss_roll", 0, 500, 5, 0.0, 0.0).points
    X = np.concatenate([roll, roll[:200] + 200.0, roll[100:150], roll[:1]])
    X = np.concatenate([X, np.full((3, 3), np.nan), roll[:20] - 900.0])
    order = rng.permutation(len(X))
    config = npy_config(
        tmp_path,
        X[order],
        preprocess={"invalid": "drop"},
        neighbors={"n_neighbors": 10},
        execution={"block_points": 256},
        quality={"sample": 50},
    )
    metrics = lle("run", config)["metrics"]
    Y, component = (Store(str(tmp_path / "run.zarr")).read_all(name) for name in ("embedding", "component"))
    Y, component = Y[np.argsort(order)], component[np.argsort(order)]
    assert metrics["duplicates_merged"] == 51
    assert metrics["dropped"] == {"invalid": 3}
    assert metrics["n_components_weak"] == 3
    assert (component[:500] == 0).all()
    assert (component[500:700] == 1).all()
    invalid = np.isnan(X).any(axis=1)
    assert (component[invalid] == -1).all()
    assert (component[754:] == 2).all()
    np.testing.assert_array_equal(np.isfinite(Y).all(axis=1), ~invalid)
    errors = open_run(tmp_path / "run.zarr").columns()["reconstruction_error"]
    np.testing.assert_array_equal(errors[np.argsort(order)].isna(), invalid)
    np.testing.assert_array_equal(Y[700:750], Y[100:150])
    np.testing.assert_array_equal(Y[750], Y[0])
    assert "n_components_weak" in [finding["measure"] for finding in metrics["findings"]]


def test_report_is_complete_and_can_be_made_again(tmp_path):
    source = {"kind": "synthetic", "name": "s_curve", "n_points": 300}
    config = write_config(tmp_path, input=source, output={"report": True})
    lle("run", config)
    report = tmp_path / "run.zarr" / "report"
    assert (report / "embedding.png").read_bytes().startswith(b"\x89PNG")
    page = (report / "index.html").read_text()
    assert "swiss" not in page
    (report / "index.html").unlink()
    lle("report", tmp_path / "run.zarr")
    assert (report / "index.html").read_text().count("data:image/png") == page.count("data:image/png") >= 2
    required = """
        n_input n_points n_features duplicates_merged invalid_dropped recall n_components_weak closed_classes
        closed_classes_left reverse_added bridges_added participation nnz_cost_matrix solver eigenvalues residuals
        reconstruction_error trustworthiness continuity seconds peak_bytes
    """
    metrics = json.loads((report / "metrics.json").read_text())
    assert [key for key in required.split() if metrics.get(key) is None] == []
    assert {"method", "reason", "factor_nnz", "predicted_bytes", "n_solves"} <= set(metrics["solver"])
    assert metrics["peak_bytes"].keys() == metrics["seconds"].keys() == metrics["blocks"].keys()
    assert min(metrics["peak_bytes"].values()) > 2**26


@pytest.mark.slow
def test_plan_and_status_agree_with_the_run(tmp_path):
    config = write_config(
        tmp_path, input={"kind": "synthetic", "name": "swiss_roll", "n_points": 1000}, execution={"block_points": 250}
    )
    planned = lle("plan", config)
    assert not (tmp_path / "run.zarr").exists()
    lle("run", config)
    status = lle("status", tmp_path / "run.zarr")
    assert status["state"] == "done"
    for stage, entry in status["stages"].items():
        tasks = sum(row["tasks"] for row in planned["steps"] if row["stage"] == stage)
        assert entry["done"] == entry["blocks"] == tasks
    assert lle("plan", config)["solver"]["method"]


@pytest.mark.slow
def test_arrays_of_another_search_method_are_not_reused(tmp_path):
    """kdtree and pynndescent write the same arrays in different steps; each change computes them again."""
    config = write_config(
        tmp_path, input={"kind": "synthetic", "name": "s_curve", "n_points": 1200}, execution={"block_points": 500}
    )
    lle("run", config)
    embedding = Store(str(tmp_path / "run.zarr")).read_all("embedding").tobytes()
    changes = ["--set", "neighbors.method=pynndescent", "--set", "input.seed=8"]
    lle("run", config, *changes)
    status = lle("status", tmp_path / "run.zarr")["stages"]["find_neighbors"]["steps"]
    assert set(status) == {"group_cells", "send_members", "search_cells", "merge"}
    lle("run", config)
    assert Store(str(tmp_path / "run.zarr")).read_all("embedding").tobytes() == embedding


def test_small_data_are_embedded_for_any_min_component(tmp_path):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "sheet", "n_points": 40})
    metrics = lle("run", config, "--set", "neighbors.n_neighbors=6")["metrics"]
    assert metrics["closed_classes_left"] == 1
    assert np.isfinite(Store(str(tmp_path / "run.zarr")).read_all("embedding")).all()

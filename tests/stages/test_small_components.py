"""Every row gets coordinates: components are counted in input rows, rows of small ones are placed among the others."""

import json

import numpy as np
import pytest

from lle.storage.store import Store
from tests.support.commands import lle, write_config
from tests.support.points import swiss_roll

ROLL, BLOB, K = 300, 30, 8


def points(repeats: int = 1) -> np.ndarray:
    """A roll of 300 points, and a distant blob of 30 points that are repeated."""
    rng = np.random.default_rng(7)
    blob = 200 + rng.normal(size=(BLOB, 3))
    return np.concatenate([swiss_roll(ROLL, rng), *[blob] * repeats])


def run(folder, X, neighbors=None, **graph):
    np.save(folder / "x.npy", X)
    neighbors = {"n_neighbors": K} if neighbors is None else neighbors
    config = write_config(
        folder, input={"kind": "npy", "path": str(folder / "x.npy")}, neighbors=neighbors, graph=graph
    )
    lle("run", config)
    store = Store(str(folder / "run.zarr"))
    metrics = json.loads((folder / "run.zarr" / "report" / "metrics.json").read_text())
    return store.read_all("embedding"), store.read_all("component"), metrics


def test_rows_of_a_small_component_get_barycentric_coordinates(tmp_path):
    X = points()
    embedding, component, metrics = run(tmp_path, X, min_component=50)
    assert np.isfinite(embedding).all()
    assert (component[ROLL:] == -2).all()
    assert (component[:ROLL] == 0).all()
    assert metrics["rows_placed"] == BLOB
    for row in range(ROLL, ROLL + BLOB):
        nearest = np.argsort(np.linalg.norm(X[:ROLL] - X[row], axis=1))[:K]
        gram = (X[nearest] - X[row]) @ (X[nearest] - X[row]).T
        weights = np.linalg.solve(gram + 1e-3 * np.trace(gram) * np.eye(K), np.ones(K))
        np.testing.assert_allclose(embedding[row], weights / weights.sum() @ embedding[nearest], rtol=1e-6, atol=1e-9)


def test_rows_are_placed_among_fewer_points_than_neighbours(tmp_path):
    """The lists have empty slots, and the first point of the store is itself in a small component."""
    rng = np.random.default_rng(0)
    blobs = [100 * rng.normal(size=3) + 0.1 * rng.normal(size=(size, 3)) for size in (9, 4, 4, 4, 4, 4, 4)]
    X, neighbors = rng.permutation(np.concatenate(blobs)), {"n_neighbors": 12, "radius": 1.0, "k_min": 3}
    embedding, component, metrics = run(tmp_path, X, neighbors, min_component=6)
    assert metrics["rows_placed"] == 24
    assert Store(str(tmp_path / "run.zarr")).read_all("_work/component")[0] > 0
    assert (component == -2).sum() == 24
    assert np.isfinite(embedding).all()


@pytest.mark.parametrize(("repeats", "by_itself"), [(1, False), (2, True)])
def test_min_component_counts_input_rows(tmp_path, repeats, by_itself):
    _, component, metrics = run(tmp_path, points(repeats), min_component=2 * BLOB)
    assert (component[ROLL:] == (1 if by_itself else -2)).all()
    assert metrics["rows_placed"] == (0 if by_itself else repeats * BLOB)


def test_warning_about_rows_without_coordinates_names_the_key_and_the_share(tmp_path):
    embedding, component, metrics = run(tmp_path, points(), components="largest")
    assert np.isnan(embedding[ROLL:]).all()
    assert (component[ROLL:] == -1).all()
    [warning] = metrics["defects"]
    assert "30 rows (9.1%)" in warning
    assert "graph.components: connect" in warning

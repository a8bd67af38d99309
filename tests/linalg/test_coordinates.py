"""embedding.coordinates: independent in whole runs: the eigenvectors, where they are used, and what the run records."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from lle.storage.store import Store
from tests.support.commands import lle, write_config

N = 700
LAPLACIAN = {"method": "laplacian", "embedding": {"coordinates": "independent"}, "neighbors": {"n_neighbors": 10}}


def strip(n: int = N) -> np.ndarray:
    """A curved sheet of width 1 and length 5.3; its lowest eigenfunctions are waves along it."""
    u, v = np.random.default_rng(5).uniform(size=(2, n)) * [[5.3], [1.0]]
    return np.column_stack([u, v, 0.2 * np.sin(2 * u)])


def run(folder, points: np.ndarray, *changes: str, **sections) -> tuple[Store, dict]:
    folder.mkdir(exist_ok=True)
    np.save(folder / "points.npy", points)
    method = sections.pop("method", "lle")
    config = write_config(folder, input={"kind": "npy", "path": str(folder / "points.npy")}, **sections)
    settings = [part for change in (f"method={method}", *changes) for part in ("--set", change)]
    result = lle("run", config, *settings)
    return Store(str(folder / "run.zarr")), result["metrics"]


@pytest.fixture(scope="module")
def long_strip(tmp_path_factory):
    return run(tmp_path_factory.mktemp("strip"), strip(), **LAPLACIAN)


def width_explained(embedding: np.ndarray) -> float:
    """R^2 of the width by the mean of the ten nearest points in the embedding."""
    width = strip()[:, 1]
    near = cKDTree(embedding).query(embedding, 11)[1][:, 1:]
    return 1 - float(np.square(width - width[near].mean(axis=1)).mean() / width.var())


@pytest.mark.slow
def test_second_coordinate_shows_the_width(tmp_path, long_strip):
    store, metrics = long_strip
    first, _ = run(tmp_path, strip(), **{**LAPLACIAN, "embedding": {"coordinates": "first"}})
    assert width_explained(first.read_all("embedding")) < 0.2
    assert width_explained(store.read_all("embedding")) > 0.7
    [choice] = metrics["coordinates"]
    assert choice["taken"][0] == 1
    assert choice["taken"][1] > 2
    assert (choice["computed"], choice["clumps_taken"], choice["clumps_skipped"]) == (10, [], [])
    [change] = choice["replaced"]
    assert (change["left"], change["taken"]) == (2, choice["taken"][1])


def test_measures_describe_the_chosen_coordinates_and_the_store_keeps_all_eigenvalues(long_strip):
    store, metrics = long_strip
    taken = np.array(metrics["coordinates"][0]["taken"]) - 1
    eigenvalues = store.read_all("eigenvalues")
    assert eigenvalues.shape == (1, 10)
    assert (np.diff(eigenvalues[0]) > 0).all()
    assert metrics["eigenvalues"] == [eigenvalues[0, taken].tolist()]
    assert [len(metrics[key][0]) for key in ("residuals", "participation", "vector_errors")] == [2, 2, 2]
    embedding, solution = store.read_all("embedding"), store.read_bundle("_work/eigen/00000")
    original = store.read_all("original_index")[solution["rows"]]
    np.testing.assert_array_equal(embedding[original], np.sqrt(N) * solution["vectors"])
    np.testing.assert_allclose(embedding.std(axis=0), 1, atol=0.3)


def test_no_more_pairs_are_computed_if_the_first_ones_are_independent(tmp_path):
    square = strip() * [0.2, 1, 1]
    first, _ = run(tmp_path, square)
    expected = first.read_all("embedding")
    store, metrics = run(tmp_path, square, "embedding.coordinates=independent")
    [choice] = metrics["coordinates"]
    assert (choice["taken"], choice["computed"]) == ([1, 2], 2)
    assert store.read_all("eigenvalues").shape == (1, 2)
    assert store.read_all("embedding").tobytes() == expected.tobytes()


@pytest.mark.slow
def test_any_block_size_gives_the_same_bytes(tmp_path, long_strip):
    store, metrics = long_strip
    other, again = run(tmp_path, strip(), "execution.block_points=256", **LAPLACIAN)
    assert again["coordinates"] == metrics["coordinates"]
    assert other.read_all("embedding").tobytes() == store.read_all("embedding").tobytes()


@pytest.mark.slow
def test_change_between_first_and_independent_does_not_leave_a_stale_choice(tmp_path):
    store, _ = run(tmp_path, strip(), **LAPLACIAN)
    independent = store.read_all("embedding")
    store, metrics = run(tmp_path, strip(), "embedding.coordinates=first", **LAPLACIAN)
    assert metrics["coordinates"] is None
    assert store.read_all("eigenvalues").shape == (1, 2)
    assert np.abs(store.read_all("embedding")[:, 1] - independent[:, 1]).max() > 0.5
    store, metrics = run(tmp_path, strip(), **LAPLACIAN)
    assert store.read_all("embedding").tobytes() == independent.tobytes()


def test_alignment_and_new_rows_use_the_chosen_coordinates(tmp_path, long_strip):
    store, _ = long_strip
    other, metrics = run(tmp_path / "run", strip(), f"embedding.align={store.url}", **LAPLACIAN)
    [component] = metrics["alignment"]["components"]
    np.testing.assert_allclose(component["rotation"], np.eye(2), atol=1e-6)
    np.testing.assert_allclose(other.read_all("embedding"), store.read_all("embedding"), atol=1e-6)
    np.save(tmp_path / "rows.npy", strip()[:20] + 1e-9)
    out = tmp_path / "new.npy"
    lle("transform", other.url, tmp_path / "rows.npy", out)
    assert np.abs(np.load(out)[:, :2] - other.read_all("embedding")[:20]).mean() < 0.1


@pytest.mark.slow
def test_a_clump_is_skipped_and_its_group_is_named(tmp_path):
    """Nine points beside the middle of a sheet are a coordinate of LLE with a small reg."""
    rng = np.random.default_rng(0)
    u, v = rng.uniform(0, 2, 1200), rng.uniform(0, 1, 1200)
    group = [1, 0.5, 0.12] + 0.01 * rng.normal(size=(9, 3))
    points = np.vstack([np.column_stack([u, v, 0.2 * np.sin(2 * u)]), group])
    points = np.column_stack([points, np.zeros(len(points))])  # four coordinates need four features
    sections = {"neighbors": {"n_neighbors": 10}, "eigensolver": {"n_components": 4}}
    _, first = run(tmp_path, points, **sections)
    assert first["participation"][0][3] < 12
    _, metrics = run(tmp_path, points, "embedding.coordinates=independent", **sections)
    [choice] = metrics["coordinates"]
    [clump] = choice["clumps_skipped"]
    assert 4 not in choice["taken"]
    assert clump["eigenvector"] == 4
    assert clump["participation"] == pytest.approx(first["participation"][0][3])
    assert 6 <= clump["points"] <= 9
    assert set(clump["rows"]) <= set(range(1200, 1209))
    assert min(metrics["participation"][0]) > 100


def test_export_names_the_eigenvectors(tmp_path, long_strip):
    h5py = pytest.importorskip("h5py")
    store, metrics = long_strip
    lle("export", store.url, tmp_path / "out.h5ad")
    with h5py.File(tmp_path / "out.h5ad") as file:
        assert file["uns/lle/eigenvectors"][:].tolist() == [metrics["coordinates"][0]["taken"]]
        assert file["uns/lle/eigenvalues"].shape == (1, 10)


def test_sixteen_pairs_are_computed_if_all_are_clumps(tmp_path, monkeypatch):
    monkeypatch.setattr("lle.kernels.quality.independent.CLUMP_SHARE", 1.1)
    store, metrics = run(tmp_path, strip(300), **LAPLACIAN)
    [choice] = metrics["coordinates"]
    assert (choice["taken"], choice["clumps_taken"], choice["computed"]) == ([1, 2], [1, 2], 16)
    assert len(choice["clumps_skipped"]) == 14
    assert store.read_all("eigenvalues").shape == (1, 16)


def test_components_of_few_points_have_fewer_pairs(tmp_path):
    """The largest has ten pairs, one of eight points has six; the array pads them with NaN."""
    small = strip(8) + np.array([0, 0, 50])
    store, metrics = run(tmp_path, np.vstack([strip(300), small]), **{**LAPLACIAN, "neighbors": {"n_neighbors": 5}})
    assert [choice["computed"] for choice in metrics["coordinates"]] == [10, 6]
    eigenvalues = store.read_all("eigenvalues")
    assert np.isfinite(eigenvalues).sum(axis=1).tolist() == [10, 6]
    assert np.isfinite(store.read_all("embedding")).all()

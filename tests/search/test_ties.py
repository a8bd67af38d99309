"""Points at equal distances: ties go to the lower id in every search, so blocks of any size give the same result."""

import numpy as np
import pytest

from lle.engine import plan_sizes
from lle.search import cell_groups
from lle.search.among_stored import nearest_points
from tests.support.oracle import exact_neighbors

K = 10
BLOCKS = (700, 350, 77)


@pytest.fixture
def grid() -> np.ndarray:
    """700 of the 1,000 points of a lattice, in random order: nearly every list has a tie at its end."""
    rng = np.random.default_rng(41)
    cells = rng.permutation(1000)[:700]
    return np.column_stack(np.unravel_index(cells, (10, 10, 10))).astype(np.float64)


@pytest.fixture(autouse=True)
def _small_cells(monkeypatch):
    monkeypatch.setattr(plan_sizes, "CELL_POINTS", 60)
    monkeypatch.setattr(cell_groups, "GROUP_POINTS", 200)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "scale", "spacing"),
    [("kdtree", "none", 0.1), ("kdtree", "none", 1.0), ("kdtree", "standard", 1.0), ("brute", "none", 1.0)],
)
def test_block_size_changes_no_list_and_no_eigenvalue(tmp_path, run_stages, make_config, grid, method, scale, spacing):
    results = []
    for block in BLOCKS:
        config = make_config(
            tmp_path, spacing * grid, block, neighbors={"method": method, "n_neighbors": K}, preprocess={"scale": scale}
        )
        store = run_stages(config, "solve_embedding").store
        names = ("original_index", "points", "neighbor_indices", "neighbor_distances", "eigenvalues", "embedding")
        results.append({name: store.read_all(name) for name in names})
    for result in results[1:]:
        for name, values in results[0].items():
            np.testing.assert_array_equal(result[name], values, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_block_search_with_trees_resolves_ties_by_lower_id(tmp_path, run_stages, make_config, grid, block):
    neighbors = {"method": "kdtree", "n_neighbors": K}
    store = run_stages(make_config(tmp_path, grid, block, neighbors=neighbors), "find_neighbors").store
    ids, distances = exact_neighbors(store.read_all("points"), K)
    np.testing.assert_array_equal(store.read_all("_work/knn_indices"), ids)
    np.testing.assert_array_equal(store.read_all("_work/knn_distances"), distances.astype(np.float32))


@pytest.mark.slow
def test_group_search_resolves_ties_by_lower_id(tmp_path, run_stages, make_config, grid):
    neighbors = {"method": "pynndescent", "n_neighbors": K, "min_recall": 0.0}
    runs = [
        run_stages(make_config(tmp_path, grid, block, neighbors=neighbors), "find_neighbors").store for block in BLOCKS
    ]
    for store in runs:
        np.testing.assert_array_equal(store.read_all("_work/knn_indices"), runs[0].read_all("_work/knn_indices"))


@pytest.mark.slow
def test_new_points_between_points_of_a_grid_take_lower_ids(tmp_path, run_stages, make_config, grid, monkeypatch):
    monkeypatch.setattr("lle.search.among_stored.HALO_ROWS", 64)
    store = run_stages(make_config(tmp_path, grid, 77), "order_points").store
    points = store.read_all("points")
    new = grid[:200] + 0.5
    distances = np.sqrt(np.square(new[:, None] - points[None]).sum(axis=2))
    expected = np.argsort(distances, axis=1, kind="stable")[:, :K]
    np.testing.assert_array_equal(nearest_points(store, new, K, 0).ids, expected)
    for part in np.array_split(np.arange(200), 7):
        np.testing.assert_array_equal(nearest_points(store, new[part], K, 0).ids, expected[part])

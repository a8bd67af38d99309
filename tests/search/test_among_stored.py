"""Nearest training points of new rows in the nearest cells: equal to a search by hand, and to the exact one."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from lle.engine import plan_sizes
from lle.kernels import out_of_sample
from lle.search import among_stored
from lle.search.among_stored import cells_to_search, nearest_points
from lle.storage.store import Store
from tests.support.points import curved
from tests.support.seeds import seeds

K = 10
FIRST = 1
"""Only the first component, the largest, has coordinates."""


@pytest.fixture(scope="module", params=seeds(5, 29, 83))
def store(request, tmp_path_factory, run_stages, make_config) -> Store:
    """700 points on a surface, and 150 points apart from them."""
    rng = np.random.default_rng(request.param)
    points = curved(850, rng)
    points[700:] += 30
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_sizes, "CELL_POINTS", 60)
        folder = tmp_path_factory.mktemp("cells")
        store = run_stages(make_config(folder, points, 300, neighbors={"n_neighbors": K}), "mend_graph").store
    component = store.read_all("_work/component")
    component[rng.random(850) < 0.2] = FIRST  # in the same cells as embedded points
    store.write("_work/component", 0, component)
    return store


@pytest.fixture
def new() -> np.ndarray:
    return curved(90, np.random.default_rng(1))


def cells_by_hand(store: Store, n_embedded: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(centres of the cells with embedded points, the cell of each point, whether it is embedded)."""
    centers, counts = store.read_bundle("_work/cells")["centers"], store.read_all("_work/cell_counts").sum(axis=0)
    is_used = store.read_all("_work/component") < n_embedded if n_embedded else np.ones(counts.sum(), bool)
    cell_of = np.repeat(np.arange(len(counts)), counts)
    used = np.unique(cell_of[is_used])
    return centers[used], np.searchsorted(used, cell_of), is_used & np.isin(cell_of, used)


@pytest.mark.parametrize("n_embedded", [0, FIRST])
@pytest.mark.parametrize("n_cells", [2, 4])
def test_lists_hold_the_nearest_points_of_the_nearest_cells(store, new, n_embedded, n_cells, monkeypatch):
    monkeypatch.setattr(among_stored, "HALO_ROWS", 100)
    monkeypatch.setattr(out_of_sample, "PAIRS", 150)
    n_pairs, search = [], out_of_sample.nearest_cells

    def recorded(points, centers, n_nearest):
        n_pairs.append(len(points) * n_nearest)
        return search(points, centers, n_nearest)

    monkeypatch.setattr(out_of_sample, "nearest_cells", recorded)
    centers, cell_of, is_used = cells_by_hand(store, n_embedded)
    near = np.argsort(cdist(new, centers), axis=1)[:, :n_cells]
    distances = cdist(new, store.read_all("points"))
    distances[~(is_used & (near[:, :, None] == cell_of).any(axis=1))] = np.inf
    expected = np.argsort(distances, axis=1)[:, :K]
    assert len(np.unique(near)) > 5
    np.testing.assert_array_equal(nearest_points(store, new, K, n_embedded, n_cells).ids, expected)
    parts = [nearest_points(store, part, K, n_embedded, n_cells).ids for part in np.array_split(new, 4)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert max(n_pairs) <= 150


@pytest.mark.parametrize("n_embedded", [0, FIRST])
def test_search_in_all_cells_is_exact(store, new, n_embedded):
    found, exact = (nearest_points(store, new, K, n_embedded, 10**6), nearest_points(store, new, K, n_embedded))
    np.testing.assert_array_equal(found.ids, exact.ids)
    np.testing.assert_array_equal(found.distances, exact.distances)


def test_no_rows_have_no_lists(store, new):
    assert nearest_points(store, new[:0], K, 0, 2).ids.shape == (0, K)


def test_rows_with_too_few_points_in_their_cells_are_searched_exactly(store, new):
    k, counts = 55, store.read_all("_work/cell_counts").sum(axis=0)
    nearest = np.argmin(cdist(new, store.read_bundle("_work/cells")["centers"]), axis=1)
    is_short = counts[nearest] < k
    assert 0 < is_short.sum() < len(new)
    found, exact = nearest_points(store, new, k, 0, 1).ids, nearest_points(store, new, k, 0).ids
    np.testing.assert_array_equal(found[is_short], exact[is_short])
    assert (found[~is_short] != exact[~is_short]).any()
    assert (found >= 0).all()


@pytest.mark.parametrize("are_embedded", [True, False])
@pytest.mark.parametrize("n_embedded", [0, FIRST])
def test_number_of_cells_is_the_least_with_the_recall(store, n_embedded, are_embedded, monkeypatch):
    centers, cell_of, is_used = cells_by_hand(store, n_embedded)
    rows = np.flatnonzero(is_used == (are_embedded or not n_embedded))[::3]
    points, all_points = store.gather("points", rows), store.read_all("points")
    distances = cdist(points, all_points)
    distances[:, ~is_used] = np.inf
    distances[np.arange(len(rows)), rows] = np.inf
    ranks = np.argsort(np.argsort(cdist(points, centers), axis=1), axis=1)
    nearest = cell_of[np.argsort(distances, axis=1)[:, :K]]
    needed = np.take_along_axis(ranks, nearest, axis=1)
    for n_cells in (2, 3):
        reached = (needed < n_cells).mean()
        for share, expected in ((reached - 1e-3, n_cells), (reached + 1e-3, n_cells + 1)):
            monkeypatch.setattr(out_of_sample, "RECALL", share)
            assert cells_to_search(store, rows, K, n_embedded) == expected


def test_at_least_two_cells_are_searched(store, monkeypatch):
    monkeypatch.setattr(out_of_sample, "RECALL", 0.01)
    assert cells_to_search(store, np.arange(0, 700, 7), K, 0) == 2

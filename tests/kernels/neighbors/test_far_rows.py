"""A few far rows, such as fill values, do not reduce the precision of distances between the others."""

import tracemalloc

import numpy as np
import pytest

from lle.kernels import batches
from lle.kernels.neighbors import distances, knn
from lle.kernels.neighbors.cells import nearest_cells, nearest_groups
from lle.kernels.neighbors.distances import near_pairs, pair_distances, square_rounding, typical_point
from lle.kernels.neighbors.knn import brute_neighbors, cell_neighbors, exact_distances, points_within, recall_per_point
from lle.kernels.quality import trustworthiness as quality_kernel
from lle.kernels.quality.trustworthiness import count_closer, neighbor_thresholds
from tests.support.seeds import seeds

SEEDS = seeds(3, 11, 29)
FAR = [1e10, 1e12, 1e20]
DTYPES = [np.float32, np.float64]


def all_distances(queries: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(b, c), by differences of the coordinates in long doubles."""
    A, B = queries.astype(np.longdouble), points.astype(np.longdouble)
    squares = np.zeros((len(A), len(B)), np.longdouble)
    for column in range(A.shape[1]):
        squares += np.square(A[:, column, None] - B[:, column])
    return np.sqrt(squares).astype(np.float64)


def with_far_rows(seed: int, far: float, dtype: type, n_points: int = 600, n_features: int = 16) -> np.ndarray:
    """Normal points; the first row and some others are fill values in all features or in a single one."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n_points, n_features))
    rows = np.append(0, rng.choice(np.arange(1, n_points), 8, replace=False))
    points[rows[:3]] = far
    points[rows[3:6], 2] = far  # equal there, and near each other in the other features
    points[rows[6:]] *= far
    return points.astype(dtype)


def assert_exact(lists: knn.NeighborLists, queries: np.ndarray, query_ids: np.ndarray, points: np.ndarray) -> None:
    """The lists of those of the points that are nearest, with the right distances; ties by id."""
    truth = all_distances(queries, points)
    truth[query_ids[:, None] == np.arange(len(points))] = np.inf
    k = lists.ids.shape[1]
    np.testing.assert_allclose(lists.distances, np.sort(truth, axis=1)[:, :k], rtol=1e-12)
    np.testing.assert_allclose(lists.distances, np.take_along_axis(truth, lists.ids, axis=1), rtol=1e-12)
    tied = np.diff(lists.distances, axis=1) == 0
    assert (np.diff(lists.ids, axis=1)[tied] > 0).all()
    near = truth.copy()  # without equal distances in float64 these lists are the only correct ones
    order = np.argsort(near, axis=1, kind="stable")[:, : k + 1]
    gaps = np.diff(np.take_along_axis(truth, order, axis=1), axis=1)
    clear = (gaps > 1e-12 * np.take_along_axis(truth, order[:, 1:], axis=1)).all(axis=1)
    np.testing.assert_array_equal(lists.ids[clear], order[clear, :k])
    assert clear.mean() > 0.9


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("seed", SEEDS)
class TestBruteForce:
    def test_brute_force_is_exact_with_far_rows(self, seed, far, dtype):
        points, ids = with_far_rows(seed, far, dtype), np.arange(600)
        assert_exact(brute_neighbors(points, ids, points, ids, 7), points, ids, points)

    def test_same_for_any_batch_and_chunk(self, seed, far, dtype, monkeypatch):
        points, ids = with_far_rows(seed, far, dtype), np.arange(600)
        lists = brute_neighbors(points, ids, points, ids, 7)
        for name, size in [("CHUNK_ELEMENTS", 16 * 37), ("TILE_POINTS", 53)]:
            monkeypatch.setattr(knn, name, size)
        for name, size in [("TILE_POINTS", 53), ("TILE_PAIRS", 53 * 5)]:
            monkeypatch.setattr(distances, name, size)
        monkeypatch.setattr(batches, "BATCH_BYTES", 8 * 16 * 19)
        for size in (1, 7, 600):
            slices = [slice(first, first + size) for first in range(0, 60, size)]
            parts = [brute_neighbors(points[part], ids[part], points, ids, 7) for part in slices]
            for column, expected in zip(zip(*parts, strict=True), lists, strict=True):
                joined = np.concatenate(column)
                np.testing.assert_array_equal(joined, expected[: len(joined)])

    def test_far_row_is_found_at_distance_zero(self, seed, far, dtype):
        points = with_far_rows(seed, far, dtype)
        lists = brute_neighbors(points, np.full(600, -1), points, np.arange(600), 4)
        assert (lists.distances[:, 0] == 0).all()
        alone = all_distances(points, points)
        np.fill_diagonal(alone, np.inf)
        alone = alone.min(axis=1) > 0
        np.testing.assert_array_equal(lists.ids[alone, 0], np.flatnonzero(alone))

    def test_far_clusters_are_searched_exactly(self, seed, far, dtype):
        """The mean of all points can be in any of the clusters."""
        points = np.random.default_rng(seed).normal(size=(200, 12))
        points[120:, 0] = far
        points[160:, 1] = -far
        points, ids = points.astype(dtype), np.arange(200)
        assert_exact(brute_neighbors(points, ids, points, ids, 7), points, ids, points)


@pytest.mark.parametrize("seed", SEEDS)
class TestTies:
    def test_ties_of_many_points_go_to_the_lowest_ids(self, seed):
        points = np.random.default_rng(seed).integers(0, 3, size=(400, 6)).astype(np.float64)
        ids = np.arange(400)
        lists = brute_neighbors(points, ids, points, ids, 5)
        truth = all_distances(points, points)
        np.fill_diagonal(truth, np.inf)
        np.testing.assert_array_equal(lists.ids, np.argsort(truth, axis=1, kind="stable")[:, :5])


def test_normal_points_are_searched_once(rng, monkeypatch):
    n_searched = []
    search = knn._search_again
    monkeypatch.setattr(
        knn, "_search_again", lambda queries, *arguments: n_searched.append(len(queries)) or search(queries, *arguments)
    )
    for dtype in DTYPES:
        points, ids = rng.normal(size=(500, 64)).astype(dtype), np.arange(500)
        brute_neighbors(points, ids, points, ids, 12)
        points[[4, 77]] = 1e12
        brute_neighbors(points, ids, points, ids, 12)
    assert n_searched == [0, 2, 0, 2]


def test_memory_is_bounded_where_all_are_searched_again():
    points, ids = np.zeros((20_000, 16), np.float32), np.arange(20_000)
    tracemalloc.start()
    brute_neighbors(points[:128], ids[:128], points, ids, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20, peak


def test_cells_searched_by_descent_keep_float64_points_apart(monkeypatch):
    points = with_far_rows(3, 1e12, np.float64, n_features=5)

    def nearest(points, k, seed):
        return np.argsort(all_distances(points, points), axis=1, kind="stable")[:, :k].astype(np.int32)

    monkeypatch.setattr(knn, "_nn_descent", nearest)
    lists = cell_neighbors(points, np.arange(600), 6, exact_below=10, seed=1)
    exact = brute_neighbors(points, np.arange(600), points, np.arange(600), 6)
    ordinary = np.abs(points).max(axis=1) < 100
    assert (lists.ids[ordinary] == exact.ids[ordinary]).mean() > 0.99


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [-80, 80])
def test_cells_searched_by_descent_have_the_same_lists_in_every_unit(exponent, dtype):
    points, ids = np.random.default_rng(2).normal(size=(400, 5)).astype(dtype), np.arange(400)
    expected = cell_neighbors(points, ids, 6, exact_below=10, seed=1).ids
    np.testing.assert_array_equal(cell_neighbors(np.ldexp(points, exponent), ids, 6, 10, seed=1).ids, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_unit_of_most_points_does_not_hide_the_neighbours_of_the_others(dtype):
    points, ids = np.random.default_rng(3).normal(size=(500, 5)).astype(dtype), np.arange(500)
    points[:400] *= 1e-20
    points[-1] = 1e30
    exact = brute_neighbors(points, ids, points, ids, 6).ids
    found = cell_neighbors(points, ids, 6, exact_below=10, seed=1).ids
    shared = [len(np.intersect1d(*lists)) / 6 for lists in zip(found[400:-1], exact[400:-1], strict=True)]
    assert np.mean(shared) > 0.9


@pytest.mark.parametrize("n_features", [3, 16])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("seed", SEEDS)
class TestPointsWithin:
    def test_distances_of_the_coordinates_as_given(self, seed, far, dtype, n_features):
        points, rows = with_far_rows(seed, far, dtype, n_features=n_features), np.arange(0, 600, 2)
        truth = all_distances(points[rows], points)
        truth[np.arange(300), rows] = np.inf
        radii = np.sort(truth, axis=1)[:, 6]
        hits = points_within(points[rows], rows, radii, points, 0)
        actual = np.zeros(truth.shape, bool)
        actual[hits.sample, hits.ids] = True
        assert not (actual & (truth > radii[:, None] * (1 + 2e-9))).any()
        assert actual[truth <= radii[:, None]].all()
        np.testing.assert_allclose(hits.distances, truth[hits.sample, hits.ids], rtol=1e-12)

    def test_recall_of_exact_lists_is_one(self, seed, far, dtype, n_features):
        points, rows = with_far_rows(seed, far, dtype, n_features=n_features), np.arange(0, 600, 3)
        truth = all_distances(points[rows], points)
        truth[np.arange(200), rows] = np.inf
        listed = np.argsort(truth, axis=1, kind="stable")[:, :6]
        distances = exact_distances(points[rows], points, listed)
        hits = [points_within(points[rows], rows, distances[:, -1], points[a : a + 250], a) for a in (0, 250, 500)]
        all_hits = knn.Hits(*(np.concatenate(column) for column in zip(*hits, strict=True)))
        np.testing.assert_array_equal(recall_per_point(all_hits, distances, 200, 6), 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("seed", SEEDS)
class TestOtherSearches:
    def test_ranks_are_exact_with_far_rows(self, seed, far, dtype, monkeypatch):
        monkeypatch.setattr(quality_kernel, "SORTED_ELEMENTS", 0)
        points, rows = with_far_rows(seed, far, dtype), np.arange(0, 600, 30)
        truth = all_distances(points[rows], points)
        order = np.argsort(truth, axis=1, kind="stable")[:, 3:300:60]
        thresholds = neighbor_thresholds(points[rows], points, order)
        counts = count_closer(points[rows], rows, points, 0, thresholds)
        truth[np.arange(20), rows] = np.inf
        squares = np.square(truth)
        expected = [
            [(row_squares < limit * (1 - 1e-12)).sum() for limit in limits]
            for row_squares, limits in zip(squares, thresholds, strict=True)
        ]
        ordinary = np.abs(points[rows]).max(axis=1) < 100  # in float64 all others are equally far from a far row
        np.testing.assert_array_equal(counts[ordinary], np.array(expected)[ordinary])

    def test_nearest_cells_are_exact_with_far_rows(self, seed, far, dtype):
        points = with_far_rows(seed, far, dtype)
        rng = np.random.default_rng(seed)
        centers = rng.normal(size=(150, 16))
        centers[7] = far
        ordinary = np.abs(points).max(axis=1) < 100
        truth = np.argsort(all_distances(points, centers), axis=1, kind="stable")[:, :4]
        np.testing.assert_array_equal(nearest_cells(points, centers, 4)[ordinary], truth[ordinary])
        alone = nearest_groups(points, centers, np.arange(150, dtype=np.int32), 4)
        np.testing.assert_array_equal(alone[ordinary], truth[ordinary])


class TestPairs:
    @pytest.mark.parametrize("n_points", [1, 2, 255, 256, 257, 5000])
    def test_typical_point_is_a_median(self, rng, n_points):
        points = rng.normal(size=(n_points, 3)).astype(np.float32)
        middle = typical_point(points)
        assert middle.dtype == np.float64
        sampled = points[:: -(-n_points // 256)]
        np.testing.assert_array_equal((sampled < middle).sum(axis=0), len(sampled) // 2)

    def test_typical_point_of_an_empty_set(self):
        np.testing.assert_array_equal(typical_point(np.empty((0, 3))), np.zeros(3))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("n_features", [1, 12, 700])
    def test_square_rounding_bounds_the_error(self, rng, n_features, dtype):
        left, right = (rng.normal(size=(n, n_features)) * 10.0 ** rng.integers(-3, 4, (n, 1)) for n in (60, 80))
        squares = [np.square(part).sum(axis=1) for part in (left, right)]
        products = left.astype(dtype) @ right.astype(dtype).T
        error = np.abs(squares[0][:, None] + squares[1] - 2 * products - np.square(all_distances(left, right)))
        assert (error <= square_rounding(n_features, dtype) * (squares[0][:, None] + squares[1])).all()

    @pytest.mark.parametrize("unit", [1e-140, 1e-30, 1.0, 1e30, 1e140])
    @pytest.mark.parametrize("spread", [1.0, 1e-4, 1e-9])
    def test_near_pairs_are_all_pairs_within_the_limits(self, rng, spread, unit, monkeypatch):
        """Single precision cannot decide pairs in clusters with a spread of 1e-4, and double precision of 1e-9."""
        monkeypatch.setattr(distances, "TILE_POINTS", 53)
        monkeypatch.setattr(distances, "TILE_PAIRS", 53 * 7)
        points = unit * (np.repeat(rng.normal(size=(4, 6)), 50, axis=0) + spread * rng.normal(size=(200, 6)))
        queries = points[::7]
        squares = np.square(all_distances(queries, points))
        limits = np.sort(squares, axis=1)[:, 9]
        tiles = list(near_pairs(queries, points, limits))
        rows, columns = (np.concatenate(parts) for parts in zip(*tiles, strict=True))
        near = squares <= limits[:, None]
        assert near[rows, columns].sum() == near.sum()
        assert len(rows) < 2 * near.sum() or spread == 1e-9

    def test_distances_equal_those_of_the_lists_bit_for_bit(self, rng):
        for n_features in (1, 3, 16, 65):
            left, right = rng.normal(size=(30, n_features)), rng.normal(size=(40, n_features)).astype(np.float32)
            positions = rng.integers(0, 40, size=(30, 5))
            flat = pair_distances(left, np.repeat(np.arange(30), 5), right, positions.ravel())
            np.testing.assert_array_equal(flat.reshape(30, 5), exact_distances(left, right, positions))
            single = [exact_distances(left[i : i + 1], right, positions[i : i + 1, :1])[0, 0] for i in range(30)]
            np.testing.assert_array_equal(single, flat[::5])

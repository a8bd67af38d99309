"""Neighbour lists: the same properties for every back end, and the recall."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lle.kernels import batches
from lle.kernels.neighbors import knn
from lle.kernels.neighbors.knn import (
    Hits,
    brute_neighbors,
    cell_neighbors,
    exact_distances,
    kdtree_neighbors,
    nearest_of_each,
    points_within,
    recall_per_point,
    select_nearest,
)


def brute_force(points: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and distances of the k nearest others, ties by position, from differences in float64."""
    X = points.astype(np.float64)
    distances = np.sqrt(np.square(X[:, None] - X[None]).sum(axis=2))
    np.fill_diagonal(distances, np.inf)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(distances, order, axis=1)


def search_kdtree(points, ids, k):
    return kdtree_neighbors(points, ids, points, ids, k)


def search_brute(points, ids, k):
    return brute_neighbors(points, ids, points, ids, k)


def search_brute_in_small_chunks(points, ids, k):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knn, "CHUNK_ELEMENTS", 7 * len(points))
        return brute_neighbors(points, ids, points, ids, k)


def search_cell(points, ids, k):
    return cell_neighbors(points, ids, k, exact_below=10**6, seed=5)


BACK_ENDS = [search_kdtree, search_brute, search_brute_in_small_chunks, search_cell]


@pytest.mark.parametrize("search", BACK_ENDS)
class TestExactBackEnds:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(("n_points", "n_features", "k"), [(300, 3, 12), (200, 20, 5), (40, 1, 3)])
    def test_equals_brute_force(self, search, rng, dtype, n_points, n_features, k):
        points = rng.normal(size=(n_points, n_features)).astype(dtype)
        lists = search(points, np.arange(n_points), k)
        ids, distances = brute_force(points, k)
        np.testing.assert_array_equal(lists.ids, ids)
        np.testing.assert_allclose(lists.distances, distances, rtol=1e-12)
        assert lists.ids.dtype == np.int64
        assert lists.distances.dtype == np.float64

    def test_lists_hold_the_given_ids(self, search, rng):
        points = rng.normal(size=(60, 4))
        ids = np.sort(rng.choice(10**12, 60, replace=False))
        lists = search(points, ids, 6)
        np.testing.assert_array_equal(lists.ids, ids[brute_force(points, 6)[0]])

    def test_lists_ascend_and_hold_distinct_others(self, search, rng):
        points = rng.integers(0, 4, size=(80, 2)).astype(np.float64)  # many equal points and equal distances
        lists = search(points, np.arange(80), 7)
        assert (np.diff(lists.distances, axis=1) >= 0).all()
        assert (lists.ids != np.arange(80)[:, None]).all()
        assert (np.diff(np.sort(lists.ids, axis=1), axis=1) > 0).all()

    def test_ties_go_to_the_lower_id(self, search, rng):
        points = np.stack(np.meshgrid(np.arange(7.0), np.arange(6.0)), -1).reshape(-1, 2)
        points = rng.permutation(points)
        lists = search(points, np.arange(len(points)), 5)
        ids, distances = brute_force(points, 5)
        np.testing.assert_array_equal(lists.ids, ids)
        np.testing.assert_array_equal(lists.distances, distances)
        np.testing.assert_array_equal(lists.distances, exact_distances(points, points, lists.ids))
        for ids, distances in zip(lists.ids, lists.distances, strict=True):
            assert list(zip(distances, ids, strict=True)) == sorted(zip(distances, ids, strict=True))

    @pytest.mark.parametrize("missing", [1, 2])
    def test_k_close_to_n_lists_all_others(self, search, rng, missing):
        points = rng.normal(size=(9, 3))
        lists = search(points, np.arange(9), 9 - missing)
        np.testing.assert_array_equal(lists.ids, brute_force(points, 9 - missing)[0])

    def test_more_neighbors_than_points_are_padded(self, search, rng):
        points = rng.normal(size=(4, 3))
        lists = search(points, np.arange(4), 6)
        np.testing.assert_array_equal(lists.ids[:, :3], brute_force(points, 3)[0])
        assert (lists.ids[:, 3:] == -1).all()
        assert np.isinf(lists.distances[:, 3:]).all()
        assert lists.ids.shape == (4, 6)

    def test_lone_point_has_no_neighbors(self, search):
        lists = search(np.ones((1, 3)), np.array([4]), 2)
        np.testing.assert_array_equal(lists.ids, [[-1, -1]])
        assert np.isinf(lists.distances).all()

    def test_identical_points_are_neighbors_at_distance_zero(self, search):
        points = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
        lists = search(points, np.arange(4), 2)
        np.testing.assert_array_equal(lists.ids[[0, 2, 3]], [[2, 3], [0, 3], [0, 2]])
        assert (lists.distances[[0, 2, 3]] == 0).all()


class TestQueriesApartFromPoints:
    @pytest.mark.parametrize("search", [kdtree_neighbors, brute_neighbors])
    def test_block_of_queries_against_all_points(self, search, rng):
        points = rng.normal(size=(90, 3))
        lists = search(points[30:50], np.arange(30, 50), points, np.arange(90), 6)
        ids, distances = brute_force(points, 6)
        np.testing.assert_array_equal(lists.ids, ids[30:50])
        np.testing.assert_allclose(lists.distances, distances[30:50], rtol=1e-12)


class TestApproximateCell:
    @pytest.fixture
    def nearest_of_a_few(self, monkeypatch):
        """In place of NN-descent: the exact lists, self first, with a slot of -1 here and there."""
        calls = []

        def search(points, k, seed):
            calls.append((points.dtype, k, seed))
            order, _ = brute_force(points, k - 1)
            ids = np.column_stack([np.arange(len(points)), order]).astype(np.int32)
            ids[::3, 2] = -1
            return ids

        monkeypatch.setattr(knn, "_nn_descent", search)
        return calls

    def test_positions_become_ids_and_empty_slots_are_removed(self, nearest_of_a_few, rng):
        points = rng.normal(size=(60, 5))
        ids = 1000 + 3 * np.arange(60)
        lists = cell_neighbors(points, ids, 6, exact_below=10, seed=29)
        order, distances = brute_force(points, 6)
        is_full = np.arange(60) % 3 > 0
        np.testing.assert_array_equal(lists.ids[is_full], ids[order[is_full]])
        np.testing.assert_allclose(lists.distances[is_full], distances[is_full], rtol=1e-12)
        np.testing.assert_array_equal(lists.ids[~is_full, :5], np.delete(ids[order[~is_full]], 1, axis=1))
        np.testing.assert_array_equal(lists.ids[~is_full, 5], -1)
        assert nearest_of_a_few == [(np.float32, 7, 29)]

    @pytest.mark.parametrize(("exact_below", "n_searches"), [(60, 0), (59, 1)])
    def test_small_cells_are_searched_exactly(self, nearest_of_a_few, rng, exact_below, n_searches):
        cell_neighbors(rng.normal(size=(60, 5)), np.arange(60), 6, exact_below, seed=1)
        assert len(nearest_of_a_few) == n_searches

    def test_points_far_from_zero_keep_their_neighbors(self, nearest_of_a_few, rng):
        """NN-descent sees float32, whose numbers near 1e8 are eight apart."""
        points = rng.normal(size=(60, 5)) + 1e8
        lists = cell_neighbors(points, np.arange(60), 6, exact_below=10, seed=29)
        is_full = np.arange(60) % 3 > 0
        np.testing.assert_array_equal(lists.ids[is_full], brute_force(points, 6)[0][is_full])

    @pytest.mark.slow  # compiles for half a minute
    @pytest.mark.filterwarnings("default")
    def test_nn_descent_has_high_recall_and_is_deterministic(self):
        points = np.random.default_rng(3).normal(size=(1500, 12))
        lists = cell_neighbors(points, np.arange(1500), 10, exact_below=100, seed=7)
        ids, distances = brute_force(points, 10)
        shares = [len(set(a) & set(b)) / 10 for a, b in zip(lists.ids, ids, strict=True)]
        assert 0.9 < np.mean(shares) <= 1
        assert (lists.distances >= distances - 1e-12).all()
        assert (lists.ids != np.arange(1500)[:, None]).all()
        np.testing.assert_allclose(lists.distances, exact_distances(points, points, lists.ids))
        repeated = cell_neighbors(points, np.arange(1500), 10, exact_below=100, seed=7)
        np.testing.assert_array_equal(repeated.ids, lists.ids)


class TestExactDistances:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_distances_are_float64_for_any_dtype(self, rng, dtype):
        points = (rng.normal(size=(20, 3)) + 1000).astype(dtype)
        positions = rng.integers(0, 20, size=(20, 4))
        expected = np.linalg.norm(points[positions].astype(np.float64) - points[:, None].astype(np.float64), axis=2)
        np.testing.assert_allclose(exact_distances(points, points, positions), expected, rtol=1e-13)

    def test_minus_one_is_infinitely_far(self):
        points = np.zeros((2, 1))
        np.testing.assert_array_equal(
            exact_distances(points, points, np.array([[1, -1], [-1, 0]])), [[0, np.inf], [np.inf, 0]]
        )

    def test_chunks_change_nothing(self, rng, monkeypatch):
        points, positions = rng.normal(size=(50, 3)), rng.integers(-1, 50, size=(50, 4))
        expected = exact_distances(points, points, positions)
        monkeypatch.setattr(batches, "BATCH_BYTES", 8 * 5 * 4 * 3)
        np.testing.assert_array_equal(exact_distances(points, points, positions), expected)


class TestSelectNearest:
    def test_drops_self_repeats_and_minus_one(self):
        ids = np.array([[7, 3, 3, -1, 9, 5]])
        distances = np.array([[0.0, 2.0, 2.0, 0.5, 1.0, 3.0]])
        lists = select_nearest(ids, distances, np.array([7]), 3)
        np.testing.assert_array_equal(lists.ids, [[9, 3, 5]])
        np.testing.assert_array_equal(lists.distances, [[1, 2, 3]])

    def test_pads_short_rows(self):
        lists = select_nearest(np.array([[4, 4, -1]]), np.array([[1.0, 1.0, np.inf]]), np.array([0]), 5)
        np.testing.assert_array_equal(lists.ids, [[4, -1, -1, -1, -1]])
        np.testing.assert_array_equal(lists.distances, [[1, *4 * [np.inf]]])

    def test_does_not_change_its_arguments(self, rng):
        ids, distances = rng.integers(-1, 9, size=(5, 6)), rng.random((5, 6))
        originals = ids.copy(), distances.copy()
        select_nearest(ids, distances, np.arange(5), 3)
        np.testing.assert_array_equal(ids, originals[0])
        np.testing.assert_array_equal(distances, originals[1])

    @given(st.data())
    def test_equals_a_loop(self, data):
        n_rows, width, k = (data.draw(st.integers(1, top)) for top in (4, 9, 9))
        ids = np.array(
            data.draw(
                st.lists(st.lists(st.integers(-1, 6), min_size=width, max_size=width), min_size=n_rows, max_size=n_rows)
            )
        )
        own_ids = np.array(data.draw(st.lists(st.integers(0, 6), min_size=n_rows, max_size=n_rows)))
        # An id has one distance from a point, however often it is listed.
        distance_of = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=8, max_size=8)))
        actual = select_nearest(ids, distance_of[ids], own_ids, k)
        for row in range(n_rows):
            expected = sorted((distance_of[i], i) for i in set(ids[row].tolist()) - {-1, own_ids[row]})[:k]
            assert actual.ids[row].tolist() == [i for _, i in expected] + [-1] * (k - len(expected))
            assert actual.distances[row].tolist() == [d for d, _ in expected] + [np.inf] * (k - len(expected))


class TestPointsWithin:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("first_row", [0, 70])
    def test_equals_all_pairs(self, rng, dtype, first_row):
        sample, block = rng.normal(size=(9, 3)).astype(dtype), rng.normal(size=(40, 3)).astype(dtype)
        sample_ids = np.array([*range(70, 75), 3, 200, 300, 400])
        block[:5] = sample[:5]
        radii = rng.uniform(0.5, 2.0, 9)
        hits = points_within(sample, sample_ids, radii, block, first_row)
        pairs = np.linalg.norm(block[None].astype(float) - sample[:, None].astype(float), axis=2)
        expected = {
            (s, b + first_row)
            for s, b in zip(*np.nonzero(pairs <= radii[:, None]), strict=True)
            if b + first_row != sample_ids[s]
        }
        assert set(zip(hits.sample.tolist(), hits.ids.tolist(), strict=True)) == expected
        np.testing.assert_allclose(hits.distances, pairs[hits.sample, hits.ids - first_row], rtol=1e-9, atol=1e-12)

    def test_the_point_at_the_radius_is_within(self):
        hits = points_within(np.array([[1e6, 0.0]]), np.array([0]), np.array([3e-3]), np.array([[1e6, 3e-3]]), 5)
        np.testing.assert_array_equal(hits.ids, [5])


class TestNearestOfEach:
    @pytest.mark.parametrize("k", [1, 3, 500])
    def test_equals_a_loop(self, rng, k):
        sample, ids = rng.integers(0, 9, 400), rng.permutation(400)
        distances = rng.integers(0, 4, 400).astype(float)  # many as far as each other
        triples = list(zip(sample.tolist(), ids.tolist(), distances.tolist(), strict=True))
        sorted_hits = [sorted((t for t in triples if t[0] == s), key=lambda t: (t[2], t[1])) for s in range(9)]
        expected = [t for row_hits in sorted_hits for t in row_hits[:k]]
        actual = nearest_of_each(Hits(sample, ids, distances), k)
        assert list(zip(*map(np.ndarray.tolist, actual), strict=True)) == expected

    def test_nearest_of_every_block_suffice_for_the_recall(self, rng):
        points = rng.integers(0, 3, (600, 6)).astype(float)  # few different distances
        points = np.unique(points, axis=0)
        rows = np.arange(0, len(points), 7)
        listed = brute_force(points, 9)[0][rows]
        listed[::2, 5:] = rng.integers(0, len(points), listed[::2, 5:].shape)
        hits, distances = hits_of(points, rows, listed, 1)
        parts = [nearest_of_each(Hits(*(column[hits.ids % 4 == part] for column in hits)), 9) for part in range(4)]
        nearest_hits = Hits(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        assert len(nearest_hits.ids) < len(hits.ids)
        of_nearest, of_all = (recall_per_point(subset, distances, len(rows), 9) for subset in (nearest_hits, hits))
        np.testing.assert_array_equal(of_nearest, of_all)


def recall_by_sets(points: np.ndarray, rows: np.ndarray, lists: np.ndarray) -> np.ndarray:
    """Share of the listed neighbours that are no farther than the true k-th nearest."""
    k = lists.shape[1]
    true = brute_force(points, k)[1][rows, -1]
    listed = exact_distances(points[rows], points, lists)
    return (listed <= true[:, None] * (1 + 1e-12)).mean(axis=1)


def hits_of(points: np.ndarray, rows: np.ndarray, lists: np.ndarray, n_blocks: int) -> tuple[Hits, np.ndarray]:
    distances = exact_distances(points[rows], points, lists)
    radii = distances.max(axis=1, where=np.isfinite(distances), initial=0.0)
    radii[~np.isfinite(distances).all(axis=1)] = np.inf
    blocks = np.array_split(np.arange(len(points)), n_blocks)
    hits = [points_within(points[rows], rows, radii, points[block], int(block[0])) for block in blocks]
    return Hits(*(np.concatenate(part) for part in zip(*hits, strict=True))), distances


class TestRecall:
    def check(self, points, rows, lists, n_blocks=3):
        hits, distances = hits_of(points, rows, lists, n_blocks)
        recall = recall_per_point(hits, distances, len(rows), lists.shape[1])
        assert ((recall >= 0) & (recall <= 1)).all()
        np.testing.assert_array_equal(recall, recall_by_sets(points, rows, lists))
        return recall

    def test_exact_lists_have_recall_one(self, rng):
        points = rng.normal(size=(120, 3))
        rows = np.sort(rng.choice(120, 30, replace=False))
        assert (self.check(points, rows, brute_force(points, 7)[0][rows]) == 1).all()

    def test_wrong_neighbors_count_as_missed(self, rng):
        points = rng.normal(size=(120, 3))
        rows = np.sort(rng.choice(120, 30, replace=False))
        listed = brute_force(points, 10)[0][rows]
        n_wrong = rng.integers(0, 4, 30)  # as many of the 7 nearest replaced by the next ones
        lists = np.array([np.append(row[: 7 - n], row[7 : 7 + n]) for row, n in zip(listed, n_wrong, strict=True)])
        np.testing.assert_allclose(self.check(points, rows, lists), 1 - n_wrong / 7)

    def test_missing_neighbors_count_as_missed(self, rng):
        points = rng.normal(size=(50, 3))
        rows = np.arange(0, 50, 5)
        listed = brute_force(points, 6)[0][rows]
        listed[::2, 4:] = -1
        np.testing.assert_allclose(self.check(points, rows, listed), np.where(np.arange(10) % 2 == 0, 4 / 6, 1.0))

    def test_any_of_several_tied_neighbors_is_correct(self):
        points = np.array([[0.0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [2, 0], [0, 2]])
        for pair in ([1, 2], [3, 4], [2, 3]):
            assert self.check(points, np.array([0]), np.array([pair])).tolist() == [1.0]
        assert self.check(points, np.array([0]), np.array([[1, 5]])).tolist() == [0.5]

    def test_empty_slots_count_as_missed_neighbors(self):
        hits = Hits(np.array([0, 0]), np.array([1, 2]), np.array([1.0, 2.0]))
        recall = recall_per_point(hits, np.array([[1.0, 2.0, np.inf]]), 1, 3)
        np.testing.assert_array_equal(recall, [2 / 3])

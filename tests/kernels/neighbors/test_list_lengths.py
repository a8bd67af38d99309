"""How many neighbours a point keeps: against loops that follow the definitions point by point."""

import numpy as np
import pytest

from lle.kernels.neighbors.knn import Hits, NeighborLists, brute_neighbors, points_within, recall_per_point
from lle.kernels.neighbors.list_lengths import counts_within, cut_lists, exact_reach, flat_counts, flatness, true_counts
from lle.kernels.quality.trustworthiness import trustworthiness


def lists_of(X: np.ndarray, k: int) -> NeighborLists:
    return brute_neighbors(X, np.arange(len(X)), X, np.arange(len(X)), k)


def test_lists_are_truncated_after_the_count(rng):
    lists = lists_of(rng.normal(size=(40, 3)), 7)
    counts = rng.integers(1, 8, 40)
    cut = cut_lists(lists, counts)
    for row, count in enumerate(counts):
        np.testing.assert_array_equal(cut.ids[row], [*lists.ids[row, :count], *[-1] * (7 - count)])
        np.testing.assert_array_equal(cut.distances[row], [*lists.distances[row, :count], *[np.inf] * (7 - count)])


class TestRadius:
    def test_counts_between_the_bounds(self, rng):
        lists = lists_of(rng.normal(size=(200, 3)), 9)
        expected = [max(3, sum(d <= 0.7 for d in row)) for row in lists.distances]
        counts = counts_within(lists.distances, 0.7, 3)
        assert counts.tolist() == expected
        assert counts.min() == 3
        assert len(set(expected)) > 4

    def test_a_neighbor_at_the_radius_is_within(self):
        """On a grid every distance is 0.1 give or take a rounding error."""
        line = np.arange(20)[:, None] * 0.1
        lists = lists_of(line, 4)
        assert set(counts_within(lists.distances, 0.1, 1)[1:-1].tolist()) == {2}
        assert set(counts_within(lists.distances.astype(np.float32), 0.1, 1)[1:-1].tolist()) == {2}

    def test_count_is_at_most_the_number_of_listed_neighbors(self):
        assert counts_within(np.array([[1.0, np.inf, np.inf]]), 0.5, 2).tolist() == [1]


def contraction(X: np.ndarray, m: int, k_min: int, eta: float) -> int:
    """Steps C1 to C4 of Zhang, Wang & Zha for one neighbourhood (K, d)."""
    ratios = {}
    for k in range(len(X), k_min - 1, -1):
        s = np.linalg.svd(X[:k] - X[:k].mean(axis=0), compute_uv=False)
        ratios[k] = np.sqrt((s[m:] ** 2).sum() / (s[:m] ** 2).sum())
        if ratios[k] < eta:
            return k
    return min(ratios, key=lambda k: (ratios[k], -k))


class TestFlat:
    @pytest.mark.parametrize(("d", "m", "eta"), [(3, 2, 0.2), (3, 1, 0.5), (30, 2, 0.4), (6, 3, 1e-9)])
    def test_equals_the_steps_of_the_paper(self, rng, d, m, eta):
        scale = np.where(np.arange(d) < m, 1.0, 0.25)
        neighborhoods = rng.normal(size=(60, 15, d)) * scale * np.linspace(0.2, 2.0, 15)[:, None]
        counts = flat_counts(neighborhoods, np.full(60, 15), m, m + 2, eta)
        assert counts.tolist() == [contraction(X, m, m + 2, eta) for X in neighborhoods]
        assert len(set(counts.tolist())) > 1

    def test_empty_slots_are_ignored(self, rng):
        neighborhoods = rng.normal(size=(50, 12, 4))
        listed = rng.integers(2, 13, 50)
        expected = [contraction(X[:n], 2, 4, 0.3) if n > 4 else n for X, n in zip(neighborhoods, listed, strict=True)]
        for row, n in enumerate(listed):
            neighborhoods[row, n:] = 1e3
        assert flat_counts(neighborhoods, listed, 2, 4, 0.3).tolist() == expected

    def test_flat_neighborhoods_keep_all_neighbors(self, rng):
        plane = rng.normal(size=(20, 10, 2)) @ rng.normal(size=(2, 5))
        assert (flat_counts(plane, np.full(20, 10), 2, 3, 1e-6) == 10).all()
        np.testing.assert_allclose(flatness(plane, 2), 0, atol=1e-7)
        assert flat_counts(np.zeros((1, 6, 3)), np.array([6]), 2, 3, 0.1).tolist() == [6]


class TestRecall:
    """Of ragged lists: the share of what exact search would have listed by the same rule."""

    def recall(self, X, neighbors, radius, k_min):
        k = neighbors.shape[1]
        distances = np.where(neighbors >= 0, np.linalg.norm(X[neighbors] - X[:, None], axis=2), np.inf)
        hits = points_within(X, np.arange(len(X)), exact_reach(distances, radius), X, 0)
        return recall_per_point(hits, distances, len(X), true_counts(hits, radius, k_min, k, len(X)))

    def test_exact_lists_have_recall_one(self, rng):
        X = rng.normal(size=(150, 3))
        lists = lists_of(X, 12)
        cut_ids = cut_lists(lists, counts_within(lists.distances, 0.6, 2)).ids
        assert (cut_ids >= 0).sum(axis=1).min() == 2
        assert ((cut_ids >= 0).sum(axis=1) == 12).any()
        assert (self.recall(X, cut_ids, 0.6, 2) == 1).all()

    def test_neighbors_that_were_not_found_are_missed(self, rng):
        X = rng.normal(size=(150, 3))
        lists = lists_of(X, 30)
        true = counts_within(lists.distances, 0.6, 2)
        assert true.max() < 30
        listed = cut_lists(lists, true).ids
        for row in range(0, 150, 3):
            listed[row] = [*listed[row, 1:], -1]  # the nearest is lost
        expected = np.where(np.arange(150) % 3 == 0, (true - 1) / true, 1.0)
        np.testing.assert_allclose(self.recall(X, listed, 0.6, 2), expected)

    def test_recall_with_a_count_for_each_point(self):
        hits = Hits(np.array([0, 0, 1, 1, 1]), np.arange(5), np.array([1.0, 2.0, 1.0, 2.0, 3.0]))
        listed = np.array([[1.0, 2.0, np.inf], [1.0, 3.0, np.inf]])
        np.testing.assert_allclose(recall_per_point(hits, listed, 2, np.array([2, 2])), [1.0, 0.5])


def test_trustworthiness_of_lists_of_different_lengths(rng):
    counts, n = rng.integers(1, 6, 30), 50
    ranks = rng.integers(1, n, (30, 5))
    padded = np.where(np.arange(5) < counts[:, None], ranks, 1)
    actual = trustworthiness(padded, n, counts)
    for row, k in enumerate(counts):
        assert actual[row] == pytest.approx(trustworthiness(ranks[row : row + 1, :k], n)[0], abs=1e-14)

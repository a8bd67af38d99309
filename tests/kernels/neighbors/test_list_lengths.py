"""How many neighbours a point keeps: against loops that follow the definitions point by point."""

import numpy as np
import pytest

from lle.kernels.neighbors.knn import Hits, NeighborLists, brute_neighbors, points_within, recall_per_point
from lle.kernels.neighbors.list_lengths import counts_within, cut_lists, exact_reach, true_counts
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

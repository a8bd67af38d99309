"""Bounds on the search for neighbours, barycentric coordinates, and the distance of a new point from the data."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.manifold._locally_linear import barycenter_weights

from lle.kernels import batches
from lle.kernels.neighbors.cells import bounding_boxes
from lle.kernels.neighbors.knn import NO_POINT, NeighborLists, exact_neighbors
from lle.kernels.out_of_sample import Neighborhood, distance_ratio, place, reach_of


@pytest.fixture
def cells(rng):
    """(points, their boxes): cells of 3 to 40 points each around a centre of its own."""
    sizes = rng.integers(3, 41, size=12)
    points = np.concatenate([rng.normal(size=(size, 3)) + 6 * rng.normal(size=3) for size in sizes])
    return points, bounding_boxes(points, np.concatenate([[0], np.cumsum(sizes)]), 0)


class TestReach:
    def test_reach_is_an_upper_bound_of_the_kth_distance(self, cells, rng):
        points, boxes = cells
        queries = 8 * rng.normal(size=(200, 3))
        for k in (3, 10, 30):
            true = np.sort(cdist(queries, points), axis=1)[:, k - 1]
            bound = reach_of(queries, boxes, boxes.stop - boxes.start, k)
            assert (bound >= true).all()
            assert np.median(bound / true) < 4

    def test_reach_is_infinite_if_boxes_hold_too_few_points(self, cells):
        points, boxes = cells
        assert np.isinf(reach_of(points[:5], boxes, boxes.stop - boxes.start, 41)).all()

    def test_boxes_without_valid_rows_are_ignored(self, cells):
        points, boxes = cells
        counts = np.zeros(len(boxes.start), np.int64)
        counts[4] = 7
        far = np.maximum(np.abs(points - boxes.low[4]), np.abs(points - boxes.high[4]))
        np.testing.assert_allclose(reach_of(points, boxes, counts, 7), np.linalg.norm(far, axis=1))


class TestPlace:
    @pytest.mark.parametrize("batch_bytes", [batches.BATCH_BYTES, 2000])
    def test_equals_scikit_learn(self, rng, monkeypatch, batch_bytes):
        monkeypatch.setattr(batches, "BATCH_BYTES", batch_bytes)
        points, embedding, new = rng.normal(size=(100, 4)), rng.normal(size=(100, 2)), rng.normal(size=(30, 4))
        lists = exact_neighbors(new, np.full(30, NO_POINT), points, np.arange(100), 6)
        training = Neighborhood(points, embedding, np.zeros(100, int), lists.ids)
        placed = place(new, lists, training, 1e-3, "trace")
        weights = barycenter_weights(new, points, lists.ids, reg=1e-3)
        expected = np.einsum("bk,bkm->bm", weights, embedding[lists.ids])
        np.testing.assert_allclose(placed.coordinates, expected, atol=1e-12)
        assert not placed.coincident.any()
        assert placed.used.all()

    def test_empty_slots_and_other_components_have_no_weight(self, rng):
        points, embedding, new = rng.normal(size=(9, 3)), rng.normal(size=(9, 2)), rng.normal(size=(5, 3))
        lists = exact_neighbors(new, np.full(5, NO_POINT), points, np.arange(9), 4)
        expected = place(new, lists, Neighborhood(points, embedding, np.zeros(9, int), lists.ids), 1e-3, "trace")
        far = NeighborLists(
            np.hstack([lists.ids, np.full((5, 1), 9), np.full((5, 1), -1)]),
            np.hstack([lists.distances, np.full((5, 1), 50.0), np.full((5, 1), np.inf)]),
        )
        more = Neighborhood(
            np.vstack([points, [[50.0, 0, 0]]]),
            np.vstack([embedding, [[np.nan, np.nan]]]),
            np.array([0] * 9 + [1]),
            np.maximum(far.ids, 0),
        )
        placed = place(new, far, more, 1e-3, "trace")
        np.testing.assert_allclose(placed.coordinates, expected.coordinates, atol=1e-12)
        assert placed.used.tolist() == [[True] * 4 + [False] * 2] * 5

    @pytest.mark.parametrize("shift", [0.0, 1e-14])
    def test_a_training_point_has_its_own_coordinates(self, rng, shift):
        points, embedding = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
        new = points[:5] * (1 + shift)
        lists = exact_neighbors(new, np.full(5, NO_POINT), points, np.arange(20), 6)
        placed = place(new, lists, Neighborhood(points, embedding, np.zeros(20, int), lists.ids), 1e-3, "trace")
        assert placed.coincident.all()
        np.testing.assert_array_equal(placed.coordinates, embedding[:5])


class TestDistanceRatio:
    def test_ratio_is_one_inside_a_lattice_and_grows_outside(self):
        training = np.stack(np.meshgrid(np.arange(21.0), np.arange(21.0)), axis=-1).reshape(-1, 2)
        listed = np.sort(cdist(training, training), axis=1)[:, 1:5]
        for new, first in ([10.0, 10.0], 1), ([10.0, 24.0], 0):
            order = np.argsort(cdist([new], training), axis=1, kind="stable")[:, first : first + 4]
            distances = cdist([new], training)[[[0]], order]
            [actual] = distance_ratio(distances, listed, order, order >= 0)
            assert actual == pytest.approx(1.0 if first else distances[0, -1] / listed[order, -1].mean())
            assert first or actual > 2

    def test_lists_of_varying_length_are_compared_at_the_rank_of_the_shortest(self, rng):
        training_distances = np.sort(rng.random((30, 5)), axis=1)
        lengths = rng.integers(1, 6, 30)
        cut = np.where(np.arange(5) < lengths[:, None], training_distances, np.inf)
        positions, distances = rng.integers(0, 30, (20, 4)), np.sort(rng.random((20, 4)), axis=1)
        valid = np.arange(4) < rng.integers(1, 5, 20)[:, None]
        actual = distance_ratio(np.where(valid, distances, np.inf), cut, positions, valid)
        for row in range(20):
            near = positions[row, valid[row]]
            rank = min(valid[row].sum(), lengths[near].min())
            mean = training_distances[near, rank - 1].mean()
            assert actual[row] == pytest.approx(distances[row, rank - 1] / mean)

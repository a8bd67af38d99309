"""Cells cover all points, neighbours share cells, and bounding boxes contain their points."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from threadpoolctl import threadpool_limits

from lle.engine.task_costs import SCORE_BYTES
from lle.kernels.neighbors import cells
from lle.kernels.neighbors.cells import (
    bounding_boxes,
    first_distinct,
    fit_cells,
    group_cells,
    nearest_cells,
    nearest_groups,
    reach_of_next,
    split_at_medians,
)
from tests.support.seeds import seeds


class TestFitCells:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_every_cell_gets_points(self, rng, dtype):
        points = rng.normal(size=(600, 3)).astype(dtype)
        centers = fit_cells(points, 12, seed=5)
        assert centers.shape == (12, 3)
        assert centers.dtype == np.float64
        counts = np.bincount(nearest_cells(points, centers, 1)[:, 0], minlength=12)
        assert counts.min() > 0
        assert counts.sum() == 600

    def test_cells_have_similar_sizes(self, rng):
        points = np.concatenate([rng.normal(size=(900, 2)), rng.normal(size=(20, 2)) + 40])  # dense and sparse
        counts = np.bincount(nearest_cells(points, fit_cells(points, 16, seed=5), 1)[:, 0])
        assert counts.max() <= 5 * 920 / 16

    @pytest.mark.parametrize("seed", seeds(1, 6))
    @pytest.mark.parametrize("d", [pytest.param(20, marks=pytest.mark.slow), 50])
    @pytest.mark.parametrize("tails", [lambda normal, other: normal / other, lambda normal, other: np.exp(3 * normal)])
    def test_heavy_tails_leave_no_cell_with_most_points(self, tails, d, seed):
        """k-means alone would put half of the points or more into one cell."""
        rng = np.random.default_rng(seed)
        points = tails(rng.normal(size=(30_000, d)), rng.normal(size=(30_000, d)))
        centers = fit_cells(points[:1200], 30, seed)
        counts = np.bincount(nearest_cells(points, centers, 1)[:, 0], minlength=len(centers))
        assert counts.max() <= 5 * 1000
        assert 30 <= len(centers) <= 60

    def test_cuts_at_medians_make_equal_parts(self, rng):
        points = np.column_stack([100 * rng.random(70), rng.random(70)])
        points[0] = 1e9, 0  # no direction of its own
        centers = split_at_medians(points, 7)
        order = np.argsort(points[:, 0])
        np.testing.assert_allclose(centers, [np.median(points[part], axis=0) for part in np.split(order, 7)])

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_the_number_of_threads_changes_no_bit(self, rng, dtype):
        points = rng.normal(size=(6000, 5)).astype(dtype)
        results = []
        for threads in (1, 2):
            with threadpool_limits(threads):
                results.append(fit_cells(points, 60, seed=3))
        np.testing.assert_array_equal(*results)

    def test_equal_rows_are_not_split(self, rng):
        distinct = rng.normal(size=(6, 3))
        points = np.repeat(distinct, 50, axis=0)
        centers = fit_cells(points, 20, seed=3)
        np.testing.assert_allclose(np.unique(centers, axis=0), np.unique(distinct, axis=0))
        assert len(centers) == 6

    @pytest.mark.parametrize("unit", [1.0, 1e-320, 1e150, 2.0**-52])
    def test_no_cell_is_empty_when_two_values_are_adjacent_or_extreme(self, unit):
        points = np.where(np.arange(200) % 40 == 0, 1.0 + unit, 1.0)[:, None] if unit < 1 else unit * np.eye(40)
        centers = fit_cells(points, 4, seed=3)
        assert np.isfinite(centers).all()

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_points_far_from_the_origin_get_the_same_cells(self, rng, dtype):
        points = rng.integers(0, 1000, size=(600, 3)).astype(dtype)  # shifts by multiples of 16 lose no digits
        near, far = fit_cells(points, 12, seed=5), fit_cells(points + dtype(2**20), 12, seed=5)
        np.testing.assert_allclose(far - 2**20, near, atol=1e-6)

    def test_points_whose_squares_leave_the_range_of_float32_get_cells_without_warnings(self, rng):
        points = rng.normal(size=(600, 3)).astype(np.float32) * np.float32(1e25)
        counts = np.bincount(nearest_cells(points, fit_cells(points, 12, seed=5), 1)[:, 0])
        assert counts.max() <= 5 * 600 / 12

    def test_a_split_separates_two_clusters(self, rng):
        points = rng.permutation(np.concatenate([rng.normal(size=(300, 8)), rng.normal(size=(200, 8)) + 9]))
        sizes = np.bincount(nearest_cells(points, fit_cells(points, 2, seed=3), 1)[:, 0])
        assert sorted(sizes) == [200, 300]

    @pytest.mark.parametrize(("n_sample", "n_cells", "n_found"), [(5, 9, 5), (7, 1, 1), (1, 4, 1)])
    def test_no_more_cells_than_points(self, rng, n_sample, n_cells, n_found):
        points = rng.normal(size=(n_sample, 2))
        centers = fit_cells(points, n_cells, seed=3)
        assert len(centers) == n_found
        if n_found == 1:
            np.testing.assert_allclose(centers[0], points.mean(axis=0))

    def test_cells_next_to_each_other_in_order_are_near_in_space(self, rng):
        centers = fit_cells(rng.random((2000, 2)), 64, seed=11)
        steps = np.linalg.norm(np.diff(centers, axis=0), axis=1)
        shuffled = np.linalg.norm(np.diff(rng.permutation(centers), axis=0), axis=1)
        assert steps.mean() < 0.6 * shuffled.mean()


class TestNearestGroups:
    @pytest.mark.parametrize("n_nearest", [1, 3, 9])
    def test_nearest_groups_follow_the_nearest_cells(self, rng, n_nearest, monkeypatch):
        monkeypatch.setattr(cells, "CHUNK_ROWS", 17)
        points, centers = rng.normal(size=(100, 3)) + 50, rng.normal(size=(11, 3)) + 50
        groups = np.array([0, 0, 0, 1, 2, 2, 2, 2, 3, 4, 4], np.int32)
        distances = np.linalg.norm(points[:, None] - centers, axis=2)
        by_group = np.stack([distances[:, groups == g].min(axis=1) for g in range(5)], axis=1)
        actual = nearest_groups(points, centers, groups, n_nearest)
        np.testing.assert_array_equal(actual, np.argsort(by_group, axis=1)[:, : min(n_nearest, 5)])
        assert actual.dtype == np.int32


class TestNearestCells:
    @pytest.mark.parametrize("n_nearest", [1, 2, 7])
    @pytest.mark.parametrize(("d", "n_cells"), [(3, 7), (12, 7), (12, 127), (12, 128), (40, 130), (12, 500)])
    def test_equals_all_distances(self, rng, d, n_cells, n_nearest, monkeypatch):
        monkeypatch.setattr(cells, "CHUNK_ROWS", 17)
        points, centers = rng.normal(size=(100, d)) + 50, rng.normal(size=(n_cells, d)) + 50
        distances = np.linalg.norm(points[:, None] - centers, axis=2)
        expected = np.argsort(distances, axis=1)[:, :n_nearest]
        actual = nearest_cells(points, centers, n_nearest)
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == np.int32

    @pytest.mark.parametrize("n", [2, 8, 64])
    def test_ties_between_scores_go_to_the_lowest_cell(self, rng, n):
        scores = rng.integers(0, 5, (50, 200)).astype(float)
        np.testing.assert_array_equal(cells._lowest(scores, n), np.argsort(scores, axis=1, kind="stable")[:, :n])

    def test_memory_is_at_most_five_copies_of_the_centers(self, rng):
        """The plan of the steps assumes this bound, plus chunks of scores."""
        n_cells, d = 4096, 700
        points, centers = rng.normal(size=(64, d)), rng.normal(size=(n_cells, d))
        tracemalloc.start()
        nearest_cells(points, centers, 2)
        peak = tracemalloc.get_traced_memory()[1] + centers.nbytes
        tracemalloc.stop()
        assert 24 * n_cells * d < peak < 40 * n_cells * d + SCORE_BYTES

    def test_equal_rows_go_to_equal_cells_whatever_the_chunk(self, rng, monkeypatch):
        points, centers = rng.normal(size=(64, 2)), rng.normal(size=(5, 2))
        expected = nearest_cells(points, centers, 3)
        monkeypatch.setattr(cells, "CHUNK_ROWS", 10)
        np.testing.assert_array_equal(nearest_cells(points, centers, 3), expected)


sizes_of_cells = hnp.arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 60))


class TestGroupCells:
    @given(sizes_of_cells, st.integers(1, 200))
    def test_groups_are_runs_of_consecutive_cells(self, sizes, target):
        groups = group_cells(sizes, target)
        assert groups.shape == sizes.shape
        assert groups[0] == 0
        assert set(np.diff(groups)) <= {0, 1}
        assert groups.max() + 1 <= max(1, round(sizes.sum() / target))

    @given(sizes_of_cells, st.integers(1, 200))
    def test_a_group_exceeds_its_share_by_less_than_a_cell(self, sizes, target):
        per_group = np.bincount(group_cells(sizes, target), weights=sizes)
        share = sizes.sum() / max(1, round(sizes.sum() / target))
        assert per_group.max() <= share + sizes.max() + 1e-9

    @pytest.mark.parametrize(
        ("sizes", "target", "expected"),
        [
            ([3, 3, 3, 3, 3, 3], 6, [0, 0, 1, 1, 2, 2]),
            ([5, 5], 100, [0, 0]),
            ([1, 9, 1, 9], 10, [0, 0, 1, 1]),
            ([30], 10, [0]),
            ([0, 0], 5, [0, 0]),
        ],
    )
    def test_groups_of_given_sizes(self, sizes, target, expected):
        assert group_cells(np.array(sizes), target).tolist() == expected


class TestFirstDistinct:
    @given(
        hnp.arrays(np.int32, st.tuples(st.integers(1, 6), st.integers(1, 8)), elements=st.integers(0, 4)),
        st.integers(1, 5),
    )
    def test_equals_a_loop(self, groups, n_distinct):
        expected = []
        for row in groups.tolist():
            distinct = list(dict.fromkeys(row))[:n_distinct]
            expected.append(distinct + [-1] * (n_distinct - len(distinct)))
        assert first_distinct(groups, n_distinct).tolist() == expected


class TestReachOfNext:
    @given(st.data())
    def test_equals_a_loop(self, data):
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        points, centers = rng.normal(size=(6, 3)), rng.normal(size=(9, 3))
        groups, n_first = np.sort(rng.integers(0, 4, 9)).astype(np.int32), data.draw(st.integers(1, 3))
        distances = np.linalg.norm(points[:, None] - centers, axis=2)
        nearest = np.argsort(distances, axis=1)[:, :5].astype(np.int32)
        expected = []
        for row, near in zip(distances, nearest.tolist(), strict=True):
            first_of = list({int(groups[cell]): cell for cell in reversed(near)}.values())
            in_order = sorted(row[cell] for cell in first_of)
            expected.append(in_order[n_first] / in_order[0] if len(in_order) > n_first else np.inf)
        np.testing.assert_allclose(reach_of_next(points, centers, nearest, groups, n_first), expected)

    def test_point_at_the_centre_of_its_cell_reaches_nothing(self):
        centers = np.array([[0.0], [1.0]])
        nearest = np.array([[0, 1], [0, 1]], np.int32)
        reach = reach_of_next(np.array([[0.0], [0.25]]), centers, nearest, np.array([0, 1], np.int32), 1)
        assert reach.tolist() == [np.inf, 3.0]


class TestBoxes:
    @given(st.data())
    def test_every_row_lies_in_the_one_box_of_its_run(self, data):
        points = data.draw(
            hnp.arrays(
                np.float32, st.tuples(st.integers(1, 20), st.integers(1, 3)), elements=st.floats(-9, 9, width=32)
            )
        )
        cuts = data.draw(st.lists(st.integers(0, len(points)), max_size=6))
        bounds = np.array(sorted([0, *cuts, len(points)]))  # repeated bounds are empty runs
        boxes = bounding_boxes(points, bounds, 100)
        covered = [row for start, stop in zip(boxes.start, boxes.stop, strict=True) for row in range(start, stop)]
        assert covered == list(range(100, 100 + len(points)))
        for start, stop, low, high in zip(*boxes, strict=True):
            run = points[start - 100 : stop - 100]
            np.testing.assert_array_equal(low, run.min(axis=0))
            np.testing.assert_array_equal(high, run.max(axis=0))
            assert start in bounds + 100
            assert stop in bounds + 100

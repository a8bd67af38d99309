"""Neighbours of a run: exact ones equal the oracle's for any block size, approximate ones have all other properties."""

import numpy as np
import pytest

from lle.engine import plan_sizes
from lle.kernels.neighbors.knn import exact_distances
from lle.search import cell_groups
from lle.search.cell_groups import read_members
from lle.search.kdtree_blocks import read_boxes, rows_of, search_by_tree, within_reach
from tests.support.oracle import exact_neighbors
from tests.support.points import swiss_roll

N, K = 603, 9
# The last blocks hold 603, 3, 123 and 3 points.
BLOCKS = [603, 200, *(pytest.param(size, marks=pytest.mark.slow) for size in (160, 75))]


@pytest.fixture(scope="module")
def search(tmp_path_factory, run_stages, make_config):
    """Runs the stages up to find_neighbors with cells of 40 points; remembers what it has run."""
    runs = {}

    def run(method, block_points, n=N):
        if (method, block_points, n) not in runs:
            points = swiss_roll(n, np.random.default_rng(59))
            neighbors = {"method": method, "n_neighbors": K}
            config = make_config(tmp_path_factory.mktemp("search"), points, block_points, neighbors=neighbors)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(plan_sizes, "CELL_POINTS", 40)
                patch.setattr(cell_groups, "GROUP_POINTS", 150)
                runs[method, block_points, n] = run_stages(config, "find_neighbors")
        return runs[method, block_points, n]

    return run


def lists_of(run):
    return run.store.read_all("_work/knn_indices"), run.store.read_all("_work/knn_distances")


@pytest.mark.slow
@pytest.mark.parametrize("block_points", BLOCKS)
@pytest.mark.parametrize("method", ["kdtree", "brute"])
def test_exact_lists_equal_the_oracle(search, method, block_points):
    run = search(method, block_points)
    indices, distances = lists_of(run)
    expected, expected_distances = exact_neighbors(run.store.read_all("points"), K)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-7)
    assert (indices.dtype, distances.dtype, run.layout.k_max) == (np.int32, np.float32, K)


class CountedReads:
    """A store that counts the rows of arrays that are read."""

    def __init__(self, store):
        self.store, self.rows = store, 0

    def __getattr__(self, name):
        return getattr(self.store, name)

    def read(self, name, start, stop):
        self.rows += stop - start
        return self.store.read(name, start, stop)

    def gather(self, name, rows):
        self.rows += len(rows)
        return self.store.gather(name, rows)


@pytest.mark.slow
def test_kdtree_reads_near_cells_only(search):
    run, n_read = search("kdtree", 75), []
    for start in range(0, N - 75, 75):  # without the last block, which has fewer points than a list
        counted = CountedReads(run.store)
        search_by_tree(counted, start, start + 75, K, run.layout.blocks.count)
        n_read.append(counted.rows)
    assert np.mean(n_read) < 0.85 * N


def test_rows_within_reach_contain_all_neighbors_outside_the_block(search):
    run = search("kdtree", 75)
    n_blocks = run.layout.blocks.count
    neighbors, distances = exact_neighbors(run.store.read_all("points"), K)
    for start in range(0, N, 75):
        stop = min(start + 75, N)
        boxes, points = read_boxes(run.store, n_blocks), run.store.read("points", start, stop)
        outside = np.flatnonzero((boxes.start < start) | (boxes.start >= stop))
        reached = within_reach(points, distances[start:stop, -1], boxes.low[outside], boxes.high[outside])[1]
        halo = rows_of(boxes, outside[reached])
        assert len(set(halo.tolist())) == len(halo)
        assert not set(halo.tolist()) & set(range(start, stop))
        assert set(neighbors[start:stop].ravel().tolist()) <= set(halo.tolist()) | set(range(start, stop))


@pytest.mark.slow
def test_last_block_with_a_single_point(search):
    run = search("kdtree", 75, n=8 * 75 + 1)
    np.testing.assert_array_equal(lists_of(run)[0], exact_neighbors(run.store.read_all("points"), K)[0])


class TestCells:
    """The approximate route; its groups are small enough to be searched exactly."""

    @pytest.mark.parametrize("block_points", BLOCKS)
    def test_approximate_lists_are_sorted_and_distinct(self, search, block_points):
        run = search("pynndescent", block_points)
        indices, distances = lists_of(run)
        points = run.store.read_all("points")
        assert (indices != np.arange(N)[:, None]).all()
        assert (indices >= 0).all()
        assert (np.diff(np.sort(indices, axis=1), axis=1) > 0).all()
        assert (np.diff(distances, axis=1) >= 0).all()
        np.testing.assert_allclose(distances, exact_distances(points, points, indices), rtol=1e-6)

    def test_approximate_lists_have_high_recall(self, search):
        run = search("pynndescent", 160)
        expected, _ = exact_neighbors(run.store.read_all("points"), K)
        shares = [len(set(a) & set(b)) / K for a, b in zip(lists_of(run)[0], expected, strict=True)]
        assert 0.95 < np.mean(shares) <= 1

    @pytest.mark.parametrize("block_points", BLOCKS[1:])
    def test_same_lists_for_any_block_size(self, search, block_points):
        for actual, expected in zip(
            lists_of(search("pynndescent", block_points)), lists_of(search("pynndescent", N)), strict=True
        ):
            np.testing.assert_array_equal(actual, expected)

    def test_each_point_is_in_its_nearest_groups(self, search):
        run = search("pynndescent", 160)
        [grouped] = run.reports["find_neighbors.group_cells"]
        members = [read_members(run.store, g, run.layout.blocks.count, "_work")[0] for g in range(grouped.count)]
        assert grouped.count == round(N / 150)
        assert all((np.diff(group) > 0).all() for group in members)
        times = np.bincount(np.concatenate(members), minlength=N)
        assert set(times) <= {1, 2, 3}
        assert (times == 2).any()
        assert 0.3 < (times == 3).mean() <= 0.55, "half of the points are in a third group, if there is one"
        sent = [report.counts for report in run.reports["find_neighbors.send_members"]]
        assert [sum(part.get(str(g), 0) for part in sent) for g in range(len(members))] == list(map(len, members))
        n_objects = [len(run.store.objects.names(f"_work/{name}")) for name in ("group_members", "group_neighbors")]
        assert n_objects == [len(sent), len(members)]

    def test_lists_merge_the_nearest_of_both_groups(self, search):
        run = search("pynndescent", 160)
        points = run.store.read_all("points")
        n_groups = run.reports["find_neighbors.group_cells"][0].count
        candidate_sets = [set() for _ in range(N)]
        for group in range(n_groups):
            members = read_members(run.store, group, run.layout.blocks.count, "_work")[0].tolist()
            for point in members:
                candidate_sets[point] |= set(members) - {point}
        indices, _ = lists_of(run)
        for point in range(0, N, 10):
            candidates = np.array(sorted(candidate_sets[point]))
            nearest = np.argsort(np.linalg.norm(points[candidates] - points[point], axis=1), kind="stable")[:K]
            assert indices[point].tolist() == candidates[nearest].tolist()

"""The graph of a run: its recall, its components, and the repair of closed classes."""

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist

from lle.core.errors import BoundsNotMet
from lle.engine.plan import Layout
from lle.kernels.graph import spanning_links
from lle.kernels.graph.connectivity import closed_classes, neighbor_graph, weak_components
from lle.search import contracted_graph
from lle.search.contracted_graph import read_links
from lle.storage import array_specs
from lle.storage.array_specs import PlannedArray
from lle.storage.store import Store
from tests.support.oracle import exact_neighbors
from tests.support.points import swiss_roll

K = 6


@pytest.fixture
def mend(tmp_path, run_stage, make_config):
    """`mend(points, lists, block_points, **sections)` runs mend_graph on neighbour lists as a search left them."""

    def run(points, lists, block_points=64, **sections):
        indices, distances = lists
        n, k = indices.shape
        store = Store(str(tmp_path / f"mend{len(list(tmp_path.iterdir()))}.zarr"))
        store.create_group({})
        for spec, values in (
            (array_specs.POINTS, points),
            (array_specs.KNN_INDICES, indices.astype(np.int32)),
            (array_specs.KNN_DISTANCES, distances.astype(np.float32)),
            (array_specs.REPRESENTATIVE, np.arange(n)),
            (array_specs.ORIGINAL_INDEX, np.arange(n)),
        ):
            store.create(PlannedArray(spec, values.shape, str(values.dtype), block_points))
            store.write(spec.name, 0, values)
        layout = Layout(n, points.shape[1], "float64", block_points, n_points=n, n_features=points.shape[1], k_max=k)
        neighbors = {"n_neighbors": k, **sections.pop("neighbors", {})}
        config = make_config(tmp_path, points, block_points, neighbors=neighbors, **sections)
        return run_stage("mend_graph", config, layout, store)

    return run


def final_graph(run):
    return neighbor_graph(run.store.read_all("neighbor_indices"))


def line_and_clump() -> np.ndarray:
    """200 points in a line and, past its end, 8 that are nearer to each other than to anything else."""
    line = np.column_stack([np.arange(200.0), np.zeros(200)])
    angle = np.arange(8) * np.pi / 4
    return np.concatenate([line, [202, 0] + 0.01 * np.column_stack([np.cos(angle), np.sin(angle)])])


def two_blobs(rng) -> np.ndarray:
    return np.concatenate([rng.normal(size=(150, 3)), rng.normal(size=(100, 3)) + 50])


@pytest.mark.parametrize("block_points", [250, 64])
class TestComponents:
    @pytest.fixture
    def rng(self):
        return np.random.default_rng(19)

    def test_two_blobs_are_two_components(self, mend, rng, block_points):
        points = two_blobs(rng)
        run = mend(points, exact_neighbors(points, K), block_points)
        [report] = run.reports["mend_graph.analyse"]
        assert (report.n_components_weak, report.component_sizes) == (2, [150, 100])
        assert run.layout.n_components == 2
        component = run.store.read_all("_work/component")
        np.testing.assert_array_equal(component, np.repeat([0, 1], [150, 100]))
        assert report.closed_classes_left == 2

    def test_components_do_not_depend_on_the_order_of_rows(self, mend, rng, block_points):
        order = rng.permutation(250)
        points = two_blobs(rng)[order]
        run = mend(points, exact_neighbors(points, K), block_points)
        np.testing.assert_array_equal(run.store.read_all("_work/component"), order >= 150)

    def test_small_components_are_counted(self, mend, rng, block_points):
        points = np.concatenate([rng.normal(size=(200, 2)), rng.normal(size=(10, 2)) + 90])
        run = mend(points, exact_neighbors(points, K), block_points, graph={"min_component": 11})
        report = run.reports["mend_graph.analyse"][0]
        assert (report.n_components_large, report.component_sizes) == (1, [200, 10])


@pytest.mark.parametrize("block_points", [208, 64])
class TestClosedClasses:
    def test_small_closed_class_gets_reverse_neighbors(self, mend, block_points):
        points = line_and_clump()
        lists = exact_neighbors(points, K)
        searched = closed_classes(neighbor_graph(lists[0]))
        assert searched.sizes.tolist() == [8]  # the line is transient: plain LLE would describe the clump alone
        run = mend(points, lists, block_points)
        [report] = run.reports["mend_graph.analyse"]
        assert (report.n_components_weak, report.closed_classes, report.closed_classes_left) == (1, 1, 1)
        assert 0 < report.reverse_added <= 4 * report.points_repaired
        assert report.closed_classes_by_component == [1]
        final = closed_classes(final_graph(run))
        assert len(final.sizes) == 1
        assert 2 * final.sizes[0] > 208
        assert report.message.startswith(
            f"graph: {report.points_repaired} of 208 points got {report.reverse_added} rev"
        )
        assert report.message.endswith("closed groups to other points (closed classes: 1 before, 1 after; pieces: 1)")
        assert weak_components(final_graph(run))[0] == 1

    def test_searched_neighbors_are_kept_and_additions_are_counted(self, mend, block_points):
        points = line_and_clump()
        indices, distances = exact_neighbors(points, K)
        run = mend(points, (indices, distances), block_points)
        [analysis] = run.reports["mend_graph.analyse"]
        mended, lengths = run.store.read_all("neighbor_indices"), run.store.read_all("neighbor_distances")
        assert mended.shape == (208, analysis.k_max) == (208, run.layout.k_max)
        added = 0
        for point, (row, row_lengths) in enumerate(zip(mended, lengths, strict=True)):
            listed = row[row >= 0].tolist()
            assert set(indices[point].tolist()) <= set(listed)
            assert len(set(listed)) == len(listed)
            assert point not in listed
            assert (row[len(listed) :] == -1).all()
            assert np.isinf(row_lengths[len(listed) :]).all()
            assert (np.diff(row_lengths[: len(listed)]) >= 0).all()
            expected = np.linalg.norm(points[listed] - points[point], axis=1)
            np.testing.assert_allclose(row_lengths[: len(listed)], expected, rtol=1e-6)
            added += len(listed) - K
        assert added == analysis.reverse_added + analysis.bridges_added

    def test_reverse_zero_keeps_the_graph_of_roweis_and_saul(self, mend, block_points):
        points = line_and_clump()
        indices, distances = exact_neighbors(points, K)
        run = mend(points, (indices, distances), block_points, neighbors={"reverse": 0})
        [report] = run.reports["mend_graph.analyse"]
        assert (report.reverse_added, report.bridges_added, report.k_max) == (0, 0, K)
        np.testing.assert_array_equal(run.store.read_all("neighbor_indices"), indices)
        np.testing.assert_array_equal(run.store.read_all("neighbor_distances"), distances.astype(np.float32))


class TestConnectedGraph:
    def test_connected_graph_is_not_changed(self, mend, rng):
        """A ring: every point is reached from every other."""
        angle = 2 * np.pi * np.arange(200) / 200
        points = np.column_stack([np.cos(angle), np.sin(angle)]) + 1e-3 * rng.normal(size=(200, 2))
        lists = exact_neighbors(points, K)
        assert closed_classes(neighbor_graph(lists[0])).sizes.tolist() == [200]
        run = mend(points, lists)
        np.testing.assert_array_equal(run.store.read_all("neighbor_indices"), lists[0])
        assert run.reports["mend_graph.analyse"][0].reverse_added == 0

    def test_reverse_neighbors_on_request(self, mend, rng):
        points = swiss_roll(250, rng)
        run = mend(points, exact_neighbors(points, K), neighbors={"reverse": 2})
        counts = (run.store.read_all("neighbor_indices") >= 0).sum(axis=1)
        assert counts.min() == K
        assert counts.max() == K + 2 == run.layout.k_max


class TestRecall:
    @pytest.mark.parametrize("block_points", [250, 100])
    def test_recall_is_measured_on_the_sampled_points(self, mend, rng, block_points):
        points = swiss_roll(250, rng)
        indices, distances = exact_neighbors(points, K + 3)
        n_wrong = rng.integers(0, 4, 250)
        lists = tuple(
            np.array([np.append(row[: K - n], row[K : K + n]) for row, n in zip(rows, n_wrong, strict=True)])
            for rows in (indices, distances)
        )
        sections = {"neighbors": {"min_recall": 0}, "quality": {"sample": 1000}}
        [recall] = mend(points, lists, block_points, **sections).reports["mend_graph.measure_recall"]
        assert recall.value == pytest.approx(1 - n_wrong.mean() / K)
        assert recall.low < recall.value < recall.high
        assert recall.sample == 250

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_recall_of_exact_lists_is_one(self, mend, rng, dtype):
        points = (swiss_roll(250, rng) + 1000).astype(dtype)
        [recall] = mend(points, exact_neighbors(points.astype(np.float64), K)).reports["mend_graph.measure_recall"]
        assert recall.value == 1
        assert recall.high == 1

    def test_missing_neighbors_lower_the_recall(self, mend, rng):
        points = swiss_roll(250, rng)
        indices, distances = exact_neighbors(points, K)
        indices[::2, -1], distances[::2, -1] = -1, np.inf
        sections = {"neighbors": {"min_recall": 0}, "quality": {"sample": 1000}}
        [recall] = mend(points, (indices, distances), **sections).reports["mend_graph.measure_recall"]
        assert recall.value == pytest.approx(1 - 0.5 / K)

    def test_recall_below_the_bound_ends_the_run(self, mend, rng):
        points = swiss_roll(250, rng)
        indices, distances = exact_neighbors(points, K + 3)
        with pytest.raises(BoundsNotMet) as caught:
            mend(points, (indices[:, 3:], distances[:, 3:]), quality={"sample": 100})
        for part in ("min_recall is 0.9", "measured 0.5000", "100 points", "kdtree or brute"):
            assert part in str(caught.value)
        assert caught.value.exit_code == 3


@pytest.mark.parametrize("block_points", [288, 64])
class TestConnect:
    @staticmethod
    def three_blobs():
        """150, 100 and 38 points; the links between them are the shortest distances of the first to the others."""
        rng = np.random.default_rng(23)
        return np.concatenate([two_blobs(rng), rng.normal(size=(38, 3)) * 0.3 - 60])

    def test_shortest_links_make_one_component_with_one_closed_class(self, mend, block_points):
        points = self.three_blobs()
        lists = exact_neighbors(points, K)
        run = mend(points, lists, block_points, graph={"components": "connect"})
        [connected], [analysis] = run.reports["mend_graph.connect"], run.reports["mend_graph.analyse"]
        distances = cdist(points, points)
        blobs = [np.arange(150), np.arange(150, 250), np.arange(250, 288)]
        shortest = np.array([[distances[np.ix_(a, b)].min() for b in blobs] for a in blobs])
        tree = minimum_spanning_tree(shortest).data
        assert (connected.components_joined, connected.links_added) == (3, 2)
        assert "3 components joined by 2 links of length" in connected.message
        assert connected.longest_link == pytest.approx(tree.max(), rel=1e-6)
        assert (analysis.n_components_weak, analysis.closed_classes_left) == (1, 1)
        graph = final_graph(run)
        assert weak_components(graph)[0] == len(closed_classes(graph).sizes) == 1
        stored = run.store.read_all("neighbor_distances")
        assert np.sort(np.unique(stored[np.isfinite(stored)]))[-2:] == pytest.approx(np.sort(tree), rel=1e-6)
        assert (run.store.read_all("_work/component") == 0).all()

    def test_one_component_keeps_the_graph_of_separate(self, mend, block_points):
        points = np.random.default_rng(29).random((288, 3))
        lists = exact_neighbors(points, 8)
        run = mend(points, lists, block_points, neighbors={"n_neighbors": 8}, graph={"components": "connect"})
        assert "mend_graph.connect" not in run.reports
        np.testing.assert_array_equal(run.store.read_all("neighbor_indices")[:, :8], lists[0])


@pytest.mark.parametrize("n_candidates", [None, 30])
def test_links_do_not_depend_on_blocks(mend, monkeypatch, n_candidates):
    if n_candidates is not None:
        monkeypatch.setattr(spanning_links, "CANDIDATES", n_candidates)
        monkeypatch.setattr(spanning_links, "LEAST_CANDIDATES", 4)
    points = TestConnect.three_blobs()
    lists = exact_neighbors(points, K)
    in_one_block, in_blocks = (
        mend(points, lists, size, graph={"components": "connect"}).store.read_all("neighbor_indices")
        for size in (288, 64)
    )
    np.testing.assert_array_equal(in_one_block, in_blocks)


def test_links_between_few_candidates_are_shortened_to_pairs_of_nearest_points(mend, monkeypatch):
    monkeypatch.setattr(spanning_links, "CANDIDATES", 30)
    monkeypatch.setattr(spanning_links, "LEAST_CANDIDATES", 4)
    points = TestConnect.three_blobs()
    run = mend(points, exact_neighbors(points, K), 64, graph={"components": "connect"})
    links, blob = read_links(run.store), np.repeat([0, 1, 2], [150, 100, 38])
    distances = cdist(points, points)
    assert {frozenset(blob[list(pair)]) for pair in zip(links.rows, links.neighbors, strict=True)} == {
        frozenset((0, 1)),
        frozenset((0, 2)),
    }
    for i, j, length in zip(links.rows, links.neighbors, links.distances, strict=True):
        assert length == pytest.approx(distances[i, j], rel=1e-6)
        assert distances[i, j] == distances[i, blob == blob[j]].min() == distances[blob == blob[i], j].min()


def test_links_are_shortened_a_limited_number_of_times(mend, monkeypatch):
    """On two lines that nearly meet, each time brings the ends a little nearer to the narrow end."""
    monkeypatch.setattr(spanning_links, "CANDIDATES", 2)
    monkeypatch.setattr(spanning_links, "LEAST_CANDIDATES", 1)
    at, turn = np.linspace(1, 2, 150), 0.1
    wide = np.linspace(1, 2, 149)
    points = np.r_[np.c_[at, 0 * at, 0 * at], np.c_[np.cos(turn) * wide, np.sin(turn) * wide, 0 * wide]]
    lengths = []
    for most in (1, 3, 10):
        monkeypatch.setattr(contracted_graph, "MOST_PASSES", most)
        run = mend(points, exact_neighbors(points, K), 64, graph={"components": "connect"})
        lengths.append(run.reports["mend_graph.connect"][0].longest_link)
    assert lengths[0] > lengths[1] > lengths[2] > 0.1

"""Internal order: every distinct point once, cell by cell, the same for any block size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from lle.engine import plan_sizes
from lle.engine.plan import Layout
from lle.kernels.neighbors.cells import Boxes, nearest_cells
from lle.stages import order_points
from lle.stages.order_points import slices_of_shards
from tests.support.points import swiss_roll

N, CELL_POINTS = 620, 40
BLOCKS = [620, 160, 101, 69]  # of the last two, two and three are sorted together


def rolled(dtype) -> np.ndarray:
    """Rows 500 to 559 repeat others, rows 17 and 300 hold no numbers."""
    points = swiss_roll(N, np.random.default_rng(41)).astype(dtype)
    points[500:560] = points[range(3, 483, 8)]
    points[[17, 300], [0, 2]] = np.nan, np.inf
    return points


def representatives(points: np.ndarray) -> list[int]:
    first: dict[bytes, int] = {}
    for row, point in enumerate(points):
        if np.isfinite(point).all():
            first.setdefault(point.tobytes(), row)
    return sorted(first.values())


@pytest.fixture(scope="module")
def order(tmp_path_factory, run_stages, make_config):
    """Runs ingest and order_points with many small cells; caches its runs."""
    runs = {}

    def run(block_points, dtype="float64", **sections):
        key = (block_points, dtype, str(sections))
        if key not in runs:
            sections = {"preprocess": {"invalid": "drop"}, **sections}
            config = make_config(tmp_path_factory.mktemp("order"), rolled(dtype), block_points, **sections)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(plan_sizes, "CELL_POINTS", CELL_POINTS)
                patch.setattr(order_points, "MAX_SHARDS", 4)
                runs[key] = run_stages(config, "order_points")
        return runs[key]

    return run


@pytest.mark.parametrize("block_points", BLOCKS)
class TestEveryBlockSize:
    def test_order_contains_each_distinct_point_once(self, order, block_points):
        original = order(block_points).store.read_all("original_index")
        assert sorted(original.tolist()) == representatives(rolled("float64"))

    def test_points_are_the_input_rows(self, order, block_points):
        store = order(block_points).store
        points = store.read_all("points")
        np.testing.assert_array_equal(points, rolled("float64")[store.read_all("original_index")])
        assert points.dtype == np.float64

    def test_order_is_by_cell_then_by_input_row(self, order, block_points):
        store = order(block_points).store
        cells = nearest_cells(store.read_all("points"), store.read_bundle("_work/cells")["centers"], 1)[:, 0]
        np.testing.assert_array_equal(store.read_all("_work/nearest_cells")[:, 0], cells)
        np.testing.assert_array_equal(np.lexsort((store.read_all("original_index"), cells)), np.arange(len(cells)))
        assert len(np.unique(cells)) == 14  # 558 distinct points in cells of 40

    def test_same_order_as_in_one_block(self, order, block_points):
        for name in ("points", "original_index"):
            np.testing.assert_array_equal(order(block_points).store.read_all(name), order(N).store.read_all(name))

    def test_boxes_hold_all_rows_once(self, order, block_points):
        run = order(block_points)
        points = run.store.read_all("points")
        parts = [run.store.read_bundle(f"_work/boxes/{block:05d}") for block in range(run.layout.blocks.count)]
        boxes = Boxes(**{key: np.concatenate([part[key] for part in parts]) for key in Boxes._fields})
        covered = np.concatenate([np.arange(*rows) for rows in zip(boxes.start, boxes.stop, strict=True)])
        np.testing.assert_array_equal(covered, np.arange(len(points)))
        cells = run.store.read_all("_work/nearest_cells")[:, 0]
        for start, stop, low, high in zip(*boxes, strict=True):
            assert (points[start:stop] >= low).all()
            assert (points[start:stop] <= high).all()
            assert len(set(cells[start:stop])) == 1


@pytest.mark.parametrize(
    ("n_blocks", "row_bytes", "expected"),
    [
        (1, 100, 1),
        (64, 100, 1),
        (65, 100, 2),
        (128, 100, 2),
        (129, 100, 3),
        (10_000, 100, 157),
        (10_000, 2**17 - 1, 2),
        (10_000, 2**17 + 1, 1),
        (10_000, 2**20, 1),
        (65, 2**20, 1),
    ],
)
def test_number_of_blocks_sorted_together_is_bounded_by_shards_and_memory(n_blocks, row_bytes, expected):
    room = order_points.SORT_BYTES - 1000 * 2**18  # of tasks that take so many bytes besides their rows
    layout = Layout(1000 * n_blocks - 7, 3, "float64", 1000)
    actual = order_points.blocks_together(layout, lambda block_size: room + row_bytes * block_size)
    assert actual == expected


class TestOrder:
    def test_float32_points_stay_float32(self, order):
        run = order(101, "float32")
        points = run.store.read_all("points")
        np.testing.assert_array_equal(points, rolled("float32")[run.store.read_all("original_index")])
        assert (points.dtype, run.layout.dtype) == (np.float32, "float32")

    def test_neighbors_in_order_are_near_in_space(self, order):
        points = order(101).store.read_all("points")
        shuffled = np.random.default_rng(5).permutation(points)
        nearby, anywhere = (np.linalg.norm(np.diff(rows, axis=0), axis=1).mean() for rows in (points, shuffled))
        assert nearby < 0.5 * anywhere

    @pytest.mark.parametrize("block_points", [620, 101])
    def test_preprocessing_is_applied(self, order, block_points):
        run = order(block_points, preprocess={"scale": "standard", "pca": 2, "invalid": "drop"})
        raw = rolled("float64")
        valid = np.isfinite(raw).all(axis=1)
        scaler = StandardScaler().fit(raw[valid])
        expected = (
            PCA(2)
            .fit(scaler.transform(raw[valid]))
            .transform(scaler.transform(raw[run.store.read_all("original_index")]))
        )
        points = run.store.read_all("points")
        signs = np.sign((points * expected).sum(axis=0))
        np.testing.assert_allclose(points * signs, expected, atol=1e-9)
        assert run.layout.n_features == 2

    def test_nearest_cells_are_kept_for_the_approximate_search(self, order):
        store = order(160, neighbors={"method": "pynndescent"}).store
        cells = store.read_all("_work/nearest_cells")
        centers = store.read_bundle("_work/cells")["centers"]
        assert cells.shape[1] == order_points.N_NEAREST
        np.testing.assert_array_equal(cells, nearest_cells(store.read_all("points"), centers, order_points.N_NEAREST))


@given(
    st.integers(1, 5).flatmap(
        lambda cells: st.lists(st.lists(st.integers(0, 4), min_size=cells, max_size=cells), min_size=1, max_size=5)
    ),
    st.data(),
)
def test_slices_of_all_shards_give_the_order(counts, data):
    """Internal order by cell, then shard, then position: each block takes one run of every shard."""
    counts = np.array(counts)
    rows = [
        (cell, shard, position)
        for shard, cell_counts in enumerate(counts)
        for position, cell in enumerate(np.repeat(np.arange(counts.shape[1]), cell_counts))
    ]
    internal = sorted(rows)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    actual = [None] * (stop - start)
    for shard, (first, past, targets) in enumerate(slices_of_shards(counts, start, stop)):
        for target, position in zip(targets, range(first, past), strict=True):
            assert actual[target] is None
            actual[target] = (shard, position)
    assert actual == [(shard, position) for _, shard, position in internal[start:stop]]

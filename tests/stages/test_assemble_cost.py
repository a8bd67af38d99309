"""The cost matrix of a run: the dense product for any block size, and symmetric to the last bit."""

from io import StringIO

import numpy as np
import pytest
from scipy.sparse import vstack

from lle.core.errors import CorruptChunk
from lle.engine.plan import Layout
from lle.engine.plan_sizes import largest_total
from lle.engine.progress import RunProgress
from lle.engine.second_level import Parts
from lle.engine.task_costs import TASK_BYTES
from lle.jobs import run as runs
from lle.stages import assemble_cost
from lle.storage import array_specs
from lle.storage.blocks import Blocks
from lle.storage.store import Store
from tests.support.oracle import dense_factor
from tests.support.points import swiss_roll

N, K = 330, 7
BLOCKS = [330, 110, pytest.param(64, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def assemble(tmp_path_factory, run_stages, make_config):
    """Runs the stages up to assemble_cost; remembers what it has run."""
    runs = {}

    def run(block_points, reverse=3):
        if (block_points, reverse) not in runs:
            points = swiss_roll(N, np.random.default_rng(73))
            neighbors = {"n_neighbors": K, "reverse": reverse}
            config = make_config(tmp_path_factory.mktemp("cost"), points, block_points, neighbors=neighbors)
            runs[block_points, reverse] = run_stages(config, "assemble_cost")
        return runs[block_points, reverse]

    return run


def cost_matrix(run):
    return vstack([run.store.read_rows("cost_matrix", block) for block in range(run.layout.blocks.count)])


@pytest.mark.parametrize("block_points", BLOCKS)
class TestCostMatrix:
    @pytest.mark.slow
    def test_equals_the_dense_product(self, assemble, block_points):
        run = assemble(block_points)
        A = dense_factor(run.store.read_all("neighbor_indices"), run.store.read_all("weights"))
        np.testing.assert_allclose(cost_matrix(run).toarray(), A.T @ A, atol=1e-12)

    def test_symmetric_bit_for_bit(self, assemble, block_points):
        M = cost_matrix(assemble(block_points)).toarray()
        np.testing.assert_array_equal(M, M.T)

    def test_same_as_in_one_block(self, assemble, block_points):
        M, expected = cost_matrix(assemble(block_points)), cost_matrix(assemble(N))
        np.testing.assert_array_equal(M.indptr, expected.indptr)
        np.testing.assert_array_equal(M.indices, expected.indices)
        np.testing.assert_allclose(M.data, expected.data, rtol=0, atol=1e-14)  # parts of other blocks, other roundings

    def test_rows_are_canonical_and_counted(self, assemble, block_points):
        run = assemble(block_points)
        nnz = 0
        for block, report in enumerate(run.reports["assemble_cost.merge"]):
            rows = run.store.read_rows("cost_matrix", block)
            assert rows.shape == (min(block_points, N - block * block_points), N)
            assert rows.has_canonical_format
            assert report.count == rows.nnz
            nnz += rows.nnz
        assert nnz == cost_matrix(run).nnz > N * K


def test_deleted_contributions_are_damage_and_not_an_empty_matrix(tmp_path):
    with pytest.raises(CorruptChunk, match="missing"):
        assemble_cost.merge_block(
            Store(str(tmp_path / "run")), 0, Blocks(20, 10), 100, Parts(assemble_cost.CONTRIBUTIONS, 2)
        )


def test_equals_the_dense_product_without_reverse_neighbors(assemble):
    run = assemble(110, reverse=0)
    A = dense_factor(run.store.read_all("neighbor_indices"), run.store.read_all("weights"))
    np.testing.assert_allclose(cost_matrix(run).toarray(), A.T @ A, atol=1e-12)


@pytest.mark.slow
def test_changed_block_size_removes_the_old_contributions(tmp_path, run_stages, make_config, assemble):
    """The same store run again with other blocks: contributions of the first run must not be added."""
    config = make_config(
        tmp_path, swiss_roll(N, np.random.default_rng(73)), 64, neighbors={"n_neighbors": K, "reverse": 3}
    )
    run_stages(config, "assemble_cost")
    execution = config.execution.model_copy(update={"block_points": 110})
    run = run_stages(config.model_copy(update={"execution": execution}), "assemble_cost")
    np.testing.assert_array_equal(cost_matrix(run).toarray(), cost_matrix(assemble(110)).toarray())
    assert len(run.store.objects.names("cost_matrix")) == len(assemble(110).store.objects.names("cost_matrix"))


def test_splitting_a_block_into_parts_changes_no_bit(tmp_path, run_stages, make_config, assemble, monkeypatch):
    """A few rows at a time give more objects, but the same sums."""
    undivided = assemble(110)
    monkeypatch.setattr(assemble_cost, "PART_ENTRIES", 900)
    config = make_config(
        tmp_path, swiss_roll(N, np.random.default_rng(73)), 110, neighbors={"n_neighbors": K, "reverse": 3}
    )
    run = run_stages(config, "assemble_cost")
    names = [len(r.store.objects.names("_work/contributions")) for r in (run, undivided)]
    assert names[0] > 3 * names[1]
    assert names[1] == 3  # one for each block, with a part for each block that reads it
    assert cost_matrix(run).data.tobytes() == cost_matrix(undivided).data.tobytes()
    np.testing.assert_array_equal(cost_matrix(run).indices, cost_matrix(undivided).indices)
    for a, b in zip(*(r.reports["assemble_cost.contribute"] for r in (run, undivided)), strict=True):
        assert a == b


@pytest.fixture(scope="module")
def star(tmp_path_factory, run_stage, make_config):
    """M of lists with the same three points and one other, in blocks of 22 points: at most 550 entries at once."""
    k, block, rng = 4, 22, np.random.default_rng(5)
    hubs = np.array([100, 101, 103])
    lists = np.array([[*hubs, rng.choice(np.setdiff1d(np.arange(N), [i, *hubs]))] for i in range(N)])
    lists[hubs, :3] = [[101, 103, 7], [100, 103, 7], [100, 101, 7]]
    folder = tmp_path_factory.mktemp("star")
    config = make_config(folder, np.zeros((N, 3)), block)
    store = Store(config.output.store)
    store.create_group({})
    weights = rng.normal(size=(N, k)) + 1
    arrays = {
        array_specs.NEIGHBOR_INDICES: lists.astype(np.int32),
        array_specs.WEIGHTS: weights / weights.sum(axis=1)[:, None],
    }
    for spec, values in arrays.items():
        store.create(array_specs.PlannedArray(spec, values.shape, values.dtype.name, block))
        store.write(spec.name, 0, values)
    layout = Layout(N, 3, "float64", block, n_points=N, n_features=3, k_max=k)
    return config, run_stage("assemble_cost", config, layout, store)


def test_several_points_in_all_lists_of_one_block(star):
    run = star[1]
    A = dense_factor(*(run.store.read_all(name) for name in ("neighbor_indices", "weights")))
    M = cost_matrix(run)
    np.testing.assert_allclose(M.toarray(), A.T @ A, atol=1e-12)
    np.testing.assert_array_equal(M.toarray(), M.toarray().T)
    reports = run.reports["assemble_cost.merge"]
    assert [report.count for report in reports] == [run.store.read_rows("cost_matrix", b).nnz for b in range(15)]
    assert np.sort(np.diff(M.tocsr().indptr))[-3] > N - 20


def test_points_in_all_lists_need_no_more_memory_than_planned(star):
    config, run = star
    reports = run.reports["assemble_cost.contribute"]
    before, now = assemble_cost.steps(config, run.layout), assemble_cost.steps(config, run.layout)
    contribute, _ = next(before), next(now)
    planned, needed = before.send([contribute.expected(b) for b in range(15)]), now.send(reports)
    assert largest_total([report.counts for report in reports]) > 4 * needed.task.parameters["max_entries"]
    assert needed.task_bytes <= planned.task_bytes


def test_rows_of_m_are_planned_with_at_most_n_entries(tmp_path, make_config):
    n, k = 1656, 400
    steps = assemble_cost.steps(
        make_config(tmp_path, np.zeros((N, 3)), n), Layout(n, 3, "float64", n, n_points=n, k_max=k)
    )
    merge = steps.send([next(steps).expected(0)])
    assert merge.task_bytes <= TASK_BYTES + 80 * n * n


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["lle", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ltsa", "laplacian"))]
)
def test_parts_are_no_larger_than_planned(tmp_path, make_config, monkeypatch, method):
    """The number of entries of M is within the plan, for any overlap of the rows of F."""
    sizes, cut = [], assemble_cost.gram_contributions

    def seen(factor, max_entries):
        for part in cut(factor, max_entries):
            sizes.append((len(part.data), int(np.diff(part.indptr).max())))
            yield part

    monkeypatch.setattr(assemble_cost, "PART_ENTRIES", 400)
    monkeypatch.setattr(assemble_cost, "gram_contributions", seen)
    config = make_config(
        tmp_path,
        swiss_roll(N, np.random.default_rng(73)),
        110,
        neighbors={"n_neighbors": 12},
        method=method,
        quality={"sample": 10},
    )
    runs.run(config, False, RunProgress(StringIO()))
    assert len(sizes) > 3
    assert all(entries <= max(400, longest) for entries, longest in sizes)

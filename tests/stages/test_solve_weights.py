"""Weights of a run: the oracle's and scikit-learn's, whatever the block size."""

import numpy as np
import pytest
from sklearn.manifold._locally_linear import barycenter_weights

from lle.engine.execute import Executor
from lle.engine.plan import Layout
from lle.engine.progress import SilentProgress
from lle.engine.row_exchange import SENT
from lle.jobs.run_stages import StageRun
from lle.kernels import batches
from lle.kernels.factors.lle_weights import barycenter_weights as kernel_weights
from lle.linalg import reg_step
from lle.stages import solve_weights
from tests.support.oracle import exact_neighbors, point_weights
from tests.support.plans import planned
from tests.support.points import swiss_roll

N, K, REG = 420, 8, 1e-3
BLOCKS = [420, 128, pytest.param(60, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def solve(tmp_path_factory, run_stages, make_config):
    """Runs the stages up to solve_weights; remembers what it has run."""
    runs = {}

    def run(block_points, reverse=0, reg=REG, rule="trace"):
        key = (block_points, reverse, reg, rule)
        if key not in runs:
            sections = {"neighbors": {"n_neighbors": K, "reverse": reverse}, "weights": {"reg": reg, "rule": rule}}
            points = swiss_roll(N, np.random.default_rng(67))
            config = make_config(tmp_path_factory.mktemp("weights"), points, block_points, **sections)
            runs[key] = run_stages(config, "solve_weights")
        return runs[key]

    return run


def arrays_of(run):
    return (run.store.read_all(name) for name in ("points", "neighbor_indices", "weights"))


@pytest.mark.parametrize("block_points", BLOCKS)
class TestPlainGraph:
    def test_weights_equal_the_oracle_and_scikit_learn(self, solve, block_points):
        points, neighbors, weights = arrays_of(solve(block_points))
        np.testing.assert_array_equal(neighbors, exact_neighbors(points, K)[0])
        expected = [point_weights(x, points[row], REG) for x, row in zip(points, neighbors, strict=True)]
        np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(weights, barycenter_weights(points, points, neighbors, REG), rtol=1e-9, atol=1e-9)

    def test_same_as_in_one_block(self, solve, block_points):
        in_blocks, in_one_block = solve(block_points).store, solve(N).store
        np.testing.assert_allclose(
            in_blocks.read_all("weights"), in_one_block.read_all("weights"), rtol=1e-12, atol=1e-13
        )

    def test_reported_error_equals_the_reconstruction_error(self, solve, block_points):
        run = solve(block_points)
        points, neighbors, weights = arrays_of(run)
        errors = np.square(points - np.einsum("nk,nkd->nd", weights, points[neighbors])).sum(axis=1)
        reports = run.reports["solve_weights.solve"]
        sums = [errors[start : start + block_points].sum() for start in range(0, N, block_points)]
        np.testing.assert_allclose([report.squared_error for report in reports], sums, rtol=1e-6)
        assert [report.zero_trace for report in reports] == [0] * len(reports)


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [0, 3])
@pytest.mark.parametrize("block_points", BLOCKS)
def test_error_of_every_point(solve, block_points, reverse):
    run = solve(block_points, reverse)
    points, neighbors, weights = arrays_of(run)
    actual = run.store.read_all("reconstruction_error")
    expected = [
        np.square(x - w[row >= 0] @ points[row[row >= 0]]).sum()
        for x, row, w in zip(points, neighbors, weights, strict=True)
    ]
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-15)
    total = sum(report.squared_error for report in run.reports["solve_weights.solve"])
    assert actual.sum() == pytest.approx(total, rel=1e-8)


class TestReverseNeighbors:
    @pytest.mark.parametrize("block_points", [420, 128])
    def test_empty_slots_have_no_weight_and_others_equal_the_oracle(self, solve, block_points):
        points, neighbors, weights = arrays_of(solve(block_points, reverse=3))
        counts = (neighbors >= 0).sum(axis=1)
        assert counts.min() == K
        assert K < counts.max() <= K + 3
        for x, row, row_weights in zip(points, neighbors, weights, strict=True):
            assert (row_weights[row < 0] == 0).all()
            expected = point_weights(x, points[row[row >= 0]], REG)
            np.testing.assert_allclose(row_weights[row >= 0], expected, rtol=1e-9, atol=1e-9)


def test_reg_of_the_config_is_used(solve):
    points, neighbors, weights = arrays_of(solve(128, reg=0.1))
    np.testing.assert_allclose(weights, barycenter_weights(points, points, neighbors, 0.1), rtol=1e-9, atol=1e-9)


def test_unchanged_reg_of_other_coordinates_needs_no_rows_again(store, tmp_path, make_config, monkeypatch):
    """The rows that blocks send to each other are deleted after the weights. reg is chosen before them."""
    points = swiss_roll(N, np.random.default_rng(67))
    for name, values in (("points", points), ("neighbor_indices", exact_neighbors(points, K)[0])):
        store.create(planned(name, values.shape, str(values.dtype), 128))
        store.write(name, 0, values)
    chosen = []

    def choose(*_, n_components, **more) -> reg_step.ChosenReg:
        chosen.append(n_components)
        return reg_step.ChosenReg(REG, 0.0, 0.0, n_components, 0, [], 0, None, [])

    monkeypatch.setattr(reg_step, "choose_from_sample", choose)
    layout = Layout(N, 3, "float64", 128, n_points=N, n_features=3, k_max=K)
    computed = []
    for m in (2, 3):
        config = make_config(
            tmp_path,
            points,
            128,
            neighbors={"n_neighbors": K},
            weights={"reg": "auto"},
            eigensolver={"n_components": m},
        )
        progress = SilentProgress()
        run = StageRun(store, Executor(None), progress)
        run.walk_stage("solve_weights", solve_weights.steps(config, layout))
        computed.append(progress.computed["solve_weights"])
        assert store.objects.names(SENT) == []
    assert chosen == [2, 3]
    assert computed == [1 + 2 + 4 + 4, 1]  # choose_reg, request, send, solve


@pytest.mark.slow
def test_rule_of_the_config_is_used(solve):
    """Eight neighbours in three dimensions always need the ridge; the absolute one is no multiple of the trace."""
    points, neighbors, weights = arrays_of(solve(128, reg=0.1, rule="absolute"))
    valid = np.ones(neighbors.shape, bool)
    expected = kernel_weights(points, points[neighbors], valid, 0.1, "absolute").weights
    np.testing.assert_allclose(weights, expected, rtol=1e-12, atol=1e-13)
    plain = solve(128).store.read_all("weights")
    np.testing.assert_array_equal(solve(128, rule="when_needed").store.read_all("weights"), plain)
    assert np.abs(weights - plain).max() > 1e-3


def test_batches_change_nothing(solve, monkeypatch, tmp_path, run_stages, make_config):
    monkeypatch.setattr(batches, "BATCH_BYTES", 8 * K * (3 + K) * 7)  # seven points at a time
    config = make_config(
        tmp_path, swiss_roll(N, np.random.default_rng(67)), 128, neighbors={"n_neighbors": K, "reverse": 0}
    )
    weights = run_stages(config, "solve_weights").store.read_all("weights")
    np.testing.assert_allclose(weights, solve(128).store.read_all("weights"), rtol=1e-12, atol=1e-13)


def test_points_that_coincide_after_preprocessing_are_counted(tmp_path, run_stages, make_config):
    """One principal component maps distinct points to one point: Gram matrices of trace zero."""
    rng = np.random.default_rng(71)
    along = np.repeat(np.arange(30.0), 20) * 1000
    points = np.column_stack([along, rng.choice([-1.0, 1.0], 600) * 1e-20, np.arange(600) * 1e-13])
    config = make_config(
        tmp_path,
        points,
        200,
        preprocess={"pca": 1},
        eigensolver={"n_components": 1},
        neighbors={"n_neighbors": 6, "min_recall": 0},
    )
    run = run_stages(config, "solve_weights")
    counted = sum(report.zero_trace for report in run.reports["solve_weights.solve"])
    points, neighbors, weights = arrays_of(run)
    differences = points[np.where(neighbors < 0, 0, neighbors)] - points[:, None]
    is_coincident = ((np.square(differences).sum(axis=2) == 0) | (neighbors < 0)).all(axis=1)
    assert counted == is_coincident.sum()
    assert counted > 100
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)

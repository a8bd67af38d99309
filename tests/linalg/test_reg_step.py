"""weights.reg: auto in a run: the chosen number, the sampled points, and the use of the number."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from lle import LocallyLinearEmbedding, embed
from lle.cli.commands import app
from lle.config.models import Config
from lle.config.yaml_io import to_yaml
from lle.core.methods import METHODS
from lle.engine import checkpoint
from lle.engine.plan import Layout
from lle.jobs.suggest import suggest
from lle.kernels.factors.choose_reg import DENSE_REG, NOISY_REG, SURFACE_REG, WHOLE_REGS
from lle.kernels.neighbors.duplicates import row_hashes
from lle.kernels.trial_embedding import PATCHES
from lle.linalg.reg_step import PATCH_POINT_BYTES, _patches, _points_with_smallest_hashes, reg_for_weights, reg_of_run
from tests.support.points import swiss_roll

pytestmark = pytest.mark.filterwarnings("ignore::lle.EmbeddingWarning")

N, K = 700, 10
BLOBS_REG = 1.0


def blobs(n, rng, d=15):
    return rng.normal(size=(n, d)) + 3 * rng.normal(size=(4, d))[rng.integers(4, size=n)]


POINTS = {"roll": swiss_roll(N, np.random.default_rng(41)), "blobs": blobs(N, np.random.default_rng(43))}


@pytest.fixture(scope="module")
def solve(tmp_path_factory, run_stages, make_config):
    """`solve(data, block_points, reverse, **weights)`: the stages up to solve_weights; each once."""
    runs = {}

    def run(data, block_points=N, reverse=0, **weights):
        key = (data, block_points, reverse, *weights.items())
        if key not in runs:
            neighbors = {"n_neighbors": K, "reverse": reverse}
            folder = tmp_path_factory.mktemp("reg")
            config = make_config(folder, POINTS[data], block_points, neighbors=neighbors, weights=weights)
            runs[key] = run_stages(config, "solve_weights")
        return runs[key]

    return run


def choice(run):
    [report] = run.reports["solve_weights.choose_reg"]
    return report


def config_of(tmp_path, data, **sections):
    np.save(tmp_path / "points.npy", POINTS[data])
    return Config.model_validate(
        {
            "input": {"kind": "npy", "path": str(tmp_path / "points.npy")},
            "neighbors": {"n_neighbors": K},
            "output": {"store": str(tmp_path / "run.zarr"), "report": False},
            "execution": {"cluster": {"kind": "serial"}},
            "quality": {"sample": 50, "geodesic_sources": 0},
            **sections,
        }
    )


@pytest.mark.parametrize(("data", "reg"), [("roll", SURFACE_REG), ("blobs", BLOBS_REG)])
class TestChoice:
    def test_surface_and_noise_get_different_values(self, solve, data, reg):
        assert choice(solve(data)).reg == reg

    @pytest.mark.slow
    @pytest.mark.parametrize("block_points", [300, 97])
    def test_choice_does_not_depend_on_the_block_size(self, solve, data, reg, block_points):
        in_one_block, in_blocks = choice(solve(data)), choice(solve(data, block_points))
        assert in_one_block.reg == in_blocks.reg
        assert in_one_block.noise == pytest.approx(in_blocks.noise, abs=1e-12)
        assert in_one_block.outside == pytest.approx(in_blocks.outside, abs=1e-12)

    def test_weights_equal_those_of_the_same_number(self, solve, data, reg):
        auto, number = solve(data), solve(data, reg=reg)
        assert "solve_weights.choose_reg" not in number.reports
        np.testing.assert_array_equal(auto.store.read_all("weights"), number.store.read_all("weights"))

    def test_noise_is_that_of_the_nearest_neighbors_and_the_trial_embeds_the_graph_of_the_run(self, solve, data, reg):
        plain, with_reverse = choice(solve(data)), choice(solve(data, reverse=4))
        same = {"reg": reg, "tried": [], "message": ""}
        assert replace(plain, **same) == replace(with_reverse, **same)
        assert plain.tried != with_reverse.tried


@pytest.mark.parametrize("largest", [4000, 300])  # a trial of all points, and one of a sample
def test_connected_pieces_are_tried_together(tmp_path, make_config, run_stages, monkeypatch, largest):
    for bound in ("TRIAL_POINTS", "WHOLE_POINTS"):
        monkeypatch.setattr(f"lle.kernels.trial_embedding.{bound}", largest)
    rng = np.random.default_rng(46)
    points = np.vstack([swiss_roll(600, rng), swiss_roll(500, rng) + 100.0])
    for components, share in (("connect", 1.0), ("separate", 6 / 11)):
        graph, folder = {"components": components}, tmp_path / components
        folder.mkdir()
        config = make_config(folder, points, graph=graph, weights={}, neighbors={"n_neighbors": K})
        chosen = choice(run_stages(config, "solve_weights"))
        assert chosen.trial_points == pytest.approx(share * min(largest, 1100), rel=0.1)
        assert chosen.tried


@pytest.mark.parametrize(("data", "is_whole"), [("roll", True), ("blobs", False)])
def test_more_points_are_all_tried_in_few_dimensions(tmp_path, make_config, run_stages, monkeypatch, data, is_whole):
    monkeypatch.setattr("lle.kernels.trial_embedding.TRIAL_POINTS", 300)
    config = make_config(tmp_path, POINTS[data], weights={}, neighbors={"n_neighbors": K})
    chosen = choice(run_stages(config, "solve_weights"))
    assert (chosen.trial_points == N) == is_whole


@pytest.mark.slow
def test_sample_does_not_depend_on_the_blocks(monkeypatch, solve):
    monkeypatch.setattr("lle.linalg.reg_step.SAMPLE_POINTS", (50, 120))
    large_blocks, small_blocks = choice(solve("blobs", 350)), choice(solve("blobs", 111))
    assert large_blocks.n_measured == 120
    assert large_blocks.noise == pytest.approx(small_blocks.noise, abs=1e-12)


class Ingested:
    """The arrays of a store after ingest. Each row is there twice, and points are in any order."""

    def __init__(self, rows, size, rng):
        first = np.arange(len(rows)) // 2 * 2
        order = rng.permutation(np.unique(first))
        self.points, self.size = rows[order], size
        self.arrays = {"_work/row_hash": row_hashes(rows), "_work/representative": first, "original_index": order}

    def in_blocks(self, name):
        array = self.arrays[name]
        return ((start, array[start : start + self.size]) for start in range(0, len(array), self.size))

    def gather(self, name, rows):
        return self.arrays[name][rows]


def test_sample_and_its_order_depend_on_the_values_of_rows_only():
    rng, samples = np.random.default_rng(43), []
    rows = rng.random((4000, 3))
    for size in (4000, 700):
        shuffled = np.repeat(rng.permutation(rows), 2, axis=0)
        store = Ingested(shuffled, size, rng)
        ids, order = _points_with_smallest_hashes(store, 300)
        assert (np.diff(ids) > 0).all()
        samples.append(store.points[ids[order]])
    np.testing.assert_array_equal(*samples)
    assert len(np.unique(samples[0], axis=0)) == 300


def test_patches_are_the_points_around_a_center_in_any_order_of_points():
    """On a lattice many points are equally far from a center."""
    rng = np.random.default_rng(44)
    lattice = np.stack(np.meshgrid(*[np.arange(15.0)] * 3), axis=-1).reshape(-1, 3)
    centers, found = lattice[[0, 1700]], []
    for size in (4000, 300):
        store = Ingested(lattice, size, rng)
        store.arrays["points"] = rng.permutation(lattice).astype(np.float32)
        found.append(_patches(store, centers, 200))
    for center, one, other in zip(centers, *found, strict=True):
        np.testing.assert_array_equal(one, other)
        radius = np.linalg.norm(one - center, axis=1).max()
        assert len(one) == (np.linalg.norm(lattice - center, axis=1) <= radius).sum()
        assert 150 < len(one) < 200
    [everything] = _patches(store, centers[:1], 10_000)
    assert len(everything) == len(lattice)


def test_patches_lie_around_the_first_points_of_the_sample(tmp_path, make_config, run_stages, monkeypatch):
    for bound in ("TRIAL_POINTS", "WHOLE_POINTS"):
        monkeypatch.setattr(f"lle.kernels.trial_embedding.{bound}", 480)
    found = []
    monkeypatch.setattr("lle.linalg.reg_step._patches", lambda store, *rest: found.append(rest) or [])
    choice(run_stages(make_config(tmp_path, POINTS["roll"], weights={}, neighbors={"n_neighbors": K}), "solve_weights"))
    [(centers, n_points)] = found
    assert n_points == 120
    assert len(np.unique(centers, axis=0)) == PATCHES
    assert set(map(tuple, centers)) < set(map(tuple, POINTS["roll"]))


def test_plan_counts_patches_only_for_a_sample(tmp_path):
    layouts = [Layout(n, 3, "float64", 700, n_points=n, n_features=3, k_max=K) for n in (2000, 3000, 16_000)]
    steps = [next(reg_for_weights("solve_weights", config_of(tmp_path, "roll"), layout)) for layout in layouts]
    few, more, sample = (step.task_bytes for step in steps)
    assert sample - more > more - few + 6000 * PATCH_POINT_BYTES
    assert more - few < 6000 * PATCH_POINT_BYTES


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("largest", [4000, 440])
def test_choice_does_not_depend_on_the_order_of_rows(monkeypatch, largest):
    """With a trial of all points, and with one of a sample."""
    for bound in ("TRIAL_POINTS", "WHOLE_POINTS"):
        monkeypatch.setattr(f"lle.kernels.trial_embedding.{bound}", largest)
    rng, choices = np.random.default_rng(45), []
    points = np.exp(rng.normal(size=(900, 5)))
    for _ in range(2):
        fast = {"quality": {"sample": 50, "geodesic_sources": 0}}
        choices.append(LocallyLinearEmbedding(n_neighbors=K, config=fast).fit(rng.permutation(points)).metrics_["reg"])
    assert choices[0] == choices[1]
    assert "embedded" in choices[0]["reason"]
    assert ("patches" in choices[0]["reason"]) == (largest == 440)


def test_equal_choice_reuses_all_results(tmp_path, make_config, run_stages):
    """The number is among the parameters of the weights, and the step that chooses it feeds nothing."""
    np.save(tmp_path / "same.npy", POINTS["blobs"])
    marks = []
    for reg in ("auto", BLOBS_REG, SURFACE_REG):
        config = make_config(tmp_path, POINTS["blobs"], weights={"reg": reg}, neighbors={"n_neighbors": K})
        same = config.input.model_copy(update={"path": str(tmp_path / "same.npy")})
        store = run_stages(config.model_copy(update={"input": same}), "solve_weights").store
        marks.append(checkpoint.recorded_steps(store)["solve_weights.solve"].fingerprint)
    assert marks[0] == marks[1] != marks[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("auto")
    config = config_of(folder, "blobs")
    path = folder / "job.yaml"
    path.write_text(to_yaml(config.model_dump(mode="json", exclude_unset=True)))

    def lle(*arguments):
        result = CliRunner().invoke(app, [*arguments[:1], str(path), *arguments[1:]])
        assert result.exit_code == 0, result.output
        return result

    planned = json.loads(lle("plan", "--json").stdout)["reg"]
    run = lle("run", "--json")
    return planned, json.loads(run.stdout), run.stderr, lle("plan"), config


class TestRun:
    def test_log_metrics_and_plan_hold_value_and_reason(self, finished):
        planned, run, log, plan, _ = finished
        assert planned["value"] is None
        assert "0.001, 0.01, 0.03, 0.1" in planned["reason"]
        reg = run["metrics"]["reg"]
        assert reg["value"] == BLOBS_REG
        line = f"weights.reg: 1: {reg['reason']}"
        assert line in log
        assert line in plan.stdout

    def test_new_points_are_placed_with_the_number_chosen(self, finished):
        rows = blobs(20, np.random.default_rng(43)) + 0.1
        sections = {"quality": {"sample": 50, "geodesic_sources": 0}}
        auto, number = (
            LocallyLinearEmbedding(n_neighbors=K, reg=reg, config=sections).fit(POINTS["blobs"])
            for reg in ("auto", BLOBS_REG)
        )
        np.testing.assert_array_equal(auto.transform(rows), number.transform(rows))
        assert auto.metrics_["reg"]["value"] == BLOBS_REG
        assert number.metrics_["reg"] == {"value": BLOBS_REG, "reason": "set in the config", "no_trial": None}

    def test_suggest_proposes_auto_and_tries_the_same_values(self, finished, monkeypatch):
        monkeypatch.setattr("lle.jobs.suggest_search.NEIGHBORS", (30,))
        monkeypatch.setattr("lle.jobs.suggest_search.METHODS", {"lle": METHODS["lle"]})
        suggestion = suggest(finished[4], N)
        proposed = suggestion["suggested"]
        [chosen] = [line["reg"] for line in suggestion["candidates"] if line["chosen"]]
        run = LocallyLinearEmbedding(
            n_neighbors=proposed["neighbors.n_neighbors"], n_components=proposed["eigensolver.n_components"], reg="auto"
        ).fit(POINTS["blobs"])
        assert proposed["weights.reg"] == "auto"
        assert "185 points embedded with 0.001, 0.01, 0.1, 1 have" in run.metrics_["reg"]["reason"]
        assert any("185 points embedded with 0.001, 0.01, 0.1, 1 have" in reason for reason in suggestion["reasons"])
        start = f"reg auto: it is {chosen:g} for the sample: noise is"
        assert any(reason.startswith(start) for reason in suggestion["reasons"])

    def test_suggest_tries_the_values_of_a_trial_of_all_points_with_a_sample(self, finished, monkeypatch):
        monkeypatch.setattr("lle.jobs.suggest_search.METHODS", {"lle": METHODS["lle"]})
        tried = {line["reg"] for line in suggest(finished[4], 500)["candidates"]}
        assert set(WHOLE_REGS) <= tried
        monkeypatch.setattr("lle.jobs.suggest_trials.largest_trial", lambda n_features, is_simple: 600)
        assert 1.0 not in {line["reg"] for line in suggest(finished[4], 500)["candidates"]}


def dense_sheet():
    """Its noise is a tenth of the local variance; a sample of a quarter of the points has none."""
    rng = np.random.default_rng(43)
    flat = rng.random((9000, 2)) @ np.linalg.qr(rng.normal(size=(8, 2)))[0].T
    return flat + 0.0014 * rng.normal(size=(9000, 8))


@pytest.mark.parametrize(("coordinates", "no_trial"), [("first", None), ("independent", "less noise")])
def test_dense_points_with_noise_have_no_trial_with_independent_coordinates(coordinates, no_trial):
    config = {"quality": {"sample": 50, "geodesic_sources": 0}, "embedding": {"coordinates": coordinates}}
    reg = LocallyLinearEmbedding(reg="auto", config=config).fit(dense_sheet()).metrics_["reg"]
    assert (reg["value"], reg["no_trial"]) == (SURFACE_REG if no_trial is None else DENSE_REG, no_trial)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "used"), [("modified", True), ("ltsa", False)])
def test_other_methods_choose_reg_only_if_they_use_it(tmp_path, method, used):
    rows = POINTS["blobs"][:9] + 0.01
    auto = LocallyLinearEmbedding(n_neighbors=K, method=method).fit(POINTS["blobs"])
    number = LocallyLinearEmbedding(n_neighbors=K, method=method, reg=NOISY_REG if used else SURFACE_REG)
    np.testing.assert_array_equal(auto.embedding_, number.fit(POINTS["blobs"]).embedding_)
    np.testing.assert_array_equal(auto.transform(rows), number.transform(rows))
    assert (auto.metrics_["reg"] is not None) == used
    if used:
        assert auto.metrics_["reg"]["no_trial"] == "method"


@pytest.mark.slow
def test_embed_takes_auto_by_default():
    fast = {"neighbors": {"n_neighbors": K}, "quality": {"sample": 50, "geodesic_sources": 0}}
    auto, number = (embed(POINTS["blobs"], **fast, **sections) for sections in ({}, {"weights": {"reg": BLOBS_REG}}))
    np.testing.assert_array_equal(auto, number)


def test_auto_is_refused_for_the_absolute_rule(tmp_path):
    with pytest.raises(ValueError, match="reg is auto, which is a share of the trace"):
        config_of(tmp_path, "roll", weights={"rule": "absolute"})


def test_store_of_an_older_version_uses_its_stored_number():
    assert reg_of_run(None, {"weights": {"reg": 0.02}}) == 0.02

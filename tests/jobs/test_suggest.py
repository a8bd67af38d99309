"""`lle suggest`: dimension, method and neighbourhoods of known data, reproducible choices, limits of a sample."""

import dataclasses
import json
import re
import shlex
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.cli.output import describe_suggestion
from lle.config.load import load_config
from lle.config.models import Config
from lle.config.yaml_edit import changed
from lle.core.errors import InputError
from lle.core.methods import METHODS
from lle.jobs import suggest_search, suggest_trials
from lle.jobs.suggest import _why_low, _why_method, _why_not_best, other_store, suggest
from lle.jobs.suggest_search import Search, best_method, choose
from lle.jobs.suggest_trials import Lost, Trial, Trials
from lle.kernels.factors.choose_reg import reg_of_lists
from lle.kernels.manifolds import sample
from lle.kernels.neighbors.knn import exact_neighbors
from lle.kernels.quality.sample_quality import Scores
from tests.support.points import swiss_roll
from tests.support.seeds import seeds

SLANTED = np.random.default_rng(12).random((400, 2)) @ np.ones((2, 3)) + np.eye(3)[0]
SLANTED[:, 1] += np.random.default_rng(13).random(400)

LOW_TRUST, LOW_HIT = Lost("trustworthiness", 0.8, 0.9), Lost("neighbourhood hit", 0.5, 0.7)

ONLY_LLE = {"eigensolver": {"method": "factored"}}


def config_of(name="swiss_roll", n=20_000, **sections):
    source = {"kind": "synthetic", "name": name, "n_points": n}
    return Config.model_validate({"input": source, "output": {"store": "never-made.zarr"}, **sections})


def trial(k, scores, error=""):
    values = None if error else Scores(*[np.asarray(scores, float)] * 3, None)
    return Trial("lle", k, 2, 1e-3, values, 1.0, error)


class TestChoice:
    def test_first_trial_not_worse_than_the_best_is_chosen(self):
        base = np.random.default_rng(5).uniform(0.5, 0.9, 400)
        worse, equal, best = base - 0.05, base + 0.0995, base + 0.1
        assert choose([trial(6, worse), trial(8, equal), trial(10, best), trial(12, best)]).n_neighbors == 8
        assert choose([trial(6, worse), trial(10, best)]).n_neighbors == 10

    def test_trials_are_compared_point_by_point(self):
        """Points differ much more than trials; a difference within the noise must not decide."""
        rng = np.random.default_rng(6)
        base = rng.uniform(0.1, 0.9, 400)
        assert choose([trial(6, base), trial(8, base + 0.01)]).n_neighbors == 8
        assert choose([trial(6, base), trial(8, base + rng.normal(0.01, 0.2, 400))]).n_neighbors == 6

    def test_failed_trials_are_not_chosen(self):
        assert choose([trial(6, [0.5, 0.4], "too few"), trial(8, [0.1, 0.2])]).n_neighbors == 8
        assert choose([trial(6, [0.5, 0.4], "too few")]) is None

    def test_other_method_with_a_coordinate_on_few_points_is_no_better(self):
        base = np.random.default_rng(7).uniform(0.5, 0.8, 400)
        own, other = trial(12, base), trial(20, base + 0.1)
        clump = dataclasses.replace(other, participation=0.002)
        assert best_method(own, [clump]) is own
        assert best_method(own, [clump, other]) is other
        assert best_method(dataclasses.replace(own, participation=0.002), [clump]) is clump
        assert best_method(None, [clump]) is clump
        crowded = dataclasses.replace(other, is_crowded=True)
        assert best_method(own, [crowded]) is own
        assert crowded.warning == "it shows many points at few places"
        [reason] = _why_low(dataclasses.replace(clump, lost=LOW_TRUST), [clump])
        assert "only separates few points, and it loses neighbours (trustworthiness 0.800, bound 0.9). Do not" in reason

    def test_far_rows_and_dots_do_not_count_against_pca(self):
        base = np.random.default_rng(7).uniform(0.5, 0.8, 400)
        pca = dataclasses.replace(trial(12, base + 0.1), method="pca", participation=0.002, is_crowded=True)
        assert best_method(trial(12, base), [pca]) is pca
        lost = dataclasses.replace(pca, lost=LOW_TRUST)
        assert lost.warning == "it loses neighbours (trustworthiness 0.800, bound 0.9)"

    @pytest.mark.parametrize("lost", [None, LOW_HIT])
    @pytest.mark.parametrize("gain", [-0.1, 0.05])
    def test_pca_with_more_coordinates_is_tried_if_a_run_would_warn_of_the_best_trial(self, gain, lost):
        base = np.random.default_rng(7).uniform(0.5, 0.8, 400)
        lle, pca = trial(12, base), dataclasses.replace(trial(12, base + gain), method="pca", lost=lost)
        better = dataclasses.replace(trial(12, base + 0.1), method="pca", n_components=6)
        for crowded in (False, True):
            search = Search.__new__(Search)
            search.config = config_of()
            search.sample = SimpleNamespace(points=np.empty((9, 12)))
            search.likely, search.n_components = SimpleNamespace(value=3.0), 2
            search.chosen = dataclasses.replace(lle, is_crowded=crowded)
            search.trials = SimpleNamespace(
                points=np.empty((400, 12)),
                done=lambda: [pca],
                embedding=lambda *_: None,
                scores_by_components=lambda y: np.full(10, 0.99),
            )
            best, search.trials.run = (
                search.chosen,
                lambda method, k, m, reg: dataclasses.replace(pca, n_components=m, lost=LOW_HIT),
            )
            search._try_more_components()
            assert (search.chosen, search.n_components) == (best, 2)  # a run would warn of every number
            search.trials.run = lambda method, k, m, reg: (
                better if m == 6 else dataclasses.replace(pca, n_components=m, lost=LOW_HIT)
            )
            search._try_more_components()
            assert (search.chosen is better) == (crowded or (gain > 0 and bool(lost)))
            if search.chosen is better:
                assert search.n_components == 6
                hit = "neighbourhood hit of 12 neighbours 0.500, bound 0.7"
                assert search.why_components.endswith(f"A run with fewer would warn: it loses neighbours ({hit})")

    def test_trial_that_keeps_neighbours_is_better_at_the_same_score(self):
        """A run would warn of the other one; a trial with a score that is lower by the margin does not replace it."""
        base = np.random.default_rng(7).uniform(0.5, 0.8, 400)
        own, keeps, worse = (trial(12, base + gain) for gain in (0.1, 0.095, 0.08))
        loses = dataclasses.replace(own, lost=LOW_HIT)
        assert best_method(own, [keeps]) is own
        assert best_method(loses, [keeps]) is keeps
        assert best_method(loses, [worse]) is loses
        assert best_method(worse, [loses]) is worse

    def test_suggestion_that_loses_classes_names_the_best_hit(self):
        base = np.random.default_rng(7).uniform(0.85, 0.95, 400)
        lost, higher = (
            dataclasses.replace(one, scores=one.scores._replace(hit=np.full(400, hit)))
            for one, hit in ((trial(12, base), 0.5), (trial(20, base), 0.6))
        )
        lost = dataclasses.replace(lost, lost=LOW_HIT)
        words = "The highest hit of 12 neighbours is 0.600, of lle with 20 neighbours and reg 0.001"
        [reason] = _why_low(lost, [lost, higher])
        assert reason.endswith(f"(neighbourhood hit of 12 neighbours 0.500, bound 0.7). {words}")
        assert _why_low(higher, [lost, higher]) == []

    def test_reason_is_that_of_the_choice(self):
        """A method with a higher score is not chosen because of its clump, or because the difference is not certain."""
        rng = np.random.default_rng(7)
        base = rng.uniform(0.5, 0.8, 400)
        own = trial(12, base)
        high, near, uncertain = (
            dataclasses.replace(trial(12, base + gain), method="laplacian")
            for gain in (0.1, 0.005, 0.02 + rng.permutation(np.repeat([-0.5, 0.5], 200)))
        )
        clump = dataclasses.replace(high, participation=0.002)
        search = Search.__new__(Search)
        search.own = own
        for other, words in (
            (clump, "a coordinate of it only separates few points"),
            (uncertain, "the 95 % interval of the difference holds 0"),
            (near, f"no other method has a score 0.01 higher than {own.score:.3f}"),
        ):
            search.others = [other]
            assert best_method(own, search.others) is own
            reason = _why_method(search, own)
            assert reason.endswith(words)
            assert (f"laplacian has a higher score ({other.score:.3f}, not" in reason) == (other is not near)
        search.others = [high]
        assert _why_method(search, high).endswith(f"{high.score:.3f}, that of lle is {own.score:.3f}")
        more = dataclasses.replace(high, n_components=3)
        assert f"its score with 3 coordinates is {more.score:.3f}, that of lle with 2" in _why_method(search, more)

    def test_reason_names_the_trial_with_the_best_score_if_it_is_not_chosen(self):
        base = np.random.default_rng(7).uniform(0.5, 0.8, 400)
        own, pca = trial(12, base), dataclasses.replace(trial(12, base + 0.1), method="pca")
        other_reg = dataclasses.replace(trial(30, base + 0.15), reg=1e-2)
        modified = dataclasses.replace(trial(20, base + 0.105), method="modified")
        search = Search.__new__(Search)
        search.own, search.others = own, [pca, modified]
        for best, chosen, words in (
            (other_reg, pca, "lle with 30 neighbours and reg 0.01, but a run chooses reg itself"),
            (other_reg, own, "lle with 30 neighbours and reg 0.01, but a run chooses reg itself"),
            (trial(30, base + 0.15), own, "lle with 30 neighbours and reg 0.001, but lle with 12 neighbours is as"),
            (modified, pca, "modified with 20 neighbours and reg 0.001, but a less simple method needs a score 0.01"),
        ):
            [reason] = _why_not_best(search, chosen, [own, pca, best])
            assert reason.startswith(f"the best score, {best.score:.3f}, is that of {words}")
        assert _why_not_best(search, pca, [own, pca]) == []
        assert _why_not_best(search, own, [own, pca]) == []  # the reason of the method says it

    def test_simpler_method_is_chosen_unless_another_one_is_clearly_better(self):
        base = np.random.default_rng(8).uniform(0.5, 0.8, 400)
        own, pca = trial(12, base), dataclasses.replace(trial(12, base + 0.1), method="pca")
        hessian, modified = (
            dataclasses.replace(trial(30, base + gain), method=method)
            for method, gain in (("hessian", 0.105), ("modified", 0.12))
        )
        assert best_method(own, [hessian, pca]) is pca
        assert best_method(None, [hessian, pca]) is pca
        assert best_method(own, [modified, hessian, pca]) is modified
        assert best_method(hessian, [pca]) is hessian  # the config's


@pytest.fixture
def few_trials(monkeypatch):
    """Trials of lle with 12 neighbours only."""
    for name, few in (("NEIGHBORS", (12,)), ("METHODS", {"lle": METHODS["lle"]})):
        monkeypatch.setattr(suggest_search, name, few)


def noisy_sheet(n, rng):
    return rng.random((n, 2)) @ np.linalg.qr(rng.normal(size=(3, 3)))[0][:2] + 0.03 * rng.normal(size=(n, 3))


def cube(n, rng):
    return rng.random((n, 4)) @ np.linalg.qr(rng.normal(size=(8, 8)))[0][:4]


def noisy_helix(n, rng):
    t = 6 * np.pi * rng.random(n)
    return np.column_stack([np.cos(t), np.sin(t), t / 3]) + 0.05 * rng.normal(size=(n, 3))


def turned_body(n, rng, n_pixels=12):
    """Images of soft spots on a body that is turned about three axes."""
    spots, width = rng.normal(size=(20, 3)), rng.uniform(0.3, 0.6, (20, 1, 1))
    spots /= np.linalg.norm(spots, axis=1)[:, None]
    x, y = np.meshgrid(*[np.linspace(-1.2, 1.2, n_pixels)] * 2)
    images = np.empty((n, n_pixels**2))
    for row, (a, b, c) in enumerate(rng.uniform(-0.6, 0.6, (n, 3))):
        turn = [
            [[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]],
            [[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]],
            [[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]],
        ]
        at = (spots @ turn[0] @ turn[1] @ turn[2])[:, :, None, None]
        bright = (1 + at[:, 2] / 2) * np.exp(-((x - at[:, 0]) ** 2 + (y - at[:, 1]) ** 2) / (2 * width**2))
        images[row] = bright.sum(axis=0).ravel()
    return images


@pytest.mark.parametrize("seed", seeds(31, 32, 33))
@pytest.mark.parametrize(("make", "dimension"), [(swiss_roll, 2), (noisy_sheet, 2), (cube, 4), (noisy_helix, 1)])
def test_n_components_is_the_dimension_in_spite_of_noise_and_curvature(
    tmp_path, make_config, few_trials, make, dimension, seed
):
    found = suggest(make_config(tmp_path, make(800, np.random.default_rng(seed))), 800)
    assert found["suggested"]["eigensolver.n_components"] == dimension


def test_suggest_measures_a_sample_with_the_reg_that_it_needs(tmp_path, few_trials):
    """Not with the larger one of all rows, with which the second eigenvector is a function of the first."""
    rng = np.random.default_rng(44)
    roll = swiss_roll(30_000, rng) @ np.linalg.qr(rng.normal(size=(10, 3)))[0].T
    np.save(tmp_path / "roll.npy", roll + 0.06 * rng.normal(size=(30_000, 10)))
    source = {"kind": "npy", "path": str(tmp_path / "roll.npy")}
    found = suggest(Config.model_validate({"input": source, "output": {"store": str(tmp_path / "run.zarr")}}), 1000)
    assert found["suggested"]["eigensolver.n_components"] == 2
    assert any(reason.startswith("reg auto: it is 0.001 for the sample: noise is 0.0") for reason in found["reasons"])


def test_reg_comes_from_the_neighbours_of_a_trial_only(tmp_path, make_config):
    points = noisy_sheet(400, np.random.default_rng(45))
    trials = Trials(points, np.arange(400), None, make_config(tmp_path, points), 40, 400, lambda text: None)
    near = exact_neighbors(points, np.arange(400), points, np.arange(400), 12).ids
    assert trials.local_reg(12, 2) == reg_of_lists(points, points, near, 2)


def test_a_trial_with_many_points_at_few_places_has_a_warning(tmp_path, make_config, monkeypatch):
    points = noisy_sheet(400, np.random.default_rng(45))
    trials = Trials(points, np.arange(400), None, make_config(tmp_path, points), 40, 400, lambda text: None)
    dots = (points[:, :1] > np.median(points[:, 0])) + 1e-4 * points[:, :2]
    monkeypatch.setattr(trials, "embedding", lambda method, k, m, reg: dots if k == 20 else points[:, :2])
    assert not trials.run("lle", 12, 2, 1e-3).is_crowded
    assert "it shows many points at few places" in trials.run("lle", 20, 2, 1e-3).warning


def closed_curve(n, rng):
    t = 2 * np.pi * rng.random(n)
    return np.column_stack([np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)])


def sphere(n, rng):
    x = rng.normal(size=(n, 3))
    x /= np.linalg.norm(x, axis=1)[:, None]
    return np.column_stack([x, x[:, 0] * x[:, 1], x[:, 1] * x[:, 2]])


def tree(n, rng):
    """Three branches from one point."""
    axes = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    return axes[rng.integers(3, size=n)] * rng.random((n, 1)) + 0.02 * rng.normal(size=(n, 6))


def test_a_tree_is_not_a_curve(tmp_path, make_config, few_trials):
    """Its neighbourhoods have one direction, but one coordinate folds the branches."""
    points = tree(800, np.random.default_rng(31))
    found = suggest(make_config(tmp_path, points), 800)
    assert found["suggested"]["eigensolver.n_components"] >= 2


@pytest.mark.parametrize(("width", "n_components"), [(0.5, 2), (0.02, 1)])
def test_pca_of_two_coordinates_is_tried_beside_one_of_a_curve(tmp_path, make_config, monkeypatch, width, n_components):
    """One coordinate of a narrow strip is good by trustworthiness and continuity, but two keep more neighbours."""
    monkeypatch.setattr(suggest_search, "NEIGHBORS", (12,))
    monkeypatch.setattr(suggest_search, "METHODS", {name: METHODS[name] for name in ("lle", "pca")})
    rng = np.random.default_rng(0)
    along, across = 10 * rng.random(600), width * rng.random(600)
    curved = np.column_stack([along, across, 0.02 * along**2]) @ rng.normal(size=(3, 8))
    points = curved + 0.01 * rng.normal(size=(600, 8))
    found = suggest(make_config(tmp_path, points), 600)["suggested"]
    assert (found["method"] == "pca") == (n_components == 2)
    assert found["eigensolver.n_components"] == n_components


@pytest.mark.parametrize("method", ["lle", "pca"])
@pytest.mark.parametrize("seed", seeds(41, 42, 43))
def test_pca_gets_the_number_of_coordinates_that_it_needs(tmp_path, make_config, monkeypatch, seed, method):
    """lle keeps hardly more neighbours of noise with more coordinates. pca does, so it is tried with more of them."""
    monkeypatch.setattr(suggest_search, "NEIGHBORS", (12,))
    monkeypatch.setattr(suggest_search, "METHODS", {name: METHODS[name] for name in ("lle", "pca")})
    points = np.random.default_rng(seed).normal(size=(500, 12)) * np.linspace(1.0, 0.4, 12)
    found = suggest(make_config(tmp_path, points, method=method), 500)
    few, *_, many = [line for line in found["candidates"] if line["method"] == "pca"]
    suggested = found["suggested"]
    assert suggested["method"] == "pca"
    assert suggested["eigensolver.n_components"] == many["n_components"] > few["n_components"]
    assert many["score"]["value"] > few["score"]["value"] + 0.01
    assert found["reasons"][0].startswith(
        f"n_components {many['n_components']}: the mean of trustworthiness and continuity of pca is 0."
    )
    why = next(reason for reason in found["reasons"] if reason.startswith("method pca: "))
    assert ("no other method" in why) == (method == "pca")
    assert few["n_components"] == 2  # as in the config
    best = max(line["score"]["value"] for line in found["candidates"] if line["n_components"] == 2)
    of = "lle and pca" if method == "lle" else "pca and lle"
    assert any(
        f"with 2 coordinates, as in the config, the best of {of} is pca: score {best:.3f}. A run would warn: it"
        in reason
        for reason in found["reasons"]
    )


def test_roll_whose_turns_are_linked_by_neighbours_gets_its_dimension(tmp_path, make_config, few_trials):
    found = suggest(make_config(tmp_path, swiss_roll(420, np.random.default_rng(11))), 420)
    assert found["suggested"]["eigensolver.n_components"] == 2


def test_numbers_of_neighbours_that_break_the_graph_are_not_tried(tmp_path, make_config, monkeypatch):
    """The rows are groups of eight, connected with eight neighbours. A sample that holds fewer of each needs fewer."""
    monkeypatch.setattr(suggest_search, "METHODS", {"lle": METHODS["lle"]})
    monkeypatch.setattr(suggest_search, "_trial_points", lambda n_features: 200)
    groups = np.repeat(np.arange(60.0)[:, None] * [1, 0, 0], 8, axis=0)
    found = suggest(make_config(tmp_path, groups + np.random.default_rng(7).random((480, 3)) / 10), None)
    assert found["sample"] == 200
    assert min(line["n_neighbors"] for line in found["candidates"]) == 8
    assert any(reason.startswith("fewer than 8 neighbours were not tried") for reason in found["reasons"])


@pytest.mark.parametrize(("n_rows", "n_sampled"), [(330, 330), (360, 200)])
def test_a_small_table_is_tried_whole(tmp_path, make_config, monkeypatch, few_trials, n_rows, n_sampled):
    monkeypatch.setattr("lle.jobs.suggest.MAX_TRIAL_POINTS", 350)
    monkeypatch.setattr("lle.jobs.suggest.SAMPLED_ROWS", 200)
    config = make_config(tmp_path, swiss_roll(n_rows, np.random.default_rng(11)))
    assert suggest(config, None)["sample"] == n_sampled


@pytest.mark.parametrize("seed", seeds(31, 32))
@pytest.mark.parametrize(("make", "dimension"), [(closed_curve, 1), (sphere, 2)])
def test_closed_data_get_one_coordinate_more_than_their_dimension(
    tmp_path, make_config, few_trials, make, dimension, seed
):
    found = suggest(make_config(tmp_path, make(800, np.random.default_rng(seed))), 800)
    assert found["suggested"]["eigensolver.n_components"] == dimension + 1
    [chosen] = [line for line in found["candidates"] if line["chosen"]]
    assert chosen["trustworthiness"]["value"] > 0.99


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "may_be_lle"),
    [(31, False), pytest.param(32, True, marks=pytest.mark.slow), pytest.param(33, False, marks=pytest.mark.slow)],
)
def test_other_method_is_suggested_where_it_keeps_more_of_three_parameters(tmp_path, make_config, seed, may_be_lle):
    """With seed 32 lle with 40 neighbours is as good as the others."""
    found = suggest(make_config(tmp_path, turned_body(800, np.random.default_rng(seed))), 800)
    method = found["suggested"]["method"]
    best = {}
    for line in found["candidates"]:
        best[line["method"]] = max(best.get(line["method"], 0), line["score"]["value"])
    assert best[method] > max(best.values()) - 0.01
    if may_be_lle:
        return
    assert method in {"ltsa", "modified", "hessian"}
    assert best[method] > best["lle"] + 0.01
    assert any(reason.startswith(f"method {method}: its score") for reason in found["reasons"])


def test_config_method_stays_where_no_other_one_is_better_by_more_than_the_bound(tmp_path, make_config):
    """On a flat sheet with noise, lle, ltsa and pca keep the same neighbours."""
    config = make_config(tmp_path, noisy_sheet(500, np.random.default_rng(8)))
    found = suggest(config, 500)
    [chosen] = [line for line in found["candidates"] if line["chosen"]]
    assert chosen["method"] == "lle"
    assert max(line["score"]["value"] for line in found["candidates"]) > chosen["score"]["value"]


def test_swiss_roll_gets_two_components_and_a_good_n_neighbors():
    found = suggest(config_of(), 600)
    assert found["suggested"]["eigensolver.n_components"] == 2
    assert found["suggested"]["neighbors.n_neighbors"] < 30  # there the sample's neighbours cross from sheet to sheet
    assert sum(line["chosen"] for line in found["candidates"]) == 1
    [chosen] = [line for line in found["candidates"] if line["chosen"]]
    assert chosen["trustworthiness"]["value"] > 0.96
    for line in found["candidates"]:
        for key in ("trustworthiness", "continuity", "kept", "score"):
            assert line[key]["low"] <= line[key]["value"] <= line[key]["high"]
    assert found["stretch"] == pytest.approx((20_000 / 600) ** 0.5, rel=0.1)
    assert json.loads(json.dumps(found)) == found


def test_labels_count_and_rows_without_categories_have_no_hit(tmp_path, few_trials):
    rng = np.random.default_rng(4)
    y = rng.integers(3, size=300)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(300, 5)) + 4 * y[:, None], y=y, time=rng.random(300))
    hits = {}
    for label in ("y", "time"):
        source = {"kind": "npz", "path": str(tmp_path / "rows.npz"), "key": "X", "label": label}
        config = Config.model_validate({"input": source, "output": {"store": str(tmp_path / "run.zarr")}})
        hits[label] = [line.get("hit") for line in suggest(config, 300)["candidates"] if "failed" not in line]
    assert max(hit["value"] for hit in hits["y"]) > 0.95
    assert hits["time"] == [None] * len(hits["time"])


def test_suggestion_names_a_hit_that_is_low_for_the_neighbours_of_the_run(tmp_path, few_trials, monkeypatch):
    """All trials are compared by the hit of 12 neighbours, and a run measures that of its own number."""
    np.savez(tmp_path / "rows.npz", X=SLANTED, y=np.arange(400) % 2)
    source = {"kind": "npz", "path": str(tmp_path / "rows.npz"), "key": "X", "label": "y"}
    monkeypatch.setattr(
        suggest_trials.SampleQuality,
        "hit",
        lambda self, k, embedding=None: np.full(len(self.measured), 0.5 if k == 6 and embedding is not None else 0.9),
    )
    for k, is_low in ((6, True), (12, False)):
        settings = {"output": {"store": str(tmp_path / "run.zarr")}, "neighbors": {"n_neighbors": k}}
        monkeypatch.setattr(suggest_search, "NEIGHBORS", (k,))
        reasons = suggest(Config.model_validate({"input": source, **settings}), 400)["reasons"]
        assert any("neighbourhood hit of 6 neighbours 0.500, bound 0.85" in reason for reason in reasons) == is_low


def test_suggestion_that_keeps_few_neighbours_says_so(tmp_path, make_config, few_trials):
    noise = suggest(make_config(tmp_path, np.random.default_rng(4).normal(size=(300, 60))), 300)
    assert "Do not interpret clusters" in " ".join(noise["reasons"])
    roll = suggest(make_config(tmp_path, SLANTED), 300)
    assert "Do not interpret clusters" not in " ".join(roll["reasons"])


@pytest.mark.parametrize(("components", "is_same"), [(2, True), (3, False)])
def test_settings_that_the_config_has_already_are_said_to_be_so(tmp_path, make_config, few_trials, components, is_same):
    settings = {"eigensolver": {"n_components": components}, "weights": {"reg": "auto"}}
    reasons = suggest(make_config(tmp_path, SLANTED, **settings), 300)["reasons"]
    assert any("has these settings already" in reason for reason in reasons) == is_same


@pytest.mark.parametrize(("sample", "is_small"), [(300, True), (1100, False)])
def test_a_larger_sample_is_named_if_the_trials_can_embed_more_rows(
    tmp_path, make_config, few_trials, sample, is_small
):
    found = suggest(make_config(tmp_path, swiss_roll(1200, np.random.default_rng(5))), sample)
    assert any("--sample 1200 takes longer" in reason for reason in found["reasons"]) == is_small


@pytest.fixture(scope="module")
def plain(tmp_path_factory, make_config):
    return suggest(make_config(tmp_path_factory.mktemp("plain"), SLANTED, **ONLY_LLE), 200)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [{"radius": 2.0, "k_max": 40}, {"k_per_point": "k.npy"}, {"precomputed": {"kind": "npy", "path": "lists.npy"}}],
)
def test_rules_about_the_whole_input_are_not_used_for_trials(tmp_path, make_config, plain, rule):
    """Files for all rows and a radius do not fit the sample: n_neighbors is tried, but not suggested."""
    ruled = suggest(make_config(tmp_path, SLANTED, neighbors=rule, **ONLY_LLE), 200)
    assert ruled["candidates"] == plain["candidates"]
    assert "neighbors.n_neighbors" in plain["suggested"]
    assert set(ruled["suggested"]) == set(plain["suggested"]) - {"neighbors.n_neighbors"}
    assert any(f"neighbors.{next(iter(rule))} determines" in reason for reason in ruled["reasons"])


def test_absolute_reg_of_the_config_is_kept(tmp_path, make_config, monkeypatch):
    monkeypatch.setattr(suggest_search, "METHODS", {"lle": METHODS["lle"]})
    weights = {"rule": "absolute", "reg": 0.02}
    assert suggest(make_config(tmp_path, SLANTED, weights=weights), 200)["suggested"]["weights.reg"] == 0.02


@pytest.mark.parametrize("method", ["lle", "modified"])
def test_second_search_of_lle_finds_a_reg_that_only_more_neighbours_need(monkeypatch, method):
    """With 12 neighbours reg 1 is the best, and with reg 1 more neighbours are worse."""
    base, tried = np.random.default_rng(9).uniform(0.1, 0.5, 400), []

    def run(search, method, k, reg):
        tried.append(k)
        return dataclasses.replace(trial(k, base + (0.3 - k / 1000 if reg == 1.0 else k / 100)), method=method, reg=reg)

    for name, value in {
        "_components": lambda search: (2, ""),
        "_reg": lambda search, method, k: 1.0 if k < 20 else 1e-3,
        "_same_reg": lambda search, method, k, reg: reg,
        "_run": run,
        "_other_methods": lambda search: [],
        "_try_more_components": lambda search: None,
    }.items():
        monkeypatch.setattr(Search, name, value)
    search = Search.__new__(Search)
    search.config, search.n_components = config_of(method=method), 2
    search.min_neighbors, search.max_neighbors = 1, 40
    search.run()
    expected = (40, 1e-3) if method == "lle" else (6, 1.0)
    assert (search.chosen.n_neighbors, search.chosen.reg) == expected


@pytest.mark.slow
def test_cosine_gives_the_trials_of_unit_rows(tmp_path, make_config):
    rng = np.random.default_rng(14)
    points = sample("punctured_sphere", 0, 500, 3, 0.0, 0.0).points
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    stretched = unit * rng.uniform(0.1, 10, (500, 1))
    found, expected = (
        suggest(make_config(tmp_path, rows, neighbors=neighbors), 500)
        for rows, neighbors in ((stretched, {"metric": "cosine"}), (unit, {}))
    )
    assert found["suggested"]["eigensolver.n_components"] == 2
    best, expected_best = (max(line["score"]["value"] for line in one["candidates"]) for one in (found, expected))
    assert best == pytest.approx(expected_best, abs=0.05)


def test_trials_join_the_pieces_if_a_run_does(tmp_path, make_config, few_trials):
    rolls = np.concatenate([SLANTED, SLANTED + 60.0])
    found = suggest(make_config(tmp_path, rolls, graph={"components": "connect"}), len(rolls))
    assert found["pieces"] == 2
    assert {line["in_largest"] for line in found["candidates"]} == {1.0}
    assert any(reason.endswith("2 pieces, which the trials join as a run does") for reason in found["reasons"])


@pytest.mark.slow
def test_pieces_are_measured_within_the_largest_one(tmp_path, make_config):
    """Three rolls get the scores of one, so pca, which embeds all rows, is not better than lle."""
    rng = np.random.default_rng(11)
    rolls = np.concatenate([swiss_roll(n, rng) + 100.0 * place for place, n in enumerate((420, 300, 300))])
    found, alone = (suggest(make_config(tmp_path, rows), len(rows)) for rows in (rolls, rolls[:420]))
    assert found["pieces"] == 3
    assert found["suggested"]["method"] != "pca"
    assert found["suggested"]["eigensolver.n_components"] == 2
    scores = [
        {
            (line["method"], line["n_neighbors"], line["reg"]): line["score"]["value"]
            for line in one["candidates"]
            if "failed" not in line
        }
        for one in (found, alone)
    ]
    assert len(scores[0].keys() & scores[1].keys()) > 8
    for key in scores[0].keys() & scores[1].keys():
        assert scores[0][key] == pytest.approx(scores[1][key], abs=0.03)
    for line in found["candidates"]:
        if line["method"] != "pca" and "failed" not in line:
            assert line["in_largest"] <= 420 / len(rolls)
    assert found["stretch"] == 1.0
    assert any("3 pieces" in reason and "420 points" in reason for reason in found["reasons"])
    assert not any("pieces" in reason for reason in alone["reasons"])


def test_pca_embeds_all_pieces_together_as_a_run_does(tmp_path, make_config, monkeypatch):
    """Two flat groups. The first axis leads from one to the other, and the second shows one dimension of each."""
    monkeypatch.setattr(suggest_search, "METHODS", {name: METHODS[name] for name in ("lle", "pca")})
    points = np.random.default_rng(6).random((300, 3)) * [0.01, 1, 1]
    points[150:, 0] += 20
    found = suggest(make_config(tmp_path, points), 300)
    [pca] = [line for line in found["candidates"] if line["method"] == "pca"]
    assert found["pieces"] == 2
    assert pca["in_largest"] == 1
    assert pca["trustworthiness"]["value"] < 0.9
    assert found["suggested"]["method"] == "lle"
    assert any("embeds one by one, but pca together: the trials use the 150 points" in why for why in found["reasons"])


def test_pieces_too_small_for_trials_count_as_one(tmp_path, make_config, few_trials):
    rng = np.random.default_rng(3)
    found = suggest(make_config(tmp_path, np.concatenate([rng.random((40, 3)) + 9 * i for i in range(10)])), 400)
    assert found["pieces"] == 1
    assert found["suggested"]["eigensolver.n_components"] >= 2


def test_reason_of_n_components_says_what_was_measured(tmp_path, make_config, monkeypatch):
    """Also where the neighbours allow fewer coordinates than the dimension."""
    monkeypatch.setattr(suggest_search, "METHODS", {"lle": METHODS["lle"]})
    rng = np.random.default_rng(2)
    found = suggest(make_config(tmp_path, cube(600, rng)), 600)
    m, reason = found["suggested"]["eigensolver.n_components"], found["reasons"][0]
    values = [float(text) for text in re.search(r"neighbours is ([\d., ]+) with 1 to", reason)[1].split(",")]
    assert max(values) - values[m - 1] <= suggest_search.SAME_QUALITY + 1e-3
    assert m == 2 or max(values) - values[m - 2] > suggest_search.SAME_QUALITY - 1e-3
    assert (f"more than {m} raise it by at most" if m < len(values) else f"fewer than {m} lower it by") in reason
    few = suggest(make_config(tmp_path, cube(600, rng), neighbors={"n_neighbors": 3}), 600)
    assert few["suggested"]["eigensolver.n_components"] == 2
    assert "with 1 to 2 coordinates" in few["reasons"][0]


@pytest.mark.parametrize("d", [2, 3])
def test_two_coordinates_or_fewer_than_features_are_suggested(tmp_path, make_config, few_trials, d):
    found = suggest(make_config(tmp_path, np.random.default_rng(5).random((400, d))), 400)
    assert found["suggested"]["eigensolver.n_components"] == 2
    assert found["reasons"][0].endswith(f"{d} coordinates of {d} features reduce nothing")


def test_equal_and_invalid_rows_do_not_stretch_the_sample(tmp_path, make_config, few_trials):
    rows = np.repeat(np.random.default_rng(12).random((90, 3)), 4, axis=0)
    rows[::40] = np.nan
    config = make_config(tmp_path, rows, preprocess={"invalid": "drop"})
    assert suggest(config, 400)["stretch"] == 1.0


def test_coordinates_on_a_grid_have_suggestions_without_the_two_nearest(tmp_path, make_config, few_trials):
    grid = np.stack(np.meshgrid(*[np.arange(18.0)] * 2), axis=-1).reshape(-1, 2)
    found = suggest(make_config(tmp_path, grid), 400)
    assert found["dimension"]["two_nearest"] is None
    assert found["suggested"]["eigensolver.n_components"] == 2
    assert "TwoNN none" in describe_suggestion({**found, "written": None}, tmp_path / "job.yaml")


def test_rounded_numbers_are_named_as_a_cause_of_a_high_dimension(tmp_path, make_config, few_trials):
    rows = np.random.default_rng(15).normal(size=(1000, 3))
    found = suggest(make_config(tmp_path, np.unique(np.round(2 * rows), axis=0)), 400)
    assert found["dimension"]["two_nearest"]["value"] > 4
    assert any("noise or rounded numbers" in reason for reason in found["reasons"])


@pytest.mark.slow
@pytest.mark.parametrize("shift", [1e-13, 1.0])
def test_near_duplicates_are_named_as_the_cause_of_a_low_dimension(tmp_path, make_config, shift):
    rows = np.random.default_rng(14).random((150, 3))
    reasons = suggest(make_config(tmp_path, np.concatenate([rows, rows + shift])), 400)["reasons"]
    assert any("such as near-duplicates" in reason for reason in reasons) == (shift < 1)


def test_distances_that_underflow_are_refused_with_a_cure(tmp_path, make_config):
    rows = np.random.default_rng(13).random((90, 3)) * 1e-170
    with pytest.raises(InputError, match=r"distances that are 0 in float64 .*preprocess.scale: standard"):
        suggest(make_config(tmp_path, rows), 400)


def invoke(*arguments):
    result = CliRunner().invoke(app, ["suggest", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        f"input: {{kind: synthetic, name: s_curve, n_points: 2000}}\noutput: {{store: {tmp_path}/run.zarr}}\n"
    )
    return path


class TestCommand:
    def test_command_prints_a_table_and_writes_a_config(self, tmp_path, path):
        out = tmp_path / "suggested.yaml"
        code, text, log = invoke(path, "--sample", 500, "--write", out, "--set", "weights.reg=1e-2")
        assert code == 0
        [row] = [line for line in text.splitlines() if line.startswith("*")]
        loaded = load_config(out)
        assert row.split()[1:4] == [loaded.method, "2", str(loaded.neighbors.n_neighbors)]
        assert loaded.eigensolver.n_components == 2
        assert not (tmp_path / "run.zarr").exists()
        assert "2,000 rows" in log

    @pytest.mark.slow
    def test_suggested_command_line_is_a_valid_config(self, path):
        _, text, _ = invoke(path, "--sample", 400)
        arguments = text.splitlines()[-1].split()
        assert arguments[:2] == ["lle", "run"]
        assert CliRunner().invoke(app, ["validate", *arguments[2:]]).exit_code == 0

    def test_existing_config_file_is_not_overwritten(self, path):
        before = path.read_text()
        code, text, _ = invoke(path, "--write", path, "--json")
        assert (code, json.loads(text)["error"]) == (2, "ConfigError")
        assert path.read_text() == before

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            (["--set", "neighbors.n_neighbors=2500"], "must be below 2000"),
            (["--set", "input.name=rolls"], "input"),
            (["--set", "input.n_points=40"], "40 distinct valid rows"),
            (["--sample", "3"], "sample"),
            (["--set", "input.n_points=40"], "are needed; choose the parameters by hand"),
            (["--write", "missing/job.yaml"], "missing/job.yaml: its folder does not exist; create it first"),
        ],
    )
    def test_impossible_settings_end_with_exit_code_2(self, path, changes, text):
        code, out, err = invoke(path, *changes)
        assert code == 2
        assert text in out + err
        assert "Traceback" not in out + err

    @pytest.mark.slow
    def test_method_is_not_tried_with_fewer_neighbours_than_it_needs(self, path):
        code, out, _ = invoke(path, "--sample", 400, "--json", "--set", "method=hessian")
        assert code == 0
        sizes = [line["n_neighbors"] for line in json.loads(out)["candidates"] if line["method"] == "hessian"]
        assert min(sizes) >= 6

    def test_factored_eigensolver_keeps_the_method(self, path, monkeypatch):
        monkeypatch.setattr(suggest_search, "NEIGHBORS", (12,))
        code, out, _ = invoke(path, "--sample", 200, "--json", "--set", "eigensolver.method=factored")
        assert code == 0
        assert {line["method"] for line in json.loads(out)["candidates"]} == {"lle"}


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGINT, 130)]
)
@pytest.mark.slow
def test_signal_between_trials_ends_the_command_with_its_code(path, number, code):
    program = (
        "import os\nfrom lle.cli import commands as cli; from lle.jobs import suggest_trials\n"
        f"suggest_trials.embed_in_memory = lambda *given: os.kill(os.getpid(), {int(number)})\ncli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "suggest", str(path)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "resume" not in done.stderr


@pytest.mark.slow
def test_written_config_is_the_file_with_the_proposal_and_a_store_of_its_own(tmp_path, path):
    """Comments and other keys stay; both configs run, and neither replaces the result of the other."""
    path.write_text(f"# a curve\n{path.read_text()}neighbors:\n  # of each row\n  n_neighbors: 11  # odd\n")
    (tmp_path / "run.zarr").mkdir()
    out = tmp_path / "out.yaml"
    code, text, _ = invoke(path, "--sample", 300, "--write", out, "--set", "quality.sample=77", "--json")
    found = json.loads(text)
    new, stores = str(tmp_path / "run-out.zarr"), (found["store"], found["kept"])
    assert (code, stores) == (0, (new, str(tmp_path / "run.zarr")))
    expected = changed(
        yaml.safe_load(path.read_text()), {"quality.sample": 77, "output.store": new, **found["suggested"]}
    )
    assert yaml.safe_load(out.read_text()) == expected
    for comment in ("# a curve\n", "  # of each row\n", "  # odd\n"):
        assert comment in out.read_text()
    message = describe_suggestion(found, path).splitlines()[-1]
    assert message == f"written: {out}; its store is {new}, so that {tmp_path}/run.zarr is kept"
    (tmp_path / "run-out.zarr").mkdir()
    out.unlink()
    assert json.loads(invoke(path, "--sample", 300, "--write", out, "--json")[1])["store"].endswith("run-out-2.zarr")
    other = ["--set", "output.store=elsewhere.zarr"]
    assert (
        json.loads(invoke(path, "--sample", 300, "--write", tmp_path / "o.yaml", *other, "--json")[1])["store"]
        == "elsewhere.zarr"
    )


@pytest.mark.slow
def test_the_command_that_is_shown_replaces_no_result(tmp_path, path):
    own = ["--set", f"output.store={tmp_path}/a b.zarr"]
    shown = shlex.split(invoke(path, "--sample", 300, *own)[1].splitlines()[-1])
    assert shown[:5] == ["lle", "run", str(path), *own]
    assert "--store" not in shown
    again = shlex.split(invoke(path, "--sample", 300, "--set", "method=pca")[1].splitlines()[-1])
    assert sum(word.startswith("method=") for word in again) == 1
    (tmp_path / "run.zarr").mkdir()
    assert invoke(path, "--sample", 300)[1].splitlines()[-1].endswith(f" --store {tmp_path}/run-suggested.zarr")


def test_values_that_refer_to_each_other_lose_their_comments_only(tmp_path, path, few_trials):
    path.write_text(f"{path.read_text()}# three\nneighbors: {{n_neighbors: &k 9}}\nquality: {{seed: *k}}\n")
    out = tmp_path / "out.yaml"
    found = json.loads(invoke(path, "--sample", 300, "--write", out, "--json")[1])
    data = yaml.safe_load(out.read_text())
    assert (data["quality"]["seed"], data["method"]) == (9, found["suggested"]["method"])


@pytest.mark.parametrize("place", ["~", "file:{folder}", "file://{folder}"])
def test_proposed_store_does_not_exist_however_it_is_written(tmp_path, monkeypatch, place):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "rows-x.zarr").mkdir()
    folder = place.format(folder=tmp_path)
    assert other_store(f"{folder}/rows.zarr", "x") == f"{folder}/rows-x-2.zarr"

"""Advice is followed by the program itself: the measure gets better, and the second answer agrees with the first.

Every setting that a finding names is set, for data of several kinds and for several configs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs, make_swiss_roll

from lle.api.embed import finished_run
from tests.support.paths import SHARED_DATA

Data = tuple[np.ndarray, np.ndarray | None]
Metrics = dict[str, Any]


def standardised(bunch: Any) -> Data:
    return (bunch.data - bunch.data.mean(axis=0)) / bunch.data.std(axis=0), bunch.target


def wine() -> Data:
    return standardised(load_wine())


def iris() -> Data:
    return standardised(load_iris())


def noise() -> Data:
    return np.random.default_rng(32).normal(size=(1000, 20)), None


def few_rows() -> Data:
    return np.random.default_rng(33).normal(size=(50, 2000)), None


def small_table() -> Data:
    """Five dimensions, in which 40 points have few neighbours."""
    rng = np.random.default_rng(34)
    return rng.normal(size=(40, 5)) @ rng.normal(size=(5, 20)), None


def noisy_curve() -> Data:
    rng = np.random.default_rng(6)
    t = 6 * rng.random(1500)
    curve = np.column_stack([np.cos(t), np.sin(2 * t), t]) @ rng.normal(size=(3, 8))
    return curve + 0.05 * rng.normal(size=(1500, 8)), None


def noisy_roll() -> Data:
    return make_swiss_roll(1500, noise=0.6, random_state=1)[0], None


def cancer() -> Data:
    return standardised(load_breast_cancer())


def cube() -> Data:
    return np.random.default_rng(31).random((800, 5)), None


def roll() -> Data:
    return make_swiss_roll(1000, random_state=1)[0], None


def long_roll() -> Data:
    return make_swiss_roll(20_000, random_state=1)[0] * (1, 0.6, 1), None


def heavy_tails() -> Data:
    return np.random.default_rng(3).standard_t(2, size=(3000, 8)), None


def islands() -> Data:
    island = np.random.default_rng(7).random((200, 3))
    return np.concatenate([island + np.array([at, 0.0, 0.0]) for at in (0.0, 2.0, 9.0)]), None


def blobs_far_apart() -> Data:
    rng = np.random.default_rng(8)
    blobs = rng.normal(size=(3, 700, 8)) @ np.diag([3, 2, 1, 0.05, 0.05, 0.05, 0.05, 0.05])
    return np.concatenate([blob + 9 * i for i, blob in enumerate(blobs)]), None


def group_and_island() -> Data:
    """A group that few links join to the others, and an island apart."""
    points = np.random.default_rng(3).normal(size=(1000, 3))
    points[:70, 0] += 6
    return np.concatenate([points, np.random.default_rng(4).normal(size=(50, 3)) + 40]), None


def curve() -> Data:
    t = np.sort(np.random.default_rng(5).random(3000)) * 10
    return np.column_stack([np.cos(t), np.sin(t), 0.3 * t]), None


def turned_objects() -> Data:
    """Closed curves, as of objects on a turntable: one large piece of many objects, and one object apart."""
    rng, turn = np.random.default_rng(9), np.arange(60) * 2 * np.pi / 60
    waves = np.column_stack(
        [np.cos(turn), np.sin(turn), np.cos(2 * turn), np.sin(2 * turn), np.cos(3 * turn), np.sin(3 * turn)]
    ) / [1, 1, 2, 2, 3, 3]
    curves = [waves @ rng.normal(size=(6, 30)) + 0.5 * rng.normal(size=30) for _ in range(20)]
    return np.concatenate(curves), np.repeat(np.arange(20), 60)


def digits() -> Data:
    bunch = load_digits()
    return bunch.data, bunch.target


def clusters() -> Data:
    return make_blobs(1200, 10, centers=5, random_state=3)


def part_of(name: str, n: int) -> Callable[[], Data]:
    """A sample of a real table."""

    def read() -> Data:
        path = SHARED_DATA / "tables" / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"no {path}")
        X = np.load(path)["X"].astype(float)
        X = X[np.random.default_rng(1).choice(len(X), n, replace=False)]
        return (X - X.mean(axis=0)) / X.std(axis=0), None

    return read


def value(metrics: Metrics, key: str) -> float:
    return float(metrics[key]["value"])


MEASURES: dict[str, Callable[[Metrics], float]] = {
    "trustworthiness": lambda metrics: value(metrics, "trustworthiness"),
    "neighborhood_hit": lambda metrics: value(metrics, "neighborhood_hit"),
    "participation": lambda metrics: min(metrics["participation"][0]) / metrics["n_points"],
    "correlation_sum": lambda metrics: -value(metrics, "correlation_sum"),
    "pca_gain": lambda metrics: -value(metrics, "pca_gain"),
    "redundancy": lambda metrics: -max(metrics["redundancy"]),
    "n_components_weak": lambda metrics: -metrics["n_components_weak"],
    "dropped": lambda metrics: -sum(metrics["dropped"].values()),
    "eigenvalues": lambda metrics: metrics["eigenvalues"][0][0] / metrics["solver"]["rounding_floor"],
    "list_sizes": lambda metrics: -metrics["list_sizes"]["at_k_max"] - metrics["list_sizes"]["raised_to_k_min"],
}
"""Larger is better."""

LOOK = {"embedding.coordinates": "independent"}
"""A cure of redundancy that looks for a better coordinate. If there is none, nothing changes."""
SMALL_REG = {"weights": {"reg": 1e-3}}
FIVE = {"eigensolver": {"n_components": 5}}


def components(n: int) -> dict[str, Any]:
    """As many principal components."""
    return {"method": "pca", "eigensolver.n_components": n}


class Case(NamedTuple):
    data: Callable[[], Data]
    config: dict[str, Any]
    cures: dict[str, dict[str, Any]]
    """The settings that the findings name, by the measure."""


CASES = {
    "cube": Case(cube, {}, {"trustworthiness": components(4)}),
    "tangents of iris, whose neighbours are kept": Case(
        iris, {"method": "ltsa"}, {"neighborhood_hit": {"method": "pca"}}
    ),
    "more dimensions than 12 neighbours span": Case(noise, {}, {"trustworthiness": components(12)}),
    "principal components are better with two coordinates": Case(small_table, {}, {"trustworthiness": components(4)}),
    "few rows of many columns": Case(few_rows, {}, {"trustworthiness": components(12)}),
    "five coordinates of a noisy curve": Case(noisy_curve, FIVE, {"redundancy": LOOK}),
    "noisy roll": Case(noisy_roll, SMALL_REG, {"trustworthiness": {"weights.reg": "auto"}}),
    "wine": Case(wine, {}, {"trustworthiness": components(6)}),
    "wine with a small reg": Case(
        wine, SMALL_REG, {"neighborhood_hit": components(6), "pca_gain": {"weights.reg": "auto"}}
    ),
    "six coordinates of wine": Case(
        wine, {**SMALL_REG, "eigensolver": {"n_components": 6}}, {"neighborhood_hit": {"weights.reg": "auto"}}
    ),
    "tangents of sparse regions": Case(
        cancer, {"method": "ltsa"}, {"participation": {"method": "pca"}, "trustworthiness": components(8)}
    ),
    "islands": Case(islands, {}, {"n_components_weak": {"graph.components": "connect"}}),
    "joined blobs": Case(blobs_far_apart, {"graph": {"components": "connect"}}, {"correlation_sum": {"method": "pca"}}),
    "group and island": Case(
        group_and_island,
        {},
        {"trustworthiness": {"method": "pca"}, "n_components_weak": {"graph.components": "connect"}},
    ),
    "largest island": Case(islands, {"graph": {"components": "largest"}}, {"dropped": {"graph.components": "connect"}}),
    "turned objects": Case(turned_objects, {}, {"n_components_weak": {"graph.components": "connect"}}),
    "digits": Case(digits, {}, {"redundancy": LOOK}),
    "clusters": Case(
        clusters, {}, {"trustworthiness": components(8), "n_components_weak": {"graph.components": "connect"}}
    ),
    "heavy tails": Case(
        heavy_tails, SMALL_REG, {"participation": {"weights.reg": "auto"}, "trustworthiness": components(7)}
    ),
    "curve": Case(
        curve,
        {"weights": {"reg": 1e-9}},
        {"eigenvalues": {"weights.reg": "auto"}, "redundancy": {"eigensolver.n_components": 1}},
    ),
    "roll": Case(roll, {}, {}),
    "long roll": Case(long_roll, {}, {"redundancy": LOOK}),
    "cover": Case(part_of("cover", 3000), {}, {"trustworthiness": components(5)}),
    "modified weights of heavy tails": Case(
        heavy_tails,
        {"method": "modified"},
        {"participation": {"embedding.coordinates": "independent"}},  # principal components contradict it
    ),
    "five coordinates of cover": Case(part_of("cover", 3000), FIVE, {}),
    "skin": Case(
        part_of("skin", 20_000),
        SMALL_REG,
        {"participation": {"weights.reg": "auto"}, "n_components_weak": {"graph.components": "connect"}},
    ),
}
QUICK = ("tangents of iris, whose neighbours are kept", "wine", "tangents of sparse regions", "largest island")


def metrics_of(case: Case, settings: dict[str, Any]) -> Metrics:
    X, labels = case.data()
    config = {name: dict(part) if isinstance(part, dict) else part for name, part in case.config.items()}
    for name, setting in settings.items():
        section, _, key = name.rpartition(".")
        if section:
            config.setdefault(section, {})[key] = setting
        else:
            config[key] = setting
    with finished_run(X, config, labels=labels) as (_, result):
        return result.metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in CASES]
)
def test_measure_gets_better_and_the_second_answer_agrees(name: str) -> None:
    case = CASES[name]
    metrics = metrics_of(case, {})
    cures = {finding["measure"]: finding["key"] for finding in metrics["findings"] if any(finding["key"].values())}
    assert cures == case.cures
    for about, settings in cures.items():
        second = metrics_of(case, settings)
        before, after = MEASURES[about](metrics), MEASURES[about](second)
        is_found = (about, settings) != ("redundancy", LOOK) or name == "long roll"
        assert after > before + (1e-3 if is_found else -1e-3) * abs(before), about
        again = [finding for finding in second["findings"] if finding["key"].keys() & settings.keys()]
        assert again == [], about


@pytest.mark.slow
@pytest.mark.parametrize(
    ("neighbors", "key", "larger"),
    [
        ({"radius": 4.0, "k_min": 4, "k_max": 12}, "k_max", 60),
        ({"radius": 1.0, "k_min": 8, "k_max": 60}, "radius", 3.0),
    ],
)
def test_larger_value_of_a_limit_reaches_more_neighbors(neighbors, key, larger) -> None:
    case = Case(roll, {"neighbors": neighbors}, {})
    metrics, second = metrics_of(case, {}), metrics_of(case, {f"neighbors.{key}": larger})
    assert {f"neighbors.{key}": None} in [finding["key"] for finding in metrics["findings"]]
    assert MEASURES["list_sizes"](second) > MEASURES["list_sizes"](metrics)


def test_row_with_nan_is_named_if_it_is_refused() -> None:
    X, _ = cube()
    X[::50, 3] = np.nan
    with finished_run(X, {"preprocess": {"invalid": "drop"}}) as (_, result):
        [finding] = [finding for finding in result.metrics["findings"] if finding["measure"] == "dropped"]
    assert finding["key"] == {"input.columns": None, "preprocess.invalid": "error"}
    with pytest.raises(ValueError, match="row 0"), finished_run(X, {"preprocess": {"invalid": "error"}}):
        pass

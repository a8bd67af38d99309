"""Each cure that a warning names, followed on data where the warning appears: the measure it is about gets better."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine, make_swiss_roll

from lle.api.embed import finished_run
from tests.support.paths import SHARED_DATA

Data = tuple[np.ndarray, np.ndarray | None]
Metrics = dict[str, Any]


def standardised(bunch: Any) -> Data:
    return (bunch.data - bunch.data.mean(axis=0)) / bunch.data.std(axis=0), bunch.target


def wine() -> Data:
    return standardised(load_wine())


def cancer() -> Data:
    return standardised(load_breast_cancer())


def cube() -> Data:
    return np.random.default_rng(31).random((800, 5)), None


def roll() -> Data:
    return make_swiss_roll(1000, random_state=1)[0], None


def longer_roll() -> Data:
    return make_swiss_roll(3000, random_state=2)[0], None


def heavy_tails() -> Data:
    return np.random.default_rng(3).standard_t(2, size=(3000, 8)), None


def islands() -> Data:
    island = np.random.default_rng(7).random((200, 3))
    return np.concatenate([island + np.array([at, 0.0, 0.0]) for at in (0.0, 2.0, 9.0)]), None


def curve() -> Data:
    t = np.sort(np.random.default_rng(5).random(3000)) * 10
    return np.column_stack([np.cos(t), np.sin(t), 0.3 * t]), None


def part_of_skin() -> Data:
    """Colours of skin and of other surfaces: closed classes, and groups that are nearly closed."""
    path = SHARED_DATA / "tables" / "skin.npz"
    if not path.exists():
        pytest.skip(f"no {path}")
    return np.load(path)["X"].astype(float)[np.random.default_rng(1).choice(245_057, 20_000, replace=False)], None


def value(key: str) -> Callable[[Metrics], float]:
    return lambda metrics: float(metrics[key]["value"])


def least_participation(metrics: Metrics) -> float:
    return min(map(min, metrics["participation"]))


def least_eigenvalue(metrics: Metrics) -> float:
    return float(metrics["eigenvalues"][0][0] / metrics["solver"]["rounding_floor"])


def loss(measure: Callable[[Metrics], float]) -> Callable[[Metrics], float]:
    return lambda metrics: -measure(metrics)


class Case(NamedTuple):
    data: Callable[[], Data]
    config: dict[str, Any]
    finding: str
    key: str
    cure: dict[str, Any]
    measure: Callable[[Metrics], float]


SMALL_REG = {"weights": {"reg": 1e-3}}
LARGE_REG = {"weights": {"reg": 0.1}}
ONE = {"eigensolver": {"n_components": 1}}
STANDARD = {"preprocess": {"scale": "standard"}}

CASES = {
    "more coordinates keep more neighbours": Case(
        cube, SMALL_REG, "the trustworthiness is low", "eigensolver.n_components: 4",
        {"eigensolver": {"n_components": 4}}, value("trustworthiness"),
    ),
    "reg from the noise keeps classes together": Case(
        wine, SMALL_REG, "neighbours of the same label fell", "weights.reg: auto", {"weights": {"reg": "auto"}},
        value("neighborhood_hit"),
    ),
    "more coordinates keep classes together": Case(
        wine, SMALL_REG, "neighbours of the same label fell", "eigensolver.n_components: 6",
        {"eigensolver": {"n_components": 6}}, value("neighborhood_hit"),
    ),
    "a larger reg spreads a clump": Case(
        heavy_tails, SMALL_REG, "clumps of few points", "weights.reg", LARGE_REG, least_participation
    ),
    "more neighbours spread a clump": Case(
        heavy_tails, SMALL_REG, "clumps of few points", "neighbors.n_neighbors (now 12)",
        {"neighbors": {"n_neighbors": 24}}, least_participation,
    ),
    "lle is less sensitive than ltsa": Case(
        cancer, {"method": "ltsa"}, "clumps of few points", "method: lle", {"method": "lle"}, least_participation
    ),
    "a smaller reg makes coordinates new": Case(
        roll, LARGE_REG, "nearly a function of the earlier", "weights.reg (now 0.1)", SMALL_REG,
        lambda metrics: -max(metrics["redundancy"]),
    ),
    "fewer coordinates are all new": Case(
        lambda: (roll()[0] @ np.random.default_rng(2).normal(size=(3, 6)), None),
        {**SMALL_REG, "eigensolver": {"n_components": 5}}, "nearly a function of the earlier",
        "eigensolver.n_components: 2", {"eigensolver": {"n_components": 2}},
        lambda metrics: -max(metrics["redundancy"]),
    ),
    "principal components keep distances": Case(
        wine, SMALL_REG, "do not follow the paths", "method: pca", {"method": "pca"}, loss(value("residual_variance"))
    ),
    "more neighbours open groups that are nearly closed": Case(
        part_of_skin, STANDARD | SMALL_REG, "clumps of few points", "n_neighbors (now 12)",
        {"neighbors": {"n_neighbors": 24}}, lambda metrics: min(metrics["participation"][0]),
    ),
    "principal components keep distances between groups that are nearly closed": Case(
        part_of_skin, STANDARD | SMALL_REG, "do not follow the paths", "method: pca", {"method": "pca"},
        loss(value("residual_variance")),
    ),
    "links join components": Case(
        islands, {}, "the neighbour graph has 3 components", "graph.components: connect",
        {"graph": {"components": "connect"}}, lambda metrics: -metrics["n_components_weak"],
    ),
    "more neighbours join components": Case(
        islands, {}, "the neighbour graph has 3 components", "neighbors.n_neighbors (now 12)",
        {"neighbors": {"n_neighbors": 250}}, lambda metrics: -metrics["n_components_weak"],
    ),
    "separate components give every row coordinates": Case(
        islands, {"graph": {"components": "largest"}}, "their coordinates are NaN", "graph.components: separate",
        {"graph": {"components": "separate"}}, lambda metrics: -metrics["dropped"].get("small_component", 0),
    ),
    "a larger reg raises eigenvalues": Case(
        curve, {**ONE, "weights": {"reg": 1e-5}}, "not above the rounding errors", "weights.reg", LARGE_REG,
        least_eigenvalue,
    ),
    "more neighbours raise eigenvalues": Case(
        curve, {**ONE, "weights": {"reg": 1e-5}}, "not above the rounding errors", "neighbors.n_neighbors",
        {"neighbors": {"n_neighbors": 40}}, least_eigenvalue,
    ),
    "a wider k_max keeps more neighbours": Case(
        roll, {"neighbors": {"radius": 4.0, "k_min": 4, "k_max": 12}}, "k_max or more neighbours", "neighbors.k_max",
        {"neighbors": {"k_max": 60}}, lambda metrics: -metrics["list_sizes"]["at_k_max"],
    ),
    "a larger radius reaches k_min": Case(
        roll, {"neighbors": {"radius": 1.0, "k_min": 8, "k_max": 60}}, "fewer than neighbors.k_min", "neighbors.radius",
        {"neighbors": {"radius": 3.0}}, lambda metrics: -metrics["list_sizes"]["raised_to_k_min"],
    ),
}  # fmt: skip
QUICK = ("reg from the noise keeps classes together", "lle is less sensitive than ltsa", "links join components")


def metrics_of(data: Callable[[], Data], config: dict[str, Any]) -> Metrics:
    X, labels = data()
    with finished_run(X, config, labels=labels) as (_, result):
        return result.metrics


def with_cure(config: dict[str, Any], cure: dict[str, Any]) -> dict[str, Any]:
    merged = {**config}
    for name, section in cure.items():
        merged[name] = {**merged.get(name, {}), **section} if isinstance(section, dict) else section
    return merged


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in CASES]
)
def test_cure_improves_the_measure(name: str) -> None:
    case = CASES[name]
    metrics = metrics_of(case.data, case.config)
    sentences = [text for text in metrics["warnings"] if case.finding in text]
    assert sentences
    assert all(case.key in sentence for sentence in sentences)
    metrics_with_cure = metrics_of(case.data, with_cure(case.config, case.cure))
    assert case.measure(metrics_with_cure) > case.measure(metrics) + 1e-3 * abs(case.measure(metrics))


@pytest.mark.parametrize("data", [roll, longer_roll])
def test_method_in_the_verdict_keeps_more_of_the_long_distances(data: Callable[[], Data]) -> None:
    metrics = metrics_of(data, {})
    assert "Long distances differ from those along the data" in metrics["verdict"]
    assert "method: modified" in metrics["verdict"]
    variance = value("residual_variance")
    assert variance(metrics_of(data, {"method": "modified"})) < 0.95 * variance(metrics)

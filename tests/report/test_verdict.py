"""The verdict: the most serious finding of a run in plain words, with what to do."""

from typing import Any

import pytest

from lle.config.load import check_config, resolved
from lle.report import bounds
from lle.report.findings import find, verdict
from lle.report.metrics import Metrics

GOOD: dict[str, Any] = {
    "n_input": 500,
    "n_points": 490,
    "n_features": 9,
    "dropped": {},
    "rows_placed": 0,
    "stopped": None,
    "n_components_weak": 1,
    "reg": {"value": 0.1, "reason": "auto"},
    "label": "species",
    "component_points": [490],
    "participation": [[300.0, 200.0]],
    "eigenvalues": [[1e-7, 2e-7]],
    "residuals": [[1e-9, 1e-9]],
    "vector_errors": [[1e-12, 1e-12]],
    "solvers": [{"method": "factored", "converged": True, "rounding_floor": 1e-15}],
    "trustworthiness": {"value": 0.971},
    "continuity": {"value": 0.98},
    "redundancy": [0.0, 0.3],
    "residual_variance": {"value": 0.2},
    "intrinsic_dimension": {"value": 3.1},
    "neighborhood_hit": {"value": 0.95},
    "neighborhood_hit_input": {"value": 0.98},
}
CONFIG = resolved(check_config({"input": {"kind": "npy", "path": "x.npy"}, "output": {"store": "x.zarr"}}, "test"))
TOO_FEW = "2 coordinates are too few: the data have about 3 dimensions around each point; set eigensolver.n_c"


def verdict_of(metrics: dict[str, Any]) -> str:
    read = Metrics.read(metrics)
    return verdict(read, find(read, CONFIG))


FINDINGS: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"stopped": {"stage": "mend_graph", "running": False, "reason": "recall 0.81 is below 0.9"}},
        ["The run stopped before its end. recall 0.81"],
    ),
    (
        {"stopped": {"stage": "solve_embedding", "running": False, "reason": None}, "rows_placed": None},
        ["it stopped in solve_embedding. No row has coordinates yet; run the same command again"],
    ),
    (
        {"stopped": {"stage": "measure_quality", "running": True, "reason": None}},
        ["The run is going on, in measure_quality. Rows have coordinates"],
    ),
    (
        {"solvers": [{"method": "multigrid", "converged": False}], "residuals": [[0.23, 1e-9]]},
        ["largest residual 0.23", "not final", "eigensolver.max_steps: 600"],
    ),
    ({"eigenvalues": [[1e-17, 1e-9]], "vector_errors": [[0.3, 0.1]]}, ["rounding errors", "neighbors.n_neighbors: 24"]),
    ({"dropped": {"small_component": 160}}, ["160 rows (32.0%) are in components", "graph.components: connect"]),
    ({"dropped": {"invalid": 160}}, ["160 of 500 rows (32.0%) hold NaN", "preprocess.invalid: error"]),
    (
        {"participation": [[4.0, 200.0]]},
        ["Coordinate 1 only separates about 4 of 490 points from the others", "embedding.coordinates"],
    ),
    (
        {"neighborhood_hit": {"value": 0.72}, "trustworthiness": {"value": 0.94}},
        ["Neighbours of the same species fell from 98 % in the data to 72 % in the embedding (bound: 93 %). ", TOO_FEW],
    ),
    (
        {"trustworthiness": {"value": 0.81}},
        [
            "Many neighbours in the embedding are not neighbours in the data (trustworthiness 0.810; bound: 0.9)",
            TOO_FEW,
        ],
    ),
    ({"redundancy": [0.0, 0.98]}, ["Coordinate 2 is predictable", "neighbours are kept (trustworthiness 0.971)"]),
    ({"n_components_weak": 3, "component_points": [300, 100, 90]}, ["3 separate pieces", "graph.components: connect"]),
]


@pytest.mark.parametrize(("changes", "parts"), FINDINGS)
def test_finding_and_what_to_do(changes: dict[str, Any], parts: list[str]) -> None:
    sentence = verdict_of({**GOOD, **changes})
    for part in parts:
        assert part in sentence
    assert sentence.endswith(".") or changes.get("stopped")


def test_pieces_are_described_by_the_largest_one_and_the_columns_in_which_they_differ() -> None:
    changes = {
        "n_components_weak": 3,
        "component_sizes": [991, 6, 3],
        "n_input": 1000,
        "components_differ_in": ["batch"],
    }
    sentence = verdict_of({**GOOD, **changes})
    pieces = "The data fall into 3 separate pieces, the largest with 99.1 % of the rows, which differ in batch;"
    assert sentence.startswith(pieces)
    assert "leave these out of input.columns" in sentence


@pytest.mark.parametrize("grave", range(len(FINDINGS) - 1))
def test_most_serious_finding_comes_first(grave: int) -> None:
    both = {**GOOD, **FINDINGS[-1][0], **FINDINGS[grave][0]}
    both["component_points"], both["participation"] = GOOD["component_points"], both["participation"]
    assert FINDINGS[grave][1][0] in verdict_of(both)


def test_verdict_of_a_good_embedding_states_its_quality() -> None:
    sentence = "Neighbours in the embedding are neighbours in the data (trustworthiness 0.971, continuity 0.980)"
    assert verdict_of(GOOD) == f"{sentence}, and 95 % of them have the same species (98 % in the data)."
    unlabelled = {**GOOD, "neighborhood_hit": None, "neighborhood_hit_input": None}
    assert verdict_of(unlabelled) == f"{sentence}."
    far = {**unlabelled, "residual_variance": {"value": 0.44}}
    long = f"{sentence}. Long distances differ from those along the data (residual variance 0.44)"
    assert verdict_of(far) == f"{long}."


def test_value_between_the_bounds_reads_most_neighbours() -> None:
    between = {**GOOD, "trustworthiness": {"value": bounds.LOW_TRUSTWORTHINESS}}
    assert verdict_of(between).startswith("Most neighbours in the embedding")
    assert verdict_of({**GOOD, "trustworthiness": None}) == "The quality of the embedding was not measured."


def test_lost_eigenvalues_of_exact_vectors_are_no_finding() -> None:
    """A long curve: eigenvalues below the rounding errors, coordinates right to many digits."""
    assert verdict_of({**GOOD, "eigenvalues": [[1e-17, 1e-9]]}).startswith("Neighbours in the embedding are")

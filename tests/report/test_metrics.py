"""metrics.json from the reports of the blocks: every number under its key."""

import json

import pytest

from lle.engine.damage import StepRecord
from lle.engine.step import BlockReport
from lle.report.collect_metrics import collect
from lle.report.metrics import Metrics

RECALL = {"value": 0.97, "low": 0.95, "high": 0.99, "sample": 101}
GRAPH = {
    "k_max": 9,
    "n_components_weak": 2,
    "component_sizes": [67, 4],
    "closed_classes": 3,
    "closed_classes_left": 2,
    "reverse_added": 29,
    "bridges_added": 1,
    "n_components_large": 2,
    "points_repaired": 13,
    "closed_classes_by_component": [1, 1],
}
SOLVED = [
    {
        "n_points": 67,
        "eigenvalues": [1e-7, 2e-7],
        "residuals": [1e-9, 2e-9],
        "participation": [40.0, 31.0],
        "separated": [0, 3],
        "converged": True,
        "stats": {"method": "factored", "reason": "fits", "factor_nnz": 1009},
    },
    {
        "n_points": 31,
        "eigenvalues": [3e-7, 4e-7],
        "residuals": [3e-9, 4e-9],
        "participation": [20.0, 11.0],
        "separated": [2, 0],
        "converged": False,
        "stats": {"method": "multigrid", "reason": "too large", "factor_nnz": None},
    },
]
SCORE = {"trustworthiness": {"value": 0.9}, "continuity": {"value": 0.8}, "redundancy": [0.0, 0.3]}

# Counts are distinct primes, so that a sum that drops or doubles a term shows.
STEPS = {
    "ingest.read": [{"rows": 41, "invalid": 2}, {"rows": 43, "invalid": 5}],
    "ingest.merge_duplicates": [{"n_valid": 77, "n_points": 71}],
    "mend_graph.measure_recall": [RECALL],
    "mend_graph.analyse": [GRAPH],
    "solve_weights.solve": [{"squared_error": 3.0, "zero_trace": 7}, {"squared_error": 11.0, "zero_trace": 13}],
    "assemble_cost.merge": [{"count": 17}, {"count": 19}, {"count": 23}],
    "solve_embedding.solve": [{"components": SOLVED}],
    "solve_embedding.write": [{"rows_in_small_components": 37}],
    "measure_quality.score": [SCORE],
    "measure_quality.geodesics": [{"residual_variance": {"value": 0.3}}],
    "measure_quality.compare": [{"neighborhood_hit": {"value": 0.7}, "neighborhood_hit_input": None}],
}


def reports_of(steps):
    """Blocks of one step take 10, 11, ... bytes times the number of the step, counted from the last."""
    return {
        key: [
            BlockReport(block, 0.5, (len(steps) - number) * (10 + block), report) for block, report in enumerate(blocks)
        ]
        for number, (key, blocks) in enumerate(steps.items())
    }


def collected(steps=STEPS, seconds=1.25):
    records = {key: StepRecord("", 1, 0.0, seconds=seconds) for key in steps}
    return vars(collect(reports_of(steps), records, n_input=84, n_features=6))


class TestCollect:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("n_input", 84),
            ("n_features", 6),
            ("n_points", 71),
            ("duplicates_merged", 77 - 71),
            ("invalid_dropped", 7),
            ("dropped", {"invalid": 7, "small_component": 37}),
            ("recall", RECALL),
            ("n_components_weak", 2),
            ("component_sizes", [67, 4]),
            ("closed_classes", 3),
            ("closed_classes_left", 2),
            ("reverse_added", 29),
            ("bridges_added", 1),
            ("points_repaired", 13),
            ("nnz_cost_matrix", 17 + 19 + 23),
            ("reconstruction_error", 14.0 / 71),
            ("zero_trace_rows", 20),
            ("eigenvalues", [[1e-7, 2e-7], [3e-7, 4e-7]]),
            ("residuals", [[1e-9, 2e-9], [3e-9, 4e-9]]),
            ("participation", [[40.0, 31.0], [20.0, 11.0]]),
            ("separated", [[0, 3], [2, 0]]),
            ("component_points", [67, 31]),
            ("trustworthiness", {"value": 0.9}),
            ("continuity", {"value": 0.8}),
            ("redundancy", [0.0, 0.3]),
            ("residual_variance", {"value": 0.3}),
            ("neighborhood_hit", {"value": 0.7}),
            ("neighborhood_hit_input", None),
            ("residual_variance_truth", None),
        ],
    )
    def test_each_metric_comes_from_its_step(self, key, value):
        assert collected()[key] == pytest.approx(value) if isinstance(value, float) else collected()[key] == value

    def test_solver_is_that_of_the_largest_component_but_all_must_converge(self):
        metrics = collected()
        assert metrics["solver"] == {**SOLVED[0]["stats"], "converged": False}
        assert [solver["converged"] for solver in metrics["solvers"]] == [True, False]
        assert (
            collected({**STEPS, "solve_embedding.solve": [{"components": SOLVED[:1]}]})["solver"]["converged"] is True
        )

    def test_closed_classes_of_components_that_are_embedded(self):
        graph = {**GRAPH, "closed_classes_left": 16, "closed_classes_by_component": [1, 1, 14]}
        steps = {**STEPS, "mend_graph.analyse": [graph]}
        assert collected(steps)["closed_classes_embedded"] == {"components": 2, "classes": 2}
        before_the_solve = {"mend_graph.analyse": [{**graph, "n_components_large": 3}]}
        assert collected(before_the_solve)["closed_classes_embedded"] == {"components": 3, "classes": 16}

    def test_costs_by_stage(self):
        metrics = collected()
        assert metrics["seconds"] == {
            "ingest": 2.5,
            "mend_graph": 2.5,
            "solve_weights": 1.25,
            "assemble_cost": 1.25,
            "solve_embedding": 2.5,
            "measure_quality": 3.75,
        }
        assert metrics["peak_bytes"]["ingest"] == 11 * 11
        assert metrics["peak_bytes"]["assemble_cost"] == 6 * 12
        assert metrics["blocks"] == {
            "ingest": 3,
            "mend_graph": 2,
            "solve_weights": 2,
            "assemble_cost": 3,
            "solve_embedding": 2,
            "measure_quality": 3,
        }

    def test_cost_of_the_report_itself_is_not_included(self):
        reports = reports_of(STEPS) | {"write_report.write": []}
        metrics = vars(collect(reports, {step: StepRecord("", 1, 0.0) for step in reports}, 84, 6))
        assert "write_report" in metrics["seconds"]
        assert "write_report" not in metrics["peak_bytes"].keys() | metrics["blocks"].keys()

    def test_metrics_of_missing_steps_are_none(self):
        metrics = vars(collect({}, {}, 84, None))
        empty = {"n_input", "method", "seconds", "peak_bytes", "blocks", "dropped"}
        assert {key for key, value in metrics.items() if value is not None} == empty

    @pytest.mark.parametrize("n_steps", range(len(STEPS) + 1))
    def test_metrics_of_an_unfinished_run_can_be_written(self, n_steps):
        metrics = collected(dict(list(STEPS.items())[:n_steps]))
        assert json.loads(json.dumps(metrics)) == metrics

    def test_record_is_read_from_its_file_with_unknown_keys_left_out(self):
        metrics = Metrics.read(collected())
        assert vars(metrics) == collected()
        assert metrics.number("trustworthiness") == 0.9
        assert metrics.number("neighborhood_hit_input") is None
        assert Metrics.read({"n_input": 7, "of_a_later_version": 1}) == Metrics(n_input=7)

"""metrics.json from the reports of the blocks: every number where it belongs, and the sentences that warn."""

import json
import math

import pytest

from pipeline.engine.plan import BlockReport
from pipeline.report import metrics
from pipeline.report.metrics import collect, warnings

RECALL = {"value": 0.97, "low": 0.95, "high": 0.99, "sample": 101}
GRAPH = {
    "k_max": 9, "n_components_weak": 2, "component_sizes": [67, 4], "rows_in_small_components": 4,
    "closed_classes": 3, "closed_classes_left": 2, "reverse_added": 29, "bridges_added": 1,
}  # fmt: skip
SOLVED = [
    {"n_points": 67, "eigenvalues": [1e-7, 2e-7], "residuals": [1e-9, 2e-9], "participation": [40.0, 31.0],
     "converged": True, "stats": {"method": "factored", "reason": "fits", "factor_nnz": 1009}},
    {"n_points": 31, "eigenvalues": [3e-7, 4e-7], "residuals": [3e-9, 4e-9], "participation": [20.0, 11.0],
     "converged": False, "stats": {"method": "polynomial", "reason": "too large", "factor_nnz": None}},
]  # fmt: skip
SCORE = {"trustworthiness": {"value": 0.9}, "continuity": {"value": 0.8}, "redundancy": [0.0, 0.3]}

# Counts are distinct primes, so that a sum that drops or doubles a term shows.
STEPS = {
    ("ingest", "read"): [{"rows": 41, "invalid": 2}, {"rows": 43, "invalid": 5}],
    ("ingest", "merge_duplicates"): [{"n_valid": 77, "n_points": 71}],
    ("mend_graph", "measure_recall"): [RECALL],
    ("mend_graph", "analyse"): [GRAPH],
    ("solve_weights", "solve"): [{"squared_error": 3.0, "zero_trace": 7}, {"squared_error": 11.0, "zero_trace": 13}],
    ("assemble_cost", "merge"): [{"nnz": 17}, {"nnz": 19}, {"nnz": 23}],
    ("solve_embedding", "solve"): SOLVED,
    ("solve_embedding", "write"): [{"rows_in_small_components": 37}],
    ("measure_quality", "score"): [SCORE],
    ("measure_quality", "geodesics"): [{"residual_variance": {"value": 0.3}}],
    ("measure_quality", "compare"): [{"neighborhood_hit": {"value": 0.7}, "neighborhood_hit_input": None}],
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
    return collect(reports_of(steps), {key: {"seconds": seconds} for key in steps}, n_input=84, n_features=6)


class TestCollect:
    @pytest.mark.parametrize(
        ("key", "value"),
        [("n_input", 84), ("n_features", 6), ("n_points", 71), ("duplicates_merged", 77 - 71), ("invalid_dropped", 7),
         ("dropped", {"invalid": 7, "small_component": 37}), ("recall", RECALL), ("n_components_weak", 2),
         ("component_sizes", [67, 4]), ("closed_classes", 3), ("closed_classes_left", 2), ("reverse_added", 29),
         ("bridges_added", 1), ("nnz_cost_matrix", 17 + 19 + 23), ("reconstruction_error", 14.0 / 71),
         ("zero_trace_rows", 20), ("eigenvalues", [[1e-7, 2e-7], [3e-7, 4e-7]]),
         ("residuals", [[1e-9, 2e-9], [3e-9, 4e-9]]), ("participation", [[40.0, 31.0], [20.0, 11.0]]),
         ("component_points", [67, 31]), ("trustworthiness", {"value": 0.9}), ("continuity", {"value": 0.8}),
         ("redundancy", [0.0, 0.3]), ("residual_variance", {"value": 0.3}), ("neighborhood_hit", {"value": 0.7}),
         ("neighborhood_hit_input", None), ("residual_variance_truth", None)],
    )  # fmt: skip
    def test_where_each_number_comes_from(self, key, value):
        assert collected()[key] == pytest.approx(value) if isinstance(value, float) else collected()[key] == value

    def test_solver_is_that_of_the_largest_component_and_all_must_converge(self):
        found = collected()
        assert found["solver"] == {**SOLVED[0]["stats"], "converged": False}
        assert [solver["converged"] for solver in found["solvers"]] == [True, False]
        assert collected({**STEPS, ("solve_embedding", "solve"): SOLVED[:1]})["solver"]["converged"] is True

    def test_costs_by_stage(self):
        found = collected()
        assert found["seconds"] == {"ingest": 2.5, "mend_graph": 2.5, "solve_weights": 1.25, "assemble_cost": 1.25,
                                    "solve_embedding": 2.5, "measure_quality": 3.75}  # fmt: skip
        assert found["peak_bytes"]["ingest"] == 11 * 11
        assert found["peak_bytes"]["assemble_cost"] == 6 * 12
        assert found["blocks"] == {"ingest": 3, "mend_graph": 2, "solve_weights": 2, "assemble_cost": 3,
                                   "solve_embedding": 3, "measure_quality": 3}  # fmt: skip

    def test_the_report_that_is_being_written_has_cost_nothing_yet(self):
        reports, key = reports_of(STEPS) | {("write_report", "write"): []}, ("write_report", "write")
        found = collect(reports, {step: {} for step in reports}, 84, 6)
        assert key[0] in found["seconds"]
        assert key[0] not in found["peak_bytes"].keys() | found["blocks"].keys()

    def test_the_documented_keys_are_there_from_the_start(self):
        promised = {
            "n_input", "n_points", "n_features", "duplicates_merged", "invalid_dropped", "recall", "n_components_weak",
            "closed_classes", "closed_classes_left", "reverse_added", "bridges_added", "participation",
            "nnz_cost_matrix", "solver", "eigenvalues", "residuals", "reconstruction_error", "trustworthiness",
            "continuity", "seconds", "peak_bytes",
        }  # fmt: skip
        assert promised <= set(collected())
        assert set(collect({}, {}, 0, None)) == set(collected())

    def test_what_has_not_run_is_none(self):
        found = collect({}, {}, 84, None)
        empty = {"n_input", "seconds", "peak_bytes", "blocks", "dropped"}
        assert {key for key, value in found.items() if value is not None} == empty

    @pytest.mark.parametrize("n_steps", range(len(STEPS) + 1))
    def test_any_prefix_of_a_run_can_be_collected_and_written(self, n_steps):
        found = collected(dict(list(STEPS.items())[:n_steps]))
        assert json.loads(json.dumps(found)) == found
        assert isinstance(warnings(found), list)


QUIET = {
    **STEPS,
    ("ingest", "read"): [{"rows": 84, "invalid": 0}],
    ("mend_graph", "analyse"): [{**GRAPH, "n_components_weak": 1, "closed_classes": 1, "closed_classes_left": 1,
                                 "reverse_added": 0, "bridges_added": 0}],
    ("solve_embedding", "solve"): SOLVED[:1],
    ("solve_embedding", "write"): [{"rows_in_small_components": 0}],
}  # fmt: skip


def changed(stage, step, **values):
    return {**QUIET, (stage, step): [{**QUIET[stage, step][0], **values}]}


class TestWarnings:
    def test_a_good_run_has_none(self):
        assert warnings(collected(QUIET)) == []

    @pytest.mark.parametrize(
        ("steps", "said"),
        [(changed("mend_graph", "analyse", n_components_weak=5), ["5 components"]),
         (changed("solve_embedding", "write", rows_in_small_components=37), ["37 rows", "not embedded"]),
         (changed("mend_graph", "analyse", closed_classes=3, reverse_added=29), ["3 closed classes", "29 reverse"]),
         (changed("solve_embedding", "solve", participation=[40.0, 0.6]),
          ["coordinate 2 of component 0", "of 67", "reverse: 4"]),
         (changed("measure_quality", "score", redundancy=[0.0, 0.99]), ["coordinate 2", "0.99"]),
         (changed("measure_quality", "score", trustworthiness={"value": 0.71}), ["trustworthiness is low (0.710)"]),
         (changed("mend_graph", "analyse", closed_classes_left=3), ["3 closed classes are left, where 1 is right"]),
         (changed("ingest", "read", invalid=5), ["5 of 84 rows hold NaN"]),
         (changed("solve_embedding", "solve", converged=False), ["eigensolver did not reach"])],
        ids=["components", "dropped", "mended", "clump", "redundant", "low trustworthiness", "classes left", "invalid",
             "not converged"],
    )  # fmt: skip
    def test_one_for_each_finding(self, steps, said):
        [sentence] = warnings(collected(steps))
        for part in said:
            assert part in sentence

    def test_reverse_neighbors_that_are_there_are_no_cure_and_mended_nothing(self):
        graph = {**QUIET["mend_graph", "analyse"][0], "reverse_added": 29}
        steps = changed("solve_embedding", "solve", participation=[40.0, 0.6])
        asked_for = {**steps, ("mend_graph", "analyse"): [graph]}
        [sentence] = warnings(collected(asked_for))
        assert "clump" in sentence
        assert "reverse" not in sentence

    def test_bounds_of_clumps_and_redundant_coordinates(self):
        at_bound = metrics.CLUMP_SHARE * 67
        assert warnings(collected(changed("solve_embedding", "solve", participation=[at_bound, 9.0]))) == []
        assert warnings(collected(changed("measure_quality", "score", redundancy=[0.0, metrics.REDUNDANT]))) == []

    def test_no_component_was_embedded_yet(self):
        assert warnings(collect({}, {}, 84, None)) == []
        assert warnings({**collect({}, {}, 84, None), "method": "hessian"}) == []

    @pytest.mark.parametrize(("method", "exact"), [("ltsa", True), ("hessian", True), ("lle", False)])
    def test_eigenvalues_that_are_zero(self, method, exact):
        stats = {"method": "shift_invert", "reason": "fits", "factor_nnz": 7, "rounding_floor": 1e-15}
        for value, said in ((1e-29, exact), (1e-20, False)):
            steps = changed("solve_embedding", "solve", eigenvalues=[value, 1e-7], stats=stats)
            found = warnings({**collected(steps), "method": method})
            assert any("exactly flat" in text for text in found) == said

    def test_pca_does_not_depend_on_components(self):
        several = collected(changed("mend_graph", "analyse", n_components_weak=5))
        assert warnings({**several, "method": "pca"}) == []
        assert len(warnings({**several, "method": "laplacian"})) == 1

    def test_neighborhoods_that_are_too_small(self):
        steps = {**QUIET, ("local_factors", "solve"): [{"rows": 5, "skipped": 2}, {"rows": 7, "skipped": 3}]}
        [sentence] = warnings(collected(steps))
        assert "5 neighbourhoods are too small" in sentence


class TestAlignment:
    """embedding.align was asked for, and the coordinates did not stay."""

    @staticmethod
    def said(reason="", scale="unit_covariance", **component):
        one = {"component": 0, "rows_shared": 41, "residual_before": 1.43, "residual_after": 0.1, "size_ratio": 1.0}
        report = {"previous": "this store", "scale": scale, "reason": reason,
                  "components": [] if reason else [{**one, **component}]}  # fmt: skip
        return warnings(collected({**QUIET, ("solve_embedding", "align"): [report]}))

    def test_of_coordinates_that_stayed_and_of_a_first_run_nothing_is_said(self):
        assert self.said() == self.said(reason="no earlier embedding") == []

    def test_what_is_left(self):
        [sentence] = self.said(residual_after=1.24)
        assert "41 shared rows of component 0 changed: 1.24 of their size" in sentence
        assert self.said(residual_after=metrics.MOVED) == []

    @pytest.mark.parametrize(("ratio", "angle", "moved"), [(0.5, 0.1, False), (0.5, 1.0, True), (0.1, 0.2, False)])
    def test_at_unit_norm_the_number_of_points_is_no_change(self, ratio, angle, moved):
        """Half as large coordinates, turned in a direction that no rotation takes back."""
        left = abs(ratio * complex(math.cos(angle), math.sin(angle)) - 1.0)
        assert bool(self.said(scale="unit_norm", residual_after=left, size_ratio=ratio)) is moved

    def test_what_could_not_be_aligned(self):
        [sentence] = self.said(rows_shared=0, residual_after=None, size_ratio=None)
        assert "no rows are shared" in sentence
        [sentence] = self.said(residual_after=None, size_ratio=None)
        assert "do not determine a rotation" in sentence
        [sentence] = self.said(reason="the earlier embedding has 2 coordinates, this one 3")
        assert "nothing was aligned: the earlier embedding has 2" in sentence

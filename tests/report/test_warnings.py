"""The warnings of a run: one sentence for each measure outside its bound, which names the key that cures it."""

import math
from typing import Any

import pytest

from lle.config.load import check_config, resolved
from lle.report import bounds
from lle.report.warnings import defects, warnings

METRICS: dict[str, Any] = {
    "n_input": 500, "n_points": 490, "n_features": 9, "dropped": {}, "rows_placed": 0, "list_sizes": None,
    "n_components_weak": 1, "closed_classes_left": 1, "closed_classes_embedded": {"components": 1, "classes": 1},
    "skipped_neighborhoods": 0, "reg": {"value": 1e-3, "reason": "set"}, "label": "species",
    "component_points": [490], "participation": [[300.0, 200.0]],
    "eigenvalues": [[1e-7, 2e-7]], "residuals": [[1e-9, 1e-9]], "vector_errors": [[1e-12, 1e-12]],
    "solvers": [{"method": "factored", "converged": True, "rounding_floor": 1e-15}],
    "trustworthiness": {"value": 0.97}, "redundancy": [0.0, 0.3], "residual_variance": {"value": 0.4},
    "neighborhood_hit": {"value": 0.95}, "neighborhood_hit_input": {"value": 0.98},
    "intrinsic_dimension": {"value": 2.1}, "alignment": None,
}  # fmt: skip


def config_of(**sections: Any) -> dict[str, Any]:
    plain = {"input": {"kind": "npy", "path": "x.npy"}, "output": {"store": "x.zarr"}}
    return resolved(check_config({**plain, **sections}, "test"))


CONFIG = config_of()
POLYNOMIAL = [{"method": "polynomial", "converged": False, "rounding_floor": 1e-15}]
REPLACED = [{"method": "polynomial", "converged": True, "requested_failed": "M is not positive definite"}]
KILLED = [{"method": "shift_invert", "converged": True, "killed": "factored was tried and its process ended"}]
REG_WAS_CHOSEN = {"reg": {"value": 0.1, "reason": "auto"}}


def test_run_within_all_bounds_has_none() -> None:
    assert warnings(METRICS, CONFIG) == []


@pytest.mark.parametrize(("changes", "n_defects"), [
    ({}, 0),
    ({"dropped": {"invalid": 5}}, 1),
    ({"trustworthiness": {"value": 0.6}, "redundancy": [0.0, 0.99], "n_components_weak": 3}, 0),
    ({"solvers": POLYNOMIAL, "vector_errors": [[0.2, 0.1]]}, 1),
    ({"alignment": {"reason": "the earlier embedding has 3 coordinates"}}, 1),
])  # fmt: skip
def test_defects_are_the_warnings_about_the_coordinates_themselves(changes, n_defects) -> None:
    found = defects({**METRICS, **changes}, CONFIG)
    assert len(found) == n_defects
    assert set(found) <= set(warnings({**METRICS, **changes}, CONFIG))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"dropped": {"small_component": 37}}, ["37 rows (7.4%)", "NaN", "graph.components: separate"]),
        ({"dropped": {"invalid": 5}}, ["5 of 500 rows hold NaN", "preprocess.invalid: error"]),
        ({"list_sizes": {"least": 5, "raised_to_k_min": 7}}, ["7 points have fewer", "neighbors.radius"]),
        ({"list_sizes": {"least": 5, "at_k_max": 11}}, ["11 points", "raise neighbors.k_max"]),
        ({"skipped_neighborhoods": 5}, ["5 neighbourhoods are too small", "neighbors.n_neighbors"]),
        ({"n_components_weak": 5}, ["5 components", "components: connect", "neighbors.n_neighbors (now 12)"]),
        (
            {"closed_classes_embedded": {"components": 1, "classes": 3}},
            ["3 closed classes are left, expected 1", "neighbors.reverse: auto"],
        ),
        ({"participation": [[300.0, 3.0]]}, ["coordinate 2 of component 0 on about 3 of 490", "reg (now 0.001"]),
        ({"participation": [[300.0, 3.0]], **REG_WAS_CHOSEN}, ["clumps", "A larger neighbors.n_neighbors (now 12)"]),
        ({"solvers": POLYNOMIAL}, ["did not reach its tolerance", "eigensolver.max_degrees (now 20000)"]),
        (
            {"solvers": REPLACED, "reg": {"value": 1e-9}},
            [
                "component 0: M is not positive definite. The method polynomial",
                "auto, or a larger weights.reg (now 1e-09)",
            ],
        ),
        ({"solvers": KILLED}, ["component 0: factored was tried", "method shift_invert", "eigensolver.max_memory"]),
        ({"residuals": [[0.23, 1e-9]]}, ["1 eigenvalue is not above", "residual 0.23", "weights.reg", "1e-12"]),
        ({"eigenvalues": [[1e-16, 1e-15]]}, ["2 eigenvalues are not above", "1.0e-16", "n_neighbors"]),
        (
            {"neighborhood_hit": {"value": 0.72}},
            ["of the same species fell from 98 % in the data to 72 %", "bound: 93 %", "`lle suggest`"],
        ),
        (
            {"neighborhood_hit": {"value": 0.72}, "intrinsic_dimension": {"value": 3.2}},
            ["Two coordinates are too few", "about three dimensions", "eigensolver.n_components: 3"],
        ),
        (
            {"trustworthiness": {"value": 0.81}, **REG_WAS_CHOSEN},
            ["low (0.810; bound: 0.9)", "picture. Other values of neighbors.n_neighbors"],
        ),
        ({"redundancy": [0.0, 0.99]}, ["coordinate 2", "0.99", "eigensolver.n_components: 3 or more"]),
        ({"redundancy": [0.0, 0.99], **REG_WAS_CHOSEN}, ["coordinate 2", "eigensolver.n_components: 3 or more"]),
        (
            {"redundancy": [0.0, 0.99], "intrinsic_dimension": {"value": 1.2}},
            ["about one dimension", "eigensolver.n_components: 1"],
        ),
        ({"residual_variance": {"value": 0.8}}, ["residual variance 0.80; bound: 0.7", "method: pca"]),
    ],
)
def test_one_sentence_names_the_finding_and_the_key(changes: dict[str, Any], parts: list[str]) -> None:
    [sentence] = warnings({**METRICS, **changes}, CONFIG)
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"participation": [[bounds.CLUMP_SHARE * 490, 9.0]]},
        {"redundancy": [0.0, bounds.REDUNDANT]},
        {"trustworthiness": {"value": bounds.LOW_TRUSTWORTHINESS}},
        {"neighborhood_hit": {"value": bounds.min_hit(0.98)}},
        {"residual_variance": {"value": bounds.HIGH_RESIDUAL_VARIANCE}},
        {"residuals": [[bounds.LARGE_RESIDUAL, 0.0]]},
        {"closed_classes_left": 14, "closed_classes": 20},
        {"neighborhood_hit": None, "neighborhood_hit_input": None, "trustworthiness": None, "redundancy": None},
        {"intrinsic_dimension": {"value": 7.0}},
    ],
)
def test_value_at_its_bound_is_no_warning(changes: dict[str, Any]) -> None:
    assert warnings({**METRICS, **changes}, CONFIG) == []


def test_no_stage_has_run() -> None:
    assert warnings(dict.fromkeys(METRICS) | {"n_input": 500}, CONFIG) == []


def test_coordinates_needed_fit_the_config() -> None:
    low = {**METRICS, **REG_WAS_CHOSEN, "trustworthiness": {"value": 0.8}, "intrinsic_dimension": {"value": 30.0}}
    for config, n_features, expected in (
        (CONFIG, 40, "eigensolver.n_components: 11"),
        (CONFIG, 9, "eigensolver.n_components: 9"),
        (config_of(method="hessian"), 40, "eigensolver.n_components: 3"),
        (config_of(method="pca"), 40, "eigensolver.n_components: 30"),
        (CONFIG, 2, "Other values of neighbors.n_neighbors"),
    ):
        [sentence] = warnings({**low, "n_features": n_features}, config)
        assert sentence.endswith(expected) or f"{expected} (" in sentence


def test_number_in_reg_is_one_cure_of_several() -> None:
    config = config_of(weights={"reg": 0.1})
    [sentence] = warnings({**METRICS, **REG_WAS_CHOSEN, "trustworthiness": {"value": 0.8}}, config)
    assert "weights.reg: auto chooses it by the noise in the data; other values of neighbors.n_neighbors" in sentence
    [sentence] = warnings({**METRICS, **REG_WAS_CHOSEN, "redundancy": [0.0, 0.99]}, config)
    assert "smaller weights.reg (now 0.1)" in sentence


@pytest.mark.parametrize(("n_points", "is_named"), [(49, False), (50, True), (None, True)])
def test_lle_suggest_is_named_for_as_many_points_as_it_needs(n_points: int | None, is_named: bool) -> None:
    low = {**METRICS, **REG_WAS_CHOSEN, "trustworthiness": {"value": 0.8}, "n_points": n_points}
    [sentence] = warnings(low, CONFIG)
    assert ("lle suggest" in sentence) == is_named


def test_reg_that_was_set_is_compared_with_auto() -> None:
    low = {**METRICS, "trustworthiness": {"value": 0.8}}
    [sentence] = warnings(low, config_of(weights={"reg": 1e-3}))
    assert "weights.reg is 0.001; weights.reg: auto" in sentence
    [sentence] = warnings({**low, "reg": None}, config_of(method="ltsa"))
    assert "weights.reg" not in sentence


def test_clumps_of_many_components_are_one_sentence() -> None:
    five_components = {"component_points": [490] * 5, "participation": [[9.0, 2.0]] * 5}
    [sentence] = warnings({**METRICS, **five_components}, CONFIG)
    assert sentence.count("of component") == 3
    assert "and 2 more" in sentence
    [sentence] = warnings({**METRICS, **five_components}, config_of(method="ltsa"))
    assert "method: lle" in sentence


def test_pca_does_not_depend_on_components() -> None:
    several = {**METRICS, "n_components_weak": 5, "reg": None}
    assert warnings(several, config_of(method="pca")) == []
    assert len(warnings(several, config_of(method="laplacian"))) == 1


@pytest.mark.parametrize(("method", "is_flat"), [("ltsa", True), ("hessian", True), ("lle", False)])
def test_eigenvalues_that_are_zero(method: str, is_flat: bool) -> None:
    zero = {**METRICS, "eigenvalues": [[1e-29, 1e-7]], "residuals": [[1e14, 1e-9]]}
    [sentence] = warnings(zero, config_of(method=method))
    assert ("exactly flat" in sentence) == is_flat
    assert ("not above the rounding errors" in sentence) != is_flat


class TestAlignment:
    """Warnings if embedding.align is set and the coordinates changed."""

    @staticmethod
    def warnings_of(reason="", scale="unit_covariance", **component):
        defaults = {
            "component": 0,
            "rows_shared": 41,
            "residual_before": 1.43,
            "residual_after": 0.1,
            "size_ratio": 1.0,
        }
        report = {"previous": "this store", "scale": scale, "reason": reason,
                  "components": [] if reason else [{**defaults, **component}]}  # fmt: skip
        return warnings({**METRICS, "alignment": report}, CONFIG)

    def test_no_warning_for_stable_coordinates_or_a_first_run(self):
        assert self.warnings_of() == self.warnings_of(reason="no earlier embedding") == []

    def test_residual_after_alignment_is_a_warning(self):
        [sentence] = self.warnings_of(residual_after=1.24)
        assert "41 shared rows of component 0 changed: 1.24 of their size" in sentence
        assert self.warnings_of(residual_after=bounds.MOVED) == []

    @pytest.mark.parametrize(("ratio", "angle", "moved"), [(0.5, 0.1, False), (0.5, 1.0, True), (0.1, 0.2, False)])
    def test_change_of_size_by_the_number_of_points_is_no_warning_at_unit_norm(self, ratio, angle, moved):
        """Half as large coordinates, turned in a direction that no rotation takes back."""
        residual = abs(ratio * complex(math.cos(angle), math.sin(angle)) - 1.0)
        assert bool(self.warnings_of(scale="unit_norm", residual_after=residual, size_ratio=ratio)) is moved

    def test_components_without_alignment_are_a_warning(self):
        [sentence] = self.warnings_of(rows_shared=0, residual_after=None, size_ratio=None)
        assert "no rows are shared" in sentence
        [sentence] = self.warnings_of(residual_after=None, size_ratio=None)
        assert "do not determine a rotation" in sentence
        [sentence] = self.warnings_of(reason="the earlier embedding has 2 coordinates, this one 3")
        assert "nothing was aligned: the earlier embedding has 2" in sentence

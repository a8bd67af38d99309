"""The findings of a run: one for each measure outside its bound, with the key that cures it, and the verdict."""

import math
from typing import Any

import pytest

from lle.config.load import check_config, resolved
from lle.core.methods import CLUMP_SHARE
from lle.report import bounds
from lle.report.bounds import Finding
from lle.report.findings import find, of_columns, verdict, with_findings
from lle.report.metrics import Metrics

METRICS: dict[str, Any] = {
    "n_input": 500,
    "n_points": 490,
    "n_features": 9,
    "dropped": {},
    "rows_placed": 0,
    "list_sizes": None,
    "n_components_weak": 1,
    "component_sizes": [490],
    "closed_classes_left": 1,
    "closed_classes_embedded": {"components": 1, "classes": 1},
    "skipped_neighborhoods": 0,
    "reg": {"value": 1e-3, "reason": "set"},
    "label": "species",
    "component_points": [490],
    "participation": [[300.0, 200.0]],
    "separated": [[0, 0]],
    "eigenvalues": [[1e-7, 2e-7]],
    "residuals": [[1e-9, 1e-9]],
    "vector_errors": [[1e-12, 1e-12]],
    "solvers": [{"method": "factored", "converged": True, "rounding_floor": 1e-15}],
    "trustworthiness": {"value": 0.971},
    "continuity": {"value": 0.98},
    "redundancy": [0.0, 0.3],
    "residual_variance": {"value": 0.4},
    "neighborhood_hit": {"value": 0.95},
    "neighborhood_hit_input": {"value": 0.98},
    "intrinsic_dimension": {"value": 2.1},
    "alignment": None,
}


def config_of(**sections: Any) -> dict[str, Any]:
    plain = {"input": {"kind": "npy", "path": "x.npy"}, "output": {"store": "x.zarr"}}
    return resolved(check_config({**plain, **sections}, "test"))


CONFIG = config_of()


def found(changes: dict[str, Any], config: dict[str, Any] = CONFIG) -> list[Finding]:
    """The findings of a good run with changed metrics, but for notes."""
    findings = find(Metrics.read({**METRICS, **changes}), config)
    return [finding for finding in findings if finding.level != "note"]


MULTIGRID = [{"method": "multigrid", "converged": False, "rounding_floor": 1e-15}]
REPLACED = [{"method": "multigrid", "converged": True, "requested_failed": "M is not positive definite"}]
KILLED = [{"method": "shift_invert", "converged": True, "killed": "factored was tried and its process ended"}]
REG_WAS_CHOSEN = {"reg": {"value": 0.1, "reason": "auto"}}


def test_run_within_all_bounds_has_none() -> None:
    assert found({}) == []
    assert [finding.level for finding in find(Metrics.read(METRICS), CONFIG)] == ["note"]  # distances, 0.4


@pytest.mark.parametrize(
    ("changes", "measure", "words", "cure"),
    [
        ({"dropped": {"small_component": 37}}, "dropped", "37 rows (7.4%)", {"graph.components": "connect"}),
        (
            {"dropped": {"invalid": 5}},
            "dropped",
            "5 of 500 rows (1.0%) hold NaN",
            {"input.columns": None, "preprocess.invalid": "error"},
        ),
        ({"skipped_neighborhoods": 5}, "skipped_neighborhoods", "5 neighbourhoods", {"neighbors.n_neighbors": 24}),
        (
            {"n_components_weak": 5, "component_sizes": [441, 20, 10, 10, 9]},
            "n_components_weak",
            "5 separate pieces, the largest with 88.2 % of the rows",
            {"graph.components": "connect"},
        ),
        (
            {"closed_classes_embedded": {"components": 1, "classes": 3}},
            "closed_classes_left",
            "3 closed classes are left, expected 1",
            {},
        ),
        (
            {"participation": [[300.0, 3.0]], "separated": [[0, 3]]},
            "participation",
            "Coordinate 2 only separates about 3 of 490 points from the others",
            {"embedding.coordinates": "independent"},
        ),
        (
            {"participation": [[300.0, 3.0]]},
            "participation",
            "Coordinate 2 is concentrated on about 3 of 490 points",
            {"embedding.coordinates": "independent"},
        ),
        (
            {"participation": [[40.0, 300.0]], "separated": [[40, 0]], "n_components_weak": 1},
            "participation",
            "Coordinate 1 mainly separates about 40 of 490 points from the others",
            {"neighbors.n_neighbors": 24},
        ),
        (
            {"participation": [[300.0, 40.0]], "separated": [[0, 40]], "n_components_weak": 1},
            "participation",
            "Coordinate 2 mainly separates about 40 of 490 points from the others",
            {"neighbors.n_neighbors": 24},
        ),
        (
            {"pca_gain": {"value": 0.04, "low": 0.03, "high": 0.05, "sample": 490}},
            "pca_gain",
            "(trustworthiness 0.04 higher)",
            {"method": "pca"},
        ),
        (
            {"solvers": MULTIGRID, "residuals": [[0.2, 1e-9]]},
            "residuals",
            "tolerance (largest residual 0.2)",
            {"eigensolver.max_steps": 600},
        ),
        (
            {"solvers": REPLACED},
            "solvers",
            "component 0: M is not positive definite. The method multigrid",
            {"eigensolver.method": "auto"},
        ),
        (
            {"solvers": KILLED},
            "solvers",
            "Component 0: factored was tried",
            {"eigensolver.max_memory": None, "eigensolver.method": "shift_invert"},
        ),
        ({"residuals": [[0.23, 1e-9]]}, "eigenvalues", "An eigenvalue is near or below", {}),
        ({"eigenvalues": [[1e-16, 1e-15]]}, "eigenvalues", "errors of about 1e-12, too small to be seen", {}),
        (
            {"eigenvalues": [[1e-16, 1e-15]], "vector_errors": None},
            "eigenvalues",
            "eigenvalue 1.0e-16",
            {"neighbors.n_neighbors": 24},
        ),
        (
            {"neighborhood_hit": {"value": 0.72}},
            "neighborhood_hit",
            "same species fell from 98 % in the data to 72 % in the embedding (bound: 93 %)",
            {},
        ),
        ({"trustworthiness": {"value": 0.81}}, "trustworthiness", "(trustworthiness 0.810; bound: 0.9)", {}),
        (
            {"redundancy": [0.0, 0.987]},
            "redundancy",
            "Coordinate 2 is predictable",
            {"embedding.coordinates": "independent"},
        ),
        ({"residual_variance": {"value": 0.8}}, "residual_variance", "residual variance 0.80; bound: 0.7", {}),
    ],
)
def test_one_finding_about_a_measure_outside_its_bound(changes, measure, words, cure) -> None:
    [finding] = found(changes)
    assert finding.measure == measure
    assert words in finding.sentence
    assert finding.as_json()["key"] == cure
    assert finding.text().endswith(".")


@pytest.mark.parametrize(
    "changes",
    [
        {"participation": [[bounds.GROUP_SHARE * 490, CLUMP_SHARE * 490]], "separated": [[49, 0]]},
        {"participation": [[40.0, 300.0]]},  # a long tail, no gap
        {"redundancy": [0.0, bounds.REDUNDANT]},
        {"pca_gain": {"value": 0.04, "low": bounds.PCA_GAIN, "high": 0.07, "sample": 60}},
        {"trustworthiness": {"value": bounds.LOW_TRUSTWORTHINESS}},
        {"neighborhood_hit": {"value": bounds.min_hit(0.98, 0.97, 0.3)}},
        {"residual_variance": {"value": bounds.HIGH_RESIDUAL_VARIANCE}},
        {"residuals": [[bounds.LARGE_RESIDUAL, 0.0]]},
        {"closed_classes_left": 14, "closed_classes": 20},
        # classes that the features hardly tell: 3.6 % of the neighbours have the same one, by chance 3.3 %
        {
            "neighborhood_hit": {"value": 0.02},
            "neighborhood_hit_input": {"value": 0.036, "low": 0.032, "chance": 0.033},
        },
        {"neighborhood_hit": None, "neighborhood_hit_input": None, "trustworthiness": None, "redundancy": None},
        {"intrinsic_dimension": {"value": 7.0}},
    ],
)
def test_value_at_its_bound_is_no_finding(changes: dict[str, Any]) -> None:
    assert found(changes) == []


def test_no_stage_has_run() -> None:
    assert found(dict.fromkeys(METRICS) | {"n_input": 500}) == []


@pytest.mark.parametrize(
    ("changes", "n_defects"),
    [
        ({}, 0),
        ({"dropped": {"invalid": 5}}, 1),
        ({"trustworthiness": {"value": 0.6}, "redundancy": [0.0, 0.99], "n_components_weak": 3}, 0),
        ({"solvers": MULTIGRID, "vector_errors": [[0.2, 0.1]]}, 1),
        ({"alignment": {"reason": "the earlier embedding has 3 coordinates", "components": []}}, 1),
    ],
)
def test_defects_are_the_findings_about_the_coordinates_themselves(changes, n_defects) -> None:
    assert sum(finding.is_defect for finding in found(changes)) == n_defects


LOW = {"trustworthiness": {"value": 0.8}, "intrinsic_dimension": {"value": 30.0}}


@pytest.mark.parametrize(
    ("config", "n_features", "dimension", "method", "value"),
    [
        (CONFIG, 40, 3.4, None, 3),
        (CONFIG, 40, 3.6, "pca", 4),
        (CONFIG, 4, 5.4, None, 3),
        (CONFIG, 40, 5.4, "pca", 5),
        (CONFIG, 9, 30.0, "few", 8),
        (config_of(neighbors={"n_neighbors": 40}), 50, 19.0, "pca", 19),
        (config_of(neighbors={"n_neighbors": 40}), 50, 20.0, "few", 20),
        (config_of(neighbors={"n_neighbors": 6}), 50, 3.0, "few", 3),  # two neighbours for each dimension are all
        (config_of(method="laplacian"), 30, 11.0, "few", 11),
        (config_of(method="hessian"), 40, 3.0, None, 3),
        (config_of(method="hessian", neighbors={"n_neighbors": 8}), 40, 3.0, "few", 3),
        (config_of(method="pca"), 40, 11.0, None, 11),
    ],
)
def test_coordinates_named_are_those_that_the_neighbourhoods_allow_else_principal_components(
    config, n_features, dimension, method, value
) -> None:
    [finding] = found({**LOW, "intrinsic_dimension": {"value": dimension}, "n_features": n_features}, config)
    named = {} if method is None else {"method": "pca"}
    assert finding.as_json()["key"] == {**named, "eigensolver.n_components": value}
    assert ("neighbours do not suffice" in finding.text()) == (method == "few")
    assert ("for which principal components usually keep neighbours better" in finding.text()) == (method == "pca")
    assert f" {value} dimensions around" in finding.text()
    check_config({**config, **named, "eigensolver": {"n_components": value}}, "test")


def test_principal_components_that_are_better_already_get_the_missing_coordinates() -> None:
    """But not if the embedding is worse because of a reg that was set, whose cure is another one."""
    behind = {**LOW, "intrinsic_dimension": {"value": 3.4}, "n_features": 40}
    behind |= {"pca_gain": {"value": 0.08, "low": 0.05, "high": 0.11, "sample": 490}}
    trustworthiness, gain = found(behind)
    assert trustworthiness.as_json()["key"] == {"method": "pca", "eigensolver.n_components": 3}
    assert "and principal components keep neighbours better; set method: pca" in trustworthiness.text()
    assert gain.as_json()["key"] == {}  # named already
    trustworthiness, gain = found(behind, config_of(weights={"reg": 1e-3}))
    assert trustworthiness.as_json()["key"] == {"eigensolver.n_components": 3}
    assert gain.as_json()["key"] == {"weights.reg": "auto"}


def test_a_reg_that_was_set_is_replaced_before_the_method() -> None:
    """Principal components do not use it, and a low trustworthiness is not cured twice."""
    behind = {**LOW, "intrinsic_dimension": {"value": 5.4}, "n_features": 40, "redundancy": [0.0, 0.99]}
    behind |= {"pca_gain": {"value": 0.08, "low": 0.05, "high": 0.11, "sample": 490}}
    keys = [finding.as_json()["key"] for finding in found(behind, config_of(weights={"reg": 1e-3}))]
    assert keys == [{"eigensolver.n_components": 5}, {}, {"weights.reg": "auto"}]
    trustworthiness, redundancy = found({**LOW, "n_features": 40, "redundancy": [0.0, 0.99]})
    assert (trustworthiness.cure.is_command, redundancy.cure.text) == (False, "")


def test_no_cure_contradicts_another() -> None:
    clump = {"participation": [[300.0, 3.0]], "separated": [[0, 3]]}
    crowded = {"correlation_sum": {"value": 0.5, "low": 0.45}, "pca_correlation_sum": {"value": 0.01}}
    findings = found({**clump, **crowded, "n_features": 40}, config_of(method="ltsa"))
    assert [finding.measure for finding in findings][:2] == ["participation", "correlation_sum"]
    methods = {finding.as_json()["key"].get("method") for finding in findings} - {None}
    assert methods == {"lle"}


@pytest.mark.parametrize(("invalid", "first"), [(150, "trustworthiness"), (250, "dropped")])
def test_dropped_rows_are_graver_than_lost_neighbours_if_they_are_half_of_the_rows(invalid, first) -> None:
    findings = found({**LOW, "n_features": 40, "dropped": {"invalid": invalid}})
    assert [finding.level for finding in findings] == ["grave", "grave"]
    assert {finding.measure for finding in findings} == {"trustworthiness", "dropped"}
    assert findings[0].measure == first


@pytest.mark.parametrize("method", ["lle", "laplacian"])
def test_a_clump_keeps_its_cure_if_the_lost_neighbours_have_none(method) -> None:
    clump = {"participation": [[300.0, 3.0]], "separated": [[0, 3]], "neighborhood_hit": {"value": 0.72}, "reg": None}
    settings = {"neighbors": {"n_neighbors": 15}, "embedding": {"coordinates": "independent"}}
    [of_clump, of_hit] = found(clump, config_of(method=method, **settings))
    assert (of_clump.measure, of_clump.as_json()["key"]) == ("participation", {"neighbors.n_neighbors": 24})
    assert not of_hit.cure
    settings["neighbors"] = {"n_neighbors": 24}
    assert [finding.level for finding in found(clump, config_of(method="laplacian", **settings))] == ["grave", "grave"]
    [of_clump, of_trust] = found({**clump, "neighborhood_hit": None, **LOW}, config_of(method=method, **settings))
    assert (of_clump.measure, of_clump.level, of_clump.cure.text) == ("participation", "grave", "")
    assert of_trust.cure


@pytest.mark.parametrize("kind", ["npy", "synthetic"])
def test_columns_can_be_left_out_only_of_inputs_that_have_them(kind) -> None:
    config = config_of(
        input={"kind": "npy", "path": "x.npy"}
        if kind == "npy"
        else {"kind": "synthetic", "name": "sheet", "n_points": 500}
    )
    [finding] = found({"dropped": {"invalid": 5}}, config)
    assert ("input.columns" in finding.as_json()["key"]) == (kind == "npy")
    assert ("out of input.columns" in finding.text()) == (kind == "npy")
    assert finding.text().endswith("; preprocess.invalid: error names the rows.")


@pytest.mark.parametrize("lost", [{}, LOW, {"neighborhood_hit": {"value": 0.72}}])
def test_lost_neighbours_are_graver_than_a_clump_that_more_neighbours_would_link(lost) -> None:
    """Their cure is needed anyway, and n_neighbors: 24 often loses as many."""
    clump = {"participation": [[300.0, 3.0]], "separated": [[0, 3]], "n_features": 40}
    findings = found({**lost, **clump}, config_of(embedding={"coordinates": "independent"}))
    assert (findings[0].measure == "participation") == (not lost)
    assert findings[0].cure
    [of_clump] = [finding for finding in findings if finding.measure == "participation"]
    assert of_clump.as_json()["key"] == ({} if lost else {"neighbors.n_neighbors": 24})


@pytest.mark.parametrize("trust", [0.85, 0.93, 0.97])
@pytest.mark.parametrize("high", [0.05, 0.5])
@pytest.mark.parametrize("joined", [None, 3])
def test_a_report_advises_other_eigenvectors_or_principal_components(trust, high, joined) -> None:
    behind = {"pca_gain": {"value": 0.08, "low": 0.03, "high": 0.11, "sample": 490}, "redundancy": [0.0, 0.97]}
    kept = {"kept_neighbors": {"value": 0.04, "low": 0.03, "high": high, "n_neighbors": 12}}
    changes = {**behind, **kept, "trustworthiness": {"value": trust}, "n_features": 40, "components_joined": joined}
    keys = set().union(*(finding.as_json()["key"] for finding in found(changes)))
    is_pca = joined or (trust, high) == (0.97, 0.05)  # a high trustworthiness, and hardly any neighbours kept
    assert keys == ({"method"} if is_pca else {"embedding.coordinates"})


@pytest.mark.parametrize("method", ["lle", "pca"])
def test_distances_to_k_neighbours_show_at_most_k_dimensions(method) -> None:
    [finding] = found({**LOW, "intrinsic_dimension": {"value": 103.0}, "n_features": 2000}, config_of(method=method))
    assert "the data have at least 12 dimensions" in finding.text()
    assert finding.as_json()["key"]["eigensolver.n_components"] == 12
    twelve = {"eigenvalues": [[1e-7] * 12], "residuals": [[1e-9] * 12], "redundancy": [0.0] * 12}
    [finding] = found({**LOW, **twelve, "intrinsic_dimension": {"value": 103.0}, "n_features": 2000}, config_of())
    assert finding.as_json()["key"] == {}


def test_points_have_fewer_principal_components_than_their_number() -> None:
    config = config_of(method="pca", neighbors={"n_neighbors": 40})
    [finding] = found({**LOW, "n_features": 40, "n_points": 20}, config)
    assert finding.as_json()["key"] == {"eigensolver.n_components": 19}


def test_mean_length_of_lists_decides_how_many_coordinates_they_allow() -> None:
    lists = {"mean": 20.4, "least": 4, "most": 40, "raised_to_k_min": 0, "at_k_max": 0}
    five, config = {**LOW, "intrinsic_dimension": {"value": 3.0}}, config_of(neighbors={"radius": 1.5})
    assert found({**five, "list_sizes": lists}, config)[0].as_json()["key"] == {"eigensolver.n_components": 3}
    as_pca = {"method": "pca", "eigensolver.n_components": 3}
    short = lists | {"least": 3}  # a point with three neighbours has no weights for three coordinates
    assert found({**five, "list_sizes": short}, config)[0].as_json()["key"] == as_pca
    tangents = config_of(method="ltsa", neighbors={"radius": 1.5, "k_min": 4})  # three coordinates need k_min 5
    assert found({**five, "list_sizes": lists | {"least": 9}}, tangents)[0].as_json()["key"] == as_pca


def test_classes_that_mix_although_neighbours_are_kept_need_no_more_coordinates() -> None:
    lost = {"neighborhood_hit": {"value": 0.72}, "intrinsic_dimension": {"value": 3.2}}
    label, trustworthiness = found({**lost, "trustworthiness": {"value": 0.89}})
    assert label.as_json()["key"] == {"eigensolver.n_components": 3}
    assert label.text().endswith(": 3. This raises the trustworthiness (0.890), but not always this share.")
    assert trustworthiness.as_json()["key"] == {}  # named already
    assert found({**lost, "trustworthiness": {"value": 0.9}})[0].as_json()["key"] == {}
    # Each further principal component keeps more of all neighbours.
    assert found(lost, config_of(method="pca"))[0].as_json()["key"] == {"eigensolver.n_components": 3}


@pytest.mark.parametrize(
    ("participation", "trustworthiness", "kept", "is_grave"),
    [
        ([300.0, 300.0, 3.0], 0.99, 0.8, False),
        ([300.0, 3.0, 300.0], 0.99, 0.8, True),  # the picture shows the first two
        ([300.0, 300.0, 3.0], 0.94, 0.8, True),
        ([300.0, 300.0, 3.0], 0.99, 0.4, True),
    ],
)
def test_a_later_coordinate_of_few_points_is_not_the_verdict_where_neighbours_are_kept(
    participation, trustworthiness, kept, is_grave
) -> None:
    three = {"eigenvalues": [[1e-7, 2e-7, 3e-7]], "residuals": [[1e-9] * 3], "redundancy": [0.0] * 3}
    measured = {"trustworthiness": {"value": trustworthiness}, "kept_neighbors": {"value": kept}}
    [finding] = found({**three, **measured, "participation": [participation], "separated": [[0] * 3]})
    assert (finding.measure, finding.level) == ("participation", "grave" if is_grave else "minor")


def test_a_few_far_rows_are_not_the_verdict_of_principal_components() -> None:
    measured = {"trustworthiness": {"value": 0.92}, "kept_neighbors": {"value": 0.4}}
    [finding] = found({**measured, "participation": [[300.0, 3.0]]}, config_of(method="pca"))
    assert (finding.measure, finding.level) == ("participation", "minor")
    assert "follow rows that are far from the others. Take the logarithm of features" in finding.text()


@pytest.mark.parametrize(("largest", "first"), [(490, "n_components_weak"), (510, "trustworthiness")])
def test_pieces_are_the_verdict_where_none_holds_half_of_the_rows(largest, first) -> None:
    pieces = {"n_components_weak": 3, "component_sizes": [largest, 300, 1000 - 300 - largest], "n_input": 1000}
    findings = found({**LOW, **pieces})
    assert {finding.measure for finding in findings} >= {"n_components_weak", "trustworthiness"}
    assert findings[0].measure == first
    fitted = {"rows_fitted": 1000, "rows_placed": 4000, "far": 0, "max_ratio": 1.0, "mixed": 0}
    of_sample = found({**LOW, **pieces, "n_input": 5000, "fit_sample": fitted})
    assert of_sample[0].measure == first
    [sentence] = [finding.sentence for finding in of_sample if finding.measure == "n_components_weak"]
    assert f"the largest with {largest / 10:.0f} % of the rows" in sentence


def test_coordinates_are_the_dimension_of_the_data() -> None:
    [finding] = found({**LOW, "intrinsic_dimension": {"value": 3.2}})
    assert "2 coordinates are too few: the data have about 3 dimensions" in finding.text()
    assert "set eigensolver.n_components: 3." in finding.text()
    three = {"eigenvalues": [[1e-7, 2e-7, 3e-7]], "residuals": [[1e-9] * 3], "redundancy": [0.0] * 3}
    [finding] = found({**LOW, **three, "intrinsic_dimension": {"value": 3.2}})
    assert "n_components" not in finding.text()  # the first answer holds


def test_reg_that_was_set_is_compared_with_auto() -> None:
    low = {"trustworthiness": {"value": 0.8}}
    [finding] = found(low, config_of(weights={"reg": 1e-3}))
    assert "weights.reg is 0.001; weights.reg: auto chooses it" in finding.text()
    [finding] = found({**low, "reg": None}, config_of(method="ltsa", weights={"reg": 1e-3}))
    assert "weights.reg" not in finding.text()
    [finding] = found({"participation": [[300.0, 3.0]]}, config_of(weights={"reg": 1e-3}))
    assert finding.as_json()["key"] == {"weights.reg": "auto"}
    tiny = {"reg": {"value": 1e-5, "reason": "set"}, "eigenvalues": [[1e-16, 1e-15]]}
    [finding] = found(tiny, config_of(weights={"reg": 1e-5}))
    assert finding.as_json()["key"] == {"weights.reg": "auto"}


@pytest.mark.parametrize(("n_points", "is_named"), [(49, False), (50, True), (None, True)])
def test_lle_suggest_is_named_for_as_many_points_as_it_needs(n_points: int | None, is_named: bool) -> None:
    [finding] = found({"trustworthiness": {"value": 0.8}, "n_points": n_points})
    assert ("Run `lle suggest`, unless it chose" in finding.text()) == is_named
    assert "lle suggest" not in finding.text(str)


@pytest.mark.parametrize("changes", [{"method": "ltsa"}, {"neighbors": {"n_neighbors": 40}}])
def test_lle_suggest_is_not_named_after_method_or_neighbours_were_chosen(changes: dict[str, Any]) -> None:
    lost = {"neighborhood_hit": {"value": 0.72}, "reg": None}
    assert "lle suggest" in found(lost)[0].text()
    assert "lle suggest" in found(lost, config_of(neighbors={"n_neighbors": 24}))[0].text()  # another cure names it
    assert "lle suggest" not in found(lost, config_of(**changes))[0].text()
    assert "other numbers of neighbours and methods" in found(lost)[0].text()
    assert "other numbers of coordinates and methods" in found(lost, config_of(method="pca"))[0].text()


def test_neighbours_are_raised_once() -> None:
    clump = {"participation": [[300.0, 3.0]]}
    chosen = {"embedding": {"coordinates": "independent"}}
    assert found(clump, config_of(**chosen))[0].as_json()["key"] == {"neighbors.n_neighbors": 24}
    assert found(clump, config_of(**chosen, neighbors={"n_neighbors": 24}))[0].as_json()["key"] == {}
    assert found({**clump, "n_points": 30}, config_of(**chosen))[0].as_json()["key"] == {}


LISTS = {"mean": 6.0, "least": 5, "most": 12, "raised_to_k_min": 7, "at_k_max": 7}


@pytest.mark.parametrize("solver", [{"converged": False}, {"converged": True, "rounding_floor": 1.0}])
@pytest.mark.parametrize("list_sizes", [None, LISTS])
def test_no_cure_for_pca_is_a_key_that_it_does_not_use(solver: dict[str, Any], list_sizes: dict[str, Any]) -> None:
    poor = {**LOW, "reg": None, "participation": [[3.0, 3.0]], "redundancy": [0.0, 0.99], "n_components_weak": 3}
    findings = found(
        {**poor, "solvers": [{"method": "pca", **solver}], "list_sizes": list_sizes}, config_of(method="pca")
    )
    assert len(findings) >= 4
    assert {key for finding in findings for key in finding.as_json()["key"]} == {"eigensolver.n_components"}


def test_cures_of_lists_that_vary_and_of_an_absolute_reg() -> None:
    clump = {"participation": [[300.0, 3.0]], "list_sizes": LISTS | {"raised_to_k_min": 0, "at_k_max": 0}}
    chosen = {"embedding": {"coordinates": "independent"}}
    assert found(clump, config_of(**chosen, neighbors={"radius": 1.5}))[0].as_json()["key"] == {}
    absolute = config_of(weights={"reg": 1e-5, "rule": "absolute"})  # the program refuses auto with it
    assert found({"trustworthiness": {"value": 0.8}}, absolute)[0].as_json()["key"] == {}


def test_clumps_of_many_components_are_one_sentence() -> None:
    five_components = {"component_points": [490] * 5, "participation": [[9.0, 2.0]] * 5, "separated": [[9, 2]] * 5}
    [finding] = found(five_components)
    assert finding.sentence.count("of component") == 3
    assert finding.sentence.endswith(", and 2 more coordinates")
    [finding] = found({key: rows[:4] for key, rows in five_components.items()})
    assert finding.sentence.endswith(", and 1 more coordinate")
    [finding] = found(five_components, config_of(method="ltsa"))
    assert finding.as_json()["key"] == {"method": "lle"}


def test_coordinates_that_repeat_are_named_with_what_was_measured() -> None:
    repeated = {"redundancy": [0.0, 0.961, 0.3, 0.987], "eigenvalues": [[1e-7] * 4], "residuals": [[1e-9] * 4]}
    all_kept = {"trustworthiness": {"value": 0.99}}
    [finding] = found({**repeated, **all_kept, "intrinsic_dimension": {"value": 1.2}})
    assert finding.sentence == (
        "Coordinates 2 and 4 are predictable from the earlier ones by local linear fits (R² 0.96 to 0.99); neighbours "
        "are kept (trustworthiness 0.990)"
    )
    assert finding.as_json()["key"] == {"eigensolver.n_components": 1}
    [finding] = found({**repeated, "coordinates": [{"computed": 10}]})
    assert finding.sentence.endswith(". No other of the 10 computed eigenvectors was clearly better")
    closed_curve = {"redundancy": [0.0, 0.3, 0.987, 0.2], "intrinsic_dimension": {"value": 1.2}}
    [finding] = found({**repeated, **all_kept, **closed_curve})
    assert finding.cure.text == "Coordinates 1 to 2 are independent; set {}"
    assert finding.as_json()["key"] == {"eigensolver.n_components": 2}
    chosen = config_of(embedding={"coordinates": "independent"})
    one, two = {"intrinsic_dimension": {"value": 1.2}}, {"intrinsic_dimension": {"value": 2.2}}
    few_kept = {**one, "trustworthiness": {"value": 0.989}}
    for changes, config, key in (
        (two, CONFIG, {"embedding.coordinates": "independent"}),
        (two, chosen, {}),
        (few_kept, CONFIG, {}),
    ):
        [finding] = found({**repeated, **changes}, config)
        assert finding.as_json()["key"] == key
        assert ("`lle suggest`" in finding.text()) == (not key)
        [finding] = found({**repeated, **changes, "components_joined": 3}, config)
        assert "`lle suggest`" in finding.text()
    low = {"trustworthiness": {"value": 0.85}, "n_features": 2}
    assert [finding.as_json()["key"] for finding in found({**repeated, **two, **low})] == [
        {"embedding.coordinates": "independent"},
        {},
    ]


@pytest.mark.parametrize(("redundancy", "level"), [([0.0, 0.98, 0.3, 0.0], "grave"), ([0.0, 0.3, 0.3, 0.98], "minor")])
def test_a_redundant_coordinate_outside_of_the_picture_is_no_verdict_without_a_cure(redundancy, level) -> None:
    four = {"eigenvalues": [[1e-7] * 4], "residuals": [[1e-9] * 4], "redundancy": redundancy}
    config = config_of(method="laplacian", embedding={"coordinates": "independent"})
    [finding] = found({**four, "trustworthiness": {"value": 0.98}, "reg": None}, config)
    assert (finding.measure, finding.level, finding.cure.text) == ("redundancy", level, "")


def test_each_cure_is_given_once() -> None:
    several = {
        "n_components_weak": 2,
        "component_sizes": [300, 190],
        "component_points": [300, 190],
        "participation": [[20.0, 99.0], [90.0, 90.0]],
        "separated": [[20, 0], [0, 0]],
        "dropped": {"small_component": 7},
    }
    findings = found({**several, "trustworthiness": {"value": 0.8}, "neighborhood_hit": {"value": 0.6}})
    measures = ["neighborhood_hit", "trustworthiness", "n_components_weak", "participation", "dropped"]
    assert [finding.measure for finding in findings] == measures
    cures = [finding.cure for finding in findings if finding.cure.text]
    assert len(set(cures)) == len(cures)


def test_pca_does_not_depend_on_components() -> None:
    several = {"n_components_weak": 5, "reg": None}
    assert found(several, config_of(method="pca")) == []
    assert len(found(several, config_of(method="laplacian"))) == 1


@pytest.mark.parametrize(("method", "is_flat"), [("ltsa", True), ("hessian", True), ("lle", False)])
def test_eigenvalues_that_are_zero(method: str, is_flat: bool) -> None:
    [finding] = found({"eigenvalues": [[1e-29, 1e-7]], "residuals": [[1e14, 1e-9]]}, config_of(method=method))
    assert ("exactly flat" in finding.sentence) == is_flat
    assert ("near or below the rounding errors" in finding.sentence) != is_flat


@pytest.mark.parametrize(
    ("key", "words", "cure"),
    [
        ("raised_to_k_min", "7 points have fewer than k_min", {"neighbors.radius": None}),
        ("at_k_max", "7 points have k_max or more", {"neighbors.k_max": None}),
    ],
)
def test_lists_at_their_limits(key, words, cure) -> None:
    sizes = {"mean": 6.0, "least": 5, "most": 12, "raised_to_k_min": 0, "at_k_max": 0, key: 7}
    [finding] = found({"list_sizes": sizes}, config_of(neighbors={"radius": 1.5, "k_min": 5, "k_max": 12}))
    assert words in finding.sentence
    assert finding.as_json()["key"] == cure


def test_columns_that_hold_no_measurements() -> None:
    columns = {
        "suspect": {"user": "an id: a different whole number in each row", "t": "a time"},
        "possible_ids": ["user"],
    }
    first, second = of_columns(columns)
    assert "Column 'user' is a feature but looks like an id" in first.text()
    assert "list the features in input.columns, or set input.id: user." in first.text()
    assert second.text().endswith("list the features in input.columns.")
    assert of_columns(None) == []


def test_verdict_is_not_repeated_among_the_warnings() -> None:
    metrics = Metrics.read({**METRICS, "trustworthiness": {"value": 0.8}, "residual_variance": {"value": 0.9}})
    findings = find(metrics, CONFIG)
    written = with_findings(metrics, findings)
    assert written.verdict == findings[0].text()
    assert written.warnings == [findings[1].text()]
    assert [finding["measure"] for finding in written.findings or []] == ["trustworthiness", "residual_variance"]


PIECES = {"n_components_weak": 3, "component_sizes": [991, 6, 3], "component_points": [300, 100, 90], "n_input": 1000}


def verdict_of(changes: dict[str, Any], config: dict[str, Any] = CONFIG) -> str:
    metrics = Metrics.read({**METRICS, "residual_variance": {"value": 0.2}, **changes})
    return verdict(metrics, find(metrics, config))


@pytest.mark.parametrize(
    ("stopped", "rows_placed", "sentence"),
    [
        (
            {"stage": "mend_graph", "running": False, "reason": "recall 0.81 is below 0.9"},
            None,
            "The run stopped before its end. recall 0.81",
        ),
        (
            {"stage": "solve_embedding", "running": False, "reason": None},
            None,
            "it stopped in solve_embedding. No row has coordinates yet; run the same command again",
        ),
        (
            {"stage": "measure_quality", "running": True, "reason": None},
            0,
            "The run is going on, in measure_quality. Rows have coordinates",
        ),
    ],
)
def test_verdict_of_a_run_without_its_end(stopped, rows_placed, sentence) -> None:
    assert sentence in verdict_of({**PIECES, "stopped": stopped, "rows_placed": rows_placed})


@pytest.mark.parametrize(
    ("changes", "measure"),
    [
        ({"solvers": MULTIGRID, "residuals": [[0.23, 1e-9]]}, "residuals"),
        ({"eigenvalues": [[1e-17, 1e-9]], "vector_errors": [[0.3, 0.1]]}, "eigenvalues"),
        ({"dropped": {"small_component": 160}}, "dropped"),
        ({"dropped": {"invalid": 160}}, "dropped"),
        ({"participation": [[2.0, 200.0], [90.0, 50.0], [90.0, 50.0]], "separated": [[0, 0]] * 3}, "participation"),
        ({"neighborhood_hit": {"value": 0.72}}, "neighborhood_hit"),
        ({"trustworthiness": {"value": 0.81}}, "trustworthiness"),
        ({"redundancy": [0.0, 0.98]}, "redundancy"),
    ],
)
def test_most_serious_finding_is_the_verdict(changes: dict[str, Any], measure: str) -> None:
    """Each is more serious than separate pieces."""
    first, *others = found({**PIECES, **changes})
    assert (first.measure, first.level) == (measure, "grave")
    assert "n_components_weak" in [finding.measure for finding in others]
    assert verdict_of({**PIECES, **changes}) == first.text()


def test_pieces_are_described_by_the_largest_one_and_the_columns_in_which_they_differ() -> None:
    sentence = verdict_of({**PIECES, "components_differ_in": ["batch"]})
    pieces = "The data fall into 3 separate pieces, the largest with 99.1 % of the rows, which differ in batch;"
    assert sentence.startswith(pieces)
    assert "leave these out of input.columns" in sentence
    assert "cannot be compared. Inside the largest piece: trustworthiness 0.971. graph.components: connect" in sentence
    _, pieces = found({**PIECES, "trustworthiness": {"value": 0.899}})
    assert "Inside" not in pieces.sentence  # said by the other


def test_verdict_of_a_good_embedding_states_its_quality() -> None:
    sentence = "Neighbours in the embedding are neighbours in the data (trustworthiness 0.971, continuity 0.980)"
    assert verdict_of({}) == f"{sentence}, and 95 % of them have the same species (98 % in the data)."
    unlabelled = {"neighborhood_hit": None, "neighborhood_hit_input": None}
    near_chance = {"value": 0.97, "low": 0.96, "chance": 0.96}
    words = "the same species (97 % in the data, 96 % by chance)."
    assert verdict_of({"neighborhood_hit_input": near_chance}).endswith(words)
    assert verdict_of({"neighborhood_hit_input": {"value": 0.97, "chance": 0.3}}).endswith("data, 30 % by chance).")
    assert verdict_of(unlabelled) == f"{sentence}."
    long = f"{sentence}. Long distances differ from those along the data (residual variance 0.44)"
    assert verdict_of({**unlabelled, "residual_variance": {"value": 0.44}}) == f"{long}."
    # A long curve: eigenvalues below the rounding errors, coordinates right to many digits.
    assert verdict_of({"eigenvalues": [[1e-17, 1e-9]]}).startswith(sentence)


@pytest.mark.parametrize(("kept", "near"), [(0.5, "neighbours"), (0.44, "near each other")])
def test_verdict_says_how_many_of_the_nearest_are_kept(kept: float, near: str) -> None:
    share = {"kept_neighbors": {"value": kept, "n_neighbors": 12}}
    sentence = f"Neighbours in the embedding are {near} in the data (trustworthiness 0.971, continuity 0.980, "
    assert verdict_of(share).startswith(f"{sentence}{100 * kept:.0f} % of the 12 nearest kept)")


BETTER = {
    "trustworthiness": {"value": 0.99},
    "kept_neighbors": {"value": 0.7, "low": 0.68, "high": 0.72, "n_neighbors": 12},
    "pca_gain": {"value": 0.008, "low": 0.006, "high": 0.01, "sample": 490},
    "pca_kept_gain": {"value": 0.2, "low": 0.15, "high": 0.25, "sample": 490},
}


def test_principal_components_that_take_away_half_of_what_was_lost_are_a_remark() -> None:
    words = "(trustworthiness 0.008 higher, 90 % of the nearest kept instead of 70 %). method: pca computes"
    assert words in verdict_of(BETTER)
    assert found(BETTER) == []  # no warning
    for none in (
        {"pca_gain": {**BETTER["pca_gain"], "low": 0.005}},
        {"pca_kept_gain": {**BETTER["pca_kept_gain"], "low": bounds.PCA_KEPT_GAIN}},
        {"pca_kept_gain": {**BETTER["pca_kept_gain"], "value": 0.149}},
        {"pca_kept_gain": None},
        {"n_features": 2},
    ):
        assert "Principal components" not in verdict_of({**BETTER, **none})


def test_principal_components_that_lose_more_of_the_nearest_than_they_gain_are_not_better() -> None:
    more = {**BETTER, "pca_gain": {"value": 0.03, "low": 0.02, "high": 0.04, "sample": 490}}
    for kept_gain, is_better in ((-0.02, True), (-0.04, False)):
        text = verdict_of({**more, "pca_kept_gain": {"value": kept_gain, "low": -0.05, "high": 0.0, "sample": 490}})
        found_better = found({**more, "pca_kept_gain": {"value": kept_gain}})
        assert [finding.measure for finding in found_better] == ["pca_gain"] * is_better
        assert all("higher, but 68 % of the nearest" in finding.sentence for finding in found_better)
        assert "Principal components" not in text


def test_redundant_coordinate_gives_way_to_better_principal_components() -> None:
    repeated = {"redundancy": [0.0, 0.99], "intrinsic_dimension": {"value": 1.2}}
    [finding] = found({**BETTER, **repeated})
    assert finding.as_json()["key"] == {"method": "pca"}
    assert "keep neighbours better (trustworthiness 0.008 higher, 90 %" in finding.text()
    finding, warning = found({**BETTER, **repeated, "pca_gain": {**BETTER["pca_gain"], "low": 0.016}})
    assert "keep neighbours better; set method: pca" in finding.text()
    assert "(trustworthiness 0.008 higher, 90 %" in warning.text()
    [finding] = found({**BETTER, **repeated}, config_of(weights={"reg": 1e-3}))
    assert finding.as_json()["key"] == {"eigensolver.n_components": 1}


def test_better_principal_components_are_the_cure_of_classes_that_mix() -> None:
    [finding] = found({**BETTER, "neighborhood_hit": {"value": 0.72}})
    assert finding.as_json()["key"] == {"method": "pca"}
    assert "not always this share" in finding.text()


DOTS = {"correlation_sum": {"value": 0.43, "low": 0.41}, "pca_correlation_sum": {"value": 0.004}}


def test_many_points_at_few_places_are_the_verdict_if_principal_components_spread_them() -> None:
    [finding] = found(DOTS)
    assert verdict_of(DOTS) == finding.text()
    assert "at few places: 43 % of the pairs of points differ by at most 1 % of the range" in finding.text()
    assert finding.text().endswith("(bound: 25 %; principal components: 0.4 %). method: pca spreads the points.")
    assert finding.as_json()["key"] == {"method": "pca"}
    assert found({**DOTS, "correlation_sum": {"value": 0.43, "low": 0.25}}) == []
    for high, price in ((-0.03, ", but lowers the trustworthiness by 0.042"), (0.01, "")):
        gain = {"value": -0.042, "low": -0.05, "high": high, "sample": 490}
        [finding] = found({**DOTS, "pca_gain": gain})
        assert finding.text().endswith(f"method: pca spreads the points{price}.")
    loses = {"trustworthiness": {"value": 0.94}, "pca_gain": {"value": -0.05, "low": -0.06, "high": -0.04}}
    [finding] = found({**DOTS, **loses, "intrinsic_dimension": {"value": 4.2}})
    assert finding.as_json()["key"] == {"method": "pca", "eigensolver.n_components": 4}
    assert finding.text().endswith(
        "keeps neighbours with eigensolver.n_components: 4: the data have about 4 dimensions."
    )
    for same in ({"intrinsic_dimension": {"value": 2.2}}, {"intrinsic_dimension": {"value": 4.2}, "n_features": 4}):
        assert found({**DOTS, **loses, **same})[0].as_json()["key"] == {"method": "pca"}
    assert verdict_of({**DOTS, "component_points": [490, 20]}).startswith("The picture of the largest piece shows many")
    # The data have them at few places too.
    for metrics, config in (
        ({**DOTS, "pca_correlation_sum": {"value": 0.11}}, CONFIG),
        (DOTS, config_of(method="pca")),
    ):
        text = verdict_of(metrics, config)
        assert text.startswith("Neighbours in the embedding are")
        assert ("at few places" in text, "spreads" in text) == (True, False)


def test_a_group_apart_from_a_picture_of_few_dots_has_the_cure_of_the_dots() -> None:
    group = {"participation": [[40.0, 300.0]], "separated": [[40, 0]], "n_components_weak": 1}
    clump = {"participation": [[300.0, 3.0]]}
    independent = config_of(embedding={"coordinates": "independent"})
    for narrow, config in ((group, CONFIG), (clump, independent)):
        apart, dots = found({**DOTS, **narrow}, config)
        assert apart.text().endswith("method: pca spreads the points.")
        assert [finding.as_json()["key"] for finding in (apart, dots)] == [{"method": "pca"}, {}]
        [apart] = found({**DOTS, **narrow, "pca_correlation_sum": {"value": 0.11}}, config)
        assert apart.as_json()["key"] == {"neighbors.n_neighbors": 24}


def test_a_coordinate_that_repeats_another_in_a_picture_of_few_dots_is_not_dropped() -> None:
    """One coordinate shows the dots too, and fewer principal components lose neighbours."""
    repeated = {"redundancy": [0.0, 0.99], "intrinsic_dimension": {"value": 1.2}}
    findings = found({**DOTS, **repeated})
    keys = {finding.measure: finding.as_json()["key"] for finding in findings}
    assert keys == {"correlation_sum": {"method": "pca"}, "redundancy": {}}
    alone = found({**repeated, "trustworthiness": {"value": 0.995}})[0]
    assert alone.as_json()["key"] == {"eigensolver.n_components": 1}


HARDLY = {"kept_neighbors": {"value": 0.02, "low": 0.01, "high": 0.03, "n_neighbors": 12}}
FIVE = {"intrinsic_dimension": {"value": 5.0}}


@pytest.mark.parametrize(
    ("trustworthiness", "high", "is_found"),
    [(0.9, 0.099, True), (0.9, 0.1, False), (0.949, 0.03, True), (0.95, 0.03, False)],
)
def test_lost_nearest_neighbours_are_the_verdict_where_the_trustworthiness_is_not_good(
    trustworthiness, high, is_found
) -> None:
    share = {"kept_neighbors": {**HARDLY["kept_neighbors"], "high": high}}
    findings = found({**FIVE, **share, "trustworthiness": {"value": trustworthiness}})
    assert [finding.measure for finding in findings] == ["kept_neighbors"] * is_found
    for finding in findings:
        assert "are nearest neighbours in the data (trustworthiness 0.9" in finding.sentence
        assert "2 % of the 12 nearest kept; bound: 10 %)" in finding.sentence
        assert finding.as_json()["key"] == {"method": "pca", "eigensolver.n_components": 5}
    about_dimensions = "The data have about 5 dimensions" in verdict_of(
        {**FIVE, **share, "trustworthiness": {"value": trustworthiness}}
    )
    assert about_dimensions != is_found  # said once


def test_good_trustworthiness_does_not_hide_that_the_nearest_are_lost() -> None:
    near = "Neighbours in the embedding are near each other in the data"
    assert verdict_of({**FIVE, **HARDLY}).startswith(f"{near}, but hardly any are the nearest (trustworthiness 0.971")
    [redundancy] = found({**FIVE, **HARDLY, "redundancy": [0.0, 0.99]})
    assert "; hardly any neighbours are kept (trustworthiness 0.971, 2 % of the 12 nearest kept)" in redundancy.sentence
    assert redundancy.as_json()["key"] == {"method": "pca", "eigensolver.n_components": 5}


@pytest.mark.parametrize(("kept", "words"), [(0.5, "neighbours are kept"), (0.49, "neighbours stay near each other")])
def test_kept_neighbours_decide_the_words_about_a_redundant_coordinate(kept: float, words: str) -> None:
    share = {"kept_neighbors": {"value": kept, "low": kept, "high": kept, "n_neighbors": 12}}
    [finding] = found({**share, "redundancy": [0.0, 0.99]})
    assert f"; {words} (trustworthiness 0.971, {100 * kept:.0f} % of the 12 nearest kept)" in finding.sentence


def test_dimensions_that_the_coordinates_leave_out_are_a_remark() -> None:
    three = {"intrinsic_dimension": {"value": 2.9}}
    words = "The data have about 3 dimensions around each point, more than 2 coordinates"
    assert verdict_of(three).endswith(f"{words}.")  # noise counts as dimensions, so more may not help
    modest = {"trustworthiness": {"value": 0.94}}
    assert f"{words}. Run `lle suggest`, " in verdict_of({**three, **modest})
    two = {"intrinsic_dimension": {"value": 2.4}}
    assert "Other settings may keep more neighbours. Run `lle suggest`, " in verdict_of({**two, **modest})
    assert "Other settings" not in verdict_of(two)
    assert verdict_of({**three, "n_features": 3}).endswith(f"{words}.")  # as many coordinates as columns reduce nothing
    for estimate, d in ((4.2, 3), (9.3, 8)):  # columns of whole numbers
        verdict = verdict_of({"intrinsic_dimension": {"value": estimate}, "n_features": d})
        assert f"The data have about {d} dimensions around each point" in verdict
    for none in ({"n_features": 2}, {"intrinsic_dimension": {"value": 2.4}}, {"trustworthiness": {"value": 0.89}}):
        assert "more than 2 coordinates" not in verdict_of({**three, **none})


def test_as_many_coordinates_as_features_are_a_remark() -> None:
    assert verdict_of({"n_features": 2}).endswith(
        ". 2 coordinates of 2 features reduce nothing: the data are only deformed."
    )
    for sections in ({"preprocess": {"pca": 2}}, {"eigensolver": {"n_components": 1}}):
        measures = [
            finding.measure for finding in find(Metrics.read({**METRICS, "n_features": 2}), config_of(**sections))
        ]
        assert "n_features" not in measures


@pytest.mark.parametrize(("repeated", "is_remark"), [(490, True), (489, False), (0, False), (None, False)])
def test_most_rows_that_equal_an_earlier_one_are_a_remark(repeated: int | None, is_remark: bool) -> None:
    sentence = verdict_of({"duplicates_merged": repeated})
    assert sentence.endswith(". 490 of 980 rows equal an earlier row, so the picture has 490 points.") == is_remark
    assert found({"duplicates_merged": repeated}) == []
    assert "earlier row" not in verdict_of(
        {"duplicates_merged": repeated, "fit_sample": {"far": 0, "rows_fitted": 490}}
    ), "of the sample"


def test_value_between_the_bounds_reads_most_neighbours() -> None:
    between = {"trustworthiness": {"value": bounds.LOW_TRUSTWORTHINESS}}
    assert verdict_of(between).startswith("Most neighbours in the embedding")
    assert verdict_of({"trustworthiness": None}) == "The quality of the embedding was not measured."


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
        report = {
            "previous": "this store",
            "scale": scale,
            "reason": reason,
            "components": [] if reason else [{**defaults, **component}],
        }
        return [finding.text() for finding in found({"alignment": report})]

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

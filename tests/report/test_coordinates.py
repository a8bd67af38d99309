"""The sentences of the report about the choice of coordinates, from the record in metrics.json."""

from lle.report.metrics import Metrics
from lle.report.page import choice_of_coordinates


def choice(**changes) -> dict:
    chosen = {"taken": [1, 4], "computed": 10, "clumps_taken": [], "clumps_skipped": [], "replaced": []}
    return {**chosen, **changes}


def test_nothing_is_said_about_the_first_eigenvectors():
    assert choice_of_coordinates(Metrics()) == []


def test_the_first_eigenvectors_are_called_so_if_no_others_were_computed():
    [sentence] = choice_of_coordinates(Metrics(coordinates=[choice(taken=[1, 2], computed=2)]))
    assert sentence == "The coordinates are the lowest eigenvectors, which do not predict each other."
    sentences = choice_of_coordinates(Metrics(coordinates=[choice(taken=[1, 2], computed=2, clumps_taken=[2])]))
    assert "2 is a clump" in sentences[1]


def test_taken_and_replaced_eigenvectors_are_named():
    change = {
        "left": 2,
        "taken": 4,
        "unexplained_left": 0.04,
        "unexplained_taken": 0.83,
        "trustworthiness_before": 0.951,
        "trustworthiness_after": 0.985,
    }
    first, second = choice_of_coordinates(Metrics(coordinates=[choice(replaced=[change])]))
    assert first == "The coordinates are eigenvectors 1 and 4 of 10 computed ones."
    assert "Eigenvector 2 was replaced by 4: the other coordinates predict 96% of its variance, and 17% of" in second
    assert "rose from 0.951 to 0.985" in second


def test_groups_of_clumps_are_named_by_component():
    clump = {"eigenvector": 2, "participation": 5.0, "points": 12, "rows": list(range(1000, 1010))}
    choices = [choice(), choice(clumps_skipped=[clump]), choice(taken=[1, 2], clumps_taken=[2])]
    sentences = choice_of_coordinates(Metrics(coordinates=choices))
    assert [sentence[:13] for sentence in sentences] == [f"Component {number}: " for number in (0, 1, 1, 2, 2)]
    assert "group of 12 points from the others (rows 1000, 1001, 1002" in sentences[2]
    assert sentences[2].endswith("1004, ..., counted from 0).")
    assert sentences[4].endswith("so 2 is a clump.")

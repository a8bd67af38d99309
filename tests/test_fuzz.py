"""The fuzzer of tests/fuzz, all cases of one seed; `python -m tests.fuzz` runs other seeds."""

import base64

import numpy as np
import pytest

from tests.fuzz import campaign as fuzz
from tests.fuzz.mutate import mutated_bytes, mutated_tree

PARTS = {"configs": 2, "inputs": 2, "stores": 5, "bits": 1, "walks": 1, "whole_runs": 5}
"""Tests of each target, of about 20 seconds of one core each."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "part"), [(target, part) for target in fuzz.TARGETS for part in range(PARTS[target])]
)
def test_no_case_breaks_a_rule(target, part):
    cases = range(part, fuzz.DEFAULT_CASES[target], PARTS[target])
    tally = fuzz.campaign(target, 0, cases)
    print(tally.line())
    assert tally.cases == len(cases)
    assert not tally.failures, "\n".join(tally.failures.values())


def test_a_case_is_determined_by_seed_and_number():
    data = bytes(range(256))
    mutants = [mutated_bytes(fuzz.rng_of(3, case), data) for case in (5, 5, 6)]
    assert mutants[0] == mutants[1] != mutants[2], [base64.b64encode(mutant) for mutant in mutants]
    trees = [mutated_tree(fuzz.rng_of(3, 8), {"a": [1, 2], "b": {"c": 3}}) for _ in range(2)]
    np.testing.assert_equal(*trees)


@pytest.mark.slow
def test_cases_that_break_rules_or_never_end_are_reported_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(fuzz, "HANG_SECONDS", 40)
    tally = fuzz.campaign("broken", 0, range(7))
    reasons = ["died with code 9", "MiB", "processor time", "a rule", "no result after 5.4 s", "no result after 40 s"]
    assert tally.cases == 7
    assert sorted(tally.failures) == list(range(6))
    for case, reason in enumerate(reasons):
        assert reason in tally.failures[case]
        assert f"--case {case}" in tally.failures[case]
    for case in (4, 5):
        assert "broken.py" in tally.failures[case], "the stack shows where it hangs"

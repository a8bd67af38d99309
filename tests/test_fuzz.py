"""The fuzzer of tests/fuzz, the first cases of one seed; `python -m tests.fuzz` runs more and other seeds."""

import base64

import numpy as np
import pytest

from tests.fuzz import campaign as fuzz
from tests.fuzz.mutate import mutated_bytes, mutated_tree

CASES = {"configs": 300, "inputs": 350, "stores": 22, "bits": 20, "walks": 3, "whole_runs": 20}
"""Cases of each target."""


@pytest.mark.slow
@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_no_case_breaks_a_rule(target):
    tally = fuzz.campaign(target, 0, range(CASES[target]))
    print(tally.line())
    assert tally.cases == CASES[target]
    assert not tally.failures, "\n".join(tally.failures.values())


def test_a_case_is_determined_by_seed_and_number():
    data = bytes(range(256))
    mutants = [mutated_bytes(fuzz.rng_of(3, case), data) for case in (5, 5, 6)]
    assert mutants[0] == mutants[1] != mutants[2], [base64.b64encode(mutant) for mutant in mutants]
    trees = [mutated_tree(fuzz.rng_of(3, 8), {"a": [1, 2], "b": {"c": 3}}) for _ in range(2)]
    np.testing.assert_equal(*trees)


@pytest.mark.slow
def test_cases_that_break_rules_or_never_end_are_reported_and_the_others_go_on(monkeypatch):
    ended = fuzz.campaign("broken", 0, range(5))
    monkeypatch.setattr(fuzz, "HANG_SECONDS", 4)
    hanging = fuzz.campaign("broken", 0, range(5, 7))
    failures = ended.failures | hanging.failures
    reasons = ["died with code 9", "MiB", "processor time", "a rule", "no result after 5.4 s", "no result after 4 s"]
    assert (ended.cases, hanging.cases, hanging.outcomes["ended"]) == (5, 2, 1)
    assert sorted(failures) == list(range(6))
    for case, reason in enumerate(reasons):
        assert reason in failures[case]
        assert f"--case {case}" in failures[case]
    for case in (4, 5):
        assert "broken.py" in failures[case], "the stack shows where it hangs"

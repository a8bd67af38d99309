"""The proposed scaling of counts. Other tables are in tests/jobs/test_init_columns.py."""

import numpy as np
import pytest

from lle.inputs.propose_scale import propose_scale

RNG = np.random.default_rng(31)
RATES = RNG.permutation(np.geomspace(0.003, 30, 60))
"""Counts of most words are 0 in most rows, but the others have most of the variance."""
COUNTS = RNG.poisson(RATES * RNG.gamma(2, 0.5, (3000, 1)))
WORDS = [f"word_{number}" for number in range(60)]


@pytest.mark.parametrize(
    ("rows", "names", "scale"),
    [
        pytest.param(COUNTS, WORDS, "none", id="words"),
        pytest.param(COUNTS, [], "standard", id="no names"),
        pytest.param(COUNTS, ["age", *WORDS[1:]], "standard", id="several kinds of names"),
        pytest.param(COUNTS * np.where(RATES > 1, 100, 1), WORDS, "standard", id="variances of metres"),
        pytest.param(COUNTS + 0.5 * (RATES > 1), WORDS, "standard", id="no whole numbers"),
        pytest.param(COUNTS * np.where(RATES > 20, -1, 1), WORDS, "standard", id="both signs"),
        pytest.param(COUNTS + (RATES > 0.02), WORDS, "standard", id="few zeros"),
    ],
)
def test_counts_of_which_most_are_zero_keep_their_scale(rows, names, scale):
    proposed, why = propose_scale(rows, names)
    assert proposed == scale, why

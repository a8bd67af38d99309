"""The proposed scaling of counts. Other tables are in tests/jobs/test_init_columns.py."""

import numpy as np
import pytest

from lle.inputs.propose_scale import propose_scale

RNG = np.random.default_rng(31)
RATES = RNG.permutation(np.geomspace(0.003, 30, 60))
"""Counts of most words are 0 in most rows, but the others have most of the variance."""
COUNTS = RNG.poisson(RATES * RNG.gamma(2, 0.5, (3000, 1)))
WORDS = [f"word_{number}" for number in range(60)]
GENES = 1.1 * RNG.poisson(RNG.permutation(np.geomspace(0.05, 30, 500)) * RNG.gamma(0.5, 2.0, (200, 500)))
"""Expected counts, which vary more than counts of words."""


@pytest.mark.parametrize(
    ("rows", "names", "scale"),
    [
        pytest.param(COUNTS, WORDS, "none", id="words"),
        pytest.param(COUNTS, [], "standard", id="no names"),
        pytest.param(GENES, [], "none", id="genes"),
        pytest.param(GENES[:, ::2], [], "standard", id="fewer columns"),
        pytest.param(np.c_[GENES, RNG.gamma(2, 5000.0, 200)], [], "standard", id="genes and an income"),
        pytest.param(GENES + 1, [], "standard", id="many columns without zeros"),
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


def test_columns_that_hardly_count_are_named():
    rows, names = RNG.normal(size=(500, 4)) * [5.0, 3.0, 0.4, 0.0], ["length", "width", "mass", "constant"]
    scale, why = propose_scale(rows, names)
    assert scale == "none"
    assert "columns keep their scale (less than 1 % of the variance: mass); standard" in why
    assert "keep their scale; standard" in propose_scale(rows, ["x1", "x2", "x3", "x4"])[1]
    assert "keep their scale; standard" in propose_scale(np.sign(rows) * np.abs(rows) ** 0.5, names)[1]


def test_numbers_whose_variance_overflows_give_no_warning():
    assert propose_scale(RNG.random((99, 3)) * 1e300, ["a", "b", "c"])[0] == "none"

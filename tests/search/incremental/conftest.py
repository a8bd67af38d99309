"""A job whose input gains rows from run to run."""

import numpy as np
import pytest

from tests.support.appended_rows import MORE, N, Night
from tests.support.points import swiss_roll


@pytest.fixture
def points():
    return swiss_roll(N + 3 * MORE, np.random.default_rng(31))


@pytest.fixture
def night(tmp_path, points):
    return Night(tmp_path, points, "kdtree")

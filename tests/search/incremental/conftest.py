"""A job whose input gains rows from run to run."""

import numpy as np
import pytest

from lle.stages import registry
from tests.support.appended_rows import MORE, N, Night
from tests.support.points import swiss_roll
from tests.support.toy_stages import TOY_STAGES

SEARCH = ("ingest", "order_points", "find_neighbors", "mend_graph")


@pytest.fixture
def points():
    return swiss_roll(N + 3 * MORE, np.random.default_rng(31))


@pytest.fixture
def night(tmp_path, points):
    return Night(tmp_path, points, "kdtree")


@pytest.fixture
def search_only(monkeypatch):
    """Runs have the real stages up to the graph, and toy stages after it."""
    monkeypatch.setattr(registry, "STAGES", {**{name: registry.STAGES[name] for name in SEARCH}, **TOY_STAGES})

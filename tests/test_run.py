"""Choices a run makes before its first step."""

import pytest

from pipeline.config import Cluster
from pipeline.plan import Layout
from pipeline.run import _worthwhile


@pytest.mark.parametrize(
    ("asked", "n", "kind"),
    [
        (Cluster(kind="local"), 500, "serial"),
        (Cluster(kind="local"), 501, "local"),
        (Cluster(kind="local", workers=2), 500, "local"),
        (Cluster(kind="address", address="tcp://scheduler:8786"), 500, "address"),
    ],
)
def test_one_block_needs_no_workers_unless_they_are_asked_for(asked, n, kind):
    assert _worthwhile(asked, Layout(n, 3, "float64", 500)).kind == kind

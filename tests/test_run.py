"""Choices a run makes before its first step."""

import pytest

from pipeline.config import Cluster, Config, KubernetesCluster
from pipeline.plan import Layout, Step
from pipeline.run import _worthwhile, where


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


def test_whole_data_steps_run_where_the_memory_is():
    steps = [Step("s", "n", print, 1, 1, {}, on_driver=on_driver, uses_client=uses_client)
             for on_driver, uses_client in ((False, False), (True, False), (True, True))]  # fmt: skip
    found = []
    for cluster in (Cluster(), KubernetesCluster(kind="kubernetes"),
                    Cluster(kind="address", address="tcp://x:1", memory_resource="BIG")):  # fmt: skip
        config = Config.model_validate({
            "input": {"kind": "npy", "path": "x"}, "output": {"store": "y"}, "execution": {"cluster": cluster},
        })  # fmt: skip
        found.append([where(step, config) for step in steps])
    assert found == [["worker", "driver", "driver"], *2 * [["worker", "high-memory worker", "driver"]]]

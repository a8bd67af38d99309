"""Serial runs: the scheduler of Dask while runs of several Python threads overlap."""

import contextlib

import dask

from pipeline.clusters.connect import connect
from pipeline.config.models import Cluster


def test_overlapping_serial_runs_reset_the_scheduler_of_dask():
    with contextlib.ExitStack() as second:
        with connect(Cluster(kind="serial")):
            second.enter_context(connect(Cluster(kind="serial")))
            assert dask.config.get("scheduler") == "synchronous"
        assert dask.config.get("scheduler") == "synchronous"
    assert dask.config.get("scheduler", None) is None

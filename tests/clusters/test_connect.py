"""Serial runs: Dask is loaded on demand, and its scheduler while runs of several Python threads overlap."""

import contextlib

import dask

from lle.clusters.connect import connect, use_synchronous_dask
from lle.config.models import Cluster


def test_overlapping_serial_runs_reset_the_scheduler_of_dask():
    with contextlib.ExitStack() as second:
        with connect(Cluster(kind="serial")):
            second.enter_context(connect(Cluster(kind="serial")))
            use_synchronous_dask()
            assert dask.config.get("scheduler") == "synchronous"
        assert dask.config.get("scheduler") == "synchronous"
    assert dask.config.get("scheduler", None) is None


def test_without_a_serial_run_the_scheduler_of_dask_is_not_set():
    with connect(Cluster(kind="serial")):
        pass
    use_synchronous_dask()
    assert dask.config.get("scheduler", None) is None

"""Serial runs load Dask on demand, and set its scheduler while several overlap; local workers that do not start."""

import contextlib
import subprocess
import sys

import dask
import pytest

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


@pytest.mark.slow
def test_a_script_without_a_main_guard_ends_with_one_short_error(tmp_path):
    """Its workers import the script, so each would start workers of its own; their tracebacks are not shown."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy\nfrom lle import embed\n"
        "cluster = {'kind': 'local', 'workers': 1}\n"
        "execution = {'cluster': cluster, 'lock_wait': 100}\n"
        "points = numpy.random.default_rng(0).normal(size=(200, 3))\n"
        f"embed(points, store={str(tmp_path / 'x.zarr')!r}, execution=execution)"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1
    assert 'as a file, and make the call below `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]
    assert len(ended.stderr.splitlines()) < 10

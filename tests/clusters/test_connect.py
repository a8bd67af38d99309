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
@pytest.mark.parametrize("is_file", [True, False])
def test_a_script_needs_no_main_guard(tmp_path, is_file):
    """Neither its workers, also one in place of a lost one, nor a process of the eigensolver import the script."""
    script = (
        "import os, signal\nimport numpy\nfrom helper import answer\nfrom lle import embed\n"
        "from lle.clusters.connect import connect\nfrom lle.config.models import Cluster\n"
        "from lle.engine.subprocess_call import call\n"
        "print('runs', __name__)\n"
        "execution = {'cluster': {'kind': 'local', 'workers': 1}}\n"
        "points = numpy.random.default_rng(0).normal(size=(200, 3))\n"
        "embed(points, store='x.zarr', execution=execution)\n"
        "print(call(answer, (), None)[0])\n"
        "with connect(Cluster(kind='local', workers=1)) as client:\n"
        "    pid = client.submit(os.getpid).result()\n"
        "    os.kill(pid, signal.SIGKILL)\n"
        "    print(client.submit(os.getpid, pure=False).result() != pid)\n"
    )
    (tmp_path / "helper.py").write_text("def answer(send):\n    return 'answer'\n")
    (tmp_path / "script.py").write_text(script)
    command, given = ([sys.executable, "script.py"], None) if is_file else ([sys.executable], script)
    ended = subprocess.run(command, input=given, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["runs __main__", "answer", "True"]

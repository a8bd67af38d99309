"""What zarr and its compressor leave behind when a process is killed."""

import multiprocessing
import os
import signal
import subprocess
import sys

from numcodecs import blosc

from tests.support.paths import REPOSITORY


def compress_and_die() -> None:
    import lle.storage.zarr_stores  # noqa: F401 (as in a worker)

    blosc.compress(bytes(1000), b"zstd", 1)
    os.kill(os.getpid(), signal.SIGKILL)


def start_one_that_dies() -> None:
    process = multiprocessing.get_context("spawn").Process(target=compress_and_die)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_a_killed_process_leaves_no_semaphore_behind():
    """Python prints at the end of a run which named semaphores its processes have left."""
    code = "from tests.storage import test_zarr_stores; test_zarr_stores.start_one_that_dies()"
    process = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert (process.returncode, process.stderr) == (0, "")

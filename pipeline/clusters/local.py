"""Worker processes on this machine."""

import contextlib
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker

import dask
from distributed import Client, LocalCluster, Nanny, Status

from ..config.models import Cluster
from ..core.errors import LleError
from ..core.machine import WORKER_PROFILE
from ..core.main_script import hidden_main_script
from .limits import memory_of_workers, n_workers, require_shared_memory

# NUMBA_NUM_THREADS is not set here: Dask sets these variables in this process too while it starts a worker. Numba reads
# its variable at every compilation, and fails if it differs from the number of threads that it has started.
WORKER_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# Large arrays are returned when they are freed, so they do not add to a later task's peak. Memory of smaller ones is
# kept for the next array: to return it would cost a page fault for every 4 KiB.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(4 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(16 * 2**20)}


class QuietCluster(LocalCluster):  # type: ignore[misc]
    """Workers that get no SIGINT: Ctrl-C reaches all processes of a terminal, but the driver decides."""

    async def _start(self) -> None:
        resource_tracker.ensure_running()  # its start would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # of this event loop's thread and its children
        await super()._start()


class ScriptFreeNanny(Nanny):  # type: ignore[misc]
    """Starts workers, also in place of lost ones, that do not import the script of the user."""

    async def instantiate(self) -> Status:
        with hidden_main_script():
            return await super().instantiate()


@contextlib.contextmanager
def local_cluster(cluster: Cluster) -> Iterator[Client]:
    """Worker processes of one thread each on this machine. Raises LleError if they do not start."""
    settings: dict[str, object] = {
        "distributed.nanny.pre-spawn-environ": WORKER_THREADS | MALLOC,
        "distributed.worker.daemon": True,
        "distributed.worker.profile.enabled": WORKER_PROFILE,
        "distributed.comm.timeouts.connect": "60s",
        # A killed worker may take longer to restart than Dask's default of 15 s. Dask would then drop it, and without
        # any worker the run would wait forever.
        "distributed.deploy.lost-worker-timeout": "1 hour",
        "distributed.scheduler.no-workers-timeout": "10 minutes",
    }
    workers = n_workers(cluster)
    require_shared_memory(workers)
    with dask.config.set(settings):
        try:
            local = QuietCluster(
                n_workers=workers,
                threads_per_worker=1,
                worker_class=ScriptFreeNanny,
                host="127.0.0.1",
                memory_limit=memory_of_workers(cluster),
                dashboard_address="127.0.0.1:0",
                silence_logs=50,
            )
        except RuntimeError as error:
            raise LleError(f"execution.cluster: the worker processes did not start ({error})") from error
        with local, Client(local) as client:
            yield client

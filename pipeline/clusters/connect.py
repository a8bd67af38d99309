"""Open the Dask client for the cluster section of a config."""

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, performance_report

from ..config.models import Cluster, KubernetesCluster, SlurmCluster
from ..core.machine import WORKER_PROFILE
from .existing_scheduler import address_cluster
from .kubernetes import kubernetes_cluster
from .limits import Section, n_workers, require_shared_memory, worker_memory
from .slurm import slurm_cluster

# NUMBA_NUM_THREADS is not set here: Dask sets these variables in this process too while it starts a worker. Numba reads
# its variable at every compilation, and fails if it differs from the number of threads that it has started.
WORKER_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
FREE_AT_ONCE = {
    "MALLOC_TRIM_THRESHOLD_": "65536"
}  # return freed memory, so that it does not add to a later task's peak


@contextlib.contextmanager
def connect(cluster: Section) -> Iterator[Client | None]:
    """A client for the cluster of the config, closed at the end; None for serial execution."""
    if isinstance(cluster, KubernetesCluster):
        connection: contextlib.AbstractContextManager[Client | None] = kubernetes_cluster(cluster)
    elif isinstance(cluster, SlurmCluster):
        connection = slurm_cluster(cluster)
    else:
        connection = {"serial": _serial, "local": _local, "address": address_cluster}[cluster.kind](cluster)
    with connection as client:
        yield client


@contextlib.contextmanager
def _serial(cluster: Cluster) -> Iterator[None]:
    require_shared_memory(0)
    with _SYNCHRONOUS:
        yield None


class _Synchronous:
    """Dask's synchronous scheduler, for the whole process; the last of several overlapping runs resets it."""

    def __init__(self) -> None:
        self._lock, self._n_runs = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._n_runs:
                self._setting = dask.config.set(scheduler="synchronous")
            self._n_runs += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_runs -= 1
            if not self._n_runs:
                self._setting.__exit__(*error)


_SYNCHRONOUS = _Synchronous()


@contextlib.contextmanager
def performance(client: Client | None) -> Iterator[list[bytes]]:
    """Record the work of the cluster. At the end the list holds Dask's performance page (empty without a client)."""
    pages: list[bytes] = []
    if client is None:
        yield pages
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "performance.html"
        with performance_report(filename=str(page), mode="inline"):  # inline: the page works without a network
            yield pages
        pages.append(page.read_bytes())


@contextlib.contextmanager
def _local(cluster: Cluster) -> Iterator[Client]:
    """Worker processes of one thread each on this machine."""
    settings: dict[str, Any] = {
        "distributed.nanny.pre-spawn-environ": WORKER_THREADS | FREE_AT_ONCE,
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
        local = LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1",
            memory_limit=worker_memory(cluster), dashboard_address="127.0.0.1:0", silence_logs=50,
        )  # fmt: skip
        with local, Client(local) as client:
            yield client

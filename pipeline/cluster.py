"""Where tasks run: a config section in, a Dask client out. Later kinds of cluster are added here and nowhere else."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, performance_report

from pipeline.config import Cluster
from pipeline.errors import ConfigError, LleError
from pipeline.machine import available_cores, available_memory

MEMORY_SHARE = 0.8
WAIT_SECONDS = 30
WORKER_THREADS = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
FREE_AT_ONCE = {"MALLOC_TRIM_THRESHOLD_": "65536"}  # so that a task's peak does not hold what the last one has freed


def worker_memory(cluster: Cluster) -> int:
    """Bytes each worker may take."""
    if cluster.memory != "auto":
        return int(cluster.memory)
    return int(MEMORY_SHARE * available_memory() / n_workers(cluster))


def memory_of_workers(cluster: Cluster) -> int | None:
    """Bytes each worker may take, as far as it is known before there are workers."""
    return worker_memory(cluster) if cluster.memory != "auto" or cluster.kind in {"serial", "local"} else None


def n_workers(cluster: Cluster) -> int:
    """Workers of a local cluster; `serial` is one."""
    if cluster.kind == "serial":
        return 1
    return available_cores() if cluster.workers == "auto" else cluster.workers


@contextlib.contextmanager
def connect(cluster: Cluster) -> Iterator[Client | None]:
    """A client for the cluster the config names, closed at the end; None for serial execution."""
    if cluster.kind == "serial":
        with dask.config.set(scheduler="synchronous"):
            yield None
    elif cluster.kind == "local":
        with _local(cluster) as client:
            yield client
    elif cluster.kind == "address":
        with _remote(str(cluster.address)) as client:
            yield client
    else:
        raise ConfigError(
            f"execution.cluster.kind: {cluster.kind} clusters cannot be started by this version; start the workers "
            f"yourself and use kind: address, or use kind: local"
        )


@contextlib.contextmanager
def performance(client: Client | None) -> Iterator[list[bytes]]:
    """Records what the cluster does; the list then holds Dask's page about it (none without a client)."""
    pages: list[bytes] = []
    if client is None:
        yield pages
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "performance.html"
        with performance_report(filename=str(page), mode="inline"):  # mode: the page opens without a network
            yield pages
        pages.append(page.read_bytes())


@contextlib.contextmanager
def _local(cluster: Cluster) -> Iterator[Client]:
    """Worker processes of one thread each on this machine."""
    settings: dict[str, Any] = {
        "distributed.nanny.pre-spawn-environ": WORKER_THREADS | FREE_AT_ONCE,
        "distributed.worker.daemon": True,
        "distributed.comm.timeouts.connect": "60s",
        # A killed worker that takes more than Dask's 15 s to start again would be given up, and with the last one the
        # run would wait for ever.
        "distributed.deploy.lost-worker-timeout": "1 hour",
        "distributed.scheduler.no-workers-timeout": "10 minutes",
    }
    with dask.config.set(settings):
        local = LocalCluster(
            n_workers=n_workers(cluster), threads_per_worker=1, processes=True, host="127.0.0.1",
            memory_limit=worker_memory(cluster), dashboard_address="127.0.0.1:0", silence_logs=50,
        )  # fmt: skip
        with local, Client(local) as client:
            yield client


@contextlib.contextmanager
def _remote(address: str) -> Iterator[Client]:
    try:
        client = Client(address, timeout="30s")
    except (OSError, TimeoutError, ValueError) as error:
        raise LleError(f"execution.cluster.address {address}: no scheduler answers ({error}); is it up?") from None
    with client:
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(1, timeout=WAIT_SECONDS)  # they may just be starting, or starting again
        if not client.scheduler_info()["workers"]:
            raise LleError(f"execution.cluster.address {address}: the scheduler has no workers; start some first")
        yield client

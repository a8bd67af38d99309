"""Where tasks run: a config section in, a Dask client out. Other machines' clusters are in clusters/."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, performance_report

from pipeline.clusters.existing_scheduler import address_cluster
from pipeline.clusters.kubernetes import MEMORY_RESOURCE, kubernetes_cluster
from pipeline.clusters.slurm import slurm_cluster
from pipeline.config.models import Cluster, KubernetesCluster, SlurmCluster
from pipeline.core.machine import available_cores, available_memory

MEMORY_SHARE = 0.8
# no NUMBA_NUM_THREADS: Dask sets these in this process too while it spawns a worker, and numba, which reads its
# variable again at every compilation, refuses to go on once the number differs from that of the threads it has started
WORKER_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
FREE_AT_ONCE = {"MALLOC_TRIM_THRESHOLD_": "65536"}  # so that a task's peak does not hold what the last one has freed
POD_SHARE = 0.9  # of a pod's memory, the limit of its worker: k8s/base/worker.yaml

Section = Cluster | KubernetesCluster | SlurmCluster


def worker_memory(cluster: Cluster) -> int:
    """Bytes each worker may take."""
    if cluster.memory != "auto":
        return int(cluster.memory)
    return int(MEMORY_SHARE * available_memory() / n_workers(cluster))


def memory_of_workers(cluster: Section) -> int | None:
    """Bytes each worker may take, as far as it is known before there are workers."""
    if isinstance(cluster, KubernetesCluster):
        return int(POD_SHARE * cluster.memory) if isinstance(cluster.memory, int) else None
    if isinstance(cluster, Cluster) and cluster.kind != "address":
        return worker_memory(cluster)
    return cluster.memory if isinstance(cluster.memory, int) else None


def memory_of_high_memory(cluster: Section) -> int | None:
    """The same of the workers that take whole-data steps."""
    found = cluster.high_memory if isinstance(cluster, KubernetesCluster) else None
    return found if isinstance(found, int) else None


def n_workers(cluster: Cluster) -> int:
    """Workers of a local cluster; `serial` is one."""
    if cluster.kind == "serial":
        return 1
    return available_cores() if cluster.workers == "auto" else cluster.workers


def memory_resource(cluster: Section) -> str | None:
    """The resource that the workers for whole-data steps offer; None where those steps run in the driver."""
    if isinstance(cluster, KubernetesCluster):
        return MEMORY_RESOURCE
    return cluster.memory_resource if isinstance(cluster, Cluster) else None


@contextlib.contextmanager
def connect(cluster: Section) -> Iterator[Client | None]:
    """A client for the cluster the config names, closed at the end; None for serial execution."""
    if isinstance(cluster, KubernetesCluster):
        opened: contextlib.AbstractContextManager[Client | None] = kubernetes_cluster(cluster)
    elif isinstance(cluster, SlurmCluster):
        opened = slurm_cluster(cluster)
    else:
        opened = {"serial": _serial, "local": _local, "address": address_cluster}[cluster.kind](cluster)
    with opened as client:
        yield client


@contextlib.contextmanager
def _serial(cluster: Cluster) -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield None


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

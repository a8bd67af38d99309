"""Where tasks run: a config section in, a Dask client out. Other machines' clusters are in clusters/."""

import contextlib
from collections.abc import Iterator
from typing import Any

import dask
from distributed import Client, LocalCluster

from pipeline.clusters.address import address_cluster
from pipeline.clusters.kubernetes import MEMORY_RESOURCE, kubernetes_cluster
from pipeline.clusters.slurm import slurm_cluster
from pipeline.config import Cluster, KubernetesCluster, SlurmCluster
from pipeline.machine import available_cores, available_memory

MEMORY_SHARE = 0.8
# no NUMBA_NUM_THREADS: Dask sets these in this process too while it spawns a worker, and numba, which reads its
# variable again at every compilation, refuses to go on once the number differs from that of the threads it has started
WORKER_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

Section = Cluster | KubernetesCluster | SlurmCluster


def worker_memory(cluster: Cluster) -> int:
    """Bytes each worker may take."""
    if cluster.memory != "auto":
        return int(cluster.memory)
    return int(MEMORY_SHARE * available_memory() / n_workers(cluster))


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
def _local(cluster: Cluster) -> Iterator[Client]:
    """Worker processes of one thread each on this machine."""
    settings: dict[str, Any] = {
        "distributed.nanny.pre-spawn-environ": WORKER_THREADS,
        "distributed.worker.daemon": True,
        "distributed.comm.timeouts.connect": "60s",
    }
    with dask.config.set(settings):
        local = LocalCluster(
            n_workers=n_workers(cluster), threads_per_worker=1, processes=True, host="127.0.0.1",
            memory_limit=worker_memory(cluster), dashboard_address="127.0.0.1:0", silence_logs=50,
        )  # fmt: skip
        with local, Client(local) as client:
            yield client

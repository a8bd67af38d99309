"""Memory, number and resource of the workers that a cluster section stands for, known before a cluster is there."""

from ..config.models import Cluster, KubernetesCluster, SlurmCluster
from ..core.machine import available_cores, available_memory

MEMORY_RESOURCE = "MEMORY"
MEMORY_SHARE = 0.8
POD_SHARE = 0.9  # share of a pod's memory that is its worker's limit: k8s/base/worker.yaml

Section = Cluster | KubernetesCluster | SlurmCluster


def worker_memory(cluster: Cluster) -> int:
    """Memory limit of each worker of a local cluster, in bytes."""
    if cluster.memory != "auto":
        return int(cluster.memory)
    return int(MEMORY_SHARE * available_memory() / n_workers(cluster))


def memory_of_workers(cluster: Section) -> int | None:
    """Memory limit of each worker in bytes; None if it is known only from running workers."""
    if isinstance(cluster, KubernetesCluster):
        return int(POD_SHARE * cluster.memory) if isinstance(cluster.memory, int) else None
    if isinstance(cluster, Cluster) and cluster.kind != "address":
        return worker_memory(cluster)
    return cluster.memory if isinstance(cluster.memory, int) else None


def memory_of_high_memory(cluster: Section) -> int | None:
    """Memory limit of the workers for whole-data steps in bytes; None if it is not in the config."""
    memory = cluster.high_memory if isinstance(cluster, KubernetesCluster) else None
    return memory if isinstance(memory, int) else None


def n_workers(cluster: Cluster) -> int:
    """Number of workers of a local cluster; 1 for `serial`."""
    if cluster.kind == "serial":
        return 1
    return available_cores() if cluster.workers == "auto" else cluster.workers


def expected_workers(cluster: Section) -> int | None:
    """Number of workers that a run will have; None for `serial` and for an existing scheduler."""
    if not isinstance(cluster, Cluster):
        return cluster.workers
    return n_workers(cluster) if cluster.kind == "local" else None


def memory_resource(cluster: Section) -> str | None:
    """The Dask resource of the workers for whole-data steps; None if those steps run in the driver."""
    if isinstance(cluster, KubernetesCluster):
        return MEMORY_RESOURCE
    return cluster.memory_resource if isinstance(cluster, Cluster) else None

"""Memory, number and resource of workers from the cluster section of a config, before the cluster exists."""

import mmap
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from ..config.models import Cluster, KubernetesCluster, SlurmCluster
from ..core.errors import LleError
from ..core.machine import available_cores, available_memory, total_memory

if TYPE_CHECKING:
    from distributed import Client

MEMORY_RESOURCE = "MEMORY"
MEMORY_SHARE = 0.8
AUTO_WORKER_BYTES = 2**30
"""Least memory of a worker that `workers: auto` adds; a worker's libraries take about 0.4 GiB of it."""
SHARED_MEMORY, PAGE_SIZE = Path("/dev/shm"), mmap.PAGESIZE
WORKER_PAGES, DRIVER_PAGES = 9, 4
"""Pages of shared memory: for each worker two queues of three semaphores, OpenMP and a margin; for the driver together
with the process of a large eigensolve, OpenMP and a margin."""
POD_SHARE = 0.9  # share of a pod's memory that is its worker's limit: k8s/base/worker.yaml

Section = Cluster | KubernetesCluster | SlurmCluster


def memory_is_in_use(cluster: Section, worker_bytes: int) -> bool:
    """Whether workers of this size, or one thread, would fit this machine if other programs used less memory."""
    if not isinstance(cluster, Cluster) or cluster.kind == "address" or cluster.memory != "auto":
        return False
    n_together = 1 if may_have_threads(cluster) else n_workers(cluster)
    return worker_bytes * n_together <= MEMORY_SHARE * total_memory()


def memory_of_workers(cluster: Section) -> int | None:
    """Memory limit of each worker in bytes; None if it is known only from running workers."""
    if isinstance(cluster.memory, int):
        return int(POD_SHARE * cluster.memory) if isinstance(cluster, KubernetesCluster) else cluster.memory
    if isinstance(cluster, Cluster) and cluster.kind != "address":
        return int(MEMORY_SHARE * available_memory() / n_workers(cluster))
    return None


def is_on_this_machine(cluster: Section) -> bool:
    return isinstance(cluster, Cluster) and cluster.kind in ("serial", "local")


def may_have_threads(cluster: Section) -> TypeGuard[Cluster]:
    """Whether threads of this process may compute in place of workers."""
    return isinstance(cluster, Cluster) and cluster.kind == "local" and cluster.workers == "auto"


def without_workers(cluster: Cluster) -> Cluster:
    """The section of the same run in this process."""
    return cluster.model_copy(update={"kind": "serial"})


def memory_of_task(cluster: Section) -> int | None:
    """The most memory in bytes that a task may need together with its process; None if workers must run to know it.

    It is that of a worker. With `workers: auto` a single thread computes if no more tasks fit at one time.
    """
    return memory_of_workers(without_workers(cluster) if may_have_threads(cluster) else cluster)


def memory_of_high_memory(cluster: Section) -> int | None:
    """Memory limit of the workers for whole-data steps in bytes; None if it is not in the config."""
    memory = cluster.high_memory if isinstance(cluster, KubernetesCluster) else None
    return memory if isinstance(memory, int) else None


def n_workers(cluster: Cluster) -> int:
    """Number of workers of a local cluster; 1 for `serial`."""
    if cluster.kind == "serial":
        return 1
    if cluster.workers != "auto":
        return cluster.workers
    each = cluster.memory if isinstance(cluster.memory, int) else AUTO_WORKER_BYTES
    return max(1, min(available_cores(), int(MEMORY_SHARE * total_memory() / each)))


def require_shared_memory(workers: int) -> None:
    """Raise LleError if /dev/shm cannot hold what this process and `workers` local worker processes put there.

    Each semaphore takes a page, and so does Intel's OpenMP in each process: without it, SIGBUS ends the process.
    """
    needed = (WORKER_PAGES * workers + DRIVER_PAGES) * PAGE_SIZE
    free = 0 if workers else needed  # if it is missing or cannot be written: only workers have semaphores
    if os.access(SHARED_MEMORY, os.W_OK):
        status = os.statvfs(SHARED_MEMORY)
        free = status.f_bavail * status.f_frsize if status.f_blocks else needed  # without blocks: no limit
    if sys.platform != "linux" or free >= needed:
        return
    raise LleError(
        f"{SHARED_MEMORY}: expected {needed >> 10} KiB for this process and {workers} local workers, but "
        f"{free >> 10} KiB can be written. Give the container more of it (docker run --shm-size 64m; Kubernetes: an "
        f"emptyDir with medium: Memory at {SHARED_MEMORY})" + f", lower execution.cluster.workers (now {workers}), or "
        "set execution.cluster.kind: serial" * (workers > 0)
    )


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


def workers_of(client: "Client") -> dict[str, dict[str, Any]]:
    """What the scheduler knows of each worker, by address. Raises LleError if it does not answer.

    `Client.scheduler_info` of Dask 2026.6 can lack workers that are there: its answer is an attribute, which an update
    without workers replaces every few seconds.
    """
    from distributed.utils_comm import retry

    request = partial(client.scheduler.identity, n_workers=-1)
    try:
        # After a cut connection, the second request opens another one.
        answer = client.sync(retry, request, count=1, delay_min=0.1, delay_max=1.0)
    except OSError as error:
        raise LleError(f"the Dask scheduler was lost ({error}); run again to resume") from None
    workers: dict[str, dict[str, Any]] = answer["workers"]
    return workers

"""Open the Dask client for the cluster section of a config. Clusters are imported on demand: Dask takes 0.2 seconds."""

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..config.models import KubernetesCluster, SlurmCluster
from .limits import Section, require_shared_memory

if TYPE_CHECKING:
    from distributed import Client


def connect(cluster: Section) -> "contextlib.AbstractContextManager[Client | None]":
    """A client for the cluster of the config, closed at the end; None for serial execution, which loads no Dask."""
    if isinstance(cluster, KubernetesCluster):
        from .kubernetes import kubernetes_cluster

        return kubernetes_cluster(cluster)
    if isinstance(cluster, SlurmCluster):
        from .slurm import slurm_cluster

        return slurm_cluster(cluster)
    if cluster.kind == "address":
        from .existing_scheduler import address_cluster

        return address_cluster(cluster)
    if cluster.kind == "local":
        from .local import local_cluster

        return local_cluster(cluster)
    return _serial_run()


_LOCK, _SERIAL_RUNS, _DASK_SETTINGS = threading.Lock(), list[object](), contextlib.ExitStack()


@contextlib.contextmanager
def _serial_run() -> Iterator[None]:
    """Around a run without a cluster; the last of several overlapping ones resets the scheduler of Dask."""
    require_shared_memory(0)
    with _LOCK:
        _SERIAL_RUNS.append(None)
    try:
        yield
    finally:
        with _LOCK:
            _SERIAL_RUNS.pop()
            if not _SERIAL_RUNS:
                _DASK_SETTINGS.close()


def use_synchronous_dask() -> None:
    """Set Dask's synchronous scheduler for the rest of the serial runs in progress; without one, do nothing.

    Call it before Dask computes anything in the driver: its default would be threads, or a client of the user's own.
    """
    with _LOCK:
        if _SERIAL_RUNS:
            import dask  # 0.08 s

            _DASK_SETTINGS.enter_context(dask.config.set(scheduler="synchronous"))

"""A DaskCluster for one run: created or adopted at the start, and deleted at the end, also after errors.

The cluster has the name of the Job, so the next pod of the same Job finds the cluster of a killed one: it is adopted if
it has the same specification, else deleted first. If the deletion at the end fails, three mechanisms remain: garbage
collection (the Job owns the cluster), the operator's idle_timeout, and the next run with the same name.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

from distributed import Client

from pipeline.clusters.existing_scheduler import connected
from pipeline.clusters.kubernetes_api import CLUSTERS, GROUPS, Json, KubernetesApi
from pipeline.clusters.kubernetes_manifests import Pods, Size, dask_cluster, fitting_name, memory_group, same_spec
from pipeline.clusters.version_check import check_versions
from pipeline.config.models import KubernetesCluster
from pipeline.core.errors import LleError
from pipeline.core.signals import STOP_SIGNALS

MEMORY_RESOURCE = "MEMORY"
POLL_SECONDS = 1.0
GONE_SECONDS = 60
UNHEALTHY_SHOWN = 5


@contextlib.contextmanager
def kubernetes_cluster(cluster: KubernetesCluster) -> Iterator[Client]:
    """A client of a cluster created for this run.

    Raises ConfigError if no retry can help (no operator, no rights, no templates, different versions), LleError if pods
    do not start in time or the cluster could not be deleted after a successful run.
    """
    api = KubernetesApi(cluster.namespace)
    name = _name(cluster)
    pods = Pods(*(api.pod_template(f"{cluster.templates}-{part}") for part in ("scheduler", "worker", "memory")))
    size = Size(cluster.workers, _bytes(cluster.memory), _bytes(cluster.high_memory), cluster.idle_timeout)
    deadline = time.monotonic() + cluster.start_timeout
    failed = True
    try:
        _create_or_adopt(api, name, pods, size, deadline)
        where = f"DaskCluster {name} in namespace {api.namespace}"
        with _explained(api, name):
            address = _scheduler_address(api, name, deadline)
            with connected(address, where, max(1.0, deadline - time.monotonic())) as client:
                _wait_for_workers(client, deadline, where)
                check_versions(client, where)
                yield client
        failed = False
    finally:
        _delete(api, name, failed)


def _name(cluster: KubernetesCluster) -> str:
    """The name from the config, else of the Job (by the downward API), else from the user and this process."""
    if cluster.name != "auto":
        return cluster.name
    return fitting_name(os.environ.get("LLE_CLUSTER_NAME") or f"lle-{os.environ.get('USER', 'run')}-{os.getpid()}")


def _bytes(size: int | str) -> int | None:
    return size if isinstance(size, int) else None


def _job() -> Json | None:
    """The Job as owner of the cluster, if the pod's environment names it."""
    name, uid = os.environ.get("LLE_JOB_NAME"), os.environ.get("LLE_JOB_UID")
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid} if name and uid else None


def _create_or_adopt(api: KubernetesApi, name: str, pods: Pods, size: Size, deadline: float) -> None:
    """Ensure that exactly one cluster of this name and specification exists, with its high-memory group."""
    manifest = dask_cluster(name, pods, size, _job())
    while True:
        cluster = api.get(CLUSTERS, name) or api.create(CLUSTERS, manifest)
        if cluster is not None and same_spec(cluster, manifest) and not _is_being_deleted(cluster):
            break
        if cluster is not None and not _is_being_deleted(cluster):
            api.delete(CLUSTERS, name)
        _pause(deadline, f"DaskCluster {name}: an older one of that name is still being deleted; is the operator up?")
    owner = {
        "apiVersion": manifest["apiVersion"], "kind": "DaskCluster", "name": name, "uid": cluster["metadata"]["uid"],
    }  # fmt: skip
    group = memory_group(name, pods, size, owner)
    while True:
        existing_group = api.get(GROUPS, group["metadata"]["name"]) or api.create(GROUPS, group)
        if existing_group is not None and same_spec(existing_group, group) and not _is_being_deleted(existing_group):
            return
        if existing_group is not None and not _is_being_deleted(existing_group):
            api.delete(GROUPS, group["metadata"]["name"])
        _pause(deadline, f"DaskWorkerGroup {group['metadata']['name']}: an older one is still being deleted")


def _is_being_deleted(resource: Json) -> bool:
    return "deletionTimestamp" in resource["metadata"]


def _scheduler_address(api: KubernetesApi, name: str, deadline: float) -> str:
    """tcp:// address of the scheduler's service. The cluster's own status.phase is not reliable."""
    while (address := api.service_address(f"{name}-scheduler", "tcp-comm")) is None:
        _pause(deadline, f"DaskCluster {name}: no service {name}-scheduler appeared; is the Dask operator running?")
    return f"tcp://{address}"


def _wait_for_workers(client: Client, deadline: float, where: str) -> None:
    """Wait for one ordinary worker and the high-memory worker; others may join during the run."""
    while True:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        high_memory = [worker for worker in workers if worker["resources"].get(MEMORY_RESOURCE, 0) >= 1]
        if high_memory and len(workers) > len(high_memory):
            return
        started = f"{len(high_memory)} of 1 high-memory workers and {len(workers) - len(high_memory)} ordinary ones"
        _pause(deadline, f"{where}: only {started} started before execution.cluster.start_timeout")


def _pause(deadline: float, reason: str) -> None:
    if time.monotonic() > deadline:
        raise LleError(reason)
    time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _explained(api: KubernetesApi, name: str) -> Iterator[None]:
    """Add the reasons why pods do not run to an error message."""
    try:
        yield
    except LleError as error:
        if type(error) is not LleError:
            raise
        reasons: list[str] = []
        with contextlib.suppress(LleError):
            reasons = [text for pod in api.pods(f"dask.org/cluster-name={name}") if (text := _unhealthy(pod))]
        if reasons:
            raise LleError(f"{error}. Pods: {'; '.join(reasons[:UNHEALTHY_SHOWN])}") from None
        raise


def _unhealthy(pod: Json) -> str:
    """Why a pod does not run; empty if it runs."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    for container in status.get("containerStatuses", ()):
        state = container.get("state", {}).get("waiting")
        if state and state.get("reason") != "ContainerCreating":
            return f"{name}: {state.get('reason')} {state.get('message', '')}".strip()
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return f"{name}: {condition.get('reason')} {condition.get('message', '')}".strip()
    return "" if status.get("phase") in {"Running", "Succeeded"} else f"{name}: {status.get('phase', 'unknown')}"


def _delete(api: KubernetesApi, name: str, failed: bool) -> None:
    """Delete the cluster and wait until it is gone, ignoring signals. An error here never hides the run's error."""
    with _signals_ignored():
        try:
            api.delete(CLUSTERS, name)
            deadline = time.monotonic() + GONE_SECONDS
            while api.get(CLUSTERS, name) is not None:
                _pause(deadline, f"DaskCluster {name} still exists {GONE_SECONDS} s after its deletion was requested")
        except LleError as error:
            text = f"{error}. Delete it by hand: kubectl delete daskcluster -n {api.namespace} {name}"
            if not failed:
                raise LleError(text) from None
            print(f"lle: {text}", file=sys.stderr)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM: the pod's grace period is for this deletion."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handlers = {number: signal.signal(number, signal.SIG_IGN) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)

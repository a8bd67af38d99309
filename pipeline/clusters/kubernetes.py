"""A DaskCluster of its own for one run: created or adopted at the start, deleted at the end, whatever the end is.

The cluster is named after the Job, so that the next pod of the same Job finds what a killed one left: a cluster of the
same making is adopted, any other is deleted first. Three things stand behind the deletion at the end: the Job owns the
cluster (garbage collection), the operator deletes an idle one (idle_timeout), and the next run of the same name.
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
    """A client of a cluster made for this run.

    Raises ConfigError for what no retry mends (no operator, no rights, no templates, versions that differ), LleError
    when pods do not start in time or when the cluster could not be deleted after a run that went well.
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
    """From the config, else from the Job (by the downward API), else from the user and this process."""
    if cluster.name != "auto":
        return cluster.name
    return fitting_name(os.environ.get("LLE_CLUSTER_NAME") or f"lle-{os.environ.get('USER', 'run')}-{os.getpid()}")


def _bytes(size: int | str) -> int | None:
    return size if isinstance(size, int) else None


def _job() -> Json | None:
    """The Job as the cluster's owner, where the pod's environment names it."""
    name, uid = os.environ.get("LLE_JOB_NAME"), os.environ.get("LLE_JOB_UID")
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid} if name and uid else None


def _create_or_adopt(api: KubernetesApi, name: str, pods: Pods, size: Size, deadline: float) -> None:
    """Leave exactly one cluster of this name and making, with its high-memory group."""
    wanted = dask_cluster(name, pods, size, _job())
    while True:
        found = api.get(CLUSTERS, name) or api.create(CLUSTERS, wanted)
        if found is not None and same_spec(found, wanted) and not _going(found):
            break
        if found is not None and not _going(found):
            api.delete(CLUSTERS, name)
        _pause(deadline, f"DaskCluster {name}: an older one of that name is still being deleted; is the operator up?")
    owner = {
        "apiVersion": wanted["apiVersion"], "kind": "DaskCluster", "name": name, "uid": found["metadata"]["uid"],
    }  # fmt: skip
    group = memory_group(name, pods, size, owner)
    while True:
        there = api.get(GROUPS, group["metadata"]["name"]) or api.create(GROUPS, group)
        if there is not None and same_spec(there, group) and not _going(there):
            return
        if there is not None and not _going(there):
            api.delete(GROUPS, group["metadata"]["name"])
        _pause(deadline, f"DaskWorkerGroup {group['metadata']['name']}: an older one is still being deleted")


def _going(resource: Json) -> bool:
    return "deletionTimestamp" in resource["metadata"]


def _scheduler_address(api: KubernetesApi, name: str, deadline: float) -> str:
    """tcp:// address of the scheduler's service. The cluster's own status.phase says nothing reliable."""
    while (address := api.service_address(f"{name}-scheduler", "tcp-comm")) is None:
        _pause(deadline, f"DaskCluster {name}: no service {name}-scheduler appeared; is the Dask operator running?")
    return f"tcp://{address}"


def _wait_for_workers(client: Client, deadline: float, where: str) -> None:
    """Until one ordinary and the high-memory worker are there; more may come while the run goes on."""
    while True:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        memory = [worker for worker in workers if worker["resources"].get(MEMORY_RESOURCE, 0) >= 1]
        if memory and len(workers) > len(memory):
            return
        found = f"{len(memory)} of 1 high-memory workers and {len(workers) - len(memory)} ordinary ones"
        _pause(deadline, f"{where}: {found} came before execution.cluster.start_timeout")


def _pause(deadline: float, reason: str) -> None:
    if time.monotonic() > deadline:
        raise LleError(reason)
    time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _explained(api: KubernetesApi, name: str) -> Iterator[None]:
    """Add to a failure what keeps the cluster's pods from running."""
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
    """Why a pod does not run; empty when it does."""
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
    """Delete the cluster and see it go, deaf to further signals. A failure of its own never hides the run's."""
    with _undisturbed():
        try:
            api.delete(CLUSTERS, name)
            deadline = time.monotonic() + GONE_SECONDS
            while api.get(CLUSTERS, name) is not None:
                _pause(deadline, f"DaskCluster {name} is still there {GONE_SECONDS} s after its deletion was asked for")
        except LleError as error:
            text = f"{error}. Delete it by hand: kubectl delete daskcluster -n {api.namespace} {name}"
            if not failed:
                raise LleError(text) from None
            print(f"lle: {text}", file=sys.stderr)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM meanwhile: the grace period is for this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

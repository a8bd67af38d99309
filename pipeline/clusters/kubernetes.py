"""A DaskCluster for one run: created or adopted at the start, deleted at the end, however the run ends.

The cluster is named after the Job, so that the next pod of the same Job finds the cluster that a killed pod left: it
is adopted if its spec is the same, else deleted first. A cluster that this program did not create, or that another Job
owns, is refused and never deleted. At the end the deletion is requested, not awaited: the operator's finalizer can keep
a young cluster for a minute. If the request fails, garbage collection (the Job owns the cluster) or the operator
(idle_timeout) deletes it later.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from distributed import Client

from ..config.models import KubernetesCluster
from ..core.errors import ConfigError, LleError
from ..core.signals import stop_signals_handled
from .existing_scheduler import connected
from .kubernetes_api import ATTEMPTS, CLUSTERS, GROUPS, REQUEST_SECONDS, KubernetesApi
from .kubernetes_manifests import PARTS, conflict, dask_cluster, fitting_name, memory_group, same_spec
from .kubernetes_pods import Json, Problem, problems
from .limits import MEMORY_RESOURCE, workers_of
from .version_check import check_versions

POLL_SECONDS = 1.0
WATCH_SECONDS = 15.0
RESUME = "run the same command again to resume"


@contextlib.contextmanager
def kubernetes_cluster(cluster: KubernetesCluster) -> Iterator[Client]:
    """A client of a cluster created for this run.

    Raises:
        ConfigError: no retry can help: there is no operator, the rights or the templates are missing, versions differ,
            or another program created a cluster of that name.
        LleError: pods do not start in time, another Job owns the cluster of that name, or the cluster is deleted during
            the run.
    """
    api = KubernetesApi(cluster.namespace)
    name = _name(cluster)
    templates = {part: api.pod_template(f"{cluster.templates}-{part}") for part in PARTS}
    deadline = time.monotonic() + cluster.start_timeout
    desired = dask_cluster(name, templates, cluster, _job())
    try:
        uid = _create_or_adopt(api, CLUSTERS, desired, deadline)
        owner = {"apiVersion": desired["apiVersion"], "kind": "DaskCluster", "name": name, "uid": uid}
        _create_or_adopt(api, GROUPS, memory_group(name, templates, cluster, owner), deadline)
        where = f"DaskCluster {name} in namespace {api.namespace}"
        with _explained(api, name):
            address = _scheduler_address(api, name, uid, deadline)
            with connected(address, where, max(1.0, deadline - time.monotonic())) as client:
                _wait_for_workers(api, name, uid, client, deadline)
                check_versions(client, where)
                with _watched(api, name, uid, client):
                    yield client
    finally:
        _delete(api, desired)


def _name(cluster: KubernetesCluster) -> str:
    """The name from the config, else of the Job (by the downward API), else from the user and this process."""
    if cluster.name != "auto":
        return cluster.name
    return fitting_name(os.environ.get("LLE_CLUSTER_NAME") or f"lle-{os.environ.get('USER', 'run')}-{os.getpid()}")


def _job() -> Json | None:
    """The Job as owner of the cluster, if the pod's environment names it."""
    name, uid = os.environ.get("LLE_JOB_NAME"), os.environ.get("LLE_JOB_UID")
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid} if name and uid else None


def _create_or_adopt(api: KubernetesApi, plural: str, desired: Json, deadline: float) -> str:
    """Ensure that one resource of this name and spec exists; returns its uid."""
    name = desired["metadata"]["name"]
    while True:
        existing = api.get(plural, name) or api.create(plural, desired)
        if existing is not None and (refusal := conflict(existing, desired)):
            raise refusal
        if existing is not None and same_spec(existing, desired) and not _is_being_deleted(existing):
            return str(existing["metadata"]["uid"])
        if existing is not None and not _is_being_deleted(existing):
            api.delete(plural, name, existing["metadata"]["uid"])
        kind = desired["kind"]
        _pause(deadline, f"{kind} {name}: an older one is still being deleted", "is the Dask operator running?")


def _is_being_deleted(resource: Json) -> bool:
    return "deletionTimestamp" in resource["metadata"]


def _scheduler_address(api: KubernetesApi, name: str, uid: str, deadline: float) -> str:
    """tcp:// address of the scheduler's service. The cluster's own status.phase is not reliable."""
    while (address := api.service_address(f"{name}-scheduler", "tcp-comm", uid)) is None:
        _require(api, name, uid)
        fact = f"DaskCluster {name}: its service {name}-scheduler did not appear"
        _pause(deadline, fact, "is the Dask operator running?")
    return f"tcp://{address}"


def _wait_for_workers(api: KubernetesApi, name: str, uid: str, client: Client, deadline: float) -> None:
    """Wait for one ordinary worker and the high-memory worker; others may join during the run."""
    listed = dict[str, dict[str, Any]]()
    while True:
        with contextlib.suppress(LleError):  # the scheduler may be restarting
            listed = workers_of(client)
        workers = listed.values()
        high_memory = [worker for worker in workers if worker["resources"].get(MEMORY_RESOURCE, 0) >= 1]
        if high_memory and len(workers) > len(high_memory):
            return
        _require(api, name, uid)
        started = f"{len(high_memory)} of 1 high-memory workers and {len(workers) - len(high_memory)} ordinary ones"
        _pause(deadline, f"DaskCluster {name}: only {started} started before execution.cluster.start_timeout")


def _is_gone(api: KubernetesApi, name: str, uid: str, attempts: int = ATTEMPTS) -> bool:
    """Whether the cluster of this uid was deleted or is being deleted."""
    existing = api.get(CLUSTERS, name, attempts)
    return existing is None or existing["metadata"]["uid"] != uid or _is_being_deleted(existing)


def _require(api: KubernetesApi, name: str, uid: str) -> None:
    if _is_gone(api, name, uid):
        raise LleError(f"DaskCluster {name} in namespace {api.namespace} was deleted while the run used it; {RESUME}")


@contextlib.contextmanager
def _watched(api: KubernetesApi, name: str, uid: str, client: Client) -> Iterator[None]:
    """Close the client if the cluster is deleted: its tasks would wait forever for the lost scheduler."""
    ended, deleted = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.wait(WATCH_SECONDS):
            with contextlib.suppress(LleError):  # the API is briefly unreachable
                if _is_gone(api, name, uid, attempts=1) and not ended.is_set():
                    deleted.set()
                    client.close()
                    return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    except Exception:
        if deleted.is_set():
            _require(api, name, uid)
        raise
    finally:
        ended.set()
        watching.join(REQUEST_SECONDS + 1.0)  # inside a request it could abort the interpreter's shutdown


def _pause(deadline: float, fact: str, advice: str = "") -> None:
    if time.monotonic() > deadline:
        raise LleError(fact, advice=advice)
    time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _explained(api: KubernetesApi, name: str) -> Iterator[None]:
    """Begin an error message with the reasons why pods do not run, and end it with what to do about them."""
    try:
        yield
    except LleError as error:
        if type(error) is not LleError:
            raise
        found: list[Problem] = []
        with contextlib.suppress(LleError):
            found = problems(api.pods(f"dask.org/cluster-name={name}"))
        if not found:
            raise
        job = os.environ.get("LLE_JOB_NAME")
        cures = [*dict.fromkeys(problem.cure for problem in found)]
        cures += [f"the Job tries again; to end it: kubectl delete job -n {api.namespace} {job}"] if job else []
        kind = ConfigError if any(problem.is_permanent for problem in found) else LleError
        fact = f"{'; '.join(problem.text for problem in found)}. {error.args[0]}"
        raise kind(fact, advice="; ".join(cures)) from None


def _delete(api: KubernetesApi, desired: Json) -> None:
    """Request the deletion of the cluster if it is this run's, ignoring signals. A later run waits until it is gone.

    A failure is a warning: the results are stored, and the operator deletes an idle cluster.
    """
    name = desired["metadata"]["name"]
    with stop_signals_handled(signal.SIG_IGN):  # the pod's grace period is long enough for this request
        try:
            existing = api.get(CLUSTERS, name)
            if existing is not None and not _is_being_deleted(existing) and not conflict(existing, desired):
                api.delete(CLUSTERS, name, str(existing["metadata"]["uid"]))
        except LleError as error:
            seconds = desired["spec"]["idleTimeout"]
            print(
                f"lle: warning: DaskCluster {name} was not deleted: {error}. The operator deletes it after {seconds} s "
                f"without tasks; by hand: kubectl delete daskcluster -n {api.namespace} {name}",
                file=sys.stderr,
            )

"""Build the custom resources of a run, a DaskCluster and a DaskWorkerGroup, from PodTemplates and numbers. No network.

The pods are defined once, as PodTemplates in k8s/base, where kustomize patches them and the API server validates them.
This module turns them into custom resources of the Dask operator (kubernetes.dask.org/v1), whose pod schema is that of
Kubernetes 1.21.
"""

import copy
import hashlib
import json
import re
from collections.abc import Mapping

from ..config.models import KubernetesCluster
from ..core.errors import ConfigError, LleError
from .kubernetes_pods import Json

API_VERSION = "kubernetes.dask.org/v1"
MAX_NAME = 53  # the operator's limit: it appends up to ten characters
PORTS = {"tcp-comm": 8786, "http-dashboard": 8787}
SPEC_HASH = "lle-pipeline/spec-sha256"
MANAGED = {"app.kubernetes.io/name": "lle", "app.kubernetes.io/managed-by": "lle-pipeline"}
# Pod fields of Kubernetes that are missing in the operator's schema; the server would silently drop them.
TOO_NEW_IN_POD = ("hostUsers", "os", "resourceClaims", "resources", "schedulingGates", "schedulingGroup", "workloadRef")
TOO_NEW_IN_CONTAINER = ("resizePolicy", "restartPolicy", "restartPolicyRules")
PARTS = ("scheduler", "worker", "memory")
"""The PodTemplates of a cluster: the scheduler, ordinary workers, and the worker of whole-data steps."""


def fitting_name(name: str) -> str:
    """A name that the operator accepts: unchanged, or cut to 53 characters with a hash that keeps it unique.

    >>> fitting_name("lle-29041235"), len(fitting_name("nightly-" * 9))
    ('lle-29041235', 53)
    """
    clean = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    if not clean or not clean[0].isalpha():
        clean = f"lle-{clean}".strip("-")
    if len(clean) <= MAX_NAME:
        return clean
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{clean[: MAX_NAME - 9].rstrip('-')}-{digest}"


def dask_cluster(name: str, templates: Mapping[str, Json], cluster: KubernetesCluster, owner: Json | None) -> Json:
    """The DaskCluster: scheduler, its service, and the ordinary workers. Raises ConfigError for unusable templates.

    templates: the `template` ({metadata, spec}) of each of the PARTS.
    """
    spec = {
        "idleTimeout": cluster.idle_timeout,
        "scheduler": {**_pod(templates["scheduler"], "scheduler", "auto"), "service": _service(name)},
        "worker": {"replicas": cluster.workers, **_pod(templates["worker"], "worker", cluster.memory)},
    }
    return _resource("DaskCluster", name, spec, owner)


def memory_group(name: str, templates: Mapping[str, Json], cluster: KubernetesCluster, owner: Json | None) -> Json:
    """The DaskWorkerGroup of the one high-memory worker, the only one that runs whole-data steps."""
    spec = {"cluster": name, "worker": {"replicas": 1, **_pod(templates["memory"], "worker", cluster.high_memory)}}
    return _resource("DaskWorkerGroup", f"{name}-memory", spec, owner, {"dask.org/cluster-name": name})


def same_spec(resource: Json, desired: Json) -> bool:
    """Whether a resource on the server has the same templates, numbers and owners as the desired one.

    A resource owned by another Job would be deleted with that Job.
    """
    existing, expected = resource["metadata"], desired["metadata"]
    same_hash = (existing.get("annotations") or {}).get(SPEC_HASH) == expected["annotations"][SPEC_HASH]
    return bool(same_hash and _owners(expected) <= _owners(existing))


def conflict(existing: Json, desired: Json) -> LleError | None:
    """The error if this run may not use or delete a resource on the server, else None.

    A Job of the same name with another uid no longer exists, so its cluster may be replaced.
    """
    metadata = existing["metadata"]
    label = f"{desired['kind']} {metadata['name']}"
    labels = metadata.get("labels") or {}
    if any(labels.get(key) != value for key, value in MANAGED.items()):
        return ConfigError(
            f"{label}: it exists, but this program did not create it (labels {labels or 'none'}); it is not changed. "
            f"Choose another execution.cluster.name, or delete it"
        )
    owner, own_job = _job_of(metadata), _job_of(desired["metadata"])
    if owner != own_job:
        return LleError(
            f"{label}: it exists and belongs to {owner or 'a run outside a Job'}, but this run belongs "
            f"to {own_job or 'no Job'}; it is not changed. Wait until that run ends, or choose "
            f"another execution.cluster.name"
        )
    return None


def _job_of(metadata: Json) -> str:
    """Name of the Job that owns a resource; empty if none does."""
    jobs = [owner["name"] for owner in metadata.get("ownerReferences") or () if owner["kind"] == "Job"]
    return f"Job {jobs[0]}" if jobs else ""


def _resource(kind: str, name: str, spec: Json, owner: Json | None, labels: Json | None = None) -> Json:
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
    metadata: Json = {"name": name, "labels": {**MANAGED, **(labels or {})}, "annotations": {SPEC_HASH: digest}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _owners(metadata: Json) -> set[str]:
    return {owner["uid"] for owner in metadata.get("ownerReferences") or ()}


def _service(name: str) -> Json:
    """The scheduler's service. Its selector needs the cluster's name, or two clusters would share one service."""
    ports = [{"name": port, "protocol": "TCP", "port": number, "targetPort": port} for port, number in PORTS.items()]
    selector = {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    return {"type": "ClusterIP", "selector": selector, "ports": ports}


def _pod(template: Json, container: str, memory: int | str) -> Json:
    """{metadata, spec} of a pod in the operator's form, with the requested memory for its one container.

    memory: in bytes; "auto": as in the template.
    """
    metadata = template.get("metadata") or {}
    spec = copy.deepcopy(template.get("spec") or {})
    pod_container = next((entry for entry in spec.get("containers", ()) if entry.get("name") == container), None)
    if pod_container is None:
        names = [entry.get("name") for entry in spec.get("containers", ())]
        raise ConfigError(f"PodTemplate: expected a container named {container}, found {names}; see k8s/base")
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    too_new = [key for key in TOO_NEW_IN_POD if key in spec]
    too_new += [f"{entry['name']}.{key}" for entry in containers for key in TOO_NEW_IN_CONTAINER if key in entry]
    if too_new:
        raise ConfigError(
            f"PodTemplate of the {container}: the Dask operator uses the pod schema of Kubernetes 1.21, which has no "
            f"{', '.join(too_new)}; remove it"
        )
    if spec.get("restartPolicy", "Always") != "Always":
        raise ConfigError(f"PodTemplate of the {container}: restartPolicy must be Always; it becomes a Deployment")
    if memory != "auto":
        resources = pod_container.setdefault("resources", {})
        for bound in ("requests", "limits"):
            resources.setdefault(bound, {})["memory"] = str(memory)
    kept_metadata = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {"metadata": kept_metadata, "spec": spec} if kept_metadata else {"spec": spec}

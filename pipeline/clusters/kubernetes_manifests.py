"""The custom resources of a run: PodTemplates and numbers in, a DaskCluster and a DaskWorkerGroup out. No network.

The pods themselves are written down once, as PodTemplates in k8s/base, where kustomize patches them and the API server
checks them. Here they become the custom resources of the Dask operator (kubernetes.dask.org/v1), whose pod schema is
that of Kubernetes 1.21.
"""

import copy
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from pipeline.core.errors import ConfigError

Json = dict[str, Any]

API_VERSION = "kubernetes.dask.org/v1"
MAX_NAME = 53  # the operator's limit: it appends up to ten characters
PORTS = {"tcp-comm": 8786, "http-dashboard": 8787}
SPEC_HASH = "lle-pipeline/spec-sha256"
MANAGED = {"app.kubernetes.io/name": "lle", "app.kubernetes.io/managed-by": "lle-pipeline"}
# Fields of a pod that Kubernetes has and the operator's schema lacks; sent anyway they would be dropped without a word.
TOO_NEW_IN_POD = ("hostUsers", "os", "resourceClaims", "resources", "schedulingGates", "schedulingGroup", "workloadRef")
TOO_NEW_IN_CONTAINER = ("resizePolicy", "restartPolicy", "restartPolicyRules")


@dataclass(frozen=True)
class Pods:
    """The `template` of the three PodTemplates: {metadata, spec} each."""

    scheduler: Json
    worker: Json
    memory: Json


@dataclass(frozen=True)
class Size:
    """Number of workers, bytes of a worker pod and of the high-memory pod (None: as in the template)."""

    workers: int
    memory: int | None
    high_memory: int | None
    idle_seconds: int


def fitting_name(name: str) -> str:
    """A name the operator accepts: as given, or cut to 53 characters with a hash that keeps it apart from others.

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


def dask_cluster(name: str, pods: Pods, size: Size, owner: Json | None) -> Json:
    """The DaskCluster: scheduler, its service, and the ordinary workers. Raises ConfigError for unusable templates."""
    spec = {
        "idleTimeout": size.idle_seconds,
        "scheduler": {**_pod(pods.scheduler, "scheduler", None), "service": _service(name)},
        "worker": {"replicas": size.workers, **_pod(pods.worker, "worker", size.memory)},
    }
    return _resource("DaskCluster", name, spec, owner)


def memory_group(name: str, pods: Pods, size: Size, owner: Json | None) -> Json:
    """The DaskWorkerGroup of one high-memory worker, on which alone whole-data steps run."""
    spec = {"cluster": name, "worker": {"replicas": 1, **_pod(pods.memory, "worker", size.high_memory)}}
    return _resource("DaskWorkerGroup", f"{name}-memory", spec, owner, {"dask.org/cluster-name": name})


def same_spec(resource: Json, wanted: Json) -> bool:
    """Whether a resource on the server was made from the same templates and numbers, and lives as long as wanted.

    One that belongs to another Job would be collected with that.
    """
    there, new = resource["metadata"], wanted["metadata"]
    same = (there.get("annotations") or {}).get(SPEC_HASH) == new["annotations"][SPEC_HASH]
    return bool(same and _owners(new) <= _owners(there))


def _resource(kind: str, name: str, spec: Json, owner: Json | None, labels: Json | None = None) -> Json:
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
    metadata: Json = {
        "name": name, "labels": {**MANAGED, **(labels or {})}, "annotations": {SPEC_HASH: digest},
    }  # fmt: skip
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _owners(metadata: Json) -> set[str]:
    return {owner["uid"] for owner in metadata.get("ownerReferences") or ()}


def _service(name: str) -> Json:
    """The scheduler's service. The selector must hold the cluster's name, or two clusters would share one service."""
    ports = [{"name": port, "protocol": "TCP", "port": number, "targetPort": port} for port, number in PORTS.items()]
    selector = {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    return {"type": "ClusterIP", "selector": selector, "ports": ports}


def _pod(template: Json, container: str, memory: int | None) -> Json:
    """{metadata, spec} of a pod as the operator takes it, with the memory of its one container as asked."""
    metadata = template.get("metadata") or {}
    spec = copy.deepcopy(template.get("spec") or {})
    found = next((each for each in spec.get("containers", ()) if each.get("name") == container), None)
    if found is None:
        names = [each.get("name") for each in spec.get("containers", ())]
        raise ConfigError(f"PodTemplate: expected a container named {container}, found {names}; see k8s/base")
    too_new = [key for key in TOO_NEW_IN_POD if key in spec]
    too_new += [f"{each['name']}.{key}" for each in _containers(spec) for key in TOO_NEW_IN_CONTAINER if key in each]
    if too_new:
        raise ConfigError(
            f"PodTemplate of the {container}: the Dask operator's pods are those of Kubernetes 1.21, which has no "
            f"{', '.join(too_new)}; take it out"
        )
    if spec.get("restartPolicy", "Always") != "Always":
        raise ConfigError(f"PodTemplate of the {container}: restartPolicy must be Always; it becomes a Deployment")
    if memory is not None:
        resources = found.setdefault("resources", {})
        for bound in ("requests", "limits"):
            resources.setdefault(bound, {})["memory"] = str(memory)
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {"metadata": kept, "spec": spec} if kept else {"spec": spec}


def _containers(spec: Json) -> list[Json]:
    return [*spec.get("initContainers", ()), *spec.get("containers", ())]

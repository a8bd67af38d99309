"""The parts of rendered manifests that several tests look at, and the custom resources the driver makes of them."""

import os
import re
from pathlib import Path
from typing import Any

import yaml

from lle.clusters.kubernetes_manifests import PARTS, dask_cluster, memory_group
from lle.config.allowed_places import VARIABLE
from lle.config.load import load_config
from lle.config.models import Config, KubernetesCluster
from tests.support.manifest_schemas import K8S, rendered
from tests.support.paths import REPOSITORY

APPLIED_FIRST = {"overlays/local-path": "volume", "overlays/s3": "namespace"}


def by_name(folder: str) -> dict[tuple[str, str], Any]:
    """A rendered folder below k8s/ by (kind, name), for an overlay with the folder that is applied before it."""
    folders = [folder, *([APPLIED_FIRST[folder]] if folder in APPLIED_FIRST else [])]
    return {
        (manifest["kind"], manifest["metadata"]["name"]): manifest
        for folder in folders
        for manifest in rendered(folder)
    }


def with_components(folder: Path, *names: str) -> dict[tuple[str, str], Any]:
    """The overlay s3 with some of k8s/components, rendered in a folder of the test's own."""
    overlay, *components = (os.path.relpath(K8S / path, folder) for path in ("overlays/s3", *names))
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    kustomization |= {"namespace": "lle", "resources": [overlay], "components": components}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return by_name(str(folder))


def driver_pod(objects):
    return objects["CronJob", "lle"]["spec"]["jobTemplate"]["spec"]["template"]


def pods(objects):
    """{component: pod template} of all pods."""
    templates = {part: objects["PodTemplate", f"lle-{part}"]["template"] for part in PARTS}
    return {"driver": driver_pod(objects), **templates}


def allowed_places(objects) -> list[str]:
    """The places that a config may name, from the driver's environment."""
    [allowed] = [variable for variable in container(driver_pod(objects))["env"] if variable["name"] == VARIABLE]
    return str(allowed.get("value", "")).split()


def config_of(objects, *overrides: str) -> tuple[KubernetesCluster, Config]:
    """The config that the driver's arguments name, read from the repository."""
    name = Path(container(driver_pod(objects))["args"][2]).name
    config = load_config(REPOSITORY / "configs" / name, overrides)
    return config.execution.cluster, config


def container(pod):
    [only] = pod["spec"]["containers"]
    return only


def custom_resources(objects, name="lle-29041235"):
    """The custom resources that the driver creates from the overlay's templates and config."""
    cluster, _ = config_of(objects)
    templates = {part: objects["PodTemplate", f"{cluster.templates}-{part}"]["template"] for part in PARTS}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "1-2"}
    return dask_cluster(name, templates, cluster, owner), memory_group(name, templates, cluster, owner)


def selects(selector, labels) -> bool:
    assert {expression["operator"] for expression in selector.get("matchExpressions", ())} <= {"NotIn"}
    refused = any(
        labels.get(expression["key"]) in expression["values"] for expression in selector.get("matchExpressions", ())
    )
    return not refused and all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def image_environment() -> dict[str, str]:
    """ENV of the image's last stage."""
    text = re.sub(r"\\\n\s*", " ", (K8S / "Dockerfile").read_text())
    [line] = [line for line in text.splitlines() if line.startswith("ENV ")]
    return dict(part.split("=", 1) for part in line.removeprefix("ENV ").split())

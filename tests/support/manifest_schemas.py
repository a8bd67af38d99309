"""Checks of the manifests: kustomize, the schemas of Kubernetes, and the operator's definitions."""

import shutil
import subprocess
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import REPOSITORY

K8S = REPOSITORY / "k8s"
OVERLAYS = ("local-path", "s3")
CRDS = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds"
OPERATOR_GROUP = "kubernetes.dask.org/v1"


@cache
def rendered(folder: str) -> tuple[dict[str, Any], ...]:
    """The output of kustomize for a folder below k8s/. Skips the test if kubectl and kustomize are missing."""
    commands = {"kubectl": ["kubectl", "kustomize"], "kustomize": ["kustomize", "build"]}
    renderer = next((command for name, command in commands.items() if shutil.which(name)), None)
    if renderer is None:
        pytest.skip("NOT CHECKED: the manifests cannot be rendered, neither kubectl nor kustomize is installed")
    completed = subprocess.run([*renderer, str(K8S / folder)], capture_output=True, text=True, timeout=60)
    assert completed.returncode == 0, completed.stderr
    return tuple(yaml.safe_load_all(completed.stdout))


@cache
def operator_schemas() -> dict[str, Any]:
    """JSON schema of each kind of the Dask operator, from the package that ships it. Skips where it is missing."""
    if find_spec("jsonschema") is None:
        pytest.skip("NOT CHECKED: the manifests cannot be validated, jsonschema is not installed")
    try:
        folder = Path(str(metadata.distribution("dask-kubernetes").locate_file(CRDS)))
    except metadata.PackageNotFoundError:
        pytest.skip("NOT CHECKED: the operator's schemas are not there: pip install --no-deps dask-kubernetes")
    schemas = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # half a million characters
    for name in ("daskcluster", "daskworkergroup"):
        for document in yaml.load_all((folder / f"{name}.yaml").read_text(), loader):
            for version in document["spec"]["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {}}
                schemas[document["spec"]["names"]["kind"]] = schema
    return schemas


def strict(schema: Any) -> Any:
    """A structural schema as a JSON schema that also refuses unknown fields, which the API server drops silently."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: strict(value) for key, value in schema.items()}
    if result.pop("x-kubernetes-int-or-string", False):
        result.pop("type", None)
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    open_ended = result.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in result
    if isinstance(result.get("properties"), dict) and result.get("type") == "object" and not open_ended:
        result["additionalProperties"] = False
    return result


def check_custom_resource(resource: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError for fields that the operator's definition does not have."""
    from jsonschema import Draft7Validator  # skipped above where it is missing

    schema = operator_schemas()[resource["kind"]]
    assert resource["apiVersion"] == OPERATOR_GROUP
    Draft7Validator(schema).validate(resource)


def check_native(resource: dict[str, Any]) -> None:
    """Validate strictly against the newest schemas that kubernetes-validate ships."""
    if find_spec("kubernetes_validate") is None:
        pytest.skip("NOT CHECKED: the manifests cannot be validated, kubernetes-validate is not installed")
    import kubernetes_validate

    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)

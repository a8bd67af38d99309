"""The driver's requests to the Kubernetes API, with errors as named exceptions. The only user of that client."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from ..core.errors import ConfigError, LleError
from .kubernetes_pods import Json

if TYPE_CHECKING:
    from kubernetes.client import Configuration

T = TypeVar("T")

GROUP, VERSION = "kubernetes.dask.org", "v1"
CLUSTERS, GROUPS = "daskclusters", "daskworkergroups"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
REQUEST_SECONDS = 15
ATTEMPTS = 5
FIRST_PAUSE = 1.0
MESSAGE_LENGTH = 300


class KubernetesApi:
    """One namespace, with the rights of the pod's service account, or outside a pod of the user's kubeconfig."""

    def __init__(self, namespace: str) -> None:
        try:
            import kubernetes  # an optional extra
            import urllib3  # a dependency of it
        except ImportError:
            raise ConfigError(
                "execution.cluster.kind: kubernetes needs the extra k8s: run pip install '.[k8s]' in the source folder"
            ) from None
        self._failure = kubernetes.client.ApiException
        self._unreachable = OSError, urllib3.exceptions.HTTPError
        try:
            settings, own = _settings(kubernetes)
        except (kubernetes.config.ConfigException, OSError) as error:
            raise ConfigError(
                f"execution.cluster: cannot reach the Kubernetes API: found neither a pod's service account nor a "
                f"kubeconfig ({error}). Run the driver in the cluster (k8s/), or set KUBECONFIG"
            ) from None
        self.namespace = own if namespace == "auto" else namespace
        client = kubernetes.client.ApiClient(settings)
        self._core, self._custom = kubernetes.client.CoreV1Api(client), kubernetes.client.CustomObjectsApi(client)
        self._plain: Callable[[object], Json] = client.sanitize_for_serialization

    def pod_template(self, name: str) -> Json:
        """The `template` of a PodTemplate. Raises ConfigError if it does not exist."""
        pod_template = self._call("get podtemplates", self._core.read_namespaced_pod_template, name)
        if pod_template is None:
            raise ConfigError(
                f"execution.cluster.templates: no PodTemplate {name} in namespace {self.namespace}; install them with "
                f"`kubectl apply -k k8s/overlays/...`"
            )
        template: Json = self._plain(pod_template)["template"]
        return template

    def get(self, plural: str, name: str, attempts: int = ATTEMPTS) -> Json | None:
        """A custom resource of the Dask operator; None if it does not exist."""
        read = self._custom.get_namespaced_custom_object
        return self._call(f"get {plural}", read, plural, name, attempts=attempts)

    def create(self, plural: str, body: Json) -> Json | None:
        """Create a custom resource; None if the name exists already. Raises ConfigError if its kind is unknown."""
        try:
            created: Json | None = self._call(
                f"create {plural}", self._custom.create_namespaced_custom_object, plural, body
            )
        except _Exists:
            return None
        if created is None:
            raise ConfigError(
                f"the Kubernetes API has no {plural}.{GROUP} in namespace {self.namespace}: install the Dask "
                f"operator (docs/kubernetes.md), or correct execution.cluster.namespace"
            )
        return created

    def delete(self, plural: str, name: str, uid: str) -> None:
        """Delete the custom resource of this uid and what it owns. Does nothing if it does not exist."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        with contextlib.suppress(_Exists):  # 409: a new resource has this name
            self._call(f"delete {plural}", self._custom.delete_namespaced_custom_object, plural, name, body=options)

    def service_address(self, name: str, port: str, owner: str) -> str | None:
        """host:port of the service that the resource of uid `owner` owns; None if it does not exist yet."""
        response = self._call("get services", self._core.read_namespaced_service, name)
        if response is None:
            return None
        service = self._plain(response)
        if owner not in {each["uid"] for each in service["metadata"].get("ownerReferences") or ()}:
            return None
        spec = service["spec"]
        number = next((entry["port"] for entry in spec.get("ports", ()) if entry.get("name") == port), None)
        host = spec.get("clusterIP") or "None"
        if number is None:
            return None
        return f"{f'{name}.{self.namespace}.svc' if host == 'None' else f'[{host}]' if ':' in host else host}:{number}"

    def pods(self, selector: str) -> list[Json]:
        pod_list = self._call("list pods", self._core.list_namespaced_pod, label_selector=selector)
        return [] if pod_list is None else list(self._plain(pod_list).get("items", ()))

    def _call(
        self, action: str, function: Callable[..., T], *arguments: object, attempts: int = ATTEMPTS, **options: object
    ) -> T | None:
        """One request, repeated while the server is busy or unreachable; None for 404. Raises _Exists for 409."""
        custom = getattr(function, "__self__", None) is self._custom
        place = (GROUP, VERSION, self.namespace, *arguments) if custom else (*arguments, self.namespace)
        repeated = Retrying(
            retry=retry_if_exception(self._is_passing),
            reraise=True,
            stop=stop_after_attempt(attempts),
            wait=wait_exponential(FIRST_PAUSE),
        )
        try:
            return repeated(function, *place, _request_timeout=REQUEST_SECONDS, **options)
        except self._failure as failure:
            if failure.status == 404:
                return None
            if failure.status == 409:
                raise _Exists from None
            if not self._is_passing(failure):
                raise self._refused(action, failure) from None
            error: Exception = failure
        except self._unreachable as failure:
            error = failure
        raise LleError(
            f"Kubernetes API: {action} in namespace {self.namespace} failed {attempts} times; the last: "
            f"{_reason(error)}"
        )

    def _is_passing(self, error: BaseException) -> bool:
        """Whether the server was busy or unreachable, so that the same request may succeed later."""
        if not isinstance(error, self._failure):
            return isinstance(error, self._unreachable)
        return not (error.status and 400 <= error.status < 500 and error.status != 429)

    def _refused(self, action: str, failure: Exception) -> ConfigError:
        cure = {
            401: "the credentials are not valid",
            403: f"give the driver's service account the right to {action} (k8s/base/rbac.yaml)",
        }.get(
            getattr(failure, "status", 0),
            "the request does not fit this server's schema; check the version of the Dask operator",
        )
        return ConfigError(
            f"Kubernetes API refused: {action} in namespace {self.namespace}: {_reason(failure)}. Cure: {cure}"
        )


class _Exists(Exception):
    """An object of that name exists, or it has another uid than the given one."""


def _reason(error: Exception) -> str:
    """Status code and message of a failed request: from the Status object of the answer, else its first line."""
    status, text = getattr(error, "status", None), str(getattr(error, "body", None) or error)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["message"])
    lines = text.splitlines() or [type(error).__name__]
    return f"{f'{status} ' if status else ''}{lines[0][:MESSAGE_LENGTH]}"


def _settings(kubernetes: ModuleType) -> "tuple[Configuration, str]":
    """Server, credentials and namespace: those of the pod, else of the kubeconfig's current context."""
    settings = kubernetes.client.Configuration()
    settings.retries = False  # retries are in _call
    if NAMESPACE_FILE.is_file():
        kubernetes.config.load_incluster_config(client_configuration=settings)
        return settings, NAMESPACE_FILE.read_text().strip()
    file = os.environ.get("KUBECONFIG")
    kubernetes.config.load_kube_config(config_file=file, client_configuration=settings)
    _, current = kubernetes.config.list_kube_config_contexts(config_file=file)
    return settings, str(current["context"].get("namespace") or "default")

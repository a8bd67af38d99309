"""A double of the Kubernetes API over HTTP and of the operator, as far as the driver uses them.

It allows only what the driver's Role allows, checks resources against the operator's
schemas, deletes with a delay, and fails on request. The operator's part creates a service for each cluster
that leads to the scheduler the test gives it.
"""

import json
import re
import ssl
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

from tests.support.manifest_schemas import K8S, check_custom_resource

PLURALS = {"daskclusters": "DaskCluster", "daskworkergroups": "DaskWorkerGroup"}
PATHS = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/v1)/namespaces/(?P<namespace>[^/]+)/(?P<plural>[a-z]+)(?:/(?P<name>[^/?]+))?"
)
VERBS = {"GET": "get", "POST": "create", "DELETE": "delete"}


class ApiDouble:
    """Objects by (plural, name), the requests that came, and the faults to come."""

    def __init__(
        self,
        scheduler: str | None,
        namespace: str = "lle",
        delete_seconds: float = 0.2,
        certificate: tuple[str, str] | None = None,
    ) -> None:
        self.scheduler, self.namespace, self.delete_seconds = scheduler, namespace, delete_seconds
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.faults: list[tuple[str, int]] = []  # (verb or *, status) of the next requests that fail
        self.rules = load("rbac.yaml")[0]["rules"]
        self.denied: set[tuple[str, str]] = set()
        self.operator = True
        self.pause = 0.0  # seconds before each answer to a get
        self.lock = threading.RLock()
        for name in ("scheduler", "worker", "memory"):
            [template] = load(f"{name}.yaml")
            self.objects["podtemplates", f"lle-{name}"] = template
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> "ApiDouble":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def kubeconfig(self) -> str:
        """Content of the file for KUBECONFIG."""
        context = {"cluster": "double", "user": "d", "namespace": self.namespace}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "double",
                "contexts": [{"name": "double", "context": context}],
                "clusters": [{"name": "double", "cluster": {"server": self.url}}],
                "users": [{"name": "d", "user": {"token": "of-the-driver"}}],
            }
        )

    def names(self, plural: str) -> list[str]:
        with self.lock:
            return sorted(name for kind, name in self.objects if kind == plural)

    def count(self, verb: str, plural: str) -> int:
        with self.lock:
            return sum(1 for request in self.requests if request[:2] == (verb, plural))

    def answer(self, method: str, path: str, token: str | None, body: dict[str, Any] | None) -> tuple[int, Any]:
        """Status and content of a response. Checks as in a real server: authentication, authorisation, resource."""
        match = PATHS.match(path)
        if match is None or match["namespace"] != self.namespace:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        plural, name, group = match["plural"], match["name"], match["group"] or ""
        verb = "list" if method == "GET" and name is None else VERBS.get(method, method)
        with self.lock:
            self.requests.append((verb, plural, name or (body or {}).get("metadata", {}).get("name", "")))
            for number, (faulty_verb, status) in enumerate(self.faults):
                if faulty_verb in {"*", verb}:
                    del self.faults[number]
                    return refusal(status, "Trouble", "on purpose")
            if token is None or token.lower() != "bearer of-the-driver":
                return refusal(401, "Unauthorized", f"token {token!r}")
            if not self._may(verb, group, plural):
                return refusal(403, "Forbidden", f"cannot {verb} resource {plural}")
            if group and not self.operator:
                return 404, "404 page not found\n"
            return self._act(verb, plural, name, body)

    def _may(self, verb: str, group: str, plural: str) -> bool:
        return (verb, plural) not in self.denied and any(
            group in rule["apiGroups"] and plural in rule["resources"] and verb in rule["verbs"] for rule in self.rules
        )

    def _act(self, verb: str, plural: str, name: str | None, body: dict[str, Any] | None) -> tuple[int, Any]:
        if verb == "list":
            return 200, {"kind": "List", "items": [item for (kind, _), item in self.objects.items() if kind == plural]}
        if verb == "create":
            assert body is not None
            return self._create(plural, body)
        assert name is not None
        if (plural, name) not in self.objects:
            return refusal(404, "NotFound", f'{plural} "{name}" not found')
        if verb == "delete":
            uid = (body or {}).get("preconditions", {}).get("uid")
            if uid not in (None, self.objects[plural, name]["metadata"]["uid"]):
                return refusal(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
            resource = self.objects[plural, name]
            self._start_deleting(plural, name)
            return 200, resource
        return 200, self.objects[plural, name]

    def _create(self, plural: str, body: dict[str, Any]) -> tuple[int, Any]:
        name = body["metadata"]["name"]
        if (plural, name) in self.objects:
            return refusal(409, "AlreadyExists", f'{plural} "{name}" already exists')
        assert body["kind"] == PLURALS[plural]
        check_custom_resource(body)
        body["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": self.namespace}
        self.objects[plural, name] = body
        if plural == "daskclusters" and self.scheduler is not None:
            host, port = self.scheduler.removeprefix("tcp://").rsplit(":", 1)
            ports = [{"name": "tcp-comm", "port": int(port), "protocol": "TCP"}]
            owner = {key: body[key] for key in ("apiVersion", "kind")} | {"name": name, "uid": body["metadata"]["uid"]}
            self.objects["services", f"{name}-scheduler"] = {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"{name}-scheduler", "ownerReferences": [owner]},
                "spec": {"clusterIP": host, "ports": ports},
            }
        return 201, body

    def _start_deleting(self, plural: str, name: str) -> None:
        resource = self.objects[plural, name]
        if "deletionTimestamp" not in resource["metadata"]:
            resource["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            if not self.delete_seconds:
                return self._finish_deleting(plural, name)
            threading.Thread(target=self._finish_deleting, args=(plural, name), daemon=True).start()

    def _finish_deleting(self, plural: str, name: str) -> None:
        """The garbage collector: deletes everything that a deleted cluster owns."""
        time.sleep(self.delete_seconds)
        with self.lock:
            removed = self.objects.pop((plural, name), None)
            if removed is None:
                return
            uid = removed["metadata"]["uid"]
            self.objects.pop(("services", f"{name}-scheduler"), None)
            owned = [
                key
                for key, item in self.objects.items()
                if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", ()))
            ]
            for key in owned:
                del self.objects[key]

    def _handler(double: "ApiDouble") -> type[BaseHTTPRequestHandler]:  # noqa: N805 (the handler's own self is inside)
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                time.sleep(double.pause if self.command == "GET" else 0.0)
                status, content = double.answer(self.command, self.path, self.headers.get("Authorization"), body)
                data = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = reply  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler


def load(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((K8S / "base" / name).read_text()))


def refusal(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }

"""Object stores on loopback for tests: moto and Azurite (in memory), OpenStack Swift with its S3 interface (on disk).

They are installed apart from the program (`make servers`, pinned in tests/servers/requirements.txt; `make azurite`).
Credentials go to the program the way they do in production: by the environment.
"""

import base64
import contextlib
import datetime
import hmac
import os
import pwd
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.paths import REPOSITORY

PROGRAMS = REPOSITORY / ".servers" / "bin"
NODE_PROGRAMS = PROGRAMS.parent / "node_modules" / ".bin"
BUCKET = "bucket"
PATIENCE = 60.0
KEY, SECRET = "test:tester", "testing-secret-7d1f"

RING = """
import sys
from swift.common.ring import RingBuilder
folder, address, *ports = sys.argv[1:]
for kind, port in zip(("object", "container", "account"), ports):
    builder = RingBuilder(part_power=4, replicas=1, min_part_hours=0)
    builder.add_dev({"region": 1, "zone": 1, "ip": address, "port": int(port), "device": "disk", "weight": 1})
    builder.rebalance(seed=1)
    builder.get_ring().save(f"{folder}/{kind}.ring.gz")
"""
COMMON = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
workers = 0
user = {user}
log_level = WARNING
"""
BACKEND = "[pipeline:main]\npipeline = {kind}-server\n[app:{kind}-server]\nuse = egg:swift#{kind}\n"
PROXY = """[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{nowhere}
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
[filter:slo]
use = egg:swift#slo
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin
"""


class Server(NamedTuple):
    """A running S3 service with an empty bucket, and the environment variables to reach it."""

    name: str
    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }

    def url(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"


class AzureServer(Server):
    """As `Server`, for Azure's blob storage; the bucket is a container. The key is the published key of emulators."""

    ACCOUNT = "devstoreaccount1"
    KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": self.endpoint,
            "AZURE_STORAGE_ACCOUNT_NAME": self.ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": self.KEY,
            "NO_PROXY": "127.0.0.1",
        }

    def url(self, name: str) -> str:
        return f"az://{BUCKET}/{name}"


def program(name: str, folder: Path = PROGRAMS, target: str = "servers") -> str:
    """Path of a server's program; the test is skipped with a message if it is not installed."""
    path = folder / name
    if not path.is_file():
        pytest.skip(f"NOT CHECKED: {name} is not installed; `make {target}` installs it for the tests")
    return str(path)


@contextlib.contextmanager
def moto_server(folder: Path) -> Iterator[Server]:
    """moto: checks no signature, keeps everything in memory."""
    [port] = free_ports(1)
    command = [program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with _processes([command], folder):
        yield _with_bucket(Server("moto", f"http://127.0.0.1:{port}"))


@contextlib.contextmanager
def swift_server(folder: Path) -> Iterator[Server]:
    """Swift with one replica on one folder: proxy, object, container and account servers, each a process."""
    proxy, nowhere, *backends = free_ports(5)
    kinds = ("object", "container", "account")
    (folder / "devices" / "disk").mkdir(parents=True)
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = of-the-tests\n")
    user = pwd.getpwuid(os.getuid()).pw_name
    texts = {kind: BACKEND.format(kind=kind) for kind in kinds}
    texts["proxy"] = PROXY.format(nowhere=nowhere, secret=SECRET)
    for (kind, text), port in zip(texts.items(), [*backends, proxy], strict=True):
        (folder / f"{kind}.conf").write_text(COMMON.format(port=port, folder=folder, user=user) + text)
    subprocess.run([program("python"), "-c", RING, str(folder), "127.0.0.1", *map(str, backends)], check=True)
    *behind, front = [[program(f"swift-{kind}-server"), str(folder / f"{kind}.conf"), "--verbose"] for kind in texts]
    with _processes(behind, folder):
        _wait_for_ports(backends)  # the proxy would leave out a server that refuses its first request, for a minute
        with _processes([front], folder):
            yield _with_bucket(Server("swift", f"http://127.0.0.1:{proxy}"))


@contextlib.contextmanager
def azurite_server(folder: Path) -> Iterator[AzureServer]:
    """Azurite: checks signatures, keeps everything in memory."""
    [port] = free_ports(1)
    command = [
        program("azurite-blob", NODE_PROGRAMS, "azurite"),
        "--inMemoryPersistence",
        "--disableTelemetry",
        "--skipApiVersionCheck",
        "--blobPort",
        str(port),
    ]
    with _processes([command], folder):
        server = AzureServer("azurite", f"http://127.0.0.1:{port}")
        account, name = server.ACCOUNT, f"{BUCKET}?restype=container"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        signed = "PUT" + 12 * "\n" + "".join(f"{key}:{value}\n" for key, value in headers.items())
        signed += f"/{account}/{account}/{BUCKET}\nrestype:container"
        digest = hmac.digest(base64.b64decode(server.KEY), signed.encode(), "sha256")
        headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(digest).decode()}"
        _ask(urllib.request.Request(f"{server.endpoint}/{account}/{name}", method="PUT", headers=headers))
        yield server


SERVERS: dict[str, Callable[[Path], Any]] = {"moto": moto_server, "swift": swift_server, "azurite": azurite_server}


def free_ports(number: int) -> list[int]:
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


@contextlib.contextmanager
def _processes(commands: Sequence[list[str]], folder: Path) -> Iterator[None]:
    """Servers that run during the block; their output is in server.log."""
    with (folder / "server.log").open("ab") as log, contextlib.ExitStack() as stack:
        for command in commands:
            started = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            stack.callback(_stop, started)
        yield


def _wait_for_ports(ports: Sequence[int]) -> None:
    """Wait until new servers accept connections."""
    deadline = time.monotonic() + PATIENCE
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=10).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def _stop(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _with_bucket(server: Server) -> Server:
    """Wait for the server and create the bucket with a signed PUT."""
    from obstore import sign  # an optional extra
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=server.endpoint,
        access_key_id=KEY,
        secret_access_key=SECRET,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    url = sign(store, "PUT", "", datetime.timedelta(seconds=PATIENCE))
    _ask(urllib.request.Request(url, method="PUT", data=b""))
    return server


def _ask(request: urllib.request.Request) -> None:
    """Repeat a request until the new server answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{request.host} does not answer: {error}") from error
            time.sleep(0.05)

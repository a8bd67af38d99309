"""Connecting to an existing scheduler: TLS, different versions, no listener, and workers with resources."""

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.comm.core import FatalCommClosedError

from lle.clusters import existing_scheduler
from lle.clusters.connect import connect
from lle.clusters.limits import memory_resource
from lle.clusters.version_check import SOURCES, program_versions, required_versions
from lle.config.models import Cluster, Tls
from lle.core.errors import ConfigError, LleError
from lle.core.machine import source_digest
from lle.engine.execute import Executor, run_step
from lle.engine.step import WHOLE_DATA
from lle.storage.store import Store
from tests.support.commands import lle, write_config
from tests.support.dask_processes import dask_processes, is_registered, one_worker, worker_command
from tests.support.object_servers import free_ports
from tests.support.paths import REPOSITORY
from tests.support.stage_runs import Progress
from tests.support.steps import make_step

pytestmark = [pytest.mark.timeout(150), pytest.mark.slow]
openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="NOT CHECKED: openssl makes the certificates")
IN_THIS_PROCESS = {"processes": False, "protocol": "tcp://", "dashboard_address": "127.0.0.1:0"}
DISAGREEMENT = "this client and the scheduler do not agree on TLS"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with one_worker(tmp_path_factory.mktemp("plain"), worker=("--resources", "BIG=1")) as address:
        yield address


def make_certificates(folder: Path, name: str) -> dict[str, str]:
    """An authority and a certificate it signed, by openssl."""

    for command in (
        f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name}-ca -keyout {name}-ca.key -out {name}-ca.pem",
        f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr",
        f"x509 -req -days 2 -in {name}.csr -CA {name}-ca.pem -CAkey {name}-ca.key -CAcreateserial -out {name}.pem",
    ):
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True, timeout=60, cwd=folder)
    return {key: str(folder / f"{name}{end}") for key, end in (("ca", "-ca.pem"), ("cert", ".pem"), ("key", ".key"))}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    return {name: make_certificates(folder, name) for name in ("ours", "other")}


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory, certificates):
    ours = certificates["ours"]
    files = ("--tls-ca-file", ours["ca"], "--tls-cert", ours["cert"], "--tls-key", ours["key"])
    with one_worker(tmp_path_factory.mktemp("encrypted"), *files, "--protocol", "tls") as address:
        yield address


def hang_up(server: socket.socket) -> None:
    """Close each connection as soon as it is there."""
    with contextlib.suppress(OSError):  # the server is closed at the end of the test
        while True:
            server.accept()[0].close()


def refused(expected, **settings) -> str:
    with pytest.raises(LleError) as caught, connect(Cluster(kind="address", **settings)):
        pass
    assert type(caught.value) is expected
    return str(caught.value)


@openssl
class TestTls:
    def test_run_over_tls_has_the_bytes_of_a_serial_run(self, encrypted, certificates, tmp_path):
        """Rows are sent between workers, and versions are read from them, over TLS as well."""
        config = write_config(
            tmp_path,
            input={"kind": "synthetic", "name": "swiss_roll", "n_points": 900},
            output={"report": False},
            execution={"block_points": 300},
        )
        embeddings = []
        for cluster in ({"kind": "serial"}, {"kind": "address", "address": encrypted, "tls": certificates["ours"]}):
            path = tmp_path / f"{cluster['kind']}.zarr"
            lle("run", config, "--store", path, "--set", f"execution.cluster={json.dumps(cluster)}")
            embeddings.append(Store(str(path)).read_all("embedding").tobytes())
        assert embeddings[0] == embeddings[1]

    @pytest.mark.parametrize(("own", "ca"), [("ours", "other"), ("other", "ours")])
    def test_certificate_of_another_authority_is_refused(self, encrypted, certificates, own, ca):
        """The client refuses the scheduler's certificate; then the scheduler refuses the client's."""
        files = {**certificates[own], "ca": certificates[ca]["ca"]}
        assert DISAGREEMENT in refused(ConfigError, address=encrypted, tls=Tls(**files))

    def test_client_without_tls_gets_the_advice_to_use_tls(self, encrypted, monkeypatch):
        monkeypatch.setattr(existing_scheduler, "ANSWER_SECONDS", 6)
        assert DISAGREEMENT in refused(ConfigError, address=encrypted.replace("tls://", "tcp://"))

    @pytest.mark.parametrize(
        "cause",
        [
            ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            ValueError("IOStream is not idle; cannot convert to SSL"),
        ],
    )
    def test_client_with_tls_is_informed_that_the_scheduler_has_none(self, plain, certificates, monkeypatch, cause):
        """Dask's error depends on which side sends first, and Dask would leave a socket open; so it is not called."""

        def connect_in_vain(*arguments, **options):
            if isinstance(cause, ValueError):
                raise cause
            raise FatalCommClosedError from cause

        monkeypatch.setattr(existing_scheduler, "Client", connect_in_vain)
        tls_address = plain.replace("tcp://", "tls://")
        assert DISAGREEMENT in refused(ConfigError, address=tls_address, tls=Tls(**certificates["ours"]))

    def test_encrypted_key_is_refused_without_a_password_prompt(self, certificates, tmp_path):
        ours, key = certificates["ours"], tmp_path / "encrypted.key"
        encrypt = ["openssl", "pkey", "-in", ours["key"], "-aes256", "-passout", "pass:none", "-out", str(key)]
        subprocess.run(encrypt, check=True, capture_output=True, timeout=60)
        message = refused(ConfigError, address="tls://127.0.0.1:1", tls=Tls(**{**ours, "key": str(key)}))
        assert f"execution.cluster.tls.key: {key}: the key is encrypted" in message

    def test_missing_or_wrong_certificate_files_are_named(self, certificates, tmp_path):
        ours, theirs = certificates["ours"], certificates["other"]
        text = tmp_path / "text.pem"
        text.write_text("not a certificate")
        for files, message in (
            ({**ours, "ca": "/nowhere/ca.pem"}, "tls.ca: /nowhere/ca.pem: no such file"),
            ({**ours, "ca": str(text)}, f"as ca ({text}) certificates"),
            ({**ours, "key": theirs["key"]}, f"as key ({theirs['key']}) the private key"),
        ):
            assert message in refused(ConfigError, address="tls://127.0.0.1:1", tls=Tls(**files))


class TestAddress:
    def test_address_without_a_listener_is_refused(self, monkeypatch):
        monkeypatch.setattr(existing_scheduler, "ANSWER_SECONDS", 1)
        assert "no scheduler answers within 1 s" in refused(LleError, address="tcp://127.0.0.1:9")

    def test_closed_connection_is_a_temporary_error(self):
        """This is not a config error: the scheduler may be shutting down."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=hang_up, args=(server,), daemon=True).start()
            message = refused(LleError, address=f"tcp://127.0.0.1:{server.getsockname()[1]}")
        assert "the connection was closed" in message

    def test_address_of_an_http_server_is_recognised(self, monkeypatch):
        monkeypatch.setattr(existing_scheduler, "PROBE_SECONDS", 0.5)
        with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            message = refused(ConfigError, address=f"tcp://127.0.0.1:{server.server_port}")
            server.shutdown()
        assert "uses HTTP" in message
        assert "8786" in message

    def test_silent_peer_ends_in_a_timeout(self, monkeypatch):
        monkeypatch.setattr(existing_scheduler, "PROBE_SECONDS", 0.2)
        monkeypatch.setattr(existing_scheduler, "ANSWER_SECONDS", 1)
        with socket.create_server(("127.0.0.1", 0)) as server:
            message = refused(LleError, address=f"tcp://127.0.0.1:{server.getsockname()[1]}")
        assert "accepts connections but sends nothing" in message

    def test_connection_waits_for_a_scheduler_that_starts_late(self, monkeypatch):
        [port] = free_ports(1)
        started = []

        def start() -> None:
            started.append(LocalCluster(n_workers=1, scheduler_port=port, **IN_THIS_PROCESS))

        timer = threading.Timer(1, start)
        timer.start()
        with connect(Cluster(kind="address", address=f"tcp://127.0.0.1:{port}")) as client:
            assert client.submit(sum, (1, 2)).result() == 3
        timer.join()
        started[0].close()

    def test_connection_waits_for_workers_that_start_late(self, monkeypatch):
        with LocalCluster(n_workers=0, **IN_THIS_PROCESS) as scheduler:
            monkeypatch.setattr(existing_scheduler, "WAIT_SECONDS", 0.5)
            message = refused(LleError, address=scheduler.scheduler_address)
            assert "the scheduler has no workers" in message
            monkeypatch.setattr(existing_scheduler, "WAIT_SECONDS", 30)
            threading.Timer(1, scheduler.scale, (1,)).start()
            with connect(Cluster(kind="address", address=scheduler.scheduler_address)) as client:
                assert len(client.scheduler_info(n_workers=-1)["workers"]) == 1

    def test_whole_data_steps_run_on_high_memory_workers(self, plain):
        cluster = Cluster(kind="address", address=plain, memory_resource="BIG")
        with connect(cluster) as client:
            executor = Executor(client, memory_resource(cluster))
            assert executor.memory_resource == "BIG"
            assert client.submit(os.getpid, resources={"BIG": 1}).result() != os.getpid()

    def test_resource_without_any_worker_is_refused_at_once(self, plain):
        message = refused(ConfigError, address=plain, memory_resource="HUGE")
        assert "none of the 1 workers offers it" in message
        assert "--resources HUGE=1" in message


def with_other_numpy(folder: Path) -> str:
    """PYTHONPATH of a worker that begins with another numpy's metadata, as after a half-done upgrade."""
    metadata = folder / "site" / "numpy-1.2.3.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.2.3\n")
    return os.pathsep.join(filter(None, [str(metadata.parent), os.environ.get("PYTHONPATH", "")]))


@contextlib.contextmanager
def late_worker(folder: Path, environment: dict[str, str]):
    """One more worker, with the resource LATE, for a scheduler that runs already."""
    log, command = folder / "late.log", worker_command(folder, "--resources", "LATE=1")
    environments = {"late": {**os.environ, **environment}}
    with dask_processes(folder, {"late": command}, environments, lambda: is_registered(log)):
        yield


class TestVersions:
    def test_a_worker_with_another_version_is_named_with_both(self, tmp_path):
        path = with_other_numpy(tmp_path)
        with one_worker(tmp_path, environment={"PYTHONPATH": path}) as address:
            message = refused(ConfigError, address=address)
        assert f"numpy: {np.__version__} here, 1.2.3 on worker tcp://127.0.0.1:" in message
        assert "constraints.txt" in message

    @pytest.mark.parametrize("way", ["task", "step of the client"])
    def test_late_worker_with_another_version_computes_nothing(self, tmp_path, way):
        """The worker joins after the versions were compared and before the task starts."""
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({})
        environment = {"PYTHONPATH": with_other_numpy(tmp_path)}
        step = make_step("s.t", runs_on=WHOLE_DATA)
        with one_worker(tmp_path) as address, connect(Cluster(kind="address", address=address)) as client:
            executor = Executor(client, "LATE")
            with late_worker(tmp_path, environment), pytest.raises(ConfigError) as caught:
                run_step(step, "", store, executor, Progress())
            assert f"numpy: {np.__version__} here, 1.2.3 on " in str(caught.value)
            assert store.objects.names("_done") == []
            with late_worker(tmp_path, {}):
                assert len(run_step(step, "", store, executor, Progress())) == 1

    def test_another_commit_of_the_same_version_is_named(self, tmp_path):
        shutil.copytree(REPOSITORY / "pipeline", tmp_path / "site" / "lle")
        with (tmp_path / "site" / "lle" / "kernels" / "neighbors" / "knn.py").open("a") as file:
            file.write("# another line\n")
        environment = {"PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1"}
        with one_worker(tmp_path, environment=environment) as address:
            message = refused(ConfigError, address=address)
        assert re.search(rf"{SOURCES}: {source_digest()} here, [0-9a-f]{{12}} on worker tcp://", message)

    def test_local_workers_continue_after_an_edit_of_the_source(self):
        with LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster:
            with Client(cluster) as client:
                assert required_versions(client) is None
            with Client(cluster.scheduler_address) as client:
                assert required_versions(client) == program_versions()

    def test_error_names_the_python_versions_of_scheduler_and_client(self, plain, monkeypatch):
        versions = existing_scheduler.check_versions.__globals__["_versions"]
        calls = []

        def pretend(reported):
            calls.append(reported)
            actual = versions(reported)
            return {**actual, "python": "3.99"} if len(calls) == 2 else actual

        monkeypatch.setitem(existing_scheduler.check_versions.__globals__, "_versions", pretend)
        message = refused(ConfigError, address=plain)
        assert f"python: {sys.version_info[0]}.{sys.version_info[1]} here, 3.99 on the scheduler" in message

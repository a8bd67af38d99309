"""The driver of a run on Kubernetes, with a double of the API over HTTP and the commands of pods as processes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lle.clusters import kubernetes, kubernetes_api
from lle.clusters.connect import connect
from lle.clusters.limits import memory_resource
from lle.config.models import KubernetesCluster
from lle.core.errors import ConfigError, LleError, StageIncomplete
from lle.engine.execute import Executor, run_step
from lle.engine.step import DRIVER, WHOLE_DATA
from lle.storage.store import Store
from tests.support import commands
from tests.support.commands import lle, wait_for_block, write_config
from tests.support.dask_processes import dask_processes
from tests.support.kubernetes_api_double import ApiDouble, load
from tests.support.paths import REPOSITORY
from tests.support.stage_runs import Progress
from tests.support.steps import Facts, make_step
from tests.support.stored import result_bytes
from tests.support.waiting import wait_until

NAP_SECONDS = 5
SECONDS = 400  # long, because a loaded machine may be slow
pytest.importorskip("kubernetes", reason="NOT CHECKED: the Kubernetes client is not installed")
pytestmark = [pytest.mark.timeout(SECONDS), pytest.mark.slow]


def command(part: str, folder: Path) -> list[str]:
    """What a pod of k8s/base runs, with ports and paths of this machine."""
    common = ["--host", "127.0.0.1", "--scheduler-file", str(folder / "scheduler.json")]
    if part == "scheduler":
        return ["scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0", *common]
    [template] = load(f"{part}.yaml")
    [pod] = template["template"]["spec"]["containers"]
    arguments = [text.replace("$(DASK_WORKER_NAME)", f"{part}-1") for text in pod["args"][1:]]
    arguments = [text for text in arguments if not re.match(r"--(worker|nanny)-port|--dashboard-address", text)]
    return [*(re.sub("/scratch", str(folder / part), text) for text in arguments), "--no-dashboard", *common]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """Address of a scheduler with one ordinary and one high-memory worker, started by the pods' own arguments."""
    folder = tmp_path_factory.mktemp("pods")
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "LLE_CORES": "1",
        "NUMBA_NUM_THREADS": "1",
        "MKL_CBWR": "AUTO,STRICT",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    parts = ("scheduler", "worker", "memory")
    commands, environments = {part: command(part, folder) for part in parts}, dict.fromkeys(parts, environment)
    with dask_processes(folder, commands, environments, lambda: True) as address:
        yield address


@pytest.fixture
def api(scheduler, tmp_path, monkeypatch):
    with ApiDouble(scheduler, delete_seconds=0.0) as double:
        path = tmp_path / "kubeconfig"
        path.write_text(double.kubeconfig())
        monkeypatch.setenv("KUBECONFIG", str(path))
        monkeypatch.setenv("LLE_CLUSTER_NAME", "lle-29041235")
        monkeypatch.setenv("LLE_JOB_NAME", "lle-29041235")
        monkeypatch.setenv("LLE_JOB_UID", "0d1f")
        monkeypatch.setattr(kubernetes_api, "FIRST_PAUSE", 0.01)
        monkeypatch.setattr(kubernetes, "POLL_SECONDS", 0.05)
        yield double


def section(**settings) -> KubernetesCluster:
    return KubernetesCluster(kind="kubernetes", **{"workers": 2, "start_timeout": 120, **settings})


def where(store, block) -> Facts:
    return Facts({"pid": os.getpid()})


def nap(store, block) -> Facts:
    time.sleep(NAP_SECONDS)
    return Facts()


class TestLife:
    def test_created_for_the_run_and_deleted_after_it(self, api):
        with connect(section(memory=3 * 2**30)) as client:
            cluster = api.objects["daskclusters", "lle-29041235"]
            group = api.objects["daskworkergroups", "lle-29041235-memory"]
            assert client.submit(os.getpid).result() != os.getpid()
        assert cluster["metadata"]["ownerReferences"] == [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "lle-29041235", "uid": "0d1f"}
        ]
        assert group["metadata"]["ownerReferences"][0]["uid"] == cluster["metadata"]["uid"]
        assert cluster["spec"]["worker"]["replicas"] == 2
        assert cluster["spec"]["idleTimeout"] == 1800
        assert api.names("daskclusters") == api.names("daskworkergroups") == []

    def test_whole_data_steps_run_on_the_high_memory_worker_alone(self, api, tmp_path):
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({})
        cluster = section()
        with connect(cluster) as client:
            executor = Executor(client, memory_resource(cluster))
            [whole_data] = run_step(make_step("t.whole", where, runs_on=WHOLE_DATA), "", store, executor, Progress())
            [fit] = run_step(make_step("t.fit", where, runs_on=DRIVER), "", store, executor, Progress())
            process_of = client.run(os.getpid)
            owners = {
                process_of[address]: worker["resources"]
                for address, worker in client.scheduler_info()["workers"].items()
            }
        assert owners[whole_data.report.values["pid"]] == {"MEMORY": 1.0}
        assert fit.report.values["pid"] == os.getpid()

    def test_no_thread_is_left_in_a_request_to_a_server_that_does_not_answer(self, api, monkeypatch):
        monkeypatch.setattr(kubernetes, "WATCH_SECONDS", 0.05)
        monkeypatch.setattr(kubernetes_api, "REQUEST_SECONDS", 2)
        with connect(section()):
            api.pause = 4.0
            time.sleep(0.5)
            api.pause = 0.0
        assert not [thread for thread in threading.enumerate() if "watch" in thread.name]

    def test_a_run_goes_on_while_the_api_server_is_away(self, api, monkeypatch):
        monkeypatch.setattr(kubernetes, "WATCH_SECONDS", 0.05)
        with connect(section()) as client:
            api.faults = [("get", 503)] * 6
            wait_until(lambda: not api.faults)
            assert client.submit(os.getpid).result() != os.getpid()
        assert api.names("daskclusters") == []

    def test_existing_cluster_of_the_same_job_is_adopted(self, api):
        with connect(section()):
            existing = json.loads(json.dumps(api.objects["daskclusters", "lle-29041235"]))
            group = json.loads(json.dumps(api.objects["daskworkergroups", "lle-29041235-memory"]))
            service = api.objects["services", "lle-29041235-scheduler"]
        api.objects["daskclusters", "lle-29041235"] = existing
        api.objects["daskworkergroups", "lle-29041235-memory"] = group
        api.objects["services", "lle-29041235-scheduler"] = service
        with connect(section()):
            assert api.objects["daskclusters", "lle-29041235"]["metadata"]["uid"] == existing["metadata"]["uid"]
        assert api.count("create", "daskclusters") == api.count("create", "daskworkergroups") == 1
        assert api.names("daskclusters") == api.names("daskworkergroups") == []

    def test_existing_cluster_with_another_configuration_is_replaced(self, api):
        with connect(section()):
            existing = json.loads(json.dumps(api.objects["daskclusters", "lle-29041235"]))
        api.objects["daskclusters", "lle-29041235"] = existing
        with connect(section(workers=3)):
            now = api.objects["daskclusters", "lle-29041235"]
            assert now["metadata"]["uid"] != existing["metadata"]["uid"]
            assert now["spec"]["worker"]["replicas"] == 3
        assert api.count("create", "daskclusters") == 2

    def test_waits_for_a_cluster_that_is_being_deleted(self, api):
        with connect(section()):
            existing = json.loads(json.dumps(api.objects["daskclusters", "lle-29041235"]))
        existing["metadata"].pop("deletionTimestamp", None)
        api.delete_seconds = 0.5
        api.objects["daskclusters", "lle-29041235"] = existing
        api._start_deleting("daskclusters", "lle-29041235")
        with connect(section()):
            assert api.objects["daskclusters", "lle-29041235"]["metadata"]["uid"] != existing["metadata"]["uid"]

    def test_request_is_repeated_if_the_server_is_busy(self, api):
        api.faults = [("get", 503), ("get", 429), ("create", 500), ("delete", 503), ("delete", 504)]
        with connect(section()):
            pass
        assert api.faults == []
        assert api.names("daskclusters") == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="NOT CHECKED: openssl makes the certificate")
def test_service_account_is_used_inside_a_pod(tmp_path, monkeypatch):
    """Server, authority, token and namespace come from the files and variables that Kubernetes puts into a pod."""
    cert, key = tmp_path / "ca.crt", tmp_path / "key.pem"
    options = "-newkey rsa:2048 -nodes -days 2 -subj /CN=api -addext subjectAltName=IP:127.0.0.1"
    command = ["openssl", "req", "-x509", *options.split(), "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "token").write_text("of-the-driver")
    (tmp_path / "namespace").write_text("team-a")
    from kubernetes.config import incluster_config  # skipped above where it is missing

    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(cert))
    monkeypatch.setattr(kubernetes_api, "NAMESPACE_FILE", tmp_path / "namespace")
    with ApiDouble(None, namespace="team-a", certificate=(str(cert), str(key))) as double:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(double.port))
        api = kubernetes_api.KubernetesApi("auto")
        assert api.namespace == "team-a"
        assert api.pod_template("lle-worker")["spec"]["serviceAccountName"] == "lle-worker"
        assert api.get("daskclusters", "none") is None
        (tmp_path / "token").write_text("stolen")
        stranger = kubernetes_api.KubernetesApi("auto")
        with pytest.raises(ConfigError, match="401"):
            stranger.get("daskclusters", "none")


class TestRefusals:
    def refused(self, expected, **settings) -> str:
        with pytest.raises(LleError) as caught, connect(section(**settings)):
            pass
        assert type(caught.value) is expected
        return str(caught.value)

    def test_missing_operator_is_named(self, api):
        api.operator = False
        assert "install the Dask operator" in self.refused(ConfigError)

    def test_missing_templates_are_named(self, api):
        message = self.refused(ConfigError, templates="other")
        assert "no PodTemplate other-scheduler in namespace lle" in message

    @pytest.mark.parametrize(
        ("verb", "plural"),
        [("create", "daskclusters"), ("get", "podtemplates"), ("get", "services"), ("create", "daskworkergroups")],
    )
    def test_missing_permission_is_named(self, api, verb, plural):
        api.denied.add((verb, plural))
        message = self.refused(ConfigError)
        assert f"right to {verb} {plural}" in message
        assert f"403 cannot {verb} resource {plural}" in message
        assert "{" not in message  # of the JSON that the server answers
        assert api.names("daskclusters") == []

    def test_unreachable_server_is_a_temporary_error(self, api, monkeypatch):
        api.__exit__()
        monkeypatch.setattr(kubernetes_api, "REQUEST_SECONDS", 1)
        message = self.refused(LleError)
        assert re.search(r"get podtemplates in namespace lle failed 5 times", message)

    def test_the_reason_why_pods_do_not_start_comes_first(self, api):
        api.scheduler = None
        condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: 3 Insufficient memory."}
        status = {"phase": "Pending", "conditions": [{**condition, "reason": "Unschedulable"}]}
        api.objects["pods", "worker-1"] = {"metadata": {"name": "worker-1"}, "status": status}
        reason = "pod worker-1: no node can run it (0/3 nodes: 3 Insufficient memory). "
        advice = (
            "; lower execution.cluster.memory, high_memory or workers, or add nodes; "
            "the Job tries again; to end it: kubectl delete job -n lle lle-29041235"
        )
        message = self.refused(LleError, start_timeout=1)
        assert message == f"{reason}DaskCluster lle-29041235: its service lle-29041235-scheduler did not appear{advice}"
        api.scheduler = "tcp://127.0.0.1:9"
        message = self.refused(LleError, start_timeout=2)
        assert message.startswith(f"{reason}DaskCluster lle-29041235 in namespace lle: no scheduler answers")
        assert message.endswith(advice)
        assert api.names("daskclusters") == []

    def test_an_image_name_that_is_not_valid_ends_the_job(self, api):
        api.scheduler = None
        waiting = {"reason": "InvalidImageName", "message": 'Failed to apply default image tag "a b": invalid format'}
        container = {"name": "worker", "image": "a b", "imageID": "", "ready": False, "restartCount": 0}
        status = {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}
        api.objects["pods", "worker-1"] = {"metadata": {"name": "worker-1"}, "status": status}
        message = self.refused(ConfigError, start_timeout=1)
        assert "pod worker-1: the image a b cannot be pulled (InvalidImageName, invalid format)" in message

    def test_failed_deletion_after_a_successful_run_is_a_warning(self, api, capsys):
        api.faults = [("delete", 503)] * kubernetes_api.ATTEMPTS
        with connect(section()):
            pass
        warning = capsys.readouterr().err
        assert "kubectl delete daskcluster -n lle lle-29041235" in warning
        assert "failed 5 times; the last: 503 on purpose" in warning

    def test_a_deletion_is_not_awaited_and_not_repeated(self, api, capsys):
        """The operator's finalizer keeps a young cluster for a minute; an error of the run is not held back for it."""
        api.delete_seconds = 600
        with connect(section()):
            api.requests.clear()
        assert api.count("delete", "daskclusters") == 1
        assert api.count("get", "daskclusters") == 1
        assert "deletionTimestamp" in api.objects["daskclusters", "lle-29041235"]["metadata"]
        assert capsys.readouterr().err == ""

    def test_a_cluster_that_is_being_deleted_is_left_to_the_operator(self, api, capsys):
        api.delete_seconds = 600
        with connect(section()):
            api._start_deleting("daskclusters", "lle-29041235")
        assert api.count("delete", "daskclusters") == 0
        assert capsys.readouterr().err == ""

    def test_failed_deletion_does_not_hide_the_error_of_the_run(self, api, capsys):
        api.faults = [("delete", 503)] * kubernetes_api.ATTEMPTS
        with pytest.raises(StageIncomplete, match="the reason"), connect(section()):
            raise StageIncomplete("the reason")
        assert "kubectl delete daskcluster -n lle lle-29041235" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("labels", "owner", "job", "expected", "message"),
        [
            ({}, None, "lle-29041235", ConfigError, "this program did not create it"),
            ({"app.kubernetes.io/managed-by": "Helm"}, None, "lle-29041235", ConfigError, "'Helm'"),
            (None, "lle-manual", "lle-29041235", LleError, "to Job lle-manual, but this run belongs to Job lle-2"),
            (None, None, "lle-29041235", LleError, "belongs to a run outside a Job, but"),
            (None, "lle-manual", None, LleError, "belongs to Job lle-manual, but this run belongs to no Job"),
        ],
    )
    def test_cluster_of_another_owner_is_refused_and_kept(
        self, api, monkeypatch, labels, owner, job, expected, message
    ):
        with connect(section()):
            theirs = json.loads(json.dumps(api.objects["daskclusters", "lle-29041235"]))
        metadata = theirs["metadata"]
        metadata["labels"] = metadata["labels"] if labels is None else labels
        metadata["ownerReferences"] = [{"kind": "Job", "name": owner, "uid": "other"}] if owner else []
        api.objects["daskclusters", "lle-29041235"] = theirs
        if job is None:
            monkeypatch.delenv("LLE_JOB_NAME")
        for workers in (2, 3):  # the same spec, a different spec
            assert message in self.refused(expected, workers=workers)
        assert api.objects["daskclusters", "lle-29041235"] == theirs
        assert api.count("delete", "daskclusters") == 1

    def test_cluster_of_a_deleted_job_with_the_same_name_is_replaced(self, api):
        with connect(section()):
            existing = json.loads(json.dumps(api.objects["daskclusters", "lle-29041235"]))
        existing["metadata"]["ownerReferences"][0]["uid"] = "of-the-deleted-job"
        api.objects["daskclusters", "lle-29041235"] = existing
        with connect(section()):
            assert api.objects["daskclusters", "lle-29041235"]["metadata"]["uid"] != existing["metadata"]["uid"]

    def test_worker_group_of_another_owner_is_refused_and_kept(self, api):
        theirs = {"metadata": {"name": "lle-29041235-memory", "uid": "x", "labels": {"team": "other"}}}
        api.objects["daskworkergroups", "lle-29041235-memory"] = theirs
        assert "DaskWorkerGroup lle-29041235-memory: it exists" in self.refused(ConfigError)
        assert api.objects["daskworkergroups", "lle-29041235-memory"] == theirs
        assert api.names("daskclusters") == []

    def test_service_of_another_owner_is_not_used_as_scheduler(self, api, scheduler):
        api.scheduler = None
        host, port = scheduler.removeprefix("tcp://").split(":")
        spec = {"clusterIP": host, "ports": [{"name": "tcp-comm", "port": int(port)}]}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lle-29041235-scheduler"}, "spec": spec}
        api.objects["services", "lle-29041235-scheduler"] = service
        assert "its service lle-29041235-scheduler did not appear" in self.refused(LleError, start_timeout=1)

    def test_deletion_while_pods_start_ends_the_wait(self, api):
        def delete_when_created() -> None:
            while ("daskclusters", "lle-29041235") not in api.objects:
                time.sleep(0.05)
            time.sleep(0.5)
            api._start_deleting("daskclusters", "lle-29041235")

        api.scheduler = None
        deletion = threading.Thread(target=delete_when_created, daemon=True)
        deletion.start()
        assert "was deleted while the run used it" in self.refused(LleError)
        deletion.join()

    def test_a_cluster_deleted_during_the_run_ends_it(self, api, monkeypatch, tmp_path):
        monkeypatch.setattr(kubernetes, "WATCH_SECONDS", 0.1)
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({})
        started, timer = time.monotonic(), threading.Timer(1, api._start_deleting, ("daskclusters", "lle-29041235"))

        def run() -> None:
            with connect(section()) as client:
                timer.start()
                run_step(make_step("t.nap", nap, 4), "", store, Executor(client), Progress())

        with pytest.raises(LleError, match="lle-29041235 in namespace lle was deleted while the run used it") as caught:
            run()
        assert caught.value.exit_code == 1
        assert time.monotonic() - started < 4 * NAP_SECONDS

    def test_missing_kubeconfig_is_reported(self, monkeypatch, tmp_path):
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
        assert "KUBECONFIG" in self.refused(ConfigError)


@pytest.fixture
def job(tmp_path):
    """Config of a run in the double's cluster."""
    return write_config(
        tmp_path,
        input={"kind": "synthetic", "name": "swiss_roll", "n_points": 2000, "seed": 5},
        preprocess={"scale": "standard"},
        execution={"block_points": 500, "cluster": {"kind": "kubernetes", "workers": 2, "start_timeout": 120}},
    )


@pytest.fixture
def start():
    """As `commands.start`, for processes that do not outlive the test."""
    started = []

    def begin(config: Path) -> subprocess.Popen:
        started.append(commands.start(config))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


class TestRuns:
    def test_killed_then_resumed_in_the_same_cluster_with_the_same_bytes(self, api, job, start, tmp_path, monkeypatch):
        """After SIGKILL the cluster remains. The next pod of the Job adopts it, resumes the run, and deletes it."""
        first = start(job)
        wait_for_block(first, tmp_path / "run.zarr", "find_neighbors")
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
        assert api.names("daskclusters") == ["lle-29041235"]
        second = start(job)
        out, errors = second.communicate(timeout=SECONDS)
        assert second.returncode == 0, errors
        assert sum(json.loads(out)["blocks_reused"].values()) > 0
        assert api.count("create", "daskclusters") == 1
        assert api.names("daskclusters") == []
        monkeypatch.setenv("MKL_CBWR", "AUTO,STRICT")
        alone = lle("run", job, "--set", "execution.cluster={kind: serial}", "--store", tmp_path / "serial.zarr")
        assert alone["metrics"]["n_points"] == 2000
        ours, serial = result_bytes(tmp_path / "run.zarr"), result_bytes(tmp_path / "serial.zarr")
        assert ours.keys() == serial.keys()
        before_the_solve = [name for name in ours if not name.startswith(("embedding", "eigenvalues"))]
        assert [name for name in before_the_solve if ours[name] != serial[name]] == []

    def test_a_signal_deletes_the_cluster(self, api, job, start, tmp_path):
        process = start(job)
        wait_for_block(process, tmp_path / "run.zarr", "ingest")
        process.terminate()
        out, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 143, errors
        assert json.loads(out)["exit_code"] == 143
        assert api.count("create", "daskclusters") == api.count("delete", "daskclusters") == 1
        assert api.names("daskclusters") == []

    def test_a_signal_while_the_pods_start_deletes_the_cluster(self, api, job, start):
        api.scheduler = None
        process = start(job)
        while api.count("get", "services") == 0:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.02)
        process.terminate()
        process.communicate(timeout=SECONDS)
        assert process.returncode == 143
        assert api.names("daskclusters") == []

    def test_config_error_deletes_the_cluster_and_sets_the_exit_code(self, api, job):
        settings = ["--set", "eigensolver.max_memory=1MiB", "--set", "eigensolver.method=factored"]
        process = subprocess.run(
            [sys.executable, "-m", "lle", "run", str(job), *settings], capture_output=True, text=True, timeout=SECONDS
        )
        assert process.returncode == 2, process.stderr
        assert api.count("create", "daskclusters") == 1
        assert api.names("daskclusters") == []

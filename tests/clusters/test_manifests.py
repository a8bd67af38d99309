"""The manifests of k8s/: schemas, names, selectors, accounts, images, sizes and arguments."""

import copy
import importlib.metadata
import json
import re
import tomllib
from pathlib import Path

import dask
import pytest
import yaml
from typer.main import get_command

from lle.cli import commands
from lle.clusters import kubernetes_manifests, limits
from lle.clusters.kubernetes_api import ATTEMPTS, REQUEST_SECONDS
from lle.clusters.kubernetes_manifests import dask_cluster, fitting_name
from lle.config.allowed_places import VARIABLE
from lle.config.fields import parse_size
from lle.config.load import load_config
from lle.config.models import KubernetesCluster
from lle.core.errors import BoundsNotMet, ConfigError, OutputLost
from lle.storage.lock import JOB_UID, STALE_SECONDS
from tests.support.manifest_parts import (
    PARTS,
    allowed_places,
    by_name,
    config_of,
    container,
    custom_resources,
    driver_pod,
    pods,
    with_components,
)
from tests.support.manifest_schemas import K8S, OVERLAYS, check_custom_resource, check_native, rendered
from tests.support.paths import REPOSITORY

VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
COMPONENTS = sorted(f"components/{path.name}" for path in (K8S / "components").iterdir())
TWO_WORKERS = KubernetesCluster(kind="kubernetes", workers=2, idle_timeout=60)
ROOTS = [*(f"overlays/{name}" for name in OVERLAYS), "namespace", "volume", "base"]


class TestSchemas:
    @pytest.mark.parametrize("folder", ROOTS)
    def test_everything_is_valid_strictly(self, folder):
        for manifest in rendered(folder):
            check_native(manifest)

    @pytest.mark.parametrize("component", COMPONENTS)
    def test_components_are_valid(self, component, tmp_path):
        for manifest in with_components(tmp_path, component).values():
            check_native(manifest)

    def test_the_overlay_names_every_component(self):
        """The lines only need their comment sign removed."""
        text = (K8S / "overlays/s3/kustomization.yaml").read_text()
        message = yaml.safe_load(re.sub(r"^# (components:|  - )", r"\1", text, flags=re.MULTILINE))
        assert sorted(message["components"]) == [f"../../{component}" for component in COMPONENTS]

    def test_secret_is_given_to_pods_that_read_and_write(self, tmp_path):
        objects = with_components(tmp_path, "components/s3-secret")
        with_secret = {part for part, pod in pods(objects).items() if container(pod).get("envFrom")}
        assert with_secret == {"driver", "worker", "memory"}

    def test_the_custom_resources_are_valid_strictly(self, objects):
        for resource in custom_resources(objects):
            check_custom_resource(resource)

    @pytest.mark.parametrize(
        "path",
        [
            ("spec", "wokers"),
            ("spec", "worker", "spec", "containers", 0, "imagee"),
            ("spec", "scheduler", "service", "port"),
        ],
    )
    def test_misspelt_field_of_a_custom_resource_is_detected(self, objects, path):
        from jsonschema import ValidationError

        resource = copy.deepcopy(custom_resources(objects)[0])
        place = resource
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = "x"
        with pytest.raises(ValidationError, match=str(path[-1])):
            check_custom_resource(resource)

    def test_misspelt_field_of_a_native_resource_is_detected(self, objects):
        misspelt = copy.deepcopy(objects["CronJob", "lle"])
        misspelt["spec"]["jobTemplate"]["spec"]["backofLimit"] = 3
        with pytest.raises(Exception, match="backofLimit"):
            check_native(misspelt)


class TestNames:
    def test_one_image_everywhere_tagged_with_this_version(self, objects):
        images = {container(pod)["image"] for pod in pods(objects).values()}
        assert len(images) == 1
        assert images.pop().rsplit(":", 1)[1] == VERSION == importlib.metadata.version("lle-pipeline")

    def test_templates_and_containers_are_those_that_the_driver_uses(self, objects):
        cluster, _ = config_of(objects)
        assert isinstance(cluster, KubernetesCluster)
        assert {f"{cluster.templates}-{part}" for part in PARTS} == {n for kind, n in objects if kind == "PodTemplate"}
        assert [container(pods(objects)[part])["name"] for part in PARTS] == ["scheduler", "worker", "worker"]

    def test_accounts_exist_and_only_the_driver_has_rights_and_a_token(self, objects):
        accounts = {name for kind, name in objects if kind == "ServiceAccount"}
        used = {part: pod["spec"]["serviceAccountName"] for part, pod in pods(objects).items()}
        assert set(used.values()) == accounts
        binding = objects["RoleBinding", "lle-driver"]
        assert ("Role", binding["roleRef"]["name"]) in objects
        assert [subject["name"] for subject in binding["subjects"]] == [used["driver"]]
        assert binding["subjects"][0]["namespace"] == binding["metadata"]["namespace"]
        tokens = {part for part, pod in pods(objects).items() if pod["spec"]["automountServiceAccountToken"]}
        assert tokens == {"driver"}

    def test_everything_is_in_one_namespace(self, objects):
        actual = {
            manifest["metadata"].get("namespace") for manifest in objects.values() if manifest["kind"] != "Namespace"
        }
        assert actual == {name for kind, name in objects if kind == "Namespace"}

    def test_config_of_the_driver_is_in_the_config_map(self, objects):
        pod = driver_pod(objects)
        [volume] = [item for item in pod["spec"]["volumes"] if "configMap" in item]
        [mount] = [item for item in container(pod)["volumeMounts"] if item["name"] == volume["name"]]
        path = Path(container(pod)["args"][2])
        data = objects["ConfigMap", volume["configMap"]["name"]]["data"]
        assert path.parent == Path(mount["mountPath"])
        assert data[path.name] == (REPOSITORY / "configs" / path.name).read_text()

    def test_every_mount_has_its_volume_and_every_volume_its_claim(self, objects):
        for pod in pods(objects).values():
            volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
            assert {mount["name"] for mount in container(pod)["volumeMounts"]} == set(volumes)
            for volume in volumes.values():
                if "persistentVolumeClaim" in volume:
                    assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in objects
                if "emptyDir" in volume:
                    assert parse_size(f"{volume['emptyDir']['sizeLimit']}B") > 0

    @pytest.mark.parametrize("job", ["lle-29041235", "Night.Run_7", "x" * 80, "9-lives", "nightly-" * 7 + "-" * 9])
    def test_cluster_names_fit_the_operator(self, job):
        name = fitting_name(job)
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
        assert len(name) <= 53

    def test_long_names_stay_apart(self):
        assert fitting_name("x" * 70 + "1") != fitting_name("x" * 70 + "2")


class TestArguments:
    def test_the_driver_runs_the_command_line(self, objects):
        program, *arguments = container(driver_pod(objects))["args"]
        assert program == "lle"
        context = get_command(commands.app).commands[arguments[0]].make_context(arguments[0], arguments[1:])
        assert arguments[0] == "run"
        assert context.params["as_json"] is True

    @pytest.mark.parametrize("part", PARTS)
    def test_dask_takes_the_pods_arguments(self, objects, part):
        program, *arguments = container(pods(objects)[part])["args"]
        assert program == "dask"
        [entry] = importlib.metadata.entry_points(group="dask_cli", name=arguments[0])
        context = entry.load().make_context(arguments[0], arguments[1:])
        assert context.args == []
        options = context.params
        if part == "scheduler":
            assert (options["port"], options["dashboard_address"]) == ("8786", ":8787")
            return
        assert options["name"] == "$(DASK_WORKER_NAME)"
        assert (options["nthreads"], options["nanny"]) == (1, part == "worker")
        assert options["resources"] == (f"{limits.MEMORY_RESOURCE}=1" if part == "memory" else None)
        scratch = [mount["mountPath"] for mount in container(pods(objects)[part])["volumeMounts"]]
        assert options["local_directory"] in scratch

    def test_ports_are_named_as_the_service_targets_them(self, objects):
        cluster, _ = custom_resources(objects)
        ports = {p["name"]: p["containerPort"] for p in container(pods(objects)["scheduler"])["ports"]}
        assert {port["targetPort"]: port["port"] for port in cluster["spec"]["scheduler"]["service"]["ports"]} == ports
        assert ports == kubernetes_manifests.PORTS

    def test_the_cluster_is_named_after_the_job_and_owned_by_it(self, objects):
        environment = container(driver_pod(objects))["env"]
        named = {
            variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
            for variable in environment
            if "valueFrom" in variable
        }
        assert named == {
            "LLE_CLUSTER_NAME": "metadata.labels['batch.kubernetes.io/job-name']",
            "LLE_JOB_NAME": "metadata.labels['batch.kubernetes.io/job-name']",
            "LLE_JOB_UID": "metadata.labels['batch.kubernetes.io/controller-uid']",
        }


class TestSafety:
    def test_pods_are_restricted(self, objects):
        for pod in pods(objects).values():
            outer, inner = pod["spec"]["securityContext"], container(pod)["securityContext"]
            assert outer["runAsNonRoot"] is True
            assert outer["seccompProfile"] == {"type": "RuntimeDefault"}
            assert inner["readOnlyRootFilesystem"] is True
            assert inner["allowPrivilegeEscalation"] is False
            assert inner["capabilities"] == {"drop": ["ALL"]}

    def test_config_may_only_name_data_places(self, objects, monkeypatch):
        """Allowed are the mounted data volume or the bucket of the overlay, not the driver's files and token."""
        name, data = Path(container(driver_pod(objects))["args"][2]).name, allowed_places(objects)
        own_mounts = {mount["mountPath"] for mount in container(driver_pod(objects))["volumeMounts"]} - {"/data"}
        assert data
        assert all(place.startswith("s3://") or place == "/data" for place in data)
        monkeypatch.setenv(VARIABLE, " ".join(data))
        load_config(REPOSITORY / "configs" / name)
        secrets = "/var/run/secrets/kubernetes.io/serviceaccount"
        for place in (*own_mounts, secrets, "s3://another/rows.zarr", "/data/../etc", f"{data[0]}-of-others/rows.zarr"):
            for key in ("input={kind: zarr, url: %s}", "input={kind: npy, path: %s}", "output.store=%s"):
                with pytest.raises(ConfigError, match=f"outside the places.*{VARIABLE}"):
                    load_config(REPOSITORY / "configs" / name, (key % place,))

    def test_config_allows_no_data_path_without_an_overlay(self, monkeypatch):
        base = by_name("base")
        monkeypatch.setenv(VARIABLE, " ".join(allowed_places(base)))
        with pytest.raises(ConfigError, match="outside the places"):
            load_config(REPOSITORY / "configs" / "kubernetes.yaml")

    def test_only_workers_run_on_spot_nodes(self, objects):
        for part, pod in pods(objects).items():
            node = pod["spec"]["affinity"]["nodeAffinity"]
            if part == "worker":
                assert "requiredDuringSchedulingIgnoredDuringExecution" not in node
                assert pod["spec"]["tolerations"]
            else:
                [term] = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
                assert {expression["operator"] for expression in term["matchExpressions"]} == {"DoesNotExist", "NotIn"}
                assert "tolerations" not in pod["spec"]

    def test_pods_are_not_evicted_by_autoscalers_and_do_not_block_drains(self, objects):
        """A disruption budget without evictions would block drains during a run and raise alarms without one."""
        not_evicted = {
            part
            for part, pod in pods(objects).items()
            if pod["metadata"].get("annotations", {}).get("cluster-autoscaler.kubernetes.io/safe-to-evict") == "false"
            and pod["metadata"]["annotations"].get("karpenter.sh/do-not-disrupt") == "true"
        }
        assert not_evicted == {"driver", "scheduler", "memory"}
        assert "PodDisruptionBudget" not in {kind for kind, _ in objects}

    def test_deleting_an_overlay_keeps_the_data(self):
        for folder in (f"overlays/{name}" for name in OVERLAYS):
            assert {manifest["kind"] for manifest in rendered(folder)}.isdisjoint(
                {"Namespace", "PersistentVolumeClaim"}
            )

    def test_the_namespace_enforces_warns_and_audits(self, objects):
        [namespace] = [manifest for (kind, _), manifest in objects.items() if kind == "Namespace"]
        labels = namespace["metadata"]["labels"]
        for mode in ("enforce", "warn", "audit"):
            assert labels[f"pod-security.kubernetes.io/{mode}"] == "restricted"
            assert f"pod-security.kubernetes.io/{mode}-version" in labels

    def test_prometheus_finds_the_metrics(self, objects):
        for part, port in {"scheduler": "8787", "worker": "8788", "memory": "8788"}.items():
            annotations = pods(objects)[part]["metadata"]["annotations"]
            assert annotations["prometheus.io/scrape"] == "true"
            assert annotations["prometheus.io/port"] == port
            assert int(port) in {
                container_port["containerPort"] for container_port in container(pods(objects)[part])["ports"]
            }

    def test_workers_wait_for_a_late_scheduler_as_long_as_they_live_without_one(self, objects):
        for part in ("worker", "memory"):
            environment = {item["name"]: item.get("value") for item in container(pods(objects)[part])["env"]}
            [death] = [item for item in container(pods(objects)[part])["args"] if item.startswith("--death-timeout=")]
            settings = dask.config.collect_env({key: value for key, value in environment.items() if value is not None})
            seconds = dask.utils.parse_timedelta(settings["distributed"]["comm"]["timeouts"]["connect"])
            assert seconds == float(death.partition("=")[2]) >= 300

    def test_workers_have_no_profiler_which_can_stop_python_3_11(self, objects):
        for part in ("worker", "memory"):
            environment = {
                variable["name"]: variable.get("value") for variable in container(pods(objects)[part])["env"]
            }
            settings = dask.config.collect_env({key: value for key, value in environment.items() if value is not None})
            assert settings["distributed"]["worker"]["profile"]["enabled"] is False

    def test_the_operator_adds_its_labels_to_ours(self, objects):
        cluster, group = custom_resources(objects)
        for pod in (cluster["spec"]["scheduler"], cluster["spec"]["worker"], group["spec"]["worker"]):
            assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "lle"
        name = cluster["metadata"]["name"]
        assert cluster["spec"]["scheduler"]["service"]["selector"]["dask.org/cluster-name"] == name
        assert group["spec"]["cluster"] == name

    def test_manifests_contain_no_secrets(self):
        for path in (*K8S.rglob("*.yaml"), *(REPOSITORY / "configs").glob("*.yaml")):
            text = path.read_text()
            assert "kind: Secret\n" not in text
            assert not re.search(r"AKIA[0-9A-Z]{16}|SECRET_ACCESS_KEY=[^.\s]|password:\s*\S", text)


class TestJob:
    def test_exit_codes_decide_whether_the_job_is_retried(self, objects):
        job = objects["CronJob", "lle"]["spec"]["jobTemplate"]["spec"]
        codes = {ConfigError.exit_code, BoundsNotMet.exit_code, OutputLost.exit_code}
        first, second = job["podFailurePolicy"]["rules"]
        assert (first["action"], set(first["onExitCodes"]["values"])) == ("FailJob", codes)
        assert first["onExitCodes"]["containerName"] == container(driver_pod(objects))["name"]
        assert (second["action"], second["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
        assert driver_pod(objects)["spec"]["restartPolicy"] == "Never"
        assert job["podReplacementPolicy"] == "Failed"

    def test_the_next_pod_takes_the_lock_of_a_dead_one(self, objects):
        """RunLock relies on this: one pod at a time, the next starts only after the last has terminated, same uid."""
        job = objects["CronJob", "lle"]["spec"]["jobTemplate"]["spec"]
        assert job["podReplacementPolicy"] == "Failed"
        assert (job.get("parallelism", 1), job.get("completions", 1)) == (1, 1)
        assert JOB_UID in {variable["name"] for variable in container(driver_pod(objects))["env"]}

    def test_lock_wait_exceeds_the_lifetime_of_a_dead_pods_lock(self, objects):
        _, config = config_of(objects)
        limit = objects["CronJob", "lle"]["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
        assert STALE_SECONDS < config.execution.lock_wait < limit

    def test_the_grace_period_is_long_enough_to_delete_the_cluster(self, objects):
        assert driver_pod(objects)["spec"]["terminationGracePeriodSeconds"] > 2 * ATTEMPTS * REQUEST_SECONDS

    def test_only_one_job_runs_at_a_time(self, objects):
        spec = objects["CronJob", "lle"]["spec"]
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["timeZone"]
        assert spec["startingDeadlineSeconds"] > 100  # Kubernetes looks every ten seconds


class TestTemplates:
    """Templates that the operator would change incorrectly are refused before anything is created."""

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"restartPolicy": "Never"}, "restartPolicy must be Always"),
            ({"hostUsers": False}, "hostUsers"),
            ({"initContainers": [{"name": "side", "restartPolicy": "Always"}]}, r"side\.restartPolicy"),
            ({"containers": [{"name": "dask"}]}, "container named worker"),
            ({"containers": []}, "named worker"),
        ],
    )
    def test_templates_that_the_operator_would_change_are_refused(self, objects, change, message):
        templates = {part: copy.deepcopy(objects["PodTemplate", f"lle-{part}"]["template"]) for part in PARTS}
        templates["worker"]["spec"] |= change
        with pytest.raises(ConfigError, match=message):
            dask_cluster("x", templates, TWO_WORKERS, None)

    def test_templates_keep_their_sizes_without_a_config(self, objects):
        templates = {part: objects["PodTemplate", f"lle-{part}"]["template"] for part in PARTS}
        original = copy.deepcopy(templates)
        resource = dask_cluster("x", templates, TWO_WORKERS, None)
        assert resource["spec"]["worker"]["spec"] == original["worker"]["spec"]
        dask_cluster("x", templates, TWO_WORKERS.model_copy(update={"memory": 12345}), None)
        assert templates == original

    def test_any_changed_template_or_size_is_a_different_spec(self, objects):
        templates = {part: objects["PodTemplate", f"lle-{part}"]["template"] for part in PARTS}
        resource = dask_cluster("x", templates, TWO_WORKERS, None)
        assert kubernetes_manifests.same_spec(resource, dask_cluster("x", templates, TWO_WORKERS, None))
        of_another_job = dask_cluster("x", templates, TWO_WORKERS, {"uid": "of another job"})
        assert not kubernetes_manifests.same_spec(resource, of_another_job)
        assert kubernetes_manifests.same_spec(of_another_job, resource)
        for change in ({"workers": 3}, {"memory": 10**9}, {"idle_timeout": 61}):
            other = dask_cluster("x", templates, TWO_WORKERS.model_copy(update=change), None)
            assert not kubernetes_manifests.same_spec(resource, other)


class TestReadme:
    def test_documentation_states_the_time_limit_of_a_run(self, objects):
        seconds = objects["CronJob", "lle"]["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
        match = re.search(r"(\d+) h \(`activeDeadlineSeconds`", (REPOSITORY / "docs" / "kubernetes.md").read_text())
        assert int(match[1]) * 3600 == seconds

    def test_paths_and_versions_in_the_documentation_exist(self):
        text = (REPOSITORY / "docs" / "kubernetes.md").read_text()
        named = set(re.findall(r"(?<![/\w])((?:k8s|configs)/[\w./-]*[\w])", text))
        assert {"k8s/Dockerfile", "configs/kubernetes.yaml", "k8s/overlays/local-path", "k8s/look.json"} <= named
        assert [path for path in sorted(named) if not (REPOSITORY / path).exists()] == []
        assert set(re.findall(r"/lle:([\d.]+\d)", text)) == {VERSION}
        operator = re.search(r"--version (\S+)", text)[1]
        assert f"dask-kubernetes=={operator}" in (REPOSITORY / "constraints.txt").read_text().splitlines()

    def test_inspection_pod_is_valid_and_allowed(self):
        """`kubectl run` creates a container with the name of the pod; the container of the file is merged into it."""
        look = json.loads((K8S / "look.json").read_text())
        objects = by_name("overlays/local-path")
        worker = pods(objects)["worker"]
        check_native({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "look"}, **look})
        [only] = look["spec"]["containers"]
        assert only["securityContext"] == container(worker)["securityContext"]
        assert look["spec"]["nodeSelector"] == worker["spec"]["nodeSelector"]
        text = (REPOSITORY / "docs" / "kubernetes.md").read_text()
        [command] = re.findall(r"kubectl run (\S+) .*--override-type=strategic", text)
        assert (command, "image" in only) == (only["name"], False)
        assert "get podtemplate -n lle lle-worker" in text
        claims = {
            volume["persistentVolumeClaim"]["claimName"]
            for volume in look["spec"]["volumes"]
            if len(volume) == 2 and "persistentVolumeClaim" in volume
        }
        assert claims == {name for kind, name in objects if kind == "PersistentVolumeClaim"}


def test_config_map_contains_the_files_of_its_generator(objects):
    files = yaml.safe_load((REPOSITORY / "configs" / "Kustomization").read_text())["configMapGenerator"][0]["files"]
    [data] = [manifest["data"] for (kind, _), manifest in objects.items() if kind == "ConfigMap"]
    assert set(files) == set(data)

"""Resource requests in k8s/: enough for the planned steps, and not more than the named nodes have."""

import re
from pathlib import Path

import pytest

from lle.config.fields import parse_size
from lle.engine.step import WORKER
from lle.jobs import plan_preview
from tests.support.manifest_parts import by_name, config_of, container, custom_resources, image_environment, pods
from tests.support.manifest_schemas import OVERLAYS
from tests.support.paths import REPOSITORY


def processors(quantity: str) -> float:
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def asked_in_all(objects) -> tuple[int, float, float]:
    """(pods, GiB, processors) that a run requests from the nodes together."""
    n_pods = dict.fromkeys(pods(objects), 1) | {"worker": config_of(objects)[0].workers}
    requests = {part: container(pod)["resources"]["requests"] for part, pod in pods(objects).items()}
    memory = sum(number * parse_size(f"{requests[part]['memory']}B") for part, number in n_pods.items())
    cores = sum(number * processors(requests[part]["cpu"]) for part, number in n_pods.items())
    return sum(n_pods.values()), memory / 2**30, round(cores, 3)


class TestTotals:
    """Sums of the requests, compared with the documentation."""

    @pytest.mark.parametrize("overlay", OVERLAYS)
    def test_documentation_states_the_requested_resources(self, overlay):
        text = (REPOSITORY / "docs" / "kubernetes.md").read_text()
        match = re.search(rf"^\| `{overlay}` \| (\d+) \| ([\d.]+) GiB \| ([\d.]+) \|", text, flags=re.MULTILINE)
        assert match is not None
        assert asked_in_all(by_name(f"overlays/{overlay}")) == tuple(map(float, match.groups()))

    def test_run_fits_on_one_node_with_the_system_pods(self):
        """A node of this size reserves up to a fifth for itself, and system pods need nearly one processor."""
        text = (REPOSITORY / "k8s/overlays/local-path/kustomization.yaml").read_text()
        gib, cores = map(int, re.search(r"node of (\d+) GiB and (\d+) processors", text).groups())
        _, memory, requested_cores = asked_in_all(by_name("overlays/local-path"))
        assert memory <= 0.75 * gib
        assert requested_cores <= 0.75 * cores

    def test_volume_uses_the_default_storage_class(self):
        """The default storage class has different names in k3s, kind and minikube."""
        claim = by_name("volume")["PersistentVolumeClaim", "lle-data"]
        assert "storageClassName" not in claim["spec"]


class TestSizes:
    def test_memory_is_reserved_in_full_and_processors_are_not_limited(self, objects):
        for pod in pods(objects).values():
            resources = container(pod)["resources"]
            assert resources["requests"]["memory"] == resources["limits"]["memory"]
            assert set(resources["limits"]) == {"memory"}
            assert parse_size(f"{resources['requests']['ephemeral-storage']}B") >= 500 * 2**20

    def test_the_config_agrees_with_the_templates(self, objects):
        cluster, _ = config_of(objects)
        for part, n_bytes in (("worker", cluster.memory), ("memory", cluster.high_memory)):
            assert parse_size(f"{container(pods(objects)[part])['resources']['limits']['memory']}B") == n_bytes

    def test_the_config_decides_the_resources(self, objects):
        cluster, group = custom_resources(objects)
        cluster_config, _ = config_of(objects)
        for resource, size in ((cluster, cluster_config.memory), (group, cluster_config.high_memory)):
            bounds = resource["spec"]["worker"]["spec"]["containers"][0]["resources"]
            assert int(bounds["requests"]["memory"]) == int(bounds["limits"]["memory"]) == size
        assert cluster["spec"]["worker"]["replicas"] == cluster_config.workers

    def test_the_planned_tasks_fit(self, objects, tmp_path):
        _, config = config_of(objects)
        if config.input.kind != "synthetic":
            synthetic = "input={kind: synthetic, name: swiss_roll, n_points: 2000000}"
            _, config = config_of(objects, synthetic, f"output.store={tmp_path}/run.zarr", "eigensolver.n_components=2")
        cluster = config.execution.cluster
        for step in plan_preview.forecast(config).steps:
            bound = cluster.high_memory if (step.runs_on != WORKER) else 0.9 * cluster.memory
            assert step.task_bytes < 0.8 * bound, f"{step.stage}.{step.name}"

    def test_solver_threads_are_the_requested_processors(self, objects):
        [cores] = [
            variable for variable in container(pods(objects)["memory"])["env"] if variable["name"] == "LLE_CORES"
        ]
        assert cores["valueFrom"]["resourceFieldRef"]["resource"] == "requests.cpu"
        assert int(container(pods(objects)["memory"])["resources"]["requests"]["cpu"]) >= 1

    def test_all_written_paths_are_on_volumes(self, objects):
        environment = image_environment()
        for part, pod in pods(objects).items():
            writable = [Path(m["mountPath"]) for m in container(pod)["volumeMounts"] if not m.get("readOnly")]
            for name in ("NUMBA_CACHE_DIR", "MPLCONFIGDIR", "HOME"):
                path = Path(environment[name])
                assert any(path == place or place in path.parents for place in writable), (part, name)

    def test_output_store_and_input_are_mounted_in_the_pods_that_use_them(self, objects):
        _, config = config_of(objects)
        store = config.output.store
        for part in ("driver", "worker", "memory"):
            places = [mount["mountPath"] for mount in container(pods(objects)[part])["volumeMounts"]]
            assert store.startswith("s3://") or any(store.startswith(f"{place}/") for place in places), part

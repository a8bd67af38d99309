"""Network policies of k8s/: egress and ingress of the pods, and the idle check of the operator."""

import asyncio
import json
from ipaddress import ip_address, ip_network
from pathlib import Path

import dask
import distributed
import pytest
import yaml
from distributed import Scheduler
from tornado.httpclient import AsyncHTTPClient

from lle.clusters import kubernetes_manifests
from tests.support.manifest_parts import by_name, container, pods, selects, with_components


class TestPolicies:
    def test_every_pod_is_under_the_network_policy_and_only_the_scheduler_open_to_the_operator(self, objects):
        policies = {name: policy["spec"] for (kind, name), policy in objects.items() if kind == "NetworkPolicy"}
        labels = {part: pod["metadata"]["labels"] for part, pod in pods(objects).items()}
        assert all(selects(policies["lle"]["podSelector"], pod_labels) for pod_labels in labels.values())
        assert set(policies["lle"]["policyTypes"]) == {"Ingress", "Egress"}
        chosen = {
            name: {part for part in labels if selects(spec["podSelector"], labels[part])}
            for name, spec in policies.items()
        }
        assert chosen["lle-operator"] == {"scheduler"}
        assert chosen["lle-api"] == {"driver"}
        opened = {port["port"] for port in policies["lle-operator"]["ingress"][0]["ports"]}
        assert opened == set(kubernetes_manifests.PORTS.values())


def may_reach(objects, address: str, port: int, protocol: str = "TCP") -> set[str]:
    """The parts whose pods some policy lets go to an address outside the cluster's selectors."""
    actual, target = set(), {"protocol": protocol, "port": port}
    for part, pod in pods(objects).items():
        for (kind, _), policy in objects.items():
            if kind == "NetworkPolicy" and selects(policy["spec"]["podSelector"], pod["metadata"]["labels"]):
                rules = policy["spec"].get("egress", ())
                actual |= {part for rule in rules if allows(rule, ip_address(address), target)}
    return actual


def allows(rule, address, port) -> bool:
    blocks = [ip_network(peer["ipBlock"]["cidr"]) for peer in rule.get("to", ()) if "ipBlock" in peer]
    return port in rule.get("ports", [port]) and ("to" not in rule or any(address in block for block in blocks))


EVERY = {"driver", "scheduler", "worker", "memory"}
WITH_DATA = {"driver", "worker", "memory"}


class TestEgress:
    @pytest.mark.parametrize("address", ["10.96.0.10", "169.254.20.10", "fd00:10:96::a"])
    @pytest.mark.parametrize("port", [53, 5353])
    @pytest.mark.parametrize("protocol", ["UDP", "TCP"])
    def test_name_resolution_by_pods_and_by_node_caches_is_allowed(self, objects, address, port, protocol):
        """DNS is served by pods, or by a cache on the node, whose link-local address matches no pod selector."""
        assert may_reach(objects, address, port, protocol) == EVERY

    @pytest.mark.parametrize("port", [443, 6443, 8443, 16443])
    def test_driver_reaches_the_api_server(self, objects, port):
        assert "driver" in may_reach(objects, "192.0.2.1", port)

    def test_other_pods_of_the_namespace_have_no_egress(self, objects):
        spec = objects["NetworkPolicy", "default-deny"]["spec"]
        assert spec == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}

    def test_only_prometheus_reaches_the_metrics(self, objects):
        [rule] = objects["NetworkPolicy", "lle-metrics"]["spec"]["ingress"]
        [source] = rule["from"]
        assert source == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
        assert {port["port"] for port in rule["ports"]} == {8787, 8788}

    def test_only_the_driver_reaches_the_api_where_data_lies_on_a_volume(self):
        assert may_reach(by_name("overlays/local-path"), "192.0.2.1", 443) == {"driver"}

    def test_object_store_is_reachable_from_all_pods_that_use_it(self):
        assert may_reach(by_name("overlays/s3"), "192.0.2.1", 443) >= WITH_DATA

    @pytest.mark.parametrize("address", ["169.254.170.23", "fd00:ec2::23"])
    def test_credentials_agent_of_eks_is_reachable(self, address):
        assert may_reach(by_name("overlays/s3"), address, 80) >= WITH_DATA

    def test_credentials_of_nodes_are_not_reachable(self, objects):
        assert may_reach(objects, "169.254.169.254", 80) == set()

    def test_metadata_server_is_reachable_on_gke(self, tmp_path):
        objects = with_components(tmp_path, "components/gke-identity")
        reached = {"169.254.169.252": (987, 988), "169.254.169.254": (80, 8080)}
        for address, ports in reached.items():
            for port in ports:
                assert may_reach(objects, address, port) == WITH_DATA

    def test_pods_request_a_token_on_azure(self, tmp_path):
        objects = with_components(tmp_path, "components/azure-identity")
        asking = {
            part
            for part, pod in pods(objects).items()
            if pod["metadata"]["labels"].get("azure.workload.identity/use") == "true"
        }
        assert asking == WITH_DATA


class TestIdle:
    """The operator reads by HTTP whether the scheduler is idle; without an answer it uses a time limit."""

    @pytest.fixture
    def routes(self, objects) -> list[str]:
        environment = {variable["name"]: variable["value"] for variable in container(pods(objects)["scheduler"])["env"]}
        settings = dask.config.collect_env(environment)
        return list(settings["distributed"]["scheduler"]["http"]["routes"])

    def test_scheduler_has_the_default_routes_and_that_of_the_operator(self, routes):
        text = (Path(distributed.__file__).parent / "distributed.yaml").read_text()
        usual = yaml.safe_load(text)["distributed"]["scheduler"]["http"]["routes"]
        assert routes == [*usual, "distributed.http.scheduler.api"]

    def test_scheduler_with_these_routes_reports_its_idle_time(self, routes):
        async def ask() -> tuple[dict[str, float], float | None]:
            async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
                address = f"http://127.0.0.1:{scheduler.http_server.port}/api/v1/check_idle"
                answer = await AsyncHTTPClient().fetch(address)
                return json.loads(answer.body), scheduler.idle_timeout

        with dask.config.set({"distributed.scheduler.http.routes": routes}):
            message, limit = asyncio.run(ask())
        assert isinstance(message["idle_since"], float)
        assert limit is None

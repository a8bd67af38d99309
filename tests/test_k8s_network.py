"""What the pods of k8s/ may reach, and who may reach them."""

import pytest
from manifest_parts import by_name, pods, selects
from manifest_schemas import OVERLAYS

from pipeline.clusters import manifests


@pytest.fixture(params=OVERLAYS)
def objects(request):
    return by_name(f"overlays/{request.param}")


class TestPolicies:
    def test_every_pod_is_under_the_network_policy_and_only_the_scheduler_open_to_the_operator(self, objects):
        policies = {name: each["spec"] for (kind, name), each in objects.items() if kind == "NetworkPolicy"}
        labels = {part: pod["metadata"]["labels"] for part, pod in pods(objects).items()}
        assert all(selects(policies["lle"]["podSelector"], each) for each in labels.values())
        assert set(policies["lle"]["policyTypes"]) == {"Ingress", "Egress"}
        chosen = {name: {part for part in labels if selects(spec["podSelector"], labels[part])}
                  for name, spec in policies.items()}  # fmt: skip
        assert chosen["lle-operator"] == {"scheduler"}
        assert chosen["lle-api"] == {"driver"}
        opened = {each["port"] for each in policies["lle-operator"]["ingress"][0]["ports"]}
        assert opened == set(manifests.PORTS.values())

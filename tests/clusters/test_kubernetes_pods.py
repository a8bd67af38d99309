"""Sentences on pods that do not run, from statuses in the form of Kubernetes' API."""

import pytest

from lle.clusters.kubernetes_pods import problems

TAINTS = (
    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient memory. preemption: 0/3 nodes are "
    "available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
)
PULL = (
    'Back-off pulling image "registry.example.com/lle:none": ErrImagePull: rpc error: code = NotFound desc = failed to '
    'pull and unpack image "registry.example.com/lle:none": registry.example.com/lle:none: not found'
)
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


def pod(name, **status):
    return {"metadata": {"name": name}, "status": status}


def unscheduled(message, name="w"):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(name, phase="Pending", conditions=[condition])


def waiting(reason, message="", kind="containerStatuses", **container):
    state = {"waiting": {"reason": reason, "message": message}}
    return pod("w", phase="Pending", **{kind: [{"name": "worker", "image": "lle:1", "state": state, **container}]})


CRASHED = waiting("CrashLoopBackOff", "back-off 10s", lastState=KILLED)


@pytest.mark.parametrize(
    ("found", "text", "cure"),
    [
        (unscheduled(TAINTS), f"no node can run it ({TAINTS.partition('. ')[0]})", "add nodes"),
        (unscheduled(""), "no node can run it (Unschedulable)", "add nodes"),
        (waiting("ImagePullBackOff", PULL), "image lle:1 cannot be pulled (ImagePullBackOff, not found)", "image"),
        (waiting("ErrImagePull"), "the image lle:1 cannot be pulled (ErrImagePull)", "credentials of its registry"),
        (waiting("ImagePullBackOff", kind="initContainerStatuses"), "cannot be pulled (ImagePullBackOff)", "image"),
        (CRASHED, "its container worker ends at once (exit code 137, OOMKilled)", "kubectl logs --previous"),
        (waiting("ConfigError", 'secret "s" not found'), 'ConfigError secret "s" not found', "describe"),
        (pod("w", phase="Pending"), "it is Pending", "describe"),
    ],
)
def test_a_problem_has_a_cause_and_a_cure(found, text, cure):
    [problem] = problems([found])
    assert problem.text.startswith("pod w: ")
    assert problem.text.endswith(text)
    assert cure in problem.cure
    assert not problem.is_permanent


def test_pods_with_the_same_problem_are_counted_and_the_most_come_first():
    many = [unscheduled("0/1 nodes are available: 1 Insufficient cpu.", f"w{number}") for number in range(4)]
    first, second = problems([waiting("InvalidImageName"), *many])
    assert first.text == "pod w0 and 3 more: no node can run it (0/1 nodes are available: 1 Insufficient cpu)"
    assert second.is_permanent


def test_pods_that_run_start_or_are_deleted_have_none():
    deleted = waiting("ImagePullBackOff")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    running = [pod("w", phase="Running"), waiting("CrashLoopBackOff") | {"status": {"phase": "Succeeded"}}]
    assert problems([deleted, *running]) == []

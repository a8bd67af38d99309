"""Why pods do not run: sentences for an operator, from the status that Kubernetes gives them. No network."""

from collections.abc import Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]

SHOWN = 3
"""Most problems that a message names."""
MESSAGE_LENGTH = 200
STARTING = {"ContainerCreating", "PodInitializing"}
NO_PULL = {"InvalidImageName", "ErrImageNeverPull"}
"""Reasons of Kubernetes for an image that cannot be pulled, which a retry does not cure."""
PULL = {"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", *NO_PULL}


class Problem(NamedTuple):
    """A sentence on pods that do not run for one reason, what to do, and whether no retry can help."""

    text: str
    cure: str
    is_permanent: bool = False


def problems(pods: Sequence[Json]) -> list[Problem]:
    """The problems of pods that do not run, those of the most pods first. Pods that are being deleted are left out."""
    names: dict[Problem, list[str]] = {}
    for pod in pods:
        if "deletionTimestamp" not in pod["metadata"] and (problem := _problem(pod.get("status", {}))) is not None:
            names.setdefault(problem, []).append(pod["metadata"]["name"])
    found = sorted(names.items(), key=lambda entry: -len(entry[1]))[:SHOWN]
    named = [(problem, first, f" and {len(more)} more" * bool(more)) for problem, (first, *more) in found]
    return [problem._replace(text=f"pod {first}{others}: {problem.text}") for problem, first, others in named]


def _problem(status: Json) -> Problem | None:
    """Why a pod of this status does not run; None if it runs."""
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in STARTING:
            return _of_container(container, waiting)
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            # The second sentence says that no other pod is evicted for this one.
            nodes = condition.get("message", "").partition(" preemption: ")[0].rstrip(".")
            return Problem(
                f"no node can run it ({nodes or condition.get('reason')})",
                "lower execution.cluster.memory, high_memory or workers, or add nodes",
            )
    phase = status.get("phase", "unknown")
    return None if phase in {"Running", "Succeeded"} else Problem(f"it is {phase}", "see kubectl describe pod")


def _of_container(container: Json, waiting: Json) -> Problem:
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in PULL:
        # The causes are chained with ": "; the last one is that of the registry.
        cause = message.rpartition(": ")[2][:MESSAGE_LENGTH]
        return Problem(
            f"the image {container.get('image')} cannot be pulled ({reason}{cause and f', {cause}'})",
            "correct the image in the PodTemplates (k8s/base/kustomization.yaml) or the credentials of its registry",
            reason in NO_PULL,
        )
    ended = container.get("lastState", {}).get("terminated")
    if ended:
        how = f"exit code {ended.get('exitCode')}, {ended.get('reason')}"
        return Problem(f"its container {container['name']} ends at once ({how})", "see kubectl logs --previous")
    return Problem(f"{reason} {message[:MESSAGE_LENGTH]}".strip(), "see kubectl describe pod")

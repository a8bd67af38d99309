"""Where the tasks of a step run: driver, worker or high-memory worker, and whether they fit there."""

from ..clusters.limits import memory_of_high_memory, memory_of_workers, memory_resource
from ..config.models import Config
from . import task_costs
from .plan import WHOLE_DATA, WORKER, Step


def where(step: Step, config: Config) -> str:
    """Where a step's tasks run: driver, worker, or high-memory worker."""
    if step.runs.place == WORKER:
        return "worker"
    elsewhere = memory_resource(config.execution.cluster) is not None and step.runs.place == WHOLE_DATA
    return "high-memory worker" if elsewhere else "driver"


def fits(step: Step, config: Config) -> bool:
    """Whether a step's task fits its worker, as far as limits are known; the driver's memory is checked in the run."""
    cluster, place = config.execution.cluster, where(step, config)
    limits = {"worker": memory_of_workers(cluster), "high-memory worker": memory_of_high_memory(cluster)}
    limit = limits.get(place)
    return step.runs.all_cores or limit is None or step.runs.bytes_per_task <= task_costs.task_room(limit)

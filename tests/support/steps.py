"""Steps of plain functions, for tests of the engine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lle.engine.step import Report, Step, Task


@dataclass(frozen=True)
class Facts(Report):
    """Any values, as the report of a task."""

    values: dict[str, Any] = field(default_factory=dict)


def no_task(store, block) -> Facts:
    return Facts()


def make_step(
    key: str,
    function: Callable[..., Facts] = no_task,
    n_blocks: int = 1,
    parameters: dict[str, Any] | None = None,
    task_bytes: int = 1,
    **fields: Any,
) -> Step[Facts]:
    """A step "stage.step" whose tasks call a function with some parameters."""
    return Step(key, Task(function, parameters or {}), n_blocks, task_bytes, **fields)

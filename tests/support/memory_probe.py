"""Runs a config in a process of its own, serially, and prints what every step planned and took as JSON lines.

    python tests/support/memory_probe.py config.yaml [last stage]

Freed memory goes back at once (MALLOC_TRIM_THRESHOLD_ in the environment), so that a task's peak is its own.
"""

import gc
import json
import sys

from pipeline.config.models import load_config
from pipeline.engine.plan import WORKER, Step
from pipeline.engine.progress import RunProgress
from pipeline.jobs import run as runs
from pipeline.stages import registry


class Keep(RunProgress):
    """Prints a line for each block that was computed."""

    def advance(self, step: Step, report) -> None:
        line = {"stage": step.stage, "step": step.name, "planned": step.runs.bytes_per_task, "base": report.base_bytes,
                "taken": report.peak_bytes - report.base_bytes, "on_driver": step.runs.place != WORKER}  # fmt: skip
        print(json.dumps(line), flush=True)
        gc.collect()


if __name__ == "__main__":
    names = list(registry.STAGES)
    for name in names[names.index(sys.argv[2]) + 1 :] if len(sys.argv) > 2 else []:
        del registry.STAGES[name]
    runs.run(load_config(sys.argv[1]), False, Keep())

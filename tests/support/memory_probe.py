"""Run a config serially in a separate process, and print planned and measured memory of every step as JSON lines.

    python tests/support/memory_probe.py config.yaml [last stage]

Freed memory is returned at once (MALLOC_TRIM_THRESHOLD_ in the environment), and all of it after each block, so each
block has its own peak. A worker of a local cluster keeps up to 16 MiB.
"""

import ctypes
import gc
import json
import sys

from lle.config.load import load_config
from lle.engine.progress import RunProgress
from lle.engine.step import WORKER, Step
from lle.jobs import run as runs
from lle.stages import registry

LIBC = ctypes.CDLL(None)


class Keep(RunProgress):
    """Prints a line for each block that was computed."""

    def advance(self, step: Step, report) -> None:
        line = {
            "stage": step.stage,
            "step": step.name,
            "planned": step.task_bytes,
            "base": report.base_bytes,
            "taken": report.peak_bytes - report.base_bytes,
            "on_driver": step.runs_on != WORKER,
        }
        print(json.dumps(line), flush=True)
        gc.collect()
        gc.freeze()  # the next collection searches only new objects
        LIBC.malloc_trim(0)


if __name__ == "__main__":
    names = list(registry.STAGES)
    for name in names[names.index(sys.argv[2]) + 1 :] if len(sys.argv) > 2 else []:
        del registry.STAGES[name]
    gc.freeze()  # the objects of the imports are not searched after each block
    runs.run(load_config(sys.argv[1]), False, Keep())

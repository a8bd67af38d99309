"""What this machine, or the container around this process, still has to give, and which versions are installed."""

import contextlib
import importlib.metadata
import os
import sys
from functools import cache
from pathlib import Path

import psutil

CGROUP_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
SOLVER_SHARE = 0.8
PACKAGES = (
    "lle-pipeline", "numpy", "scipy", "zarr", "dask", "dask-ml", "pynndescent", "pypardiso", "mkl", "scikit-learn",
)  # fmt: skip


def available_cores() -> int:
    """Cores this process may use; LLE_CORES tells a container that has a share of the machine's without a limit."""
    given = os.environ.get("LLE_CORES", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Bytes this process may still take: what the machine has free, or what the container's limit leaves."""
    free = int(psutil.virtual_memory().available)
    for limit_path, usage_path in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            limit = int(Path(limit_path).read_text())
            free = min(free, limit - int(Path(usage_path).read_text()))
    return max(free, 0)


def memory_limit(requested: int | str) -> int:
    """Bytes the eigensolver may take: as asked, else 80 % of what is left."""
    return requested if isinstance(requested, int) else int(SOLVER_SHARE * available_memory())


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide results."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found

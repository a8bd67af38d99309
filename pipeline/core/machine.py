"""What this machine, or the container around this process, still has to give, and which versions are installed."""

import contextlib
import hashlib
import importlib.metadata
import os
import socket
import sys
from functools import cache
from pathlib import Path
from typing import Any

import psutil

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CGROUP_FILES = (  # limit, usage, and what of it is the page cache, which makes way
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
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
    """Bytes this process may still take: what the machine has free, or the limit of its container or job leaves."""
    free = [int(psutil.virtual_memory().available), *_left_by_job()]
    for folder in _cgroups():
        free += _left_in(folder)
    return max(min(free), 0)


def _cgroups() -> list[Path]:
    """Folders of the control groups that limit this process, as far as they are seen from here, and those above."""
    found = [CGROUPS, CGROUPS / "memory"]
    with contextlib.suppress(OSError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            top = CGROUPS / "memory" if controllers else CGROUPS
            folder = top / path.lstrip("/")
            if controllers in {"", "memory"} and ".." not in folder.parts:
                found += [each for each in (folder, *folder.parents) if top in each.parents]
    return found


def _left_in(folder: Path) -> list[int]:
    """What the limit of a control group leaves; nothing where it has none."""
    left = []
    for limit, usage, yielding in CGROUP_FILES:
        with contextlib.suppress(OSError, ValueError):
            entries = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            used = int((folder / usage).read_text()) - int(entries.get(yielding, 0))
            left.append(int((folder / limit).read_text()) - used)
    return left


def _left_by_job() -> list[int]:
    """What SLURM's promise to the job (in MiB) leaves on this node; not every site enforces it by a control group."""
    promised = _given("SLURM_MEM_PER_NODE") or _given("SLURM_MEM_PER_CPU") * _given("SLURM_CPUS_ON_NODE")
    if not promised:  # no limit
        return []
    me = psutil.Process()
    taken = 0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            taken += process.memory_info().rss
    return [promised * 2**20 - taken]


def _given(name: str) -> int:
    """A number in the environment; 0 where there is none."""
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else 0


def memory_limit(requested: int | str) -> int:
    """Bytes the eigensolver may take: as asked, else 80 % of what is left."""
    return requested if isinstance(requested, int) else int(SOLVER_SHARE * available_memory())


def process_place() -> dict[str, Any]:
    """Where this process's number means something: the host by name, and there the count of processes it belongs to.

    Containers of one host name may each count their own. `numbers` is None where the system does not say.
    """
    numbers = None
    with contextlib.suppress(OSError):
        numbers = os.stat("/proc/self/ns/pid").st_ino
    return {"host": socket.gethostname(), "numbers": numbers}


def is_seen(place: dict[str, Any]) -> bool:
    """Whether a process's number means here what it meant at a place; one without `numbers` is known by its host."""
    return all(place.get(key, mine) == mine for key, mine in process_place().items())


@cache
def own_sources() -> str:
    """Digest of this package's own files: its version is the same from one release to the next."""
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(b"%s\0%s\0" % (path.relative_to(folder).as_posix().encode(), path.read_bytes()))
    return digest.hexdigest()[:12]


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


def peak_bytes() -> int:
    """The most that this process has held since Linux's count of it was begun anew; elsewhere what it holds now."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(psutil.Process().memory_info().rss)

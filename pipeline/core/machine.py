"""Cores and memory that this process may use, its host, the installed versions, and the cache of compiled functions."""

import atexit
import contextlib
import ctypes
import hashlib
import importlib.metadata
import os
import shutil
import socket
import sys
import tempfile
import time
from functools import cache, lru_cache
from pathlib import Path

import psutil

from .address_space import free_address_space

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CGROUP_FILES = (  # limit, usage, and the reclaimable page cache included in the usage
    ("memory.max", "memory.current", ("inactive_file", "active_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)
SOLVER_SHARE, LARGE_SHARE, LARGE_MEMORY = 0.8, 0.95, 6 * 2**30
"""Shares of the available memory for the eigensolver: of the part below LARGE_MEMORY, and of the rest. Planned and
measured bytes differ by a few percent. The eigensolve of a Swiss roll of ten million points needs 89 % of 22.6 GiB."""
FRESH_SECONDS = 0.1
"""The available memory is read again after this time: a small fit asks 30 times, and a read can take a millisecond."""
# The profiler of a Dask worker calls sys._current_frames(), which can deadlock in Python 3.11 (CPython gh-106883).
WORKER_PROFILE = sys.version_info >= (3, 12)
PACKAGES = (
    "lle-pipeline",
    "numpy",
    "scipy",
    "zarr",
    "dask",
    "dask-ml",
    "pynndescent",
    "pypardiso",
    "mkl",
    "scikit-learn",
)


def available_cores() -> int:
    """Cores this process may use. LLE_CORES sets them in a container that shares cores without a limit."""
    requested = os.environ.get("LLE_CORES", "")
    if requested.isdecimal() and int(requested) > 0:
        return int(requested)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Bytes this process may still allocate: the least free memory of the machine, its container and its job.

    A limit of the address space counts too. The number is up to FRESH_SECONDS old.
    """
    address_space = free_address_space()
    free = _free_memory(int(time.monotonic() / FRESH_SECONDS))
    return max(free if address_space is None else min(free, address_space), 0)


@lru_cache(maxsize=1)
def _free_memory(moment: int) -> int:
    """The free memory of the machine, its container or its job at a time in units of FRESH_SECONDS."""
    return min([int(psutil.virtual_memory().available), *(limit - used for limit, used in _limits())])


def total_memory() -> int:
    """The memory in bytes of the machine, or the limit of the container or the SLURM job if it is lower."""
    return min([int(psutil.virtual_memory().total), *(limit for limit, _ in _limits())])


def _limits() -> list[tuple[int, int]]:
    """(limit, bytes in use) of the control groups of this process, and of its SLURM job on this node."""
    limits = [found for folder in _cgroups() for found in _memory_of_cgroup(folder)]
    # Not every site enforces the job's memory (in MiB) by control groups.
    texts = [os.environ.get(f"SLURM_{name}", "") for name in ("MEM_PER_NODE", "MEM_PER_CPU", "CPUS_ON_NODE")]
    per_node, per_cpu, cpus = (int(text) if text.isdecimal() else 0 for text in texts)
    if job_mib := per_node or per_cpu * cpus:
        me, used = psutil.Process(), 0
        for process in (me, *me.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used += process.memory_info().rss
        limits.append((job_mib * 2**20, used))
    return limits


def _cgroups() -> list[Path]:
    """Folders of the control groups of this process and of their parents, as far as they are visible."""
    folders = [CGROUPS, CGROUPS / "memory"]
    with contextlib.suppress(OSError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            top = CGROUPS / "memory" if controllers else CGROUPS
            folder = top / path.lstrip("/")
            if controllers in {"", "memory"} and ".." not in folder.parts:
                folders += [parent for parent in (folder, *folder.parents) if top in parent.parents]
    return folders


def _memory_of_cgroup(folder: Path) -> list[tuple[int, int]]:
    """(limit, bytes in use) of a control group; empty if it has no limit."""
    groups = []
    for limit_name, usage_name, cache_keys in CGROUP_FILES:
        with contextlib.suppress(OSError, ValueError):
            limit, used = (int((folder / name).read_text()) for name in (limit_name, usage_name))
            entries = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            groups.append((limit, used - sum(int(entries.get(key, 0)) for key in cache_keys)))
    return groups


def memory_limit(requested: int | str) -> int:
    """Bytes the eigensolver may use: the requested size, else a share of the available memory."""
    return requested if isinstance(requested, int) else solver_share(available_memory())


def solver_share(available: int) -> int:
    """80 % of the first 6 GiB of the available memory, and 95 % of the rest."""
    small = min(available, LARGE_MEMORY)
    return int(SOLVER_SHARE * small + LARGE_SHARE * (available - small))


def process_location() -> tuple[str, int | None]:
    """Where a process id is valid: the host name and the id of the PID namespace.

    Containers with the same host name can have different PID namespaces. The id is None if the system does not show
    its namespace.
    """
    numbers = None
    with contextlib.suppress(OSError):
        numbers = os.stat("/proc/self/ns/pid").st_ino
    return socket.gethostname(), numbers


@cache
def source_digest() -> str:
    """Digest of the package's source files. The version number alone does not change between releases."""
    folder, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(b"%s\0%s\0" % (path.relative_to(folder).as_posix().encode(), path.read_bytes()))
    return digest.hexdigest()[:12]


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect the results."""
    installed = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def peak_bytes() -> int:
    """Peak memory of this process in bytes since Linux's counter was last reset; on other systems, its memory now."""
    return status_bytes("VmHWM") or int(psutil.Process().memory_info().rss)


def status_bytes(key: str) -> int:
    """A size from Linux's status of this process; 0 on other systems."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0


def library_environment() -> dict[str, str]:
    """Variables that a process must have set before it loads MKL and OpenBLAS.

    With ``AUTO,STRICT`` MKL uses the kernels for this kind of processor, and results do not depend on the alignment of
    memory, so equal inputs give equal bytes. On 1 M points it took no measurable time; ``COMPATIBLE`` tripled the time
    of the factorization. Bytes are equal only between processors of the same kind.

    Idle threads of OpenBLAS use a core while they wait for work. 2^4 cycles instead of 2^26 save 13 % of the processor
    seconds of multigrid.
    """
    return {"MKL_CBWR": "AUTO,STRICT", "OPENBLAS_THREAD_TIMEOUT": "4"}


def return_freed_memory() -> None:
    """Return memory that this process has freed to the system; only glibc keeps much of it."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def ensure_compiler_cache() -> None:
    """Set NUMBA_CACHE_DIR to a private folder, deleted at exit, if numba has no writable folder: its import would fail.

    Called before numba is imported; worker processes inherit the variable. The folder has a random name because numba
    unpickles the files in it.
    """
    if "NUMBA_CACHE_DIR" in os.environ or os.access(Path(__file__).parents[1], os.W_OK) or _writable(_user_cache()):
        return
    folder = tempfile.mkdtemp(prefix="lle-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


def is_compiled(function: str) -> bool:
    """Whether the cache of this machine holds a function, named `module.function` without its package."""
    package, version = Path(__file__).parents[1], f"py{sys.version_info.major}{sys.version_info.minor}"
    place = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(place)] if place else [package, _user_cache() / "numba"]
    return any(version in file.name for folder in folders for file in folder.rglob(f"{function}[-.]*.nbi"))


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))


def _writable(folder: Path) -> bool:
    """Whether the folder, or the nearest parent that exists, can be written."""
    return os.access(next(place for place in (folder, *folder.parents) if place.exists()), os.W_OK)

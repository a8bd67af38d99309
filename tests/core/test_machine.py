"""Memory available to a process: of the machine, of its control groups, and of its SLURM job; compiled functions."""

import platform
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

import lle
from lle.core import machine
from lle.core.machine import (
    available_memory,
    is_compiled,
    memory_limit,
    return_freed_memory,
    status_bytes,
    total_memory,
)

GIB = 2**30


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """`make(path, limit, usage, cache)`: a control group below an empty tree, on a machine with 100 GiB free."""
    monkeypatch.setattr(machine, "FRESH_SECONDS", 1e-9)
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100 * GIB, total=120 * GIB))
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)

    def make(path, limit, usage, cache, old=False):
        folder = tmp_path / path
        folder.mkdir(parents=True, exist_ok=True)
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if old else ("memory.max", "memory.current")
        for name, value in zip(names, (limit, usage), strict=True):
            (folder / name).write_text(f"{value}\n")
        total, inactive = "total_" * old, cache // 3
        (folder / "memory.stat").write_text(
            f"anon 5\n{total}inactive_file {inactive}\n{total}active_file {cache - inactive}\n"
        )

    return make


def belongs_to(tmp_path, *lines):
    (tmp_path / "own").write_text("\n".join(lines) + "\n")


def test_machine_without_groups_has_its_own_memory(cgroups):
    assert available_memory() == 100 * GIB
    assert total_memory() == 120 * GIB


def test_memory_is_read_again_after_a_moment(cgroups, monkeypatch):
    """Both directions: a small fit reads it once, and a long job sees what other programs take."""
    monkeypatch.setattr(machine, "FRESH_SECONDS", 1e9)
    assert available_memory() == 100 * GIB
    cgroups(".", GIB, 0, 0)
    assert available_memory() == 100 * GIB
    monkeypatch.setattr(machine, "FRESH_SECONDS", 1e-9)
    assert available_memory() == GIB


@pytest.mark.parametrize("old", [False, True])
def test_page_cache_counts_as_free_memory(cgroups, old):
    cgroups("memory" if old else ".", 8 * GIB, 7 * GIB, 6 * GIB, old)
    assert available_memory() == 7 * GIB


def test_group_without_a_limit_does_not_restrict(cgroups):
    cgroups(".", "max", 7 * GIB, 0)
    assert available_memory() == 100 * GIB


def test_usage_above_the_limit_leaves_zero(cgroups):
    cgroups(".", GIB, 2 * GIB, 0)
    assert available_memory() == 0


@pytest.mark.parametrize(("free", "limit"), [(4 * GIB, 3.2 * GIB), (6 * GIB, 4.8 * GIB), (26 * GIB, 23.8 * GIB)])
def test_the_eigensolver_leaves_a_smaller_share_of_a_large_memory(cgroups, free, limit):
    cgroups(".", free, 0, 0)
    assert memory_limit("auto") == pytest.approx(limit)
    assert memory_limit(5 * GIB) == 5 * GIB


def test_smallest_limit_of_the_group_and_its_parents_counts(cgroups, tmp_path):
    """In a SLURM job or a systemd scope the root of the tree has no limit."""
    belongs_to(tmp_path, "0::/job_7/step_0/task")
    cgroups("job_7", 4 * GIB, GIB, 0)
    cgroups("job_7/step_0", "max", GIB, 0)
    cgroups("job_7/step_0/task", 9 * GIB, GIB, 0)
    cgroups("job_8", GIB, 0, 0)  # another's
    assert available_memory() == 3 * GIB
    assert total_memory() == 4 * GIB


def test_groups_of_version_one(cgroups, tmp_path):
    belongs_to(tmp_path, "7:cpu,cpuacct:/elsewhere", "4:memory:/job_7", "0::/")
    cgroups("memory/job_7", 4 * GIB, GIB, 0, old=True)
    cgroups("memory/elsewhere", GIB, 0, 0, old=True)
    assert available_memory() == 3 * GIB


def test_group_path_outside_the_visible_tree_is_ignored(cgroups, tmp_path):
    belongs_to(tmp_path, "0::/../job_9")
    cgroups("../job_9", GIB, 0, 0)
    assert available_memory() == 100 * GIB


@pytest.mark.parametrize(
    ("environment", "gib"),
    [
        ({"SLURM_MEM_PER_NODE": "65536"}, 64),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "16"}, 32),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({"SLURM_MEM_PER_CPU": "2048"}, None),
        ({"SLURM_MEM_PER_NODE": "?"}, None),
        ({"SLURM_MEM_PER_NODE": "²"}, None),
    ],
)
def test_memory_of_the_slurm_job_minus_usage(cgroups, monkeypatch, environment, gib):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if gib is None:
        assert available_memory() == 100 * GIB
        assert total_memory() == 120 * GIB
    else:
        assert (gib - 8) * GIB < available_memory() < gib * GIB
        assert total_memory() == gib * GIB


@pytest.mark.parametrize(("text", "cores"), [("3", 3), ("0", None), ("²", None), ("many", None)])
def test_cores_that_are_no_number_are_ignored(monkeypatch, text, cores):
    monkeypatch.delenv("LLE_CORES", raising=False)
    all_cores = machine.available_cores()
    monkeypatch.setenv("LLE_CORES", text)
    assert machine.available_cores() == (cores or all_cores)


def test_source_digest_covers_the_whole_package(monkeypatch, tmp_path):
    """A worker with an older stage, not only an older machine.py, must be refused."""
    package = shutil.copytree(Path(lle.__file__).parent, tmp_path / "pipeline")
    monkeypatch.setattr(machine, "__file__", str(package / "core" / "machine.py"))
    digest = machine.source_digest.__wrapped__()
    assert digest == machine.source_digest()
    with (package / "stages" / "ingest.py").open("a") as file:
        file.write("# edited\n")
    assert machine.source_digest.__wrapped__() != digest


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep little")
def test_freed_memory_is_returned():
    """Every other array stays, so that the freed ones lie between them."""
    arrays = [np.ones(8000) for _ in range(4000)]  # 256 MB in all
    arrays[::2] = [None] * 2000
    before = status_bytes("VmRSS")
    return_freed_memory()
    assert status_bytes("VmRSS") < before - 60 * 10**6


def test_functions_compiled_for_this_python_are_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "folder").mkdir()
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    (tmp_path / "folder" / f"module.function.locals.search-73.{version}.nbi").touch()
    (tmp_path / "folder" / f"module.plain-12.{version}.nbi").touch()
    (tmp_path / "folder" / "module.other-5.py30.nbi").touch()
    assert is_compiled("module.function")
    assert is_compiled("module.plain")
    assert not is_compiled("module.other"), "it is compiled for another Python"
    assert not is_compiled("module.func")

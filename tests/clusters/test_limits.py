"""Number of local workers, and the shared memory that they need."""

import os
from types import SimpleNamespace

import pytest

from lle.clusters import limits
from lle.clusters.limits import n_workers, require_shared_memory
from lle.config.models import Cluster
from lle.core.errors import LleError

GIB = 2**30


@pytest.mark.parametrize(
    ("cores", "total", "settings", "expected"),
    [
        (2, 64, {}, 2),
        (16, 4, {}, 3),
        (16, 0.5, {}, 1),
        (16, 4, {"workers": 8}, 8),
        (16, 64, {"memory": "8GiB"}, 6),
        (4, 64, {"memory": "8GiB"}, 4),
        (16, 64, {"kind": "serial"}, 1),
    ],
)
def test_auto_has_as_many_workers_as_cores_and_memory_allow(monkeypatch, cores, total, settings, expected):
    monkeypatch.setattr(limits, "available_cores", lambda: cores)
    monkeypatch.setattr(limits, "total_memory", lambda: int(total * GIB))
    assert n_workers(Cluster(**settings)) == expected


@pytest.fixture
def shared_memory(monkeypatch, tmp_path):
    """`make(pages, limit)`: /dev/shm with a number of free pages."""
    monkeypatch.setattr(limits, "SHARED_MEMORY", tmp_path)

    def make(pages, limit=1000):
        status = SimpleNamespace(f_blocks=limit, f_bavail=pages, f_frsize=limits.PAGE_SIZE)
        monkeypatch.setattr(os, "statvfs", lambda folder: status)

    return make


def test_shared_memory_for_all_workers_is_enough(shared_memory):
    shared_memory(22)
    require_shared_memory(2)
    shared_memory(4)
    require_shared_memory(0)
    shared_memory(0, limit=0)  # a file system without a limit
    require_shared_memory(2)


def test_too_little_shared_memory_is_refused_with_the_cure(shared_memory):
    shared_memory(21)
    with pytest.raises(LleError, match=r"expected 88 KiB for this process and 2 local workers, but 84 KiB.*--shm-size"):
        require_shared_memory(2)
    shared_memory(3)
    with pytest.raises(LleError, match="but 12 KiB can be written"):
        require_shared_memory(0)


def test_missing_shared_memory_is_needed_by_workers_only(shared_memory, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SHARED_MEMORY", tmp_path / "none")
    require_shared_memory(0)
    with pytest.raises(LleError, match=r"but 0 KiB can be written.*kind: serial"):
        require_shared_memory(1)

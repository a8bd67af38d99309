"""Whole runs in a small container: little shared memory, a read-only file system, a control group with a limit."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.commands import write_config
from tests.support.paths import REPOSITORY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="NOT CHECKED: root mounts"),
]
GROUPS = Path("/sys/fs/cgroup")
MIB = 2**20
READ_ONLY = "mount --make-rprivate / && mount -t tmpfs tmpfs {folder} && mount -o remount,ro,bind /"


def run_in(folder: Path, setup: str, *arguments: str, cwd: Path = REPOSITORY, n_points=6000, **cluster):
    """`lle run` after a shell command in a mount namespace of its own: (exit code, last JSON line, stderr)."""
    config = write_config(
        folder,
        input={"kind": "synthetic", "name": "swiss_roll", "n_points": n_points},
        output={"report": False},
        execution={"block_points": 2000, "cluster": cluster},
    )
    copied = f"cat > {config} && cd {cwd}"  # the folder may be a new mount
    script = f'set -e; text=$(cat {config}); {setup}; echo "$text" | {copied}; exec "$@"'
    command = [sys.executable, "-B", "-m", "lle", "run", str(config), "--json", *arguments]
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        timeout=500,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    lines = ended.stdout.strip().splitlines()
    assert lines, ended.stderr[-3000:]
    return ended.returncode, json.loads(lines[-1]), ended.stderr


def test_two_local_workers_run_in_the_smallest_shared_memory(tmp_path):
    code, _, text = run_in(tmp_path, "mount -t tmpfs -o size=88k tmpfs /dev/shm", kind="local", workers=2)
    assert code == 0, text


@pytest.mark.parametrize(("size", "kind"), [("64k", "local"), ("4k", "serial"), ("64k,ro", "local")])
def test_too_little_shared_memory_is_refused_before_the_run(tmp_path, size, kind):
    """Semaphores would fail without a name, and Intel's OpenMP ends the process with SIGBUS."""
    workers = {"workers": 2} if kind == "local" else {}
    code, answer, _ = run_in(tmp_path, f"mount -t tmpfs -o size={size} tmpfs /dev/shm", kind=kind, **workers)
    assert code == 1
    assert "/dev/shm: expected" in answer["message"]
    assert "--shm-size 64m" in answer["message"]


@pytest.mark.parametrize("kind", ["serial", "local"])
def test_run_writes_in_its_working_directory_where_all_else_is_read_only(tmp_path, kind):
    setup = READ_ONLY.format(folder=tmp_path) + " && ! touch /tmp/x 2>&-"
    code, answer, text = run_in(tmp_path, setup, cwd=tmp_path, kind=kind)
    assert code == 0, text
    assert answer["metrics"]["n_points"] == 6000


def test_no_writable_temporary_folder_is_refused_with_the_cure(tmp_path):
    code, answer, text = run_in(tmp_path, READ_ONLY.format(folder=tmp_path), cwd=Path("/"), kind="serial")
    assert code == 1
    assert "Set TMPDIR to a writable folder" in answer["message"]
    assert "Traceback" not in text


@pytest.fixture
def control_group():
    """`make(n_bytes)`: the folder of a new control group with a memory limit, of either version."""
    folders: list[Path] = []

    def make(n_bytes: int) -> Path:
        old = (GROUPS / "memory").is_dir()
        folder = (GROUPS / "memory" if old else GROUPS) / f"lle-test-{os.getpid()}"
        try:
            folder.mkdir()
            folders.append(folder)
            (folder / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(n_bytes))
        except OSError as error:
            pytest.skip(f"NOT CHECKED: no control group with a memory limit can be made: {error}")
        return folder

    yield make
    for folder in folders:
        deadline = time.monotonic() + 20
        while folder.exists():  # busy until the last process of the group has ended
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


@pytest.mark.parametrize(("mib", "kind"), [(1300, "serial"), (1700, "local")])
def test_run_stays_below_the_limit_of_its_control_group(tmp_path, control_group, mib, kind):
    """By default there are as many workers as fit the limit, on any number of cores."""
    group = control_group(mib * MIB)
    code, answer, text = run_in(tmp_path, f"echo $$ > {group}/cgroup.procs", kind=kind, n_points=30_000)
    assert code == 0, text
    peak = next(file for file in map(group.joinpath, ("memory.max_usage_in_bytes", "memory.peak")) if file.exists())
    assert 100 * MIB < int(peak.read_text()) < mib * MIB
    assert answer["metrics"]["solver"]["converged"]


def test_limit_below_what_a_run_needs_is_refused_before_the_run(tmp_path, control_group):
    group = control_group(300 * MIB)
    code, answer, _ = run_in(tmp_path, f"echo $$ > {group}/cgroup.procs", kind="serial")
    assert code in (1, 2)
    assert answer["error"] == "NotEnoughMemory"

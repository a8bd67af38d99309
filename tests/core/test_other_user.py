"""A user other than root, without a home, a writable package or a writable TMPDIR."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support.commands import write_config
from tests.support.paths import REPOSITORY

CAPABILITY = "-all,+dac_read_search"
"""Root's right to read, without that to write: the interpreter may lie in root's home."""
AS_NOBODY = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    f"--inh-caps={CAPABILITY}",
    f"--ambient-caps={CAPABILITY}",
    f"--bounding-set={CAPABILITY}",
]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_run_of_another_user_without_home_and_with_read_only_tmpdir(tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest-of-" not in str(folder):
            break
        folder.chmod(0o777)
    read_only = tmp_path / "tmp"
    read_only.mkdir(mode=0o555)
    config = write_config(
        tmp_path,
        input={"kind": "synthetic", "name": "swiss_roll", "n_points": 900},
        eigensolver={"method": "multigrid"},
    )
    ended = subprocess.run(
        [*AS_NOBODY, sys.executable, "-B", "-m", "lle", "run", str(config), "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TMPDIR": str(read_only)},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout)["metrics"]["n_points"] == 900
    assert (tmp_path / "run.zarr").stat().st_uid == 65534

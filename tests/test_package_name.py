"""The folder `pipeline` is installed as the package `lle`."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

JOB = (
    "input: {kind: synthetic, name: swiss_roll, n_points: 300, seed: 3}\noutput: {store: run.zarr, report: false}\n"
    "quality: {sample: 50}\nexecution: {cluster: {kind: local, workers: 1}}\n"
)


def run_python(folder: Path, *arguments: str) -> str:
    """What Python prints for the arguments in `folder`, which is first on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)])}
    completed = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with a pipeline.py of the user's own."""
    (tmp_path / "pipeline.py").write_text("own = 'of the user'\n")
    return tmp_path


def test_own_pipeline_module_does_not_break_lle(folder):
    code = "import pipeline, lle; from lle.engine.plan import Layout; print(pipeline.own, Layout.__module__)"
    assert run_python(folder, "-c", code) == "of the user lle.engine.plan"
    assert run_python(folder, "-m", "lle", "--version").startswith("lle ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lle", "pipeline"])
def test_either_command_runs_a_job_with_worker_processes(tmp_path, name):
    (tmp_path / "job.yaml").write_text(JOB)
    assert run_python(tmp_path, "-m", name, "run", "job.yaml").count("done in") == 1


def test_root_of_a_checkout_runs_without_installation(tmp_path):
    """`python -m pipeline` imports no installed `lle`, which may be another version."""
    (tmp_path / "lle.py").write_text("raise ImportError('the installed package was imported')")
    assert run_python(tmp_path, "-m", "pipeline", "--version").startswith("lle ")


def test_imports_inside_the_package_are_relative():
    absolute = re.compile(r"^ *(from|import) (lle|pipeline)\b", re.MULTILINE)
    for path in (REPOSITORY / "pipeline").rglob("*.py"):
        assert absolute.search(path.read_text()) is None, path


def test_every_folder_of_the_package_is_installed():
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = [path.parent.relative_to(REPOSITORY) for path in (REPOSITORY / "pipeline").rglob("__init__.py")]
    assert set(settings["packages"]) == {".".join(("lle", *folder.parts[1:])) for folder in folders}
    assert settings["package-dir"] == {"lle": "pipeline"}

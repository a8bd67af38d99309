"""The package is called lle; pipeline, the name of its folder, is another name of the same modules."""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

OF_A_USER = "own = 'of the user'\n"


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
    (tmp_path / "pipeline.py").write_text(OF_A_USER)
    return tmp_path


@pytest.mark.parametrize("code", ["import pipeline, lle", "import lle, pipeline"])
def test_own_pipeline_module_does_not_break_lle(folder, code):
    code += "; from lle import embed; from lle.engine.plan import Step; print(pipeline.own, Step.__module__)"
    assert run_python(folder, "-c", code) == "of the user lle.engine.plan"


def test_own_pipeline_module_does_not_break_the_command(folder):
    command = "import sys; from lle.__main__ import main; sys.argv = ['lle', 'schema']; main()"
    assert '"properties"' in run_python(folder, "-c", command)
    assert run_python(folder, "-m", "lle", "--version").startswith("lle ")


@pytest.mark.slow
def test_own_pipeline_module_does_not_break_worker_processes(folder):
    (folder / "job.yaml").write_text(
        "input: {kind: synthetic, name: swiss_roll, n_points: 300, seed: 3}\noutput: {store: run.zarr, report: false}\n"
        "quality: {sample: 50}\nexecution: {cluster: {kind: local, workers: 1}}\n"
    )
    assert run_python(folder, "-m", "lle", "run", "job.yaml").count("done in") == 1


def test_both_names_are_one_module(tmp_path):
    code = (
        "import lle.engine.plan, pipeline.engine.plan; from pipeline.core.errors import LleError as A;"
        "from lle.core.errors import LleError as B; import lle, pipeline, sys;"
        "print(lle is pipeline, lle.engine.plan is sys.modules['pipeline.engine.plan'], A is B,"
        "pipeline.engine.plan.__spec__.name)"
    )
    assert run_python(tmp_path, "-c", code) == "True True True lle.engine.plan"
    assert run_python(tmp_path, "-m", "pipeline", "--version").startswith("lle ")


def test_folder_named_lle_does_not_hide_the_package(tmp_path):
    (tmp_path / "lle").mkdir()
    assert run_python(tmp_path, "-c", "from pipeline import embed; print(embed.__module__)") == "lle.api.embed"


def test_unknown_submodule_of_other_name_is_an_import_error(tmp_path):
    code = "try: import pipeline.nothing\nexcept ModuleNotFoundError as error: print(error)"
    assert run_python(tmp_path, "-c", code) == "No module named 'pipeline.nothing'"


def test_pickle_by_either_name_loads(tmp_path):
    code = (
        "import pickle, lle; from pipeline.core.errors import ConfigError as A; data = pickle.dumps(A, protocol=0);"
        "print(pickle.loads(data) is pickle.loads(data.replace(b'lle.', b'pipeline.')) is A, b'clle.core' in data)"
    )
    assert run_python(tmp_path, "-c", code) == "True True"


def test_imports_inside_the_package_are_relative():
    nodes = [(path, node) for path in (REPOSITORY / "pipeline").rglob("*.py")
             for node in ast.walk(ast.parse(path.read_text()))]  # fmt: skip
    for path, node in nodes:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
        assert not {"lle", "pipeline"} & {name.split(".")[0] for name in names}, f"{path}: {ast.unparse(node)}"


def test_every_folder_of_the_package_is_installed():
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = [path.parent.relative_to(REPOSITORY) for path in (REPOSITORY / "pipeline").rglob("__init__.py")]
    expected = {".".join(("lle", *folder.parts[1:])) for folder in folders}
    assert set(settings["packages"]) == expected | {"pipeline"}
    assert settings["package-dir"] == {"lle": "pipeline", "pipeline": "pipeline"}

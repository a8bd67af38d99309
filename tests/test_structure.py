"""Rules about the source that linters do not check. Import directions: import-linter contracts in pyproject.toml."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import lle

PACKAGE = Path(lle.__file__).resolve().parent
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_FILE_LINES = 350
MAX_TOP_ENTRIES = 16
IMPORTED_LATE = (
    "dask.array",
    "dask_ml",
    "kubernetes",
    "matplotlib",
    "pandas",
    "pyarrow",
    "pynndescent",
    "pypardiso",
    "scipy.stats",
    "sklearn",
)


def test_package_has_few_entries_at_its_top() -> None:
    entries = [path for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert len([path for path in entries if not path.name.startswith("__")]) <= MAX_TOP_ENTRIES


def test_wheel_has_all_packages_and_files() -> None:
    """`py.typed` tells users' type checkers that the package is typed."""
    setuptools = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = [".".join(("lle", *path.parent.relative_to(PACKAGE).parts)) for path in PACKAGE.rglob("__init__.py")]
    assert sorted(setuptools["packages"]) == sorted(packages)
    folders = {name: PACKAGE.joinpath(*name.split(".")[1:]) for name in packages}
    data = {
        path
        for name, patterns in setuptools["package-data"].items()
        for glob in patterns
        for path in folders[name].glob(glob)
    }
    others = {
        path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc", ".nbi", ".nbc"}
    }
    assert data == others
    assert PACKAGE / "py.typed" in data


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_workers_are_listed_by_workers_of_only() -> None:
    """See `clusters.limits.workers_of`: Client.scheduler_info can lack workers."""
    for path in FILES:
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call):
                assert not ast.unparse(call.func).endswith("scheduler_info"), f"{path}:{call.lineno}"


def test_kernels_do_not_print() -> None:
    for path in (PACKAGE / "kernels").rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"], path


def loaded_by(code: str, modules: tuple[str, ...], folder: Path | None = None) -> list[str]:
    """Which of the modules a new process has loaded after running the code."""
    report = f"lambda: print(*(name for name in {modules} if name in sys.modules), sep=chr(10))"
    code = f"import atexit, sys; atexit.register({report})\n{code}"
    completed = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return [line for line in completed.stdout.splitlines() if line in modules]


@pytest.mark.parametrize(
    ("module", "late"),
    [
        ("lle.cli.commands", ("lle.api.estimator", "xarray")),
        ("lle", ("numpy", "scipy", "dask", "distributed", "zarr", "pydantic", "xarray")),
    ],
)
def test_import_loads_no_heavy_package(module: str, late: tuple[str, ...]) -> None:
    assert loaded_by(f"import {module}", (*IMPORTED_LATE, *late)) == []


@pytest.mark.slow
def test_import_of_estimator_loads_little_beside_scikit_learn() -> None:
    late = ("dask", "distributed", "zarr", "numba", "pydantic", "matplotlib", "xarray", "rich", "lle.jobs.run")
    assert loaded_by("from lle import LocallyLinearEmbedding", late) == []
    assert loaded_by("from lle import LocallyLinearEmbedding, embed", ("pydantic", "rich")) == ["pydantic", "rich"]


@pytest.mark.parametrize(
    ("command", "late"),
    [
        (
            ["validate", "job.yaml"],
            ("numba", "dask.array", "distributed", "pandas", "sklearn", "zarr.core", "matplotlib"),
        ),
        (["status", "run.zarr"], ("numba", "scipy.linalg", "scipy.spatial", "dask", "zarr.core", "pandas")),
        (
            ["run", "job.yaml"],
            ("numba", "sklearn", "dask", "distributed", "tornado", "pandas", "pyarrow", "scipy.stats"),
        ),
    ],
)
def test_commands_load_only_what_they_need(command: list[str], late: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "input: {kind: npy, path: x.npy}\noutput: {store: run.zarr, report: false}\n"
        "quality: {sample: 50}\nexecution: {cluster: {kind: serial}}\n"
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(3).random((120, 3)))
    main = "from lle.__main__ import main; import sys; sys.argv = ['lle', *{}]; main()"
    if command[0] == "status":
        loaded_by(main.format(["run", "job.yaml"]), late, tmp_path)
    assert loaded_by(main.format(command), late, tmp_path) == []

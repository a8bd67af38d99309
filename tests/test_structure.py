"""Rules about the source that linters do not check. Import directions: import-linter contracts in pyproject.toml."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pipeline

PACKAGE = Path(pipeline.__file__).resolve().parent
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_FILE_LINES = 350
MAX_TOP_ENTRIES = 16
IMPORTED_LATE = (
    "dask.array", "dask_ml", "datashader", "kubernetes", "matplotlib", "pandas", "pyarrow", "pynndescent", "pypardiso",
    "scipy.stats", "sklearn",
)  # fmt: skip


def test_package_has_few_entries_at_its_top() -> None:
    entries = [path for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert len([path for path in entries if not path.name.startswith("__")]) <= MAX_TOP_ENTRIES


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_scheduler_info_is_requested_for_all_workers() -> None:
    """Dask 2026.6 describes five workers unless n_workers=-1 is passed."""
    for path in FILES:
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("scheduler_info"):
                arguments = {word.arg: ast.unparse(word.value) for word in call.keywords}
                assert arguments == {"n_workers": "-1"}, f"{path}:{call.lineno}"


def test_kernels_do_not_print() -> None:
    for path in (PACKAGE / "kernels").rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"], path


@pytest.mark.parametrize("module", ["pipeline.cli.commands", "pipeline"])
def test_import_loads_no_heavy_package(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {IMPORTED_LATE} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

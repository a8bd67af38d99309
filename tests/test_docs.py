"""What README and docs/ show works: their Python and YAML run, their links lead somewhere, the site builds."""

import dataclasses
import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer.main
import yaml

from lle.cli.commands import app
from lle.config.load import check_config
from lle.report.metrics import Metrics
from tests.support.paths import load_script

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
MAX_PICTURE_BYTES = 200_000
RUNS = {f"lle.api.{name}" for name in ("embed", "estimator", "open_run", "plot")}
"""Modules whose examples run all stages."""
EXAMPLES = sorted(
    ".".join(("lle", *path.relative_to(ROOT / "pipeline").with_suffix("").parts))
    for path in (ROOT / "pipeline").rglob("*.py")
    if ">>> " in path.read_text() and path.stem != "scanpy"  # which needs the extra anndata
)


EXECUTE = """
import json, sys
import nbformat
from nbclient import NotebookClient

notebook, folder = nbformat.read(sys.argv[1], as_version=4), sys.argv[2]
NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
print(json.dumps([[dict(output["data"]) for output in cell.outputs if "data" in output] for cell in cells]))
"""
"""A script that executes a notebook and prints the data of its outputs, a list for each cell of code."""


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run_python(code: str, folder: Path) -> str:
    """Run code as a script of a new process in `folder`; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.slow
def test_python_of_readme_runs(tmp_path: Path) -> None:
    [code] = code_blocks("README.md", "python")
    shape, trustworthiness = run_python(code, tmp_path).rsplit(" ", 1)
    assert shape == "(3000, 2)"
    assert float(trustworthiness) > 0.99


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/tutorials/parquet_files.md", "docs/tutorials/nightly_job.md", "docs/tutorials/single_cell.md"],
)
def test_first_yaml_of_page_is_a_valid_config(page: str) -> None:
    check_config(yaml.safe_load(code_blocks(page, "yaml")[0]), page)


def test_parts_of_configs_in_how_to_pages_are_valid() -> None:
    required_sections = {"input": {"kind": "npy", "path": "x.npy"}, "output": {"store": "runs/x.zarr"}}
    parts = [
        part
        for page in DOCS.glob("how_to/*.md")
        for block in code_blocks(f"docs/how_to/{page.name}", "yaml")
        for part in re.split(r"\n(?=neighbors:)", block)
        if "sweep:" not in part
    ]
    assert len(parts) >= 8
    for part in parts:
        check_config({**required_sections, **yaml.safe_load(part)}, part)


@pytest.mark.slow
def test_tutorials_run_from_first_to_last_block(tmp_path: Path) -> None:
    parquet = code_blocks("docs/tutorials/parquet_files.md", "python")
    assert "(4000, 2)" in run_python("\n".join([*parquet, "print(Y.shape)"]), tmp_path)
    notebook = code_blocks("docs/tutorials/notebook.md", "python")
    assert "(3000, 2)" in run_python("\n".join([*notebook, "print(Z.shape)"]), tmp_path)


@pytest.mark.slow
def test_single_cell_tutorial_runs_from_first_to_last_block(tmp_path: Path) -> None:
    pytest.importorskip("anndata", reason="needs the extra anndata, whose pandas is below 3")
    blocks = code_blocks("docs/tutorials/single_cell.md", "python")
    code = "\n".join([*blocks, "print(adata.obsm['X_lle5'].shape, list(table.index[:1]), set(table['label']))"])
    assert "(600, 5) ['cell0'] {'" in run_python(code, tmp_path)


def test_every_key_of_the_metrics_is_explained() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "reference/metrics.md").read_text(), re.MULTILINE)
    explained = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert {field.name for field in dataclasses.fields(Metrics)} <= explained


@pytest.mark.slow
def test_notebook_runs_and_shows_one_bar_tiles_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    script = tmp_path / "execute.py"
    script.write_text(EXECUTE)
    command = [sys.executable, str(script), str(DOCS / "tutorials" / "notebook.ipynb"), str(tmp_path)]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    fit, run, picture, table, rows = json.loads(completed.stdout)
    assert [sorted(data) for data in fit] == [["text/html", "text/plain"]]
    assert "100 %  done" in fit[0]["text/plain"]
    assert "Trustworthiness" in run[0]["text/html"]
    assert "data:image/png;base64," in run[0]["text/html"]
    assert "image/png" in picture[0]
    assert "<table" in table[0]["text/html"]
    assert rows[0]["text/plain"].startswith("array([[")


@pytest.mark.parametrize("page", PAGES)
def test_links_of_page_have_targets(page: str) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", (ROOT / page).read_text())
    missing = [target for target in targets if not ((ROOT / page).parent / target).exists()]
    assert not missing


def test_pictures_are_small() -> None:
    large = [path.name for path in DOCS.rglob("*.png") if path.stat().st_size > MAX_PICTURE_BYTES]
    assert not large


def generated_page(name: str) -> str:
    """The text that replaces {{ name }} in a page."""
    text: str = load_script(DOCS / "generated_pages.py").PLACEHOLDERS[name]()
    return text


def test_every_config_key_has_a_description() -> None:
    rows = [line for line in generated_page("config_reference").splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == []


def test_every_command_has_an_example_that_parses() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    page = generated_page("command_reference")
    for name, command in commands.items():
        heading, _, example = command.epilog.partition(": ")
        program, subcommand, *words = shlex.split(example.partition(" > ")[0])
        assert (heading, program, subcommand) == ("Example", "lle", name)
        command.make_context(name, words)
        assert f"```console\n$ {example}\n```" in page
    assert "$ lle sweep [OPTIONS] CONFIG...\n" in page
    assert "* `CONFIG`: YAML files" in page
    assert re.findall(r"[{}]|<str>|list\[", page) == []


@pytest.mark.filterwarnings("ignore::lle.EmbeddingWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in RUNS else ()) for name in EXAMPLES]
)
def test_examples_of_docstrings_run(name: str) -> None:
    result = doctest.testmod(import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path)]
    completed = subprocess.run(command, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    pages = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")]
    assert len(pages) > 50
    remote = re.compile(r'<(?:script|link|img)[^>]+(?:src|href)="https?://')
    assert [page for page in pages if remote.search((tmp_path / page).read_text())] == []

"""What a release publishes agrees: pyproject.toml, CHANGELOG.md, CITATION.cff, .zenodo.json, the conda recipe, docs."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

import lle
from lle.cli.commands import app
from tests.support.paths import REPOSITORY

PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
RECIPE: dict[str, Any] = yaml.safe_load((REPOSITORY / ".github" / "conda" / "recipe.yaml").read_text())
CITATION: dict[str, Any] = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
ARCHIVE: dict[str, Any] = json.loads((REPOSITORY / ".zenodo.json").read_text())
CONDA_NAMES = {"dask": "dask-core", "matplotlib": "matplotlib-base", "prometheus-client": "prometheus_client"}
"""Packages whose names on conda-forge differ from those on PyPI by more than upper case."""


def conda_name(name: str) -> str:
    return CONDA_NAMES.get(name.lower(), name.lower())


def recipe_requirements() -> Iterator[tuple[str, SpecifierSet]]:
    """Name and versions of each package that the recipe needs at run time."""
    for entry in RECIPE["requirements"]["run"]:
        name, _, versions = (entry["then"] if isinstance(entry, dict) else entry).partition(" ")
        yield name, SpecifierSet(versions)


def test_every_file_names_the_version_of_the_project() -> None:
    version = PROJECT["version"]
    assert lle.__version__ == version
    assert CliRunner().invoke(app, ["--version"]).stdout == f"lle {version}\n"
    assert (CITATION["version"], RECIPE["context"]["version"]) == (version, version)
    assert "version" not in ARCHIVE  # the archive takes it from the tag
    for name in ("k8s/Dockerfile", "k8s/base/kustomization.yaml", "docs/kubernetes.md", "docs/tutorials/slurm.md"):
        tags = re.findall(r"(?:\blle:|newTag: )(\d[\w.]*\d)", (REPOSITORY / name).read_text())
        assert set(tags) == {version}, name
    assert f"`git tag -s v{version}`" in (REPOSITORY / "CONTRIBUTING.md").read_text()
    section, date = re.findall(r"^## (\S+) \((.+)\)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    if date != "unreleased":  # changes after a release stand below the next version
        assert (section, date) == (version, CITATION["date-released"])


def test_recipe_needs_what_the_wheel_needs() -> None:
    wheel = [Requirement(text) for text in PROJECT["dependencies"]]
    expected = {conda_name(one.name): one.specifier for one in wheel}
    assert dict(recipe_requirements()) == {**expected, "python": SpecifierSet(PROJECT["requires-python"])}
    on_some_processors = [
        entry["then"].split()[0] for entry in RECIPE["requirements"]["run"] if isinstance(entry, dict)
    ]
    assert on_some_processors == [one.name for one in wheel if one.marker is not None]


def test_recipe_describes_the_project() -> None:
    assert RECIPE["package"]["name"] == PROJECT["name"]
    assert RECIPE["about"]["license"] == PROJECT["license"]
    assert RECIPE["about"]["summary"] == PROJECT["description"]
    assert RECIPE["build"]["python"]["entry_points"] == [f"{k} = {v}" for k, v in PROJECT["scripts"].items()]
    assert (REPOSITORY / ".github" / "conda" / RECIPE["source"]["path"]).resolve() == REPOSITORY


def test_citation_and_archive_agree() -> None:
    assert CITATION["license"] == PROJECT["license"]
    assert ARCHIVE["license"] == PROJECT["license"].lower()  # Zenodo's identifiers are in lower case
    assert CITATION["title"] == ARCHIVE["title"]
    assert ARCHIVE["description"] == PROJECT["description"]
    assert [one["name"] for one in ARCHIVE["creators"]] == [one["name"] for one in CITATION["authors"]]
    assert any(CITATION["references"][0]["doi"] in reference for reference in ARCHIVE["references"])


def test_project_describes_itself_as_the_archive_does() -> None:
    assert PROJECT["keywords"] == ARCHIVE["keywords"]
    assert PROJECT["authors"] == ARCHIVE["creators"]


def test_classifiers_name_the_supported_versions_of_python() -> None:
    prefix = "Programming Language :: Python :: "
    named = [name.removeprefix(prefix) for name in PROJECT["classifiers"] if name.startswith(prefix)]
    supported = SpecifierSet(PROJECT["requires-python"])
    assert named == [f"3.{minor}" for minor in range(30) if f"3.{minor}" in supported]
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "checks.yml").read_text())
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == named

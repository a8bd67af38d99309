"""The import rules and sizes that keep the package readable, checked on the source itself."""

import ast
import graphlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import pipeline

PACKAGE = Path(pipeline.__file__).resolve().parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
MODULES = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") or "__init__" for name in FILES}

MAX_FILE_LINES = 350
MAX_BODY_LINES = 60
STAGES = {name for name in FILES if name.startswith("stages/") and not name.endswith("__init__.py")}
KERNELS = {name for name in FILES if name.startswith("kernels/")}
CLUSTERS = {name for name in FILES if name.startswith("clusters/")}
SOURCES = {name for name in FILES if name.startswith("sources/")}

# Packages that only some files may import.
OWNERS = {
    "yaml": {"config_yaml.py"},
    "pydantic": {"config.py", "config_clusters.py", "config_fields.py", "config_inputs.py", "config_neighbors.py",
                 "config_sweep.py"},
    "pydantic_core": {"config_fields.py"},
    "zarr": {"array_input.py", "store.py", "whole_chunks.py"} | SOURCES,
    "obstore": {"objects.py"} | SOURCES,
    "fsspec": {"objects.py"} | SOURCES,
    "dask": {"array_input.py", "cluster.py", "estimator.py", "execute.py", "opened.py", "preprocess.py",
             "task_tree.py"} | CLUSTERS,
    "distributed": {"execute.py", "cluster.py", "preprocess.py", "row_blocks.py", "task_tree.py"} | CLUSTERS,
    "kubernetes": {"clusters/kubernetes_api.py"},
    "dask_jobqueue": {"clusters/slurm.py"},
    "dask_ml": {"preprocess.py"},
    "typer": {"cli.py", "usage.py"},
    "xarray": {"opened.py", "report/raster.py"},
}
LATE = {
    "dask.array", "dask_ml", "datashader", "kubernetes", "matplotlib", "pandas", "pyarrow", "pynndescent",
    "pypardiso", "scipy.stats", "sklearn",
}  # fmt: skip
NOT_IN_KERNELS = {"dask", "distributed", "zarr", "yaml", "pydantic", "logging", "typer", "rich"}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text(), name)


@cache
def imports(name: str) -> frozenset[str]:
    """Dotted names of all that a file imports, anywhere in it; `from a import b` gives a.b."""
    found = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def packages(name: str) -> set[str]:
    return {imported.split(".")[0] for imported in imports(name)}


def own_modules(name: str) -> set[str]:
    """Modules of the package that a file imports, without the leading `pipeline.`."""
    found = set()
    for imported in imports(name):
        parts = imported.split(".")
        if parts[0] == "pipeline":
            module = ".".join(parts[1:])
            while module and module not in MODULES:
                module = module.rpartition(".")[0]
            found.add(module or "__init__")
    return found


def module_name(name: str) -> str:
    return name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def test_the_rules_see_the_package():
    assert {"cli.py", "run.py", "store.py", "stages/ingest.py", "kernels/knn.py"} <= set(FILES)
    assert own_modules("stages/ingest.py") >= {"schema", "config", "store", "plan", "kernels.duplicates"}
    assert {"numpy", "dask_ml"} <= packages("preprocess.py")


@pytest.mark.parametrize("name", sorted(KERNELS))
class TestKernels:
    def test_import_no_other_part_of_the_package(self, name):
        others = {module for module in own_modules(name) if not module.startswith("kernels.")}
        assert others <= {"errors"}

    def test_import_nothing_of_the_machinery(self, name):
        assert not packages(name) & NOT_IN_KERNELS

    def test_do_not_print(self, name):
        calls = [node for node in ast.walk(tree(name)) if isinstance(node, ast.Call)]
        assert not [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def test_kernels_do_not_write_down_again_what_the_config_does():
    def functions(names):
        return {node.name for name in names for node in ast.walk(tree(name)) if isinstance(node, ast.FunctionDef)}

    assert "least_neighbors" in functions(name for name in FILES if name.startswith("config"))
    assert not functions(name for name in FILES if name.startswith("config")) & functions(KERNELS)


@pytest.mark.parametrize("package", OWNERS)
def test_packages_stay_with_their_owners(package):
    assert {name for name in FILES if package in packages(name)} <= OWNERS[package]


@pytest.mark.parametrize("name", sorted(STAGES))
def test_stages_meet_only_in_the_store(name):
    above = {"run", "cli", "execute", "cluster"}
    others = {module for module in own_modules(name) if module.startswith("stages.")}
    assert not own_modules(name) & above
    assert not others


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_clusters_know_nothing_of_stages_and_stores(name):
    below = {module for module in own_modules(name) if not module.startswith("clusters.")}
    assert below <= {"config", "errors", "machine"}


def test_only_the_package_itself_names_the_estimator():
    above = {"estimator", "in_python", "opened", "placing", "array_input"}
    session = {"__init__.py", *(f"{name}.py" for name in above)}
    assert {name for name in FILES if own_modules(name) & above} <= session


def test_nothing_imports_the_command_line():
    assert [name for name in FILES if "cli" in own_modules(name)] in ([], ["__main__.py"])


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("errors.py", set()), ("schema.py", set()), ("plan.py", {"schema"}), ("config_fields.py", set()),
     ("config_clusters.py", {"config_fields"}), ("config_neighbors.py", {"config_fields"}), ("credentials.py", set()),
     ("config_inputs.py", {"config_fields"}), ("config_sweep.py", {"config_fields", "credentials", "errors"}),
     ("confine.py", {"errors"}),
     ("config_words.py", {"config_clusters", "config_fields", "config_inputs", "config_neighbors"}),
     ("config_yaml.py", {"credentials", "errors"}),
     ("config.py", {"config_clusters", "config_fields", "config_inputs", "config_neighbors", "config_sweep",
                    "config_words", "config_yaml", "confine", "credentials", "errors"}),
     ("clusters/manifests.py", {"errors"}), ("clusters/kubernetes_api.py", {"errors"}),
     ("machine.py", set()), ("refusals.py", {"credentials", "errors"}),
     ("objects.py", {"credentials", "errors", "object_protocol", "refusals"}),
     ("places.py", {"object_protocol", "schema"}), ("whole_chunks.py", {"errors"}),
     ("store.py", {"errors", "objects", "places", "refusals", "plan", "schema", "whole_chunks"}),
     ("checkpoint.py", {"errors", "markers", "plan", "store"}), ("lock.py", {"errors", "machine", "store"}),
     ("memory.py", {"errors", "plan"}), ("disk.py", set()),
     ("clusters/versions.py", {"errors", "machine"}),
     ("execute.py", {"checkpoint", "clusters.versions", "errors", "isolated", "kept", "machine", "memory", "plan",
                     "store"}), ("kept.py", set()),
     ("array_input.py", {"errors"}), ("opened.py", {"checkpoint", "errors", "schema", "store", "versions"}),
     ("isolated.py", {"errors"}), ("task_tree.py", {"errors"}),
     ("versions.py", {"errors", "lock", "places", "store"}),
     ("reuse.py", {"checkpoint", "errors", "kernels.knn", "plan", "schema", "store"}),
     ("reprocess.py", {"alignment", "checkpoint", "config", "errors", "lineage", "list_sizes", "lock", "machine",
                       "plan", "sources", "store", "versions"}),
     ("lineage.py", {"checkpoint", "config", "groups", "machine", "places", "plan", "schema", "store"}),
     ("tree_search.py", {"kernels.knn", "kernels.partition", "schema", "store"}),
     ("appended.py", {"config", "disk", "groups", "memory", "new_in_groups", "plan", "schema", "store", "tree_search"}),
     ("new_in_groups.py", {"disk", "groups", "kernels.knn", "kernels.mutual", "kernels.partition", "memory", "plan",
                          "schema", "store"}),
     ("usage.py", {"credentials"}), ("metrics.py", {"plan"}), ("textfile.py", {"errors"})],
)  # fmt: skip
def test_lower_layers_import_only_those_below(name, allowed):
    assert own_modules(name) <= allowed


@pytest.mark.parametrize("name", sorted(name for name in FILES if "distributed" in packages(name)))
def test_no_worker_is_left_out_of_what_the_scheduler_is_asked(name):
    """Dask 2026.6 describes five workers unless it is asked for all."""
    for call in ast.walk(tree(name)):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("scheduler_info"):
            assert {word.arg: ast.unparse(word.value) for word in call.keywords} == {"n_workers": "-1"}, call.lineno


def test_a_command_starts_without_what_few_steps_need():
    """Loading these takes as long as everything else together, in each worker again."""
    code = f"import sys, pipeline.cli; print(*(name for name in {sorted(LATE)} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_import_cycle():
    graph = {module_name(name): own_modules(name) - {"__init__", module_name(name)} for name in FILES}
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"files import each other: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("name", FILES)
class TestSizes:
    def test_file(self, name):
        assert len((PACKAGE / name).read_text().splitlines()) <= MAX_FILE_LINES

    def test_function_bodies(self, name):
        long = {}
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                long[node.name] = (node.end_lineno or 0) - first.lineno + 1
        assert {function: lines for function, lines in long.items() if lines > MAX_BODY_LINES} == {}

"""Nothing that is read can run code; by default nothing listens beyond this machine; installed versions are pinned."""

import ast
import json
import pickle
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.clusters import connect as clusters
from lle.config.models import Cluster
from lle.core.errors import ConfigError, InputError, StoreError
from lle.inputs import open_source
from lle.storage.local_objects import LocalObjects
from lle.storage.store import Store
from tests.support.commands import lle, write_config
from tests.support.paths import REPOSITORY

PACKAGE = REPOSITORY / "pipeline"
CALLS_NEVER = {
    "eval",
    "exec",
    "pickle.load",
    "pickle.loads",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "os.system",
    "joblib.load",
    "np.frombuffer.pickle",
    "marshal.loads",
    "shelve.open",
}


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def trap(tmp_path):
    trap = Trap(tmp_path / "sprung")
    pickle.loads(pickle.dumps(trap))
    assert trap.path.exists()
    trap.path.unlink()
    yield trap
    assert not trap.path.exists()


def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


class TestStores:
    """A store may be made by others: what its records name lies inside it, or nothing happens."""

    @pytest.fixture
    def precious(self, tmp_path):
        folder = tmp_path / "precious"
        folder.mkdir()
        (folder / "file.json").write_text("{}")
        yield folder
        assert (folder / "file.json").read_text() == "{}"
        assert len(list(folder.iterdir())) == 1

    @pytest.fixture
    def config(self, tmp_path):
        return write_config(
            tmp_path,
            input={"kind": "synthetic", "name": "sheet", "n_points": 60},
            output={"report": False},
            neighbors={"n_neighbors": 6},
        )

    @pytest.mark.parametrize("absolute", [True, False])
    @pytest.mark.parametrize("kind", ["arrays", "bundles"])
    def test_names_in_records_cannot_leave_the_store(self, tmp_path, precious, config, absolute, kind):
        lle("run", config)
        named = str(precious) if absolute else "../precious"
        record = {"begun": 0, "fingerprint": "x", "n_blocks": 1, "arrays": [], "bundles": [], kind: [named]}
        Store(str(tmp_path / "run.zarr")).put_json("_run/steps/ingest.old.json", record)
        result = CliRunner().invoke(app, ["run", str(config), "--json"])
        assert (result.exit_code, json.loads(result.stdout)["error"]) == (1, "StoreError")
        assert "which is outside" in " ".join(result.stderr.split())

    def test_every_use_of_a_stored_name_is_checked(self, tmp_path, precious):
        (tmp_path / "store").mkdir()
        objects = LocalObjects(str(tmp_path / "store"))
        destination = LocalObjects(str(tmp_path / "other"))
        for name in ("../precious/file.json", str(precious / "file.json"), "a/../../precious/file.json"):
            for use in (
                objects.get,
                objects.names,
                objects.folders,
                objects.exists,
                objects.size,
                objects.delete,
                objects.age,
                lambda n: objects.put(n, b""),
                lambda n: objects.create(n, b""),
                lambda n: objects.copy([n], destination),
            ):
                with pytest.raises(StoreError):
                    use(name)

    @pytest.mark.parametrize("version", ["../../precious", "", ".", "a/b"])
    def test_names_in_pointers_cannot_leave_the_root(self, tmp_path, precious, config, version):
        lle("run", config, "--set", "output.keep=2")
        root = Store(str(tmp_path / "run.zarr"))
        root.put_json("published.json", {**root.get_json("published.json"), "version": version, "history": [version]})
        commands = ["export", root.url, str(tmp_path / "y.npy")], ["run", str(config), "--set", "output.keep=2"]
        for command in commands:
            result = CliRunner().invoke(app, [*command, "--json"])
            assert (result.exit_code, json.loads(result.stdout)["error"]) == (1, "StoreError"), command
            assert "is not the id of a version" in " ".join(result.stderr.split())


class TestSource:
    @pytest.mark.slow
    @pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
    def test_source_has_no_call_that_executes_data(self, path):
        for call in calls(path):
            name = ast.unparse(call.func)
            keywords = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert name not in CALLS_NEVER, f"line {call.lineno}"
            assert keywords.get("shell") != "True", f"line {call.lineno}"
            if name in {"np.load", "numpy.load"}:
                assert keywords.get("allow_pickle") == "False", f"line {call.lineno}"

    def test_rule_detects_such_calls(self):
        assert "np.load" in {ast.unparse(call.func) for call in calls(PACKAGE / "storage" / "bundles.py")}
        assert "yaml.dump" in {ast.unparse(call.func) for call in calls(PACKAGE / "config" / "yaml_io.py")}


class TestPickles:
    """Objects in an input or a store are refused, and are never unpickled."""

    @pytest.mark.parametrize("kind", ["npy", "npz"])
    def test_arrays_of_pickled_objects_are_refused(self, tmp_path, trap, kind):
        path = tmp_path / f"x.{kind}"
        (np.save if kind == "npy" else np.savez)(path, np.array([[trap, trap]], dtype=object))
        with pytest.raises(
            InputError, match=r"dtype object; save numbers as .* text, as of labels or ids, as x\.astype"
        ):
            open_source(kind, path=str(path))

    @pytest.mark.parametrize(
        "metadata",
        [
            {"filters": [{"id": "pickle"}]},
            {"compressor": {"id": "pickle"}},
            {"filters": [{"id": "zlib", "level": 1}, {"id": "pickle"}]},
            {"dtype": "|O", "fill_value": None, "filters": [{"id": "pickle"}]},
        ],
        ids=json.dumps,
    )
    @pytest.mark.parametrize("name", ["points", "labels"])
    def test_pickle_codecs_of_zarr_are_refused(self, tmp_path, trap, metadata, name):
        url = str(tmp_path / "x.zarr")
        group = zarr.open_group(url, mode="w", zarr_format=2)
        for array_name in ("points", "labels"):
            group.create_array(array_name, data=np.ones((4, 2)), chunks=(4, 2), compressors=None)
        described = tmp_path / "x.zarr" / name / ".zarray"
        described.write_text(json.dumps(json.loads(described.read_text()) | metadata))
        (tmp_path / "x.zarr" / name / "0.0").write_bytes(pickle.dumps(trap))
        with pytest.raises(InputError):
            read_all(url)

    def test_pickle_codec_of_zarr_version_3_is_refused(self, tmp_path, trap):
        url = str(tmp_path / "x.zarr")
        group = zarr.open_group(url, mode="w")
        group.create_array("points", data=np.ones((4, 2)), chunks=(4, 2), compressors=None)
        group.create_array("labels", data=np.ones(4), chunks=(4,))
        described = tmp_path / "x.zarr" / "points" / "zarr.json"
        content = json.loads(described.read_text())
        content["codecs"] = [{"name": "numcodecs.pickle", "configuration": {}}]
        described.write_text(json.dumps(content))
        (tmp_path / "x.zarr" / "points" / "c" / "0" / "0").write_bytes(pickle.dumps(trap))
        with pytest.raises(InputError):
            read_all(url)

    def test_store_with_a_pickle_filter_is_refused(self, tmp_path, trap):
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({})
        group = zarr.open_group(store.url, mode="a", zarr_format=2)
        group.create_array("points", data=np.ones((4, 2)), chunks=(4, 2), compressors=None)
        described = Path(store.url, "points", ".zarray")
        described.write_text(json.dumps(json.loads(described.read_text()) | {"filters": [{"id": "pickle"}]}))
        Path(store.url, "points", "0.0").write_bytes(pickle.dumps(trap))
        with pytest.raises(StoreError):
            Store(store.url).read_all("points")

    def test_python_tags_of_yaml_are_refused(self, tmp_path, trap):
        from lle.config.load import load_config

        path = tmp_path / "job.yaml"
        path.write_text(f"output: !!python/object/apply:os.mknod ['{trap.path}']")
        with pytest.raises(ConfigError, match="not valid YAML"):
            load_config(path)


def read_all(url: str) -> None:
    source = open_source("zarr", url=url, array="points", labels="labels")
    source.read(0, 4)
    source.read_labels(0, 4)


class TestListening:
    def test_local_cluster_listens_on_this_machine_only(self, monkeypatch):
        received = {}

        class Asked(Exception):
            pass

        def local_cluster(**keywords):
            received.update(keywords)
            raise Asked

        monkeypatch.setattr("lle.clusters.local.QuietCluster", local_cluster)
        with pytest.raises(Asked), clusters.connect(Cluster(kind="local", workers=1, memory=2**30)):
            pass
        assert received["host"] == "127.0.0.1"
        assert received["dashboard_address"].startswith("127.0.0.1:")


class TestPins:
    def test_every_dependency_is_pinned_by_name_and_version_only(self):
        text = (REPOSITORY / "constraints.txt").read_text()
        pins = dict(line.split("==") for line in text.splitlines() if line[:1] not in ("", "#"))
        assert all(re.fullmatch(r"[0-9][0-9A-Za-z.]*", version) for version in pins.values())
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        required = {name_of(requirement) for requirement in project["dependencies"]}
        required |= {
            name_of(requirement) for extra in project["optional-dependencies"].values() for requirement in extra
        }
        # No release of anndata works with the pandas that is pinned, so its extra is installed without the constraints.
        assert required - {"lle-pipeline", "anndata"} <= {name_of(name) for name in pins}
        servers = (REPOSITORY / "tests/servers/requirements.txt").read_text().splitlines()
        assert all(re.fullmatch(r"#.*|[\w-]+==[\w.]+", line) for line in servers)


def name_of(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0].lower().replace("_", "-")

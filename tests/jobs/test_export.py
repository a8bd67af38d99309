"""The embedding as one file: equal to that of the store in every format, and never incomplete."""

from pathlib import Path

import numpy as np
import obstore
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.core.errors import ConfigError, CorruptChunk, DamagedStore, StoreError
from lle.jobs.export import export_embedding, export_run
from lle.jobs.output_file import refuse_input
from lle.storage import array_specs, remote_objects
from lle.storage.array_specs import PlannedArray
from lle.storage.store import Store
from lle.storage.versions import reading
from tests.support.commands import lle, npy_config, refused, write_config

ROWS, BLOCK = 23, 5


@pytest.fixture
def embedding():
    values = np.random.default_rng(17).normal(size=(ROWS, 3)) * 10.0 ** np.arange(-9, 14)[:, None]
    values[[3, 22]] = np.nan
    return values


@pytest.fixture
def component():
    values = np.arange(ROWS, dtype=np.int32) % 3
    values[[3, 22]] = -1
    return values


@pytest.fixture
def store(tmp_path, embedding, component):
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({})
    for spec, values in ((array_specs.EMBEDDING, embedding), (array_specs.COMPONENT, component)):
        store.create(PlannedArray(spec, values.shape, str(values.dtype), BLOCK))
        store.write(spec.name, 0, values)
    return store


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"run.zarr"}


def test_npy_equals_the_stored_embedding(store, tmp_path, embedding):
    assert export_embedding(store, str(tmp_path / "y.npy")) == ROWS
    exported = np.load(tmp_path / "y.npy")
    np.testing.assert_array_equal(exported, embedding)
    assert (exported.dtype, exported.flags.c_contiguous) == (np.dtype("<f8"), True)


def read_csv(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str).astype(np.float64)  # pandas' own parser is off by a digit at times


def read_arrow(path: Path) -> pd.DataFrame:
    return pa.ipc.open_file(path).read_pandas()


@pytest.mark.parametrize(
    ("suffix", "read"), [(".parquet", pd.read_parquet), (".csv", read_csv), (".arrow", read_arrow)]
)
def test_tables_equal_the_stored_embedding(store, tmp_path, embedding, component, suffix, read):
    assert export_embedding(store, str(tmp_path / f"y{suffix}")) == ROWS
    table = read(tmp_path / f"y{suffix}")
    assert list(table.columns) == ["row", "component", "y1", "y2", "y3"]
    np.testing.assert_array_equal(table["row"], np.arange(ROWS))
    np.testing.assert_array_equal(table["component"], component)
    np.testing.assert_array_equal(table[["y1", "y2", "y3"]], embedding)


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".arrow", ".csv"])
class TestEveryFormat:
    def test_export_replaces_an_old_file_and_leaves_no_other(self, store, tmp_path, suffix):
        out = tmp_path / f"y{suffix}"
        out.write_text("old")
        export_embedding(store, str(out))
        assert out.read_bytes() != b"old"
        assert names_in(tmp_path) == {out.name}

    def test_damaged_block_keeps_the_old_file(self, store, tmp_path, suffix):
        chunk = Path(store.url, "embedding", "c", "2", "0")
        chunk.write_bytes(chunk.read_bytes()[:-1])
        out = tmp_path / f"y{suffix}"
        out.write_text("old")
        with pytest.raises(DamagedStore, match="run `lle verify` on this store"), reading(store.url) as opened:
            export_embedding(opened, str(out))
        assert out.read_text() == "old"
        assert names_in(tmp_path) == {out.name}

    def test_simultaneous_exports_to_one_file_are_complete(self, store, tmp_path, suffix, monkeypatch):
        """The second export begins and ends while the first one writes its third block."""
        alone, out, starts = tmp_path / f"alone{suffix}", tmp_path / f"y{suffix}", []
        export_embedding(store, str(alone))
        read = Store.read

        def read_and_export_again(self, name, start, stop):
            if name == "embedding":
                starts.append(start)
            if len(starts) == 3:
                starts.append(-1)
                assert export_embedding(Store(store.url), str(out)) == ROWS
                assert out.read_bytes() == alone.read_bytes()
            return read(self, name, start, stop)

        monkeypatch.setattr(Store, "read", read_and_export_again)
        assert export_embedding(store, str(out)) == ROWS
        assert starts.count(-1) == 1
        assert out.read_bytes() == alone.read_bytes()
        assert names_in(tmp_path) == {out.name, alone.name}

    def test_folder_with_the_name_of_the_file_is_refused(self, store, tmp_path, suffix):
        (tmp_path / f"y{suffix}").mkdir()
        with pytest.raises(ConfigError, match="found a folder"):
            export_embedding(store, str(tmp_path / f"y{suffix}"))

    def test_export_without_an_embedding_is_refused(self, tmp_path, suffix):
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({})
        with pytest.raises(StoreError, match="no array 'embedding'"):
            export_embedding(store, str(tmp_path / f"y{suffix}"))
        assert names_in(tmp_path) == set()

    def test_missing_folder(self, store, tmp_path, suffix):
        with pytest.raises(ConfigError, match="folder does not exist") as caught:
            export_embedding(store, str(tmp_path / "absent" / f"y{suffix}"))
        assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["y", "y.txt", "y.npz", "y.NPY"])
def test_other_suffixes_are_refused(store, tmp_path, name):
    with pytest.raises(ConfigError, match=r"\.npy, \.parquet, \.arrow, \.csv") as caught:
        export_embedding(store, str(tmp_path / name))
    assert str(tmp_path / name) in str(caught.value)
    assert names_in(tmp_path) == set()


def test_the_suffixes_of_an_export_are_all_named(store):
    with pytest.raises(ConfigError, match=r"\.npy, \.parquet, \.arrow, \.csv, \.h5ad;"):
        export_run(store, "y.txt")


@pytest.mark.parametrize("written", ["{}", "file://{}"])
@pytest.mark.parametrize("key", ["k_per_point", "precomputed"])
def test_file_of_neighbors_is_not_replaced(tmp_path, key, written):
    (path := tmp_path / "n.npy").touch()
    store = Store(str(tmp_path / "run.zarr"))
    neighbors, text = {"k_per_point": None, "precomputed": None}, written.format(path)
    file = text if key == "k_per_point" else {"kind": "npy", "path": text}
    store.create_group({"config": {"input": {}, "neighbors": {**neighbors, key: file}}})
    with pytest.raises(ConfigError, match="holds the input, which would be lost"):
        refuse_input(str(path), store)


@pytest.mark.parametrize("written", ["{}", "file://{}"])
def test_input_of_a_run_in_another_folder_is_not_replaced(tmp_path, monkeypatch, written):
    """Its path in the config is relative to the folder of the run. It has changed, and all was moved, since the run."""
    (folder := tmp_path / "job").mkdir()
    monkeypatch.chdir(write_config(folder, input={"kind": "npy", "path": "x.npy", "labels": "y.npy"}).parent)
    np.save("x.npy", np.random.default_rng(2).normal(size=(60, 3)))
    np.save("y.npy", np.arange(60) % 2)
    lle("run", "config.yaml")
    np.save("x.npy", np.zeros((70, 3)))
    monkeypatch.chdir("/")
    moved = folder.rename(tmp_path / "moved")
    for name in ("x.npy", "y.npy"):
        out = written.format(moved / name)
        assert "holds the input, which would be lost" in refused(2, "export", moved / "run.zarr", out)
    alone = (moved / "run.zarr").rename(tmp_path / "alone.zarr")
    moved.rename(folder)
    assert "holds the input, which would be lost" in refused(2, "export", alone, written.format(folder / "x.npy"))
    (out := tmp_path / "results" / "x.npy").parent.mkdir()
    np.save(out, np.zeros(3))
    lle("export", alone, out)
    assert np.load(out).shape == (60, 2)


def test_a_config_that_has_changed_since_the_run_is_noted(tmp_path):
    """The result is that of the last run. Keys without effect on the coordinates are not named."""
    points = np.random.default_rng(3).normal(size=(60, 3))
    config = npy_config(tmp_path, points)
    for command in (("run",), ("export", str(tmp_path / "y.npy"))):
        result = CliRunner().invoke(app, [command[0], str(config), *command[1:], "--json"])
        assert (result.exit_code, "note: " in result.stderr) == (0, False)
    many = {"neighbors": {"n_neighbors": 9}, "graph": {"components": "connect"}, "embedding": {"scale": "unit_norm"}}
    three = "embedding.scale, graph.components, method, ... (4 in all)"
    for method, changed in (("ltsa", three), ("pca", "embedding.scale, method")):
        config = npy_config(tmp_path, points, method=method, quality={"sample": 50}, **many)
        result = CliRunner().invoke(app, ["export", str(config), str(tmp_path / "y.npy"), "--json"])
        words = f"differs from the config of the last run in {changed}; `lle run` applies it"
        assert (result.exit_code, result.stderr) == (0, f"note: {config} {words}\n")
    assert "(4 in all)" not in CliRunner().invoke(app, ["status", str(tmp_path / "run.zarr"), "--json"]).stderr


def test_a_config_that_has_changed_since_the_published_version_is_noted(tmp_path):
    points, output = np.random.default_rng(3).normal(size=(60, 3)), {"store": str(tmp_path / "root.zarr"), "keep": 2}
    lle("run", npy_config(tmp_path, points, output=output))
    config = npy_config(tmp_path, points, output=output, eigensolver={"n_components": 1})
    result = CliRunner().invoke(app, ["report", str(config), "--json"])
    assert (result.exit_code, result.stderr.count("in eigensolver.n_components; `lle run` applies it")) == (0, 1)


def test_a_file_that_matches_the_pattern_of_the_input_is_not_written(tmp_path):
    (rows := tmp_path / "rows").mkdir()
    np.save(rows / "a.npy", np.random.default_rng(3).normal(size=(60, 3)))
    lle("run", write_config(tmp_path, input={"kind": "npy", "path": f"{rows}/*.npy"}))
    assert "a later run would read this file as input" in refused(2, "export", tmp_path / "run.zarr", rows / "y.npy")
    assert names_in(rows) == {"a.npy"}
    lle("export", tmp_path / "run.zarr", tmp_path / "y.npy")


def test_relative_file_name_is_accepted(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export_embedding(store, "y.npy")
    assert (tmp_path / "y.npy").exists()


@pytest.fixture
def bucket(monkeypatch):
    """An object store in memory, which every URL opens."""
    bucket = obstore.store.MemoryStore()
    monkeypatch.setattr(remote_objects, "open_remote", lambda url: bucket)
    return bucket


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".arrow", ".csv"])
def test_a_url_gets_the_bytes_of_a_local_file(store, tmp_path, bucket, suffix):
    export_embedding(store, str(tmp_path / f"y{suffix}"))
    assert export_embedding(store, f"s3://bucket/y{suffix}") == ROWS
    assert bytes(obstore.get(bucket, f"y{suffix}").bytes()) == (tmp_path / f"y{suffix}").read_bytes()


def test_failed_export_does_not_change_the_object_at_its_url(store, bucket):
    obstore.put(bucket, "y.npy", b"old")
    chunk = Path(store.url, "embedding", "c", "2", "0")
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(CorruptChunk):
        export_embedding(store, "s3://bucket/y.npy")
    assert bytes(obstore.get(bucket, "y.npy").bytes()) == b"old"


def test_a_file_url_is_a_local_file(store, tmp_path):
    export_embedding(store, f"file://{tmp_path}/y.npy")
    assert names_in(tmp_path) == {"y.npy"}

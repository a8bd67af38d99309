"""The Python package: lazy imports, `embed`, `open_run`, and arrays as inputs."""

import functools
import http.server
import inspect
import sys
import threading
import warnings
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray
import zarr
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lle
from lle import EmbeddingWarning, LocallyLinearEmbedding, embed, open_run, plot
from lle.api.array_input import input_section, row_blocks
from lle.api.embed import finished_run, sections_of_keywords
from lle.api.parameters import PARAMETERS
from lle.config.load import check_config
from lle.config.models import Config
from lle.core.errors import ConfigError, CorruptChunk, InputError, Interrupted, LleError
from lle.jobs.layout import fits_memory
from lle.storage.store import Store
from tests.support.points import swiss_roll

pytestmark = pytest.mark.filterwarnings("ignore::lle.EmbeddingWarning")

QUICK = {"quality": {"sample": 50}, "weights": {"reg": 1e-3}}


@pytest.fixture(scope="module")
def roll() -> np.ndarray:
    return swiss_roll(400, np.random.default_rng(37))


def test_unknown_attribute_of_the_package_is_an_error():
    for name in lle.__all__:
        assert getattr(lle, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'umap'"):
        _ = lle.umap


class TestEmbed:
    @pytest.mark.slow
    def test_embed_equals_a_run(self, roll, tmp_path):
        store = str(tmp_path / "run.zarr")
        Y = embed(roll, method="ltsa", neighbors={"n_neighbors": 10}, output={"store": store}, **QUICK)
        assert Y.shape == (400, 2)
        run = open_run(store)
        np.testing.assert_array_equal(run["embedding"], Y)
        assert (run.config["method"], run.config["neighbors"]["n_neighbors"]) == ("ltsa", 10)
        assert not (tmp_path / "run.zarr" / "report" / "index.html").exists()

    def test_temporary_files_are_removed(self, roll, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        embed(roll, **QUICK)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(ValueError, match="invalid"):
            embed(np.where(roll == roll[3], np.nan, roll), **QUICK)
        assert list(tmp_path.iterdir()) == []

    def test_embed_refuses_and_keeps_a_folder_of_other_files(self, roll, tmp_path):
        (tmp_path / "thesis.tex").write_text("mine")
        with pytest.raises(ValueError, match="other files"):
            embed(roll, output={"store": str(tmp_path)})
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    def test_array_in_memory_is_refused_for_remote_workers(self, roll):
        cluster = {"kind": "address", "address": "tcp://127.0.0.1:8786"}
        with pytest.raises(ValueError, match="whose workers cannot read an array of this process"):
            embed(roll, execution={"cluster": cluster})

    def test_ctrl_c_raises_keyboard_interrupt(self, roll, monkeypatch):
        def stopped(*arguments, **more):
            raise Interrupted(2)

        monkeypatch.setattr("lle.api.embed.run", stopped)
        with pytest.raises(KeyboardInterrupt, match="SIGINT"):
            embed(roll)


@pytest.mark.parametrize(("keep", "n_files"), [(None, 1), (2, 2)])
def test_array_files_without_a_version_are_deleted(roll, tmp_path, toy_stages, keep, n_files):
    output = {"store": str(tmp_path / "run.zarr")} | ({} if keep is None else {"keep": keep})
    files_of_runs = []
    for n in (200, 210, 220, 200):
        embed(roll[:n], output=output, **QUICK)
        files_of_runs.append({str(path) for path in (tmp_path / "run.zarr" / "_run").glob("input-*")})
        assert open_run(output["store"]).config["input"]["path"] in files_of_runs[-1]
    assert [len(paths) for paths in files_of_runs] == [min(number, n_files) for number in (1, 2, 3, 3)]


def test_embed_resumes_with_an_equal_array_only(roll, tmp_path, toy_stages):
    def computed(X, **more):
        with finished_run(X, {"output": {"store": str(tmp_path / "run.zarr")}, **QUICK, **more}) as (_, result):
            return set(result.computed)

    assert "ingest" in computed(roll)
    assert computed(da.from_array(roll, chunks=90)) == set()
    changed = computed(roll.copy(order="F"), weights={"reg": 1e-2})
    assert "solve_weights" in changed
    assert "ingest" not in changed
    assert "ingest" in computed(roll + 1e-3)


class TestArraysAsInput:
    @pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool"])
    def test_equal_arrays_are_stored_once(self, roll, tmp_path, dtype):
        X = (3 * roll).astype(dtype)
        sections = [input_section(form, tmp_path) for form in (X, X.copy(order="F"), da.from_array(X, chunks=(70, 2)))]
        assert len({section["path"] for section in sections}) == 1
        np.testing.assert_array_equal(np.load(sections[0]["path"]), X)
        assert len(list(tmp_path.iterdir())) == 1
        changed = X.copy()
        changed[7, 1] = not changed[7, 1]
        assert input_section(changed, tmp_path) != sections[0]

    def test_chunks_are_computed_once_and_one_at_a_time(self, tmp_path):
        n_computing, most_computing, locations = [0], [0], []

        def make(block_info=None):
            n_computing[0] += 1
            most_computing[0] = max(most_computing[0], n_computing[0])
            locations.append(block_info[None]["chunk-location"])
            block = np.full(block_info[None]["chunk-shape"], float(len(locations)))
            n_computing[0] -= 1
            return block

        lazy = da.map_blocks(make, chunks=((50,) * 8, (3,)), dtype=float, meta=np.empty((0, 0)))
        with dask.config.set(scheduler="synchronous"):
            sizes = [len(block) for block in row_blocks(lazy)]
            assert sizes == [50] * 8
            locations.clear()
            input_section(lazy, tmp_path)
        assert sorted(locations) == [(i, 0) for i in range(8)]

    def test_local_zarr_array_is_read_without_a_copy(self, roll, tmp_path):
        group = zarr.open_group(tmp_path / "data.zarr", mode="w")
        array = group.create_array("points", shape=roll.shape, dtype="float64")
        array[:] = roll
        section = input_section(array, tmp_path / "unused")
        assert section == {"kind": "zarr", "url": str(tmp_path / "data.zarr" / "points")}
        assert not (tmp_path / "unused").exists()
        np.testing.assert_array_equal(embed(array, **QUICK), embed(roll, **QUICK))

    def test_remote_zarr_array_is_copied_block_by_block_with_its_labels(self, roll, tmp_path):
        array = zarr.create_array({}, shape=roll.shape, dtype="float64", chunks=(60, 3))
        array[:] = roll
        section = input_section(array, tmp_path, labels=roll[:, 1])
        np.testing.assert_array_equal(np.load(section["path"]), roll)
        np.testing.assert_array_equal(np.load(section["labels"]), roll[:, 1])

    def test_missing_file_is_refused(self):
        with pytest.raises(ValueError, match=r"there is no file 'rows.csv'"):
            embed("rows.csv", **QUICK)

    def test_input_that_is_not_a_numeric_matrix_is_refused(self, roll, tmp_path):
        unknown = da.from_array(roll)
        with pytest.raises(InputError, match="compute_chunk_sizes"):
            input_section(unknown[unknown[:, 0] > 0], tmp_path)
        with pytest.raises(InputError, match="dtype complex128"):
            input_section(roll.astype(complex), tmp_path)
        with pytest.raises(ValueError, match=r"shape \(rows, features\), found shape \(400,\)"):
            embed(roll[:, 0])
        assert not list(tmp_path.glob("*"))


class TestOpenRun:
    @pytest.fixture(scope="class")
    @staticmethod
    def store(roll, tmp_path_factory) -> str:
        url = str(tmp_path_factory.mktemp("opened") / "run.zarr")
        embed(np.concatenate([roll, roll[:5]]), output={"store": url}, execution={"block_points": 150}, **QUICK)
        return url

    @pytest.mark.slow
    def test_opened_arrays_are_lazy_and_complete(self, store):
        run = open_run(store)
        assert set(run.arrays) >= {"points", "original_index", "neighbor_indices", "neighbor_distances", "weights"}
        assert set(run.arrays) >= {"component", "eigenvalues", "embedding"}
        for name, array in run.arrays.items():
            assert isinstance(array, da.Array)
            np.testing.assert_array_equal(array, Store(store).read_all(name))
        assert run["embedding"].chunks == ((150, 150, 105), (2,))
        assert run.metrics["duplicates_merged"] == 5
        assert "numpy" in run.versions
        W = run["weights"]
        np.testing.assert_array_equal(W[140:310:7, :3].compute(), Store(store).read_all("weights")[140:310:7, :3])
        assert "embedding" in run
        assert "degree" not in run
        assert set(run) == run.arrays.keys()
        with pytest.raises(KeyError, match="no array 'degree'; there are points"):
            run["degree"]

    def test_dataset(self, store):
        dataset = open_run(store).dataset()
        assert isinstance(dataset, xarray.Dataset)
        assert dataset["embedding"].dims == ("input row", "coordinate")
        assert dataset["eigenvalues"].dims == ("component number", "eigenpair")
        assert "internal ids" in dataset["neighbor_indices"].attrs["meaning"]
        np.testing.assert_array_equal(dataset["component"], Store(store).read_all("component"))

    def test_reading_a_damaged_array_raises(self, store, tmp_path):
        chunk = Path(store) / "embedding" / "c" / "1" / "0"
        undamaged = chunk.read_bytes()
        try:
            chunk.write_bytes(undamaged[:-9] + bytes(9))
            with pytest.raises(CorruptChunk, match="embedding"):
                open_run(store)["embedding"].compute(scheduler="synchronous")
            np.testing.assert_array_equal(open_run(store)["embedding"][:150], Store(store).read("embedding", 0, 150))
        finally:
            chunk.write_bytes(undamaged)

    @pytest.mark.slow
    def test_open_run_reads_the_published_version_after_each_run(self, roll, tmp_path):
        output = {"store": str(tmp_path / "kept"), "keep": 2}
        for n in (300, 400):
            Y = embed(roll[:n], output=output, **QUICK)
            np.testing.assert_array_equal(open_run(output["store"])["embedding"], Y)

    def test_open_run_refuses_a_place_without_a_run(self, tmp_path):
        with pytest.raises(ConfigError, match="no run has been started"):
            open_run(str(tmp_path / "nothing.zarr"))
        assert not (tmp_path / "nothing.zarr").exists()

    def test_open_run_reads_from_a_read_only_web_server(self, store, monkeypatch):
        """The file server answers GET and HEAD only, so any attempt to write or to list fails."""
        module = pytest.importorskip("obstore.store", reason="object stores need the extra s3")
        insecure = functools.partial(module.from_url, client_options={"allow_http": True})
        monkeypatch.setattr(module, "from_url", insecure)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Files, directory=store)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                run = open_run(f"http://127.0.0.1:{server.server_address[1]}")
                np.testing.assert_array_equal(run["embedding"], Store(store).read_all("embedding"))
                assert run.metrics == open_run(store).metrics
            finally:
                server.shutdown()


class _Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments) -> None:
        """Print nothing."""


class TestWarnings:
    """Missing and inaccurate coordinates are Python warnings; what judges the data is logged, as in a report."""

    def test_quality_is_logged_once_in_words_of_python(self, caplog) -> None:
        X = np.random.default_rng(3).random((300, 8))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            embed(X, weights={"reg": 1e-3})
            model = LocallyLinearEmbedding(reg=1e-3).fit(X)
        texts = [record.getMessage() for record in caplog.records if record.name == "lle"]
        sentence = next(text for text in texts if "are not neighbours in the data" in text)
        assert "n_components=" in sentence  # a parameter of Python, no key of a config and no command
        assert "eigensolver." not in sentence
        assert "`lle" not in sentence
        n_warnings = sum(finding["level"] != "note" for finding in model.metrics_["findings"])
        assert len(texts) == 2 * n_warnings
        assert texts[:n_warnings] == texts[n_warnings:]
        assert model.metrics_["defects"] == []

    @pytest.mark.parametrize(
        "call",
        [
            lambda model, X: model.fit(X),
            lambda model, X: model.fit_transform(X),
            lambda model, X: make_pipeline(StandardScaler(), model).fit_transform(X),
            lambda model, X: make_pipeline(model, StandardScaler()).fit(X),  # by joblib
        ],
    )
    def test_warnings_of_the_estimator_have_the_place_of_the_call(self, roll, call) -> None:
        with pytest.warns(UserWarning, match="there are 9 rows") as issued:
            call(LocallyLinearEmbedding(), roll[:9])
        assert {warning.filename for warning in issued} == {__file__}

    def test_defects_are_python_warnings_of_the_calling_line(self, caplog) -> None:
        X = np.random.default_rng(3).random((300, 8))
        X[:30] += 100.0
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            embed(X, graph={"components": "largest"})
        [warning] = issued
        assert warning.category is EmbeddingWarning
        assert warning.filename == __file__
        assert "30 rows (10.0%) are in components that were not embedded" in str(warning.message)
        assert not any("were not embedded" in record.getMessage() for record in caplog.records)
        assert issubclass(EmbeddingWarning, UserWarning)


class TestStoreInMemory:
    """The temporary store of a small run is in memory; results do not depend on where it is."""

    def run(self, X, monkeypatch, max_bytes=None, **sections):
        if max_bytes is not None:
            monkeypatch.setattr("lle.jobs.layout.MEMORY_STORE_BYTES", max_bytes)
        with finished_run(X, {**QUICK, **sections}) as (store, result):
            return store.url.startswith("process-memory:"), store.read_all("embedding"), result.metrics

    def test_results_are_those_of_a_store_on_disk(self, roll, monkeypatch):
        blocks = {"block_points": 90, "cluster": {"kind": "serial"}}  # several blocks: rows are exchanged between them
        X = np.concatenate([roll, roll[:7]])
        in_memory, Y, metrics = self.run(X, monkeypatch, execution=blocks)
        on_disk, same_Y, same_metrics = self.run(X, monkeypatch, 0, execution=blocks)
        assert (in_memory, on_disk) == (True, False)
        np.testing.assert_array_equal(Y, same_Y)
        for key in ("eigenvalues", "trustworthiness", "recall", "nnz_cost_matrix", "duplicates_merged"):
            assert metrics[key] == same_metrics[key]

    @pytest.mark.parametrize(
        "sections",
        [
            {"output": {"store": "x.zarr", "keep": 2}},
            {"input": {"fit_sample": 60}},
            {"execution": {"cluster": {"kind": "local", "workers": 2}}},
        ],
        ids=["versions", "sample", "workers"],
    )
    def test_runs_of_several_stores_or_processes_are_on_disk(self, roll, tmp_path, sections):
        np.save(tmp_path / "x.npy", roll)
        plain = {
            "input": {"kind": "npy", "path": str(tmp_path / "x.npy")},
            "output": {"store": "x.zarr"},
            "execution": {"cluster": {"kind": "serial"}},
        }
        assert fits_memory(check_config(plain, "test"))
        changed = {name: {**section, **sections.get(name, {})} for name, section in plain.items()}
        assert not fits_memory(check_config(changed, "test"))


def test_workers_are_started_for_many_rows_only():
    few, many = np.zeros((19_999, 2)), np.zeros((20_000, 2))
    cluster = {"kind": "local", "workers": 3}
    for X in (many, da.zeros((20_000, 2)), many.tolist(), {"kind": "npy", "path": "x.npy"}):
        assert sections_of_keywords({"n_jobs": 3}, X)["execution"] == {"cluster": cluster}
    for X in (few, da.zeros((19_999, 2)), few.tolist(), pd.DataFrame(few)):
        assert sections_of_keywords({"n_jobs": 3, "execution": {"seed": 1}}, X)["execution"] == {"seed": 1}
    with pytest.raises(ValueError, match=r"execution\.cluster is the parameter n_jobs"):
        sections_of_keywords({"n_jobs": 3, "execution": {"cluster": cluster}}, few)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="comprehensions have no frame of their own since 3.12")
def test_a_tracer_that_reads_locals_does_not_stop_embed(roll):
    """A debugger or a coverage tool reads `f_locals`, which updates the dictionary that `locals()` gave before 3.13."""

    def trace(frame, event, argument):
        return frame.f_locals and trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        with pytest.raises(ValueError, match="there is no parameter 'typo'"):
            embed(roll, typo=1)
    finally:
        sys.settrace(before)


@pytest.fixture(scope="module")
def customers(tmp_path_factory):
    """(path, table): measurements, text with three values, and an id."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"])
    table = table.assign(
        segment=rng.choice(["x", "y", "z"], 300), customer=[f"c{i}" for i in range(300)], paid=rng.random(300)
    )
    path = tmp_path_factory.mktemp("customers") / "customers.parquet"
    table.assign(paid=table.paid < 0.5).to_parquet(path, index=False)
    return path, table


def test_a_table_gives_a_table_with_its_index(customers):
    table = customers[1][["a", "b", "c"]].set_axis([f"r{i}" for i in range(300)])
    coordinates = embed(table, n_neighbors=8)
    assert list(coordinates.columns) == ["y1", "y2"]
    assert list(coordinates.index) == list(table.index)
    np.testing.assert_array_equal(coordinates, embed(table.to_numpy(), n_neighbors=8))


def test_a_file_is_scaled_and_incomplete_rows_are_dropped_as_init_proposes(customers, tmp_path):
    table = customers[1][["a", "b", "c"]] * [1, 1, 1000]
    table.loc[5, "a"] = np.nan
    table.to_csv(tmp_path / "x.csv", index=False)
    sections = {"preprocess": {"scale": "standard", "invalid": "drop"}, "embedding": {"coordinates": "independent"}}
    with pytest.warns(EmbeddingWarning, match="1 of 300 rows hold NaN"):
        coordinates = embed(tmp_path / "x.csv", n_neighbors=8)
    with pytest.warns(EmbeddingWarning):
        np.testing.assert_array_equal(coordinates, embed(table, n_neighbors=8, **sections))
    with pytest.warns(EmbeddingWarning):
        unscaled = embed(tmp_path / "x.csv", n_neighbors=8, preprocess={"scale": "none"})
    assert np.isnan(unscaled).any(axis=1).sum() == 1
    assert not np.allclose(unscaled, coordinates, equal_nan=True)


@pytest.mark.slow
def test_a_file_has_the_roles_that_init_proposes_and_any_column_colours_its_plot(customers, tmp_path):
    path, table = customers
    coordinates = embed(path, n_neighbors=8, store=tmp_path / "run.zarr")
    np.testing.assert_array_equal(coordinates, embed(table[["a", "b", "c"]].to_numpy(), n_neighbors=8))
    run = open_run(tmp_path / "run.zarr")
    frame = run.to_frame()
    assert (frame.index.name, list(frame.index)) == ("customer", list(table.customer))
    assert list(frame["segment"]) == list(table.segment)
    assert plot(run, "paid").get_legend().get_title().get_text() == "paid"
    with pytest.raises(ValueError, match=r"no column 'nope'; there are component, .* its columns are a, b, c"):
        plot(run, "nope")


def test_features_in_the_store_colour_a_plot_without_the_input(customers, tmp_path):
    table = customers[1][["a", "b", "c", "customer"]]
    path, store = tmp_path / "rows.parquet", tmp_path / "run.zarr"
    table.to_parquet(path, index=False)
    embed({"kind": "parquet", "path": str(path), "columns": ["a", "b", "c"]}, method="pca", store=store, **QUICK)
    for change, reason in (
        (lambda: table[::-1].to_parquet(path, index=False), "the input has changed since the run, so its rows may"),
        (path.unlink, "input.path: there is no file"),
    ):
        change()
        np.testing.assert_allclose(np.sort(plot(store, "b").collections[0].get_array()), np.sort(table.b))
        expected = "^color: no column 'red' in the store, and the input cannot be used; there are component, y1, y2, a"
        with pytest.raises(ValueError, match=expected) as error:
            plot(store, "red")
        assert reason in str(error.value)
        assert "--with" not in str(error.value)


def test_keywords_are_those_of_the_estimator_and_the_sections_of_a_config():
    keywords = set(inspect.signature(embed).parameters) - {"X", "labels"}
    assert keywords == {*PARAMETERS, *Config.model_fields} - {"input"}
    with pytest.raises(ValueError, match=r"no parameter 'config' .*; sections of a config: preprocess, .*, execution"):
        embed(np.zeros((9, 2)), config={})


@pytest.mark.parametrize(
    "call",
    [
        lambda X: embed(X, n_neighbors=3000),
        lambda X: embed(X, n_neighbor=3),
        lambda X: embed(np.where(X > 2, np.nan, X)),
        lambda X: embed(X, neighbors={"metrik": 1}),
        lambda X: LocallyLinearEmbedding(n_neighbors=3000).fit(X),
        lambda X: LocallyLinearEmbedding().fit("rows.parquet"),
        lambda X: LocallyLinearEmbedding(method="pca").fit(X).transform(X[:, :2]),
        lambda X: embed(X, store="/proc/run.zarr"),
        lambda X: open_run("/no/such/run.zarr"),
        lambda X: plot(X, "segment"),
        lambda X: plot(scipy.sparse.csr_array(X)),
    ],
)
def test_mistakes_of_users_have_short_tracebacks(call):
    with pytest.raises((ValueError, LleError)) as caught:
        call(np.random.default_rng(0).normal(size=(300, 3)))
    own_frames = [entry for entry in caught.traceback if "/pipeline/" in str(entry.path)]
    assert len(own_frames) == 1
    assert caught.value.__cause__ is None


def test_only_public_names_are_listed():
    assert set(dir(lle)) == {*lle.__all__, "__version__", "scanpy"}

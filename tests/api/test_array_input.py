"""What a kept store of a run from Python knows about its rows: the index of a table, the names of labels."""

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lle import LocallyLinearEmbedding, embed, open_run, plot
from lle.api.array_input import input_section
from lle.inputs import open_source
from lle.jobs.run import run
from tests.support.commands import lle
from tests.support.points import swiss_roll

N = 200
QUICK = {"n_neighbors": 8, "reg": 1e-3, "quality": {"sample": 50}}
POINTS = swiss_roll(N, np.random.default_rng(41))
TEXTS = [f"r{number}" for number in np.random.default_rng(42).permutation(N)]
INDICES = {
    "text": pd.Index(TEXTS, name="customer"),
    "numbers": pd.Index(np.arange(N)[::-1] * 7, name="customer"),
    "shifted numbering": pd.RangeIndex(5, 5 + N, name="customer"),
    "dates": pd.date_range("2026-01-01", periods=N, name="customer"),
}

pytestmark = pytest.mark.filterwarnings("ignore::lle.EmbeddingWarning")


@pytest.mark.parametrize("kind", INDICES)
def test_a_kept_store_has_the_index_of_a_table_as_ids(tmp_path, toy_stages, kind):
    table = pd.DataFrame(POINTS, columns=["x", "y", "z"], index=INDICES[kind])
    coordinates = embed(table, store=tmp_path / "run.zarr", **QUICK)
    assert coordinates.index.equals(table.index)
    frame = open_run(tmp_path / "run.zarr").to_frame()
    expected = table.index if kind != "dates" else table.index.map(str)
    assert (frame.index.name, list(frame.index)) == ("customer", list(expected))
    lle("export", tmp_path / "run.zarr", tmp_path / "y.parquet")
    assert pd.read_parquet(tmp_path / "y.parquet")["customer"].tolist() == list(expected)


def test_an_index_of_numbers_may_lack_some(tmp_path, toy_stages):
    ids = pd.array([*range(5, N + 4), None], "Int64")
    embed(pd.DataFrame(POINTS, index=pd.Index(ids)), store=tmp_path / "run.zarr", **QUICK)
    lle("export", tmp_path / "run.zarr", tmp_path / "y.csv")
    written = pd.read_csv(tmp_path / "y.csv", dtype=str, keep_default_na=False)["id"].tolist()
    assert written == [*map(str, range(5, N + 4)), ""]


def test_labels_of_whole_numbers_may_lack_some(tmp_path):
    section = input_section(POINTS, tmp_path, labels=pd.Series([7, 3, None, 7] * (N // 4), dtype="Int64"))
    source = open_source(**section)
    assert source.labels.names == ("3", "7")
    np.testing.assert_array_equal(source.read_labels(0, 3), [1, 0, np.nan])


@pytest.mark.parametrize("key", ["path", "labels", "id"])
def test_array_that_another_run_removes_before_the_lock_is_free_is_written_again(
    tmp_path, toy_stages, monkeypatch, key
):
    embed_module, removed = importlib.import_module("lle.api.embed"), []

    def after_two_others(config, **keywords):
        if len(removed) < 2:
            removed.append(getattr(config.input, key))
            Path(removed[-1]).unlink()
        return run(config, **keywords)

    monkeypatch.setattr(embed_module, "run", after_two_others)
    table = pd.DataFrame(POINTS, index=TEXTS)
    assert len(embed(table, labels=np.arange(N) % 3, store=tmp_path / "run.zarr", **QUICK)) == N
    assert len(removed) == 2


def test_labels_beside_a_file_are_refused(tmp_path):
    pd.DataFrame(POINTS, columns=["x", "y", "z"]).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="labels: X is a file or an input section; remove the argument labels"):
        embed(tmp_path / "rows.parquet", labels=np.arange(N))


def test_a_numbered_table_and_an_array_have_no_ids(tmp_path, toy_stages):
    for number, X in enumerate((pd.DataFrame(POINTS), POINTS)):
        embed(X, store=tmp_path / f"{number}.zarr", **QUICK)
        assert "id" not in {
            name for name, value in open_run(tmp_path / f"{number}.zarr").config["input"].items() if value
        }


def test_a_fitted_table_keeps_its_index_and_another_index_reads_no_points_again(tmp_path):
    table = pd.DataFrame(POINTS, index=TEXTS)
    model = LocallyLinearEmbedding(
        n_neighbors=8, reg=1e-3, store=str(tmp_path / "run.zarr"), config={"quality": {"sample": 50}}
    )
    model.fit(table)
    assert list(open_run(model.store_).to_frame().index) == TEXTS
    read = [path.stat().st_mtime_ns for path in (tmp_path / "run.zarr" / "_done" / "ingest").glob("read.*")]
    model.fit(table.set_axis(TEXTS[::-1]))
    assert list(open_run(model.store_).to_frame().index) == TEXTS[::-1]
    assert [path.stat().st_mtime_ns for path in (tmp_path / "run.zarr" / "_done" / "ingest").glob("read.*")] == read
    assert len(list((tmp_path / "run.zarr" / "_run").glob("id-*.npy"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("X", [POINTS, pd.DataFrame(POINTS, columns=["x", "y", "z"])], ids=["array", "table"])
def test_labels_keep_the_name_of_their_series(tmp_path, X):
    kinds = pd.Series(np.where(np.arange(N) % 2, "oak", "ash"), name="species")
    embed(X, labels=kinds, store=tmp_path / "run.zarr", **QUICK)
    run = open_run(tmp_path / "run.zarr")
    assert run.metrics["label"] == "species"
    assert run.to_frame()["species"].tolist() == kinds.tolist()
    assert plot(run).get_legend().get_title().get_text() == "species"
    embed(X, labels=kinds.to_numpy(), store=tmp_path / "run.zarr", **QUICK)
    assert open_run(tmp_path / "run.zarr").metrics["label"] == "label"


def test_ids_of_a_file_name_the_rows_and_must_be_as_many(tmp_path, toy_stages):
    np.save(tmp_path / "x.npy", POINTS)
    np.save(tmp_path / "names.npy", np.array(TEXTS))
    section = {"kind": "npy", "path": str(tmp_path / "x.npy"), "id": str(tmp_path / "names.npy")}
    embed(section, store=tmp_path / "run.zarr", **QUICK)
    frame = open_run(tmp_path / "run.zarr").to_frame()
    assert (frame.index.name, list(frame.index)) == ("id", TEXTS)
    np.save(tmp_path / "names.npy", np.array(TEXTS[1:]))
    with pytest.raises(ValueError, match=r"names\.npy: expected 200 ids, .* found shape \(199,\)"):
        embed(section, store=tmp_path / "run.zarr", **QUICK)

"""Data that cannot be embedded is refused by embed and the estimator; the message names the place and the cure."""

import re

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from numpy.dtypes import StringDType
from sklearn.datasets import make_s_curve
from sklearn.impute import SimpleImputer

from lle import EmbeddingWarning, LocallyLinearEmbedding, embed, open_run

pytestmark = pytest.mark.filterwarnings("ignore::lle.EmbeddingWarning")
X = make_s_curve(400, random_state=31)[0]
QUICK = {"quality": {"sample": 50}}
BOTH = pytest.mark.parametrize("call", [embed, lambda rows: LocallyLinearEmbedding().fit(rows)], ids=["embed", "fit"])


def table(**columns) -> pd.DataFrame:
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(**columns)


def message_of(call, rows) -> str:
    with pytest.raises(ValueError, match=r"^input: ") as refused:
        call(rows)
    return str(refused.value)


@BOTH
@pytest.mark.parametrize(
    ("column", "content"),
    [
        (np.where(X[:, 0] > 0, "north", "south"), "text such as '(north|south)'"),
        (pd.Categorical(np.where(X[:, 0] > 0, "north", "south")), "text such as"),
        (pd.date_range("2026-01-01", periods=400), "datetime64"),
    ],
    ids=["text", "categories", "times"],
)
def test_columns_without_numbers_are_named_with_cures_that_work(call, column, content):
    rows = table(site=column)
    message = message_of(call, rows)
    assert re.search(rf"none in 1 of 4 columns: 'site' \({content}", message)
    for cure in re.findall(r"X\.drop\(.*?\)|pandas\.get_dummies\(.*?\)", message):
        cured = eval(cure, {"X": rows, "pandas": pd})
        assert np.isfinite(np.asarray(embed(cured, method="pca", quality={"sample": 50}))).all()
    assert ("get_dummies" in message) == (content != "datetime64")  # a column for each time is no useful encoding


@BOTH
def test_text_in_an_array_is_named_by_its_column(call):
    message = message_of(call, table(site="n").to_numpy())
    assert "3 (text such as 'n')" in message
    cure = re.search(r"np\.delete.*astype\(float\)", message)[0]
    np.testing.assert_array_equal(eval(cure, {"np": np, "X": table(site="n").to_numpy()}), X)


def test_at_most_five_columns_are_named():
    message = message_of(embed, table(**{f"t{i}": "x" for i in range(9)}))
    assert "none in 9 of 12 columns" in message
    assert "t4" in message
    assert "t5" not in message


@BOTH
@pytest.mark.parametrize("rows", [table().astype(object), X.astype(object)], ids=["pandas", "array"])
def test_numbers_as_objects_are_no_text(call, rows):
    embedding = call(rows)
    np.testing.assert_array_equal(getattr(embedding, "embedding_", embedding), embed(X))


@BOTH
def test_whole_numbers_beyond_float64_are_refused(call):
    rows = X.astype(object)
    rows[3, 1] = 10**400
    assert "found none in 1 of 3 columns: 1 (object)" in message_of(call, rows)


@BOTH
def test_masked_entries_are_missing_values(call):
    rows = np.ma.masked_greater(X, 0.99)
    first = np.argwhere(rows.mask)[0]
    assert f"the first is row {first[0]}, column {first[1]}, counted from 0 (nan)" in message_of(call, rows)
    model = LocallyLinearEmbedding(config=QUICK).fit(np.ma.array(X, mask=False))
    with pytest.raises(ValueError, match="rows hold NaN"):
        model.transform(rows)
    blocks = da.ma.masked_greater(da.from_array(X, chunks=(100, 3)), 0.99)
    assert f"{rows.mask.any(axis=1).sum()} rows with NaN or infinity" in message_of(call, blocks)


def test_rows_of_blocks_are_counted_from_the_first_row(monkeypatch):
    model = LocallyLinearEmbedding(method="pca", config=QUICK).fit(X)
    rows = X.copy()
    rows[250, 1] = np.nan
    with pytest.raises(ValueError, match=r"1 of 100 rows from row 200 on hold NaN.*\(first: row 250, column 1,"):
        model.transform(da.from_array(rows, chunks=(100, 3))).compute()
    monkeypatch.setattr("lle.api.array_input.BLOCK_BYTES", 1)
    with pytest.raises(ValueError, match=r"first: row 250, column 1,"):
        model.transform(zarr.array(rows, chunks=(100, 3)))


@BOTH
@pytest.mark.parametrize("rows", [3.0, X[:, 0], X[:0], X[:, :0], X[None]], ids=["0-D", "1-D", "0x3", "400x0", "3-D"])
def test_other_shapes_are_refused_without_the_name_of_a_temporary_file(call, rows):
    with pytest.raises(ValueError, match=r"(?i)expected|found array|minimum") as refused:
        call(rows)
    assert ".npy" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Float64", "float64[pyarrow]", "with a truth value"])
def test_numbers_of_any_pandas_type_are_embedded(kind):
    rows = table() if kind == "with a truth value" else table().astype(kind)
    if kind == "with a truth value":
        rows["c"] = rows["c"] > 1
    expected = embed(rows.to_numpy(np.float64), **QUICK)
    np.testing.assert_array_equal(embed(rows, **QUICK), expected)
    rows["a"] = rows["a"].astype("Float64")
    rows.loc[7, "a"] = pd.NA
    assert "the first is row 7, column 'a'" in message_of(embed, rows)


@BOTH
def test_arrow_tables_are_embedded_and_their_text_is_named(call):
    expected = embed(X)
    rows = pa.table(table())
    embedding = call(rows)
    np.testing.assert_array_equal(getattr(embedding, "embedding_", embedding), expected)
    assert "'site' (text such as 'n')" in message_of(call, pa.table(table(site="n")))


def test_lazy_tables_and_sections_are_refused():
    class LazyFrame:
        """As of polars: without values."""

        collect = table

    model = LocallyLinearEmbedding(method="pca", config=QUICK).fit(X)
    for call in (embed, LocallyLinearEmbedding().fit, model.transform):
        assert message_of(call, LazyFrame()).endswith("found a LazyFrame; pass X.collect()")
    assert "found a dict; only embed and fit read an input section" in message_of(model.transform, {"kind": "npy"})


def test_labels_of_other_types_are_refused():
    with pytest.raises(ValueError, match=r"labels: expected numbers or text, found dtype datetime64"):
        embed(X, labels=pd.date_range("2026-01-01", periods=400), **QUICK)


@pytest.mark.parametrize(
    "texts",
    [
        np.array(["a", "b", None, np.nan] * 100, object),
        np.array(["a", "b", "", None] * 100, StringDType(na_object=None)),
    ],
)
def test_missing_labels_have_no_name(tmp_path, texts):
    embed(X, labels=texts, method="pca", store=str(tmp_path / "s.zarr"), **QUICK)
    label = open_run(str(tmp_path / "s.zarr")).columns()["label"]
    assert label.cat.categories.tolist() == ["a", "b"]
    assert label.isna().tolist() == [False, False, True, True] * 100


@BOTH
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_values_are_located(call, value):
    rows = table()
    rows.loc[[7, 9], "b"] = value
    message = message_of(call, rows)
    assert f"2 of 400 rows hold NaN or infinity; the first is row 7, column 'b', counted from 0 ({value})" in message
    assert "the first is row 7, column 1," in message_of(call, rows.to_numpy())
    model = LocallyLinearEmbedding(method="pca", config=QUICK).fit(table())
    assert "(first: row 7, column 'b', counted from 0)" in message_of(model.transform, rows)


def test_cures_of_missing_values_work():
    rows = X.copy()
    rows[7, 1] = np.nan
    drop = {"preprocess": {"invalid": "drop"}}
    with pytest.warns(EmbeddingWarning, match="1 of 400 rows hold NaN"):
        Y = embed(rows, **QUICK, **drop)
    with pytest.warns(EmbeddingWarning, match="1 of 400 rows hold NaN"):
        model = LocallyLinearEmbedding(config={**QUICK, **drop}).fit(rows)
    for coordinates in (Y, model.embedding_):
        assert np.flatnonzero(np.isnan(coordinates).any(axis=1)).tolist() == [7]
    assert np.isfinite(embed(SimpleImputer().fit_transform(rows), **QUICK)).all()


def test_sums_that_overflow_are_no_missing_values(tmp_path):
    rows = X.copy()
    rows[:2] = np.array([[1e308], [-1e308]])
    with pytest.raises(
        ValueError, match=r"squares overflow \(rows 0, 1, counted from 0; the first is row 0 of X\)"
    ) as error:
        embed(rows, store=tmp_path / "my runs: a;b" / "x.zarr", **QUICK)
    assert "set preprocess={'invalid': 'drop'} to leave them out" in str(error.value)
    with pytest.raises(ValueError, match=r"set config=.* to leave them out"):
        LocallyLinearEmbedding(config=QUICK).fit(rows)


@pytest.mark.parametrize(
    ("metric", "row", "message"),
    [
        ("euclidean", [0.0, 1e200, 0.0], r"are so far away, with numbers up to 1\.0e\+200, .*first: row 2, counted"),
        ("euclidean", [0.0, np.nan, 0.0], r"hold NaN or infinity \(first: row 2, column 1"),
        ("cosine", [0.0, 0.0, 0.0], r"are zero after preprocessing .*\(first: row 2, counted"),
    ],
)
def test_rows_that_cannot_be_transformed_are_located(metric, row, message):
    model = LocallyLinearEmbedding(metric=metric, config=QUICK).fit(X)
    with pytest.raises(ValueError, match=f"1 of 3 rows {message}"):
        model.transform(np.vstack([X[:2], [row]]))


def test_constant_columns_are_named_with_cures_that_work():
    rows = table(d=1.0)
    for call, scale in [
        (lambda **sections: embed(rows, **sections), "preprocess={'scale': 'none'}"),
        (lambda **config: LocallyLinearEmbedding(config=config).fit(rows), "config={'preprocess': {'scale': 'none'}}"),
    ]:
        with pytest.raises(ValueError, match=r"1 of 4 columns hold one value only \('d'\)\. .* \(drop them") as refused:
            call(preprocess={"scale": "standard"})
        assert f"or use {scale}" in str(refused.value)

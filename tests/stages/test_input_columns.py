"""Columns of the input on the page of the explorer and in `lle explore`."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lle.jobs.served_run import load_run
from lle.stages.input_columns import MAX_CLASSES, _column, input_columns
from lle.storage.store import Store
from tests.support.commands import lle, write_config
from tests.support.explorer_page import decode

N = 1200
AGES = np.arange(N) % 77
SEGMENTS = np.array(["small", "large", None], object)[np.arange(N) % 3]
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(days=i % 500) for i in range(N)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on a table with columns of many types; row 5 is dropped."""
    folder, rng = tmp_path_factory.mktemp("columns"), np.random.default_rng(3)
    x = rng.random((N, 3))
    x[5, 0] = np.nan
    table = pa.table(
        {
            **{name: x[:, j] for j, name in enumerate("abc")},
            "age": AGES,
            "grade": AGES % 4,
            "segment": SEGMENTS,
            "day": DAYS,
            "active": AGES > 30,
            "note": [f"text {i}" for i in range(N)],
            "y1": x[:, 1],
            "kind": SEGMENTS,
            "floor": [f"floor {i % 12}" for i in range(N)],
        }
    )
    pq.write_table(table, folder / "x.parquet")
    source = {"kind": "parquet", "path": str(folder / "x.parquet"), "columns": ["a", "b", "c"], "label": "kind"}
    config = write_config(
        folder, input=source, output={"report": True}, preprocess={"invalid": "drop"}, quality={"sample": 60}
    )
    lle("run", config, "--set", "method=pca")
    return Store(str(folder / "run.zarr")), folder / "x.parquet", x


@pytest.mark.slow
def test_the_page_has_the_columns_of_the_input(finished):
    store, _, x = finished
    page = decode(store.objects.get("report/explore.html"))
    rows = page["row"]
    assert set(page) >= {"a", "b", "c", "age", "grade", "segment", "day", "active", "input_y1", "kind"}
    assert len(rows) == N - 1 > MAX_CLASSES
    assert "note" not in page  # every row has another text
    np.testing.assert_allclose(page["a"], x[rows, 0], atol=1e-4)
    np.testing.assert_array_equal(np.rint(page["age"]), AGES[rows])
    assert page["grade"].tolist() == (AGES[rows] % 4).astype(str).tolist()
    assert page["segment"].tolist() == ["" if text is None else text for text in SEGMENTS[rows]]
    assert page["active"].tolist() == np.where(AGES[rows] > 30, "true", "false").tolist()
    days = np.array(DAYS, "datetime64[D]")[rows].astype(float)
    np.testing.assert_allclose(page["day"] / 86400, days, atol=500 / 60_000)


def test_classes_are_in_the_order_of_their_numbers(finished):
    [floor] = [column for column in input_columns(finished[0], np.arange(24), 40) if column.name == "floor"]
    assert floor.names == [f"floor {number}" for number in range(12)]
    assert floor.values.tolist() == [*range(12)] * 2


def test_lle_explore_has_them_with_all_digits(finished):
    run = load_run(finished[0])
    table = pd.concat([pd.read_csv(pd.io.common.BytesIO(part)) for part in run.csv(np.arange(40))])
    rows = table["row"].to_numpy()
    assert table["day"].tolist() == [str(DAYS[row]) for row in rows]
    assert table["age"].tolist() == AGES[rows].tolist()
    np.testing.assert_allclose(table["a"], finished[2][rows, 0], rtol=1e-6)


def test_at_most_the_wanted_number_is_read_and_those_that_are_no_features_first(finished):
    store, _, _ = finished
    rows = np.arange(0, N, 7)
    names = [column.name for column in input_columns(store, rows, 3)]
    assert names == ["age", "grade", "segment"]


def test_a_changed_or_missing_input_leaves_the_features_of_the_store(finished, tmp_path):
    store, path, x = finished
    rows = np.arange(10, 40)
    path.rename(tmp_path / "away.parquet")
    try:
        columns = input_columns(store, rows, 40)
        path.write_bytes(b"another file")
        assert [column.name for column in input_columns(store, rows, 40)] == list("abc")
    finally:
        (tmp_path / "away.parquet").rename(path)
    assert [column.name for column in columns] == list("abc")
    np.testing.assert_array_equal(columns[1].values, x[rows, 1])


def test_a_row_index_without_a_name_gets_one():
    column = _column("", pa.chunked_array([pa.array(range(20))]))
    assert (column.name, column.label) == ("row index", "row index")

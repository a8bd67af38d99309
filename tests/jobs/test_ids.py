"""input.id: the ids of rows go through to exports, transforms and the explorer; duplicates get a warning."""

import base64
import json
import re

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from lle.storage.store import Store
from tests.support.commands import FEW, lle, refused, write_config
from tests.support.points import swiss_roll

N = 500
IDS = [f"{i:03}" for i in np.random.default_rng(8).permutation(N)]


def table() -> pd.DataFrame:
    rows = pd.DataFrame(swiss_roll(N, np.random.default_rng(3)), columns=["x", "y", "z"])
    return rows.assign(name=IDS, number=np.arange(N) * 7 + 10**12, kind=np.arange(N) % 3)


def job(folder, rows: pd.DataFrame, kind: str = "csv", **source):
    folder.mkdir(exist_ok=True)
    write = rows.to_csv if kind == "csv" else rows.to_parquet
    write(folder / f"x.{kind}", index=False)
    section = {"kind": kind, "path": str(folder / f"x.{kind}"), "columns": ["x", "y", "z"], "label": "kind", **source}
    return write_config(folder, **{"execution": {"block_points": 200}, **FEW}, input=section)


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """(config, URL of the store) of a run with a report and text ids."""
    config = job(tmp_path_factory.mktemp("named"), table(), id="name")
    return config, lle("run", config, "--set", "output.report=true")["store"]


@pytest.mark.slow
def test_exports_hold_the_ids(named, tmp_path):
    _, url = named
    lle("export", url, tmp_path / "y.parquet")
    exported = pd.read_parquet(tmp_path / "y.parquet")
    assert list(exported.columns) == ["row", "component", "y1", "y2", "name"]
    assert exported["name"].tolist() == IDS
    lle("export", url, tmp_path / "y.npy")
    assert np.load(tmp_path / "y.npy").shape == (N, 2)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_whole_numbers_stay_whole_numbers(tmp_path, toy_stages, kind):
    config = job(tmp_path / "job", table(), kind, id="number")
    url = lle("run", config, "--set", "input.where=2")["store"]
    lle("export", url, tmp_path / "y.parquet")
    exported = pd.read_parquet(tmp_path / "y.parquet")
    assert exported["number"].dtype == np.int64
    assert exported["number"].tolist() == [row * 7 + 10**12 for row in range(2, N, 3)]


def test_whole_numbers_stay_whole_beside_a_file_that_lacks_one(tmp_path, toy_stages):
    rows = table().astype({"number": float})  # as pandas writes whole numbers if one is missing
    rows.loc[N - 3, "number"] = np.nan
    config = job(tmp_path / "job", rows[N // 2 :], "parquet", id="number")
    table()[: N // 2].to_parquet(tmp_path / "job" / "w.parquet", index=False)
    url = lle("run", config, "--set", f"input.path={tmp_path / 'job'}/*.parquet")["store"]
    lle("export", url, tmp_path / "y.parquet")
    expected = [None if row == N - 3 else row * 7 + 10**12 for row in range(N)]
    assert pyarrow.parquet.read_table(tmp_path / "y.parquet").column("number").to_pylist() == expected
    table().assign(number=2**53 + 1 + np.arange(N)).to_parquet(tmp_path / "job" / "w.parquet", index=False)
    message = refused(2, "run", config, "--fresh", "--set", f"input.path={tmp_path / 'job'}/*.parquet")
    assert "column 'number': its int64 does not fit the double of another file" in message


def test_whole_numbers_above_int64_are_exported_as_text(tmp_path, toy_stages):
    large = [2**64 - 1 - row for row in range(N)]
    config = job(tmp_path / "job", table().assign(number=np.array(large, np.uint64)), "parquet", id="number")
    url = lle("run", config)["store"]
    for suffix in ("parquet", "arrow", "csv"):
        lle("export", url, tmp_path / f"y.{suffix}")
    assert pd.read_parquet(tmp_path / "y.parquet")["number"].tolist() == list(map(str, large))
    assert pd.read_csv(tmp_path / "y.csv", dtype=str)["number"].tolist() == list(map(str, large))


@pytest.mark.parametrize("link", [False, True], ids=["same name", "link"])
def test_input_is_not_replaced_by_an_output(named, tmp_path, link):
    config, url = named
    source, new, out = config.parent / "x.csv", tmp_path / "new.csv", tmp_path / "link.csv"
    table()[:20].to_csv(new, index=False)
    commands = ((["export", "--force", url], source), (["transform", url, new], source), (["transform", url, new], new))
    for command, path in commands:
        before = path.read_bytes()
        if link:
            out.unlink(missing_ok=True)
            out.symlink_to(path)
        assert "holds the input, which would be lost" in refused(2, *command, out if link else path)
        assert path.read_bytes() == before


def test_transform_copies_names_of_rows_from_a_column_without_name(tmp_path):
    """As R and pandas write them; lle init proposes such a column as the id."""
    rows = table().rename(columns={"name": ""})[["", "x", "y", "z", "kind"]]
    url = lle("run", job(tmp_path / "job", rows, id=""))["store"]
    rows[100:130].to_csv(tmp_path / "x.csv", index=False)
    lle("transform", url, tmp_path / "x.csv", tmp_path / "y.parquet")
    assert pd.read_parquet(tmp_path / "y.parquet")[""].tolist() == IDS[100:130]


def test_export_keeps_names_of_rows_beside_a_column_that_is_called_id(tmp_path, toy_stages):
    rows = table().rename(columns={"name": "", "kind": "id"})
    url = lle("run", job(tmp_path / "job", rows, id="", label="id"))["store"]
    lle("export", url, tmp_path / "y.parquet", "--with", "id")
    exported = pd.read_parquet(tmp_path / "y.parquet")
    assert (exported[""].tolist(), exported["id"].tolist()) == (IDS, rows["id"].tolist())


def test_transform_copies_the_id_of_a_new_table_that_has_it(named, tmp_path):
    _, url = named
    table()[100:130].to_csv(tmp_path / "x.csv", index=False)
    lle("transform", url, tmp_path / "x.csv", tmp_path / "y.parquet")
    assert pd.read_parquet(tmp_path / "y.parquet")["name"].tolist() == IDS[100:130]
    table()[100:130].drop(columns="name").to_csv(tmp_path / "x.csv", index=False)
    lle("transform", url, tmp_path / "x.csv", tmp_path / "z.parquet")
    assert "name" not in pd.read_parquet(tmp_path / "z.parquet")


def test_transform_copies_the_ids_of_a_file_beside_new_arrays(named, tmp_path):
    np.save(tmp_path / "x.npy", table()[["x", "y", "z"]].to_numpy()[:40])
    np.save(tmp_path / "ids.npy", np.arange(40) + 7)
    lle("transform", named[1], tmp_path / "x.npy", tmp_path / "y.csv", "--input", f"id={tmp_path / 'ids.npy'}")
    assert pd.read_csv(tmp_path / "y.csv")["id"].tolist() == list(range(7, 47))


def test_the_explorer_holds_the_ids(named):
    page = Store(named[1]).objects.get("report/explore.html").decode()
    content = json.loads(re.search(r'id="content"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert content["ids"]["label"] == "name"
    payload = re.search(rf'id="data-{content["ids"]["data"]}"[^>]*>(.*?)</script>', page, re.DOTALL)[1]
    assert base64.b64decode(payload).decode().split("\n") == IDS


def test_the_id_is_no_feature(tmp_path):
    config = job(tmp_path / "job", table().drop(columns="name"), columns=None, id="number")
    output = lle("validate", config)
    assert (output["columns"]["features"], output["columns"]["id"]) == (["x", "y", "z"], "number")
    assert output["warnings"] == []
    for columns, text in {
        "[x,number]": "remove 'number' from",
        "[x,y,x]": "remove 'x' from",
        "[]": "found none",
    }.items():
        assert text in refused(2, "validate", config, "--set", f"input.columns={columns}")


def test_repeated_and_missing_ids_are_counted_in_warnings(tmp_path, toy_stages):
    rows = table()
    rows.loc[[10, 20, 450], "name"] = "042"
    rows.loc[301, "name"] = None
    repeats = 2 + ("042" not in IDS[10:11] + IDS[20:21] + IDS[450:451])
    metrics = lle("run", job(tmp_path / "job", rows, id="name"))["metrics"]
    assert metrics["ids"] == {"duplicates": repeats, "first": ["042"] * repeats, "missing": 1}
    assert any(text.startswith(f"{repeats} rows have the id of an earlier row (042") for text in metrics["warnings"])
    assert any(text.startswith("1 row without an id") for text in metrics["warnings"])


def test_another_id_reads_no_points_again(named):
    config, url = named
    reused = lle("plan", config, "--set", "input.id=number")
    computed = {step["stage"] for step in reused["steps"] if step["reused"] < step["tasks"]}
    assert computed <= {"ingest", "write_report"}
    assert all(step["reused"] == step["tasks"] for step in reused["steps"] if step["step"] == "read")
    assert Store(url).has_bundle("ids/00002")


def test_a_fitted_sample_keeps_the_ids_of_all_rows(tmp_path):
    url = lle("run", job(tmp_path / "job", table(), id="name", fit_sample=200))["store"]
    lle("export", url, tmp_path / "y.parquet", "--with", "kind")
    exported = pd.read_parquet(tmp_path / "y.parquet")
    assert exported["name"].tolist() == IDS
    assert exported["kind"].tolist() == table()["kind"].tolist()


@pytest.mark.parametrize("column", ["x", "when", "tags"])
def test_other_types_are_refused(tmp_path, column):
    rows = table().assign(when=pd.Timestamp(5), tags=[["a"]] * N)
    config = job(tmp_path / "job", rows, "parquet", id=column, columns=["y", "z"])
    assert "expected a column of whole numbers or text" in refused(2, "run", config)

"""Remote input files: the same rows as from a disk, few transferred bytes, and detected changes."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lle.core.errors import InputChanged, InputError, LleError
from lle.inputs import array_rows, open_source, remote_files
from lle.inputs.base import Stamp
from lle.storage.objects import open_objects
from tests.support.commands import FEW, lle, write_config
from tests.support.input_files import FILES, changed
from tests.support.points import swiss_roll
from tests.support.stored import read_blocks
from tests.support.traffic import counted

pytest.importorskip("obstore", reason="object stores need the extra s3")


@pytest.fixture
def bucket(moto_bucket):
    return moto_bucket


@pytest.fixture
def folder(bucket, request):
    """Objects in a folder of the test's own."""
    return open_objects(bucket.url(request.node.name.replace("[", "/").replace("]", "").replace(" ", "-")))


def upload(files: list[Path], objects) -> None:
    for file in files:
        objects.put(file.name, file.read_bytes())


def saved(save, *arrays, **named) -> bytes:
    from io import BytesIO

    save(buffer := BytesIO(), *arrays, **named)
    return buffer.getvalue()


class TestSameRows:
    @pytest.mark.parametrize("name", FILES)
    def test_remote_rows_equal_local_rows(self, inputs, data, folder, name, monkeypatch):
        kind, params = inputs[name]
        upload([file for file in Path(params["path"]).parent.iterdir() if file.is_file()], folder)
        monkeypatch.setattr(remote_files, "PIECE_BYTES", 1000)  # many requests a read
        remote_params = {
            key: f"{folder.url}/{Path(value).name}" if os.sep in str(value) else value for key, value in params.items()
        }
        local, remote = open_source(kind, **params), open_source(kind, **remote_params)
        assert (remote.n_rows, remote.dtype, remote.labels.names) == (local.n_rows, local.dtype, local.labels.names)
        for start, stop in ((0, remote.n_rows), (1777, 2001), (5, 5)):
            np.testing.assert_array_equal(remote.read(start, stop), local.read(start, stop))
            np.testing.assert_array_equal(remote.read_labels(start, stop), local.read_labels(start, stop))
        columns = ["x4", "x0"] if kind in ("parquet", "csv") else [4, 0]
        two_columns = open_source(kind, **remote_params, columns=columns)
        np.testing.assert_array_equal(two_columns.read(100, 1400), data[0][100:1400][:, [4, 0]])

    def test_percent_encoded_names_are_read(self, folder):
        folder.put("a b/x%#1?.npy", saved(np.save, np.eye(3)))
        for name in ("a%20b/x%25%231%3F.npy", "a b/*.npy"):
            [actual] = open_source("npy", path=f"{folder.url}/{name}").fingerprint()["points"]
            assert actual["name"] == "x%#1?.npy"

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("*.npy", ["a", "b"]),
            ("?.npy", ["a", "b"]),
            ("[b-z].npy", ["b"]),
            ("d/*/*.npy", ["c"]),
            ("**/*.npy", ["a", "b", "c", "e"]),
            ("d/**/*.npy", ["c", "e"]),
            (".*.npy", [".f"]),
            ("x[1].*", ["x[1]"]),
        ],
    )
    def test_patterns_match_remote_files(self, bucket, pattern, expected):
        objects = open_objects(bucket.url("patterns"))
        for name in ("a.npy", "b.npy", "d/deep/c.npy", "d/e.npy", ".f.npy", "x[1].*", "a.txt"):
            objects.put(name, saved(np.save, np.eye(3)))
        files = open_source("npy", path=f"{objects.url}/{pattern}").fingerprint()["points"]
        assert [file["name"].removesuffix(".npy") for file in files] in (expected, [f"{name}.*" for name in expected])


class TestBytesRead:
    """Bytes and requests, counted by a forwarder."""

    N, D = 20_000, 8

    @pytest.fixture
    def traffic(self, bucket, monkeypatch):
        with counted(bucket) as (server, traffic):
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            yield traffic

    @pytest.mark.parametrize("kind", ["npy", "npy by columns", "npz", "parquet", "csv"])
    def test_reading_a_block_transfers_its_bytes_only(self, folder, traffic, kind, tmp_path, monkeypatch):
        X = np.random.default_rng(83).normal(size=(self.N, self.D))
        path = tmp_path / f"x.{kind.split()[0]}"
        if kind in ("parquet", "csv"):
            frame = pd.DataFrame(X, columns=list("abcdefgh"))
            frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path, row_group_size=500)
        else:
            (np.savez if kind == "npz" else np.save)(path, np.asfortranarray(X) if "columns" in kind else X)
        upload([path], folder)
        file_bytes = path.stat().st_size
        open_source(path.suffix[1:], path=f"{folder.url}/{path.name}")  # csv: first rows, then all
        assert traffic.received < (file_bytes + 2**19 if kind == "csv" else 0.1 * file_bytes)
        traffic.forget()
        source = open_source(path.suffix[1:], path=f"{folder.url}/{path.name}")
        assert traffic.requests == {"HEAD": 1}, "the header has been read before"
        np.testing.assert_allclose(source.read(9000, 9400), X[9000:9400])
        assert traffic.received < 0.16 * file_bytes  # 2 of 100; csv: up to 1024 rows more on either side
        assert traffic.requests["GET"] <= {"npy by columns": self.D, "parquet": 8}.get(kind, 1)

    def test_unused_columns_are_not_transferred(self, folder, traffic, tmp_path):
        X = np.random.default_rng(5).normal(size=(self.N, 20))
        pd.DataFrame(X, columns=[f"x{i}" for i in range(20)]).to_parquet(tmp_path / "x.parquet")
        upload([tmp_path / "x.parquet"], folder)
        traffic.forget()
        open_source("parquet", path=f"{folder.url}/x.parquet", columns=["x3"]).read(0, self.N)
        assert traffic.received < 0.1 * (tmp_path / "x.parquet").stat().st_size

    def test_many_files_are_listed_once(self, folder, traffic):
        for number in range(5):
            folder.put(f"{number}.npy", saved(np.save, np.full((10, 2), float(number))))
        open_source("npy", path=f"{folder.url}/*.npy")
        traffic.forget()
        assert open_source("npy", path=f"{folder.url}/*.npy").read(25, 26)[0, 0] == 2.0
        assert traffic.requests == {"LIST": 1, "GET": 1}


class TestChanges:
    def test_fingerprint_and_stamps(self, folder):
        def put(number, seed):
            X = np.random.default_rng(seed).normal(size=(25, 2))
            folder.put(f"{number}.npy", saved(np.save, X))

        for number in range(4):
            put(number, number)

        def opened():
            source = open_source("npy", path=f"{folder.url}/*.npy")
            assert source.detects_changes
            return source.fingerprint(), source.stamps(20)

        first, before = opened()
        put(1, 1)
        assert opened() == (first, before), "the same bytes, put there once more"
        put(1, 11)
        second, after = opened()
        assert second != first
        assert changed(before, after) == [1, 2]  # rows 25 to 49

    def test_file_changed_during_the_read_is_detected(self, folder):
        folder.put("x.npy", saved(np.save, np.zeros((50, 2))))
        source = open_source("npy", path=f"{folder.url}/x.npy")
        time.sleep(1.1)  # times in HTTP headers are whole seconds
        folder.put("x.npy", saved(np.save, np.ones((50, 2))))
        with pytest.raises(InputChanged, match=r"x\.npy: the object was replaced while it was read"):
            source.read(0, 10)
        assert open_source("npy", path=f"{folder.url}/x.npy").read(0, 10).all()
        folder.delete("x.npy")
        with pytest.raises(InputError, match=r"x\.npy: the object was deleted"):
            source.read(0, 10)

    @pytest.mark.slow
    def test_next_version_reads_only_changed_files(self, folder, tmp_path):
        X = swiss_roll(600, np.random.default_rng(67))

        def put(number, rows):
            frame = pd.DataFrame(rows, columns=["a", "b", "c"])
            frame.to_parquet(tmp_path / f"{number}.parquet", row_group_size=100)
            upload([tmp_path / f"{number}.parquet"], folder)

        for number in range(3):
            put(number, X[200 * number : 200 * number + 200])

        def config(url):
            return write_config(
                tmp_path,
                input={"kind": "parquet", "path": f"{url}/*.parquet"},
                output={"keep": 3, "report": False},
                execution={"block_points": 200},
                **FEW,
            )

        first = lle("run", config(folder.url))
        assert lle("run", config(folder.url))["unchanged"]
        put(1, X[200:400] + 0.01)
        second = lle("run", config(folder.url))
        assert not second["unchanged"]
        assert read_blocks(second["store"]) == [False, True, False]
        local = lle("run", config(tmp_path), "--store", str(tmp_path / "local.zarr"))
        for name in ("_input", "embedding"):
            stored = [
                {key: open_objects(store).get(key) for key in open_objects(store).names(name)}
                for store in (second["store"], local["store"])
            ]
            assert stored[0] == stored[1]
        assert first["store"] != second["store"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("s3://bucket/refused/y.npy", r"input\.path: s3://bucket/refused/y\.npy: there is no such object"),
            ("s3://bucket/refused/y*.npy", "no object matches the pattern"),
            ("s3://bucket/nowhere/*.npy", "no object matches the pattern"),
            ("s3://bucket/refused", "is a folder; name the files in it, for instance 's3://bucket/refused/\\*'"),
            ("s3://bucket/refused/", "is a folder; name the files in it, for instance 's3://bucket/refused/\\*'"),
            ("s3://nobody/x.npy", r"input\.path: s3://nobody/x\.npy: there is no such bucket"),
            ("s3://nobody/*.npy", "no such bucket"),
            ("s3://bucket/refused/**x/y", "can only be an entire path component"),
            ("gopher://x/y.npy", "not a storage URL that can be opened"),
            ("s3://me:hunter2@bucket/x.npy", "the URL holds a user name or password"),
            ("http://127.0.0.1:9/*.npy", "web servers cannot list files"),
        ],
    )
    def test_invalid_urls_are_refused(self, bucket, url, message):
        open_objects(bucket.url("refused")).put("x.npy", saved(np.save, np.eye(3)))
        with pytest.raises(InputError, match=message) as caught:
            open_source("npy", path=url)
        assert "hunter2" not in str(caught.value)
        assert "Debug source" not in str(caught.value)

    @pytest.mark.parametrize("name", ["x.npy", "*.npy"])
    def test_no_credentials(self, bucket, monkeypatch, name):
        """Without credentials the client requests the identity of this machine from the cloud."""
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(variable)
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://169.254.0.0:9")
        monkeypatch.setattr("lle.storage.retries.RETRY_SECONDS", 0.0)
        with pytest.raises(LleError, match="no credentials in the environment"):
            open_source("npy", path=bucket.url(name))

    @pytest.mark.parametrize("kind", ["npz", "idx", "parquet", "csv"])
    def test_remote_file_of_another_format_is_refused(self, folder, kind):
        folder.put("x", b"\0" * 200)
        with pytest.raises(InputError, match=f"{folder.url}/x"):
            open_source(kind, path=f"{folder.url}/x")

    def test_missing_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "obstore.store", None)
        with pytest.raises(InputError, match=r"pip install '\.\[s3\]'"):
            open_source("npy", path="s3://unopened/x.npy")

    def test_web_server_without_range_requests_is_refused(self, tmp_path, web_server, monkeypatch):
        monkeypatch.setattr("lle.storage.retries.RETRY_SECONDS", 0.0)
        np.save(tmp_path / "x.npy", np.zeros((9000, 3)))
        with pytest.raises(InputError, match="does not support reading a part of a file"):
            open_source("npy", path=f"{web_server}/x.npy")


def test_chosen_columns_are_read_in_windows_of_rows(tmp_path, monkeypatch):
    """Whole rows are read, but the plan of memory counts only the chosen columns."""
    X = np.arange(3000.0).reshape(100, 30)
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("lle.inputs.stacked_files.WINDOW_BYTES", 8 * 30 * 7)
    read, sizes = array_rows.ArrayRows.read, []

    def counting(self, start, stop):
        sizes.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(array_rows.ArrayRows, "read", counting)
    block = open_source("npy", path=tmp_path / "x.npy", columns=[29, 3]).read(5, 95)
    np.testing.assert_array_equal(block, X[5:95][:, [29, 3]])
    assert max(sizes) == 7


def test_seeking_before_the_start_is_the_error_of_other_files():
    """So zipfile says that a file of few bytes is no archive."""
    stamp = Stamp("s3://bucket/x.npz", 10, 0)
    with pytest.raises(OSError, match="before start"):
        remote_files.RangeFile(stamp, 0).seek(-22, os.SEEK_END)

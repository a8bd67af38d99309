"""Input readers: every kind gives the same rows by any blocks; errors name what cannot be read."""

import gzip
import http.server
import io
import json
import os
import threading
import warnings
import zipfile
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.errors import UnstableSpecificationWarning

from pipeline.core.errors import InputError, LleError
from pipeline.inputs import (
    compressed,
    csv_files,
    labels,
    memory_mapped,
    npy_npz_idx,
    open_source,
    parquet_files,
    zarr_input,
)
from pipeline.inputs.column_names import ColumnRoles
from pipeline.kernels.manifolds import MANIFOLDS, sample
from tests.support.input_files import IDX_CODES, D, N, write_frame, write_group, write_idx

ALL_INPUTS = [
    "npy", "npy by columns", "npy glob", "npz", "npz deflated", "npz by columns", "idx", "idx gzip",
    "zarr 3", "zarr 2", "parquet", "csv",
]  # fmt: skip


class TestEveryKind:
    @pytest.mark.parametrize("name", ALL_INPUTS)
    def test_header(self, inputs, name):
        kind, params = inputs[name]
        source = open_source(kind, **params)
        assert (source.n_rows, source.n_features) == (N, D)
        assert source.dtype == (np.float64 if kind == "csv" else np.float32)
        assert source.label_kind == "categorical"
        assert source.label_names == tuple("0123456")
        assert source.label_width == 1

    @pytest.mark.parametrize("name", ALL_INPUTS)
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(ranges=st.lists(st.tuples(st.integers(0, N), st.integers(0, N)).map(sorted), min_size=1, max_size=4))
    def test_any_rows_can_be_read_in_any_order(self, inputs, data, name, ranges):
        kind, params = inputs[name]
        X, y = data
        for start, stop in ranges:
            source = open_source(kind, **params)
            block = source.read(start, stop)
            assert block.dtype == source.dtype
            assert block.flags.c_contiguous
            assert block.flags.writeable
            assert np.array_equal(block, X[start:stop])
            read_labels = source.read_labels(start, stop)
            assert read_labels.dtype == np.float64
            assert np.array_equal(read_labels, y[start:stop])

    @pytest.mark.parametrize("name", ALL_INPUTS)
    def test_chosen_columns(self, inputs, data, name):
        kind, params = inputs[name]
        columns = ["x4", "x0"] if kind in ("parquet", "csv") else [4, 0]
        source = open_source(kind, **params, columns=columns)
        assert source.n_features == 2
        assert np.array_equal(source.read(10, 1210), data[0][10:1210][:, [4, 0]])

    @pytest.mark.parametrize("name", ALL_INPUTS)
    def test_no_labels(self, inputs, name):
        kind, params = inputs[name]
        source = open_source(kind, **{key: value for key, value in params.items() if key not in ("label", "labels")})
        assert (source.label_kind, source.label_names, source.label_width) == ("none", None, 0)
        assert source.read_labels(0, 5) is None

    @pytest.mark.parametrize("name", ALL_INPUTS)
    def test_fingerprint_changes_with_the_file(self, inputs, name):
        kind, params = inputs[name]
        fingerprint = open_source(kind, **params).fingerprint()
        assert json.loads(json.dumps(fingerprint)) == fingerprint
        assert open_source(kind, **params).fingerprint() == fingerprint
        location = params.get("path") or params["url"] / "points" / ("0.0" if name == "zarr 2" else "c/0/0")
        path = str(location).replace("part*", "part2")
        status = os.stat(path)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
        assert open_source(kind, **params).fingerprint() != fingerprint

    @pytest.mark.parametrize("name", ALL_INPUTS)
    def test_relative_path(self, inputs, name, monkeypatch):
        kind, params = inputs[name]
        key = "url" if kind == "zarr" else "path"
        folder, file = os.path.split(params[key])
        monkeypatch.chdir(folder)
        assert open_source(kind, **params | {key: file}).n_rows == N

    @pytest.mark.parametrize("rows", [(-1, 5), (0, N + 1), (7, 6)])
    @pytest.mark.parametrize("name", ALL_INPUTS)
    def test_rows_outside_are_refused(self, inputs, name, rows):
        kind, params = inputs[name]
        with pytest.raises(ValueError, match="rows"):
            open_source(kind, **params).read(*rows)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("bool", "f4"), ("i1", "f4"), ("u1", "f4"), ("i2", "f4"), (">u2", "f4"), ("f2", "f4"), (">f4", "f4"),
        ("i4", "f8"), ("u4", "f8"), ("i8", "f8"), ("f8", "f8"), (">f8", "f8"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet"])
def test_reading_dtype_keeps_every_value(tmp_path, kind, dtype, expected):
    wide = np.dtype(dtype)
    if wide.kind == "f":
        extremes = [np.finfo(wide).max, np.finfo(wide).tiny]
    else:
        extremes = [1, 0] if wide.kind == "b" else [np.iinfo(wide).max >> 11 * (wide.itemsize == 8), np.iinfo(wide).min]
    X = np.array([extremes, extremes[::-1]]).astype(wide)
    if kind == "npy":
        np.save(tmp_path / "x.npy", X)
        source = open_source("npy", path=tmp_path / "x.npy")
    elif kind == "zarr":
        zarr.open_group(tmp_path / "x.zarr", mode="w").create_array("points", data=X)
        source = open_source("zarr", url=tmp_path / "x.zarr")
    else:
        pq.write_table(
            pa.table({"a": X[:, 0].astype(wide.newbyteorder("=")), "b": X[:, 1].astype(wide.newbyteorder("="))}),
            tmp_path / "x.parquet",
        )
        source = open_source("parquet", path=tmp_path / "x.parquet")
    block = source.read(0, 2)
    assert block.dtype == source.dtype == np.dtype(expected)
    assert np.array_equal(block, X.astype("f8"))


class TestGlobs:
    def test_files_are_sorted_by_name(self, tmp_path):
        for i in (2, 0, 1):
            np.save(tmp_path / f"p{i}.npy", np.full((3, 2), float(i)))
        block = open_source("npy", path=f"{tmp_path}/p*.npy").read(0, 9)
        assert block[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]

    def test_label_files_may_have_other_lengths_than_data_files(self, tmp_path):
        for i, size in enumerate((3, 4)):
            np.save(tmp_path / f"p{i}.npy", np.zeros((size, 2)))
        for i, values in enumerate(([0.5, 1.5], [2.5, 3.5, 4.5, 5.5, 6.5])):
            np.save(tmp_path / f"l{i}.npy", np.array(values))
        source = open_source("npy", path=f"{tmp_path}/p*.npy", labels=f"{tmp_path}/l*.npy")
        assert source.label_kind == "continuous"
        assert source.read_labels(1, 6).tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]

    def test_file_name_with_brackets_is_no_pattern(self, tmp_path):
        np.save(tmp_path / "x[1].npy", np.zeros((3, 2)))
        assert open_source("npy", path=tmp_path / "x[1].npy").n_rows == 3

    def test_float32_and_float64_files_read_as_float64(self, tmp_path):
        np.save(tmp_path / "p0.npy", np.zeros((3, 2), np.float32))
        np.save(tmp_path / "p1.npy", np.full((3, 2), 1 / 3))
        source = open_source("npy", path=f"{tmp_path}/p*.npy")
        assert source.dtype == np.float64
        assert source.read(2, 4)[1, 0] == 1 / 3

    def test_zarr_groups(self, tmp_path, data):
        X, y = data
        write_group(tmp_path / "a.zarr", X[:1000], y[:1000])
        write_group(tmp_path / "b.zarr", X[1000:], y[1000:])
        source = open_source("zarr", url=f"{tmp_path}/*.zarr", array="points", labels="label")
        assert np.array_equal(source.read(900, 1100), X[900:1100])
        assert np.array_equal(source.read_labels(0, N), y)

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    def test_tables_match_columns_by_name(self, tmp_path, data, suffix):
        X, y = data
        write_frame(tmp_path / f"a{suffix}", X[:900], y[:900])
        frame = pd.DataFrame(X[900:], columns=[f"x{i}" for i in range(D)]).assign(label=y[900:])[::1]
        turned = frame[["x3", "label", "x0", "x1", "x2", "x4"]]
        if suffix == ".csv":
            turned.to_csv(tmp_path / "b.csv", index=False)
        else:
            turned.to_parquet(tmp_path / "b.parquet")
        source = open_source(suffix[1:], path=f"{tmp_path}/*{suffix}", label="label")
        assert np.array_equal(source.read(0, N), X)
        assert np.array_equal(source.read_labels(0, N), y)


class TestReadsOnlyWhatItNeeds:
    def test_sparse_npy_of_terabytes(self, tmp_path):
        path = tmp_path / "huge.npy"
        with path.open("wb") as handle:
            np.lib.format.write_array_header_1_0(
                handle, {"shape": (10**9, 100), "fortran_order": False, "descr": "<f8"}
            )
            handle.truncate(handle.tell() + 8 * 10**11)
        source = open_source("npy", path=path)
        assert source.n_rows == 10**9
        assert not source.read(10**9 - 10, 10**9).any()

    @pytest.mark.parametrize("name", ["idx gzip", "npz deflated"])
    def test_block_after_block_opens_a_stream_once(self, inputs, data, name, monkeypatch):
        opened = []
        for function in ("_open_gzip", "_open_member"):
            original = getattr(npy_npz_idx, function)
            monkeypatch.setattr(
                npy_npz_idx, function, lambda *args, original=original: opened.append(args) or original(*args)
            )
        kind, params = inputs[name]
        blocks = [open_source(kind, **params).read(start, min(start + 100, N)) for start in range(0, N, 100)]
        assert np.array_equal(np.concatenate(blocks), data[0])
        assert len(opened) == 1
        open_source(kind, **params).read(50, 60)
        assert len(opened) == 2

    def test_each_thread_uses_its_own_stream(self, inputs, data):
        kind, params = inputs["idx gzip"]
        wrong_starts = []

        def read(first):
            for start in range(first, N - 50, 100):
                if not np.array_equal(open_source(kind, **params).read(start, start + 50), data[0][start : start + 50]):
                    wrong_starts.append(start)

        threads = [threading.Thread(target=read, args=(first,)) for first in (0, 50, 25)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong_starts == []

    def test_pool_closes_the_oldest_stream(self):
        handles = {}

        def opener(name):
            handles[name] = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(name.encode() * 10)))
            return handles[name]

        pool = compressed.StreamPool(2)
        for name in "abc":
            with pool.at((name,), 3, partial(opener, name)) as stream:
                target = bytearray(2)
                assert stream.read_into(memoryview(target)) == 2
                assert target == name.encode() * 2
        assert [handles[name].closed for name in "abc"] == [True, False, False]
        pool.close()
        assert handles["c"].closed

    def test_parquet_decodes_each_row_group_once(self, inputs, monkeypatch):
        decoded = []
        original = parquet_files._read_group
        monkeypatch.setattr(parquet_files, "_read_group", lambda *args: decoded.append(args[1:]) or original(*args))
        parquet_files._numbers_of_group.cache_clear()
        kind, params = inputs["parquet"]
        for start in range(700, 1400, 100):
            open_source(kind, **params, columns=["x1"]).read(start, start + 100)
        assert decoded == [(1, ["x1"])]

    def test_zarr_decodes_only_the_chunks_of_the_chosen_columns(self, tmp_path, data):
        path = write_group(tmp_path / "x.zarr", *data)
        for chunk in ("c/0/1", "c/0/2", "c/1/0"):
            (path / "points" / chunk).write_bytes(b"garbage")
        source = open_source("zarr", url=path, array="points", columns=[1, 0])
        assert np.array_equal(source.read(0, 400), data[0][:400, [1, 0]])
        with pytest.raises(InputError, match=r"array 'points', rows 399 to 400: expected data of this kind"):
            source.read(399, 401)

    def test_csv_is_scanned_once(self, inputs, monkeypatch):
        scans = []
        original = csv_files._whole_lines
        monkeypatch.setattr(csv_files, "_whole_lines", lambda *args: scans.append(args) or original(*args))
        csv_files.index_rows.cache_clear()
        kind, params = inputs["csv"]
        for start in range(0, 2000, 500):
            open_source(kind, **params).read(start, start + 500)
        assert len(scans) == 1

    def test_npz_by_columns_is_unpacked_once(self, inputs, monkeypatch):
        memory_mapped._unpack.cache_clear()
        kind, params = inputs["npz by columns"]
        for start in range(0, 2000, 500):
            open_source(kind, **params).read(start, start + 500)
        assert memory_mapped._unpack.cache_info().misses == 1


class TestLabels:
    def read(self, tmp_path, values):
        np.save(tmp_path / "x.npy", np.zeros((len(values), 2)))
        np.save(tmp_path / "y.npy", values)
        source = open_source("npy", path=tmp_path / "x.npy", labels=tmp_path / "y.npy")
        return source.label_kind, source.label_names, source.read_labels(0, len(values))

    @pytest.mark.parametrize(
        ("values", "kind", "names", "expected"),
        [
            ([3, 9, 3], "categorical", ("3", "9"), [0, 1, 0]),
            ([10, -2, 9], "categorical", ("-2", "9", "10"), [2, 0, 1]),
            ([True, False], "categorical", ("0", "1"), [1, 0]),
            (["oak", "", "ash"], "categorical", ("ash", "oak"), [1, np.nan, 0]),
            ([b"oak", b"ash"], "categorical", ("ash", "oak"), [1, 0]),
            (["10", "9", "9.0"], "categorical", ("9", "10"), [1, 0, 0]),
            (["1.5", "", "2"], "continuous", None, [1.5, np.nan, 2]),
            ([0.5, np.nan], "continuous", None, [0.5, np.nan]),
            ([[1, 2], [3, 4]], "continuous", None, [[1, 2], [3, 4]]),
            ([[1], [4]], "categorical", ("1", "4"), [0, 1]),
        ],
    )  # fmt: skip
    def test_kinds(self, tmp_path, values, kind, names, expected):
        found_kind, found_names, actual = self.read(tmp_path, np.array(values))
        assert (found_kind, found_names) == (kind, names)
        np.testing.assert_array_equal(actual, expected)

    @pytest.mark.parametrize(
        ("count", "kind"), [(labels.MAX_INTEGER_CLASSES, "categorical"), (labels.MAX_INTEGER_CLASSES + 1, "continuous")]
    )
    @pytest.mark.parametrize("dtype", ["i8", "U5"])
    def test_many_integers_are_continuous(self, tmp_path, count, kind, dtype):
        values = np.arange(5, 5 + count)
        found_kind, _, actual = self.read(tmp_path, values.astype(dtype))
        assert found_kind == kind
        np.testing.assert_array_equal(actual, values - (5 if kind == "categorical" else 0))

    def test_classes_are_collected_over_all_blocks_and_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(labels, "SCAN_ROWS", 2)
        for i, values in enumerate((["b", "b", "b"], ["a", "c", "b"])):
            np.save(tmp_path / f"x{i}.npy", np.zeros((3, 1)))
            np.save(tmp_path / f"y{i}.npy", np.array(values))
        source = open_source("npy", path=f"{tmp_path}/x*.npy", labels=f"{tmp_path}/y*.npy")
        assert source.read_labels(2, 5).tolist() == [1, 0, 2]
        assert source.label_names == ("a", "b", "c")

    def test_too_many_distinct_labels_of_text_are_refused(self, tmp_path):
        with pytest.raises(InputError, match="1000 different texts"):
            self.read(tmp_path, np.array([f"id{i}" for i in range(1001)]))

    def test_text_after_numbers_in_a_label_column(self, tmp_path):
        values = [str(i / 4) for i in range(1200)]
        write_frame(tmp_path / "x.csv", np.zeros((1201, 2)), [*values, "oak"])
        source = open_source("csv", path=tmp_path / "x.csv", label="label")
        with pytest.raises(InputError, match=r"label|oak"):
            source.read_labels(0, 1201)

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_text_column_with_gaps(self, tmp_path, kind):
        path = write_frame(tmp_path / f"x.{kind}", np.eye(4), ["oak", None, "ash", "oak, red"])
        source = open_source(kind, path=path, label="label")
        assert source.label_names == ("ash", "oak", "oak, red")
        np.testing.assert_array_equal(source.read_labels(0, 4), [1, np.nan, 0, 2])

    @pytest.mark.parametrize(("zarr_format", "dtype"), [(2, "<U4"), (2, str), (3, str), (3, "<U4")])
    def test_zarr_text(self, tmp_path, zarr_format, dtype):
        group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=zarr_format)
        group.create_array("points", data=np.eye(3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnstableSpecificationWarning)
            texts = group.create_array("tree", shape=(3,), dtype=dtype)
        texts[:] = np.array(["oak", "ash", ""])
        source = open_source("zarr", url=tmp_path / "x.zarr", array="points", labels="tree")
        np.testing.assert_array_equal(source.read_labels(0, 3), [1, 0, np.nan])


class TestCsv:
    def test_any_layout_of_lines(self, tmp_path, monkeypatch):
        """The file is scanned in pieces of a few bytes, so every line is split."""
        monkeypatch.setattr(csv_files, "ROWS_PER_MARK", 3)
        rng = np.random.default_rng(5)
        X = rng.standard_normal((20, 3))
        lines = [",".join(map(repr, row)) for row in X.tolist()]
        texts = {
            "plain": "a,b,c\n" + "\n".join(lines) + "\n",
            "no last break": "a,b,c\n" + "\n".join(lines),
            "windows": "a,b,c\r\n" + "\r\n".join(lines) + "\r\n",
            "windows, blank lines": "a,b,c\r\n\r\n" + "\r\n\r\n".join(lines) + "\r\n",
            "blank lines": "a,b,c\n\n" + "\n\n".join(lines) + "\n\n\n",
            "byte order mark": "\ufeffa,b,c\n" + "\n".join(lines) + "\n",
            "quoted": '"a","b","c"\n'
            + "\n".join(f'"{line.replace(",", chr(34) + "," + chr(34))}"' for line in lines)
            + "\n",
            "spaces": "a, b ,c\n" + "\n".join(line.replace(",", " , ") for line in lines),
        }
        for name, text in texts.items():
            path = tmp_path / f"{name}.csv"
            path.write_bytes(text.encode())
            for scan in (7, 64, 1 << 20):
                monkeypatch.setattr(csv_files, "SCAN_BYTES", scan)
                csv_files.index_rows.cache_clear()
                source = open_source("csv", path=path, columns=["a", "b", "c"])
                assert source.n_rows == 20, name
                for start, stop in [(0, 20), (0, 1), (2, 3), (3, 6), (5, 11), (18, 20), (19, 20), (4, 4)]:
                    assert np.array_equal(source.read(start, stop), X[start:stop]), (name, scan, start, stop)

    @pytest.mark.parametrize("rows", [1023, 1024, 1025, 2048])
    def test_rows_around_the_recorded_line_offsets(self, tmp_path, rows):
        X = np.random.default_rng(rows).standard_normal((rows, 2))
        pd.DataFrame(X, columns=["a", "b"]).to_csv(tmp_path / "x.csv", index=False)
        source = open_source("csv", path=tmp_path / "x.csv")
        assert source.n_rows == rows
        for start, stop in [(0, rows), (1022, 1023), (1000, rows), (rows - 1, rows)]:
            assert np.array_equal(source.read(start, stop), X[start:stop])

    def test_missing_entries_are_nan(self, tmp_path):
        (tmp_path / "x.csv").write_text("a,b\n1,\nNaN,2\n,inf\n")
        block = open_source("csv", path=tmp_path / "x.csv").read(0, 3)
        np.testing.assert_array_equal(block, [[1, np.nan], [np.nan, 2], [np.nan, np.inf]])

    def test_text_columns_are_read_only_on_request(self, tmp_path):
        (tmp_path / "x.csv").write_bytes(b"a,name,b\n1,\xff,2\n3,\xe9,4\n")
        assert open_source("csv", path=tmp_path / "x.csv", columns=["b", "a"]).read(0, 2).tolist() == [[2, 1], [4, 3]]

    def test_text_columns_are_left_out_as_in_parquet(self, tmp_path):
        frame = pd.DataFrame({"b": [1.5, 2.5], "name": ["oak", "ash"], "a": [1, 2], "gap": [None, 7.0], "kind": "tree"})
        frame.to_csv(tmp_path / "x.csv", index=False)
        frame.to_parquet(tmp_path / "x.parquet", index=False)
        for kind in ("csv", "parquet"):
            roles = open_source(kind, path=tmp_path / f"x.{kind}", label="kind").roles
            assert roles == ColumnRoles(("b", "a", "gap"), "kind", None, {"name": "text"})

    def test_empty_column_has_the_type_of_the_other_files(self, tmp_path):
        (tmp_path / "1.csv").write_text("a,name,b\n1,,2\n")
        (tmp_path / "2.csv").write_text("a,name,b\n1,oak,\n")
        (tmp_path / "3.csv").write_text("a,name,b\n")
        source = open_source("csv", path=tmp_path / "*.csv")
        assert source.roles == ColumnRoles(("a", "b"), None, None, {"name": "text"})
        np.testing.assert_array_equal(source.read(0, 2), [[1, 2], [1, np.nan]])

    def test_a_late_bad_number_is_named_with_its_line(self, tmp_path):
        rows = [f"{i},{i / 2}" for i in range(3000)]
        rows[2500] = "2500,2o.5"
        (tmp_path / "x.csv").write_text("\n".join(["a,height", *rows]))
        source = open_source("csv", path=tmp_path / "x.csv")
        assert source.read(2000, 2048)[-1].tolist() == [2047, 1023.5]
        with pytest.raises(InputError, match=r"x\.csv near line 2502, column 'height'.*'2o\.5'"):
            source.read(2400, 2600)

    def test_file_that_became_shorter_is_detected(self, tmp_path):
        path = tmp_path / "x.csv"
        path.write_text("a,b\n" + "1,2\n" * 3000)
        source = open_source("csv", path=path)
        path.write_text("a,b\n" + "1,2\n" * 2000)
        with pytest.raises(InputError):
            source.read(1024, 2500)


class TestParquet:
    def test_types_and_gaps(self, tmp_path):
        table = pa.table(
            {
                "byte": pa.array([1, None, 3], pa.int8()), "truth": pa.array([True, False, None]),
                "half": pa.array(np.array([0.5, 1, 2], np.float16)), "name": ["a", "b", "c"],
                "big": pa.array([2**53 + 1, None, 3], pa.int64()),
                "price": pa.array([1, 2, None], pa.decimal128(5, 2)),
            }
        )  # fmt: skip
        pq.write_table(table, tmp_path / "x.parquet")
        small = open_source("parquet", path=tmp_path / "x.parquet", columns=["byte", "truth", "half"])
        assert small.dtype == np.float32
        np.testing.assert_array_equal(small.read(0, 3), [[1, 1, 0.5], [np.nan, 0, 1], [3, np.nan, 2]])
        all_columns = open_source("parquet", path=tmp_path / "x.parquet", label="name")
        assert (all_columns.n_features, all_columns.dtype) == (5, np.float64)
        np.testing.assert_array_equal(all_columns.read(0, 3)[:, 3:], [[2.0**53, 1], [np.nan, 2], [3, np.nan]])
        assert all_columns.label_names == ("a", "b", "c")

    def test_integer_labels_with_gaps(self, tmp_path):
        pq.write_table(pa.table({"a": [1.0, 2.0, 3.0], "y": pa.array([7, None, 5])}), tmp_path / "x.parquet")
        source = open_source("parquet", path=tmp_path / "x.parquet", label="y")
        assert source.label_names == ("5", "7")
        np.testing.assert_array_equal(source.read_labels(0, 3), [1, np.nan, 0])

    def test_category_labels(self, tmp_path):
        pd.DataFrame({"a": [1.0, 2.0], "y": pd.Categorical(["oak", "ash"])}).to_parquet(tmp_path / "x.parquet")
        source = open_source("parquet", path=tmp_path / "x.parquet", label="y")
        assert source.read_labels(0, 2).tolist() == [1, 0]

    @pytest.mark.parametrize("index_name", [None, "id"])
    def test_row_index_is_not_a_feature(self, tmp_path, index_name):
        index = pd.Index([5, 9, 2], name=index_name)
        pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=index).to_parquet(tmp_path / "x.parquet")
        assert open_source("parquet", path=tmp_path / "x.parquet").read(0, 3).tolist() == [[1], [2], [3]]
        named = index_name or "__index_level_0__"
        assert open_source("parquet", path=tmp_path / "x.parquet", columns=[named]).read(1, 2).tolist() == [[9]]

    def test_empty_row_groups_and_files(self, tmp_path):
        with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema({"a": pa.float64()})) as writer:
            for values in ([], [1.0, 2.0], [], [3.0]):
                writer.write_table(pa.table({"a": pa.array(values, pa.float64())}))
        pq.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "b.parquet")
        source = open_source("parquet", path=f"{tmp_path}/*.parquet")
        assert source.read(0, 3).tolist() == [[1], [2], [3]]


class TestSynthetic:
    @pytest.mark.parametrize("name", sorted(MANIFOLDS))
    def test_manifolds(self, name):
        source = open_source("synthetic", name=name, n_points=300, noise=0.1, seed=5, phi=0.3)
        expected = sample(name, 0, 300, 5, 0.1, 0.3)
        assert (source.n_rows, source.n_features, source.label_width) == (300, *MANIFOLDS[name])
        assert (source.label_kind, source.label_names) == ("continuous", None)
        assert np.array_equal(source.read(100, 300), expected.points[100:])
        read_labels = source.read_labels(100, 300)
        assert np.array_equal(read_labels.reshape(200, -1), expected.coordinates[100:])
        assert read_labels.ndim == (1 if name == "spiral_2d" else 2)

    @pytest.mark.parametrize("key", ["name", "n_points", "noise", "seed", "phi"])
    def test_fingerprint_holds_every_parameter(self, key):
        params = {"name": "sheet", "n_points": 300, "noise": 0.1, "seed": 5, "phi": 0.3}
        changed = params | {key: {"name": "cusp", "n_points": 301, "noise": 0.2, "seed": 6, "phi": 0.4}[key]}
        assert open_source("synthetic", **params).fingerprint() != open_source("synthetic", **changed).fingerprint()

    @pytest.mark.parametrize("n_points", [None, 1797])
    def test_digits(self, n_points):
        source = open_source("synthetic", name="digits", n_points=n_points)
        assert (source.n_rows, source.n_features, source.label_names) == (1797, 64, tuple("0123456789"))
        block = source.read(3, 1797)
        assert block.shape == (1794, 64)
        block[:] = -1
        assert source.read(0, 1797).min() == 0
        assert np.bincount(source.read_labels(0, 1797).astype(int)).sum() == 1797

    @pytest.mark.parametrize(
        ("params", "word"),
        [
            ({"name": "torus", "n_points": 5}, "swiss_roll.*digits"),
            ({"name": "sheet"}, "n_points"),
            ({"name": "sheet", "n_points": 0}, "n_points"),
            ({"name": "sheet", "n_points": 5, "noise": -1.0}, "noise"),
            ({"name": "sheet", "n_points": 5, "seed": -1}, "seed"),
            ({"name": "punctured_sphere", "n_points": 5, "phi": 7.0}, "phi"),
            ({"name": "digits", "n_points": 5}, "1797"),
            ({"name": "digits", "noise": 0.5}, "noise"),
            ({"name": "sheet", "n_points": 5, "path": "x"}, "path"),
        ],
    )
    def test_bad_parameters(self, params, word):
        with pytest.raises(InputError, match=word):
            open_source("synthetic", **params)


class TestRemoteZarr:
    @pytest.fixture
    def address(self, tmp_path):
        quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *args: None})
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(tmp_path))) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
            thread.join()

    def test_web_server(self, tmp_path, address, data):
        pytest.importorskip("obstore")
        write_group(tmp_path / "x.zarr", *data)
        source = open_source("zarr", url=f"{address}/x.zarr", array="points", labels="label")
        assert np.array_equal(source.read(399, 1201), data[0][399:1201])
        assert np.array_equal(source.read_labels(0, N), data[1])
        assert source.fingerprint()["points"][0]["shape"] == [N, D]
        with pytest.raises(InputError, match="no array 'pionts'"):
            open_source("zarr", url=f"{address}/x.zarr", array="pionts")
        with pytest.raises(InputError, match="found none"):
            open_source("zarr", url=f"{address}/y.zarr", array="points")

    def test_listing_of_an_object_store(self, tmp_path, data, monkeypatch):
        store = pytest.importorskip("obstore.store")
        write_group(tmp_path / "x.zarr", *data)
        # The same calls that an s3:// URL makes, on a store in a folder.
        monkeypatch.setattr(store, "from_url", lambda url, **options: store.LocalStore(tmp_path / "x.zarr"))
        first = open_source("zarr", url="s3://bucket/x.zarr", array="points")
        assert np.array_equal(first.read(5, 900), data[0][5:900])
        fingerprint = first.fingerprint()["points"][0]
        assert (fingerprint["name"], fingerprint["files"]) == ("x.zarr", 7 * 3 + 1)
        (tmp_path / "x.zarr/points/c/2/1").write_bytes(b"garbage")
        assert open_source("zarr", url="s3://bucket/x.zarr", array="points").fingerprint()["points"][0] != fingerprint

    def test_missing_answer_is_a_temporary_error(self, monkeypatch):
        monkeypatch.setattr("pipeline.storage.retries.RETRY_SECONDS", 0.0)
        store = pytest.importorskip("obstore.store")
        original = store.from_url
        monkeypatch.setattr(
            store, "from_url", lambda url, **options: original(url, **options | {"retry_config": {"max_retries": 0}})
        )
        with pytest.raises(LleError) as caught:
            open_source("zarr", url="http://127.0.0.1:9/x.zarr", array="points")
        assert caught.value.exit_code == 1

    def test_missing_extra_is_named(self, monkeypatch):
        monkeypatch.setattr(zarr_input, "find_spec", lambda name: None)
        with pytest.raises(InputError, match=r"pip install '\.\[s3\]'"):
            open_source("zarr", url="s3://bucket/x.zarr", array="points")


def test_missing_package_is_named(monkeypatch):
    def import_module(name):
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    monkeypatch.setattr("pipeline.inputs.import_module", import_module)
    with pytest.raises(InputError, match="parquet needs the package 'pyarrow'"):
        open_source("parquet", path="x")


X = np.arange(12.0).reshape(4, 3)
Y = np.arange(4)
RANDOM = np.random.default_rng(7).integers(0, 255, (4000, 3)).astype(np.uint8)
FRAME = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "name": ["u", "v"]})
IDX_9_ROWS = b"\0\0\x08\x02\0\0\0\x09\0\0\0\x02"


def npy(**named):
    return lambda folder: [np.save(folder / f"{name}.npy", array) for name, array in named.items()]


def npz(**named):
    return lambda folder: np.savez_compressed(folder / "x.npz", **named)


def idx(array, compress=False):
    return lambda folder: write_idx(folder / "x.idx", array, compress)


def text(content, name="x.csv"):
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def table(frame, name="x.parquet"):
    return lambda folder: frame.to_parquet(folder / name)


def group(**named):
    def make(folder):
        root = zarr.open_group(folder / "x.zarr", mode="w")
        for name, array in named.items():
            root.create_array(name, data=array)

    return make


def folder_named(name):
    return lambda folder: (folder / name).mkdir()


def cut(name, keep):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


def damage(name, start, stop):
    def change(folder):
        damaged = bytearray((folder / name).read_bytes())
        damaged[start:stop] = bytes(byte ^ 0xFF for byte in damaged[start:stop])
        (folder / name).write_bytes(damaged)

    return change


def short_member(folder):
    np.save(folder / "x.npy", X)
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", (folder / "x.npy").read_bytes()[:-8])


def steps(*makers):
    return lambda folder: [make(folder) for make in makers]


# kind -> (base parameters, what is wrong -> (how to make it, further parameters, words of the message))
BAD_INPUTS = {
    "npy": ({"path": "x.npy"}, {
        "missing file": (steps(), {}, r"no file 'x\.npy' \(working directory: .*\)"),
        "no match": (steps(), {"path": "*.npy"}, r"no file matches the pattern '\*\.npy' \(working dir"),
        "missing labels": (npy(x=X), {"labels": "y.npy"}, r"input\.labels.*y\.npy"),
        "directory": (folder_named("x.npy"), {}, r"directory 'x\.npy'.*'x\.npy/\*'"),
        "1-D": (npy(x=Y), {}, r"x\.npy: expected a 2-D array.*\(4,\).*reshape\(-1, 1\)"),
        "3-D": (npy(x=X.reshape(2, 2, 3)), {}, r"2-D.*\(2, 2, 3\).*flatten"),
        "object": (npy(x=np.array([[1, "a"]], dtype=object)), {}, "object.*astype"),
        "text": (npy(x=np.array([["a", "b"]])), {}, "real numbers, found dtype <U1"),
        "complex": (npy(x=X * 1j), {}, "complex128.*imaginary part as separate columns"),
        "times": (npy(x=X.astype("M8[s]")), {}, "datetime64.*convert times"),
        "records": (npy(x=np.zeros((2, 2), "i4,f4")), {}, "save the fields as the columns"),
        "no rows": (npy(x=X[:0]), {}, "at least one row"),
        "no columns": (npy(x=X[:, :0]), {}, "at least one column"),
        "cut off": (steps(npy(x=X), cut("x.npy", -5)), {}, "expected 224 bytes .*found 219"),
        "cut in the header": (steps(npy(x=X), cut("x.npy", 40)), {}, r"x\.npy.*\.npy format"),
        "not npy": (text("a,b\n1,2\n", "x.npy"), {}, r"x\.npy.*\.npy format.*np\.save"),
        "widths": (
            npy(x1=X, x2=X[:, :2]), {"path": "x*.npy"},
            r"x2\.npy: expected rows of shape \(3,\) as in x1\.npy, found \(2,\)",
        ),
        "dtypes": (
            npy(x1=X, x2=X.astype(int)), {"path": "x*.npy"},
            r"x2\.npy: expected floating-point .*x1\.npy, found int64",
        ),
        "label length": (npy(x=X, y=Y[:3]), {"labels": "y.npy"}, r"y\.npy: expected .*, 4 in all, found 3"),
        "complex labels": (npy(x=X, y=Y * 1j), {"labels": "y.npy"}, "complex"),
        "3-D labels": (npy(x=X, y=X.reshape(4, 3, 1)), {"labels": "y.npy"}, r"found shape \(4, 3, 1\)"),
        "text label columns": (npy(x=X, y=X.astype(str)), {"labels": "y.npy"}, "one text label per row"),
        "column out of range": (npy(x=X), {"columns": [0, 3]}, r"from 0 to 2, found \[3\]"),
        "negative column": (npy(x=X), {"columns": [-1]}, r"from 0 to 2, found \[-1\]"),
        "column name": (npy(x=X), {"columns": ["a"]}, r"from 0 to 2, found \['a'\]"),
        "column twice": (npy(x=X), {"columns": [1, 1]}, "twice"),
        "no column chosen": (npy(x=X), {"columns": []}, "empty list"),
        "unknown key": (npy(x=X), {"colour": 1}, "colour.*path, labels, columns"),
    }),
    "hdf5": ({}, {"unknown kind": (steps(), {}, "hdf5.*parquet")}),
    "npz": ({"path": "x.npz"}, {
        "not a zip": (text("hello", "x.npz"), {}, r"x\.npz: expected an \.npz archive"),
        "cut off": (steps(npz(x=RANDOM), cut("x.npz", 3000)), {}, "cut-off"),
        "wrong key": (npz(points=X, y=Y), {"key": "X"}, "no array 'X'.*points, y"),
        "wrong label key": (npz(points=X, y=Y), {"labels": "label"}, "no array 'label'.*points, y"),
        "which": (npz(a=X, b=X, y=Y), {}, r"one 2-D array, found 2.*a \(4, 3\), b \(4, 3\), y \(4,\)"),
        "none": (npz(y=Y), {}, r"exactly one 2-D array, found 0"),
        "1-D": (npz(y=Y), {"key": "y"}, r"array 'y': expected a 2-D array"),
        "object": (npz(x=np.array([[1, "a"]], dtype=object)), {"key": "x"}, "object"),
        "damaged": (steps(npz(x=RANDOM), damage("x.npz", 6000, 6001)), {}, r"x\.npz, array 'x'.*damaged"),
        "short member": (short_member, {}, r"x\.npz, array 'x': expected .* bytes for shape \(4, 3\)"),
        "damaged, by columns": (
            steps(npz(x=np.asfortranarray(RANDOM)), damage("x.npz", 6000, 6001)), {},
            r"x\.npz, array 'x'.*damaged",
        ),
    }),
    "idx": ({"path": "x.idx"}, {
        "not idx": (text("hello", "x.idx"), {}, r"x\.idx: expected an IDX file"),
        "empty file": (text("", "x.idx"), {}, "missing"),
        "header only": (text(b"\0\0\x08\x03\0\0", "x.idx"), {}, "header ends too early"),
        "cut off": (steps(idx(RANDOM), cut("x.idx", -1)), {}, "expected 12012 bytes.*found 12011"),
        "labels as points": (idx(RANDOM[:, 0]), {}, r"2-D.*\(4000,\)"),
        "gzip cut off": (steps(idx(RANDOM, True), cut("x.idx", 9000)), {}, r"x\.idx.*cut-off"),
        "gzip without its end": (steps(idx(RANDOM, True), cut("x.idx", -4)), {}, r"x\.idx.*cut-off"),
        "gzip damaged": (steps(idx(RANDOM, True), damage("x.idx", 9000, 9001)), {}, r"x\.idx.*damaged"),
        "gzip shorter": (text(gzip.compress(IDX_9_ROWS + b"12" * 8), "x.idx"), {}, "the end inside"),
        "gzip longer": (text(gzip.compress(IDX_9_ROWS + b"12" * 10), "x.idx"), {}, "more data"),
    }),
    "csv": ({"path": "x.csv"}, {
        "empty": (text(""), {}, "empty file"),
        "header alone": (text("a,b\n"), {}, "at least one row"),
        "no header": (text("1,2\n3,4\n"), {}, "header line.*numbers"),
        "blank header": (text("\n1,2\n3,4\n"), {}, "header line with column names"),
        "semicolons": (text("a;b\n1;2\n"), {}, "separated by commas"),
        "gzip": (text(gzip.compress(b"a,b\n1,2\n", mtime=0) + b"\n"), {}, "gzip.*not supported"),
        "UTF-16": (text("a,b\n1,2\n".encode("utf-16")), {}, "UTF-8"),
        "break in quotes": (text('a,b\n1,2\n3,"4\n5"\n'), {}, r"line 3: .*line break inside quotes.*Parquet"),
        "unknown column": (text("a,b\n1,2\n"), {"columns": ["a", "z"]}, r"no column \['z'\].*a, b"),
        "unknown label": (text("a,b\n1,2\n"), {"label": "z"}, r"no column \['z'\].*a, b"),
        "text": (text("a,b\n1,2\n2,x\n"), {}, r"near line 3, column 'b': expected numbers.*'x'.*\.columns"),
        "short line": (text("a,b\n1,2\n2\n"), {}, r"near line 3: [^:]*; found: Expected 2 columns, got 1"),
        "long line": (text("a,b\n1,2,3\n"), {}, r"near line 2: .*Expected 2 columns, got 3"),
        "column twice": (text("a,a\n1,2\n"), {}, "each column name once"),
        "column without a name": (text(",a\n0,2\n"), {}, "column 1 has no name"),
        "label alone": (text("a\n1\n"), {"label": "a"}, "besides the label"),
        "label as column": (text("a,b\n1,2\n"), {"label": "a", "columns": ["a"]}, "not the label 'a'"),
        "differing columns": (
            steps(text("a,b\n1,2\n", "x1.csv"), text("a,c\n1,2\n", "x2.csv")), {"path": "x*.csv"},
            r"x2\.csv.*\['b', 'c'\]",
        ),
        "returns alone": (text("a,b\n1,2\r3,4\n"), {}, "line breaks must all be the same"),
        "one endless line": (text("a" * 5000), {}, "without a line break"),
        "labels in Latin-1": (text(b"a,b\n1,\xe9\n"), {"label": "b"}, "column 'b': expected text in UTF-8"),
    }),
    "parquet": ({"path": "x.parquet"}, {
        "not parquet": (text("hello", "x.parquet"), {}, r"x\.parquet: expected a Parquet file"),
        "cut off": (steps(table(FRAME), cut("x.parquet", -30)), {}, "expected a Parquet file"),
        "damaged": (steps(table(FRAME), damage("x.parquet", 4, 40)), {}, r"x\.parquet.*damaged"),
        "unknown column": (table(FRAME), {"columns": ["z"]}, r"no column \['z'\].*a, b, name"),
        "text column": (table(FRAME), {"columns": ["a", "name"]}, r"expected numbers.*\['name'\]"),
        "no numbers": (table(FRAME[["name"]]), {}, "at least one numeric column"),
        "no rows": (table(FRAME[:0]), {}, "at least one row"),
        "time label": (table(FRAME.assign(t=pd.Timestamp(5))), {"label": "t"}, "column 't'.*timestamp"),
        "differing columns": (
            steps(table(FRAME, "x1.parquet"), table(FRAME[["a"]], "x2.parquet")), {"path": "x*.parquet"},
            r"x2\.parquet.*\['b'\]",
        ),
    }),
    "zarr": ({"url": "x.zarr"}, {
        "missing": (steps(), {}, r"input\.url.*x\.zarr"),
        "not zarr": (folder_named("x.zarr"), {}, "expected a Zarr group or array at x.zarr"),
        "a file": (text("hello", "x.zarr"), {}, "expected a Zarr group or array at x.zarr"),
        "wrong array": (group(points=X, y=Y), {"array": "X"}, "no array 'X'.*points"),
        "wrong labels": (group(points=X, y=Y), {"labels": "Y"}, "no array 'Y'.*points"),
        "which": (group(a=X, b=X), {}, r"exactly one 2-D array, found 2"),
        "1-D": (group(y=Y), {"array": "y"}, r"x\.zarr, array 'y': expected a 2-D array"),
        "complex": (group(x=X * 1j), {}, "complex128"),
        "label length": (group(x=X, y=Y[:2]), {"labels": "y"}, "4 in all, found 2"),
        "damaged metadata": (
            steps(group(x=X), cut("x.zarr/x/zarr.json", 50)), {"array": "x"}, "found damaged or cut-off data",
        ),
        "damaged chunk": (
            steps(group(x=X), text("garbage", "x.zarr/x/c/0/0")), {},
            r"array 'x', rows 0 to 3: expected data of this kind",
        ),
        "array, yet a name": (
            lambda folder: zarr.save_array(folder / "x.zarr", X), {"array": "x"}, "found a single array",
        ),
    }),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, (_, cases) in BAD_INPUTS.items() for case in cases])
def test_bad_input_is_named(tmp_path, monkeypatch, kind, case):
    base, cases = BAD_INPUTS[kind]
    make, further, words = cases[case]
    monkeypatch.setattr(csv_files, "SCAN_BYTES", 1000)
    monkeypatch.setattr(csv_files, "MAX_LINE_BYTES", 2000)
    monkeypatch.chdir(tmp_path)
    make(tmp_path)

    def read_all():
        source = open_source(kind, **base | further)
        source.read(0, source.n_rows)
        source.read_labels(0, source.n_rows)

    with pytest.raises(InputError, match=words) as caught:
        read_all()
    assert caught.value.exit_code == 2


def test_single_zarr_array(tmp_path):
    zarr.save_array(tmp_path / "x.zarr", X)
    assert np.array_equal(open_source("zarr", url=tmp_path / "x.zarr").read(1, 3), X[1:3])
    assert open_source("zarr", url=f"file://{tmp_path}/x.zarr").n_rows == 4


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_npz_of_other_zip_tools_is_read(tmp_path, compression):
    np.save(tmp_path / "x.npy", RANDOM)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", compression) as archive:
        archive.writestr("notes.txt", "hello")
        archive.write(tmp_path / "x.npy", "x.npy")
    assert np.array_equal(open_source("npz", path=tmp_path / "x.npz").read(100, 300), RANDOM[100:300])


@pytest.mark.parametrize("dtype", IDX_CODES)
def test_idx_dtypes(tmp_path, dtype):
    values = np.array([[1, 2], [3, 100]], dtype)
    assert np.array_equal(open_source("idx", path=write_idx(tmp_path / "x.idx", values)).read(0, 2), values)


def test_idx_samples_are_flattened(tmp_path):
    images = RANDOM[:8].reshape(2, 2, 6)
    source = open_source("idx", path=write_idx(tmp_path / "x.idx", images))
    assert np.array_equal(source.read(0, 2), images.reshape(2, 12))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable_file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.npy").chmod(0)
    with pytest.raises(InputError, match="may be read"):
        open_source("npy", path=tmp_path / "x.npy")

"""Input readers: every kind gives the same rows by any blocks and reads no more than it needs."""

import json
import os
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lle.config.load import check_config
from lle.core import stage_caches
from lle.core.errors import InputError, LleError
from lle.inputs import array_rows, csv_index, open_source, parquet_files
from lle.kernels.manifolds import MANIFOLDS, sample
from lle.stages.ingest import open_input
from tests.support.input_files import FILES, IDX_CODES, D, N, write_frame, write_group, write_idx

ALL_INPUTS = [*FILES, "zarr 3", "zarr 2"]


class TestEveryKind:
    @pytest.mark.parametrize("name", ALL_INPUTS)
    def test_header_gives_sizes_dtype_and_labels(self, inputs, name):
        kind, params = inputs[name]
        source = open_source(kind, **params)
        assert (source.n_rows, source.n_features) == (N, D)
        assert source.dtype == (np.float64 if kind == "csv" else np.float32)
        assert source.labels.kind == "categorical"
        assert source.labels.names == tuple("0123456")
        assert source.labels.width == 1

    @pytest.mark.slow
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
        assert (source.labels.kind, source.labels.names, source.labels.width) == ("none", None, 0)
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
        *((dtype, "f4") for dtype in ("bool", "i1", "u1", "i2", ">u2", "f2", ">f4")),
        *((dtype, "f8") for dtype in ("i4", "u4", "i8", "f8", ">f8")),
    ],
)
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
        assert source.labels.kind == "continuous"
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

    @pytest.mark.parametrize("name", ["idx gzip", "npz deflated", "npz by columns"])
    def test_compressed_files_are_unpacked_once(self, inputs, data, name, monkeypatch):
        unpacked = []
        original = array_rows.open_file
        monkeypatch.setattr(
            array_rows, "open_file", lambda *args: unpacked.append(args) or time.sleep(0.02) or original(*args)
        )
        array_rows._unpacked.cache_clear()
        kind, params = inputs[name]

        def read(start):
            return open_source(kind, **params).read(start, min(start + 100, N))

        with ThreadPoolExecutor(3) as pool:
            blocks = list(pool.map(read, range(0, N, 100)))
        assert np.array_equal(np.concatenate(blocks), data[0])
        open_source(kind, **params).read(50, 60)
        assert len(unpacked) == 1

    @pytest.mark.parametrize("n_threads", [1, 3])
    def test_parquet_decodes_each_row_group_once(self, inputs, monkeypatch, n_threads):
        decoded, original = [], parquet_files._read_group

        def decode(*arguments):
            decoded.append(arguments[1:])
            time.sleep(0.02)
            return original(*arguments)

        monkeypatch.setattr(parquet_files, "_read_group", decode)
        stage_caches.begin_stage(f"decoded by {n_threads}")
        kind, params = inputs["parquet"]
        source = open_source(kind, **params, columns=["x1"])
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(lambda start: source.read(start, start + 100), range(700, 1400, 100)))
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
        original = csv_index._whole_lines
        monkeypatch.setattr(csv_index, "_whole_lines", lambda *args: scans.append(args) or original(*args))
        csv_index.index_rows.cache_clear()
        kind, params = inputs["csv"]
        for start in range(0, 2000, 500):
            open_source(kind, **params).read(start, start + 500)
        assert len(scans) == 1


class TestSynthetic:
    @pytest.mark.parametrize("name", sorted(MANIFOLDS))
    def test_manifolds(self, name):
        source = open_source("synthetic", name=name, n_points=300, noise=0.1, seed=5, phi=0.3)
        expected = sample(name, 0, 300, 5, 0.1, 0.3)
        assert (source.n_rows, source.n_features, source.labels.width) == (300, *MANIFOLDS[name])
        assert (source.labels.kind, source.labels.names) == ("continuous", None)
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
        assert (source.n_rows, source.n_features, source.labels.names) == (1797, 64, tuple("0123456789"))
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
            ({"name": "digits", "n_points": 5}, "digits has 1797 points without noise; remove"),
            ({"name": "digits", "noise": 0.5}, "digits has 1797 points without noise; remove"),
            ({"name": "sheet", "n_points": 5, "path": "x"}, "path"),
        ],
    )
    def test_wrong_parameters_are_refused_by_name(self, params, word):
        job = {"input": {"kind": "synthetic", **params}, "output": {"store": "x.zarr"}}
        with pytest.raises(LleError, match=word):
            open_input(check_config(job, "test"))


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_npz_of_other_zip_tools_is_read(tmp_path, data, compression):
    np.save(tmp_path / "x.npy", data[0])
    np.save(tmp_path / "names.npy", np.array([["a", "b"]], object))
    with zipfile.ZipFile(tmp_path / "x.npz", "w", compression) as archive:
        archive.writestr("notes.txt", "hello")
        archive.write(tmp_path / "names.npy", "names.npy")  # objects, which are not read
        archive.write(tmp_path / "x.npy", "x.npy")
    assert np.array_equal(open_source("npz", path=tmp_path / "x.npz").read(100, 300), data[0][100:300])


@pytest.mark.parametrize("dtype", [">i8", "<i8", ">U3"])
def test_ids_of_each_byte_order(tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.eye(4))
    np.save(tmp_path / "id.npy", np.arange(4).astype(dtype))
    source = open_source("npy", path=tmp_path / "x.npy", id=tmp_path / "id.npy")
    assert list(map(int, source.read_columns(["id"], 1, 3)["id"].to_pylist())) == [1, 2]


@pytest.mark.parametrize("dtype", IDX_CODES)
def test_idx_dtypes(tmp_path, dtype):
    values = np.array([[1, 2], [3, 100]], dtype)
    assert np.array_equal(open_source("idx", path=write_idx(tmp_path / "x.idx", values)).read(0, 2), values)


def test_idx_samples_are_flattened(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 2, 6)
    source = open_source("idx", path=write_idx(tmp_path / "x.idx", images))
    assert np.array_equal(source.read(0, 2), images.reshape(2, 12))

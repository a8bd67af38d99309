"""Messages about files that cannot be read name the file, what was expected and what was found."""

import bz2
import gzip
import os
import zipfile

import numpy as np
import pandas as pd
import pytest
import zarr

from lle.core.errors import InputError
from lle.inputs import csv_index, open_source
from tests.support.input_files import write_idx

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
    "npy": (
        {"path": "x.npy"},
        {
            "missing file": (steps(), {}, r"no file 'x\.npy' \(working directory: .*\)"),
            "no match": (steps(), {"path": "*.npy"}, r"no file matches the pattern '\*\.npy' \(working dir"),
            "missing labels": (npy(x=X), {"labels": "y.npy"}, r"input\.labels.*y\.npy"),
            "directory": (folder_named("x.npy"), {}, r"directory 'x\.npy'.*'x\.npy/\*'"),
            "1-D": (npy(x=Y), {}, r"x\.npy: expected a 2-D array.*\(4,\).*reshape\(-1, 1\)"),
            "3-D": (npy(x=X.reshape(2, 2, 3)), {}, r"2-D.*\(2, 2, 3\).*flatten"),
            "object": (npy(x=np.array([[1, "a"]], dtype=object)), {}, "object.*astype"),
            "text": (npy(x=np.array([["a", "b"]])), {}, "real numbers, found dtype <U1"),
            "fields": (npy(x=np.zeros(9, "i4,f4")), {}, "save the fields as the columns"),
            "complex": (npy(x=X * 1j), {}, "complex128.*imaginary part as separate columns"),
            "times": (npy(x=X.astype("M8[s]")), {}, "datetime64.*convert times"),
            "records": (npy(x=np.zeros((2, 2), "i4,f4")), {}, "save the fields as the columns"),
            "no rows": (npy(x=X[:0]), {}, "at least one row"),
            "no columns": (npy(x=X[:, :0]), {}, "at least one column"),
            "cut off": (steps(npy(x=X), cut("x.npy", -5)), {}, "expected 224 bytes .*found 219"),
            "cut in the header": (steps(npy(x=X), cut("x.npy", 40)), {}, r"x\.npy.*\.npy format"),
            "not npy": (
                text("a,b\n1,2\n", "x.npy"),
                {},
                r"x\.npy: expected NumPy.s \.npy format, as np\.save writes it",
            ),
            "widths": (
                npy(x1=X, x2=X[:, :2]),
                {"path": "x*.npy"},
                r"x2\.npy: expected rows of shape \(3,\) as in x1\.npy, found \(2,\)",
            ),
            "dtypes": (
                npy(x1=X, x2=X.astype(int)),
                {"path": "x*.npy"},
                r"x2\.npy: expected floating-point .*x1\.npy, found int64",
            ),
            "label length": (npy(x=X, y=Y[:3]), {"labels": "y.npy"}, r"y\.npy: expected .*, 4 in all, found 3"),
            "one number as labels": (npy(x=X, y=Y[0]), {"labels": "y.npy"}, r"y\.npy: expected one entry for each row"),
            "one number for one row": (npy(x=X[:1], y=Y[0]), {"labels": "y.npy"}, r"found a single one"),
            "one number as ids": (npy(x=X, y=Y[0]), {"id": "y.npy"}, r"y\.npy: expected one entry for each row"),
            "complex labels": (npy(x=X, y=Y * 1j), {"labels": "y.npy"}, "complex"),
            "3-D labels": (npy(x=X, y=X.reshape(4, 3, 1)), {"labels": "y.npy"}, r"found shape \(4, 3, 1\)"),
            "text label columns": (npy(x=X, y=X.astype(str)), {"labels": "y.npy"}, "one text label per row"),
            "half a pair": (npy(x=X, y=np.array([*"abc", "\ud800"])), {"labels": "y.npy"}, "expected labels in UTF-8"),
            "column out of range": (npy(x=X), {"columns": [0, 3]}, r"from 0 to 2, found \[3\]"),
            "negative column": (npy(x=X), {"columns": [-1]}, r"from 0 to 2, found \[-1\]"),
            "column name": (npy(x=X), {"columns": ["a"]}, r"from 0 to 2, found \['a'\]"),
            "column twice": (npy(x=X), {"columns": [1, 2, 1]}, r"different .* found \[1, 1\]"),
            "no column chosen": (npy(x=X), {"columns": []}, "found an empty list"),
        },
    ),
    "npz": (
        {"path": "x.npz"},
        {
            "not a zip": (text("hello", "x.npz"), {}, r"x\.npz: expected an \.npz archive"),
            "cut off": (steps(npz(x=RANDOM), cut("x.npz", 3000)), {}, "cut-off"),
            "wrong key": (npz(points=X, y=Y), {"key": "X"}, "no array 'X'.*points, y"),
            "wrong label key": (npz(points=X, y=Y), {"labels": "label"}, "no array 'label'.*points, y"),
            "which": (npz(a=X, b=X, y=Y), {}, r"one 2-D array, found 2.*a \(4, 3\), b \(4, 3\), y \(4,\)"),
            "none": (npz(y=Y), {}, r"exactly one 2-D array, found 0 among y \(4,\); save one with a row"),
            "images": (npz(y=Y, x=X.reshape(2, 2, 3)), {}, r"found 0 among .*; save x anew: flatten each sample"),
            "beside": (npz(p=X, x=np.ones((4, 2, 2))), {}, r"found 1 and x \(4, 2, 2\); set input.key .* p \(4, 3\)"),
            "sparse": (npz(data=Y, indices=Y, indptr=Y), {}, "found 0 among .*; a sparse matrix is not read"),
            "1-D": (npz(y=Y), {"key": "y"}, r"array 'y': expected a 2-D array"),
            "object": (npz(x=np.array([[1, "a"]], dtype=object)), {"key": "x"}, "object"),
            "damaged": (steps(npz(x=RANDOM), damage("x.npz", 6000, 6001)), {}, r"x\.npz, array 'x'.*damaged"),
            "short member": (short_member, {}, r"x\.npz, array 'x': expected .* bytes for shape \(4, 3\)"),
            "damaged, by columns": (
                steps(npz(x=np.asfortranarray(RANDOM)), damage("x.npz", 6000, 6001)),
                {},
                r"x\.npz, array 'x'.*damaged",
            ),
        },
    ),
    "idx": (
        {"path": "x.idx"},
        {
            "not idx": (text("hello", "x.idx"), {}, r"x\.idx: expected an IDX file"),
            "empty file": (text("", "x.idx"), {}, "missing"),
            "header only": (text(b"\0\0\x08\x03\0\0", "x.idx"), {}, "found the first bytes 00 00 08 03 00 00 only;"),
            "cut off": (steps(idx(RANDOM), cut("x.idx", -1)), {}, "expected 12012 bytes.*found 12011"),
            "labels as points": (idx(RANDOM[:, 0]), {}, r"2-D.*\(4000,\)"),
            "gzip cut off": (steps(idx(RANDOM, True), cut("x.idx", 9000)), {}, r"x\.idx.*cut-off"),
            "gzip without its end": (steps(idx(RANDOM, True), cut("x.idx", -4)), {}, r"x\.idx.*cut-off"),
            "gzip damaged": (steps(idx(RANDOM, True), damage("x.idx", 9000, 9001)), {}, r"x\.idx.*damaged"),
            "gzip shorter": (text(gzip.compress(IDX_9_ROWS + b"12" * 8), "x.idx"), {}, "found 28;"),
            "gzip longer": (text(gzip.compress(IDX_9_ROWS + b"12" * 10), "x.idx"), {}, "found 32;"),
        },
    ),
    "csv": (
        {"path": "x.csv"},
        {
            "empty": (text(""), {}, "empty file"),
            "header alone": (text("a,b\n"), {}, "at least one row"),
            "no header": (text("1,2\n3,4\n"), {}, "header line.*found '1,2'; add a first line with names"),
            "row instead of header": (
                text("5.1,?,rose\n4.9,3,lily\n7,3,rose\n"),
                {},
                "header line.*found '5.1,.,rose'",
            ),
            "blank header": (text("\n1,2\n3,4\n"), {}, "header line with column names"),
            "bzip2": (text(bz2.compress(b"a,b\n1,2\n")), {}, r"found a file of another kind; rename .* ends in \.bz2$"),
            "name like bzip2": (text("BZh_energy,b\n1,2\n2,x\n"), {}, "column 'b': expected numbers"),
            "gzip": (
                text(gzip.compress(b"a,b\n1,2\n", mtime=0) + b"\n"),
                {},
                r"found a file of another kind; rename .* ends in \.gz$",
            ),
            "Excel": (text(b"PK\3\4" + bytes(9)), {}, r"another kind; rename it so that it ends in \.xlsx or \.zip$"),
            "Parquet": (text(b"PAR1" + bytes(9)), {}, r"another kind; rename it so that it ends in \.parquet$"),
            "JSON": (
                text('[{"a":1,"b":2},{"a":3,"b":4}]'),
                {},
                r"another kind; rename it so that it ends in \.json, or",
            ),
            "UTF-16": (text("a,b\n1,2\n".encode("utf-16")), {}, "iconv -f UTF-16 -t"),
            "break in quotes": (text('a,b\n1,2\n3,"4\n5"\n'), {}, r"line 3: .*line break inside quotes.*Parquet"),
            "unknown column": (text("a,b\n1,2\n"), {"columns": ["a", "z"]}, r"no column 'z'.*a, b"),
            "unknown label": (text("a,b\n1,2\n"), {"label": "z"}, r"no column 'z'.*a, b"),
            "text": (text("a,b\n1,2\n2,x\n"), {}, r"near line 3, column 'b': expected numbers.*'x'.*\.columns"),
            "short line": (text("a,b\n1,2\n2\n"), {}, r"near line 3: [^:]*; found: Expected 2 columns, got 1"),
            "long line": (
                text("a,b\n1,2,3\n"),
                {},
                r"near line 2: .*2 columns, got 3.*remove the lines above the header",
            ),
            "header with a comma": (
                text("a,b,\n1,2\n"),
                {"columns": ["a"]},
                "remove the ',' at the end of the header line$",
            ),
            "column twice": (text("a,a\n1,2\n"), {}, "each column name once"),
            "column without a name twice": (text("a,,\n1,2,3\n"), {"columns": ["a", ""]}, "each column name once"),
            "column without a name": (text("a,\n0,2\n"), {}, "column 2 has no name"),
            "label alone": (text("a\n1\n"), {"label": "a"}, "besides the label"),
            "label as column": (text("a,b\n1,2\n"), {"label": "a", "columns": ["a"]}, "neither the label"),
            "differing columns": (
                steps(text("a,b\n1,2\n", "x1.csv"), text("a,c\n1,2\n", "x2.csv")),
                {"path": "x*.csv"},
                r"x2\.csv.*'b' is missing, 'c' is new",
            ),
            "returns alone": (text("a,b\n1,2\r3,4\n"), {}, "line breaks must all be the same"),
            "one endless line": (text("a" * 5000), {}, "without a line break"),
            "labels in Latin-1": (text(b"a,b\n1,\xe9\n"), {"label": "b"}, "column 'b': expected text in UTF-8.*iconv"),
        },
    ),
    "parquet": (
        {"path": "x.parquet"},
        {
            "not parquet": (text("hello", "x.parquet"), {}, r"x\.parquet: expected a Parquet file"),
            "cut off": (steps(table(FRAME), cut("x.parquet", -30)), {}, "expected a Parquet file"),
            "damaged": (steps(table(FRAME), damage("x.parquet", 4, 40)), {}, r"x\.parquet.*damaged"),
            "unknown column": (table(FRAME), {"columns": ["z"]}, r"no column 'z'.*a, b, name"),
            "text column": (table(FRAME), {"columns": ["a", "name"]}, r"expected numbers.*'name'"),
            "no numbers": (table(FRAME[["name"]]), {}, "at least one numeric column"),
            "no rows": (table(FRAME[:0]), {}, "at least one row"),
            "time label": (table(FRAME.assign(t=pd.Timestamp(5))), {"label": "t"}, "column 't'.*timestamp"),
            "differing columns": (
                steps(table(FRAME, "x1.parquet"), table(FRAME[["a"]], "x2.parquet")),
                {"path": "x*.parquet"},
                r"x2\.parquet.*'b'",
            ),
        },
    ),
    "zarr": (
        {"url": "x.zarr"},
        {
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
                steps(group(x=X), cut("x.zarr/x/zarr.json", 50)),
                {"array": "x"},
                "found something else, or damaged or cut-off data",
            ),
            "damaged chunk": (
                steps(group(x=X), text("garbage", "x.zarr/x/c/0/0")),
                {},
                r"array 'x', rows 0 to 3: expected data of this kind",
            ),
            "array, yet a name": (
                lambda folder: zarr.save_array(folder / "x.zarr", X),
                {"array": "x"},
                "found a single array",
            ),
        },
    ),
}


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, (_, cases) in BAD_INPUTS.items() for case in cases])
def test_bad_input_is_named(tmp_path, monkeypatch, kind, case):
    base, cases = BAD_INPUTS[kind]
    make, further, words = cases[case]
    monkeypatch.setattr(csv_index, "SCAN_BYTES", 1000)
    monkeypatch.setattr(csv_index, "MAX_LINE_BYTES", 2000)
    monkeypatch.chdir(tmp_path)
    make(tmp_path)

    def read_all():
        source = open_source(kind, **base | further)
        source.read(0, source.n_rows)
        source.read_labels(0, source.n_rows)

    with pytest.raises(InputError, match=words) as caught:
        read_all()
    assert caught.value.exit_code == 2


def test_missing_package_is_named(monkeypatch):
    def import_module(name):
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    monkeypatch.setattr("lle.inputs.import_module", import_module)
    with pytest.raises(InputError, match="parquet needs the package 'pyarrow'"):
        open_source("parquet", path="x")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable_file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.npy").chmod(0)
    with pytest.raises(InputError, match="may be read"):
        open_source("npy", path=tmp_path / "x.npy")

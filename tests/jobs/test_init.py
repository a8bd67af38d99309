"""`lle init`: the kind of an input and the roles of its columns are found, and the config it writes is valid."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pytest
import zarr
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.config.load import load_config
from lle.core import machine
from tests.support.commands import lle, refused
from tests.support.first_configs import CLASSES, RNG, N, X, config_of, frame, write_table
from tests.support.input_files import write_group, write_idx


class TestArrays:
    def test_npz_takes_the_largest_matrix_and_the_classes(self, tmp_path):
        np.savez(tmp_path / "d.npz", small=X[:9], points=X, y=CLASSES, weight=X[:, 0])
        section = config_of(tmp_path, str(tmp_path / "d.npz")).input
        assert (section.key, section.labels) == ("points", "y")

    def test_line_breaks_in_names_of_other_arrays_stay_in_the_comment(self, tmp_path):
        np.savez(tmp_path / "d.npz", **{"points": X, "b\nmethod: pca": X[:9]})
        config = config_of(tmp_path, str(tmp_path / "d.npz"))
        assert (config.input.key, config.method) == ("points", "lle")

    def test_images_beside_a_matrix_are_named(self, tmp_path):
        np.savez(tmp_path / "d.npz", images=np.ones((N, 4, 4)), position=X, kernels=np.ones((2, 4, 4)))
        warnings = lle("init", tmp_path / "d.npz", "-o", tmp_path / "job.yaml")["warnings"]
        images = f"'position' ({N}, 3) is embedded, not images ({N}, 4, 4); to embed that, flatten each sample"
        assert [text[: len(images)] for text in warnings] == [images]

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_zarr_group(self, tmp_path, zarr_format):
        path = write_group(tmp_path / "no_suffix", X, CLASSES, zarr_format)
        section = config_of(tmp_path, str(path)).input
        assert (section.kind, section.url, section.array, section.labels) == ("zarr", str(path), "points", "label")

    def test_stores_of_runs_and_their_versions_are_no_input(self, tmp_path):
        """Their largest matrix would be the lists of neighbours."""
        path = write_group(tmp_path / "run.zarr", X, CLASSES, 3)
        zarr.open_group(path, mode="a").attrs["lle_format"] = 2
        cure = "`lle export` and `lle.open_run` read its coordinates"
        assert f"run.zarr is the store of a run: {cure}" in refused(2, "init", path, "-o", tmp_path / "j.yaml")
        (tmp_path / "night.zarr").mkdir()
        (tmp_path / "night.zarr" / "published.json").write_text("{}")
        assert f"it holds the versions of a job: {cure}" in refused(
            2, "init", tmp_path / "night.zarr", "-o", tmp_path / "j.yaml"
        )

    def test_npy_and_the_labels_beside_it(self, tmp_path):
        np.save(tmp_path / "X_train.npy", X)
        np.save(tmp_path / "y_train.npy", CLASSES)
        assert config_of(tmp_path, str(tmp_path / "X_train.npy")).input.labels == str(tmp_path / "y_train.npy")

    def test_array_named_as_labels_may_have_many_categories(self, tmp_path):
        """As the 62 letters and digits of glyphs; another array with so many may be a measurement or an id."""
        rows, letters = RNG.random((620, 4)), np.array([f"letter {code}" for code in range(62)] * 10)
        np.savez(tmp_path / "named.npz", x=rows, labels=letters)
        np.savez(tmp_path / "other.npz", x=rows, font=letters)
        np.save(tmp_path / "glyphs.npy", rows)
        np.save(tmp_path / "glyphs_labels.npy", letters)
        labels = [
            config_of(tmp_path, str(tmp_path / name), f"{name}.yaml").input.labels
            for name in ("named.npz", "other.npz", "glyphs.npy")
        ]
        assert labels == ["labels", None, str(tmp_path / "glyphs_labels.npy")]

    @pytest.mark.parametrize(("others", "label"), [({}, "year"), ({"weight": X[:, 0]}, None), ({"y": CLASSES}, "y")])
    def test_the_only_numbers_of_the_rows_are_the_label(self, tmp_path, others, label):
        np.savez(tmp_path / "d.npz", points=X, year=1960 + X[:, 1], few=X[:9, 0], **others)
        assert config_of(tmp_path, str(tmp_path / "d.npz")).input.labels == label

    def test_labels_of_other_rows_are_not_taken(self, tmp_path):
        np.save(tmp_path / "X.npy", X)
        np.save(tmp_path / "y.npy", CLASSES[:-1])
        assert config_of(tmp_path, str(tmp_path / "X.npy")).input.labels is None

    def test_gzipped_idx_files_named_as_those_of_mnist(self, tmp_path):
        images = write_idx(tmp_path / "t-images-idx3-ubyte.gz", RNG.integers(0, 255, (N, 3, 3), dtype="u1"), True)
        labels = write_idx(tmp_path / "t-labels-idx1-ubyte.gz", CLASSES.astype("u1"), True)
        section = config_of(tmp_path, str(images)).input
        assert (section.kind, section.labels) == ("idx", str(labels))

    @pytest.mark.parametrize("pattern", ["", "*"])
    def test_folder_of_images_and_labels_is_refused_with_a_file_to_name(self, tmp_path, pattern):
        (tmp_path / "t").mkdir()
        images = write_idx(tmp_path / "t" / "images-idx3-ubyte", np.ones((N, 3, 3), "u1"))
        write_idx(tmp_path / "t" / "labels-idx1-ubyte", CLASSES.astype("u1"))
        message = refused(2, "init", tmp_path / "t" / pattern, "-o", tmp_path / "job.yaml")
        assert "name one file of images, such as" in message
        assert f"{images.name}: that of its labels" in message

    def test_kind_of_a_file_without_suffix_follows_from_its_content(self, tmp_path):
        write_table(tmp_path / "rows.parquet", frame())
        np.save(tmp_path / "x.npy", X)
        for source, kind in (("rows.parquet", "parquet"), ("x.npy", "npy")):
            bare = (tmp_path / source).rename(tmp_path / kind)
            assert config_of(tmp_path, str(bare), f"{kind}.yaml").input.kind == kind

    def test_anndata_takes_its_principal_components_and_a_categorical_column(self, tmp_path):
        root = zarr.open_group(tmp_path / "cells.zarr", mode="w")
        root.attrs.update({"encoding-type": "anndata"})
        obs, obsm = root.create_group("obs"), root.create_group("obsm")
        obs.attrs.update({"encoding-type": "dataframe", "_index": "_index"})
        obs.create_array("_index", data=np.arange(N).astype(str).astype(np.dtypes.StringDType()))
        obs.create_array("batch", data=CLASSES)
        obsm.create_array("X_big", data=np.hstack([X, X]))
        obsm.create_array("X_pca", data=X)
        section = config_of(tmp_path, str(tmp_path / "cells.zarr")).input
        assert (section.kind, section.obsm, section.label) == ("anndata", "X_pca", "batch")
        assert section.id == "obs_names"

    def test_anndata_takes_no_picture_and_no_embedding_of_this_program(self, tmp_path):
        root = zarr.open_group(tmp_path / "cells.zarr", mode="w")
        root.attrs.update({"encoding-type": "anndata"})
        root.create_array("X", data=X)
        obs, obsm = root.create_group("obs"), root.create_group("obsm")
        obs.attrs.update({"encoding-type": "dataframe", "_index": "_index"})
        obs.create_array("_index", data=np.arange(N).astype(str).astype(np.dtypes.StringDType()))
        obsm.create_array("X_umap", data=X[:, :2])
        obsm.create_array("X_lle", data=np.hstack([X, X]))
        section = config_of(tmp_path, str(tmp_path / "cells.zarr")).input
        assert (section.kind, section.obsm) == ("anndata", None)
        obsm.create_array("X_scVI", data=np.hstack([X, X]))
        assert config_of(tmp_path, str(tmp_path / "cells.zarr"), "again.yaml").input.obsm == "X_scVI"


def test_existing_file_is_not_replaced(tmp_path):
    data = write_table(tmp_path / "rows.csv", frame())
    (tmp_path / "job.yaml").write_text("mine")
    assert "already exists" in refused(2, "init", data, "-o", tmp_path / "job.yaml")
    assert (tmp_path / "job.yaml").read_text() == "mine"


def test_the_schema_is_named_as_written_and_a_different_file_is_kept(tmp_path):
    data, schema = write_table(tmp_path / "rows.csv", frame()), tmp_path / "lle-schema.json"
    first = lle("init", data, "-o", tmp_path / "1.yaml")
    assert (first["written"], first["kept"]) == ([str(tmp_path / "1.yaml"), str(schema)], [])
    again = lle("init", data, "-o", tmp_path / "2.yaml")
    assert (again["written"], again["kept"]) == ([str(tmp_path / "2.yaml")], [])
    schema.write_text("mine")
    result = CliRunner().invoke(app, ["init", data, "-o", str(tmp_path / "3.yaml")])
    assert f"written: {tmp_path / '3.yaml'}\nkept: {schema} differs" in result.stdout
    assert schema.read_text() == "mine"


def test_a_config_on_standard_output_writes_no_file(tmp_path, monkeypatch):
    data = write_table(tmp_path / "rows.csv", frame())
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    result = CliRunner().invoke(app, ["init", data, "-o", "-"])
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "empty").iterdir())
    (tmp_path / "job.yaml").write_text(result.stdout)
    assert lle("validate", tmp_path / "job.yaml")["n_input"] == N
    assert "lle-schema" not in result.stdout


def test_too_little_memory_at_this_moment_is_a_warning(tmp_path, monkeypatch):
    data, out = write_table(tmp_path / "rows.csv", frame()), tmp_path / "job.yaml"
    monkeypatch.setattr(machine, "FRESH_SECONDS", 1e-9)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**26, total=2**35))
    [warning] = lle("init", data, "-o", out)["warnings"]
    assert warning == f"A run that starts here now would end with an error: {refused(2, 'validate', out)}."


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("rows.xlsx", "write Parquet"),
        ("rows.dta", "pandas.read_stata(path).to_parquet(out)"),
        ("rows.sas7bdat", "pandas.read_sas(path).to_parquet(out)"),
        ("rows.jsonl", "pandas.read_json(path, lines=True).to_parquet(out)"),
        ("rows.csv.zip", "unpack it first"),
        ("rows.parquet.gz", "decompress it first"),
        ("rows.tar.xz", "decompress it first"),
        ("rows.bin", "name the files"),
        ("rows.tab", "rename it so that it ends in .csv"),
        ("rows.txt", "rename it so that it ends in .csv"),
    ],
)
def test_unreadable_kinds_are_refused_with_a_cure(tmp_path, name, cure):
    (tmp_path / name).write_bytes(b"PK\3\4 something else")
    if not name.endswith((".xlsx", ".zip")):
        head = b"\0\0\0\0" if name.endswith(".sas7bdat") else b"\1\2\3\4"
        (tmp_path / name).write_bytes(head + b" something else")
    assert cure in refused(2, "init", tmp_path / name, "-o", tmp_path / "job.yaml")
    assert not (tmp_path / "job.yaml").exists()


def test_pattern_of_several_kinds_is_refused(tmp_path):
    for name in ("x.csv", "x.parquet"):
        (tmp_path / name).touch()
    assert "files of one kind; found" in refused(2, "init", tmp_path / "x.*", "-o", tmp_path / "job.yaml")
    (tmp_path / "x.parquet").rename(tmp_path / "x.csv.xz")
    assert "; give the files names with one ending" in refused(2, "init", tmp_path, "-o", tmp_path / "job.yaml")


def test_folder_of_folders_is_refused_with_their_names(tmp_path):
    (tmp_path / "rows" / "year=2024").mkdir(parents=True)
    (tmp_path / "rows" / ".git").mkdir()
    message = refused(2, "init", tmp_path / "rows", "-o", tmp_path / "job.yaml")
    assert "found year=2024/; name one of them, or files by a pattern, as " in message
    assert "rows/*/*.parquet" in message


@pytest.mark.parametrize("suffix", [".parquet", ".csv.zst"])
def test_data_instead_of_a_config_name_the_command_that_writes_one(tmp_path, suffix):
    (tmp_path / f"x{suffix}").write_bytes(b"\xab")
    assert "expected YAML, found data" in refused(2, "run", tmp_path / f"x{suffix}")


def test_table_without_measurements_is_refused(tmp_path):
    data = pd.DataFrame({"record": np.arange(N), "site": CLASSES})
    message = refused(2, "init", write_table(tmp_path / "rows.csv", data), "-o", tmp_path / "job.yaml")
    assert "found record (the id), site (the label); if one of them holds measurements" in message


def test_table_without_columns_is_refused(tmp_path):
    empty = write_table(tmp_path / "empty.parquet", pd.DataFrame())
    assert "expected a column of numbers, found no columns" in refused(2, "init", empty, "-o", tmp_path / "job.yaml")


def test_table_of_constant_or_text_columns_is_refused_with_the_reason(tmp_path):
    constant = write_table(tmp_path / "constant.csv", pd.DataFrame({"a": np.ones(N), "b": "x"}))
    message = refused(2, "init", constant, "-o", tmp_path / "job.yaml")
    assert "found a (the same value in all 600 rows), b (text); if one of them holds measurements" in message
    text = write_table(tmp_path / "text.csv", pd.DataFrame({"a": np.where(CLASSES > 1, "yes", "no")}))
    assert "expected a column of numbers, found a (text)" in refused(2, "init", text, "-o", tmp_path / "job.yaml")
    pd.read_csv(text).to_csv(text)
    found = "expected a column of numbers, found '' (row index), a (text)"
    assert found in refused(2, "init", text, "-o", tmp_path / "job.yaml")


@pytest.mark.parametrize("n_rows", [1, 3])
def test_too_few_rows_are_refused(tmp_path, n_rows):
    data = write_table(tmp_path / "rows.csv", frame()[:n_rows])
    message = refused(2, "init", data, "-o", tmp_path / "job.yaml")
    assert f"expected at least 4 rows for 2 coordinates, found {n_rows}" in message


def test_table_with_too_few_different_rows_is_refused_with_the_columns_left_out(tmp_path):
    data = pd.DataFrame({"gender": CLASSES % 2, "income": np.where(np.arange(N) % 9, X[:, 0], np.nan)})
    message = refused(2, "init", write_table(tmp_path / "rows.csv", data), "-o", tmp_path / "job.yaml")
    assert "found gender (the label), income (67 of 600 rows have no value)" in message
    data = data.assign(wide=CLASSES % 2, site="x")
    message = refused(2, "init", write_table(tmp_path / "rows.csv", data), "-o", tmp_path / "job.yaml")
    assert (
        "expected at least 4 different rows for 2 coordinates, found 2 in gender, wide, without income (67" in message
    )
    data = data.assign(rooms=CLASSES)
    assert config_of(tmp_path, write_table(tmp_path / "rows.csv", data)).neighbors.n_neighbors == 3


def test_as_many_coordinates_as_features_get_a_warning(tmp_path):
    two = lle("init", write_table(tmp_path / "2.csv", frame()[["a", "b"]]), "-o", tmp_path / "2.yaml")
    three = lle("init", write_table(tmp_path / "3.csv", frame()), "-o", tmp_path / "3.yaml")
    assert three["warnings"] == []
    assert two["warnings"] == [
        "eigensolver.n_components is 2, and the data have only 2 features: the embedding has as many dimensions as the "
        "data."
    ]


@pytest.mark.parametrize(("n_gaps", "warns"), [(90, False), (110, True)])
def test_gaps_in_most_rows_get_a_warning(tmp_path, n_gaps, warns):
    """Each of 30 columns lacks few values, so all are features, but in different rows."""
    values = RNG.normal(size=(200, 30))
    values[np.arange(n_gaps), np.arange(n_gaps) % 30] = np.nan
    table = pd.DataFrame(values, columns=[f"gene {i}" for i in range(30)])
    warnings = lle("init", write_table(tmp_path / "x.csv", table), "-o", tmp_path / "job.yaml")["warnings"]
    assert any("Only 45.0% of the rows have all values" in text for text in warnings) == warns


@pytest.mark.parametrize("value", [np.inf, 1e200, 1.7e308])
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_numbers_that_overflow_give_no_warnings_of_numpy(tmp_path, value, share):
    values = RNG.uniform(-1, 1, (1000, 4))
    values[:, 0] *= np.where(np.arange(1000) % 100 < 100 * share, value, 1.0)
    values[: int(1000 * share), 1] = value
    table = write_table(tmp_path / "x.csv", pd.DataFrame(values, columns=list("abcd")))
    lle("init", table, "-o", tmp_path / "job.yaml")
    lle("validate", tmp_path / "job.yaml", "--set", "input.columns=null")


def test_no_row_without_gaps_ends_a_run_with_the_code_of_bad_input(tmp_path):
    values = RNG.normal(size=(200, 30))
    values[np.arange(200), np.arange(200) % 30] = np.nan
    np.save(tmp_path / "x.npy", values)
    [warning] = lle("init", tmp_path / "x.npy", "-o", tmp_path / "job.yaml")["warnings"]
    assert "neighbors.n_neighbors is 12: a run would end with exit code 2; fill the gaps" in warning
    assert "200 of 200 rows hold NaN or infinity: fill the gaps" in refused(2, "run", tmp_path / "job.yaml")


def test_most_columns_with_decimal_commas_get_one_reason_and_a_warning(tmp_path):
    names, spectrum = [f"nm{i}" for i in range(30)], ",".join(f'"0,{i + 10}"' for i in range(30))
    rows = [f"{a},{b},{spectrum}" for a, b in RNG.normal(size=(60, 2))]
    (tmp_path / "x.csv").write_text("\n".join([",".join(["a", "b", *names]), *rows]))
    found = lle("init", tmp_path / "x.csv", "-o", tmp_path / "job.yaml")
    assert {found["columns"]["left_out"][name] for name in names} == {found["columns"]["left_out"]["nm0"]}
    assert any(
        text.startswith("30 columns left out, such as 'nm0' (numbers with a comma") for text in found["warnings"]
    )


@pytest.mark.parametrize("n_gappy", [2, 3, 4, 7])
def test_as_many_columns_left_out_for_scattered_gaps_as_kept_get_a_warning(tmp_path, n_gappy):
    """Of 7 columns the first ones lack values in 12 % of the rows; another is mostly empty."""
    values = RNG.normal(size=(N, 8))
    values[:, :n_gappy][RNG.permuted(np.arange(N)[:, np.newaxis] % 8 == np.zeros(n_gappy), axis=0)] = np.nan
    values[50:, 7] = np.nan
    data = write_table(tmp_path / "x.csv", pd.DataFrame(values, columns=list("abcdefgh")))
    if n_gappy == 7:
        assert "; fill the gaps in the file first" in refused(2, "init", data, "-o", tmp_path / "job.yaml")
        return
    warnings = lle("init", data, "-o", tmp_path / "job.yaml")["warnings"]
    gaps = "because of gaps in up to half of the rows"
    named = f"{n_gappy} columns left out {gaps}, and only {7 - n_gappy} features kept; fill the gaps in the file"
    assert [text.startswith(named) for text in warnings] == [True] * (n_gappy == 4)


def test_a_few_values_far_from_all_others_get_a_warning(tmp_path):
    data = frame()
    data.loc[7, "b"] = 88888.5
    warnings = lle("init", write_table(tmp_path / "x.csv", data), "-o", tmp_path / "job.yaml")["warnings"]
    assert [text.startswith("Column 'b' holds 88888.5 in 1 of 600 rows, far from ") for text in warnings] == [True]


@pytest.mark.parametrize("row", [3, 1500])
def test_far_values_get_one_warning_for_each_column(tmp_path, row):
    """Also in a row that a run does not test."""
    table = pd.DataFrame(RNG.normal(size=(4000, 25)), columns=map(str, range(25)))
    table.iloc[row, :23] = 1e4
    table.to_csv(tmp_path / "x.csv", index=False)
    warnings = lle("init", tmp_path / "x.csv", "-o", tmp_path / "c.yaml")["warnings"]
    assert [warning.split(" holds")[0] for warning in warnings] == [f"Column '{column}'" for column in range(20)]


def test_of_many_features_the_first_are_listed(tmp_path):
    names = [f"gene{i}" for i in range(501)]
    for n, listed in ((500, ", ".join(names[:500])), (501, "gene0, gene1, gene2")):
        pd.DataFrame(RNG.normal(size=(60, n)), columns=names[:n]).to_parquet(tmp_path / f"{n}.parquet")
        lle("init", tmp_path / f"{n}.parquet", "-o", tmp_path / f"{n}.yaml")
        text = (tmp_path / f"{n}.yaml").read_text()
        assert f"  # columns: [{listed}]   # " in text
        assert ("the first of 501 features; list those to take" in text) == (n == 501)


def test_the_only_column_of_numbers_that_are_not_left_out_is_named(tmp_path):
    data = frame(cost=[f"{i}.5 %" for i in range(N)])[["a", "cost"]]
    warnings = lle("init", write_table(tmp_path / "x.csv", data), "-o", tmp_path / "job.yaml")["warnings"]
    assert "Only column 'a' is a feature; the config says why the others are left out." in warnings


@pytest.mark.parametrize(
    ("names", "label"), [("k a b c", "k"), ("a k b c", None), ("a b c k", "k"), ("a kind_type b c", "kind_type")]
)
def test_a_count_between_measurements_is_a_feature(tmp_path, names, label):
    columns = names.split()
    data = frame(k=CLASSES, kind_type=CLASSES)[columns]
    assert config_of(tmp_path, write_table(tmp_path / "x.csv", data)).input.label == label
    flag = frame(k=CLASSES % 2, kind_type=CLASSES % 2)[columns]
    assert config_of(tmp_path, write_table(tmp_path / "flag.csv", flag), "flag.yaml").input.label == (label or "k")


@pytest.mark.parametrize(
    ("lines", "cure"),
    [
        ("a b\n1 2\n3 4", r"if spaces separate the columns, write commas: pandas.read_csv(path, sep=r'\s+').to_csv"),
        ("the 0.1 0.5\nof 0 0.1\nto 2 3", r"write commas: pandas.read_csv(path, sep=r'\s+', header=None).to_csv"),
        ("a,b\nm,s\n1,2\n3,4\n5,6", "2 columns are numbers except in line 2 ('m', 's'): remove line 2"),
        ("sep=,\na\nm\nA\n3\n4\n5\n6", "1 column is numbers except in lines 3 and 4 ('m'): remove lines 3 and 4"),
        ("a\r\n\r\nm\r\n\r\nA\r\nB" + "\r\n3" * 5, "in lines 3, 5 and 6 ('m'): remove lines 3, 5 and 6"),
        ("a,b,c\nm,s,\n1,2,0\n3,4,0\n5,6,0", "2 columns are numbers except in line 2 ('m', 's'): remove line 2"),
        ("a,b\n1,2\n3,4\n5,6\na,b\n7,8", "b (its name between numbers: remove header lines below the first line)"),
        ("vote,sex\nyes,f\nno,m\nno,f", "of categories, make columns of 0 and 1: pandas.get_dummies(table).to_csv"),
        (
            "id,vote,sex\na,yes,f\nb,no,m\nc,no,f\nd,yes,f",
            "of categories, make columns of 0 and 1: pandas.get_dummies(table).to_csv",
        ),
        ("a,b\n$5,2 %\n$7,3 %", "write numbers as numbers, not as text, and without signs, units and separators"),
        ("Spectra of 2003,,\nwave,sun,sky\n280,1,2\n281,3,4\n282,3,4", "the first line seems to be a title: remove it"),
    ],
)
def test_tables_of_text_between_numbers_are_refused_with_a_cure(tmp_path, lines, cure):
    (tmp_path / "x.csv").write_text(lines)
    assert cure in refused(2, "init", tmp_path / "x.csv", "-o", tmp_path / "job.yaml")


def test_columns_left_out_for_units_above_their_numbers_get_a_warning(tmp_path):
    data = frame().round(3).astype(str).assign(d=X[:, 0])
    data.loc[0, ["a", "b", "c"]], data.loc[1, ["a", "b", "c"]], data.loc[2, "b"] = ["m2", "A", "m"], "width", "<0.1"
    result = lle("init", write_table(tmp_path / "x.csv", data), "-o", tmp_path / "job.yaml")
    assert "3 columns are numbers except in lines 2 and 3 ('m2', 'A'): remove lines 2 and 3." in result["warnings"]
    assert result["columns"]["left_out"] == dict.fromkeys("abc", "text in its first rows, numbers below")


def test_a_first_row_with_text_in_few_columns_is_not_to_be_removed(tmp_path):
    data = frame().round(3).astype(str)
    data.loc[0, "a"] = "<0.1"
    result = lle("init", write_table(tmp_path / "x.csv", data), "-o", tmp_path / "job.yaml")
    assert "remove line" not in " ".join(result["warnings"])
    assert "text between numbers, such as '<0.1'" in result["columns"]["left_out"]["a"]


def test_lines_of_units_are_those_of_the_first_file_that_has_some(tmp_path):
    data = frame().round(3).astype(str)
    text = data.to_csv(index=False)
    header, rows = text.split("\n", 1)
    (tmp_path / "m0.csv").write_text(text)
    (tmp_path / "m1.csv").write_text(f"{header}\nm,s,A\n{rows}")
    (tmp_path / "m2.csv").write_text(f"sep=,\n{header}\nm,s,A\n{rows}")
    message = refused(2, "init", tmp_path / "m[012].csv", "-o", tmp_path / "job.yaml")
    line = f"line 2 of {tmp_path / 'm1.csv'}"
    assert f"except in {line} ('m', 's'): remove {line}, and such lines of the other files" in message


def test_a_column_of_lists_is_refused_with_a_cure(tmp_path):
    data = write_table(tmp_path / "x.parquet", pd.DataFrame({"key": "k", "words": [["a"]] * N, "vector": list(X)}))
    message = refused(2, "init", data, "-o", tmp_path / "job.yaml")
    assert "vector (list<element: double>; to embed it, numpy.save('x.npy', numpy.stack(" in message
    assert message.count("numpy.save") == 1


def test_rows_of_an_array_with_missing_values_are_dropped(tmp_path):
    values = X.copy()
    values[[3, 3, 8], [0, 1, 2]] = np.nan, np.inf, np.nan
    np.save(tmp_path / "x.npy", values)
    assert config_of(tmp_path, tmp_path / "x.npy").preprocess.invalid == "drop"
    assert "# 2 of 600 rows have missing values;" in (tmp_path / "job.yaml").read_text()
    np.save(tmp_path / "x.npy", X)
    assert config_of(tmp_path, tmp_path / "x.npy", "complete.yaml").preprocess.invalid == "error"


def test_columns_of_an_array_without_values_are_left_out(tmp_path):
    rows = RNG.normal(size=(60, 4))
    rows[:, 1], rows[3, 0] = np.nan, np.nan
    np.save(tmp_path / "rows.npy", rows)
    result = lle("init", tmp_path / "rows.npy", "-o", tmp_path / "job.yaml")
    assert result["incomplete"] == "1 of 60 rows have missing values"
    assert "1 column without a value in 60 rows left out" in (tmp_path / "job.yaml").read_text()
    assert load_config(tmp_path / "job.yaml").input.columns == (0, 2, 3)


def test_id_without_a_name_is_printed_as_such(tmp_path):
    data = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"), index=[f"row {i}" for i in range(N)])
    data.to_csv(tmp_path / "rows.csv")
    result = CliRunner().invoke(app, ["init", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "job.yaml")])
    assert "\nid: ''\n" in result.stdout


def test_roles_and_next_command_are_printed(tmp_path):
    named = frame(site=RNG.choice(["n", "s"], N), record=np.arange(N), rooms=CLASSES)
    data = write_table(tmp_path / "rows.parquet", named)
    result = CliRunner().invoke(app, ["init", data, "-o", str(tmp_path / "job.yaml")])
    assert result.exit_code == 0, result.output
    note = "note: features with few whole numbers: rooms;"
    for line in ("features: a, b, c", "label: site", "id: record", note, f"lle run {tmp_path / 'job.yaml'}"):
        assert line in result.stdout
    assert "# 2 categories" in (tmp_path / "job.yaml").read_text()

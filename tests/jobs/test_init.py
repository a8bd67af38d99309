"""`lle init`: the kind of an input and the roles of its columns are found, and the config it writes is valid."""

import numpy as np
import pandas as pd
import pytest
import zarr
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.config.load import load_config
from lle.inputs.propose_scale import propose_scale
from tests.support.commands import lle, refused
from tests.support.input_files import write_group, write_idx

N = 600
RNG = np.random.default_rng(23)
X = RNG.normal(size=(N, 3))
CLASSES = RNG.integers(0, 4, N)


def frame(**columns) -> pd.DataFrame:
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(**columns)


def write_table(path, table: pd.DataFrame) -> str:
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, index=False)
    return str(path)


def config_of(tmp_path, data, name="job.yaml"):
    """The config that init writes; a second command validates it."""
    out = tmp_path / name
    written = lle("init", data, "-o", out)
    assert lle("validate", out)["n_input"] == written["n_input"]
    return load_config(out)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
class TestTables:
    def test_text_with_few_values_is_the_label_and_unique_text_the_id(self, tmp_path, suffix):
        data = frame(site=RNG.choice(["north", "south"], N), customer=[f"c{i}" for i in RNG.permutation(N)])
        section = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input
        assert (section.kind, section.label, section.id, section.columns) == (suffix, "site", "customer", None)

    def test_clusters_are_the_label_before_other_categories(self, tmp_path, suffix):
        data = frame(batch=RNG.choice(["b1", "b2"], N), leiden=[f"cluster {number}" for number in CLASSES])
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.label == "leiden"

    def test_dates_as_text_are_no_id(self, tmp_path, suffix):
        days = pd.date_range("2025-01-01", periods=N, freq="h")
        data = frame(hour=days.astype(str), customer=[f"c{i}" for i in range(N)])
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.id == "customer"
        del data["customer"]
        assert config_of(tmp_path, write_table(tmp_path / f"2.{suffix}", data), "2.yaml").input.id is None

    def test_unique_whole_numbers_are_the_id_and_times_are_left_out(self, tmp_path, suffix):
        data = frame(record=RNG.permutation(N), when=1.7e9 + RNG.integers(0, 10**7, N))
        section = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input
        assert (section.id, section.columns) == ("record", ("a", "b", "c"))

    def test_whole_numbers_are_the_label_by_their_name_or_as_the_only_ones(self, tmp_path, suffix):
        only = config_of(tmp_path, write_table(tmp_path / f"only.{suffix}", frame(group_of=CLASSES)), "1.yaml").input
        named = frame(rooms=RNG.integers(1, 6, N), target=CLASSES)
        named = config_of(tmp_path, write_table(tmp_path / f"named.{suffix}", named), "2.yaml").input
        several = frame(rooms=RNG.integers(1, 6, N), floors=CLASSES)
        several = config_of(tmp_path, write_table(tmp_path / f"several.{suffix}", several), "3.yaml").input
        assert (only.label, named.label, several.label) == ("group_of", "target", None)

    def test_measurements_alone_have_no_label_and_no_id(self, tmp_path, suffix):
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", frame()))
        assert (config.input.label, config.input.id, config.preprocess.invalid) == (None, None, "error")

    def test_rows_with_missing_numbers_are_dropped_and_mostly_empty_columns_left_out(self, tmp_path, suffix):
        data = frame(rare=np.where(np.arange(N) % 3 == 0, X[:, 0], np.nan))
        data.loc[7, "b"] = np.nan
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data))
        assert (config.preprocess.invalid, config.input.columns) == ("drop", ("a", "b", "c"))

    def test_few_missing_values_are_counted_by_column_and_many_leave_the_column_out(self, tmp_path, suffix):
        data = frame(income=np.where(np.arange(N) % 10 == 0, np.nan, X[:, 0]))
        data.loc[:6, "a"], data.loc[5:9, "b"] = np.nan, np.nan
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data))
        text = (tmp_path / "job.yaml").read_text()
        assert config.input.columns == ("a", "b", "c")
        assert "# left out: income (60 of 600 rows have no value)" in text
        assert "10 of 600 rows have missing values (a 7, b 5)" in text

    def test_codes_are_left_out_unless_columns_of_their_family_are_measurements(self, tmp_path, suffix):
        data = frame(member=CLASSES % 2, soil1=CLASSES, soil2=CLASSES % 3, pixel1=RNG.integers(0, 255, N))
        data["pixel2"] = CLASSES
        columns = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.columns
        text = (tmp_path / "job.yaml").read_text()
        assert columns == ("a", "b", "c", "pixel1", "pixel2")
        assert "# left out: member (two values)" in text
        assert "# left out: soil1 (whole numbers with 4 values)" in text
        only_codes = pd.DataFrame(RNG.integers(0, 5, (N, 6)), columns=[*"pqrstu"])
        assert (
            config_of(tmp_path, write_table(tmp_path / f"codes.{suffix}", only_codes), "2.yaml").input.columns is None
        )

    def test_categories_of_the_label_are_counted_over_all_rows(self, tmp_path, suffix, monkeypatch):
        monkeypatch.setattr("lle.inputs.propose_roles.LOOKED_AT", 10)
        monkeypatch.setattr("lle.inputs.suspect_columns.WINDOW_ROWS", 50)
        data = frame(site=np.repeat([f"site {i:02}" for i in range(16)], N // 16 + 1)[:N])
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.label == "site"
        assert "# 16 categories in 600 rows" in (tmp_path / "job.yaml").read_text()

    def test_columns_with_one_value_are_left_out(self, tmp_path, suffix):
        data = write_table(tmp_path / f"rows.{suffix}", frame(unit=1.0, version=7))
        assert config_of(tmp_path, data).input.columns == ("a", "b", "c")
        assert "left out: unit (the same value in all" in (tmp_path / "job.yaml").read_text()

    def test_names_that_yaml_reads_as_something_else_are_quoted(self, tmp_path, suffix):
        names = ["yes", "1e3", "two\nlines", "a: b # c", "[x]", "ünï", "a, b"]
        data = pd.DataFrame(RNG.normal(size=(N, len(names))), columns=names).assign(record=np.arange(N))
        if suffix == "csv":
            names[2] = "two lines"
            data.columns = [*names, "record"]
        data["when"] = 1.7e9 + RNG.integers(0, 10**7, N)
        assert config_of(tmp_path, write_table(tmp_path / f"a b'c.{suffix}", data)).input.columns == tuple(names)


def test_number_that_repeats_between_sampled_rows_is_no_id(tmp_path):
    numbers = RNG.permutation(8000)
    numbers[3000] = numbers[2000]
    data = pd.DataFrame({"a": RNG.normal(size=8000), "b": RNG.normal(size=8000), "ticket": numbers})
    section = config_of(tmp_path, write_table(tmp_path / "rows.csv", data)).input
    assert (section.id, section.columns) == (None, ("a", "b"))
    why = "an id: whole numbers, 7,999 different ones in 8,000 rows"
    assert f"# left out: ticket ({why})" in (tmp_path / "job.yaml").read_text()
    data.loc[3000, "ticket"] = 8000
    assert config_of(tmp_path, write_table(tmp_path / "ids.csv", data), "ids.yaml").input.id == "ticket"


def test_words_for_missing_numbers_are_named(tmp_path):
    data = frame(site=RNG.choice(["NA", "FR"], N))
    data.loc[[3, 9], "b"] = np.nan
    data.to_csv(tmp_path / "rows.csv", index=False, na_rep="?")
    config = config_of(tmp_path, tmp_path / "rows.csv")
    assert (config.preprocess.invalid, config.input.label) == ("drop", "site")
    text = (tmp_path / "job.yaml").read_text()
    assert "2 of 600 rows have missing values (b 2, some as '?')" in text
    assert "2 categories (one is 'NA') in 600 rows" in text
    shown = CliRunner().invoke(app, ["init", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "2.yaml")]).stdout
    assert "missing values (b 2, some as '?'); preprocess.invalid: drop leaves these rows out" in shown


@pytest.mark.parametrize(("factor", "scale"), [(1.0, "none"), (1000.0, "standard")])
def test_scale_follows_from_the_spread_of_columns_in_every_format(tmp_path, factor, scale):
    rows = X * [1.0, 2.0, factor]
    np.save(tmp_path / "x.npy", rows)
    write_table(tmp_path / "x.csv", pd.DataFrame(rows, columns=[*"abc"]))
    for name in ("x.npy", "x.csv"):
        assert config_of(tmp_path, str(tmp_path / name), f"{name}.yaml").preprocess.scale == scale
        widest = "c" if name == "x.csv" else "the widest column"
        words = {"none": "standard deviations from ", "standard": f"{widest} has 100 % of the variance"}[scale]
        assert words in (tmp_path / f"{name}.yaml").read_text()


SMOOTH = np.exp(-(((np.arange(120) - 40) / 12) ** 2)) + 0.02


@pytest.mark.parametrize(
    ("spreads", "scale"),
    [
        pytest.param([1.2] * 25 + [0.5, 11.0], "standard", id="one column dominates"),
        pytest.param([3.4, 18.0], "standard", id="age and years of education"),
        pytest.param([8.0, 23.0], "none", id="latitude and longitude"),
        pytest.param([0.8, 0.4, 1.8, 0.8], "none", id="iris"),
        pytest.param([400.0, 430.0, 0.3, 300.0], "standard", id="a column that counts for nothing"),
        pytest.param([1.0, 900.0, 1000.0, 800.0] + [0.1] * 8, "standard", id="several wide columns"),
        pytest.param(SMOOTH, "none", id="spectrum"),
        pytest.param([*SMOOTH, 11.0], "standard", id="a spectrum and another column"),
        pytest.param(30.0 * 0.7 ** np.arange(20), "none", id="principal components"),
        pytest.param([1.0] * 400 + [8.0], "none", id="a wide column of many"),
    ],
)
def test_scale_is_standard_if_few_columns_hold_the_variance(spreads, scale):
    rows = np.random.default_rng(5).normal(size=(500, len(spreads)))
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0) * spreads
    proposed, why = propose_scale(rows)
    assert proposed == scale, why


def test_array_with_chunks_too_large_to_look_at_keeps_its_scale(tmp_path, monkeypatch):
    monkeypatch.setattr("lle.inputs.propose_roles.LOOKED_AT", 0)
    monkeypatch.setattr("lle.inputs.suspect_columns.READ_BYTES", -1)
    np.save(tmp_path / "x.npy", X * [1.0, 2.0, 1000.0])
    assert config_of(tmp_path, str(tmp_path / "x.npy")).preprocess.scale == "none"


def test_floating_point_numbers_of_parquet_files_are_no_ids(tmp_path):
    data = write_table(tmp_path / "rows.parquet", frame(record=RNG.permutation(N).astype(float)))
    section = config_of(tmp_path, data).input
    assert (section.id, section.columns) == (None, ("a", "b", "c"))


def test_number_of_rows_bounds_the_number_of_neighbors(tmp_path):
    config = config_of(tmp_path, write_table(tmp_path / "few.csv", frame().iloc[:6]))
    assert config.neighbors.n_neighbors == 5


def test_unnamed_row_index_of_pandas_is_left_out(tmp_path):
    frame(site=RNG.choice(["north", "south"], N)).to_csv(tmp_path / "rows.csv")
    section = config_of(tmp_path, str(tmp_path / "rows.csv")).input
    assert (section.columns, section.label) == (("a", "b", "c"), "site")
    shown = CliRunner().invoke(app, ["init", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "2.yaml")]).stdout
    assert "left out: '' (row index)\n" in shown


@pytest.mark.parametrize("with_index", [True, False])
def test_a_label_of_numbers_stays_the_label_beside_columns_that_are_left_out(tmp_path, with_index):
    data = frame(target=CLASSES, power=np.where(np.arange(N) % 9 == 7, "low", RNG.integers(40, 200, N).astype(str)))
    (data.drop(columns="power") if with_index else data).to_csv(tmp_path / "rows.csv", index=with_index)
    section = config_of(tmp_path, str(tmp_path / "rows.csv")).input
    assert (section.columns, section.label) == (("a", "b", "c"), "target")


def test_a_text_with_too_many_values_for_a_label_is_left_out_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("lle.inputs.propose_roles.LOOKED_AT", 10)
    monkeypatch.setattr("lle.inputs.suspect_columns.WINDOW_ROWS", 100)
    monkeypatch.setattr("lle.inputs.labels.MAX_TEXT_CLASSES", 20)
    middle = [f"site {i}" for i in range(150)]
    data = frame(site=[*["north", "south"] * 65, *middle, *["north", "south"] * 160])
    assert config_of(tmp_path, write_table(tmp_path / "rows.csv", data)).input.label is None
    assert "# left out: site (no label: " in (tmp_path / "job.yaml").read_text()


def test_csv_column_with_text_between_its_numbers_is_left_out_with_an_example(tmp_path):
    power = np.where(np.arange(N) % 50 == 7, "low", RNG.integers(40, 200, N).astype(str))
    data = write_table(tmp_path / "cars.csv", frame(power=power))
    assert config_of(tmp_path, data).input.columns == ("a", "b", "c")
    why = "text between numbers, such as 'low'; missing values are empty or NA, None, NULL, n/a, - and ?"
    assert f"# left out: power ({why})" in (tmp_path / "job.yaml").read_text()
    only = write_table(tmp_path / "only.csv", pd.DataFrame({"power": power}))
    message = refused(2, "init", only, "-o", tmp_path / "only.yaml")
    assert f"expected a column of numbers, found power ({why})" in message


def test_folder_and_pattern_of_parquet_files(tmp_path):
    (tmp_path / "rows").mkdir()
    for part in ("a", "b"):
        write_table(tmp_path / "rows" / f"{part}.parquet", frame())
    for number, data in enumerate([tmp_path / "rows", tmp_path / "rows" / "*.parquet"]):
        config = config_of(tmp_path, str(data), f"{number}.yaml")
        assert config.input.path == str(tmp_path / "rows" / "*.parquet")
        assert config.output.store == "runs/rows.zarr"


class TestArrays:
    def test_npz_takes_the_largest_matrix_and_the_classes(self, tmp_path):
        np.savez(tmp_path / "d.npz", small=X[:9], points=X, y=CLASSES, weight=X[:, 0])
        section = config_of(tmp_path, str(tmp_path / "d.npz")).input
        assert (section.key, section.labels) == ("points", "y")

    def test_line_breaks_in_names_of_other_arrays_stay_in_the_comment(self, tmp_path):
        np.savez(tmp_path / "d.npz", **{"points": X, "b\nmethod: pca": X[:9]})
        config = config_of(tmp_path, str(tmp_path / "d.npz"))
        assert (config.input.key, config.method) == ("points", "lle")

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_zarr_group(self, tmp_path, zarr_format):
        path = write_group(tmp_path / "no_suffix", X, CLASSES, zarr_format)
        section = config_of(tmp_path, str(path)).input
        assert (section.kind, section.url, section.array, section.labels) == ("zarr", str(path), "points", "label")

    def test_npy_and_the_labels_beside_it(self, tmp_path):
        np.save(tmp_path / "X_train.npy", X)
        np.save(tmp_path / "y_train.npy", CLASSES)
        assert config_of(tmp_path, str(tmp_path / "X_train.npy")).input.labels == str(tmp_path / "y_train.npy")

    def test_labels_of_other_rows_are_not_taken(self, tmp_path):
        np.save(tmp_path / "X.npy", X)
        np.save(tmp_path / "y.npy", CLASSES[:-1])
        assert config_of(tmp_path, str(tmp_path / "X.npy")).input.labels is None

    def test_gzipped_idx_files_named_as_those_of_mnist(self, tmp_path):
        images = write_idx(tmp_path / "t-images-idx3-ubyte.gz", RNG.integers(0, 255, (N, 3, 3), dtype="u1"), True)
        labels = write_idx(tmp_path / "t-labels-idx1-ubyte.gz", CLASSES.astype("u1"), True)
        section = config_of(tmp_path, str(images)).input
        assert (section.kind, section.labels) == ("idx", str(labels))

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


@pytest.mark.parametrize(
    ("name", "cure"),
    [("rows.xlsx", "write Parquet"), ("rows.bin", "name the files"), ("rows.txt", "rename it so that it ends in .csv")],
)
def test_unreadable_kinds_are_refused_with_a_cure(tmp_path, name, cure):
    (tmp_path / name).write_bytes(b"PK\3\4 something else")
    if name != "rows.xlsx":
        (tmp_path / name).write_bytes(b"\1\2\3\4 something else")
    assert cure in refused(2, "init", tmp_path / name, "-o", tmp_path / "job.yaml")
    assert not (tmp_path / "job.yaml").exists()


def test_pattern_of_several_kinds_is_refused(tmp_path):
    for name in ("x.csv", "x.parquet"):
        (tmp_path / name).touch()
    assert "files of one kind; found" in refused(2, "init", tmp_path / "x.*", "-o", tmp_path / "job.yaml")


def test_table_without_measurements_is_refused(tmp_path):
    data = pd.DataFrame({"record": np.arange(N), "site": CLASSES})
    message = refused(2, "init", write_table(tmp_path / "rows.csv", data), "-o", tmp_path / "job.yaml")
    assert "found record (the id), site (the label); if one of them holds measurements" in message


def test_table_of_constant_or_text_columns_is_refused_with_the_reason(tmp_path):
    constant = write_table(tmp_path / "constant.csv", pd.DataFrame({"a": np.ones(N), "b": "x"}))
    message = refused(2, "init", constant, "-o", tmp_path / "job.yaml")
    assert "found a (the same value in all 600 rows), b (text)" in message
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


def test_roles_and_next_command_are_printed(tmp_path):
    data = write_table(tmp_path / "rows.parquet", frame(site=RNG.choice(["n", "s"], N), record=np.arange(N)))
    result = CliRunner().invoke(app, ["init", data, "-o", str(tmp_path / "job.yaml")])
    assert result.exit_code == 0, result.output
    for line in ("features: a, b, c", "label: site", "id: record", f"lle run {tmp_path / 'job.yaml'}"):
        assert line in result.stdout
    assert "# 2 categories" in (tmp_path / "job.yaml").read_text()

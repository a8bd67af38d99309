"""`lle init` proposes the role of each column of a table, and the scaling."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.inputs import csv_index, open_source
from lle.inputs.propose_scale import propose_scale
from tests.support.commands import refused
from tests.support.first_configs import CLASSES, RNG, N, X, config_of, frame, write_table

FORMATS = pytest.mark.parametrize("suffix", ["csv", "parquet"])


@pytest.fixture
def suffix() -> str:
    """Rules about names and values do not depend on the format; tests of types have FORMATS."""
    return "csv"


class TestTables:
    @FORMATS
    def test_text_with_few_values_is_the_label_and_unique_text_the_id(self, tmp_path, suffix):
        data = frame(site=RNG.choice(["north", "south"], N), customer=[f"c{i}" for i in RNG.permutation(N)])
        section = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input
        assert (section.kind, section.label, section.id, section.columns) == (suffix, "site", "customer", None)

    def test_clusters_are_the_label_before_other_categories(self, tmp_path, suffix):
        data = frame(batch=RNG.choice(["b1", "b2"], N), leiden=[f"cluster {number}" for number in CLASSES])
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.label == "leiden"

    @FORMATS
    def test_dates_as_text_are_no_id(self, tmp_path, suffix):
        days = pd.date_range("2025-01-01", periods=N, freq="h")
        lasts = (days - days[0]).astype(str)
        data = frame(hour=days.astype(str), lasts=lasts, customer=[f"c{i}" for i in range(N)])
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.id == "customer"
        del data["customer"]
        assert config_of(tmp_path, write_table(tmp_path / f"2.{suffix}", data), "2.yaml").input.id is None

    def test_whole_numbers_with_leading_zeros_are_the_id(self, tmp_path, suffix):
        data = frame(record=[f"{number:05d}" for number in RNG.permutation(N)])
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.id == "record"

    def test_unique_text_is_the_id_before_unique_numbers(self, tmp_path, suffix):
        data = frame(order=RNG.permutation(N), bird=[f"b{number}" for number in range(N)])
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.id == "bird"

    @FORMATS
    def test_unique_whole_numbers_are_the_id_and_times_are_left_out(self, tmp_path, suffix):
        data = frame(record=RNG.permutation(N), when=1.7e9 + RNG.integers(0, 10**7, N))
        section = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input
        assert (section.id, section.columns) == ("record", ("a", "b", "c"))

    def test_persons_or_their_sex_are_the_label_if_no_other_text_can_be(self, tmp_path, suffix):
        data = frame(id=np.array(list("abcdefgh"))[np.arange(N) % 8])
        assert config_of(tmp_path, write_table(tmp_path / f"1.{suffix}", data), "1.yaml").input.label == "id"
        data["sex"], data["task"] = np.array([["m", "naming"], ["f", "lexdec"]])[np.arange(N) % 2].T
        data.insert(0, "first_name", np.where(np.arange(N) % 3, "Ada", "Carl"))
        assert config_of(tmp_path, write_table(tmp_path / f"2.{suffix}", data), "2.yaml").input.label == "task"

    def test_whole_numbers_are_the_label_by_their_name_or_as_the_only_ones(self, tmp_path, suffix):
        only = config_of(tmp_path, write_table(tmp_path / f"only.{suffix}", frame(group_of=CLASSES)), "1.yaml").input
        named = frame(rooms=RNG.integers(1, 6, N), target=CLASSES)
        named = config_of(tmp_path, write_table(tmp_path / f"named.{suffix}", named), "2.yaml").input
        beside = frame(note=np.where(CLASSES > 1, "yes", "no"), target=CLASSES)
        beside = config_of(tmp_path, write_table(tmp_path / f"beside.{suffix}", beside), "5.yaml").input
        assert (beside.label, beside.columns) == ("target", None)
        two = frame(species=np.where(CLASSES > 1, "yes", "no"), target=CLASSES)
        two = config_of(tmp_path, write_table(tmp_path / f"two.{suffix}", two), "6.yaml").input
        assert (two.label, two.columns) == ("species", ("a", "b", "c"))
        several = frame(rooms=RNG.integers(1, 6, N), floors=CLASSES)
        several = config_of(tmp_path, write_table(tmp_path / f"several.{suffix}", several), "3.yaml").input
        assert (only.label, named.label, several.label) == ("group_of", "target", None)
        many = write_table(tmp_path / f"many.{suffix}", frame(rooms=RNG.integers(0, 15, N)))
        assert config_of(tmp_path, many, "4.yaml").input.label is None

    def test_the_only_number_beside_pixels_is_the_label(self, tmp_path, suffix):
        pixels = pd.DataFrame(RNG.integers(0, [3, 3, 255, 255], (N, 4)), columns=[f"px{i}" for i in range(4)])
        for number, names in enumerate([("digit",), ("digit", "pen")]):
            data = pixels.assign(**dict.fromkeys(names, CLASSES))
            section = config_of(tmp_path, write_table(tmp_path / f"{number}.{suffix}", data), f"{number}.yaml").input
            assert section.label == ("digit" if len(names) == 1 else None)

    @pytest.mark.parametrize("n_words", [3, 60])
    def test_text_is_the_label_beside_counts_of_words_that_are_named_as_labels(self, tmp_path, suffix, n_words):
        words = pd.DataFrame(RNG.poisson(0.5, (N, n_words)), columns=[f"{i}th word" for i in range(n_words)])
        data = words.assign(category=CLASSES * (CLASSES > 2), library=np.where(CLASSES > 1, "yes", "no"))
        label = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.label
        assert label == ("category" if n_words < 15 else "library")
        alone = write_table(tmp_path / f"0.{suffix}", data.drop(columns="library"))
        assert config_of(tmp_path, alone, "0.yaml").input.label == "category"
        data = data.drop(columns="category").assign(target=CLASSES)
        assert config_of(tmp_path, write_table(tmp_path / f"1.{suffix}", data), "1.yaml").input.label == "target"

    @FORMATS
    def test_column_without_a_value_in_most_rows_is_the_label_if_no_other_can_be(self, tmp_path, suffix):
        data = frame(category=np.where(CLASSES > 2, CLASSES, np.nan), state=np.where(CLASSES > 1, "dry", "wet"))
        data.loc[:9, "category"] = 2
        label = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.label
        alone = config_of(tmp_path, write_table(tmp_path / f"1.{suffix}", data.drop(columns="state")), "1.yaml").input
        assert (label, alone.label) == ("state", "category")

    def test_measurements_alone_have_no_label_and_no_id(self, tmp_path, suffix):
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", frame()))
        assert (config.input.label, config.input.id, config.preprocess.invalid) == (None, None, "error")

    @FORMATS
    def test_rows_with_missing_numbers_are_dropped_and_mostly_empty_columns_left_out(self, tmp_path, suffix):
        data = frame(rare=np.where(np.arange(N) % 3 == 0, X[:, 0], np.nan))
        data.loc[7, "b"] = np.nan
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data))
        assert (config.preprocess.invalid, config.input.columns) == ("drop", ("a", "b", "c"))

    @FORMATS
    def test_blank_rows_leave_no_column_out(self, tmp_path, suffix):
        data = frame()
        data.loc[::6] = np.nan
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data))
        assert (config.preprocess.invalid, config.input.columns) == ("drop", None)

    @FORMATS
    def test_column_with_one_value_in_the_rows_without_gaps_is_left_out(self, tmp_path, suffix):
        """It cannot be divided by its standard deviation, as rows with gaps are dropped."""
        data = frame(depth=np.where(np.arange(N) == 9, 0.5, 0.25), flow=1e3 * X[:, 0])
        data.loc[9, "a"] = np.nan
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data))
        assert (config.preprocess.scale, config.input.columns) == ("standard", ("a", "b", "c", "flow"))
        assert (
            "# left out: depth (the same value in the 599 of 600 rows that have no gaps)"
            in (tmp_path / "job.yaml").read_text()
        )

    @FORMATS
    def test_few_missing_values_are_counted_by_column_and_many_leave_the_column_out(self, tmp_path, suffix):
        data = frame(income=np.where(np.arange(N) % 9 == 0, np.nan, X[:, 0]))
        data.loc[:6, "a"], data.loc[5:9, "b"] = np.nan, np.nan
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data))
        text = (tmp_path / "job.yaml").read_text()
        assert config.input.columns == ("a", "b", "c")
        assert "# left out: income (67 of 600 rows have no value)" in text
        assert "10 of 600 rows have missing values (a 7, b 5)" in text

    @pytest.mark.parametrize(("first", "columns"), [(0, None), (40, ("a", "b", "c", "d"))])
    def test_columns_without_a_value_in_the_same_few_rows_are_features(self, tmp_path, suffix, first, columns):
        data = frame(d=X[:, 0] ** 2, e=X[:, 1] ** 2)
        data.loc[first : first + 39, "d"], data.loc[:39, "e"] = np.nan, np.nan
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.columns == columns

    @FORMATS
    def test_flags_and_codes_by_name_are_left_out_and_other_whole_numbers_stay(self, tmp_path, suffix):
        data = frame(member=CLASSES % 2, soil_type=CLASSES, rooms=CLASSES, pixel1=RNG.integers(0, 255, N))
        data = data.assign(pixel2=CLASSES % 2, subject=CLASSES, visit=CLASSES)
        columns = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.columns
        text = (tmp_path / "job.yaml").read_text()
        assert columns == ("a", "b", "c", "rooms", "pixel1", "pixel2")
        assert "# left out: member (two values)" in text
        assert "# left out: soil_type, subject, visit (a code by its name: whole numbers with 4 values)" in text
        assert "# features with few whole numbers: rooms, pixel2;" in text
        assert "# label: soil_type   or member, subject   to colour" in text

    def test_answers_of_a_questionnaire_are_features_beside_measurements(self, tmp_path, suffix):
        items = pd.DataFrame(RNG.integers(1, 7, (N, 12)), columns=[f"{item}_{i}" for i in (1, 2) for item in "ABCDEF"])
        data = items.assign(age=RNG.normal(40, 12, N), height=RNG.normal(170, 9, N))
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data))
        assert config.input.columns is None
        assert config.preprocess.scale == "standard"

    def test_many_flags_are_the_data(self, tmp_path, suffix):
        bits = pd.DataFrame(RNG.integers(0, 2, (N, 12)), columns=[*"defghijklmn", "stay_1 year"])
        data = bits.assign(weight=X[:, 0], size=X[:, 1])
        section = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input
        assert section.columns is None

    def test_two_valued_columns_are_offered_as_labels_likely_ones_first(self, tmp_path, suffix):
        bits = pd.DataFrame(RNG.integers(0, 2, (N, 4)), columns=["urban", "rural", "is_fraud", "paid"])
        config = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", frame().join(bits)))
        assert config.input.label is None
        assert "# label: is_fraud   or urban, rural   to colour" in (tmp_path / "job.yaml").read_text()
        rare = frame().join(bits).assign(urban=bits["urban"].where(CLASSES == 0))
        config_of(tmp_path, write_table(tmp_path / f"rare.{suffix}", rare), "rare.yaml")
        assert "# label: is_fraud   or rural, paid   to colour" in (tmp_path / "rare.yaml").read_text()

    @pytest.mark.parametrize(
        "day",
        ["1970-01-{:02}", "1970-{:02}", "{:02}/01/1970", "{}-Jan-1970", "1970/1/{:02} 00:00", "{:02}:00", "{}:30:59"],
    )
    def test_dates_and_clock_times_as_text_are_no_label(self, tmp_path, suffix, day):
        data = frame(year=[day.format(i) for i in 1 + CLASSES], origin=np.where(CLASSES > 1, "US", "EU"))
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.label == "origin"
        some = data.assign(year=data.year.where(CLASSES > 0, "n/a"))
        assert config_of(tmp_path, write_table(tmp_path / f"some.{suffix}", some), "some.yaml").input.label == "origin"

    @pytest.mark.parametrize(
        "entry",
        [
            "{}.5%",
            "{} %",
            "$1,{}.00",
            "1,{} €",
            "{} km2",
            "{}\xa0%",
            "1\u202f{}",
            "1\xa0{},5",
            "2 006\u2009{}",
            "1.000.{}",
        ],
    )
    def test_numbers_with_a_sign_or_a_unit_are_named(self, tmp_path, suffix, entry):
        texts = [entry.format(100 + i) for i in RNG.permutation(N)]
        texts[1::3] = map(str, range(100, 100 + len(texts[1::3])))
        padded = RNG.choice([" USA", " Peru", "-", "%"], N)
        house = [f"{i} {street}" for i, street in enumerate(RNG.choice(["Elm Street", "Mill Lane"], N))]
        data = write_table(tmp_path / f"rows.{suffix}", frame(cost=texts, house=house, land=padded))
        section = config_of(tmp_path, data).input
        assert (section.label, section.id) == ("land", "house")
        assert f"# left out: cost (text that holds numbers, such as {texts[0]!r}" in (tmp_path / "job.yaml").read_text()

    def test_more_columns_than_fit_a_line_are_grouped_by_reason(self, tmp_path, suffix):
        flags = pd.DataFrame(
            RNG.integers(0, 2, (N, 30)), columns=[f"{one}{two}" for one in "xyz" for two in "abcdefghij"]
        )
        others = pd.DataFrame(RNG.normal(size=(N, 20)), columns=[*"defghijklmnopqrstuvw"])
        data = write_table(tmp_path / f"rows.{suffix}", frame(empty="").join([others, flags]))
        shown = CliRunner().invoke(app, ["init", data, "-o", str(tmp_path / "job.yaml")]).stdout
        words = "xa, xb, xc, xd, xe, xf, xg, xh, xi, xj, ya, yb, ... (30 in all) (two values)"
        assert "left out: 31 columns: " in shown
        assert words in shown
        assert f"# left out: {words}" in (tmp_path / "job.yaml").read_text()

    @FORMATS
    def test_categories_of_the_label_are_counted_over_all_rows(self, tmp_path, suffix, monkeypatch):
        monkeypatch.setattr("lle.inputs.propose_roles.LOOKED_AT", 10)
        monkeypatch.setattr("lle.inputs.suspect_columns.WINDOW_ROWS", 50)
        data = frame(site=np.repeat([f"site {i:02}" for i in range(16)], N // 16 + 1)[:N])
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.label == "site"
        assert "# 16 categories in 600 rows" in (tmp_path / "job.yaml").read_text()

    @FORMATS
    def test_columns_with_one_value_are_left_out(self, tmp_path, suffix):
        data = write_table(tmp_path / f"rows.{suffix}", frame(unit=1.0, version=7))
        assert config_of(tmp_path, data).input.columns == ("a", "b", "c")
        assert "left out: unit, version (the same value in all" in (tmp_path / "job.yaml").read_text()

    @FORMATS
    def test_counts_of_words_are_all_features_and_no_label(self, tmp_path, suffix):
        words = ["class", "type", "session", *(f"{one}{two}" for one in "abcde" for two in "vwxyz")]
        counts = pd.DataFrame(RNG.poisson(0.15, (N, len(words))).clip(max=2), columns=words)
        counts.iloc[:, 5:15] = counts.iloc[:, 5:15].clip(upper=1)
        data = write_table(tmp_path / f"rows.{suffix}", counts.assign(section=np.where(CLASSES > 1, "net", "web")))
        section = config_of(tmp_path, data).input
        assert (section.columns, section.label) == (None, "section")
        dense = write_table(
            tmp_path / f"dense.{suffix}", (counts + 1).assign(section=np.where(CLASSES > 1, "net", "web"))
        )
        assert len(config_of(tmp_path, dense, "dense.yaml").input.columns) < 20
        measured = counts.assign(
            **{f"m{i}{'x' * i}": RNG.integers(0, 99, N) for i in range(9)}
        )  # a quarter of the columns
        assert config_of(tmp_path, write_table(tmp_path / f"some.{suffix}", measured), "some.yaml").input.columns

    @FORMATS
    @pytest.mark.parametrize("name", ["split", "fold"])
    def test_parts_of_a_table_are_a_label_only_if_there_is_no_other(self, tmp_path, suffix, name):
        data = frame().assign(**{name: np.where(np.arange(N) % 4, "train", "test")})
        assert config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.label == name
        both = write_table(tmp_path / f"both.{suffix}", data.assign(kind=np.where(CLASSES > 1, "tom", "kick")))
        assert config_of(tmp_path, both, "both.yaml").input.label == "kind"

    @pytest.mark.parametrize(("n_others", "leaves_out"), [(10, True), (11, False)])
    def test_numbers_beside_a_spectrum_are_left_out(self, tmp_path, suffix, n_others, leaves_out):
        spectrum, others = [f"{400.5 + i}" for i in range(40)], [f"p{'x' * i}" for i in range(n_others)]
        data = pd.DataFrame(RNG.normal(size=(N, 40 + n_others)), columns=[*others, *spectrum])
        columns = config_of(tmp_path, write_table(tmp_path / f"rows.{suffix}", data)).input.columns
        assert columns == (tuple(spectrum) if leaves_out else None)
        reason = "(the names of the other 40 columns are numbers, as in a spectrum)"
        assert (reason in (tmp_path / "job.yaml").read_text()) == leaves_out

    @FORMATS
    def test_names_that_yaml_reads_as_something_else_are_quoted(self, tmp_path, suffix):
        names = ["yes", "1e3", "two\nlines", "a: b # c", "[x]", "ünï", "a, b"]
        data = pd.DataFrame(RNG.normal(size=(N, len(names))), columns=names).assign(record=np.arange(N))
        if suffix == "csv":
            names[2] = "two lines"
            data.columns = [*names, "record"]
        data["when"] = 1.7e9 + RNG.integers(0, 10**7, N)
        assert config_of(tmp_path, write_table(tmp_path / f"a b'c.{suffix}", data)).input.columns == tuple(names)


def test_a_count_beside_answers_of_a_survey_is_no_label(tmp_path):
    data = pd.DataFrame(RNG.integers(1, 6, (N, 12)), columns=[f"q{i}" for i in range(12)])
    data = data.assign(children=RNG.integers(0, 8, N), income=RNG.normal(size=N))
    assert config_of(tmp_path, write_table(tmp_path / "rows.parquet", data)).input.label is None


@pytest.mark.parametrize(("names", "label"), [("x y z", None), ("x y a", "y"), ("X Y Z", None)])
def test_y_beside_x_and_z_is_a_coordinate_and_no_label(tmp_path, names, label):
    grid = pd.DataFrame(RNG.integers(0, 9, (N, 3)), columns=names.split()).assign(intensity=RNG.normal(size=N))
    assert config_of(tmp_path, write_table(tmp_path / "grid.csv", grid)).input.label == label


def test_code_by_which_the_file_is_sorted_is_left_out(tmp_path):
    states = np.sort(np.random.default_rng(9).integers(1, 51, 20_000))[np.r_[5000:20_000, :5000]]
    data = pd.DataFrame(np.random.default_rng(3).normal(size=(20_000, 2)), columns=["a", "b"]).assign(state=states)
    config = config_of(tmp_path, write_table(tmp_path / "rows.parquet", data))
    assert config.input.columns == ("a", "b")
    assert "# left out: state (a code by its name: whole numbers whose" in (tmp_path / "job.yaml").read_text()


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


@pytest.mark.parametrize(
    ("wide", "scale"),
    [
        pytest.param([0.3, 0.5], "none", id="words"),
        pytest.param([900.0, 0.3], "standard", id="words and the length of the text"),
        pytest.param([0.3, -0.5], "standard", id="numbers of both signs"),
    ],
)
def test_counts_of_rare_and_frequent_words_keep_their_scale(wide, scale):
    rng = np.random.default_rng(6)
    rates = np.concatenate([rng.permutation(np.geomspace(1e-3, 0.5, 60)), np.abs(wide)])
    rows = rng.poisson(rates, (4000, 62)) * (1.0 + 9 * (rates > 0.1)) * np.append(np.ones(60), np.sign(wide))
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


def test_names_of_rows_in_a_column_without_name_are_the_id_also_if_most_are_numbers(tmp_path):
    """As R writes them. They are no measurement with mistyped entries."""
    names = [f"{number:05}" if number % 7 else f"LAL{number}" for number in range(N)]
    frame(c=np.where(np.arange(N) % 9 == 7, "low", "1")).set_axis(names).to_csv(tmp_path / "rows.csv")
    result = CliRunner().invoke(app, ["init", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "job.yaml")])
    assert "id: ''\n" in result.stdout
    assert "'' (" not in result.output  # neither left out nor the subject of a warning


@pytest.mark.parametrize("with_index", [True, False])
def test_a_label_of_numbers_stays_the_label_beside_columns_that_are_left_out(tmp_path, with_index):
    data = frame(target=CLASSES, power=np.where(np.arange(N) % 9 == 7, "low", RNG.integers(40, 200, N).astype(str)))
    (data.drop(columns="power") if with_index else data).to_csv(tmp_path / "rows.csv", index=with_index)
    section = config_of(tmp_path, str(tmp_path / "rows.csv")).input
    assert (section.columns, section.label) == (("a", "b", "c"), "target")


def test_a_label_of_numbers_may_follow_ids(tmp_path):
    """As in recordings: the utterance, the place in it, the speaker, then measurements."""
    utterances = pd.DataFrame({"utterance": np.arange(N) // 25, "frame": np.arange(N) % 25, "speaker": CLASSES})
    section = config_of(tmp_path, write_table(tmp_path / "rows.parquet", utterances.join(frame()))).input
    assert (section.columns, section.label) == (("a", "b", "c"), "speaker")


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


def test_csv_columns_with_points_between_thousands_are_left_out(tmp_path):
    people = np.append([12, 7], RNG.integers(0, 99_999, N - 2))
    thousands = [f"{n:,}".replace(",", ".") for n in people]
    data = frame(people=thousands, decimals=[f"{n / 1000:.3f}" for n in people], dropped=[n / 1000 for n in people])
    config = config_of(tmp_path, write_table(tmp_path / "orte.csv", data))
    assert config.input.columns == ("a", "b", "c", "decimals", "dropped")
    assert "# left out: people (numbers with points between thousands, such as" in (tmp_path / "job.yaml").read_text()


def test_empty_csv_columns_without_a_name_are_left_out(tmp_path):
    lines = frame().to_csv(index=False).splitlines()
    (tmp_path / "sheet.csv").write_text("".join(f"{line},,\n" for line in lines))
    assert config_of(tmp_path, tmp_path / "sheet.csv").input.columns == ("a", "b", "c")
    assert '# left out: "" (no name)' in (tmp_path / "job.yaml").read_text()


def test_csv_columns_with_text_below_the_first_rows_are_left_out(tmp_path):
    n = 3 * csv_index.ROWS_PER_POSITION
    data = pd.DataFrame(RNG.normal(size=(n, 4)).round(4).astype(str), columns=list("abcd"))
    data.loc[n - 9, "b"], data.loc[n - 5, "d"] = "other", "5+"
    config = config_of(tmp_path, write_table(tmp_path / "rows.csv", data))
    assert config.input.columns == ("a", "c")
    text = (tmp_path / "job.yaml").read_text()
    for name, entry in (("b", "other"), ("d", "5+")):
        assert f"# left out: {name} (text between numbers, such as '{entry}'" in text


def test_folder_and_pattern_of_parquet_files(tmp_path):
    (tmp_path / "rows").mkdir()
    for part in ("a", "b"):
        write_table(tmp_path / "rows" / f"{part}.parquet", frame())
    for number, data in enumerate([tmp_path / "rows", tmp_path / "rows" / "*.parquet"]):
        config = config_of(tmp_path, str(data), f"{number}.yaml")
        assert config.input.path == str(tmp_path / "rows" / "*.parquet")
        assert config.output.store == "runs/rows.zarr"


@pytest.mark.parametrize("others", [[], ["_tmp.parquet", ".hidden.parquet", "_SUCCESS"]])
def test_files_of_a_folder_with_brackets_but_not_the_temporary_ones(tmp_path, others):
    (tmp_path / "rows[1]").mkdir()
    for name in ("a.parquet", *others):
        write_table(tmp_path / "rows[1]" / name, frame())
    section = config_of(tmp_path, str(tmp_path / "rows[1]")).input
    assert open_source(section.kind, path=section.path).n_rows == N

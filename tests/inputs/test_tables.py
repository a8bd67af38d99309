"""CSV and Parquet files: layouts of lines, types of columns, gaps."""

import bz2
import gzip
import lzma
import subprocess
import sys
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lle.core.errors import InputError
from lle.inputs import csv_index, open_source, table_columns
from lle.inputs.column_names import ColumnRoles
from lle.inputs.detect_kind import detect_kind
from lle.inputs.files import find_files
from tests.support.commands import lle


class TestCsv:
    def test_any_layout_of_lines(self, tmp_path, monkeypatch):
        """The file is scanned in pieces of a few bytes, so every line is split."""
        monkeypatch.setattr(csv_index, "ROWS_PER_POSITION", 3)
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
                monkeypatch.setattr(csv_index, "SCAN_BYTES", scan)
                csv_index.index_rows.cache_clear()
                source = open_source("csv", path=path, columns=["a", "b", "c"])
                assert source.n_rows == 20, name
                for start, stop in [(0, 20), (0, 1), (2, 3), (3, 6), (5, 11), (18, 20), (19, 20), (4, 4)]:
                    assert np.array_equal(source.read(start, stop), X[start:stop]), (name, scan, start, stop)

    @pytest.mark.parametrize(
        ("text", "line"), [('\ufeff"Length\n(mm)",b\n1,2\n', 1), ('a,b,c\n1,2,3\n2,6","first\nsecond"\n', 3)]
    )
    def test_line_breaks_inside_quotes_are_refused(self, tmp_path, text, line):
        """Beside a mark of the encoding, and beside a quote inside a field."""
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(InputError, match=f"line {line}: expected every quote closed on its own line"):
            open_source("csv", path=tmp_path / "x.csv")

    def test_quotes_inside_a_field_are_characters(self, tmp_path):
        (tmp_path / "x.tsv").write_text('a\tname\n1\t4\',4"-dimethyl\n2\t5"\n3\t"x\ty"\n')
        source = open_source("csv", path=tmp_path / "x.tsv", label="name")
        assert source.read(0, 3).tolist() == [[1], [2], [3]]
        assert source.read_columns(["name"], 0, 3).column(0).to_pylist() == ["4',4\"-dimethyl", '5"', "x\ty"]

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

    @pytest.mark.parametrize("delimiter", [",", ";", "\t"])
    def test_words_of_pandas_and_signs_are_missing_numbers(self, tmp_path, delimiter):
        """pandas reads the same words as missing, without our signs."""
        signs = ["-", "--", "?", ".", "..", ":", "#DIV/0!", "n.a.", "na", "nil", "none", "NONE", "\\N"]
        words = ["#N/A", "NA", "N/A", "NULL", "None", "n/a", "null", "<NA>", "nan", *signs, " ?", "   - "]
        lines = [f"{i}{delimiter}{word}{delimiter}{i % 2 == 0}" for i, word in enumerate([*words, "7.5"])]
        lines[3] = f'3{delimiter}"NULL"{delimiter}?'
        path = tmp_path / "x.csv"
        path.write_text("\n".join([delimiter.join(["a", "power", "paid"]), *lines]) + "\n")
        source = open_source("csv", path=path)
        assert source.roles == ColumnRoles(("a", "power", "paid"), None, None, {})
        expected = pd.read_csv(path, sep=delimiter, na_values=[*signs, " ?", "   - "])
        rows = source.read(0, len(lines))
        np.testing.assert_array_equal(rows[:, 1], [np.nan] * len(words) + [7.5])
        np.testing.assert_array_equal(rows[:, 1], expected["power"])
        np.testing.assert_array_equal(rows[:, 2], expected["paid"].astype(float))
        assert source.column_types(["power"]) == {"power": pa.float64()}
        assert source.read_columns(["power"], 0, len(lines))["power"].to_pylist() == [None] * len(words) + ["7.5"]

    @pytest.mark.parametrize("kind", ["parquet", "csv"])
    def test_columns_of_other_types_or_in_some_files_only_are_read(self, tmp_path, kind):
        """Files of a job differ: pandas writes whole numbers as float64 where one is missing."""
        first = {"a": [0.5, 1.5], "id": [7, 8], "count": [1, 2], "day": [True, False], "old": ["x", "y"]}
        second = {"a": [2.5], "id": ["c9"], "count": [2.5], "day": ["never"]}
        for number, columns in enumerate([first, second]):
            table = pd.DataFrame(columns)
            table.to_csv(tmp_path / f"{number}.csv", index=False)
            table.to_parquet(tmp_path / f"{number}.parquet")
        source = open_source(kind, path=f"{tmp_path}/*.{kind}", columns=["a"], id="id")
        names, types = list(first), source.column_types(["id", "count", "old"])
        names_of_types = [str(kind).removeprefix("large_") for kind in types.values()]
        assert names_of_types == ["string", "double", "string"]
        read = source.read_columns(names, 1, 3)
        assert read.column_names == names
        assert read["count"].cast(pa.float64()).to_pylist() == [2, 2.5]
        assert read.select(["id", "old"]).to_pydict() == {"id": ["8", "c9"], "old": ["y", None]}
        assert source.read_columns(["old"], 2, 3)["old"].to_pylist() == [None]

    def test_whole_numbers_above_int64_keep_their_digits_as_text(self, tmp_path):
        (tmp_path / "x.csv").write_text("a,n,long\n0.5,9223372036854775807,9223372036854775809\n1.5,1,2\n")
        types = open_source("csv", path=tmp_path / "x.csv", columns=["a"]).column_types(["n", "long"])
        assert types == {"n": pa.int64(), "long": pa.string()}

    def test_row_index_without_a_name_is_no_feature(self, tmp_path):
        """As pandas and R write it."""
        frame = pd.DataFrame({"a": [0.5, 1.5], "b": [3, 4]})
        frame.to_csv(tmp_path / "1.csv")
        frame.to_csv(tmp_path / "2.csv", index=False)
        source = open_source("csv", path=tmp_path / "*.csv")
        assert source.roles == ColumnRoles(("a", "b"), None, None, {"": "row index"})
        np.testing.assert_array_equal(source.read(0, 4), [[0.5, 3], [1.5, 4]] * 2)

    @pytest.mark.parametrize(
        ("delimiter", "name"), [*product((",", ";", "\t", "|"), ('"{}"',)), (";", "row {}"), ("\t", "row {}")]
    )
    def test_names_of_rows_need_no_field_in_the_header(self, tmp_path, delimiter, name):
        """As R writes tables by default; pandas reads them so too."""
        path, values = tmp_path / "x.csv", np.arange(8.0).reshape(4, 2) / 4
        rows = [delimiter.join([name.format(i), *map(str, row)]) for i, row in enumerate(values, 1)]
        path.write_text("\n".join([delimiter.join(["a", '"b c"']), *rows]) + "\n")
        expected = pd.read_csv(path, sep=delimiter)
        source = open_source("csv", path=str(path))
        assert source.feature_names == tuple(expected.columns) == ("a", "b c")
        np.testing.assert_array_equal(source.read(0, 4), expected.to_numpy())

    @pytest.mark.parametrize(
        "text", ["a,b\n1,5,2\n1,7,3\n", "a,b\nx,5,2\n", "a,b\n1,5,\n2,6,\n", "a title, b\nx,y,z\n1,2,3\n"]
    )
    def test_rows_with_a_field_more_that_may_be_no_name_are_refused(self, tmp_path, text):
        """Decimal commas, rows that end in a delimiter, and a title above the header."""
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(InputError, match="add a name if a column has none"):
            open_source("csv", path=str(tmp_path / "x.csv"))

    def test_columns_of_numbers_that_differ_between_files_are_named(self, tmp_path):
        (tmp_path / "1.csv").write_text("a,b,c,d\n1,2,3,x\n")
        (tmp_path / "2.csv").write_text("a,b,d,e\n1,y,4,5\n")
        with pytest.raises(InputError) as error:
            open_source("csv", path=tmp_path / "*.csv")
        differences = (
            "'b' holds text, there numbers, 'c' is missing, 'd' holds numbers, there text, 'e' is new. Correct"
        )
        assert f"as {tmp_path}/1.csv; {differences}" in str(error.value)

    def test_words_for_missing_numbers_are_classes_among_other_texts(self, tmp_path):
        countries = ["NA", "FR", "None", "-", "", "FR"]
        lines = "".join(f"{i},{country},{['1', '?', '10', '2', '', 'NA'][i]}\n" for i, country in enumerate(countries))
        (tmp_path / "x.csv").write_text("a,country,group\n" + lines)
        source = open_source("csv", path=tmp_path / "x.csv", label="country")
        assert source.roles == ColumnRoles(("a", "group"), "country", None, {})
        assert source.labels.names == ("-", "FR", "NA", "None")
        np.testing.assert_array_equal(source.read_labels(0, 6), [2, 1, 3, 0, np.nan, 1])
        texts = source.read_columns(["country", "group"], 0, 6).to_pydict()
        assert texts == {"country": [*countries[:4], None, "FR"], "group": ["1", None, "10", "2", None, None]}
        numbers = open_source("csv", path=tmp_path / "x.csv", label="group")
        assert (numbers.roles.features, numbers.labels.names) == (("a",), ("1", "2", "10"))
        np.testing.assert_array_equal(numbers.read_labels(0, 6), [0, np.nan, 2, 1, np.nan, np.nan])

    def test_column_of_missing_words_has_the_type_of_other_files_or_is_left_out(self, tmp_path):
        (tmp_path / "1.csv").write_text("a,b,c\n1,-,none\n2,-,none\n")
        alone = open_source("csv", path=tmp_path / "1.csv")
        assert alone.roles == ColumnRoles(
            ("a",), None, None, {name: "no numbers, only " + word for name, word in (("b", "'-'"), ("c", "'none'"))}
        )
        (tmp_path / "2.csv").write_text("a,b,c\n3,4.5,severe\n")
        source = open_source("csv", path=tmp_path / "*.csv", label="c")
        assert source.roles == ColumnRoles(("a", "b"), "c", None, {})
        np.testing.assert_array_equal(source.read(0, 3), [[1, np.nan], [2, np.nan], [3, 4.5]])
        assert source.labels.names == ("none", "severe")

    @pytest.mark.parametrize("first", ["sep=;\r\n", "\ufeffsep=;\n", '"sep=;"\r\n', "SEP=;\n"])
    def test_line_of_excel_names_the_delimiter(self, tmp_path, monkeypatch, first):
        path = tmp_path / "x.csv"
        path.write_bytes((first + "a;b,c\r\n1,5;2\r\n\r\n3,5;oops\r\n").encode())
        for scan in (7, 1 << 20):
            monkeypatch.setattr(csv_index, "SCAN_BYTES", scan)
            csv_index.index_rows.cache_clear()
            index = csv_index.index_rows(find_files(path, "path")[0])
            assert (index.names, index.delimiter, index.n_rows) == (("a", "b,c"), ";", 2)
        assert open_source("csv", path=path, columns=["a"]).read(0, 2).tolist() == [[1.5], [3.5]]
        with pytest.raises(InputError, match=r"near line 4, column 'b,c'.*'oops'"):
            open_source("csv", path=path, columns=["b,c"])

    @pytest.mark.parametrize("delimiter", "^\\")
    def test_declared_delimiter_need_not_be_one_of_the_usual(self, tmp_path, delimiter):
        (tmp_path / "x.csv").write_text("sep=^\na^b,c\n1^2\n".replace("^", delimiter))
        assert open_source("csv", path=tmp_path / "x.csv").read(0, 1).tolist() == [[1.0, 2.0]]

    def test_text_columns_are_read_only_on_request(self, tmp_path):
        (tmp_path / "x.csv").write_bytes(b"a,name,b\n1,\xff,2\n3,\xe9,4\n")
        source = open_source("csv", path=tmp_path / "x.csv", columns=["b", "a"])
        assert source.read(0, 2).tolist() == [[2, 1], [4, 3]]
        with pytest.raises(InputError, match=r"column 'name': expected text in UTF-8, .* convert the file"):
            source.read_columns(["name"], 0, 2)

    def test_text_columns_are_left_out_as_in_parquet(self, tmp_path):
        frame = pd.DataFrame({"b": [1.5, 2.5], "name": ["oak", "ash"], "a": [1, 2], "gap": [None, 7.0], "kind": "tree"})
        frame.to_csv(tmp_path / "x.csv", index=False)
        frame.to_parquet(tmp_path / "x.parquet", index=False)
        for kind in ("csv", "parquet"):
            roles = open_source(kind, path=tmp_path / f"x.{kind}", label="kind").roles
            assert roles == ColumnRoles(("b", "a", "gap"), "kind", None, {"name": "text"})

    def test_column_of_mostly_text_is_text_although_some_entries_are_numbers(self, tmp_path):
        models = ["A320", "737-800", "150", "B757", "230", "CL-600"]
        (tmp_path / "x.csv").write_text("a,model\n" + "".join(f"{i},{model}\n" for i, model in enumerate(models)))
        source = open_source("csv", path=tmp_path / "x.csv")
        assert source.roles == ColumnRoles(("a",), None, None, {"model": "text"})

    def test_digits_around_an_underscore_are_text(self, tmp_path):
        (tmp_path / "x.csv").write_text("1_1,1_2,cluster\n" + "1.5,2.5,1_1\n3.5,4.5,2_1\n")
        roles = open_source("csv", path=tmp_path / "x.csv").roles
        assert roles == ColumnRoles(("1_1", "1_2"), left_out={"cluster": "text"})

    def test_column_with_text_between_its_numbers_is_refused_with_the_line(self, tmp_path):
        (tmp_path / "x.csv").write_text("a,power\n1,130\n2,low\n3,150\n")
        with pytest.raises(InputError, match=r"x\.csv near line 3, column 'power': expected numbers"):
            open_source("csv", path=tmp_path / "x.csv")

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
                "byte": pa.array([1, None, 3], pa.int8()),
                "truth": pa.array([True, False, None]),
                "half": pa.array(np.array([0.5, 1, 2], np.float16)),
                "name": ["a", "b", "c"],
                "big": pa.array([2**53 + 1, None, 3], pa.int64()),
                "price": pa.array([1, 2, None], pa.decimal128(5, 2)),
            }
        )
        pq.write_table(table, tmp_path / "x.parquet")
        small = open_source("parquet", path=tmp_path / "x.parquet", columns=["byte", "truth", "half"])
        assert small.dtype == np.float32
        np.testing.assert_array_equal(small.read(0, 3), [[1, 1, 0.5], [np.nan, 0, 1], [3, np.nan, 2]])
        all_columns = open_source("parquet", path=tmp_path / "x.parquet", label="name")
        assert (all_columns.n_features, all_columns.dtype) == (5, np.float64)
        np.testing.assert_array_equal(all_columns.read(0, 3)[:, 3:], [[2.0**53, 1], [np.nan, 2], [3, np.nan]])
        assert all_columns.labels.names == ("a", "b", "c")

    def test_integer_labels_with_gaps(self, tmp_path):
        pq.write_table(pa.table({"a": [1.0, 2.0, 3.0], "y": pa.array([7, None, 5])}), tmp_path / "x.parquet")
        source = open_source("parquet", path=tmp_path / "x.parquet", label="y")
        assert source.labels.names == ("5", "7")
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


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas_are_read_as_decimal_points(tmp_path, delimiter):
    n = np.arange(9)
    frame = pd.DataFrame({"n": n, "höhe": n - 3.25, "klein": n * 1e-7, "art": list("abc") * 3})
    frame.loc[4, "höhe"] = np.nan
    path = tmp_path / "x.csv"
    frame.to_csv(path, index=False, sep=delimiter, decimal=",")
    source = open_source("csv", path=str(path), label="art")
    assert source.roles.features == ("n", "höhe", "klein")
    np.testing.assert_array_equal(source.read(0, 9), frame[["n", "höhe", "klein"]].to_numpy())
    kinds = source.column_types(["höhe", "art"])
    assert kinds == {"höhe": pa.float64(), "art": pa.string()}
    read = source.read_columns(["höhe"], 2, 9)["höhe"].cast(pa.float64()).to_numpy()
    np.testing.assert_array_equal(read, frame["höhe"][2:])


def test_decimal_commas_with_spaces_around_the_numbers(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a; b\n 0,5; 12,25 \n 7,5;  1,75\n")
    [table] = table_columns("csv", str(path))
    assert (table.features(()), table.mixed) == (["a", "b"], {})
    assert open_source("csv", path=path).read(0, 2).tolist() == [[0.5, 12.25], [7.5, 1.75]]


def test_commas_of_thousands_are_refused_with_the_cure(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("n;a\n" + "".join(f"{i};{i},500\n" for i in range(9)))
    left_out = lle("init", path, "-o", tmp_path / "job.yaml")["columns"]["left_out"]
    assert "numbers with a comma, such as '0,500'; write a decimal point" in left_out["a"]
    path.write_text("n;a\n" + "".join(f"{i};{i if i % 3 else '0,500'}\n" for i in range(9)))
    left_out = lle("init", path, "-o", tmp_path / "some.yaml")["columns"]["left_out"]
    assert "numbers with a comma, such as '0,500'; write a decimal point" in left_out["a"]
    path.write_text("n;a\n" + "".join(f"{i},000;{i},500\n" for i in range(9)))
    with pytest.raises(InputError, match=r"column 'n': .* found: invalid value '0,000'; write a decimal point"):
        open_source("csv", path=str(path))
    path.write_text("n;a\n" + "".join(f"{i}.5;{i},5\n" for i in range(9)))
    with pytest.raises(InputError, match=r"column 'a': .* found: invalid value '0,5'; write a decimal point"):
        open_source("csv", path=str(path))


@pytest.mark.parametrize("header", ["P(x|y),P(y|x)", "a,b,c (x;y;z;w)", '"a;x","b;y","c;z;w"', "weight; dry", "a"])
def test_names_of_comma_files_may_hold_other_delimiters(tmp_path, header):
    n = header.count(",") + 1
    (tmp_path / "x.csv").write_text("\n".join([header, "", ",".join(["1.5"] * n), ",".join(["2.5"] * n)]))
    source = open_source("csv", path=tmp_path / "x.csv")
    assert source.feature_names == tuple(name.strip('"') for name in header.split(","))
    assert source.read(0, 2).tolist() == [[1.5] * n, [2.5] * n]


@pytest.mark.parametrize("delimiter", list(",;\t|"))
@pytest.mark.parametrize("rows", [["1,2", "3,4"], []])
def test_delimiter_of_header_and_first_row(tmp_path, delimiter, rows):
    (tmp_path / "x.csv").write_text("".join(f"{line}\r\n" for line in ["a (x y),b", *rows]).replace(",", delimiter))
    index = csv_index.index_rows(find_files(tmp_path / "x.csv", "path")[0])
    assert (index.names, index.delimiter, index.n_rows) == (("a (x y)", "b"), delimiter, len(rows))


AXIS = [f"{400 + 2.5 * i:g}" for i in range(12)]


@pytest.mark.parametrize("names", [["0", "1", "2"], AXIS, AXIS[::-1]])
def test_numbers_of_an_axis_are_names(tmp_path, names):
    """A table without names gets those from 0 on by pandas; columns of spectra are called by their wavelengths."""
    (tmp_path / "x.csv").write_text("\n".join([",".join(names), *[",".join(["3"] * len(names))] * 2]))
    source = open_source("csv", path=tmp_path / "x.csv", columns=names[:2])
    assert (source.feature_names, source.n_rows) == (tuple(names[:2]), 2)


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (["sample", *AXIS], ["sample", *["3"] * 12]),
        (["0", "1", "2", "label"], ["5", "6", "7", "label"]),
        (["2019", "2020", "2021", "item"], ["5", "6", "7", "item"]),
        (["1", "weight", "x"], ["5", "1,5", "x"]),
        (["", "tail", "bird"], ["7", "True", "bird"]),
    ],
)
def test_a_name_that_is_also_an_entry_does_not_make_a_row_of_the_header(tmp_path, names, rows):
    lines = [";".join(names), ";".join(rows), ";".join([*rows[:-1], "other"])]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    assert table_columns("csv", str(tmp_path / "x.csv"))[0].names == tuple(names)


@pytest.mark.parametrize(
    "rows",
    [
        [AXIS, [*AXIS[1:], "500"]],
        [AXIS[:9], ["1"] * 9],
        [["0", "1"]] * 2,
        [["1", "2", "3"]] * 2,
        [["", "1.5", "2.3"], ["4", "5", "6"]],
    ],
)
def test_line_of_other_numbers_is_no_header(tmp_path, rows):
    (tmp_path / "x.csv").write_text("\n".join(map(",".join, [*rows, rows[1]])))
    with pytest.raises(InputError, match="expected a header line with column names"):
        open_source("csv", path=tmp_path / "x.csv")


def test_header_longer_than_a_field_of_the_csv_module(tmp_path):
    names = [f"gene{i:06}" for i in range(20_000)]
    (tmp_path / "x.csv").write_text(",".join(names) + "\n" + ",".join(["1234567"] * 20_000) + "\n")
    assert csv_index.index_rows(find_files(tmp_path / "x.csv", "path")[0]).names == tuple(names)


READ_ALL = """
import resource, sys
from lle.inputs import open_source

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
source = open_source("csv", path=sys.argv[1])
assert source.read(0, 2).shape == (2, 6000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_to_read_a_wide_file_is_small(tmp_path):
    """A table of words for missing numbers takes 180 kB; Arrow keeps one for each column."""
    header, row = ",".join(f"gene{i}" for i in range(6000)), ",".join(["1.5"] * 6000)
    (tmp_path / "x.csv").write_text(f"{header}\n{row}\n{row}\n")
    ended = subprocess.run([sys.executable, "-c", READ_ALL, tmp_path / "x.csv"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < 400_000, "kilobytes"


def test_words_for_missing_numbers_may_occur_for_the_first_time_after_many_rows(tmp_path):
    lines = [*map(str, range(csv_index.ROWS_PER_POSITION)), "?", "   NA", "7"]
    (tmp_path / "x.csv").write_text("a,b\n" + "".join(f"{line},1\n" for line in lines))
    rows = open_source("csv", path=tmp_path / "x.csv").read(0, len(lines))
    np.testing.assert_array_equal(rows[-4:, 0], [csv_index.ROWS_PER_POSITION - 1, np.nan, np.nan, 7])


PACKED = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": partial(pa.compress, codec="zstd", asbytes=True),
}
TABLES = ["x.csv", "x.tsv", "semicolons.csv", "x.feather", "x.parquet", "x.CSV.GZ", "x.FEATHER", "x.ARROW"]
TABLES += [f"x.csv.{end}" for end in PACKED]


@pytest.mark.parametrize("name", TABLES)
def test_truth_values_and_text_are_the_same_in_every_kind_of_table(tmp_path, name):
    rng = np.random.default_rng(8)
    table = pd.DataFrame(rng.normal(size=(3000, 2)), columns=["a", "b"])
    table = table.assign(paid=rng.random(3000) < 0.5, site=rng.choice(["n", "s"], 3000)).astype({"paid": "boolean"})
    table.loc[2000, "paid"] = pd.NA
    path = tmp_path / name
    if name.lower().endswith(("feather", "arrow")):
        table.to_feather(path)
    elif name.endswith("parquet"):
        table.to_parquet(path)
    else:
        text = table.to_csv(index=False, sep={"x.tsv": "\t", "semicolons.csv": ";"}.get(name, ",")).encode()
        path.write_bytes(PACKED.get(name.lower().rpartition(".")[2], bytes)(text))
    source = open_source(detect_kind(str(path)).kind, path=path, label="site")
    expected = table[["a", "b", "paid"]].to_numpy(float, na_value=np.nan)
    parts = [source.read(start, min(start + 700, 3000)) for start in range(0, 3000, 700)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert (source.feature_names, source.labels.names) == (("a", "b", "paid"), ("n", "s"))


def test_mistyped_column_gets_the_nearest_name(tmp_path):
    pd.DataFrame({"income": [1.0], "age": [2.0]}).to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(InputError, match=r"there is no column 'incom'; did you mean 'income'\? \(its columns are"):
        open_source("csv", path=tmp_path / "x.csv", columns=["incom"])

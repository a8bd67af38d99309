"""Labels of every kind of file: categories, numbers and gaps."""

import warnings

import numpy as np
import pandas as pd
import pytest
import zarr
from zarr.errors import UnstableSpecificationWarning

from lle.core.errors import InputError
from lle.inputs import labels, open_source
from tests.support.input_files import write_frame


class TestLabels:
    def read(self, tmp_path, values):
        np.save(tmp_path / "x.npy", np.zeros((len(values), 2)))
        np.save(tmp_path / "y.npy", values)
        source = open_source("npy", path=tmp_path / "x.npy", labels=tmp_path / "y.npy")
        return source.labels.kind, source.labels.names, source.read_labels(0, len(values))

    @pytest.mark.parametrize(
        ("values", "kind", "names", "expected"),
        [
            ([3, 9, 3], "categorical", ("3", "9"), [0, 1, 0]),
            ([10, -2, 9], "categorical", ("-2", "9", "10"), [2, 0, 1]),
            ([True, False], "categorical", ("0", "1"), [1, 0]),
            (["oak", "", "ash"], "categorical", ("ash", "oak"), [1, np.nan, 0]),
            ([b"oak", b"ash"], "categorical", ("ash", "oak"), [1, 0]),
            (["t10", "t9", "10", "x", "9"], "categorical", ("9", "10", "t9", "t10", "x"), [3, 2, 1, 4, 0]),
            (["10", "9", "9.0"], "categorical", ("9", "10"), [1, 0, 0]),
            (["1.5", "", "2"], "continuous", None, [1.5, np.nan, 2]),
            (["1_1", "11", "1_2"], "categorical", ("11", "1_1", "1_2"), [1, 0, 2]),
            ([0.5, np.nan], "continuous", None, [0.5, np.nan]),
            ([[1, 2], [3, 4]], "continuous", None, [[1, 2], [3, 4]]),
            ([[1], [4]], "categorical", ("1", "4"), [0, 1]),
        ],
    )
    def test_kind_and_names_follow_from_the_values(self, tmp_path, values, kind, names, expected):
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
        assert source.labels.names == ("a", "b", "c")

    @pytest.mark.parametrize("first", [0, 1])
    def test_integers_of_one_file_and_floats_of_another_are_classes(self, tmp_path, first):
        """As of pandas, which writes integers beside missing values as floating-point numbers."""
        for i, values in enumerate(([7, 5, 7], [9.0, np.nan, 5.0])):
            write_frame(tmp_path / f"x{(i + first) % 2}.parquet", np.zeros((3, 2)), values)
        source = open_source("parquet", path=f"{tmp_path}/x*.parquet", label="label")
        assert source.labels.names == ("5", "7", "9")
        expected = [1, 0, 1, 2, np.nan, 0]
        np.testing.assert_array_equal(source.read_labels(0, 6), np.roll(expected, 3 * first))

    def test_too_many_distinct_labels_of_text_are_refused(self, tmp_path):
        with pytest.raises(InputError, match="1000 different texts"):
            self.read(tmp_path, np.array([f"id{i}" for i in range(1001)]))

    def test_text_after_numbers_in_a_label_column(self, tmp_path):
        values = [str(i / 4) for i in range(1200)]
        write_frame(tmp_path / "x.csv", np.zeros((1201, 2)), [*values, "oak"])
        source = open_source("csv", path=tmp_path / "x.csv", label="label")
        with pytest.raises(InputError, match=r"label|oak"):
            source.read_labels(0, 1201)

    def test_large_whole_numbers_of_parquet_are_the_same_labels_in_all_blocks(self, tmp_path):
        values = [None, *(2**53 + 1, 2**53 + 3) * 10]
        frame = pd.DataFrame({"a": np.arange(21.0), "b": np.arange(21.0), "label": pd.array(values, "Int64")})
        frame.to_parquet(tmp_path / "x.parquet")
        source = open_source("parquet", path=tmp_path / "x.parquet", label="label")
        blocks = [source.read_labels(start, min(start + 5, 21)) for start in range(0, 21, 5)]
        np.testing.assert_array_equal(np.concatenate(blocks), source.read_labels(0, 21))
        assert np.isfinite(source.read_labels(1, 21)).all()

    def test_largest_whole_numbers_of_parquet_are_no_negative_labels(self, tmp_path):
        path = write_frame(tmp_path / "x.parquet", np.eye(3), np.array([2**64 - 1, 0, 2**63], np.uint64))
        source = open_source("parquet", path=path, label="label")
        assert source.labels.names == ("0", str(2**63), str(2**64 - 1))
        assert source.read_labels(0, 3).tolist() == [2, 0, 1]

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_text_column_with_gaps(self, tmp_path, kind):
        path = write_frame(tmp_path / f"x.{kind}", np.eye(4), ["oak", None, "ash", "oak, red"])
        source = open_source(kind, path=path, label="label")
        assert source.labels.names == ("ash", "oak", "oak, red")
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

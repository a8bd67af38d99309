"""input.where: the rows with one label as an input."""

import os
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from lle.config.models import Config
from lle.core.errors import InputError
from lle.inputs import open_source, row_filter
from lle.stages.ingest import all_rows, open_input


@pytest.fixture
def labelled(tmp_path):
    """(path of points, path of labels, points, labels): labels 3, 5 and 8 in no order."""
    rng = np.random.default_rng(47)
    points, labels = rng.normal(size=(1000, 4)), rng.choice([3, 5, 8], 1000)
    np.save(tmp_path / "x.npy", points)
    np.save(tmp_path / "y.npy", labels)
    return str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), points, labels


@pytest.mark.parametrize("window", [7, 4096])
@pytest.mark.parametrize("where", [5, "5", 5.0])
def test_rows_of_one_label_do_not_depend_on_the_blocks(labelled, monkeypatch, where, window):
    path, label_path, points, labels = labelled
    monkeypatch.setattr(row_filter, "WINDOW_ROWS", window)
    source = open_source("npy", path=path, labels=label_path, columns=None, where=where)
    expected = points[labels == 5]
    assert source.n_rows == len(expected)
    cuts = [0, 13, 14, 200, source.n_rows]
    parts = [source.read(first, past) for first, past in pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert set(source.read_labels(0, source.n_rows)) == {source.labels.names.index("5")}


def test_each_digit_by_itself():
    counts = [open_source("synthetic", name="digits", where=digit).n_rows for digit in range(10)]
    assert sum(counts) == 1797
    assert counts[8] == 174


@pytest.mark.parametrize(
    ("kind", "params", "words"),
    [
        ("synthetic", {"name": "digits", "where": 11}, "its labels are 0, 1"),
        ("synthetic", {"name": "digits", "where": "x"}, "no label 'x'"),
        ("synthetic", {"name": "s_curve", "n_points": 50, "where": 1}, "2 label columns"),
        ("synthetic", {"name": "spiral_2d", "n_points": 50, "where": 77}, "no row has the label"),
    ],
)
def test_invalid_values_of_where_are_named(kind, params, words):
    with pytest.raises(InputError, match=words):
        open_source(kind, **params)


def test_where_without_labels_is_refused(labelled):
    with pytest.raises(InputError, match="found no labels"):
        open_source("npy", path=labelled[0], labels=None, columns=None, where=3)


def test_where_is_part_of_the_fingerprint():
    def config(**changes):
        source = {"kind": "synthetic", "name": "digits", **changes}
        return Config.model_validate({"input": source, "output": {"store": "runs/x.zarr"}})

    prints = [str(open_input(config(**changes)).fingerprint()) for changes in ({}, {"where": 1}, {"where": 2})]
    assert len(set(prints)) == 3
    assert all_rows(config(where=1))["where"] == 1


def test_only_the_last_chosen_rows_are_kept(labelled, monkeypatch):
    monkeypatch.setattr(row_filter, "_rows_by_key", {})
    monkeypatch.setattr(row_filter, "KEPT_CHOICES", 2)
    for where in (3, 5, 8, 3):
        open_source("npy", path=labelled[0], labels=labelled[1], columns=None, where=where)
        assert len(row_filter._rows_by_key) <= 2


def test_labels_of_the_same_name_in_another_folder_choose_other_rows(labelled, tmp_path):
    path, _, points, labels = labelled
    for folder, stored in (("a", labels), ("b", labels[::-1])):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "y.npy", stored)
        os.utime(tmp_path / folder / "y.npy", (1, 1))
        source = open_source("npy", path=path, labels=str(tmp_path / folder / "y.npy"), columns=None, where=5)
        np.testing.assert_array_equal(source.read(0, source.n_rows), points[stored == 5])


@pytest.fixture(params=["csv", "parquet"])
def table(tmp_path, request):
    """(open the table with a label and where, points, columns): p is 1 in some rows, q in others, k a number each."""
    rng = np.random.default_rng(83)
    points = rng.normal(size=(900, 2))
    columns = {"p": rng.integers(0, 2, 900), "q": rng.integers(0, 3, 900), "k": rng.integers(5, 12, 900)}
    frame = pd.DataFrame({"a": points[:, 0], "b": points[:, 1], **columns})
    path = str(tmp_path / f"t.{request.param}")
    frame.to_csv(path, index=False) if request.param == "csv" else frame.to_parquet(path)

    def opened(label, **keys):
        return open_source(request.param, path=path, columns=["a", "b"], label=label, **keys)

    return opened, points, columns


def test_another_label_column_chooses_other_rows(table):
    opened, points, columns = table
    for label in ("p", "q", "p"):
        source = opened(label, where=1)
        np.testing.assert_allclose(source.read(0, source.n_rows), points[columns[label] == 1], rtol=1e-12)
    assert opened("p").fingerprint() != opened("q").fingerprint()


def test_rows_are_chosen_by_one_column_and_labelled_by_another(table, monkeypatch):
    opened, points, columns = table
    for window in (7, 4096):
        monkeypatch.setattr(row_filter, "WINDOW_ROWS", window)
        source = opened("k", where=1, chosen_by="q")
        chosen = columns["q"] == 1
        np.testing.assert_allclose(source.read(0, source.n_rows), points[chosen], rtol=1e-12)
        names = np.array(source.labels.names, float)
        labels = np.concatenate([source.read_labels(low, high) for low, high in ((0, 100), (100, source.n_rows))])
        np.testing.assert_array_equal(names[labels.astype(int)], columns["k"][chosen])
    assert source.fingerprint() != opened("q", where=1).fingerprint()


def test_labels_of_another_length_are_refused(labelled, tmp_path):
    path, label_path, *_ = labelled
    np.save(tmp_path / "k.npy", np.arange(7))
    with pytest.raises(InputError, match="expected one label per row, 1000 in all, found 7"):
        open_source("npy", path=path, labels=str(tmp_path / "k.npy"), columns=None, where=5, chosen_by=label_path)

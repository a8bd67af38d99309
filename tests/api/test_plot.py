"""Pictures on matplotlib axes, columns of a run, and what a notebook shows of it."""

import base64
import re
from types import SimpleNamespace

import dask.array as da
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from lle import EmbeddingWarning, LocallyLinearEmbedding, embed, open_run, plot
from lle.api.plot import colors_of
from tests.support.points import swiss_roll

N = 300


@pytest.fixture(autouse=True)
def agg():
    mpl.use("agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 300 points with labels."""
    roll = swiss_roll(N, np.random.default_rng(11))
    store = str(tmp_path_factory.mktemp("runs") / "roll.zarr")
    embed(roll, labels=np.where(roll[:, 1] > 10, "high", "low"), store=store, n_components=3, quality={"sample": 50})
    return open_run(store)


def test_places_are_text_or_paths(tmp_path):
    store = tmp_path / "roll.zarr"
    embed(swiss_roll(N, np.random.default_rng(11)), store=store, method="pca", quality={"sample": 50})
    assert open_run(store).to_frame().shape == (N, 3)
    assert plot(store).get_xlabel() == "coordinate 1"


class TestPlot:
    def test_labels_of_the_run_are_its_colours(self, run):
        ax = plot(run)
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["high", "low"]
        [points] = ax.collections
        drawn = set(map(tuple, np.round(points.get_offsets(), 9).tolist()))
        assert drawn == set(map(tuple, np.round(run["embedding"].compute()[:, :2], 9).tolist()))

    def test_colour_is_a_column_of_the_run_or_an_array(self, run):
        for color in ("y3", pd.Series(run["embedding"].compute()[:, 2], name="y3")):
            figure, ax = plt.subplots()
            assert plot(run, color, ax) is ax
            assert figure.axes[1].get_ylabel() == "y3"
            np.testing.assert_allclose(
                np.sort(ax.collections[0].get_array()), np.sort(run["embedding"].compute()[:, 2])
            )

    def test_store_estimator_and_coordinates_are_drawn(self, run):
        Y = run["embedding"].compute()
        model = LocallyLinearEmbedding(method="pca", n_components=3, config={"quality": {"sample": 50}}).fit(Y)
        for drawn in (run.store, model, Y, Y[:, :1]):
            assert plot(drawn).get_xlabel() == "coordinate 1"
        _, ax = plt.subplots()
        assert model.plot(color=Y[:, 2], ax=ax) is ax
        assert len(ax.collections[0].get_array()) == len(Y)
        with pytest.raises(ValueError, match="only a run has columns"):
            model.plot("component")

    def test_estimator_with_a_kept_store_is_coloured_by_its_columns(self, tmp_path):
        rows = np.random.default_rng(4).normal(size=(60, 3))
        model = LocallyLinearEmbedding(
            method="pca", store=str(tmp_path / "run.zarr"), config={"quality": {"sample": 50}}
        )
        assert model.fit(rows, ["a", "b"] * 30).plot("component").get_xlabel() == "coordinate 1"
        assert [text.get_text() for text in model.plot().get_legend().get_texts()] == ["a", "b"]

    @pytest.mark.parametrize("color", [None, "value", "class"])
    def test_many_points_are_aggregated_on_pixels(self, color):
        Y = np.random.default_rng(3).normal(size=(100_001, 2))
        colors = {None: None, "value": Y[:, 0], "class": np.where(Y[:, 0] > 0, "right", "left")}
        figure, axes = plt.subplots(1, 2, layout="constrained")
        ax = plot(Y, colors[color], axes[0])
        assert len(ax.images) == 1
        assert not ax.collections
        assert type(figure.get_layout_engine()).__name__ == "ConstrainedLayoutEngine"
        assert not plot(Y[:1000], ax=axes[1]).images

    @pytest.mark.parametrize(
        ("drawn", "color", "message"),
        [
            ("run", "speed", "color: no column 'speed'; there are component, y1, y2, y3, label"),
            ("run", np.zeros(7), r"color: expected one value for each of the 300 rows, found shape \(7,\)"),
            (np.zeros(5), None, r"^coordinates: expected an array of shape \(rows, coordinates\), found shape \(5,\)"),
            ({"kind": "npy"}, None, "coordinates: expected rows of numbers, found a dict"),
            (LocallyLinearEmbedding(), None, "is not fitted yet"),
            (np.full((5, 2), np.nan), None, "found none that are finite in 5 rows"),
            (np.zeros((5, 2)), "label", "no column 'label'; only a run has columns; pass an array"),
        ],
    )
    def test_error_messages_state_what_is_expected(self, run, drawn, color, message):
        with pytest.raises(ValueError, match=message):
            plot(run if isinstance(drawn, str) else drawn, color)

    def test_a_figure_is_no_place_to_draw_on(self):
        with pytest.raises(ValueError, match="ax: expected Axes of matplotlib, found ndarray"):
            plot(np.zeros((5, 2)), ax=plt.subplots(1, 2)[1])


@pytest.mark.parametrize(
    ("values", "names", "stored"),
    [
        ([1.5, 2.0, np.nan], None, [1.5, 2.0, np.nan]),
        ([7, 3, 7], ["3", "7"], [1, 0, 1]),
        (["b", None, "a"], ["a", "b"], [1, -1, 0]),
        (["c10", "c9", "2"], ["2", "c9", "c10"], [2, 1, 0]),
        (pd.Categorical(["x", None, "y"]), ["x", "y"], [0, -1, 1]),
        (pd.Categorical(["low", "high", None], ["low", "mid", "high"], ordered=True), ["low", "high"], [0, 1, -1]),
        ([True, False, True], ["False", "True"], [1, 0, 1]),
        (pd.array([7, None, 3], "Int64"), ["3", "7"], [1, -1, 0]),
        (pd.array([True, None, False], "boolean"), ["False", "True"], [1, -1, 0]),
        (pd.Series([7, pd.NA, 3], dtype=object), ["3", "7"], [1, -1, 0]),
        (pd.array([1.5, None, 2], "Float64"), None, [1.5, np.nan, 2.0]),
        (pd.array(["b", None, "a"], "string"), ["a", "b"], [1, -1, 0]),
    ],
)
def test_colours_of_arrays(values, names, stored):
    source = colors_of(pd.Series(values), 3)
    assert source.names == names
    np.testing.assert_array_equal(source.values, stored)


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_dates_are_a_scale_of_years(zone):
    days = pd.date_range("2024-01-01", periods=40, tz=zone).to_series(index=range(40), name="signup")
    days[3] = pd.NaT
    source = colors_of(days, 40)
    assert (source.names, source.label) == (None, "signup (year)")
    assert source.values[[0, 39]] == pytest.approx([2024, 2024 + 39 / 365.2425], abs=2e-3)
    assert np.flatnonzero(np.isnan(source.values)).tolist() == [3]


def test_columns_and_labels_of_a_data_frame_keep_their_names(tmp_path):
    roll = pd.DataFrame(swiss_roll(N, np.random.default_rng(2)), columns=["länge", "y1", "höhe"])
    roll.loc[:20, "höhe"] = np.nan
    labels, store = pd.Series(np.where(roll["länge"] > 0, "links", "rechts"), name="seite"), f"{tmp_path}/roll.zarr"
    with pytest.warns(EmbeddingWarning, match="höhe"):
        embed(roll, labels=labels, method="pca", store=store, preprocess={"invalid": "drop"})
    run = open_run(store)
    assert (run.to_frame()["seite"].astype(str) == labels).all()
    assert plot(run).get_legend().get_title().get_text() == "seite"
    drawn = plot(run, "länge")
    assert drawn.figure.axes[1].get_ylabel() == "länge"
    with pytest.raises(ValueError, match="'x'; there are component, y1, y2, seite, länge, y1, höhe; or pass"):
        plot(run, "x")


@pytest.mark.parametrize("name", ["placed", "trustworthiness", "reconstruction_error"])
def test_a_label_with_the_name_of_a_result_is_kept(tmp_path, name):
    labels, store = pd.Series(["a", "b"] * 30, name=name), f"{tmp_path}/roll.zarr"
    embed(swiss_roll(60, np.random.default_rng(2)), labels=labels, method="pca", store=store)
    assert open_run(store).columns()[f"input_{name}"].tolist() == labels.tolist()


def test_masked_colours_are_unknown():
    source = colors_of(np.ma.array([1.5, 9.0, 2.0], mask=[False, True, False]), 3)
    np.testing.assert_array_equal(source.values, [1.5, np.nan, 2.0])
    assert colors_of(np.ma.array([7, 3, 7], mask=[False, False, True]), 3).names == ["3", "7"]
    assert colors_of(np.ma.array([7, 3, 7]), 3).names == ["3", "7"]


def test_labels_of_dask_have_no_name():
    blocks = da.ma.masked_greater(da.from_array(np.array([1.5, 9.0, 2.0]), chunks=2), 5.0)
    source = colors_of(blocks, 3)
    assert source.label == "color"
    np.testing.assert_array_equal(source.values, [1.5, np.nan, 2.0])


def test_model_of_scikit_learn_is_drawn():
    model = SimpleNamespace(embedding_=swiss_roll(40, np.random.default_rng(2))[:, :2])
    assert plot(model).get_xlabel() == "coordinate 1"


def test_many_integers_are_a_scale():
    assert colors_of(np.arange(21), 21).names is None


class TestTables:
    def test_frame_has_a_line_for_each_input_row(self, run):
        frame = run.to_frame()
        assert list(frame.columns)[:5] == ["component", "y1", "y2", "y3", "label"]
        np.testing.assert_array_equal(frame[["y1", "y2", "y3"]], run["embedding"])
        assert frame["label"].dtype == "category"
        np.testing.assert_array_equal(frame["label"] == "low", run["label"].compute()[:, 0] == 1)


class TestDisplay:
    def test_text_is_some_lines(self, run):
        lines = repr(run).splitlines()
        assert 4 <= len(lines) <= 8
        assert max(map(len, lines)) <= 130
        assert "trustworthiness" in repr(run)
        assert "embedding 300x3" in repr(run)

    def test_notebook_shows_tiles_and_a_picture(self, run):
        html = run._repr_html_()
        value = f"{run.metrics['trustworthiness']['value']:.3f}"
        assert re.search(rf"Trustworthiness<br><b>{value}</b>", html)
        [data] = re.findall(r"data:image/png;base64,([^\"]+)", html)
        assert base64.b64decode(data).startswith(b"\x89PNG")

    def test_notebook_shows_the_verdict_in_words_of_python(self, run):
        low = {**run.metrics, "trustworthiness": {"value": 0.8}, "intrinsic_dimension": {"value": 4.0}, "n_features": 9}
        html = type(run)(run.store, run.config, run.versions, low, {})._repr_html_()
        assert "set method=&#x27;pca&#x27; and n_components=4." in html
        html = type(run)(run.store, run.config, run.versions, {**low, "intrinsic_dimension": None}, {})._repr_html_()
        assert "(trustworthiness 0.800; bound: 0.9)" in html
        assert "lle suggest" not in html

    def test_run_without_embedding_has_no_picture(self, run):
        bare = type(run)(run.store, run.config, run.versions, None, {})
        assert "<img" not in bare._repr_html_()
        assert "no report yet" in repr(bare)


@pytest.mark.filterwarnings("ignore::lle.api.embed.EmbeddingWarning")
def test_notebook_progress_updates_one_output(monkeypatch):
    outputs, updates = [], []

    class Handle:
        def update(self, content, raw):
            updates.append(content)

    class Display:
        @staticmethod
        def display(content, raw, display_id):
            outputs.append(content)
            return Handle()

    monkeypatch.setitem(__import__("sys").modules, "IPython.display", Display)
    monkeypatch.setattr("lle.api.embed.in_notebook", lambda: True)
    LocallyLinearEmbedding(config={"quality": {"sample": 50}}, verbose=True).fit(
        swiss_roll(N, np.random.default_rng(5))
    )
    assert len(outputs) == 1
    assert "done" in updates[-1]["text/plain"]
    fractions = [float(re.search(r'value="([\d.]+)"', content["text/html"])[1]) for content in updates]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0

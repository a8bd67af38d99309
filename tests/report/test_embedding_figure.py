"""Pictures: the rows that are drawn, their colours, and the note on points outside the view."""

import io
import itertools
import re
import struct
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from matplotlib import colormaps, rc_context
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from lle.config.load import resolved
from lle.report import charts, component_layout, embedding_figure, figure_style, panel
from lle.report.column import Column
from lle.report.component_layout import SMALLEST_SCALE, shelves
from lle.report.embedding_figure import draw_embedding
from lle.report.figure_style import COLOR_MAP, INK, MISSING, OKABE_ITO, class_colors, to_pair, to_png
from lle.report.point_colors import color_key, paint_points, robust_range
from lle.stages import report_columns
from tests.support.seeds import seeds


def drawn(n: int) -> npt.NDArray[np.bool_]:
    return np.ones(n, bool)


PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png_size(png: bytes) -> tuple[int, int]:
    assert png.startswith(PNG_SIGNATURE)
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def one_component(n: int) -> npt.NDArray[np.int32]:
    return np.zeros(n, dtype=np.int32)


def column(kind: str, n: int) -> Column | None:
    values = np.arange(n, dtype=np.float64)
    match kind:
        case "none":
            return None
        case "continuous":
            return Column("color", "angle (rad)", values)
        case "classes":
            return Column("color", "animal", np.arange(n) % 3, ("_ant", "$bee$", "cow"))
        case "partly unknown":
            return Column("color", "angle (rad)", np.where(values < n // 2, np.nan, values))
        case _:
            return Column("color", "nothing known", np.full(n, np.nan))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure drawn in the test, rendered as usual."""
    drawn: list[Figure] = []
    monkeypatch.setattr(embedding_figure, "to_png", lambda figure: drawn.append(figure) or to_png(figure))
    monkeypatch.setattr(charts, "to_pair", lambda figure: drawn.append(figure) or to_pair(figure))
    return drawn


def test_pictures_do_not_depend_on_the_style_of_the_user() -> None:
    embedding = np.random.default_rng(8).normal(size=(50, 2))
    arguments = embedding, one_component(50), column("none", 50), "title"
    expected = draw_embedding(*arguments)
    with rc_context({"savefig.bbox": "tight", "savefig.transparent": True}):
        assert draw_embedding(*arguments) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "continuous", "classes", "partly unknown", "all unknown"])
@pytest.mark.parametrize("n_coordinates", [1, pytest.param(2, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), 60])
def test_every_shape_and_color_gives_a_png(n: int, n_coordinates: int, kind: str) -> None:
    embedding = np.random.default_rng(n + 7).normal(size=(n, n_coordinates))
    width, height = png_size(draw_embedding(embedding, one_component(n), column(kind, n), "title with a $"))
    assert (width, height) == ((1950, 630) if n_coordinates > 2 else (1110, 840))


def test_picture_without_embedded_points_has_a_note(figures: list[Figure]) -> None:
    png = draw_embedding(np.full((4, 2), np.nan), one_component(4) - 1, column("continuous", 4), "empty")
    png_size(png)
    assert [text.get_text() for text in figures[0].axes[0].texts] == ["no point was embedded"]


def test_picture_is_the_same_each_time() -> None:
    embedding = np.random.default_rng(71).normal(size=(300, 2))
    draw = [draw_embedding(embedding, one_component(300), column("classes", 300), "t") for _ in range(2)]
    moved = draw_embedding(embedding[::-1] * [1.0, -1.0], one_component(300), column("classes", 300), "t")
    assert draw[0] == draw[1]
    assert draw[0] != moved


@pytest.mark.filterwarnings("error")
def test_characters_that_the_font_lacks_give_no_warning() -> None:
    source = Column("color", "町", np.arange(2), ("北", "南"))
    png_size(draw_embedding(np.eye(2), one_component(2), source, "t"))


def test_other_scripts_take_the_fonts_of_this_machine(figures: list[Figure], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_style, "get_font_names", lambda: ["Noto Sans CJK SC", "Comic", "DejaVu Sans"])
    figure_style.font_families.cache_clear()
    assert figure_style.font_families() == ["DejaVu Sans", "Noto Sans CJK SC"]
    monkeypatch.setattr(figure_style, "font_families", lambda: ["DejaVu Sans", "DejaVu Serif"])
    draw_embedding(np.eye(2), one_component(2), Column("color", "place", np.arange(2), ("北", "b")), "t")
    texts = {text.get_text(): text.get_fontfamily() for text in figures[-1].findobj(Text)}
    assert texts["北"] == ["DejaVu Sans", "DejaVu Serif"]
    assert texts["b"] != texts["北"]


def test_dropped_rows_are_not_shown(figures: list[Figure]) -> None:
    embedding = np.random.default_rng(72).normal(size=(50, 2))
    component = one_component(50)
    embedding[:7], component[7:10] = np.nan, -1
    draw_embedding(embedding, component, None, "t")
    drawn_points = np.asarray(figures[0].axes[0].collections[0].get_offsets())
    np.testing.assert_allclose(np.sort(drawn_points[:, 0]), np.sort(embedding[10:, 0]))
    assert figures[0].axes[0].get_title(loc="left") == "40 rows"


@pytest.mark.parametrize("seed", range(3))
def test_numbers_below_the_panels_do_not_overlap(figures: list[Figure], seed: int) -> None:
    """Principal components of counts have thousands of units."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1, 1, (400, 3)) * rng.uniform(10_000, 30_000, 3)
    draw_embedding(points, np.zeros(400, np.int32), None, "counts")
    for ax in figures[0].axes:
        extents = [text.get_window_extent() for text in ax.get_xticklabels() if text.get_text()]
        assert len(extents) >= 3
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(extents))


def test_coordinates_of_the_three_panels(figures: list[Figure]) -> None:
    draw_embedding(np.random.default_rng(73).normal(size=(50, 4)), one_component(50), None, "t")
    labels = [(ax.get_xlabel()[-1], ax.get_ylabel()[-1]) for ax in figures[0].axes]
    assert labels == [("1", "2"), ("1", "3"), ("2", "3")]
    assert figures[0].get_supxlabel() == "the first 3 of 4 coordinates"


class TestComponentsSideBySide:
    """Components in one picture: each moved and scaled as a whole, the largest first."""

    sizes = (3, 40, 10, 30, 5, 20)

    def draw(self, n_coordinates: int = 2, kind: str = "none") -> tuple[np.ndarray, np.ndarray]:
        component = np.repeat(np.arange(6, dtype=np.int32), self.sizes)
        embedding = np.random.default_rng(74).normal(size=(108, n_coordinates)) * (1 + component[:, None])
        draw_embedding(embedding, component, column(kind, 108), "t")
        return embedding, component

    @pytest.mark.parametrize("n_coordinates", [2, 3])
    def test_components_are_moved_as_a_whole_without_overlap(self, figures: list[Figure], n_coordinates: int) -> None:
        embedding, component = self.draw(n_coordinates, "continuous")  # the value of a row is its number
        pairs = [(0, 1)] if n_coordinates == 2 else [(0, 1), (0, 2), (1, 2)]
        for ax, pair in zip(figures[0].axes[: len(pairs)], pairs, strict=True):
            points = ax.collections[0]
            rows = np.asarray(points.get_array()).astype(int)
            drawn_points = np.asarray(points.get_offsets())[np.argsort(rows)]
            assert len(drawn_points) == 108
            boxes = []
            for label in range(6):
                part = component == label
                scale = np.sqrt(max(self.sizes[label] / 40, SMALLEST_SCALE**2))
                shift = drawn_points[part] - scale * embedding[part][:, pair]
                np.testing.assert_allclose(shift - shift[0], 0, atol=1e-9)
                boxes.append((drawn_points[part].min(axis=0), drawn_points[part].max(axis=0)))
            for i, (low, high) in enumerate(boxes):
                assert not any(((low < b) & (a < high)).all() for a, b in boxes[:i])
            (x_low, x_high), (y_low, y_high) = ax.get_xlim(), ax.get_ylim()
            assert (drawn_points > [x_low, y_low]).all()
            assert (drawn_points < [x_high, y_high]).all()

    def test_high_component_beside_a_small_one_fills_the_axes(self, figures: list[Figure]) -> None:
        component = np.repeat(np.array([0, 1], np.int32), (1000, 10))
        draw_embedding(np.random.default_rng(8).normal(size=(1010, 2)) * (1, 9), component, None, "t")
        [ax] = figures[0].axes
        ax.apply_aspect()
        assert ax.get_position().width > 0.7

    def test_labels_name_component_and_number_of_points(self, figures: list[Figure]) -> None:
        self.draw()
        texts = [text.get_text() for text in figures[0].axes[0].texts]
        assert texts == ["1: 40", "3: 30", "5: 20", "2: 10", "4: 5", "0: 3"]
        assert figures[0].axes[0].get_title(loc="left") == "108 rows in 6 components, side by side"

    def test_small_components_are_in_one_strip_below_and_labels_do_not_overlap(self, figures: list[Figure]) -> None:
        sizes = [4000, *([60] * 30)]
        component = np.repeat(np.arange(31, dtype=np.int32), sizes)
        draw_embedding(np.random.default_rng(7).normal(size=(5800, 2)), component, None, "t")
        [ax] = figures[0].axes
        heights = np.sort(np.asarray(ax.collections[0].get_offsets())[:, 1])
        n_drawn = round((len(heights) - 4000) / 60)
        largest = np.ptp(heights[-3900:])
        assert np.ptp(heights[: 60 * n_drawn - 60]) < 0.25 * largest
        assert ax.get_title(loc="right").endswith(
            f"{30 - n_drawn} smaller components ({60 * (30 - n_drawn):,} rows) not drawn"
        )
        boxes = [text.get_window_extent() for text in ax.texts]
        assert len(boxes) > 2
        assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])

    def test_labels_of_small_components_of_one_coordinate_do_not_overlap(self, figures: list[Figure]) -> None:
        component = np.repeat(np.arange(19, dtype=np.int32), 100)
        draw_embedding(np.random.default_rng(1).uniform(size=(1900, 1)), component, None, "t")
        boxes = [text.get_window_extent() for text in figures[0].axes[0].texts]
        assert 3 < len(boxes) < 19
        assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])

    def test_only_components_that_fit_are_shown(self, figures: list[Figure], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(embedding_figure, "MAX_EMBEDDED_COMPONENTS", 4)
        self.draw()
        assert figures[0].get_supxlabel() == "the 4 largest of 6 components: 100 of 108 rows"

    def test_classes_of_components_that_do_not_fit_are_not_in_the_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(embedding_figure, "MAX_EMBEDDED_COMPONENTS", 2)
        component = np.array([0, 0, 0, 1, 1, 2], np.int32)
        color = Column("color", "l", np.array([0, 0, 1, 1, 1, 2]), ("a", "b", "c"))
        assert embedding_figure.content_of(np.arange(12.0).reshape(6, 2), component, color).paint.names == ("a", "b")

    @pytest.mark.parametrize("kind", ["none", "continuous", "classes"])
    def test_components_of_one_coordinate_share_the_other_axis(self, figures: list[Figure], kind: str) -> None:
        embedding, _ = self.draw(1, kind)
        ax = figures[0].axes[0]
        if kind == "none":
            assert sum(patch.get_height() for patch in ax.patches) == 108
        else:
            heights = np.asarray(ax.collections[0].get_offsets())[:, 1]
            assert (heights.max() > 100) == (kind == "continuous")
        assert ax.get_xlim()[1] - ax.get_xlim()[0] > np.ptp(embedding)

    def test_spikes_do_not_overlap_another_component(self, figures: list[Figure]) -> None:
        embedding = np.random.default_rng(3).uniform(size=(9000, 2))
        embedding[:4] = 80.0
        draw_embedding(embedding, np.repeat(np.arange(2, dtype=np.int32), [6000, 3000]), None, "t")
        ax = figures[0].axes[0]
        n_drawn = len(ax.collections[0].get_offsets())
        assert ax.get_title(loc="right") == f"{9000 - n_drawn} outside the view"
        assert 4 <= 9000 - n_drawn < 60
        assert ax.get_xlim()[1] < 3

    @pytest.mark.parametrize("seed", seeds(3, 11, 29))
    def test_components_are_arranged_in_shelves(self, seed: int) -> None:
        sizes = np.random.default_rng(seed).uniform(0.2, 3.0, (30, 2))
        corners = shelves(sizes, 1.5)
        for i in range(30):
            for j in range(i):
                apart = (corners[i] >= corners[j] + sizes[j] - 1e-9) | (corners[j] >= corners[i] + sizes[i] - 1e-9)
                assert apart.any()
        extent = (corners + sizes).max(axis=0)
        assert corners.min() > -1e-9
        assert sizes.prod(axis=1).sum() > 0.35 * extent.prod()
        assert 0.9 < extent[0] / extent[1] < 2.5

    def test_few_widths_are_tried_for_many_components(self, monkeypatch):
        fill = Mock(wraps=component_layout._fill)
        monkeypatch.setattr(component_layout, "_fill", fill)
        width, height = shelves(np.ones((3000, 2)), 1.6).max(axis=0) + 1
        assert width / height == pytest.approx(1.6, rel=0.05)
        assert fill.call_count < 300


class TestView:
    """Axis limits that ignore a few spikes, and the note on points outside."""

    @pytest.mark.parametrize("seed", seeds(3, 11, 29))
    def test_robust_range(self, seed: int) -> None:
        values = np.random.default_rng(seed).uniform(-1.0, 1.0, 10_000)
        assert robust_range(values) == (values.min(), values.max())
        values[:5] = 40.0
        low, high = robust_range(values)
        assert -1.0 <= low < -0.99
        assert 0.99 < high <= 1.0

    def test_all_points_of_a_clump_with_one_spike_are_shown(self) -> None:
        values = np.zeros(5000)
        values[17] = 3.0
        assert robust_range(values) == (0.0, 3.0)

    @pytest.mark.parametrize("scatter_points", [100_000, 1000])
    @pytest.mark.slow
    def test_note_counts_the_spikes(
        self, figures: list[Figure], monkeypatch: pytest.MonkeyPatch, scatter_points: int
    ) -> None:
        monkeypatch.setattr(embedding_figure, "SCATTER_POINTS", scatter_points)
        embedding = np.random.default_rng(75).uniform(-1.0, 1.0, (20_000, 2))
        embedding[:6, 0] = 50.0
        embedding[6:9, 1] = -50.0
        draw_embedding(embedding, one_component(20_000), None, "t")
        ax = figures[0].axes[0]
        # A view cut at a percentile also leaves out a few of the points just beyond it.
        low, high = np.transpose([ax.get_xlim(), ax.get_ylim()])
        expected = int(((embedding < low) | (embedding > high)).any(axis=1).sum())
        assert ax.get_title(loc="right") == f"{expected} outside the view"
        assert 9 <= expected < 100
        assert max(map(abs, (*ax.get_xlim(), *ax.get_ylim()))) < 1.2

    def test_no_note_without_spikes(self, figures: list[Figure]) -> None:
        draw_embedding(np.random.default_rng(76).uniform(size=(500, 2)), one_component(500), None, "t")
        assert figures[0].axes[0].get_title(loc="right") == ""


class TestColor:
    """Classes get a legend, numbers a colour bar."""

    def test_classes_by_name(self) -> None:
        paint = paint_points(Column("color", "l", np.array([2, 0, 2, 3]), ("a", "b", "c", "d")), drawn(4))
        assert paint.names == ("a", "c", "d")  # without those that do not occur
        np.testing.assert_array_equal(paint.codes, [1, 0, 1, 2])
        assert len(set(paint.colors)) == 3

    def test_classes_without_a_drawn_point_are_not_in_the_legend(self) -> None:
        column = Column("color", "l", np.array([2, 0, -1, 3]), ("a", "b", "c", "d"))
        paint = paint_points(column, np.array([True, False, False, True]))
        assert paint.names == ("c", "d")
        assert paint.codes is not None
        assert paint.codes[[0, 3]].tolist() == [0, 1]

    def test_unknown_class_is_gray_and_last(self) -> None:
        paint = paint_points(Column("color", "l", np.array([-1, 2, 0]), ("1", "", "7")), drawn(3))
        assert paint.names == ("1", "7", "unknown")
        np.testing.assert_array_equal(paint.codes, [2, 1, 0])
        assert (paint.colors[2], paint.n_named) == (MISSING, 2)

    @pytest.mark.parametrize("n_classes", [2, 8, 9, 20])
    def test_palette_has_a_color_for_each_class(self, n_classes: int) -> None:
        paint = paint_points(Column("color", "l", np.arange(n_classes), "abcdefghijklmnopqrst"), drawn(n_classes))
        assert len(paint.colors) == len(set(paint.colors)) == n_classes
        assert [color.upper() for color in paint.colors[:8]] == list(OKABE_ITO[:n_classes])

    def test_the_smallest_of_too_many_classes_share_a_colour(self) -> None:
        codes = np.append(np.repeat(np.arange(21), np.where(np.arange(21) % 16 == 3, 1, 2)), -1)
        column = Column("color", "l", codes, "abcdefghijklmnopqrstu")
        paint = paint_points(column, drawn(len(codes)))
        assert paint.names == (*"abcefghijklmnopqrsu", "2 other classes")  # d and t have one point each
        assert (paint.colors[-1], paint.n_named) == (MISSING, 19)
        assert np.count_nonzero(paint.codes == 19) == 3
        assert paint.names[:-1] == tuple(name for name, _ in color_key(column, len(codes)).entries[:-1])

    @pytest.mark.parametrize("n_coordinates", [1, 2])
    def test_key_of_too_many_classes_has_the_largest(self, figures: list[Figure], n_coordinates: int) -> None:
        embedding = np.random.default_rng(2).normal(size=(400, n_coordinates))
        color = Column("color", "kind", np.arange(400) % 60, tuple(f"class {i}" for i in range(60)))
        draw_embedding(embedding, one_component(400), color, "")
        [figure] = figures
        texts = figure.legends[0].get_texts() if n_coordinates == 2 else figure.axes[0].get_yticklabels()
        assert [text.get_text() for text in texts] == [*(f"class {i}" for i in range(19)), "41 other classes"]
        assert "41 other classes" not in [text.get_text() for text in figure.axes[0].texts]

    def test_legend_shows_names_as_they_are(self, figures: list[Figure]) -> None:
        draw_embedding(np.eye(6)[:, :2], one_component(6), column("classes", 6), "t")
        (legend,) = figures[0].legends
        assert [text.get_text().strip() for text in legend.get_texts()] == ["_ant", r"\$bee\$", "cow"]
        assert legend.get_title().get_text() == "animal"
        assert len(figures[0].axes) == 1

    def test_points_have_the_color_of_their_class(self, figures: list[Figure]) -> None:
        source = column("classes", 30)
        embedding = np.random.default_rng(77).normal(size=(30, 2))
        draw_embedding(embedding, one_component(30), source, "t")
        points = figures[0].axes[0].collections[0]
        row = [int(np.argmin(abs(embedding[:, 0] - x))) for x in np.asarray(points.get_offsets())[:, 0]]
        expected = to_rgba_array(class_colors(3))[np.array(row) % 3, :3]
        np.testing.assert_allclose(points.get_facecolors()[:, :3], expected)

    def test_color_bar_ignores_spikes_of_the_value(self, figures: list[Figure]) -> None:
        values = np.linspace(0.0, 1.0, 5000)
        values[3] = 1e6
        source = Column("color", "speed (m/s)", values)
        draw_embedding(np.random.default_rng(78).normal(size=(5000, 2)), one_component(5000), source, "t")
        bar = figures[0].axes[1]
        assert bar.get_ylabel() == "speed (m/s)"
        assert bar.get_ylim()[1] < 1.1


class TestAggregation:
    """Above SCATTER_POINTS: a raster on the same axes."""

    @pytest.fixture(autouse=True)
    def _always_aggregate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(embedding_figure, "SCATTER_POINTS", 100)

    def draw(self, figures: list[Figure], color: Column | None) -> npt.NDArray[np.float64]:
        """Points on the square (0, 1)^2; gives the raster, lowest row first."""
        embedding = np.random.default_rng(79).uniform(size=(40_000, 2))
        png_size(draw_embedding(embedding, one_component(40_000), color, "t"))
        ax = figures[0].axes[0]
        (image,) = ax.images
        assert image.get_extent() == [*ax.get_xlim(), *ax.get_ylim()]
        raster = np.ma.filled(image.get_array(), np.nan)
        box = ax.get_window_extent()
        assert raster.shape[:2] == (round(box.height), round(box.width))
        return raster

    def test_mean_of_the_value(self, figures: list[Figure]) -> None:
        in_left_half = np.random.default_rng(79).uniform(size=(40_000, 2))[:, 0] < 0.5
        raster = self.draw(figures, Column("color", "v", np.where(in_left_half, -2.0, 4.0)))
        third = raster.shape[1] // 3
        np.testing.assert_allclose(raster[:, :third][np.isfinite(raster[:, :third])], -2.0)
        np.testing.assert_allclose(raster[:, -third:][np.isfinite(raster[:, -third:])], 4.0)
        assert -2.0 < np.nanmean(raster) < 4.0
        assert np.isnan(raster[0, 0])

    def test_vertical_axis_points_up(self) -> None:
        embedding = np.random.default_rng(79).uniform(size=(40_000, 2))
        source = Column("color", "v", np.where(embedding[:, 1] < 0.5, -2.0, 4.0))
        pixels = imread(io.BytesIO(draw_embedding(embedding, one_component(40_000), source, "t")), format="png")
        dark, bright = colormaps[COLOR_MAP]([0.0, 1.0])[:, :3]
        for part, color in ((pixels[200:300, 400:600, :3], bright), (pixels[550:650, 400:600, :3], dark)):
            painted = part[part.min(axis=2) < 0.9]
            assert len(painted) > 1000
            np.testing.assert_allclose(painted, np.broadcast_to(color, painted.shape), atol=0.01)

    def test_class_colors(self, figures: list[Figure]) -> None:
        low = np.random.default_rng(79).uniform(size=(40_000, 2))[:, 1] < 0.5
        raster = self.draw(figures, Column("color", "side", low, ("up", "down")))
        colors = np.round(255 * to_rgba_array(OKABE_ITO[:2]))[:, :3]
        third = len(raster) // 3
        for part, color in ((raster[:third], colors[1]), (raster[-third:], colors[0])):
            painted = part[part[..., 3] > 0]
            assert len(painted) > 10_000
            np.testing.assert_allclose(painted[:, :3], np.broadcast_to(color, (len(painted), 3)), atol=1.0)

    def test_counts_without_a_color(self, figures: list[Figure]) -> None:
        raster = self.draw(figures, None)
        # Each point is drawn on 3 x 3 pixels.
        assert np.nansum(raster) == 9 * 40_000
        assert np.nanmin(raster) == 1.0
        assert figures[0].axes[1].get_ylabel() == "points in 3 x 3 pixels"
        assert figures[0].axes[1].get_ylim()[1] == pytest.approx(max(10.0, np.nanmax(raster)))

    def test_all_parts_of_many_points_and_no_missing_value(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(panel, "POINTS_AT_ONCE", 300)
        rng = np.random.default_rng(81)
        points, values = rng.uniform(1.5, 8.5, size=(1000, 2)), rng.normal(size=1000)
        values[::9] = np.nan
        shown, shape = panel.Panel(Figure().subplots(), np.arange(1000), *points.T, (0.0, 10.0), (0.0, 10.0)), (10, 10)
        near = [
            [(np.abs(np.floor(points) - (column, row)).max(axis=1) <= 1) for column in range(10)] for row in range(10)
        ]
        counts = panel.count_points(shown, shape)
        np.testing.assert_array_equal(counts, np.sum(near, axis=2))
        means = panel.mean_values(shown, shape, values)
        np.testing.assert_allclose(means[5, 3], np.nanmean(values[near[5][3]]))
        assert np.isnan(panel.mean_values(shown, shape, np.full(1000, np.nan))).all()

    def test_classes_at_one_pixel_are_mixed_and_few_points_are_fainter(self) -> None:
        points, codes = np.array([[1.5, 1.5]] * 4 + [[6.5, 6.5]]), np.array([0, 0, 0, 1, 1])
        shown = panel.Panel(Figure().subplots(), np.arange(5), *points.T, (0.0, 10.0), (0.0, 10.0))
        picture = panel.shade_classes(shown, (10, 10), codes, ["#ff0000", "#0000ff"])
        np.testing.assert_array_equal(picture[1, 1], [191, 0, 64, 255])
        np.testing.assert_array_equal(picture[6, 6], [0, 0, 255, panel.FAINTEST])
        assert (picture[..., 3] > 0).sum() == 2 * 9
        assert not panel.shade_classes(shown.take([]), (10, 10), codes[:0], ["#ff0000"]).any()

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["none", "continuous", "classes"])
    @pytest.mark.parametrize("n_coordinates", [1, 3])
    def test_raster_of_other_shapes(self, n_coordinates: int, kind: str) -> None:
        embedding = np.random.default_rng(80).normal(size=(500, n_coordinates))
        component = one_component(500)
        component[400:] = 1
        png_size(draw_embedding(embedding, component, column(kind, 500), "t"))


def test_small_picture_imports_neither_pyplot_nor_ndimage() -> None:
    program = (
        "import sys, numpy as np; from lle.report.embedding_figure import draw_embedding;"
        "draw_embedding(np.eye(5)[:, :2], np.zeros(5, np.int32), None, 't');"
        "assert not {'matplotlib.pyplot', 'scipy.ndimage'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_single_coordinate_is_drawn_against_its_class(figures: list[Figure]) -> None:
    draw_embedding(np.arange(9.0)[:, None], one_component(9), column("classes", 9), "t")
    ax = figures[0].axes[0]
    assert [label.get_text().strip() for label in ax.get_yticklabels()] == ["_ant", r"\$bee\$", "cow"]
    x, y = np.asarray(ax.collections[0].get_offsets()).T
    np.testing.assert_array_equal(np.round(y), np.round(x) % 3)


class TestCharts:
    def test_spectrum_has_a_line_for_each_component(self, figures: list[Figure]) -> None:
        eigenvalues = np.array([[1e-9, 3e-9, 4e-9], [2e-7, np.nan, -1e-20]])
        png_size(charts.draw_spectrum(eigenvalues, np.full((2, 3), 1e-9), 1e-16, "eigenvalue of M").light)
        ax = figures[0].axes[0]
        assert ax.get_yscale() == "log"
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), eigenvalues[0])
        np.testing.assert_array_equal(ax.lines[1].get_xdata(), [1])
        assert ax.get_legend_handles_labels()[1] == ["component 0", "component 1", "rounding errors"]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([2.1e-11, 5.3e-10, 4e-7], "1e-09"),
            ([2.2e-9, 7.5e-9], "5e-09"),
            ([2.26e-9, 2.28e-9], "2.27e-09"),
            ([0.3, 40.0], "10"),
        ],
    )
    def test_log_axis_has_labels_as_text(self, values: list[float], expected: str, figures: list[Figure]) -> None:
        charts.draw_spectrum(np.array([values]), None, None, "variance")
        (ax,) = figures[0].axes
        low, high = ax.get_ylim()
        shown = [
            text.get_text() for at, text in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True) if low <= at <= high
        ]
        assert expected in [text.replace("\N{MINUS SIGN}", "-") for text in shown]
        assert 2 <= len(shown) <= 9

    def test_large_residuals_become_error_bars(self, figures: list[Figure]) -> None:
        eigenvalues = np.array([[1e-9, 2e-9]])
        charts.draw_spectrum(eigenvalues, np.array([[0.5, 1e-8]]), None, "variance")
        (bars,) = figures[0].axes[0].collections
        np.testing.assert_allclose(bars.get_segments(), [[[1.0, 0.5e-9], [1.0, 1.5e-9]]])

    @pytest.mark.parametrize("eigenvalues", [np.full((1, 2), np.nan), np.zeros((3, 2)), np.empty((0, 2))])
    def test_spectrum_without_eigenvalues(self, eigenvalues: npt.NDArray[np.float64]) -> None:
        png_size(charts.draw_spectrum(eigenvalues, None, None, "variance").light)

    def test_many_components(self, figures: list[Figure]) -> None:
        charts.draw_spectrum(np.full((12, 3), 1e-9), None, None, "variance")
        assert figures[0].axes[0].get_title(loc="right") == "10 of 12 components"
        assert len(figures[0].axes[0].lines) == 10


def test_picture_is_not_blank() -> None:
    embedding = np.random.default_rng(81).normal(size=(400, 2))
    pixels = imread(io.BytesIO(draw_embedding(embedding, one_component(400), None, "t")), format="png")
    ink = (pixels[200:700, 200:900, :3].min(axis=2) < 0.8).mean()
    assert 0.01 < ink < 0.5


@pytest.mark.parametrize(
    ("values", "section", "title"),
    [(["ant", "bee"], {"label": "species"}, "species"), ([1.5, 2.5], {"label": "wing_cm"}, "wing_cm")],
)
def test_legend_has_the_name_of_the_label_column(tmp_path, run_stages, make_config, figures, values, section, title):
    frame = pd.DataFrame({"x": np.arange(60.0), "y": np.arange(60.0) ** 2, section["label"]: values * 30})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    config = make_config(tmp_path, np.zeros(1), input={"kind": "csv", "path": str(tmp_path / "rows.csv"), **section})
    run = run_stages(config, "ingest")
    run.store.create_group({"config": resolved(config)})
    color = report_columns.color_column(run.store, np.arange(run.store.array("label").shape[0]))
    draw_embedding(np.random.default_rng(3).normal(size=(60, 2)), one_component(60), color, "t")
    [figure] = figures
    legends = [legend.get_title().get_text() for legend in figure.legends]
    assert [*legends, *(axes.get_ylabel() for axes in figure.axes[1:])] == [title]


@pytest.mark.parametrize("n_years", [20, 21])
def test_whole_numbers_are_classes_only_if_each_can_have_a_colour(tmp_path, run_stages, make_config, n_years):
    years = 1990 + np.arange(60) % n_years
    texts = ["", *years[1:].astype(str)]
    pd.DataFrame({"x": np.arange(60.0), "y": np.arange(60.0) ** 2, "year": texts}).to_csv(tmp_path / "rows.csv")
    section = {"kind": "csv", "path": str(tmp_path / "rows.csv"), "label": "year"}
    run = run_stages(make_config(tmp_path, np.zeros(1), input=section), "ingest")
    run.store.create_group({"config": resolved(make_config(tmp_path, np.zeros(1), input=section))})
    color = report_columns.color_column(run.store, np.arange(60))
    if n_years == 20:
        assert color.names == [str(year) for year in range(1990, 2010)]
        np.testing.assert_array_equal(color.values, [-1, *years[1:] - 1990])
    else:
        assert color.names is None
        np.testing.assert_array_equal(color.values, [np.nan, *years[1:]])


@pytest.mark.parametrize(
    ("section", "kind", "name"),
    [
        ({"kind": "synthetic", "name": "s_curve"}, "continuous", "true coordinate"),
        ({"kind": "synthetic", "name": "digits"}, "categorical", "label"),
        ({"kind": "npy", "path": "x.npy", "labels": "y.npy"}, "continuous", "label"),
        ({"kind": "idx", "path": "x", "labels": "y"}, "categorical", "label"),
        ({"kind": "zarr", "url": "x", "labels": "stage"}, "continuous", "stage"),
        ({"kind": "npz", "path": "x.npz", "labels": "7"}, "categorical", "column 7"),
    ],
)
def test_legend_title_of_labels_without_a_column(section, kind, name):
    assert report_columns.label_name({"config": {"input": section}}, kind) == name


def test_names_of_classes_do_not_cover_each_other(figures: list[Figure]) -> None:
    """Ten classes in two places: each has its name, which is whole, beside all points, and in the axes."""
    sizes = [30, 20, 20, 20, 20, 40, 10, 10, 10, 10]
    codes = np.repeat(np.arange(10), sizes)
    rng = np.random.default_rng(5)
    y = rng.normal(scale=0.01, size=(len(codes), 2)) + np.where(codes < 5, 0.0, 5.0)[:, None]
    names = (*(f"class {i}" for i in range(9)), "a class with a long name, (T REG)")
    color = Column("color", "kind", codes, names)
    draw_embedding(y, one_component(len(codes)), color, "title")
    [ax] = figures[0].axes
    assert {text.get_text().replace("\n", " ") for text in ax.texts} == set(names)
    boxes, frame = [text.get_window_extent() for text in ax.texts], ax.get_window_extent()
    assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])
    points = ax.transData.transform(y)
    for box in boxes:
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        assert frame.y0 <= box.y0 < box.y1 <= frame.y1
        assert not ((points > (box.x0, box.y0)) & (points < (box.x1, box.y1))).all(axis=1).any()


@pytest.mark.parametrize(
    "title",
    [
        "a-long-name-of-measurements-2014-2015.csv: LLE of 417,911 points, k = 12, reg = 0.001, MMMMMM",
        f"{'x' * 45}$a_b$c and more words: LLE of 100 points",
    ],
)
@pytest.mark.parametrize("n_coordinates", [2, 3])
def test_long_title_does_not_cover_the_key(figures: list[Figure], n_coordinates: int, title: str) -> None:
    y = np.random.default_rng(0).normal(size=(50, n_coordinates))
    color = Column("color", "Wind_turbine_name", np.arange(50) % 3, ["north", "south", "a name of 24 characters"])
    draw_embedding(y, one_component(50), color, title)
    [figure] = figures
    [key], drawn = figure.legends, figure._suptitle
    assert drawn is not None
    assert drawn.get_window_extent().x1 < key.get_window_extent().x0
    assert drawn.get_window_extent().y0 > max(ax.get_window_extent().y1 for ax in figure.axes)
    written = drawn.get_text().replace(r"\$", "$")
    assert "".join(written.split()) == "".join((title if len(title) <= 90 else f"{title[:89]}…").split())
    assert not re.search(r"\\(?!\$)", drawn.get_text())


def test_names_of_classes_do_not_cover_titles_of_pieces(figures: list[Figure]) -> None:
    """Curves on several shelves: the classes at their lowest points are just above the titles of the next shelf."""
    component = np.repeat(np.arange(24, dtype=np.int32), 60)
    x = np.tile(np.linspace(-1, 1, 60), 24)
    codes = np.where(np.abs(x) < 0.2, np.arange(len(x)) % 4, 4)
    color = Column("color", "kind", codes, ("a", "b", "c", "d", "e"))
    draw_embedding(np.column_stack([x, x**2]), component, color, "title")
    texts = figures[0].axes[0].texts
    titles = [text.get_window_extent() for text in texts if ":" in text.get_text()]
    names = [text.get_window_extent() for text in texts if ":" not in text.get_text()]
    assert (len(titles), len(names)) == (24, 60)
    assert not any(name.overlaps(title) for name in names for title in titles)


def test_each_component_has_the_names_of_its_classes(figures: list[Figure]) -> None:
    codes = np.arange(240) % 2
    component = np.repeat([0, 1, 2], 80).astype(np.int32)
    y = np.random.default_rng(6).normal(size=(240, 2)) + 3.0 * codes[:, None]
    y[:5], component[:5] = np.nan, -1  # dropped rows
    draw_embedding(y, component, Column("color", "kind", codes, ("left", "right")), "title")
    texts = [text.get_text() for text in figures[0].axes[0].texts]
    assert (texts.count("left"), texts.count("right")) == (3, 3)
    lines = {line.get_color() for line in figures[0].axes[0].lines}
    assert {INK, *class_colors(2)} == lines  # the edge, and the colour of the class


def test_names_in_the_legend_are_whole(figures: list[Figure]) -> None:
    names = ("CD4+/CD45RA+/CD25- Naive T", "CD8+/CD45RA+ Naive Cytotoxic", "x" * 70, "B")
    color = Column("color", "kind", np.arange(40) % 4, names)
    draw_embedding(np.random.default_rng(1).normal(size=(40, 2)), one_component(40), color, "title")
    texts = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert [text.replace("\n", "").replace(" ", "") for text in texts] == [name.replace(" ", "") for name in names]
    assert max(len(line) for text in texts for line in text.split("\n")) <= 24

"""The picture of a sweep: positions of the cells, their labels, and the colour key."""

import base64
import io

import matplotlib.figure
import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from lle.report import sweep_figure
from lle.report.column import Column
from lle.report.figure_style import COLOR_MAP, DARK_MAP, INK, MISSING, ON_DARK, PAPER, Pair
from lle.report.point_colors import PLAIN, Paint, common_key, paint_points
from lle.report.sweep_figure import Cell, choose_grid, draw_contact_sheet
from lle.report.sweep_page import best_experiments, render_sweep

N_POINTS = 200


def cell(values: dict, color: Column | None = None) -> Cell:
    points = np.random.default_rng(11).random((N_POINTS, 2))
    paint = paint_of(color or rising(1))
    return Cell(values, points, paint.rgba(np.arange(N_POINTS)), "", paint)


def paint_of(color: Column) -> Paint:
    return paint_points(color, np.ones(N_POINTS, bool))


def rising(highest: float) -> Column:
    return Column("color", "true coordinate", np.linspace(0, highest, N_POINTS))


def classes(*numbers: int) -> Column:
    return Column("color", "label", np.resize(np.array(numbers), N_POINTS), tuple("0123456789"))


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn, with every artist at its final position."""
    figures = []

    def keep(figure):
        figures.append(figure)
        return to_pair(figure)

    to_pair = sweep_figure.to_pair
    monkeypatch.setattr(sweep_figure, "to_pair", keep)
    return figures


def texts(figure: matplotlib.figure.Figure) -> list:
    renderer = FigureCanvasAgg(figure).get_renderer()
    visible = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip() and text.get_visible()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in visible]


def overlaps(figure) -> list[tuple[str, str]]:
    labels = texts(figure)
    return [
        (a, b) for number, (a, box) in enumerate(labels) for b, other_box in labels[:number] if box.overlaps(other_box)
    ]


LISTS = [
    [{"method": "lle"}],
    [
        {"method": "lle"},
        {"method": "pca", "n_components": 3, "coordinates": "1 and 2"},
        {"method": "pca", "n_components": 3, "coordinates": "2 and 3"},
    ],
    [{"where": digit} for digit in range(10)],
    [{"phi": 0.5}, *({"name": "elliptic_paraboloid", "a_long_name_of_a_key": number} for number in range(59))],
]
GRIDS = [
    [{"n_points": n, "k": k} for n in (200, 300, 500, 1000, 2000, 3000, 5000) for k in range(9)],
    [
        {"n": n, "method": method, "reg": reg, "k": k}
        for n in (1, 2)
        for method in ("lle", "ltsa", "pca")
        for reg in (1e-9, 0.1)
        for k in range(6)
    ],
]


@pytest.mark.slow
@pytest.mark.parametrize("one_range", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("values", [*LISTS, *GRIDS], ids=["alone", "parts", "one key", "many", "two keys", "four keys"])
def test_labels_do_not_overlap_points_edges_or_each_other(drawn, values, one_range):
    cells = [cell(label, rising(1 if one_range else number + 1)) for number, label in enumerate(values)]
    draw_contact_sheet(cells, "sheet: some experiments; and what their axes are, in a line")
    [figure] = drawn
    assert overlaps(figure) == []
    assert all(figure.bbox.contains(*corner) for _, box in texts(figure) for corner in box.corners())
    axes = figure.axes[0]
    [points] = axes.findobj(PathCollection)
    places = axes.transData.transform(points.get_offsets())
    covered = [text for text, box in texts(figure) if box.count_contains(places)]
    assert covered == []


def test_many_values_of_one_key_have_no_single_row_grid():
    assert choose_grid([cell({"where": digit}) for digit in range(10)]) is None
    assert choose_grid([cell({"n": n}) for n in range(5)]).columns == ("n",)
    assert choose_grid([cell({"n": n, "k": k}) for n in range(12) for k in range(2)]) is not None


@pytest.mark.slow
def test_reduced_palette_keeps_text_and_background_colours():
    rng = np.random.default_rng(3)
    cells = [cell({"n": n, "k": k})._replace(colors=rng.random((N_POINTS, 4))) for n in range(5) for k in range(8)]
    pair = draw_contact_sheet(cells, "sheet")
    for png, named in ((pair.light, (INK, PAPER)), (pair.dark, (ON_DARK[INK], ON_DARK[PAPER]))):
        with Image.open(io.BytesIO(png)) as image:
            assert image.mode == "P"
            pixels = np.asarray(image.convert("RGB")).reshape(-1, 3).astype(int)
        ink, paper = (np.round(np.multiply(to_rgb(color), 255)) for color in named)
        assert (abs(pixels - ink) <= 8).all(axis=1).sum() > 50
        assert (abs(pixels - paper) <= 2).all(axis=1).mean() > 0.5


def test_dark_sheet_has_the_brighter_map_of_values(drawn):
    colors = colormaps[COLOR_MAP](np.linspace(0.0, 1.0, N_POINTS))
    draw_contact_sheet([cell({"n": n})._replace(colors=colors) for n in range(2)], "sheet")
    [points] = drawn[0].axes[0].findobj(PathCollection)  # to_pair leaves the dark colours
    expected = {tuple(color) for color in np.round(DARK_MAP(np.linspace(0.0, 1.0, N_POINTS))[:, :3], 6).tolist()}
    assert {tuple(color) for color in np.round(points.get_facecolors()[:, :3], 6).tolist()} == expected


def test_page_fits_phones_and_dark_pages():
    counts = dict.fromkeys(("asked", "computed", "reused"), 1)
    rows = [{"experiment": "a", "state": "done", "n": 1}]
    page = render_sweep("sheet", ["n"], rows, counts, 1.0, Pair(b"light picture", b"dark picture"), {})
    light, dark = (base64.b64encode(png).decode() for png in (b"light picture", b"dark picture"))
    assert f'<source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">' in page
    assert f'src="data:image/png;base64,{light}"' in page
    assert '<meta name="viewport" content="width=device-width' in page


def test_page_links_reports_and_marks_the_best_experiment():
    counts = dict.fromkeys(("asked", "computed", "reused"), 1)
    rows = [
        {"experiment": name, "state": state, "n": 1, "trustworthiness": value, "message": "", "exit_code": 0}
        for name, state, value in (("a", "done", 0.8), ("b", "done", 0.9), ("c", "failed", 0.99))
    ]
    page = render_sweep("sheet", ["n"], rows, counts, 1.0, Pair(b"light", b"dark"), {"b": "b.zarr/report/index.html"})
    assert '<a href="b.zarr/report/index.html">b</a> ★' in page
    assert page.count("★") == 2  # the experiment, and what the mark means
    assert "highest trustworthiness" in page


def test_a_star_marks_the_best_cell_of_the_picture(drawn):
    draw_contact_sheet([cell({"n": n})._replace(is_best=n == 2) for n in range(3)], "sheet")
    [star] = [box for text, box in texts(drawn[0]) if text == "★"]
    frame = drawn[0].axes[0].get_window_extent()
    assert frame.x0 + 2 / 3 * frame.width < star.x0 < star.x1 < frame.x1
    assert frame.y0 < star.y0 < star.y1 < frame.y1


class TestKey:
    def test_colour_scale_has_numbers_if_all_cells_share_a_range(self, drawn):
        draw_contact_sheet([cell({"n": n}) for n in range(3)], "sheet")
        assert "true coordinate" in [text for text, _ in texts(drawn[0])]
        assert not {"lowest", "highest"} & {text for text, _ in texts(drawn[0])}

    def test_colour_scale_has_words_if_ranges_differ(self, drawn):
        draw_contact_sheet([cell({"n": n}, rising(n)) for n in (1, 9)], "sheet")
        assert {"lowest", "highest", "true coordinate in each cell"} <= {text for text, _ in texts(drawn[0])}

    def test_classes_are_named(self, drawn):
        draw_contact_sheet([cell({"n": n}, classes(0, 4, 7)) for n in range(3)], "sheet")
        assert {"label", "4", "7"} <= {text for text, _ in texts(drawn[0])}

    def test_no_legend_if_colours_have_several_meanings(self):
        keys = [paint_of(classes(digit)) for digit in (3, 4)]
        assert keys[0].colors == keys[1].colors  # one colour, two digits
        assert common_key(keys) is PLAIN
        assert common_key([keys[0], PLAIN]) is PLAIN
        assert common_key([]) is PLAIN
        assert common_key([keys[0], paint_of(classes(3))]) is keys[0]

    def test_points_of_unknown_value_are_grey_and_not_in_the_legend(self):
        values = np.where(np.arange(N_POINTS) % 2, np.nan, 1.0 * np.arange(N_POINTS))
        paint = paint_of(Column("color", "x", values))
        assert (paint.norm.vmin, paint.norm.vmax) == (0, N_POINTS - 2)
        assert {to_hex(color) for color in paint.rgba(np.arange(1, N_POINTS, 2))} == {MISSING}
        assert paint_of(Column("color", "x", values * np.nan)) is PLAIN

    def test_one_value_has_the_colour_in_the_middle_of_the_bar(self, drawn):
        same = cell({"n": 1}, Column("color", "x", np.full(N_POINTS, 3.0)))
        np.testing.assert_array_equal(same.colors[0], colormaps[COLOR_MAP](0.5))
        draw_contact_sheet([same], "sheet")
        assert {"2.7", "3.0", "3.3"} <= {text for text, _ in texts(drawn[0])}


@pytest.mark.parametrize(
    ("low", "in_pca", "best"),
    [(0.3, 0.09, "faithful"), (0.3, 0.11, "dots"), (0.25, 0.09, "dots"), (np.nan, 0.09, "dots"), (None, None, "dots")],
)
def test_a_picture_of_dots_is_not_the_best_if_principal_components_spread_them(low, in_pca, best):
    sums = {"correlation_sum": 0.4, "correlation_sum_low": low, "pca_correlation_sum": in_pca}
    rows = [
        {"experiment": "faithful", "state": "done", "trustworthiness": 0.9},
        {"experiment": "dots", "state": "done", "trustworthiness": 0.95, **sums},
    ]
    assert best_experiments(rows) == ("trustworthiness", {best})
    both = [{**row, **sums} for row in rows]
    assert best_experiments(both) == ("trustworthiness", {"dots"}), "all are dots"

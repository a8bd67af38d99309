"""Pictures of the report page: their number, colours, dark forms and texts."""

import io

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from lle.report import embedding_figure, page_pictures
from lle.report.column import Column
from lle.report.figure_style import INK, OKABE_ITO, ON_DARK, PAPER, class_colors, to_pair
from lle.report.page_pictures import DENSITY_POINTS, draw_page_pictures

PROTAN = np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]])
DEUTAN = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]])
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colors: list[str], vision: np.ndarray) -> np.ndarray:
    """CIE Lab of colours as seen with a `vision` (Machado, Oliveira and Fernandes 2009, severity 1)."""
    rgb = np.array([to_rgb(color) for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.clip(linear @ vision.T, 0, 1) @ TO_XYZ.T / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


@pytest.mark.parametrize("vision", [np.eye(3), PROTAN, DEUTAN], ids=["all cones", "no red cones", "no green cones"])
def test_eight_classes_differ_for_every_common_vision(vision: np.ndarray) -> None:
    """Orange and green of tab10 are 5 apart without red cones."""
    perceived_colors = lab(class_colors(8), vision)
    distances = np.linalg.norm(perceived_colors[:, None] - perceived_colors, axis=2) + 1e3 * np.eye(8)
    assert distances.min() > 9.0


def one_component(n: int) -> np.ndarray:
    return np.zeros(n, np.int32)


def cloud(n: int, m: int = 2) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(n, m))


def classes(n: int, n_classes: int) -> Column:
    names = tuple(f"kind {i}" for i in range(n_classes))
    return Column("color", "species", np.arange(n) % n_classes, names)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    drawn: list[Figure] = []
    monkeypatch.setattr(page_pictures, "to_pair", lambda figure: drawn.append(figure) or to_pair(figure))
    return drawn


@pytest.mark.slow
@pytest.mark.parametrize(
    ("m", "n_classes", "n", "expected"),
    [
        (1, 0, 50, 1),
        (1, 3, 50, 1),
        (2, 0, 50, 1),
        (2, 1, 50, 1),
        (2, 3, 50, 2),
        (2, 3, DENSITY_POINTS, 3),
        (3, 0, 50, 3),
        (3, 12, 50, 4),
    ],
)
def test_a_picture_for_each_pair_and_two_more_of_classes(m: int, n_classes: int, n: int, expected: int) -> None:
    color = classes(n, n_classes) if n_classes else None
    drawn = draw_page_pictures(cloud(n, m), one_component(n), color)
    assert len(drawn.pictures) == expected
    assert all(picture.alternative for picture in drawn.pictures)
    assert all(min(map(len, picture.pair)) > 1000 for picture in drawn.pictures)


def test_alternative_texts_name_coordinates_rows_colours_and_components() -> None:
    component = (np.arange(60) % 3 == 0).astype(np.int32)
    drawn = draw_page_pictures(cloud(60, 4), component, classes(60, 2))
    assert drawn.pictures[1].alternative == (
        "Scatter plot of coordinate 1 (across) and coordinate 3 (up): 60 rows in 2 components side by side, "
        "coloured by species."
    )
    assert drawn.remark == (
        "The first 3 of 4 coordinates; each component has its own coordinates; labels are its number and size."
    )
    assert drawn.key.names == ("kind 0", "kind 1")
    assert draw_page_pictures(cloud(9), one_component(9), None).remark == ""


def test_alternative_text_counts_points_outside_the_view() -> None:
    embedding = cloud(5000)
    embedding[0] = 1e5
    assert "outside the view." in draw_page_pictures(embedding, one_component(5000), None).pictures[0].alternative


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, DENSITY_POINTS])
@pytest.mark.parametrize("kind", ["none", "values", "classes"])
def test_dark_pictures_have_dark_paper_and_light_text(
    n: int, kind: str, figures: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_figure, "SCATTER_POINTS", DENSITY_POINTS - 1)  # more points are a raster
    values = Column("color", "t", np.arange(n) * 1.0)
    color = {"none": None, "values": values, "classes": classes(n, 12)}
    drawn = draw_page_pictures(cloud(n), one_component(n), color[kind])
    for picture in drawn.pictures:
        light, dark = (imread(io.BytesIO(png), format="png")[..., :3] for png in picture.pair)
        np.testing.assert_allclose(light[0, 0], to_rgb(PAPER), atol=0.01)
        np.testing.assert_allclose(dark[0, 0], to_rgb(ON_DARK[PAPER]), atol=0.01)
        assert (np.abs(dark - 1.0).max(axis=2) < 0.02).mean() < 0.001  # no white is left
    for figure in figures:
        texts = [text for ax in figure.axes for text in ax.texts] + [ax.xaxis.label for ax in figure.axes]
        assert {text.get_color() for text in texts if text.get_text()} <= {(*to_rgb(ON_DARK[INK]), 1.0)}


def test_class_names_are_drawn(figures: list[Figure]) -> None:
    color = classes(90, 9)
    apart = np.column_stack([color.values % 3, color.values // 3])
    draw_page_pictures(apart + 0.1 * cloud(90), one_component(90), color)
    assert sorted(text.get_text() for text in figures[0].axes[0].texts) == [f"kind {i}" for i in range(9)]


LONG = tuple(f"{i} in the last twelve months the household has had to borrow money from friends" for i in range(8))


@pytest.mark.slow
def test_long_names_are_numbers_of_the_key(figures: list[Figure]) -> None:
    """Eight parts of a parabola."""
    x = np.linspace(-1.0, 1.0, 800)
    color = Column("color", "answer", np.repeat(np.arange(8), 100), LONG)
    drawn = draw_page_pictures(np.column_stack([x, x**2]), one_component(800), color)
    numbers = [f"#{i + 1}" for i in range(8)]
    small, wide, *_, cells = figures
    assert sorted(text.get_text() for text in small.axes[0].texts) == numbers
    assert sorted(text.get_text() for text in wide.axes[0].texts) == numbers
    assert [ax.get_title() for ax in cells.axes if ax.get_title()] == numbers
    assert drawn.numbered == set(range(8))
    frame = small.axes[0].get_window_extent()
    for text in small.axes[0].texts:
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        assert frame.y0 <= box.y0 < box.y1 <= frame.y1
        assert not box.count_contains(small.axes[0].transData.transform(np.column_stack([x, x**2])))


def test_each_cell_shows_its_class_in_colour_and_the_others_in_grey(figures: list[Figure]) -> None:
    embedding = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 20, axis=0)
    color = Column("color", "l", np.repeat([0, 1, 2], 20), ("a", "b", "c"))
    draw_page_pictures(embedding, one_component(60), color)
    cells = [ax for ax in figures[-1].axes if ax.images]
    assert [ax.get_title() for ax in cells] == ["a", "b", "c"]
    for code, ax in enumerate(cells):
        image = np.asarray(ax.images[0].get_array())
        solid = image[image[..., 3] == 1.0]
        assert len(solid) == 9  # 3 x 3 pixels
        np.testing.assert_allclose(solid[0, :3], to_rgb(OKABE_ITO[code]))
        assert (image[..., 3] > 0).sum() == 27


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "rows", "columns"), [(2, 1, 2), (3, 2, 2), (5, 2, 3), (10, 3, 4), (13, 4, 4)])
def test_cells_of_few_classes_fill_a_picture_as_high_as_the_others(figures, n_classes, rows, columns) -> None:
    draw_page_pictures(cloud(600), one_component(600), classes(600, n_classes))
    grid = figures[-1].axes[0].get_subplotspec().get_gridspec()
    assert (grid.nrows, grid.ncols) == (rows, columns)
    scatter, apart = (figure.get_size_inches() for figure in (figures[0], figures[-1]))
    assert apart[1] >= scatter[1] - 1e-9
    assert all(spine.get_visible() for ax in figures[-1].axes[:2] for spine in ax.spines.values())
    used = [ax for ax in figures[-1].axes if ax.axison]
    shapes = {ax.images[0].get_array().shape[:2] for ax in used}
    boxes = [ax.get_window_extent() for ax in used]
    [(height, width)] = shapes
    assert height / width == pytest.approx(boxes[0].height / boxes[0].width, rel=0.4)  # pixels are about square


@pytest.mark.slow
def test_dark_pictures_have_the_class_colours_of_a_dark_page(figures: list[Figure]) -> None:
    """From the ninth class on: the points, the lines of names, and the cells of classes."""
    apart = cloud(200) + 9.0 * (np.arange(200) % 10)[:, None]
    draw_page_pictures(apart, one_component(200), classes(200, 10))  # to_pair leaves the dark colours
    light, dark = ({to_rgb(color) for color in class_colors(10, is_dark)[8:]} for is_dark in (False, True))
    [points] = figures[0].axes[0].collections
    shown = {tuple(color) for color in points.get_facecolors()[:, :3].tolist()}
    lines = {to_rgb(line.get_color()) for line in figures[0].axes[0].lines}
    images = [image.get_array() for ax in figures[-1].axes for image in ax.images]
    cells = {tuple(color) for image in images for color in image[..., :3].reshape(-1, 3).tolist()}
    for colors in (shown, lines, cells):
        assert dark <= colors
        assert not colors & light


@pytest.mark.slow
def test_dark_raster_has_the_class_colours_of_a_dark_page(
    figures: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_figure, "SCATTER_POINTS", 100)
    draw_page_pictures(cloud(200), one_component(200), classes(200, 10))
    [image] = figures[0].axes[0].images
    pixels = {to_hex(color / 255) for color in np.unique(image.get_array()[..., :3].reshape(-1, 3), axis=0)}
    light, dark = ({*class_colors(10, is_dark)[8:]} for is_dark in (False, True))
    assert dark <= pixels
    assert not pixels & light


def test_cells_of_classes_have_names_that_differ(figures: list[Figure]) -> None:
    names = ("CD4+/CD25 T Reg", "CD4+/CD45RA+/CD25- Naive T", "CD4+/CD45RO+ Memory", "B")
    color = Column("color", "bulk_labels", np.arange(40) % 4, names)
    draw_page_pictures(cloud(40), one_component(40), color)
    titles = [ax.get_title() for ax in figures[-1].axes]
    assert [title.replace("\n", "").replace(" ", "") for title in titles] == [name.replace(" ", "") for name in names]
    assert max(len(line) for title in titles for line in title.split("\n")) <= 10

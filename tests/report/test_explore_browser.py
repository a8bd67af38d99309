"""The explorer in Chromium: what a person hovers over, selects, saves and reaches with the keyboard."""

import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lle.jobs.served_run import ServedRun
from lle.report.color_key import color_key
from lle.report.column import Column
from lle.report.explore import render_explorer
from lle.report.images import make_sheet
from tests.support.browser import (
    CONTRASTS,
    axe_problems,
    names_at_rest,
    needs_browser,
    saved,
    select_quarter,
    served,
    wait_for,
)
from tests.support.explorer_page import coordinates, page_of

N = 400
NAMES = [f"kind {i}" for i in range(4)]
PLACE = """(point) => { const {x, y} = explorer.points.layout(explorer.question()), scales = explorer.scales();
  return [scales.x(x[point]), scales.y(y[point])]; }"""
"""Where a point is drawn, in pixels of the picture."""

pytestmark = [pytest.mark.slow, *needs_browser]


def points() -> tuple[np.ndarray, np.ndarray]:
    """Four clouds, one for each class, about the corners of a square; rows are multiples of 3."""
    rng = np.random.default_rng(7)
    classes = np.arange(N) // (N // 4)
    corners = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]])[classes]
    return corners + rng.normal(scale=0.15, size=(N, 2)), classes


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The page that holds its points, and that of `lle explore`, of the same points."""
    y, classes = points()
    page = page_of(
        *coordinates(np.column_stack([y, y.prod(axis=1)])),
        Column("label", "label", classes, NAMES),
        Column("reconstruction_error", "error", np.exp(y[:, 0])),
        rows=3 * np.arange(N),
        n_input=3 * N,
    )
    path = tmp_path_factory.mktemp("page") / "explore.html"
    path.write_bytes(render_explorer(page))
    with served(ServedRun(page, f"/data/{'runs-of-a-long-name/' * 4}run.zarr")) as server:
        yield {"file": path.as_uri(), "server": server.url}


@pytest.fixture(params=["file", "server"])
def page(request: pytest.FixtureRequest, open_page: Callable[..., Any], addresses: dict[str, str]) -> Any:
    return open_page(addresses[request.param])


def place(page: Any, point: int) -> tuple[float, float]:
    """Where a point of `addresses` is drawn, in pixels of the window."""
    box, (u, v) = page.locator("#canvas").bounding_box(), points()[0][point].tolist()
    at = page.evaluate(f"[explorer.scales().x({u}), explorer.scales().y({v})]")
    return box["x"] + at[0], box["y"] + at[1]


def go_to(page: Any, row: int, step: int = 1) -> None:
    """Go to a row from the one before, which is `step` less."""
    page.evaluate(f"explorer.ask('row', {{from: {row - step}, by: 1}}).then((record) => explorer.goTo(record))")


def select(page: Any, points: list[int]) -> None:
    for point in points:
        page.evaluate(f"explorer.select('add', {{row: {3 * point}}})")


def lone_point() -> int:
    """The point whose nearest other one is farthest away: nothing else lies under the pointer."""
    y, _ = points()
    distances = np.linalg.norm(y[:, None] - y, axis=2) + 9.0 * np.eye(N)
    return int(distances.min(axis=1).argmax())


def test_hover_shows_the_row_and_its_values(page):
    point = lone_point()
    y, classes = points()
    page.mouse.move(*place(page, point))
    page.wait_for_selector("#tip:not([hidden])")
    assert page.inner_text("#tip") == f"row {3 * point} · {NAMES[classes[point]]}"
    assert page.inner_text("#point-title") == f"Row {3 * point}"
    values = page.locator("#point dd").all_inner_texts()
    np.testing.assert_allclose([float(value) for value in values[:3]], [*y[point], y[point].prod()], atol=1e-3)
    assert values[3] == NAMES[classes[point]]


def test_hover_shows_the_image_of_the_row(show):
    """Every image has one grey level; the page has images of every second point."""
    with_image = np.arange(0, N, 2)
    levels = np.broadcast_to((with_image / 2)[:, None, None, None], (N // 2, 5, 8, 1)).astype(np.float32)
    page = show(points()[0], images=make_sheet(with_image, levels))
    for point in (0, 100, 398):
        go_to(page, point)
        for image in page.locator(".image").all():
            assert image.get_attribute("aria-label") == f"Image of row {point}"
            drawn = np.asarray(Image.open(io.BytesIO(image.screenshot())).convert("L"))
            assert drawn.shape == pytest.approx((60, 96), abs=1)
            assert drawn[10:-10, 10:-10] == pytest.approx(255 * (point / 2) / (N / 2 - 1), abs=2)
    go_to(page, 3)
    assert page.locator(".image:visible").count() == 0
    assert "images of 200 rows" in page.inner_text("aside")


@pytest.mark.parametrize("mode", ["lasso", "rectangle"])
def test_dragging_selects_the_enclosed_rows_and_saves_them(page, tmp_path, mode):
    y, _ = points()
    select_quarter(page, mode, 4)
    inside = np.flatnonzero((y[:, 0] < 0) & (y[:, 1] > 0))  # the clouds are apart, so the edges need not be exact
    assert page.inner_text("#selected-count").startswith("100 rows selected")
    rows = saved(page, tmp_path)
    assert [int(row["row"]) for row in rows] == (3 * inside).tolist()
    np.testing.assert_allclose([float(row["y1"]) for row in rows], y[inside, 0], atol=1e-4)
    assert {row["label"] for row in rows} == {"kind 2"}
    assert page.locator("#selected-rows tr").count() == 100


def test_choosing_other_coordinates_moves_points_and_keeps_the_selection(page):
    before = place(page, 5)
    select(page, [5, 6])
    page.select_option("#y", label="coordinate 3")
    wait_for(page, "document.getElementById('y-name').textContent === 'coordinate 3' && explorer.drawing === null")
    assert place(page, 5) != before
    assert page.inner_text("#selected-count") == "2 rows selected."
    assert page.locator("#selected-rows td:first-child").all_inner_texts() == ["15", "18"]


def test_colours_follow_the_menu(page):
    assert page.locator("#legend button").count() == 4
    page.select_option("#color", label="error")
    page.wait_for_selector("#legend .bar")
    page.select_option("#color", label="nothing")
    wait_for(page, "document.getElementById('legend').childElementCount === 0")


def test_points_without_a_value_are_grey_and_under_the_others(show):
    y, _ = points()
    values = np.where(np.arange(N) % 40 == 0, 0.5, np.nan)
    places = np.repeat(y[::40], 40, axis=0)  # 39 grey points lie under each of the others
    page = show(places, Column("trustworthiness", "trustworthiness (10 sampled points)", values))
    assert "390 rows without a value are grey" in page.inner_text("#legend")
    for point in range(0, N, 40):
        box, (x, up) = page.locator("#canvas").bounding_box(), page.evaluate(PLACE, point)
        shot = page.screenshot(clip={"x": box["x"] + x - 1, "y": box["y"] + up - 1, "width": 2, "height": 2})
        color = np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).mean(axis=(0, 1))
        assert np.ptp(color) > 40  # the grey is #b4bcc6


def test_pressed_classes_hide_the_others(page, tmp_path):
    page.click("#legend button:nth-child(2)")
    page.click("#in-view")
    page.wait_for_selector("#save:not([disabled])")
    assert {row["label"] for row in saved(page, tmp_path)} == {"kind 1"}


def test_names_in_the_picture_do_not_cover_each_other(show):
    """Two classes at the same places, so that the best place for one name is the best for the other."""
    classes = np.where(np.arange(N) < N // 2, np.arange(N) % 2, 2)  # the third one is apart
    y = np.repeat(np.random.default_rng(3).normal(size=(N // 2, 2)), 2, axis=0) + 9.0 * (classes == 2)[:, None]
    page = show(y, Column("label", "label", classes, ["first", "second", "third"]))
    earlier = None
    for zooms in range(6):
        boxes = names_at_rest(page, earlier)
        assert zooms > 0 or len(boxes) == 3  # later, their places may be out of the view
        for one, other in itertools.combinations(sorted(boxes.values(), key=lambda box: box["top"]), 2):
            is_beside = one["right"] <= other["left"] or other["right"] <= one["left"]
            assert is_beside or one["bottom"] <= other["top"]
        earlier = page.evaluate_handle("explorer.placedNames")
        page.evaluate(
            "explorer.zoom(1.4, ...(({x, y}) => [x(explorer.names[0].x), y(explorer.names[0].y)])(explorer.scales()))"
        )
    page.uncheck("#show-names")
    assert page.locator("#names text").count() == 0


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("row", "66", "1 row selected"),
        ("row", "67", "No rows selected"),
        ("label", "Kind 3", "100 rows selected"),
        ("label", "kind", "No rows selected"),
    ],
)
def test_search_selects_matching_rows(page, kind, text, expected):
    page.select_option("#search-in", label=kind)
    page.fill("#search-text", text)
    page.press("#search-text", "Enter")
    wait_for(page, "document.getElementById('search-result').textContent !== ''")
    wait_for(page, f"document.getElementById('selected-count').textContent.startsWith('{expected}')")
    if text == "66":  # the row is shown after the view has moved to it
        wait_for(page, "document.getElementById('point-title').textContent === 'Row 66'")


def test_keys_walk_over_rows_and_select_them(page):
    y, _ = points()
    page.keyboard.press("p")
    wait_for(page, f"document.getElementById('point-title').textContent === 'Row {3 * N - 3}'")
    page.keyboard.press("n")  # wherever the focus is
    wait_for(page, "document.getElementById('point-title').textContent === 'Row 0'")
    page.keyboard.press("Enter")
    wait_for(page, "document.getElementById('selected-count').textContent.startsWith('1 row ')")
    page.keyboard.press("Shift+ArrowRight")
    wait_for(page, "explorer.row > 0")
    assert y[page.evaluate("explorer.row") // 3, 0] > y[0, 0]
    page.keyboard.press("v")
    wait_for(page, f"document.getElementById('selected-count').textContent.startsWith('{N} rows')")
    page.keyboard.press("Escape")
    wait_for(page, "document.getElementById('selected-count').textContent === 'No rows selected.'")
    for _ in range(6):
        page.keyboard.press("+")
    go_to(page, 3 * N - 3, 3)  # a point outside of the view
    box, (x, up) = page.locator("#canvas").bounding_box(), place(page, N - 1)
    assert (x, up) == pytest.approx((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2), abs=2)
    assert page.inner_text("#tip").startswith(f"row {3 * N - 3}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pixels_of_points_have_their_colours_and_selected_ones_are_not_faded(open_page, addresses, scheme):
    """On a screen with two pixels for each one of the page. The points are the most distant of two clouds."""
    page = open_page(addresses["file"], device_scale_factor=2, color_scheme=scheme)
    pixel = f"""(point) => {{ const tile = document.querySelector("#tile canvas"), place = ({PLACE})(point);
      const [x, y] = place.map((value) => Math.floor(value * tile.width / explorer.box.clientWidth));
      const context = new OffscreenCanvas(1, 1).getContext("2d");
      context.drawImage(tile, -x, -y);
      return [...context.getImageData(0, 0, 1, 1).data]; }}"""
    page.select_option("#color", "-1")
    wait_for(page, "explorer.key.kind === 'plain' && !explorer.drawing")
    [color] = color_key(None, N).palettes[scheme == "dark"]
    assert page.evaluate("document.querySelector('#tile canvas').width === 2 * explorer.box.clientWidth")
    lone = [int(np.argmin(points()[0] @ corner)) for corner in ([1, 1], [-1, -1])]
    plain = [page.evaluate(pixel, point) for point in lone]
    select(page, lone[:1])
    selected, faded = (page.evaluate(pixel, point) for point in lone)
    assert plain[0][:3] == pytest.approx([int(color[i : i + 2], 16) for i in (1, 3, 5)], abs=2)
    assert selected == plain[0]
    assert faded[3] == pytest.approx(plain[1][3] / 5, abs=2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("kind", ["file", "server"])
def test_text_has_contrast_and_nothing_is_cut_off(open_page, addresses, scheme, width, kind):
    page = open_page(addresses[kind], viewport={"width": width, "height": 800}, color_scheme=scheme)
    select(page, [1, 2, 3])
    page.evaluate("for (const e of document.querySelectorAll('details')) e.open = true")
    check, text = page.evaluate(
        "[document.querySelector('#show-names'), document.querySelector('#legend-help label')]"
        ".map((e) => e.getBoundingClientRect()).map((box) => [box.top + box.height / 2, box.height])"
    )
    assert check[0] == pytest.approx(text[0], abs=2)
    assert text[1] < 30  # one line: the box stands beside its text
    page.wait_for_selector("#table:not([hidden])")
    assert page.evaluate(CONTRASTS) == []
    assert axe_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("aside").evaluate("(aside) => aside.scrollWidth <= aside.clientWidth")
    box, bar = page.locator("#canvas").bounding_box(), page.locator("header").bounding_box()
    assert (box["width"] > 0.8 * width) if width < 800 else (box["width"] > 0.68 * width)
    assert box["y"] + box["height"] > (0.58 if width < 800 else 0.9) * 800
    assert bar["height"] <= 48
    assert page.evaluate("document.documentElement.scrollHeight") <= 800


def test_components_are_shown_side_by_side_or_alone(show):
    """Two components on the same coordinates do not cover each other; one alone fills the view."""
    y, _ = points()
    component = (np.arange(N) % 4 == 3).astype(int)
    page = show(y, Column("component", "component", component, ["0", "1"], "component"))
    ends = [[page.evaluate(PLACE, int(point))[0] for point in np.flatnonzero(component == c)[::7]] for c in (0, 1)]
    assert max(ends[0]) < min(ends[1])
    page.select_option("#component", label="1: 100 rows")
    page.wait_for_timeout(500)
    page.click("#in-view")
    wait_for(page, "document.getElementById('selected-count').textContent.startsWith('100 rows')")


def test_selection_shows_counts_by_class_and_means(page):
    """Two rows of class 0 and one of class 3."""
    y, _ = points()
    chosen = [0, 1, N - 1]
    select(page, chosen)
    wait_for(page, "document.querySelectorAll('#summary table').length === 2")
    texts = "[...document.querySelectorAll('#summary tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    rows = page.evaluate(texts)
    assert rows[:3] == [["label", "selected", "of all"], ["kind 0", "2", "100"], ["kind 3", "1", "100"]]
    means = {row[0]: [float(text) for text in row[1:]] for row in rows[4:]}
    for j in range(2):
        expected = [y[chosen, j].mean(), y[:, j].mean()]
        np.testing.assert_allclose(means[f"coordinate {j + 1}"], expected, atol=2e-3)


def test_dates_whole_numbers_and_the_picture_file(show, tmp_path):
    since = Column("since", "since", 1.6e9 + 86400.0 * np.arange(N), kind="date")
    page = show(points()[0], since, Column("age", "age", np.arange(N) % 90, kind="whole"))
    go_to(page, 95)
    assert page.locator("#point dd").all_inner_texts()[2:] == ["2020-12-17 12:26:40", "5"]
    assert page.locator("#legend .ends span").first.inner_text() == "2020-09-13"
    page.evaluate("document.querySelector('#menu details').open = true")
    with page.expect_download() as download:
        page.click("#save-picture")
    download.value.save_as(tmp_path / "embedding.png")
    picture = np.asarray(Image.open(tmp_path / "embedding.png").convert("RGB"))
    assert picture.shape[1] > 1800
    middle = picture[200:-200, 200:-600].reshape(-1, 3).astype(int)
    assert (np.ptp(middle, axis=1) > 60).sum() > 300  # points in colours


@pytest.mark.parametrize("name", ["a long answer of a questionnaire, with all of its words, and a remark", "x" * 70])
def test_long_classes_do_not_overlap_in_the_legend(show, name):
    kind = Column("kind", "kind", np.arange(N) % 8, [f"{i}: {name}" for i in range(8)])
    page = show(points()[0], kind)
    spans = page.locator("#legend span").evaluate_all("(all) => all.map((e) => e.getBoundingClientRect().toJSON())")
    assert all(above["bottom"] <= below["top"] for above, below in itertools.pairwise(spans))


def test_the_legend_shows_twelve_classes_without_scrolling(show):
    kind = Column("kind", "kind", np.arange(N) % 12, [f"class {i}" for i in range(12)])
    page = show(points()[0], kind)
    assert page.locator("#legend").evaluate("(legend) => legend.scrollHeight <= legend.clientHeight")


def test_values_of_very_different_sizes_have_their_digits_and_colours_as_in_lle_explore(show):
    rng = np.random.default_rng(2)
    far = np.where(np.arange(N) % 100 < 4, 1e6, 1.0)
    columns = {
        "skewed": np.exp(rng.normal(scale=6, size=N)),
        "far": far * rng.normal(size=N),
        "zeros": np.where(np.arange(N) % 2 == 0, 0.0, np.exp(rng.normal(scale=3, size=N))),
    }
    page = show(points()[0], *(Column(name, name, v) for name, v in columns.items()))
    go_to(page, 41)
    shown = page.locator("#point dd").all_inner_texts()[2:]
    np.testing.assert_allclose([float(text) for text in shown], [v[41] for v in columns.values()], rtol=1e-6)
    for name, values in columns.items():
        page.select_option("#color", label=name)
        wait_for(page, f"document.getElementById('legend-title').textContent === '{name}'")
        key = color_key(Column(name, name, values), N)
        drawn = page.evaluate("explorer.key")
        assert drawn["range"] == list(key.range)
        codes = page.evaluate("[...explorer.points.colors(explorer.question()).codes]")
        assert np.mean(codes == key.codes) > 0.99  # values of the page are rounded
        assert (drawn["log"], drawn["clipped"]) == (key.log, key.clipped)


def test_legend_of_columns_without_a_range(show):
    """A constant column and one without values have a bar of one colour, also in the picture file."""
    constant, empty = Column("c", "constant", np.full(N, 2.5)), Column("e", "empty", np.full(N, np.nan))
    page = show(points()[0], constant, empty)
    assert page.locator("#legend .ends span").all_inner_texts() == ["all 2.5"]
    go_to(page, 5)
    assert float(page.locator("#point dd").all_inner_texts()[2]) == 2.5
    page.select_option("#color", label="empty")
    wait_for(page, "document.querySelector('#legend .ends').innerText === 'no values'")
    assert page.inner_text("#legend small") == "400 rows without a value are grey"
    page.evaluate("document.querySelector('#menu details').open = true")
    with page.expect_download() as download:
        page.click("#save-picture")
    download.value.path()


def test_lines_of_names_end_in_the_colour_of_the_class_where_it_is_seen(show):
    """Class 0 is half alone, and half under ten times as many points of class 1."""
    alone, under, over = np.full(100, -1.0), np.full(140, 1.0), np.full(1400, 1.0)
    x = np.concatenate([alone, under, over])
    x += np.random.default_rng(3).normal(scale=0.05, size=len(x))
    page = show(np.column_stack([x, x**2]), Column("kind", "kind", np.repeat([0, 1], [240, 1400]), ["below", "above"]))
    shown = page.evaluate(
        """() => explorer.placedNames.map(({name}, i) => [name.name, name.x, ...["circle", "polyline"].map((tag) =>
        document.querySelectorAll(`#names ${tag}`)[i].getAttribute(tag === "circle" ? "fill" : "stroke"))])"""
    )
    colors = page.evaluate("explorer.key.colors")
    assert {(name, x < 0, fill, stroke) for name, x, fill, stroke in shown} == {
        ("below", True, colors[0], colors[0]),
        ("above", False, colors[1], colors[1]),
    }


def test_the_picture_file_lists_the_shown_classes_only(page):
    page.click("#legend button:nth-child(2)")
    with page.expect_download() as download:
        page.evaluate(
            """() => { globalThis.written = []; const own = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
              globalThis.written.push(text); own.call(this, text, ...at); }; }"""
        )
        page.evaluate("document.querySelector('#menu details').open = true")
        page.click("#save-picture")
    download.value.path()
    assert [text for text in page.evaluate("globalThis.written") if text.endswith(")")] == ["kind 1 (100)"]

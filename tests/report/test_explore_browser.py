"""The explorer in Chromium: what a person hovers over, selects, saves and reaches with the keyboard."""

import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lle.jobs.served_run import ServedRun
from lle.report.column import Column
from lle.report.explore import render_explorer
from lle.report.images import image_png, make_sheet
from lle.report.point_colors import color_key
from tests.support.browser import (
    CONTRASTS,
    axe_problems,
    drag,
    names_at_rest,
    needs_browser,
    opened,
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

PICTURE = """(() => { const tile = document.querySelector("#tile img, #tile canvas");
  return tile.src ?? tile.toDataURL(); })()"""
"""What the picture shows: a text that changes with it."""

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
        assert np.ptp(color) > 40  # the grey is #a3acb7


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["file", "server"])
def test_pixels_of_points_have_the_colours_of_the_legend_and_selected_ones_are_not_faded(
    open_page, addresses, scheme, kind
):
    """On a screen with two pixels for each one of the page. The points are the outermost of each cloud."""
    page = open_page(addresses[kind], device_scale_factor=2, color_scheme=scheme)
    pixel = """([u, v]) => { const tile = document.querySelector("#tile > *"), scales = explorer.scales();
      const scale = (tile.naturalWidth ?? tile.width) / explorer.box.clientWidth;
      const context = new OffscreenCanvas(1, 1).getContext("2d");
      context.drawImage(tile, -Math.floor(scale * scales.x(u)), -Math.floor(scale * scales.y(v)));
      return [...context.getImageData(0, 0, 1, 1).data]; }"""
    legend = page.evaluate(
        "[...document.querySelectorAll('#legend i')].map((e) => getComputedStyle(e).backgroundColor)"
    )
    if kind == "file":
        assert page.evaluate("document.querySelector('#tile canvas').width === 2 * explorer.box.clientWidth")
    y, _ = points()
    outer = [int(np.argmin(y @ corner)) for corner in ([1, 1], [-1, 1], [1, -1], [-1, -1])]
    plain = [page.evaluate(pixel, y[point].tolist()) for point in outer]
    for drawn, color in zip(plain, legend, strict=True):
        assert drawn[:3] == pytest.approx([int(part) for part in color[4:-1].split(",")], abs=2)
    select(page, outer[:1])
    selected, *faded = (page.evaluate(pixel, y[point].tolist()) for point in outer)
    assert selected == pytest.approx([*plain[0][:3], 255 if kind == "server" else plain[0][3]], abs=2)
    assert [drawn[3] for drawn in faded] == pytest.approx([drawn[3] / 5 for drawn in plain[1:]], abs=2)


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


def test_dates_beyond_those_of_the_browser_are_seconds(show):
    far = Column("far", "far", np.where(np.arange(N) % 2, 1.7e15, 1.7e12), kind="date")
    page = show(points()[0], far)
    go_to(page, 95)
    assert page.locator("#point dd").all_inner_texts()[2:] == ["1700000000000000 s"]
    assert page.locator("#legend .ends span").first.inner_text() == "+055840-11-08"


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


def test_classes_colours_and_coordinates_change_the_picture_and_keep_the_selection(page, tmp_path):
    pictures = [page.evaluate(PICTURE)]

    def changed() -> None:
        wait_for(page, f"(seen) => explorer.drawing === null && !seen.includes({PICTURE})", pictures)
        pictures.append(page.evaluate(PICTURE))

    assert page.locator("#legend button").count() == 4
    page.click("#legend button:nth-child(2)")
    changed()
    page.click("#in-view")
    page.wait_for_selector("#save:not([disabled])")
    assert {row["label"] for row in saved(page, tmp_path)} == {"kind 1"}
    for name, bars in (("error", 1), ("nothing", 0)):
        page.select_option("#color", label=name)
        # The picture also changes with the selection, perhaps only now.
        wait_for(page, f"document.querySelectorAll('#legend .bar').length === {bars}")
        changed()
    assert page.locator("#legend *").count() == 0
    before = place(page, 5)
    page.select_option("#y", label="coordinate 3")
    changed()
    assert place(page, 5) != before
    assert page.inner_text("#y-name") == "coordinate 3"
    assert page.inner_text("#selected-count").startswith("100 rows selected")
    assert page.locator("#selected-rows td:first-child").first.inner_text() == "300"


def test_keys_do_every_action(page):
    reached, (y, _) = set(), points()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.innerText"))
    assert {"x", "y", "color", "search-in", "search-text", "zoom-in", "zoom-out", "fit", "in-view", "canvas"} <= reached
    assert {text.split("\n")[0] for text in reached if text.startswith("kind ")} == set(NAMES)
    page.keyboard.press("p")
    wait_for(page, f"document.getElementById('point-title').textContent === 'Row {3 * N - 3}'")
    page.keyboard.press("n")  # wherever the focus is
    wait_for(page, "document.getElementById('point-title').textContent === 'Row 0'")
    page.focus("#canvas")  # Enter belongs to a button that has the focus
    for key in ("n", "n", "Enter"):  # faster than the answers
        page.keyboard.press(key)
    wait_for(page, "document.getElementById('selected-count').textContent.startsWith('1 row ')")
    assert page.inner_text("#selected-rows td:first-child") == page.evaluate("String(explorer.row)")
    before = page.evaluate("explorer.row")
    page.keyboard.press("Shift+ArrowRight")
    wait_for(page, f"explorer.row !== {before}")
    assert y[page.evaluate("explorer.row") // 3, 0] > y[before // 3, 0]
    page.keyboard.press("v")
    wait_for(page, f"document.getElementById('selected-count').textContent.startsWith('{N} rows')")
    assert page.locator("#selected-rows tr").count() == 200
    page.keyboard.press("Escape")
    wait_for(page, "document.getElementById('selected-count').textContent === 'No rows selected.'")
    before = place(page, 0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    wait_for(page, "explorer.drawing === null")
    assert place(page, 0)[0] < before[0] - 20
    page.keyboard.press("0")
    wait_for(page, "explorer.drawing === null && explorer.view[0] < -1.3")
    np.testing.assert_allclose(place(page, 0), before, atol=1)
    for _ in range(6):
        page.keyboard.press("+")
    go_to(page, 3 * N - 3, 3)  # a point outside of the view
    wait_for(page, f"document.getElementById('point-title').textContent === 'Row {3 * N - 3}'")
    box, (x, up) = page.locator("#canvas").bounding_box(), place(page, N - 1)
    assert (x, up) == pytest.approx((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2), abs=2)
    assert page.inner_text("#tip").startswith(f"row {3 * N - 3}")


def test_pan_and_zoom_move_the_picture_and_draw_a_new_one(page):
    first = page.evaluate(PICTURE)
    x, y = place(page, 5)
    drag(page, (x, y), (x + 100, y + 50))
    wait_for(page, "explorer.drawing === null")
    np.testing.assert_allclose(place(page, 5), (x + 100, y + 50), atol=1.5)
    assert page.evaluate(PICTURE) != first
    page.mouse.move(x + 100, y + 50)
    page.mouse.wheel(0, -300)
    wait_for(page, "explorer.drawing === null")
    np.testing.assert_allclose(place(page, 5), (x + 100, y + 50), atol=2)
    ticks = page.evaluate(
        "[...document.querySelectorAll('#x-ticks span')].map((tick) => [parseFloat(tick.style.left), "
        "explorer.scales().x(Number(tick.textContent.replace('−', '-')))])"
    )
    assert all(drawn == pytest.approx(right, abs=0.5) for drawn, right in ticks)
    assert len(ticks) >= 2
    page.evaluate("explorer.zoom(1e11)")
    wait_for(page, "explorer.drawing === null")
    texts = page.locator("#x-ticks span").all_text_contents()
    assert len(set(texts)) == len(texts) >= 2


def test_names_in_the_picture_are_at_their_classes(page):
    page.mouse.move(5, 5)
    names = page.locator("#names text")
    assert sorted(names.all_text_contents()) == NAMES
    page.focus("#canvas")
    page.keyboard.press("ArrowRight")
    wait_for(page, "explorer.drawing === null")
    canvas, (y, classes) = page.locator("#canvas").bounding_box(), points()
    page.wait_for_timeout(300)
    for i in range(4):
        middle = np.median(y[classes == NAMES.index(names.nth(i).text_content())], axis=0)
        at = page.evaluate(f"[explorer.scales().x({middle[0]}), explorer.scales().y({middle[1]})]")
        start = [float(page.locator("#names line").nth(i).get_attribute(end)) for end in ("x1", "y1")]
        assert start == pytest.approx(at, abs=40)  # a standard deviation of the cloud
        box = names.nth(i).bounding_box()
        assert canvas["x"] <= box["x"]
        assert box["x"] + box["width"] <= canvas["x"] + canvas["width"]
    page.click("#legend button:nth-child(2)")
    wait_for(page, "document.querySelectorAll('#names text').length === 1")
    assert names.all_text_contents() == ["kind 1"]
    page.select_option("#color", label="error")
    page.wait_for_selector("#legend .bar")
    assert names.count() == 0
    assert not page.is_visible("#show-names")


def test_clicks_select_add_and_remove_single_points(page, tmp_path):
    y, _ = points()
    one, two = (int(np.abs(y - end).sum(axis=1).argmin()) for end in ([0.4, 0.4], [-0.4, 0.4]))
    cells = "[...document.querySelectorAll('#selected-rows td:first-child')].map((cell) => Number(cell.innerText))"
    clicks = [(one, None, [one]), (two, "Control", [one, two]), (one, "Alt", [two]), (one, None, [one])]
    for point, key, expected in clicks:
        rows = sorted(3 * point for point in expected)
        if key:
            page.keyboard.down(key)
        page.mouse.click(*place(page, point))
        if key:
            page.keyboard.up(key)
        wait_for(page, f"{cells}.join() === '{','.join(map(str, rows))}' && explorer.drawing === null")
        assert [int(row["row"]) for row in saved(page, tmp_path)] == rows
    page.evaluate("scrollTo(0, 0)")
    select_quarter(page, "rectangle", 1)
    wait_for(page, "document.getElementById('selected-count').textContent.startsWith('100 rows')")
    page.keyboard.down("Control")
    page.mouse.click(*place(page, one))
    page.keyboard.up("Control")
    wait_for(page, "document.getElementById('selected-count').textContent.startsWith('101 rows')")


def test_search_tells_missing_rows_from_hidden_ones(page):
    page.select_option("#search-in", label="label")
    page.fill("#search-text", "Kind 2")
    page.press("#search-text", "Enter")
    wait_for(page, "document.getElementById('selected-count').textContent.startsWith('100 rows')")
    assert page.inner_text("#search-result") == "100 found."
    page.click("#legend button:nth-child(1)")
    wait_for(page, "document.getElementById('selected-count').textContent === 'No rows selected.'")
    page.press("#search-text", "Enter")
    wait_for(page, "document.getElementById('search-result').textContent.startsWith('Found, but hidden')")


@pytest.mark.parametrize("kind", ["file", "server"])
def test_two_fingers_zoom_and_one_moves(browser, open_page, addresses, kind):
    context = browser.new_context(viewport={"width": 400, "height": 800}, has_touch=True)
    page = open_page(addresses[kind], context)
    client, box = context.new_cdp_session(page), page.locator("#canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def touch(kind, *fingers):
        client.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [{"x": x + dx, "y": y, "id": i} for i, dx in enumerate(fingers)]},
        )

    width = page.evaluate("explorer.view[1] - explorer.view[0]")
    touch("touchStart", -40, 40)
    for step in range(1, 5):
        touch("touchMove", -40 - 10 * step, 40 + 10 * step)
        page.wait_for_timeout(30)
    touch("touchEnd")
    assert page.evaluate("explorer.view[1] - explorer.view[0]") == pytest.approx(width / 2, rel=0.1)
    left = page.evaluate("explorer.view[0]")
    touch("touchStart", 0)
    for step in range(1, 5):
        touch("touchMove", 15 * step)
        page.wait_for_timeout(30)
    touch("touchEnd")
    assert page.evaluate("explorer.view[0]") < left


def test_an_answer_that_comes_after_the_pointer_has_left_is_not_shown(page):
    page.mouse.move(*place(page, 0))
    page.mouse.move(5, 5)
    page.wait_for_selector("#tip", state="hidden")
    late = page.evaluate(
        """async () => {
          const answer = explorer.hover(explorer.mark());
          explorer.box.dispatchEvent(new PointerEvent("pointerleave"));
          await answer;
          return document.getElementById("tip").hidden;
        }"""
    )
    assert late


def test_hover_shows_the_image_that_the_server_reads(open_page):
    y, _ = points()

    class Images:
        shape = (5, 8)

        def png(self, row):
            return image_png(np.full(40, row / 100), (5, 8), (0.0, 1.0))

    with served(ServedRun(page_of(*coordinates(y[:100])), "run.zarr", Images())) as server:
        page = open_page(server.url)
        page.mouse.move(*place(page, 30))
        page.wait_for_selector("#tip:not([hidden])")
        row = int(page.inner_text("#point-title").removeprefix("Row "))
        page.wait_for_load_state("networkidle")
        image = page.locator("aside .image")
        assert image.get_attribute("aria-label") == f"Image of row {row}"
        drawn = np.asarray(Image.open(io.BytesIO(image.screenshot())).convert("L"))
        assert drawn[10:-10, 10:-10] == pytest.approx(2.55 * row, abs=2)


def test_page_shows_that_the_server_has_stopped(browser):
    run = ServedRun(page_of(*coordinates(points()[0])), "run.zarr")
    with served(run) as server:
        page, _ = opened(browser, server.url)
    page.context.set_offline(True)  # open connections of the stopped server too
    page.click("#in-view")
    page.wait_for_selector("#loading[role=alert]")
    assert "lle explore" in page.inner_text("#loading")
    page.close()

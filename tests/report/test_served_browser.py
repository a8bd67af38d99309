"""The page of `lle explore` in Chromium: what a person sees, selects, saves and reaches with the keyboard."""

import io

import numpy as np
import pytest
from PIL import Image

from lle.jobs.served_run import ServedRun
from lle.report.column import Column
from lle.report.images import image_png
from tests.support.browser import drag, needs_browser, opened, saved, select_quarter, served, wait_for
from tests.support.explorer_page import coordinates, page_of

pytestmark = [pytest.mark.slow, *needs_browser]

N = 30_000
NAMES = [f"kind {i}" for i in range(4)]


def points():
    """Four clouds, one for each class, about the corners of a square."""
    rng = np.random.default_rng(7)
    classes = np.arange(N) % 4
    corners = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]])[classes]
    return (corners + rng.normal(scale=0.15, size=(N, 2))).astype(np.float32), classes


@pytest.fixture(scope="module")
def address():
    y, classes = points()
    columns = [
        *coordinates(np.column_stack([y, y.prod(axis=1)])),
        Column("label", "label", classes, NAMES),
        Column("reconstruction_error", "error", np.exp(y[:, 0])),
    ]
    page = page_of(*columns, rows=3 * np.arange(N), n_input=3 * N)
    with served(ServedRun(page, f"/data/{'runs-of-a-long-name/' * 4}run.zarr")) as server:
        yield server.url


@pytest.fixture
def page(open_page, address):
    return open_page(address)


def place(page, point):
    """Where a point is drawn, in pixels of the window."""
    box, (x, y) = page.locator("#canvas").bounding_box(), points()[0][point].tolist()
    at = page.evaluate(f"[explorer.scales().x({x}), explorer.scales().y({y})]")
    return box["x"] + at[0], box["y"] + at[1]


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


def test_the_picture_shows_each_point_in_its_colour(page):
    """At the middle of each cloud, the tile has the colour of the legend."""
    for corner, kind in (((-1, -1), 0), ((1, -1), 1), ((-1, 1), 2), ((1, 1), 3)):
        shown, legend = page.evaluate(
            """([x, y, kind]) => {
              const [image, canvas] = [document.querySelector("#tile img"), document.createElement("canvas")];
              [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
              const context = canvas.getContext("2d");
              context.drawImage(image, 0, 0);
              const {x: across, y: up} = explorer.scales();
              const pixel = context.getImageData(Math.round(across(x)), Math.round(up(y)), 1, 1).data;
              return [[...pixel], getComputedStyle(document.querySelectorAll("#legend i")[kind]).backgroundColor];
            }""",
            [*corner, kind],
        )
        assert shown[:3] == pytest.approx([int(part) for part in legend[4:-1].split(",")], abs=1)
        assert shown[3] > 200


def test_hover_shows_the_image_of_the_row(open_page):
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


def test_all_selected_rows_are_saved_and_the_first_are_shown(page, tmp_path):
    y, classes = points()
    select_quarter(page, "lasso", 1)
    rows = saved(page, tmp_path)
    assert [int(row["row"]) for row in rows] == (3 * np.flatnonzero(classes == 2)).tolist()
    assert page.locator("#selected-rows tr").count() == 200
    np.testing.assert_allclose([float(row["y1"]) for row in rows], y[classes == 2, 0], rtol=1e-6)


def test_pan_and_zoom_move_the_tile_and_load_a_new_one(page):
    first = page.get_attribute("#tile img", "src")
    x, y = place(page, 5)
    drag(page, (x, y), (x + 100, y + 50))
    wait_for(page, "explorer.drawing === null")
    np.testing.assert_allclose(place(page, 5), (x + 100, y + 50), atol=1.5)
    assert page.get_attribute("#tile img", "src") != first
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


def test_chosen_classes_colours_and_axes_change_the_tile(page, tmp_path):
    sources = [page.get_attribute("#tile img", "src")]

    def changed():
        wait_for(
            page,
            f"explorer.drawing === null && {sources!r}.indexOf("
            "document.querySelector('#tile img').getAttribute('src')) < 0",
        )
        sources.append(page.get_attribute("#tile img", "src"))

    page.click("#legend button:nth-child(2)")
    changed()
    page.click("#in-view")
    page.wait_for_selector("#save:not([disabled])")
    changed()  # the selected points
    assert {row["label"] for row in saved(page, tmp_path)} == {"kind 1"}
    page.select_option("#color", label="error")
    changed()
    assert page.locator("#legend .bar").count() == 1
    page.select_option("#y", label="coordinate 3")
    changed()
    assert page.inner_text("#y-name") == "coordinate 3"
    assert page.inner_text("#selected-count").startswith("7,500 rows selected")


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
        middle = np.median(y[classes == classes[NAMES.index(names.nth(i).text_content())]], axis=0)
        at = page.evaluate(f"[explorer.scales().x({middle[0]}), explorer.scales().y({middle[1]})]")
        start = [float(page.locator("#names line").nth(i).get_attribute(end)) for end in ("x1", "y1")]
        assert start == pytest.approx(at, abs=4)
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


def test_every_action_works_with_the_keyboard(page):
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.innerText"))
    assert {"x", "y", "color", "search-in", "search-text", "zoom-in", "zoom-out", "fit", "in-view", "canvas"} <= reached
    assert {text.split("\n")[0] for text in reached if text.startswith("kind ")} == set(NAMES)
    page.focus("#canvas")  # Enter belongs to a button that has the focus
    counted = "document.getElementById('selected-count').textContent.startsWith('{}')"
    for key in ("n", "n", "Enter"):  # faster than the answers
        page.keyboard.press(key)
    wait_for(page, counted.format("1 row selected"))
    assert page.inner_text("#selected-rows td:first-child") == page.evaluate("String(explorer.row)")
    page.keyboard.press("v")
    wait_for(page, counted.format("30,000 rows"))
    page.keyboard.press("Escape")
    wait_for(page, "document.getElementById('selected-count').textContent === 'No rows selected.'")
    before = place(page, 0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    wait_for(page, "explorer.drawing === null")
    assert place(page, 0)[0] < before[0] - 20
    page.keyboard.press("0")
    wait_for(page, "explorer.drawing === null && explorer.view[0] < -1.4")
    np.testing.assert_allclose(place(page, 0), before, atol=1)


def test_clicks_select_add_and_remove_single_points(page, tmp_path):
    y, _ = points()
    one, two = (int(np.abs(y - end).sum(axis=1).argmin()) for end in ([0.4, 0.4], [-0.4, 0.4]))
    clicks = [(one, None, [one]), (two, "Control", [one, two]), (one, "Alt", [two]), (one, None, [one])]
    for point, key, expected in clicks:
        before = page.evaluate("explorer.selection")
        if key:
            page.keyboard.down(key)
        page.mouse.click(*place(page, point))
        if key:
            page.keyboard.up(key)
        wait_for(page, f"explorer.selection > {before} && explorer.drawing === null")
        assert [int(row["row"]) for row in saved(page, tmp_path)] == sorted(3 * point for point in expected)
    page.evaluate("scrollTo(0, 0)")
    select_quarter(page, "rectangle", 1)
    wait_for(page, "document.getElementById('selected-count').textContent.startsWith('7,500 rows')")
    page.keyboard.down("Control")
    page.mouse.click(*place(page, one))
    page.keyboard.up("Control")
    wait_for(page, "document.getElementById('selected-count').textContent.startsWith('7,501 rows')")


def test_search_tells_missing_rows_from_hidden_ones(page):
    page.select_option("#search-in", label="label")
    page.fill("#search-text", "Kind 2")
    page.press("#search-text", "Enter")
    wait_for(page, "document.getElementById('selected-count').textContent.startsWith('7,500 rows')")
    assert page.inner_text("#search-result") == "7,500 found."
    page.click("#legend button:nth-child(1)")
    wait_for(page, "document.getElementById('selected-count').textContent === 'No rows selected.'")
    page.press("#search-text", "Enter")
    wait_for(page, "document.getElementById('search-result').textContent.startsWith('Found, but hidden')")


def test_two_fingers_zoom_and_one_moves(browser, open_page, address):
    context = browser.new_context(viewport={"width": 400, "height": 800}, has_touch=True)
    page = open_page(address, context)
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


def test_page_shows_that_the_server_has_stopped(browser):
    run = ServedRun(page_of(*coordinates(points()[0])), "run.zarr")
    with served(run) as server:
        page, _ = opened(browser, server.url)
    page.context.set_offline(True)  # open connections of the stopped server too
    page.click("#in-view")
    page.wait_for_selector("#loading[role=alert]")
    assert "lle explore" in page.inner_text("#loading")
    page.close()

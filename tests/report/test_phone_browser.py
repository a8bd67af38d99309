"""The report and the explorer at the width of a phone, in Chromium."""

import base64

import numpy as np
import pytest

from lle.config.load import check_config, resolved
from lle.report.column import Column
from lle.report.metrics import Metrics
from lle.report.page import render_page
from lle.report.page_pictures import DPI, draw_page_pictures
from tests.support.browser import CONTRASTS, axe_problems, names_at_rest, needs_browser, wait_for

N = 400
LONG = [f"{i} in the last twelve months the household has had to borrow money from friends" for i in range(8)]

pytestmark = [pytest.mark.slow, *needs_browser]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_is_readable_on_a_phone(browser, tmp_path, scheme):
    y, classes = np.random.default_rng(7).normal(size=(N, 2)), np.arange(N) % 4
    names = (LONG[0], "b", "c", LONG[3])
    color = Column("color", "label", classes, names)
    drawn = draw_page_pictures(y, np.zeros(N, np.int32), color)
    measured = {"n_components_weak": 1, "residual_variance": {"value": 0.4}, "warnings": ["a warning"]}
    sections = {"input": {"kind": "npy", "path": "x.npy"}, "output": {"store": "/data/roll.zarr"}}
    html = render_page(
        Metrics.read({"n_points": N, **measured}),
        resolved(check_config(sections, "test")),
        "method: lle\n",
        drawn._replace(spectrum=None, numbered=frozenset({0, 3})),
        [],
    )
    (tmp_path / "index.html").write_text(html)
    page = browser.new_page(viewport={"width": 420, "height": 800}, color_scheme=scheme)
    page.goto((tmp_path / "index.html").as_uri())
    assert page.evaluate(CONTRASTS) == []
    assert axe_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    lines = page.evaluate(
        "[...document.querySelectorAll('.tile h3 span')]"
        ".map((mark) => mark.getBoundingClientRect().top - mark.parentElement.getBoundingClientRect().top)"
    )
    assert max(lines) < 8  # beside the name of the tile, not below it
    numbers = page.locator(".key span b").evaluate_all("(all) => all.map((e) => e.getBoundingClientRect().height)")
    assert max(numbers) < 30  # on one line
    image = page.locator("figure img").first
    scale = image.evaluate("(image) => image.clientWidth / image.naturalWidth")
    assert scale * 9 * DPI / 72 >= 10  # text of 9 points, in pixels
    shown = image.evaluate("(image) => image.currentSrc")
    png = drawn.pictures[0].pair.dark if scheme == "dark" else drawn.pictures[0].pair.light
    assert shown == "data:image/png;base64," + base64.b64encode(png).decode()
    page.close()


def test_long_names_are_whole_on_a_phone(show):
    """In the picture, where the class is at an edge, and in the legend."""
    names = ["at the left edge", "a long answer of a questionnaire, with all of its words, (units) and a remark"]
    y, classes = np.repeat([[0.0, 0.0], [1.0, 1.0]], N // 2, axis=0), np.repeat([0, 1], N // 2)
    page = show(y, Column("label", "label", classes, names), width=420, height=800)
    page.check("#show-names")
    shown = names_at_rest(page)
    assert set(shown) == set(names)
    picture = page.locator("#canvas").evaluate("(canvas) => canvas.getBoundingClientRect().toJSON()")
    for box in shown.values():
        assert picture["left"] <= box["left"] < box["right"] <= picture["right"]
        assert picture["top"] <= box["top"] < box["bottom"] <= picture["bottom"]
    legend = page.locator("#legend").inner_text()
    assert all(name in legend for name in names)
    assert page.locator("#legend").evaluate("(legend) => legend.scrollWidth <= legend.clientWidth")


@pytest.fixture
def curve(show):
    """The explorer of a parabola, whose eight parts are classes with long names."""
    x = np.linspace(-1.0, 1.0, 8 * 3 * N)
    parts = Column("label", "label", np.repeat(np.arange(8), 3 * N), LONG)
    return show(np.column_stack([x, x**2]), parts, width=420, height=800)


def test_many_long_names_are_numbers_of_the_legend_on_a_phone(curve):
    """Each class is named, and no name covers points or another name; on a wide screen the names are whole."""
    page = curve
    shown = names_at_rest(page)
    assert set(shown) == {f"#{i + 1}" for i in range(8)}
    assert page.evaluate("explorer.placedNames.map(({covered, faults}) => [covered, faults])") == [[0, 0]] * 8
    assert page.locator("#legend button > span").all_inner_texts() == LONG
    counts = page.locator("#legend button > small").evaluate_all(
        "(all) => all.map((e) => e.getBoundingClientRect().height)"
    )
    assert max(counts) < 30  # on one line
    before = "getComputedStyle(span, '::before').content"
    numbers = page.locator("#legend button > span").evaluate_all(f"(spans) => spans.map((span) => {before})")
    assert numbers == [f'"#{i + 1} "' for i in range(8)]
    page.set_viewport_size({"width": 1400, "height": 900})
    wait_for(page, "explorer.numbered.size === 0 && explorer.arranging === null")
    assert set(names_at_rest(page)) == set(LONG)
    assert page.locator("#legend [data-number]").count() == 0


def test_long_names_are_whole_in_the_picture_file(curve):
    page = curve
    page.evaluate(
        """() => { globalThis.written = []; const own = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
          const end = this.getTransform().transformPoint({x: x + this.measureText(text).width, y});
          const isInside = end.x <= this.canvas.width && end.y <= this.canvas.height;
          if (this.textAlign === "left") written.push([text, isInside]);
          own.call(this, text, x, y); }; }"""
    )
    with page.expect_download() as download:
        page.evaluate("document.querySelector('#save-picture').click()")
    download.value.path()
    written = page.evaluate("written")
    assert all(is_inside for _, is_inside in written)
    text = " ".join(text for text, _ in written)
    assert all(f"#{i + 1} {name} (1,200)" in text for i, name in enumerate(LONG))


def test_a_name_of_one_long_word_is_in_the_picture(show):
    name = "a_column_of_answers/" * 3 + "x" * 25
    y = np.repeat(np.arange(N)[:, None] * 1.0, 2, axis=1)
    page = show(y, Column("label", "label", np.zeros(N, int), [name]), width=420, height=800)
    [shown] = names_at_rest(page)
    assert shown.split() == ["a_column_of_answers/"] * 3 + ["x" * 20, "x" * 5]

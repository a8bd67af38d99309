"""The report and the explorer at the width of a phone, in Chromium."""

import base64

import numpy as np
import pytest

from lle.config.load import check_config, resolved
from lle.report.explore import Column, render_explorer
from lle.report.metrics import Metrics
from lle.report.page import render_page
from lle.report.page_pictures import DPI, draw_page_pictures
from lle.report.point_colors import ColorSource
from tests.support.browser import CONTRASTS, axe_problems, names_at_rest, needs_browser, opened
from tests.support.explorer_page import page_of

N = 400

pytestmark = [pytest.mark.slow, *needs_browser]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_is_readable_on_a_phone(browser, tmp_path, scheme):
    y, classes = np.random.default_rng(7).normal(size=(N, 2)), np.arange(N) % 4
    color = ColorSource(classes * 1.0, "categorical", ("a", "b", "c", "d"), "label")
    drawn = draw_page_pictures(y, np.zeros(N, np.int32), color)
    measured = {"n_components_weak": 1, "residual_variance": {"value": 0.4}, "warnings": ["a warning"]}
    sections = {"input": {"kind": "npy", "path": "x.npy"}, "output": {"store": "/data/roll.zarr"}}
    html = render_page(
        Metrics.read({"n_points": N, **measured}),
        resolved(check_config(sections, "test")),
        "method: lle\n",
        drawn._replace(spectrum=None),
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
    image = page.locator("figure img").first
    scale = image.evaluate("(image) => image.clientWidth / image.naturalWidth")
    assert scale * 9 * DPI / 72 >= 10  # text of 9 points, in pixels
    shown = image.evaluate("(image) => image.currentSrc")
    png = drawn.pictures[0].pair.dark if scheme == "dark" else drawn.pictures[0].pair.light
    assert shown == "data:image/png;base64," + base64.b64encode(png).decode()
    page.close()


def test_long_names_are_whole_on_a_phone(browser, tmp_path):
    """In the picture, where the class is at an edge, and in the legend."""
    names = ["at the left edge", "a long answer of a questionnaire, with all of its words, (units) and a remark"]
    y, classes = np.repeat([[0.0, 0.0], [1.0, 1.0]], N // 2, axis=0), np.repeat([0, 1], N // 2)
    columns = [Column(f"y{j + 1}", f"coordinate {j + 1}", y[:, j], role="coordinate") for j in range(2)]
    page_file = tmp_path / "explore.html"
    page_file.write_bytes(render_explorer(page_of(*columns, Column("label", "label", classes, names))))
    page, heard = opened(browser, page_file.as_uri(), viewport={"width": 420, "height": 800})
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
    page.close()
    assert heard == []


def test_a_name_of_one_long_word_is_in_the_picture(browser, tmp_path):
    name = "a_column_of_answers/" * 3 + "x" * 25
    columns = [Column(f"y{j + 1}", f"coordinate {j + 1}", np.arange(N) * 1.0, role="coordinate") for j in range(2)]
    page_file = tmp_path / "explore.html"
    page_file.write_bytes(render_explorer(page_of(*columns, Column("label", "label", np.zeros(N, int), [name]))))
    page, heard = opened(browser, page_file.as_uri(), viewport={"width": 420, "height": 800})
    [shown] = names_at_rest(page)
    assert shown.split() == ["a_column_of_answers/"] * 3 + ["x" * 20, "x" * 5]
    page.close()
    assert heard == []

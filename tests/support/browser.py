"""Chromium for the tests of the explorer, and what they do in it."""

import csv
import importlib.util
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lle.jobs.explore_server import Server
from lle.jobs.served_run import ServedRun

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--no-first-run",
]

needs_browser = [
    pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: the explorer is not tested (apt-get install chromium)"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed"),
]


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # may be missing

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


def disturbing(message: Any) -> bool:
    """Errors and warnings, but for the remark of a driver without a GPU on how slow it is."""
    return message.type in ("error", "warning") and "GL Driver Message (OpenGL, Performance" not in message.text


def opened(browser: Any, address: str, **options: Any) -> tuple[Any, list[str]]:
    """A ready page, and a growing list of its errors, warnings and requests to other places than its own."""
    page, heard = browser.new_page(**options), list[str]()
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("console", lambda message: heard.append(message.text) if disturbing(message) else None)
    own = ("file:", "blob:", *([address] if address.startswith("http:") else []))
    page.on("request", lambda request: None if request.url.startswith(own) else heard.append(request.url))
    page.goto(address)
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    return page, heard


@contextmanager
def served(run: ServedRun) -> Iterator[Server]:
    """The server of a run, in a thread."""
    with Server(run, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def wait_for(page: Any, expression: str, argument: Any = None) -> Any:
    """The value of an expression once it is true; Playwright's own function needs `unsafe-eval`, which pages forbid."""
    for _ in range(600):
        if value := page.evaluate(expression, argument):
            return value
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def drag(page: Any, *stops: tuple[float, float]) -> None:
    page.mouse.move(*stops[0])
    page.mouse.down()
    for stop in stops[1:]:
        page.mouse.move(*stop, steps=12)
    page.mouse.up()


def select_quarter(page: Any, mode: str, inset: float) -> None:
    """Select the upper left quarter of the picture by "lasso" or "rectangle", `inset` pixels from its edges."""
    box = page.locator("#canvas").bounding_box()
    left, top, right, bottom = (
        box["x"] + inset,
        box["y"] + inset,
        box["x"] + box["width"] / 2,
        box["y"] + box["height"] / 2,
    )
    page.check(f'input[value="{mode}"]')
    if mode == "lasso":
        drag(page, (left, top), (right, top), (right, bottom), (left, bottom), (left, top))
    else:
        drag(page, (left, top), (right, bottom))
    page.wait_for_selector("#save:not([disabled])")


def names_at_rest(page: Any, earlier: Any = None) -> dict[str, dict[str, float]]:
    """Boxes of the names in the picture by their text, all read at one time, because a move draws the names anew.

    Waits until the names are arranged, and anew if `earlier` is a handle of `explorer.placedNames`.
    """
    boxes: dict[str, dict[str, float]] = wait_for(
        page,
        "(earlier) => explorer.arranging === null && explorer.placedNames !== earlier"
        " && Object.fromEntries([...document.querySelectorAll('#names text')].map((name) =>"
        " [[...name.children].map((line) => line.textContent).join(' '), name.getBoundingClientRect().toJSON()]))",
        earlier,
    )
    return boxes


def saved(page: Any, tmp_path: Path) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "selection.csv")
    with (tmp_path / "selection.csv").open(newline="") as file:
        return list(csv.DictReader(file))


CONTRASTS = """() => {
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const behind = (e) => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0.5) return c; } return [255, 255, 255, 1]; };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim() !== "");
    if (!own || !e.checkVisibility() || ["SCRIPT", "NOSCRIPT", "OPTION"].includes(e.tagName)) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push([e.tagName, e.id, e.textContent.slice(0, 40), ratio]);
  }
  return found;
}"""


def axe_problems(page: Any) -> list[Any]:
    """What axe-core finds where AXE names its file (npm install axe-core: axe.min.js); else nothing."""
    if "AXE" not in os.environ:
        return []
    page.evaluate(Path(os.environ["AXE"]).read_text())
    return page.evaluate("axe.run().then((result) => result.violations.map((v) => [v.id, v.nodes[0].html]))")

"""The browser that the tests of the report share, and the pages that they open in it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lle.report.column import Column
from lle.report.explore import render_explorer
from tests.support.browser import chromium, opened
from tests.support.explorer_page import coordinates, page_of


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a ready page. The test fails on any error or warning of the browser, or a request to another place."""
    pages = []

    def open_one(address: str, context: Any = browser, **options: Any) -> Any:
        if context is browser:
            options = {"viewport": {"width": 1400, "height": 900}, **options}
        page, heard = opened(context, address, **options)
        pages.append((page, heard))
        return page

    yield open_one
    for page, heard in pages:
        page.close()
        assert heard == []


@pytest.fixture
def show(open_page: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Opens an explorer of coordinates (n, m) and further columns; `changes` are those of the page's content."""

    def show_one(y: np.ndarray, *columns: Column, width: int = 1400, height: int = 900, **changes: Any) -> Any:
        content = page_of(*coordinates(y), *columns)._replace(**changes)
        (tmp_path / "explore.html").write_bytes(render_explorer(content))
        return open_page((tmp_path / "explore.html").as_uri(), viewport={"width": width, "height": height})

    return show_one

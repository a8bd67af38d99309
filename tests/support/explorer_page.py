"""Pages of the explorer, encoded from columns and decoded again."""

import base64
import json
from html.parser import HTMLParser
from typing import Any

import numpy as np

from lle.report.column import Column
from lle.report.explore import ExplorerPage

TYPES = {1: "<u1", 2: "<u2", 4: "<u4"}


class Scripts(HTMLParser):
    """Content of the script elements by id ("" for those without), and the attributes that could load something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.by_id: dict[str, str] = {}
        self.addresses: list[str] = []
        self._id: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        self._id = dict(attrs).get("id") or "" if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._id = None

    def handle_data(self, data: str) -> None:
        if self._id is not None:
            self.by_id[self._id] = self.by_id.get(self._id, "") + data


def decode(page: bytes) -> dict[str, Any]:
    """Rows and columns of a page, by name; classes as their names."""
    scripts = Scripts(page.decode()).by_id
    content = json.loads(scripts["content"])

    def payload(index: int, dtype: str) -> np.ndarray:
        return np.frombuffer(base64.b64decode(scripts[f"data-{index}"]), dtype)

    rows = content["rows"]
    decoded = {"row": np.arange(content["nRows"]) if rows is None else payload(rows["data"], "<u4")}
    for column in content["columns"]:
        if column["names"] is not None:
            names = np.array([*column["names"], ""])
            decoded[column["name"]] = names[payload(column["data"], TYPES[column["bytes"]])]
            continue
        codes = payload(column["data"], f"<{column['type']}").astype(float)
        if column["type"] in ("u2", "u4"):
            unknown = codes == 256 ** int(column["type"][1]) - 1
            codes = np.where(unknown, np.nan, column["low"] + codes * column["step"])
        decoded[column["name"]] = codes
    return decoded


def coordinates(y: np.ndarray) -> list[Column]:
    return [Column(f"y{j + 1}", f"coordinate {j + 1}", values, role="coordinate") for j, values in enumerate(y.T)]


def page_of(*columns: Column, rows: np.ndarray | None = None, n_input: int | None = None) -> ExplorerPage:
    rows = np.arange(len(columns[0].values)) if rows is None else rows
    return ExplorerPage("title", rows, columns, len(rows) if n_input is None else n_input, len(rows))

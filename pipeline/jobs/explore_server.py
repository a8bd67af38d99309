"""`lle explore`: show all points of a finished run in a browser, by a web server of this machine.

It serves this machine only, and no part of a request is used as a file path.

Every address begins with a random word, because other users of a machine can connect to its loopback address. The Host
header must name this machine, which prevents DNS rebinding by other web pages.
"""

import contextlib
import json
import os
import secrets
import sys
import webbrowser
from collections.abc import Callable, Collection, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np

from ..core.errors import ConfigError, Interrupted
from ..engine.step import Json
from ..report.placed_points import Part
from ..storage.bundles import Array
from ..storage.store import Store
from .served_run import CHANGES, TOWARD, Axes, ServedRun, View, load_run

HOST = "127.0.0.1"
HOST_NAMES = {HOST, "localhost"}
MAX_NUMBER = 1e30
"""Coordinates are float32, and their differences and products must be finite."""
MAX_PIXELS = 4096
"""Width and height of a tile."""

Response = tuple[str, bytes | Iterator[bytes]]
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def explore(store: Store, port: int, open_browser: bool, announce: Callable[[str], None]) -> Json:
    """Load the points, call `announce` with the address, and serve the page's requests until Ctrl-C or SIGTERM.

    Raises ConfigError if the store has no finished embedding, or the port is in use.
    """
    run = load_run(store)
    with Server(run, port) as server:
        announce(server.url)
        if open_browser and (sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)):
            webbrowser.open(server.url)  # without a display it could start a text browser in this terminal
        with contextlib.suppress(Interrupted):
            server.serve_forever()
    return {"store": store.url, "url": server.url}


class Query:
    """The parameters of a request. Every method raises ValueError if they are not as expected."""

    def __init__(self, text: str, run: ServedRun) -> None:
        self._values = {name: values[-1] for name, values in parse_qs(text).items()}
        self._run = run

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def one_of(self, name: str, values: Collection[str]) -> str:
        if (text := self.text(name)) not in values:
            raise ValueError(f"{name}: expected one of {', '.join(values)}, found {text!r}")
        return text

    def integer(self, name: str, low: int, high: int) -> int:
        value = int(self._values.get(name, ""))
        if not low <= value <= high:
            raise ValueError(f"{name}: expected {low} to {high}, found {value}")
        return value

    def numbers(self, name: str, count: int | None = None) -> list[float]:
        values = [float(text) for text in self._values.get(name, "").split(",")]
        if not np.less_equal(np.abs(values), MAX_NUMBER).all() or (count is not None and len(values) != count):
            raise ValueError(f"{name}: expected {count or ''} numbers up to {MAX_NUMBER:g}, found {self._values[name]}")
        return values

    def view(self) -> View:
        columns, component = self._run.columns, self._run.component
        last = sum(column.role == "coordinate" for column in columns) - 1
        last_component = -1 if component is None else len(component.names or ()) - 1
        axes = Axes(
            self.integer("x", 0, last), self.integer("y", 0, last), self.integer("component", -1, last_component)
        )
        color, chosen = self.integer("color", -1, len(columns) - 1), filter(None, self.text("chosen").split(","))
        return View(axes, color, [*map(int, chosen)], self.text("dark") == "1", self.integer("selection", 0, 2**53))

    def change(self) -> tuple[str, Array]:
        """How to change a selection, and by which points."""
        run, change, view = self._run, self.one_of("change", CHANGES), self.view()
        if self.text("polygon"):
            return change, run.inside(view, np.array(self.numbers("polygon")).reshape(-1, 2))
        if self.text("row"):
            return change, run.points_of(self.integer("row", 0, 2**53))
        if self.text("text"):
            return change, run.search(view, self.text("in"), self.text("text"))[0]
        if change not in ("limit", "clear"):
            raise ValueError("expected a polygon, a row, or a text to search for")
        return change, run.shown(view) if change == "limit" else np.empty(0, np.int64)

    def part(self) -> Part:
        part = Part(*self.numbers("part", 4))
        if not (part.left < part.right and part.bottom < part.top):
            raise ValueError(f"part: expected left,right,bottom,top, found {part}")
        return part

    def size(self) -> tuple[int, int]:
        width, height = (min(max(int(value), 1), MAX_PIXELS) for value in self.numbers("size", 2))
        return width, height

    def larger(self) -> int:
        """Pixels to add to the radius of points."""
        return self.integer("larger", -9, 9) if "larger" in self._values else 0


def responses(run: ServedRun) -> dict[str, Callable[[Query], Response]]:
    """The function that responds to each name of the address."""

    def as_json(content: object) -> Response:
        return "application/json", json.dumps(content).encode()

    def row(query: Query) -> Response:
        view, start = query.view(), query.integer("from", -1, 2**53)
        if query.text("toward"):
            return as_json(run.row_toward(view, start, query.one_of("toward", TOWARD)))
        return as_json(run.row_beside(view, start, query.integer("by", -1, 1)))

    def near(query: Query) -> Response:
        at, reach = query.numbers("at", 2), query.numbers("reach", 2)
        if min(reach) <= 0:
            raise ValueError(f"reach: expected positive numbers, found {reach}")
        return as_json(run.near(query.view(), at, reach))

    def search(query: Query) -> Response:
        view = query.view()
        shown, hidden = run.search(view, query.text("in"), query.text("text"))
        return as_json({"count": len(shown), "hidden": hidden, **run.around(view.axes, shown)})

    def select(query: Query) -> Response:
        number = run.select(query.view().selection, *query.change())
        return as_json({"selection": number, **run.summary(number, query.view().color)})

    def summary(query: Query) -> Response:
        view = query.view()
        return as_json(run.summary(view.selection, view.color))

    return {
        "": lambda query: ("text/html; charset=utf-8", run.page()),
        "fit.json": lambda query: as_json(run.first_view(query.view().axes)),
        "key.json": lambda query: as_json(run.legend(query.view())),
        "tile.png": lambda query: ("image/png", run.tile(query.view(), query.part(), query.size(), query.larger())),
        "image.png": lambda query: ("image/png", run.image(query.integer("row", 0, 2**53))),
        "near.json": near,
        "row.json": row,
        "search.json": search,
        "select.json": select,
        "summary.json": summary,
        "selection.csv": lambda query: ("text/csv; charset=utf-8", run.csv(run.selected(query.view().selection))),
    }


class Handler(BaseHTTPRequestHandler):
    """Responds to GET requests under /<word>/; everything else is refused."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and content are two writes; the second would wait 40 ms
    server: "Server"

    def do_GET(self) -> None:
        try:
            status, response = self._answer()
        except (ValueError, OverflowError, IndexError) as error:  # in the parameters, or in the address of the host
            status, response = 400, ("text/plain; charset=utf-8", str(error).encode())
        self._send(status, response)

    def _answer(self) -> tuple[int, Response]:
        address, host = urlsplit(self.path), urlsplit(f"//{self.headers.get('Host', '')}").hostname
        word, _, name = address.path.removeprefix("/").partition("/")
        if host not in HOST_NAMES:
            return 403, ("text/plain", b"lle explore answers to 127.0.0.1 and localhost only")
        if not secrets.compare_digest(word.encode(), self.server.word.encode()) or name not in self.server.responses:
            return 404, ("text/plain", b"not here; open the address that lle explore printed")
        with np.errstate(all="ignore"):  # NumPy's warnings for very small or large parts
            return 200, self.server.responses[name](Query(address.query, self.server.run))

    def _send(self, status: int, response: Response) -> None:
        kind, content = response
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if isinstance(content, bytes):
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in content:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing, because the address contains the secret word."""


class Server(ThreadingHTTPServer):
    """Listens on the loopback address. Port 0 takes a free one. Raises ConfigError if the port is in use."""

    daemon_threads = True

    def __init__(self, run: ServedRun, port: int) -> None:
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise ConfigError(
                f"--port {port}: cannot be used ({error.strerror}); choose another port, or leave out --port for a "
                f"free one"
            ) from None
        self.run, self.word, self.responses = run, secrets.token_urlsafe(16), responses(run)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/{self.word}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing, because browsers drop connections of pictures that they no longer need."""

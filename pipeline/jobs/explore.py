"""`lle explore`: show all points of a finished run in a browser on this machine."""

import contextlib
import os
import sys
import webbrowser
from collections.abc import Callable

from ..core.errors import Interrupted
from ..engine.plan import Json
from ..storage.store import Store


def explore(store: Store, port: int, open_browser: bool, announce: Callable[[str], None]) -> Json:
    """Load the points, call `announce` with the address, and serve the page's requests until Ctrl-C or SIGTERM.

    Raises ConfigError if the store has no finished embedding, or the port is in use.
    """
    from .explore_server import Server  # noqa: PLC0415 (a second of imports)
    from .served_run import load_run  # noqa: PLC0415

    run = load_run(store)
    with Server(run, port) as server:
        announce(server.url)
        if open_browser and (sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)):
            webbrowser.open(server.url)  # elsewhere it could start a browser in this terminal
        with contextlib.suppress(Interrupted):
            server.serve_forever()
    return {"store": store.url, "url": server.url}

"""An HTTP proxy in front of an object store that disturbs requests: errors, resets, cut, changed and late bodies."""

import contextlib
import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = ("500", "503", "reset", "cut", "late")
LATE_SECONDS = 0.5
HOP_BY_HOP = {"connection", "content-length", "transfer-encoding", "keep-alive"}

Choose = Callable[[str, str], str | None]
"""From method and target of a request to one of FAULTS, "flip" or None."""


def at_random(share: float, seed: int) -> Choose:
    """Faults of every kind for a share of the requests."""
    generator, lock = random.Random(seed), threading.Lock()

    def choose(method: str, target: str) -> str | None:
        with lock:
            return generator.choice(FAULTS) if generator.random() < share else None

    return choose


def first(fault: str, method: str, part: str, times: int = 1) -> Choose:
    """One fault for the first requests of a method whose target holds `part`."""
    remaining, lock = [times], threading.Lock()

    def choose(requested: str, target: str) -> str | None:
        with lock:
            if requested == method and part in target and remaining[0]:
                remaining[0] -= 1
                return fault
        return None

    return choose


@contextlib.contextmanager
def disturbed(server: Any, choose: Choose) -> Iterator[tuple[Any, Counter[str]]]:
    """The server (a Server of object_servers) behind the proxy, and the number of faults of each kind."""
    counts: Counter[str] = Counter()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(server.endpoint, choose, counts)) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server._replace(endpoint=f"http://127.0.0.1:{proxy.server_port}"), counts
        finally:
            proxy.shutdown()
            thread.join()


def _handler(endpoint: str, choose: Choose, counts: Counter[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = choose(self.command, self.path)
            counts[fault or "none"] += 1
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                return
            if fault in {"500", "503"}:
                self.reply(int(fault), [], b"<Error><Code>InternalError</Code></Error>")
                return
            if fault == "late":
                time.sleep(LATE_SECONDS)
            status, headers, data = self.forward(body)
            if fault == "flip" and data:
                data = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 16]) + data[len(data) // 2 + 1 :]
            self.reply(status, headers, data, len(data) // 2 if fault == "cut" else len(data))

        def forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "connection":
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            data = response.read()
            connection.close()
            self.length = response.getheader("Content-Length")  # of a HEAD
            return response.status, response.getheaders(), data

        def reply(self, status: int, headers: list[tuple[str, str]], data: bytes, sent: int | None = None) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            is_head = self.command == "HEAD" and bool(headers)
            self.send_header("Content-Length", str(self.length or 0) if is_head else str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[:sent])
            self.close_connection |= sent is not None and sent < len(data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = serve  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler

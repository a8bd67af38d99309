"""A forwarder of connections, which counts requests and bytes to an object store, delays them, or cuts all off."""

import contextlib
import re
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

REQUEST = re.compile(rb"(GET|PUT|HEAD|POST|DELETE) (\S+) HTTP/1\.1\r\n")
LISTING = re.compile(rb"list-type=|comp=list")  # of S3, of Azure
CHUNK = 1 << 16
Count = Callable[[bytes], object]


class Traffic:
    """Traffic of a forwarder: requests by kind, and bytes in each direction. Each request waits `delay` seconds."""

    def __init__(self, delay: float = 0.0) -> None:
        self._delay = delay
        self.forget()

    def forget(self) -> None:
        self.requests, self.sent, self.received = Counter[str](), 0, 0

    def up(self, data: bytes) -> None:
        self.sent += len(data)
        for method, target in REQUEST.findall(data):
            self.requests["LIST" if LISTING.search(target) else method.decode()] += 1
            time.sleep(self._delay)

    def down(self, data: bytes) -> None:
        self.received += len(data)


@contextlib.contextmanager
def counted(server: Any, delay: float = 0.0) -> Iterator[tuple[Any, Traffic]]:
    """The server (a Server of object_servers) behind a forwarder that counts, and delays each request."""
    traffic = Traffic(delay)
    with forwarded(server.endpoint.removeprefix("http://"), traffic.up, traffic.down) as (address, _):
        yield server._replace(endpoint=f"http://{address}"), traffic


@contextlib.contextmanager
def forwarded(address: str, up: Count, down: Count) -> Iterator[tuple[str, Callable[[float], None]]]:
    """Address of a forwarder to another one, and a function that cuts all connections off for some seconds."""
    (host, port), is_cut, links = address.split(":"), threading.Event(), list[socket.socket]()

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if is_cut.is_set():
                return
            with socket.create_connection((host, int(port))) as target:
                links.extend((self.request, target))
                response_thread = threading.Thread(target=pump, args=(target, self.request, down), daemon=True)
                response_thread.start()
                pump(self.request, target, up)
                response_thread.join()

    class Listener(socketserver.ThreadingTCPServer):
        daemon_threads = True

    def cut(seconds: float) -> None:
        is_cut.set()
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        threading.Timer(seconds, is_cut.clear).start()

    with Listener(("127.0.0.1", 0), Forward) as listener:
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.server_address[1]}", cut
        finally:
            listener.shutdown()
            thread.join()


def pump(source: socket.socket, target: socket.socket, count: Count) -> None:
    """Forward bytes until either side closes the connection."""
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            count(data)
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)

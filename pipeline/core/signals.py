"""The signals that stop the command: an exception of the main thread during work, an immediate exit before it."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import Interrupted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def exit_on_signals() -> None:
    """SIGINT and SIGTERM end the process at once, with exit code 128 + number.

    Called before the heavy imports: a container's process 1 ignores SIGTERM until it has a handler, and an exception
    raised during an import can be swallowed there. Nothing is locked or written yet.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        message, code = str(Interrupted(number)), 128 + number
        os.write(2, f"lle: {message}\n".encode())
        if "--json" in sys.argv:
            record = {"status": "failed", "error": Interrupted.__name__, "message": message, "exit_code": code}
            os.write(1, f"{json.dumps(record)}\n".encode())
        os._exit(code)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM raise Interrupted in the main thread, so that locks and clusters are released."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    previous_handlers = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)

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

_received: list[int] = []  # stop signals in the outermost block of interruptible()


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
    """SIGINT and SIGTERM raise Interrupted in the main thread, so that locks and clusters are released.

    Python discards an exception that a handler raises while a destructor or a callback runs. Loops that may run for
    long call `raise_if_stopped`, which raises it again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handlers = {number: signal.signal(number, _interrupt) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        if _interrupt not in previous_handlers.values():  # this block is the outermost
            _received.clear()


def raise_if_stopped() -> None:
    """Raise Interrupted if a stop signal has arrived in the `interruptible` block of the main thread."""
    if _received and threading.current_thread() is threading.main_thread():
        raise Interrupted(_received[-1])


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise Interrupted(number)

"""The signals that stop the command raise an exception in the main thread (before the work: core/startup.py)."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import Interrupted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_received: list[int] = []  # stop signals in the outermost block of interruptible()


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

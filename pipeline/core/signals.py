"""The signals that stop the command raise an exception in the main thread (before the work: core/startup.py)."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import Interrupted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], object] | int | None
Handlers = dict[signal.Signals, Handler]

_received: list[int] = []  # stop signals in the outermost block of interruptible()


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM raise Interrupted in the main thread, so that locks and clusters are released.

    Python discards an exception that a handler raises while a destructor or a callback runs. Loops that may run for
    long call `raise_if_stopped`, which raises it again.
    """
    previous_handlers: Handlers = {}
    try:
        with stop_signals_handled(_interrupt) as previous_handlers:
            yield
    finally:
        if previous_handlers and _interrupt not in previous_handlers.values():  # this block is the outermost
            _received.clear()


@contextmanager
def stop_signals_handled(handler: Handler) -> Iterator[Handlers]:
    """Handle SIGINT and SIGTERM by `handler` in the main thread; yields the earlier handlers, none in other threads."""
    is_main = threading.current_thread() is threading.main_thread()
    previous_handlers = {number: signal.signal(number, handler) for number in STOP_SIGNALS} if is_main else {}
    try:
        yield previous_handlers
    finally:
        for number, previous_handler in previous_handlers.items():
            signal.signal(number, previous_handler)


def raise_if_stopped() -> None:
    """Raise Interrupted if a stop signal has arrived in the `interruptible` block of the main thread."""
    if _received and threading.current_thread() is threading.main_thread():
        raise Interrupted(_received[-1])


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise Interrupted(number)

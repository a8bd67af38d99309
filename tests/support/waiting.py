"""Waiting for a condition, in tests of threads and processes."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return as soon as the condition holds. An assertion fails if it does not hold within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition does not hold after {seconds} s"
        time.sleep(0.005)

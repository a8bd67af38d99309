"""Processes that do not import the script that Python runs."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_lock = threading.Lock()
_hidden: list[ModuleType] = []  # the script, once for each block that has not ended


@contextmanager
def hidden_main_script() -> Iterator[None]:
    """Processes that multiprocessing starts within the block do not import the script.

    A script without `if __name__ == "__main__":` would run again in each of them. They need nothing of it.
    """
    with _lock:
        _hidden.append(_hidden[0] if _hidden else sys.modules["__main__"])
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        with _lock:
            script = _hidden.pop()
            if not _hidden:
                sys.modules["__main__"] = script

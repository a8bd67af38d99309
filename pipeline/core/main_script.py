"""Processes that do not import the script that Python runs."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_lock = threading.Lock()
_script: ModuleType | None = None
_n_blocks = 0  # that have not ended


class _StandIn(ModuleType):
    """Has the content of the script, for other threads that look for it, but no file that a process could import."""

    def __init__(self, script: ModuleType) -> None:
        super().__init__("__main__")
        self.__file__, self._content = None, script

    def __getattr__(self, name: str) -> object:
        return getattr(self._content, name)


@contextmanager
def hidden_main_script() -> Iterator[None]:
    """Processes that multiprocessing starts within the block do not import the script.

    A script without `if __name__ == "__main__":` would run again in each of them. They need nothing of it.
    """
    global _script, _n_blocks
    with _lock:
        if not _n_blocks:
            _script = sys.modules["__main__"]
            sys.modules["__main__"] = _StandIn(_script)
        _n_blocks += 1
    try:
        yield
    finally:
        with _lock:
            _n_blocks -= 1
            if not _n_blocks and _script is not None:
                sys.modules["__main__"] = _script

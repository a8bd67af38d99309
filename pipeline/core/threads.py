"""Limit the threads of the numerical libraries that are loaded."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache

from threadpoolctl import LibController, ThreadpoolController

_lock = threading.Lock()
_limits: list[tuple[object, int]] = []  # the limits that have not ended, in the order in which they began
_unlimited: dict[str, int] = {}  # threads of each library, by its file, before the first of these limits


@contextmanager
def limited_threads(n_threads: int) -> Iterator[None]:
    """Limit the thread pools of all loaded libraries.

    The limit of a BLAS library applies to the whole process. If limits overlap, as in Python threads that each run a
    job, the limit that began last applies. When all have ended, each library has its first number again. threadpoolctl
    alone would restore the number at the start of a limit, which may be another thread's limit. OpenMP has a number
    for each thread.
    """
    this = object(), n_threads
    with _lock:
        _limits.append(this)
        _apply()
        openmp = _pools(len(sys.modules)).select(user_api="openmp").limit(limits=n_threads)
    try:
        with openmp:
            yield
    finally:
        with _lock:
            _limits.remove(this)
            _apply()


@cache
def find_late_pools() -> None:
    """After the first eigensolve of a process, find pools again: MKL loads OpenMP without a Python module."""
    _pools.cache_clear()


def _apply() -> None:
    for library in _pools(len(sys.modules)).select(user_api="blas").lib_controllers:
        if _limits:
            _unlimited.setdefault(library.filepath, library.get_num_threads() or 1)
            _set_threads(library, _limits[-1][1])
        elif library.filepath in _unlimited:
            _set_threads(library, _unlimited.pop(library.filepath))


def _set_threads(library: LibController, n_threads: int) -> None:
    """Set the number for the process. Since threadpoolctl 3.8, OpenBLAS obeys the first thread that set it only."""
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    library.set_num_threads(n_threads)
    if release is not None:
        release(force=True)


@lru_cache(maxsize=1)
def _pools(n_modules: int) -> ThreadpoolController:
    """Controller of the thread pools of all loaded libraries; a new one if more modules were loaded. It takes 5 ms."""
    return ThreadpoolController()

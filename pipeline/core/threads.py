"""Limit the threads of the numerical libraries that are loaded."""

import sys
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


def limited_threads(n_threads: int) -> Any:
    """A context manager that limits the thread pools of all loaded libraries."""
    return _pools(len(sys.modules)).limit(limits=n_threads)


def forget_pools() -> None:
    """Look for thread pools again at the next limit: a library may have been loaded without a Python module."""
    _pools.cache_clear()


@lru_cache(maxsize=1)
def _pools(n_modules: int) -> ThreadpoolController:
    """Controller of the thread pools of all loaded libraries; a new one if more modules were loaded. It takes 5 ms."""
    return ThreadpoolController()

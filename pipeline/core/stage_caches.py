"""Caches that live as long as a process works on one stage.

A cached row group of the input can be as large as the memory planned for a later step, and the process that read it
also runs that step.
"""

import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_clear: list[Callable[[], None]] = []
_stage: list[str] = []


def kept_in_stage(function: Callable[P, T]) -> Callable[P, T]:
    """Keep the last result of a function until the process begins another stage.

    One thread at a time calls it, so threads that need the same result compute it once.
    """
    cached, lock = lru_cache(maxsize=1)(function), threading.Lock()
    _clear.append(cached.cache_clear)

    @wraps(function)
    def in_turn(*arguments: P.args, **keywords: P.kwargs) -> T:
        with lock:
            return cast(Callable[P, T], cached)(*arguments, **keywords)

    return in_turn


def begin_stage(stage: str) -> None:
    """Forget these results if the process worked on another stage before."""
    if _stage != [stage]:
        _stage[:] = [stage]
        for clear in _clear:
            clear()

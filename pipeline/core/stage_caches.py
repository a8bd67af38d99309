"""Caches that live as long as a process works on one stage.

A cached row group of the input can be as large as the memory planned for a later step, and the process that read it
also runs that step.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_clear: list[Callable[[], None]] = []
_stage: list[str] = []


def kept_in_stage(function: Callable[P, T]) -> Callable[P, T]:
    """Keep the last result of a function until the process begins another stage."""
    cached = lru_cache(maxsize=1)(function)
    _clear.append(cached.cache_clear)
    return cast(Callable[P, T], cached)


def begin_stage(stage: str) -> None:
    """Forget these results if the process worked on another stage before."""
    if _stage != [stage]:
        _stage[:] = [stage]
        for clear in _clear:
            clear()

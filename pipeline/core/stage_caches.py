"""Caches that live as long as a process works on one stage.

A cached row group of the input can be as large as the memory planned for a later step, and the process that read it
also runs that step.
"""

from typing import Protocol, TypeVar


class Clearable(Protocol):
    """A cache, such as those of functools."""

    def cache_clear(self) -> None: ...


Cache = TypeVar("Cache", bound=Clearable)

_caches: list[Clearable] = []
_stage: list[str] = []


def cleared_between_stages(cache: Cache) -> Cache:
    """Register a cache: it is emptied when the process begins another stage."""
    _caches.append(cache)
    return cache


def begin_stage(stage: str) -> None:
    """Empty the registered caches if the process worked on another stage before."""
    if _stage != [stage]:
        _stage[:] = [stage]
        for cache in _caches:
            cache.cache_clear()

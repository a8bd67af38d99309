"""What a process keeps from one block of a stage to the next, let go when it begins another stage.

A row group of the input can be as large as all that a later step plans for, and the process that read it lives on.
"""

from typing import Protocol, TypeVar


class Kept(Protocol):
    """A cache, such as those of functools."""

    def cache_clear(self) -> None: ...


Cache = TypeVar("Cache", bound=Kept)

_caches: list[Kept] = []
_stage: list[str] = []


def released_with(cache: Cache) -> Cache:
    """Have a cache emptied where a process goes on with another stage than the one that filled it."""
    _caches.append(cache)
    return cache


def begin_stage(stage: str) -> None:
    """Empty what other stages have filled."""
    if _stage != [stage]:
        _stage[:] = [stage]
        for cache in _caches:
            cache.cache_clear()

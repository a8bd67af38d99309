"""Requests to object stores, repeated after temporary failures, with growing pauses and a limit in time.

obstore repeats a request only until the response begins. A body or a listing that breaks off later is an error of the
caller, and the pages of a listing are one call here.
"""

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

from .storage_errors import explain_remote

T = TypeVar("T")

RETRY_SECONDS = 60.0  # from the first attempt of an operation to the last
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
CLIENT_RETRY: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=30)}  # obstore's own, inside each attempt
REFUSED = re.compile(r"status(?: code)?:? 4(?!08|29)\d\d\b")  # by the service, for good; not 408 and 429


def is_temporary(error: Exception) -> bool:
    """Whether an object store's client raised it, for a reason that the same request need not meet again."""
    explanation = explain_remote(error)
    return explanation is not None and not explanation.is_final and not REFUSED.search(str(error))


def pauses() -> Iterator[float]:
    """Seconds to wait before each further attempt: exponential with jitter, until RETRY_SECONDS are over."""
    deadline = time.monotonic() + RETRY_SECONDS
    for attempt in count():
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1.0)
        if time.monotonic() + pause > deadline:
            return
        yield pause


def retried(request: Callable[[], T]) -> T:
    """The result of a request, repeated after temporary failures. Raises the last error."""
    for pause in pauses():
        try:
            return request()
        except Exception as error:
            if not is_temporary(error):
                raise
        time.sleep(pause)
    return request()


async def retried_async(request: Callable[[], Awaitable[T]]) -> T:
    """The same for a coroutine function."""
    for pause in pauses():
        try:
            return await request()
        except Exception as error:
            if not is_temporary(error):
                raise
        await asyncio.sleep(pause)
    return await request()

"""Requests to object stores, repeated after temporary failures, with growing pauses and a limit in time.

obstore repeats a request only until the response begins. A body or a listing that breaks off later is an error of the
caller, and the pages of a listing are one call here.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from .storage_errors import explain_remote

if TYPE_CHECKING:
    from obstore.store import RetryConfig

P = ParamSpec("P")
T = TypeVar("T")

RETRY_SECONDS = 60.0  # from the first attempt of an operation to the last
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # limits of the first pause and of every pause
CLIENT_RETRY: "RetryConfig" = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=30),
}  # obstore's own, inside each attempt
REFUSED = re.compile(r"status(?: code)?:? 4(?!08|29)\d\d\b|non-partial response when range requested")
"""Errors that every repetition gets too: refusals, but not 408 and 429, and ranges of an empty object."""


def is_temporary(error: BaseException) -> bool:
    """Whether an object store's client raised the error, and the same request may succeed later."""
    explanation = explain_remote(error)
    return explanation is not None and not explanation.is_final and not REFUSED.search(str(error))


def retried(request: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """The result of a request, repeated after temporary failures; for a coroutine function, its coroutine.

    Pauses are of random length below a limit that grows exponentially, until RETRY_SECONDS are over. Raises the last
    error.
    """
    from tenacity import retry, retry_if_exception, stop_before_delay, wait_random_exponential  # loads tornado

    repeat = retry(
        retry=retry_if_exception(is_temporary),
        reraise=True,
        stop=stop_before_delay(RETRY_SECONDS),
        wait=wait_random_exponential(FIRST_PAUSE, LONGEST_PAUSE),
    )
    result: T = repeat(request)(*arguments, **options)
    return result

"""Requests are repeated after temporary failures of an object store, and only then."""

import asyncio
import time

import pytest

from lle.storage import retries

Failure = type("GenericError", (Exception,), {"__module__": "obstore.exceptions"})
TEMPORARY, REFUSED = Failure("status code: 503 Service Unavailable"), Failure("status code: 403 Forbidden")
EMPTY = Failure("Generic S3 error: Received non-partial response when range requested")


async def _answer(request):
    return request()


@pytest.fixture
def clock(monkeypatch):
    """The seconds of `time.monotonic`, which only pauses move on: tests need no time and depend on no machine."""
    seconds = [0.0]

    def sleep(pause):
        seconds[0] += pause

    async def sleep_async(pause):
        sleep(pause)

    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(asyncio, "sleep", sleep_async)
    return seconds


@pytest.fixture(params=["blocking", "coroutine"])
def repeated(request):
    """`repeated(request)`: its result by `retried`, or by a coroutine function."""
    if request.param == "blocking":
        return retries.retried
    return lambda call: asyncio.run(retries.retried(_answer, call))


def failing(error, n_times):
    """A request that raises `error` n times, and the list of its calls."""
    calls = []

    def request():
        calls.append(time.monotonic())
        if len(calls) <= n_times:
            raise error
        return "answer"

    return request, calls


@pytest.mark.usefixtures("clock")
def test_request_is_retried_until_the_temporary_failure_ends(repeated):
    request, calls = failing(TEMPORARY, 5)
    assert repeated(request) == "answer"
    assert len(calls) == 6


@pytest.mark.parametrize("error", [REFUSED, EMPTY, OSError(5, "of this machine")])
def test_other_errors_are_raised_at_once(repeated, error):
    request, calls = failing(error, 1)
    with pytest.raises(type(error)):
        repeated(request)
    assert len(calls) == 1


@pytest.mark.usefixtures("clock")
def test_last_error_is_raised_within_the_time_limit(repeated):
    request, calls = failing(TEMPORARY, 1000)
    with pytest.raises(Failure, match="503"):
        repeated(request)
    assert retries.RETRY_SECONDS - retries.LONGEST_PAUSE < calls[-1] - calls[0] < retries.RETRY_SECONDS

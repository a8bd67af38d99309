"""Stop signals raise an exception, also where code tolerates failures."""

import contextlib
import os
import signal

import pytest

from lle.core.errors import Interrupted, LleError
from lle.core.signals import interruptible, raise_if_stopped


class SignalInDestructor:
    """Sends the signal from a destructor, where Python prints the exception of the handler and goes on."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_code_that_tolerates_failures_does_not_swallow_a_signal(number):
    with pytest.raises(Interrupted) as stopped, interruptible(), contextlib.suppress(Exception, LleError):
        os.kill(os.getpid(), number)
    assert stopped.value.exit_code == 128 + number


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signal_in_a_destructor_stops_the_next_check():
    with interruptible():
        with interruptible():
            SignalInDestructor()
        with pytest.raises(Interrupted):
            raise_if_stopped()
    raise_if_stopped()  # the next block starts without the signal

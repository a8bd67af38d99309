"""Cases that break each of the rules, for the tests of the fuzzer itself."""

import os
import time
from pathlib import Path

import numpy as np

from tests.fuzz.campaign import BrokenRule, Limits

LIMITS = Limits(seconds=0.2, n_bytes=50 * 2**20)


def prepare(shared: Path) -> None:
    """Nothing to share."""


def run(rng: np.random.Generator, shared: Path, own: Path) -> str:
    """By the number of the case: end the process, take memory or time, break a rule, or never end."""
    number = int(own.name.removeprefix("case"))
    if number == 0:
        os._exit(9)
    if number == 1:
        bytearray(100 * 2**20)
    if number == 2:
        started = time.process_time()
        while time.process_time() - started < 0.5:
            pass
    if number == 3:
        raise BrokenRule("a rule")
    while number == 4:
        pass
    if number == 5:
        time.sleep(10_000)
    return "ended"

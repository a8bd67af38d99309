"""Seeds of parametrized tests: one in `make test`, all in `make test-all`."""

from typing import Any

import pytest


def seeds(first: int, *further: int) -> list[Any]:
    """Parameters for `parametrize`: all seeds but the first are marked slow."""
    return [first, *(pytest.param(seed, marks=pytest.mark.slow) for seed in further)]

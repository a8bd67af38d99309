"""Processor seconds of steps on the reference core, and the formulas that several stages share.

The coefficients were measured on that core; `python -m tests.benchmarks.expected_time` compares them with a run. Two
things depend on the data and not only on their sizes: the fill-in of a factorization, and how many values of `reg` are
tried.
"""

import math
from typing import NamedTuple

SURFACE_FEATURES = 3
"""Data of up to this number of features count as surfaces: the factorization has little fill-in, and M few entries."""


class Work(NamedTuple):
    """Processor seconds of a step: of one process, and of all its blocks together, which workers share."""

    serial: float = 0.0
    parallel: float = 0.0


NO_WORK = Work()


def search_in_tree(n_queries: int, n: int, d: int, k: int) -> float:
    """Seconds of a search for k neighbours in a tree of n points of d features."""
    return n_queries * 2.8e-7 * (k + 1) * math.pow(1.6, min(d, 40) - 3) * math.pow(n / 40_000, 0.08)


def search_among_all(n_queries: int, n: int, d: int) -> float:
    """Seconds of a search by the distances to all n points."""
    return 1e-5 * n_queries + n_queries * n * (4e-9 + 5e-11 * d)


def barycentric_weights(n: int, d: int, k: int) -> float:
    """Seconds of the weights of n points over k neighbours in d features."""
    return n * (5e-7 + 8e-9 * k * d if d < k else k**2 * (1.6e-8 + 2.6e-10 * d))

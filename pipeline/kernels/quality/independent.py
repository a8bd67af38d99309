"""Choose coordinates that show something new among the lowest eigenvectors of a component.

On long shapes the second eigenvector is a function of the first (Goldberg, Zakai, Kushnir & Ritov 2008, JMLR 9).
Dsilva, Talmon, Coifman & Kevrekidis 2018 (Applied and Computational Harmonic Analysis 44) keep the eigenvectors that
the earlier ones do not predict. On real data this rule alone also drops coordinates that keep more neighbours than
those it takes. So here a prediction decides which coordinates may be exchanged, and the trustworthiness on a sample
decides whether they are. docs/explanations/quality.md has the measurements.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...core.arrays import Float64, Int64
from ...core.methods import CLUMP_SHARE
from .redundancy import MIN_POINTS, prediction_errors, standardized
from .sample_quality import SampleQuality
from .trustworthiness import participation

SAMPLED_POINTS, MEASURED_POINTS = 2000, 1000
"""Most points of a sample, and those of it at which trustworthiness is measured."""
REDUNDANT_BELOW = 0.5
"""A coordinate may be replaced if the others leave a smaller share of its variance unexplained."""
STANDARD_ERRORS = 3.0
"""Least gain in trustworthiness, in standard errors of the gain; the best of up to ten candidates is taken."""
NEW_ABOVE = 0.3
"""Least share of the variance of a new coordinate that the others leave unexplained."""


def spread_vectors(sizes: Float64, n_points: int) -> Int64:
    """Positions of the vectors of n_points entries, with participations (p,), that are no clumps."""
    return np.flatnonzero(sizes >= CLUMP_SHARE * n_points)


def candidates(sizes: Float64, n_points: int, n_wanted: int) -> list[int]:
    """Positions of the vectors that may be coordinates: those that are no clumps, then clumps if these are too few."""
    spread = spread_vectors(sizes, n_points)
    clumps = np.setdiff1d(np.arange(len(sizes)), spread)
    return [*spread.tolist(), *clumps[: max(0, n_wanted - len(spread))].tolist()]


def embed_independently(
    embed: Callable[[int], Float64], points: Float64, n_wanted: int, n_more: int, k: int
) -> Float64:
    """Coordinates (n, n_wanted) of all points (n, d) as a run chooses them: the first, if these suffice.

    embed: the lowest eigenvectors (n, p), given their number p. n_more: their number if the first do not suffice.
    """
    sampled = slice(None, None, -(-len(points) // SAMPLED_POINTS))
    vectors = embed(n_wanted)
    sizes = participation(vectors)
    first = IndependentCoordinates(lambda: points[sampled], vectors[sampled], k)
    if len(spread_vectors(sizes, len(points))) == n_wanted and first.are_independent(range(n_wanted)):
        return vectors
    vectors = embed(min(n_more, len(points) - 2))
    among = candidates(participation(vectors), len(points), n_wanted)
    chosen, _ = IndependentCoordinates(lambda: points[sampled], vectors[sampled], k).choose(among, n_wanted)
    return vectors[:, chosen]


class Replacement(NamedTuple):
    """An eigenvector that was replaced by another one; both are numbered from 0."""

    left: int
    taken: int
    unexplained_left: float
    """Share of its variance, in [0, 1], that the coordinates which stayed do not predict."""
    unexplained_taken: float
    trustworthiness_before: float
    trustworthiness_after: float


class IndependentCoordinates:
    """Replaces redundant coordinates of one sample.

    Args:
        points: loads the (s, d) sampled points, if coordinates are compared.
        vectors: (s, p) their entries in the lowest eigenvectors.
        k: neighbours of the trustworthiness.
    """

    def __init__(self, points: Callable[[], Float64], vectors: Float64, k: int) -> None:
        self._coordinates, self._points, self._k = standardized(vectors), points, k
        self._trusted: dict[frozenset[int], Float64] = {}

    def are_independent(self, chosen: Sequence[int]) -> bool:
        """Whether no coordinate at these positions is redundant, so that ``choose`` replaces none of them."""
        too_few = len(self._coordinates) < MIN_POINTS
        return too_few or all(self._unexplained(j, chosen) >= REDUNDANT_BELOW for j in chosen)

    def choose(self, candidates: Sequence[int], n_wanted: int) -> tuple[list[int], list[Replacement]]:
        """(positions of n_wanted eigenvectors, ascending; the replacements that led to them).

        Starts with the first candidates. The coordinate that the others predict best is replaced first, by the
        candidate with the lowest (1 - trustworthiness) (2 - unexplained share). A coordinate that was replaced
        does not return, so the loop ends.
        """
        chosen, replacements = list(candidates[:n_wanted]), list[Replacement]()
        rest = list(candidates[n_wanted:])
        while len(self._coordinates) >= MIN_POINTS and (found := self._replacement(chosen, rest)) is not None:
            chosen[chosen.index(found.left)] = found.taken
            rest.remove(found.taken)
            replacements.append(found)
        return sorted(chosen), replacements

    def _replacement(self, chosen: list[int], rest: list[int]) -> Replacement | None:
        """The next replacement; None if no coordinate is redundant, or if no candidate keeps more neighbours."""
        if not rest:
            return None
        shares = [self._unexplained(j, chosen) for j in chosen]
        for position in np.argsort(shares, kind="stable"):
            if shares[position] >= REDUNDANT_BELOW:
                return None
            left = chosen[position]
            kept = [j for j in chosen if j != left]
            before = self._trustworthiness(chosen)
            new = [j for j in rest if self._unexplained(j, kept) >= NEW_ABOVE]
            better = [j for j in new if _is_gain(self._trustworthiness([*kept, j]) - before)]
            if better:
                taken = min(better, key=lambda j: self._cost(j, kept))
                trust = float(before.mean()), float(self._trustworthiness([*kept, taken]).mean())
                return Replacement(left, taken, shares[position], self._unexplained(taken, kept), *trust)
        return None

    @cached_property
    def _quality(self) -> SampleQuality:
        return SampleQuality(self._points(), self._k, MEASURED_POINTS)

    def _cost(self, j: int, kept: list[int]) -> float:
        lost = 1 - float(self._trustworthiness([*kept, j]).mean())
        return lost * (2 - self._unexplained(j, kept))

    def _unexplained(self, j: int, others: Sequence[int]) -> float:
        """Share of the variance of coordinate j that the others do not predict; 1 if there are no others."""
        predictors = [other for other in others if other != j]
        if not predictors:
            return 1.0
        errors = prediction_errors(self._coordinates[:, predictors], self._coordinates[:, j])
        return min(1.0, float(np.square(errors).mean()))

    def _trustworthiness(self, positions: Sequence[int]) -> Float64:
        """Trustworthiness (s,) of these coordinates at the measured points."""
        key = frozenset(positions)
        if key not in self._trusted:
            self._trusted[key] = self._quality.trustworthiness(self._coordinates[:, sorted(key)])
        return self._trusted[key]


def _is_gain(differences: Float64) -> bool:
    """Whether the mean of paired differences (s,) is above zero by STANDARD_ERRORS."""
    standard_error = float(differences.std()) / len(differences) ** 0.5
    return bool(differences.mean() > STANDARD_ERRORS * standard_error)

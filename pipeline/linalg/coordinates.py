"""Choose the coordinates of a component among its computed eigenvectors (`embedding.coordinates: independent`).

Clumps are skipped first. Then coordinates that the others predict are replaced (``kernels.quality.independent``).
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from ..core.arrays import Float64, Int64
from ..engine.step import Json
from ..kernels.quality.independent import (
    MEASURED_POINTS,
    SAMPLED_POINTS,
    IndependentCoordinates,
    candidates,
    spread_vectors,
)
from ..storage import array_specs
from ..storage.store import Store

SEED = (0, 13)
NAMED_ROWS = 10
GROUP_SHARE = 0.9
"""Share of the squares of a clump's vector that the points of its group hold."""


class Coordinates:
    """The choice of m eigenvectors of the points ``rows`` (n,) of a component."""

    def __init__(self, store: Store, rows: Int64, n_wanted: int, n_neighbors: int) -> None:
        """n_wanted is m; n_neighbors is the number of neighbours of the trustworthiness."""
        self.store, self.rows, self._n_wanted, self._n_neighbors = store, rows, n_wanted, n_neighbors
        self.sampled = np.sort(np.random.default_rng(SEED).permutation(len(rows))[:SAMPLED_POINTS])
        """(s,) positions of the sampled points among those of the component, ascending."""

    def suffice(self, sizes: Float64, sample: Float64) -> bool:
        """Whether eigenvectors with these participations (c,) and entries (s, c) at ``sampled`` need no further ones.

        The first m suffice if they are spread and independent: these are then chosen among any number of vectors. More
        vectors suffice if m of them are spread.
        """
        n_spread = len(spread_vectors(sizes, len(self.rows)))
        if len(sizes) > self._n_wanted or n_spread < self._n_wanted:
            return n_spread >= self._n_wanted
        return self._independent(sample).are_independent(range(self._n_wanted))

    def choose(self, sizes: Float64, sample: Float64, vector: Callable[[int], Float64]) -> tuple[list[int], Json]:
        """(the chosen positions of m eigenvectors, ascending; a record of the choice, numbered from 1).

        ``sizes`` and ``sample`` as for ``suffice``; ``vector`` gives an eigenvector (n,).
        """
        clumps = np.setdiff1d(np.arange(len(sizes)), spread_vectors(sizes, len(self.rows)))
        among = candidates(sizes, len(self.rows), self._n_wanted)
        chosen, replacements = self._independent(sample).choose(among, self._n_wanted)
        return chosen, {
            "taken": [j + 1 for j in chosen],
            "computed": len(sizes),
            "clumps_taken": [j + 1 for j in chosen if j in clumps],
            "clumps_skipped": [
                {"eigenvector": j + 1, "participation": float(sizes[j]), **self._group(vector(j))}
                for j in clumps.tolist()
                if j not in chosen
            ],
            "replaced": [{**r._asdict(), "left": r.left + 1, "taken": r.taken + 1} for r in replacements],
        }

    def _independent(self, sample: Float64) -> IndependentCoordinates:
        return IndependentCoordinates(lambda: self._points, sample, self._n_neighbors)

    @cached_property
    def _points(self) -> Float64:
        return self.store.gather(array_specs.POINTS.name, self.rows[self.sampled]).astype(np.float64)

    def _group(self, vector: Float64) -> Json:
        """The group of points that a clump separates, and the input rows of its first points."""
        order = np.argsort(-np.abs(vector), kind="stable")
        held = np.cumsum(np.square(vector[order]))
        n_points = int(np.searchsorted(held, GROUP_SHARE * held[-1])) + 1
        inside = np.sort(self.rows[order[:n_points]])
        original = np.sort(self.store.gather(array_specs.ORIGINAL_INDEX.name, inside))
        return {"points": n_points, "rows": original[:NAMED_ROWS].tolist()}


def choice_bytes(n_points: int, n_features: int, n_pairs: int, n_wanted: int) -> int:
    """Memory of a choice besides the vectors."""
    sample = min(n_points, SAMPLED_POINTS)
    n_bytes = sample * (24 * min(sample, MEASURED_POINTS) + 40 * n_features)
    return 48 * n_points + n_bytes + sample * 8 * (n_pairs + 40 * (n_wanted + 1) ** 2)

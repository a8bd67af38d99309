"""One record for each method of the family: its title, and what it needs."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    title: str
    min_neighbors: Callable[[int], int]
    """Fewest neighbours of a point for m coordinates."""
    factor_rows: Callable[[int, int], int]
    """Most rows of the factor F that a point with k neighbours contributes for m coordinates."""
    has_reg: bool = False
    """Whether it uses `weights.reg`."""
    flat: bool = False
    """Whether coordinates of exactly flat data have the eigenvalue zero, as the constant has."""


METHODS = {
    "lle": Method("LLE", lambda m: 1, lambda k, m: 1, has_reg=True),
    "modified": Method("Modified LLE", lambda m: 2, lambda k, m: k - 1, has_reg=True),
    "ltsa": Method("LTSA", lambda m: m + 2, lambda k, m: max(1, k - m), flat=True),
    "hessian": Method("Hessian eigenmap", lambda m: m * (m + 3) // 2 + 1, lambda k, m: max(1, k - m), flat=True),
    "laplacian": Method("Laplacian eigenmap", lambda m: 1, lambda k, m: k),
    "pca": Method("PCA", lambda m: 1, lambda k, m: 0),
}
"""In the order in which `lle suggest` tries them."""

CLUMP_SHARE = 0.01
"""A coordinate concentrated on a smaller share of its component's points is a clump."""

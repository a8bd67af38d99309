"""Orthogonal Procrustes: rotate one set of coordinates onto another set of the same points.

Eigenvectors are determined up to a sign, and those of (nearly) equal eigenvalues up to a rotation among themselves. So
the coordinates of an embedding may rotate although the points have hardly moved. A rotation preserves all distances,
the covariance of coordinates of unit covariance, and the space spanned by the eigenvectors.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import orthogonal_procrustes

from ..core.arrays import Float64

DETERMINED = 1e-6
"""Relative to the largest singular value of new' previous; with a smaller one the rotation is not determined."""


class Alignment(NamedTuple):
    """The rotation onto the previous coordinates, and the difference before and after it."""

    rotation: Float64
    """(m, m) orthogonal (determinant 1 or -1): new @ rotation is nearest to previous."""
    residual_before: float
    """||new - previous|| / ||previous||, Frobenius norms."""
    residual_after: float
    """||new @ rotation - previous|| / ||previous||."""


def align(new: Float64, previous: Float64) -> Alignment | None:
    """The orthogonal R that minimises ||new R - previous|| for coordinates (r, m) of the same r points.

    About the origin, because embeddings are centred and a translation would change that. None if the points do not
    determine R: fewer than m points, or unrelated coordinates.
    Source: Schoenemann 1966 (Psychometrika 31), as implemented by SciPy.

    >>> turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> previous = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, -2.0]])
    >>> alignment = align(previous @ turn.T, previous)
    >>> np.allclose(alignment.rotation, turn), round(alignment.residual_after, 12)
    (True, 0.0)
    """
    if len(new) == 0 or np.linalg.matrix_rank(new.T @ previous, rtol=DETERMINED) < new.shape[1]:
        return None
    rotation: Float64 = np.asarray(orthogonal_procrustes(new, previous)[0], np.float64)
    size = np.linalg.norm(previous)
    before, after = (float(np.linalg.norm(turned - previous) / size) for turned in (new, new @ rotation))
    return Alignment(rotation, before, after)

"""Project new points onto the principal components of a set of points, given only the points and their scores."""

import numpy as np
import numpy.typing as npt


def project_like(
    queries: npt.NDArray[np.floating], points: npt.NDArray[np.floating], scores: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The scores (b, m) of queries (b, d) on the principal components of the points (n, d) with scores (n, m).

    With centred points P and scores S = P C for orthonormal eigenvectors C of P'P, P'S = C S'S, and S'S is diagonal.
    """
    middle = points.mean(axis=0, dtype=np.float64)
    squares = np.square(scores).sum(axis=0)
    components = (points - middle).T @ scores / np.where(squares > 0, squares, 1.0)
    return np.asarray((queries - middle) @ components)

"""scikit-learn's function for locally linear embedding, for programs that were written for it."""

import inspect

from ..core.arrays import Float64
from ..core.errors import UndeterminedEmbedding
from .estimator import LocallyLinearEmbedding
from .python_errors import short_traceback


@short_traceback
def locally_linear_embedding(
    X: object,
    *,
    n_neighbors: int,
    n_components: int,
    reg: float = 1e-3,
    eigen_solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 100,
    method: str = "standard",
    hessian_tol: float = 1e-4,
    modified_tol: float = 1e-12,
    random_state: object = None,
    n_jobs: int | None = None,
) -> tuple[Float64, float]:
    """Embed X, with the arguments and results of `sklearn.manifold.locally_linear_embedding`.

    Parameters
    ----------
    X : array of shape (n, d) or NearestNeighbors
        Rows; of a fitted NearestNeighbors of scikit-learn, the rows that it was fitted to.
    n_neighbors, n_components : int
        Neighbours of each row, and coordinates.
    reg, eigen_solver, tol, max_iter, method, hessian_tol, modified_tol, random_state, n_jobs : float, str or int
        As for `LocallyLinearEmbedding`, with scikit-learn's defaults.

    Returns
    -------
    Y : ndarray of shape (n, n_components), float64
        Coordinates in the order of X; each column has length 1.
    squared_error : float
        The sum of the eigenvalues, which is the squared norm of Y - W Y for weights W.

    Raises
    ------
    ValueError
        A parameter or the data have an error; or the rows do not determine an embedding. The message of the latter
        begins like scikit-learn's.

    See Also
    --------
    LocallyLinearEmbedding : The same as an estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from lle import locally_linear_embedding
    >>> Y, error = locally_linear_embedding(load_digits().data[:100], n_neighbors=5, n_components=2)
    >>> Y.shape
    (100, 2)
    """
    parameters = {name: value for name, value in locals().items() if name != "X"}  # named as those of the estimator
    model = LocallyLinearEmbedding(**parameters, scale="unit_norm", config={"embedding": {"coordinates": "first"}})
    try:
        inspect.unwrap(LocallyLinearEmbedding.fit)(model, getattr(X, "_fit_X", X))  # its errors keep their causes
    except ValueError as error:
        if isinstance(error.__cause__, UndeterminedEmbedding):
            # scikit-learn's message begins so, and programs may search for it. ARPACK is not used here.
            raise ValueError(f"Error in determining null-space with ARPACK: {error}") from None
        raise
    return model.embedding_, model.reconstruction_error_

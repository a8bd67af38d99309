"""scikit-learn's estimator interface: `fit` runs the pipeline, `transform` embeds new points.

Each method imports what only it needs: importing the class then costs little more than scikit-learn.
"""

from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Float64
from ..core.errors import counted
from ..storage import array_specs
from .array_input import as_matrix, checked_rows, index_of
from .parameters import CONFIG_KEYS, WITHOUT_EFFECT, as_argument, least_rows, n_rows_of, refuse_unknown, sections_of
from .python_errors import python_errors, short_traceback, warn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from scipy.sparse import csr_array

    from .place_in_memory import Training

FEW_ROWS = 50
"""Up to this number of rows an n_neighbors that is too large is reduced, as in small folds of a cross-validation."""


class LocallyLinearEmbedding(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Locally linear embedding and related methods, as a scikit-learn transformer.

    `fit` runs the stages of `lle run`. Errors of parameters and data are ValueErrors that name the config key.

    Parameters
    ----------
    n_neighbors : int, default 12
        Neighbours of each point; n - 1, with a warning, if there are too few rows and at most 50.
    n_components : int, default 2
        Number of coordinates.
    reg : float or "auto", default "auto"
        Regularisation of the local Gram matrices, ``weights.reg`` of a config. "auto" chooses it from the noise in
        neighbourhoods; scikit-learn's default is 1e-3. Only lle and modified use it.
    tol : float, default 1e-8
        Relative residual at which an eigenpair counts as converged, ``eigensolver.tol``; 0: as small as
        rounding errors allow.
    method : {"lle", "standard", "modified", "hessian", "ltsa", "laplacian", "pca"}, default "lle"
        "standard" is scikit-learn's name of "lle".
    metric : {"euclidean", "cosine"} or None, default None
        ``neighbors.metric``; None: that of `config`, or "euclidean".
    eigen_solver : {"auto", "arpack", "dense", "shift_invert", "factored", "multigrid"} or None, default None
        ``eigensolver.method``. Every solver reaches `tol`, so "dense" is "auto", which takes the cheapest one, and
        "arpack" is "shift_invert". None: that of `config`, or "auto".
    neighbors_algorithm : {"auto", "kd_tree", "ball_tree", "brute", "pynndescent"} or None, default None
        ``neighbors.method``. "ball_tree" is "kd_tree", which finds the same neighbours. None: that of `config`, or
        "auto".
    random_state : int, RandomState or None, default None
        Seed of cells and approximate neighbours. None takes the default seed of a config, so results are repeatable.
    n_jobs : int or None, default None
        None or 1: tasks run in this process. More: that many local workers; -1: threads, or a worker for each core if
        that is expected to be faster; -2: a worker for each core but one. Arrays with fewer than 20,000 rows are always
        embedded in this process.
    scale : {"unit_covariance", "unit_norm"} or None, default None
        ``embedding.scale``: each coordinate has variance 1, or is a vector of length 1 as in scikit-learn; without
        effect on pca. None: that of `config`, or "unit_covariance".
    max_iter, hessian_tol, modified_tol : float or None, default None
        Accepted for programs written for scikit-learn, without effect: iterations end when `tol` is reached; the null
        vectors of Hessians come from a factorization of known rank; weight vectors of modified LLE need no threshold.
    store : str or None, default None
        Path or URL of the run's store, which is kept and resumed. None: a temporary store, deleted when fit ends.
        ``{fit}`` in it stands for a digest of parameters and data: each fit of a grid search has its own store.
    config : dict or None, default None
        Other keys of a config by section, such as ``{"preprocess": {"scale": "standard"}}``.
    verbose : bool, default False
        Print progress on stderr; in a notebook, one bar.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, n_components), float64
        Coordinates in the order of X; NaN for rows outside the largest component with ``graph.components: largest``.
    component_ : ndarray of shape (n,), int32
        Component of each row, 0 the largest; -1 for rows that were not embedded, -2 for those placed among others.
    eigenvalues_ : ndarray of shape (components, n_components), float64
        Ascending, without the zero eigenvalue.
    reconstruction_error_ : float
        Sum of the eigenvalues: the cost of the embedding as unit vectors, as in scikit-learn.
    graph_ : csr_array of shape (n, n), float32
        Distances from each row to its neighbours, in the order of X. Equal rows have those of the first of them.
        With ``fit_sample`` only the rows of the sample, in their order.
    metrics_ : dict
        The content of metrics.json.
    store_ : str or None
        URL of the run's store, for `open_run`; None for a temporary one.
    n_features_in_ : int
        Features of X.
    feature_names_in_ : ndarray of shape (d,), object
        Names of the columns, if X is a table whose column names are all text.

    See Also
    --------
    embed : The same as one function call.
    open_run : Read the store of a run.

    References
    ----------
    Roweis & Saul 2000, Science 290, 2323-2326; Saul & Roweis 2003, JMLR 4, 119-155.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from lle import LocallyLinearEmbedding
    >>> X, length = make_swiss_roll(800, random_state=0)
    >>> model = LocallyLinearEmbedding(n_neighbors=10, method="ltsa").fit(X)
    >>> model.embedding_.shape
    (800, 2)
    >>> model.transform(X[:5] + 0.01).shape
    (5, 2)
    """

    @refuse_unknown
    def __init__(
        self,
        *,
        n_neighbors: int = 12,
        n_components: int = 2,
        reg: float | str = "auto",
        tol: float = 1e-8,
        method: str = "lle",
        metric: str | None = None,
        eigen_solver: str | None = None,
        neighbors_algorithm: str | None = None,
        random_state: object = None,
        n_jobs: int | None = None,
        scale: str | None = None,
        max_iter: int | None = None,
        hessian_tol: float | None = None,
        modified_tol: float | None = None,
        store: str | None = None,
        config: dict[str, object] | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.reg = reg
        self.tol = tol
        self.method = method
        self.metric = metric
        self.eigen_solver = eigen_solver
        self.neighbors_algorithm = neighbors_algorithm
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.scale = scale
        self.max_iter = max_iter
        self.hessian_tol = hessian_tol
        self.modified_tol = modified_tol
        self.store = store
        self.config = config
        self.verbose = verbose

    @short_traceback
    def fit(self, X: object, y: object = None) -> Self:
        """Run the stages on X.

        Parameters
        ----------
        X : array of shape (n, d) or dict
            A NumPy array (or what converts to one), a Dask array or a Zarr array of numbers; or the input section of
            a config, such as ``{"kind": "parquet", "path": "rows/*.parquet"}``. Dask and Zarr arrays are never loaded
            as a whole; Zarr arrays of the file system are read in place.
        y : array of shape (n,) or (n, c), default None
            Labels, numbers or text: they colour the report of a kept store. The embedding does not depend on them.

        Raises
        ------
        ValueError
            A parameter or the data have an error.
        LleError
            Any other failure.

        Warns
        -----
        EmbeddingWarning
            Coordinates are missing or not accurate. Remarks on the quality, ``metrics_["warnings"]``, are logged by
            the logger "lle".
        """
        from ..storage.store import fitted_store
        from .embed import finished_run, warn_of_embedding
        from .place_in_memory import read_graph, read_training, state_of

        ids = index_of(X)
        X = checked_rows(self, X, reset=True)
        labels = None if self.store is None or type(X) is dict else y
        names = getattr(self, "feature_names_in_", None)
        with finished_run(X, self._sections(X), self.verbose, labels, names, ids) as (store, result):
            self.embedding_: Float64 = store.read_all(array_specs.EMBEDDING.name)
            self.component_ = store.read_all(array_specs.COMPONENT.name)
            self.eigenvalues_: Float64 = np.array(result.metrics["eigenvalues"], np.float64)
            self.n_features_in_ = int(fitted_store(store).array(array_specs.RAW.name).shape[1])
            self._state, attributes = state_of(store), store.attributes()
            if type(X) is dict and (columns := attributes.get("columns")) is not None:
                self.feature_names_in_ = np.array(columns["features"], object)
            self._training = read_training(store.url, self._state) if self.store is None else None
            self._graph = read_graph(store.url, self._state) if self.store is None else None
        self.metrics_, self.store_ = result.metrics, None if self.store is None else result.store
        self.reconstruction_error_ = float(self.eigenvalues_.sum())
        warn_of_embedding(result, attributes["config"], as_argument)
        return self

    def fit_transform(self, X: object, y: object = None) -> Float64:
        """Run the stages on X, as `fit` does, and return `embedding_`: (n, n_components) coordinates, float64."""
        return self.fit(X, y).embedding_

    @short_traceback
    def transform(self, X: Any) -> Any:
        """Place new rows among the fitted points, by the weights that reconstruct each row from its neighbours.

        Fitted points keep their coordinates. All fitted points are loaded into memory. Source: Saul & Roweis 2003.

        Parameters
        ----------
        X : NumPy, Dask or Zarr array of shape (b, d)

        Returns
        -------
        ndarray or Dask array of shape (b, n_components), float64
            A Dask array gives a lazy Dask array. NaN where the nearest fitted point was not embedded.

        Raises
        ------
        ValueError
            X has NaN or infinity, or another number of features.
        StoreError
            Another run has used the given store since `fit`.

        Examples
        --------
        >>> from sklearn.datasets import make_s_curve
        >>> from lle import LocallyLinearEmbedding
        >>> X, position = make_s_curve(600, random_state=0)
        >>> model = LocallyLinearEmbedding(n_neighbors=10).fit(X)
        >>> bool(abs(model.transform(X[:3]) - model.embedding_[:3]).max() < 1e-9)
        True
        """
        check_is_fitted(self)
        X = checked_rows(self, X, reset=False)
        return self._points().place_array(X)

    def inverse_transform(self, Y: object) -> Float64:
        """Rows in the space of X for coordinates of the embedding.

        The weights that reconstruct coordinates from the `n_neighbors` nearest embedded points are applied to the rows
        of these points; "pca" has a linear map. Source: Saul & Roweis 2003, the roles of X and Y exchanged.

        Parameters
        ----------
        Y : array of shape (b, n_components)
            Coordinates.

        Returns
        -------
        ndarray of shape (b, d), float64
            Rows in the units of X.

        Raises
        ------
        ValueError
            Y has NaN or infinity, or another number of columns.

        Examples
        --------
        >>> from sklearn.datasets import make_s_curve
        >>> from lle import LocallyLinearEmbedding
        >>> X, position = make_s_curve(600, random_state=0)
        >>> model = LocallyLinearEmbedding(n_neighbors=10).fit(X)
        >>> bool(abs(model.inverse_transform(model.embedding_[:3]) - X[:3]).max() < 1e-9)
        True
        """
        check_is_fitted(self)
        if self.component_.max() > 0:
            n = self.component_.max() + 1
            warn(f"{n} components whose coordinates overlap: a row of Y gets the component of the nearest point")
        with python_errors():
            return self._points().place_back(np.asarray(as_matrix(Y, "coordinates"), np.float64))

    def plot(self, color: object = None, ax: "Axes | None" = None) -> "Axes":
        """Draw the coordinates on matplotlib axes, as `lle.plot` does.

        Parameters
        ----------
        color, ax : array of shape (n,) or str, matplotlib Axes, default None
            As for `lle.plot`; names of colours are columns of a kept store.

        Returns
        -------
        matplotlib Axes
            The axes with the points, the legend or the colour bar.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from lle import LocallyLinearEmbedding
        >>> digits = load_digits()
        >>> LocallyLinearEmbedding(method="pca").fit(digits.data).plot(color=digits.target).get_xlabel()
        'coordinate 1'
        """
        from .plot import plot  # matplotlib

        check_is_fitted(self)
        return plot(self, color, ax)

    @property
    def graph_(self) -> "csr_array[np.float32]":
        """Distances from each row to its neighbours (n, n)."""
        from .place_in_memory import read_graph

        check_is_fitted(self)
        return read_graph(str(self.store_), self._state) if self._graph is None else self._graph

    def _points(self) -> "Training":
        from .place_in_memory import read_training

        with python_errors():
            return self._training or read_training(str(self.store_), self._state)

    def _sections(self, X: object) -> dict[str, object]:
        k, m, n = self.n_neighbors, self.n_components, n_rows_of(X)
        if isinstance(k, Integral) and k >= n:
            if n > FEW_ROWS:
                raise ValueError(f"n_neighbors is {k}, but there are {n} rows; it must be below {n}")
            if isinstance(m, Integral) and n < (least := least_rows(self.method, int(m))):
                raise ValueError(f"{n} rows are too few for {counted(m, 'coordinate')}; expected at least {least} rows")
            warn(f"n_neighbors is {k}, but there are {n} rows; {n - 1} is used")
            k = n - 1
        values = {name: getattr(self, name) for name in (*CONFIG_KEYS, *WITHOUT_EFFECT)}
        sections = sections_of({**values, "n_neighbors": k, "method": self.method}, self.config, n)
        if self.store is None and "store" in sections.get("output", {}):
            raise ValueError("config: output.store is the parameter store; give it there only")
        return sections

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

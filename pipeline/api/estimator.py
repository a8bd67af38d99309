"""scikit-learn's estimator interface: `fit` runs the pipeline, `transform` embeds new points."""

import math
import warnings
from numbers import Integral
from typing import Any, Self

import dask.array as da
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..config.models import Config, Eigensolver, Weights
from ..config.neighbors import Neighbors
from ..storage import array_specs
from ..storage.store import Store
from .array_input import is_chunked, row_blocks
from .embed import finished_run, python_errors
from .place_in_memory import Training, read_training, state_of

Array = npt.NDArray[np.float64]

_METHOD: str = Config.model_fields["method"].default
_CONFIG_KEYS = {
    "n_neighbors": ("neighbors", "n_neighbors"), "n_components": ("eigensolver", "n_components"),
    "reg": ("weights", "reg"), "tol": ("eigensolver", "tol"), "store": ("output", "store"),
    "random_state": ("neighbors", "seed"), "n_jobs": ("execution", "cluster"),
}  # fmt: skip
"""The config key of each parameter."""


class LocallyLinearEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Locally linear embedding and related methods, as a scikit-learn transformer.

    `fit` runs the stages of `lle run`. Errors of parameters and data are ValueErrors that name the config key.

    Parameters
    ----------
    n_neighbors : int, default 12
        Neighbours of each point. If there are too few rows, n - 1 is used, with a warning.
    n_components : int, default 2
        Number of coordinates.
    reg : float or "auto", default "auto"
        Regularisation of the local Gram matrices, ``weights.reg`` of a config. "auto" chooses it from the noise in
        neighbourhoods; scikit-learn's default is 1e-3. Only lle and modified use it.
    tol : float, default 1e-8
        Relative residual at which an eigenpair counts as converged, ``eigensolver.tol``.
    method : {"lle", "standard", "modified", "hessian", "ltsa", "laplacian", "pca"}, default "lle"
        "standard" is scikit-learn's name of "lle".
    random_state : int, RandomState or None, default None
        Seed of cells and approximate neighbours. None takes the default seed of a config, so results are repeatable.
    n_jobs : int or None, default None
        None or 1: tasks run in this process. More: a local cluster of that many workers, -1 for one per core. A script
        with n_jobs > 1 or more than 200,000 points must call `fit` below ``if __name__ == "__main__":``, because
        `fit` starts processes that import the script.
    store : str or None, default None
        Path or URL of the run's store, which is kept and resumed. None: a temporary store, deleted when fit ends.
    config : dict or None, default None
        Other keys of a config by section, such as ``{"preprocess": {"scale": "standard"}}``.
    verbose : bool, default False
        Print progress on stderr.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, n_components), float64
        Coordinates in the order of X; NaN for rows outside the largest component with ``graph.components: largest``.
    component_ : ndarray of shape (n,), int32
        Component of each row, 0 the largest, -1 for rows that were not embedded.
    eigenvalues_ : ndarray of shape (components, n_components), float64
        Ascending, without the zero eigenvalue.
    reconstruction_error_ : float
        Sum of the eigenvalues: the cost of the embedding as unit vectors, as in scikit-learn.
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

    def __init__(
        self,
        *,
        n_neighbors: int = Neighbors().n_neighbors,
        n_components: int = Eigensolver().n_components,
        reg: float | str = Weights().reg,
        tol: float = Eigensolver().tol,
        method: str = _METHOD,
        random_state: Any = None,
        n_jobs: int | None = None,
        store: str | None = None,
        config: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.reg = reg
        self.tol = tol
        self.method = method
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.store = store
        self.config = config
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Run the stages on X.

        Parameters
        ----------
        X : array of shape (n, d) or dict
            A NumPy array (or what converts to one), a Dask array or a Zarr array of numbers; or the input section of
            a config, such as ``{"kind": "parquet", "path": "rows/*.parquet"}``. Dask and Zarr arrays are never loaded
            as a whole; Zarr arrays of the file system are read in place.
        y : object, default None
            Ignored; it is there for pipelines.

        Returns
        -------
        LocallyLinearEmbedding
            The estimator itself.

        Raises
        ------
        ValueError
            A parameter or the data have an error.
        LleError
            Any other failure.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from lle import LocallyLinearEmbedding
        >>> LocallyLinearEmbedding(method="pca").fit(load_digits().data).component_.max()
        np.int32(0)
        """
        X = self._checked(X, reset=True)
        with finished_run(X, self._sections(X), self.verbose) as (store, result):
            self.embedding_ = store.read_all(array_specs.EMBEDDING.name)
            self.component_ = store.read_all(array_specs.COMPONENT.name)
            self.eigenvalues_ = store.read_all(array_specs.EIGENVALUES.name)
            self.n_features_in_ = store.array(array_specs.RAW.name).shape[1]
            self._state = state_of(store)
            self._training = read_training(store, self._state) if self.store is None else None
        self.metrics_, self.store_ = result.metrics, None if self.store is None else result.store
        self.reconstruction_error_ = float(self.eigenvalues_.sum())
        if left_out := int((self.component_ == -1).sum()):
            warnings.warn(
                f"{left_out} of {len(self.component_)} rows are NaN: they are not in the largest component of the "
                f"neighbour graph; raise n_neighbors, or set graph.components: separate in config", stacklevel=2,
            )  # fmt: skip
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Run the stages on X and return its coordinates.

        Parameters
        ----------
        X : array of shape (n, d) or dict
            As for `fit`.
        y : object, default None
            Ignored.

        Returns
        -------
        ndarray of shape (n, n_components), float64
            The attribute `embedding_`.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from lle import LocallyLinearEmbedding
        >>> LocallyLinearEmbedding(method="pca", n_components=3).fit_transform(load_digits().data).shape
        (1797, 3)
        """
        return self.fit(X).embedding_

    def transform(self, X: Any) -> Any:
        """Place new rows among the fitted points, by the weights that reconstruct each row from its neighbours.

        Fitted points keep their coordinates. All fitted points are loaded into memory. Source: Saul & Roweis 2003.

        Parameters
        ----------
        X : array of shape (b, d)
            A NumPy, Dask or Zarr array with the features of the fitted rows.

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
        X = self._checked(X, reset=False)
        with python_errors():
            training = self._training or read_training(Store(str(self.store_)), self._state)
        if isinstance(X, da.Array):
            m = training.embedding.shape[1]
            row_chunks = X.rechunk({1: -1})
            return row_chunks.map_blocks(
                _place, training=training, dtype=np.float64, chunks=(row_chunks.chunks[0], (m,))
            )
        if not is_chunked(X):
            return _place(X, training)
        return np.concatenate([_place(block, training) for _, block in row_blocks(X)])

    def _checked(self, X: Any, reset: bool) -> Any:
        """Validate X by scikit-learn's rules; of a chunked array only the shape, the stages check the rest."""
        if type(X) is dict and reset:  # an input section; one of SciPy's sparse matrices is a subclass of dict
            return X
        if not is_chunked(X):
            return validate_data(self, X, reset=reset, dtype="numeric", ensure_min_samples=3 if reset else 1)
        if X.ndim != 2:
            raise ValueError(f"expected a 2-D array of (rows, features), found shape {X.shape}")
        if reset and hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if not reset and X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                f"as input"
            )
        return X

    def _sections(self, X: Any) -> dict[str, Any]:
        """The sections of the run's config: `config` and the parameters."""
        k = self.n_neighbors
        n = math.inf if type(X) is dict else X.shape[0]
        if isinstance(k, Integral) and k >= n:
            warnings.warn(f"n_neighbors is {k}, but there are {n} rows; {n - 1} is used", stacklevel=3)
            k = n - 1
        values = {
            "n_neighbors": _plain(k), "n_components": _plain(self.n_components), "reg": _plain(self.reg),
            "tol": _plain(self.tol), "store": self.store, "random_state": self._seed(), "n_jobs": self._cluster(),
        }  # fmt: skip
        config = self.config or {}
        sections = {key: dict(value) if isinstance(value, dict) else value for key, value in config.items()}
        if "method" in sections:
            raise ValueError("config: method is a separate parameter; use method=...")
        sections["method"] = "lle" if self.method == "standard" else self.method
        for parameter, (section, key) in _CONFIG_KEYS.items():
            if values[parameter] is not None:
                section_values = sections.setdefault(section, {})
                if not isinstance(section_values, dict):
                    raise ValueError(
                        f"config: {section}: expected a section of keys and values, found {section_values!r}"
                    )
                if key in section_values:
                    raise ValueError(f"config: {section}.{key} is the parameter {parameter}; give it there only")
                section_values[key] = values[parameter]
        return sections

    def _seed(self) -> int | None:
        """The seed of random_state: a number unchanged, else a number drawn from the generator."""
        if self.random_state is None or isinstance(self.random_state, Integral):
            return None if self.random_state is None else int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _cluster(self) -> dict[str, Any] | None:
        if self.n_jobs is None:
            return None
        if not isinstance(self.n_jobs, Integral) or not (self.n_jobs == -1 or self.n_jobs > 0):
            raise ValueError(f"n_jobs: expected None, -1 or a positive number of workers, found {self.n_jobs!r}")
        if self.n_jobs == 1:
            return {"kind": "serial"}
        return {"kind": "local", "workers": "auto" if self.n_jobs == -1 else int(self.n_jobs)}

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])


def _place(rows: npt.NDArray[Any], training: Training) -> Array:
    with python_errors():
        return training.place(rows)


def _plain(value: Any) -> Any:
    """NumPy numbers as Python numbers, which a config can hold."""
    return value.item() if isinstance(value, np.generic) else value

"""Validation of the rows that are passed to the estimator."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from .array_checks import refuse_other_types
from .array_input import as_array, is_chunked
from .python_errors import python_errors


def checked_rows(estimator: BaseEstimator, X: Any, reset: bool) -> Any:
    """Validate X by scikit-learn's rules; of a chunked array only the shape, the stages check the rest.

    reset: whether X is fitted, and sets the number and the names of the features. Raises ValueError.
    """
    if reset and hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    if type(X) is dict and reset:  # an input section; one of SciPy's sparse matrices is a subclass of dict
        return X
    if not is_chunked(X):
        with python_errors():
            refuse_other_types(X)
        X = as_array(X) if isinstance(X, np.ma.MaskedArray) else X  # scikit-learn would read the values behind the mask
        return validate_data(
            estimator, X, reset=reset, dtype="numeric", ensure_min_samples=3 if reset else 1, ensure_all_finite=False
        )  # later steps search for NaN, and name its row and column
    if X.ndim != 2:
        raise ValueError(f"expected a 2-D array of (rows, features), found shape {X.shape}")
    name, d = type(estimator).__name__, X.shape[1]
    if not reset and d != estimator.n_features_in_:
        raise ValueError(f"X has {d} features, but {name} is expecting {estimator.n_features_in_} features as input")
    return X

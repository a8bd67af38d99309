"""Refuse data in memory that cannot be embedded (other types, text columns, NaN); errors name the place and a cure."""

import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import InputError, gib
from ..storage.bundles import Array

NAMED_COLUMNS = 5
LARGE_BYTES = 2**27  # the size of smaller arrays is not worth a remark


def refuse_other_types(X: Any, name: str = "input") -> None:
    """Raises InputError for paths, sections, lazy tables, sparse matrices, AnnData: with what to pass instead.

    The errors are about ``name``, "coordinates" for those of an embedding.
    """
    if isinstance(X, str | os.PathLike):
        cure = "call lle.embed with it" if name == "input" else "pass the array that it holds"
        raise InputError(f"{name}: expected rows of numbers, found the path {os.fspath(X)!r}; {cure}")
    if type(X) is dict:
        raise InputError(f"{name}: expected rows of numbers, found a dict; only embed and fit read an input section")
    if hasattr(X, "collect") and not hasattr(X, "shape"):
        raise InputError(f"{name}: expected rows of numbers, found a {type(X).__name__}; pass X.collect()")
    if "anndata" in sys.modules and isinstance(X, sys.modules["anndata"].AnnData):
        raise InputError(
            f"{name}: found an AnnData object; pass one of its matrices, such as adata.obsm['X_pca'] (there are "
            f"{', '.join(X.obsm) or 'none'}), or call lle.scanpy.lle(adata, use_rep='X_pca')"
        )
    if "scipy.sparse" in sys.modules and sys.modules["scipy.sparse"].issparse(X):
        n_bytes = math.prod(X.shape) * max(4, X.dtype.itemsize)
        reduced = "reduce it first, make_pipeline(TruncatedSVD(50), LocallyLinearEmbedding()), or "
        raise InputError(
            f"{name}: expected dense rows, found a sparse matrix of shape {X.shape}; "
            f"{reduced * (X.shape[-1] > 50)}pass X.toarray(){f' ({gib(n_bytes)})' * (n_bytes > LARGE_BYTES)}"
        )
    if columns := _other_columns(X):
        named = ", ".join(f"{column!r} ({content})" for column, content in list(columns.items())[:NAMED_COLUMNS])
        raise InputError(
            f"{name}: expected numbers in every column, found none in {len(columns)} of {X.shape[1]} columns: {named}; "
            f"{_cure_of_columns(X, columns, are_features=name == 'input')}"
        )


def _other_columns(X: Any) -> dict[object, str]:
    """The columns of a table, or of a 2-D array of objects or text, that hold no numbers, with what they hold."""
    if isinstance(X, np.ndarray):
        is_matrix = X.ndim == 2 and X.dtype.kind in "OUST"
        columns = {number: X[:, number] for number in range(X.shape[1])} if is_matrix else {}
    elif hasattr(X, "columns") and len(getattr(X, "shape", ())) == 2:
        names = X.column_names if type(X).__module__.startswith("pyarrow") else X.columns
        kinds = {name: getattr(getattr(X[name], "dtype", None), "kind", "O") for name in names}
        columns = {name: np.asarray(X[name]) for name, kind in kinds.items() if kind not in "biuf"}
    else:
        return {}
    return {name: _content(values) for name, values in columns.items() if values.ndim == 1 and not _are_numbers(values)}


def _are_numbers(values: Array) -> bool:
    if values.dtype.kind in "Mm":
        return False
    try:
        values.astype(np.float64)
    except (ValueError, OverflowError):
        return False
    except TypeError:  # scikit-learn's protocol requires Python's own TypeError for containers
        return any(isinstance(value, dict | list | set) for value in values.tolist())
    return True


def _content(values: Array) -> str:
    """The first text of a column, else its type."""
    text = next((value for value in values.tolist() if isinstance(value, str)), None)
    return str(values.dtype) if text is None else f"text such as {text[:30]!r}"


def _cure_of_columns(X: object, columns: dict[object, str], are_features: bool) -> str:
    named = [*columns] if len(columns) <= NAMED_COLUMNS else [*list(columns)[:NAMED_COLUMNS], ...]
    listed = f"[{', '.join('...' if name is ... else repr(name) for name in named)}]"
    dropped, encoded = f"X.drop({listed})", " as numbers"
    if isinstance(X, np.ndarray):
        dropped = f"np.delete(X, {listed}, axis=1).astype(float)"
    elif type(X).__module__.startswith("pandas"):
        dropped = f"X.drop(columns={listed})"
        if all(content.startswith("text") for content in columns.values()):
            encoded = f", pandas.get_dummies(X, columns={listed}, dtype=float)"
    return f"drop them, {dropped}" + f", or encode them{encoded}" * are_features


def refuse_invalid(X: Any, names: Sequence[str] | None) -> None:
    """Raises InputError for NaN and infinity in an array of numbers (n, d), with the first place."""
    with np.errstate(over="ignore", invalid="ignore"):
        if X.ndim != 2 or X.dtype.kind != "f" or np.isfinite(X.sum(dtype=np.float64)):
            return
    finite = np.isfinite(X)
    bad = np.flatnonzero(~finite.all(axis=1))
    if not len(bad):
        return
    row, column = int(bad[0]), int(np.argmin(finite[bad[0]]))
    name = f"column {column}" if names is None else f"column {names[column]!r}"
    raise InputError(
        f"input: {len(bad)} of {len(X)} rows hold NaN or infinity; the first is row {row}, {name}, counted from 0 "
        f"({X[row, column]}). Leave such rows out with preprocess={{'invalid': 'drop'}} (of the estimator: "
        f"config={{'preprocess': {{'invalid': 'drop'}}}}), which gives them NaN as coordinates; or fill them in first, "
        f"such as sklearn.impute.SimpleImputer().fit_transform(X)"
    )

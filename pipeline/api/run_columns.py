"""The columns of a run: what it has for each row of its input."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..stages.report_columns import page_columns
from ..storage.store import Store

if TYPE_CHECKING:
    import dask.array as da
    import pandas as pd


def columns_of(url: str, arrays: "Mapping[str, da.Array]") -> "dict[str, pd.Series[Any]]":
    """component, coordinates, labels and the reconstruction error by name; {} if the run has no embedding.

    `arrays` are the arrays of the store at `url` that belong to its config.
    """
    import pandas as pd  # noqa: PLC0415

    if "embedding" not in arrays:
        return {}
    columns = {"component": pd.Series(arrays["component"].compute())}
    for column in page_columns(Store(url), np.arange(len(columns["component"]))):
        if column.name in {"component", "placed"}:
            continue
        values = column.values
        if column.names is not None:
            values = pd.Categorical.from_codes(np.asarray(values, np.int64), list(column.names))
        columns[column.name] = pd.Series(values)
    return columns

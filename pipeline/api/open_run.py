"""Read the results of a run in Python: arrays as lazy Dask arrays, metrics and config as plain data."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np

from ..core.errors import DamagedStore
from ..engine import checkpoint, current_config
from ..storage import array_specs
from ..storage.run_group import METRICS
from ..storage.store import Store, StoredArray
from ..storage.versions import read_whole
from .python_errors import short_traceback, warn

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

EMBEDDED = (array_specs.EMBEDDING, array_specs.COMPONENT, array_specs.EIGENVALUES)
"""The arrays of the step solve_embedding.write."""


@dataclass(frozen=True, repr=False)
class OpenedRun:
    """A run opened for reading: `run["embedding"]` is a Dask array. `open_run` returns it.

    Every result belongs to `config`: results of an earlier config are left out until they are computed again.

    Parameters
    ----------
    store : str
        URL of the store; with output.keep that of the published version.
    config : dict
        The config with all defaults filled in.
    versions : dict
        Versions of Python and of the packages that computed the run.
    metrics : dict or None
        The content of metrics.json; None before the first report.
    arrays : mapping of str to dask.array.Array
        The arrays that the run has begun to write, by name. Computing one raises CorruptChunk if a chunk is damaged or
        not yet written.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_digits
    >>> from lle import embed, open_run
    >>> folder = tempfile.mkdtemp()
    >>> Y = embed(load_digits().data, method="pca", output={"store": f"{folder}/digits.zarr"})
    >>> run = open_run(f"{folder}/digits.zarr")
    >>> run["embedding"].shape, run.config["method"]
    ((1797, 2), 'pca')
    """

    store: str
    config: dict[str, Any]
    versions: dict[str, str]
    metrics: dict[str, Any] | None
    arrays: Mapping[str, da.Array]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __contains__(self, name: object) -> bool:
        return name in self.arrays

    def __getitem__(self, name: str) -> da.Array:
        if name not in self.arrays:
            raise KeyError(f"{self.store}: has no array '{name}'; there are {', '.join(self.arrays) or 'none'}")
        return self.arrays[name]

    def __repr__(self) -> str:
        from .run_display import as_text  # the report's tiles

        return as_text(self)

    def _repr_html_(self) -> str:
        from .run_display import as_html

        return as_html(self)

    def columns(self) -> "dict[str, pd.Series]":
        """Return the results of the run for each input row, in memory.

        Returns
        -------
        dict of str to pandas.Series
            component, y1, y2, ...; the label (categories by name) under the name of its column, "label" if it has none,
            label2, ... if there are several; reconstruction_error where the method has it; distance_ratio with
            ``input.fit_sample``.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_digits
        >>> from lle import embed, open_run
        >>> digits, store = load_digits(), tempfile.mkdtemp() + "/digits.zarr"
        >>> Y = embed(digits.data, method="pca", labels=digits.target, store=store)
        >>> list(open_run(store).columns())
        ['component', 'y1', 'y2', 'label']
        """
        import pandas as pd

        from ..stages.report_columns import TRUSTWORTHINESS, page_columns

        if "embedding" not in self.arrays:
            return {}
        columns = {"component": pd.Series(self.arrays["component"].compute())}
        for column in page_columns(Store(self.store), np.arange(len(columns["component"]))):
            if column.name in {"component", "placed", TRUSTWORTHINESS}:
                continue
            values = column.values
            if column.names is not None:
                values = pd.Categorical.from_codes(np.asarray(values, np.int64), list(column.names))
            columns[column.name] = pd.Series(values)
        return columns

    def to_frame(self) -> "pd.DataFrame":
        """Return the columns as a table.

        Returns
        -------
        pandas.DataFrame
            The `columns`, one row for each input row. The ids are the index if the config has ``input.id``.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_digits
        >>> from lle import embed, open_run
        >>> store = tempfile.mkdtemp() + "/digits.zarr"
        >>> Y = embed(load_digits().data, method="pca", store=store)
        >>> open_run(store).to_frame().shape
        (1797, 3)
        """
        import pandas as pd

        from ..stages.ingest_ids import stored_ids

        frame = pd.DataFrame(self.columns())
        if len(frame) and (ids := stored_ids(Store(self.store))) is not None:
            frame.index = pd.Index(ids.read(0, len(frame)).to_pandas(), name=ids.name)
        return frame

    def to_xarray(self) -> "xr.Dataset":
        """Return the arrays with their dimensions, units and meanings.

        Returns
        -------
        xarray.Dataset
            Lazy variables, one for each entry of `arrays`.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_digits
        >>> from lle import embed, open_run
        >>> folder = tempfile.mkdtemp()
        >>> Y = embed(load_digits().data, method="pca", output={"store": f"{folder}/digits.zarr"})
        >>> open_run(f"{folder}/digits.zarr").to_xarray()["embedding"].dims
        ('input row', 'coordinate')
        """
        import xarray  # the import takes half a second

        variables = {}
        for spec in array_specs.ARRAYS:
            if spec.name in self.arrays:  # xarray: a dimension with an array's name must be numbered by that array
                dims = [f"{dim} number" if dim in self.arrays else dim for dim in spec.dims]
                variables[spec.name] = (dims, self.arrays[spec.name], {"meaning": spec.meaning, "unit": spec.unit})
        return xarray.Dataset(variables, attrs={"store": self.store})

    dataset = to_xarray


@short_traceback
def open_run(store: "str | os.PathLike[str]") -> OpenedRun:
    """Open a run's store for reading. Nothing is written, and arrays are read only on use.

    If a run with a changed config has not finished (killed, refused, or still running), the results that it has not
    computed again are left out: the stored ones belong to the earlier config. An embedding whose eigenpairs did not
    converge is included.

    Parameters
    ----------
    store : str or path
        Path or URL. For a store with output.keep, the published version is opened.

    Returns
    -------
    OpenedRun
        Arrays, metrics and config of the run.

    Raises
    ------
    ConfigError
        There is no run, or the store belongs to another program.
    StoreError
        The store cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_digits
    >>> from lle import embed, open_run
    >>> folder = tempfile.mkdtemp()
    >>> Y = embed(load_digits().data, method="pca", output={"store": f"{folder}/digits.zarr"})
    >>> bool((open_run(f"{folder}/digits.zarr")["embedding"].compute() == Y).all())
    True
    """
    url = os.fspath(store)
    if Store(url).objects.exists("zarr.json"):
        return _opened(Store(url))

    def opened_version(run_store: Store) -> OpenedRun:
        current_config.require_embedding(run_store)  # blocks may have been marked as damaged
        return _opened(run_store)

    run, warning = read_whole(url, opened_version)
    if warning:
        warn(warning)
    return run


def _opened(run_store: Store) -> OpenedRun:
    run_store.require_run()
    attributes = run_store.attributes()
    arrays = {}
    has_embedding = any(current_config.current_record(run_store, key) for key in current_config.EMBEDDING_STEPS)
    for spec in array_specs.ARRAYS:
        if current_config.has_array(run_store, spec.name) and (has_embedding or spec not in EMBEDDED):
            stored_array = StoredArray(run_store.url, spec.name)
            arrays[spec.name] = da.from_array(stored_array, chunks=stored_array.chunks, name=False, asarray=False)
    metrics = run_store.metrics() if current_config.has_metrics(run_store) else None
    step_records = [checkpoint.record_name(key) for key in current_config.EMBEDDING_STEPS]
    unreadable = [name for name in step_records if run_store.get_json(name) is None]
    unreadable += [METRICS] * (metrics is None and current_config.has_metrics(run_store))
    for name in unreadable:
        if run_store.objects.exists(name):
            raise DamagedStore(f"{run_store.url}/{name}: is damaged; run the job again to restore it")
    return OpenedRun(run_store.url, attributes["config"], attributes["versions"], metrics, arrays)

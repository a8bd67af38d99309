"""What a run has left, for reading in Python: arrays as lazy Dask arrays, metrics and config as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt

from pipeline.engine import current_config
from pipeline.storage import array_specs
from pipeline.storage.store import Store, block_of
from pipeline.storage.versions import published_url

EMBEDDED = (array_specs.EMBEDDING, array_specs.COMPONENT, array_specs.EIGENVALUES)
"""What the step solve_embedding.write leaves."""


class StoredArray:
    """An array of a store that a Dask task can carry: it opens the store where it is read, and checks what it reads."""

    def __init__(self, url: str, name: str) -> None:
        array = Store(url).array(name)
        self.url, self.name = url, name
        self.shape, self.dtype, self.ndim = array.shape, np.dtype(array.dtype), array.ndim
        self.chunks = (block_of(array), *array.shape[1:])

    def __getitem__(self, index: tuple[slice, ...]) -> npt.NDArray[Any]:
        start, stop, step = index[0].indices(self.shape[0])
        return np.asarray(Store(self.url).read(self.name, start, stop)[(slice(None, None, step), *index[1:])])


@dataclass(frozen=True)
class OpenedRun:
    """A run's store: `run["embedding"]` is a Dask array, `run.metrics` what metrics.json holds.

    `config` is the resolved one, and all else is of this config: what a run with another one has left in the store is
    left out until it is computed anew. `metrics` is None before the run's first report; `arrays` holds those arrays
    that the run has got to, by name (the README's table), and reading one raises CorruptChunk where a chunk is damaged
    or not yet written.
    """

    store: str
    config: dict[str, Any]
    versions: dict[str, str]
    metrics: dict[str, Any] | None
    arrays: Mapping[str, da.Array]

    def __getitem__(self, name: str) -> da.Array:
        if name not in self.arrays:
            raise KeyError(f"{self.store}: has no array '{name}'; there are {', '.join(self.arrays) or 'none'}")
        return self.arrays[name]

    def dataset(self) -> Any:
        """The arrays with their dimensions, units and meanings as an xarray.Dataset."""
        import xarray  # noqa: PLC0415 (takes half a second)

        variables = {}
        for spec in array_specs.ARRAYS:
            if spec.name in self.arrays:  # a dimension may not have the name of an array that does not number it
                dims = [f"{dim} number" if dim in self.arrays else dim for dim in spec.dims]
                variables[spec.name] = (dims, self.arrays[spec.name], {"meaning": spec.meaning, "unit": spec.unit})
        return xarray.Dataset(variables, attrs={"store": self.store})


def open_run(store: str) -> OpenedRun:
    """Open a run's store, a path or any URL, for reading; nothing is written, and no array is read yet.

    Of a store with output.keep the published version is opened. After a run with a changed config that has not ended
    (killed, refused, or still going on) the arrays and metrics it has not got to are left out: those in the store are
    of the config before. The embedding of a run whose eigenpairs did not converge is there.

    Raises ConfigError where no run has been started or the place is of another program, StoreError where it cannot be
    read.
    """
    opened = Store(store)
    if not opened.objects.exists("zarr.json"):
        opened = Store(published_url(store))
    opened.require_run()
    attributes = opened.attributes()
    arrays = {}
    written = current_config.current_record(opened, "solve_embedding", "write") is not None
    for spec in array_specs.ARRAYS:
        if current_config.holds_array(opened, spec.name) and (written or spec not in EMBEDDED):
            stored = StoredArray(opened.url, spec.name)
            arrays[spec.name] = da.from_array(stored, chunks=stored.chunks, name=False, asarray=False)
    metrics = opened.get_json("report/metrics.json") if current_config.has_metrics(opened) else None
    return OpenedRun(opened.url, attributes["config"], attributes["versions"], metrics, arrays)

"""Add the embedding of a run to an .h5ad file, or write a new one (`lle export STORE OUT.h5ad --into obsm/X_lle`).

Elements are written as the format describes them (anndata.readthedocs.io, "On-disk format"); anndata is not needed.
"""

import re
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Int64
from ..core.errors import ConfigError
from ..core.patterns import is_url, local_path
from ..engine import current_config
from ..engine.step import Json
from ..stages.ingest_ids import stored_ids
from ..stages.report_columns import label_columns
from ..storage import array_specs
from ..storage.bundles import Array
from ..storage.storage_errors import storage_errors
from ..storage.store import Store, fitted_store
from .output_file import check_out, replaced_whole

if TYPE_CHECKING:
    import h5py

SUFFIX, DEFAULT = ".h5ad", "obsm/X_lle"
GROUPS = ("layers", "obsm", "obsp", "uns", "varm", "varp")
TEXT = np.dtype(object, metadata={"vlen": str})
"""Strings of any length in HDF5: `h5py.string_dtype()`, without the import."""


class Categories(NamedTuple):
    """A column of categories, as lle.scanpy stores them; code -1 is none."""

    codes: Array
    names: Sequence[object] | Array


def export_anndata(store: Store, out: str, into: str) -> int:
    """Write the coordinates to `into` (obsm/NAME) of an .h5ad file; returns the rows written.

    obs gets the component of each row, uns the eigenvalues, the quality and the parameters, both under NAME without
    "X_". obs also gets the label under the name of its column, if it has no such column. An existing file keeps
    everything else, and is replaced at the end only. Its rows are matched by obs_names if the run has ids, else by
    their order.

    Raises ConfigError if the rows do not match, or if `out` or `into` cannot be written.
    """
    name = into.removeprefix("obsm/")
    if not re.fullmatch(r"obsm/[^/]+", into) or name.removeprefix("X_") in {"", ".", ".."}:
        raise ConfigError(f"--into {into}: expected obsm/NAME, for instance {DEFAULT}")
    if is_url(out):
        raise ConfigError(f"{out}: expected a local file for .h5ad; copy it to this machine, and back afterwards")
    check_out(out, (SUFFIX,))
    path = Path(local_path(out))
    current_config.require_embedding(store)
    if find_spec("h5py") is None:  # before a large file is copied
        raise ConfigError(".h5ad needs the package h5py: run pip install '.[anndata]' in the source folder")
    with storage_errors(out), replaced_whole(path) as partial:
        if path.exists():
            shutil.copyfile(path, partial)
        with _opened(partial, path) as file:
            if not path.exists():
                _write_empty(file, _row_names(store))
            return _write(file, store, name, out)


def _opened(partial: Path, path: Path) -> "h5py.File":
    import h5py  # the extra anndata

    try:
        file = h5py.File(partial, "a", locking="best-effort")
    except OSError as error:
        if error.errno:
            raise
        raise ConfigError(f"{path}: expected an .h5ad file (HDF5), found something else; choose another name") from None
    obs, members = file.get("obs"), [file[name] for name in ("obs", "obsm", "uns") if name in file]
    is_known = obs is not None and all(hasattr(member, "keys") for member in members)
    if path.exists() and not (is_known and obs.attrs.get("_index", "_index") in obs):
        file.close()
        raise ConfigError(f"{path}: expected an .h5ad file with obs, found HDF5 of another kind; choose another name")
    return file


def _write(file: "h5py.File", store: Store, name: str, out: str) -> int:
    """Write obsm, obs and uns; returns the number of rows."""
    order = _rows_in_order_of(file["obs"], store, out)
    key = name.removeprefix("X_")
    obsm, uns, obs = file.require_group("obsm"), file.require_group("uns"), file["obs"]
    _put(obsm, name, store.read_all(array_specs.EMBEDDING.name)[order])
    components, codes = np.unique(store.read_all(array_specs.COMPONENT.name)[order], return_inverse=True)
    _put(obs, f"{key}_component", Categories(codes, components))
    names = [f"{key}_component"]
    for label in label_columns(store, np.arange(len(order))):
        if (name_in_obs := label.name.replace("/", "_")) not in obs:
            names.append(name_in_obs)
            if label.names is None:
                _put(obs, name_in_obs, label.values[order])
            else:
                _put(obs, name_in_obs, Categories(label.values[order], label.names))
    columns = [str(other) for other in obs.attrs.get("column-order", ())]
    obs.attrs.create("column-order", [*dict.fromkeys([*columns, *names])], dtype=TEXT)
    _put(uns, key, _summary(store))
    return len(order)


def _rows_in_order_of(obs: "h5py.Group", store: Store, out: str) -> Int64:
    """The row of the run for each row of the file."""
    names = obs[obs.attrs.get("_index", "_index")]
    names = names["values"] if hasattr(names, "keys") else names  # an index of nullable strings is a group
    n_rows = store.array(array_specs.EMBEDDING.name).shape[0]
    if (ids := stored_ids(store)) is None:
        if names.shape[0] != n_rows:
            raise ConfigError(
                f"{out}: expected the {n_rows} rows of the run, found {names.shape[0]}; choose a file of exactly these "
                f"rows (input.where leaves some out), or another name for a new file"
            )
        return np.arange(n_rows)
    own = ids.read(0, n_rows).cast(pa.string())
    order = pc.index_in(pa.array(names.asstr()[:], pa.string()), own).to_numpy(zero_copy_only=False)
    if names.shape[0] != n_rows or np.isnan(order).any() or len(set(order.tolist())) != n_rows:
        raise ConfigError(
            f"{out}: expected obs_names that are the {n_rows} ids of the run (its column {ids.name}), each once, found "
            f"{names.shape[0]} names of which {int(np.isfinite(order).sum())} are ids; choose a file of exactly these "
            f"rows (input.where leaves some out), or another name for a new file"
        )
    return np.asarray(order, np.int64)


def _row_names(store: Store) -> list[str]:
    """obs_names of a new file: the ids of the run, else row numbers. Raises ConfigError for missing or equal ids."""
    n_rows = store.array(array_specs.EMBEDDING.name).shape[0]
    if (ids := stored_ids(store)) is None:
        return [str(row) for row in range(n_rows)]
    names: list[str] = ids.read(0, n_rows).cast(pa.string()).to_pylist()
    if None in names or len(set(names)) < n_rows:
        raise ConfigError(f".h5ad: expected an id for each row, each once, in column {ids.name}; export to .parquet")
    return names


def _summary(store: Store) -> Json:
    metrics, config = store.metrics() or {}, store.attributes()["config"]
    trustworthiness = (metrics.get("trustworthiness") or {}).get("value")
    choices = metrics.get("coordinates")
    return {
        "eigenvalues": fitted_store(store).read_all(array_specs.EIGENVALUES.name),
        **({"eigenvectors": np.array([choice["taken"] for choice in choices])} if choices else {}),
        "trustworthiness": np.nan if trustworthiness is None else float(trustworthiness),
        "verdict": str(metrics.get("verdict") or ""),
        "params": {
            "method": config["method"],
            "n_neighbors": int(config["neighbors"]["n_neighbors"]),
            "n_components": int(config["eigensolver"]["n_components"]),
        },
    }


def _write_empty(file: "h5py.File", names: list[str]) -> None:
    """An AnnData of these rows without X and without variables."""
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for frame, index in (("obs", names), ("var", list[str]())):
        group = file.create_group(frame)
        group.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
        group.attrs.create("column-order", [], dtype=TEXT)
        _put(group, "_index", index)
    for name in GROUPS:
        _put(file, name, {})


def _put(group: "h5py.Group", name: str, value: object) -> None:
    """Write an element, in place of an earlier one of this name: a mapping, categories, texts, an array or a scalar."""
    if name in group:
        del group[name]
    version = "0.2.0"
    if isinstance(value, dict):
        element, kind, version = group.create_group(name), "dict", "0.1.0"
        for key, part in value.items():
            _put(element, key, part)
    elif isinstance(value, Categories):
        element, kind = group.create_group(name), "categorical"
        element.attrs["ordered"] = False
        _put(element, "codes", value.codes.astype(np.int32))
        _put(element, "categories", [str(category) for category in value.names])
    elif isinstance(value, list):
        element, kind = group.create_dataset(name, data=np.array(value, object), dtype=TEXT), "string-array"
    elif isinstance(value, np.ndarray):
        element, kind = group.create_dataset(name, data=value), "array"
    elif isinstance(value, str):
        element, kind = group.create_dataset(name, data=value, dtype=TEXT), "string"
    else:
        element, kind = group.create_dataset(name, data=value), "numeric-scalar"
    element.attrs.update({"encoding-type": kind, "encoding-version": version})

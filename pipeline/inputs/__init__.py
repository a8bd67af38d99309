"""Input readers. `open_source` opens every kind of input; each is read by ranges of rows, never as a whole."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..core.errors import InputError
from .base import LabelKind, Source
from .column_names import ColumnRoles, TableColumns
from .damage import reading
from .files import find_files
from .row_filter import SampledRows, SelectedRows

__all__ = ["ColumnRoles", "LabelKind", "Source", "TableColumns", "array_shapes", "open_source", "table_columns"]

_MODULES = {
    "zarr": "zarr_input",
    "npy": "npy_npz_idx",
    "npz": "npy_npz_idx",
    "idx": "npy_npz_idx",
    "parquet": "parquet_files",
    "csv": "csv_files",
    "anndata": "anndata_files",
    "synthetic": "synthetic",
}
"""The module of each kind. It has `open_<kind>`, for a table `<kind>_tables`, and for named arrays `<kind>_shapes`."""


def open_source(kind: str, **params: Any) -> Source:
    """Open an input of this kind; params are the other keys of the config's input section, None if not set.

    `where` keeps only the rows with this label, `fit_sample` this number of them, evenly spread. `chosen_by` names
    the labels for `where`, if the labels to read are others (numbers of neighbours).

    Only headers are read (csv: the file is scanned once per process for its line breaks), so every task can call it.

    Raises InputError if the input is missing, damaged, or not a numeric matrix.
    """
    if fit_sample := params.pop("fit_sample", None):
        return SampledRows(open_source(kind, **params), fit_sample)
    where, labels = params.pop("where", None), "label" if "label" in params else "labels"
    if "id" in params:
        params["id_column"] = params.pop("id")
    chosen_by = params.pop("chosen_by", params.get(labels))
    try:
        opener: Callable[..., Source] = _function(kind, f"open_{kind}")
    except ImportError as error:
        raise InputError(
            f"input.kind: {kind} needs the package '{error.name}', which is not installed; pip install it"
        ) from error
    place = f"input of kind {kind}, {next((params[key] for key in ('path', 'url', 'name') if key in params), '')}"
    with reading(place):
        source = opener(**params)
    if source.n_rows < 0 or source.n_features < 0:
        raise InputError(f"{place}: expected sizes of at least 0, found {source.n_rows} x {source.n_features}")
    if where is None:
        return source
    return SelectedRows(opener(**params | {labels: chosen_by}) if labels in params else source, where, source)


def table_columns(kind: str, path: str) -> list[TableColumns]:
    """The columns of each file of a table (kind parquet or csv). Raises InputError."""
    with reading(f"input of kind {kind}, {path}"):
        tables: list[TableColumns] = _function(kind, f"{kind}_tables")(find_files(path, "path"))
    return tables


def array_shapes(kind: str, path: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the named arrays in the first file of an input (kind npz, zarr or anndata) by name; else empty.

    Raises InputError.
    """
    if kind not in {"npz", "zarr", "anndata"}:
        return {}
    with reading(f"input of kind {kind}, {path}"):
        shapes: dict[str, tuple[int, ...]] = _function(kind, f"{kind}_shapes")(path)
    return dict(sorted(shapes.items()))  # folders list their files in any order


def _function(kind: str, name: str) -> Any:
    """A function of the module of a kind, imported on use: a run loads only the reader it needs."""
    return getattr(import_module(f"{__name__}.{_MODULES[kind]}"), name)

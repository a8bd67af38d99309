"""Input readers. `open_source` opens every kind of input; each is read by ranges of rows, never as a whole."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..core.errors import InputError
from .base import LabelKind, Source
from .column_names import ColumnRoles, TableColumns
from .damage import damage_as_input_error
from .files import find_files
from .row_filter import SampledRows, SelectedRows

__all__ = ["ColumnRoles", "LabelKind", "Source", "TableColumns", "array_shapes", "open_source", "table_columns"]

# kind -> module and function; imported on use, so that a run loads only the reader it needs.
_OPENERS = {
    "zarr": ("zarr_input", "open_zarr"),
    "npy": ("npy_npz_idx", "open_npy"),
    "npz": ("npy_npz_idx", "open_npz"),
    "idx": ("npy_npz_idx", "open_idx"),
    "parquet": ("parquet_files", "open_parquet"),
    "csv": ("csv_files", "open_csv"),
    "anndata": ("anndata_files", "open_anndata"),
    "synthetic": ("synthetic", "open_synthetic"),
}
_TABLES = {"parquet": ("parquet_files", "parquet_tables"), "csv": ("csv_files", "csv_tables")}


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
    module, function = _OPENERS[kind]
    try:
        opener: Callable[..., Source] = getattr(import_module(f"{__name__}.{module}"), function)
    except ImportError as error:
        raise InputError(
            f"input.kind: {kind} needs the package '{error.name}', which is not installed; pip install it"
        ) from error
    place = f"input of kind {kind}, {next((params[key] for key in ('path', 'url', 'name') if key in params), '')}"
    with damage_as_input_error(place):
        source = opener(**params)
    if source.n_rows < 0 or source.n_features < 0:
        raise InputError(f"{place}: expected sizes of at least 0, found {source.n_rows} x {source.n_features}")
    if where is None:
        return source
    return SelectedRows(opener(**params | {labels: chosen_by}) if labels in params else source, where, source)


def table_columns(kind: str, path: str) -> list[TableColumns]:
    """The columns of each file of a table (kind parquet or csv). Raises InputError."""
    module, function = _TABLES[kind]
    with damage_as_input_error(f"input of kind {kind}, {path}"):
        tables: list[TableColumns] = getattr(import_module(f"{__name__}.{module}"), function)(find_files(path, "path"))
    return tables


def array_shapes(kind: str, path: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the named arrays in the first file of an input (kind npz, zarr or anndata); else empty.

    Raises InputError.
    """
    with damage_as_input_error(f"input of kind {kind}, {path}"):
        if kind == "npz":
            from .npy_npz_idx import npz_shapes  # a run loads only the reader it needs

            return npz_shapes(find_files(path, "path")[0])
        if kind == "zarr":
            from .zarr_input import zarr_shapes

            return zarr_shapes(path)
        if kind == "anndata":
            from .anndata_files import anndata_shapes

            return anndata_shapes(path)
    return {}

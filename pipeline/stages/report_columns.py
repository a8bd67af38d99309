"""Columns of a run that its report shows: coordinates, component, reconstruction error and labels of input rows."""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..core.arrays import Int64
from ..engine import checkpoint, current_config
from ..engine.step import Json
from ..report.column import MAX_CLASSES, Column
from ..storage import array_specs
from ..storage.store import Store
from .input_columns import exported_name, input_columns

Float = type[np.float32] | type[np.float64]

NAMED_LABELS = {"anndata", "csv", "parquet", "npz", "zarr"}
"""Kinds of input whose labels are a column, a key or an array with a name."""
ROWS_AT_ONCE = 2**20
TRUSTWORTHINESS = "trustworthiness"


def label_name(attributes: Json, kind: str) -> str:
    """The name of the labels of a run with these attributes in pictures: their column or array if it has a name.

    >>> [label_name({"config": {"input": {"kind": "csv", "label": name}}}, "categorical") for name in ("species", "4")]
    ['species', 'column 4']
    """
    if attributes["config"]["input"]["kind"] == "synthetic":
        return "true coordinate" if kind == "continuous" else "label"
    name = _own_label(attributes) or "label"  # without a name: a file of nothing else
    return f"column {name}" if name.isdigit() else name


def label_column(attributes: Json) -> str:
    """The name of the labels of a run with these attributes in tables: their column or array, else "label".

    >>> [label_column({"config": {"input": {"kind": kind, "label": "species"}}}) for kind in ("csv", "npy")]
    ['species', 'label']
    """
    return exported_name(_own_label(attributes) or "label")


def _own_label(attributes: Json) -> str | None:
    """The name of the column or the array of the labels; None if they have none."""
    section = attributes["config"]["input"]
    name = section.get("label") or section.get("labels") if section["kind"] in NAMED_LABELS else None
    name = name or attributes.get("names", {}).get("label")
    return None if name is None else str(name)


def rows_with_place(store: Store, rows: Int64, dtype: Float = np.float64) -> Int64:
    """Those of the given input rows (ascending) that the explorer shows, with coordinates of this dtype.

    Beside several components that is without placed rows (-2): the store does not record whose coordinates they have.
    """
    component = store.gather(array_specs.COMPONENT.name, rows)
    is_shown = np.isfinite(_coordinates(store, rows, dtype)).all(axis=1)
    if component.max(initial=-1) > 0:
        is_shown &= component >= 0
    return np.asarray(rows[is_shown])


def page_columns(store: Store, rows: Int64, dtype: Float = np.float64, n_of_input: int = 0) -> Iterator[Column]:
    """Columns of the given input rows (ascending) for the explorer, with the same names as in an export.

    Coordinates and errors have the dtype: float32 takes half the memory. n_of_input: most columns of the input.
    """
    for j, values in enumerate(_coordinates(store, rows, dtype).T):
        yield Column(f"y{j + 1}", f"coordinate {j + 1}", values, role="coordinate")
    yield from label_columns(store, rows)
    if n_of_input:
        yield from input_columns(store, rows, n_of_input)
    if current_config.has_array(store, array_specs.DISTANCE_RATIO.name):
        ratio = store.gather(array_specs.DISTANCE_RATIO.name, rows)
        yield Column("distance_ratio", "distance ratio", ratio)
    name = array_specs.RECONSTRUCTION_ERROR.name
    if current_config.has_array(store, name):
        points, errors = store.read_all(array_specs.ORIGINAL_INDEX.name), store.read_all(name)
        yield Column(
            "reconstruction_error", "reconstruction error", _values_of_rows(store, rows, points, errors, dtype)
        )
    if (column := trustworthiness_column(store, rows, dtype)) is not None:
        yield column
    component = store.gather(array_specs.COMPONENT.name, rows)
    if component.size and component.max() > 0:
        names = [str(label) for label in range(int(component.max()) + 1)]
        yield Column("component", "component", component, names, role="component")
    if (component < 0).any():
        yield Column("placed", "placed among the others", (component < 0).astype(np.int64), ["no", "yes"])


def _coordinates(store: Store, rows: Int64, dtype: Float) -> npt.NDArray[np.generic]:
    name = array_specs.EMBEDDING.name
    out = np.empty((len(rows), store.array(name).shape[1]), dtype, order="F")
    for start in range(0, len(rows), ROWS_AT_ONCE):
        out[start : start + ROWS_AT_ONCE] = store.gather(name, rows[start : start + ROWS_AT_ONCE])
    return out


def label_columns(store: Store, rows: Int64) -> list[Column]:
    """The labels of some input rows, ascending; empty if the input has none."""
    reports = checkpoint.reports_of_step(store, "ingest.read_labels", dict)
    if not reports:
        return []
    attributes, names = store.attributes(), reports[0]["names"]
    label, name = label_name(attributes, reports[0]["kind"]), label_column(attributes)
    first, *further = store.gather(array_specs.LABEL.name, rows).T
    if names is not None:
        first = np.nan_to_num(first, nan=-1.0).astype(np.int64)
    others = [Column(exported_name(f"{name}{j}"), f"{label} {j}", values) for j, values in enumerate(further, 2)]
    return [Column(name, label, first, names), *others]


def color_column(store: Store, rows: Int64) -> Column | None:
    """The first label of some input rows, ascending, as pictures show it; None if the input has no labels.

    Whole numbers are classes only if each can have a colour.
    """
    column = next(iter(label_columns(store, rows)), None)
    names = () if column is None else column.names or ()
    if column is None or len(names) <= MAX_CLASSES or not all(re.fullmatch(r"-?\d+", name) for name in names):
        return column
    return column._replace(values=np.array([*names, "nan"], float)[column.values], names=None)  # -1 reads the last


def trustworthiness_column(store: Store, rows: Int64, dtype: Float) -> Column | None:
    """The trustworthiness of each sampled point, NaN elsewhere; None if it is not measured."""
    is_current = current_config.current_record(store, "measure_quality.score") is not None
    if not is_current or not store.has_bundle(array_specs.POINT_QUALITY):
        return None
    measured = store.read_bundle(array_specs.POINT_QUALITY)
    points = store.gather(array_specs.ORIGINAL_INDEX.name, measured["rows"])
    values = _values_of_rows(store, rows, points, measured["trustworthiness"], dtype)
    return Column(TRUSTWORTHINESS, "trustworthiness (sampled)", values) if np.isfinite(values).any() else None


def _values_of_rows(
    store: Store, rows: Int64, points: Int64, values: npt.NDArray[np.generic], dtype: Float
) -> npt.NDArray[np.generic]:
    """(len(rows),) values of input rows: known at the input rows `points` and at rows equal to them, else NaN."""
    of_input = np.full(store.array(array_specs.COMPONENT.name).shape[0] + 1, np.nan, dtype)  # -1 reads the last entry
    of_input[points] = values
    if store.has_array(array_specs.REPRESENTATIVE.name):
        rows = store.gather(array_specs.REPRESENTATIVE.name, rows)
    return np.asarray(of_input[rows])

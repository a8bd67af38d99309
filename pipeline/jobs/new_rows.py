"""Open new rows for the embedding of a finished run, with the columns of the run."""

from ..config.load import parse_input
from ..config.models import Input
from ..core.errors import ConfigError, InputError, listed
from ..core.patterns import is_url
from ..engine.step import Json
from ..inputs import Source, TableColumns, array_shapes, open_source, table_columns
from ..inputs.anndata_files import OBS_NAMES
from ..inputs.detect_kind import SUFFIXES, detect_kind, kind_of_name

TABLES, ARRAYS = {"parquet", "csv"}, {"npy", "npz", "idx", "zarr"}


def open_new(
    new: str, settings: tuple[str, ...], trained: Json, n_features: int, roles: Json | None = None
) -> tuple[Input, Source]:
    """(input section of new points, its source). Raises ConfigError, InputError.

    The suffix determines the kind. `roles` are the columns of the run: a table must have its features, in any order,
    and no others. Without roles (a run of an array) columns are used by position: those of the run's config, else all.
    Settings that name columns override both. AnnData have the matrix of the run, and its id if they hold it.
    """
    named = dict(text.partition("=")[::2] for text in settings)
    kind = named.get("kind") or kind_of_name(new)
    if trained["kind"] == "anndata" and "kind" not in named and kind == "zarr":
        kind = "anndata" if is_url(new) else detect_kind(new).kind
    if kind is None:
        raise ConfigError(
            f"{new}: expected a name that ends in {', '.join(SUFFIXES)}; for other names give --input kind=..., as in "
            f"the config's input section"
        )
    data: dict[str, object] = {"kind": kind, {"zarr": "url", "synthetic": "name"}.get(kind, "path"): new}
    if any({kind, trained["kind"]} <= family for family in (TABLES, ARRAYS)) and trained.get("columns"):
        data["columns"] = trained["columns"]
    if kind in TABLES and roles and "columns" not in named:
        path = str(parse_input(data, settings).model_dump()["path"])
        tables = table_columns(kind, path)
        _check_columns(tables, roles, takes_all=trained.get("columns") is None)
        if "id" not in named and all(roles.get("id") in table.names for table in tables):
            data["id"] = roles["id"]
        data["columns"] = roles["features"]
    if kind == trained["kind"] == "anndata":
        data["obsm"], name = trained["obsm"], trained["id"]
        if name is not None and "id" not in named and (name == OBS_NAMES or f"obs/{name}" in array_shapes(kind, new)):
            data["id"] = name
    section = parse_input(data, settings)
    source = open_section(section)
    if source.n_features != n_features:
        raise InputError(
            f"{new}: expected {n_features} columns, as the input of the run has, found {source.n_features}; name them "
            f"with --input columns=[...]"
        )
    if source.n_rows == 0:
        raise InputError(f"{new}: expected at least one row, found none")
    return section, source


def _check_columns(tables: list[TableColumns], roles: Json, takes_all: bool) -> None:
    """Raises InputError if a table lacks a feature of the run, or has others although the run used all columns."""
    unused = {*roles["left_out"], roles.get("label"), roles.get("id")}
    for table in tables:
        missing = [name for name in roles["features"] if name not in table.names]
        extra = [name for name in table.features(()) if name not in roles["features"] and name not in unused]
        if not missing and not (extra and takes_all):
            continue
        raise InputError(
            f"{table.where}: expected the columns of the run, {listed(roles['features'])}; found "
            f"{listed(table.names)}"
            + f"; missing: {listed(missing)}" * bool(missing)
            + f"; not in the run: {listed(extra)}" * bool(extra)
            + ". Rename or remove columns, or name those to take in the order of the run with --input columns=[...]"
        )


def open_section(section: Input) -> Source:
    """The input of a section. Raises InputError."""
    return open_source(**section.model_dump(mode="json"))

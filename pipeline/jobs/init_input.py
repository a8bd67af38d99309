"""Propose the input section of a config for files of a known kind (`lle init`)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..config.load import parse_input
from ..config.yaml_io import in_flow_style
from ..core.errors import InputError, by_reason, counted, listed
from ..inputs import Source, TableColumns, array_shapes, table_columns
from ..inputs.array_checks import TO_ROWS, stacks_beside
from ..inputs.column_names import TextAmongNumbers, is_missing_word, number_in
from ..inputs.detect_kind import Detected
from ..inputs.propose_roles import LABEL_NAME, MAX_CATEGORIES, MIN_REPEATS, Roles, propose_roles, rows_to_look_at
from ..inputs.propose_scale import propose_scale
from ..inputs.suspect_columns import read_windows
from .export_anndata import DEFAULT
from .new_rows import TABLES, open_section

FILL_GAPS = (
    "fill the gaps in the file first, for example with the median of each column, or remove the rows with the most gaps"
)
TEXT_TO_NUMBERS = (
    "write numbers as numbers, not as text, and without signs, units and separators; of categories, make columns of 0 "
    "and 1: pandas.get_dummies(table).to_csv(out, index=False)"
)
LONGEST_NAME = 100
"""Characters of a name in a message: it may be a whole line."""
NAMED = 3
"""Columns that one comment or warning names."""
MANY = 20
"""Columns that get a warning each."""
PICTURE_COLUMNS = 3
"""A matrix of obsm with at most so many columns is a picture, such as X_umap, or positions in space."""


class Proposal(NamedTuple):
    """The keys of the input section, each with a comment, and properties of the sampled rows.

    `left_out` has the reason for each column without a role; `incomplete` describes rows that hold NaN or infinity,
    and `complete` is the share of the others. `scale` is preprocess.scale with the reason, and `remarks` are comments.
    `different` is the number of different complete rows, None if it is large or not known.
    """

    keys: dict[str, tuple[object, str]]
    is_table: bool
    scale: tuple[str, str]
    left_out: Mapping[str, str] = {}
    incomplete: str = ""
    remarks: Sequence[str] = ()
    different: int | None = None
    complete: float = 1.0
    warnings: Sequence[str] = ()


def propose_input(detected: Detected) -> Proposal:
    """The keys of the input section; reads headers, some rows of a table, and arrays of labels. Raises InputError."""
    return _of_table(detected) if detected.kind in TABLES else _of_arrays(detected)


def _of_table(detected: Detected) -> Proposal:
    """The input section of a table. It lists `columns` only if a column with numbers is left out or has no name."""
    keys: dict[str, tuple[object, str]] = {"kind": (detected.kind, ""), "path": (detected.path, "")}
    section = {key: value for key, (value, _) in keys.items()}
    tables = table_columns(detected.kind, detected.path)
    top = next((table for table in tables if table.on_top), tables[0])
    first = tables[0]._replace(on_top=top.on_top, on_top_of=top.where if len(tables) > 1 else "")
    first, roles, named = _roles_of(section, first)
    special = {column.name: role for role, column in (("the label", roles.label), ("the id", roles.id)) if column}
    if not roles.features:
        other = "if one of them holds measurements, name it in input.columns of a config of your own"
        text = first.other_types.keys()
        if text - special.keys() and roles.left_out.keys() <= text:
            other = TEXT_TO_NUMBERS
        raise InputError(
            f"{detected.path}: expected at least one column of measurements, found "
            f"{_with_reasons(first, {**roles.left_out, **special})}; "
            f"{_text_on_top(first) if first.on_top else FILL_GAPS if roles.fillable else other}"
        )
    if named or any(name not in first.other_types for name in roles.left_out):
        keys["columns"] = (list(roles.features), "the features")
    left_out = _unused(first) | dict(roles.left_out)
    if roles.label is not None:
        comment, problem = _label_comment({**section, "columns": list(roles.features)}, roles)
        if problem:
            left_out[roles.label.name] = problem
        else:
            keys["label"] = (roles.label.name, comment)
    if roles.id is not None:
        keys["id"] = (roles.id.name, f"different in all {roles.where}; names the rows and is not a feature")
    used = {*roles.features, *(keys[role][0] for role in ("label", "id") if role in keys)}
    left_out = {name: left_out[name] for name in first.names if name not in used}
    words = {name: f", some as {listed([*map(repr, texts)])}" for name, texts in first.missing_words.items() if texts}
    missing = listed([f"{name} {count:,}{words.get(name, '')}" for name, count in roles.missing.items()])
    incomplete = f"{roles.incomplete:,} of {roles.where} have missing values ({missing})" if roles.incomplete else ""
    remarks, shares = _remarks(roles, left_out), (roles.different, roles.complete)
    return Proposal(keys, True, roles.scale, left_out, incomplete, remarks, *shares, _warnings(roles, first))


def _roles_of(section: Mapping[str, object], table: TableColumns) -> tuple[TableColumns, Roles, bool]:
    """The table, with the columns in which the rows read hold text between numbers; roles; whether columns are named.

    Raises InputError.
    """
    text = [name for name, kind in table.other_types.items() if kind == "text"]
    text += [name for name in table.row_index if name in table.mixed]  # names of rows, some of which are numbers
    while usable := [name for name in table.features(()) if name and name not in table.mixed]:
        named = {"columns": usable} if "" in table.names or table.mixed else {}
        try:
            return table, propose_roles(open_section(parse_input({**section, **named}, ())), text), bool(named)
        except TextAmongNumbers as error:  # below the first rows
            if error.column not in usable:
                raise
            table = table._replace(mixed={**table.mixed, error.column: error.found})
    raise InputError(f"{section['path']}: expected a column of numbers, found {_with_reasons(table, {})}{_cure(table)}")


def _cure(table: TableColumns) -> str:
    """What to do if all columns of a table hold text, as the end of a sentence."""
    fields = table.names[0].split() if len(table.names) == 1 else []
    if len(fields) > 1:
        is_row = 2 * sum(number_in(field) is not None for field in fields) > len(fields)
        commas = rf"pandas.read_csv(path, sep=r'\s+'{', header=None' * is_row}).to_csv(out, index=False)"
        return f"; if spaces separate the columns, write commas: {commas}"
    if 2 * table.names.count("") > len(table.names):
        return "; the first line seems to be a title: remove it"
    if table.on_top:
        return f"; {_text_on_top(table)}"
    return "" if table.mixed or not table.names else f"; {TEXT_TO_NUMBERS}"


def _text_on_top(table: TableColumns) -> str:
    """Which lines to remove, because they hold text above the numbers of columns, such as units."""
    numbers = sorted({number for texts in table.on_top.values() for number in texts})
    first, last = listed([*map(str, numbers[:-1])]), numbers[-1]
    lines = f"lines {first} and {last}" if first else f"line {last}"
    if table.on_top_of:
        lines += f" of {table.on_top_of}"
    others = ", and such lines of the other files" if table.on_top_of else ""
    found = {repr(texts[numbers[0]]): "" for texts in table.on_top.values() if numbers[0] in texts}
    columns = f"{counted(len(table.on_top), 'column')} {'is' if len(table.on_top) == 1 else 'are'}"
    return f"{columns} numbers except in {lines} ({', '.join([*found][:2])}): remove {lines}{others}"


def _remarks(roles: Roles, left_out: Mapping[str, str]) -> list[str]:
    """Comments on columns whose role the values do not show."""
    remarks, labels = [], [name for name in roles.other_labels if name in left_out][:NAMED]
    if roles.label is None and labels:
        others = f"   or {listed([*map(in_flow_style, labels[1:])])}" if labels[1:] else ""
        remarks.append(f"label: {in_flow_style(labels[0])}{others}   to colour the picture by a column with few values")
    if roles.few_values:
        names = listed([*map(in_flow_style, roles.few_values)])
        remarks.append(f"features with few whole numbers: {names}; take those that are codes out of columns")
    return remarks


def _warnings(roles: Roles, table: TableColumns) -> list[str]:
    """Why the picture may show little of the data, or depend on a few values."""
    gaps, kept = counted(roles.fillable, "column"), len(roles.features)
    and_kept = f"and only {counted(kept, 'feature')} kept"
    top = [f"{_text_on_top(table)}."] if table.on_top else []
    mixed = [name for name in table.mixed if name not in {*table.on_top, *table.row_index}]
    if len(mixed) >= kept:
        such = f"such as '{mixed[0]}' ({table.mixed[mixed[0]]})"
        top.append(f"{counted(len(mixed), 'column')} left out, {such}, {and_kept}.")
    few = f"{gaps} left out because of gaps in up to half of the rows, {and_kept}; {FILL_GAPS}."
    cure = "this sets the scale of the column; if these are errors, leave them empty in the file, and run init again"
    far = [f"Column '{name}' {text}; {cure}." for name, text in list(roles.far.items())[:MANY]]
    if roles.fillable < kept:
        only = f"Only column '{roles.features[0]}' is a feature; the config says why the others are left out."
        return [*top, *[only] * (kept == 1 and bool(roles.left_out)), *far]
    return [*top, few, *far]


def _unused(table: TableColumns) -> dict[str, str]:
    """The columns of a table that cannot be features, with the reason."""
    return {**table.other_types, **table.mixed, "": "no name", **dict.fromkeys(table.row_index, "row index")}


def _with_reasons(table: TableColumns, reasons: Mapping[str, str]) -> str:
    """The columns of a table, those that are no features with the reason, and those of one reason together."""
    reasons = {**_unused(table), **reasons}
    shown = {name: name[:LONGEST_NAME] + "..." * (len(name) > LONGEST_NAME) or repr(name) for name in table.names}
    others = [shown[name] for name in table.names if name not in reasons]
    parts = by_reason({name: reasons[name] for name in table.names if name in reasons}, lambda name: shown[name])
    return listed([*others, *parts]) or "no columns"


def _label_comment(section: dict[str, object], roles: Roles) -> tuple[str, str]:
    """(a comment on the label of a table, why it cannot be one): one is empty. Categories are counted in all rows."""
    assert roles.label is not None
    labelled = open_section(parse_input({**section, "label": roles.label.name}, ()))
    try:
        names = labelled.labels.names
    except InputError as error:  # too many categories
        return "", f"no label: {error}"
    found = "numbers" if names is None else f"{len(names)} categories"
    if words := [name for name in names or () if is_missing_word(name)]:
        found += f" (one is {words[0]!r})"
    remark = f"; others with few: {listed(roles.other_labels)}" if roles.other_labels else ""
    return f"{found} in {labelled.n_rows:,} rows; colours the picture and is not a feature{remark}", ""


def _of_arrays(detected: Detected) -> Proposal:
    """The input section of arrays: the matrix of `_matrix`, and an array of labels if one is found."""
    kind, path = detected
    shapes = array_shapes(kind, path)
    keys: dict[str, tuple[object, str]] = {"kind": (kind, ""), "url" if kind == "zarr" else "path": (path, "")}
    warnings = list[str]()
    name = _matrix(kind, shapes)
    other_arrays = [array_name for array_name, shape in shapes.items() if len(shape) == 2 and array_name != name]
    others = f"others: {listed(other_arrays)}" if other_arrays else ""
    if name:
        key = {"npz": "key", "zarr": "array", "anndata": "obsm"}[kind]
        keys[key] = (name.removeprefix("obsm/"), others)
        stacks = listed(stacks_beside(name, shapes))
        warnings = [f"'{name}' {shapes[name]} is embedded, not {stacks}; to embed that, {TO_ROWS}."] if stacks else []
    elif kind == "anndata":
        keys["obsm"] = (None, "; ".join(filter(None, ["null reads X", others])))
    section = {key: value for key, (value, _) in keys.items()}
    source = open_section(parse_input(section, ()))
    if kind == "anndata":
        keys["id"] = ("obs_names", "names the rows in every result")
    role = "label" if kind == "anndata" else "labels"
    candidates = list(_label_candidates(detected, shapes, source))
    is_only = kind in {"npz", "zarr"} and len(candidates) == 1  # as `year` beside `X`
    for candidate in candidates:
        if comment := _as_label({**section, role: candidate}, is_label_name(candidate), is_only):
            keys[role] = (candidate, comment)
            break
    rows = read_windows(source, rows_to_look_at(source))
    where = f"{len(rows):,} " + ("rows" if len(rows) == source.n_rows else "sampled rows")
    with_values = np.flatnonzero(np.isfinite(rows).any(axis=0))
    if 0 < len(with_values) < source.n_features and kind != "anndata":
        empty = counted(source.n_features - len(with_values), "column")
        keys["columns"] = (with_values.tolist(), f"the features; {empty} without a value in {where} left out")
        rows = rows[:, with_values]
    is_complete = np.isfinite(rows).all(axis=1)
    found = "" if is_complete.all() else f"{np.sum(~is_complete):,} of {where} have missing values"
    share = float(is_complete.mean()) if len(rows) else 1.0
    return Proposal(keys, False, propose_scale(rows), incomplete=found, complete=share, warnings=warnings)


def _matrix(kind: str, shapes: dict[str, tuple[int, ...]]) -> str | None:
    """The matrix to embed: that with the most values, of AnnData obsm/X_pca if there is one.

    None for X of AnnData, if obsm holds only pictures (up to PICTURE_COLUMNS columns) and an embedding of this program.
    """
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    if kind == "anndata":
        if "obsm/X_pca" in matrices:
            return "obsm/X_pca"
        matrices = {name: shape for name, shape in matrices.items() if shape[1] > PICTURE_COLUMNS and name != DEFAULT}
    return max(matrices, key=lambda name: matrices[name][0] * matrices[name][1], default=None)


def _label_candidates(detected: Detected, shapes: dict[str, tuple[int, ...]], source: Source) -> Iterator[str]:
    """Names of arrays, or paths of files, that may hold one label for each row; likely names first."""
    kind, path = detected
    if kind in {"npy", "idx"}:
        folder, name = os.path.split(path)
        stem = Path(name).stem
        candidates = [name.replace("X", "y"), f"{stem}_labels.npy", f"{stem}_y.npy", "labels.npy", "y.npy"]
        if kind == "idx":  # as the files of MNIST are named
            candidates = [name.replace("images", "labels").replace("idx3", "idx1")]
        paths = [os.path.join(folder, candidate) for candidate in candidates if candidate != name]
        yield from filter(os.path.isfile, paths)
        return
    vectors = [name.removeprefix("obs/") for name, shape in shapes.items() if shape == (source.n_rows,)]
    yield from sorted(vectors, key=lambda name: not is_label_name(name))


def is_label_name(name: str) -> bool:
    """Whether an array or file has a usual name of labels."""
    return LABEL_NAME.fullmatch(Path(name).stem) is not None


def _as_label(section: dict[str, object], is_named: bool, is_only: bool) -> str:
    """A comment on the labels of this section; empty if the array cannot be a label.

    Numbers are a label if their array is named as one, or if no other array has a value for each row.
    """
    try:
        labelled = open_section(parse_input(section, ()))
        names = labelled.labels.names
    except InputError:
        return ""
    if names is None:
        return "numbers; they colour the picture" if (is_named or is_only) and labelled.labels.width == 1 else ""
    is_named = is_named or section["kind"] in {"npy", "idx"}  # such a file is found by its name
    most = max(MAX_CATEGORIES, labelled.n_rows // MIN_REPEATS if is_named else 0)
    return f"{len(names)} categories; they colour the picture" if 2 <= len(names) <= most else ""

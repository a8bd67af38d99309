"""Write a first config for a data file: the kind of input, and the role of each column (`lle init`)."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ..config.load import check_config, json_schema, parse_input
from ..config.yaml_io import in_flow_style, parse
from ..core.errors import ConfigError, InputError, by_reason, counted, listed
from ..engine.step import Json
from ..inputs import Source
from ..inputs.detect_kind import detect_kind
from .init_input import FILL_GAPS, Proposal, propose_input
from .new_rows import open_section
from .validate import validate

NEIGHBORS, COMPONENTS = 12, 2
STDOUT = "-"
SCHEMA = "lle-schema.json"
"""The file beside the config that editors read for completion and descriptions of the keys."""
WIDTH = 40  # column of the comments
MAX_LISTED = 500
"""Features that are listed in a comment of the config."""


def init(data: str, out: Path) -> Json:
    """Write a commented config for an input to the new file `out`; returns the result of `validate`, and more.

    `incomplete` says which rows have missing numbers ("" for none); `remarks` are comments in the config; `written`
    are the files, and `kept` is the schema beside them, if it is that of another version. For `out` "-" no file is
    written, and the result holds the `text`.

    The schema for editors is written beside the config, unless another file has its name. Nothing is written if the
    config would not pass; too little memory is a warning. Raises ConfigError and InputError.
    """
    is_file = str(out) != STDOUT
    if is_file and (out.exists() or out.is_symlink()):
        raise ConfigError(f"{out}: this file already exists, and init does not replace it; choose another name with -o")
    proposal, source = _proposed(data)
    _check_rows(proposal, source, data)
    text = config_text(proposal, source, data, out if is_file else None)
    config = check_config(parse(text), f"config {out}")
    checked = validate(config, only_warn=True)  # the run may have more memory
    label = next((proposal.keys[key][0] for key in ("label", "labels") if key in proposal.keys), None)
    if source.n_features <= COMPONENTS:
        n = source.n_features
        same = f"eigensolver.n_components is {n}, and the data have only {counted(n, 'feature')}"
        checked["warnings"].append(f"{same}: the embedding has as many dimensions as the data.")
    if proposal.complete < config.output.min_rows:
        found = f"Only {proposal.complete:.1%} of the rows have all values"
        if proposal.complete * source.n_rows <= config.neighbors.n_neighbors:
            why = f"neighbors.n_neighbors is {config.neighbors.n_neighbors}: a run would end with exit code 2"
        else:
            why = f"output.min_rows is {config.output.min_rows:g}: a run would end with exit code 3"
        checked["warnings"].append(f"{found}, and {why}; {FILL_GAPS}.")
    checked["warnings"] += proposal.warnings
    if checked["columns"] is not None:
        checked["columns"]["left_out"] = dict(proposal.left_out)
    kind, written = str(proposal.keys["kind"][0]), _write(out, text) if is_file else {"text": text}
    names: Json = {"kind": kind, "label": label, "config": str(out), "incomplete": proposal.incomplete}
    return {**checked, **names, **written, "remarks": list(proposal.remarks)}


def _check_rows(proposal: Proposal, source: Source, data: str) -> None:
    """Raises InputError if a run of the proposal has too few rows."""
    least = min(COMPONENTS, source.n_features) + 2
    if source.n_rows < least:
        raise InputError(
            f"{data}: expected at least {least} rows for {counted(least - 2, 'coordinate')}, found {source.n_rows}"
        )
    if proposal.different is not None and proposal.different < least:
        left_out = "; ".join(by_reason(proposal.left_out, lambda name: name or repr(name)))
        raise InputError(
            f"{data}: expected at least {least} different rows for {counted(least - 2, 'coordinate')}, found "
            f"{proposal.different} in {listed(source.feature_names or ())}{f', without {left_out}' * bool(left_out)}; "
            f"list other columns in input.columns of a config of your own"
        )


def proposed_config(data: str) -> Json:
    """The settings that `init` would write for an input. Raises InputError."""
    config: Json = parse(config_text(*_proposed(data), data, None))
    return config


def _proposed(data: str) -> tuple[Proposal, Source]:
    proposal = propose_input(detect_kind(data))
    return proposal, open_section(parse_input({key: value for key, (value, _) in proposal.keys.items()}, ()))


def _write(out: Path, text: str) -> Json:
    """Write the config, and the schema unless another file has its name; the files written and kept."""
    schema, schema_text = out.parent / SCHEMA, json.dumps(json_schema(), indent=1)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
        if not (schema.exists() or schema.is_symlink()):
            schema.write_text(schema_text, encoding="utf-8")
            return {"written": [str(out), str(schema)], "kept": []}
        is_same = schema.is_file() and schema.read_bytes() == schema_text.encode()
        return {"written": [str(out)], "kept": [] if is_same else [str(schema)]}
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error.strerror}; choose another name with -o") from None


def config_text(proposal: Proposal, source: Source, data: str, out: Path | None) -> str:
    """The YAML text, with a comment beside each key. It refers to the schema beside `out`.

    out: None if the text is not written to a file.
    """
    config = "CONFIG" if out is None else shlex.quote(str(out)).replace("\n", " ")
    n, m = source.n_rows, min(COMPONENTS, source.n_features)
    different = proposal.different or n
    lines = [
        *[f"# yaml-language-server: $schema={SCHEMA}"] * (out is not None),
        f"# Written by lle init: {counted(n, 'row')} of {counted(source.n_features, 'feature')}.",
        f"# lle validate {config} checks it, lle run {config} runs it; lle schema prints every key.",
        _line("method", "lle", "or modified, hessian, ltsa, laplacian, pca", indent=0),
        "input:",
        *(_line(key, value, comment) for key, (value, comment) in proposal.keys.items()),
    ]
    if proposal.is_table and "columns" not in proposal.keys:
        lines.append(_commented_columns(source.feature_names or ()))
    lines += [f"  # {remark}" for remark in proposal.remarks]
    lines += [f"  # left out: {line}" for line in by_reason(proposal.left_out, in_flow_style)]
    lines += ["preprocess:", _line("scale", *proposal.scale)]
    if proposal.incomplete:
        lines.append(_line("invalid", "drop", f"{proposal.incomplete}; error: end the run instead"))
    lines += [
        "neighbors:",
        _line("n_neighbors", max(m + 1, min(NEIGHBORS, different - 1)), f"lle suggest {config} proposes values"),
        "eigensolver:",
        _line("n_components", m, "coordinates of each row"),
        "embedding:",
        _line("coordinates", "independent", "replaces those that repeat others; first: as scikit-learn"),
        "output:",
        _line("store", f"runs/{_stem(data)}.zarr", "results and report/index.html; a path or a URL"),
        "  # keep: 5" + " " * (WIDTH - 11) + "# publish versions, for a job that runs every night",
    ]
    return "\n".join(lines) + "\n"


def _commented_columns(features: Sequence[str]) -> str:
    """The features as a key to edit; of many only the first ones, as nobody edits so long a line."""
    about = "these are the features"
    if len(features) > MAX_LISTED:
        features, about = features[:3], f"the first of {len(features):,} features"
    return f"  # columns: {in_flow_style(list(features))}   # {about}; list those to take"


def _line(key: str, value: object, comment: str, indent: int = 2) -> str:
    text = " " * indent + f"{key}: {in_flow_style(value)}"
    comment = "".join(char if char.isprintable() else " " for char in comment)
    return f"{text:<{WIDTH - 2}}  # {comment}" if comment else text


def _stem(data: str) -> str:
    """A name for the store: that of the file, of the folder of a pattern, or `run`.

    >>> _stem("rows/*.parquet"), _stem("s3://bucket/points.zarr"), _stem("train-images-idx3-ubyte.gz")
    ('rows', 'points', 'train-images-idx3-ubyte')
    """
    parts = [part for part in Path(urlsplit(data).path if "://" in data else data).parts if not set("*?[") & set(part)]
    name = Path(parts[-1]).name.split(".")[0] if parts else ""
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in name) or "run"

"""Reference pages generated from the code while the site is built: config keys, commands, arrays of the store."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import typer.cli
import typer.main
from pydantic import BaseModel

from lle.cli.commands import app
from lle.config.load import SweptConfig
from lle.config.messages import CLUSTERS, INPUTS
from lle.storage.array_specs import ARRAYS

Schema = dict[str, Any]


def config_reference() -> str:
    """A table of the keys of each section of the config, from the JSON schema of its model."""
    schema = SweptConfig.model_json_schema()
    properties = schema["properties"]
    lines = ["## method", "", *_table(schema, {"method": properties["method"]})]
    for section, described in properties.items():
        if section == "method":
            continue
        lines += ["", f"## {section}", ""]
        if section == "input":
            lines += _kinds(INPUTS)
        elif section == "execution":
            keys = _resolve(schema, described)["properties"]
            lines += _table(schema, {key: value for key, value in keys.items() if key != "cluster"})
            lines += ["", "## execution.cluster", "", *_kinds(CLUSTERS)]
        else:
            lines += _table(schema, _resolve(schema, described)["properties"])
    return "\n".join(lines)


def _kinds(kinds: dict[Any, type[BaseModel]]) -> Iterator[str]:
    """A table for each model of a section whose keys depend on `kind`."""
    for model in dict.fromkeys(kinds.values()):
        schema = model.model_json_schema()
        kind = schema["properties"]["kind"]
        names = [kind["const"]] if "const" in kind else kind["enum"]
        yield from (f"### kind: {', '.join(names)}", "")
        yield from _table(schema, schema["properties"])
        yield ""


def _table(schema: Schema, properties: Schema) -> Iterator[str]:
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for key, described in properties.items():
        default = f"`{_yaml(described['default'])}`" if "default" in described else "required"
        meaning = described.get("description", "").replace("|", "\\|")
        yield f"| `{key}` | {_type_of(schema, described)} | {default} | {meaning} |"


def _yaml(value: Any) -> str:
    return "{}" if isinstance(value, dict) else json.dumps(value)


def _resolve(schema: Schema, described: Schema) -> Schema:
    """The schema that `$ref` names, or the first of a union that is no null."""
    if "$ref" in described:
        found: Schema = schema["$defs"][described["$ref"].rsplit("/", 1)[-1]]
        return found
    for part in described.get("anyOf", []):
        if part.get("type") != "null":
            return _resolve(schema, part)
    return described


def _type_of(schema: Schema, described: Schema) -> str:
    """The values that a key may have, in words."""
    if "enum" in described:
        return ", ".join(f"`{value}`" for value in described["enum"])
    if "const" in described:
        return f"`{described['const']}`"
    parts = described.get("anyOf") or described.get("oneOf")
    if parts:
        return " or ".join(dict.fromkeys(_type_of(schema, part) for part in parts))
    if "$ref" in described:
        return "section {" + ", ".join(_resolve(schema, described)["properties"]) + "}"
    kind = described.get("type", "any value")
    words = {"integer": "whole number", "boolean": "true or false", "string": "text", "object": "mapping"}
    if kind == "array":
        return f"list of {_type_of(schema, described.get('items', {}))}"
    return words.get(kind, kind) + _bounds(described)


def _bounds(described: Schema) -> str:
    signs = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    limits = [f"{word} {described[name]:g}" for name, word in signs.items() if name in described]
    return f" ({', '.join(limits)})" if limits else ""


def command_reference() -> str:
    """Every command with its arguments and options, as typer documents it."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="lle")
    text = typer.cli.get_docs_for_click(obj=command, ctx=context, name="lle", title="lle")
    text = text.split("\n", 1)[1]  # the page has the heading
    text = re.sub(r"\{([A-Z]+)\}", r"\1", text)  # typer has braces in the usage, and Python's types
    text = re.sub(r"^(\* `[A-Z]+) <[^>]+>`", r"\1`", text, flags=re.MULTILINE)
    text = re.sub(r"\*\*Commands\*\*:\n.*?(?=\n## )", "", text, flags=re.DOTALL)  # the sections list them, uncut
    return re.sub(r"^Example: (.+)$", r"**Example**:\n\n```console\n$ \1\n```", text, flags=re.MULTILINE)


def store_arrays() -> str:
    """The arrays of a store."""
    lines = ["| array | shape | dtype | unit | meaning |", "|---|---|---|---|---|"]
    for spec in ARRAYS:
        meaning = spec.meaning.replace("|", "\\|")
        lines.append(f"| `{spec.name}` | ({', '.join(spec.dims)}) | {spec.dtype} | {spec.unit} | {meaning} |")
    return "\n".join(lines)


PLACEHOLDERS: dict[str, Callable[[], str]] = {
    "config_reference": config_reference,
    "command_reference": command_reference,
    "store_arrays": store_arrays,
}

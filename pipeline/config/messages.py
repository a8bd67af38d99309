"""Config error messages: the key, the value found, the allowed values, and a similar allowed word."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel, ValidationError

from .clusters import Clusters
from .fields import shown
from .inputs import Input
from .neighbors import Graphs

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def _by_kind(annotated_union: object) -> dict[str, type[BaseModel]]:
    models = get_args(get_args(annotated_union)[0])
    return {kind: model for model in models for kind in get_args(model.model_fields["kind"].annotation)}


INPUTS, CLUSTERS = _by_kind(Input), _by_kind(Clusters)
KINDS = {"input": INPUTS, "precomputed": _by_kind(Graphs), "cluster": CLUSTERS}
LONGEST_WORD = 100  # characters for which a similar word is searched
SECTION = "expected a section, keys with their values"
# Replacements for pydantic's messages, which name Python types.
WORDS = {
    "model_type": SECTION,
    "model_attributes_type": SECTION,
    "dict_type": SECTION,
    "tuple_type": "expected a list such as {example}",
    "list_type": "expected a list such as {example}",
    "too_short": "should have at least {min_length} entries",
    "too_long": "should have at most {max_length} entries",
    "int_type": "should be a whole number (integer)",
    "float_type": "should be a number",
    "string_type": "should be text (in quotes where it looks like a number)",
    "string_too_short": "should not be empty",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "invalid_key": "keys should be text",
}
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
# Parts of an error location that are not keys: pydantic adds the type that it tried.
TRIED = re.compile(r"(constrained-)?(int|float|str)|(literal|tuple|function-\w+)\[.*|function-.*|NoneType")


def describe(error: ValidationError, model: type[BaseModel], section: str = "") -> list[str]:
    """The errors of a model, one line for each key; the types that a value may have share a line.

    `section` precedes each key, as "sweep."; errors of several keys together have none.
    """
    lines: dict[str, tuple[str, str]] = {}
    for part in error.errors():
        key, message, ending = _described(part, model)
        if key in lines:
            first, first_ending = lines[key]
            message, ending = f"{first} or {message.removeprefix('should be ')}", max(first_ending, ending, key=len)
        lines[key] = message, ending
    return [
        f"{section}{key}: {message}{ending}" if key else f"{message}{ending}"
        for key, (message, ending) in lines.items()
    ]


def _described(error: "ErrorDetails", model: type[BaseModel]) -> tuple[str, str, str]:
    """The key of an error, its message, and what was found with the cure."""
    kind, value = error["type"], error.get("input")
    if kind == "extra_forbidden":
        *location, unknown = map(str, error["loc"])
        keys, section = _place(location, model)
        allowed = list(section.model_fields)
        message = f"unknown key (found value {shown(value)}); allowed: {', '.join(allowed)}"
        return ".".join([*keys, unknown]), message, _suggestion(unknown, allowed)
    keys, _ = _place(error["loc"], model)
    if kind == "missing":
        return ".".join(keys), "required, but not given", ""
    allowed = re.findall(r"'(.*?)'", str(error["ctx"]["expected"])) if kind == "literal_error" else []
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should", "should")
    message = WORDS[kind].format(example=f"[{value}]", **error.get("ctx", {})) if kind in WORDS else message
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        allowed = list(KINDS[keys[-1]] if keys else INPUTS)
        keys.append("kind")
        if kind == "union_tag_not_found":
            return ".".join(keys), f"required; one of {', '.join(allowed)}", ""
        message = f"should be {', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}"
        value = value.get("kind") if isinstance(value, dict) else value
    if isinstance(value, dict):
        return ".".join(keys), message, ""
    is_quoted = kind in ("int_type", "float_type") and isinstance(value, str) and NUMBER.fullmatch(value)
    cure = " in quotes; remove the quotes" if is_quoted else ""
    return ".".join(keys), message, f"; found {shown(value)}{cure}{_suggestion(str(value), allowed)}"


def _suggestion(word: str, allowed: Iterable[str]) -> str:
    if len(word) > LONGEST_WORD:  # comparing takes the square of its length
        return ""
    matches = get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]}?" if matches and matches[0] != word else ""


def _place(location: Iterable[object], model: type[BaseModel]) -> tuple[list[str], type[BaseModel]]:
    """The keys of an error location, without the kinds and types that pydantic adds, and the model at its end."""
    keys, kinds = list[str](), INPUTS  # an input section on its own has no key before its kind
    for part in map(str, location):
        if field := model.model_fields.get(part):
            keys.append(part)
            kinds = KINDS.get(part, {})
            parts = () if kinds else (field.annotation, *get_args(field.annotation))
            model = next((inner for inner in parts if hasattr(inner, "model_fields")), model)
        elif part in kinds:
            model = kinds[part]
        elif not TRIED.fullmatch(part):
            keys.append(part)
    return keys, model

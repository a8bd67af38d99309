"""Config error messages: the key, the value found, the allowed values, and a similar allowed word."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel, ValidationError

from .clusters import KINDS as CLUSTERS
from .fields import shown
from .inputs import Input
from .neighbors import Graphs

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def _by_kind(annotated_union: object) -> dict[str, type[BaseModel]]:
    models = get_args(get_args(annotated_union)[0])
    return {get_args(model.model_fields["kind"].annotation)[0]: model for model in models}


INPUTS, GRAPHS = _by_kind(Input), _by_kind(Graphs)
CLUSTER_KINDS = [*get_args(CLUSTERS["dask"].model_fields["kind"].annotation), *list(CLUSTERS)[1:]]
LONGEST_WORD = 100  # characters for which a similar word is searched
SECTION = "expected a section, keys with their values"
# Replacements for pydantic's messages, which name Python types.
WORDS = {
    "model_type": SECTION,
    "model_attributes_type": SECTION,
    "dict_type": SECTION,
    "tuple_type": "expected a list such as {example}",
    "list_type": "expected a list such as {example}",
    "int_type": "should be a whole number (integer)",
    "float_type": "should be a number",
    "string_type": "should be text (in quotes where it looks like a number)",
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
    location, kind, value = error["loc"], error["type"], error.get("input")
    key = ".".join(_keys(location, kind))
    kind_key = f"{key}.kind".removeprefix(".")
    if kind == "extra_forbidden":
        allowed = _siblings(location, model)
        return (
            key,
            f"unknown key (found value {shown(value)}); allowed: {', '.join(allowed)}",
            _suggestion(str(location[-1]), allowed),
        )
    if kind == "missing":
        return key, "required, but not given", ""
    kinds = {"execution.cluster": CLUSTER_KINDS, "neighbors.precomputed": list(GRAPHS)}.get(key, list(INPUTS))
    if kind == "union_tag_not_found":
        return kind_key, f"required; one of {', '.join(kinds)}", ""
    if kind == "union_tag_invalid":
        key, value = kind_key, value.get("kind") if isinstance(value, dict) else value
    elif key == "execution.cluster.kind":  # pydantic lists only the kinds of one model
        kind, kinds = "union_tag_invalid", CLUSTER_KINDS
    if kind == "union_tag_invalid":
        *first, last = map(repr, kinds)
        return key, f"should be {', '.join(first)} or {last}", f"; found {shown(value)}{_suggestion(str(value), kinds)}"
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should", "should")
    message = WORDS[kind].format(example=f"[{value}]") if kind in WORDS else message
    if isinstance(value, dict):
        return key, message, ""
    allowed = re.findall(r"'(.*?)'", str(error["ctx"]["expected"])) if kind == "literal_error" else []
    is_quoted = kind in ("int_type", "float_type") and isinstance(value, str) and NUMBER.fullmatch(value)
    cure = " in quotes; remove the quotes" if is_quoted else ""
    return key, message, f"; found {shown(value)}{cure}{_suggestion(str(value), allowed)}"


def _keys(location: tuple[object, ...], kind: str) -> list[str]:
    """The keys of an error location, without the models and types that pydantic adds."""
    inner = location[:-1] if kind == "extra_forbidden" else location
    tags = {*INPUTS, *CLUSTERS}
    keys = [str(part) for part in inner if str(part) not in tags and not TRIED.fullmatch(str(part))]
    return keys + [str(part) for part in location[len(inner) :]]


def _suggestion(word: str, allowed: Iterable[str]) -> str:
    if len(word) > LONGEST_WORD:  # comparing takes the square of its length
        return ""
    matches = get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]}?" if matches and matches[0] != word else ""


def _siblings(location: tuple[object, ...], model: type[BaseModel]) -> list[str]:
    """The allowed keys of the section that holds the unknown key."""
    for part in map(str, location[:-1]):
        if "precomputed" in location and part in GRAPHS:
            model = GRAPHS[part]
        elif part in INPUTS:
            model = INPUTS[part]
        elif part in CLUSTERS:
            model = CLUSTERS[part]
        elif part in model.model_fields and part not in {"input", "cluster", "precomputed"}:
            annotation = model.model_fields[part].annotation
            kinds = [kind for kind in (*get_args(annotation), annotation) if hasattr(kind, "model_fields")]
            model = kinds[0]
    return list(model.model_fields)

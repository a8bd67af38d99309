"""Base classes and field types of the config models: frozen, unknown keys refused, sizes such as "4GiB"."""

import re
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
MIN_MEMORY = 2**20  # smallest accepted amount of memory, in bytes: "memory: 2" is a missing unit

MAX_MEMORY = 2**63


def parse_size(value: object) -> object:
    """Bytes of "4GiB", "500 MB" or a plain number of bytes; "auto" unchanged. Raises ValueError."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    if match is None or match[2].upper() not in UNITS or match[1].count(".") > 1 or match[1] == ".":
        raise ValueError('expected a size such as "4GiB" or "500MB", or auto')
    n_bytes = float(match[1]) * UNITS[match[2].upper()]
    if n_bytes >= MAX_MEMORY:
        raise ValueError("expected less than 8 EiB; correct the number or its unit")
    return int(n_bytes)


def parse_memory(value: object) -> object:
    """As parse_size, but at least 1 MiB. Raises ValueError."""
    size = parse_size(value)
    if isinstance(size, int) and 0 < size < MIN_MEMORY:
        raise ValueError(f'{size} bytes are less than 1 MiB; give the unit, for instance "4GiB" or "500MB"')
    return size


Size = Annotated[
    Annotated[int, Field(gt=0)] | Literal["auto"],
    BeforeValidator(parse_memory),
    WithJsonSchema({"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string"}]}),
]


def as_number(value: Any) -> Any:
    """The number in a text such as 1e-3, which YAML 1.1 reads as text (it expects 1.0e-3); other values unchanged."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)[eE][+-]?\d+", value):
        return float(value)
    return value


def shown(value: Any) -> str:
    """A value as YAML writes it, for messages; at most 200 characters.

    >>> shown(True), shown(None), shown("a"), shown([1, 2])
    ('true', 'nothing', "'a'", '[1, 2]')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "nothing"
    text = f"the date {value.isoformat()}" if hasattr(value, "isoformat") else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


class Tagged(BaseModel):
    """A section whose `kind` selects its model. Pydantic allows no "*" validator here, so subclasses list fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Model(Tagged):
    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        return checked_number(cls, value, info)


def checked_number(model: type[BaseModel], value: Any, info: ValidationInfo) -> Any:
    """The value of a field. Refuses true, false and quoted numbers in a number field.

    Pydantic would convert true to 1 and "500" to 500, which hides a mistake. Raises PydanticCustomError.
    """
    field = model.model_fields[str(info.field_name)]
    if any(isinstance(metadata, BeforeValidator) for metadata in field.metadata):
        return value  # sizes and times: their own validators accept text
    annotation: Any = field.annotation
    return _checked_value(value, *_plain_types(annotation))


@cache
def _plain_types(annotation: Any) -> tuple[frozenset[Any], frozenset[str]]:
    """The plain types in an annotation, and its literal words such as auto. Model classes are skipped."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return frozenset(), frozenset(map(str, arguments))
    if origin is Annotated:
        return _plain_types(arguments[0])
    if origin is tuple or origin is Union or (origin is not None and origin.__name__ == "UnionType"):
        parts = [_plain_types(part) for part in arguments if part is not ...]
        return frozenset().union(*(types for types, _ in parts)), frozenset().union(*(words for _, words in parts))
    return frozenset({annotation} if annotation in {int, float, str, bool} else ()), frozenset()


def _checked_value(value: Any, types: frozenset[Any], words: frozenset[str]) -> Any:
    """The checked value, with 1e6 converted to a number; a list is checked part by part."""
    if not types & {int, float} or bool in types:
        return value
    if isinstance(value, list | tuple):
        return [_checked_value(part, types, words) for part in value]
    if str not in types:
        value = as_number(value)
    if isinstance(value, bool) or (str not in types and isinstance(value, str) and _is_number(value)):
        expected = ["a number" if float in types else "a whole number", *(["text"] if str in types else []), *words]
        cure = " in quotes; take them off" if isinstance(value, str) else ""
        raise PydanticCustomError(
            "no_number", "expected {wanted}, found {found}",
            {"wanted": " or ".join(expected), "found": f"{shown(value)}{cure}"},
        )  # fmt: skip
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

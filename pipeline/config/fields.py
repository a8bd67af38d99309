"""Base class and field types of the config models: frozen, unknown keys refused, sizes such as "4GiB"."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema, model_validator

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_size(value: object) -> object:
    """Bytes of "4GiB", "500 MB" or a plain number of bytes; "auto" unchanged. Raises ValueError.

    Less than 1 MiB is refused, because "memory: 2" is a missing unit.
    """
    number = r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([A-Za-z]*)\s*"
    match = re.fullmatch(number, value) if isinstance(value, str) else None
    if match is not None and match[2].upper() in UNITS:
        value = float(match[1]) * UNITS[match[2].upper()]
        if value >= 2**63:
            raise ValueError("expected less than 8 EiB; correct the number or its unit")
        value = int(value)
    if value != "auto" and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError('expected a size such as "4GiB" or "500MB", or auto')
    if isinstance(value, int) and 0 < value < 2**20:
        raise ValueError(f'{value} bytes are less than 1 MiB; give the unit, for instance "4GiB" or "500MB"')
    return value


def int_or_text(**bound: int) -> WithJsonSchema:
    """The JSON schema of a whole number that may also be written as text, such as "4GiB"."""
    return WithJsonSchema({"anyOf": [{"type": "integer", **bound}, {"type": "string"}]})


Size = Annotated[
    Annotated[int, Field(gt=0)] | Literal["auto"], BeforeValidator(parse_size), int_or_text(exclusiveMinimum=0)
]


# Strict: pydantic would convert true to 1 and "500" to 500, which hides a mistake.
Int = Annotated[int, Strict()]
Float = Annotated[float, Strict()]


NAME = "a name"
Name = Annotated[str, NAME]
"""A string that is no path, such as a column or an account. `allowed_places` checks all other strings as paths."""


@dataclass(frozen=True)
class Command:
    """Mark of a string that runs as code, or that lets another process run code."""

    danger: str


def _exact(value: object) -> object:
    """12.0 and NumPy's integers as int, because strict mode refuses them; other values unchanged."""
    if isinstance(value, list | tuple):
        return [_exact(part) for part in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def shown(value: object) -> str:
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


class Model(BaseModel):
    # No docstring: the JSON schema would give it as the description of each section.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {key: value if key == "where" else _exact(value) for key, value in data.items()}

    def contradictions(self) -> Iterable[str]:
        """What is wrong with keys that are valid each by itself, with the cure, in the order of importance."""
        return ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for contradiction in self.contradictions():
            raise ValueError(contradiction)
        return self

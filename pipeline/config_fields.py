"""What the models of the config are made of: frozen models that refuse unknown keys, and sizes such as "4GiB"."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_size(value: object) -> object:
    """Bytes of "4GiB", "500 MB" or a plain number of bytes; "auto" stays as it is."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    if match is None or match[2].upper() not in UNITS or match[1].count(".") > 1 or match[1] == ".":
        raise ValueError('expected a size such as "4GiB" or "500MB", or auto')
    return int(float(match[1]) * UNITS[match[2].upper()])


Size = Annotated[
    Annotated[int, Field(gt=0)] | Literal["auto"],
    BeforeValidator(parse_size),
    WithJsonSchema({"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string"}]}),
]


def as_number(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 as text (it wants 1.0e-3); people who type 1e-3 mean the number."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
        return float(value)
    return value


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

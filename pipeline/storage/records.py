"""JSON records of a store: dataclasses to JSON and back, and their checksums. A damaged record counts as missing."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter

T = TypeVar("T")

FORMAT = "lle_format"
CRC = "crc32"
"""Key of a record's own checksum."""
SEALED = ("_done/", "_run/steps/")
"""Folders whose records must have a checksum: those of blocks and of steps, whose content decides what is read."""
CHECKED = "lle_crc32"
"""Attribute of a group or array: CRC-32 of each attribute that the program wrote, and of the other metadata ("")."""
UNCHECKED = ("attributes", "consolidated_metadata", "storage_transformers")
"""Keys of zarr's metadata that do not decide what an array or group is; zarr may add the last two."""


def to_json(record: object) -> dict[str, object]:
    """The fields of a dataclass as JSON values, without those that have their default."""
    values = {}
    for field in fields(cast("DataclassInstance", record)):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if (value := getattr(record, field.name)) != default:
            values[field.name] = _as_json(value)
    return values


def _as_json(value: object) -> object:
    if is_dataclass(value):
        return to_json(value)
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def from_json(kind: type[T], content: object) -> T | None:
    """A dataclass from its JSON value; None if a field is missing or has another type.

    Fields that the class does not have are ignored: another version may have written them. A `dict` in place of a
    dataclass takes any JSON object.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: float
    ...     names: tuple[str, ...] = ()
    >>> from_json(Point, {"x": 1}), from_json(Point, {"x": "1"}), to_json(Point(2.0, ("a",)))
    (Point(x=1.0, names=()), None, {'x': 2.0, 'names': ['a']})
    """
    try:
        # Strictly, but with the rules for JSON: an integer is also a float, and a list may be a tuple.
        value: T = _reader(cast(type, kind)).validate_json(json.dumps(content), strict=True)
        return value
    except ValueError:
        return None


@lru_cache
def _reader(kind: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter  # `import lle` is faster without

    return TypeAdapter(kind)


def sealed(name: str, content: dict[str, object]) -> dict[str, object]:
    """A record with a checksum of its content and its name, so that swapped files are detected."""
    content = json.loads(json.dumps(content))
    return {**content, CRC: checksum_of([name, content])}


def opened(name: str, record: object) -> dict[str, object] | None:
    """The content of a record; None if its checksum is not that of this content and name.

    A record without a checksum is accepted outside of SEALED.
    """
    if not isinstance(record, dict):
        return None
    content = {key: value for key, value in record.items() if key != CRC}
    if CRC not in record:
        return None if name.startswith(SEALED) else content
    return content if record[CRC] == checksum_of([name, content]) else None


def sealed_node(name: str, node: dict[str, Any]) -> dict[str, object]:
    """Zarr's metadata of an array or group with checksums in its attributes: zarr allows no further keys."""
    node = json.loads(json.dumps(node))
    attributes = {key: value for key, value in node["attributes"].items() if key != CHECKED}
    checked = {key: checksum_of(value) for key, value in attributes.items() if key != FORMAT}
    checked[""] = checksum_of([name, _metadata(node)])
    return {**node, "attributes": {**attributes, CHECKED: checked}}


def opened_node(name: str, node: Any) -> dict[str, object] | None:
    """The metadata of a sealed node, without its checksums; None if they are not those written under this name.

    Attributes that others added are kept and not checked.
    """
    attributes = node.get("attributes") if isinstance(node, dict) else None
    if not isinstance(attributes, dict):
        return None
    attributes = dict(attributes)
    checked = attributes.pop(CHECKED, None)
    if not isinstance(checked, dict) or "" not in checked:
        return None
    content = {"": [name, _metadata(node)], **attributes}
    if not all(key in content and checksum_of(content[key]) == checksum for key, checksum in checked.items()):
        return None
    return {**_metadata(node), "attributes": attributes}


def _metadata(node: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in node.items() if key not in UNCHECKED}


def checksum_of(value: object) -> int:
    """CRC-32 of a JSON value; the order of keys does not matter."""
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())

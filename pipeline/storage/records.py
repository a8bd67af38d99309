"""Shapes of the JSON records of a store. A record of another shape is damaged and is treated as missing."""

import json
import zlib
from typing import Any

NUMBER = (int, float)
OPTIONAL = (int, float, type(None))

STEP = {"fingerprint": str, "n_blocks": int, "arrays": [str], "bundles": [str], "begun": NUMBER, "seconds?": NUMBER,
        "freed?": [str]}  # fmt: skip
CURRENT = {"steps": [[str]], "arrays": [str], "metrics": bool}
INPUT = {"reads": str, "size": int, "stamps": []}
LOCK = {"token": str, "pid": int, "host": str, "started": NUMBER, "alive": NUMBER}
FAILURE = {"when": str, "exit_code": int, "message": str}
POINTER = {"version": str, "fingerprint": str, "history": [str]}
SOLVER_PROGRESS = {"method": str, "phase": str, "n_solves": int, "residual": OPTIONAL, "bound": OPTIONAL,
                   "seconds_left": OPTIONAL, "time": NUMBER}  # fmt: skip
SOLVER_HEAD = {"method": str, "n_steps": int, "n_blocks": int, "values": [NUMBER]}

FORMAT = "lle_format"
CRC = "crc32"
"""Key of a record's own checksum."""
CHECKED = "lle_crc32"
"""Attribute of a group or array: CRC-32 of each attribute that the program wrote, and of the other metadata ("")."""
METADATA = ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "codecs",
            "fill_value", "dimension_names")  # fmt: skip
"""Keys of zarr's metadata that decide what an array or group is, besides its attributes."""


def has_shape(value: Any, shape: Any) -> bool:
    """Whether a JSON value has a shape: a type, types, [shape of all items], or {key: shape of its value}.

    A key that ends in "?" may be missing.

    >>> has_shape({"a": [1, 2], "b": None}, {"a": [int]}), has_shape([1, "x"], [int]), has_shape(True, int)
    (True, False, False)
    """
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            has_shape(value[key.rstrip("?")], shape[key]) if key.rstrip("?") in value else key.endswith("?")
            for key in shape
        )
    if isinstance(shape, list):
        return isinstance(value, list) and (not shape or all(has_shape(item, shape[0]) for item in value))
    return isinstance(value, shape) and (isinstance(value, bool) == (shape is bool))


def sealed(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """A record with a checksum of its content and its name, so that two exchanged files are noticed."""
    content = json.loads(json.dumps(content))
    return {**content, CRC: checksum_of([name, content])}


def opened(name: str, record: Any) -> dict[str, Any] | None:
    """The content of a record; None if it has a checksum and is not the one that was written under this name."""
    if not isinstance(record, dict):
        return None
    content = {key: value for key, value in record.items() if key != CRC}
    return content if CRC not in record or record[CRC] == checksum_of([name, content]) else None


def sealed_node(name: str, node: dict[str, Any]) -> dict[str, Any]:
    """Zarr's metadata of an array or group with checksums in its attributes: zarr allows no further keys."""
    node = json.loads(json.dumps(node))
    attributes = {key: value for key, value in node["attributes"].items() if key != CHECKED}
    checked = {key: checksum_of(value) for key, value in attributes.items() if key != FORMAT}
    checked[""] = checksum_of([name, _metadata(node)])
    return {**node, "attributes": {**attributes, CHECKED: checked}}


def opened_node(name: str, node: Any) -> dict[str, Any] | None:
    """The metadata of a sealed node, without its checksums; None if they are not those written under this name.

    Attributes that others added are kept and not checked.
    """
    if not has_shape(node, {"attributes": {CHECKED: {"": int}}}):
        return None
    attributes = {key: value for key, value in node["attributes"].items() if key != CHECKED}
    content = {"": [name, _metadata(node)], **attributes}
    checked = node["attributes"][CHECKED]
    if not all(key in content and checksum_of(content[key]) == checksum for key, checksum in checked.items()):
        return None
    return {**_metadata(node), "attributes": attributes}


def _metadata(node: dict[str, Any]) -> dict[str, Any]:
    return {key: node[key] for key in METADATA if key in node}


def checksum_of(value: Any) -> int:
    """CRC-32 of a JSON value; the order of keys does not matter."""
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())

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
SOLVER_PROGRESS = {"method": str, "phase": str, "n_products": int, "residual": OPTIONAL, "bound": OPTIONAL,
                   "seconds_left": OPTIONAL, "time": NUMBER}  # fmt: skip
SOLVER_HEAD = {"n_degrees": int, "n_steps": int, "n_blocks": int, "values": [NUMBER]}

FORMAT = "lle_format"
CHECKED = "lle_crc32"
"""Attribute of a store's group: CRC-32 of each attribute that the program wrote, by name."""


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


def with_checksums(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as JSON gives them back, and a checksum of each."""
    content = json.loads(json.dumps({key: value for key, value in attributes.items() if key != CHECKED}))
    return {**content, CHECKED: {key: checksum_of(value) for key, value in content.items() if key != FORMAT}}


def are_as_written(attributes: dict[str, Any]) -> bool:
    """Whether all attributes that the program wrote are there unchanged; True for a store without such checksums.

    Attributes that others added are not checked.
    """
    checked = attributes.get(CHECKED, {})
    return isinstance(checked, dict) and all(
        key in attributes and checksum_of(attributes[key]) == checksum for key, checksum in checked.items()
    )


def checksum_of(value: Any) -> int:
    """CRC-32 of a JSON value; the order of keys does not matter."""
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())

"""Mutations of bytes, texts and plain data, drawn from a generator."""

from typing import Any

import numpy as np

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    16,
    255,
    256,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    10**18,
    10**30,
    -(2**31),
    -(2**63),
    0.0,
    -0.0,
    0.5,
    1e-300,
    5e-324,
    1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
)
TEXTS = (
    "",
    " ",
    "auto",
    "none",
    "null",
    "true",
    "~",
    "0",
    "-1",
    "1e400",
    "nan",
    "4GiB",
    "4 gb",
    "-4GiB",
    "9" * 400,
    "../../etc/passwd",
    "/dev/zero",
    "/proc/self/mem",
    "/proc/kcore",
    "/",
    ".",
    "~nobody",
    "*",
    "/dev/*",
    "[",
    "a" * 5000,
    "x\0y",
    "\u202e",
    "\ud7ff\U0010ffff",
    "é" * 300,
    "%s%n",
    "{0}",
    "{{7*7}}",
    "${HOME}",
    "$(id)",
    "`id`",
    "-rf",
    "--",
    "s3://",
    "http:///",
    "file://",
    "file:///dev/zero",
    "://",
    "tcp://x:1",
    "a\nb",
    "\t",
    "'",
    '"',
    "&a",
    "*a",
    "!!int 3",
    "2001-01-01",
    "12:30:45",
    "0x1F",
    "0b11",
    "1_000",
    ".inf",
    "yes",
    "previous",
)


def choose(rng: np.random.Generator, options: Any) -> Any:
    """One of a sequence, as it is (numpy would convert it)."""
    return options[int(rng.integers(len(options)))]


def mutated_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    """The data after one to four mutations; half of them near the start or the end, where headers are."""
    for _ in range(int(rng.integers(1, 5))):
        data = choose(rng, _BYTE_MUTATIONS)(rng, data)
    return data


def _position(rng: np.random.Generator, data: bytes) -> int:
    n = max(len(data), 1)
    where = rng.random()
    if where < 0.35:
        return int(rng.integers(min(n, 160)))
    if where < 0.5:
        return n - 1 - int(rng.integers(min(n, 160)))
    return int(rng.integers(n))


def _flip_bit(rng: np.random.Generator, data: bytes) -> bytes:
    at = _position(rng, data)
    return data[:at] + bytes(byte ^ (1 << int(rng.integers(8))) for byte in data[at : at + 1]) + data[at + 1 :]


def _set_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    at, count = _position(rng, data), int(rng.integers(1, 9))
    new = choose(rng, [b"\0" * count, b"\xff" * count, rng.bytes(count), b"9" * count, b"\x7f" + b"\xff" * (count - 1)])
    return data[:at] + new + data[at + count :]


def _cut(rng: np.random.Generator, data: bytes) -> bytes:
    return data[: _position(rng, data)]


def _delete(rng: np.random.Generator, data: bytes) -> bytes:
    at = _position(rng, data)
    return data[:at] + data[at + int(rng.integers(1, 65)) :]


def _insert(rng: np.random.Generator, data: bytes) -> bytes:
    at = _position(rng, data)
    return data[:at] + rng.bytes(int(rng.integers(1, 17))) + data[at:]


def _repeat(rng: np.random.Generator, data: bytes) -> bytes:
    at, count = _position(rng, data), int(rng.integers(1, 257))
    return data[:at] + data[at : at + count] * int(rng.integers(2, 5)) + data[at + count :]


def _swap(rng: np.random.Generator, data: bytes) -> bytes:
    first, second = sorted((_position(rng, data), _position(rng, data)))
    return data[second:] + data[first:second] + data[:first]


def _number(rng: np.random.Generator, data: bytes) -> bytes:
    """Replace digits of a text, or a number of four or eight bytes, by a hostile one."""
    digits = [at for at, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
    number = choose(rng, [n for n in NUMBERS if isinstance(n, int)])
    if digits and rng.random() < 0.6:
        at = choose(rng, digits)
        return data[:at] + str(number).encode() + data[at + 1 :]
    at, size = _position(rng, data), choose(rng, [4, 8])
    return data[:at] + (number % 2 ** (8 * size)).to_bytes(size, choose(rng, ["little", "big"])) + data[at + size :]


_BYTE_MUTATIONS = (_flip_bit, _flip_bit, _set_bytes, _cut, _delete, _insert, _repeat, _swap, _number, _number)


def random_value(rng: np.random.Generator, depth: int = 0) -> Any:
    """A hostile number, text, or small collection."""
    kind = rng.random()
    if kind < 0.4:
        return choose(rng, NUMBERS)
    if kind < 0.75:
        return choose(rng, TEXTS)
    if kind < 0.85 or depth > 2:
        return choose(rng, [None, True, False])
    values = [random_value(rng, depth + 1) for _ in range(int(rng.integers(4)))]
    return values if rng.random() < 0.5 else {choose(rng, TEXTS): value for value in values}


def mutated_tree(rng: np.random.Generator, data: Any) -> Any:
    """Plain data (mappings, lists, values) with one node replaced, deleted, wrapped, renamed or moved."""
    parents = list(_containers(data))
    if not parents:
        return random_value(rng)
    parent = choose(rng, parents)
    keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    if not keys:
        return data
    key, action = choose(rng, keys), rng.random()
    if action < 0.45:
        parent[key] = random_value(rng)
    elif action < 0.55:
        del parent[key]
    elif action < 0.65:
        parent[key] = choose(rng, [[parent[key]], {"a": parent[key]}, str(parent[key])])
    elif action < 0.75 and isinstance(parent, dict):
        parent[choose(rng, [*TEXTS, key.upper(), f" {key}", f"{key}s"]) if isinstance(key, str) else 0] = parent.pop(
            key
        )
    else:
        other = choose(rng, parents)
        names = list(other) if isinstance(other, dict) else list(range(len(other)))
        if names:
            parent[key] = _copied(other[choose(rng, names)])
    return data


def _containers(data: Any) -> list[Any]:
    if isinstance(data, dict):
        return [data, *(found for value in data.values() for found in _containers(value))]
    if isinstance(data, list):
        return [data, *(found for value in data for found in _containers(value))]
    return []


def _copied(value: Any) -> Any:
    """A copy, so that no collection holds itself."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value

"""The order of names for people: numbers by their value, so that class 10 comes after class 2."""

import re

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_DIGITS = re.compile(r"(\d+(?:\.\d+)?)", re.ASCII)

Key = tuple[bool, float, list[str | float], str]


def natural_order(name: str) -> Key:
    """A key for `sorted`: numbers by value, then texts, in which each group of digits counts as a number.

    >>> sorted(["class 10", "class 2", "10", "b", "-2", "9", "1.5"], key=natural_order)
    ['-2', '1.5', '9', '10', 'b', 'class 2', 'class 10']
    """
    if _NUMBER.fullmatch(name):
        return False, float(name), [], name
    parts = _DIGITS.split(name)  # text and digits in turns
    return True, 0.0, [float(part) if number % 2 else part for number, part in enumerate(parts)], name

"""One column of the rows of a run, as pictures, reports and explorers show it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ..core.arrays import Array

MAX_CLASSES = 20
"""Most classes with a colour each, and most different whole numbers that are classes of a picture."""


class Column(NamedTuple):
    """One value for each row.

    label: its name for readers, with the unit.
    values: (n,), numbers (NaN if unknown), or class numbers (-1 if unknown).
    names: the names of the classes; None for numbers.
    role: "coordinate" (an axis), "component" (of the neighbour graph) or "value" (anything else).
    kind: of numbers; "whole" ones have no decimals, a "date" is in seconds since 1970 (UTC).
    """

    name: str
    label: str
    values: Array
    names: Sequence[str] | None = None
    role: Literal["coordinate", "component", "value"] = "value"
    kind: Literal["number", "whole", "date"] = "number"

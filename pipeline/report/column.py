"""One column of the rows of a run, as pictures, reports and explorers show it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..core.arrays import Array

SMALL_CHANGE = 1e-6
"""Numbers are stored as float32, which takes half the space, if none changes by more than this share of their range."""


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

    @property
    def numbers(self) -> Array:
        """(n,), NaN if unknown; of classes their numbers."""
        return self.values if self.names is None else np.where(self.values < 0, np.nan, self.values)


def compact(values: Array) -> Array:
    """Numbers (n,) as float32, unless that would change whole numbers, or others by more than SMALL_CHANGE."""
    with np.errstate(over="ignore"):
        short = values.astype(np.float32, copy=False)
    known, rounded = values[np.isfinite(values)], short[np.isfinite(values)]
    change = np.abs(rounded - known).max(initial=0.0)
    is_small = change <= SMALL_CHANGE * np.ptp(known) if (known != np.rint(known)).any() else change == 0
    return short if is_small else values

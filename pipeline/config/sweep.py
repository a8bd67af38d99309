"""The section `sweep`: keys of a config and their values, one experiment for each combination."""

import hashlib
import re
from collections.abc import Iterator
from itertools import product

from pydantic import Field

from ..core.credentials import HIDDEN, find_secret
from ..core.errors import ConfigError
from .fields import Model

Values = dict[str, object]
MAX_NAME = 120


class Sweep(Model):
    """Experiments: every combination of the grid's values; with a list too, that grid for each entry of the list."""

    grid: dict[str, tuple[object, ...]] = Field(
        default_factory=dict, description="dotted key: values, for instance weights.reg: [1.0e-3, 1.0e-2]"
    )
    list: tuple[Values, ...] = Field((), description="one mapping of dotted keys to values for each experiment")

    def contradictions(self) -> Iterator[str]:
        empty = [key for key, values in self.grid.items() if not values]
        if empty:
            yield f"grid: {', '.join(empty)} has no values; list at least one"
        if not self.grid and not self.list:
            yield "has neither grid nor list; give one, for instance grid: {weights.reg: [1e-3, 1e-2]}"


def experiments(sweep: Sweep) -> list[Values]:
    """The keys and values of every experiment; the last key of the grid varies fastest."""
    points = [dict(zip(sweep.grid, values, strict=True)) for values in product(*sweep.grid.values())]
    return [{**entry, **point} for entry in sweep.list or ({},) for point in points]


def apply_value(data: dict[str, object], key: str, value: object, where: str) -> None:
    """Set a dotted key in nested settings. Raises ConfigError if a parent is not a section."""
    *parents, last = key.split(".")
    for parent in parents:
        child = data.get(parent)
        if child is None:
            child = data[parent] = {}
        if not isinstance(child, dict):
            quoted = repr(child) if find_secret(str(child)) is None else HIDDEN
            raise ConfigError(f"{where}: {parent} is {quoted}, not a section with keys of its own")
        data = child
    data[last] = value


def short_names(keys: list[str]) -> dict[str, str]:
    """Each dotted key by its last part, or in full if several keys share that part.

    >>> short_names(["weights.reg", "input.seed", "quality.seed"])
    {'weights.reg': 'reg', 'input.seed': 'input.seed', 'quality.seed': 'quality.seed'}
    """
    last_parts = [key.rsplit(".", 1)[-1] for key in keys]
    return {
        key: last_part if last_parts.count(last_part) == 1 else key
        for key, last_part in zip(keys, last_parts, strict=True)
    }


def experiment_name(values: Values) -> str:
    """A file name for an experiment: `key=value` pairs joined by commas; a hash replaces what a name cannot hold.

    >>> experiment_name({"n_neighbors": 12, "reg": 0.1})
    'n_neighbors=12,reg=0.1'
    """
    name = ",".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items()
    )
    safe = re.sub(r"[^A-Za-z0-9=,._+-]+", "_", name)
    exact = all(not isinstance(value, float) or float(f"{value:g}") == value for value in values.values())
    if safe == name and exact and len(name) <= MAX_NAME:
        return name or "experiment"
    digest = hashlib.sha256(repr(sorted(values.items(), key=lambda item: item[0])).encode()).hexdigest()[:8]
    return f"{safe[:MAX_NAME]}-{digest}"

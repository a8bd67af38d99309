"""A config key in a message, as a record: the config and Python spell it differently."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """A config key and the value that it should get; None where the sentence gives no value.

    >>> print(Setting("neighbors", "n_neighbors", 24), Setting("", "method", "pca"), Setting("weights", "reg"))
    neighbors.n_neighbors: 24 method: pca weights.reg
    """

    section: str
    """Empty for method, which is in no section."""
    key: str
    value: int | float | str | None = None

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}" if self.section else self.key

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}: {self.value}"

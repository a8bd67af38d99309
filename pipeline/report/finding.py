"""What a run found out, as records; sentences for people are written from them last."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..core.errors import Setting

Level = Literal["grave", "minor", "note"]
"""grave: may be the verdict; minor: a warning only; note: a remark beside a good verdict."""


@dataclass(frozen=True)
class Cure:
    """A sentence with the cure; `{}` in the text stands for the next setting."""

    text: str = ""
    settings: tuple[Setting, ...] = ()
    is_command: bool = False
    """Whether it names a command, which a Python session does not have."""

    def is_like(self, other: "Cure") -> bool:
        """Whether both have the same first setting, or the same text if they have no settings."""
        return self.settings[:1] == other.settings[:1] if self.settings else self.text == other.text


@dataclass(frozen=True)
class Finding:
    """A measure of metrics.json that is outside its bound: the sentence about it, and the cure."""

    measure: str
    value: float | str | None
    bound: float | None
    sentence: str
    cure: Cure = Cure()
    level: Level = "minor"
    is_defect: bool = False
    """Whether coordinates are missing or wrong; other findings judge the data and the embedding."""

    def text(self, spelled: Callable[[Setting], str] = str, commands: bool = True) -> str:
        """The sentence and the cure, with settings as `spelled`; without `commands`, no cure names a command."""
        cure = self.cure.text if commands or not self.cure.is_command else ""
        return f"{self.sentence}. {cure.format(*map(spelled, self.cure.settings))}".strip() + "." * bool(cure)

    def as_json(self) -> dict[str, object]:
        return {
            "measure": self.measure,
            "value": self.value,
            "bound": self.bound,
            "sentence": self.sentence,
            "cure": self.cure.text.format(*self.cure.settings),
            "key": {setting.name: setting.value for setting in self.cure.settings},
            "level": self.level,
            "is_defect": self.is_defect,
        }

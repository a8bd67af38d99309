"""The bounds of measures, and the record of a measure that is outside its bound.

A value within its bound gets a tick; the report prints the bound beside it. Sentences for people are written last.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..core.errors import Setting

Level = Literal["grave", "minor", "note"]
"""grave: may be the verdict; minor: a warning only; note: a remark beside a good verdict."""

GOOD_TRUSTWORTHINESS = 0.95
"""Values from this one on get a tick."""
NEARLY_ALL_KEPT = 0.99
"""From this trustworthiness on, a redundant coordinate may be left out. Below, it can separate points that are close in
the others: without it the trustworthiness fell from 0.985 to 0.943 on delay vectors of the polar motion."""
LOW_TRUSTWORTHINESS = 0.9
"""Values below this one get a warning. Points in random order have 0.5."""
MOST_KEPT = 0.5
"""With a smaller share of kept neighbours, those in the embedding are only near each other in the data."""
LEAST_KEPT = 0.1
"""With a share surely below it, points drawn at one place differ by many times the distance between neighbours: a cube
that is pressed flat keeps a tenth if it is 20 times as deep as a neighbourhood's radius."""
HIT_DROP, HIT_SHARE = 0.05, 0.9
"""The neighbourhood hit of the embedding may be HIT_DROP lower than that of the data, but not below HIT_SHARE of it."""
NEAR_CHANCE = 0.1
"""The hit of the data has no bound if it is not surely this share of the way from chance to 1: then the features tell
so little about the classes that no picture of them shows classes."""
GOOD_RESIDUAL_VARIANCE, HIGH_RESIDUAL_VARIANCE = 0.3, 0.7
"""Values up to the first get a tick, above the second a warning. A correctly unrolled Swiss roll has 0.4, because unit
covariance turns the long sheet into a square."""
HALF_OF_ROWS = 0.5
"""If no piece holds this share of the rows, the verdict is about the pieces, not about the largest one."""
GROUP_SHARE = 0.1
"""A coordinate of the picture that is concentrated on a smaller share, and 0 elsewhere, separates a group."""
REDUNDANT = 0.95
"""R^2 of a coordinate predicted from the earlier ones by local linear fits, above which it repeats them."""
CROWDED = 0.25
"""Largest `correlation_sum` without a finding. Points spread over a square have 0.0004, those on a straight line 0.02,
four equal dots nearly 0.25, three 0.33."""
SPREAD_SHARE = 0.25
"""Principal components spread the points if their correlation sum is below this share of that of the embedding."""
PCA_GAIN = 0.015
"""There is a warning if the lower end of `pca_gain` is above it, unless `pca_kept_gain` outweighs it."""
PCA_SHARE, PCA_KEPT_GAIN = 0.5, 0.05
"""There is a remark if principal components take away this share of the lost trustworthiness and of the neighbours that
are not kept, and surely keep so many more of them. Near a trustworthiness of 1, even visible differences are small."""
DROPPED_SHARE, MOST_DROPPED_SHARE = 0.01, 0.1
"""Shares of rows without coordinates: from the first on there is a warning, from the second on it is the verdict."""
MOST_REPEATED = 0.5
"""Share of rows that equal an earlier row from which on there is a remark: the picture has few points for its rows."""
FAR_SHARE = 0.01
"""Share of rows far from a fitted sample from which on there is a warning; 0.001 of the fitted points are far."""
LARGE_RESIDUAL = 0.1
"""Residual of an eigenpair above which its eigenvalue is lost in float64, even if the solver has converged."""
LARGE_VECTOR_ERROR = 1e-3
"""Error of an eigenvector (sine of its angle to the true one) that is too small to be seen in a picture."""
EXACT = 1e-10
"""An eigenvalue below this share of the rounding floor, eps lambda_max, is the square of rounding errors."""
MOVED = 0.3
"""Residual of the alignment, relative to the earlier coordinates, above which they have changed."""
UNRELATED = math.sqrt(2.0)
"""That residual for unrelated coordinates of equal size."""
SMALL_REG = 1e-3
"""weights.reg below which the lowest eigenvalues of M are often below the rounding errors of its entries."""


def min_hit(hit_input: float, low: float, chance: float) -> float:
    """The lowest neighbourhood hit of an embedding that counts as that of the data; 0 if that is near chance.

    low: the lower end of the 95 % interval of hit_input. chance: the hit of random neighbours.

    >>> round(min_hit(0.98, 0.97, 0.3), 3), round(min_hit(0.25, 0.22, 0.1), 3), min_hit(0.2, 0.18, 0.1)
    (0.93, 0.225, 0.0)
    """
    is_near = low - chance < NEAR_CHANCE * (1.0 - chance)
    return 0.0 if is_near else max(hit_input - HIT_DROP, HIT_SHARE * hit_input)


@dataclass(frozen=True)
class Cure:
    """A sentence with the cure; `{}` in the text stands for the next setting."""

    text: str = ""
    settings: tuple[Setting, ...] = ()
    is_command: bool = False
    """Whether it names a command, which a Python session does not have."""

    def __bool__(self) -> bool:
        return bool(self.text)

    def is_like(self, other: "Cure") -> bool:
        """Whether the other one names all its settings, or has the same text if it has no settings."""
        return all(one in other.settings for one in self.settings) if self.settings else self.text == other.text

    def contradicts(self, other: "Cure") -> bool:
        """Whether the other one sets one of its keys to another value. Principal components are no eigenvectors among
        which `embedding.coordinates` could choose."""
        own, others = (
            {one.name: one.value for one in cure.settings if one.value is not None} for cure in (self, other)
        )
        is_other_choice = any(
            a.get("method") == "pca" and "embedding.coordinates" in b for a, b in ((own, others), (others, own))
        )
        return is_other_choice or any(others.get(name, value) != value for name, value in own.items())


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

    def text(self, as_keyword: Callable[[Setting], str] | None = None) -> str:
        """The sentence and the cure; for Python with settings spelled by `as_keyword`, and without commands."""
        cure = "" if as_keyword and self.cure.is_command else self.cure.text
        return f"{self.sentence}. {cure.format(*map(as_keyword or str, self.cure.settings))}".strip() + "." * bool(cure)

    def as_json(self) -> dict[str, object]:
        cure = self.cure.text.format(*self.cure.settings)
        return {**vars(self), "cure": cure, "key": {setting.name: setting.value for setting in self.cure.settings}}

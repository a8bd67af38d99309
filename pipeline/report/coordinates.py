"""Sentences about the choice of coordinates among the computed eigenvectors (`embedding.coordinates: independent`)."""

from ..core.errors import counted
from .metrics import Choice, Clump, Metrics
from .number_format import joined, thousands

MAX_COMPONENTS = 3
"""Components that are described; metrics.json has all of them."""


def choice_of_coordinates(metrics: Metrics) -> list[str]:
    """Which eigenvectors the coordinates are, why others were left out, and the groups that clumps separate.

    >>> choice_of_coordinates(Metrics())
    []
    """
    choices = metrics.coordinates or []
    several = len(choices) > 1
    return [
        f"{f'Component {number}: ' if several else ''}{sentence}"
        for number, choice in enumerate(choices[:MAX_COMPONENTS])
        for sentence in _of_component(choice)
    ]


def _of_component(choice: Choice) -> list[str]:
    if choice["computed"] == len(choice["taken"]) and not choice["clumps_taken"]:
        return ["The coordinates are the lowest eigenvectors, which do not predict each other."]
    sentences = [f"The coordinates are eigenvectors {joined(choice['taken'])} of {choice['computed']} computed ones."]
    sentences += [
        f"Eigenvector {one['left']} was replaced by {one['taken']}: the other coordinates predict "
        f"{1 - one['unexplained_left']:.0%} of its variance, and {1 - one['unexplained_taken']:.0%} of that of "
        f"{one['taken']}; the trustworthiness on a sample rose from {one['trustworthiness_before']:.3f} to "
        f"{one['trustworthiness_after']:.3f}."
        for one in choice["replaced"]
    ]
    sentences += [
        f"Eigenvector {group['eigenvector']} was skipped: it only separates a group of "
        f"{counted(group['points'], 'point')} from the others ({_rows(group)})."
        for group in choice["clumps_skipped"]
    ]
    if choice["clumps_taken"]:
        sentences.append(
            f"Too few of them are spread over at least 1 % of the points, so {joined(choice['clumps_taken'])} "
            f"{'is a clump' if len(choice['clumps_taken']) == 1 else 'are clumps'}."
        )
    return sentences


def _rows(group: Clump) -> str:
    named = ", ".join(map(thousands, group["rows"]))
    return f"rows {named}{', ...' if group['points'] > len(group['rows']) else ''}"

"""The report page of a run: one HTML file that opens offline, from the metrics and finished pictures.

Every number may be missing (a stage did not run, a metric was not requested); it is shown as "not measured".
`template.html.j2` has the layout and the tables.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from matplotlib import colormaps
from matplotlib.colors import to_hex

from ..core.errors import counted, first_rows
from ..core.methods import CLUMP_SHARE
from ..engine.step import Json
from .bounds import REDUNDANT
from .class_names import number_of
from .cures import Config
from .figure_style import CLASSES_ON_DARK, COLOR_MAP, DARK_MAP, ON_DARK
from .metrics import Metrics
from .number_format import data_name, is_known, joined, share_of, template
from .page_pictures import PagePictures
from .page_tiles import headline


def render_page(
    metrics: Metrics,
    config: Config,
    config_yaml: str,
    drawn: PagePictures | None,
    arrays: Sequence[Mapping[str, object]],
) -> str:
    """Self-contained HTML of the report: pictures inline, no scripts, light and dark.

    config: the resolved config. drawn: the pictures; with them, explore.html is beside the page. arrays: name, shape,
    dtype, unit and meaning of each array of the store.
    """
    page = template("template.html.j2", counted=counted, marked=marked, number_of=number_of, swatch=swatch)
    store: str = config["output"]["store"]
    n_neighbors = config["neighbors"]["n_neighbors"]
    if sizes := metrics.list_sizes:  # they differ
        n_neighbors = f"{sizes['least']} to {sizes['most']} (mean {sizes['mean']:.1f})"
    return page.render(
        name=store.rstrip("/").rsplit("/", 1)[-1],
        data=data_name(config["input"]),
        metrics=metrics,
        n_findings=sum(finding["level"] != "note" for finding in metrics.findings or []),
        tiles=headline(metrics, config),
        drawn=drawn,
        scale=_color_scale(drawn),
        spectra=spectra(metrics, config["eigensolver"]["tol"]),
        choice_of_coordinates=choice_of_coordinates(metrics),
        n_neighbors=n_neighbors,
        n_coordinates=config["eigensolver"]["n_components"],
        config_yaml=config_yaml,
        arrays=arrays,
    )


def swatch(light: str) -> str:
    """The colour #rrggbb of a class on a light and on a dark page, as CSS.

    >>> swatch("#0000ff")
    '--light: #0000ff; --dark: #0000ff'
    """
    dark = {name.lower(): other for name, other in (ON_DARK | CLASSES_ON_DARK).items()}
    return f"--light: {light}; --dark: {dark.get(light, light).lower()}"


def marked(sentence: object) -> Markup:
    """A sentence as HTML, with commands between backticks as code.

    >>> marked("`lle suggest` < all")
    Markup('<code>lle suggest</code> &lt; all')
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


def spectra(metrics: Metrics, tol: float) -> list[Json]:
    """The number of points of each component, and its eigenpairs, ascending: numbers (None: not measured), a remark."""
    columns = (metrics.eigenvalues, metrics.residuals, metrics.participation)
    redundancies = [metrics.redundancy]  # measured in the largest component
    tables: list[list[Any]] = [table or [] for table in (*columns, redundancies, metrics.component_points)]
    tol = math.inf if metrics.solver and metrics.solver["converged"] else tol
    result = []
    for *rows, n_points in zip_longest(*tables):
        coordinates = []
        for value, residual, participation, redundancy in zip_longest(*(row or [] for row in rows)):
            share = share_of(participation, n_points)
            remarks = {
                "residual above the tolerance": is_known(residual) and residual > tol,
                "a clump of few points": share is not None and share < CLUMP_SHARE,
                "predictable from the earlier coordinates": is_known(redundancy) and redundancy > REDUNDANT,
            }
            remark = "; ".join(text for text, applies in remarks.items() if applies)
            numbers = {"eigenvalue": value, "residual": residual, "participation": participation, "share": share}
            coordinates.append({**numbers, "redundancy": redundancy, "remark": remark})
        result.append({"n_points": n_points, "coordinates": coordinates})
    return result if metrics.eigenvalues else []


def choice_of_coordinates(metrics: Metrics) -> list[str]:
    """Which eigenvectors the coordinates are, why others were left out, and the groups that clumps separate.

    Of the three largest components; metrics.json has all of them.
    >>> choice_of_coordinates(Metrics())
    []
    """
    choices = metrics.coordinates or []
    several = len(choices) > 1
    return [
        f"{f'Component {number}: ' if several else ''}{sentence}"
        for number, choice in enumerate(choices[:3])
        for sentence in _of_choice(choice)
    ]


def _of_choice(choice: Json) -> list[str]:
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
        f"{counted(group['points'], 'point')} from the others (rows {first_rows(group['rows'], group['points'])})."
        for group in choice["clumps_skipped"]
    ]
    if choice["clumps_taken"]:
        sentences.append(
            f"Too few of them are spread over at least 1 % of the points, so {joined(choice['clumps_taken'])} "
            f"{'is a clump' if len(choice['clumps_taken']) == 1 else 'are clumps'}."
        )
    return sentences


def _color_scale(drawn: PagePictures | None) -> dict[str, str] | None:
    """Labels of the ends of the colour scale, and its colours on a light and a dark page as CSS lists."""
    if drawn is None or drawn.key.names or not drawn.key.label:
        return None
    steps = np.linspace(0.0, 1.0, 9)
    light, dark = (", ".join(to_hex(color) for color in scale(steps)) for scale in (colormaps[COLOR_MAP], DARK_MAP))
    lowest, highest = float(drawn.key.norm.vmin or 0.0), float(drawn.key.norm.vmax or 0.0)
    low, high = (f"{0.0 if abs(end) < 1e-3 * (highest - lowest) else end:.5g}" for end in (lowest, highest))
    return {"low": low, "high": high, "light": light, "dark": dark}

"""The report page of a run: one HTML file that opens offline, from the metrics and finished pictures.

Every number may be missing (a stage did not run, a metric was not requested); it is shown as "not measured".
`template.html.j2` has the layout and the tables.
"""

import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import zip_longest
from typing import Any, NamedTuple

import jinja2
import numpy as np
from markupsafe import Markup, escape
from matplotlib import colormaps
from matplotlib.colors import to_hex

from ..core.errors import counted
from .bounds import CLUMP_SHARE, REDUNDANT
from .class_names import number_of
from .coordinates import choice_of_coordinates
from .cures import Config
from .figure_style import CLASSES_ON_DARK, COLOR_MAP, DARK_MAP, DPI, ON_DARK
from .metrics import Metrics
from .number_format import (
    data_name,
    duration,
    estimate,
    is_known,
    known_sum,
    number,
    percent,
    share_of,
    size,
    text,
    thousands,
    when,
)
from .page_pictures import PagePicture, PagePictures
from .page_tiles import headline


class ColorScale(NamedTuple):
    """Labels of the ends of a colour scale, and its colours on a light and a dark page as CSS lists."""

    low: str
    high: str
    light: str
    dark: str


class Coordinate(NamedTuple):
    """One eigenpair of a component; numbers that were not measured are None."""

    eigenvalue: float | None
    residual: float | None
    participation: float | None
    share: float | None
    redundancy: float | None
    remark: str


class Spectrum(NamedTuple):
    """The eigenpairs of one graph component, ascending, and its number of points."""

    n_points: int | None
    coordinates: list[Coordinate]


def render_page(
    metrics: Metrics, config: Config, config_yaml: str, drawn: PagePictures | None,
    arrays: Sequence[Mapping[str, object]],
) -> str:  # fmt: skip
    """Self-contained HTML of the report: pictures inline, no scripts, light and dark.

    config: the resolved config. drawn: the pictures; with them, explore.html is beside the page. arrays: name, shape,
    dtype, unit and meaning of each array of the store.
    """
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    filters = (counted, thousands, number, percent, size, duration, estimate, text, share_of, known_sum, when, marked,
               number_of, swatch)  # fmt: skip
    environment.filters.update({function.__name__: function for function in filters})
    environment.filters["base64"] = lambda png: b64encode(png).decode()
    source = resources.files(__package__).joinpath("template.html.j2").read_text(encoding="utf-8")
    store: str = config["output"]["store"]
    return environment.from_string(source).render(
        name=store.rstrip("/").rsplit("/", 1)[-1],
        data=data_name(config["input"]),
        metrics=metrics,
        n_findings=sum(finding["level"] != "note" for finding in metrics.findings or []),
        tiles=headline(metrics, config),
        images=_images(drawn, metrics),
        spectrum_image=_spectrum_image(drawn, metrics),
        drawn=drawn,
        scale=_color_scale(drawn),
        spectra=spectra(metrics, config["eigensolver"]["tol"]),
        choice_of_coordinates=choice_of_coordinates(metrics),
        n_neighbors=list_sizes(metrics) or config["neighbors"]["n_neighbors"],
        n_coordinates=config["eigensolver"]["n_components"],
        config_yaml=config_yaml,
        arrays=arrays,
    )


def swatch(color: tuple[float, float, float, float]) -> str:
    """The colour of a class on a light and on a dark page, as CSS.

    >>> swatch((0.0, 0.0, 1.0, 1.0))
    '--light: #0000ff; --dark: #0000ff'
    """
    light = to_hex(color)
    dark = {name.lower(): other for name, other in (ON_DARK | CLASSES_ON_DARK).items()}
    return f"--light: {light}; --dark: {dark.get(light, light).lower()}"


def marked(sentence: object) -> Markup:
    """A sentence as HTML, with commands between backticks as code.

    >>> marked("`lle suggest` < all")
    Markup('<code>lle suggest</code> &lt; all')
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


def list_sizes(metrics: Metrics) -> str | None:
    """Range and mean of the numbers of neighbours if they differ; None if all are n_neighbors.

    >>> list_sizes(Metrics(list_sizes={"mean": 9.31, "least": 3, "most": 24, "raised_to_k_min": 0, "at_k_max": 0}))
    '3 to 24 (mean 9.3)'
    """
    sizes = metrics.list_sizes
    return f"{sizes['least']} to {sizes['most']} (mean {sizes['mean']:.1f})" if sizes else None


def spectra(metrics: Metrics, tol: float) -> list[Spectrum]:
    """Eigenvalues, residuals, participation and redundancy of each component, with remarks on problems."""
    tables: list[list[Any]] = [
        table or []
        for table in (
            metrics.eigenvalues,
            metrics.residuals,
            metrics.participation,
            [metrics.redundancy],  # measured in the largest component
            metrics.component_points,
        )
    ]
    tol = math.inf if metrics.solver and metrics.solver["converged"] else tol
    result = []
    for *columns, n_points in zip_longest(*tables):
        coordinates = []
        for value, residual, participation, redundancy in zip_longest(*(column or [] for column in columns)):
            share = share_of(participation, n_points)
            remarks = {
                "residual above the tolerance": is_known(residual) and residual > tol,
                "a clump of few points": share is not None and share < CLUMP_SHARE,
                "predictable from the earlier coordinates": is_known(redundancy) and redundancy > REDUNDANT,
            }
            remark = "; ".join(text for text, applies in remarks.items() if applies)
            coordinates.append(Coordinate(value, residual, participation, share, redundancy, remark))
        result.append(Spectrum(n_points, coordinates))
    return result if metrics.eigenvalues else []


def _images(drawn: PagePictures | None, metrics: Metrics) -> list[PagePicture]:
    """The pictures of the embedding; the alternative text of the first includes the quality measures."""
    if drawn is None:
        return []
    first, *others = drawn.pictures
    names = ("trustworthiness", "continuity")
    measured = [f"{name} {value:.3f}" for name in names if (value := metrics.number(name)) is not None]
    if measured:
        first = first._replace(alternative=f"{first.alternative} {', '.join(measured).capitalize()}.")
    return [first, *others]


def _spectrum_image(drawn: PagePictures | None, metrics: Metrics) -> PagePicture | None:
    if drawn is None or drawn.spectrum is None:
        return None
    rows = [[value for value in row if is_known(value)] for row in metrics.eigenvalues or []]
    ranges = [f"component {c}: {min(row):.2g} to {max(row):.2g}" for c, row in enumerate(rows[:10]) if row]
    caption = "Eigenvalues of M, without zero eigenvalues."
    alternative = f"Eigenvalues on a log axis, smallest to largest; {'; '.join(ranges) or 'none measured'}."
    return PagePicture(drawn.spectrum, caption, alternative, dpi=DPI)


def _color_scale(drawn: PagePictures | None) -> ColorScale | None:
    key = None if drawn is None else drawn.key
    if key is None or key.classes:
        return None
    steps = np.linspace(0.0, 1.0, 9)
    light, dark = (", ".join(to_hex(color) for color in scale(steps)) for scale in (colormaps[COLOR_MAP], DARK_MAP))
    span = key.highest - key.lowest
    low, high = (f"{0.0 if abs(end) < 1e-3 * span else end:.3g}" for end in (key.lowest, key.highest))
    return ColorScale(low, high, light, dark)

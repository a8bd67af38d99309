"""The report page of a run: one HTML file that opens offline, from the metrics and finished pictures.

Every number may be missing (a stage that did not run, a metric nobody asked for): it reads "not measured".
`template.html.j2` holds the layout and the tables; here are the verdicts and how numbers are written.
"""

import base64
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeGuard

import jinja2

from pipeline.metrics import CLUMP_SHARE, REDUNDANT

Metrics = Mapping[str, Any]
State = Literal["good", "note", "warning", "unknown"]

NOT_MEASURED = "not measured"
LOW_TRUSTWORTHINESS = 0.8
DROPPED_SHARE = 0.01  # from this share of the rows on, dropping them is a warning and not a note


class Tile(NamedTuple):
    """One headline number: what it is, how it came out, and what that means in a sentence."""

    label: str
    value: str
    sentence: str
    state: State


class Image(NamedTuple):
    """A PNG in base64 and the width at which it has the size its fonts were chosen for, in CSS pixels."""

    data: str
    width: int


class Coordinate(NamedTuple):
    """One eigenpair of a component; numbers are None where they were not measured."""

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
    metrics: Metrics, config_yaml: str, pictures: Mapping[str, bytes], arrays: Sequence[Mapping[str, Any]]
) -> str:
    """Self-contained HTML of the report: pictures inline, no links, no scripts, light and dark.

    metrics: the content of metrics.json, any key of which may be missing. config_yaml: the resolved config.
    pictures: PNG bytes by name; "embedding" leads, "spectrum" and "timings" stand by their tables, others
    follow the embedding. arrays: name, shape, dtype, unit and meaning of each array of the store.
    """
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    filters = (thousands, number, percent, size, duration, estimate, text, share_of, known_sum)
    environment.filters.update({function.__name__: function for function in filters})
    source = resources.files(__package__).joinpath("template.html.j2").read_text(encoding="utf-8")
    metrics = {key: value for key, value in metrics.items() if not (isinstance(value, float) and math.isnan(value))}
    solver = metrics.get("solver") or []
    store = config_value(config_yaml, "store") or ""
    return environment.from_string(source).render(
        name=store.rstrip("/").rsplit("/", 1)[-1],
        metrics=metrics,
        tiles=headline(metrics, config_yaml),
        images={name: _image(png) for name, png in pictures.items()},
        spectra=spectra(metrics, config_number(config_yaml, "tol")),
        solvers=[solver] if isinstance(solver, Mapping) else list(solver),
        n_neighbors=config_value(config_yaml, "n_neighbors"),
        n_coordinates=config_value(config_yaml, "n_components"),
        config_yaml=config_yaml,
        arrays=arrays,
    )


def config_value(config_yaml: str, key: str) -> str | None:
    """Text of the first scalar called `key` in a resolved config, None if there is none.

    >>> config_value("eigensolver: {n_components: 2, tol: 1.0e-08}", "tol")
    '1.0e-08'
    """
    found = re.search(rf"(?:^|[\s{{,]){re.escape(key)}:[ \t]+([^,}}#\n]+)", config_yaml)
    value = found[1].strip().strip("'\"") if found else "null"
    return None if value in ("null", "~", "") else value


def config_number(config_yaml: str, key: str) -> float | None:
    """The same as a number, None if it is not one."""
    try:
        return float(config_value(config_yaml, key) or "none")
    except ValueError:
        return None


def spectra(metrics: Metrics, tol: float | None) -> list[Spectrum]:
    """Eigenvalues, residuals, participation and redundancy of each component, with what is wrong with them."""
    keys = ("eigenvalues", "residuals", "participation", "redundancy")
    columns = [_by_component(metrics.get(key)) for key in keys]
    sizes = metrics.get("component_sizes") or [metrics.get("n_points")]
    found = []
    for label in range(max(map(len, columns))):
        rows = [_at(column, label) or [] for column in columns]
        n_points = _at(sizes, label)
        coordinates = []
        for j in range(max(map(len, rows[:3]))):
            value, residual, participation, redundancy = (_at(row, j) for row in rows)
            share = share_of(participation, n_points)
            remark = _remark(residual, None if _converged(metrics) else tol, share, redundancy)
            coordinates.append(Coordinate(value, residual, participation, share, redundancy, remark))
        found.append(Spectrum(n_points, coordinates))
    return found


def headline(metrics: Metrics, config_yaml: str) -> list[Tile]:
    """The tiles at the top of the page, in reading order."""
    return [
        _rows_tile(metrics),
        _points_tile(metrics),
        _recall_tile(metrics, config_number(config_yaml, "min_recall")),
        _components_tile(metrics),
        _closed_classes_tile(metrics),
        _residual_tile(metrics, config_number(config_yaml, "tol")),
        _trustworthiness_tile(metrics),
        _time_tile(metrics),
    ]


def thousands(value: Any) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,.0f}" if is_known(value) else NOT_MEASURED


def number(value: Any, form: str) -> str:
    """A number in a format of Python's mini-language."""
    return format(value, form) if is_known(value) else NOT_MEASURED


def percent(value: Any) -> str:
    """A share as percent, never rounded to 0 % or 100 % unless it is.

    >>> percent(0.99996), percent(1.0), percent(0.123)
    ('> 99.95 %', '100 %', '12.3 %')
    """
    if not is_known(value):
        return NOT_MEASURED
    if 0.0 < value < 0.00005:
        return "< 0.005 %"
    if 0.9995 < value < 1.0:
        return "> 99.95 %"
    return f"{100.0 * value:.{2 if value < 0.01 else 3}g} %"


def size(value: Any) -> str:
    """Bytes in binary units.

    >>> size(1.5 * 2**30)
    '1.5 GiB'
    """
    if not is_known(value):
        return NOT_MEASURED
    power = min(4, int(math.log2(max(value, 1)) // 10))
    return f"{value / 1024**power:.{1 if power else 0}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def duration(value: Any) -> str:
    """Seconds as people say them.

    >>> duration(3725)
    '1 h 02 min'
    """
    if not is_known(value):
        return NOT_MEASURED
    if value < 60.0:
        return f"{value:.2f} s" if value < 10.0 else f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes} min {seconds:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def estimate(measured: Any) -> str:
    """A mapping {value, low, high} as the value with its interval in brackets."""
    value, low, high = ((measured or {}).get(key) for key in ("value", "low", "high"))
    interval = f" ({low:.4f} to {high:.4f})" if is_known(low) and is_known(high) else ""
    return number(value, ".4f") + interval


def text(value: Any) -> str:
    """Anything else as text: yes and no for truth values, sides of an array for its shape."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " × ".join(f"{side:,}" if isinstance(side, int) else str(side) for side in value)
    return NOT_MEASURED if value is None or isinstance(value, jinja2.Undefined) else str(value)


def share_of(part: Any, whole: Any) -> float | None:
    """part / whole, None where that is not known."""
    return float(part / whole) if is_known(part) and is_known(whole) and whole > 0 else None


def known_sum(values: Mapping[str, Any] | None) -> float | None:
    """Sum of the known numbers of a mapping, None if there are none."""
    known = [value for value in (values or {}).values() if is_known(value)]
    return sum(known) if known else None


def is_known(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number: what is missing comes as None, and from JSON also as NaN."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _rows_tile(metrics: Metrics) -> Tile:
    n_input, merged, invalid = (metrics.get(key) for key in ("n_input", "duplicates_merged", "invalid_dropped"))
    if not is_known(n_input):
        return Tile("Rows read", NOT_MEASURED, "How many rows the input has is not known.", "unknown")
    texts = [f"{thousands(metrics.get('n_features'))} features each."] if metrics.get("n_features") else []
    if merged:
        texts.append(f"{thousands(merged)} equal an earlier row and share its coordinates.")
    if invalid:
        texts.append(f"{thousands(invalid)} with missing or infinite values were dropped.")
    return Tile("Rows read", thousands(n_input), " ".join(texts), "good")


def _points_tile(metrics: Metrics) -> Tile:
    label, n_points, n_input = "Distinct points", metrics.get("n_points"), metrics.get("n_input")
    dropped = known_sum(metrics.get("dropped")) or 0
    if not is_known(n_points):
        return Tile(label, NOT_MEASURED, "How many points were embedded is not known.", "unknown")
    if metrics.get("dropped") is None:
        return Tile(label, thousands(n_points), "Whether rows were dropped is not known.", "unknown")
    if not dropped:
        return Tile(label, thousands(n_points), "Every row has coordinates.", "good")
    share = share_of(dropped, n_input)
    sentence = f"{thousands(dropped)} rows ({percent(share)}) were dropped and have no coordinates."
    return Tile(
        label, thousands(n_points), sentence, "note" if share is not None and share < DROPPED_SHARE else "warning"
    )


def _recall_tile(metrics: Metrics, bound: float | None) -> Tile:
    recall = metrics.get("recall") or {}
    label, value, low, high = "Neighbour recall", recall.get("value"), recall.get("low"), recall.get("high")
    if not is_known(value):
        return Tile(label, NOT_MEASURED, "How many of the true neighbours were found is not known.", "unknown")
    sentence = f"Share of the true nearest neighbours found, on {thousands(recall.get('sample'))} points"
    sentence += f" (interval {low:.3f} to {high:.3f})" if is_known(low) and is_known(high) else ""
    state: State = "good"
    if bound is not None and value < bound:
        state, sentence = "warning", f"{sentence}: below the bound of {bound:g}"
    elif bound is not None and is_known(low) and low < bound:
        state, sentence = "note", f"{sentence}: the bound of {bound:g} lies within the interval"
    elif bound is not None:
        sentence = f"{sentence}; the bound is {bound:g}"
    return Tile(label, f"{value:.3f}", f"{sentence}.", state)


def _components_tile(metrics: Metrics) -> Tile:
    label, n_components = "Graph components", metrics.get("n_components_weak")
    if not is_known(n_components):
        return Tile(label, NOT_MEASURED, "Whether the neighbour graph is connected is not known.", "unknown")
    if n_components == 1:
        return Tile(label, "1", "The neighbour graph is connected.", "good")
    sentence = "Separate pieces of the neighbour graph: coordinates of different pieces do not compare."
    return Tile(label, thousands(n_components), sentence, "note")


def _closed_classes_tile(metrics: Metrics) -> Tile:
    label, before, left = "Closed classes", metrics.get("closed_classes"), metrics.get("closed_classes_left")
    n_components = metrics.get("n_components_weak")
    if not is_known(left):
        return Tile(label, NOT_MEASURED, "The null space of M was not checked.", "unknown")
    if is_known(n_components) and left > n_components:
        sentence = (
            f"More than the {thousands(n_components)} components: some coordinates just mark closed groups of points."
        )
        return Tile(label, thousands(left), sentence, "warning")
    if is_known(before) and before > left:
        reverse, bridges = thousands(metrics.get("reverse_added")), thousands(metrics.get("bridges_added"))
        sentence = f"There were {thousands(before)}; repaired with {reverse} reverse neighbours and {bridges} bridges."
        return Tile(label, thousands(left), sentence, "note")
    return Tile(label, thousands(left), "One for each component, as it must be; nothing to repair.", "good")


def _residual_tile(metrics: Metrics, tol: float | None) -> Tile:
    residuals = [value for row in _by_component(metrics.get("residuals")) for value in row]
    if not residuals or not all(is_known(value) for value in residuals):
        return Tile("Residual", NOT_MEASURED, "How exactly the eigenproblem was solved is not known.", "unknown")
    worst, sentence = max(residuals), "Largest ‖Mv − λv‖ / λ of all coordinates"
    if tol is None:
        return Tile("Residual", f"{worst:.1e}", f"{sentence}.", "good")
    if worst > tol and _converged(metrics):
        return Tile("Residual", f"{worst:.1e}", f"{sentence}: as small as float64 allows for such eigenvalues.", "good")
    if worst > tol:
        return Tile("Residual", f"{worst:.1e}", f"{sentence}: above the tolerance of {tol:g}.", "warning")
    return Tile("Residual", f"{worst:.1e}", f"{sentence}; the tolerance is {tol:g}.", "good")


def _converged(metrics: Metrics) -> bool:
    """Whether the solver says that its residuals are as small as asked for, or as rounding allows."""
    solver = metrics.get("solver") or []
    solvers = [solver] if isinstance(solver, Mapping) else solver
    return bool(solvers) and all(entry.get("converged") is True for entry in solvers)


def _trustworthiness_tile(metrics: Metrics) -> Tile:
    label, value = "Trustworthiness", (metrics.get("trustworthiness") or {}).get("value")
    continuity = number((metrics.get("continuity") or {}).get("value"), ".3f")
    if not is_known(value):
        return Tile(label, NOT_MEASURED, "Neighbourhoods before and after were not compared.", "unknown")
    sentence = f"1 if what is close in the embedding is close in the data; the converse, continuity, is {continuity}."
    if value < LOW_TRUSTWORTHINESS:
        return Tile(label, f"{value:.3f}", f"Low: do not read clusters off the picture. {sentence}", "warning")
    return Tile(label, f"{value:.3f}", sentence, "good")


def _time_tile(metrics: Metrics) -> Tile:
    seconds = {stage: value for stage, value in (metrics.get("seconds") or {}).items() if is_known(value)}
    peaks = {stage: value for stage, value in (metrics.get("peak_bytes") or {}).items() if is_known(value)}
    if not seconds:
        return Tile("Time", NOT_MEASURED, "No stage was timed.", "unknown")
    longest = max(seconds, key=lambda stage: seconds[stage])
    sentence = f"{percent(share_of(seconds[longest], sum(seconds.values())))} of it to {longest.replace('_', ' ')}."
    if peaks:
        largest = max(peaks, key=lambda stage: peaks[stage])
        sentence += f" Highest memory: {size(peaks[largest])}, to {largest.replace('_', ' ')}."
    return Tile("Time", duration(sum(seconds.values())), sentence, "good")


def _remark(residual: Any, tol: float | None, share: float | None, redundancy: Any) -> str:
    remarks = []
    if is_known(residual) and tol is not None and residual > tol:
        remarks.append("residual above the tolerance")
    if share is not None and share < CLUMP_SHARE:
        remarks.append("a clump of few points")
    if is_known(redundancy) and redundancy > REDUNDANT:
        remarks.append("follows from the coordinates before it")
    return "; ".join(remarks)


def _image(png: bytes) -> Image:
    # The header chunk of a PNG begins with the width; pictures are drawn at 150 dpi, a CSS inch has 96 pixels.
    return Image(base64.b64encode(png).decode("ascii"), round(int.from_bytes(png[16:20], "big") * 96 / 150))


def _at(row: Sequence[Any], index: int) -> Any:
    return row[index] if index < len(row) else None


def _by_component(table: Any) -> list[list[Any]]:
    """A list for each component; a single component's list may come alone."""
    rows = list(table) if table is not None else []
    if any(isinstance(row, (list, tuple)) for row in rows):
        return [list(row or []) for row in rows]
    return [rows] if rows else []

"""Format numbers for readers, also in templates; a missing value becomes "not measured"."""

import inspect
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import resources
from numbers import Real
from typing import TypeGuard

import jinja2

NOT_MEASURED = "not measured"


def template(path: str, **filters: Callable[..., object]) -> jinja2.Template:
    """A template of this package for HTML, which has the functions of this module and `filters` as filters."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False}
    environment.filters |= {name: value for name, value in globals().items() if inspect.isfunction(value)} | filters
    environment.filters["base64"] = lambda data: b64encode(data).decode()
    return environment.from_string(resources.files(__package__).joinpath(path).read_text(encoding="utf-8"))


def thousands(value: object) -> str:
    """A whole number with thousands separators."""
    return f"{value:,.0f}" if is_known(value) else NOT_MEASURED


def number(value: object, form: str) -> str:
    """A number in a format of Python's mini-language."""
    return format(value, form) if is_known(value) else NOT_MEASURED


def beside(value: float, digits: int, *bounds: float) -> str:
    """A number with at least ``digits`` decimals; more of them if it would look equal to a bound that it is not.

    >>> beside(0.9499, 3, 0.95, 0.9), beside(0.95, 3, 0.95), beside(0.7003, 2, 0.7)
    ('0.9499', '0.950', '0.7003')
    """
    while digits < 6 and any(round(value, digits) == bound != value for bound in bounds):
        digits += 1
    return f"{value:.{digits}f}"


def percent(value: object) -> str:
    """A share as percent; only exact values become 0 % or 100 %.

    >>> percent(0.99996), percent(1.0), percent(0.123), percent(1999 / 2000)
    ('> 99.95 %', '100 %', '12.3 %', '99.95 %')
    """
    if not is_known(value):
        return NOT_MEASURED
    if 0.0 < value < 0.00005:
        return "< 0.005 %"
    if 0.9995 <= value < 1.0:
        return "> " * (value > 0.9995) + "99.95 %"
    return f"{100.0 * value:.{2 if value < 0.01 else 3}g} %"


def size(value: object) -> str:
    """Bytes in binary units.

    >>> size(1.5 * 2**30)
    '1.5 GiB'
    """
    if not is_known(value):
        return NOT_MEASURED
    power = min(4, int(math.log2(max(value, 1)) // 10))
    return f"{value / 1024**power:.{1 if power else 0}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def duration(value: object) -> str:
    """Seconds as readable text.

    >>> duration(3725)
    '1 h 02 min'
    """
    if not is_known(value):
        return NOT_MEASURED
    if value < 60.0:
        return f"{value:.2f} s" if value < 10.0 else f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes} min {seconds:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def when(value: str | None) -> str:
    """An ISO time as readable text.

    >>> when("2026-01-02T03:04:05+00:00")
    '2026-01-02 03:04 UTC'
    """
    try:
        return datetime.fromisoformat(value or "").astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (TypeError, ValueError):
        return NOT_MEASURED


def estimate(measured: Mapping[str, object] | None) -> str:
    """A mapping {value, low, high} as the value, followed by its interval in brackets."""
    value, low, high = ((measured or {}).get(key) for key in ("value", "low", "high"))
    interval = f" ({low:.4f} to {high:.4f})" if is_known(low) and is_known(high) else ""
    return number(value, ".4f") + interval


def text(value: object) -> str:
    """Other values as text: yes or no for booleans, a shape with times signs."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " × ".join(f"{side:,}" if isinstance(side, int) else str(side) for side in value)
    return NOT_MEASURED if value is None or isinstance(value, jinja2.Undefined) else str(value)


def joined(numbers: Iterable[int]) -> str:
    """Numbers in a sentence.

    >>> joined([2, 3, 5]), joined([4])
    ('2, 3 and 5', '4')
    """
    *before, last = map(str, numbers)
    return f"{', '.join(before)} and {last}" if before else last


def share_of(part: object, total: object) -> float | None:
    """part / whole, None if one of them is unknown."""
    return float(part / total) if is_known(part) and is_known(total) and total > 0 else None


def is_known(value: object) -> TypeGuard[float]:
    """Whether the value is a finite number; missing numbers are None, or NaN from JSON."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def data_name(section: Mapping[str, object]) -> str:
    """The name of an input section for titles; empty for an array of a Python program.

    >>> data_name({"kind": "csv", "path": "data/customers.csv"})
    'customers.csv'
    """
    place = str(section.get("path") or section.get("url") or str(section.get("name", "")).replace("_", " "))
    name = place.rstrip("/").rsplit("/", 1)[-1]
    return "" if re.fullmatch(r"input-[0-9a-f]+\.npy", name) else name

"""Metrics of the last run as a file for Prometheus' textfile collector (node_exporter), after success and failure.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4).
"""

import contextlib
import math
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core.errors import BoundsNotMet, ConfigError, LleError

Sample = tuple[dict[str, str], float]


class Published(NamedTuple):
    """The pointer to the published version at the end of a run, and whether it could be read."""

    pointer: dict[str, Any] | None
    readable: bool


LAST_SUCCESS = "lle_last_success_timestamp_seconds"
HELP = {
    "lle_run_success": "1 if the last run ended with exit code 0",
    "lle_run_exit_code": "exit code of the last run",
    "lle_run_timestamp_seconds": "when the last run ended",
    LAST_SUCCESS: "when the last successful run ended",
    "lle_run_seconds": "duration of the last run",
    "lle_run_unchanged": "1 if input and config were unchanged in the last run (output.keep)",
    "lle_published": "1 for the published version (output.keep), also after a failed run",
    "lle_published_timestamp_seconds": "when that version was published",
    "lle_rows": "rows of the input, and points after removal of duplicates and invalid rows",
    "lle_blocks": "blocks of the last run",
    "lle_recall": "recall of the neighbours, with its 95 % interval",
    "lle_residual_max": "largest ||M v - lambda v|| / lambda of the last run's eigenpairs",
    "lle_converged": "1 if every eigenpair reached eigensolver.tol",
    "lle_alignment_rows": "rows in common with the earlier embedding of the alignment (embedding.align)",
    "lle_alignment_residual": "residual of these rows of a component after the alignment, relative to their size",
    "lle_warnings": "number of warnings in metrics.json",
    "lle_stage_seconds": "seconds of each stage over all runs of this store",
    "lle_stage_peak_bytes": "largest process of each stage",
}


@contextlib.contextmanager
def reported(
    path: str | None, store: str, published: Callable[[], dict[str, Any] | None] = lambda: None
) -> Iterator[Callable[[Any], None]]:
    """Write the metrics of the run in the `with` block, which passes its RunResult to the yielded function.

    After an error the file has its exit code, and the result so far if a bound was not met.

    `published` returns the pointer to the published version. Without a path nothing is written. Raises ConfigError at
    the start if the file cannot be written.
    """
    if path is not None:
        check_place(path)
    results: list[Any] = []
    started, code = time.time(), 1
    try:
        yield results.append
        code = 0
    except LleError as error:
        code = error.exit_code
        if isinstance(error, BoundsNotMet) and error.result is not None:
            results.append(error.result)
        raise
    finally:
        if path is not None:
            samples = _samples(path, store, started, code, results[0] if results else None, _read_published(published))
            _write(path, samples)


def render(samples: dict[str, list[Sample]]) -> str:
    """The text of named samples, each name with its help and type.

    >>> print(render({"lle_run_exit_code": [({"store": "a"}, 0)]}), end="")
    # HELP lle_run_exit_code exit code of the last run
    # TYPE lle_run_exit_code gauge
    lle_run_exit_code{store="a"} 0
    """
    lines = []
    for name, rows in samples.items():
        lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
        for labels, value in rows:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"{name}{{{inside}}} {value:.17g}")
    return "\n".join(lines) + "\n"


def _read_published(published: Callable[[], dict[str, Any] | None]) -> Published:
    """The pointer (None if nothing is published), and whether it can be read; the run reports an unreadable one."""
    with contextlib.suppress(LleError):
        return Published(published(), True)
    return Published(None, False)


def _samples(
    path: str, store: str, started: float, code: int, result: Any, published: Published
) -> dict[str, list[Sample]]:
    now = time.time()
    base = {"store": store}
    success = now if code == 0 else _previous_success(path)
    samples: dict[str, list[tuple[dict[str, str], Any]]] = {
        "lle_run_success": [({}, float(code == 0))],
        "lle_run_exit_code": [({}, code)],
        "lle_run_timestamp_seconds": [({}, now)],
        LAST_SUCCESS: [({}, success)],
        "lle_run_seconds": [({}, now - started)],
    }
    if not published.readable:
        samples |= _previous_version(path, store)
    elif (pointer := published.pointer) is not None:
        samples["lle_published"] = [({"version": pointer["version"]}, 1)]
        samples["lle_published_timestamp_seconds"] = [({}, datetime.fromisoformat(pointer["when"]).timestamp())]
    if "lle_published" in samples:
        samples["lle_run_unchanged"] = [({}, float(result is not None and result.unchanged))]
    if result is not None:
        samples |= _of_result(result.metrics, result.computed, result.reused)
    return {
        name: labelled
        for name, rows in samples.items()
        if (labelled := [({**base, **labels}, float(value)) for labels, value in rows if value is not None])
    }


def _of_result(
    metrics: dict[str, Any], computed: dict[str, int], reused: dict[str, int]
) -> dict[str, list[tuple[dict[str, str], Any]]]:
    """Samples from metrics.json; missing and null values give no sample."""
    recall, solver = metrics.get("recall") or {}, metrics.get("solver") or {}
    residuals = [value for row in metrics.get("residuals") or [] for value in row if math.isfinite(value)]
    aligned = (metrics.get("alignment") or {}).get("components")
    stages = {key: sorted((metrics.get(key) or {}).items()) for key in ("seconds", "peak_bytes")}
    return {
        "lle_rows": [({"kind": "input"}, metrics.get("n_input")), ({"kind": "points"}, metrics.get("n_points"))],
        "lle_blocks": [({"kind": "computed"}, sum(computed.values())), ({"kind": "reused"}, sum(reused.values()))],
        "lle_recall": [({"bound": bound}, recall.get(bound)) for bound in ("value", "low", "high")],
        "lle_residual_max": [({}, max(residuals) if residuals else None)],
        "lle_converged": [({}, solver.get("converged"))],
        "lle_alignment_rows": [
            ({}, None if aligned is None else sum(component["rows_shared"] for component in aligned))
        ],
        "lle_alignment_residual": [
            ({"component": str(component["component"])}, component["residual_after"]) for component in aligned or []
        ],
        "lle_warnings": [({}, len(metrics.get("warnings") or []))],
        "lle_stage_seconds": [({"stage": stage}, value) for stage, value in stages["seconds"]],
        "lle_stage_peak_bytes": [({"stage": stage}, value) for stage, value in stages["peak_bytes"]],
    }


def _previous_success(path: str) -> float | None:
    """The time of the last success in the existing file."""
    with contextlib.suppress(OSError, ValueError):
        match = re.search(rf"^{LAST_SUCCESS}(?:{{.*}})? (\S+)$", Path(path).read_text(), re.MULTILINE)
        return float(match[1]) if match else None
    return None


def _previous_version(path: str, store: str) -> dict[str, list[tuple[dict[str, str], Any]]]:
    """The published version of this store in the existing file, for a store that cannot be read now."""
    text = ""
    with contextlib.suppress(OSError, ValueError):
        text = Path(path).read_text()
    label = f'store="{re.escape(_escaped(store))}"'
    version = re.search(rf'^lle_published{{{label},version="([^"\\]+)"}} 1$', text, re.MULTILINE)
    when = re.search(rf"^lle_published_timestamp_seconds{{{label}}} (\S+)$", text, re.MULTILINE)
    samples: dict[str, list[tuple[dict[str, str], Any]]] = {}
    if version and when:
        samples["lle_published"] = [({"version": version[1]}, 1)]
        samples["lle_published_timestamp_seconds"] = [({}, float(when[1]))]
    return samples


def check_place(path: str) -> None:
    folder = Path(path).absolute().parent
    if not path.endswith(".prom"):
        raise ConfigError(f"output.prometheus: {path}: the textfile collector reads names that end in .prom")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"output.prometheus: {path}: the folder {folder} does not exist or cannot be written")


def _write(path: str, samples: dict[str, list[Sample]]) -> None:
    """Write the file atomically; an error is printed and does not change the result of the run."""
    target = Path(path).absolute()
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_text(render(samples))
        temporary.replace(target)
    except OSError as error:
        print(f"lle: output.prometheus: {path} could not be written: {error.strerror}", file=sys.stderr)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""The last run as a file for Prometheus' textfile collector (node_exporter): written whole, after success and failure.

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
    """What was found of the pointer at the end of a run."""

    pointer: dict[str, Any] | None
    readable: bool


LAST_SUCCESS = "lle_last_success_timestamp_seconds"
HELP = {
    "lle_run_success": "1 when the last run ended with exit code 0",
    "lle_run_exit_code": "exit code of the last run",
    "lle_run_timestamp_seconds": "when the last run ended",
    LAST_SUCCESS: "when the last run that went well ended",
    "lle_run_seconds": "duration of the last run",
    "lle_run_unchanged": "1 when the last run found input and config as they were (output.keep)",
    "lle_published": "1 for the version that is published (output.keep), also after a run that failed",
    "lle_published_timestamp_seconds": "when that version was published",
    "lle_rows": "rows of the input, and points after duplicates and invalid rows were left out",
    "lle_blocks": "blocks of the last run",
    "lle_recall": "recall of the neighbours, with its 95 % interval",
    "lle_residual_max": "largest ||M v - lambda v|| / lambda of the last run's eigenpairs",
    "lle_converged": "1 when every eigenpair reached eigensolver.tol",
    "lle_alignment_rows": "rows that the embedding shares with the earlier one it was aligned with (embedding.align)",
    "lle_alignment_residual": "change of these rows of a component that the alignment left, of their size",
    "lle_warnings": "sentences under warnings in metrics.json",
    "lle_stage_seconds": "seconds of each stage over all runs of this store",
    "lle_stage_peak_bytes": "largest process of each stage",
}


@contextlib.contextmanager
def reported(
    path: str | None, store: str, published: Callable[[], dict[str, Any] | None] = lambda: None
) -> Iterator[Callable[[Any], None]]:
    """Report the run in the body: what the yielded function is given (a RunResult), or the exit code of its error, with
    what was reached where a bound was missed.

    `published` tells which version counts when the run has ended. Without a path nothing is written. Raises ConfigError
    at once when the file could not be written at the end.
    """
    if path is not None:
        check_place(path)
    given: list[Any] = []
    started, code = time.time(), 1
    try:
        yield given.append
        code = 0
    except LleError as error:
        code = error.exit_code
        if isinstance(error, BoundsNotMet) and error.result is not None:
            given.append(error.result)
        raise
    finally:
        if path is not None:
            samples = _samples(path, store, started, code, given[0] if given else None, _asked(published))
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


def _asked(published: Callable[[], dict[str, Any] | None]) -> Published:
    """The pointer (None where nothing is published), and whether it can be read: if not, the run itself has said so."""
    with contextlib.suppress(LleError):
        return Published(published(), True)
    return Published(None, False)


def _samples(
    path: str, store: str, started: float, code: int, result: Any, published: Published
) -> dict[str, list[Sample]]:
    now = time.time()
    base = {"store": store}
    success = now if code == 0 else _previous_success(path)
    found: dict[str, list[tuple[dict[str, str], Any]]] = {
        "lle_run_success": [({}, float(code == 0))],
        "lle_run_exit_code": [({}, code)],
        "lle_run_timestamp_seconds": [({}, now)],
        LAST_SUCCESS: [({}, success)],
        "lle_run_seconds": [({}, now - started)],
    }
    if not published.readable:
        found |= _previous_version(path, store)
    elif (pointer := published.pointer) is not None:
        found["lle_published"] = [({"version": pointer["version"]}, 1)]
        found["lle_published_timestamp_seconds"] = [({}, datetime.fromisoformat(pointer["when"]).timestamp())]
    if "lle_published" in found:
        found["lle_run_unchanged"] = [({}, float(result is not None and result.unchanged))]
    if result is not None:
        found |= _of_result(result.metrics, result.computed, result.reused)
    return {
        name: kept
        for name, rows in found.items()
        if (kept := [({**base, **labels}, float(value)) for labels, value in rows if value is not None])
    }


def _of_result(
    metrics: dict[str, Any], computed: dict[str, int], reused: dict[str, int]
) -> dict[str, list[tuple[dict[str, str], Any]]]:
    """What metrics.json knows; keys that are missing or null give no sample."""
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
        "lle_alignment_rows": [({}, None if aligned is None else sum(one["rows_shared"] for one in aligned))],
        "lle_alignment_residual": [
            ({"component": str(one["component"])}, one["residual_after"]) for one in aligned or []
        ],
        "lle_warnings": [({}, len(metrics.get("warnings") or []))],
        "lle_stage_seconds": [({"stage": stage}, value) for stage, value in stages["seconds"]],
        "lle_stage_peak_bytes": [({"stage": stage}, value) for stage, value in stages["peak_bytes"]],
    }


def _previous_success(path: str) -> float | None:
    """The time of the last success that the file still holds."""
    with contextlib.suppress(OSError, ValueError):
        found = re.search(rf"^{LAST_SUCCESS}(?:{{.*}})? (\S+)$", Path(path).read_text(), re.MULTILINE)
        return float(found[1]) if found else None
    return None


def _previous_version(path: str, store: str) -> dict[str, list[tuple[dict[str, str], Any]]]:
    """The version of this store that the file still tells: a place that is down has published no other."""
    text = ""
    with contextlib.suppress(OSError, ValueError):
        text = Path(path).read_text()
    label = f'store="{re.escape(_escaped(store))}"'
    version = re.search(rf'^lle_published{{{label},version="([^"\\]+)"}} 1$', text, re.MULTILINE)
    when = re.search(rf"^lle_published_timestamp_seconds{{{label}}} (\S+)$", text, re.MULTILINE)
    found: dict[str, list[tuple[dict[str, str], Any]]] = {}
    if version and when:
        found["lle_published"] = [({"version": version[1]}, 1)]
        found["lle_published_timestamp_seconds"] = [({}, float(when[1]))]
    return found


def check_place(path: str) -> None:
    folder = Path(path).absolute().parent
    if not path.endswith(".prom"):
        raise ConfigError(f"output.prometheus: {path}: the textfile collector reads names that end in .prom")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"output.prometheus: {path}: the folder {folder} is not there or cannot be written")


def _write(path: str, samples: dict[str, list[Sample]]) -> None:
    """Whole or not at all; a failure here is said and does not change how the run ended."""
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

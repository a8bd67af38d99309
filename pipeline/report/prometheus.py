"""Metrics of the last run as a file for Prometheus' textfile collector (node_exporter), after success and failure.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4).
"""

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..core.errors import BoundsNotMet, ConfigError, Interrupted, LleError
from ..engine.plan import RunResult
from ..engine.step import Json
from .metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Sample = tuple[str, dict[str, str], float | None]
"""Name, labels and value of a metric."""


class Published(NamedTuple):
    """The published version, and when it was published (ISO 8601)."""

    version: str
    when: str


ReadPublished = Callable[[], Published | None]

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
    "lle_warnings": "number of findings outside their bounds in metrics.json, the verdict included",
    "lle_stage_seconds": "seconds of each stage over all runs of this store",
    "lle_stage_peak_bytes": "largest process of each stage",
}


@contextlib.contextmanager
def reported(
    path: str | None, store: str, published: ReadPublished = lambda: None
) -> Iterator[Callable[[RunResult], None]]:
    """Write the metrics of the run in the `with` block, which passes its RunResult to the yielded function.

    After an error the file has its exit code, and the result so far if a bound was not met. The file is written
    atomically; an error of that is printed, and does not change the result of the run.

    `published` returns the published version, None if there is none. Without a path nothing is written. Raises
    ConfigError at the start if the file cannot be written.
    """
    if path is not None:
        check_place(path)
    results: list[RunResult] = []
    started, code = time.time(), 1
    try:
        yield results.append
        code = 0
    except (LleError, Interrupted) as error:
        code = error.exit_code
        if isinstance(error, BoundsNotMet) and isinstance(error.result, RunResult):
            results.append(error.result)
        raise
    finally:
        if path is not None:
            from prometheus_client import write_to_textfile

            result = results[0] if results else None
            registry = registry_of(_samples(path, store, started, code, result, published), store)
            try:
                write_to_textfile(path, registry)
            except OSError as error:
                print(f"lle: output.prometheus: {path} could not be written: {error.strerror}", file=sys.stderr)


def registry_of(samples: Iterable[Sample], store: str) -> "CollectorRegistry":
    """A gauge with its help for each name; every sample gets the label `store`, and those without a value are left out.

    >>> from prometheus_client import generate_latest
    >>> print(generate_latest(registry_of([("lle_run_exit_code", {}, 0)], "a")).decode(), end="")
    # HELP lle_run_exit_code exit code of the last run
    # TYPE lle_run_exit_code gauge
    lle_run_exit_code{store="a"} 0.0
    """
    from prometheus_client import CollectorRegistry, Gauge  # only runs with output.prometheus need it

    registry, gauges = CollectorRegistry(), dict[str, Gauge]()
    for name, own, value in samples:
        if value is not None:
            labels = {"store": store, **own}
            if name not in gauges:
                gauges[name] = Gauge(name, HELP[name], list(labels), registry=registry)
            gauges[name].labels(**labels).set(value)
    return registry


def _samples(
    path: str, store: str, started: float, code: int, result: RunResult | None, read_published: ReadPublished
) -> Iterator[Sample]:
    now, published, is_readable = time.time(), None, False
    with contextlib.suppress(LleError):  # the run reports an unreadable version
        published, is_readable = read_published(), True
    earlier = [] if code == 0 and is_readable else _earlier_samples(path, store)
    yield "lle_run_success", {}, code == 0
    yield "lle_run_exit_code", {}, code
    yield "lle_run_timestamp_seconds", {}, now
    yield LAST_SUCCESS, {}, now if code == 0 else next((one[2] for one in earlier if one[0] == LAST_SUCCESS), None)
    yield "lle_run_seconds", {}, now - started
    version: list[Sample] = []
    if not is_readable:
        version = [row for row in earlier if row[0].startswith("lle_published")]
    elif published is not None:
        when = datetime.fromisoformat(published.when).timestamp()
        version = [("lle_published", {"version": published.version}, 1), ("lle_published_timestamp_seconds", {}, when)]
    if version:
        yield from version
        yield "lle_run_unchanged", {}, result is not None and result.unchanged
    if result is not None:
        yield from _of_result(Metrics.read(result.metrics), result)


def _of_result(metrics: Metrics, result: RunResult) -> Iterator[Sample]:
    yield "lle_rows", {"kind": "input"}, metrics.n_input or None
    yield "lle_rows", {"kind": "points"}, metrics.n_points
    yield "lle_blocks", {"kind": "computed"}, sum(result.computed.values())
    yield "lle_blocks", {"kind": "reused"}, sum(result.reused.values())
    recall: Json = {**(metrics.recall or {})}
    for bound in ("value", "low", "high"):
        yield "lle_recall", {"bound": bound}, recall.get(bound)
    residuals = [value for row in metrics.residuals or [] for value in row if math.isfinite(value)]
    yield "lle_residual_max", {}, max(residuals, default=None)
    yield "lle_converged", {}, (metrics.solver or {}).get("converged")
    if metrics.alignment is not None:
        aligned = metrics.alignment["components"]
        yield "lle_alignment_rows", {}, sum(one["rows_shared"] for one in aligned)
        for one in aligned:
            yield "lle_alignment_residual", {"component": str(one["component"])}, one["residual_after"]
    yield "lle_warnings", {}, sum(finding["level"] != "note" for finding in metrics.findings or [])
    for stage, seconds in metrics.seconds.items():
        yield "lle_stage_seconds", {"stage": stage}, seconds
    for stage, peak in metrics.peak_bytes.items():
        yield "lle_stage_peak_bytes", {"stage": stage}, peak


def _earlier_samples(path: str, store: str) -> list[Sample]:
    """The samples of the existing file about this store; empty if it cannot be read."""
    from prometheus_client.parser import text_string_to_metric_families

    with contextlib.suppress(OSError, ValueError):
        families = text_string_to_metric_families(Path(path).read_text(encoding="utf-8"))
        samples = [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]
        return [sample for sample in samples if sample[1].get("store") == store]
    return []


def check_place(path: str) -> None:
    folder = Path(path).absolute().parent
    if not path.endswith(".prom"):
        raise ConfigError(f"output.prometheus: {path}: the textfile collector reads names that end in .prom")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"output.prometheus: {path}: the folder {folder} does not exist or cannot be written")

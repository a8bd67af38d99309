"""Metrics of the last run as a file for Prometheus' textfile collector (node_exporter), after success and failure.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4).
"""

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..core.errors import BoundsNotMet, ConfigError, Interrupted, LleError
from ..engine.plan import RunResult
from .metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Sample = tuple[dict[str, str], float]
Measured = tuple[dict[str, str], float | None]


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

            registry = registry_of(_samples(path, store, started, code, results[0] if results else None, published))
            try:
                write_to_textfile(path, registry)
            except OSError as error:
                print(f"lle: output.prometheus: {path} could not be written: {error.strerror}", file=sys.stderr)


def registry_of(samples: dict[str, list[Sample]]) -> "CollectorRegistry":
    """Gauges of named samples, each with its help.

    >>> from prometheus_client import generate_latest
    >>> print(generate_latest(registry_of({"lle_run_exit_code": [({"store": "a"}, 0)]})).decode(), end="")
    # HELP lle_run_exit_code exit code of the last run
    # TYPE lle_run_exit_code gauge
    lle_run_exit_code{store="a"} 0.0
    """
    from prometheus_client import CollectorRegistry, Gauge  # only runs with output.prometheus need it

    registry = CollectorRegistry()
    for name, rows in samples.items():
        gauge = Gauge(name, HELP[name], list(rows[0][0]), registry=registry)
        for labels, value in rows:
            gauge.labels(**labels).set(value)
    return registry


def _samples(
    path: str, store: str, started: float, code: int, result: RunResult | None, read_published: ReadPublished
) -> dict[str, list[Sample]]:
    now, published, is_readable = time.time(), None, False
    base = {"store": store}
    with contextlib.suppress(LleError):  # the run reports an unreadable version
        published, is_readable = read_published(), True
    earlier = {} if code == 0 and is_readable else _earlier_samples(path)
    success = now if code == 0 else next((value for _, value in earlier.get(LAST_SUCCESS, ())), None)
    samples: dict[str, Sequence[Measured]] = {
        "lle_run_success": [({}, float(code == 0))],
        "lle_run_exit_code": [({}, code)],
        "lle_run_timestamp_seconds": [({}, now)],
        LAST_SUCCESS: [({}, success)],
        "lle_run_seconds": [({}, now - started)],
    }
    if not is_readable:
        samples |= _earlier_version(earlier, store)
    elif published is not None:
        samples["lle_published"] = [({"version": published.version}, 1)]
        samples["lle_published_timestamp_seconds"] = [({}, datetime.fromisoformat(published.when).timestamp())]
    if "lle_published" in samples:
        samples["lle_run_unchanged"] = [({}, float(result is not None and result.unchanged))]
    if result is not None:
        samples |= _of_result(Metrics.read(result.metrics), result.computed, result.reused)
    return {
        name: labelled
        for name, rows in samples.items()
        if (labelled := [({**base, **labels}, float(value)) for labels, value in rows if value is not None])
    }


def _of_result(metrics: Metrics, computed: dict[str, int], reused: dict[str, int]) -> dict[str, Sequence[Measured]]:
    """Samples from the metrics; missing values give no sample."""
    residuals = [value for row in metrics.residuals or [] for value in row if math.isfinite(value)]
    aligned = metrics.alignment["components"] if metrics.alignment else None
    moved = [({"component": str(one["component"])}, one["residual_after"]) for one in aligned or []]
    outside = [finding for finding in metrics.findings or [] if finding["level"] != "note"]
    recall = metrics.recall
    bounds = {} if recall is None else {name: recall[name] for name in ("value", "low", "high")}
    return {
        "lle_rows": [({"kind": "input"}, metrics.n_input or None), ({"kind": "points"}, metrics.n_points)],
        "lle_blocks": [({"kind": "computed"}, sum(computed.values())), ({"kind": "reused"}, sum(reused.values()))],
        "lle_recall": [({"bound": name}, value) for name, value in bounds.items()],
        "lle_residual_max": [({}, max(residuals, default=None))],
        "lle_converged": [({}, metrics.solver["converged"] if metrics.solver else None)],
        "lle_alignment_rows": [({}, None if aligned is None else sum(one["rows_shared"] for one in aligned))],
        "lle_alignment_residual": moved,
        "lle_warnings": [({}, len(outside))],
        "lle_stage_seconds": [({"stage": stage}, value) for stage, value in sorted(metrics.seconds.items())],
        "lle_stage_peak_bytes": [({"stage": stage}, value) for stage, value in sorted(metrics.peak_bytes.items())],
    }


def _earlier_samples(path: str) -> dict[str, list[Sample]]:
    """The samples of the existing file by name; empty if it cannot be read."""
    from prometheus_client.parser import text_string_to_metric_families

    with contextlib.suppress(OSError, ValueError):
        families = text_string_to_metric_families(Path(path).read_text(encoding="utf-8"))
        return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}
    return {}


def _earlier_version(earlier: dict[str, list[Sample]], store: str) -> dict[str, list[Sample]]:
    """The published version of this store in the existing file, for a store that cannot be read now."""
    names = ("lle_published", "lle_published_timestamp_seconds")
    rows = {name: [row for row in earlier.get(name, ()) if row[0].get("store") == store] for name in names}
    return rows if all(rows.values()) else {}


def check_place(path: str) -> None:
    folder = Path(path).absolute().parent
    if not path.endswith(".prom"):
        raise ConfigError(f"output.prometheus: {path}: the textfile collector reads names that end in .prom")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"output.prometheus: {path}: the folder {folder} does not exist or cannot be written")

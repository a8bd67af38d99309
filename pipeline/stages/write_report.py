"""The report of a run: metrics.json, the pictures, and a page that opens offline. It depends only on the store.

Matplotlib is imported only by the functions that draw, because its import would slow down every command and process.
"""

import time
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from ..config.models import Config
from ..config.yaml_io import to_yaml
from ..core.arrays import Int64
from ..core.machine import peak_bytes
from ..core.methods import METHODS
from ..engine import checkpoint, current_config, disk_costs, task_costs
from ..engine.plan import Layout, Steps
from ..engine.step import WHOLE_DATA, Json, Report, Resource, Step, Work, task
from ..inputs.row_filter import even_sample
from ..linalg.reg_step import STAGES, STEP, describe_reg
from ..report import collect_metrics, findings
from ..report.findings import with_findings
from ..report.metrics import Metrics, Stopped
from ..report.number_format import data_name
from ..storage import array_specs
from ..storage.run_group import FIT
from ..storage.store import Store, fitted_store, has_fit
from .ingest_ids import stored_ids
from .input_columns import exported_name
from .report_columns import color_column, label_name, page_columns, rows_with_place

if TYPE_CHECKING:
    from ..report.page_pictures import PagePictures

DRAWN_ROWS, ALL_ROWS = 4_000_000, 10_000_000
"""Rows that pictures show, an even sample of all rows, if the run has placed rows or more than ALL_ROWS rows."""


def steps(config: Config, layout: Layout) -> Steps:
    """write; it is repeated whenever a step has computed something or the config has changed."""
    m = config.eigensolver.n_components
    drawn = layout.n_input
    if config.input.fit_sample is not None or drawn > ALL_ROWS:
        drawn = min(drawn, DRAWN_ROWS)
    row = layout.n_features_input * np.dtype(layout.dtype).itemsize
    n_bytes = task_costs.TASK_BYTES + task_costs.LIBRARY_BYTES + drawn * (48 * m + 160)
    n_bytes += 2 * layout.block_points * row  # a block of input rows, for images
    if config.input.fit_sample is None:
        n_bytes += 40 * (layout.n_input - drawn)  # the errors of all points in input order
    n_bytes += min(640 * drawn, 2**28)  # columns of the input, on the page of the explorer
    yield from Step(
        "write_report.write",
        task(write_report, pictures=config.output.report),
        1,
        n_bytes,
        bundles={"report": disk_costs.report(n=layout.n_input, m=m, d=layout.n_features_input)},
        version=7,
        input_state={"store": config.output.store},
        runs_on=WHOLE_DATA,
        is_measurement=True,
        depends_on_records=True,
        work=Work(0.8 + 4e-6 * min(drawn, 1_000_000) if config.output.report else 0.01),
    )
    return layout


def write_report(
    store: Store, block_index: int, pictures: Resource[bool] = True, stopped: Stopped | None = None
) -> Report:
    """Write report/metrics.json and, with `pictures`, the pictures, index.html and explore.html.

    `stopped` is the stage of an unfinished run (`jobs.report`); None for the report of a finished run.
    """
    started = time.perf_counter()
    collected, config = gather_metrics(store, stopped=stopped), store.attributes()["config"]
    page_pictures = None
    if pictures and current_config.embedding_record(store) is not None:
        page_pictures = draw(store, config, collected)
        store.objects.put("report/explore.html", explore(store, config, collected))
    record = checkpoint.step_record(store, "write_report.write")
    ended = datetime.fromtimestamp(time.time() if record is None else record.begun, UTC).isoformat(timespec="seconds")
    collected = replace(
        collected,
        picture=None if page_pictures is None else "report/embedding.png",
        finished=ended if stopped is None else None,
        seconds={**collected.seconds, "write_report": round(time.perf_counter() - started, 3)},
        peak_bytes={**collected.peak_bytes, "write_report": peak_bytes()},
        blocks={**collected.blocks, "write_report": 1},
    )
    if pictures:
        from ..report.page import render_page

        page = render_page(collected, config, to_yaml(config), page_pictures, describe_arrays(store))
        store.objects.put("report/index.html", page.encode())
    store.put_metrics(vars(collected))
    current_config.metrics_written(store)
    return Report()


def write_metrics(store: Store, seconds: float, finished_steps: Collection[str], reason: str) -> None:
    """Write metrics.json of a run that ended before its report, from the finished steps; delete an earlier report."""
    checkpoint.delete_step_record(store, "write_report.write")
    store.objects.delete("report")
    collected = gather_metrics(store, finished_steps, {"stage": None, "running": False, "reason": reason})
    store.put_metrics({**vars(collected), "seconds_of_this_run": round(seconds, 3)})
    current_config.metrics_written(store)


def gather_metrics(store: Store, among: Collection[str] | None = None, stopped: Stopped | None = None) -> Metrics:
    """All metrics of the finished steps of the store's config, or of those in `among`, with what was found."""
    attributes, collected = store.attributes(), _collect(store, among)
    if has_fit(store) and (fitted := fitted_store(store)).is_run():
        reports, n_input = checkpoint.read_reports(store, _steps(store, among)), attributes[FIT]["n_input"]
        collected = collect_metrics.with_placed_rows(_collect(fitted), collected, n_input, reports)
    collected = replace(collected, stopped=stopped, versions=attributes["versions"])
    of_columns = findings.of_columns(attributes.get("columns"))
    return with_findings(collected, [*findings.find(collected, attributes["config"]), *of_columns])


def _steps(store: Store, among: Collection[str] | None) -> dict[str, checkpoint.StepRecord]:
    """Records of the steps that belong to the store's config; only those in `among`, if given."""
    current = current_config.current_steps(store)
    return {key: record for key, record in current.items() if among is None or key in among}


def _collect(store: Store, among: Collection[str] | None = None) -> Metrics:
    """The metrics of one store, without findings."""
    attributes = store.attributes()
    steps, config, n_features = _steps(store, among), attributes["config"], None
    arrays = {name for record in steps.values() for name in record.without_deleted().arrays}
    n_input = store.array(array_specs.RAW.name).shape[0] if array_specs.RAW.name in arrays else 0
    if array_specs.POINTS.name in arrays:
        n_features = store.array(array_specs.POINTS.name).shape[1]
    reports = checkpoint.read_reports(store, steps)
    chosen = next((reports[f"{stage}.{STEP}"][0].report for stage in STAGES if reports.get(f"{stage}.{STEP}")), None)
    reg = describe_reg(config["method"], config["weights"]["reg"], chosen)
    columns = attributes.get("columns") or {}
    labels = reports.get("ingest.read_labels")
    label = label_name(attributes, labels[0].report["kind"]) if labels else None
    names = columns.get("features")
    collected = collect_metrics.collect(reports, steps, n_input, n_features, names)
    return replace(
        collected,
        method=config["method"],
        reg=reg,
        features=names,
        label=columns.get("label") or label,
        id=columns.get("id"),
        columns_left_out=columns.get("left_out"),
        version=attributes.get("version"),
        min_recall=config["neighbors"]["min_recall"],
    )


def _shown_rows(store: Store, limit: int) -> Int64:
    """The input rows that are drawn: all, or an even sample of at most `limit` rows."""
    n_rows = store.array(array_specs.EMBEDDING.name).shape[0]
    return even_sample(n_rows, limit if has_fit(store) or n_rows > ALL_ROWS else n_rows)


def explore(store: Store, config: dict[str, object], collected: Metrics) -> bytes:
    from ..report import explore as explorer
    from .report_images import page_images  # matplotlib

    rows = _shown_rows(store, explorer.MAX_POINTS)
    n_rows, shown = store.array(array_specs.COMPONENT.name).shape[0], rows_with_place(store, rows)
    n_shown = len(shown) if len(rows) == n_rows else n_rows - (collected.invalid_dropped or 0)
    sample = shown[even_sample(len(shown), explorer.MAX_POINTS)]
    ids = stored_ids(store)
    texts = None if ids is None else (exported_name(ids.name), ids.gather(sample))
    n_of_input = 0
    if n_rows <= explorer.MAX_POINTS:
        n_of_input = min(explorer.MAX_INPUT_COLUMNS, explorer.MAX_INPUT_VALUES // max(1, len(sample)))
    title, columns = figure_title(config, collected), list(page_columns(store, sample, n_of_input=n_of_input))
    page = explorer.ExplorerPage(title, sample, columns, n_rows, n_shown, texts, page_images(store, sample))
    return explorer.render_explorer(page)


def figure_title(config: Json, collected: Metrics) -> str:
    sizes = collected.list_sizes
    k = f", k = {sizes['least']} to {sizes['most']}" if sizes else f", k = {config['neighbors']['n_neighbors']}"
    if collected.method == "pca":
        k = ""
    placed = f", {collected.fit_sample['rows_placed']:,} rows placed" if collected.fit_sample else ""
    # without points, the record of its step is damaged
    points = "" if collected.n_points is None else f" of {collected.n_points:,} points"
    name = data_name(config["input"])
    return f"{f'{name}: ' if name else ''}{METHODS[collected.method].title}{points}{k}{placed}"


def draw(store: Store, config: dict[str, object], collected: Metrics) -> "PagePictures":
    """Write the PNG files and return the pictures of the page. Labels of the input, if any, colour the embedding."""
    from ..report.charts import draw_spectrum
    from ..report.embedding_figure import draw_embedding
    from ..report.figure_style import DPI
    from ..report.page_pictures import PagePicture, draw_page_pictures

    rows = _shown_rows(store, DRAWN_ROWS)
    embedding = store.gather(array_specs.EMBEDDING.name, rows)
    component = store.gather(array_specs.COMPONENT.name, rows)
    color = color_column(store, rows)
    eigenvalues = np.array(collected.eigenvalues, np.float64)
    residuals = np.array(collected.residuals, np.float64)
    floor = (collected.solver or {}).get("rounding_floor")
    quantity = "variance" if collected.method == "pca" else "eigenvalue of M"
    spectrum = draw_spectrum(eigenvalues, residuals, floor, quantity)
    files = {
        "embedding": draw_embedding(embedding, component, color, figure_title(config, collected)),
        "spectrum": spectrum.light,
    }
    for name, data in files.items():
        store.objects.put(f"report/{name}.png", data)
    caption, alternative = "Eigenvalues of M, without zero eigenvalues.", "Eigenvalues on a log axis, ascending."
    if collected.method == "pca":
        caption, alternative = "Variances of the coordinates.", "Variances on a log axis, descending."
    drawn = draw_page_pictures(embedding, component, color)
    return drawn._replace(spectrum=PagePicture(spectrum, caption, alternative, dpi=DPI))


def describe_arrays(store: Store) -> list[dict[str, object]]:
    """Name, shape, dtype, unit and meaning of every array in the store that belongs to its config."""
    rows: list[dict[str, object]] = []
    standard = store.attributes()["config"]["preprocess"]["scale"] == "standard"
    for spec in array_specs.ARRAYS:
        if current_config.has_array(store, spec.name):
            array = store.array(spec.name)
            unit = spec.unit.replace("input units", "standardised units") if standard else spec.unit
            own = {"name": spec.name, "unit": unit, "meaning": spec.meaning}
            rows.append({**own, "shape": array.shape, "dtype": str(array.dtype)})
    return rows

"""The report of a run: metrics.json, the pictures, and a page that opens offline. A function of the store alone.

Matplotlib is imported where something is drawn: every command and process would wait for it otherwise.
"""

import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.models import Config, to_yaml
from ..core.machine import peak_bytes
from ..engine import checkpoint, current_config, disk_costs, task_costs
from ..engine.plan import WHOLE_DATA, Decides, Layout, Report, Runs, Step, Steps, Writes
from ..linalg.reg_choice import STAGES, STEP, describe_reg
from ..report import metrics
from ..storage import array_specs
from ..storage.store import Store
from .report_columns import color_source, page_columns

if TYPE_CHECKING:
    from ..report.page_pictures import PagePictures

TITLES = {
    "lle": "LLE", "modified": "Modified LLE", "hessian": "Hessian eigenmap", "ltsa": "LTSA",
    "laplacian": "Laplacian eigenmap", "pca": "PCA",
}  # fmt: skip


def steps(config: Config, layout: Layout) -> Steps:
    """write, anew whenever a step has computed something or the config has changed."""
    m = config.eigensolver.n_components
    yield Step(
        "write_report",
        "write",
        write_report,
        1,
        Decides({}, {"store": config.output.store}, version=3, shows_records=True),
        Runs(
            write_report_bytes(rows=layout.n_input, m=m), place=WHOLE_DATA, resources={"pictures": config.output.report}
        ),
        Writes(bundles=("report",), bundle_bytes=disk_costs.report(n=layout.n_input, m=m)),
        feeds=False,
    )
    return layout


def write_report(store: Store, block_index: int, pictures: bool = True) -> Report:
    """Write report/metrics.json and, if wanted, the pictures, index.html and explore.html."""
    started = time.perf_counter()
    found = gather_metrics(store)
    config = store.attributes()["config"]
    drawn = None
    if pictures and current_config.embedding_record(store) is not None:
        drawn = draw(store, config, found)
        store.objects.put("report/explore.html", explore(store, config, found))
    found["picture"] = None if drawn is None else "report/embedding.png"
    record = checkpoint.step_record(store, "write_report", "write") or {"begun": time.time()}
    found["finished"] = datetime.fromtimestamp(record["begun"], UTC).isoformat(timespec="seconds")
    found["peak_bytes"]["write_report"], found["blocks"]["write_report"] = peak_bytes(), 1
    found["seconds"]["write_report"] = round(time.perf_counter() - started, 3)
    if pictures:
        from ..report.page import render_page  # noqa: PLC0415

        page = render_page(found, to_yaml(config), drawn, describe_arrays(store))
        store.objects.put("report/index.html", page.encode())
    store.put_json("report/metrics.json", found)
    current_config.metrics_written(store)
    return {}


def write_metrics(store: Store, seconds: float, done: Collection[tuple[str, str]]) -> None:
    """metrics.json of a run that ended before its report: what the steps done tell, and no report of an earlier run."""
    checkpoint.forget_step(store, "write_report", "write")
    store.objects.delete("report")
    store.put_json("report/metrics.json", {**gather_metrics(store, done), "seconds_of_this_run": round(seconds, 3)})
    current_config.metrics_written(store)


def gather_metrics(store: Store, among: Collection[tuple[str, str]] | None = None) -> dict[str, Any]:
    """All metrics that the markers of the steps of the store's config tell, or of some of them, with warnings."""
    attributes = store.attributes()
    n_input, n_features = 0, None
    current = current_config.current_steps(store)
    arrays = current_config.current_arrays(store, among)
    if array_specs.RAW.name in arrays:
        n_input = store.array(array_specs.RAW.name).shape[0]
    if array_specs.POINTS.name in arrays:
        n_features = store.array(array_specs.POINTS.name).shape[1]
    reports = {key: done for key, done in checkpoint.read_reports(store).items()
               if key in current and (among is None or key in among)}  # fmt: skip
    found = metrics.collect(reports, current, n_input, n_features)
    found["method"] = attributes["config"]["method"]
    chosen = next((reports[stage, STEP][0].report for stage in STAGES if reports.get((stage, STEP))), None)
    found["reg"] = describe_reg(found["method"], attributes["config"]["weights"]["reg"], chosen)
    found |= metrics.column_metrics(attributes.get("columns"))
    found["version"] = attributes.get("version")
    found["min_recall"] = attributes["config"]["neighbors"]["min_recall"]
    warnings = [*metrics.warnings_of_columns(attributes.get("columns")), *metrics.warnings(found)]
    return {**found, "warnings": warnings, "versions": attributes["versions"]}


def explore(store: Store, config: dict[str, Any], found: dict[str, Any]) -> bytes:
    """The explorer's page of the embedding that the store holds."""
    from ..report.explore import ExplorerPage, render_explorer, sample_rows  # noqa: PLC0415

    component = store.read_all(array_specs.COMPONENT.name)
    shown = np.isfinite(store.read_all(array_specs.EMBEDDING.name)).all(axis=1)
    if component.max(initial=-1) > 0:
        shown &= component >= 0  # of placed rows (-2) it is not recorded whose component's coordinates they have
    rows = np.flatnonzero(shown)
    sample = sample_rows(rows)
    page = ExplorerPage(figure_title(config, found), sample, page_columns(store, sample), len(component), len(rows))
    return render_explorer(page)


def figure_title(config: dict[str, Any], found: dict[str, Any]) -> str:
    sizes = found["list_sizes"]
    k = f"{sizes['least']} to {sizes['most']}" if sizes else config["neighbors"]["n_neighbors"]
    return f"{TITLES[found['method']]} of {found['n_points']:,} points, k = {k}"


def draw(store: Store, config: dict[str, Any], found: dict[str, Any]) -> "PagePictures":
    """Write the PNG files; returns the pictures of the page. The labels of the input, if any, colour the embedding."""
    from ..report.charts import draw_spectrum, draw_timings  # noqa: PLC0415
    from ..report.embedding_figure import draw_embedding  # noqa: PLC0415
    from ..report.page_pictures import draw_page_pictures  # noqa: PLC0415

    embedding = store.read_all(array_specs.EMBEDDING.name)
    component = store.read_all(array_specs.COMPONENT.name)
    color = color_source(store)
    eigenvalues = np.array(found["eigenvalues"], np.float64)
    residuals = np.array(found["residuals"], np.float64)
    floor = (found["solver"] or {}).get("rounding_floor")
    quantity = "variance" if found["method"] == "pca" else "eigenvalue of M"
    spectrum = draw_spectrum(eigenvalues, residuals, floor, quantity)
    files = {
        "embedding": draw_embedding(embedding, component, color, figure_title(config, found)),
        "spectrum": spectrum.light,
        "timings": draw_timings(found["seconds"]),
    }
    for name, data in files.items():
        store.objects.put(f"report/{name}.png", data)
    return draw_page_pictures(embedding, component, color)._replace(spectrum=spectrum)


def describe_arrays(store: Store) -> list[dict[str, Any]]:
    """Name, shape, dtype, unit and meaning of every array of the store's config that it holds."""
    rows: list[dict[str, Any]] = []
    current = current_config.current_arrays(store)
    standard = store.attributes()["config"]["preprocess"]["scale"] == "standard"
    for spec in array_specs.ARRAYS:
        if spec.name in current and store.has_array(spec.name):
            array = store.array(spec.name)
            unit = spec.unit.replace("input units", "standardised units") if standard else spec.unit
            rows.append({"name": spec.name, "shape": array.shape, "dtype": str(array.dtype), "unit": unit,
                         "meaning": spec.meaning})  # fmt: skip
    return rows


# --- bytes of a task (engine/task_costs.py says what they count)


def write_report_bytes(*, rows: int, m: int) -> int:
    return task_costs.TASK_BYTES + task_costs.LIBRARY_BYTES + rows * (48 * m + 160)

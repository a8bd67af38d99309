"""The report of a run that has stopped, and the verdict of a run in its output, its metrics and its page."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.engine.checkpoint import step_record
from lle.storage.store import Store
from tests.support.commands import FEW, lle, npy_config, refused, write_config

CURVE = {"kind": "synthetic", "name": "s_curve", "n_points": 300}


@pytest.fixture
def metrics_of(tmp_path):
    return lambda: json.loads((tmp_path / "run.zarr/report/metrics.json").read_text())


@pytest.fixture
def run_until(monkeypatch):
    """`run_until(stage, function, config, ...)`: the command, interrupted in one step's function."""

    def interrupted(*arguments, **parameters):
        raise KeyboardInterrupt

    def run(stage, function, *arguments):
        with monkeypatch.context() as stopping:
            stopping.setattr(f"lle.stages.{stage}.{function}", interrupted)
            assert CliRunner().invoke(app, ["run", *map(str, arguments)]).exit_code != 0

    return run


@pytest.mark.parametrize(("method", "caption"), [("lle", "Eigenvalues of M"), ("pca", "Variances of the coordinates")])
def test_caption_of_the_spectrum_names_what_it_shows(tmp_path, method, caption):
    config = write_config(tmp_path, input=CURVE, output={"report": True})
    lle("run", config, "--set", f"method={method}")
    page = (tmp_path / "run.zarr/report/index.html").read_text()
    assert f"<figcaption>{caption}" in page
    assert ("neighbours reconstruct" in page) == (method == "lle")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "function", "state"),
    [("solve_embedding", "solve_components", "No row has"), ("measure_quality", "score_sample", "Rows have")],
)
def test_stopped_run_is_reported_as_stopped(tmp_path, run_until, metrics_of, stage, function, state):
    config = write_config(tmp_path, input=CURVE, **FEW)
    run_until(stage, function, config)
    lle("report", tmp_path / "run.zarr")
    page = (tmp_path / "run.zarr/report/index.html").read_text()
    assert metrics_of()["verdict"].startswith(f"The run has not finished: it stopped in {stage}. {state} coordinates")
    assert metrics_of()["verdict"] in page
    assert "Every row has coordinates; bound: all rows." not in page or stage == "measure_quality"
    for phrase in ("Finished", ">no warnings"):
        assert phrase not in page
    lle("run", config)
    assert metrics_of()["stopped"] is None
    lle("report", tmp_path / "run.zarr")
    assert metrics_of()["stopped"] is None
    assert "Finished" in (tmp_path / "run.zarr/report/index.html").read_text()


def test_stopped_run_of_a_changed_config_is_not_finished(tmp_path, run_until, metrics_of):
    config = write_config(tmp_path, input=CURVE, **FEW)
    lle("run", config)
    run_until("mend_graph", "analyse_graph", config, "--set", "neighbors.n_neighbors=9")
    lle("report", tmp_path / "run.zarr")
    assert "stopped in mend_graph. No row has coordinates yet" in metrics_of()["verdict"]


def test_report_of_a_failed_config_is_replaced_by_the_next_run(tmp_path, metrics_of):
    """The run of the earlier config reuses all its blocks, but not the report, which is of the other config."""
    points = np.random.default_rng(6).normal(size=(60, 3))
    points[7] = np.nan
    config = npy_config(tmp_path, points, preprocess={"invalid": "drop"}, **FEW)
    lle("run", config)
    refused(2, "run", config, "--set", "preprocess.invalid=error")
    lle("report", tmp_path / "run.zarr")
    assert metrics_of()["n_points"] is None
    lle("run", config)
    assert metrics_of()["n_points"] == 59


def test_report_keeps_the_record_of_a_report_that_is_being_written(tmp_path, metrics_of):
    config = npy_config(tmp_path, np.random.default_rng(7).normal(size=(60, 3)), **FEW)
    lle("run", config)
    [marker] = (tmp_path / "run.zarr/_done/write_report").glob("*")
    marker.unlink()
    lle("report", tmp_path / "run.zarr")
    assert "stopped in write_report" in metrics_of()["verdict"]
    assert step_record(Store(str(tmp_path / "run.zarr")), "write_report.write") is not None


def test_missed_bound_is_the_verdict(tmp_path, metrics_of):
    rng = np.random.default_rng(3)
    points = np.concatenate([rng.random((150, 3)), rng.random((100, 3)) + 50])
    message = refused(3, "run", npy_config(tmp_path, points, graph={"components": "error"}))
    message, _, end = message.rpartition("; ")
    assert end == "the run stopped here, before the embedding"
    verdict = f"The run stopped before its end. {message}"
    assert metrics_of()["verdict"] == verdict
    lle("report", tmp_path / "run.zarr")
    assert metrics_of()["verdict"] == verdict


@pytest.mark.slow
def test_verdict_is_printed_first_and_stored(tmp_path, metrics_of):
    config = write_config(tmp_path, input=CURVE, output={"report": True}, **FEW)
    printed = CliRunner().invoke(app, ["run", str(config)]).stdout
    message = metrics_of()["verdict"]
    assert message.startswith("Neighbours in the embedding are neighbours in the data (trustworthiness 0.9")
    assert printed.startswith(message)
    in_html = re.sub("`(.*?)`", r"<code>\1</code>", message)
    assert f"{in_html}</p>" in (tmp_path / "run.zarr/report/index.html").read_text()


def test_verdict_counts_neighbors_of_the_named_label(tmp_path, metrics_of):
    """Three classes in nine dimensions, mixed by an embedding with one coordinate."""
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(300, 9)) + 1.2 * np.eye(9)[np.arange(300) % 3] * 3
    lines = [",".join([*(f"x{j}" for j in range(9)), "species"])]
    lines += [",".join([*map(repr, map(float, row)), f"s{i % 3}"]) for i, row in enumerate(rows)]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    source = {"kind": "csv", "path": str(tmp_path / "x.csv"), "label": "species"}
    quality = {**FEW, "quality": {"sample": 300}}
    metrics = lle("run", write_config(tmp_path, input=source, eigensolver={"n_components": 1}, **quality))["metrics"]
    before, after = (metrics[key]["value"] for key in ("neighborhood_hit_input", "neighborhood_hit"))
    assert after < before - 0.1
    assert metrics["verdict"].startswith(
        f"Neighbours of the same species fell from {100 * before:.3g} % in the data to {100 * after:.3g} %"
    )
    assert "1 coordinate is too few" in metrics["verdict"]


@pytest.mark.slow
def test_report_without_the_record_of_a_step_shows_the_others(tmp_path):
    lle("run", write_config(tmp_path, input=CURVE, **FEW))
    (tmp_path / "run.zarr/_run/steps/ingest.merge_duplicates.json").unlink()
    lle("report", tmp_path / "run.zarr")
    assert "of 300 points" not in (tmp_path / "run.zarr/report/index.html").read_text()

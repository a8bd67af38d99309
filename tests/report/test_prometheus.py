"""The file for Prometheus: read back by Prometheus' own parser, after successful and failed runs."""

import contextlib
import time

import pytest
from prometheus_client import parser
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.core.errors import BoundsNotMet, ConfigError, Interrupted, LleError, StoreError
from lle.engine.plan import RunResult
from lle.report.prometheus import HELP, LAST_SUCCESS, Published, reported
from tests.support.commands import lle, write_config


def result_of(metrics=(), computed=(), reused=(), unchanged=False) -> RunResult:
    return RunResult("runs/x.zarr", dict(metrics), dict(computed), dict(reused), 1.0, unchanged=unchanged)


METRICS = {
    "n_input": 101,
    "n_points": 97,
    "recall": {"value": 0.93, "low": 0.91, "high": 0.95},
    "findings": [{"level": "grave"}, {"level": "minor"}, {"level": "minor"}, {"level": "note"}],
    "residuals": [[1e-9, 3e-9], [2e-9]],
    "solver": {"converged": True},
    "seconds": {"ingest": 1.5, "solve": 2.5},
    "peak_bytes": {"ingest": 7},
}


def read(path) -> dict[tuple, float]:
    """Value by name and labels but for the store; every sample must carry that."""
    samples = {}
    for family in parser.text_string_to_metric_families(path.read_text()):
        assert family.documentation == HELP[family.name]
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("store")
            samples[sample.name, *sorted(labels.values())] = sample.value
    return samples


def report(path, result=None, error=None) -> dict[tuple, float]:
    try:
        with reported(str(path), "runs/x.zarr") as report_result:
            if error is not None:
                raise error
            report_result(result)
    except (LleError, Interrupted):
        pass
    return read(path)


class TestFile:
    def test_file_has_the_values_of_the_metrics(self, tmp_path):
        samples = report(tmp_path / "lle.prom", result_of(METRICS, {"ingest": 3, "solve": 2}, {"ingest": 11}))
        expected = {
            ("lle_run_success",): 1,
            ("lle_run_exit_code",): 0,
            ("lle_rows", "input"): 101,
            ("lle_rows", "points"): 97,
            ("lle_blocks", "computed"): 5,
            ("lle_blocks", "reused"): 11,
            ("lle_recall", "value"): 0.93,
            ("lle_recall", "low"): 0.91,
            ("lle_recall", "high"): 0.95,
            ("lle_residual_max",): 3e-9,
            ("lle_converged",): 1,
            ("lle_warnings",): 3,
            ("lle_stage_seconds", "ingest"): 1.5,
            ("lle_stage_seconds", "solve"): 2.5,
            ("lle_stage_peak_bytes", "ingest"): 7,
        }
        assert {key: samples[key] for key in expected} == expected
        assert samples["lle_run_timestamp_seconds",] == samples[LAST_SUCCESS,] == pytest.approx(time.time(), abs=60)

    @pytest.mark.parametrize(
        ("error", "code"), [(ConfigError("a"), 2), (BoundsNotMet("b"), 3), (LleError("c"), 1), (Interrupted(15), 143)]
    )
    def test_a_failure_keeps_the_time_of_the_last_success(self, tmp_path, error, code):
        path = tmp_path / "lle.prom"
        before = report(path, result_of(METRICS))
        after = report(path, error=error)
        assert (after["lle_run_success",], after["lle_run_exit_code",]) == (0, code)
        assert after[LAST_SUCCESS,] == before[LAST_SUCCESS,] < after["lle_run_timestamp_seconds",]
        assert report(path, error=error)[LAST_SUCCESS,] == before[LAST_SUCCESS,]
        assert ("lle_rows", "input") not in after

    def test_a_failure_with_another_store_has_no_time_of_a_success(self, tmp_path):
        path = tmp_path / "lle.prom"
        report(path, result_of(METRICS))
        with pytest.raises(LleError), reported(str(path), "runs/other.zarr"):
            raise LleError("a")
        assert (LAST_SUCCESS,) not in read(path)

    def test_missed_bound_shows_the_value_that_was_reached(self, tmp_path):
        missed = BoundsNotMet("the recall is too low")
        missed.result = result_of(METRICS, {"ingest": 3})
        samples = report(tmp_path / "lle.prom", error=missed)
        assert (samples["lle_run_exit_code",], samples["lle_recall", "value"], samples["lle_rows", "input"]) == (
            3,
            0.93,
            101,
        )

    def test_unexpected_error_has_exit_code_one(self, tmp_path):
        path = tmp_path / "lle.prom"
        with pytest.raises(ZeroDivisionError), reported(str(path), "s"):
            raise ZeroDivisionError
        assert read(path)["lle_run_exit_code",] == 1
        assert (LAST_SUCCESS,) not in read(path)

    def test_unknown_values_have_no_samples(self, tmp_path):
        samples = report(tmp_path / "lle.prom", result_of({"recall": None, "residuals": None, "n_points": None}))
        assert {key[0] for key in samples} == {
            "lle_run_success",
            "lle_run_exit_code",
            "lle_run_timestamp_seconds",
            LAST_SUCCESS,
            "lle_run_seconds",
            "lle_blocks",
            "lle_warnings",
        }

    def test_values_of_an_alignment(self, tmp_path):
        components = [
            {"component": 0, "rows_shared": 41, "residual_after": 0.02},
            {"component": 1, "rows_shared": 3, "residual_after": None},
        ]
        samples = report(tmp_path / "lle.prom", result_of({**METRICS, "alignment": {"components": components}}))
        assert {key: value for key, value in samples.items() if "alignment" in key[0]} == {
            ("lle_alignment_rows",): 44,
            ("lle_alignment_residual", "0"): 0.02,
        }

    def test_published_version_is_kept_if_the_store_is_unreachable(self, tmp_path):
        path = tmp_path / "lle.prom"

        def up():
            return Published("20260102T030405Z-9f3e", "2026-01-02T03:05:00+00:00")

        def down():
            raise StoreError("the store is down")

        def samples_of_run(published, error=None, store='runs/"x".zarr') -> dict:
            with contextlib.suppress(LleError), reported(str(path), store, published) as report_result:
                if error is not None:
                    raise error
                report_result(result_of(METRICS, unchanged=True))
            return read(path)

        good = samples_of_run(up)
        assert good["lle_run_unchanged",] == 1
        for _ in range(2):
            samples = samples_of_run(down, StoreError("refused"))
            for name in (("lle_published", "20260102T030405Z-9f3e"), ("lle_published_timestamp_seconds",)):
                assert samples[name] == good[name]
            assert samples["lle_run_unchanged",] == 0, "a run that failed has not found that nothing changed"
        assert ("lle_published_timestamp_seconds",) not in samples_of_run(down, StoreError("refused"), store="another")
        samples_of_run(up)
        assert ("lle_published_timestamp_seconds",) not in samples_of_run(lambda: None, StoreError("none is published"))

    @pytest.mark.parametrize(("name", "message"), [("nowhere/lle.prom", "does not exist"), ("lle.txt", "end in .prom")])
    def test_unwritable_file_is_detected_before_the_run(self, tmp_path, name, message):
        ran = []
        with pytest.raises(ConfigError, match=message), reported(str(tmp_path / name), "s"):
            ran.append(1)
        assert ran == []

    def test_folder_deleted_during_the_run_does_not_lose_the_result(self, tmp_path, capsys):
        folder = tmp_path / "later"
        folder.mkdir()
        with reported(str(folder / "lle.prom"), "s") as report_result:
            report_result(result_of())
            folder.rmdir()
        assert "could not be written" in capsys.readouterr().err


def test_file_after_a_run_and_after_a_refused_run(tmp_path):
    path = tmp_path / "lle.prom"
    config = write_config(
        tmp_path,
        input={"kind": "synthetic", "name": "swiss_roll", "n_points": 700, "seed": 3},
        output={"prometheus": str(path)},
    )
    metrics = lle("run", config)["metrics"]
    samples = read(path)
    assert samples["lle_rows", "points"] == metrics["n_points"] == 700
    assert samples["lle_residual_max",] == max(max(row) for row in metrics["residuals"])
    assert samples["lle_recall", "value"] == metrics["recall"]["value"]
    refused = CliRunner().invoke(app, ["run", str(config), "--json", "--set", "neighbors.n_neighbors=900"])
    assert refused.exit_code == 2
    assert read(path)["lle_run_exit_code",] == 2
    assert read(path)[LAST_SUCCESS,] == samples[LAST_SUCCESS,]

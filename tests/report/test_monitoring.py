"""Alert rules and dashboard of k8s/monitoring name only metrics, labels and values that a run writes."""

import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import yaml
from prometheus_client import parser

from lle.core.errors import BoundsNotMet, ConfigError, LleError
from lle.report.prometheus import HELP, Published, reported
from tests.support.paths import REPOSITORY

MONITORING = REPOSITORY / "k8s" / "monitoring"
RULES = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
SCRAPED = {"store", "instance", "job"}
"""Labels that every series has: ours, and those that Prometheus adds."""
METRICS = {
    "n_input": 90,
    "n_points": 88,
    "recall": {"value": 0.93, "low": 0.91, "high": 0.95},
    "warnings": [],
    "residuals": [[1e-9]],
    "solver": {"converged": True},
    "seconds": {"ingest": 1.5},
    "peak_bytes": {"ingest": 7},
    "alignment": {"components": [{"component": 0, "rows_shared": 41, "residual_after": 0.02}]},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, dict[str, set[str]]]:
    """Values of each label of each metric in the file of a complete run of a store with versions."""
    path = tmp_path_factory.mktemp("textfile") / "lle.prom"
    published = Published("v1", "2026-01-02T03:05:00+00:00")
    with reported(str(path), "runs/x.zarr", lambda: published) as report_result:
        report_result(SimpleNamespace(metrics=METRICS, computed={"ingest": 3}, reused={}, unchanged=False))
    labels: dict[str, dict[str, set[str]]] = {}
    for family in parser.text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            for label, value in sample.labels.items():
                labels.setdefault(family.name, {}).setdefault(label, set()).add(value)
    assert labels.keys() == HELP.keys()
    return labels


def expressions() -> list[tuple[str, str, str]]:
    """(where, PromQL, the text that may use labels of its result) of each rule and of each query of the dashboard."""
    rules = [(rule["alert"], rule["expr"], " ".join(rule["annotations"].values())) for rule in RULES]
    panels = [
        (panel["title"], target["expr"], target["legendFormat"].replace("{{", "{{ $labels."))
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ]
    return rules + panels


@pytest.mark.parametrize(("where", "promql", "text"), expressions())
def test_expressions_name_metrics_and_labels_that_a_run_writes(written, where, promql, text):
    series = re.findall(r"(lle_\w+)(?:\{([^}]*)\})?", promql)
    assert series, where
    for name, selector in series:
        assert name in written
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selector):
            assert label in written[name] | dict.fromkeys(SCRAPED)
            assert value == "$store" or value in written[name][label]
    used = set(re.findall(r"\$labels\.(\w+)", text))
    assert used <= SCRAPED.union(*(written[name] for name, _ in series))


def test_every_alert_states_what_happened_and_what_to_do():
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert "$labels.store" in rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


def test_panels_do_not_overlap_and_choose_data_source_and_store():
    cells = [
        (place["x"] + column, place["y"] + row)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for column in range(place["w"])
        for row in range(place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "store"}
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in DASHBOARD["panels"])
    assert "lle_run_success" in DASHBOARD["templating"]["list"][1]["query"]["query"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="NOT CHECKED by promtool: it is not installed")
class TestByPromtool:
    """Prometheus' own tool reads the rules and evaluates them on the files of runs."""

    @pytest.mark.parametrize(
        ("error", "metrics", "alert"),
        [
            (ConfigError("a"), {}, "LleWrongConfigOrInput"),
            (BoundsNotMet("b"), {}, "LleBoundMissed"),
            (LleError("c"), {}, "LleFailed"),
            (None, {"recall": {"value": 0.8, "low": 0.7, "high": 0.85}}, "LleLowRecall"),
            (
                None,
                {"alignment": {"components": [{"component": 0, "rows_shared": 4, "residual_after": 0.7}]}},
                "LleCoordinatesChanged",
            ),
            (None, {}, None),
        ],
    )
    def test_each_outcome_raises_its_alert_only(self, tmp_path, error, metrics, alert):
        with_values = SimpleNamespace(metrics={**METRICS, **metrics}, computed={}, reused={}, unchanged=False)
        path = tmp_path / "lle.prom"
        with reported(str(path), "s") as report_result:
            report_result(with_values)
        if error is not None:
            try:
                with reported(str(path), "s"):
                    raise error
            except LleError:
                pass
        series = [
            {"series": line.rpartition(" ")[0], "values": f"{line.rpartition(' ')[2]}x200"}
            for line in path.read_text().splitlines()
            if not line.startswith("#") and "timestamp" not in line
        ]
        names = [rule["alert"] for rule in RULES if rule["alert"] != "LleNeverSucceeded"]
        raised = [{"eval_time": "2h", "alertname": name, "exp_alerts": []} for name in names if name != alert]
        self.run_promtool(tmp_path, series, raised)
        if alert is not None:
            missing = [{"eval_time": "2h", "alertname": alert, "exp_alerts": []}]
            with pytest.raises(AssertionError, match=alert):
                self.run_promtool(tmp_path, series, missing)

    @pytest.mark.slow
    def test_late_and_missing_successes_and_lost_rows_raise_alerts(self, tmp_path):
        series = [
            {"series": 'lle_last_success_timestamp_seconds{store="s"}', "values": "0x3000"},
            {"series": 'lle_run_success{store="s"}', "values": "1x3000"},
            {"series": 'lle_run_success{store="new"}', "values": "0x3000"},
            {"series": 'lle_rows{store="s",kind="input"}', "values": "100x1500 80x1500"},
        ]
        at = {"31h": {"LleNoSuccess", "LleNeverSucceeded", "LleRowsLost"}, "20h": {"LleNeverSucceeded"}}
        for eval_time, alerts in at.items():
            for name in ("LleNoSuccess", "LleNeverSucceeded", "LleRowsLost"):
                absent = [{"eval_time": eval_time, "alertname": name, "exp_alerts": []}]
                if name not in alerts:
                    self.run_promtool(tmp_path, series, absent)
                    continue
                with pytest.raises(AssertionError, match=name):
                    self.run_promtool(tmp_path, series, absent)

    @staticmethod
    def run_promtool(folder, series, raised):
        """Raises AssertionError with promtool's words if other alerts are raised."""
        case = {"interval": "1m", "input_series": series, "alert_rule_test": raised}
        content = {"rule_files": [str(MONITORING / "alerts.yaml")], "evaluation_interval": "1m", "tests": [case]}
        (folder / "cases.yaml").write_text(yaml.safe_dump(content))
        command = ["promtool", "test", "rules", str(folder / "cases.yaml")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stdout + ended.stderr

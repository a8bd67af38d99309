"""The report page: complete, escaped, self-contained; measures that are missing are marked as not measured."""

import base64
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import Normalize

from lle.config.load import check_config, resolved
from lle.report import number_format, page
from lle.report.figure_style import class_colors, message_figure, to_pair
from lle.report.metrics import Metrics
from lle.report.page_pictures import PagePicture, PagePictures
from lle.report.page_tiles import Tile
from lle.report.page_tiles import headline as headline_of
from lle.report.point_colors import PLAIN, Paint

YAML = "method: lle\nneighbors: {n_neighbors: 12, min_recall: 0.9}\n"
SECTIONS = {"input": {"kind": "npy", "path": "x.npy"}, "output": {"store": "/data/my runs/roll.zarr/"}}
CONFIG = resolved(check_config(SECTIONS, "test"))
STAGES = ("ingest", "find_neighbors", "solve_embedding")
METRICS: dict[str, Any] = {
    "n_input": 300_000,
    "n_points": 299_876,
    "n_features": 3,
    "duplicates_merged": 24,
    "invalid_dropped": 0,
    "dropped": {"small_component": 100},
    "recall": {"value": 0.9963, "low": 0.9948, "high": 0.9974, "sample": 2000},
    "n_components_weak": 1,
    "component_sizes": [299_876],
    "closed_classes": 1,
    "closed_classes_left": 1,
    "closed_classes_embedded": {"components": 1, "classes": 1},
    "rows_placed": 0,
    "reverse_added": 0,
    "points_repaired": 0,
    "bridges_added": 0,
    "participation": [[181_570.3, 169_050.1]],
    "nnz_cost_matrix": 12_912_345,
    "component_points": [299_876],
    "solvers": [
        {
            "method": "factored",
            "reason": "LU of A fits",
            "factor_nnz": 31_200_001,
            "predicted_bytes": 3 * 2**29,
            "n_solves": 9,
            "converged": True,
            "rounding_floor": 2.2e-16,
        }
    ],
    "eigenvalues": [[3.7012e-13, 1.4893e-12]],
    "residuals": [[2.1e-11, 4.4e-11]],
    "reconstruction_error": 0.00231,
    "zero_trace_rows": 77,
    "trustworthiness": {"value": 0.9991, "low": 0.9989, "high": 0.9993},
    "continuity": {"value": 0.9984, "low": 0.998, "high": 0.9989},
    "kept_neighbors": {"value": 0.66, "low": 0.65, "high": 0.67, "sample": 2000, "n_neighbors": 12},
    "correlation_sum": {"value": 0.0124, "low": 0.012, "high": 0.0128, "sample": 2000},
    "redundancy": [0.0, 0.03],
    "intrinsic_dimension": {"value": 1.97, "low": 1.93, "high": 2.01, "sample": 2000, "n_neighbors": 12},
    "procrustes_error": {"value": 0.1931, "low": 0.1902, "high": 0.1967, "sample": 2000},
    "residual_variance": {"value": 0.4412, "low": 0.3104, "high": 0.5419, "sample": 2000, "sources": 50},
    "seconds": dict(zip(STAGES, (1.25, 70.0, 3725.0), strict=True)),
    "peak_bytes": dict(zip(STAGES, (2**20, 2**30, 3 * 2**30), strict=True)),
    "blocks": dict(zip(STAGES, (5, 6, 1), strict=True)),
    "warnings": [],
    "versions": {"numpy": "2.4.6", "lle-pipeline": "0.1.0"},
}
ARRAYS = [
    {"name": "points", "shape": (299_876, 3), "dtype": "float32", "unit": "input unit", "meaning": "internal order"},
    {"name": "embedding", "shape": [300_000, 2], "dtype": "float64", "unit": None, "meaning": "a < b & c"},
]
UNCONVERGED = [{"method": "multigrid", "converged": False, "rounding_floor": 2.2e-16}]
SOLVERS = [{"method": "factored", "converged": True, "rounding_floor": 2.2e-16}]
HITS = {"neighborhood_hit": {"value": 0.72}, "neighborhood_hit_input": {"value": 0.98}, "label": "species"}
ATTACK = "<script>alert('x')</script>&\"quoted\""


def headline(metrics: dict[str, Any], config: dict[str, Any] = CONFIG) -> list[Tile]:
    return headline_of(Metrics.read(metrics), config)


def html_of(
    metrics: dict[str, Any],
    drawn: PagePictures | None = None,
    arrays: Sequence[dict[str, Any]] = (),
    config: dict[str, Any] = CONFIG,
    yaml: str = YAML,
) -> str:
    return page.render_page(Metrics.read(metrics), config, yaml, drawn, arrays)


def text_of(metrics: dict[str, Any], drawn: PagePictures | None = None, arrays: Sequence[dict[str, Any]] = ()) -> str:
    return Reader(html_of(metrics, drawn, arrays)).text


class Reader(HTMLParser):
    """Collects tags, attributes and visible text; refuses tags that do not close."""

    VOID = frozenset({"meta", "img", "source", "br", "hr", "link"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def tile(metrics: dict[str, Any], label: str) -> Tile:
    (match,) = [tile for tile in headline({**METRICS, **metrics}, CONFIG) if tile.label == label]
    return match


def test_page_shows_the_numbers() -> None:
    text = text_of(METRICS, None, ARRAYS)
    expected = [
        "roll.zarr",
        "300,000 rows · 3 features · 12 neighbours · 2 coordinates",
        "no warnings",
        "299,876",
        "0.9963",
        "0.9948 to 0.9974",
        "3.7012e-13",
        "4.4e-11",
        "169,050",
        "56.4 %",
        "0.03",
        "1 min 10 s",
        "1 h 02 min",
        "3.0 GiB",
        "1.0 MiB",
        "factored",
        "LU of A fits",
        "31,200,001",
        "1.5 GiB",
        "12,912,345",
        "43.1 for each point",
        "0.00231",
        "77",
        "small component",
        "100",
        "0.033 %",
        "equal to an earlier row",
        "299,876 × 3",
        "input unit",
        "a < b & c",
        "0.9984",
        "0.0124",
        "numpy 2.4.6",
        "min_recall: 0.9",
    ]
    assert [word for word in expected if word not in text] == []
    assert "not measured" not in text


def test_page_of_a_run_without_quality_measures() -> None:
    reader = Reader(html_of({}))
    assert reader.text.count("not measured") > 20
    assert "no warnings, 8 of 8 not measured" in reader.text
    assert all(tile.state == "unknown" and tile.value == "not measured" for tile in headline({}))


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(METRICS))
def test_any_metric_may_be_missing(key: str) -> None:
    metrics = {name: value for name, value in METRICS.items() if name != key}
    text = text_of(metrics, None, ARRAYS)
    says_nothing = {"warnings", "n_features", "invalid_dropped", "component_points"}
    assert ("not measured" in text) == (key not in says_nothing)
    assert re.search(r"\bnan\b(?!, component)", text, re.IGNORECASE) is None


def pictures(n: int = 1, text: str = "", key: Paint = PLAIN) -> PagePictures:
    """Pictures whose caption, alternative text and remark are `text`."""
    pairs = [to_pair(message_figure(f"picture {i}", "")) for i in range(n)]
    drawn = [PagePicture(pair, text, text or f"Scatter plot {i}.") for i, pair in enumerate(pairs)]
    return PagePictures(drawn, key, text, PagePicture(to_pair(message_figure("spectrum", "")), text, "Eigenvalues."))


def test_key_has_the_numbers_of_classes() -> None:
    key = Paint("answer", ("yes, often", "no"), ("#0072b2", "#e69f00"))
    drawn = pictures(key=key)._replace(numbered=frozenset({0}))
    assert "answer #1 yes, often no" in text_of(METRICS, drawn, ARRAYS)


def test_page_is_self_contained() -> None:
    drawn = pictures(2)
    html = html_of(METRICS, drawn, ARRAYS)
    reader = Reader(html)
    assert "http" not in html
    assert not {"script", "link", "iframe", "object"} & set(reader.tags)
    assert "url(" not in html
    assert "@import" not in html
    addresses = [value for name, value in reader.attributes if name == "href"]
    assert [address for address in addresses if not address.startswith("#")] == ["explore.html"]
    assert {address[1:] for address in addresses if address.startswith("#")} <= {
        value for name, value in reader.attributes if name == "id"
    }
    sources = [value for name, value in reader.attributes if name in ("src", "srcset", "data")]
    shown = [*drawn.pictures, drawn.spectrum]
    expected = [png for picture in shown if picture for png in (picture.pair.dark, picture.pair.light)]
    embedded = [source.removeprefix("data:image/png;base64,") for source in sources]
    assert [base64.b64decode(source, validate=True) for source in embedded] == expected


def test_dark_pictures_are_for_dark_pages_only() -> None:
    html = html_of(METRICS, pictures()._replace(spectrum=None))
    dark, light = (base64.b64encode(png).decode() for png in reversed(pictures().pictures[0].pair))
    assert f'<source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">' in html
    assert f'<img src="data:image/png;base64,{light}"' in html
    assert light != dark


def test_pictures_have_texts_that_describe_them() -> None:
    reader = Reader(html_of(METRICS, pictures()))
    texts = [value for name, value in reader.attributes if name == "alt"]
    assert texts == ["Scatter plot 0.", "Eigenvalues."]


def test_key_names_the_classes_or_the_ends_of_the_scale() -> None:
    classes = Paint("species", ("ant", "bee"), ("#0080ff", "#ff0000"))
    html = html_of(METRICS, pictures(key=classes))
    assert "species ant bee" in Reader(html).text
    assert "--light: #0080ff; --dark: #0080ff" in html
    nine = Paint("species", ("i",), (class_colors(9)[8],))
    html = html_of(METRICS, pictures(key=nine))
    assert f"--light: {class_colors(9)[8]}; --dark: {class_colors(9, dark=True)[8]}" in html
    for ends, words in (((0.25, 8), "angle 0.25 8"), ((1e-5, 8), "angle 0 8"), ((1950, 10000), "angle 1950 10000")):
        scale = pictures(key=Paint("angle", norm=Normalize(*ends)))
        assert words in text_of(METRICS, scale)


def test_scrolling_areas_are_reachable_with_the_keyboard() -> None:
    aligned = {"component": 0, "rows_shared": 4, "residual_before": 1.0, "residual_after": 0.0, "size_ratio": 1.0}
    alignment = {"components": [aligned], "reason": "", "scale": "unit_covariance"}
    html = html_of({**METRICS, "alignment": alignment}, pictures(), ARRAYS)
    scrolling = re.findall(r'<(?:div class="scroll"|pre)[^>]*>', html)
    assert len(scrolling) >= 7
    for tag in scrolling:
        assert 'tabindex="0"' in tag
        assert 'role="region"' in tag
        assert re.search('aria-label="[^"]+"', tag)
    assert len(set(scrolling)) == len(scrolling)


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_has_contrast(theme: int) -> None:
    """At least 4.5 to 1, as the Web Content Accessibility Guidelines (AA) ask."""
    style = html_of(METRICS).split(":root {")[theme + 1].split("}")[0]
    colors = {name: value * 2 if len(value) == 3 else value for name, value in re.findall(r"--([\w-]+): #(\w+)", style)}
    for text in ("ink", "soft", "accent", "good", "note", "warning"):
        for ground in ("page", "card", "warning-card"):
            if (ground == "warning-card") == (text in ("good", "note")):
                continue
            high, low = sorted((luminance(f"#{colors[text]}"), luminance(f"#{colors[ground]}")), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


def test_everything_is_escaped() -> None:
    metrics = {
        **METRICS,
        "dropped": {ATTACK: 3},
        "solvers": [{"method": ATTACK, "reason": ATTACK, "converged": True}],
        "seconds": {ATTACK: 1.0},
        "warnings": [ATTACK],
        "versions": {ATTACK: ATTACK},
    }
    arrays = [dict.fromkeys(("name", "shape", "dtype", "unit", "meaning"), ATTACK)]
    drawn = pictures(1, ATTACK, Paint(ATTACK, (ATTACK,), ("#000000",)))
    html = html_of(metrics, drawn, arrays, {**CONFIG, "output": {"store": ATTACK}}, f"output: {{store: {ATTACK}}}\n")
    reader = Reader(html)
    assert "script" not in reader.tags
    assert "<script" not in html
    assert reader.text.count("<script>alert('x')</script>&") >= 14


def test_page_shows_time_and_version() -> None:
    metrics = {**METRICS, "finished": "2026-01-02T03:04:05+00:00", "version": "20260102T030405Z-9f3e"}
    text = text_of(metrics)
    assert "Version 20260102T030405Z-9f3e · finished 2026-01-02 03:04 UTC · published if" in text
    text = text_of({**metrics, "version": None})
    assert "Finished 2026-01-02 03:04 UTC" in text
    assert "published" not in text


def test_cost_of_the_report_is_not_shown() -> None:
    seconds = {**METRICS["seconds"], "write_report": 0.5}
    assert "write report 0.50 s 0.013 % – –" in text_of({**METRICS, "seconds": seconds})


def test_picture_with_a_remark_has_a_caption() -> None:
    drawn = pictures()._replace(spectrum=None)
    assert "figcaption>" not in html_of(METRICS, drawn)
    html = html_of(METRICS, pictures(1, "Look here."))
    assert "<figcaption>Look here.</figcaption>" in html


@pytest.mark.parametrize(
    ("metrics", "are_open"),
    [
        ({"dropped": {}}, set()),
        ({"dropped": {}, "solvers": UNCONVERGED}, {"eigensolver"}),
        ({"dropped": {"invalid": 7}}, {"dropped-and-merged-rows"}),
    ],
)
def test_details_are_folded_except_problems(metrics: dict[str, Any], are_open: set[str]) -> None:
    html = html_of({**METRICS, **metrics}, None, ARRAYS)
    folded = re.findall(r'<details class="folded"( open)?>.*?<div id="([^"]+)">', html, re.DOTALL)
    assert {"eigensolver", "dropped-and-merged-rows", "config", "versions"} <= {anchor for _, anchor in folded}
    assert {anchor for state, anchor in folded if state} == are_open


def test_alignment_is_shown_with_its_residual() -> None:
    component = {
        "component": 0,
        "rows_shared": 41_234,
        "residual_before": 1.431,
        "residual_after": 0.0123,
        "size_ratio": 1.0,
    }
    alignment = {"components": [component], "reason": "", "scale": "unit_covariance"}
    text = text_of({**METRICS, "alignment": alignment})
    assert "Change before Change after 0 41,234 1.4 0.012" in text
    first = {"components": [], "reason": "no earlier embedding"}
    assert "Nothing was aligned: no earlier" in text_of({**METRICS, "alignment": first})
    assert "Alignment" not in html_of(METRICS)


def test_warnings_are_shown_first() -> None:
    two = {"findings": [{"level": "minor"}, {"level": "minor"}], "warnings": ["first odd thing", "second & last"]}
    text = text_of({**METRICS, **two})
    assert "2 warnings first odd thing second & last Measures Rows read" in text
    grave = {**METRICS, **two, "verdict": "The verdict.", "findings": [{"level": "grave"}, *two["findings"]]}
    text = text_of(grave, None, ARRAYS)
    assert "The verdict. 2 more warnings first odd thing second & last" in text
    alone = {**grave, "findings": [{"level": "grave"}], "warnings": []}
    assert "The verdict. 1 warning Measures" in text_of(alone, None, ARRAYS)
    assert "no warnings" not in text


def test_verdict_is_the_first_sentence() -> None:
    metrics = {
        **METRICS,
        "verdict": "Neighbours fell from 98 % to 72 %; `lle suggest` compares.",
        "finished": "2026-01-02T03:04:05+00:00",
    }
    text = text_of(metrics)
    assert "Neighbours fell from 98 % to 72 %; lle suggest compares. Finished 2026-01-02" in " ".join(text.split())
    assert 'class="verdict"' in html_of(metrics)
    assert 'class="verdict warning"' in html_of({**metrics, "findings": [{"level": "grave"}]})


def test_stopped_run_is_not_called_finished() -> None:
    stopped = {**METRICS, "stopped": {"stage": "solve_embedding", "running": False}, "finished": None}
    text = text_of({**stopped, "dropped": {}, "rows_placed": None})
    assert "not finished" in text
    for phrase in ("Finished", "no warnings", "Every row has"):
        assert phrase not in text
    assert "running" in text_of({**stopped, "stopped": {"running": True}})


def test_badge_counts_warnings_and_not_tiles() -> None:
    two_classes = {"components": 1, "classes": 2}
    low = {**METRICS, "dropped": {}, "trustworthiness": {"value": 0.7}, "closed_classes_embedded": two_classes}
    html = html_of({**low, "findings": [{"level": "grave"}, {"level": "note"}]})
    assert "1 warning" in Reader(html).text
    assert len(re.findall(r'class="tile warning"', html)) == 2
    assert "no warnings" in text_of(low)


FITTED = {"far": 0, "rows_fitted": 299_900}


@pytest.mark.parametrize(
    ("metrics", "label", "value", "state", "words"),
    [
        ({}, "Neighbour recall", "0.996", "good", "the bound is 0.9"),
        ({"recall": {"value": 0.89, "low": 0.88, "high": 0.91}}, "Neighbour recall", "0.890", "warning", "below"),
        ({"recall": {"value": 0.91, "low": 0.89, "high": 0.93}}, "Neighbour recall", "0.910", "note", "interval"),
        ({"recall": {"value": 1.0}}, "Neighbour recall", "1.000", "good", "on not measured points"),
        ({"recall": {"value": None, "sample": 0}}, "Neighbour recall", "not measured", "unknown", "not known"),
        ({}, "Rows read", "300,000", "fact", "24 equal an earlier row"),
        ({"invalid_dropped": 5}, "Rows read", "300,000", "note", "5 with missing or infinite values"),
        ({}, "Distinct points", "299,876", "warning", "100 rows (0.033 %)"),
        ({"dropped": {}}, "Distinct points", "299,876", "good", "Every row"),
        ({"dropped": {}, "fit_sample": FITTED}, "Points fitted", "299,876", "good", "The other rows were placed"),
        ({"dropped": {}, "rows_placed": None}, "Distinct points", "299,876", "unknown", "No row has coordinates yet"),
        ({"dropped": {"invalid": 4000}}, "Distinct points", "299,876", "warning", "4,000 rows (1.33 %)"),
        ({"dropped": {"invalid": 40}}, "Distinct points", "299,876", "note", "40 rows (0.013 %)"),
        ({"dropped": {"invalid": 1}}, "Distinct points", "299,876", "note", "1 row (< 0.005 %) was dropped and has no"),
        ({}, "Graph components", "1", "good", "bound: one component"),
        (
            {"components_joined": 4, "links_added": 3, "longest_link": 2.5},
            "Graph components",
            "1",
            "note",
            "4 pieces joined by the shortest 3 links, of length 2.5 or less.",
        ),
        (
            {"components_joined": 2, "links_added": 1, "longest_link": 2.5},
            "Graph components",
            "1",
            "note",
            "2 pieces joined by the shortest link, of length 2.5.",
        ),
        ({"n_components_weak": 4}, "Graph components", "4", "warning", "cannot be compared"),
        ({}, "Closed classes", "1", "good", "Nothing to repair; bound: one"),
        ({"closed_classes": 3, "bridges_added": 9}, "Closed classes", "1", "note", "There were 3"),
        (
            {"closed_classes_embedded": {"components": 1, "classes": 2}},
            "Closed classes",
            "2",
            "warning",
            "More than the 1 embedded",
        ),
        ({"closed_classes": 15, "closed_classes_left": 14}, "Closed classes", "1", "note", "There were 15"),
        ({"closed_classes_embedded": None}, "Closed classes", "not measured", "unknown", "was not checked"),
        ({}, "Residual", "4.4e-11", "good", "bound: the tolerance of 1e-08"),
        ({"residuals": [[1e-9, 2e-8]], "solvers": UNCONVERGED}, "Residual", "2.0e-08", "warning", "above"),
        ({"residuals": [[1e-9, 2e-8]]}, "Residual", "2.0e-08", "note", "float64 allows"),
        ({"residuals": [[0.23, 1e-9]], "solvers": SOLVERS}, "Residual", "2.3e-01", "warning", "rounding errors"),
        ({"eigenvalues": [[1e-17, 1e-9]], "solvers": SOLVERS}, "Residual", "4.4e-11", "warning", "rounding errors"),
        ({"residuals": [[2e-9, 1e-9]]}, "Residual", "2.0e-09", "good", "tolerance"),
        ({"residuals": [[1e-9, float("nan")]]}, "Residual", "not measured", "unknown", "not known"),
        ({}, "Trustworthiness", "0.999", "good", "continuity, is 0.998"),
        ({}, "Trustworthiness", "0.999", "good", "tick from 0.95, warning below 0.9."),
        (
            {"trustworthiness": {"value": 0.94}},
            "Trustworthiness",
            "0.940",
            "note",
            "tick from 0.95, warning below 0.9.",
        ),
        ({"trustworthiness": {"value": 0.9499}}, "Trustworthiness", "0.9499", "note", "tick from 0.95"),
        ({"trustworthiness": {"value": 0.81}}, "Trustworthiness", "0.810", "warning", "warning below 0.9"),
        (HITS, "Neighbourhood hit", "72 %", "warning", "same species; in the data 98 %; bound: 93 %"),
        (
            {**HITS, "neighborhood_hit_input": {"value": 0.74, "low": 0.71, "chance": 0.7}},
            "Neighbourhood hit",
            "72 %",
            "note",
            "in the data 74 %, by chance 70 %; little more than by chance",
        ),
        ({**HITS, "neighborhood_hit": {"value": 0.93}}, "Neighbourhood hit", "93 %", "good", "bound: 93 %"),
        ({}, "Residual variance", "0.44", "note", "only roughly"),
        ({"residual_variance": {"value": 0.8}}, "Residual variance", "0.80", "warning", "do not follow"),
        ({"residual_variance": {"value": 0.7003}}, "Residual variance", "0.7003", "warning", "above 0.7"),
        (
            {"residual_variance": {"value": 0.3}},
            "Residual variance",
            "0.30",
            "good",
            "tick up to 0.3, warning above 0.7",
        ),
        ({}, "Time", "1 h 03 min", "fact", "98.1 % of it in solve embedding. Highest memory: 3.0 GiB"),
    ],
)
def test_tile_has_the_state_of_its_value(
    metrics: dict[str, Any], label: str, value: str, state: str, words: str
) -> None:
    actual = tile(metrics, label)
    assert (actual.value, actual.state) == (value, state)
    assert words in actual.sentence


def test_coordinates_with_problems_are_marked() -> None:
    metrics = {
        "eigenvalues": [[1e-9, 2e-9, 3e-9], [4e-9]],
        "residuals": [[1e-12, 1e-5, 1e-12], [1e-12]],
        "participation": [[900.0, 9.0, 700.0], [40.0]],
        "redundancy": [0.0, 0.2, 0.96],
        "component_points": [1000, 50],
        "solvers": [],
    }
    first, second = page.spectra(Metrics.read(metrics), 1e-8)
    remarks = [row["remark"] for row in first["coordinates"]]
    follows = "predictable from the earlier coordinates"
    assert remarks == ["", "residual above the tolerance; a clump of few points", follows]
    assert [(row["eigenvalue"], row["share"], row["remark"]) for row in second["coordinates"]] == [(4e-9, 0.8, "")]
    text = text_of({**METRICS, **metrics})
    assert "Component 1: 50 points" in text
    assert "a clump of few points" in text


def test_many_components_are_folded() -> None:
    solved = {"eigenvalues": [[1e-9]], "residuals": [[1e-12]], "solvers": METRICS["solvers"]}
    four, html = (html_of(METRICS | {key: value * n for key, value in solved.items()}) for n in (4, 60))
    assert "1 more component<" in four
    assert "57 more components<" in html
    assert html.count("<caption>") == 50
    assert html.count("The rest is in metrics.json.") == 2


def test_text_in_a_path_is_not_read_as_a_setting() -> None:
    config = {"input": {"path": "x, min_recall: 0.99, tol: 1"}, **CONFIG}
    [recall] = [tile for tile in headline(METRICS, config) if tile.label == "Neighbour recall"]
    assert recall == next(tile for tile in headline(METRICS, CONFIG) if tile.label == "Neighbour recall")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number_format.thousands(1234567), "1,234,567"),
        (number_format.thousands(np.int64(2048)), "2,048"),
        (number_format.thousands(True), "not measured"),
        (number_format.number(np.float64(1.5e-9), ".1e"), "1.5e-09"),
        (number_format.percent(0.0), "0 %"),
        (number_format.percent(1e-7), "< 0.005 %"),
        (number_format.percent(0.0123), "1.23 %"),
        (number_format.percent(0.99999), "> 99.95 %"),
        (number_format.percent(1999 / 2000), "99.95 %"),
        (number_format.percent(1.0), "100 %"),
        (number_format.size(0), "0 B"),
        (number_format.size(1023), "1023 B"),
        (number_format.size(1024), "1.0 KiB"),
        (number_format.size(5 * 2**40), "5.0 TiB"),
        (number_format.duration(0.004), "0.00 s"),
        (number_format.duration(59.94), "59.9 s"),
        (number_format.duration(60), "1 min 00 s"),
        (number_format.duration(3599.9), "1 h 00 min"),
        (number_format.estimate({"value": 0.5}), "0.5000"),
        (number_format.estimate(None), "not measured"),
        (number_format.text(False), "no"),
        (number_format.text((1200, 3)), "1,200 × 3"),
    ],
)
def test_numbers_are_formatted(text: str, expected: str) -> None:
    assert text == expected


def test_quality_is_shown_with_intervals():
    """Measured values have their interval; measures that the input does not allow are not shown."""
    measured = {"value": 0.4321, "low": 0.4012, "high": 0.4789, "sample": 500}
    plain = html_of({**METRICS, "residual_variance": {**measured, "sources": 37}}, None, ARRAYS)
    assert "0.4321 (0.4012 to 0.4789)" in plain
    assert "from 37 points" in plain
    assert "neighbourhood hit" not in plain
    assert "residual variance, affine" not in plain
    metrics = {
        "neighborhood_hit": measured,
        "neighborhood_hit_input": None,
        "residual_variance_truth": measured,
        "residual_variance_affine": measured,
        "regression_residual": [measured, {**measured, "value": 0.0123}],
    }
    page = html_of({**METRICS, **metrics}, None, ARRAYS)
    for phrase in (
        "neighbourhood hit in the data",
        "residual variance, affine",
        "coordinate 2: regression residual",
        "0.0123 (0.4012",
    ):
        assert phrase in page

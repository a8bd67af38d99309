"""The explorer page: its base64 data equal the data of the store."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lle.engine import disk_costs
from lle.inputs.row_filter import even_sample
from lle.report.column import Column
from lle.report.explore import SCRIPTS, read_asset, render_explorer
from lle.storage.store import Store
from tests.support.commands import lle, npy_config, write_config
from tests.support.explorer_page import Scripts, decode, page_of


def decoded(*columns: Column) -> dict[str, Any]:
    """The columns of a page, read back from it."""
    return decode(render_explorer(page_of(*columns)))


class TestEncoding:
    def test_numbers_are_within_half_a_step(self, rng):
        values = rng.normal(size=5000)
        read = decoded(Column("y1", "coordinate 1", values))["y1"]
        assert np.abs(read - values).max() <= 0.51 * np.ptp(values) / 65_534

    @pytest.mark.parametrize("kind", ["lognormal", "outliers", "far", "huge"])
    def test_values_of_very_different_sizes_keep_their_digits(self, rng, kind):
        """Steps of a 16-bit number would show most of these as one value."""
        values = {
            "lognormal": np.exp(rng.normal(scale=6.0, size=5000)),
            "outliers": np.where(np.arange(5000) % 100 < 3, 1e6, 1.0) * rng.normal(size=5000),
            "far": np.where(np.arange(5000) == 70, -2.5e7, rng.normal(size=5000)),
            "huge": np.exp(rng.normal(scale=90.0, size=5000)),
        }[kind]
        values[7] = np.nan
        np.testing.assert_allclose(decoded(Column("a", "a", values))["a"], values, rtol=1e-7)

    def test_dates_and_whole_numbers_are_exact(self, rng):
        """Dates at midnight, to the second, and over millennia; whole numbers of six and of sixteen digits."""
        days = 86400.0 * rng.integers(-9000, 20_000, 5000)
        columns = {
            "day": days,
            "second": days + rng.integers(0, 86400, 5000),
            "age": rng.integers(0, 90, 5000) * 1.0,
            "far": days * 1000,
            "code": rng.integers(0, 10**6, 5000) * 1.0,
            "long": rng.integers(0, 2**53, 5000) * 1.0,
        }
        for values in columns.values():
            values[9] = np.nan
        kinds = {name: "whole" if name in ("age", "code", "long") else "date" for name in columns}
        page = decoded(*(Column(name, name, values, kind=kinds[name]) for name, values in columns.items()))
        for name, values in columns.items():
            np.testing.assert_array_equal(page[name], values)

    def test_unknown_and_equal_values(self):
        page = decoded(Column("a", "a", np.array([np.nan, 2.0, 2.0])), Column("b", "b", np.full(3, np.nan)))
        np.testing.assert_allclose(page["a"], [np.nan, 2.0, 2.0], atol=1e-4)
        assert np.isnan(page["b"]).all()

    @pytest.mark.parametrize("n", [3, 300, 70_000])
    def test_classes_keep_their_names(self, n):
        names = [f"class {i}" for i in range(n)]
        read = decoded(Column("label", "kind", np.array([0, n - 1, -1, 1]), names))["label"]
        assert read.tolist() == ["class 0", names[-1], "", "class 1"]

    def test_rows_of_a_sample_are_recorded(self):
        rows = np.array([4, 9, 70_001])
        page = page_of(Column("y1", "y", np.zeros(3)), rows=rows, n_input=80_000)
        assert decode(render_explorer(page))["row"].tolist() == rows.tolist()

    def test_names_cannot_end_the_script_that_holds_them(self):
        hostile = "</script><script>alert(1)</script><!--"
        column = Column("label", hostile, np.zeros(2, int), [hostile])
        page = render_explorer(page_of(column)._replace(title=hostile))
        assert decode(page)["label"].tolist() == [hostile] * 2
        assert b"<script>alert" not in page

    def test_page_loads_nothing(self):
        page = render_explorer(page_of(Column("y1", "y", np.zeros(2)))).decode()
        assert set(Scripts(page).addresses) == {"index.html"}
        assert "default-src 'none'" in page


def test_sample_is_evenly_spaced():
    rows = np.arange(1000) * 3
    sample = rows[even_sample(len(rows), 100)]
    assert len(sample) == 100
    assert (sample // 30 == np.arange(100)).all()  # one from each stretch of ten rows
    assert len(np.unique(sample % 30)) > 5


def test_planned_bytes_cover_the_page(rng):
    """The plan of the report's bytes covers pages with all columns that a run has."""
    n, m = 30_000, 5
    columns = [Column(f"y{j}", "y", rng.normal(size=n), role="coordinate") for j in range(m)]
    columns += [Column(name, name, rng.normal(size=n)) for name in ("label", "label2", "error")]
    columns += [Column("component", "component", np.zeros(n, int), [str(i) for i in range(300)], "component")]
    page = page_of(*columns, rows=np.arange(n) * 2, n_input=2 * n)
    fixed = len(render_explorer(page_of(Column("y1", "y", np.zeros(2)))))
    assert len(render_explorer(page)) - fixed < disk_costs.report(n=n, m=m, d=0) - disk_costs.report(n=0, m=m, d=0)
    assert fixed < 2**20


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Store, page and labels of two planes far apart, with a row equal to an earlier one and two without numbers."""
    folder, rng = tmp_path_factory.mktemp("explorer"), np.random.default_rng(19)
    x = np.vstack([rng.random((150, 2)) @ rng.random((2, 4)) + shift for shift in (0.0, 50.0)])
    x[[7, 200]] = np.nan
    x[20] = x[3]
    labels = np.where(np.arange(300) < 100, "left", "right")
    np.savez(folder / "x.npz", x=x, y=labels)
    source = {"kind": "npz", "path": str(folder / "x.npz"), "key": "x", "labels": "y"}
    sections = {"neighbors": {"n_neighbors": 6}, "quality": {"sample": 100}, "output": {"report": True}}
    lle("run", write_config(folder, input=source, preprocess={"invalid": "drop"}, **sections))
    store = Store(str(folder / "run.zarr"))
    return store, decode((folder / "run.zarr" / "report" / "explore.html").read_bytes()), labels


class TestOfARun:
    @pytest.mark.slow
    def test_page_has_the_rows_with_coordinates(self, run):
        store, page, _ = run
        embedded = np.flatnonzero(np.isfinite(store.read_all("embedding")).all(axis=1))
        assert page["row"].tolist() == embedded.tolist()
        assert {7, 200}.isdisjoint(page["row"].tolist())

    def test_page_has_the_values_of_its_rows(self, run):
        store, page, labels = run
        rows, embedding = page["row"], store.read_all("embedding")
        for j in range(2):
            step = np.nanmax(np.abs(embedding[:, j])) / 30_000
            np.testing.assert_allclose(page[f"y{j + 1}"], embedding[rows, j], atol=step)
        assert page["y"].tolist() == labels[rows].tolist()
        assert page["component"].tolist() == store.read_all("component")[rows].astype(str).tolist()

    def test_reconstruction_error_is_of_the_input_row(self, run):
        store, page, _ = run
        errors = dict(zip(store.read_all("original_index"), store.read_all("reconstruction_error"), strict=True))
        expected = [errors[3 if row == 20 else row] for row in page["row"]]
        np.testing.assert_allclose(page["reconstruction_error"], expected, atol=np.max(expected) / 60_000)

    def test_report_links_to_it_and_has_no_script(self, run):
        page = Path(run[0].url, "report", "index.html").read_text()
        assert 'href="explore.html"' in page
        assert "<script" not in page


def test_scripts_are_all_in_the_page():
    page = render_explorer(page_of(Column("y1", "y", np.zeros(2)))).decode()
    assert all(read_asset(name) in page for name in SCRIPTS)


@pytest.mark.slow
def test_placed_rows_are_marked_as_placed(tmp_path):
    """Rows of a component that is too small have coordinates among the others, and the page marks them."""
    rng = np.random.default_rng(3)
    x = np.vstack([rng.random((120, 2)) @ rng.random((2, 5)), 40 + 0.01 * rng.random((5, 5))])
    sections = {"neighbors": {"n_neighbors": 4}, "graph": {"min_component": 10}, "quality": {"sample": 60}}
    lle("run", npy_config(tmp_path, x, **sections, output={"report": True}))
    component = Store(str(tmp_path / "run.zarr")).read_all("component")
    assert component.max() == 0
    page = decode((tmp_path / "run.zarr" / "report" / "explore.html").read_bytes())
    assert page["row"].tolist() == np.flatnonzero(component != -1).tolist()
    assert (page["placed"] == "yes").tolist() == (component[page["row"]] == -2).tolist()
    assert set(range(120, 125)) <= set(page["row"][page["placed"] == "yes"].tolist())

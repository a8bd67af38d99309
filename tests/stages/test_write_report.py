"""The rows that pictures show."""

import numpy as np
import pytest

from lle.report.metrics import Metrics
from lle.stages import write_report
from lle.stages.report_columns import rows_with_place
from lle.storage import array_specs
from lle.storage.array_specs import PlannedArray
from lle.storage.store import Store
from tests.support.plans import config_of, make_layout


@pytest.mark.parametrize(("all_rows", "n_shown"), [(100, 100), (99, 7)])
def test_pictures_of_more_rows_show_an_even_sample(tmp_path, monkeypatch, all_rows, n_shown):
    monkeypatch.setattr(write_report, "ALL_ROWS", all_rows)
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({})
    store.create(PlannedArray(array_specs.EMBEDDING, (100, 2), "float64", 50))
    rows = write_report._shown_rows(store, 7)
    assert len(np.unique(rows * n_shown // 100)) == n_shown == len(rows)


def test_the_page_shows_rows_far_beyond_single_precision(tmp_path):
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({})
    for spec, values in (
        (array_specs.EMBEDDING, np.array([[1e60, 0.0], [np.nan, 0.0]])),
        (array_specs.COMPONENT, [0, -1]),
    ):
        store.create(PlannedArray(spec, np.shape(values), spec.dtype, 2))
        store.write(spec.name, 0, np.array(values, spec.dtype))
    assert rows_with_place(store, np.arange(2)).tolist() == [0]


def test_memory_does_not_grow_with_the_rows_of_pictures():
    planned = {}
    for n in (10_000_000, 10_000_001, 110_000_000):
        config = config_of()
        [planned[n]] = write_report.steps(config, make_layout(config, n=n))
    assert planned[10_000_001].task_bytes < planned[10_000_000].task_bytes
    assert planned[110_000_000].task_bytes - planned[10_000_001].task_bytes <= 40 * 10**8


@pytest.mark.parametrize(
    ("method", "sizes", "words"),
    [("lle", None, ", k = 12"), ("ltsa", {"least": 4, "most": 9}, ", k = 4 to 9"), ("pca", None, "")],
)
def test_title_has_the_number_of_neighbours_that_the_method_uses(method, sizes, words):
    config = {"input": {"kind": "npy", "path": "in/rows.npy"}, "neighbors": {"n_neighbors": 12}}
    title = write_report.figure_title(config, Metrics(method=method, n_points=1500, list_sizes=sizes))
    assert title.startswith("rows.npy: ")
    assert title.endswith(f" of 1,500 points{words}")

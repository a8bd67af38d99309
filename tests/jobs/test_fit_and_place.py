"""input.fit_sample: a sample is fitted, all other rows are placed; one run, one store, one report."""

import functools
import json

import numpy as np
import pandas as pd
import pytest

from lle import LocallyLinearEmbedding, embed, open_run
from lle.core.errors import StoreError
from lle.engine import checkpoint
from lle.engine.row_exchange import REQUESTS, SENT
from lle.inputs.row_filter import even_sample
from lle.jobs import fit_and_place
from lle.stages import embed_new
from lle.stages.assemble_cost import CONTRIBUTIONS
from lle.stages.order_points import SORTED
from lle.storage.store import Store, block_of, fitted_store
from tests.support.commands import FEW, lle, refused, write_config
from tests.support.points import swiss_roll

N, SAMPLE = 1200, 500
SETTINGS = {"execution": {"block_points": 400}, **FEW}
ONE_BLOCK = {"execution": {"block_points": N}}


def job(folder, points, **sections) -> str:
    """A config that fits a sample of the rows of these points, and labels them by their first column."""
    folder.mkdir(exist_ok=True)
    np.save(folder / "x.npy", points)
    np.save(folder / "y.npy", points[:, 0])
    source = {"kind": "npy", "path": str(folder / "x.npy"), "labels": str(folder / "y.npy"), "fit_sample": SAMPLE}
    return str(write_config(folder, **{**SETTINGS, **sections, "input": source}))


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    return swiss_roll(N, np.random.default_rng(41))


@pytest.fixture(scope="module")
def placed(tmp_path_factory, points):
    """(config, store, result) of a finished run with its report."""
    folder = tmp_path_factory.mktemp("placed")
    config = job(folder, points, output={"report": True})
    result = lle("run", config)
    return config, Store(result["store"]), result


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory, points):
    """The coordinates of all rows from a run of the sample and `lle transform`."""
    folder = tmp_path_factory.mktemp("by_hand")
    np.save(folder / "sample.npy", points[even_sample(N, SAMPLE)])
    np.save(folder / "all.npy", points)
    config = write_config(folder, input={"kind": "npy", "path": str(folder / "sample.npy")}, **SETTINGS)
    store = lle("run", config)["store"]
    lle("transform", store, folder / "all.npy", folder / "y.parquet")
    return pd.read_parquet(folder / "y.parquet"), Store(store).read_all("embedding")


def test_equals_a_run_of_the_sample_and_transform(placed, by_hand):
    _, store, _ = placed
    table, fitted = by_hand
    np.testing.assert_array_equal(store.read_all("embedding"), table[["y1", "y2"]].to_numpy())
    np.testing.assert_array_equal(store.read_all("embedding")[even_sample(N, SAMPLE)], fitted)
    np.testing.assert_array_equal(store.read_all("distance_ratio"), table["distance_ratio"])
    assert np.isfinite(store.read_all("embedding")).all()


def test_rows_are_projected_onto_the_components_of_pca(tmp_path, points):
    store = Store(lle("run", job(tmp_path, points, method="pca"))["store"])
    embedding = store.read_all("embedding")
    affine = np.column_stack([points, np.ones(N)])
    rows = even_sample(N, SAMPLE)
    np.testing.assert_allclose(
        embedding, affine @ np.linalg.lstsq(affine[rows], embedding[rows], rcond=None)[0], atol=1e-9
    )


def test_rare_value_of_a_column_does_not_move_its_row(tmp_path, points):
    """The column has one value in the sample, so rows are placed by the others, whatever its unit is."""
    rare = np.column_stack([points, np.zeros(N)])
    odd = np.setdiff1d(np.arange(N), even_sample(N, SAMPLE))[:40]
    rare[odd, 3] = 1e6
    scaled = {"preprocess": {"scale": "standard"}, **ONE_BLOCK}
    with_rare = lle("run", job(tmp_path / "rare", rare, **scaled))["store"]
    without = lle("run", job(tmp_path / "plain", points, **scaled))["store"]
    np.testing.assert_allclose(Store(with_rare).read_all("embedding"), Store(without).read_all("embedding"), atol=1e-6)


def test_share_of_rows_with_coordinates_is_that_of_all_rows(tmp_path, points):
    """All rows without numbers are outside the sample; then all are in it."""
    is_sampled = np.isin(np.arange(N), even_sample(N, SAMPLE))
    settings = {**ONE_BLOCK, "preprocess": {"invalid": "drop"}, "output": {"report": False, "min_rows": 0.6}}
    config = job(tmp_path, np.where(is_sampled[:, None], points, np.nan), **settings)
    assert f"only {SAMPLE} of {N:,} rows have coordinates" in refused(3, "run", config)
    half = is_sampled & (np.cumsum(is_sampled) % 2 == 0)
    config = job(tmp_path, np.where(half[:, None], np.nan, points), **settings)
    lle("run", config)
    message = refused(3, "run", config, "--set", "output.min_rows=0.9")
    assert f"{half.sum()} are rows with NaN or infinity;" in message  # without the entries of columns of the sample


def test_metrics_and_report_are_about_all_rows(placed, points):
    _, store, result = placed
    metrics = json.loads(store.objects.get("report/metrics.json"))
    assert metrics == {**metrics, "n_input": N, "n_points": SAMPLE, "rows_placed": N - SAMPLE}
    assert metrics["fit_sample"]["rows_fitted"] == SAMPLE
    assert metrics["fit_sample"]["rows_placed"] == N - SAMPLE
    assert metrics["trustworthiness"]["value"] > 0.9
    assert {"ingest", "solve_embedding", "transform", "write_report"} <= set(metrics["seconds"])
    assert result["metrics"]["n_input"] == N
    assert "500 points, k = 8, 700 rows placed" in store.objects.get("report/explore.html").decode()
    np.testing.assert_array_equal(store.read_all("label")[:, 0], points[:, 0])


def test_status_export_transform_and_open_run_work_on_the_store(placed, tmp_path, points):
    _, store, _ = placed
    status = lle("status", store.url)
    assert status["state"] == "done"
    assert status["stages"]["transform"]["done"] == 1 + 3
    lle("export", store.url, tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy")[:, :2], store.read_all("embedding"))
    np.save(tmp_path / "new.npy", points[:30])
    lle("transform", store.url, tmp_path / "new.npy", tmp_path / "z.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy")[:, :2], store.read_all("embedding")[:30])
    assert open_run(store.url)["embedding"].shape == (N, 2)
    assert lle("verify", store.url)["damaged"] == 0


def test_data_of_the_fit_that_no_later_step_reads_are_deleted(placed):
    fit = fitted_store(placed[1])
    freed = {name for record in checkpoint.recorded_steps(fit).values() for name in record.freed}
    assert freed == {*(spec.name for spec in SORTED), REQUESTS, SENT, CONTRIBUTIONS}
    assert [fit.objects.names(name) for name in freed] == [[]] * len(freed)


@pytest.mark.slow
def test_damage_of_the_fit_is_found(tmp_path, points):
    config = job(tmp_path / "job", points)
    store = lle("run", config)["store"]
    Store(f"{store}/fit").objects.delete("points/c/0/0")
    assert "points" in refused(1, "verify", store)


def test_a_finished_run_computes_nothing_again(placed):
    config, store, _ = placed
    embedding = store.read_all("embedding")
    plan = lle("plan", config)
    assert [step["reused"] for step in plan["steps"]] == [step["tasks"] for step in plan["steps"]]
    assert sum(lle("run", config)["blocks_computed"].values()) == 0
    np.testing.assert_array_equal(store.read_all("embedding"), embedding)


def test_plan_before_the_run_has_all_steps_and_counts(tmp_path, points, placed):
    planned = lle("plan", job(tmp_path / "job", points, output={"report": True}))
    plan_of_finished = lle("plan", placed[0])
    assert [(step["stage"], step["step"], step["tasks"]) for step in planned["steps"]] == [
        (step["stage"], step["step"], step["tasks"]) for step in plan_of_finished["steps"]
    ]
    assert planned["fit_sample"] == {"rows_fitted": SAMPLE, "rows_placed": N - SAMPLE}
    assert lle("validate", placed[0])["n_input"] == N


@pytest.mark.parametrize(("changed", "n_placed"), [("execution.block_points=auto", 3), ("neighbors.n_neighbors=9", 0)])
def test_plan_counts_the_blocks_of_placing_that_a_run_keeps(placed, changed, n_placed):
    """The blocks keep their size, and the labels of all rows do not depend on the fit."""
    steps = lle("plan", placed[0], "--set", changed)["steps"]
    [labels] = [step for step in steps if step["step"] == "read_labels" and step["tasks"] == 3][-1:]
    [embed] = [step for step in steps if step["step"] == "embed"]
    assert (labels["reused"], embed["tasks"], embed["reused"]) == (3, 3, n_placed)


def test_resumes_between_blocks_of_placing(tmp_path, points, by_hand, monkeypatch):
    config, embed_block = job(tmp_path / "job", points), embed_new.embed_block

    @functools.wraps(embed_block)
    def failing(store, block_index, **parameters):
        if block_index == 1:
            raise StoreError("disk full")
        return embed_block(store, block_index, **parameters)

    monkeypatch.setattr(embed_new, "embed_block", failing)
    assert "disk full" in refused(1, "run", config)
    store = Store(str(tmp_path / "job" / "run.zarr"))
    assert lle("status", store.url)["state"] == "stopped"
    assert "no finished embedding" in refused(2, "export", store.url, tmp_path / "y.npy")
    monkeypatch.undo()
    result = lle("run", config)
    assert result["blocks_computed"]["transform"] == 2
    np.testing.assert_array_equal(store.read_all("embedding"), by_hand[0][["y1", "y2"]].to_numpy())


@pytest.mark.slow
def test_blocks_and_workers_do_not_change_the_result(tmp_path, points, by_hand):
    config = job(tmp_path / "job", points)
    store = lle("run", config, "--set", "execution.block_points=1200")["store"]
    np.testing.assert_allclose(Store(store).read_all("embedding"), by_hand[0][["y1", "y2"]].to_numpy(), atol=1e-9)


def test_rows_with_nan_are_refused_or_have_no_coordinates(tmp_path, points):
    bad = np.setdiff1d(np.arange(N), even_sample(N, SAMPLE))[[3, 600]]
    damaged = points.copy()
    damaged[bad, 1] = np.nan
    config = job(tmp_path / "job", damaged, **ONE_BLOCK)
    message = refused(2, "run", config)
    assert message.startswith("input: 2 rows with NaN or infinity")
    assert f"(rows {bad[0]}, {bad[1]}" in message
    assert message.endswith("; the other rows are placed and kept")
    result = lle("run", config, "--set", "preprocess.invalid=drop")
    assert (result["metrics"]["invalid_dropped"], result["metrics"]["rows_placed"]) == (2, N - SAMPLE - 2)
    embedding = Store(result["store"]).read_all("embedding")
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(embedding).any(axis=1)), bad)


def test_a_bound_that_stops_the_fit_is_reported_once(tmp_path, points):
    apart = np.where(np.arange(N)[:, None] % 2 == 0, points, points + 1000)
    config = job(tmp_path, apart, **ONE_BLOCK, graph={"components": "error"})
    message, stopped = refused(3, "run", config), "; the run stopped here, before the embedding"
    assert message.count(stopped) == 1
    metrics = json.loads((tmp_path / "run.zarr" / "report" / "metrics.json").read_text())
    assert metrics["stopped"]["reason"] == message.removesuffix(stopped)


def test_a_bound_that_is_not_met_ends_with_exit_code_3_after_placing(tmp_path, points):
    config = job(tmp_path / "job", points, **ONE_BLOCK)
    unmet = ("--set", "method=ltsa", "--set", "eigensolver.method=multigrid", "--set", "eigensolver.max_steps=1")
    message = refused(3, "run", config, *unmet)
    assert "eigensolver.tol" in message
    assert "The run is complete, with the best vectors" in message
    assert np.isfinite(Store(str(tmp_path / "job" / "run.zarr")).read_all("embedding")).all()


def test_a_run_without_labels_and_with_other_blocks_keeps_none_of_an_earlier_run(tmp_path, points):
    config = job(tmp_path / "job", points)
    store = Store(lle("run", config)["store"])
    lle("run", config, "--set", "input.labels=null", "--set", f"execution.block_points={N}")
    assert not store.has_array("label")
    assert block_of(store.array("embedding")) == N


@pytest.mark.slow
def test_a_run_of_all_rows_replaces_a_run_of_a_sample(tmp_path, points):
    config = job(tmp_path / "job", points)
    store = Store(lle("run", config)["store"])
    lle("run", config, "--set", "input.fit_sample=null")
    assert store.array("points").shape[0] == N
    assert not store.objects.exists("fit/zarr.json")
    lle("run", config)
    assert not store.has_array("points")


@pytest.mark.parametrize(("key", "value"), [("output.keep", "3"), ("neighbors.k_per_point", "k.npy")])
def test_keys_about_all_rows_are_refused(tmp_path, points, key, value):
    words = refused(2, "validate", job(tmp_path / "job", points), "--set", f"{key}={value}")
    assert "input.fit_sample" in words


def test_a_sample_with_too_few_rows_is_named(tmp_path, points):
    message = refused(2, "validate", job(tmp_path / "job", points), "--set", "input.fit_sample=8")
    assert message.endswith(", but input.fit_sample takes 8 rows; it must be below 8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lle.EmbeddingWarning")
def test_python_interface(tmp_path, points, by_hand):
    np.save(tmp_path / "x.npy", points)
    section = {"kind": "npy", "path": str(tmp_path / "x.npy"), "fit_sample": SAMPLE}
    expected = by_hand[0][["y1", "y2"]].to_numpy()
    config = {"weights": {"reg": 1e-3}, **SETTINGS}
    np.testing.assert_array_equal(embed(section, **config), expected)
    config["neighbors"] = {}
    model = LocallyLinearEmbedding(n_neighbors=8, reg=1e-3, config={**SETTINGS, "neighbors": {}}).fit(section)
    np.testing.assert_array_equal(model.embedding_, expected)
    np.testing.assert_allclose(model.transform(points[:20]), expected[:20], atol=1e-9)


def test_sample_is_spread_evenly_and_has_the_requested_size():
    rows = even_sample(10_007, 1000)
    assert len(np.unique(rows)) == 1000
    assert (np.abs(rows - np.arange(1000) * 10.007) < 11).all()


def test_threads_are_chosen_from_the_steps_of_fit_and_placing(tmp_path, points, monkeypatch):
    """A run of all rows as points to fit would take much longer, so that workers could seem faster."""
    seen = []

    def placement(cluster, steps, needs_workers):
        seen.extend({step.stage for step in steps})
        raise StoreError("enough")

    monkeypatch.setattr(fit_and_place, "placement", placement)
    assert "enough" in refused(1, "run", job(tmp_path / "job", points))
    assert {"transform", "find_neighbors", "write_report"} <= set(seen)

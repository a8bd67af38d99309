"""Quality of a run: equal to scikit-learn and to direct formulas if all points are sampled."""

from io import StringIO

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap
from sklearn.manifold import trustworthiness as sklearn_trustworthiness
from sklearn.neighbors import NearestNeighbors

from lle.config.models import Config
from lle.engine.progress import RunProgress
from lle.jobs import run as runs
from lle.stages.report_columns import trustworthiness_column
from lle.storage.records import to_json

N, K = 400, 10


@pytest.fixture(scope="module")
def measure(tmp_path_factory, run_stages):
    """Runs a built-in input to the quality measures; remembers what it has run."""
    runs = {}

    def run(name="swiss_roll", **quality):
        key = (name, *quality.items())
        if key not in runs:
            source = {"kind": "synthetic", "name": name, **({"n_points": N} if name != "digits" else {})}
            config = Config.model_validate(
                {
                    "input": source,
                    "neighbors": {"n_neighbors": K},
                    "quality": quality,
                    "output": {"store": str(tmp_path_factory.mktemp("quality") / "run.zarr")},
                    "execution": {"block_points": 200, "cluster": {"kind": "serial"}},
                }
            )
            runs[key] = run_stages(config, "measure_quality")
        return runs[key]

    return run


def measured(run) -> dict:
    return {
        key: value
        for step in ("score", "geodesics", "compare")
        for report in run.reports.get(f"measure_quality.{step}", [])
        for key, value in to_json(report).items()
    }


def tables(run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, embedding and labels in internal order."""
    original = run.store.read_all("original_index")
    return run.store.read_all("points"), *(run.store.read_all(name)[original] for name in ("embedding", "label"))


def test_mean_of_points_in_the_explorer_equals_scikit_learns_trustworthiness(measure):
    run = measure(sample=N)
    X, Y, _ = tables(run)
    original = run.store.read_all("original_index")
    column = trustworthiness_column(run.store, np.arange(N), np.float64)
    assert column.values.mean() == pytest.approx(sklearn_trustworthiness(X, Y, n_neighbors=K), abs=1e-10)
    near = np.argsort(cdist(Y, Y), axis=1)[:, 1 : K + 1]
    ranks = np.take_along_axis(np.argsort(np.argsort(cdist(X, X), axis=1), axis=1), near, axis=1)
    expected = 1 - np.maximum(ranks - K, 0).sum(axis=1) * 2 / (K * (2 * N - 3 * K - 1))
    assert len(np.unique(expected)) > 20
    np.testing.assert_allclose(column.values[original], expected, atol=1e-12)


def test_points_that_were_not_sampled_have_no_trustworthiness(measure):
    run = measure(sample=60, geodesic_sources=0)
    column = trustworthiness_column(run.store, np.arange(N), np.float64)
    assert np.isfinite(column.values).sum() == 60
    assert column.label == "trustworthiness (sampled)"
    assert np.nanmean(column.values) == pytest.approx(measured(run)["trustworthiness"]["value"], abs=1e-12)


def test_trustworthiness_and_continuity_equal_scikit_learns(measure):
    run = measure(sample=N)
    X, Y, _ = tables(run)
    metrics = measured(run)
    assert metrics["trustworthiness"]["value"] == pytest.approx(sklearn_trustworthiness(X, Y, n_neighbors=K), abs=1e-10)
    assert metrics["continuity"]["value"] == pytest.approx(sklearn_trustworthiness(Y, X, n_neighbors=K), abs=1e-10)
    assert metrics["trustworthiness"]["sample"] == N
    near, nearest = (np.argsort(cdist(table, table), axis=1)[:, 1 : K + 1] for table in (Y, X))
    shares = [len(np.intersect1d(*lists)) / K for lists in zip(near, nearest, strict=True)]
    assert metrics["kept_neighbors"]["value"] == pytest.approx(np.mean(shares), abs=1e-10)
    assert metrics["kept_neighbors"]["n_neighbors"] == K


@pytest.mark.parametrize(("surface", "sample"), [("s_curve", N), ("s_curve", 300), ("swiss_roll", 100)])
def test_gain_of_principal_components_is_that_of_all_points(measure, surface, sample):
    """Among the sampled points alone, neighbours are farther apart: components that fold the data seem better.

    The axes of the sample alone differ too: on a plane that is slightly tilted a spiral shows its width.
    """
    run = measure(surface, sample=sample)
    X, Y, _ = tables(run)
    components = PCA(2).fit_transform(X)
    in_pca, in_embedding = (sklearn_trustworthiness(X, Z, n_neighbors=K) for Z in (components, Y))
    gain = measured(run)["pca_gain"]
    assert gain["low"] <= in_pca - in_embedding <= gain["high"]
    assert sample < N or gain["value"] == pytest.approx(in_pca - in_embedding, abs=1e-9)
    near, in_pca, in_embedding = (np.argsort(cdist(table, table), axis=1)[:, 1 : K + 1] for table in (X, components, Y))
    shares = [
        [len(np.intersect1d(*lists)) / K for lists in zip(near, found, strict=True)] for found in (in_pca, in_embedding)
    ]
    gain, difference = measured(run)["pca_kept_gain"], np.mean(shares[0]) - np.mean(shares[1])
    assert gain["low"] <= difference <= gain["high"]
    assert sample < N or gain["value"] == pytest.approx(difference, abs=1e-9)


@pytest.mark.parametrize("sample", [N, 200])
def test_correlation_sum_of_embedding_and_principal_components(measure, sample):
    run = measure(sample=sample)
    X, Y, _ = tables(run)
    [report] = map(to_json, run.reports["measure_quality.sample"])
    for key, table in (("correlation_sum", Y), ("pca_correlation_sum", PCA(2).fit_transform(X))):
        size = 0.01 * np.ptp(np.quantile(table, [0.01, 0.99], axis=0), axis=0)
        expected = ((np.abs(table[:, None] - table) <= size).all(axis=2).sum() - N) / (N * (N - 1))
        assert report[key]["low"] <= expected <= report[key]["high"]
        assert sample < N or report[key]["value"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_residual_variance_equals_that_of_all_shortest_paths(measure):
    run = measure(sample=N, geodesic_sources=N)
    X, Y, truth = tables(run)
    if run.reports["mend_graph.analyse"][0].reverse_added == 0:
        paths = Isomap(n_neighbors=K).fit(X).dist_matrix_[np.triu_indices(N, 1)]
        expected = 1 - np.corrcoef(paths, pdist(Y))[0, 1] ** 2
        assert measured(run)["residual_variance"]["value"] == pytest.approx(expected, abs=1e-6)  # stored as float32
    sample = np.unique(np.linspace(0, N - 1, 500).astype(int))
    expected = 1 - np.corrcoef(pdist(truth[sample]), pdist(Y[sample]))[0, 1] ** 2
    assert measured(run)["residual_variance_truth"]["value"] == pytest.approx(expected, abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("sources", [40, 12])
def test_intervals_of_samples_contain_the_value_of_all_points(measure, sources):
    of_all, sampled = (
        measured(measure(**sizes))
        for sizes in ({"sample": N, "geodesic_sources": N}, {"sample": 300, "geodesic_sources": sources})
    )
    keys = (
        "trustworthiness",
        "continuity",
        "procrustes_error",
        "residual_variance",
        "residual_variance_truth",
        "residual_variance_affine",
    )
    for key in keys:
        low, high = sampled[key]["low"], sampled[key]["high"]
        assert low - (high - low) / 2 <= of_all[key]["value"] <= high + (high - low) / 2, key
        assert of_all[key]["low"] <= of_all[key]["value"] <= of_all[key]["high"]
    assert sampled["residual_variance"]["sources"] == sources


def test_residual_variance_of_the_truth_is_zero_for_flat_sheets(tmp_path):
    """The principal components of a flat sheet are its coordinates; those of a roll are not."""

    def run(name):
        config = Config.model_validate(
            {
                "method": "pca",
                "input": {"kind": "synthetic", "name": name, "n_points": N},
                "output": {"store": str(tmp_path / name), "report": False},
                "execution": {"cluster": {"kind": "serial"}},
            }
        )
        return runs.run(config, False, RunProgress(StringIO())).metrics

    flat, rolled = run("sheet"), run("swiss_roll")
    for key in ("residual_variance_truth", "residual_variance_affine", "procrustes_error"):
        assert flat[key]["high"] < 1e-10
        assert rolled[key]["low"] > 0.01
    assert 1e-4 < flat["residual_variance"]["value"] < 0.05  # paths in the graph are longer than straight lines
    assert rolled["residual_variance"]["low"] > flat["residual_variance"]["high"]


def test_redundancy_of_each_coordinate(measure):
    metrics = measured(measure("spiral_3d", sample=N))
    first, second = metrics["regression_residual"]
    assert (first["value"], first["low"], first["high"]) == (1, 1, 1)
    assert second["low"] <= second["value"] <= second["high"] <= 1
    assert metrics["redundancy"] == pytest.approx([0, max(0, 1 - second["value"] ** 2)])


@pytest.mark.slow
def test_neighborhood_hit_of_digits(measure):
    run = measure("digits", sample=1797)
    X, Y, labels = tables(run)
    metrics = measured(run)
    for key, space in (("neighborhood_hit", Y), ("neighborhood_hit_input", X)):
        near = NearestNeighbors(n_neighbors=K).fit(space).kneighbors(return_distance=False)
        expected = (labels[near, 0] == labels).mean()
        assert metrics[key]["value"] == pytest.approx(expected, abs=2e-3)  # pixels are whole numbers: ties
        assert metrics[key]["low"] < metrics[key]["value"] < metrics[key]["high"]
    assert metrics["neighborhood_hit_input"]["value"] > 0.95 > metrics["neighborhood_hit"]["value"] > 0.4
    assert "residual_variance_truth" not in metrics


def test_changed_labels_repeat_only_steps_that_read_them(tmp_path, make_config, run_stages):
    rng = np.random.default_rng(3)
    points, labels = rng.normal(size=(400, 3)), tmp_path / "labels.npy"
    np.save(labels, rng.integers(0, 3, 400))
    config = make_config(tmp_path, points, eigensolver={"n_components": 2})
    labelled = config.model_copy(update={"input": config.input.model_copy(update={"labels": str(labels)})})
    first = measured(run_stages(labelled, "measure_quality"))
    assert 0.25 < first["neighborhood_hit_input"]["value"] < 0.45
    assert first["neighborhood_hit_input"]["chance"] == pytest.approx(1 / 3, abs=0.01)
    np.save(labels, np.repeat([7, 8, 9, 10], 100))
    second = measured(run_stages(labelled, "measure_quality"))
    assert second["neighborhood_hit"] != first["neighborhood_hit"]
    assert {key: second[key] for key in ("trustworthiness", "residual_variance")} == {
        key: first[key] for key in ("trustworthiness", "residual_variance")
    }
    np.save(labels, rng.normal(size=400))
    assert "neighborhood_hit" not in measured(run_stages(labelled, "measure_quality"))
    assert "neighborhood_hit" not in measured(run_stages(config, "measure_quality"))


def test_labels_of_another_column_are_compared_again(tmp_path, make_config, run_stages):
    rng = np.random.default_rng(3)
    points = rng.normal(size=(400, 3))
    table = np.column_stack([points, points[:, 0] > 0, rng.integers(0, 2, 400)])
    np.savetxt(tmp_path / "x.csv", table, "%.17g", ",", header="a,b,c,side,noise", comments="")

    def hit(label: str) -> float:
        source = {"kind": "csv", "path": str(tmp_path / "x.csv"), "columns": ["a", "b", "c"], "label": label}
        config = make_config(tmp_path, points, input=source, output={"store": str(tmp_path / "run.zarr")})
        return measured(run_stages(config, "measure_quality"))["neighborhood_hit_input"]["value"]

    side, noise = hit("side"), hit("noise")
    assert side > 0.8 > 0.6 > noise
    assert (hit("side"), hit("noise")) == (side, noise)


def test_geodesics_can_be_switched_off(measure):
    assert "residual_variance" not in measured(measure(sample=60, geodesic_sources=0))


@pytest.mark.slow
@pytest.mark.parametrize("sample", [1, 4])
def test_samples_of_a_few_points(measure, sample):
    metrics = measured(measure(sample=sample))
    assert metrics["trustworthiness"]["sample"] == sample
    assert ("regression_residual" not in metrics) == (sample == 1)


def test_points_count_as_often_as_the_input_holds_them(tmp_path, make_config, run_stages):
    """The component with the most rows is measured, although another one has more distinct points."""
    rng = np.random.default_rng(4)
    few, many = rng.normal(size=(150, 3)), rng.normal(size=(300, 3)) + 90.0
    config = make_config(tmp_path, np.concatenate([np.repeat(few, 6, axis=0), many]), quality={"sample": 450})
    run = run_stages(config, "measure_quality")
    sample = run.reports["measure_quality.sample"][0]
    chosen = run.store.read_bundle("_work/quality_sample")
    assert sample.n_rows == 900
    assert len(chosen["rows"]) == 450
    assert np.abs(chosen["points"]).max() < 50
    assert len(np.unique(chosen["rows"])) < 150  # drawn from rows: half of them miss few points


def test_label_of_a_point_counts_once(tmp_path, make_config, run_stages):
    """Half of the rows are copies of one point, whose other rows have other labels."""
    rng, labels = np.random.default_rng(4), tmp_path / "labels.npy"
    points = rng.normal(size=(400, 3))
    np.save(labels, np.concatenate([np.arange(400) % 2, rng.integers(0, 2, 400)]))
    config = make_config(tmp_path, np.concatenate([points, np.repeat(points[:1], 400, axis=0)]))
    config = config.model_copy(update={"input": config.input.model_copy(update={"labels": str(labels)})})
    run = run_stages(config, "measure_quality")
    n_points = len(np.unique(run.store.read_bundle("_work/quality_sample")["rows"]))
    for name in ("neighborhood_hit", "neighborhood_hit_input"):
        hit = measured(run)[name]
        assert hit["sample"] == n_points < 250
        assert hit["chance"] == pytest.approx(0.5, abs=0.03)


def test_one_row_with_nearly_all_copies_is_measured(tmp_path, make_config, run_stages):
    """The sample of rows may hold a single distinct point."""
    points = np.random.default_rng(4).normal(size=(80, 3))
    config = make_config(tmp_path, np.concatenate([points, np.repeat(points[:1], 20_000, axis=0)]))
    run = run_stages(config, "measure_quality")
    assert "redundancy" not in measured(run)

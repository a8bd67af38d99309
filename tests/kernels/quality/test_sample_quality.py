"""Measures of many embeddings of one sample: agreement with scikit-learn, points left out, linear maps, labels."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from sklearn.manifold import trustworthiness

from lle.core.arrays import Float64
from lle.kernels.neighbors.knn import exact_neighbors
from lle.kernels.quality.sample_quality import AXES_POINTS, SampleQuality, principal_axes
from tests.support.seeds import seeds

K = 9


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(7).normal(size=(200, 4))


@pytest.fixture(scope="module")
def quality(points):
    return SampleQuality(points, K, 200)


def test_trustworthiness_and_continuity_equal_scikit_learns(points, quality):
    scores = quality.measure(points[:, :2])
    assert scores.trustworthiness.mean() == pytest.approx(trustworthiness(points, points[:, :2], n_neighbors=K))
    assert scores.continuity.mean() == pytest.approx(trustworthiness(points[:, :2], points, n_neighbors=K))


def test_kept_is_the_share_of_the_nearest_points_that_are_the_nearest_in_the_data(points, quality):
    trust, kept = quality.trustworthiness_and_kept(points[:, :2])
    assert trust == pytest.approx(trustworthiness(points, points[:, :2], n_neighbors=K))
    near = [cKDTree(table).query(table, K + 1)[1][:, 1:] for table in (points, points[:, :2])]
    assert kept == pytest.approx(np.mean([len({*one} & {*other}) / K for one, other in zip(*near, strict=True)]))
    assert 0.1 < kept < 0.9


@pytest.mark.parametrize("scale", [1e-160, 1e150])
def test_scale_of_the_points_changes_no_score(points, quality, scale):
    scores = SampleQuality(scale * points, K, 200).measure(points[:, :2])
    for scaled, plain in zip(scores[:3], quality.measure(points[:, :2])[:3], strict=True):
        np.testing.assert_allclose(scaled, plain)


def test_measured_points_have_the_scores_of_all_points(points, quality):
    few = SampleQuality(points, K, 50).measure(points[:, :3])
    for some, every in zip(few[:2], quality.measure(points[:, :3])[:2], strict=True):
        np.testing.assert_allclose(some, every[::4])


def test_linear_map_of_the_points_keeps_all_neighbours(points, quality):
    stretched = points @ np.random.default_rng(8).normal(size=(4, 4)) * [1, 3, 1, 1]
    scores = quality.measure(stretched)
    assert scores.kept.mean() > 0.97
    assert scores.trustworthiness.mean() < 0.99  # the linear map counts for `kept` only
    np.testing.assert_array_equal(quality.measure(points).kept, 1.0)


def test_points_at_one_place_score_as_at_random(points: Float64) -> None:
    collapsed = np.zeros((200, 2))
    collapsed[-1] = 1.0
    scores = SampleQuality(points, K, 200).measure(collapsed)
    assert scores.trustworthiness.mean() == pytest.approx(0.5, abs=0.06)
    assert scores.continuity.mean() == pytest.approx(0.5, abs=0.06)
    assert scores.kept.mean() < 0.1


def test_clump_keeps_its_neighbours_beside_a_far_point(points: Float64) -> None:
    """Distances within the clump would be rounded to zero after a shift by the mean of all points."""
    far = points.copy()
    far[-1] = 1e12
    scores = SampleQuality(points, K, 200).measure(far)
    assert scores.continuity[:-1].mean() > 0.99
    assert scores.kept[:-1].mean() > 0.95


def test_grid_keeps_all_its_neighbours() -> None:
    """Of points at the same distance in the data, any may be a neighbour."""
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2)
    scores = SampleQuality(grid, K, 144).measure(grid)
    for values in scores[:3]:
        np.testing.assert_array_equal(values, 1.0)


def test_folded_coordinates_keep_few_neighbours(points, quality):
    assert quality.measure(np.abs(points)).kept.mean() < 0.5


def test_points_without_coordinates_score_zero_and_are_no_neighbours(points, quality):
    partial = points.copy()
    partial[:100] = np.nan
    scores = quality.measure(partial)
    for values in scores[:3]:
        np.testing.assert_array_equal(values[:100], 0.0)
    near = exact_neighbors(points[100:], np.arange(100, 200), points, np.arange(200), K).ids
    np.testing.assert_allclose(scores.kept[100:], (near >= 100).mean(axis=1))


def test_hit_is_the_share_of_neighbours_with_the_same_label(points):
    labels = (points[:, 0] > 0).astype(float)
    labels[:5] = np.nan
    scores = SampleQuality(points, K, 200, labels).measure(points[:, :1])
    assert np.isnan(scores.hit[:5]).all()
    assert np.nanmean(scores.hit) > 0.97
    assert np.isfinite(scores.mean()).all()
    assert np.nanmean(SampleQuality(points, K, 200, labels).measure(points[:, 1:]).hit) < 0.7


def test_hit_ignores_missing_neighbours(points):
    """Six points are embedded, so each has five neighbours of nine; the last point has another label."""
    labels, embedding = np.append(np.zeros(199), 1.0), np.full((200, 2), np.nan)
    embedding[:6] = points[:6, :2]
    hit = SampleQuality(points, K, 200, labels).measure(embedding).hit
    np.testing.assert_array_equal(hit, np.arange(200) < 6)


@pytest.mark.parametrize("k", [3, K])
def test_hit_of_any_number_of_neighbours(points: Float64, k: int) -> None:
    labels, every = (points[:, 0] > 0).astype(float), np.arange(200)
    few = SampleQuality(points, K, 200, labels)
    for table, hit in ((points, few.hit(k)), (points[:, :1], few.hit(k, points[:, :1]))):
        near = exact_neighbors(table, every, table, every, k).ids
        np.testing.assert_allclose(hit, (labels[near] == labels[:, None]).mean(axis=1))


@pytest.mark.parametrize("seed", seeds(3, 5, 7))
@pytest.mark.parametrize("n_features", [4, 600, 1700])
def test_principal_axes_are_those_of_a_plane(seed: int, n_features: int) -> None:
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(n_features, 2)))[0]
    plane = rng.normal(size=(1500, 2)) * (3.0, 1.0)
    points = (plane @ turn.T + 5.0) * 2.0**600  # squares are not in the range of float64
    center, axes = principal_axes(points[::3], np.split(points, [600, 700]), 2)
    np.testing.assert_allclose(center, 5.0 * 2.0**600, rtol=0.05)
    axes *= 2.0**600
    assert 0.1 < np.abs(plane @ turn.T @ axes).max() < 100
    axes /= np.linalg.norm(axes[:, 0])
    np.testing.assert_allclose(axes.T @ axes, np.eye(2), atol=1e-6)
    is_exact = n_features <= AXES_POINTS  # else the axes are those of the sample
    expected = (
        np.linalg.svd(plane - plane.mean(axis=0), full_matrices=False)[2][::-1].T if is_exact else np.eye(2)[:, ::-1]
    )
    np.testing.assert_allclose(np.abs(turn.T @ axes), np.abs(expected), atol=1e-9 if is_exact else 0.1)


def test_principal_axes_where_float64_does_not_hold_the_squares_of_all_points() -> None:
    sample = np.random.default_rng(3).normal(size=(300, 3)) * 1e-10
    far = np.array([[1e200, 0.0, 0.0]])
    center, axes = principal_axes(sample, [sample, far], 2)
    expected_center, expected = principal_axes(sample, [sample], 2)
    np.testing.assert_array_equal(center, expected_center)
    np.testing.assert_array_equal(axes, expected)

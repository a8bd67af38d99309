"""Trial embeddings: agreement with scikit-learn, the chosen value, and tables where no trial is possible."""

import numpy as np
import pytest
from sklearn.manifold import LocallyLinearEmbedding, trustworthiness

from lle.core.errors import InputError
from lle.kernels.factors.choose_reg import NOISY_REG, SURFACE_REG, RegChoice
from lle.kernels.neighbors.knn import exact_neighbors
from lle.kernels.quality.sample_quality import SampleQuality
from lle.kernels.quality.trustworthiness import count_closer, neighbor_thresholds
from lle.kernels.quality.trustworthiness import trustworthiness as trustworthiness_of_ranks
from lle.kernels.trials import MEASURED_POINTS, TRIAL_POINTS, Trials, largest_trial, reg_by_trial, trial_points
from tests.support.points import swiss_roll
from tests.support.seeds import seeds

K, M = 12, 2
LOCAL = RegChoice(SURFACE_REG, 0.0, 0.0, "local")
NOISY = RegChoice(NOISY_REG, 0.5, 0.4, "noisy")


def chosen(points, local=LOCAL, n_points=None, method="lle", k=K):
    return reg_by_trial(points, n_points or len(points), local, method, k, M, "trace", None)


def blobs(n, rng):
    return rng.normal(size=(n, 8)) + 1.5 * rng.normal(size=(5, 8))[rng.integers(5, size=n)]


@pytest.mark.parametrize("reg", [1e-3, 1e-1])
def test_trustworthiness_equals_that_of_scikit_learn(reg):
    points = swiss_roll(450, np.random.default_rng(1))
    embedding = LocallyLinearEmbedding(
        n_neighbors=K, n_components=M, reg=reg, eigen_solver="dense", random_state=0
    ).fit_transform(points)
    trials = Trials(points, K, "trace")
    values, _ = trials.quality.near_and_kept(trials.embedding("lle", K, M, reg, None))
    assert values.mean() == pytest.approx(trustworthiness(points, embedding, n_neighbors=K), abs=1e-4)


@pytest.mark.parametrize("rng", [5], indirect=True)
def test_surface_that_larger_values_fold_keeps_the_small_one(rng):
    assert chosen(swiss_roll(900, rng)).reg == SURFACE_REG


@pytest.mark.parametrize("seed", seeds(2, 3, 4))
@pytest.mark.parametrize("method", ["lle", "modified"])
def test_clusters_with_noise_get_a_larger_value(seed, method):
    assert chosen(blobs(800, np.random.default_rng(seed)), NOISY, method=method).reg > SURFACE_REG


@pytest.mark.parametrize("seed", seeds(2, 3, 4))
def test_trial_corrects_a_first_value_that_is_far_too_small(seed):
    assert chosen(blobs(800, np.random.default_rng(seed))).reg > SURFACE_REG


def test_largest_component_is_embedded():
    rng = np.random.default_rng(6)
    roll = swiss_roll(600, rng)
    points = np.vstack([swiss_roll(150, rng) + 500, roll])
    trials = Trials(points, K, "trace")
    np.testing.assert_array_equal(trials.points, roll)
    assert trials.share == 0.8
    assert "600 points embedded" in chosen(points).reason


def test_too_few_neighbours_to_connect_the_points_are_an_error():
    rng = np.random.default_rng(7)
    points = np.concatenate([rng.random((30, 2)) + 3 * group for group in range(8)])
    trials = Trials(points, 45, "trace")
    assert len(trials.points) == 240
    with pytest.raises(InputError, match="5 neighbours connect only"):
        trials.embedding("lle", 5, M, 1e-3, None)


@pytest.mark.parametrize("n", [2, 99, 4 * 40 - 1])
def test_reason_tells_that_there_are_too_few_points(n):
    found = chosen(swiss_roll(n, np.random.default_rng(7)), k=40)
    assert found.reg == LOCAL.reg
    assert found.reason == f"local; no trial: {n} points are too few, 160 are needed"


def test_reason_tells_that_the_sample_falls_into_small_components():
    rng = np.random.default_rng(8)
    points = np.concatenate([rng.random((20, 3)) + 100 * group for group in range(40)])
    assert "no trial: the largest component of 800 sampled points has 20, 48 are needed" in chosen(points).reason


def test_more_of_the_sample_is_embedded_if_few_points_fall_into_components():
    """Twenty groups: of 500 points each has 25 or so, too few for a trial."""
    rng = np.random.default_rng(9)
    points = (rng.random((20, 3)) * 100)[rng.integers(20, size=1000)] + rng.random((1000, 3))
    assert "points embedded" in chosen(points, NOISY, n_points=10**5).reason


def test_failed_eigensolves_are_a_reason(monkeypatch):
    def fail(*arguments):
        raise InputError("no")

    monkeypatch.setattr("lle.kernels.trials.embed_in_memory", fail)
    found = chosen(swiss_roll(300, np.random.default_rng(1)))
    assert found.reg == LOCAL.reg
    assert "not confirmed by a trial: the eigenvectors of 300 points with 0.001, 0.01 did not converge" in found.reason


def test_every_point_of_a_small_trial_is_measured():
    """Half of them would leave differences of 0.01 to chance."""
    points = swiss_roll(620, np.random.default_rng(1))
    embedding = points[:, :2] ** 2
    actual, _ = SampleQuality(points, K, MEASURED_POINTS).near_and_kept(embedding)
    assert actual.mean() == pytest.approx(trustworthiness(points, embedding, n_neighbors=K), abs=1e-9)


@pytest.mark.parametrize("d", [2, 7])
def test_ranks_of_tied_points_equal_those_of_exact_distances(d):
    rng = np.random.default_rng(10)
    lattice = 201 * 2.0**-12 * rng.integers(-9, 10, size=(600, d))  # its squares far from the origin are rounded
    points = lattice + 2.0**14 * rng.integers(3, size=(600, 1))
    embedding, every = points[:, :2] + rng.normal(size=(600, 2)), np.arange(600)
    near = exact_neighbors(embedding, every, embedding, every, K).ids
    ranks = count_closer(points, every, points, 0, neighbor_thresholds(points, points[near])) + 1
    exact = trustworthiness_of_ranks(ranks, 600).mean()
    assert SampleQuality(points, K, 500).near_and_kept(embedding)[0].mean() == pytest.approx(exact, abs=1e-12)


def test_copies_of_one_point_do_not_fail():
    points = np.repeat(swiss_roll(50, np.random.default_rng(8)), 8, axis=0)
    assert chosen(points, k=5).reg > 0


def test_colours_on_a_lattice_are_tried():
    """Rounded values have many equal distances, and the sample has other neighbourhoods than all points."""
    rng = np.random.default_rng(11)
    t = rng.random((4000, 2))
    colours = np.column_stack([200 * t[:, 0], 60 + 120 * t[:, 0] * t[:, 1], 150 * np.sin(3 * t[:, 1])])
    points = np.unique(np.round((colours + 3 * rng.normal(size=colours.shape)) / 4) * 4, axis=0)
    other = RegChoice(SURFACE_REG, 0.0, 0.5, "local")
    assert "points embedded with 0.001" in chosen(points[::2], other, n_points=10**5).reason


def test_result_depends_on_the_points_only():
    points = swiss_roll(700, np.random.default_rng(9))
    assert chosen(points) == chosen(points.copy())


def test_number_of_points_bounds_the_work():
    assert largest_trial(3) == TRIAL_POINTS
    assert trial_points(10**6, 784) ** 2 * 784 <= 4e9
    assert trial_points(2300, 784) < 2300

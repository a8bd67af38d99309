"""Trial embeddings: agreement with scikit-learn, the chosen value, and samples that are too small or disconnected."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.manifold import LocallyLinearEmbedding, trustworthiness

from lle.core.errors import LleError
from lle.kernels import trial_embedding
from lle.kernels.factors import choose_reg
from lle.kernels.factors.choose_reg import SURFACE_REG, WHOLE_REGS, RegChoice
from lle.kernels.neighbors.knn import exact_neighbors
from lle.kernels.quality.sample_quality import SampleQuality
from lle.kernels.quality.trustworthiness import count_closer, neighbor_thresholds
from lle.kernels.quality.trustworthiness import trustworthiness as trustworthiness_of_ranks
from lle.kernels.trial_embedding import joined_lists, largest_component, reg_by_trial
from tests.support.points import swiss_roll
from tests.support.seeds import seeds

K, M = 12, 2
LOCAL = RegChoice(SURFACE_REG, 0.0, 0.0, M, 900)


def neighbor_lists(points):
    every = np.arange(len(points))
    return exact_neighbors(points, every, points, every, K)


def embedded_quality(points, reg):
    """Trustworthiness of the trial embedding."""
    ids = trial_embedding.repaired_lists(neighbor_lists(points), len(points))
    embedding = trial_embedding.embed_in_memory("lle", points, ids, M, reg, "trace")
    return SampleQuality(points, K, len(points)).trustworthiness(embedding).mean()


@pytest.mark.parametrize("reg", [1e-3, 1e-1])
def test_trustworthiness_equals_that_of_scikit_learn(reg):
    points = swiss_roll(450, np.random.default_rng(1))
    embedding = LocallyLinearEmbedding(
        n_neighbors=K, n_components=M, reg=reg, eigen_solver="dense", random_state=0
    ).fit_transform(points)
    value = embedded_quality(points, reg)
    assert value == pytest.approx(trustworthiness(points, embedding, n_neighbors=K), abs=1e-4)


@pytest.mark.parametrize("rng", [5], indirect=True)
def test_surface_that_larger_values_fold_keeps_the_small_one(rng):
    assert reg_by_trial(swiss_roll(900, rng), LOCAL, K, M, "trace").reg == SURFACE_REG


@pytest.mark.parametrize("seed", seeds(2, 3, 4))
def test_clusters_with_noise_get_a_larger_value(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(800, 8)) + 1.5 * rng.normal(size=(5, 8))[rng.integers(5, size=800)]
    local = RegChoice(SURFACE_REG, 0.5, 0.4, M, 900)
    assert reg_by_trial(points, local, K, M, "trace").reg > SURFACE_REG


def test_largest_component_is_embedded():
    rng = np.random.default_rng(6)
    points = np.vstack([swiss_roll(150, rng) + 500, swiss_roll(600, rng)])
    inside, lists = largest_component(neighbor_lists(points))
    np.testing.assert_array_equal(inside, np.arange(150, 750))
    assert lists.ids.min() >= 0
    assert lists.ids.max() < 600
    chosen = reg_by_trial(points, LOCAL, K, M, "trace")
    assert "600 points embedded" in chosen.reason


def test_joined_lists_have_the_shortest_links_between_pieces():
    rng = np.random.default_rng(6)
    points = np.vstack([swiss_roll(150, rng) + 500, swiss_roll(300, rng), swiss_roll(200, rng) - 500])
    lists = neighbor_lists(points)
    joined = joined_lists(points, lists)
    inside, _ = largest_component(joined)
    np.testing.assert_array_equal(inside, np.arange(650))
    np.testing.assert_array_equal(joined.ids[:, :K], lists.ids)
    rows, slots = np.nonzero(joined.ids[:, K:] >= 0)
    links = {tuple(sorted((row, joined.ids[row, K + slot]))) for row, slot in zip(rows, slots, strict=True)}
    pairs = [(slice(0, 150), slice(150, 450)), (slice(150, 450), slice(450, 650))]
    for one, other in pairs:
        distances = np.linalg.norm(points[one, None] - points[None, other], axis=2)
        start, end = np.unravel_index(distances.argmin(), distances.shape)
        assert (start + one.start, end + other.start) in links
    assert len(links) == 2
    assert np.array_equal(
        joined_lists(points[:150], neighbor_lists(points[:150])).ids, neighbor_lists(points[:150]).ids
    )


@pytest.mark.parametrize("n", [2, 99, 4 * 40 - 1])
def test_small_samples_change_nothing(n):
    chosen = reg_by_trial(swiss_roll(n, np.random.default_rng(7)), LOCAL, 40, M, "trace")
    assert chosen == replace(LOCAL, no_trial="few points", trial_points=n)


@pytest.mark.parametrize(("n", "is_tried"), [(47, False), (48, True)])
def test_trial_of_all_points_needs_no_more_than_the_neighbourhoods(n, is_tried):
    points = swiss_roll(n, np.random.default_rng(7))
    local = choose_reg.reg_of_lists(points, points, neighbor_lists(points).ids, M)
    assert ("embedded" in reg_by_trial(points, local, K, M, "trace", is_whole=True).reason) == is_tried
    assert reg_by_trial(points, local, K, M, "trace").no_trial == "few points"


def test_every_point_of_a_small_trial_is_measured():
    """Half of them would leave differences of 0.01 to chance."""
    points = swiss_roll(1240, np.random.default_rng(1))
    embedding = points[:, :2] ** 2
    actual = SampleQuality(points, K, trial_embedding.MEASURED_POINTS).trustworthiness(embedding)
    assert actual.mean() == pytest.approx(trustworthiness(points, embedding, n_neighbors=K), abs=1e-9)


@pytest.mark.parametrize("d", [2, 7])
def test_ranks_of_tied_points_equal_those_of_exact_distances(d):
    rng = np.random.default_rng(10)
    lattice = 201 * 2.0**-12 * rng.integers(-9, 10, size=(600, d))  # its squares far from the origin are rounded
    points = lattice + 2.0**14 * rng.integers(3, size=(600, 1))
    embedding, every = points[:, :2] + rng.normal(size=(600, 2)), np.arange(600)
    near = exact_neighbors(embedding, every, embedding, every, K).ids
    ranks = count_closer(points, every, points, 0, neighbor_thresholds(points, points, near)) + 1
    exact = trustworthiness_of_ranks(ranks, 600).mean()
    assert SampleQuality(points, K, 500).trustworthiness(embedding).mean() == pytest.approx(exact, abs=1e-12)


def test_copies_of_one_point_do_not_fail():
    points = np.repeat(swiss_roll(50, np.random.default_rng(8)), 8, axis=0)
    assert reg_by_trial(points, LOCAL, 5, M, "trace").reg > 0


def test_sample_with_less_noise_is_not_embedded(monkeypatch):
    monkeypatch.setattr(trial_embedding, "embed_in_memory", None)
    local = RegChoice(SURFACE_REG, 0.9, 0.0, M, 900)
    assert reg_by_trial(swiss_roll(900, np.random.default_rng(5)), local, K, M, "trace").no_trial == "less noise"


def test_sample_and_patches_have_the_same_weight():
    """A patch whose largest piece is too small for a trial does not count."""
    rng, local = np.random.default_rng(11), RegChoice(SURFACE_REG, 0.5, 0.4, M, 900)
    sample, *patches = (rng.normal(size=(n, 8)) for n in (500, 300, 400))
    patches[0][:20] += 500.0  # its largest piece is embedded
    alone = [reg_by_trial(points, local, K, M, "trace") for points in (sample, *patches)]
    values = np.array([[measures for _, *measures in choice.tried] for choice in alone])
    in_pieces = rng.normal(size=(180, 8)) + 500.0 * (np.arange(180) < 90)[:, None]
    both = reg_by_trial(sample, local, K, M, "trace", patches=lambda: [*patches, in_pieces])
    expected = (values[0] + values[1:].mean(axis=0)) / 2
    np.testing.assert_allclose([measures for _, *measures in both.tried], expected)
    assert both.reason.partition("; ")[2].startswith(
        "500 points and patches of neighbouring points embedded with 0.001"
    )
    assert not alone[0].has_patches
    assert reg_by_trial(sample, local, K, M, "trace", patches=lambda: [in_pieces]) == alone[0]


def test_patch_that_cannot_be_embedded_counts_as_zero(monkeypatch):
    """Otherwise a value with which hard patches fail would seem better than the others."""
    rng, noisy = np.random.default_rng(12), RegChoice(SURFACE_REG, 0.5, 0.4, M, 900)
    points, patch = rng.normal(size=(400, 8)), rng.normal(size=(300, 8))
    alone, embed = reg_by_trial(points, noisy, K, M, "trace"), trial_embedding.embed_in_memory

    def fails_for_the_patch(method, rows, *arguments):
        if len(rows) == len(patch):
            raise LleError("")
        return embed(method, rows, *arguments)

    monkeypatch.setattr(trial_embedding, "embed_in_memory", fails_for_the_patch)
    both = reg_by_trial(points, noisy, K, M, "trace", patches=lambda: [patch])
    np.testing.assert_allclose(np.array(both.tried)[:, 1:], np.array(alone.tried)[:, 1:] / 2)


def test_pieces_of_patches_are_joined_as_those_of_the_sample(monkeypatch):
    rng, sizes = np.random.default_rng(13), []
    points, pieces = rng.normal(size=(400, 8)), rng.normal(size=(300, 8)) + 500.0 * (np.arange(300) < 120)[:, None]
    embed = trial_embedding.embed_in_memory
    monkeypatch.setattr(
        trial_embedding,
        "embed_in_memory",
        lambda method, rows, *rest: sizes.append(len(rows)) or embed(method, rows, *rest),
    )
    noisy = RegChoice(SURFACE_REG, 0.5, 0.4, M, 900)
    for connects, size in ((True, 300), (False, 180)):
        sizes.clear()
        reg_by_trial(points, noisy, K, M, "trace", connects=connects, patches=lambda: [pieces])
        assert set(sizes) == {400, size}


def test_trial_of_all_points_measures_independent_coordinates_if_a_run_takes_them():
    """On a long sheet the second eigenvector is a function of the first. In a sample it may be another one."""
    points = np.random.default_rng(14).random((600, 2)) * [4.0, 1.0]
    few, many = (reg_by_trial(points, LOCAL, K, M, "trace", True, n_more=n_more) for n_more in (0, 10))
    assert (few.reg, many.reg) == (1e-3, 1e-2)
    assert dict(zip(WHOLE_REGS, few.tried, strict=True))[1e-2][1] < 0.96
    assert dict(zip(WHOLE_REGS, many.tried, strict=True))[1e-2][1] > 0.98
    sample = [reg_by_trial(points, LOCAL, K, M, "trace", n_more=n_more).tried for n_more in (0, 10)]
    assert sample[0] == sample[1]


def test_given_lists_replace_the_search(monkeypatch):
    points = swiss_roll(700, np.random.default_rng(9))
    expected = reg_by_trial(points, LOCAL, K, M, "trace", is_whole=True)
    lists = neighbor_lists(points)
    monkeypatch.setattr(trial_embedding, "exact_neighbors", None)
    assert reg_by_trial(points, LOCAL, K, M, "trace", True, lists) == expected

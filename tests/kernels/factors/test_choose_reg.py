"""The noise of neighbourhoods in closed form, its invariances, and the reg that follows from it."""

from dataclasses import replace

import numpy as np
import pytest

from lle.kernels.factors.choose_reg import (
    BLURRED_REG,
    NOISY_REG,
    SAMPLE_REGS,
    SURFACE_REG,
    WHOLE_REGS,
    LocalVariance,
    Quality,
    RegChoice,
    choose_by_trial,
    choose_reg,
    local_variance,
)

M = 2


def disc(rng, n, k, d, noise):
    """n points at the centres of unit discs in d dimensions, each with k neighbours in the disc, all with noise."""
    radius, angle = np.sqrt(rng.random((n, k))), 2 * np.pi * rng.random((n, k))
    neighbors = np.zeros((n, k, d))
    neighbors[..., 0], neighbors[..., 1] = radius * np.cos(angle), radius * np.sin(angle)
    return noise * rng.normal(size=(n, d)), neighbors + noise * rng.normal(size=(n, k, d))


def measure(points, neighbors, m=M):
    return local_variance(points, neighbors, np.ones(neighbors.shape[:2], bool), m)


def chosen(noise, outside, m=M):
    return choose_reg(LocalVariance(np.full(9, float(noise)), np.full(9, float(outside))), m)


def values(quality, regs=SAMPLE_REGS, kept=(0.5, 0.4, 0.3, 0.2)):
    """A trial with these measures; in most tests the smallest value keeps most neighbours."""
    return {reg: Quality(*measures) for reg, *measures in zip(regs, quality, kept, strict=True)}.__getitem__


class TestLocalVariance:
    @pytest.mark.slow
    @pytest.mark.parametrize(("noise", "d"), [(0.05, 40), (0.1, 10), (0.1, 3), (0.1, 200)])
    def test_noise_is_its_share_of_the_mean_squared_distance(self, rng, noise, d):
        """A disc of radius 1 has the variance 1/2; the offset of two noisy points has 2 d noise^2 more."""
        expected = 2 * d * noise**2 / (0.5 + 2 * d * noise**2)
        found = measure(*disc(rng, 4000, 30, d, noise)).noise
        assert found.mean() == pytest.approx(expected, abs=0.02)

    def test_noise_is_zero_on_average_for_clean_data(self, rng):
        for k in (3, 12, 40):
            found = measure(*disc(rng, 6000, k, 3, 0.0)).noise
            assert abs(found.mean()) < 4 * found.std() / 6000**0.5

    def test_noise_is_one_for_pure_noise(self, rng):
        points, neighbors = rng.normal(size=(50, 3000)), rng.normal(size=(50, 12, 3000))
        np.testing.assert_allclose(measure(points, neighbors).noise, 1.0, atol=0.15)

    @pytest.mark.parametrize("d", [3, 12])  # fewer and more features than neighbours
    def test_outside_is_the_share_of_the_trailing_eigenvalues(self, d):
        sizes = np.array([3.0, 2.0, 1.0])
        axes = np.eye(3, d) * sizes[:, None]
        neighbors = np.concatenate([axes, -axes])[None]
        for m, trailing in ((1, 5.0), (2, 1.0), (3, 0.0), (9, 0.0)):
            assert measure(np.zeros((1, d)), neighbors, m).outside[0] == pytest.approx(trailing / 14, abs=1e-12)

    def test_invariant_to_rotation_shift_scale_and_order(self, rng):
        points, neighbors = disc(rng, 200, 9, 5, 0.2)
        turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
        before = measure(points, neighbors)
        for factor in (1.0, 1e-160, 1e160):
            after = measure((points @ turn + 3) * factor, (neighbors[:, rng.permutation(9)] @ turn + 3) * factor)
            for one, other in zip(before, after, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)

    def test_invalid_slots_change_nothing(self, rng):
        points, neighbors = disc(rng, 100, 8, 4, 0.1)
        padded = np.concatenate([neighbors, np.full((100, 3, 4), np.inf)], axis=1)
        found = local_variance(points, padded, np.arange(11) < np.full((100, 1), 8), M)
        for one, other in zip(found, measure(points, neighbors), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)

    def test_points_that_cannot_be_measured_are_nan(self):
        points = np.zeros((3, 2))
        neighbors = np.array([[[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [2.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
        valid = np.array([[True, True], [True, False], [True, True]])
        found = local_variance(points, neighbors, valid, 1)
        np.testing.assert_array_equal(found.noise, [np.nan, np.nan, 2.0])  # coincident, one neighbour, both alike
        np.testing.assert_array_equal(found.outside, [np.nan, np.nan, 0.0])


class TestChoice:
    @pytest.mark.parametrize(
        ("noise", "outside", "reg"),
        [
            (-0.1, 0.0, SURFACE_REG),
            (0.14, 0.19, SURFACE_REG),
            (0.16, 0.0, BLURRED_REG),
            (0.0, 0.21, BLURRED_REG),
            (0.39, 0.5, BLURRED_REG),
            (0.41, 0.0, NOISY_REG),
            (1.3, 0.5, NOISY_REG),
        ],
    )
    def test_reg_for_each_range_of_noise_and_outside_variance(self, noise, outside, reg):
        assert chosen(noise, outside).reg == reg

    def test_reg_does_not_decrease_with_noise(self, rng):
        regs = [choose_reg(measure(*disc(rng, 500, 12, 10, noise)), M).reg for noise in (0.0, 0.03, 0.1, 0.3, 1.0)]
        assert regs == sorted(regs)
        assert (regs[0], regs[-1]) == (SURFACE_REG, NOISY_REG)

    def test_boundaries_and_outliers_do_not_change_the_choice(self):
        """The median is used, so a third of the points can be at a boundary."""
        noise = np.where(np.arange(90) % 3 == 0, 0.9, 0.0)
        assert choose_reg(LocalVariance(noise, np.zeros(90)), M).reg == SURFACE_REG

    def test_reason_holds_the_numbers(self):
        assert chosen(0.4567, 0.2345).reason == (
            "noise is 0.46 of the local variance, and 0.23 of it lies outside 2 dimensions (9 points sampled)"
        )
        assert "outside 1 dimension (" in chosen(0.4567, 0.2345, m=1).reason

    def test_only_coincident_points(self):
        nothing = np.full(4, np.nan)
        assert choose_reg(LocalVariance(nothing, nothing), M).reg == SURFACE_REG


class TestTrial:
    """A sample is tried with 1e-3, 1e-2, 3e-2 and 1e-1; all points are tried with 1e-3, 1e-2, 1e-1 and 1."""

    CLEAN, NOISY = RegChoice(SURFACE_REG, 0.1, 0.1, 2, 900), RegChoice(NOISY_REG, 0.6, 0.4, 2, 900)

    @pytest.mark.parametrize(
        ("quality", "reg"),
        [
            ((0.906, 0.9, 0.9, 0.9), 1e-3),
            ((0.904, 0.9, 0.9, 0.9), 1e-2),
            ((0.96, 0.9, 0.9, 0.952), 1e-3),
            ((0.85, 0.9, 0.904, 0.9), 1e-2),
            ((0.85, 0.86, 0.87, 0.88), 1e-1),
            ((np.nan, 0.9, 0.8, np.nan), 1e-2),
        ],
    )
    def test_surface_gets_the_smallest_value_near_the_best(self, quality, reg):
        """In a sample, 1e-3 must be better than all others."""
        assert choose_by_trial(self.CLEAN, self.CLEAN, values(quality), 900).reg == reg

    @pytest.mark.parametrize(
        ("quality", "reg"),
        [
            ((0.7, 0.9, 0.9, 0.88), 1e-1),
            ((0.7, 0.9, 0.89, 0.87), 3e-2),
            ((0.9, 0.895, 0.885, 0.885), 1e-2),
            ((0.95, 0.8, 0.8, 0.8), 1e-3),
            ((0.9, 0.885, 0.885, 0.885), 1e-1),
        ],
    )
    def test_noise_gets_the_largest_value_near_the_best(self, quality, reg):
        assert choose_by_trial(self.NOISY, self.NOISY, values(quality), 900).reg == reg

    @pytest.mark.parametrize("local", [CLEAN, NOISY])
    @pytest.mark.parametrize(
        ("quality", "kept", "reg"),
        [
            ((0.7, 0.9, 0.9, 0.896), (0.9, 0.4, 0.5, 0.6), 1.0),
            ((0.7, 0.9, 0.9, 0.894), (0.9, 0.4, 0.5, 0.6), 1e-1),
            ((0.9, 0.897, 0.885, 0.885), (0.4, 0.4, 0.5, 0.6), 1e-3),
            ((0.9, 0.897, 0.885, np.nan), (0.3, 0.4, 0.5, np.nan), 1e-2),
            ((np.nan, 0.8, 0.9, 0.89), (np.nan, 0.8, 0.2, 0.3), 1e-1),
        ],
    )
    def test_trial_of_all_points_takes_the_value_near_the_best_that_keeps_most_neighbours(
        self, quality, kept, reg, local
    ):
        """All points are few then, so the tiny eigenvalues of M do not matter."""
        assert choose_by_trial(local, local, values(quality, WHOLE_REGS, kept), 900, is_whole=True).reg == reg

    @pytest.mark.parametrize(("noise", "of_sample"), [(0.6, 0.54), (0.15, 0.09)])
    def test_sample_with_less_noise_is_not_tried(self, noise, of_sample):
        noisy = replace(self.NOISY, noise=noise)
        chosen = choose_by_trial(noisy, replace(noisy, noise=of_sample), values([0.9, 0.1, 0.1, 0.1]), 900)
        assert chosen == replace(noisy, no_trial="less noise", trial_points=900)
        assert chosen.reason.endswith("; no trial: a sample of 900 points has less noise")

    @pytest.mark.parametrize(("noise", "of_sample"), [(0.14, 0.3), (0.14, 0.0), (0.39, 0.35)])
    def test_sample_with_other_noise_is_tried_if_there_is_little(self, noise, of_sample):
        clean, other = replace(self.CLEAN, noise=noise), replace(self.CLEAN, noise=of_sample)
        assert choose_by_trial(clean, other, values([0.1, 0.2, 0.9, 0.9]), 900).reg == 3e-2

    @pytest.mark.parametrize(
        ("noise", "local_reg", "reg"), [(0.06, 1e-3, 1e-2), (0.06, 3e-2, 3e-2), (0.3, 3e-2, 3e-2), (0.04, 1e-3, 1e-1)]
    )
    def test_independent_coordinates_allow_a_larger_value_for_dense_points(self, noise, local_reg, reg):
        local = replace(self.CLEAN, noise=noise, reg=local_reg)
        less = replace(local, noise=0.0)
        chosen = choose_by_trial(local, less, values([0.1, 0.1, 0.1, 0.9]), 900, is_independent=True)
        assert (chosen.reg, chosen.no_trial) == (reg, None if noise < 0.05 else "less noise")

    def test_failed_trial_changes_nothing(self):
        for regs, is_whole in ((SAMPLE_REGS, False), (WHOLE_REGS, True)):
            chosen = choose_by_trial(self.CLEAN, None, values([np.nan] * 4, regs), 900, is_whole)
            assert (chosen.reg, chosen.no_trial) == (SURFACE_REG, "failed")
            assert chosen.reason.endswith("; no trial: 900 points could not be embedded with any value")

    def test_reason_holds_all_values(self):
        chosen = choose_by_trial(self.CLEAN, self.CLEAN, values([0.5, 0.9, 0.91, 0.8]), 1234)
        assert chosen.reason.partition("; ")[2] == (
            "1,234 points embedded with 0.001, 0.01, 0.03, 0.1 have trustworthiness 0.500, 0.900, 0.910, 0.800 and "
            "keep 0.50, 0.40, 0.30, 0.20 of the neighbours"
        )

    def test_reason_names_the_values_that_failed(self):
        chosen = choose_by_trial(self.CLEAN, self.CLEAN, values([0.5, np.nan, 0.9, np.nan]), 1234)
        assert list(chosen.failed) == [1e-2, 1e-1]
        assert chosen.reason.endswith(
            "embedded with 0.001, 0.03 have trustworthiness 0.500, 0.900 and keep 0.50, 0.30 of the neighbours; the "
            "trial with 0.01, 0.1 failed"
        )

    def test_values_after_a_sufficient_one_are_not_tried(self):
        chosen = choose_by_trial(self.CLEAN, self.CLEAN, {1e-3: Quality(0.995, 0.5)}.__getitem__, 900)
        assert chosen.reg == 1e-3
        assert chosen.tried == [(1e-3, 0.995, 0.5)]

    def test_values_after_a_fall_are_tried(self):
        """The trustworthiness can rise again. A fall near a bound would make the choice a matter of the sample."""
        chosen = choose_by_trial(self.CLEAN, None, values([0.867, 0.85, 0.897, 0.85], WHOLE_REGS), 900, True)
        assert chosen.reg == 1e-1
        assert len(chosen.tried) == 4

    def test_noise_needs_all_values(self):
        chosen = choose_by_trial(self.NOISY, self.NOISY, values([0.996] * 4), 900)
        assert "0.001, 0.01, 0.03, 0.1 have" in chosen.reason

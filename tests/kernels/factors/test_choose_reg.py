"""The noise of neighbourhoods in closed form, its invariances, and the reg that follows from it."""

import numpy as np
import pytest

from lle.kernels.factors.choose_reg import (
    BLURRED_REG,
    FEW_POINTS,
    NOISY_REG,
    REGS,
    SURFACE_REG,
    LocalVariance,
    RegChoice,
    Tried,
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


class TestLocalVariance:
    @pytest.mark.parametrize(("noise", "d"), [(0.05, 40), (0.1, 10), (0.1, 3), (0.1, 200)])
    def test_noise_is_its_share_of_the_mean_squared_distance(self, rng, noise, d):
        """A disc of radius 1 has the variance 1/2; the offset of two noisy points has 2 d noise^2 more."""
        expected = 2 * d * noise**2 / (0.5 + 2 * d * noise**2)
        found = measure(*disc(rng, 1000, 30, d, noise)).noise
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
        [(-0.1, 0.0, SURFACE_REG), (0.14, 0.19, SURFACE_REG), (0.16, 0.0, BLURRED_REG), (0.0, 0.21, BLURRED_REG),
         (0.39, 0.5, BLURRED_REG), (0.41, 0.0, NOISY_REG), (1.3, 0.5, NOISY_REG)],
    )  # fmt: skip
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


FIRST = {
    "clean": RegChoice(1e-3, 0.1, 0.1, "few"),
    "blurred": RegChoice(1e-2, 0.2, 0.1, "some"),
    "noisy": RegChoice(1e-1, 0.6, 0.4, "much"),
}


class TestTrial:
    """The values are 1e-3, 1e-2, 1e-1 and 1; the first one is that of the neighbourhoods."""

    def choose(self, data, quality, n_points=900):
        """The choice, and the values that were tried, if all embeddings keep half of the neighbours."""
        tried = []

        def measure(reg):
            tried.append(reg)
            return Tried(quality[REGS.index(reg)], 0.5)

        return choose_by_trial(FIRST[data], measure, n_points, 900), tried

    @pytest.mark.parametrize(
        ("data", "quality", "reg", "tried"),
        [
            ("clean", (0.98, 0, 0, 0), 1e-3, [1e-3]),
            ("clean", (0.9, 0.905, 0.99, 0), 1e-3, [1e-3, 1e-2]),
            ("clean", (0.9, 0.95, 0.955, 0.99), 1e-2, [1e-3, 1e-2, 1e-1]),
            ("blurred", (0, 0.9, 0.95, 0.94), 1e-1, [1e-2, 1e-1, 1.0]),
            ("blurred", (0.95, 0.9, 0.9, 0), 1e-3, [1e-2, 1e-1, 1e-3]),
            ("blurred", (0.9, 0.9, 0.9, 0), 1e-2, [1e-2, 1e-1, 1e-3]),
            ("noisy", (0, 0, 0.9, 0.895), 1.0, [1e-1, 1.0]),
            ("noisy", (0, 0.9, 0.9, 0.88), 1e-1, [1e-1, 1.0, 1e-2]),
            ("noisy", (0.91, 0.95, 0.9, 0.8), 1e-2, [1e-1, 1.0, 1e-2, 1e-3]),
            ("noisy", (0.7, 0.8, 0.99, 0.98), 1e-1, [1e-1, 1.0, 1e-2]),
        ],
    )
    def test_values_are_tried_as_long_as_they_are_better(self, data, quality, reg, tried):
        found, found_tried = self.choose(data, quality)
        assert (found.reg, found_tried) == (reg, tried)

    def test_largest_value_is_not_tried_for_many_points(self):
        found, tried = self.choose("noisy", (0.5, 0.5, 0.9, 0.99), FEW_POINTS + 1)
        assert (found.reg, tried) == (1e-1, [1e-1, 1e-2])

    def test_kept_neighbours_decide_between_embeddings_of_equal_trustworthiness(self):
        kept = {1e-3: 0.5, 1e-2: 0.6, 1e-1: 0.6}
        assert choose_by_trial(FIRST["clean"], lambda reg: Tried(0.9, kept[reg]), 900, 900).reg == 1e-2

    def test_failed_values_are_not_chosen(self):
        found, _ = self.choose("clean", (np.nan, 0.9, 0.8, np.nan))
        assert found.reg == 1e-2
        assert self.choose("noisy", (np.nan, 0.9, 0.95, np.nan))[0].reg == 1e-1
        nothing, _ = self.choose("clean", [np.nan] * 4)
        assert nothing.reg == 1e-3
        assert "did not converge" in nothing.reason

    def test_reason_holds_all_values(self):
        assert self.choose("clean", (0.5, 0.9, 0.8, 0.8))[0].reason == (
            "few; 900 points embedded with 0.001, 0.01, 0.1 have trustworthiness 0.500, 0.900, 0.800 and keep "
            "0.500, 0.500, 0.500 of their neighbours"
        )

"""Rotation onto earlier coordinates: a known rotation is recovered, it is optimal, and None if undetermined."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from lle.kernels.procrustes import align


@pytest.mark.parametrize("m", [1, 2, 5])
def test_known_rotation_is_recovered(rng, m):
    planted = ortho_group.rvs(m, random_state=rng) if m > 1 else np.array([[-1.0]])
    new = rng.normal(size=(60, m))
    aligned = align(new, new @ planted)
    np.testing.assert_allclose(aligned.rotation, planted, atol=1e-12)
    assert aligned.residual_after < 1e-13
    residual_before = np.linalg.norm(new - new @ planted) / np.linalg.norm(new)
    assert aligned.residual_before == pytest.approx(residual_before)


def test_no_other_rotation_has_a_smaller_residual(rng):
    new, previous = rng.normal(size=(2, 40, 3))
    aligned = align(new, previous)
    np.testing.assert_allclose(aligned.rotation @ aligned.rotation.T, np.eye(3), atol=1e-12)
    assert aligned.residual_after <= aligned.residual_before
    residuals = [
        np.linalg.norm(new @ rotation - previous) for rotation in ortho_group.rvs(3, size=200, random_state=rng)
    ]
    assert aligned.residual_after * np.linalg.norm(previous) <= min(residuals)


def test_reflections_are_allowed(rng):
    new = rng.normal(size=(30, 2))
    assert np.linalg.det(align(new, new * [1.0, -1.0]).rotation) == pytest.approx(-1.0)


@pytest.mark.parametrize("n_rows", [0, 1])
def test_too_few_rows_give_no_rotation(rng, n_rows):
    new = rng.normal(size=(n_rows, 2))
    assert align(new, new) is None


def test_unrelated_coordinates_give_no_rotation():
    assert align(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[0.0, 2.0], [0.0, -2.0]])) is None

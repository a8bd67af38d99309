"""Manifolds: rows independent of the cut, the equations of each surface, true coordinates, noise."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from sklearn.datasets import make_s_curve, make_swiss_roll

from lle.kernels.manifolds import GRANULE_ROWS, MANIFOLDS, archimedean_arc_length, sample
from tests.support.seeds import seeds

NAMES = sorted(MANIFOLDS)
SEEDS = seeds(3, 11, 2**40 + 5)


def equation_residual(name, points, coordinates):
    """How far each point is from satisfying the equation of its surface at its true coordinates."""
    x, y, z = (*points.T, None, None)[:3]
    first, second = (*coordinates.T, None)[:2]
    if name in ("swiss_roll", "spiral_2d", "spiral_3d"):
        offset, growth, start = {"swiss_roll": (0, 1, 1.5 * np.pi), "spiral_2d": (1, 1, 0), "spiral_3d": (1, 0.5, 0)}[
            name
        ]
        across = z if name == "swiss_roll" else y
        radius = np.hypot(x, across)
        angle = (radius - offset) / growth
        on_curve = np.hypot(x - radius * np.cos(angle), across - radius * np.sin(angle))
        length = archimedean_arc_length(angle - start, offset + growth * start, growth)
        height = {"swiss_roll": y, "spiral_3d": z}.get(name)
        return on_curve + np.abs(length - first) + (0 if height is None else np.abs(height - second))
    if name == "s_curve":
        return np.abs(x - np.sin(first)) + np.abs(y - second) + np.abs(z - np.sign(first) * (np.cos(first) - 1))
    if name == "punctured_sphere":
        expected = np.column_stack([np.sin(second) * np.cos(first), np.sin(second) * np.sin(first), np.cos(second)])
        return np.abs(points - expected).sum(axis=1)
    height = {"elliptic_paraboloid": x**2 + y**2 / 4, "cusp": np.sqrt(np.hypot(x, y)), "sheet": 0 * x}[name]
    return np.abs(z - height) + np.abs(x - first) + np.abs(y - second)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", SEEDS)
def test_points_satisfy_the_equations(name, seed):
    points, coordinates = sample(name, 0, 5000, seed, 0.0, 0.5)
    assert (points.shape[1], coordinates.shape[1]) == MANIFOLDS[name]
    assert points.dtype == coordinates.dtype == np.float64
    residual = equation_residual(name, points, coordinates)
    assert residual.max() < 1e-6
    moved = equation_residual(name, points + 1e-3, coordinates)
    assert np.median(moved) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_rows_do_not_depend_on_the_blocks(name, data):
    seed = data.draw(st.integers(0, 2**60))
    centre = data.draw(st.sampled_from([0, GRANULE_ROWS, 3 * GRANULE_ROWS]))
    start = max(0, centre - data.draw(st.integers(0, 500)))
    cuts = sorted(data.draw(st.lists(st.integers(start, start + 1000), max_size=3)))
    edges = [start, *cuts, start + 1000]
    all_rows = sample(name, start, start + 1000, seed, 0.1, 0.5)
    parts = [sample(name, low, high, seed, 0.1, 0.5) for low, high in pairwise(edges)]
    assert np.array_equal(all_rows.points, np.concatenate([part.points for part in parts]))
    assert np.array_equal(all_rows.coordinates, np.concatenate([part.coordinates for part in parts]))


def test_random_numbers_differ_between_seeds_and_granules():
    first = sample("sheet", 0, 1000, 3, 0.0, 0.0).points
    next_granule = sample("sheet", GRANULE_ROWS, GRANULE_ROWS + 1000, 3, 0.0, 0.0).points
    other_seed = sample("sheet", 0, 1000, 4, 0.0, 0.0).points
    stacked = np.concatenate([first, next_granule, other_seed])
    assert len(np.unique(stacked, axis=0)) == 3000


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("noise", [0.05, 2.0])
def test_noise_is_isotropic_with_the_given_deviation(name, noise):
    clean, noisy = (sample(name, 100, 40_100, 5, level, 0.5) for level in (0.0, noise))
    assert np.array_equal(clean.coordinates, noisy.coordinates)
    difference = noisy.points - clean.points
    # 40,000 draws: the standard error of a deviation is 0.35 %, of a correlation 0.5 %.
    np.testing.assert_allclose(difference.std(axis=0), noise, rtol=0.02)
    np.testing.assert_allclose(difference.mean(axis=0), 0, atol=0.025 * noise)
    correlation = np.corrcoef(difference.T) - np.eye(difference.shape[1])
    assert np.abs(correlation).max() < 0.03


@pytest.mark.parametrize(("radius", "growth"), [(1.0, 1.0), (1.5 * np.pi, 1.0), (1.0, 0.5), (3.0, 0.1)])
def test_arc_length__numerical_integration(radius, growth):
    angles = np.array([0.0, 0.3, 2.0, 6 * np.pi])
    expected = [quad(lambda a: np.hypot(radius + growth * a, growth), 0, angle, epsabs=1e-12)[0] for angle in angles]
    np.testing.assert_allclose(archimedean_arc_length(angles, radius, growth), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("name", "make"), [("swiss_roll", make_swiss_roll), ("s_curve", make_s_curve)])
def test_same_surface_as_scikit_learn(name, make):
    theirs, t = make(20_000, random_state=17)
    ours = sample(name, 0, 20_000, 17, 0.0, 0.0)
    along = archimedean_arc_length(t - 1.5 * np.pi, 1.5 * np.pi, 1.0) if name == "swiss_roll" else t
    width = theirs[:, 1]
    assert equation_residual(name, theirs, np.column_stack([along, width])).max() < 1e-6
    np.testing.assert_allclose(
        np.quantile(ours.points, [0.01, 0.3, 0.7, 0.99], axis=0),
        np.quantile(theirs, [0.01, 0.3, 0.7, 0.99], axis=0),
        atol=0.5,
    )


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("swiss_roll", [0, 0], [(4.5**2 - 1.5**2) * np.pi**2 / 2 + np.log(3) / 2, 21]),
        ("s_curve", [-1.5 * np.pi, 0], [1.5 * np.pi, 2]),
        ("spiral_2d", [0], [((1 + 6 * np.pi) ** 2 - 1) / 2 + np.log(1 + 6 * np.pi) / 2]),
        ("spiral_3d", [0, 0], [((2 + 6 * np.pi) ** 2 - 4) / 4 + np.log(1 + 3 * np.pi) / 4, 40]),
        ("punctured_sphere", [0.5, 0], [2 * np.pi, np.pi]),
        ("elliptic_paraboloid", [-1, -2], [1, 2]),
        ("cusp", [-1, -1], [1, 1]),
        ("sheet", [0, 0], [1, 1]),
    ],
)
def test_extent_of_the_coordinates(name, low, high):
    """Lengths of spirals are given by the leading terms, p^2 / 2 + log(p) / 2, good to 0.1 % here."""
    coordinates = sample(name, 0, 50_000, 31, 0.0, 0.5).coordinates
    tolerance = 0.01 * (np.array(high) - low)
    assert (np.abs(coordinates.min(axis=0) - low) < tolerance).all()
    assert (np.abs(coordinates.max(axis=0) - high) < tolerance).all()


@pytest.mark.parametrize("phi", [0.0, 1.0, 5.5])
def test_punctured_sphere__wedge_and_uniform_area(phi):
    points, coordinates = sample("punctured_sphere", 0, 50_000, 23, 0.0, phi)
    azimuth = np.mod(np.arctan2(points[:, 1], points[:, 0]), 2 * np.pi)
    assert azimuth.min() >= phi - 1e-9
    assert np.ptp(coordinates[:, 0]) == pytest.approx(2 * np.pi - phi, rel=1e-3)
    counts, _ = np.histogram(points[:, 2], bins=10, range=(-1, 1))
    assert np.abs(counts - 5000).max() < 5 * np.sqrt(5000)


def test_cusp_is_uniform_over_its_disc():
    radius = np.hypot(*sample("cusp", 0, 50_000, 29, 0.0, 0.0).coordinates.T)
    assert radius.max() <= 1
    # A quarter of the points within half the radius.
    assert np.mean(radius < 0.5) == pytest.approx(0.25, abs=0.01)


def test_empty_range():
    points, coordinates = sample("swiss_roll", 7, 7, 3, 0.0, 0.0)
    assert (points.shape, coordinates.shape) == ((0, 3), (0, 2))

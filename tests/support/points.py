"""Sampled points."""

import numpy as np


def swiss_roll(n_points: int, rng: np.random.Generator) -> np.ndarray:
    """(n_points, 3) points of a two-dimensional manifold, float64."""
    angle = 1.5 * np.pi * (1 + 2 * rng.random(n_points))
    return np.column_stack([angle * np.cos(angle), 21 * rng.random(n_points), angle * np.sin(angle)])


def bowl(n: int, rng: np.random.Generator) -> np.ndarray:
    """A surface of revolution with two nearly equal lowest eigenvalues: a rotation of their vectors is undetermined."""
    radius, angle = np.sqrt(rng.random(n)), 2 * np.pi * rng.random(n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), radius**2])


def curved(n: int, rng: np.random.Generator, n_features: int = 15) -> np.ndarray:
    """A surface in so many dimensions, searched without a tree if they are more than ten."""
    u, v = rng.random((2, n))
    waves = [np.sin((1 + j % 4) * u + j) + np.cos((1 + j % 3) * v - j) for j in range(n_features)]
    return np.column_stack(waves)

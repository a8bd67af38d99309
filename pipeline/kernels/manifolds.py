"""Built-in test manifolds: deterministic samples of surfaces and curves with known coordinates.

Each manifold is an infinite sequence of rows that depends only on the seed. It is generated in granules of a
fixed number of rows, each from a separate random stream, so a range of rows does not depend on the division of the
sequence into blocks.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..core.arrays import Float64

GRANULE_ROWS = 65_536

ROLL_HEIGHT = 21.0
SPIRAL_2D_RADIUS, SPIRAL_2D_GROWTH, SPIRAL_TURNS = 1.0, 1.0, 3.0
SPIRAL_3D_RADIUS, SPIRAL_3D_GROWTH, SPIRAL_3D_HEIGHT = 1.0, 0.5, 40.0
PARABOLOID_A, PARABOLOID_B = 1.0, 2.0
Columns = tuple[tuple[Float64, ...], tuple[Float64, ...]]
"""Of points and of their coordinates."""


class ManifoldSample(NamedTuple):
    """Points in space and their true coordinates on the manifold.

    points (rows, d) float64; coordinates (rows, q) float64, without noise.
    """

    points: Float64
    coordinates: Float64


def sample(name: str, start: int, stop: int, seed: int, noise: float, phi: float) -> ManifoldSample:
    """Rows [start, stop) of the infinite sequence of points on a manifold.

    noise is the standard deviation of isotropic Gaussian noise, in the units of the points. phi (radians) is
    used by punctured_sphere only.
    """
    n_features, n_coordinates = MANIFOLDS[name]
    points = np.empty((stop - start, n_features))
    coordinates = np.empty((stop - start, n_coordinates))
    for granule in range(start // GRANULE_ROWS, -(-stop // GRANULE_ROWS)):
        first = granule * GRANULE_ROWS
        low, high = max(start, first), min(stop, first + GRANULE_ROWS)
        drawn = _sample_granule(name, granule, seed, noise, phi)
        points[low - start : high - start] = drawn.points[low - first : high - first]
        coordinates[low - start : high - start] = drawn.coordinates[low - first : high - first]
    return ManifoldSample(points, coordinates)


def _sample_granule(name: str, granule: int, seed: int, noise: float, phi: float) -> ManifoldSample:
    # The whole granule is computed even for a few rows: vectorised sines can differ in the last bit with the
    # position in the vector, and rows must not depend on the range.
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(granule,))))
    uniform = rng.random((GRANULE_ROWS, 2))
    points, coordinates = map(np.column_stack, _SHAPES[name](uniform[:, 0], uniform[:, 1], phi))
    if noise > 0:
        points += noise * rng.standard_normal(points.shape)
    return ManifoldSample(points, coordinates)


def archimedean_arc_length(angle: Float64, radius: float, growth: float) -> Float64:
    """Length of the planar spiral r = radius + growth * angle from angle 0 to each angle (radians).

    The integral of sqrt(r^2 + growth^2) d(angle); with p = r / growth, its antiderivative is
    growth / 2 * (p sqrt(1 + p^2) + asinh p).
    """

    def antiderivative(p: Float64 | float) -> Float64:
        return np.asarray(growth / 2 * (p * np.sqrt(1 + np.square(p)) + np.arcsinh(p)))

    return antiderivative(angle + radius / growth) - antiderivative(radius / growth)


def _swiss_roll(u: Float64, v: Float64, phi: float) -> Columns:
    """scikit-learn's roll, (t cos t, 21 v, t sin t) with t = 1.5 pi (1 + 2 u).

    Coordinates: arc length along the roll from its inner end, and height. With the arc length the unrolled sheet is
    isometric to the roll, with the angle t it is not. Both increase along the roll, so both give the same colours.
    """
    t = 1.5 * np.pi * (1 + 2 * u)
    height = ROLL_HEIGHT * v
    along = archimedean_arc_length(t - 1.5 * np.pi, 1.5 * np.pi, 1.0)
    return (t * np.cos(t), height, t * np.sin(t)), (along, height)


def _s_curve(u: Float64, v: Float64, phi: float) -> Columns:
    """scikit-learn's curve, (sin t, 2 v, sign(t) (cos t - 1)) with t = 3 pi (u - 1/2).

    Coordinates: t, which is the arc length, and the width 2 v.
    """
    t = 3 * np.pi * (u - 0.5)
    width = 2 * v
    return (np.sin(t), width, np.sign(t) * (np.cos(t) - 1)), (t, width)


def _spiral_2d(u: Float64, v: Float64, phi: float) -> Columns:
    """A plane curve of radius 1 + theta, three turns, theta uniform in [0, 6 pi].

    Coordinate: arc length from the inner end.
    """
    theta = 2 * np.pi * SPIRAL_TURNS * u
    radius = SPIRAL_2D_RADIUS + SPIRAL_2D_GROWTH * theta
    along = archimedean_arc_length(theta, SPIRAL_2D_RADIUS, SPIRAL_2D_GROWTH)
    return (radius * np.cos(theta), radius * np.sin(theta)), (along,)


def _spiral_3d(u: Float64, v: Float64, phi: float) -> Columns:
    """A rolled sheet of radius 1 + theta / 2, three turns, height uniform in [0, 40].

    Coordinates: arc length, height.
    """
    theta = 2 * np.pi * SPIRAL_TURNS * u
    radius = SPIRAL_3D_RADIUS + SPIRAL_3D_GROWTH * theta
    height = SPIRAL_3D_HEIGHT * v
    along = archimedean_arc_length(theta, SPIRAL_3D_RADIUS, SPIRAL_3D_GROWTH)
    return (radius * np.cos(theta), radius * np.sin(theta), height), (along, height)


def _punctured_sphere(u: Float64, v: Float64, phi: float) -> Columns:
    """The unit sphere without the wedge of azimuth [0, phi), uniform by area.

    Coordinates: azimuth, polar angle (radians). Area is uniform in azimuth and in height (Archimedes), so the
    polar angle is arccos of a uniform height.
    """
    azimuth = phi + (2 * np.pi - phi) * u
    height = 1 - 2 * v
    radius = np.sqrt(1 - height**2)
    return (radius * np.cos(azimuth), radius * np.sin(azimuth), height), (azimuth, np.arccos(height))


def _elliptic_paraboloid(u: Float64, v: Float64, phi: float) -> Columns:
    """z = x^2 / a^2 + y^2 / b^2 with a = 1, b = 2 over x in [-a, a], y in [-b, b]. Coordinates: x, y."""
    x, y = PARABOLOID_A * (2 * u - 1), PARABOLOID_B * (2 * v - 1)
    return (x, y, x**2 / PARABOLOID_A**2 + y**2 / PARABOLOID_B**2), (x, y)


def _cusp(u: Float64, v: Float64, phi: float) -> Columns:
    """z = sqrt(r), the surface of revolution of z = sqrt|x|, over the unit disc (uniform on the disc).

    Coordinates: x, y.
    """
    radius, azimuth = np.sqrt(u), 2 * np.pi * v
    x, y = radius * np.cos(azimuth), radius * np.sin(azimuth)
    return (x, y, np.sqrt(radius)), (x, y)


def _sheet(u: Float64, v: Float64, phi: float) -> Columns:
    """The flat unit square in the plane z = 0 of space. Coordinates: x, y."""
    return (u, v, np.zeros_like(u)), (u, v)


_SHAPES: dict[str, Callable[[Float64, Float64, float], Columns]] = {
    "swiss_roll": _swiss_roll,
    "s_curve": _s_curve,
    "spiral_2d": _spiral_2d,
    "spiral_3d": _spiral_3d,
    "punctured_sphere": _punctured_sphere,
    "elliptic_paraboloid": _elliptic_paraboloid,
    "cusp": _cusp,
    "sheet": _sheet,
}

# name -> (n_features, intrinsic dimension)
MANIFOLDS: dict[str, tuple[int, int]] = dict.fromkeys(_SHAPES, (3, 2)) | {"spiral_2d": (2, 1)}

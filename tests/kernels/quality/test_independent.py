"""Which coordinates are replaced: eigenfunctions of known shapes, noise, and coordinates that are independent."""

import numpy as np
import pytest

from lle.kernels.quality.independent import NEW_ABOVE, REDUNDANT_BELOW, IndependentCoordinates, embed_independently
from tests.support.seeds import seeds

K = 10


def strip(length: float, n: int = 700, seed: int = 3) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """Points of a sheet of width 1, its eight lowest eigenfunctions with free edges, and their waves by direction."""
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(0, length, n), rng.uniform(0, 1, n)
    waves = sorted(
        ((i, j) for i in range(12) for j in range(3) if i + j), key=lambda w: (w[0] / length) ** 2 + w[1] ** 2
    )
    columns = [np.cos(np.pi * i * u / length) * np.cos(np.pi * j * v) for i, j in waves[:8]]
    return np.column_stack([u, v]), np.column_stack(columns), waves[:8]


@pytest.mark.parametrize("seed", seeds(3, 5, 7))
@pytest.mark.parametrize("length", [2.3, 3.4, 5.5])
def test_second_coordinate_of_a_long_strip_is_its_width(length: float, seed: int) -> None:
    points, vectors, waves = strip(length, seed=seed)
    taken, replaced = IndependentCoordinates(lambda: points, vectors, K).choose(range(8), 2)
    assert taken[0] == 0
    assert waves[taken[1]][1] == 1  # one half wave across the strip; all others are functions of the first
    [change] = replaced
    assert (change.left, change.taken) == (1, taken[1])
    assert change.unexplained_left < REDUNDANT_BELOW
    assert change.unexplained_taken > NEW_ABOVE
    assert change.trustworthiness_after > change.trustworthiness_before + 0.01


def test_independent_coordinates_stay() -> None:
    points, vectors, waves = strip(1.3)
    assert waves[:2] == [(1, 0), (0, 1)]
    assert IndependentCoordinates(lambda: points, vectors, K).choose(range(8), 2) == ([0, 1], [])


@pytest.mark.parametrize(
    ("length", "clump", "computed"), [(1.3, False, [2]), (1.3, True, [2, 8]), (5.5, False, [2, 8])]
)
def test_more_vectors_are_computed_in_memory_only_if_the_first_do_not_suffice(length, clump, computed) -> None:
    points, vectors, waves = strip(length)
    if clump:
        vectors = np.column_stack([np.eye(len(points))[:, 0], vectors[:, :7]])
        waves = [(0, 0), *waves[:7]]
    asked = list[int]()
    chosen = embed_independently(lambda m: asked.append(m) or vectors[:, :m], points, 2, 8, K)
    assert asked == computed
    across = next(j for j, wave in enumerate(waves) if wave[1] == 1)
    np.testing.assert_array_equal(chosen, vectors[:, [int(clump), across]])


def test_an_independent_coordinate_stays_although_another_one_keeps_more_neighbours() -> None:
    """A picture of a long sheet that is narrower on average has fewer false neighbours, and shows the width worse."""
    points, (wave, width, second) = long_sheet()
    vectors = np.column_stack([wave, width, second + 0.9 * width])
    assert IndependentCoordinates(lambda: points, vectors, K).choose(range(3), 2) == ([0, 1], [])


def test_of_two_new_coordinates_the_better_one_is_taken() -> None:
    points, (wave, width, second) = long_sheet()
    noisy = width + 0.2 * np.random.default_rng(4).normal(size=len(width))
    vectors = np.column_stack([wave, second, noisy, width])
    assert IndependentCoordinates(lambda: points, vectors, K).choose(range(4), 2)[0] == [0, 3]


def long_sheet() -> tuple[np.ndarray, list[np.ndarray]]:
    """Points of a sheet of length 8 and width 1, and waves: one and two halves along it, one half across it."""
    u, v = np.random.default_rng(3).uniform(size=(2, 900)) * [[8.0], [1.0]]
    return np.column_stack([u, v]), [np.cos(np.pi * u / 8), np.cos(np.pi * v), np.cos(2 * np.pi * u / 8)]


def test_only_candidates_are_taken() -> None:
    points, vectors, waves = strip(3.4)
    width = waves.index((0, 1))
    taken, _ = IndependentCoordinates(lambda: points, vectors, K).choose([j for j in range(8) if j != width], 2)
    assert width not in taken
    assert IndependentCoordinates(lambda: points, vectors, K).choose([0, 1], 2) == ([0, 1], [])
    assert IndependentCoordinates(lambda: points, vectors, K).choose([4], 1) == ([4], [])


def test_noise_replaces_nothing() -> None:
    """Noise is independent of all coordinates, but brings no neighbours together."""
    points, vectors, _ = strip(5.5)
    vectors[:, 2:] = np.random.default_rng(1).normal(size=(len(points), 6))
    assert IndependentCoordinates(lambda: points, vectors, K).choose(range(8), 2) == ([0, 1], [])


def test_order_and_scale_of_vectors_do_not_matter() -> None:
    points, vectors, _ = strip(3.4)
    expected = IndependentCoordinates(lambda: points, vectors, K).choose(range(8), 2)[0]
    scaled = vectors * np.array([1e-3, -1, 7, 1, -1e4, 1, 1, 1]) + 5
    assert IndependentCoordinates(lambda: 1e-6 * points, scaled, K).choose(range(8), 2)[0] == expected
    order = np.random.default_rng(2).permutation(len(points))
    assert IndependentCoordinates(lambda: points[order], vectors[order], K).choose(range(8), 2)[0] == expected


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
def test_small_samples(n: int) -> None:
    rng = np.random.default_rng(n)
    taken, _ = IndependentCoordinates(lambda: rng.normal(size=(n, 3)), rng.normal(size=(n, 5)), K).choose(range(5), 2)
    assert len(set(taken)) == 2

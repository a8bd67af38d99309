"""Tiles show all points of a part, in the colours of their key."""

import io

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba_array
from PIL import Image

from lle.report import tiles
from lle.report.class_names import middle, name_places
from lle.report.column import Column
from lle.report.figure_style import MISSING, OKABE_ITO, ON_DARK
from lle.report.placed_points import Part, PlacedPoints
from lle.report.point_colors import STEPS, color_key
from lle.report.tiles import FAINTEST, FAINTEST_OF_FEW, draw_part

SIZE = (80, 60)
PART = Part(0.0, 8.0, 0.0, 6.0)


def tile(x, y, key, part=PART, chosen=(), larger=0):
    points = PlacedPoints(np.asarray(x, np.float32), np.asarray(y, np.float32))
    png = draw_part(points, key.codes, key, False, part, SIZE, chosen, larger=larger)
    return np.array(Image.open(io.BytesIO(png)))


def names_key(codes, names):
    return color_key(Column("label", "label", np.asarray(codes), names), len(codes))


def test_unknown_values_and_classes_have_another_grey_on_a_dark_page():
    numbers = Column("x", "x", np.array([1.0, 2.0, np.nan]), None)
    for key in (color_key(numbers, 3), names_key([0, 0, 0, -1], ("a", "b"))):
        light, dark = key.palettes
        assert (light[-1], dark[-1]) == (MISSING, ON_DARK[MISSING])
        assert ON_DARK[MISSING] != MISSING


def test_pixels_with_points_are_drawn_and_no_others(rng):
    x, y = rng.uniform(0, 8, 400_000), rng.uniform(0, 6, 400_000)
    empty = (x > 3) & (x < 5) & (y > 1) & (y < 2)
    picture = tile(x[~empty], y[~empty], color_key(None, int((~empty).sum())))
    assert picture.shape == (60, 80, 4)
    assert (picture[40:50, 30:50, 3] == 0).all()  # y from 1 to 2, counted from the top
    picture[40:50, 30:50, 3] = 255
    assert (picture[..., 3] >= FAINTEST).mean() > 0.999


@pytest.mark.parametrize("block", [1, 1000, 5000, 2**16])
def test_blocks_count_each_point_of_the_part_once(rng, monkeypatch, block):
    monkeypatch.setattr(tiles, "BLOCK", block)
    x, y = rng.uniform(-1, 9, 5000).astype(np.float32), rng.normal(3, 1, 5000).astype(np.float32)
    x[::3], codes = np.nan, (np.arange(5000) % 2).astype(np.uint8)
    values, shown = np.array([[1.0, np.nan], [0.25, np.nan]]), np.array([True, False])
    sums = tiles._sums(PlacedPoints(x, y), codes, values, shown, PART, SIZE, 2)
    drawn = (codes == 0) & np.isfinite(x)
    expected, *_ = np.histogram2d(-y[drawn], x[drawn], (64, 84), ((-6.2, 0.2), (-0.2, 8.2)))
    assert 1000 < expected.sum() < drawn.sum()
    np.testing.assert_array_equal(sums, [expected, 0.25 * expected])


@pytest.mark.parametrize("larger", [-9, 0, 2])
def test_each_point_adds_to_the_pixels_of_its_disc(rng, larger):
    """Also points outside of the part, and where discs cover each other."""
    codes, radius = rng.integers(0, 2, 500), max(0, 3 + larger)
    rows, columns = rng.integers(-8, 68, 500), rng.integers(-8, 88, 500)
    key = names_key(codes, ["a", "b"])
    picture = tile((columns + 0.5) / 10, 6 - (rows + 0.5) / 10, key, larger=larger)
    expected = np.zeros((2, 60, 80))
    at = np.mgrid[:60, :80]
    for code, row, column in zip(key.codes, rows, columns, strict=True):
        expected[code] += (at[0] - row) ** 2 + (at[1] - column) ** 2 <= radius**2 + bool(radius)
    is_drawn = expected.any(axis=0)
    np.testing.assert_array_equal(picture[..., 3] > 0, is_drawn)
    shares = (expected / np.maximum(expected.sum(axis=0), 1))[:, is_drawn]
    np.testing.assert_allclose(
        picture[is_drawn, :3], 255 * shares.T @ to_rgba_array(key.palettes[0][:2])[:, :3], atol=1
    )


def test_lone_points_are_some_pixels_wide_also_across_the_edge():
    picture = tile([2.05, 8.1], [5.05, 3.0], color_key(None, 2))
    drawn = picture[..., 3] > 0
    assert drawn[9, 17:24].all()
    assert drawn[:, 75:].any()  # the second point is outside, but its disc is partly in the picture
    assert to_hex(picture[9, 20, :3] / 255).upper() == OKABE_ITO[0]


def test_few_points_are_not_pale(rng):
    picture = tile(rng.uniform(0, 8, 300), rng.uniform(0, 6, 300), color_key(None, 300))
    opacity = picture[..., 3]
    assert len(np.unique(opacity)) > 2
    assert (opacity[opacity > 0].min(), opacity.max()) == (FAINTEST_OF_FEW, 255)


def test_classes_have_their_colour_and_mix():
    key = names_key([0, 1, 0, 1, -1], ["a", "b"])
    picture = tile([1, 3, 5, 5, 7], [3] * 5, key)
    shown = [to_hex(picture[29, at, :3] / 255) for at in (10, 30, 50, 70)]
    assert shown[:2] == key.palettes[0][:2]
    assert shown[3] == key.palettes[0][2] == MISSING
    mean = np.mean([[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in key.palettes[0][:2]], axis=0)
    np.testing.assert_allclose(picture[29, 50, :3], mean, atol=1)
    assert [name for name, _ in key.entries] == ["a", "b", "unknown"]


def test_only_chosen_classes_are_shown():
    picture = tile([1, 3], [3, 3], names_key([0, 1], ["a", "b"]), chosen=[1])
    assert picture[29, 10, 3] == 0
    assert picture[29, 30, 3] > 0


def test_many_classes_share_a_colour_beyond_the_largest():
    codes = np.concatenate([np.arange(30), np.arange(19)])
    key = names_key(codes, [f"class {i}" for i in range(30)])
    assert len(key.entries) == 20
    assert key.entries[-1] == ("11 other classes", 11)
    assert (key.codes[19:30] == 19).all()


def test_each_class_has_a_name_at_its_points_in_each_piece(rng):
    codes = np.concatenate([np.repeat(np.arange(19), 100), [19, 20, 21, -1]])  # the last four share an entry
    x, y = rng.normal(size=(2, len(codes))).astype(np.float32) + codes
    key = names_key(codes, [f"class {i}" for i in range(22)])
    piece = np.arange(len(codes)) % 2  # half of each class, 50 of 952 points
    places = name_places(x, y, key.codes, key.n_named, piece)
    assert sorted(place.code for place in places) == sorted([*range(19)] * 2)
    for code in range(19):
        own = {(float(x[i]), float(y[i])): piece[i] for i in np.flatnonzero(codes == code)}
        assert {own[place.x, place.y] for place in places if place.code == code} == {0, 1}
    assert {place.n_points for place in places} == {50}


def test_a_class_in_two_clouds_has_its_name_at_the_larger_one():
    """The medians are between the clouds, where no point is."""
    x = np.concatenate([np.linspace(0, 1, 150), np.linspace(9, 10, 149)]).astype(np.float32)
    y = np.where(x < 5, -x, x)
    at = middle(x, y, x, y, 1.0, 1.0)
    assert at is not None
    assert 0.0 <= at[0] <= 1.0


@pytest.mark.parametrize("values", [[0.0, 1.0, np.nan, 0.5], [np.nan] * 4, [2.0] * 4])
def test_scales_run_from_low_to_high_and_unknown_values_are_grey(values):
    key = color_key(Column("v", "v", np.array(values, np.float32)), 4)
    picture = tile([1, 3, 5, 7], [3] * 4, key)
    for value, code, at in zip(values, key.codes, (10, 30, 50, 70), strict=True):
        assert to_hex(picture[29, at, :3] / 255) == key.palettes[0][code]
        assert (code == STEPS) == np.isnan(value)
    if values[1] == 1.0:
        assert key.codes.tolist() == [0, STEPS - 1, STEPS, STEPS // 2]


def test_an_empty_part_is_transparent():
    assert (tile([1.0], [1.0], color_key(None, 1), Part(5, 6, 5, 6))[..., 3] == 0).all()


def test_denser_pixels_are_more_opaque(rng):
    x = np.concatenate([rng.uniform(0, 4, 400_000), rng.uniform(4, 8, 4_000)])
    picture = tile(x, rng.uniform(0, 6, len(x)), color_key(None, len(x)))
    assert picture[:, :39, 3].mean() > picture[:, 41:, 3][picture[:, 41:, 3] > 0].mean() + 20


def test_a_class_has_its_name_where_others_do_not_cover_it():
    """Of its two clouds the smaller one is alone, the other is under three times as many points of another class."""
    x = np.concatenate([np.linspace(0, 1, 120), np.linspace(9, 10, 150), np.linspace(9, 10, 450)])
    codes = np.repeat([0, 1], [270, 450])
    below, above = sorted(name_places(x, x, codes, 2, None))
    assert (0 <= below.x <= 1, 9 <= above.x <= 10) == (True, True)
    every = np.repeat(x, 100)  # as a sample
    below, above = sorted(name_places(every, every, np.repeat(codes, 100), 2, None))
    assert (0 <= below.x <= 1, 9 <= above.x <= 10) == (True, True)


@pytest.mark.parametrize("share", [0.1, 0.33, 0.5])
@pytest.mark.parametrize("n", [1000, 5000])
def test_a_class_that_is_mixed_with_others_everywhere_has_no_name(rng, n, share):
    """In some of the cells at the edge, with few points, it has most of them by chance."""
    for _ in range(20):
        x, y, alone = *rng.normal(size=(2, n)), np.arange(n) < n // 50
        codes = np.where(alone, 0, np.where(rng.random(n) < share, 1, 2))
        assert {place.code for place in name_places(x + 20 * alone, y, codes, 2, None)} == {0}


@pytest.mark.parametrize("far", [1e3, 1e6])
@pytest.mark.parametrize("share", [3, 8])
def test_colours_tell_values_apart_beside_some_that_are_much_larger(rng, far, share):
    values = rng.normal(size=20_000)
    is_far = np.arange(20_000) % 100 < share
    key = color_key(Column("v", "v", np.where(is_far, far * values, values)), 20_000)
    counts = np.bincount(key.codes[~is_far], minlength=STEPS)
    assert key.clipped
    assert np.count_nonzero(counts) > 50
    assert counts.max() < 0.1 * counts.sum()


def test_zeros_beside_skewed_values_have_the_lowest_colour(rng):
    values = np.where(rng.random(20_000) < 0.5, 0.0, rng.lognormal(0.0, 3.0, 20_000))
    key = color_key(Column("v", "v", values), 20_000)
    assert key.log
    assert set(key.codes[values == 0.0].tolist()) == {0}
    assert len(np.unique(key.codes[values > 0.0])) == STEPS


def test_scales_of_skewed_constant_and_missing_values(rng):
    values = rng.lognormal(0.0, 3.0, 10_000)
    skewed = color_key(Column("v", "v", values), len(values))
    low, high = np.percentile(values, (1, 99))
    assert (skewed.log, skewed.range, skewed.clipped) == (True, (low, high), True)
    middle_step = skewed.codes[np.argmin(abs(values - np.sqrt(low * high)))]
    assert middle_step in (STEPS // 2 - 1, STEPS // 2)
    assert not color_key(Column("v", "v", rng.normal(size=1000)), 1000).log
    constant = color_key(Column("v", "v", np.full(5, 3.0)), 5)
    assert (constant.range, set(constant.codes.tolist()), constant.clipped) == ((3.0, 3.0), {STEPS // 2}, False)
    large = color_key(Column("v", "v", np.full(5, 3e20)), 5)
    assert set(large.codes.tolist()) == {STEPS // 2}
    missing = color_key(Column("v", "v", np.full(5, np.nan)), 5)
    assert (missing.range, set(missing.codes.tolist()), missing.unknown) == (None, {STEPS}, 5)

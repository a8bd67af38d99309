"""Images of rows: one PNG, and the sheet of thumbnails."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from lle.report.images import (
    SHEET_PIXELS,
    image_png,
    make_sheet,
    most_thumbnails,
    pixel_range,
    thumbnail_shape,
    thumbnails,
)


def opened(png):
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.mark.parametrize("shape", [(8, 8), (5, 9), (4, 6, 3)])
def test_sheet_holds_every_image_in_its_place(rng, shape):
    rows = rng.integers(0, 256, (7, np.prod(shape))).astype(np.float64)
    sheet = make_sheet(np.arange(7) * 3, thumbnails(rows, shape))
    tiles, (h, w) = opened(base64.b64decode(sheet.png)), shape[:2]
    low, high = rows.min(), rows.max()
    assert (sheet.height, sheet.width) == (h, w)
    for k, row in enumerate(rows):
        top, left = k // sheet.columns * h, k % sheet.columns * w
        expected = np.rint((row.reshape(shape) - low) * 255 / (high - low))
        np.testing.assert_allclose(tiles[top : top + h, left : left + w], expected, atol=1)


def test_large_images_are_shrunk_to_means():
    rows = np.kron(np.array([[[0.0, 1.0], [2.0, 3.0]]]), np.ones((1, 64, 64))).reshape(1, -1)
    small = thumbnails(rows, (128, 128))
    assert small.shape == (1, *thumbnail_shape((128, 128))) == (1, 32, 32, 1)
    assert small[0, 0, 0, 0] == 0
    assert small[0, 31, 31, 0] == 3
    assert small.mean() == pytest.approx(1.5)


@pytest.mark.parametrize("shape", [(28, 28), (500, 30), (1, 1), (64, 64, 3)])
def test_a_sheet_of_noise_stays_small(rng, shape):
    k = most_thumbnails(shape)
    assert k * np.prod(thumbnail_shape(shape)) <= SHEET_PIXELS
    assert (k + 1) * np.prod(thumbnail_shape(shape)) > SHEET_PIXELS
    pixels = rng.integers(0, 256, (min(k, 2000), *thumbnail_shape(shape))).astype(np.float32)
    sheet = make_sheet(np.arange(len(pixels)), pixels)
    assert len(sheet.png) < 1.5 * pixels.size + 10_000


def test_unknown_pixels_and_equal_values():
    assert pixel_range(np.array([np.nan, np.inf])) == (0.0, 1.0)
    assert pixel_range(np.full(3, 7.0)) == (7.0, 8.0)
    assert opened(image_png(np.array([np.nan, 0.0, 2.0, 4.0]), (2, 2), (0.0, 4.0))).tolist() == [[0, 0], [128, 255]]

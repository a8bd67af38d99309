"""Images of input rows for the explorer: one as a PNG, or thumbnails of many on one sheet."""

import base64
import io
import math
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Float32, UInt8
from .point_colors import robust_range

Shape = tuple[int, ...]

SHEET_PIXELS = 2**22
"""Largest number of pixels of a sheet, times 3 if they have colours; a PNG of random pixels takes a byte for each."""
THUMBNAIL = 32
"""Longest side of a thumbnail in pixels."""


class Sheet(NamedTuple):
    """Thumbnails in rows of `columns` on one PNG (base64), in the order of `points` (k,), which is ascending."""

    png: str
    points: Array
    columns: int
    width: int
    height: int


def thumbnail_shape(shape: Shape) -> tuple[int, int, int]:
    """Height, width and colours of the thumbnail of an image of this shape.

    >>> thumbnail_shape((28, 28)), thumbnail_shape((64, 128, 3))
    ((28, 28, 1), (16, 32, 3))
    """
    scale = min(1.0, THUMBNAIL / max(shape[:2]))
    height, width = (max(1, round(side * scale)) for side in shape[:2])
    return height, width, shape[2] if len(shape) > 2 else 1


def most_thumbnails(shape: Shape) -> int:
    return max(1, SHEET_PIXELS // math.prod(thumbnail_shape(shape)))


def thumbnails(rows: Array, shape: Shape) -> Float32:
    """(k, height, width, colours) means of the pixels of images of some shape, given as rows (k, features)."""
    from PIL import Image

    height, width, colors = thumbnail_shape(shape)
    images = rows.reshape(len(rows), *shape[:2], colors).astype(np.float32)
    if (height, width) == images.shape[1:3]:
        return images
    small = np.empty((len(rows), height, width, colors), np.float32)
    for k, color in np.ndindex(len(rows), colors):
        shrunk = Image.fromarray(images[k, ..., color]).resize((width, height), Image.Resampling.BOX)
        small[k, ..., color] = np.asarray(shrunk)
    return small


def pixel_range(pixels: Array) -> tuple[float, float]:
    """The values that are shown as black and as white."""
    known = pixels[np.isfinite(pixels)].astype(np.float64)
    low, high = robust_range(known) if known.size else (0.0, 1.0)
    return (low, high) if high > low else (low, low + 1.0)


def make_sheet(points: Array, images: Float32) -> Sheet:
    """A sheet of thumbnails (k, height, width, colours) of the given points (k,)."""
    n, height, width, colors = images.shape
    columns = math.ceil(math.sqrt(n))
    sheet = np.zeros((math.ceil(n / columns) * columns, height, width, colors), np.uint8)
    sheet[:n] = _gray_levels(images, pixel_range(images))
    tiled = sheet.reshape(-1, columns, height, width, colors).swapaxes(1, 2).reshape(-1, columns * width, colors)
    return Sheet(base64.b64encode(png_of(tiled, optimize=True)).decode("ascii"), points, columns, width, height)


def image_png(row: Array, shape: Shape, limits: tuple[float, float]) -> bytes:
    """One image as a PNG of its own size."""
    return png_of(_gray_levels(row.reshape(*shape[:2], -1), limits), optimize=True)


def _gray_levels(pixels: Array, limits: tuple[float, float]) -> UInt8:
    levels = (np.nan_to_num(pixels, nan=limits[0]) - limits[0]) * (255 / (limits[1] - limits[0]))
    return np.rint(np.clip(levels, 0, 255)).astype(np.uint8)


def png_of(pixels: UInt8, **options: Any) -> bytes:
    """A PNG of pixels (height, width, colours), with Pillow's options."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "png", **options)
    return file.getvalue()

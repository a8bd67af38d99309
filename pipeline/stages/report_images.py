"""Images of input rows for the explorer, from the store's copy of the input."""

from functools import lru_cache

import numpy as np

from ..core.arrays import Bools, Float32, Int64
from ..engine import current_config
from ..inputs.row_filter import even_sample
from ..report.images import Shape, Sheet, image_png, make_sheet, most_thumbnails, pixel_range, thumbnails
from ..storage import array_specs
from ..storage.store import Store, block_of

READ_BLOCKS = 16
"""Largest number of input blocks that a report reads for its thumbnails."""
CACHED_BLOCKS = 4
RANGE_ROWS = 500


def image_shape(store: Store) -> Shape | None:
    """Height and width, and number of colours if there are any, of the images that are the rows of the input.

    None if they are no images, or the store has no copy of them.
    """
    shape = store.attributes().get("image_shape")
    return tuple(shape) if shape and current_config.has_array(store, array_specs.RAW.name) else None


def page_images(store: Store, rows: Int64) -> Sheet | None:
    """Thumbnails of an even sample of input rows (ascending); None if the input has no images."""
    shape = image_shape(store)
    if shape is None or not len(rows):
        return None
    points = np.flatnonzero(_in_few_blocks(store, rows, READ_BLOCKS))
    points = points[even_sample(len(points), most_thumbnails(shape))]
    return make_sheet(points, _thumbnails(store, rows[points], shape))


def _in_few_blocks(store: Store, rows: Int64, limit: int) -> Bools:
    """Which rows are in one of at most `limit` blocks, evenly spread."""
    blocks = rows // block_of(store.array(array_specs.RAW.name))
    distinct = np.unique(blocks)
    return np.isin(blocks, distinct[even_sample(len(distinct), limit)])


def _thumbnails(store: Store, rows: Int64, shape: Shape) -> Float32:
    """Thumbnails of some rows; one block of the input is in memory at a time."""
    cuts = np.flatnonzero(np.diff(rows // block_of(store.array(array_specs.RAW.name)))) + 1
    return np.concatenate(
        [thumbnails(store.gather(array_specs.RAW.name, part), shape) for part in np.split(rows, cuts)]
    )


class StoredImages:
    """The images of all rows, one PNG at a time; the last blocks of the input stay in memory."""

    def __init__(self, store: Store, shape: Shape, rows: Int64) -> None:
        array = store.array(array_specs.RAW.name)
        self._size, self._n_rows, self.shape = block_of(array), array.shape[0], shape
        near = rows[_in_few_blocks(store, rows, CACHED_BLOCKS)]
        sample = near[even_sample(len(near), RANGE_ROWS)]
        self._limits = pixel_range(_thumbnails(store, sample, shape))
        self._block = lru_cache(CACHED_BLOCKS)(
            lambda start: store.read(array_specs.RAW.name, start, min(start + self._size, self._n_rows))
        )

    def png(self, row: int) -> bytes:
        start = row // self._size * self._size
        return image_png(self._block(start)[row - start], self.shape, self._limits)

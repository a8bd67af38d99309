"""Upper bounds on the bytes of the bundles that each step writes, all blocks of a step together; integers only.

Bundles and blocks of sparse rows stay in the store until a step `deletes` them, or after the run for later runs. Here
are the formulas that several steps use, or that are long; the others are written at their step with `files`. Each is
named after its step; `row` is the bytes of a point's coordinates, `k` the neighbours of a point.
"""

from ..storage.bundles import OBJECT_BYTES

FILE_BYTES = 6 * 2**10
"""Overhead of a file: it takes whole pages of 4 KiB, and holds names and headers of its arrays."""
PART_BYTES, ARRAY_BYTES = 48, 64
"""Overhead of a part of an object, and of each array in it: entry, checksum, names and headers."""
REPORT_BYTES = 16 * 2**20
"""Pictures and page of a report, and the explorer without its points; independent of the number of points."""
IMAGE_BYTES = 6 * 2**20
"""Images of rows in the explorer."""
EXPLORER_POINTS = 1_000_000
ID = NUMBER = 8
MATRIX_ENTRY = 12
"""A column and a value."""


def files(count: int, n_bytes: int) -> int:
    """``count`` files that hold ``n_bytes`` of arrays together."""
    return FILE_BYTES * count + n_bytes


def parts(*, writers: int, readers: int, arrays: int, n_bytes: int) -> int:
    """Objects of `writers` tasks with a part of `arrays` arrays for each of `readers` tasks, `n_bytes` together."""
    overhead = writers * readers * (PART_BYTES + arrays * ARRAY_BYTES)
    return files(writers + 2 * (overhead + n_bytes) // OBJECT_BYTES, overhead + n_bytes)


def report(*, n: int, m: int, d: int) -> int:
    """Base64 of 32 bits for each number of a point in the explorer (coordinates, error, component, two labels) and its
    row number, and of a byte for each pixel of an image."""
    return REPORT_BYTES + min(n, EXPLORER_POINTS) * (4 * m + 20) * 3 // 2 + min(IMAGE_BYTES, n * d * 3 // 2)


def per_point(*, n: int, blocks: int, numbers: int = 1) -> int:
    """`numbers` numbers and the id of each point."""
    return files(blocks, n * (ID + NUMBER * numbers))


def sparse_rows(*, n: int, blocks: int, entries: int) -> int:
    """Blocks of `n` CSR rows with `entries` entries together; each block is a group of three arrays."""
    return files(7 * blocks, MATRIX_ENTRY * entries + ID * n)


def eigenvectors(*, n: int, width: int, components: int) -> int:
    """Eigenpairs of each component, two copies of the state of an iteration with `width` columns, and two analyses."""
    return files(components * (6 + 2 * (n // 65_536 + 2)), n * (3 * ID + NUMBER * 3 * width))

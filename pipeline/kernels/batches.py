"""Batches of points, which bound the memory of work arrays over neighbourhoods."""

BATCH_BYTES = 2 * 2**20
"""Work arrays in memory at one time, few enough for the cache; does not affect results beyond rounding."""


def batches(n_points: int, point_bytes: int) -> list[slice]:
    """Ranges of points whose work arrays, `point_bytes` for each point, take at most BATCH_BYTES together."""
    step = max(1, BATCH_BYTES // max(point_bytes, 1))
    return [slice(first, min(first + step, n_points)) for first in range(0, n_points, step)]

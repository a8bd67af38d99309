"""Bytes read: no stage reads more than three times the bytes of an array, wherever the neighbours are stored."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from zarr.storage import LocalStore

from lle.engine import plan_sizes
from tests.support.points import swiss_roll

MOST = 3.0
STAGES = ("find_neighbors", "mend_graph", "solve_weights", "assemble_cost")


@contextmanager
def counted(monkeypatch) -> Iterator[Counter[str]]:
    """Bytes read of each array's chunks."""
    get, read = LocalStore.get, Counter[str]()

    async def log(self, key, *arguments, **more):
        actual = await get(self, key, *arguments, **more)
        if "/c/" in key and actual is not None:
            read[key.split("/c/")[0]] += len(actual)
        return actual

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "get", log)
        yield read


def size_on_disk(store, name) -> int:
    return sum(store.objects.size(chunk) for chunk in store.objects.names(f"{name}/c"))


@pytest.fixture
def reads(tmp_path, monkeypatch, run_stages, make_config):
    """Runs the stages up to a requested one; for each, the bytes that it reads of each array per byte of the array."""

    def count(points, block, stages=STAGES, **neighbors) -> dict[tuple[str, str], float]:
        monkeypatch.setattr(plan_sizes, "CELL_POINTS", block // 32)  # as many cells a block as at full size
        config = make_config(tmp_path, points, block, neighbors=neighbors)
        run_stages(config, "order_points")
        results = {}
        for stage in stages:
            with counted(monkeypatch) as read:
                store = run_stages(config, stage).store
            results |= {(stage, name): number / size_on_disk(store, name) for name, number in read.items()}
        return results

    return count


@pytest.mark.slow
def test_reads_are_bounded_if_neighbors_are_in_all_blocks(reads):
    """In twenty dimensions the neighbours of a block are in all other blocks."""
    bytes_read = reads(np.random.default_rng(5).normal(size=(4096, 20)), 256, method="pynndescent", min_recall=0.0)
    assert {stage for stage, _ in bytes_read} == set(STAGES)
    assert max(bytes_read.values()) <= MOST, bytes_read


@pytest.mark.slow
def test_reads_are_bounded_if_neighbors_are_in_few_blocks(reads):
    bytes_read = reads(swiss_roll(8192, np.random.default_rng(6)), 1024, method="kdtree")
    assert max(bytes_read.values()) <= MOST, bytes_read


@pytest.mark.slow
def test_count_detects_reads_of_all_points(reads):
    """Brute force reads all points for every block."""
    bytes_read = reads(np.random.default_rng(7).normal(size=(2048, 4)), 256, STAGES[:1], method="brute")
    assert bytes_read["find_neighbors", "points"] == pytest.approx(8, rel=0.1)

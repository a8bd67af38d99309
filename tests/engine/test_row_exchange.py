"""Exchange of rows between many blocks: rows, number of objects, damage, and a kill between two objects."""

import shutil

import numpy as np
import pytest

from lle.core.errors import CorruptChunk, StageIncomplete
from lle.engine import checkpoint
from lle.engine.execute import Executor, run_step
from lle.engine.plan import Layout, Walker
from lle.engine.row_exchange import REQUESTS, SENT, Requested, exchange, receive_rows, receive_rows_bytes
from lle.jobs.verify import find_damage, unmark_damaged_blocks
from lle.storage import bundles
from lle.storage.blocks import Blocks
from lle.storage.local_objects import LocalObjects
from lle.storage.store import Store
from tests.support.plans import planned
from tests.support.stage_runs import Progress

N, SIZE, D, K = 397, 10, 3, 6
BLOCKS = Blocks(N, SIZE)
RNG = np.random.default_rng(3)
POINTS = RNG.normal(size=(N, D))
LISTS = np.array([RNG.choice(N, K, replace=False) for _ in range(N)], np.int32)
LISTS[::7, 4:] = -1
LISTS[50:60] = np.arange(50, 56)  # block 5 needs no rows of other blocks


def store_with_lists(tmp_path) -> Store:
    """A store with points and lists."""
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({})
    for name, values in (("points", POINTS), ("neighbor_indices", LISTS)):
        store.create(planned(name, values.shape, str(values.dtype), SIZE))
        store.write(name, 0, values)
    return store


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A store in which both steps are done, and the result of `run_exchange`."""
    store = store_with_lists(tmp_path_factory.mktemp("finished"))
    return store, run_exchange(store)


@pytest.fixture
def store(finished, tmp_path):
    """A copy of it."""
    shutil.copytree(finished[0].url, tmp_path / "run.zarr")
    return Store(str(tmp_path / "run.zarr"))


def run_exchange(store: Store) -> tuple[int, Progress]:
    """Run both steps; returns the bytes of a task that receives the rows, and the blocks computed."""
    layout = Layout(N, D, "float64", SIZE, n_points=N, n_features=D, k_max=K)
    progress = Progress()

    class Run(Walker):
        def reports_of(self, step):
            return [report.report for report in run_step(step, "", store, Executor(None), progress)]

    return Run().drive(exchange("solve_weights", layout, "points", 8 * D)), progress


def check_received(store: Store) -> list[int]:
    """Every block receives the rows of all its neighbours; returns how many are from other blocks."""
    counts = []
    for block in range(BLOCKS.count):
        start, stop = BLOCKS.rows(block)
        ids, rows = receive_rows(store, block, "points", BLOCKS, LISTS[start:stop])
        listed = LISTS[start:stop]
        np.testing.assert_array_equal(ids, np.union1d(listed[listed >= 0], np.arange(start, stop)))
        np.testing.assert_array_equal(rows, POINTS[ids])
        counts.append(len(ids) - (stop - start))
    return counts


def count_pairs() -> int:
    """Pairs of blocks of which one needs rows of the other."""
    needed = [np.unique(LISTS[start : start + SIZE]) // SIZE for start in range(0, N, SIZE)]
    return sum(len(set(blocks[blocks >= 0]) - {block}) for block, blocks in enumerate(needed))


def test_number_of_objects_is_linear_in_the_blocks(finished):
    """Each of 40 blocks needs rows of nearly all others: 1,500 pairs, but one object for each task."""
    store, (n_bytes, progress) = finished
    assert (BLOCKS.count, progress.ended) == (40, [("request", 7), ("send", 40)])
    assert len(store.objects.names(REQUESTS)) == 7
    assert len(store.objects.names(SENT)) == 40
    assert count_pairs() > 1000
    counts = check_received(store)
    assert n_bytes == receive_rows_bytes(block_size=SIZE, foreign=max(counts), row=8 * D)
    requests = checkpoint.reports_of_step(store, "solve_weights.request", Requested)
    assert sum(counts) == sum(report.rows for report in requests)
    assert find_damage(store) == []


@pytest.mark.parametrize(("name", "step"), [(f"{REQUESTS}/00003", "request"), (f"{SENT}/00017", "send")])
@pytest.mark.parametrize("fault", ["flipped byte", "deleted"])
def test_damaged_or_deleted_object_is_found_and_only_its_task_is_repeated(store, name, step, fault):
    undamaged = store.objects.get(f"{name}.parts")
    if fault == "deleted":
        store.objects.delete(f"{name}.parts")
    else:
        store.objects.put(f"{name}.parts", undamaged[:-9] + bytes([undamaged[-9] ^ 1]) + undamaged[-8:])
    [error] = find_damage(store)
    assert error.array == name
    if step == "send":
        last = np.flatnonzero(((LISTS >= 170) & (LISTS < 180)).any(axis=1))[-1] // SIZE  # reads the last part
        with pytest.raises(CorruptChunk, match=name):
            receive_rows(store, last, "points", BLOCKS, LISTS[slice(*BLOCKS.rows(last))])
    block = int(name[-5:])
    assert unmark_damaged_blocks(store, [error]) == [f"block {block} of solve_weights.{step}"]
    _, progress = run_exchange(store)
    assert progress.advanced == [block]
    assert store.objects.get(f"{name}.parts") == undamaged
    assert find_damage(store) == []


def test_damaged_request_ends_the_step_that_reads_it(store):
    checkpoint.delete_markers(store, "solve_weights.send")
    store.objects.delete(f"{REQUESTS}/00006.parts")
    with pytest.raises(StageIncomplete, match=r"block 6 of solve_weights.request"):
        run_exchange(store)
    run_exchange(store)
    check_received(store)


def test_kill_between_two_objects_of_a_task_is_resumed(tmp_path, monkeypatch):
    store = store_with_lists(tmp_path)
    monkeypatch.setattr(bundles, "OBJECT_BYTES", 2000)
    put, killed = LocalObjects.put, []

    def kill(self, name, data):
        if name == f"{SENT}/00012.parts" and not killed:
            killed.append(name)
            raise KeyboardInterrupt
        put(self, name, data)

    monkeypatch.setattr(LocalObjects, "put", kill)
    with pytest.raises(KeyboardInterrupt):
        run_exchange(store)
    assert store.objects.names(SENT)[-1].startswith(f"{SENT}/00012.parts.")  # without the object with the index
    _, progress = run_exchange(store)
    assert progress.advanced == list(range(12, 40))
    check_received(store)
    assert find_damage(store) == []


def test_one_block_needs_no_rows(finished):
    blocks = Blocks(N, N)
    ids, rows = receive_rows(finished[0], 0, "points", blocks, LISTS)
    np.testing.assert_array_equal(ids, np.arange(N))
    np.testing.assert_array_equal(rows, POINTS)

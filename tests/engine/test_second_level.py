"""Parts of many writers, joined: equal to what they wrote, damage is found, and a run gives the same bytes."""

import numpy as np
import pytest

from lle.core.errors import CorruptChunk
from lle.engine import checkpoint, plan_sizes, second_level
from lle.engine.progress import RunProgress
from lle.engine.second_level import Parts, join_parts, parts_of
from lle.jobs.run import run
from lle.jobs.verify import find_damage
from lle.search import cell_groups
from lle.stages import order_points
from lle.storage import bundles
from lle.storage.store import Store
from tests.support.seeds import seeds

WRITERS, READERS = 11, 7


@pytest.fixture
def written(tmp_path, monkeypatch):
    """`written(seed)`: a store with parts of random sizes, and what each reader should get from each writer."""
    monkeypatch.setattr(second_level, "DIRECT_WRITERS", 5)

    def write(seed: int) -> tuple[Store, list[list[np.ndarray]]]:
        store, rng = Store(str(tmp_path / "run.zarr")), np.random.default_rng(seed)
        sent = [[rng.normal(size=rng.integers(1, 40)) for _ in range(READERS)] for _ in range(WRITERS)]
        has_part = rng.random((WRITERS, READERS)) < 0.6
        has_part[2], has_part[:, 4] = False, False
        for writer in range(WRITERS):
            readers = rng.permutation(np.flatnonzero(has_part[writer])).tolist()
            name = f"_work/sent/{writer % 2:03d}/{writer:05d}"
            store.write_parts(name, READERS, ((r, {"x": sent[writer][r], "n": np.array(writer)}) for r in readers))
        return store, [[sent[w][r] for w in range(WRITERS) if has_part[w, r]] for r in range(READERS)]

    return write


def join_all(store: Store) -> Parts:
    parts = parts_of("_work/sent", WRITERS)
    for block in range(parts.writers):
        join_parts(store, block, "_work/sent", WRITERS, READERS, parts.folder)
    return parts


@pytest.mark.parametrize("seed", seeds(11, 23, 37))
@pytest.mark.parametrize("at_once", [1, 700, 10**6])
@pytest.mark.parametrize("object_bytes", [300, 10**6])
def test_each_reader_gets_the_parts_of_all_writers_in_order(written, monkeypatch, seed, at_once, object_bytes):
    monkeypatch.setattr(bundles, "JOINED_AT_ONCE", at_once)
    monkeypatch.setattr(bundles, "OBJECT_BYTES", object_bytes)
    store, expected = written(seed)
    parts = join_all(store)
    assert (parts.is_joined, parts.writers, len(parts.names(store))) == (True, 4, 4)
    for reader in range(READERS):
        direct, joined = list(Parts("_work/sent", WRITERS).of(store, reader)), list(parts.of(store, reader))
        assert [int(part["n"]) for part in joined] == [int(part["n"]) for part in direct]
        for part, values in zip(joined, expected[reader], strict=True):
            np.testing.assert_array_equal(part["x"], values)


def test_damaged_and_missing_objects_of_writers_are_found(written):
    store, _ = written(11)
    name = "_work/sent/001/00003"
    data = store.objects.get(f"{name}.parts")
    store.objects.put(f"{name}.parts", data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    with pytest.raises(CorruptChunk, match=name):
        join_all(store)
    store.objects.delete(f"{name}.parts")
    with pytest.raises(CorruptChunk, match="00003"):
        join_all(store)


@pytest.mark.slow
def test_run_with_joined_parts_equals_one_without(tmp_path, make_config, monkeypatch):
    """20 blocks and more than three groups of cells."""
    monkeypatch.setattr(plan_sizes, "CELL_POINTS", 10)
    monkeypatch.setattr(cell_groups, "GROUP_POINTS", 40)
    joins = {
        "find_neighbors.join_members",
        "find_neighbors.join_lists",
        "solve_weights.join_sent",
        "assemble_cost.join",
    }
    points, stores = np.random.default_rng(5).normal(size=(320, 4)), list[Store]()
    for most, expected, gathers in ((128, set(), 20), (3, joins, 3)):
        monkeypatch.setattr(second_level, "DIRECT_WRITERS", most)
        monkeypatch.setattr(order_points, "DIRECT_WRITERS", most)
        neighbors = {"n_neighbors": 8, "method": "pynndescent", "min_recall": 0}
        config = make_config(tmp_path, points, 16, neighbors=neighbors)
        run(config, False, RunProgress())
        stores.append(Store(config.output.store))
        assert {key for key in checkpoint.begun_steps(stores[-1]) if ".join" in key} == expected
        assert len(checkpoint.read_reports(stores[-1])["order_points.gather"]) == gathers
        assert find_damage(stores[-1]) == []
    checkpoint.delete_markers(stores[1], "assemble_cost.merge")  # the deleted parts are computed again
    assert run(config, False, RunProgress()).computed["assemble_cost"] == 20 + 5 + 20
    for name in ("points", "neighbor_indices", "weights", "embedding"):
        np.testing.assert_array_equal(*(store.read_all(name) for store in stores))
    for block in range(20):
        first, second = (store.read_rows("cost_matrix", block) for store in stores)
        np.testing.assert_array_equal(first.data, second.data)
        np.testing.assert_array_equal(first.indices, second.indices)
    left = stores[1].objects.names("_work")
    assert not [name for name in left if any(part in name for part in ("joined", "sent_rows", "members", "contrib"))]

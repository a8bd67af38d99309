"""Data that no later step reads are deleted, and computed again when a changed or damaged step needs them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lle.core.errors import LleError
from lle.engine import checkpoint
from lle.engine.step import Report, Step, task
from lle.jobs import run_stages
from lle.report.metrics import Metrics
from lle.stages import registry
from lle.storage import array_specs
from lle.storage.array_specs import PlannedArray
from lle.storage.blocks import Blocks
from lle.storage.store import Store
from lle.storage.versions import published_url
from tests.support.commands import lle, refused, write_config
from tests.support.toy_stages import TOY_STAGES

N, BLOCK = 60, 20
SORTED, COUNTS, PARTS = array_specs.SORTED_INDEX.name, "_work/counts", "_work/parts"


def order(config, layout):
    """sort -> split, which frees the sorted rows -> gather, which frees the parts."""
    blocks, array = Blocks(N, BLOCK), PlannedArray(array_specs.SORTED_INDEX, (N,), "int64", BLOCK)
    index = PlannedArray(array_specs.ORIGINAL_INDEX, (N,), "int64", BLOCK)
    sorting, splitting = task(sort, blocks=blocks), task(split, blocks=blocks)
    yield from Step("order_points.sort", sorting, 3, 1, arrays=(array,), bundles={COUNTS: 6200})
    yield from Step("order_points.split", splitting, 3, 1, bundles={PARTS: 9000}, deletes=(SORTED,))
    gathering = task(gather, seed=config.neighbors.seed, blocks=blocks)
    yield from Step("order_points.gather", gathering, 3, 1, arrays=(index,), deletes=(PARTS,))
    return layout


def sort(store, block_index, blocks) -> Report:
    store.write(SORTED, block_index * BLOCK, np.arange(*blocks.rows(block_index)))
    store.write_bundle(f"{COUNTS}/{block_index:05d}", count=np.array([BLOCK]))
    return Report()


def split(store, block_index, blocks) -> Report:
    store.write_bundle(f"{PARTS}/{block_index:05d}", rows=store.read(SORTED, *blocks.rows(block_index)))
    return Report()


def gather(store, block_index, seed, blocks) -> Report:
    """A missing part is no error here, as in steps that list the names of their bundles."""
    parts = [store.read_bundle(name.removesuffix(".npz"))["rows"] for name in store.objects.names(PARTS)]
    store.write(
        array_specs.ORIGINAL_INDEX.name,
        block_index * BLOCK,
        np.concatenate([np.zeros(0, int), *parts])[slice(*blocks.rows(block_index))] + seed,
    )
    return Report()


@pytest.fixture
def config(tmp_path, toy_stages, monkeypatch):
    """`config(**output)`: the path of a config."""
    stages = {"ingest": TOY_STAGES["ingest"], "order_points": order, **TOY_STAGES}
    monkeypatch.setattr(registry, "STAGES", stages)
    np.save(tmp_path / "x.npy", np.random.default_rng(3).normal(size=(N, 3)))

    def write(**output) -> Path:
        source = {"kind": "npy", "path": str(tmp_path / "x.npy")}
        return write_config(
            tmp_path, input=source, output=output, execution={"block_points": BLOCK}, neighbors={"seed": 0}
        )

    return write


def computed(config: Path, *changes: str) -> dict[str, int]:
    return lle("run", config, *changes)["blocks_computed"]


def check(store: Store, seed: int = 0) -> None:
    """The parts are deleted, what was computed from them is right, and `lle verify` finds no damage."""
    assert store.objects.names(SORTED) == store.objects.names(PARTS) == []
    assert len(store.objects.names(COUNTS)) == 3
    np.testing.assert_array_equal(store.read_all(array_specs.ORIGINAL_INDEX.name), np.arange(N) + seed)
    found = lle("verify", store.url)
    assert (found["damaged"], found["unfinished"]) == (0, {})


def test_freed_data_are_deleted_and_their_steps_are_done(config, tmp_path, monkeypatch):
    first, store = computed(config()), Store(str(tmp_path / "run.zarr"))
    check(store)
    assert first["order_points"] == 9
    with monkeypatch.context() as patched:
        patched.setattr(run_stages, "connect", lambda cluster: pytest.fail("nothing is left to do on workers"))
        assert computed(config()) == {}
    assert "order_points" not in computed(config(), "--set", "weights.reg=2.0")


def test_a_cluster_that_does_not_start_leaves_the_earlier_result(config, tmp_path, monkeypatch):
    def connect(cluster):
        raise LleError("no scheduler")

    computed(config())
    with monkeypatch.context() as patched:
        patched.setattr(run_stages, "connect", connect)
        assert "no scheduler" in refused(1, "run", config(), "--set", "neighbors.seed=5")
    check(Store(str(tmp_path / "run.zarr")))
    assert computed(config()) == {}


def test_a_task_with_a_component_that_did_not_converge_is_not_done(config, tmp_path):
    refused(3, "run", config(), "--set", "eigensolver.method=multigrid")
    done = Store(str(tmp_path / "run.zarr")).objects.names("_done/solve_embedding")
    assert [name.split("/")[-1].split(".")[0] for name in done] == ["write"] * 3


def test_changed_reader_computes_freed_data_again_and_nothing_before_them(config, tmp_path):
    computed(config())
    changed = ("--set", "neighbors.seed=5")
    planned = {row["step"]: row["reused"] for row in lle("plan", config(), *changed)["steps"]}
    assert [planned[name] for name in ("read", "sort", "split", "gather")] == [3, 0, 0, 0]
    again = lle("run", config(), *changed)
    assert (again["blocks_computed"]["order_points"], "ingest" in again["blocks_computed"]) == (9, False)
    assert again["blocks_reused"]["order_points"] == 0
    check(Store(str(tmp_path / "run.zarr")), seed=5)
    planned = {row["step"]: row["reused"] for row in lle("plan", config(), *changed)["steps"]}
    assert [planned[name] for name in ("read", "sort", "split", "gather")] == [3, 3, 3, 3]


def test_damaged_block_of_a_reader_is_computed_from_data_computed_again(config, tmp_path):
    computed(config())
    store = Store(str(tmp_path / "run.zarr"))
    Path(store.url, "original_index", "c", "1").write_bytes(b"damaged")
    assert "block 1 of order_points.gather" in refused(1, "verify", store.url)
    assert computed(config()) == {"order_points": 7, "write_report": 1}  # gather has two other blocks
    check(store)


@pytest.mark.parametrize("failing", ["split", pytest.param("gather", marks=pytest.mark.slow)])
def test_run_that_stops_while_freed_data_are_computed_again_is_resumed(config, tmp_path, monkeypatch, failing):
    computed(config())
    change, blocks = ("--set", "neighbors.seed=5"), []

    def fail(store, block_index, **parameters):
        blocks.append(block_index)
        raise OSError("no answer")

    with monkeypatch.context() as patched:
        patched.setitem(order.__globals__, failing, fail)
        assert "no answer" in refused(1, "run", config(), *change)
    assert blocks == [0, 1, 2]
    assert computed(config(), *change)["order_points"] == {"split": 6, "gather": 3}[failing]
    check(Store(str(tmp_path / "run.zarr")), seed=5)


@pytest.mark.slow
def test_data_of_a_run_before_they_were_freed_are_deleted_by_the_next(config, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "delete_data", lambda *arguments: None)
        computed(config())
    store = Store(str(tmp_path / "run.zarr"))
    assert len(store.objects.names(PARTS)) == 3
    assert computed(config()) == {}
    check(store)


def test_new_version_takes_over_steps_whose_data_were_freed(config, tmp_path):
    computed(config(keep=2))
    changes = ("--set", "weights.reg=2.0")
    assert "order_points" not in computed(config(keep=2), *changes)
    check(Store(published_url(str(tmp_path / "run.zarr"))))
    assert computed(config(keep=2), *changes, "--set", "neighbors.seed=5")["order_points"] == 9
    check(Store(published_url(str(tmp_path / "run.zarr"))), seed=5)


def test_lost_rows_names_the_reason_of_most_of_them():
    metrics = Metrics(n_input=100, dropped={"invalid": 2, "small_component": 30}, invalid_by_column={"x": 2})
    assert run_stages.lost_rows(metrics, 0.5) == ""
    message = run_stages.lost_rows(metrics, 0.9)
    assert "only 68 of 100 rows have coordinates; 30 are rows in components that were not embedded; set" in message
    message = run_stages.lost_rows(replace(metrics, dropped={"invalid": 40}), 0.9)
    assert "; 40 are rows with NaN or infinity, most in x (2); leave columns with many of them out" in message

"""A marker is valid only for its fingerprint and only if its data are stored."""

import shutil
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lle.core.errors import StageIncomplete
from lle.engine import checkpoint
from lle.engine.checkpoint import (
    add_seconds,
    begin_step,
    delete_step_record,
    delete_unused_steps,
    finished_blocks,
    invalidate,
    is_complete,
    mark_done,
    read_reports,
    recorded_steps,
)
from lle.engine.step import WHOLE_DATA, BlockReport, Resource, Step, Task
from lle.storage.array_specs import ArraySpec, PlannedArray
from lle.storage.local_objects import LocalObjects
from lle.storage.store import Store
from tests.support.steps import Facts, make_step, no_task

ROWS, BLOCK = 12, 4
SPEC = ArraySpec("x", ("point",), "float64", "")


def fill(store, block, a=0, b=(), c=None, max_memory: Resource[int] = 0) -> Facts:
    return Facts()


STEP = make_step(
    "make.fill",
    fill,
    3,
    {"a": 1, "b": [2, 3], "max_memory": 1},
    input_state={"files": ["f"]},
    arrays=(PlannedArray(SPEC, (ROWS,), "float64", BLOCK),),
    bundles={"_work/parts": 0},
)
EMPTY = {"arrays": (), "bundles": ()}


def compute(store: Store, step: Step, fingerprint: str, blocks=range(3)) -> None:
    """Compute the blocks of STEP: data that contain the fingerprint, then the markers."""
    for block in blocks:
        store.write("x", block * BLOCK, np.full(BLOCK, float(int(fingerprint, 16))))
        store.write_bundle(f"_work/parts/{block:05d}", mark=np.array([int(fingerprint, 16)]))
        mark_done(store, step, fingerprint, BlockReport(block, 0.5, 7, Facts({"block": block})))


@pytest.fixture
def computed(store):
    """A store in which all blocks of STEP are done under the fingerprint a1."""
    begin_step(store, STEP, "a1")
    compute(store, STEP, "a1")
    return store


def finished(store: Store, step: Step, fingerprint: str) -> set[int]:
    return set(finished_blocks(store, step.key, fingerprint))


def changed(step: Step, changes: dict[str, Any]) -> Step:
    """The step with other fields or parameters."""
    changes = dict(changes)
    if (parameters := changes.pop("parameters", None)) is not None:
        changes["task"] = Task(fill, parameters)
    return replace(step, **changes)


class TestFingerprint:
    @pytest.mark.parametrize(
        "changes",
        [
            {"parameters": {"a": 2, "b": [2, 3]}},
            {"parameters": {"a": 1}},
            {"parameters": {"a": 1, "b": [3, 2]}},
            {"parameters": {"a": 1, "b": [2, 3], "c": None}},
            {"input_state": {"files": ["g"]}},
            {"input_state": {}},
            {"version": 2},
            {"n_blocks": 4},
            {"key": "make.other"},
            {"key": "other.fill"},
        ],
    )
    def test_fingerprint_changes_with_everything_that_decides_the_result(self, changes):
        assert changed(STEP, changes).fingerprint("up") != STEP.fingerprint("up")

    def test_changes_with_upstream(self):
        assert STEP.fingerprint("up") != STEP.fingerprint("other")

    @pytest.mark.parametrize(
        "changes",
        [
            {"parameters": {"a": 1, "b": [2, 3], "max_memory": 7}},
            {"task_bytes": 99},
            {"runs_on": WHOLE_DATA},
            {"all_cores": True},
            {"is_measurement": True},
            {"expected": lambda block: {"x": 1}},
            {"parameters": {"b": [2, 3], "a": 1}},
            {"parameters": {"a": 1, "b": (2, 3)}},
        ],
    )
    def test_fingerprint_does_not_depend_on_how_a_step_runs(self, changes):
        assert changed(STEP, changes).fingerprint("up") == STEP.fingerprint("up")


class TestMarkers:
    def test_only_those_with_this_fingerprint_count(self, store):
        assert begin_step(store, STEP, "a1") == {}
        compute(store, STEP, "a1", [0, 2])
        stale = {"fingerprint": "b2", **asdict(BlockReport(1, 0.5, 7, Facts()))}
        store.put_json(checkpoint.marker_name("make.fill", 1), stale)
        finished_blocks = begin_step(store, STEP, "a1")
        assert finished_blocks == {block: BlockReport(block, 0.5, 7, Facts({"block": block})) for block in (0, 2)}

    def test_markers_with_a_flipped_bit_do_not_count(self, store):
        """Flips each bit of a marker once: it is then invalid JSON, or has a wrong key or number."""
        begin_step(store, STEP, "a1")
        report = BlockReport(1, 0.5, 7, Facts({"members": {"4": 31}, "recall": 0.97}))
        mark_done(store, STEP, "a1", report)
        name = checkpoint.marker_name("make.fill", 1)
        undamaged = store.objects.get(name)
        for bit in range(8 * len(undamaged)):
            damaged = bytearray(undamaged)
            damaged[bit // 8] ^= 1 << bit % 8
            store.objects.put(name, bytes(damaged))
            assert checkpoint.read_marker(store, STEP, "a1", 1) in (None, report), damaged
        store.objects.put(name, undamaged)
        assert checkpoint.read_marker(store, STEP, "a1", 1) == report

    def test_markers_of_steps_with_similar_names_are_distinct(self, store):
        similar = replace(STEP, key="make.fill_more", **EMPTY)
        begin_step(store, similar, "a1")
        mark_done(store, similar, "a1", BlockReport(0, 0.5, 7, Facts()))
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        delete_step_record(store, "make.fill")
        assert finished(store, STEP, "a1") == set()
        assert set(begin_step(store, similar, "a1")) == {0}

    def test_another_fingerprint_starts_from_the_beginning(self, computed):
        assert begin_step(computed, STEP, "b2") == {}
        assert finished(computed, STEP, "a1") == set()
        assert not Path(computed.url, "x", "c").exists()
        assert computed.objects.names("_work/parts") == []

    def test_same_fingerprint_touches_no_data(self, computed):
        contents = {name: computed.objects.get(name) for name in computed.objects.names("")}
        assert len(begin_step(computed, STEP, "a1")) == 3
        assert {name: computed.objects.get(name) for name in computed.objects.names("")} == contents

    def test_markers_are_deleted_before_the_arrays(self, computed, monkeypatch):
        finished_at_deletion = []
        delete = computed.objects.delete

        def watch(name):
            if name in ("x", "_work/parts"):
                finished_at_deletion.append(finished(computed, STEP, "a1"))
            delete(name)

        monkeypatch.setattr(computed.objects, "delete", watch)
        begin_step(computed, STEP, "b2")
        assert finished_at_deletion == [set(), set()]


class Killed(BaseException):
    """Simulates SIGKILL: no handler may clean up."""


class KilledAt:
    """Objects that die before the operation of a given number."""

    def __init__(self, objects, operation: int) -> None:
        self._objects, self._left = objects, operation

    def __getattr__(self, name):
        def act(*arguments):
            if self._left == 0:
                raise Killed
            self._left -= 1
            return getattr(self._objects, name)(*arguments)

        return act


class TestFreed:
    def test_after_a_kill_missing_data_are_recorded_as_freed(self, store):
        for operation in range(100):
            begin_step(store, STEP, "a1")
            if not finished(store, STEP, "a1"):
                compute(store, STEP, "a1")
            dying = Store(store.url)
            dying.objects = KilledAt(dying.objects, operation)
            try:
                checkpoint.delete_data(dying, STEP.key, {"_work/parts"})
            except Killed:
                pass
            else:
                assert operation > 2
                break
            assert len(store.objects.names("_work/parts")) == 3 or checkpoint.deleted_data(store, [STEP]) == [
                {"_work/parts"}
            ]
        assert store.objects.names("_work/parts") == []
        assert len(begin_step(store, STEP, "a1")) == 3
        assert (store.read("x", 0, ROWS) == 0xA1).all()

    def test_step_with_freed_data_and_a_missing_block_begins_again(self, computed):
        checkpoint.delete_data(computed, STEP.key, {"x", "_work/parts"})
        computed.objects.delete(checkpoint.marker_name("make.fill", 1))
        assert begin_step(computed, STEP, "a1") == {}
        compute(computed, STEP, "a1")
        assert (len(begin_step(computed, STEP, "a1")), checkpoint.deleted_data(computed, [STEP])) == (3, [set()])


class TestKilledInBeginStep:
    @pytest.mark.parametrize("following", ["a1", "b2"])
    def test_after_a_kill_only_complete_blocks_count(self, store, following):
        """After a kill at any operation of the change from a1 to b2, either config finds only its own blocks."""
        for operation in range(100):
            begin_step(store, STEP, "a1")
            compute(store, STEP, "a1")
            dying = Store(store.url)
            dying.objects = KilledAt(dying.objects, operation)
            try:
                begin_step(dying, STEP, "b2")
            except Killed:
                pass
            else:
                assert operation > 5
                return
            reopened = Store(store.url)
            for block in begin_step(reopened, STEP, following):
                assert (reopened.read("x", block * BLOCK, (block + 1) * BLOCK) == int(following, 16)).all()
                assert reopened.read_bundle(f"_work/parts/{block:05d}")["mark"] == int(following, 16)
            assert reopened.array("x").shape == (ROWS,)
        pytest.fail("begin_step did not end within 100 operations")


class TestRecords:
    def test_reports_by_step_in_block_order(self, store):
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1", [2, 0, 1])
        begin_step(store, replace(STEP, key="make.rest", **EMPTY), "c3")
        reports = read_reports(store)
        assert [report.block for report in reports["make.fill"]] == [0, 1, 2]
        assert reports["make.rest"] == []
        assert recorded_steps(store)["make.fill"].n_blocks == 3

    def test_other_files_beside_the_markers_do_not_count(self, store):
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1", [0, 1])
        folder = Path(store.url, "_done", "make")
        for name in ("fill.00000.json.bak", "fill.00002.txt", "fill.json", "deeper/fill.00002.json"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(folder / "fill.00000.json", folder / name)
        assert [report.block for report in read_reports(store)["make.fill"]] == [0, 1]
        assert not is_complete(store)
        compute(store, STEP, "a1", [2])
        assert is_complete(store)

    def test_seconds_add_up_over_resumed_runs(self, store):
        begin_step(store, STEP, "a1")
        add_seconds(store, STEP, 1.25)
        add_seconds(store, STEP, 0.0)
        begin_step(store, STEP, "a1")
        add_seconds(store, STEP, 2.5)
        assert recorded_steps(store)["make.fill"].seconds == 3.75
        begin_step(store, STEP, "b2")
        assert recorded_steps(store)["make.fill"].seconds == 0.0


class TestArraysOfAnotherMethod:
    OTHER = replace(STEP, key="make.copy", task=Task(fill, {"a": 2}), bundles={})

    def test_array_belongs_to_the_step_that_wrote_it_last(self, computed):
        """A config that changes its method and changes back must not reuse the arrays of the other method."""
        assert begin_step(computed, self.OTHER, "b2") == {}
        assert finished(computed, STEP, "a1") == set()
        compute(computed, self.OTHER, "b2")
        assert set(begin_step(computed, self.OTHER, "b2")) == {0, 1, 2}
        assert begin_step(computed, STEP, "a1") == {}
        assert finished(computed, self.OTHER, "b2") == set()

    def test_records_and_data_of_removed_steps_are_deleted(self, store):
        removed = replace(STEP, key="make.gone", arrays=(), bundles={"_work/alone.npz": 0})
        of_other_stage = replace(STEP, key="rest.fill", arrays=(), bundles={"_work/rest": 0})
        for step in (removed, of_other_stage, STEP):
            begin_step(store, step, "a1")
        compute(store, STEP, "a1")
        store.write_bundle("_work/alone", x=np.zeros(1))
        store.write_bundle("_work/rest/00000", x=np.zeros(1))

        delete_unused_steps(store, "make", {"make.fill"})
        assert set(recorded_steps(store)) == {"make.fill", "rest.fill"}
        assert not store.has_bundle("_work/alone")
        assert store.has_bundle("_work/parts/00001")
        assert store.has_bundle("_work/rest/00000")
        assert set(begin_step(store, STEP, "a1")) == {0, 1, 2}

        delete_unused_steps(store, "make", set())
        assert set(recorded_steps(store)) == {"rest.fill"}
        assert not store.has_array("x")
        assert store.objects.names("_work/parts") == []
        assert store.has_bundle("_work/rest/00000")


class TestInvalidate:
    @pytest.mark.parametrize(
        ("name", "chunk", "answer", "left"),
        [
            ("x", "1", "block 1 of make.fill", {0, 2}),
            ("_work/parts/00001", "bundle", "block 1 of make.fill", {0, 2}),
            ("_work/parts/00002/00001", "bundle", "block 1 of make.fill", {0, 2}),  # from block 1 for block 2
            ("x", "zarr.json", "all of make.fill", set()),
            ("xy", "0", "nothing (no step wrote it)", {0, 1, 2}),
        ],
    )
    def test_deletes_the_markers_of_the_blocks_that_wrote_damaged_data(self, computed, name, chunk, answer, left):
        assert invalidate(computed, name, chunk) == answer
        assert finished(computed, STEP, "a1") == left

    def test_deletes_the_marker_of_a_step_of_one_block(self, store):
        step = replace(STEP, n_blocks=1)
        begin_step(store, step, "a1")
        compute(store, step, "a1")
        assert invalidate(store, "x", "2") == "all of make.fill"
        assert begin_step(store, step, "a1") == {}

    def test_deletes_the_markers_of_the_step_of_a_single_bundle(self, store):
        step = make_step("make.one", bundles={"_work/one.npz": 0})
        begin_step(store, step, "a1")
        store.write_bundle("_work/one", x=np.zeros(1))
        mark_done(store, step, "a1", BlockReport(0, 0.5, 7, Facts()))
        assert invalidate(store, "_work/one", "bundle") == "all of make.one"

    def test_deletes_the_marker_of_damaged_rows_of_the_cost_matrix(self, store):
        step = make_step("cost.merge", no_task, 2, bundles={"cost_matrix": 0})
        begin_step(store, step, "a1")
        assert invalidate(store, "cost_matrix/00001/data", "0") == "block 1 of cost.merge"


class TestChanges:
    def test_changed_step_deletes_all_steps_computed_from_it(self, store):
        next_step = replace(STEP, key="make.later", **EMPTY)
        measure = replace(STEP, key="make.measure", is_measurement=True, **EMPTY)
        for step in (STEP, next_step, measure):
            begin_step(store, step, "a1", finished_steps=None)
            mark_done(store, step, "a1", BlockReport(0, 0.5, 7, Facts()))
        begin_step(store, measure, "b2", finished_steps={"make.fill"})
        assert read_reports(store)["make.later"]
        begin_step(store, STEP, "b2", finished_steps=())
        assert set(recorded_steps(store)) == {"make.fill"}

    def test_late_task_of_an_older_run_gets_no_marker(self, store):
        begin_step(store, STEP, "b2")
        with pytest.raises(StageIncomplete, match="newer run"):
            mark_done(store, STEP, "a1", BlockReport(0, 0.5, 7, Facts()))
        assert begin_step(store, STEP, "b2") == {}


@pytest.mark.parametrize(
    "read", [lambda store: finished_blocks(store, "make.fill", "a1"), recorded_steps, read_reports]
)
def test_records_and_markers_are_read_several_at_one_time_from_an_object_store(store, read):
    for name in ("first", "second"):
        begin_step(store, replace(STEP, key=f"make.{name}", **EMPTY), "a1")
    begin_step(store, STEP, "a1")
    compute(store, STEP, "a1")
    expected = read(store)
    all_three = threading.Barrier(3, timeout=60)

    class Requests(LocalObjects):
        n_together = 3

        def get(self, name: str) -> bytes | None:
            all_three.wait()
            return super().get(name)

    store.objects = Requests(store.url)
    actual = read(store)
    assert actual == expected
    assert len(actual) == 3
    assert list(actual) == list(expected)

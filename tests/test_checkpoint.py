"""Markers count only for what decided them and is on disk; one driver at a time holds a store."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from pipeline import checkpoint, machine
from pipeline.checkpoint import (
    LOCK,
    STALE_SECONDS,
    RunLock,
    add_seconds,
    begin_step,
    fingerprint,
    finished_blocks,
    forget_step,
    forget_unused,
    invalidate,
    mark_done,
    read_reports,
    recorded_steps,
    running,
)
from pipeline.errors import StageIncomplete, StoreError
from pipeline.plan import BlockReport, PlannedArray, Step
from pipeline.schema import ArraySpec
from pipeline.store import Store

ROWS, BLOCK = 12, 4
SPEC = ArraySpec("x", ("point",), "float64", "")
STEP = Step(
    "make", "fill", dict, 3, 1, {"a": 1, "b": [2, 3]}, {"files": ["f"]},
    arrays=(PlannedArray(SPEC, (ROWS,), "float64", BLOCK),), bundles=("_work/parts",),
)  # fmt: skip


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({})
    return store


def compute(store: Store, step: Step, mark: str, blocks=range(3)) -> None:
    """The blocks of STEP: data that tells its fingerprint, then the markers."""
    for block in blocks:
        store.write("x", block * BLOCK, np.full(BLOCK, float(int(mark, 16))))
        store.write_bundle(f"_work/parts/{block:05d}", mark=np.array([int(mark, 16)]))
        mark_done(store, step, mark, BlockReport(block, 0.5, 7, {"block": block}))


def kept(store: Store, step: Step, mark: str) -> set[int]:
    return set(finished_blocks(store, step.stage, step.name, mark))


class TestFingerprint:
    @pytest.mark.parametrize(
        "changes",
        [{"parameters": {"a": 2, "b": [2, 3]}}, {"parameters": {"a": 1}}, {"parameters": {"a": 1, "b": [3, 2]}},
         {"parameters": {"a": 1, "b": [2, 3], "c": None}}, {"identity": {"files": ["g"]}}, {"identity": {}},
         {"version": 2}, {"n_blocks": 4}, {"name": "other"}, {"stage": "other"}],
    )  # fmt: skip
    def test_changes_with_what_decides_the_result(self, changes):
        assert fingerprint("up", replace(STEP, **changes)) != fingerprint("up", STEP)

    def test_changes_with_upstream(self):
        assert fingerprint("up", STEP) != fingerprint("other", STEP)

    @pytest.mark.parametrize(
        "changes",
        [{"resources": {"max_memory": 7}}, {"bytes_per_task": 99}, {"on_driver": True}, {"all_cores": True},
         {"feeds": False}, {"expected": lambda block: {"x": 1}}, {"parameters": {"b": [2, 3], "a": 1}},
         {"parameters": {"a": 1, "b": (2, 3)}}],
    )  # fmt: skip
    def test_keeps_with_how_it_is_computed(self, changes):
        assert fingerprint("up", replace(STEP, **changes)) == fingerprint("up", STEP)


class TestMarkers:
    def test_only_those_with_this_fingerprint_count(self, store):
        assert begin_step(store, STEP, "a1") == {}
        compute(store, STEP, "a1", [0, 2])
        stale = {"fingerprint": "b2", **asdict(BlockReport(1, 0.5, 7, {}))}
        store.put_json(checkpoint.marker_name("make", "fill", 1), stale)
        done = begin_step(store, STEP, "a1")
        assert done == {block: BlockReport(block, 0.5, 7, {"block": block}) for block in (0, 2)}

    def test_torn_markers_do_not_count(self, store):
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        name = checkpoint.marker_name("make", "fill", 1)
        store.objects.put(name, store.objects.get(name)[:-5])
        assert set(begin_step(store, STEP, "a1")) == {0, 2}

    def test_markers_with_a_flipped_bit_do_not_count(self, store):
        """Each bit of a marker once: it is no JSON, has another key, or another number than the task gave."""
        begin_step(store, STEP, "a1")
        report = BlockReport(1, 0.5, 7, {"members": {"4": 31}, "recall": 0.97})
        mark_done(store, STEP, "a1", report)
        name = checkpoint.marker_name("make", "fill", 1)
        whole = store.objects.get(name)
        for bit in range(8 * len(whole)):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            store.objects.put(name, bytes(damaged))
            assert checkpoint.read_marker(store, STEP, "a1", 1) in (None, report), damaged
        store.objects.put(name, whole)
        assert checkpoint.read_marker(store, STEP, "a1", 1) == report

    def test_steps_with_like_names_are_kept_apart(self, store):
        other = replace(STEP, name="fill_more", arrays=(), bundles=())
        begin_step(store, other, "a1")
        mark_done(store, other, "a1", BlockReport(0, 0.5, 7, {}))
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        forget_step(store, "make", "fill")
        assert kept(store, STEP, "a1") == set()
        assert set(begin_step(store, other, "a1")) == {0}

    def test_another_fingerprint_starts_anew(self, store):
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        assert begin_step(store, STEP, "b2") == {}
        assert kept(store, STEP, "a1") == set()
        assert not Path(store.url, "x", "c").exists()
        assert store.objects.names("_work/parts") == []

    def test_same_fingerprint_touches_no_data(self, store):
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        before = {name: store.objects.get(name) for name in store.objects.names("")}
        assert len(begin_step(store, STEP, "a1")) == 3
        assert {name: store.objects.get(name) for name in store.objects.names("")} == before

    def test_markers_are_forgotten_before_the_arrays(self, store, monkeypatch):
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        left = []
        delete = store.objects.delete

        def watch(name):
            if name in ("x", "_work/parts"):
                left.append(kept(store, STEP, "a1"))
            delete(name)

        monkeypatch.setattr(store.objects, "delete", watch)
        begin_step(store, STEP, "b2")
        assert left == [set(), set()]


class Killed(BaseException):
    """Stands for SIGKILL: nothing that it passes may tidy up."""


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


class TestKilledInBeginStep:
    @pytest.mark.parametrize("following", ["a1", "b2"])
    def test_no_marker_counts_without_its_data(self, store, following):
        """Killed anywhere in changing from a1 to b2: whichever comes next finds only whole blocks of its own."""
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
        begin_step(store, replace(STEP, name="rest", arrays=(), bundles=()), "c3")
        reports = read_reports(store)
        assert [report.block for report in reports["make", "fill"]] == [0, 1, 2]
        assert reports["make", "rest"] == []
        assert recorded_steps(store)["make", "fill"]["n_blocks"] == 3

    def test_seconds_add_up_over_resumed_runs(self, store):
        begin_step(store, STEP, "a1")
        add_seconds(store, STEP, 1.25)
        add_seconds(store, STEP, 0.0)
        begin_step(store, STEP, "a1")
        add_seconds(store, STEP, 2.5)
        assert recorded_steps(store)["make", "fill"]["seconds"] == 3.75
        begin_step(store, STEP, "b2")
        assert "seconds" not in recorded_steps(store)["make", "fill"]


class TestOtherWaysToTheSameArray:
    OTHER = replace(STEP, name="copy", parameters={"a": 2}, bundles=())

    def test_the_one_that_wrote_last_counts(self, store):
        """A config that goes from one way to another and back must not take the other's arrays for its own."""
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        assert begin_step(store, self.OTHER, "b2") == {}
        assert kept(store, STEP, "a1") == set()
        compute(store, self.OTHER, "b2")
        assert set(begin_step(store, self.OTHER, "b2")) == {0, 1, 2}
        assert begin_step(store, STEP, "a1") == {}
        assert kept(store, self.OTHER, "b2") == set()

    def test_steps_a_run_no_longer_has_are_forgotten_with_what_only_they_wrote(self, store):
        gone = replace(STEP, name="gone", arrays=(), bundles=("_work/alone.npz",))
        elsewhere = replace(STEP, stage="rest", name="fill", arrays=(), bundles=("_work/rest",))
        for step in (gone, elsewhere, STEP):
            begin_step(store, step, "a1")
        compute(store, STEP, "a1")
        store.write_bundle("_work/alone", x=np.zeros(1))
        store.write_bundle("_work/rest/00000", x=np.zeros(1))

        forget_unused(store, "make", {"fill"})
        assert set(recorded_steps(store)) == {("make", "fill"), ("rest", "fill")}
        assert not store.has_bundle("_work/alone")
        assert store.has_bundle("_work/parts/00001")
        assert store.has_bundle("_work/rest/00000")
        assert set(begin_step(store, STEP, "a1")) == {0, 1, 2}

        forget_unused(store, "make", set())
        assert set(recorded_steps(store)) == {("rest", "fill")}
        assert not store.has_array("x")
        assert store.objects.names("_work/parts") == []
        assert store.has_bundle("_work/rest/00000")


class TestInvalidate:
    def test_forgets_the_block_of_a_damaged_chunk(self, store):
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        assert invalidate(store, "x", "1") == "block 1 of make.fill"
        assert set(begin_step(store, STEP, "a1")) == {0, 2}

    def test_forgets_the_whole_step_of_one_block(self, store):
        step = replace(STEP, n_blocks=1)
        begin_step(store, step, "a1")
        compute(store, step, "a1")
        assert invalidate(store, "x", "2") == "all of make.fill"
        assert begin_step(store, step, "a1") == {}

    def test_forgets_the_whole_step_where_the_block_is_not_known(self, store):
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        assert invalidate(store, "x", "zarr.json") == "all of make.fill"
        assert begin_step(store, STEP, "a1") == {}

    @pytest.mark.parametrize("bundle", ["_work/parts/00001", "_work/parts/00002/00001"])
    def test_forgets_the_block_that_wrote_a_bundle(self, store, bundle):
        """A bundle for another block carries the number of its writer last."""
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        assert invalidate(store, bundle, "bundle") == "block 1 of make.fill"
        assert set(begin_step(store, STEP, "a1")) == {0, 2}

    def test_forgets_the_step_of_a_single_bundle(self, store):
        step = Step("make", "one", dict, 1, 1, {}, bundles=("_work/one.npz",))
        begin_step(store, step, "a1")
        store.write_bundle("_work/one", x=np.zeros(1))
        mark_done(store, step, "a1", BlockReport(0, 0.5, 7, {}))
        assert invalidate(store, "_work/one", "bundle") == "all of make.one"

    def test_rows_of_the_cost_matrix(self, store):
        step = Step("cost", "merge", dict, 2, 1, {}, bundles=("cost_matrix",))
        begin_step(store, step, "a1")
        assert invalidate(store, "cost_matrix/00001/data", "0") == "block 1 of cost.merge"

    def test_nobody_wrote_it(self, store):
        begin_step(store, STEP, "a1")
        compute(store, STEP, "a1")
        assert "no step wrote it" in invalidate(store, "xy", "0")
        assert kept(store, STEP, "a1") == {0, 1, 2}


def holder(**changes) -> bytes:
    """The content of a lock that this living process would hold."""
    me = {"host": socket.gethostname(), "pid": os.getpid(), "token": "t", "alive": time.time(),
          "started": psutil.Process().create_time()}  # fmt: skip
    return json.dumps({**me, **changes}).encode()


def written_before(store: Store, seconds: float) -> None:
    """Make the lock as old as that, by the clock of the file system."""
    path = Path(store.url, LOCK)
    os.utime(path, (path.stat().st_mtime - seconds,) * 2)


def move_to(monkeypatch, numbers: int) -> None:
    """Pretend that this process is in a container that counts its own."""
    for module in (checkpoint, machine):
        monkeypatch.setattr(module, "process_place", lambda: {"host": socket.gethostname(), "numbers": numbers})


class TestRunLock:
    def test_a_second_run_is_refused(self, store):
        with RunLock(store), pytest.raises(StoreError) as caught, RunLock(Store(store.url)):
            pass
        for part in (store.url, str(os.getpid()), socket.gethostname(), "another run holds this store"):
            assert part in str(caught.value)

    def test_given_back_at_the_end_and_after_errors(self, store):
        with RunLock(store):
            assert running(store)
        assert not store.objects.exists(LOCK)
        with pytest.raises(ZeroDivisionError), RunLock(store):
            1 / 0  # noqa: B018
        assert not running(store)
        with RunLock(Store(store.url)):
            assert running(store)

    def test_of_a_dead_process_is_taken_over(self, store):
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        store.objects.create(LOCK, holder(pid=dead.pid))
        assert not running(store)
        with RunLock(store):
            assert store.get_json(LOCK)["pid"] == os.getpid()
        assert not store.objects.exists(LOCK)

    def test_of_a_number_used_again_is_taken_over(self, store):
        store.objects.create(LOCK, holder(started=psutil.Process().create_time() - 3600))
        with RunLock(store):
            assert store.get_json(LOCK)["token"] != "t"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="zombies are of POSIX")
    def test_of_a_zombie_is_taken_over(self, store):
        child = subprocess.Popen([sys.executable, "-c", ""])
        process = psutil.Process(child.pid)
        started = process.create_time()
        deadline = time.monotonic() + 30
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.01)
        store.objects.create(LOCK, holder(pid=child.pid, started=started))
        try:
            assert not running(store)
        finally:
            child.wait()

    @pytest.mark.parametrize(("silent", "alive"), [(0, True), (STALE_SECONDS - 60, True), (STALE_SECONDS + 60, False)])
    def test_of_another_host_is_judged_by_its_last_sign_of_life(self, store, silent, alive):
        # The number of a living process here says nothing about the other host, nor does one of a dead process.
        for pid in (os.getpid(), 2**22 - 1):
            store.objects.put(LOCK, holder(host="elsewhere", pid=pid, alive=time.time() - silent))
            written_before(store, silent)
            assert running(store) == alive
        if alive:
            with pytest.raises(StoreError, match="on elsewhere"), RunLock(store):
                pass
        else:
            with RunLock(store):
                assert running(store)

    def test_of_a_container_of_the_same_host_name_is_judged_so_too(self, store, monkeypatch):
        """Its processes are counted apart, so a number that is free here may be alive there."""
        move_to(monkeypatch, 1)
        with RunLock(store):
            theirs = store.get_json(LOCK)
        store.objects.put(LOCK, json.dumps({**theirs, "pid": 2**22 - 1}).encode())
        assert not running(store)
        move_to(monkeypatch, 2)
        assert running(store)
        with pytest.raises(StoreError, match=f"on {socket.gethostname()}\\)"), RunLock(store):
            pass
        written_before(store, STALE_SECONDS + 60)
        with RunLock(store):
            assert store.get_json(LOCK)["numbers"] == 2

    def test_of_before_processes_were_told_apart_so_is_judged_by_the_number(self, store):
        assert "numbers" not in json.loads(holder())
        for pid, alive in ((os.getpid(), True), (2**22 - 1, False)):
            store.objects.put(LOCK, holder(pid=pid))
            assert running(store) == alive

    @pytest.mark.parametrize("skew", [-86_400, 86_400])
    def test_of_a_host_whose_clock_is_a_day_off(self, store, skew):
        """What counts is when the file system says the lock was written."""
        store.objects.put(LOCK, holder(host="elsewhere", alive=time.time() + skew))
        with pytest.raises(StoreError, match="on elsewhere"), RunLock(store):
            pass
        written_before(store, STALE_SECONDS + 60)
        with RunLock(store):
            assert store.get_json(LOCK)["pid"] == os.getpid()
        assert store.objects.names("_run") == []

    def test_torn_lock_is_taken_over(self, store):
        store.objects.create(LOCK, b'{"host": ')
        with RunLock(store):
            assert store.get_json(LOCK)["pid"] == os.getpid()

    def test_shows_life(self, store, monkeypatch):
        monkeypatch.setattr(checkpoint, "HEARTBEAT_SECONDS", 0.02)
        with RunLock(store):
            first = store.get_json(LOCK)["alive"]
            deadline = time.monotonic() + 30
            while store.get_json(LOCK)["alive"] == first and time.monotonic() < deadline:
                time.sleep(0.01)
            assert store.get_json(LOCK)["alive"] > first

    def test_leaves_the_lock_of_another_run_alone(self, store):
        with RunLock(store):
            store.objects.put(LOCK, holder(token="other"))
        assert store.get_json(LOCK)["token"] == "other"

    def test_one_of_several_at_once_gets_it(self, store):
        barrier, entered, refused = threading.Barrier(6), [], []
        ended = threading.Event()

        def start():
            lock = RunLock(Store(store.url))
            barrier.wait()
            try:
                with lock:
                    entered.append(lock)
                    ended.wait(30)
            except StoreError:
                refused.append(lock)
                if len(refused) == 5:
                    ended.set()

        threads = [threading.Thread(target=start) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(entered), len(refused)) == (1, 5)

    def test_sign_of_life_of_a_run_that_slept_is_no_takeover(self, store, monkeypatch):
        monkeypatch.setattr(checkpoint, "HEARTBEAT_SECONDS", 0.02)
        with RunLock(store):
            store.objects.put(LOCK, holder(token="other", host="elsewhere"))
            time.sleep(0.3)
            assert store.get_json(LOCK)["token"] == "other"

    def test_two_runs_that_find_a_dead_lock_do_not_both_get_it(self, store, monkeypatch):
        store.objects.create(LOCK, holder(pid=2**22 - 1))
        quick, slow = RunLock(Store(store.url)), RunLock(store)
        delete = store.objects.delete

        def overtaken(name):
            monkeypatch.setattr(store.objects, "delete", delete)
            quick.__enter__()
            delete(name)

        monkeypatch.setattr(store.objects, "delete", overtaken)
        try:
            with pytest.raises(StoreError, match="another run"):
                slow.__enter__()
        finally:
            slow.__exit__()
            quick.__exit__()

    def test_lock_released_and_taken_meanwhile_is_not_removed(self, store, monkeypatch):
        first, second, third = RunLock(Store(store.url)), RunLock(Store(store.url)), RunLock(store)
        first.__enter__()
        get_json, looks = store.get_json, []

        def look(name):
            looks.append(name)
            if len(looks) == 1:
                first.__exit__()
                found = get_json(name)
                second.__enter__()
                return found
            return get_json(name)

        monkeypatch.setattr(store, "get_json", look)
        try:
            with pytest.raises(StoreError, match="another run"):
                third.__enter__()
        finally:
            third.__exit__()
            second.__exit__()


class TestChanges:
    def test_a_changed_step_forgets_what_others_computed_from_it(self, store):
        later = replace(STEP, name="later", arrays=(), bundles=())
        measure = replace(STEP, name="measure", arrays=(), bundles=(), feeds=False)
        for step in (STEP, later, measure):
            begin_step(store, step, "a1", before=None)
            mark_done(store, step, "a1", BlockReport(0, 0.5, 7, {}))
        begin_step(store, measure, "b2", before={("make", "fill")})
        assert read_reports(store)["make", "later"]
        begin_step(store, STEP, "b2", before=())
        assert set(recorded_steps(store)) == {("make", "fill")}

    def test_a_late_task_of_an_older_run_is_not_marked(self, store):
        begin_step(store, STEP, "b2")
        with pytest.raises(StageIncomplete, match="newer run"):
            mark_done(store, STEP, "a1", BlockReport(0, 0.5, 7, {}))
        assert begin_step(store, STEP, "b2") == {}

"""Failing blocks, serially and on a cluster: stored results, messages, and blocks that the next run computes."""

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import dask
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from lle.clusters.connect import connect
from lle.config.models import Cluster
from lle.core.errors import (
    BoundsNotMet,
    CorruptChunk,
    InputError,
    Interrupted,
    LleError,
    NotEnoughMemory,
    StageIncomplete,
    StoreError,
)
from lle.core.signals import interruptible
from lle.engine import checkpoint, execute, tasks, worker_tasks
from lle.engine.execute import Executor, outcomes_in_threads, run_step
from lle.engine.step import WHOLE_DATA, WORKER
from lle.engine.tasks import run_task
from lle.engine.worker_tasks import RETRIES, WINDOW_PER_WORKER
from lle.storage.array_specs import ArraySpec, PlannedArray
from lle.storage.store import Store
from tests.support.dask_processes import two_workers
from tests.support.points import swiss_roll
from tests.support.stage_runs import Progress
from tests.support.steps import Facts, make_step
from tests.support.waiting import wait_until

ROWS, BLOCK = 36, 6
N_BLOCKS = ROWS // BLOCK
ERRORS = {
    "value": ValueError,
    "os": FileNotFoundError,
    "input": InputError,
    "bounds": BoundsNotMet,
    "memory": NotEnoughMemory,
    "store": StoreError,
}


def spec(name):
    return PlannedArray(ArraySpec(name, ("point",), "float64", ""), (ROWS,), "float64", BLOCK)


def produce(store, block, value, delay=0.0) -> Facts:
    """Writes block + value. Fails as `faults.json` says: {block: [number of calls that fail, kind of error]}."""
    number = 1
    while not store.objects.create(f"calls/produce/{block}.{number}", str(os.getpid()).encode()):
        number += 1
    calls, kind = (store.get_json("faults.json") or {}).get(str(block), (0, ""))
    if number <= calls:
        if kind == "exit":
            time.sleep(delay)
            os._exit(3)
        raise ERRORS[kind](f"fault {number} of block {block}")
    store.write("x", block * BLOCK, np.full(BLOCK, block + value))
    return Facts({"block": block})


def consume(store, block, twice) -> Facts:
    """Doubles what `produce` wrote."""
    store.objects.create(f"calls/consume/{block}.{time.monotonic_ns()}", b"")
    store.write("y", block * BLOCK, twice * store.read("x", block * BLOCK, (block + 1) * BLOCK))
    return Facts()


def look(store, block, **parameters) -> Facts:
    """Where and how a task runs."""
    threads = [pool["num_threads"] for pool in threadpool_info()]
    return Facts({"pid": os.getpid(), "threads": max(threads), "given": parameters})


def overtaken(store, block, value) -> Facts:
    """Another run computes the block before this task writes it, as after the kill of a driver."""
    if value == 0.5:
        newer = make_step("make.produce", overtaken, N_BLOCKS, {"value": 7.0}, arrays=(spec("x"),))
        checkpoint.begin_step(store, newer, "newer")
        run_task(store.url, newer, "newer", block)
    store.write("x", block * BLOCK, np.full(BLOCK, value))
    return Facts()


LOADS_LATE = """
import json
import sys
from unittest.mock import Mock
from threadpoolctl import threadpool_info
from lle.engine.execute import Executor, run_step
from lle.storage.store import Store
from tests.support.steps import Facts, make_step

def load(store, block) -> Facts:
    import sklearn.utils._openmp_helpers
    return Facts()

def look(store, block) -> Facts:
    return Facts({"pools": sorted({(pool["internal_api"], pool["num_threads"]) for pool in threadpool_info()})})

def run(name, function):
    step = make_step(f"t.{name}", function)
    return run_step(step, "", Store(sys.argv[1]), Executor(None), Mock())[0].report.values

# The order in which libraries are listed differs between machines.
print(json.dumps(run("before", look)))
run("load", load)
print(json.dumps(run("after", look)))
"""


def allocate(store, block, sizes) -> Facts:
    values = np.ones(sizes[block] // 8)
    return Facts({"sum": float(values.sum())})


PRODUCE = make_step("t.produce", produce, N_BLOCKS, {"value": 0.5}, arrays=(spec("x"),))
CONSUME = make_step("t.consume", consume, N_BLOCKS, {"twice": 2.0}, arrays=(spec("y"),))


@pytest.fixture(scope="module")
def client():
    with two_workers() as client:
        yield client


@pytest.mark.slow
def test_workers_have_no_profiler_which_can_stop_python_3_11(client):
    profilers = client.run(lambda dask_worker: "profile" in dask_worker.periodic_callbacks)
    assert set(profilers.values()) == {sys.version_info >= (3, 12)}


@pytest.fixture(params=["serial", "threads", "distributed"])
def executor(request):
    if request.param != "distributed":
        return replace(request.getfixturevalue("serial"), n_threads=2 if request.param == "threads" else 1)
    return Executor(request.getfixturevalue("client"))


def calls(store, name="produce") -> dict[int, int]:
    """How often each block was tried."""
    counts: dict[int, int] = {}
    for path in store.objects.names(f"calls/{name}"):
        block = int(path.rsplit("/", 1)[1].split(".")[0])
        counts[block] = counts.get(block, 0) + 1
    return counts


def attempts(executor) -> int:
    """How often a failing block is tried in one run."""
    return 1 if executor.client is None else 1 + RETRIES


def expected_x(value=0.5):
    return np.repeat(np.arange(N_BLOCKS), BLOCK) + value


class TestBothExecutors:
    def test_every_block_once_with_reports_in_order(self, store, executor, progress):
        reports = run_step(PRODUCE, "", store, executor, progress)
        assert [report.block for report in reports] == list(range(N_BLOCKS))
        assert [report.report.values for report in reports] == [{"block": block} for block in range(N_BLOCKS)]
        assert all(report.seconds >= 0 and report.peak_bytes > 0 for report in reports)
        assert calls(store) == dict.fromkeys(range(N_BLOCKS), 1)
        np.testing.assert_array_equal(store.read_all("x"), expected_x())

    def test_a_finished_step_is_not_computed_again(self, store, executor, progress):
        first = run_step(PRODUCE, "", store, executor, Progress())
        second = run_step(PRODUCE, "", store, executor, progress)
        assert second == first
        assert calls(store) == dict.fromkeys(range(N_BLOCKS), 1)
        assert (progress.begun, progress.advanced, progress.ended) == ([("produce", N_BLOCKS)], [], [("produce", 0)])

    def test_progress_is_called_for_every_block(self, store, executor, progress):
        store.put_json("faults.json", {"2": [99, "value"]})
        with pytest.raises(StageIncomplete):
            run_step(PRODUCE, "", store, executor, progress)
        assert progress.begun == [("produce", 0)]
        assert sorted(progress.advanced) == [0, 1, 3, 4, 5]
        assert progress.ended == []

    @pytest.mark.parametrize("kind", ["value", "memory", "os"])
    def test_other_blocks_finish_and_only_failed_ones_are_computed_again(self, store, executor, kind):
        store.put_json("faults.json", {"1": [99, kind], "4": [99, kind]})
        with pytest.raises(StageIncomplete) as caught:
            run_step(PRODUCE, "", store, executor, Progress())
        for part in ("t.produce: 2 of 6 blocks failed", f"block 1: {ERRORS[kind].__name__}: fault", "block 4: "):
            assert part in str(caught.value)
        assert "block 0" not in str(caught.value)
        assert calls(store) == {block: attempts(executor) if block in (1, 4) else 1 for block in range(N_BLOCKS)}

        store.put_json("faults.json", {})
        run_step(PRODUCE, "", store, executor, Progress())
        assert calls(store) == {block: attempts(executor) + 1 if block in (1, 4) else 1 for block in range(N_BLOCKS)}
        np.testing.assert_array_equal(store.read_all("x"), expected_x())

    def test_long_lists_of_failures_are_shortened(self, store, executor):
        store.put_json("faults.json", {str(block): [99, "value"] for block in range(N_BLOCKS)})
        with pytest.raises(StageIncomplete) as caught:
            run_step(PRODUCE, "", store, executor, Progress())
        assert str(caught.value).count("  block ") == 5
        assert "and 1 more" in str(caught.value)
        assert str(caught.value)[-1] != "."  # a sentence may follow

    @pytest.mark.parametrize(("kind", "code"), [("input", 2), ("bounds", 3), ("store", 1)])
    def test_permanent_errors_end_the_run_at_once(self, store, executor, kind, code):
        store.put_json("faults.json", {"1": [99, kind]})
        step = make_step("t.produce", produce, 40, {"value": 0.5})
        store.create(spec("x"))
        with pytest.raises(ERRORS[kind], match="of block 1") as caught:
            run_step(step, "", store, executor, Progress())
        assert caught.value.exit_code == code
        assert len(calls(store)) < 30

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_signal_that_arrives_in_a_destructor_stops_the_run(self, store, executor):
        class Stopping(Progress):
            def advance(self, step, report):
                super().advance(step, report)
                if len(self.advanced) == 1:
                    weakref.finalize(type("Anything", (), {})(), os.kill, os.getpid(), signal.SIGTERM)

        progress = Stopping()
        with pytest.raises(Interrupted), interruptible():
            run_step(PRODUCE, "", store, executor, progress)
        assert len(progress.advanced) == 1

    def test_damaged_chunk_deletes_only_the_marker_of_its_block(self, store, executor):
        run_step(PRODUCE, "", store, executor, Progress())
        path = Path(store.url, "x", "c", "3")
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(StageIncomplete) as caught:
            run_step(CONSUME, "up", store, executor, Progress())
        for part in (
            "'x', chunk 3",
            "Its block (block 3 of t.produce) is computed again",
            "run the same command again",
        ):
            assert part in str(caught.value)

        store = Store(store.url)
        run_step(PRODUCE, "", store, executor, Progress())
        run_step(CONSUME, "up", store, executor, Progress())
        assert calls(store) == {**dict.fromkeys(range(N_BLOCKS), 1), 3: 2}
        np.testing.assert_array_equal(store.read_all("y"), 2 * expected_x())

    def test_one_thread_unless_the_step_uses_all_cores(self, store, executor):
        [block] = run_step(make_step("t.look", look), "", store, executor, Progress())
        assert block.report.values["threads"] == 1

    def test_peak_bytes_are_those_of_the_block(self, store, executor):
        step = make_step("t.allocate", allocate, 2, {"sizes": [8, 2**28]})
        small, large = (report.peak_bytes for report in run_step(step, "", store, executor, Progress()))
        assert large > 2**28
        if executor.client is None and executor.n_threads == 1:  # else both blocks may have run at one time
            assert large > small + 0.9 * 2**28


class TestSerial:
    def test_nothing_runs_after_an_input_error(self, store, serial):
        store.put_json("faults.json", {"2": [99, "input"]})
        with pytest.raises(InputError):
            run_step(PRODUCE, "", store, serial, Progress())
        assert calls(store) == {0: 1, 1: 1, 2: 1}

    def test_step_for_all_cores_uses_all_threads(self, store, serial):
        threads = max(pool["num_threads"] for pool in threadpool_info())
        [report] = run_step(make_step("t.look", look, all_cores=True), "", store, serial, Progress())
        assert report.report.values["threads"] == threads

    def test_tasks_share_one_thread_beside_the_main_thread(self, store, serial):
        step = make_step("t.thread", lambda store, block: Facts({"in": threading.current_thread().name}), 3)
        [name] = {report.report.values["in"] for report in run_step(step, "", store, serial, Progress())}
        assert name != threading.current_thread().name

    @pytest.mark.slow
    def test_library_loaded_by_a_task_uses_one_thread(self, tmp_path):
        completed = subprocess.run(
            [sys.executable, "-c", LOADS_LATE, str(tmp_path)],
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "2"},
            check=True,
        )
        before, after = [json.loads(line)["pools"] for line in completed.stdout.splitlines()]
        assert before == [["openblas", 1]]
        assert after == [["openblas", 1], ["openmp", 1]]

    def test_task_that_exits_fails_only_its_block(self, store, serial):
        def leave(store, block):
            raise SystemExit(5)

        with pytest.raises((StageIncomplete, SystemExit)):
            run_step(make_step("t.leave", leave), "", store, serial, Progress())

    def test_a_late_task_of_an_older_run_writes_nothing(self, store, monkeypatch):
        monkeypatch.setattr(tasks, "CURRENT_SECONDS", 0.0)
        older = make_step("make.produce", overtaken, N_BLOCKS, {"value": 0.5}, arrays=(spec("x"),))
        checkpoint.begin_step(store, older, "older")
        with pytest.raises(StageIncomplete, match="newer run"):
            run_task(store.url, older, "older", 2)
        assert checkpoint.read_marker(store, older, "newer", 2) is not None
        np.testing.assert_array_equal(store.read("x", 2 * BLOCK, 3 * BLOCK), 7.0)

    def test_seconds_are_recorded(self, store, serial):
        step = make_step("t.sleep", lambda store, block: time.sleep(0.03) or Facts(), 2)
        run_step(step, "", store, serial, Progress())
        assert checkpoint.recorded_steps(store)["t.sleep"].seconds >= 0.06


@pytest.mark.timeout(120)
class TestDistributed:
    def test_all_but_driver_steps_run_on_workers(self, store, client):
        for on_driver in (False, True):
            step = make_step(f"t.look{on_driver}", look, 4, runs_on=WHOLE_DATA if on_driver else WORKER)
            reports = run_step(step, "", store, Executor(client), Progress())
            in_this_process = {report.report.values["pid"] == os.getpid() for report in reports}
            assert in_this_process == {on_driver}

    def test_temporary_failure_is_retried(self, store, client):
        store.put_json("faults.json", {"1": [1, "value"], "3": [RETRIES, "memory"]})
        run_step(PRODUCE, "", store, Executor(client), Progress())
        assert calls(store) == {0: 1, 1: 2, 2: 1, 3: 1 + RETRIES, 4: 1, 5: 1}

    def test_few_blocks_are_submitted_at_a_time(self, store, client):
        outstanding = []

        class Watch(Progress):
            def advance(self, step, report):
                outstanding.append(len(client.futures))

        gc.collect()  # futures of failed steps live in tracebacks
        n_before = len(client.futures)
        run_step(make_step("t.look", look, 40), "", store, Executor(client), Watch())
        assert len(outstanding) == 40
        assert max(outstanding) - n_before <= WINDOW_PER_WORKER * 2 + 1

    def test_blocks_of_a_dead_worker_are_computed_again(self, store, client):
        store.put_json("faults.json", {"5": [1, "exit"]})
        run_step(PRODUCE, "", store, Executor(client), Progress())
        assert calls(store)[5] == 2
        np.testing.assert_array_equal(store.read_all("x"), expected_x())

    @pytest.mark.slow
    def test_block_that_kills_its_worker_is_named_and_other_blocks_finish(self, store):
        """With one worker and no retry, Dask would report every block that waits on the dead worker as failed."""
        store.put_json("faults.json", {"0": [99, "exit"]})
        slow = make_step("t.produce", produce, N_BLOCKS, {"value": 0.5, "delay": 0.5}, arrays=(spec("x"),))
        with (
            dask.config.set({"distributed.scheduler.allowed-failures": 0}),
            connect(Cluster(kind="local", workers=1, memory="2GiB")) as client,
            pytest.raises(StageIncomplete) as caught,
        ):
            run_step(slow, "", store, Executor(client), Progress())
        assert f"1 of {N_BLOCKS} blocks failed" in str(caught.value)
        assert "block 0: StageIncomplete: its worker was killed" in str(caught.value)
        finished = checkpoint.begin_step(store, slow, slow.fingerprint(""))
        assert set(finished) == set(range(1, N_BLOCKS))

    @pytest.mark.slow
    def test_same_bytes_as_serial(self, tmp_path, client, run_stages, make_config):
        points = swiss_roll(700, np.random.default_rng(29))
        points[650:] = points[:50]
        points[300] = np.nan
        sections = {"preprocess": {"scale": "standard", "pca": 3, "invalid": "drop"}, "neighbors": {"n_neighbors": 8}}
        config = make_config(tmp_path, points, 160, **sections)
        stores = []
        executors = {"serial": Executor(None), "threads": Executor(None, n_threads=3), "distributed": Executor(client)}
        for name, executor in executors.items():
            output = config.output.model_copy(update={"store": str(tmp_path / name)})
            stores.append(run_stages(config.model_copy(update={"output": output}), "assemble_cost", executor).store)
        contents = []
        for store in stores:
            names = [name for name in store.objects.names("") if not name.startswith(("_run/", "_done/"))]
            contents.append({name: store.objects.get(name) for name in names})
        first, *others = contents
        for other in others:
            assert first.keys() == other.keys()
            assert [name for name in first if first[name] != other[name]] == []
        assert len(first) > 60


class TestWorkerCount:
    def test_number_of_workers_is_updated(self, monkeypatch):
        class Scheduler:
            workers, n_calls = 1, 0

        def workers_of(scheduler):
            scheduler.n_calls += 1
            return dict.fromkeys(range(scheduler.workers))

        scheduler, now = Scheduler(), [100.0]
        monkeypatch.setattr(worker_tasks, "workers_of", workers_of)
        monkeypatch.setattr(worker_tasks.time, "monotonic", lambda: now[0])
        n_workers = worker_tasks._WorkerCount(scheduler)
        sizes = []
        for workers, seconds in (
            (1, 0.0),
            (9, 1.0),
            (9, worker_tasks.WORKER_COUNT_SECONDS),
            (0, worker_tasks.WORKER_COUNT_SECONDS + 1),
        ):
            scheduler.workers = workers
            now[0] += seconds
            sizes.append(n_workers.size())
        assert (sizes, scheduler.n_calls) == ([1, 1, 9, 1], 3)


class TestResultOfAFinishedTask:
    """Its worker may be busy, and the client may be closed while the result is fetched."""

    @staticmethod
    def future(status, n_late):
        future = Mock(**{"exception.return_value": None})
        future.client.status = status
        future.result.side_effect = [TimeoutError("late")] * n_late + [7]
        return future

    def test_result_of_a_busy_worker_is_waited_for(self):
        assert worker_tasks.result_or_error(self.future("running", 3), "") == 7

    @pytest.mark.parametrize(
        ("status", "n"), [("closed", 1), ("closing", 1), ("running", worker_tasks.GATHER_ATTEMPTS)]
    )
    def test_a_closed_client_is_not_waited_for(self, status, n):
        future = self.future(status, 1000)
        with pytest.raises(LleError, match="the Dask scheduler was lost in find_neighbors"):
            worker_tasks.result_or_error(future, " in find_neighbors")
        assert future.result.call_count == n


class TestPickledErrors:
    """Errors are pickled between processes and must keep their message."""

    @pytest.mark.parametrize("error", [InputError("a"), BoundsNotMet("b"), CorruptChunk("x", "3", "torn")])
    def test_errors_survive_pickling(self, error):
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), str(copied), copied.exit_code) == (type(error), str(error), error.exit_code)

    def test_exit_code_survives_pickling(self):
        error = StoreError("no rights")
        error.exit_code = 2
        assert pickle.loads(pickle.dumps(error)).exit_code == 2


class TestThreadsOfThisProcess:
    """Tasks of this process run in threads that are used again."""

    def test_thread_is_used_again(self):
        idents = {ident for _, ident in outcomes_in_threads(lambda block: threading.get_ident(), range(3), 1)}
        assert len(idents) == 1
        assert threading.get_ident() not in idents

    def test_settings_of_a_task_end_with_it(self):
        variable = ContextVar("variable", default=0)

        def task(block):
            return variable.get() + (variable.set(1) and 0)

        assert list(outcomes_in_threads(task, range(2), 1)) == [(0, 0), (1, 0)]

    def test_thread_of_a_failed_task_is_not_used_again(self):
        idents = []

        def fails(block):
            idents.append(threading.get_ident())
            raise ValueError

        [(_, error)] = outcomes_in_threads(fails, [0], 1)
        assert isinstance(error, ValueError)
        [(_, ident)] = outcomes_in_threads(lambda block: threading.get_ident(), [0], 1)
        assert ident not in idents

    @pytest.mark.parametrize(("n_threads", "passes"), [(1, False), (3, True)])
    def test_blocks_are_computed_at_one_time(self, n_threads, passes):
        barrier = threading.Barrier(3, timeout=20 if passes else 0.1)
        outcomes = dict(outcomes_in_threads(lambda block: barrier.wait() >= 0, range(6), n_threads))
        assert sorted(outcomes) == list(range(6))
        assert [outcome is True for outcome in outcomes.values()] == [passes] * 6

    def test_no_more_blocks_than_threads_are_computed_at_one_time(self):
        running, most = [], []

        def task(block):
            running.append(block)
            most.append(len(running))
            time.sleep(0.01)
            running.remove(block)

        assert len(list(outcomes_in_threads(task, range(12), 3))) == 12
        assert max(most) == 3

    def test_running_blocks_are_finished_if_no_further_outcome_is_taken(self):
        begun, ended, may_end = [], [], threading.Event()

        def task(block):
            begun.append(block)
            if block:
                may_end.wait(20)
                time.sleep(0.1)
            ended.append(block)

        outcomes = outcomes_in_threads(task, range(9), 3)
        assert next(outcomes)[0] == 0
        may_end.set()
        outcomes.close()
        assert sorted(ended) == sorted(begun) == [0, 1, 2]

    def test_a_signal_between_two_outcomes_ends_the_run_without_a_traceback(self, store, capsys):
        class Stopping(Progress):
            def advance(self, step, report):
                signal.raise_signal(signal.SIGINT)

        step = make_step("t.task", lambda store, block: Facts(time.sleep(0.5 * (block > 0)) or {}), 3)
        with pytest.raises(Interrupted), interruptible():
            run_step(step, "", store, Executor(None, n_threads=3), Stopping())
        gc.collect()
        assert capsys.readouterr().err == ""

    def test_number_of_threads_is_limited_by_memory(self, monkeypatch):
        monkeypatch.setattr(execute, "available_memory", lambda: 3 * 2**30)
        small, large = (replace(PRODUCE, task_bytes=n_bytes) for n_bytes in (2**20, 2**30))
        executor = Executor(None, n_threads=4)
        assert (executor.threads_of(small), executor.threads_of(large)) == (4, 2)
        assert executor.threads_of(replace(large, task_bytes=2**40)) == 1
        assert executor.threads_of(replace(small, runs_on=WHOLE_DATA)) == 1
        assert executor.threads_of(replace(small, all_cores=True)) == 1

    def test_peak_of_a_task_includes_what_was_freed_before_another_one_began(self, store):
        freed, third_ended = threading.Event(), threading.Event()

        def task(store, block) -> Facts:
            if block == 0:
                np.ones(2**25).sum()
                freed.set()
                third_ended.wait(20)
            freed.wait(20)
            if block == 2:
                third_ended.set()
            return Facts()

        step = make_step("t.task", task, 3)
        first, _, third = run_step(step, "", store, Executor(None, n_threads=2), Progress())
        assert third.peak_bytes < first.base_bytes + 2**27
        assert first.peak_bytes > first.base_bytes + 0.9 * 2**28

    def test_peak_of_a_task_includes_what_was_freed_after_another_one_ended(self, store):
        may_allocate, freed, third_ended = (threading.Event() for _ in range(3))

        def task(store, block) -> Facts:
            if block == 0:
                may_allocate.wait(20)
                np.ones(2**25).sum()
                freed.set()
                third_ended.wait(20)
            if block == 2:
                third_ended.set()
            return Facts()

        class Between(Progress):
            def advance(self, step, report):
                may_allocate.set()
                freed.wait(20)

        first, *_ = run_step(make_step("t.task", task, 3), "", store, Executor(None, n_threads=2), Between())
        assert first.peak_bytes > first.base_bytes + 0.9 * 2**28

    @pytest.mark.parametrize("writes", [False, True])
    def test_interrupted_task_writes_nothing_more(self, store, monkeypatch, writes):
        def stop():
            raise Interrupted(signal.SIGINT)

        begun, may_end, threads = threading.Event(), threading.Event(), []

        def task(store, block) -> Facts:
            threads.append(threading.current_thread())
            begun.set()
            may_end.wait(20)
            if writes:
                store.write("x", block * BLOCK, np.ones(BLOCK))
            return Facts()

        monkeypatch.setattr(execute, "WRITE_SECONDS", 0.05)
        step = make_step("t.task", task, N_BLOCKS, arrays=(spec("x"),))
        with monkeypatch.context() as patch:
            patch.setattr(execute, "raise_if_stopped", lambda: stop() if begun.is_set() else None)
            with pytest.raises(Interrupted):
                run_step(step, "", store, Executor(None, n_threads=2), Progress())
        may_end.set()
        for thread in threads:
            thread.join(20)
        assert store.objects.names("x") == ["x/zarr.json"]
        assert store.objects.names("_done") == []

    def test_interrupt_waits_for_a_write(self, monkeypatch):
        def stop():
            raise Interrupted(signal.SIGINT)

        begun, ended = threading.Event(), threading.Event()

        def writes(block):
            begun.set()
            time.sleep(0.2)
            ended.set()

        monkeypatch.setattr(execute, "raise_if_stopped", lambda: stop() if begun.is_set() else None)
        with pytest.raises(Interrupted):
            list(outcomes_in_threads(writes, range(9), 1))
        assert ended.is_set()

    @pytest.mark.slow
    def test_interrupted_task_leaves_no_thread_and_no_arrays(self, monkeypatch):
        def stop():
            raise Interrupted(signal.SIGINT)

        references, threads, may_end = [], threading.active_count(), threading.Event()
        execute._idle_threads.clear()

        def task(block):
            array = np.ones(10)
            references.append(weakref.ref(array))
            may_end.wait()
            raise ValueError

        with monkeypatch.context() as patch:
            patch.setattr(execute, "raise_if_stopped", lambda: stop() if len(references) == 2 else None)
            with pytest.raises(Interrupted):
                list(outcomes_in_threads(task, range(9), 2))
        may_end.set()
        assert len(references) == 2
        wait_until(lambda: gc.collect() >= 0 and all(reference() is None for reference in references))
        wait_until(lambda: threading.active_count() <= threads)
